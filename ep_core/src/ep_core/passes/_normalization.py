"""Matching what LayerNormalization and RMSNormalization share: `d / sqrt(mean(d^2) + epsilon)`.

Written as a division or as a product with a reciprocal, and then scaled, on either factor.
"""

from __future__ import annotations

from dataclasses import dataclass

from ep_core.graph import Node
from ep_core.passes._constants import scalar, shape_of
from ep_core.passes._editor import GraphEditor
from ep_core.passes._match import float_type, last_axes_mean, plus_constant
from ep_core.types import DataType, TensorType

__all__ = ["Deviation", "Scaled", "find_deviation", "find_scaled", "is_affine", "reciprocal"]


@dataclass(frozen=True)
class Deviation:
    """`sqrt(mean(d^2) + epsilon)` over the last axes.

    Attributes:
        value: name of the root.
        operand: the d.
        axes: number of axes averaged over.
        keys: nodes of the formula.
    """

    value: str
    operand: str
    axes: int
    epsilon: float
    keys: tuple[int, ...]


@dataclass(frozen=True)
class Scaled:
    """`operand / deviation * scale`; `key` is the node that completes it."""

    key: int
    scale: str
    keys: tuple[int, ...]

    @property
    def all_keys(self) -> tuple[int, ...]:
        """The nodes of the formula, the last one included."""
        return (*self.keys, self.key)


def find_deviation(editor: GraphEditor, root: Node) -> Deviation | None:
    """Match the formula that a Sqrt completes.

    Float64 is left alone: the fused operators may compute in float32 inside.
    """
    kind = float_type(editor, root.outputs[0])
    total = editor.made_by(root.inputs[0], "Add")
    found = plus_constant(editor, total)
    if kind is None or kind.dtype is DataType.DOUBLE or total is None or found is None:
        return None
    mean = editor.made_by(found[0], "ReduceMean")
    averaged = last_axes_mean(editor, mean)
    square = editor.made_by(averaged[0], "Mul", "Pow") if averaged is not None else None
    if mean is None or averaged is None or square is None or not _is_square(editor, square):
        return None
    keys = tuple(_key(editor, node) for node in (root, total, mean, square))
    return Deviation(root.outputs[0], square.inputs[0], averaged[1], found[1], keys)


def _is_square(editor: GraphEditor, node: Node) -> bool:
    if node.op_type == "Mul":
        return node.inputs[0] == node.inputs[1]
    exponent = editor.constant(node.inputs[1])
    one = exponent is not None and exponent.shape in ((), (1,))
    return one and scalar(editor, node.inputs[1]) == 2


def _key(editor: GraphEditor, node: Node) -> int:
    key = editor.producer(node.outputs[0])
    assert key is not None
    return key


def reciprocal(editor: GraphEditor, name: str) -> int | None:
    """The only reader of `name`, if it computes 1 / name."""
    key = editor.only_reader(name)
    if key is None:
        return None
    node = editor.node(key)
    if node.domain == "" and node.op_type == "Reciprocal":
        return key
    divides = node.domain == "" and node.op_type == "Div" and node.inputs[1] == name
    return key if divides and scalar(editor, node.inputs[0]) == 1 else None


def find_scaled(editor: GraphEditor, found: Deviation) -> Scaled | None:
    """Match how the operand is divided by its deviation, and scaled."""
    inverse = reciprocal(editor, found.value)
    if inverse is None:
        key = editor.only_reader(found.value)
        node = editor.node(key) if key is not None else None
        quotient = (found.operand, found.value)
        if key is None or node is None or node.op_type != "Div" or node.inputs != quotient:
            return None
        return _times_scale(editor, found, key, ())
    first = _other_factor(editor, editor.node(inverse).outputs[0])
    if first is None:
        return None
    key, factor = first
    if factor == found.operand:
        return _times_scale(editor, found, key, (inverse,))
    last = _other_factor(editor, editor.node(key).outputs[0])
    if last is None or last[1] != found.operand or not is_affine(editor, found, factor):
        return None
    return Scaled(last[0], factor, (inverse, key))


def _times_scale(
    editor: GraphEditor, found: Deviation, key: int, before: tuple[int, ...]
) -> Scaled | None:
    last = _other_factor(editor, editor.node(key).outputs[0])
    if last is None or not is_affine(editor, found, last[1]):
        return None
    return Scaled(last[0], last[1], (*before, key))


def _other_factor(editor: GraphEditor, name: str) -> tuple[int, str] | None:
    """The only reader of `name`, a Mul, and what it multiplies with."""
    key = editor.only_reader(name)
    node = editor.node(key) if key is not None else None
    if key is None or node is None or node.domain != "" or node.op_type != "Mul":
        return None
    return key, node.inputs[1] if node.inputs[0] == name else node.inputs[0]


def is_affine(editor: GraphEditor, found: Deviation, name: str) -> bool:
    """True if `name` has the type of a scale or bias: exactly the axes that are normalised."""
    operand = editor.type_of(found.operand)
    shape = shape_of(editor, found.operand)
    kind = editor.type_of(name)
    if shape is None or not isinstance(operand, TensorType) or not isinstance(kind, TensorType):
        return False
    static = kind.static_shape
    return static == shape[len(shape) - found.axes :] and kind.dtype is operand.dtype
