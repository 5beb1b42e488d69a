"""Matching formulas: products in any order and grouping, constants up to rounding.

A value inside a formula must have no other reader, or fusing it would compute it twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ep_core.graph import Node
from ep_core.passes._constants import FLOATS, broadcasts_into, integers_at, scalar, shape_of
from ep_core.passes._editor import GraphEditor
from ep_core.types import DataType, Shape, TensorType

__all__ = [
    "Product",
    "float_type",
    "inner",
    "last_axes_mean",
    "plus_constant",
    "product",
    "product_of",
]


@dataclass(frozen=True)
class Product:
    """A product: one number times values.

    Attributes:
        number: the product of all scalar constants in it.
        values: its other factors, in order, with repeats.
    """

    number: float
    values: tuple[str, ...]

    def is_near(self, number: float, dtype: DataType) -> bool:
        """True if its number is `number` up to a few roundings in `dtype`."""
        return abs(self.number - number) <= 4 * 2.0 ** (1 - FLOATS[dtype][0]) * number


def float_type(editor: GraphEditor, name: str) -> TensorType | None:
    """The type of a tensor of floats, None for others and where it is unknown."""
    kind = editor.type_of(name)
    return kind if isinstance(kind, TensorType) and kind.dtype in FLOATS else None


def inner(editor: GraphEditor, name: str, *op_types: str) -> Node | None:
    """The node of one of these operators that makes `name`, if nobody else reads that value."""
    return editor.made_by(name, *op_types) if editor.used_once(name) else None


def product(editor: GraphEditor, name: str, shape: Shape | None) -> Product:
    """Take a value apart into factors: through Mul, Div by a constant, squares and cubes.

    `shape` is that of the whole product, which scalar constants must not change.
    """
    number = 1.0
    values: list[str] = []
    waiting = [name]
    while waiting:
        factor = waiting.pop()
        constant = _scalar_within(editor, factor, shape)
        if constant is not None:
            number *= constant
            continue
        parts = _parts(editor, inner(editor, factor, "Div", "Mul", "Pow"), shape)
        if parts is None:
            values.append(factor)
        else:
            number *= parts.number
            waiting.extend(reversed(parts.values))
    return Product(number, tuple(values))


def product_of(editor: GraphEditor, node: Node, shape: Shape | None) -> Product | None:
    """Take the result of a node apart, whoever reads it; None unless it is a product."""
    parts = _parts(editor, node, shape)
    if parts is None:
        return None
    products = [product(editor, name, shape) for name in parts.values]
    number = parts.number * prod(item.number for item in products)
    return Product(number, tuple(name for item in products for name in item.values))


def _parts(editor: GraphEditor, node: Node | None, shape: Shape | None) -> Product | None:
    if node is None or node.domain != "":
        return None
    if node.op_type == "Mul":
        return Product(1.0, node.inputs)
    if node.op_type not in ("Div", "Pow"):
        return None
    number = _scalar_within(editor, node.inputs[1], shape)
    if node.op_type == "Div" and number:
        return Product(1.0 / number, node.inputs[:1])
    if node.op_type == "Pow" and number in (2.0, 3.0):
        return Product(1.0, node.inputs[:1] * int(number))
    return None


def _scalar_within(editor: GraphEditor, name: str, shape: Shape | None) -> float | None:
    constant = editor.constant(name)
    if constant is None or not broadcasts_into(constant.shape, shape):
        return None
    return scalar(editor, name)


def plus_constant(editor: GraphEditor, node: Node | None) -> tuple[str, float] | None:
    """The operands of an Add of a value and a scalar constant."""
    if node is None or node.domain != "" or node.op_type != "Add":
        return None
    for value, other in (node.inputs, node.inputs[::-1]):
        number = _scalar_within(editor, other, shape_of(editor, value))
        if number is not None and editor.constant(value) is None:
            return value, number
    return None


def last_axes_mean(editor: GraphEditor, node: Node | None) -> tuple[str, int] | None:
    """The operand of a ReduceMean over the last axes, kept with length one, and their number."""
    if node is None or node.op_type != "ReduceMean" or not node.attributes.get("keepdims", 1):
        return None
    shape = shape_of(editor, node.inputs[0])
    axes = integers_at(editor, node, "axes", 1)
    if shape is None or not axes:
        return None
    rank = len(shape)
    if not all(-rank <= axis < rank for axis in axes):
        return None
    reduced = sorted({axis % rank for axis in axes})
    if reduced != list(range(rank - len(axes), rank)):
        return None
    return node.inputs[0], len(axes)
