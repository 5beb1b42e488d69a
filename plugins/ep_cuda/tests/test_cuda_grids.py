"""Blocks and grids cover all work-items once, and arguments lie as a C compiler lays them."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ep_cuda.grids import block_for, pack_arguments, padded, range_bytes, slices_of

LENGTHS = st.tuples(*[st.integers(1, 40)] * 3)


def test_missing_dimensions_are_one():
    assert padded((7,)) == (7, 1, 1)
    assert padded((7, 8, 9)) == (7, 8, 9)


@settings(deadline=None)
@given(LENGTHS, st.sampled_from([32, 64, 256]))
def test_blocks_are_no_larger_than_allowed(size, threads):
    block = block_for(size, threads)
    assert math.prod(block) <= threads
    assert all(each <= most for each, most in zip(block, (1024, 1024, 64), strict=True))
    assert all(each < 2 * length for each, length in zip(block, size, strict=True))


def test_blocks_are_long_in_the_fastest_dimension():
    assert block_for((1000, 1000, 1), 256) == (256, 1, 1)
    assert block_for((20, 1000, 1), 256) == (32, 8, 1)
    assert block_for((3, 1, 1000), 256) == (4, 1, 64)


@settings(deadline=None)
@given(
    LENGTHS,
    st.tuples(*[st.integers(1, 16)] * 3),
    st.tuples(st.just(10**9), st.integers(1, 7), st.integers(1, 7)),
)
def test_grids_cover_each_block_once(size, block, most):
    seen = np.zeros([-(-length // each) for length, each in zip(size, block, strict=True)], int)
    for grid, first in slices_of(size, block, most):
        assert all(count <= limit for count, limit in zip(grid, most, strict=True))
        places = tuple(slice(at, at + n) for at, n in zip(first, grid, strict=True))
        assert seen[places].size == math.prod(grid)
        seen[places] += 1
    assert (seen == 1).all()


def test_one_grid_is_enough_for_what_the_chip_takes():
    assert list(slices_of((10**6, 65535, 65535), (256, 1, 1))) == [
        ((3907, 65535, 65535), (0, 0, 0))
    ]
    assert [first for _, first in slices_of((1, 70000, 1), (1, 1, 1))] == [(0, 0, 0), (0, 65535, 0)]


class Range(ctypes.Structure):
    _fields_ = (("size", ctypes.c_uint64 * 3), ("first", ctypes.c_uint32 * 3))


class Arguments(ctypes.Structure):
    _fields_ = (
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_int8),
        ("c", ctypes.c_float),
        ("d", ctypes.c_uint8),
        ("e", ctypes.c_int64 * 4),
        ("f", ctypes.c_int32 * 4),
        ("g", ctypes.c_int16),
        ("range", Range),
    )


def test_arguments_lie_as_in_a_structure():
    packed = pack_arguments(
        [
            2**40 + 5,
            np.int8(-3),
            np.float32(1.5),
            np.uint8(200),
            np.array([1, -2, 3, -4]),
            np.array([5, 6, 7, 8], np.int32),
            np.int16(-9),
        ]
    ) + range_bytes((10, 20, 30), (1, 2, 3))
    assert len(packed) == ctypes.sizeof(Arguments)
    read = Arguments.from_buffer_copy(packed)
    assert (read.a, read.b, read.c, read.d, read.g) == (2**40 + 5, -3, 1.5, 200, -9)
    assert list(read.e) == [1, -2, 3, -4]
    assert list(read.f) == [5, 6, 7, 8]
    assert list(read.range.size) == [10, 20, 30]
    assert list(read.range.first) == [1, 2, 3]


@pytest.mark.parametrize("size", [(1,), (3, 5), (2, 3, 4)])
def test_the_range_has_forty_bytes(size):
    assert len(range_bytes(padded(size), (0, 0, 0))) == 40
