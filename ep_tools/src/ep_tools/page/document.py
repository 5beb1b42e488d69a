"""What the page knows, as plain data: boxes and lines in their places, partitions, copies, steps.

Names and texts go in as they are; `html` makes them harmless. Lists that refer to each other do so
by position, and texts that repeat stand in one list, so that a large model stays a small file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ep_core.graph import Graph, Node
from ep_core.partition import NodePlacement
from ep_core.report import CopyReport, PartitionReport
from ep_tools.explain_placing import Placed
from ep_tools.page.layout import Link, lay_out
from ep_tools.page.texts import attribute_text, type_text, value_bytes

__all__ = ["page_document"]

NOTHING = -1
"""Stands where a position would, for what isn't there."""

_LETTER = 7.4
_ROOM = 44.0
_NARROWEST, _WIDEST = 84.0, 190.0


def page_document(placed: Placed, title: str) -> dict[str, Any]:
    """Return the page's data, ready for JSON.

    Args:
        title: what the model is called.
    """
    texts = _Table()
    scopes = list(placed.graphs)
    return {
        "title": title,
        "summary": placed.report.summary,
        "notes": list(placed.notes),
        "refused": list(placed.report.refused_claims),
        "providers": [
            {
                "name": provider.name,
                "device": provider.device,
                "memory": provider.memory,
                "standsIn": provider.stands_in,
            }
            for provider in placed.providers
        ],
        "scopes": [_Scope(placed, scope, scopes, texts).document() for scope in scopes],
        "texts": texts.items,
    }


