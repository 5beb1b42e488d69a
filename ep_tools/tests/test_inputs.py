from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from ep_tools.inputs import (
    ArrayFile,
    ImageFile,
    RandomValues,
    parse_dim,
    parse_input,
    parse_provider_option,
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
    ],
)
def test_an_input_is_understood(text, expected):
    assert parse_input(text) == expected


@pytest.mark.parametrize(
    "text", ["", "x", "x=", "=a.npy", "x=a.txt", "x=random:", "x=random:-1", "x=a.npz:", "x=17"]
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


def test_a_provider_option_is_understood():
    assert parse_provider_option("cpu.threads=2") == ("cpu", "threads", "2")
    assert parse_provider_option("cpu.a.b=c=d") == ("cpu", "a.b", "c=d")
    assert parse_provider_option("cpu.path=") == ("cpu", "path", "")


@pytest.mark.parametrize("text", ["cpu", "cpu.threads", "threads=2", ".a=1", "cpu.=1"])
def test_a_malformed_provider_option_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"PROVIDER\.KEY=VALUE"):
        parse_provider_option(text)
