"""Einsum, NonZero and Compress against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from opencl_harness import floats, needs_device, run_one

from ep_core.errors import RunError

pytestmark = needs_device

EQUATIONS = {
    "product": ("ij,jk->ik", (5, 3), (3, 4)),
    "product the other way round": ("ij,jk->ki", (5, 3), (3, 4)),
    "heads": ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
    "nothing lies as it should": ("bnfh,bmfh->bnmf", (2, 3, 4, 5), (2, 6, 4, 5)),
    "ellipsis that broadcasts": ("...ij,...jk", (2, 1, 3, 4), (5, 4, 6)),
    "ellipsis of nothing": ("...,i->i...", (3, 4), (5,)),
    "diagonal": ("ii->i", (4, 4)),
    "trace beside an axis": ("iij->j", (4, 4, 3)),
    "trace around an ellipsis": ("a...a->...", (3, 4, 5, 3)),
    "sum": ("ij->", (3, 4)),
    "sum over rows": ("ij->j", (3, 4)),
    "sum of one side": ("ij,k->ik", (2, 3), (4,)),
    "a letter of length 1 beside a longer one": ("ij,jk->ik", (2, 1), (3, 4)),
    "outer product": ("i,j->ij", (3,), (4,)),
    "elementwise": ("ij,ij->ij", (3, 4), (3, 4)),
    "three": ("ab,ac,ad->bcd", (3, 2), (3, 4), (3, 5)),
    "capitals and blanks": (" A b , b A -> A ", (3, 4), (4, 3)),
    "scalars": (",->", (), ()),
    "nothing to sum": ("ij,jk->ik", (2, 0), (0, 2)),
    "no rows": ("ij,jk->ik", (0, 3), (3, 2)),
}


@pytest.mark.parametrize("name", EQUATIONS)
def test_einsum_like_numpy(name):
    equation, *shapes = EQUATIONS[name]
    operands = [floats(*shape, seed=n) for n, shape in enumerate(shapes)]
    operands = [np.asarray(value, np.float32) for value in operands]
    found = run_one("Einsum", operands, {"equation": equation})
    expected = np.einsum("".join(equation.split()), *operands)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_einsum_of_long_integers_is_exact():
    a = np.array([[2**40 + 1, 3], [5, -7]], np.int64)
    found = run_one("Einsum", [a, a], {"equation": "ij,jk->ik"})
    np.testing.assert_array_equal(found, a @ a)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (4, 5)]),
        ("ij->ik", [(2, 3)]),
        ("ij->iij", [(2, 3)]),
        ("ii->i", [(1, 3)]),
        ("i,j->ij", [(3,)]),
        ("ijk->i", [(3, 4)]),
    ],
)
def test_an_equation_that_does_not_fit_is_told(equation, shapes):
    with pytest.raises(RunError, match=r"'the_node' \(Einsum\)"):
        run_one("Einsum", [floats(*shape) for shape in shapes], {"equation": equation})


@pytest.mark.parametrize("shape", [(7,), (3, 5, 4), (300, 900), (0, 3), ()])
def test_non_zero_gives_positions_in_order(shape):
    values = (np.random.default_rng(3).random(shape) < 0.3).astype(np.float32)
    if shape == ():
        found = run_one("NonZero", [np.array(2.5, np.float32)])
        assert found.shape == (0, 1)
        return
    np.testing.assert_array_equal(run_one("NonZero", [values]), np.stack(np.nonzero(values)))


def test_non_zero_counts_a_nan_and_no_negative_zero():
    values = np.array([0.0, -0.0, np.nan, 1e-45, -3.0], np.float32)
    np.testing.assert_array_equal(run_one("NonZero", [values]), [[2, 3, 4]])


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_compress_like_numpy(axis):
    x = floats(4, 5)
    condition = np.array([True, False, True, True])
    attributes = {} if axis is None else {"axis": axis}
    found = run_one("Compress", [x, condition], attributes)
    np.testing.assert_array_equal(found, np.compress(condition, x, axis))