class _Table:
    """Texts without repeats, by position."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def add(self, text: str) -> int:
        return self._places.setdefault(text, len(self._places))

    @property
    def items(self) -> list[str]:
        return list(self._places)


class _Scope:
    """One graph: the model's own or a body. Boxes are inputs, nodes and outputs, in this order."""

    def __init__(self, placed: Placed, scope: str, scopes: Sequence[str], texts: _Table) -> None:
        self._placed = placed
        self._scope = scope
        self._scopes = scopes
        self._texts = texts
        self._graph: Graph = placed.graphs[scope]
        self._providers = {p.name: i for i, p in enumerate(placed.providers)}
        self._values: dict[str, int] = {}
        self._parts = [p for p in placed.report.partitions if p.scope == scope]
        self._copies = [c for c in placed.report.copies if c.scope == scope]
        by_name = {node.name: node for node in self._graph.nodes}
        self._placements = placed.report.nodes[scope]
        self._nodes = [by_name[placement.node] for placement in self._placements]
        first = len(self._graph.inputs)
        self._box_of = {node.name: first + place for place, node in enumerate(self._nodes)}
        self._links, self._crossing = self._find_links()
        self._crossing_of: dict[int, list[int]] = {}
        for place in self._crossing:
            self._crossing_of.setdefault(self._links[place].bundle, []).append(place)
        self._hops = {(copy.value, copy.source, copy.target) for copy in self._copies}

    def document(self) -> dict[str, Any]:
        boxes = self._boxes()
        layout = lay_out([box["w"] for box in boxes], self._links, len(self._graph.inputs))
        for box, (x, y) in zip(boxes, layout.middles, strict=True):
            box |= {"x": round(x), "y": round(y), "w": round(box["w"])}
        copies = [self._copy(copy) for copy in self._copies]
        return {
            "name": self._scope,
            "width": round(layout.width),
            "height": round(layout.height),
            "boxes": boxes,
            "links": [
                [
                    link.source,
                    link.target,
                    link.bundle,
                    int(number in self._crossing),
                    None if route is None else [round(part) for point in route for part in point],
                ]
                for number, (link, route) in enumerate(zip(self._links, layout.routes, strict=True))
            ],
            "partitions": [self._partition(part) for part in self._parts],
            "copies": copies,
            "steps": self._steps(),
            "values": [self._value(name) for name in self._values],
        }

    # ------------------------------------------------------------ boxes

    def _boxes(self) -> list[dict[str, Any]]:
        parts = {name: place for place, part in enumerate(self._parts) for name in part.nodes}
        return [
            *(self._end("input", name) for name in self._graph.input_names),
            *(
                self._node(node, placement, parts.get(node.name, NOTHING))
                for node, placement in zip(self._nodes, self._placements, strict=True)
            ),
            *(self._end("output", name) for name in self._graph.output_names),
        ]

    def _end(self, kind: str, name: str) -> dict[str, Any]:
        return {"kind": kind, "name": name, "value": self._place(name), "w": _width(name)}

    def _node(self, node: Node, placement: NodePlacement, part: int) -> dict[str, Any]:
        bodies = (self._placed.body_scope(self._scope, node, name) for name in node.bodies)
        return {
            "kind": "node",
            "name": node.name,
            "op": node.key,
            "version": node.since_version,
            "w": _width(node.key),
            "provider": self._providers[placement.provider],
            "part": part,
            "reason": self._texts.add(placement.reason),
            "next": self._providers.get(placement.runner_up or "", NOTHING),
            "cost": _finite(placement.cost),
            "refusals": [
                [self._providers[name], self._texts.add(reason)]
                for name, reason in placement.refusals.items()
            ],
            "inputs": [self._place(name) if name else NOTHING for name in node.inputs],
            "captures": [self._place(name) for name in node.captures],
            "outputs": [self._place(name) if name else NOTHING for name in node.outputs],
            "attributes": [
                [name, attribute_text(value)] for name, value in sorted(node.attributes.items())
            ],
            "bodies": [self._scopes.index(inner) for inner in bodies if inner is not None],
        }

    def _place(self, name: str) -> int:
        return self._values.setdefault(name, len(self._values))

    def _value(self, name: str) -> list[Any]:
        """Name, type, bytes (null if unknown), and whether it is a constant."""
        kind = self._graph.type_of(name)
        constant = self._graph.constant(name) is not None
        return [name, self._texts.add(type_text(kind)), value_bytes(kind), int(constant)]

    # ------------------------------------------------------------ lines

    def _find_links(self) -> tuple[list[Link], dict[int, tuple[str, str]]]:
        """Lines between boxes, and of those that cross memories from where to where."""
        memories = {provider.name: provider.memory for provider in self._placed.providers}
        host = self._placed.host_memory
        made = {name: (box, host) for box, name in enumerate(self._graph.input_names)}
        found: list[tuple[int, int, str, str, str]] = []
        for node, placement in zip(self._nodes, self._placements, strict=True):
            box, memory = self._box_of[node.name], memories[placement.provider]
            for name in dict.fromkeys(node.reads):
                if name in made:
                    found.append((made[name][0], box, name, made[name][1], memory))
            made |= {name: (box, memory) for name in node.outputs if name}
        first = len(self._graph.inputs) + len(self._nodes)
        for place, name in enumerate(self._graph.output_names):
            if name in made:
                found.append((made[name][0], first + place, name, made[name][1], host))
        links = [Link(s, t, self._place(name)) for s, t, name, _, _ in found]
        crossing = {
            number: (source, target)
            for number, (_, _, _, source, target) in enumerate(found)
            if source != target
        }
        return links, crossing

    def _copy(self, copy: CopyReport) -> dict[str, Any]:
        """A copy with the lines that need it: through the host, one line needs two copies."""
        value = self._place(copy.value)
        lines = []
        for place in self._crossing_of.get(value, ()):
            source, target = self._crossing[place]
            hops = {(source, target)}
            if (copy.value, source, target) not in self._hops:
                host = self._placed.host_memory
                hops = {(source, host), (host, target)}
            if (copy.source, copy.target) in hops:
                lines.append(place)
        return {
            "value": value,
            "source": copy.source,
            "target": copy.target,
            "bytes": copy.nbytes,
            "links": lines,
        }

    # ------------------------------------------------------------ partitions and steps

    def _partition(self, part: PartitionReport) -> dict[str, Any]:
        constants: dict[str, int] = {}
        for name in part.nodes:
            for read in self._nodes[self._box_of[name] - len(self._graph.inputs)].reads:
                constant = self._graph.constant(read)
                if constant is not None:
                    constants[read] = constant.nbytes
        return {
            "name": part.name,
            "provider": self._providers[part.provider],
            "device": part.device,
            "cached": part.from_cache,
            "nodes": [self._box_of[name] for name in part.nodes],
            "inputs": [self._place(name) for name in part.inputs],
            "outputs": [self._place(name) for name in part.outputs],
            "constants": len(constants),
            "constantBytes": sum(constants.values()),
        }

    def _steps(self) -> list[list[Any]]:
        """What kind of step, and the position of its partition, its copy or its box."""
        report = self._placed.report
        parts = {id(part): place for place, part in enumerate(self._parts)}
        copies = {id(copy): place for place, copy in enumerate(self._copies)}
        steps: list[list[Any]] = []
        for step in self._placed.steps[self._scope]:
            if step.kind == "partition":
                steps.append([step.kind, parts[id(report.partitions[step.index])]])
            elif step.kind == "copy":
                steps.append([step.kind, copies[id(report.copies[step.index])]])
            else:
                steps.append([step.kind, self._box_of[self._graph.nodes[step.index].name]])
        return steps


def _finite(number: float | None) -> float | None:
    """A number that JSON has a word for; a provider may say anything."""
    return number if number is not None and math.isfinite(number) else None


def _width(label: str) -> float:
    return min(max(len(label) * _LETTER + _ROOM, _NARROWEST), _WIDEST)
