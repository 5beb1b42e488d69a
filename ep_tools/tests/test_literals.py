from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from ep_core.errors import FeedError
from ep_core.types import DataType
from ep_tools.literals import literal_array


def make(dtype: DataType, value, *sizes):
    return literal_array("x", dtype, sizes, value)


@pytest.mark.parametrize(
    "dtype", [kind for kind in DataType if kind is not DataType.STRING], ids=lambda kind: kind.text
)
def test_one_number_fills_every_type_and_shape(dtype):
    array = make(dtype, 1, 2, None, 3)
    assert array.shape == (2, 1, 3)
    assert array.dtype == dtype.numpy
    assert (array.astype(np.complex64) == 1).all()


def test_a_scalar_stays_a_scalar():
    array = make(DataType.INT64, 16000)
    assert isinstance(array, np.ndarray)
    assert (array.shape, array.item()) == ((), 16000)


def test_a_list_gets_leading_dimensions_up_to_the_rank():
    assert make(DataType.INT64, [1, 2, 3], None, None).tolist() == [[1, 2, 3]]
    assert make(DataType.INT64, [[1], [2]], None, None).tolist() == [[1], [2]]
    assert make(DataType.INT64, [1, 2]).shape == (2,), "whether it fits is for the session to say"
    assert make(DataType.FLOAT, [], None, 3).shape == (1, 0)


def test_integers_stay_exact():
    array = make(DataType.UINT64, [2**64 - 1, 2**63 + 1])
    assert array.tolist() == [2**64 - 1, 2**63 + 1]
    assert make(DataType.INT64, [1e3]).tolist() == [1000]


def test_floats_that_are_none_are_allowed():
    array = make(DataType.FLOAT16, [math.nan, math.inf, 0.5])
    assert math.isnan(array[0])
    assert array[1:].tolist() == [math.inf, 0.5]


def test_texts_and_truth():
    assert make(DataType.STRING, "a b", 2).tolist() == ["a b", "a b"]
    assert make(DataType.STRING, "a b", 2).dtype == object
    assert make(DataType.BOOL, [True, 0, 1]).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (DataType.INT64, 0.5),
        (DataType.INT64, True),
        (DataType.INT64, math.nan),
        (DataType.INT64, math.inf),
        (DataType.INT64, 2**63),
        (DataType.UINT8, -1),
        (DataType.UINT8, 256),
        (DataType.INT4, 8),
        (DataType.UINT2, 4),
        (DataType.BOOL, 2),
        (DataType.BOOL, 0.5),
        (DataType.FLOAT, True),
        (DataType.FLOAT, "1"),
        (DataType.FLOAT, 1e39),
        (DataType.FLOAT16, 70000),
        (DataType.DOUBLE, 10**400),
        (DataType.STRING, 5),
        (DataType.FLOAT, [1, "2"]),
    ],
)
def test_a_value_that_the_type_does_not_hold_is_refused(dtype, value):
    with pytest.raises(FeedError, match=f"input 'x'; expected one of type {dtype.text}; got"):
        make(dtype, value)


@pytest.mark.parametrize("value", [[[1], [2, 3]], [1, [2]], [[], [1]]])
def test_lists_of_different_lengths_are_refused(value):
    with pytest.raises(FeedError, match="is no array"):
        make(DataType.FLOAT, value)


@pytest.mark.parametrize("length", [10**12, 10**17])
def test_more_than_memory_holds_is_refused(length):
    with pytest.raises(FeedError, match="--dim or --shape"):
        make(DataType.DOUBLE, 1.0, length, 2**10)


def test_narrow_floats_round():
    assert make(DataType.BFLOAT16, 3.14159).dtype == ml_dtypes.bfloat16
    assert float(make(DataType.BFLOAT16, 3.14159)) == 3.140625
