"""The options of the provider: names, parsers, texts. What TensorRT makes of them is elsewhere.

Names and meanings are those of ONNX Runtime's TensorRT provider.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ep_core.contracts import OptionSpec
from ep_sdk.options import as_bool, as_choice, as_int

__all__ = ["OPTIONS", "ShapeTexts", "as_shapes"]

ShapeTexts = tuple[tuple[str, tuple[int, ...]], ...]
"""Names of values, each with a shape; ordered by name."""

_SHAPE = re.compile(r"\d+(x\d+)*")
_MOST_STREAMS = 64
_MOST_BYTES = 2**50


def as_shapes(value: Any) -> ShapeTexts:
    """Parse shapes by name: a dict of lists, or text such as `ids:1x128,mask:1x128`.

    Raises:
        ValueError: anything else, or a name that stands there twice.
    """
    wrong = ValueError(f"expected shapes such as 'x:1x3x224x224,y:1x8', got {value!r}")
    pairs: list[tuple[str, Any]] = []
    if isinstance(value, str):
        for item in filter(None, (part.strip() for part in value.split(","))):
            name, _, text = item.rpartition(":")
            if not name or not _SHAPE.fullmatch(text):
                raise wrong
            pairs.append((name, [int(length) for length in text.split("x")]))
    elif isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, tuple):
        pairs = [pair for pair in value if isinstance(pair, tuple) and len(pair) == 2]
        if len(pairs) != len(value):
            raise wrong
    else:
        raise wrong
    found = {}
    for name, shape in pairs:
        if not isinstance(name, str) or not _is_shape(shape):
            raise wrong
        if name in found:
            raise ValueError(f"{name!r} stands there twice in {value!r}")
        found[name] = tuple(shape)
    return tuple(sorted(found.items()))


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list | tuple) and all(type(n) is int and n >= 0 for n in shape)


def _refused(name: str, instead: str) -> Callable[[Any], bool]:
    """A parser of a switch that can only be off."""

    def parse(value: Any) -> bool:
        if as_bool(value):
            raise ValueError(f"{name} isn't offered: {instead}")
        return False

    return parse


OPTIONS: Mapping[str, OptionSpec] = {
    "trt_fp16_enable": OptionSpec(
        False,
        "let TensorRT compute 32-bit nodes in 16-bit floats; only TensorRT below 11 can, others "
        "compute in the types of the model",
        as_bool,
        numerics=True,
    ),
    "trt_int8_enable": OptionSpec(
        False,
        "never on: models with QuantizeLinear and DequantizeLinear are computed in 8 bits as they "
        "are",
        _refused("trt_int8_enable", "quantise the model with QuantizeLinear nodes"),
        numerics=True,
    ),
    "trt_tf32_enable": OptionSpec(
        False,
        "let products of 32-bit floats be computed in TF32, with 10 bits of mantissa",
        as_bool,
        numerics=True,
    ),
    "trt_max_workspace_size": OptionSpec(
        0, "bytes that a layer may take for itself, 0 for TensorRT's choice", as_int(0, _MOST_BYTES)
    ),
    "trt_builder_optimization_level": OptionSpec(
        3, "how long to look for fast kernels, from 0 (quickest build) to 5", as_int(0, 5)
    ),
    "trt_auxiliary_streams": OptionSpec(
        -1, "streams beside the main one, -1 for TensorRT's choice", as_int(-1, _MOST_STREAMS)
    ),
    "trt_weight_stripped_engine_enable": OptionSpec(
        False,
        "never on: engines keep their weights",
        _refused("trt_weight_stripped_engine_enable", "engines keep their weights"),
    ),
    "trt_cuda_graph_enable": OptionSpec(
        False,
        "never on: runs aren't captured as CUDA graphs",
        _refused("trt_cuda_graph_enable", "runs aren't captured as CUDA graphs"),
        artifacts=False,
    ),
    "trt_engine_cache_enable": OptionSpec(
        False,
        "never on: the session keeps engines, see SessionOptions.cache_dir",
        _refused("trt_engine_cache_enable", "set SessionOptions.cache_dir, which keeps engines"),
        artifacts=False,
    ),
    "trt_timing_cache_enable": OptionSpec(
        False,
        "never on: TensorRT's timing cache isn't kept",
        _refused("trt_timing_cache_enable", "set SessionOptions.cache_dir, which keeps engines"),
        artifacts=False,
    ),
    "trt_min_subgraph_size": OptionSpec(
        3,
        "connected nodes from which on an engine is made of them; a model of fewer nodes is taken "
        "whole",
        as_int(1),
    ),
    "trt_profile_min_shapes": OptionSpec(
        (), "smallest shapes of inputs, as name:1x3x224x224 with commas between", as_shapes
    ),
    "trt_profile_opt_shapes": OptionSpec((), "shapes of inputs to tune for", as_shapes),
    "trt_profile_max_shapes": OptionSpec((), "largest shapes of inputs", as_shapes),
    "on_recompile": OptionSpec(
        "warn",
        "what to do when a run brings shapes that no engine was built for: warn, which builds one "
        "and logs how long it took, or error",
        as_choice("warn", "error"),
        artifacts=False,
    ),
    "build_timeout": OptionSpec(
        0,
        "seconds after which building an engine is given up, 0 for never",
        as_int(0),
        artifacts=False,
    ),
}
"""By name. What bears on numbers is bound by certificates: they are made for the defaults."""
