"""The partner in host memory: onnx's reference evaluator as a provider.

It shares no code with any provider that computes for a living. It is slow and needn't be fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

from ep_core.contracts import (
    Capability,
    CompiledPartition,
    ProviderFeatures,
    ProviderInfo,
    Stream,
    Support,
    Value,
)
from ep_core.graph import Graph, Node, Subgraph
from ep_core.types import DeviceInfo
from ep_sdk.base import ProviderBase

__all__ = ["HostPartner", "OnRun"]

OnRun = Callable[[], None]
"""Called at the start of every run of a partition; may take its time, or raise."""

_OPERATORS = frozenset(
    ("Abs", "Add", "Identity", "MatMul", "Max", "Mul", "Neg", "Relu", "Sigmoid", "Sub", "Tanh")
)


class HostPartner(ProviderBase):
    """Claims a few operators, whatever their types.

    Args:
        on_run: see `OnRun`.
    """

    features = ProviderFeatures()

    def __init__(
        self,
        info: ProviderInfo,
        device: DeviceInfo,
        options: Mapping[str, Any],
        on_run: OnRun,
    ) -> None:
        super().__init__(info, device, options)
        self._on_run = on_run

    def get_capability(self, graph: Graph) -> Capability:
        """Say yes to the operators it knows."""
        return Capability(tuple(_support(node) for node in graph.nodes))

    def compile(self, subgraph: Subgraph) -> CompiledPartition:
        """Hand the subgraph to the evaluator."""
        return _Partition(subgraph, self._on_run)


def _support(node: Node) -> Support:
    if node.domain or node.op_type not in _OPERATORS:
        return Support(False, f"the partner has no {node.key}")
    return Support(True)


class _Partition:
    """Meets `ep_core.contracts.CompiledPartition`."""

    def __init__(self, subgraph: Subgraph, on_run: OnRun) -> None:
        self._inputs = subgraph.inputs
        self._evaluator = ReferenceEvaluator(subgraph.to_model())
        self._on_run = on_run
        self.accepts_outputs = [False] * len(subgraph.outputs)

    def run(
        self,
        inputs: Sequence[Value],
        outputs: MutableSequence[Value | None],
        stream: Stream | None,
    ) -> None:
        """Evaluate; the evaluator may give back what it was given, so results are copied."""
        self._on_run()
        results = self._evaluator.run(None, dict(zip(self._inputs, inputs, strict=True)))
        outputs[:] = [np.array(value) for value in results]

    def close(self) -> None:
        """There is nothing to release."""
