"""The table of steps: what the generator can do next, by operator.

Holds the table and how to fill it; the steps themselves are in the files named here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

from ep_compliance.cases.random_graphs.grower import Grower

__all__ = ["Step", "all_steps", "step"]

Step = Callable[[Grower, str], bool]
"""Adds a node of an operator, and whatever else it takes; False if it finds nothing to work on."""

_PARTS = ("convolutions", "elementwise", "logic", "movement", "products", "quantized", "reductions")

_STEPS: dict[str, Step] = {}


def step(*op_types: str) -> Callable[[Step], Step]:
    """Register the decorated function for operators."""

    def add(function: Step) -> Step:
        _STEPS.update(dict.fromkeys(op_types, function))
        return function

    return add


def all_steps() -> Mapping[str, Step]:
    """Every step by operator."""
    for part in _PARTS:
        importlib.import_module(f"ep_compliance.cases.random_graphs.{part}")
    return _STEPS
