"""Random valid graphs, seeded: the case of a number is the same on every machine.

They are valid by construction, and tame: values stay within ranges that are known beforehand, and
operators that jump (comparisons, roundings, casts to whole numbers, quantization) get only values
that are exact whoever computes them. So every right provider gives the same answer within what
`ep_compliance.oracle.propagation` allows, and whatever else comes out is a fault.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

from ep_compliance.cases.case import Case, Level
from ep_compliance.cases.random_graphs.draws import Draws
from ep_compliance.cases.random_graphs.families import FAMILIES, Family
from ep_compliance.cases.random_graphs.grower import OPSETS, Grower
from ep_compliance.cases.random_graphs.steps import all_steps

__all__ = ["COUNTS", "random_case", "random_cases"]

COUNTS = {Level.MUSTPASS: 12, Level.FULL: 200, Level.SOAK: 2000}
"""How many graphs each level adds to those below it."""

_TRIES = 60
"""Steps that a graph may try; many find nothing to work on."""


def random_cases(level: Level = Level.SOAK) -> Iterator[Case]:
    """The cases of a level and of those below it, ids `random/<family>/<number>`."""
    number = itertools.count()
    for own, count in COUNTS.items():
        if own <= level:
            for _ in range(count):
                yield random_case(next(number), own)


def random_case(number: int, level: Level = Level.SOAK) -> Case:
    """The case of a number: 15 nodes at most, of one family, in turn."""
    name = list(FAMILIES)[number % len(FAMILIES)]
    grower = _grown(Draws(number), FAMILIES[name])
    identifier = f"random/{name}/{number:04}"
    model, inputs = grower.finished(identifier)
    return Case(id=identifier, model=model, inputs=inputs, level=level)


def _grown(draws: Draws, family: Family) -> Grower:
    opset = draws.choose(list(OPSETS))
    grower = Grower(draws, draws.choose(family.dtypes), opset, family.shape(draws))
    for _ in range(draws.between(1, 2)):
        grower.input(grower.shape)
    chosen = draws.some(family.basic, draws.between(1, 4))
    chosen += draws.some(family.others, draws.between(1, 5))
    wanted = draws.between(3, 15)
    steps = all_steps()
    for _ in range(_TRIES):
        op_type = draws.choose(chosen)
        grower.attempt(functools.partial(steps[op_type], grower, op_type))
        if grower.node_count >= wanted:
            break
    if not grower.node_count:
        grower.attempt(lambda: steps["Identity"](grower, "Identity"))
    return grower
