"""Moves transposes out of regions of layout-blind operators, where that leaves fewer of them.

A region is a connected set of nodes that don't care in which order the axes lie, such as Relu and
Add. It may as well compute on permuted data: transposes on its edge that agree with the permutation
vanish, and values that cross the edge otherwise need new ones. A region is rewritten only if the
number of transposes falls, so the pass ends. Each element is computed as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._constants import shape_of
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor
from ep_core.passes._layout import (
    Permutation,
    compose,
    invert,
    is_identity,
    permutation,
    permuted_type,
)
from ep_core.passes._layout_blind import blind_rank, data_inputs, for_permuted
from ep_core.passes.transpose_chain import shorten
from ep_core.types import TensorType

__all__ = ["PASS"]

_LARGEST_CONSTANT = 1 << 22
"""Bytes. Constants up to this size are permuted here and now, larger ones count as values."""


@dataclass(frozen=True)
class _Region:
    """Connected layout-blind nodes of one rank.

    Attributes:
        keys: its nodes.
        entries: values from outside that need another layout.
        exits: values made inside that are needed outside.
    """

    keys: tuple[int, ...]
    entries: tuple[str, ...]
    exits: tuple[str, ...]


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    while any(editor.find("Transpose")) and _push_once(editor):
        pass


def _push_once(editor: GraphEditor) -> bool:
    pushed = False
    for region in list(_regions(editor)):
        orders = dict.fromkeys(_orders(editor, region))
        gains = {order: _gain(editor, region, order) for order in orders}
        best = max(gains, key=lambda order: gains[order], default=None)
        if best is not None and gains[best] > 0:
            _permute(editor, region, best)
            pushed = True
    return pushed


# ---------------------------------------------------------------- finding regions


def _regions(editor: GraphEditor) -> Iterator[_Region]:
    ranks = {key: blind_rank(editor, node) for key, node in editor.find()}
    seen: set[int] = set()
    for start, rank in ranks.items():
        if rank is None or start in seen:
            continue
        seen.add(start)
        found = [start]
        for key in found:
            near = [n for n in _neighbours(editor, key) if ranks[n] == rank and n not in seen]
            seen.update(near)
            found.extend(dict.fromkeys(near))
        yield _with_edges(editor, sorted(found), rank)


def _neighbours(editor: GraphEditor, key: int) -> Iterator[int]:
    node = editor.node(key)
    for name in data_inputs(node):
        maker = editor.producer(name)
        if maker is not None:
            yield maker
    for name in node.outputs:
        for reader in editor.readers(name):
            if name in data_inputs(editor.node(reader)):
                yield reader


def _with_edges(editor: GraphEditor, keys: list[int], rank: int) -> _Region:
    members = set(keys)
    entries: dict[str, None] = {}
    exits: list[str] = []
    for key in keys:
        node = editor.node(key)
        for name in data_inputs(node):
            shape = shape_of(editor, name)
            outside = editor.producer(name) not in members
            if outside and shape is not None and len(shape) == rank and not _is_small(editor, name):
                entries[name] = None
        for name in node.outputs:
            if name and (name in editor.outputs or _outside(editor, name, members)):
                exits.append(name)
    return _Region(tuple(keys), tuple(entries), tuple(exits))


def _is_small(editor: GraphEditor, name: str) -> bool:
    constant = editor.constant(name)
    return constant is not None and constant.nbytes <= _LARGEST_CONSTANT


def _outside(editor: GraphEditor, name: str, members: set[int]) -> list[int]:
    """Readers outside of the region. Inside, a value of its rank is never a mere parameter."""
    return [key for key in editor.readers(name) if key not in members]


# ---------------------------------------------------------------- weighing


def _order_of(editor: GraphEditor, key: int | None) -> Permutation | None:
    node = editor.node(key) if key is not None else None
    if node is None or node.domain != "" or node.op_type != "Transpose":
        return None
    return permutation(editor, node)


def _orders(editor: GraphEditor, region: _Region) -> Iterator[Permutation]:
    """Permutations for which a transpose on the edge would vanish."""
    for name in region.entries:
        order = _order_of(editor, editor.producer(name))
        if order is not None:
            yield order
    for name in region.exits:
        for reader in editor.readers(name):
            order = _order_of(editor, reader)
            if order is not None:
                yield invert(order)


def _gain(editor: GraphEditor, region: _Region, order: Permutation) -> int:
    """How many transposes fewer there are once the region computes on permuted data."""
    members = set(region.keys)
    gain = 0
    for name in region.entries:
        present = _order_of(editor, editor.producer(name))
        if present is not None and not is_identity(compose(present, invert(order))):
            gain -= 1
        if present is None:
            gain -= 1
        elif name not in editor.outputs and not _outside(editor, name, members):
            gain += 1
    for name in region.exits:
        needed = name in editor.outputs
        renamed = False
        for reader in _outside(editor, name, members):
            present = _order_of(editor, reader)
            if present is None:
                needed = True
            elif is_identity(compose(order, present)):
                # Only one output of the graph can take over the name of the permuted value.
                is_output = editor.node(reader).outputs[0] in editor.outputs
                gain += not (is_output and renamed)
                renamed = renamed or is_output
        gain -= needed
    return gain


# ---------------------------------------------------------------- rewriting


def _permute(editor: GraphEditor, region: _Region, order: Permutation) -> None:
    back = invert(order)
    members = set(region.keys)
    readers = {name: _outside(editor, name, members) for name in region.exits}
    renamed = {name: _transposed(editor, name, back) for name in region.entries}
    made = [name for key in region.keys for name in editor.node(key).outputs if name]
    renamed.update({name: editor.names.fresh(name) for name in made})
    for key in region.keys:
        node = for_permuted(editor, editor.node(key), order)
        count = len(data_inputs(node))
        for name in data_inputs(node):
            if name not in renamed:
                renamed[name] = _permuted_constant(editor, name, back)
        inputs = (*(renamed[name] for name in node.inputs[:count]), *node.inputs[count:])
        outputs = tuple(renamed[name] if name else "" for name in node.outputs)
        editor.replace(key, node.replace(inputs=inputs, outputs=outputs))
    for name in made:
        kind = editor.type_of(name)
        assert isinstance(kind, TensorType)
        editor.set_type(renamed[name], permuted_type(kind, back))
    for name in region.exits:
        editor.add(editor.make_node("Transpose", (renamed[name],), (name,), {"perm": order}))
        for key in readers[name]:
            if _order_of(editor, key) is not None:
                shorten(editor, key)
    for name in (*region.entries, *region.exits):
        editor.remove_unused([name])


def _transposed(editor: GraphEditor, name: str, order: Permutation) -> str:
    """The value in another layout: what it is a transpose of, or the output of a new transpose."""
    kind = editor.type_of(name)
    assert isinstance(kind, TensorType)
    source = name
    whole = order
    present = _order_of(editor, editor.producer(name))
    if present is not None:
        maker = editor.made_by(name, "Transpose")
        assert maker is not None
        source = maker.inputs[0]
        whole = compose(present, order)
        if is_identity(whole):
            return source
    result = editor.names.fresh(name)
    editor.add(editor.make_node("Transpose", (source,), (result,), {"perm": whole}))
    editor.set_type(result, permuted_type(kind, order))
    return result


def _permuted_constant(editor: GraphEditor, name: str, order: Permutation) -> str:
    """A constant that broadcasts with permuted data; scalars do as they are."""
    constant = editor.constant(name)
    if constant is None or all(length == 1 for length in constant.shape):
        return name
    shape = (1,) * (len(order) - len(constant.shape)) + constant.shape
    moved = constant.numpy().reshape(shape).transpose(order)
    return editor.add_constant(name, np.ascontiguousarray(moved))


PASS = Pass(
    "TransposeOptimizer",
    GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    _rewrite,
)
