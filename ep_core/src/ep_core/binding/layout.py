"""A compiled graph before it is planned, so that it can be planned for other memories too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ep_core.contracts import CompiledPartition, PartitionMemory
from ep_core.graph import Graph, Node, Subgraph
from ep_core.partition import Candidate
from ep_core.report import MemoryPeak, peaks_by_memory
from ep_core.running.control_flow import Body
from ep_core.running.executor import block_sizes
from ep_core.running.peak import Told, peaks_of
from ep_core.running.plan import Plan, Scratch
from ep_core.running.planner import Planner
from ep_core.types import MemoryInfo

__all__ = ["Item", "Layout"]

Item = tuple[Node, Mapping[str, Body]] | tuple[Subgraph, CompiledPartition, Candidate]
"""A control-flow node with its planned bodies, or a partition with who runs it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a plan of a graph consists of, in order of execution.

    Attributes:
        scratch: the reusable arrays that the bodies' plans refer to.
        told: what the partitions take, those of bodies too.
        constants: the same with the memory that each partition works in.
    """

    graph: Graph
    items: tuple[Item, ...]
    scratch: tuple[Scratch, ...]
    told: Told
    constants: Sequence[tuple[MemoryInfo, PartitionMemory | str]]

    def fill(self, planner: Planner) -> Plan:
        """Have a planner of this graph make the plan."""
        for item in self.items:
            if len(item) == 2:
                planner.add_control_flow(*item)
            else:
                planner.add_run(*item)
        plan = planner.finish()
        return replace(plan, peaks=peaks_of(plan, self.told))

    def peaks(self, plan: Plan, scratch: Sequence[Scratch]) -> dict[str, MemoryPeak]:
        """What a session takes at most with one run of a plan under way, by memory.

        Args:
            scratch: the reusable arrays of that run.
        """
        return peaks_by_memory(plan.peaks, self.constants, sum(block_sizes(scratch).values()))
