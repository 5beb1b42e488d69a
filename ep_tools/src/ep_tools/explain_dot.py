"""A placement as text for Graphviz: a cluster per partition, copies dashed.

Names come from models and may hold anything. Here they become quoted strings of printable
characters, so that no name ends a string or means something to Graphviz.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ep_core.graph import Graph
from ep_tools.console import format_bytes, shorten
from ep_tools.explain_placing import Placed
from ep_tools.page.colours import colour_of

__all__ = ["to_dot"]

_LONGEST_LABEL = 48
_LONGEST_HINT = 300


def to_dot(placed: Placed, title: str) -> str:
    """Return one directed graph; a body of control flow is a cluster of its own.

    Nodes are labelled by operator and name, edges that cross memories by the copy's size. Colours
    are those of the page, and every cluster names its provider.
    """
    writer = _Writer(placed)
    lines = [
        "digraph placement {",
        f"  label={_quoted(f'{title}: {placed.report.summary}', _LONGEST_HINT)};",
        "  compound=true;",
        '  graph [fontname="sans-serif", fontsize=12];',
        '  node [shape=box, style="rounded,filled", fillcolor=white, fontsize=11];',
        '  node [fontname="sans-serif"];',
        '  edge [fontname="sans-serif", fontsize=9];',
    ]
    for position, scope in enumerate(placed.graphs):
        lines += [f"  {line}" for line in writer.scope(position, scope)]
    return "\n".join([*lines, "}"])


class _Writer:
    """Knows who runs what; makes the lines of one scope after the other."""

    def __init__(self, placed: Placed) -> None:
        self._placed = placed
        names = [provider.name for provider in placed.providers]
        self._colours = {name: colour_of(position) for position, name in enumerate(names)}
        self._memories = {provider.name: provider.memory for provider in placed.providers}
        self._host = placed.host_memory

    def scope(self, position: int, scope: str) -> Iterator[str]:
        graph = self._placed.graphs[scope]
        owners = {node.node: node.provider for node in self._placed.report.nodes[scope]}
        ids = {
            index: f"s{position}_n{index}"
            for index, node in enumerate(graph.nodes)
            if node.name in owners
        }
        yield f"subgraph cluster_s{position} {{"
        yield f"  label={_quoted(scope or 'main graph', _LONGEST_HINT)};"
        for line in self._body(position, scope, graph, ids, owners):
            yield f"  {line}"
        yield "}"
        for index, identifier in ids.items():
            yield from self._bodies(scope, graph, index, identifier)

    def _body(
        self,
        position: int,
        scope: str,
        graph: Graph,
        ids: Mapping[int, str],
        owners: Mapping[str, str],
    ) -> Iterator[str]:
        for number, info in enumerate(graph.inputs):
            yield f"s{position}_i{number} [shape=ellipse, label={_quoted(info.name)}];"
        by_name = {graph.nodes[index].name: index for index in ids}
        inside = set()
        parts = [part for part in self._placed.report.partitions if part.scope == scope]
        for number, part in enumerate(parts):
            members = [by_name[name] for name in part.nodes]
            inside.update(members)
            yield f"subgraph cluster_s{position}_p{number} {{"
            colour = self._colours[part.provider]
            label = f"{part.name} on {part.provider} ({part.device})"
            yield f'  label={_quoted(label, _LONGEST_HINT)}; style=rounded; color="{colour}";'
            for index in members:
                yield f"  {self._node(graph, index, ids[index], part.provider)}"
            yield "}"
        for index, identifier in ids.items():
            if index not in inside:
                yield self._node(graph, index, identifier, owners[graph.nodes[index].name])
        for number, name in enumerate(graph.output_names):
            yield f"s{position}_o{number} [shape=ellipse, label={_quoted(name)}];"
        yield from self._edges(position, scope, graph, ids, owners)

    def _node(self, graph: Graph, index: int, identifier: str, provider: str) -> str:
        node = graph.nodes[index]
        label = f"{_escaped(node.key)}\\n{_escaped(shorten(node.name, _LONGEST_LABEL))}"
        hint = _quoted(f"{node.name} on {provider}", _LONGEST_HINT)
        return (
            f'{identifier} [label="{label}", tooltip={hint}, fillcolor="{self._tint(provider)}"];'
        )

    def _tint(self, provider: str) -> str:
        """The provider's colour, so pale that black text stands out against it."""
        return f"{self._colours[provider]}40"

    def _edges(
        self,
        position: int,
        scope: str,
        graph: Graph,
        ids: Mapping[int, str],
        owners: Mapping[str, str],
    ) -> Iterator[str]:
        memory = {index: self._memories[owners[graph.nodes[index].name]] for index in ids}
        made = {name: (f"s{position}_i{i}", self._host) for i, name in enumerate(graph.input_names)}
        for index, identifier in ids.items():
            made |= dict.fromkeys(graph.nodes[index].outputs, (identifier, memory[index]))
        sizes = {
            (copy.value, copy.target): copy.nbytes
            for copy in self._placed.report.copies
            if copy.scope == scope
        }
        for index, identifier in ids.items():
            for name in dict.fromkeys(graph.nodes[index].reads):
                if name in made:
                    yield _edge(*made[name], identifier, memory[index], name, sizes)
        for number, name in enumerate(graph.output_names):
            if name in made:
                yield _edge(*made[name], f"s{position}_o{number}", self._host, name, sizes)

    def _bodies(self, scope: str, graph: Graph, index: int, identifier: str) -> Iterator[str]:
        """Dotted lines from a control-flow node to the bodies that are placed apart from it."""
        places = {name: number for number, name in enumerate(self._placed.graphs)}
        for name in graph.nodes[index].bodies:
            inner = self._placed.body_scope(scope, graph.nodes[index], name)
            if inner is not None:
                target = f"s{places[inner]}_o0"
                cluster = f"cluster_s{places[inner]}"
                label = _quoted(name)
                yield f"{identifier} -> {target} [style=dotted, lhead={cluster}, label={label}];"


def _edge(
    source: str,
    source_memory: str,
    target: str,
    target_memory: str,
    value: str,
    sizes: Mapping[tuple[str, str], int | None],
) -> str:
    if source_memory == target_memory:
        return f"{source} -> {target} [tooltip={_quoted(value, _LONGEST_HINT)}];"
    size = sizes.get((value, target_memory))
    text = "copy" if size is None else f"copy, {format_bytes(size)}"
    hint = _quoted(value, _LONGEST_HINT)
    return f"{source} -> {target} [style=dashed, label={_quoted(text)}, tooltip={hint}];"


def _quoted(text: str, longest: int = _LONGEST_LABEL) -> str:
    return f'"{_escaped(shorten(text, longest))}"'


def _escaped(text: str) -> str:
    """Text inside a quoted string that Graphviz shows as it is, unprintable characters escaped."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return shown.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
