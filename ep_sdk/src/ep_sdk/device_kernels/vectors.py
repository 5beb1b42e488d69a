"""Kernel arguments that are vectors: int4, long4, long8.

A vector is its bytes, as an array: cheap to make, and every way to set an argument takes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["int4", "long4", "long8"]


def int4(values: Sequence[int]) -> Any:
    """An int4 from three numbers; the fourth is 0."""
    return np.array((*values, 0), np.int32)


def long4(values: Sequence[int], rest: int = 0) -> Any:
    """A long4; missing numbers are `rest`."""
    return np.array((*values, *((rest,) * (4 - len(values)))), np.int64)


def long8(values: Sequence[int]) -> Any:
    """A long8; missing numbers are 0."""
    return np.array((*values, *((0,) * (8 - len(values)))), np.int64)
