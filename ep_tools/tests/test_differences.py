from __future__ import annotations

import json
import math

import ml_dtypes
import numpy as np
import pytest

from ep_core.types import DataType
from ep_tools.differences import compare_values
from ep_tools.requests import Tolerance

TOLERANCE = Tolerance(rtol=1e-3, atol=1e-4)


def one(a, b, tolerance=TOLERANCE):
    (difference,) = compare_values("y", a, b, tolerance)
    return difference


def test_errors_of_floats():
    difference = one(np.float32([[1, 2], [4, 8]]), np.float32([[1, 2], [4, 10]]))
    assert (difference.mismatches, difference.elements) == (1, 4)
    assert difference.max_abs == 2
    assert difference.max_rel == pytest.approx(0.2)
    assert difference.excess == pytest.approx(2 / (1e-4 + 1e-3 * 10))
    assert difference.worst == (1, 1)
    assert difference.worst_values == (8, 10)
    assert not difference.agrees


def test_the_tolerance_is_relative_to_the_second():
    # numpy.isclose has the same formula and is symmetric in nothing either.
    a, b = np.float64([1000.0, 1001.0]), np.float64([1001.0, 1000.0])
    for rtol in [9.99e-4, 9.995e-4, 1e-3]:
        expected = int((~np.isclose(a, b, rtol=rtol, atol=0)).sum())
        assert one(a, b, Tolerance(rtol, 0)).mismatches == expected


@pytest.mark.parametrize("seed", range(5))
def test_mismatches_are_those_of_numpy(seed):
    generator = np.random.default_rng(seed)
    values = generator.normal(size=200)
    values[:6] = [np.nan, np.inf, -np.inf, 0, np.nan, np.inf]
    others = values * (1 + generator.normal(scale=1e-3, size=200))
    others[2:8] = [np.inf, 0, np.nan, 1.0, np.nan, np.inf]
    expected = ~np.isclose(values, others, rtol=1e-3, atol=1e-4, equal_nan=True)
    assert one(values, others).mismatches == expected.sum()


def test_nan_agrees_with_nan_only():
    difference = one(np.float32([np.nan, np.nan, 1]), np.float32([np.nan, 1, np.nan]))
    assert (difference.mismatches, difference.nan_mismatches) == (2, 2)
    assert difference.excess == math.inf
    assert difference.worst == (1,)
    assert one(np.float32([np.nan]), np.float32([np.nan])).agrees


def test_infinities():
    assert one(np.float32([np.inf, -np.inf]), np.float32([np.inf, -np.inf])).agrees
    difference = one(np.float32([np.inf, 1]), np.float32([1, np.inf]))
    assert difference.mismatches == 2
    assert difference.max_abs == math.inf


def test_equal_values_agree_at_tolerance_0():
    nothing = Tolerance(0, 0)
    array = np.float32([0, 1.5, np.nan, np.inf])
    assert one(array, array, nothing).agrees
    assert one(np.int64([3]), np.int64([3]), nothing).agrees
    assert one(np.float64([1]), np.float64([np.nextafter(1, 2)]), nothing).mismatches == 1


def test_integers_have_the_absolute_tolerance_only():
    a, b = np.int64([10**6, 5, 2**62]), np.int64([10**6 + 1, 5, 2**62])
    assert one(a, b).mismatches == 1
    assert one(a, b, Tolerance(0, 1)).agrees
    assert one(a, b).max_abs == 1
    assert one(a, b).excess == 2
    assert one(a, b, Tolerance(0, 1)).excess == 1


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [(np.int64, -(2**63), 2**63 - 1), (np.uint64, 0, 2**64 - 1), (np.int8, -128, 127)],
)
def test_differences_of_integers_do_not_overflow(dtype, low, high):
    for a, b in [(low, high), (high, low)]:
        difference = one(np.array([a], dtype), np.array([b], dtype))
        assert difference.max_abs == float(high - low)
        assert difference.mismatches == 1
    close = one(np.array([high], dtype), np.array([high - 1], dtype))
    assert (close.max_abs, close.mismatches) == (1, 1)


