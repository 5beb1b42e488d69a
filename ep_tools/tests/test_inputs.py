from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from ep_tools.inputs import (
    ArrayFile,
    ImageFile,
    LiteralValue,
    RandomValues,
    parse_dim,
    parse_input,
    parse_memory_limit,
    parse_provider_option,
    parse_shape,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x=a.npy", ("x", ArrayFile(Path("a.npy")))),
        ("x=dir/a.NPZ", ("x", ArrayFile(Path("dir/a.NPZ")))),
        ("x=a.npz:key", ("x", ArrayFile(Path("a.npz"), "key"))),
        ("x=a.npz:layer/w:0", ("x", ArrayFile(Path("a.npz"), "layer/w:0"))),
        ("x=C:\\data\\a.npz:k", ("x", ArrayFile(Path("C:\\data\\a.npz"), "k"))),
        ("x=cat.JPG", ("x", ImageFile(Path("cat.JPG")))),
        ("x=cat.png", ("x", ImageFile(Path("cat.png")))),
        ("x=random", ("x", RandomValues(0))),
        ("x=random:17", ("x", RandomValues(17))),
        ("net/in:0=a.npy", ("net/in:0", ArrayFile(Path("a.npy")))),
        ("x=a=b.npy", ("x", ArrayFile(Path("a=b.npy")))),
        ("x=random.npy", ("x", ArrayFile(Path("random.npy")))),
        ("x=1.npy", ("x", ArrayFile(Path("1.npy")))),
        ("x=16000", ("x", LiteralValue(16000))),
        ("x=-1.5e3", ("x", LiteralValue(-1500.0))),
        ("x=true", ("x", LiteralValue(True))),
        ("x=1,2,3", ("x", LiteralValue([1, 2, 3]))),
        ("x=[7]", ("x", LiteralValue([7]))),
        ("x=[1, 2],[3, 4]", ("x", LiteralValue([[1, 2], [3, 4]]))),
        ("x=[]", ("x", LiteralValue([]))),
        ('x="a.npy"', ("x", LiteralValue("a.npy"))),
        ('x="a,b","c"', ("x", LiteralValue(["a,b", "c"]))),
    ],
)
def test_an_input_is_understood(text, expected):
    assert parse_input(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "x=",
        "=a.npy",
        "x=a.txt",
        "x=random:",
        "x=random:-1",
        "x=a.npz:",
        "x=hello",
        "x=1,",
        "x=1 2",
        "x=1]",
        "x=1],[2",
        "x=null",
        "x=[null]",
        'x={"a": 1}',
        "x=" + "9" * 5000,
        "x=" + "[" * 50000,
    ],
    ids=lambda text: text[:16],
)
def test_a_malformed_input_is_refused_with_the_known_forms(text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"NAME=FILE\.npy"):
        parse_input(text)


def test_a_dimension_is_understood():
    assert parse_dim("batch=4") == ("batch", 4)
    assert parse_dim("a=b=0") == ("a=b", 0)


@pytest.mark.parametrize("text", ["batch", "batch=", "=4", "batch=-1", "batch=1.5", "batch=²"])
def test_a_malformed_dimension_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="NAME=INT"):
        parse_dim(text)


def test_a_shape_is_understood():
    assert parse_shape("x=1,3,224,224") == ("x", (1, 3, 224, 224))
    assert parse_shape("a=b=0") == ("a=b", (0,))


@pytest.mark.parametrize("text", ["x", "x=", "=4", "x=-1", "x=1.5", "x=1,,2", "x=1,", "x=1x2"])
def test_a_malformed_shape_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="NAME=INT,INT"):
        parse_shape(text)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("npu=512MiB", ("npu", 512 * 2**20)),
        ("npu=512M", ("npu", 512 * 2**20)),
        ("simulator:1=4 kb", ("simulator:1", 4096)),
        ("npu=7", ("npu", 7)),
        ("npu=7B", ("npu", 7)),
        ("npu=0", ("npu", 0)),
        ("npu=1T", ("npu", 2**40)),
    ],
)
def test_a_memory_limit_is_understood(text, limit):
    assert parse_memory_limit(text) == limit


@pytest.mark.parametrize(
    "text", ["npu", "npu=", "=5", "npu=-1", "npu=1.5G", "npu=5X", "npu=G", "npu=" + "9" * 40]
)
def test_a_malformed_memory_limit_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="PROVIDER=SIZE"):
        parse_memory_limit(text)


def test_a_provider_option_is_understood():
    assert parse_provider_option("cpu.threads=2") == ("cpu", "threads", "2")
    assert parse_provider_option("cpu.a.b=c=d") == ("cpu", "a.b", "c=d")
    assert parse_provider_option("cpu.path=") == ("cpu", "path", "")


@pytest.mark.parametrize("text", ["cpu", "cpu.threads", "threads=2", ".a=1", "cpu.=1"])
def test_a_malformed_provider_option_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"PROVIDER\.KEY=VALUE"):
        parse_provider_option(text)
