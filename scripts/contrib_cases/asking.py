"""How a question is put: an operator, values, attributes. Who answers stands elsewhere.

Float values are chosen from numbers that float16 and bfloat16 hold too, so that the answer holds
for these types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from ep_compliance.cases.recipes.numbers import Numbers
from ep_compliance.oracle.precision import integer_limits
from ep_core.types import DataType

__all__ = ["Array", "Asked", "Values", "asked", "question"]

Array = np.ndarray[Any, Any]

_LEAST = 2.0**-10
"""Smaller magnitudes become zero; float16 holds fewer digits of them."""


@dataclass(frozen=True, eq=False)
class Asked:
    """One question; see `ep_compliance.cases.recorded.files.Question` for what isn't said here.

    Attributes:
        outputs: whether each output is asked for.
        defined: asked in standard operators, as ONNX Runtime's kernel leaves something out.
    """

    op_type: str
    name: str
    inputs: Sequence[Array | None]
    outputs: Sequence[bool] = (True,)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: tuple[int, ...] = ()
    mixed: bool = False
    fixed: bool = False
    domain: str = "com.microsoft"
    defined: bool = False


class Values:
    """Seeded values."""

    def __init__(self, seed: str) -> None:
        self._numbers = Numbers(seed)

    def floats(self, *shape: int, low: float = -2, high: float = 2) -> Array:
        """float32, of few digits."""
        wide = self._numbers.random(shape, DataType.FLOAT, low, high)
        short = wide.astype(ml_dtypes.bfloat16).astype(np.float32)
        return np.where(np.abs(short) < _LEAST, np.float32(0), short).reshape(shape)

    def positive(self, *shape: int, low: float = 0.03125, high: float = 1) -> Array:
        """The same above zero, for scales."""
        return self.floats(*shape, low=low, high=high)

    def integers(self, *shape: int, kind: str = "int64", low: int = 0, high: int = 9) -> Array:
        """Integers of a type, both bounds included."""
        return self._numbers.random(shape, DataType[kind.upper()], low, high)

    def codes(self, *shape: int, kind: str) -> Array:
        """Integers over the whole range of a narrow type."""
        low, high = integer_limits(DataType[kind.upper()].numpy)
        return self.integers(*shape, kind=kind, low=low, high=high)

    def bits(self, *shape: int, kind: str = "int32") -> Array:
        """Zeros and ones."""
        return self.integers(*shape, kind=kind, high=1)

    def distinct(self, *shape: int) -> Array:
        """Whole numbers from 0 on, as float32, shuffled."""
        return np.abs(self._numbers.distinct(shape, DataType.UINT16)).astype(np.float32)


_QUESTIONS: list[Callable[[], Iterator[Asked]]] = []


def question(function: Callable[[], Iterator[Asked]]) -> Callable[[], Iterator[Asked]]:
    """Add a function that yields questions."""
    _QUESTIONS.append(function)
    return function


def asked() -> Iterator[Asked]:
    """Every question, in a fixed order."""
    for function in _QUESTIONS:
        yield from function()
