"""A compiled graph before it is planned, so that it can be planned for other memories too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ep_core.contracts import CompiledPartition
from ep_core.graph import Graph, Node, Subgraph
from ep_core.partition import Candidate
from ep_core.running.control_flow import Body
from ep_core.running.plan import Plan, Scratch
from ep_core.running.planner import Planner

__all__ = ["Item", "Layout"]

Item = tuple[Node, Mapping[str, Body]] | tuple[Subgraph, CompiledPartition, Candidate]
"""A control-flow node with its planned bodies, or a partition with who runs it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a plan of a graph consists of, in order of execution.

    Attributes:
        scratch: the reusable arrays that the bodies' plans refer to.
    """

    graph: Graph
    items: tuple[Item, ...]
    scratch: tuple[Scratch, ...]

    def fill(self, planner: Planner) -> Plan:
        """Have a planner of this graph make the plan."""
        for item in self.items:
            if len(item) == 2:
                planner.add_control_flow(*item)
            else:
                planner.add_run(*item)
        return planner.finish()
