"""Questions: movement of data, samples, spectra, distances, hashes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from contrib_cases.asking import Array, Asked, Values, question

__all__: list[str] = []


@question
def movement() -> Iterator[Asked]:
    """What only moves data, or counts."""
    v = Values("movement")
    for upper, k in itertools.product((0, 1), (None, 1, -2)):
        place = None if k is None else np.array(k)
        inputs = [v.integers(2, 3, 4).astype(np.float32), place]
        given = {"upper": upper}
        yield Asked(
            "Trilu", f"upper {upper} {k}", inputs[: 1 if k is None else 2], attributes=given
        )
    for dtype in ("int64", "int32"):
        data = v.distinct(2, 3, 4)
        places = v.integers(5, 2, kind=dtype, high=1)
        yield Asked("GatherND", f"slices {dtype}", [data, places])
        yield Asked("GatherND", f"points {dtype}", [data, v.integers(3, 3, kind=dtype, high=1)])
    for axis in (0, 1, -1):
        inputs = [v.distinct(2, 3), np.array(axis, np.int32)]
        yield Asked("ExpandDims", f"axis {axis}", inputs, constants=(1,))
    numbers = v.integers(20, high=5).astype(np.float32)
    yield Asked("Unique", "plain", [numbers], (True, True, True))
    yield Asked("Unique", "one", [numbers[:1]], (True, True, True))
    for name, ends in {"up": (1, 9, 3), "down": (9, 1, -3), "nothing": (3, 3, 1)}.items():
        yield Asked("Range", name, [np.array(value, np.float32) for value in ends])
    yield Asked("Range", "default", [np.array(1, np.float32), np.array(9, np.float32)])
    yield Asked("Range", "vectors", [np.array([value], np.float32) for value in (9, 1, -3)])
    for mode in ("constant", "reflect", "edge"):
        inputs = [v.floats(3, 4), np.array([1, 0, 0, 2])]
        yield Asked("Pad", mode, inputs, attributes={"mode": mode}, constants=(1,))
    value = np.array([7], np.float32)
    yield Asked("Pad", "matrix", [v.floats(3, 4), np.array([[1, 0, 0, 2]]), value])
    yield Asked("Pad", "negative", [v.floats(3, 4), np.array([-1, 1, 0, 2])])


@question
def samples() -> Iterator[Asked]:
    """Values between places, at places that are no ties."""
    v = Values("samples")
    for mode, padding, align in itertools.product(
        ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (0, 1)
    ):
        if (mode, padding) == ("bicubic", "border"):
            continue  # whether the border holds for single taps or for the centre isn't defined
        given = {"mode": mode, "padding_mode": padding, "align_corners": align}
        # Odd sixteenths: every type holds them, and no middle between two pixels is hit.
        grid = 2 * v.integers(1, 3, 4, 2, low=-10, high=9) + 1
        inputs = [v.floats(1, 2, 5, 6), grid.astype(np.float32) / np.float32(16)]
        yield Asked("GridSample", f"{mode} {padding} {align}", inputs, attributes=given)
    # No sample of these lies in the middle between two pixels either.
    sixteenths = np.array([[1, -1, 13, 10], [3, 2, 20, 7], [15, 11, 2, 3]], np.float32)
    boxes, images = sixteenths / np.float32(16), np.array([0, 1, 1], np.int32)
    for mode, size in itertools.product(("bilinear", "nearest"), ((3, 4), (1, 1), (5, 1))):
        inputs = [v.floats(2, 2, 6, 7), boxes, images, np.array(size, np.int32)]
        given = {"mode": mode, "extrapolation_value": 0.5}
        yield Asked("CropAndResize", f"{mode} {size[0]}x{size[1]}", inputs, attributes=given)


@question
def algebra() -> Iterator[Asked]:
    """Inverses, distances, spectra."""
    v = Values("algebra")
    well = v.floats(2, 3, 3, low=-0.5, high=0.5) + 2 * np.eye(3, dtype=np.float32)
    well = np.round(well * 64) / np.float32(64)
    yield Asked("Inverse", "stack", [well])
    yield Asked("Inverse", "one", [well[0]])
    for metric in ("euclidean", "sqeuclidean"):
        yield Asked(
            "CDist", metric, [v.floats(4, 3), v.floats(5, 3)], attributes={"metric": metric}
        )
    given = {"normalized": 0, "onesided": 1, "signal_ndim": 1}
    yield Asked("Rfft", "line", [v.floats(8)], attributes=given)
    yield Asked("Rfft", "stack", [v.floats(2, 3, 8)], attributes=given)
    yield Asked("Irfft", "line", [v.floats(5, 2)], attributes=given)
    yield Asked("Irfft", "stack", [v.floats(2, 3, 5, 2)], attributes=given)


@question
def hashes() -> Iterator[Asked]:
    """Every type that can be hashed."""
    v = Values("hashes")
    values: dict[str, Array] = {
        "uint32": np.array([3, 5, 2**31], np.uint32),
        "int32": np.array([3, -5, 2**30], np.int32),
        "uint64": np.array([3, 5, 2**40], np.uint64),
        "int64": np.array([3, 5, -(2**40)], np.int64),
        "float": v.floats(4),
        "double": v.floats(4).astype(np.float64),
        "string": np.array(["", "a", "abc", "abcd", "hello world", "\u00e9"], object),
    }
    for (kind, x), positive, seed in itertools.product(values.items(), (1, 0), (0, 42)):
        given = {"positive": positive, "seed": seed}
        name = f"{kind} {positive} {seed}"
        yield Asked("MurmurHash3", name, [x], attributes=given, fixed=True)
