"""Schemas: shapes, ranges, samples, spectra, distances, hashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ep_core.types import DataType, Dim, Shape
from ep_cpu.schemas.declare import Declaration, Known, same

__all__ = ["DECLARATIONS"]

_LEGACY = "float16 float double"
_INTEGERS = "uint8 uint16 uint32 uint64 int8 int16 int32 int64"
_ANY = f"{_INTEGERS} {_LEGACY} string bool complex64 complex128"


def _expanded(known: Known) -> Sequence[Shape | None]:
    shape, axis = known.shape(0), known.constant(1)
    if shape is None:
        return ()
    rank = len(shape) + 1
    if axis is None or len(axis) != 1 or not -rank <= axis[0] < rank:
        return ((None,) * rank,)
    place = axis[0] % rank
    return ((*shape[:place], 1, *shape[place:]),)


def _distances(known: Known) -> Sequence[Shape | None]:
    a, b = known.shape(0), known.shape(1)
    return ((a[0] if a else None, b[0] if b else None),)


def _spectrum(known: Known) -> Sequence[Shape | None]:
    shape = known.shape(0)
    if not shape:
        return ()
    length: Dim = shape[-1] // 2 + 1 if isinstance(shape[-1], int) else None
    return ((*shape[:-1], length, 2),)


def _signal(known: Known) -> Sequence[Shape | None]:
    shape = known.shape(0)
    if shape is None or len(shape) < 2:
        return ()
    length: Dim = 2 * (shape[-2] - 1) if isinstance(shape[-2], int) else None
    return ((*shape[:-2], length),)


def _crops(known: Known) -> Sequence[Shape | None]:
    x, boxes = known.shape(0), known.shape(1)
    size = known.constant(3)
    lengths: tuple[Dim, Dim] = (None, None)
    if size is not None and len(size) == 2:
        lengths = (size[0], size[1])
    channels = x[1] if x is not None and len(x) == 4 else None
    return ((boxes[0] if boxes else None, channels, *lengths),)


def _hash_type(known: Known) -> Mapping[int, DataType | None]:
    return {0: DataType.UINT32 if known.attr("positive", 1) else DataType.INT32}


DECLARATIONS: tuple[Declaration, ...] = (
    Declaration("Inverse", "X:T", "Y:T", "", {"T": _LEGACY}, same),
    Declaration("ExpandDims", "X:T axis:int32", "Y:T", "", {"T": _ANY}, _expanded),
    Declaration(
        "CropAndResize", "X:T1 rois:T1 batch_indices:int32 crop_size:int32", "Y:T1",
        "mode:s extrapolation_value:f", {"T1": _LEGACY}, _crops,
    ),
    Declaration("CDist", "A:T B:T", "C:T", "metric:s", {"T": "float double"}, _distances),
    Declaration(
        "Rfft", "X:T", "Y:T", "normalized:i onesided:i signal_ndim:i", {"T": _LEGACY}, _spectrum
    ),
    Declaration(
        "Irfft", "X:T", "Y:T", "normalized:i onesided:i signal_ndim:i!", {"T": _LEGACY}, _signal
    ),
    Declaration(
        "MurmurHash3", "X:T1", "Y:T2", "positive:i seed:i",
        {"T1": "uint32 int32 uint64 int64 float double string", "T2": "uint32 int32"},
        same, _hash_type,
    ),
)  # fmt: skip
