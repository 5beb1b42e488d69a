"""Compiles small models with native code or without, and says which native steps came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ep_core.contracts import CompiledPartition
from ep_core.discovery.registry import registry
from ep_core.graph import Subgraph
from ep_core.loading.load import load_model
from ep_cpu.native.binding import levels, native_module
from ep_cpu.native.partition import NativeProgram, NativeSegment

Array = np.ndarray[Any, Any]

needs_native = pytest.mark.skipif(native_module() is None, reason="no compiled module here")
LEVELS = levels()
on_every_level = pytest.mark.parametrize("level", LEVELS)

_TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float64): TensorProto.DOUBLE,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.uint8): TensorProto.UINT8,
    np.dtype(np.int8): TensorProto.INT8,
}


@dataclass(frozen=True)
class Compiled:
    """A compiled model.

    Attributes:
        names: of the inputs, in the order that `run` wants.
    """

    partition: CompiledPartition
    names: tuple[str, ...]
    outputs: tuple[str, ...]

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Outputs in the order of the model's."""
        results: list[Any] = [None] * len(self.outputs)
        self.partition.run([feeds[name] for name in self.names], results, None)
        return results

    @property
    def segments(self) -> list[NativeSegment]:
        """Its native segments."""
        if not isinstance(self.partition, NativeProgram):
            return []
        kernels = [step.kernel for step in self.partition._lowered.steps]
        return [kernel for kernel in kernels if isinstance(kernel, NativeSegment)]

    @property
    def kinds(self) -> list[str]:
        """Kinds of its native steps."""
        return [step.kind for segment in self.segments for step in segment._steps]

    @property
    def refused(self) -> bool:
        """True if a segment had to compute with the other kernels."""
        return any(segment._fallback is not None for segment in self.segments)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array] | None = None,
    outputs: Sequence[str] = ("y",),
    shapes: Mapping[str, Sequence[str | int]] | None = None,
    opset: int = 22,
) -> onnx.ModelProto:
    """A model whose inputs have the shapes of `feeds`, or those that `shapes` says."""
    declared = shapes or {}
    inputs = [
        helper.make_tensor_value_info(n, _TYPES[v.dtype], declared.get(n, v.shape))
        for n, v in feeds.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    weights = [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "net", inputs, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def compile_model(
    model: onnx.ModelProto, instructions: str, threads: int = 1, precision: str = "f32"
) -> Compiled:
    """All nodes as one partition."""
    factory = registry().factory("cpu")
    options = {
        "instructions": instructions,
        "intra_op_num_threads": threads,
        "precision": precision,
    }
    provider = factory.create(factory.devices()[0], options)
    graph = load_model(model).graph
    subgraph = Subgraph.cut(graph, range(len(graph.nodes)))
    return Compiled(provider.compile(subgraph), subgraph.inputs, subgraph.outputs)


def check_same(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    level: str,
    constants: Mapping[str, Array] | None = None,
    *,
    outputs: Sequence[str] = ("y",),
    shapes: Mapping[str, Sequence[str | int]] | None = None,
    opset: int = 22,
    tolerance: float = 2e-6,
) -> Compiled:
    """Hold native code on one and three threads against the kernels in numpy.

    Differences count in parts of the largest expected number.
    """
    model = model_of(nodes, feeds, constants, outputs, shapes, opset)
    expected = compile_model(model, "none").run(feeds)
    native = compile_model(model, level)
    assert native.kinds
    found = native.run(feeds)
    again = compile_model(model, level, threads=3).run(feeds)
    assert not native.refused
    for name, one, other, third in zip(native.outputs, found, expected, again, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape, name
        scale = max(float(np.abs(other[np.isfinite(other)]).max(initial=0.0)), 1e-30)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * scale)
        np.testing.assert_array_equal(one, third)
    return native


def random(*shape: int, seed: int = 0) -> Array:
    """Normal numbers."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)
