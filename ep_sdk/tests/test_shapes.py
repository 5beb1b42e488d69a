"""Shapes of views. Right answers are those of the examples in ONNX's operator documentation."""

from __future__ import annotations

import pytest

from ep_core.errors import RunError
from ep_sdk.shapes import flattened, positive_axis, reshaped, squeezed, unsqueezed


@pytest.mark.parametrize(
    ("wanted", "zero_copies", "expected"),
    [
        ([4, 2, 3], True, (4, 2, 3)),
        ([2, -1, 2], True, (2, 6, 2)),
        ([2, 0, 4, 1], True, (2, 3, 4, 1)),
        ([-1], True, (24,)),
    ],
)
def test_reshaped(wanted, zero_copies, expected):
    assert reshaped((2, 3, 4), wanted, zero_copies=zero_copies) == expected


def test_a_zero_means_zero_with_allowzero():
    assert reshaped((0, 3, 4), [3, 4, 0], zero_copies=False) == (3, 4, 0)
    with pytest.raises(RunError, match="can't be reshaped"):
        reshaped((2, 3), [0, 3], zero_copies=False)


@pytest.mark.parametrize("wanted", [[5], [-1, 5], [-1, -1], [-2, 3], [0, 0, 0, 0]])
def test_what_doesn_t_fit(wanted):
    with pytest.raises(RunError, match="can't be reshaped"):
        reshaped((2, 3, 4), wanted, zero_copies=True)


@pytest.mark.parametrize(
    ("axis", "expected"),
    [(0, (1, 120)), (1, (2, 60)), (4, (120, 1)), (-1, (24, 5)), (-4, (1, 120))],
)
def test_flattened(axis, expected):
    assert flattened((2, 3, 4, 5), axis) == expected


def test_squeezed_and_unsqueezed():
    assert squeezed((1, 3, 1, 5), None) == (3, 5)
    assert squeezed((1, 3, 1, 5), [-2]) == (1, 3, 5)
    assert unsqueezed((3, 4, 5), [2, 4, 5]) == (3, 4, 1, 5, 1, 1)
    assert unsqueezed((1, 3, 1, 5), [-2]) == (1, 3, 1, 1, 5)
    with pytest.raises(RunError, match="aren't all of length 1"):
        squeezed((1, 3), [1])
    with pytest.raises(RunError, match="named twice"):
        unsqueezed((3,), [0, -3])


def test_positive_axis():
    assert [positive_axis(axis, 3) for axis in (-3, -1, 0, 2)] == [0, 2, 0, 2]
    for axis in (-4, 3):
        with pytest.raises(RunError, match="out of range"):
            positive_axis(axis, 3)
