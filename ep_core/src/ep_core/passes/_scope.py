"""Names and scopes: which names exist, what an outer scope knows, renaming through bodies.

Knows nothing of operators. A name means the same wherever it is visible: the loader sees to it that
no body hides a name of a graph around it, and passes give new values names that occur nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ep_core.graph import AttributeValue, Graph, Initializer, Node, ValueInfo
from ep_core.types import TensorType, ValueType

__all__ = ["Names", "Scope", "map_bodies", "merge_types", "rename_values"]


class Names:
    """Every name of a graph and its bodies; gives out new ones that occur nowhere."""

    def __init__(self, graph: Graph) -> None:
        self._used: set[str] = set()
        self._next: dict[str, int] = {}
        self._collect(graph)

    def _collect(self, graph: Graph) -> None:
        self._used.update(graph.input_names, graph.output_names, graph.initializers)
        for node in graph.nodes:
            self._used.add(node.name)
            self._used.update(node.inputs)
            self._used.update(node.outputs)
            for body in node.bodies.values():
                self._collect(body)

    def fresh(self, hint: str) -> str:
        """Return an unused name that starts with `hint`, and reserve it."""
        number = self._next.get(hint, 1)
        while f"{hint}_{number}" in self._used:
            number += 1
        self._next[hint] = number + 1
        name = f"{hint}_{number}"
        self._used.add(name)
        return name


@dataclass(frozen=True)
class Scope:
    """What a body can see of the graphs around it."""

    graph: Graph
    outer: Scope | None = None

    def _owner(self, name: str) -> Graph | None:
        scope: Scope | None = self
        while scope is not None:
            graph = scope.graph
            if name in graph.producers or name in graph.initializers or name in graph.input_names:
                return graph
            scope = scope.outer
        return None

    def type_of(self, name: str) -> ValueType | None:
        """The type of a visible value, None where it is unknown."""
        owner = self._owner(name)
        return owner.type_of(name) if owner is not None else None

    def constant(self, name: str) -> Initializer | None:
        """The initializer behind a visible value if no feed can override it."""
        owner = self._owner(name)
        return owner.constant(name) if owner is not None else None


def merge_types(first: ValueType | None, second: ValueType | None) -> ValueType | None:
    """Return the type that says more, of two that are both true of a value."""

    def known(kind: ValueType | None) -> tuple[bool, bool, int]:
        shape = kind.shape if isinstance(kind, TensorType) else None
        lengths = sum(isinstance(dim, int) for dim in shape) if shape is not None else 0
        return kind is not None, shape is not None, lengths

    return second if known(second) > known(first) else first


def map_bodies(node: Node, change: Callable[[Graph], Graph]) -> Node:
    """Return `node` with every body replaced by `change(body)`; `node` itself if all stayed."""
    attributes: dict[str, AttributeValue] = {}
    for name, value in node.attributes.items():
        if isinstance(value, Graph):
            attributes[name] = change(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Graph):
            bodies = tuple(change(body) for body in value)
            same = all(new is old for new, old in zip(bodies, value, strict=True))
            attributes[name] = value if same else bodies
        else:
            attributes[name] = value
    if all(attributes[name] is value for name, value in node.attributes.items()):
        return node
    return node.replace(attributes=attributes)


def rename_values(graph: Graph, mapping: Mapping[str, str]) -> Graph:
    """Rename values wherever `graph` and its bodies define or read them."""

    def value(old: ValueInfo) -> ValueInfo:
        new = mapping.get(old.name)
        return old if new is None else ValueInfo(new, old.type, old.doc)

    def body(inner: Graph) -> Graph:
        concerned = any(name in mapping for name in inner.captures)
        return rename_values(inner, mapping) if concerned else inner

    def node(old: Node) -> Node:
        return map_bodies(old, body).replace(
            inputs=tuple(mapping.get(name, name) for name in old.inputs),
            outputs=tuple(mapping.get(name, name) for name in old.outputs),
        )

    return graph.replace(
        outputs=tuple(value(info) for info in graph.outputs),
        nodes=tuple(node(item) for item in graph.nodes),
        initializers={
            mapping.get(name, name): item.renamed(mapping[name]) if name in mapping else item
            for name, item in graph.initializers.items()
        },
        values={mapping.get(name, name): value(info) for name, info in graph.values.items()},
    )
