"""Host values that tell on whoever mistreats them: guard bytes, odd layouts, bitwise comparison.

Knows arrays, lists and maps; knows nothing of providers, cases or verdicts.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ep_core.contracts import Value
from ep_core.types import DataType, OptionalType, SequenceType, TensorType, ValueType

__all__ = [
    "LAYOUTS",
    "Held",
    "any_alive",
    "arrays_in",
    "describe",
    "hold",
    "misfit",
    "poison",
    "poisoned",
    "same_bits",
    "shape_misfit",
]

_GUARD_BYTES = 64
_GUARD = 0xC3
_POISON = 0xA5
_ALIGNMENT = 64

Array = np.ndarray[Any, Any]


class _Piece(NamedTuple):
    """One tensor that was handed out.

    Attributes:
        owner: the memory it lies in, which every view of it keeps alive.
        guards: whether the owner's other bytes are guards.
    """

    owner: Array
    array: Array
    guards: bool


class Held:
    """A copy of a value for somebody to work on, and the means to see what they did with it.

    Attributes:
        value: what to hand out.
    """

    def __init__(self, original: Value, make: Callable[[Array], _Piece]) -> None:
        self._original = original
        self._make = make
        self._pieces: list[_Piece] = []
        self.value = self._copy(original)

    def damage(self) -> str:
        """What has happened to it since, in words; empty if nothing has."""
        if not same_bits(self.value, self._original):
            return "its contents were changed"
        if not all(_guards_intact(piece) for piece in self._pieces if piece.guards):
            return "bytes beside it were written"
        return ""

    def beside(self) -> str:
        """Whether bytes beside it were written, for memory that is meant to be changed."""
        intact = all(_guards_intact(piece) for piece in self._pieces if piece.guards)
        return "" if intact else "bytes beside it were written"

    def let_go(self) -> list[weakref.ref[Array]]:
        """Drop every reference; what is returned is dead unless somebody else kept the memory."""
        watched = [weakref.ref(piece.owner) for piece in self._pieces]
        self.value = None
        self._pieces = []
        return watched

    def _copy(self, value: Value) -> Value:
        if isinstance(value, np.ndarray):
            piece = self._make(value)
            self._pieces.append(piece)
            return piece.array
        if isinstance(value, list | tuple):
            return [self._copy(item) for item in value]
        if isinstance(value, Mapping):
            return {key: self._copy(item) for key, item in value.items()}
        return value


def hold(value: Value) -> Held:
    """A writable, contiguous copy between guard bytes, with no more than natural alignment."""
    return Held(value, _guarded)


def _scatter(value: Value) -> Held:
    return Held(value, _scattered)


def _turn(value: Value) -> Held:
    return Held(value, _column_major)


def _reverse(value: Value) -> Held:
    return Held(value, _backwards)


LAYOUTS = (
    ("a run with read-only, non-contiguous inputs", _scatter, 0),
    ("a run with read-only inputs in column-major order", _turn, 2),
    ("a run with read-only inputs whose first axis runs backwards", _reverse, 1),
)
"""Read-only copies as callers may have them, and the lowest rank at which they are unusual."""


def _guarded(array: Array) -> _Piece:
    if array.dtype.hasobject:
        copy = array.copy()
        return _Piece(copy, copy, guards=False)
    owner = np.full(array.nbytes + 2 * _GUARD_BYTES + 2 * _ALIGNMENT, _GUARD, np.uint8)
    start = _GUARD_BYTES + -(owner.ctypes.data + _GUARD_BYTES) % _ALIGNMENT
    start += array.dtype.alignment % _ALIGNMENT
    copy = owner[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return _Piece(owner, copy, guards=True)


def _scattered(array: Array) -> _Piece:
    if not array.ndim:
        owner = array.copy()
        owner.flags.writeable = False
        return _Piece(owner, owner, guards=False)
    owner = np.empty((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    poison(owner)
    view = owner[..., ::2]
    view[...] = array
    view.flags.writeable = False
    return _Piece(owner, view, guards=False)


def _column_major(array: Array) -> _Piece:
    owner = np.empty(array.shape[::-1], array.dtype)
    owner.T[...] = array
    return _read_only(owner, owner.T)


def _backwards(array: Array) -> _Piece:
    """Rows are cut from longer ones, too."""
    if not array.ndim:
        return _column_major(array)
    rows, columns = array.shape[:-1], array.shape[-1]
    owner = np.empty((*rows, columns + 3), array.dtype)
    poison(owner)
    view = owner[..., :columns][::-1]
    view[...] = array
    return _read_only(owner, view)


def _read_only(owner: Array, view: Array) -> _Piece:
    view.flags.writeable = False
    return _Piece(owner, view, guards=False)


def _guards_intact(piece: _Piece) -> bool:
    start = piece.array.ctypes.data - piece.owner.ctypes.data
    before = piece.owner[:start]
    after = piece.owner[start + piece.array.nbytes :]
    return bool((before == _GUARD).all() and (after == _GUARD).all())


# ---------------------------------------------------------------- looking at values


def poison(value: Value) -> None:
    """Overwrite every tensor of a value with bytes that no right answer has."""
    for array in arrays_in(value):
        if not array.flags.writeable:
            continue
        if array.dtype.hasobject:
            array[...] = "\N{REPLACEMENT CHARACTER}"
        else:
            # Types of a few bits live in bytes whose high bits are ignored; 0xA5 fits all.
            filler = np.frombuffer(bytes([_POISON]) * array.dtype.itemsize, array.dtype)
            array[...] = filler[0]


def arrays_in(value: Value) -> Iterator[Array]:
    """The tensors inside a value."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from arrays_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from arrays_in(item)


