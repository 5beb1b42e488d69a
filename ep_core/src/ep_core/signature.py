"""A model's signature, and the check of feeds against it.

The quick path of the check is what every `run` pays, so it does no more than compare dtype and
shape; everything that makes a good message happens once the quick path has said no.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.contracts import Value
from ep_core.errors import EpError, FeedError, did_you_mean
from ep_core.graph import Graph, ValueInfo
from ep_core.types import (
    DataType,
    MapType,
    OptionalType,
    SequenceType,
    Shape,
    TensorType,
    ValueType,
)

__all__ = ["NodeArg", "Signature", "as_strings", "check_feed", "check_shape"]


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output, with ONNX Runtime's fields.

    Attributes:
        type: e.g. `tensor(float)` or `seq(tensor(int64))`.
        shape: int for a fixed length, str for a symbolic one, None for an unknown one; empty for
            scalars and for values that aren't tensors.
    """

    name: str
    type: str
    shape: list[int | str | None]

    @classmethod
    def of(cls, info: ValueInfo) -> NodeArg:
        """Describe a graph's input or output."""
        kind = info.type
        shape = list(kind.shape or ()) if isinstance(kind, TensorType) else []
        return cls(info.name, str(kind) if kind is not None else "unknown", shape)


class Signature:
    """The inputs of a graph in order, with what a feed for each must look like."""

    def __init__(self, graph: Graph) -> None:
        self._inputs = graph.inputs
        self._defaults = {n: graph.initializers[n].numpy() for n in graph.overridable}
        self._quick = [
            (info.name, kind.dtype.numpy, kind.static_shape, *_fixed(kind))
            for info in graph.inputs
            if isinstance(kind := info.type, TensorType) and kind.dtype is not DataType.STRING
        ]
        self._all_quick = len(self._quick) == len(graph.inputs) and not self._defaults

    def bind(self, feeds: Mapping[str, Any]) -> list[Value]:
        """Return the values in the order of the inputs.

        Raises:
            FeedError: no mapping, a missing or unknown name, a wrong dtype, rank or length.
        """
        if type(feeds) is not dict and not isinstance(feeds, Mapping):
            raise FeedError(
                "input_feed", expected="a dict of values by input name", got=_kind_of(feeds)
            )
        if self._all_quick and len(feeds) == len(self._quick):
            values = []
            for name, dtype, static, rank, fixed in self._quick:
                value = feeds.get(name)
                if type(value) is not np.ndarray or value.dtype != dtype:
                    break
                if static is not None:
                    if value.shape != static:
                        break
                elif rank is not None:
                    shape = value.shape
                    if len(shape) != rank or any(shape[axis] != n for axis, n in fixed):
                        break
                values.append(value)
            else:
                return values
        return self._bind_slowly(feeds)

    def _bind_slowly(self, feeds: Mapping[str, Any]) -> list[Value]:
        known = [info.name for info in self._inputs]
        for name in feeds:
            if name not in known:
                raise FeedError(
                    f"the model has no input {name!r}", fix=did_you_mean(str(name), known)
                )
        values = []
        for info in self._inputs:
            if info.name in feeds:
                values.append(check_feed(info.name, info.type, feeds[info.name]))
            else:
                values.append(self.left_out(info, feeds))
        return values

    def left_out(self, info: ValueInfo, feeds: Collection[str]) -> Value:
        """The value of an input that isn't fed; FeedError, told with `feeds`, if it must be."""
        if info.name in self._defaults:
            return self._defaults[info.name]
        if isinstance(info.type, OptionalType):
            return None
        raise FeedError(
            f"input {info.name!r} is missing",
            expected=_describe(info.type),
            got=f"feeds for {sorted(feeds)}",
        )


def _fixed(kind: TensorType) -> tuple[int | None, list[tuple[int, int]]]:
    """Rank, None where unknown, and the (axis, length) of each fixed dimension."""
    if kind.shape is None:
        return None, []
    fixed = [(axis, dim) for axis, dim in enumerate(kind.shape) if isinstance(dim, int)]
    return len(kind.shape), fixed


def _describe(kind: ValueType | None) -> str:
    if isinstance(kind, TensorType) and kind.shape is not None:
        return f"{kind} of shape {_shape_text(kind.shape)}"
    return str(kind) if kind is not None else "a value"


def _shape_text(shape: Sequence[int | str | None]) -> str:
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"


def check_feed(name: str, kind: ValueType | None, value: Any) -> Value:
    """Check a feed for an input and bring it into the form that plans use; raises FeedError."""
    if kind is None:
        return value
    if isinstance(kind, OptionalType):
        return None if value is None else check_feed(name, kind.element, value)
    if isinstance(kind, SequenceType):
        if not isinstance(value, (list, tuple)):
            raise FeedError(f"input {name!r}", expected=f"a list for {kind}", got=_kind_of(value))
        return [check_feed(f"{name}[{i}]", kind.element, item) for i, item in enumerate(value)]
    if isinstance(kind, MapType):
        if not isinstance(value, Mapping):
            raise FeedError(f"input {name!r}", expected=f"a dict for {kind}", got=_kind_of(value))
        return dict(value)
    if isinstance(kind, TensorType):
        return _checked_tensor(name, kind, value)
    raise FeedError(f"input {name!r} has the type {kind}, which can't be fed")


def _kind_of(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _checked_tensor(name: str, kind: TensorType, value: Any) -> np.ndarray[Any, Any]:
    what = f"input {name!r}"
    if not isinstance(value, (np.ndarray, np.generic)) or isinstance(value, np.ma.MaskedArray):
        raise FeedError(
            what,
            expected=f"numpy.ndarray for {_describe(kind)}",
            got=_kind_of(value),
            fix="Convert it with numpy.asarray(value, dtype=...).",
        )
    array = np.asarray(value)
    try:
        dtype = DataType.from_numpy(array.dtype)
    except EpError as error:
        raise FeedError(what, expected=_describe(kind), got=f"dtype {array.dtype}") from error
    if dtype is not kind.dtype:
        raise FeedError(
            what,
            expected=f"dtype {kind.dtype.numpy} for {kind}",
            got=f"dtype {array.dtype}",
            fix=f"Convert it with astype({str(kind.dtype.numpy)!r}).",
        )
    if dtype is DataType.STRING:
        array = as_strings(what, array)
    elif array.dtype != kind.dtype.numpy:
        array = array.astype(kind.dtype.numpy)  # the other byte order
    check_shape(what, kind.shape, array.shape)
    return array


def check_shape(what: str, wanted: Shape | None, shape: tuple[int, ...]) -> None:
    """Raise FeedError, about `what`, if a tensor hasn't the rank or the lengths that it must."""
    if wanted is None:
        return
    if len(wanted) != len(shape):
        raise FeedError(
            what,
            expected=f"rank {len(wanted)}, shape {_shape_text(wanted)}",
            got=f"rank {len(shape)}, shape {_shape_text(shape)}",
        )
    for axis, (want, have) in enumerate(zip(wanted, shape, strict=True)):
        if isinstance(want, int) and want != have:
            raise FeedError(
                f"{what}, dimension {axis}",
                expected=f"{want} in shape {_shape_text(wanted)}",
                got=f"{have} in shape {_shape_text(shape)}",
            )


def as_strings(what: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An object array of `str`; FeedError, about `what`, where an element isn't one."""
    objects = array.astype(object)
    for item in objects.flat:
        if not isinstance(item, str):
            raise FeedError(what, expected="str in every element", got=_kind_of(item))
    return objects
