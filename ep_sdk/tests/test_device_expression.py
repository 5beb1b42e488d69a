"""Expressions as data and as text, and how operands of tails lie; no device is needed."""

from __future__ import annotations

import pytest

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.epilogue import Lies, lies
from ep_sdk.device_kernels.expression import Expression, Operation, broadcast, literal, source_of
from ep_sdk.device_kernels.kernels.elementwise import _collapse

F = DataType.FLOAT


def single(text, count, result=F):
    return Expression(
        (F,) * count, (Operation(text, tuple(range(count)), result, (None,) * count),)
    )


def test_a_producer_goes_into_its_reader():
    add = single("({0} + {1})", 2)
    relu = single("max({0}, 0.0f)", 1)
    both = add.with_input_computed(1, relu)
    assert both.inputs == (F, F)
    assert [item.operands for item in both.operations] == [(1,), (0, -1)]


def test_chains_of_chains_keep_their_order():
    scale = single("({0} * {1})", 2)
    chain = scale.with_input_computed(0, scale.with_input_computed(0, single("sqrt({0})", 1)))
    assert [item.operands for item in chain.operations] == [(2,), (-1, 1), (-2, 0)]


def test_equal_inputs_are_read_once():
    merged, sources = single("({0} + {1} * {2})", 3).with_inputs_merged([7, 4, 7])
    assert sources == (7, 4)
    assert merged.operations[0].operands == (0, 1, 0)


def test_shapes_follow_numpy():
    assert broadcast([(3, 1), (4,), ()]) == (3, 4)
    assert broadcast([(0, 4), (1, 1)]) == (0, 4)
    with pytest.raises(RunError, match="broadcast"):
        broadcast([(3,), (4,)])


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, F, "(0x1.999999999999ap-4f)"),
        (0.5, DataType.DOUBLE, "(0x1.0000000000000p-1)"),
        (float("inf"), F, "INFINITY"),
        (float("-inf"), F, "(-INFINITY)"),
        (float("nan"), F, "NAN"),
    ],
)
def test_literals_are_exact(value, dtype, text):
    assert literal(value, dtype) == text


def test_dimensions_that_move_together_are_one():
    assert _collapse((2, 3, 4), [(2, 3, 4), (2, 3, 4)]) == ([24], ["1", "1"])
    assert _collapse((2, 3, 4), [(2, 3, 4), (4,)]) == ([4, 6], ["11", "10"])
    assert _collapse((2, 3, 4), [(2, 3, 4), (3, 1)]) == ([4, 3, 2], ["111", "010"])
    assert _collapse((1, 1), [(1, 1)]) == ([1], ["0"])


def test_source_reads_every_input_once_and_writes_once():
    text = source_of(single("({0} + {1})", 2), ["11", "10"])
    assert text.count("LOAD(") == 2
    assert text.count("STORE(") == 1


@pytest.mark.parametrize(
    ("operand", "expected"),
    [
        ((2, 3, "n"), Lies.ALIKE),
        (("n",), None),
        ((3, 1), Lies.ALONG),
        ((1, 3, 1), Lies.ALONG),
        ((2, 1, 1), None),
        ((), Lies.ONCE),
        ((1, 1, 1, 1), None),
    ],
)
def test_how_operands_lie(operand, expected):
    assert lies(operand, (2, 3, "n"), 1) is expected
