"""What the page knows, as plain data: boxes and lines in their places, partitions, copies, steps.

Names and texts go in as they are; `html` makes them harmless. Lists that refer to each other do so
by position, and texts that repeat stand in one list, so that a large model stays a small file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ep_core.graph import Graph, Node
from ep_core.partition import NodePlacement
from ep_core.report import CopyReport, PartitionReport
from ep_tools.explain_measured import Timing
from ep_tools.explain_placing import Placed
from ep_tools.page.layout import Link, lay_out
from ep_tools.page.texts import attribute_text, type_text, value_bytes
from ep_tools.page.times import seconds_json, timeline_json, times_json, timing_json

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
    made = [_Scope(placed, scope, scopes, texts) for scope in scopes]
    places: dict[tuple[str, int], tuple[int, int]] = {}
    boxes: dict[tuple[str, str], tuple[int, int]] = {}
    for number, scope in enumerate(made):
        places |= {key: (number, place) for key, place in scope.places.items()}
        boxes |= {(scope.name, node): (number, box) for node, box in scope.box_of.items()}
    return {
        "title": title,
        "summary": placed.report.summary,
        "times": times_json(placed),
        "timeline": timeline_json(placed.measured, places, boxes),
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
        "scopes": [scope.document() for scope in made],
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
        self.name = scope
        self._scopes = scopes
        self._texts = texts
        self._graph: Graph = placed.graphs[scope]
        self._providers = {p.name: i for i, p in enumerate(placed.providers)}
        self._values: dict[str, int] = {}
        report = placed.report
        self._parts = {i: part for i, part in enumerate(report.partitions) if part.scope == scope}
        self._copies = {i: copy for i, copy in enumerate(report.copies) if copy.scope == scope}
        self.places = {("partition", number): place for place, number in enumerate(self._parts)}
        self.places |= {("copy", number): place for place, number in enumerate(self._copies)}
        measured = placed.measured
        self._part_times = {} if measured is None else measured.partitions
        self._copy_times = {} if measured is None else measured.copies
        self._node_times = {} if measured is None else measured.nodes
        by_name = {node.name: node for node in self._graph.nodes}
        self._placements = placed.report.nodes[scope]
        self._nodes = [by_name[placement.node] for placement in self._placements]
        first = len(self._graph.inputs)
        self.box_of = {node.name: first + place for place, node in enumerate(self._nodes)}
        self._links, self._crossing = self._find_links()
        self._crossing_of: dict[int, list[int]] = {}
        for place in self._crossing:
            self._crossing_of.setdefault(self._links[place].bundle, []).append(place)
        self._hops = {(copy.value, copy.source, copy.target) for copy in self._copies.values()}

    def document(self) -> dict[str, Any]:
        boxes = self._boxes()
        layout = lay_out([box["w"] for box in boxes], self._links, len(self._graph.inputs))
        for box, (x, y) in zip(boxes, layout.middles, strict=True):
            box |= {"x": round(x), "y": round(y), "w": round(box["w"])}
        copies = [
            self._copy(copy, self._copy_times.get(number)) for number, copy in self._copies.items()
        ]
        return {
            "name": self.name,
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
            "partitions": [
                self._partition(part, self._part_times.get(number))
                for number, part in self._parts.items()
            ],
            "copies": copies,
            "steps": self._steps(),
            "values": [self._value(name) for name in self._values],
        }

    # ------------------------------------------------------------ boxes

    def _boxes(self) -> list[dict[str, Any]]:
        listed = enumerate(self._parts.values())
        parts = {name: place for place, part in listed for name in part.nodes}
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
        bodies = (self._placed.body_scope(self.name, node, name) for name in node.bodies)
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
            "difference": seconds_json(placement.difference),
            "seconds": seconds_json(placement.seconds),
            "measured": timing_json(self._node_times.get((self.name, node.name))),
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
            box, memory = self.box_of[node.name], memories[placement.provider]
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

    def _copy(self, copy: CopyReport, timing: Timing | None) -> dict[str, Any]:
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
            "seconds": seconds_json(copy.seconds),
            "measured": timing_json(timing),
            "links": lines,
        }

    # ------------------------------------------------------------ partitions and steps

    def _partition(self, part: PartitionReport, timing: Timing | None) -> dict[str, Any]:
        constants: dict[str, int] = {}
        for name in part.nodes:
            for read in self._nodes[self.box_of[name] - len(self._graph.inputs)].reads:
                constant = self._graph.constant(read)
                if constant is not None:
                    constants[read] = constant.nbytes
        return {
            "name": part.name,
            "provider": self._providers[part.provider],
            "device": part.device,
            "cached": part.from_cache,
            "nodes": [self.box_of[name] for name in part.nodes],
            "inputs": [self._place(name) for name in part.inputs],
            "outputs": [self._place(name) for name in part.outputs],
            "constants": len(constants),
            "constantBytes": sum(constants.values()),
            "seconds": seconds_json(part.seconds),
            "measured": timing_json(timing),
        }

    def _steps(self) -> list[list[Any]]:
        """What kind of step, and the position of its partition, its copy or its box."""
        steps: list[list[Any]] = []
        for step in self._placed.steps[self.name]:
            if step.kind == "node":
                steps.append([step.kind, self.box_of[self._graph.nodes[step.index].name]])
            else:
                steps.append([step.kind, self.places[step.kind, step.index]])
        return steps


def _width(label: str) -> float:
    return min(max(len(label) * _LETTER + _ROOM, _NARROWEST), _WIDEST)
