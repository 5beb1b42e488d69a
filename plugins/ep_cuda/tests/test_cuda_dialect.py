"""Every kernel gets a range, whatever its parameters look like."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from ep_cuda.dialect import text_of, with_ranges

SOURCES = sorted(
    path.name
    for path in files("ep_sdk.device_kernels").joinpath("cl").iterdir()
    if path.name.endswith(".cl")
)


def test_the_parameter_is_last_and_the_guard_first():
    text = "__kernel void f(__global int *a, int (*b)(int))\n{\n    a[0] = 1;\n}\n"
    assert with_ranges(text) == (
        "__kernel void f(__global int *a, int (*b)(int) EP_RANGE_PARAMETER)\n"
        "{ EP_RANGE_GUARD\n    a[0] = 1;\n}\n"
    )


def test_macros_may_stand_before_and_inside_the_parentheses():
    text = "__kernel GROUP_SIZE(16, 16, 1)\nvoid f(int a\n    TAIL_PARAMETERS)\n{ return; }"
    assert with_ranges(text) == (
        "__kernel GROUP_SIZE(16, 16, 1)\nvoid f(int a\n    TAIL_PARAMETERS EP_RANGE_PARAMETER)\n"
        "{ EP_RANGE_GUARD return; }"
    )


def test_what_is_no_kernel_stays():
    text = (
        "// behind __kernel: a word\n#define __kernel extern\ninline int f(int a) { return a; }\n"
    )
    assert with_ranges(text) == text


@pytest.mark.parametrize("file", SOURCES)
def test_each_kernel_of_a_file_has_one(file):
    text = text_of(file, {}, body="__kernel void last(int a)\n{\n}\n")
    kernels = len(re.findall(r"^__kernel\b", text, re.MULTILINE))
    assert kernels >= 1
    # One more of each is where the prelude says what it means.
    assert len(re.findall(r"EP_RANGE_PARAMETER\)", text)) == kernels
    assert len(re.findall(r"\{ EP_RANGE_GUARD", text)) == kernels
