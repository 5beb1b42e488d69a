"""Types, sizes and attributes as short texts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ep_core.graph import Graph
from ep_core.types import DataType, TensorType, ValueType

__all__ = ["attribute_text", "type_text", "value_bytes"]

_SHOWN_ITEMS = 12
_LONGEST = 160


def type_text(kind: ValueType | None) -> str:
    """`float[1, n, 3]`; `unknown` where inference couldn't tell."""
    if kind is None:
        return "unknown"
    if not isinstance(kind, TensorType):
        return str(kind)
    if kind.shape is None:
        return f"{kind.dtype.text}[of unknown rank]"
    dims = ", ".join("?" if dim is None else str(dim) for dim in kind.shape)
    return f"{kind.dtype.text}[{dims}]"


def value_bytes(kind: ValueType | None) -> int | None:
    """Bytes of a value in memory, None where its shape or the size of an element isn't known."""
    if not isinstance(kind, TensorType) or kind.dtype is DataType.STRING:
        return None
    shape = kind.static_shape
    return None if shape is None else math.prod(shape) * kind.dtype.numpy.itemsize


def attribute_text(value: Any) -> str:
    """An attribute's value, of a long one the beginning."""
    if isinstance(value, Graph):
        return f"a graph of {len(value.nodes)} nodes"
    if isinstance(value, np.ndarray):
        dims = ", ".join(map(str, value.shape))
        start = _listed(value.reshape(-1)[:_SHOWN_ITEMS].tolist(), value.size)
        return f"{DataType.from_numpy(value.dtype).text}[{dims}]: {start}"
    if isinstance(value, tuple):
        return _listed(value[:_SHOWN_ITEMS], len(value))
    return _cut(value if isinstance(value, str) else repr(value))


def _listed(items: Any, count: int) -> str:
    shown = ", ".join(attribute_text(item) for item in items)
    return _cut(f"{shown}, ... {count} in all" if count > _SHOWN_ITEMS else shown)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