@pytest.mark.parametrize("dtype", list(DataType), ids=lambda kind: kind.text)
def test_every_type_can_be_compared(dtype):
    first = np.array(["a", "a"]) if dtype is DataType.STRING else np.array([1, 1])
    second = np.array(["a", "b"]) if dtype is DataType.STRING else np.array([1, 0])
    if dtype is DataType.FLOAT8E8M0:  # has no zero
        second = np.array([1, 2])
    difference = one(first.astype(dtype.numpy), second.astype(dtype.numpy))
    assert difference.mismatches == 1
    assert difference.worst == (1,)
    json.dumps(difference.to_json())


def test_another_type_or_shape_is_a_problem():
    assert (
        "tensor(float) [2] against tensor(double) [2]"
        in one(np.zeros(2, np.float32), np.zeros(2)).problem
    )
    assert (
        "[2] against tensor(float) [1, 2]"
        in one(np.zeros(2, np.float32), np.zeros((1, 2), np.float32)).problem
    )
    assert not one(np.zeros(2), [np.zeros(2)]).agrees
    assert not one(None, np.zeros(2)).agrees
    assert not one([np.zeros(1)], [np.zeros(1), np.zeros(1)]).agrees


def test_members_are_compared_one_by_one():
    found = list(
        compare_values("y", [np.zeros(1), np.ones(1)], [np.zeros(1), np.zeros(1)], TOLERANCE)
    )
    assert [(entry.name, entry.agrees) for entry in found] == [("y[0]", True), ("y[1]", False)]
    found = list(compare_values("y", {"a": 1.0, "b": 2.0}, {"b": 2.0, "a": 3.0}, TOLERANCE))
    assert [(entry.name, entry.agrees) for entry in found] == [("y{a}", False), ("y{b}", True)]


def test_nothing_agrees_with_nothing():
    for value in [None, [], np.zeros((0, 3), np.float32)]:
        assert one(value, value).agrees


def test_scalars_and_narrow_types():
    assert one(np.float32(1), np.array(1, np.float32)).agrees
    a = np.array([1, 2], ml_dtypes.bfloat16)
    assert one(a, a + np.array(1, ml_dtypes.bfloat16)).max_abs == 1


@pytest.mark.parametrize(
    ("a", "b", "dtype", "ulp"),
    [
        (1.0, 1.0, "float32", 0),
        (1.0, np.nextafter(np.float32(1), np.float32(2)), "float32", 1),
        (0.0, -0.0, "float32", 0),
        (2.0**-149, -(2.0**-149), "float32", 3),  # the least floats, and two zeros between them
        (1.0, 2.0, "float64", 2**52),
        (-1.0, -2.0, "float16", 2**10),
        (1.0, 2.0, ml_dtypes.bfloat16, 2**7),
        (np.nan, np.nan, "float32", 0),
        (np.nan, 1.0, "float32", 0),
        (np.inf, np.finfo(np.float32).max, "float32", 1),
    ],
)
def test_units_in_the_last_place(a, b, dtype, ulp):
    (found,) = compare_values("y", np.array([a], dtype), np.array([b], dtype), Tolerance())
    assert found.max_ulp == ulp


def test_other_types_have_no_units_in_the_last_place():
    (found,) = compare_values("y", np.array([1]), np.array([2]), Tolerance())
    assert (found.max_ulp, found.nmse) == (None, None)


def test_normalised_mean_square_error():
    a, b = np.float32([1, 2, np.inf]), np.float32([1, 4, 7])
    (found,) = compare_values("y", a, b, Tolerance())
    assert found.nmse == pytest.approx(4 / 17)
    (found,) = compare_values("y", b, np.zeros(3, np.float32), Tolerance())
    assert found.nmse is None
    (found,) = compare_values("y", b, b, Tolerance())
    assert found.nmse == 0
