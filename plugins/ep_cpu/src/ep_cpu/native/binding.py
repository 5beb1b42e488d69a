"""Finds the compiled module. It is missing where the package was installed without a compiler.

The environment variable `EP_CPU_INSTRUCTIONS` holds the whole process to a set of instructions, as
if the machine had no more: `avx2`, for instance, or `none` for the kernels in Python.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from ep_core.errors import OptionError

if TYPE_CHECKING:
    from ep_cpu import _native

__all__ = ["NO_INSTRUCTIONS", "levels", "native_module", "why_missing"]

NO_INSTRUCTIONS = "none"
_VARIABLE = "EP_CPU_INSTRUCTIONS"


@lru_cache(maxsize=1)
def _attempt() -> tuple[_native | None, str]:  # type: ignore[valid-type]
    if os.environ.get(_VARIABLE) == NO_INSTRUCTIONS:
        return None, f"{_VARIABLE} is {NO_INSTRUCTIONS}"
    try:
        from ep_cpu import _native
    except ImportError as error:
        return None, str(error)
    return _native, ""


def native_module() -> _native | None:  # type: ignore[valid-type]
    """The compiled module, None where it isn't installed, can't be loaded or isn't wanted."""
    return _attempt()[0]


def why_missing() -> str:
    """Why there is no module; empty where it is there."""
    return _attempt()[1]


@lru_cache(maxsize=1)
def levels() -> tuple[str, ...]:
    """Sets of instructions that the module can use here, the fastest first; none without it.

    Raises:
        OptionError: the environment variable names another one.
    """
    module = native_module()
    if module is None:
        return ()
    usable = tuple(module.levels())
    wanted = os.environ.get(_VARIABLE, usable[0])
    if wanted not in usable:
        expected = ", ".join((*usable, NO_INSTRUCTIONS))
        raise OptionError(f"environment variable {_VARIABLE}", expected=expected, got=wanted)
    return usable[usable.index(wanted) :]
