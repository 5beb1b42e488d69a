"""What a check gets to work with: opening the provider, and small models that it claims.

The models are made of common operators; the first that the provider claims serves. Right values are
the business of cases, so a check compares a provider only with itself.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx.defs
from onnx import helper

from ep_compliance.driving.drive import ask
from ep_compliance.driving.findings import Broken, NotClaimed, text_of
from ep_compliance.driving.lanes import open_lane
from ep_compliance.driving.values import same_bits
from ep_core.contracts import CompiledPartition, ExecutionProvider, ProviderFactory, Value
from ep_core.discovery.options import parse_options
from ep_core.graph import Graph, Subgraph
from ep_core.loading.load import load_model
from ep_core.memory import copy_value
from ep_core.types import DataType, DeviceInfo, Dim

__all__ = ["Bench", "Probe", "agree", "chain", "claims_all", "one_node", "run_once", "whole"]

OPSET = 17
"""Old enough for every provider, new enough for current operators."""

_CHAINS = (
    ("Add", 2),
    ("Sub", 2),
    ("Mul", 2),
    ("Max", 2),
    ("MatMul", 2),
    ("Relu", 1),
    ("Neg", 1),
    ("Abs", 1),
    ("Tanh", 1),
    ("Sigmoid", 1),
    ("Identity", 1),
)
"""Operators to make chains of, by how many inputs they have; the first claimed is used."""

_TYPES = (DataType.FLOAT, DataType.FLOAT16, DataType.INT32, DataType.INT64, DataType.INT8)


@dataclass(frozen=True)
class Bench:
    """A provider under test that can be opened as often as a check needs it.

    Attributes:
        options: as a caller gives them, without the choice of device.
    """

    factory: ProviderFactory
    device: DeviceInfo
    options: Mapping[str, Any] = field(default_factory=dict)

    @contextlib.contextmanager
    def open(self, device: DeviceInfo | None = None, **changes: Any) -> Iterator[ExecutionProvider]:
        """Open a device, this one unless told otherwise; closed in the end.

        Raises:
            Broken: it can't be opened or closed.
        """
        parsed = parse_options(self.factory.info, {**self.options, **changes})
        try:
            provider = self.factory.create(device or self.device, parsed)
        except Exception as error:
            raise Broken(f"opening the device fails: {text_of(error)}") from error
        try:
            yield provider
        finally:
            provider.close()

    def declares(self, *names: str) -> bool:
        """True if the provider has all of these options."""
        return all(name in self.factory.info.options for name in names)


@dataclass(frozen=True)
class Probe:
    """A model that a provider claims, ready to be compiled and run.

    Attributes:
        inputs: host values in the order of `subgraph.inputs`.
    """

    subgraph: Subgraph
    inputs: tuple[Value, ...]

    def with_other_inputs(self, seed: int) -> Probe:
        """The same model with other numbers."""
        return Probe(self.subgraph, _numbers(self.inputs, seed))


def whole(graph: Graph) -> Subgraph:
    """The cut that is all of a graph."""
    return Subgraph.cut(graph, range(len(graph.nodes)), "probe")


def one_node(
    op_type: str,
    arity: int,
    dtype: DataType,
    shapes: Sequence[Sequence[Dim]],
    opset: int = OPSET,
) -> Graph:
    """A graph of one node with `arity` inputs of one type, whose output has the first's shape."""
    names = [f"x{i}" for i in range(arity)]
    info = helper.make_tensor_value_info
    schema = onnx.defs.get_schema(op_type, opset)
    output = DataType.BOOL if set(schema.outputs[0].types) == {"tensor(bool)"} else dtype
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node(op_type, names, ["y"])],
            "probe",
            [info(name, dtype, shape) for name, shape in zip(names, shapes, strict=True)],
            [info("y", output, None)],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )
    return load_model(model).graph


def chain(op_type: str, arity: int, dtype: DataType, length: int, shape: Sequence[int]) -> Graph:
    """A graph `h = op(h, x)`, or `op(h)`, `length` times over, with two outputs at its end."""
    info = helper.make_tensor_value_info
    names = ["x", *(f"h{i}" for i in range(length))]
    nodes = [
        helper.make_node(op_type, [before, "x"][:arity], [after])
        for before, after in itertools.pairwise(names)
    ]
    outputs = [info(name, dtype, None) for name in dict.fromkeys([names[1], names[-1]])]
    model = helper.make_model(
        helper.make_graph(nodes, "chain", [info("x", dtype, shape)], outputs),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=8,
    )
    return load_model(model).graph


def claims_all(provider: ExecutionProvider, graph: Graph) -> bool:
    """True if the provider claims every node."""
    return all(support.supported for support in ask(provider, graph).nodes)


def claimed_chain(
    provider: ExecutionProvider, *, length: int = 3, side: int = 16, accept: str = ""
) -> Probe:
    """A chain of nodes on square matrices that the provider claims as a whole.

    Args:
        accept: if given, the only operator that will do.

    Raises:
        NotClaimed: it claims none.
    """
    for dtype in _TYPES:
        for op_type, arity in _CHAINS:
            if accept and op_type != accept:
                continue
            with contextlib.suppress(Exception):
                # Not every type is valid for every operator in this opset.
                graph = chain(op_type, arity, dtype, length, [side, side])
                if claims_all(provider, graph):
                    blank = np.zeros((side, side), dtype.numpy)
                    return Probe(whole(graph), _numbers((blank,), seed=1))
    raise NotClaimed("claims no chain of common operators, so there is nothing to try this with")


def run_once(
    provider: ExecutionProvider, partition: CompiledPartition, inputs: Sequence[Value], count: int
) -> list[Value]:
    """Run a partition on a stream of its own and return `count` outputs as host values.

    Raises:
        whatever the provider raises.
    """
    with contextlib.closing(open_lane(provider)) as lane:
        fed = lane.feed(inputs)
        outputs: list[Value] = [None] * count
        try:
            lane.run(partition, fed, outputs)
            return [copy_value(value) for value in lane.fetch(outputs)]
        finally:
            lane.release([*fed, *outputs])
            with contextlib.suppress(Exception):
                lane.wait()


def agree(provider: ExecutionProvider, a: Sequence[Value], b: Sequence[Value]) -> bool:
    """True if two runs of one provider agree: bit by bit if it is deterministic, else nearly."""
    if provider.features.deterministic:
        return all(map(same_bits, a, b))
    return all(
        np.allclose(x, y, rtol=1e-2, atol=1e-3, equal_nan=True) for x, y in zip(a, b, strict=True)
    )


def _numbers(like: Sequence[Value], seed: int) -> tuple[Value, ...]:
    """Small numbers, so that chains neither overflow nor vanish."""
    generator = np.random.default_rng(seed)
    return tuple(
        generator.integers(1, 4, np.shape(value)).astype(np.asarray(value).dtype) for value in like
    )