def poisoned(value: Value) -> Any:
    """A contiguous copy of an array, poisoned."""
    array = np.array(value, order="C")
    poison(array)
    return array


def any_alive(watched: Sequence[Sequence[weakref.ref[Any]]]) -> bool:
    """True if something that was let go is still there."""
    return any(reference() is not None for references in watched for reference in references)


def same_bits(a: Value, b: Value) -> bool:
    """True if two values are equal in type, shape and every bit."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.dtype.hasobject:
            return bool(np.all(a == b))
        return a.tobytes() == b.tobytes()
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same_bits, a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same_bits(a[key], b[key]) for key in a)
    return type(a) is type(b) and bool(a == b)


def misfit(value: Value, kind: ValueType | None) -> str:
    """Why a host value isn't of a type, as far as the type is known; empty if it is."""
    if kind is None:
        return ""
    if isinstance(kind, OptionalType):
        return "" if value is None else misfit(value, kind.element)
    if isinstance(kind, SequenceType):
        if not isinstance(value, list):
            return f"expected a list for {kind}, got {describe(value)}"
        return next((text for item in value if (text := misfit(item, kind.element))), "")
    if not isinstance(kind, TensorType):
        return ""
    if not isinstance(value, np.ndarray):
        return f"expected an array for {kind}, got {describe(value)}"
    if value.dtype != kind.dtype.numpy:
        return f"expected element type {kind.dtype.text}, got {describe(value)}"
    if kind.dtype is DataType.STRING and not all(isinstance(s, str) for s in value.flat):
        return "expected str in a tensor of strings"
    return shape_misfit(value.shape, kind)


def shape_misfit(shape: tuple[int, ...], kind: TensorType) -> str:
    """Why a shape isn't the declared one, as far as that is known; empty if it is."""
    if kind.shape is None:
        return ""
    fits = len(shape) == len(kind.shape) and all(
        not isinstance(declared, int) or declared == length
        for length, declared in zip(shape, kind.shape, strict=True)
    )
    return "" if fits else f"expected shape {list(kind.shape)}, got {list(shape)}"


def describe(value: Value) -> str:
    """Type and shape of a host value on a few characters."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    return "nothing" if value is None else type(value).__name__
