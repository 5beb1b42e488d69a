"""The text of programs in CUDA C++, and how kernels learn of how many work-items there are.

CUDA starts whole blocks only, so the last may reach beyond what was asked for, and a grid has at
most 65535 blocks in its second and third dimension. Every kernel gets one more parameter, which
tells how many work-items there are and which block of all its first one is; those beyond leave at
once. What the words mean is said in the prelude `cuda.h`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from ep_sdk.device_kernels.sources import program_text

__all__ = ["OPTIONS", "text_of", "with_ranges"]

# a * b + c is rounded twice, as the operators Mul and Add do; products ask for fma by name.
OPTIONS = ("--std=c++17", "--fmad=false", "-default-device")
"""Of the compiler. Nothing trades accuracy for speed: division and square roots round rightly, and
denormal numbers are kept, which is what NVRTC does unless it is told otherwise."""

_PARAMETER = " EP_RANGE_PARAMETER"
_GUARD = " EP_RANGE_GUARD"
_KERNEL = re.compile(r"^__kernel\b", re.MULTILINE)
_NAME = re.compile(r"\bvoid\s+\w+\s*\(")


def text_of(file: str, defines: Mapping[str, object], head: str = "", body: str = "") -> str:
    """The program of a source file in the words of `cuda.h`.

    Args:
        file: name in the folder `cl` of the kernels.
        defines: macros that are set before the file.
        head: text between `common.cl` and the file.
        body: text after the file, for generated kernels.
    """
    return with_ranges(program_text(_prelude(), file, defines, head, body))


@cache
def _prelude() -> str:
    return files(__package__).joinpath("cuda.h").read_text(encoding="utf-8")


def with_ranges(text: str) -> str:
    """Give each kernel of a program the parameter, and the guard as its first statement.

    Args:
        text: a program; kernels begin a line with `__kernel`, and their parameters may have macros
            among them.
    """
    parts: list[str] = []
    done = 0
    for match in _KERNEL.finditer(text):
        name = _NAME.search(text, match.end())
        assert name is not None, "a kernel without a name"
        close = _closing(text, name.end())
        brace = text.index("{", close) + 1
        parts += [text[done:close], _PARAMETER, text[close:brace], _GUARD]
        done = brace
    return "".join([*parts, text[done:]])


def _closing(text: str, start: int) -> int:
    """Where the parenthesis closes that opened before `start`."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise AssertionError("a kernel's parameters don't end")
