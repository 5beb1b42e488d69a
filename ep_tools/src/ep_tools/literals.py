"""Values written out on a command line become arrays of an input's type and shape."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ep_core.errors import FeedError
from ep_core.types import DataType

__all__ = ["literal_array"]

Array = np.ndarray[Any, Any]


def literal_array(name: str, dtype: DataType, sizes: tuple[int | None, ...], value: Any) -> Array:
    """Return an array of `dtype.numpy` that holds what was written.

    Args:
        name: the input, for messages.
        dtype: its element type.
        sizes: its lengths; None for an open dimension.
        value: a single value, which fills the whole shape, open dimensions being 1; or a nested
            list, which has its own shape and gets leading dimensions of 1 up to the input's rank.

    Raises:
        FeedError: lists of different lengths, a value that isn't of the type or out of its range,
            or a shape too large for this machine.
    """
    shape = _list_shape(name, value)
    items = [_element(name, dtype, item) for item in _flat(value)]
    array = _typed(name, dtype, items)
    if isinstance(value, list):
        missing = len(sizes) - len(shape)
        return array.reshape((1,) * missing + shape)
    whole = tuple(1 if size is None else size for size in sizes)
    try:
        return np.full(whole, array[0], dtype.numpy)
    except (MemoryError, ValueError) as error:
        raise FeedError(
            f"can't fill shape {list(whole)} of input '{name}'",
            got=str(error),
            fix="Give smaller lengths with --dim or --shape.",
        ) from error


def _list_shape(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        return ()
    shapes = {_list_shape(name, item) for item in value}
    if len(shapes) > 1:
        raise FeedError(
            f"the value of input '{name}' is no array",
            expected="lists of one length and depth",
            got=f"shapes {sorted(map(list, shapes))} beside one another",
        )
    return (len(value), *(shapes.pop() if shapes else ()))


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _element(name: str, dtype: DataType, item: Any) -> Any:
    """Check one value; integers stay exact."""
    if dtype is DataType.STRING:
        if isinstance(item, str):
            return item
        raise _wrong(name, dtype, item, f"Write it in quotes: --input {name}='\"{item}\"'.")
    if isinstance(item, str):
        raise _wrong(name, dtype, item)
    if dtype is DataType.BOOL:
        if item in (0, 1):
            return bool(item)
        raise _wrong(name, dtype, item)
    if dtype.is_integer:
        return _integer(name, dtype, item)
    if isinstance(item, bool):
        raise _wrong(name, dtype, item)
    try:
        return float(item)
    except OverflowError:
        raise _wrong(name, dtype, item) from None


def _integer(name: str, dtype: DataType, item: Any) -> int:
    unsigned = dtype.name.startswith("U")
    low = 0 if unsigned else -(2 ** (dtype.bits - 1))
    high = 2**dtype.bits - 1 if unsigned else 2 ** (dtype.bits - 1) - 1
    whole = not isinstance(item, bool) and math.isfinite(item) and item == int(item)
    if not whole or not low <= item <= high:
        raise _wrong(name, dtype, item, f"It holds whole numbers from {low} to {high}.")
    return int(item)


def _typed(name: str, dtype: DataType, items: list[Any]) -> Array:
    if not dtype.is_float:
        return np.array(items, dtype.numpy)
    wide = np.array(items, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        array = wide.astype(dtype.numpy)
        lost = np.isfinite(wide) & ~np.isfinite(array.astype(np.float64))
    if lost.any():
        raise _wrong(name, dtype, wide[lost][0].item())
    return array


def _wrong(name: str, dtype: DataType, item: Any, fix: str | None = None) -> FeedError:
    text = repr(item)
    shown = text if len(text) <= 60 else f"{text[:60]}..."
    return FeedError(
        f"a value of input '{name}'", expected=f"one of type {dtype.text}", got=shown, fix=fix
    )
