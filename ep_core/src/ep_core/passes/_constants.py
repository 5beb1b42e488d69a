"""What the passes ask of constant inputs: small integer lists, scalars, exact fillings."""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.graph import Node
from ep_core.passes._editor import GraphEditor
from ep_core.types import DataType, TensorType

__all__ = [
    "FLOATS",
    "broadcasts_into",
    "filled_with",
    "integers",
    "integers_at",
    "scalar",
    "shape_of",
]

FLOATS = {
    DataType.FLOAT16: (11, 5),
    DataType.BFLOAT16: (8, 8),
    DataType.FLOAT: (24, 8),
    DataType.DOUBLE: (53, 11),
}
"""The floating types that arithmetic is done in: bits of significand (the hidden one included) and
of exponent."""

_LARGEST_FILLING = 1 << 16


def shape_of(editor: GraphEditor, name: str) -> tuple[int | str | None, ...] | None:
    """The shape of a tensor, None where the rank is unknown."""
    kind = editor.type_of(name)
    return kind.shape if isinstance(kind, TensorType) else None


def integers(editor: GraphEditor, name: str) -> tuple[int, ...] | None:
    """The elements of a constant list of integers, such as axes or a shape, else None."""
    constant = editor.constant(name)
    if constant is None or len(constant.shape) > 1 or not constant.dtype.is_integer:
        return None
    return tuple(int(item) for item in constant.numpy().reshape(-1))


def integers_at(
    editor: GraphEditor, node: Node, attribute: str, index: int
) -> tuple[int, ...] | None:
    """A list of integers that older versions had as attribute and newer ones have as input.

    Returns None where it is left out or not constant.
    """
    value = node.attributes.get(attribute)
    if value is not None:
        return tuple(int(item) for item in value)
    if index < len(node.inputs) and node.inputs[index]:
        return integers(editor, node.inputs[index])
    return None


def scalar(editor: GraphEditor, name: str) -> float | None:
    """The value of a constant with one element of a real number type, whatever its rank."""
    constant = editor.constant(name)
    if constant is None or any(length != 1 for length in constant.shape):
        return None
    if not (constant.dtype.is_float or constant.dtype.is_integer):
        return None
    return float(constant.numpy().reshape(-1)[0])


def broadcasts_into(constant: tuple[int, ...], shape: tuple[int | str | None, ...] | None) -> bool:
    """True if broadcasting with a constant of that shape surely leaves `shape` as it is."""
    if shape is None:
        return constant == ()
    if len(constant) > len(shape):
        return False
    tail = shape[len(shape) - len(constant) :]
    return all(mine in (1, theirs) for mine, theirs in zip(constant, tail, strict=True))


def filled_with(editor: GraphEditor, name: str, value: Any) -> bool:
    """True for a constant whose elements all have the very bits of `value`; never for giants."""
    constant = editor.constant(name)
    if constant is None or int(np.prod(constant.shape)) > _LARGEST_FILLING:
        return False
    array = constant.numpy()
    return np.full(array.shape, value, array.dtype).tobytes() == array.tobytes()
