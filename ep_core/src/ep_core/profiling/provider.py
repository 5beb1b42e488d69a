"""A provider that is watched: it does what it did, and its answers and compilations are timed."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ep_core.contracts import Capability, CompiledPartition, ExecutionProvider, NodeTime
from ep_core.forwarding import ForwardingProvider
from ep_core.graph import Graph, Subgraph
from ep_core.profiling.trace import Trace

__all__ = ["WatchedProvider"]


class WatchedProvider(ForwardingProvider):
    """Meets `ExecutionProvider` by asking another.

    Args:
        name: how the session calls it.
        provider: the one that does the work; who closes this one closes that one.
    """

    def __init__(self, name: str, provider: ExecutionProvider, trace: Trace) -> None:
        super().__init__(provider)
        self._name = name
        self._trace = trace

    def get_capability(self, graph: Graph) -> Capability:
        """Ask, and note how long the answer takes."""
        with self._trace.span(f"ask {self._name}", "placement", nodes=len(graph.nodes)):
            return self.inner.get_capability(graph)

    def compile(self, subgraph: Subgraph) -> CompiledPartition:
        """Compile, note how long it takes, and have the nodes of each run timed."""
        with self._compiling("compile", subgraph):
            return self._profiled(self.inner.compile(subgraph), subgraph.name)

    def import_partition(self, subgraph: Subgraph, artifact: bytes) -> CompiledPartition:
        """As `compile`."""
        with self._compiling("import", subgraph):
            part = self.inner.import_partition(subgraph, artifact)
            return self._profiled(part, subgraph.name)

    def export_partition(self, partition: CompiledPartition) -> bytes:
        with self._trace.span(f"export from {self._name}", "compile"):
            return self.inner.export_partition(partition)

    def _compiling(self, what: str, subgraph: Subgraph) -> AbstractContextManager[None]:
        nodes = [node.name for node in subgraph.nodes]
        label = f"{what} {subgraph.name}"
        return self._trace.span(label, "compile", provider=self._name, nodes=nodes)

    def _profiled(self, partition: CompiledPartition, name: str) -> CompiledPartition:
        def record(time: NodeTime) -> None:
            where = f"{self._name} {time.queue}" if time.queue else ""
            args = {"operator": time.op_type, "provider": self._name, "partition": name}
            self._trace.add(time.node, "node", time.start_ns, time.end_ns, where, **args)

        if self.features.profiles_nodes:
            self.inner.profile_partition(partition, record)
        return partition
