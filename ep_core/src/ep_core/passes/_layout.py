"""Permutations of axes, as `perm` of Transpose has them: axis `i` of the result is `perm[i]`."""

from __future__ import annotations

from ep_core.graph import Node
from ep_core.passes._constants import shape_of
from ep_core.passes._editor import GraphEditor
from ep_core.types import TensorType

__all__ = ["Permutation", "compose", "invert", "is_identity", "permutation", "permuted_type"]

Permutation = tuple[int, ...]


def permutation(editor: GraphEditor, node: Node) -> Permutation | None:
    """The order of a Transpose's axes, None where it isn't known or doesn't fit the operand."""
    shapes = [shape_of(editor, name) for name in (node.inputs[0], node.outputs[0])]
    ranks = {len(shape) for shape in shapes if shape is not None}
    perm = node.attributes.get("perm")
    if perm is None:
        return tuple(reversed(range(ranks.pop()))) if len(ranks) == 1 else None
    order = tuple(int(axis) for axis in perm)
    return order if sorted(order) == list(range(len(order))) and ranks <= {len(order)} else None


def compose(first: Permutation, second: Permutation) -> Permutation:
    """The order of `Transpose(Transpose(x, first), second)`."""
    return tuple(first[axis] for axis in second)


def invert(order: Permutation) -> Permutation:
    """The order that undoes `order`."""
    inverse = [0] * len(order)
    for position, axis in enumerate(order):
        inverse[axis] = position
    return tuple(inverse)


def is_identity(order: Permutation) -> bool:
    """True if the order moves nothing."""
    return order == tuple(range(len(order)))


def permuted_type(kind: TensorType, order: Permutation) -> TensorType:
    """The type of `Transpose(x, order)` for an x of type `kind`."""
    if kind.shape is None:
        return kind
    return TensorType(kind.dtype, tuple(kind.shape[axis] for axis in order))
