from __future__ import annotations

import pytest

from ep_sdk import as_bool, as_bytes, as_choice, as_int, as_names


@pytest.mark.parametrize("value", [True, 1, "1", "true", "On", " YES "])
def test_true(value):
    assert as_bool(value) is True


@pytest.mark.parametrize("value", [False, 0, "0", "false", "Off", "no"])
def test_false(value):
    assert as_bool(value) is False


@pytest.mark.parametrize("value", ["", "maybe", 2, None, 0.5])
def test_not_a_switch(value):
    with pytest.raises(ValueError, match="expected true or false"):
        as_bool(value)


def test_int():
    parse = as_int(0, 8)
    assert (parse(0), parse("8"), parse(" 3 ")) == (0, 8, 3)


@pytest.mark.parametrize("value", [-1, 9, "9", "x", 2.0, True, None, "1e3"])
def test_int_refuses(value):
    with pytest.raises(ValueError, match="a whole number from 0 to 8, got"):
        as_int(0, 8)(value)


def test_int_says_its_bound():
    with pytest.raises(ValueError, match="of at least 1"):
        as_int(1)(0)
    with pytest.raises(ValueError, match="of at most 1"):
        as_int(maximum=1)(2)
    assert as_int()(-5) == -5


def test_choice():
    parse = as_choice("LATENCY", "THROUGHPUT")
    assert parse("latency") == "LATENCY"
    with pytest.raises(ValueError, match="one of LATENCY, THROUGHPUT, got 'fast'"):
        parse("fast")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0), (512, 512), ("512", 512), ("64K", 65536), ("2 GiB", 2**31), ("1mb", 2**20)],
)
def test_bytes(value, expected):
    assert as_bytes(value) == expected


@pytest.mark.parametrize("value", [-1, "1.5G", "lots", None, True, 1.5, "K"])
def test_bytes_refuses(value):
    with pytest.raises(ValueError, match="expected bytes such as"):
        as_bytes(value)


@pytest.mark.parametrize("value", ["Relu, Add", ["Relu", "Add"], frozenset({"Add", "Relu"})])
def test_names(value):
    assert as_names(value) == {"Relu", "Add"}
    assert as_names("") == frozenset()


@pytest.mark.parametrize("value", [5, None, ["Relu", 5]])
def test_names_that_are_none(value):
    with pytest.raises(ValueError, match="expected names"):
        as_names(value)
