"""A working copy of one graph that a pass may change, turned into a new `Graph` at the end.

Keeps track of who produces and who reads each value, so that a rewrite costs as much as the nodes
it touches. Bodies are rewritten before the graph around them; here they are only renamed. Knows
nothing of operators.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ep_core.graph import AttributeValue, Graph, Initializer, Node, ValueInfo
from ep_core.passes._order import in_order
from ep_core.passes._schema import version_at
from ep_core.passes._scope import Names, Scope, map_bodies, merge_types, rename_values
from ep_core.types import ValueType

__all__ = ["GraphEditor"]


class GraphEditor:
    """A mutable graph. Nodes have an `int` key that stays while the node is replaced."""

    def __init__(self, graph: Graph, names: Names, outer: Scope | None = None) -> None:
        self.graph = graph
        self.names = names
        self.opsets = graph.opsets
        self.outputs = frozenset(graph.output_names)
        self._outer = outer
        self._inputs = frozenset(graph.input_names)
        self._nodes: dict[int, Node] = {}
        self._initializers = dict(graph.initializers)
        self._values = dict(graph.values)
        self._producers: dict[str, int] = {}
        self._uses: dict[str, dict[int, int]] = {}
        self._renamed_captures: dict[int, dict[str, str]] = {}
        self._next_key = 0
        self._changed = False
        for node in graph.nodes:
            self._link(self._new_key(), node)

    # ------------------------------------------------------------ looking

    def find(self, *op_types: str) -> Iterator[tuple[int, Node]]:
        """Keys and nodes of these standard operators, of all nodes if none are named.

        In topological order; without those that are removed or added meanwhile.
        """
        for key in list(self._nodes):
            node = self._nodes.get(key)
            if node is not None and (
                not op_types or (node.domain == "" and node.op_type in op_types)
            ):
                yield key, self.node(key)

    def node(self, key: int) -> Node:
        """The node as it is now."""
        self._rename_captures(key)
        return self._nodes[key]

    def producer(self, name: str) -> int | None:
        """Key of the node of this graph that makes the value."""
        return self._producers.get(name)

    def made_by(self, name: str, *op_types: str) -> Node | None:
        """The standard-domain node that makes the value, if it is one of `op_types`."""
        node = self._nodes.get(self._producers.get(name, -1))
        fits = node is not None and node.domain == "" and node.op_type in op_types
        return node if fits else None

    def readers(self, name: str) -> tuple[int, ...]:
        """Keys of the nodes that read the value, in inputs or bodies, without repeats."""
        return tuple(self._uses.get(name, ()))

    def used_once(self, name: str) -> bool:
        """True if one node reads the value, once, and the caller of the graph doesn't get it."""
        uses = self._uses.get(name, {})
        return len(uses) == 1 and sum(uses.values()) == 1 and name not in self.outputs

    def unused(self, name: str) -> bool:
        """True if nobody reads the value."""
        return not self._uses.get(name) and name not in self.outputs

    def only_reader(self, name: str) -> int | None:
        """Key of the node that reads the value, if `used_once`."""
        return self.readers(name)[0] if self.used_once(name) else None

    def closed(self, keys: Collection[int], root: int) -> bool:
        """True if nobody but the nodes `keys` needs what they make, the outputs of `root` aside."""
        return all(
            name not in self.outputs and all(reader in keys for reader in self.readers(name))
            for key in keys
            if key != root
            for name in self._nodes[key].outputs
        )

    def type_of(self, name: str) -> ValueType | None:
        """The type of a value of this graph or an outer one."""
        initializer = self._initializers.get(name)
        if initializer is not None:
            return initializer.type
        info = self._values.get(name)
        known = info.type if info is not None else None
        if self._outer is not None and self._is_outer(name):
            return merge_types(known, self._outer.type_of(name))
        return known

    def constant(self, name: str) -> Initializer | None:
        """The initializer behind a value of this graph or an outer one, if no feed overrides it."""
        if self._outer is not None and self._is_outer(name):
            return self._outer.constant(name)
        return None if name in self.graph.overridable else self._initializers.get(name)

    def _is_outer(self, name: str) -> bool:
        own = (self._producers, self._inputs, self._initializers)
        return not any(name in names for names in own)

    def own_constants(self) -> dict[str, Initializer]:
        """The initializers of this very graph that no feed can override, by name."""
        overridable = self.graph.overridable
        return {n: item for n, item in self._initializers.items() if n not in overridable}

    # ------------------------------------------------------------ changing

    def add(self, node: Node) -> int:
        """Add a node; its place in the order follows from what it reads. Returns its key."""
        key = self._new_key()
        self._link(key, node)
        self._changed = True
        return key

    def replace(self, key: int, node: Node) -> None:
        """Put another node in the place of one."""
        self._unlink(key)
        self._link(key, node)
        self._changed = True

    def remove(self, key: int) -> None:
        """Take a node out; the caller sees to it that nobody reads its outputs any more."""
        self._unlink(key)
        del self._nodes[key]
        self._changed = True

    def remove_unused(self, names: Iterable[str]) -> None:
        """Remove the producers of values nobody reads, and what only they needed."""
        waiting = [name for name in names if name]
        while waiting:
            key = self._producers.get(waiting.pop())
            if key is not None and all(self.unused(out) for out in self._nodes[key].outputs if out):
                reads = list(self.node(key).reads)
                self.remove(key)
                waiting.extend(reads)

    def add_constant(self, hint: str, array: np.ndarray[Any, Any]) -> str:
        """Add an initializer under a new name and return the name."""
        name = self.names.fresh(hint)
        self.set_constant(Initializer.from_array(name, array))
        return name

    def set_constant(self, initializer: Initializer) -> None:
        """Add an initializer under its own name, which no node may produce."""
        self._initializers[initializer.name] = initializer
        self._values[initializer.name] = ValueInfo(initializer.name, initializer.type)
        self._changed = True

    def set_type(self, name: str, kind: ValueType | None) -> None:
        """Record what is known of a value made here, unless more is known already."""
        if name in self._inputs or name in self._initializers:
            return
        best = merge_types(self.type_of(name), kind)
        if best is not None:
            self._values[name] = ValueInfo(name, best)

    def drop_unused_constants(self) -> None:
        """Remove initializers that nobody reads; defaults of inputs stay."""
        for name in [n for n in self._initializers if self.unused(n) and n not in self._inputs]:
            del self._initializers[name]
            self._changed = True

    def make_node(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Mapping[str, AttributeValue] | None = None,
    ) -> Node:
        """Make a standard node for this graph's opset, which must have the operator."""
        version = version_at(op_type, self.opsets)
        assert version is not None, op_type
        name = self.names.fresh(op_type)
        return Node(name, op_type, "", version, tuple(inputs), tuple(outputs), attributes or {})

    def redirect(self, old: str, new: str) -> None:
        """Let every reader of `old` read `new`. Outputs of the graph keep their source."""
        for key in self.readers(old):
            self._reread(key, old, new)
            self._changed = True

    def rename_output(self, old: str, new: str) -> None:
        """Rename a value that a node makes, for its readers too; `new` must be free."""
        key = self._producers[old]
        node = self._nodes[key]
        outputs = tuple(new if name == old else name for name in node.outputs)
        self._producers[new] = self._producers.pop(old)
        self._nodes[key] = node.replace(outputs=outputs)
        self._changed = True
        self.set_type(new, self.type_of(old))
        self.redirect(old, new)

    def forward(self, key: int, source: str) -> bool:
        """Remove a node whose first output is its input `source`, its other outputs being unused.

        Returns False where the node is needed to give an input, an outer value, or another output
        of the graph a second name.
        """
        target = self._nodes[key].outputs[0]
        if target not in self.outputs:
            self.set_type(source, self.type_of(target))
            self.remove(key)
            self.redirect(target, source)
            return True
        if source in self._producers and source not in self.outputs:
            self.remove(key)
            self.rename_output(source, target)
            return True
        constant = self._initializers.get(source)
        if constant is not None and source not in self.graph.overridable:
            self.remove(key)
            self.set_constant(constant.renamed(target))
            return True
        return False

    # ------------------------------------------------------------ finishing

    def finish(self) -> Graph:
        """Return the new graph, without unused initializers; the old one if nothing changed."""
        if not self._changed:
            return self.graph
        for key in list(self._renamed_captures):
            self._rename_captures(key)
        nodes = tuple(self._nodes[key] for key in in_order(self._nodes, self._producers))
        self.drop_unused_constants()
        live = {*self._producers, *self._initializers, *self._inputs, *self.outputs}
        live.update(name for name, uses in self._uses.items() if uses)
        return self.graph.replace(
            nodes=nodes,
            initializers=self._initializers,
            values={name: info for name, info in self._values.items() if name in live},
        )

    # ------------------------------------------------------------ book-keeping

    def _new_key(self) -> int:
        self._next_key += 1
        return self._next_key - 1

    def _link(self, key: int, node: Node) -> None:
        self._nodes[key] = node
        for name in node.reads:
            uses = self._uses.setdefault(name, {})
            uses[key] = uses.get(key, 0) + 1
        for name in node.outputs:
            if name:
                self._producers[name] = key

    def _unlink(self, key: int) -> None:
        node = self.node(key)
        for name in node.reads:
            self._uses[name].pop(key, None)
        for name in node.outputs:
            if name:
                del self._producers[name]

    def _reread(self, key: int, old: str, new: str) -> None:
        node = self._nodes[key]
        count = self._uses[old].pop(key)
        uses = self._uses.setdefault(new, {})
        uses[key] = uses.get(key, 0) + count
        if old in node.inputs:
            inputs = tuple(new if name == old else name for name in node.inputs)
            self._nodes[key] = node.replace(inputs=inputs)
        if node.bodies:
            # Renaming a body walks through it, so many renames are gathered into one walk.
            pending = self._renamed_captures.setdefault(key, {})
            for original, current in pending.items():
                if current == old:
                    pending[original] = new
            pending.setdefault(old, new)

    def _rename_captures(self, key: int) -> None:
        pending = self._renamed_captures.pop(key, None)
        if pending is None:
            return
        node = self._nodes[key]
        mapping = {name: pending[name] for name in node.captures if name in pending}
        if mapping:
            self._nodes[key] = map_bodies(node, lambda body: rename_values(body, mapping))
