"""Patterns over the names of one graph's nodes, and which nodes they mean.

Thousands of patterns on thousands of nodes are a matter of seconds at the most: names and operators
are looked up, and what is compared with `*` and `?` begins like the pattern does.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from fnmatch import translate
from functools import cached_property

from ep_core.graph import Graph

__all__ = ["BETWEEN", "OPERATOR", "Names", "ends_of", "is_well_formed"]

OPERATOR = "op:"
BETWEEN = "between:"
_ARROW = "->"
_WILD = re.compile(r"[*?]")


def is_well_formed(pattern: str) -> bool:
    """True if it can mean a node."""
    if pattern.startswith(BETWEEN):
        return all(ends_of(pattern))
    return bool(pattern.removeprefix(OPERATOR).strip())


def ends_of(pattern: str) -> tuple[str, str]:
    """The two tensors of a `between:` pattern; an empty one is missing."""
    start, _, end = pattern.removeprefix(BETWEEN).partition(_ARROW)
    return start.strip(), end.strip()


class Names:
    """The names in one graph.

    Args:
        scope: the path of the graph, which may stand before a name.
    """

    def __init__(self, graph: Graph, scope: str) -> None:
        self._graph = graph
        self._before = f"{scope}/" if scope else ""

    def matches(self, pattern: str) -> Sequence[int]:
        """Positions of the nodes that a pattern means, ascending."""
        if pattern.startswith(BETWEEN):
            return self._between(*ends_of(pattern))
        if pattern.startswith(OPERATOR):
            return self._operators.get(pattern.removeprefix(OPERATOR), ())
        # Brackets are what they look like: layers are numbered with them.
        found = {*self._exact.get(pattern, ())}
        wild = _WILD.search(pattern)
        if wild is not None:
            start = pattern[: wild.start()]
            fits = re.compile(translate(pattern.replace("[", "[[]"))).match
            names = self._sorted
            for at in range(bisect_left(names, start), len(names)):
                if not names[at].startswith(start):
                    break
                if fits(names[at]):
                    found.update(self._exact[names[at]])
        return sorted(found)

    @cached_property
    def _exact(self) -> dict[str, list[int]]:
        """Positions by name, with and without the path."""
        found: dict[str, list[int]] = {}
        for index, node in enumerate(self._graph.nodes):
            for name in dict.fromkeys((node.name, self._before + node.name)):
                found.setdefault(name, []).append(index)
        return found

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self._exact)

    @cached_property
    def _operators(self) -> dict[str, list[int]]:
        """Positions by operator, with and without its domain."""
        found: dict[str, list[int]] = {}
        for index, node in enumerate(self._graph.nodes):
            for name in dict.fromkeys((node.op_type, node.key)):
                found.setdefault(name, []).append(index)
        return found

    def _between(self, start: str, end: str) -> list[int]:
        """Nodes that depend on one tensor and on which another depends."""
        graph = self._graph
        last = graph.producers.get(end, -1)  # nodes stand in an order in which they can run
        after: set[int] = set()
        pending = [start]
        while pending:
            users = {u for u in graph.consumers.get(pending.pop(), ()) if u <= last} - after
            after |= users
            pending.extend(name for user in users for name in graph.nodes[user].outputs if name)
        found: set[int] = set()
        pending = [end]
        while pending:
            maker = graph.producers.get(pending.pop())
            if maker in after and maker not in found:
                found.add(maker)
                pending.extend(graph.nodes[maker].reads)
        return sorted(found)
