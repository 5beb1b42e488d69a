"""Finds the compiled module. It is missing where the package was installed without a compiler."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ep_cpu import _native

__all__ = ["levels", "native_module", "why_missing"]


@lru_cache(maxsize=1)
def _attempt() -> tuple[_native | None, str]:  # type: ignore[valid-type]
    try:
        from ep_cpu import _native
    except ImportError as error:
        return None, str(error)
    return _native, ""


def native_module() -> _native | None:  # type: ignore[valid-type]
    """The compiled module, None where it isn't installed or can't be loaded."""
    return _attempt()[0]


def why_missing() -> str:
    """What the import said; empty where the module is there."""
    return _attempt()[1]


def levels() -> tuple[str, ...]:
    """Sets of instructions that the module can use here, the fastest first; none without it."""
    module = native_module()
    return () if module is None else tuple(module.levels())
