"""What a move is said to change is what counting everything again gives, and cheap to say."""

from __future__ import annotations

import random

import pytest
from placement_problems import problem_of, random_problem

from ep_core.placement.estimate import Estimate
from ep_core.placement.objective import evaluate, moves_of
from ep_core.placement.problem import HOST, NO_UNIT, Route


def counted(problem, owners, order):
    """Units and copies, where partitions keep their order."""
    place = [problem.memory_of[owner] for owner in owners]
    total = sum(row[owner] for row, owner in zip(problem.costs, owners, strict=True))
    for tensor in problem.tensors:
        home = HOST if tensor.producer == NO_UNIT else place[tensor.producer]
        for pair in moves_of(problem, tensor, home, place, order):
            total += problem.routes[pair].seconds(tensor.nbytes)
    return total


@pytest.mark.parametrize("candidates", [2, 3])
def test_moves_of_one_unit_and_of_several_are_counted_right(candidates):
    checked = 0
    for seed in range(300):
        rng = random.Random(seed)
        problem = random_problem(seed, candidates, 9, direct=True)
        outcome = evaluate(problem, [rng.choice(able) for able in problem.able])
        estimate = Estimate(problem, outcome)
        before = counted(problem, outcome.owners, outcome.order)
        for _ in range(12):
            target = rng.randrange(candidates)
            able = [u for u, row in enumerate(problem.able) if target in row]
            units = tuple(sorted(rng.sample(able, rng.randint(0, len(able)))))
            owners = list(outcome.owners)
            for unit in units:
                owners[unit] = target
            change, _ = estimate.change(units, target)
            after = counted(problem, owners, outcome.order)
            assert before + change == pytest.approx(after, abs=1e-9), seed
            checked += change != 0
    assert checked > 1000


def test_a_tensor_with_thousands_of_readers_isnt_gone_through_for_each_of_them():
    looked_at = []

    class Watched(tuple):
        __slots__ = ()

        def __iter__(self):
            looked_at.append(len(self))
            return super().__iter__()

    count = 3000
    routes = {(0, 1): Route(1.0, 1.0), (1, 0): Route(1.0, 1.0)}
    problem = problem_of(
        [(), *[(0,)] * (count - 1)], [(1.0, 1.0)] * count, (0, 1), routes, sizes=[1] * (count + 1)
    )
    owners = [unit % 2 for unit in range(count)]
    estimate = Estimate(problem, evaluate(problem, owners))
    _ = problem.touching
    for tensor in problem.tensors:
        object.__setattr__(tensor, "consumers", Watched(tensor.consumers))
    for unit, owner in enumerate(owners):
        estimate.change((unit,), 1 - owner)
    assert sum(looked_at) < 5 * count
