"""TopK against a stable sort of numpy; scatter, where the last of several updates stays."""

from __future__ import annotations

import numpy as np
import pytest
from opencl_harness import needs_device, run_one

from ep_core.errors import RunError

pytestmark = needs_device

RANDOM = np.random.default_rng(5)


def expected(x, k, axis, largest):
    """Of equal elements the one in front comes first; a NaN is larger than any number."""
    places = np.argsort(x, axis=axis, kind="stable")
    if largest:
        turned = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
        places = x.shape[axis] - 1 - turned
    places = np.take(places, range(k), axis=axis)
    return np.take_along_axis(x, places, axis), places


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(
    ("shape", "axis", "k"),
    [
        ((5, 9), 1, 4),
        ((3, 128), 1, 128),
        ((2, 129), 1, 129),
        ((2, 700, 3), 1, 5),
        ((641, 4), 0, 600),
        ((1, 70001), 1, 300),
        ((2, 20000), 1, 1),
        ((4, 6), 1, 0),
    ],
)
def test_like_a_stable_sort(shape, axis, k, largest):
    # Few different values, so that many are equal.
    x = RANDOM.integers(-50, 50, shape).astype(np.float32)
    attributes = {"axis": axis, "largest": largest}
    found = run_one("TopK", [x, np.array([k], np.int64)], attributes, outputs=2)
    for one, other in zip(found, expected(x, k, axis, largest), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("largest", [0, 1])
def test_nans_are_larger_than_numbers(largest):
    x = RANDOM.standard_normal((1, 500)).astype(np.float32)
    x[0, [3, 200, 431]] = np.nan
    x[0, [7, 300]] = np.inf
    k = np.array([500], np.int64)
    found = run_one("TopK", [x, k], {"largest": largest}, outputs=2)
    nans = found[1][0, :3] if largest else found[1][0, -3:]
    assert nans.tolist() == [3, 200, 431]
    infinite = found[1][0, 3:5] if largest else found[1][0, -5:-3]
    assert infinite.tolist() == [7, 300]


def test_long_integers_are_compared_exactly():
    x = (2**62 + RANDOM.permutation(1000)).reshape(1, -1)
    found = run_one("TopK", [x, np.array([1000], np.int64)], outputs=2)
    np.testing.assert_array_equal(found[0], np.sort(x)[:, ::-1])


def test_more_than_there_is_is_told():
    with pytest.raises(RunError, match="k is out of range"):
        run_one("TopK", [np.zeros((2, 3), np.float32), np.array([4], np.int64)], outputs=2)


@pytest.mark.parametrize("count", [3, 64, 5000])
@pytest.mark.parametrize("shape", [(50,), (6, 5), (3, 4, 2)])
def test_the_last_update_of_a_slice_stays(shape, count):
    wide = max(1, len(shape) - 1)
    data = RANDOM.standard_normal(shape).astype(np.float32)
    columns = [RANDOM.integers(-length, length, count) for length in shape[:wide]]
    indices = np.stack(columns, axis=1)
    updates = RANDOM.standard_normal((count, *shape[wide:])).astype(np.float32)
    expected = data.copy()
    for index, update in zip(indices, updates, strict=True):
        expected[tuple(index)] = update
    np.testing.assert_array_equal(run_one("ScatterND", [data, indices, updates]), expected)


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.int64])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_last_update_of_an_element_stays(axis, dtype):
    data = RANDOM.integers(-99, 99, (300, 200)).astype(dtype)
    indices = RANDOM.integers(-17, 17, (250, 150))
    updates = RANDOM.integers(-99, 99, indices.shape).astype(dtype)
    expected = data.copy()
    for place in np.ndindex(indices.shape):
        at = list(place)
        at[axis] = indices[place]
        expected[tuple(at)] = updates[place]
    found = run_one("ScatterElements", [data, indices, updates], {"axis": axis})
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("op_type", ["ScatterND", "ScatterElements"])
def test_one_index_out_of_range_among_many_is_told(op_type):
    indices = RANDOM.integers(0, 50, 200)
    indices[123] = 50
    inputs = [np.zeros(50, np.float32), indices, np.ones(200, np.float32)]
    if op_type == "ScatterND":
        inputs[1] = indices[:, None]
    with pytest.raises(RunError, match="out of range"):
        run_one(op_type, inputs)
