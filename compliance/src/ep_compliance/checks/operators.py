"""Common operators, one by one, with inputs that change from run to run and from thread to thread.

What a partition keeps between runs shows here: a plan for the first shapes, the values of the first
axes, one piece of scratch memory. Each partition is compared with a new one; right values are the
business of cases.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import parser

from ep_compliance.checks import check
from ep_compliance.driving.bench import Bench, agree, claims_all, run_once, whole
from ep_compliance.driving.crowd import on_threads
from ep_compliance.driving.drive import compiled
from ep_compliance.driving.findings import Broken, NotClaimed
from ep_compliance.driving.lanes import HostLane, open_lane
from ep_core.contracts import CompiledPartition, ExecutionProvider, Value
from ep_core.graph import Subgraph
from ep_core.loading.load import load_model

_RUNS = 12
"""More than the few after which a runtime has settled into its ways."""

_BODIES = {
    "Add": "float[N,M] x, float[M] a => Add(x, a)",
    "MatMul": "float[N,M] x, float[M,K] a => MatMul(x, a)",
    "Gemm": "float[N,M] x, float[M,K] a => Gemm(x, a)",
    "Softmax": "float[N,M] x => Softmax<axis = 1>(x)",
    "Gelu": "float[N,M] x => Gelu(x)",
    "LayerNormalization": "float[N,M] x, float[M] a => LayerNormalization(x, a)",
    "Conv": "float[N,2,H,W] x, float[3,2,2,2] a => Conv(x, a)",
    "MaxPool": "float[N,2,H,W] x => MaxPool<kernel_shape = [2,2]>(x)",
    "Transpose": "float[N,M] x => Transpose(x)",
    "Concat": "float[N,M] x, float[K,M] a => Concat<axis = 0>(x, a)",
    "Gather": "float[N,M] x, int64[K] a => Gather(x, a)",
    "ReduceSum": "float[N,M] x, int64[1] a => ReduceSum(x, a)",
    "Reshape": "float[N,M] x, int64[2] a => Reshape(x, a)",
    "Slice": "float[N,M] x, int64[1] a, int64[1] b => Slice(x, a, b)",
    "Expand": "float[N,1] x, int64[2] a => Expand(x, a)",
    "Tile": "float[N,M] x, int64[2] a => Tile(x, a)",
    "Pad": "float[N,M] x, int64[4] a => Pad(x, a)",
    "Clip": "float[N,M] x, float a => Clip(x, a)",
}
"""Graphs of one node whose lengths nothing tells before the run."""


def _floats(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32) / 4


def _ints(*values: int) -> Any:
    return np.array(values, np.int64)


def _feeds(op_type: str) -> list[tuple[Value, ...]]:
    """Three sets of inputs, of other lengths or other axes."""
    f = _floats
    x, y, z = f(1, 4, 6), f(2, 3, 6), f(3, 7, 5)
    image, wide, kernel = f(1, 1, 2, 5, 5), f(2, 2, 2, 4, 7), f(4, 3, 2, 2, 2)
    feeds: dict[str, list[tuple[Value, ...]]] = {
        "Add": [(x, f(4, 6)), (y, f(5, 6)), (z, f(6, 5))],
        "MatMul": [(x, f(4, 6, 2)), (y, f(5, 6, 3)), (z, f(6, 5, 2))],
        "LayerNormalization": [(x, f(4, 6)), (y, f(5, 6)), (z, f(6, 5))],
        "Conv": [(image, kernel), (wide, kernel), (image, -kernel)],
        "MaxPool": [(image,), (wide,), (-image,)],
        "Concat": [(x, f(4, 2, 6)), (y, f(5, 4, 6)), (z, f(6, 1, 5))],
        "Gather": [(x, _ints(3, 0)), (x, _ints(1, 2)), (y, _ints(2, 2, 0))],
        "ReduceSum": [(x, _ints(0)), (x, _ints(1)), (z, _ints(0))],
        "Reshape": [(x, _ints(3, 8)), (x, _ints(2, 12)), (y, _ints(-1, 2))],
        "Slice": [(x, _ints(0), _ints(2)), (x, _ints(1), _ints(4)), (z, _ints(0), _ints(2))],
        "Expand": [(x[:, :1], _ints(4, 3)), (x[:, :1], _ints(4, 5)), (y[:, :1], _ints(3, 3))],
        "Tile": [(x, _ints(1, 2)), (x, _ints(2, 1)), (y, _ints(1, 2))],
        "Pad": [(x, _ints(1, 0, 0, 1)), (x, _ints(0, 2, 1, 0)), (z, _ints(1, 0, 0, 1))],
        "Clip": [(x, np.float32(0)), (x, np.float32(1)), (y, np.float32(0))],
    }
    feeds["Gemm"] = feeds["MatMul"]
    # numpy's scalars are no arrays.
    chosen = feeds.get(op_type, [(x,), (y,), (z,)])
    return [tuple(np.array(value) for value in values) for values in chosen]


def _subgraph(op_type: str) -> Subgraph:
    inputs, _, node = _BODIES[op_type].partition(" => ")
    text = f'<ir_version: 9, opset_import: ["" : 20]> g ({inputs}) => (y) {{ y = {node} }}'
    return whole(load_model(parser.parse_model(text)).graph)


def _claimed(provider: ExecutionProvider) -> Iterator[tuple[str, Subgraph]]:
    """The graphs that the provider claims.

    Raises:
        NotClaimed: it claims none.
    """
    found = False
    for op_type in _BODIES:
        subgraph = _subgraph(op_type)
        if claims_all(provider, subgraph.graph):
            found = True
            yield op_type, subgraph
    if not found:
        raise NotClaimed("claims no common operator whose lengths aren't known before the run")


def _run(
    provider: ExecutionProvider, part: CompiledPartition, inputs: Sequence[Value]
) -> list[Value]:
    return run_once(provider, part, inputs, 1)


def _fresh(
    provider: ExecutionProvider, subgraph: Subgraph, feeds: Sequence[tuple[Value, ...]]
) -> list[list[Value]]:
    """The outputs of every set of inputs, each from a partition of its own."""
    outputs = []
    for inputs in feeds:
        with compiled(provider, subgraph) as part:
            outputs.append(_run(provider, part, inputs))
    return outputs


def _alike(provider: ExecutionProvider, a: Sequence[Value], b: Sequence[Value]) -> bool:
    return all(map(np.array_equal, map(np.shape, a), map(np.shape, b))) and agree(provider, a, b)


@check("order/changing-inputs")
def changing_inputs(bench: Bench) -> None:
    """A partition whose inputs change gives what a new one gives, however often it has run."""
    with bench.open() as provider:
        for op_type, subgraph in _claimed(provider):
            feeds = _feeds(op_type)
            expected = _fresh(provider, subgraph, feeds)
            with compiled(provider, subgraph) as part:
                for number in range(_RUNS):
                    which = number % len(feeds)
                    got = _run(provider, part, feeds[which])
                    if not _alike(provider, expected[which], got):
                        raise Broken(
                            f"{op_type}: run {number + 1} of a partition whose inputs change"
                            " gives other values than the first run of a new one"
                        )


def _stretched(value: Value) -> Value:
    """The first row in place of every row, without memory for the others."""
    return np.broadcast_to(value[:1], value.shape) if np.ndim(value) > 1 else value


@check("memory/stretched-inputs")
def stretched_inputs(bench: Bench) -> None:
    """Host inputs whose rows all lie in the same memory are read as what they show."""
    with bench.open() as provider:
        with contextlib.closing(open_lane(provider)) as lane:
            if not isinstance(lane, HostLane):
                raise NotClaimed("takes inputs in memory of its own, which is packed")
        for op_type, subgraph in _claimed(provider):
            views = tuple(map(_stretched, _feeds(op_type)[0]))
            packed = tuple(np.array(value, order="C") for value in views)
            with compiled(provider, subgraph) as part:
                expected = _run(provider, part, packed)
                if not _near(expected, _run(provider, part, views)):
                    raise Broken(f"{op_type}: inputs whose rows share memory are misread")


def _near(a: Sequence[Value], b: Sequence[Value]) -> bool:
    """Another layout may be summed up in another order."""
    return all(
        np.shape(x) == np.shape(y) and np.allclose(x, y, rtol=1e-5, atol=1e-5)
        for x, y in zip(a, b, strict=True)
    )


@dataclass(frozen=True)
class _Crowd:
    """What threads do with one partition.

    Attributes:
        turn: who holds it may run.
    """

    provider: ExecutionProvider
    part: CompiledPartition
    op_type: str
    expected: list[list[Value]]
    turn: contextlib.AbstractContextManager[Any]

    def work(self, number: int) -> None:
        """Run it with one set of inputs, over and over."""
        inputs = _feeds(self.op_type)[number]
        for _ in range(_RUNS):
            with self.turn:
                got = _run(self.provider, self.part, inputs)
            if not _alike(self.provider, self.expected[number], got):
                raise Broken(f"{self.op_type}: runs on several threads mix their values up")


@check("order/operators-on-threads")
def operators_on_threads(bench: Bench) -> None:
    """Threads that run one operator's partition with inputs of their own mix nothing up."""
    with bench.open() as provider:
        concurrent = provider.features.concurrent_runs
        turn: contextlib.AbstractContextManager[Any] = threading.Lock()
        if concurrent:
            turn = contextlib.nullcontext()
        for op_type, subgraph in _claimed(provider):
            with compiled(provider, subgraph) as part:
                expected = _fresh(provider, subgraph, _feeds(op_type))
                crowd = _Crowd(provider, part, op_type, expected, turn)
                on_threads(crowd.work, len(expected))
