"""RNN, GRU and LSTM with constant weights, also with 8-bit ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ep_core.types import DataType
from ep_cpu.native.steps import NativeStep
from ep_cpu.native.table import NOT_FLOAT, Answer, Translate, operator
from ep_sdk.kernels import KernelNode

_INPUTS = 8
_KINDS = ("RNN", "LSTM", "GRU")
_DEFAULTS = {"RNN": ("Tanh",), "LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh")}
_GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
_DIRECTIONS = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}
_ACTIVATIONS: dict[str, tuple[float, ...]] = {
    "sigmoid": (),
    "tanh": (),
    "relu": (),
    "softsign": (),
    "softplus": (),
    "leakyrelu": (0.01,),
    "thresholdedrelu": (1.0,),
    "elu": (1.0,),
    "affine": (1.0, 0.0),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
}
"""Functions in the order of the native code, with the defaults of alpha and beta."""


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _activations(
    node: KernelNode, default: tuple[str, ...], directions: int
) -> dict[str, Any] | str:
    """Attributes of the native operation; alphas and betas go in order to those that take them."""
    names = [_text(name).lower() for name in node.attr("activations", default)]
    if len(names) == len(default):
        names *= directions
    if len(names) != len(default) * directions or not set(names) <= _ACTIVATIONS.keys():
        return "unknown activations, or the wrong number of them"
    alphas = iter(node.attr("activation_alpha", ()))
    betas = iter(node.attr("activation_beta", ()))
    return {
        "activations": [list(_ACTIVATIONS).index(name) for name in names],
        "alphas": [_parameter(name, 0, alphas) for name in names],
        "betas": [_parameter(name, 1, betas) for name in names],
    }


def _parameter(name: str, which: int, given: Iterator[float]) -> float:
    defaults = _ACTIVATIONS[name]
    return float(next(given, defaults[which])) if which < len(defaults) else 0.0


def _recurrent(name: str) -> Translate:
    def make(node: KernelNode) -> Answer:
        given = [index for index in range(len(node.node.inputs)) if node.has_input(index)]
        wanted_types = [DataType.INT32 if index == 4 else DataType.FLOAT for index in given]
        if [node.input_dtype(index) for index in given] != wanted_types:
            return NOT_FLOAT
        w, r = node.constants[1], node.constants[2]
        if w is None or r is None or w.ndim != 3 or r.ndim != 3:
            return "weights that aren't constant, or of another rank"
        columns = _GATES[name] * r.shape[2]
        if w.shape[1] != columns or r.shape[1] != columns or 0 in (*w.shape, *r.shape):
            return "weights that don't fit"
        return _step(node, name, _INPUTS, (w.shape[0], r.shape[0]))

    return make


def _step(node: KernelNode, name: str, inputs: int, directions: tuple[int, int]) -> Answer:
    """The step of a node whose weights are right but for their directions."""
    backwards = _DIRECTIONS.get(_text(node.attr("direction", "forward")).lower())
    if backwards is None or directions != (len(backwards), len(backwards)):
        return "an unknown direction, or weights for others"
    activations = _activations(node, _DEFAULTS[name], len(backwards))
    if isinstance(activations, str):
        return activations
    clip = node.attr("clip")
    attributes = {
        "kind": _KINDS.index(name),
        "backwards": backwards,
        "batch_first": int(node.attr("layout", 0)),
        "couple": int(node.attr("input_forget", 0)),
        "resets_product": int(node.attr("linear_before_reset", 0)),
        "quantised": int(inputs > _INPUTS),
        "wanted": [int(bool(output)) for output in node.node.outputs],
        **activations,
        **({} if clip is None else {"clip": float(clip)}),
    }
    names = tuple(node.node.inputs[i] if node.has_input(i) else "" for i in range(inputs))
    outputs = tuple(output for output in node.node.outputs if output)
    return NativeStep("recurrent", names, outputs, attributes, (node.node,))


for _name in _KINDS:
    operator(_name)(_recurrent(_name))


@operator("DynamicQuantizeLSTM", domain="com.microsoft")
def _dynamic_quantize_lstm(node: KernelNode) -> Answer:
    """Weights lie as [directions, inputs, gates]; behind the inputs of LSTM come their scales."""
    if node.input_dtype(0) is not DataType.FLOAT:
        return NOT_FLOAT
    w, r = node.constants[1], node.constants[2]
    if w is None or r is None or w.ndim != 3 or r.ndim != 3 or 0 in (*w.shape, *r.shape):
        return "weights that aren't constant, or of another rank"
    columns = _GATES["LSTM"] * r.shape[1]
    if w.shape[2] != columns or r.shape[2] != columns:
        return "weights that don't fit"
    for weights, first in ((w, 8), (r, 10)):
        scales, zeros = node.constants[first], node.constants[first + 1]
        if scales is None or zeros is None or scales.size != zeros.size:
            return "scales that aren't constant"
        if scales.size not in (weights.shape[0], weights.shape[0] * columns):
            return "scales that don't fit"
        if zeros.dtype != weights.dtype:
            return "zero points of another type"
    return _step(node, "LSTM", 12, (w.shape[0], r.shape[0]))
