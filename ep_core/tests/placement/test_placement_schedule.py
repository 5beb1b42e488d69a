"""Partitions: their order is an order of execution, and there are few of them."""

from __future__ import annotations

import dataclasses
import random

import pytest
from placement_problems import problem_of, random_edges

from ep_core.errors import PlacementError
from ep_core.placement.problem import Problem, Tensor
from ep_core.placement.schedule import schedule


def case(seed: int, candidates: int) -> tuple[Problem, list[int]]:
    rng = random.Random(seed)
    count = rng.randint(4, 13)
    edges = random_edges(rng, count)
    problem = problem_of(edges, [(1.0,) * candidates] * count, (0,) * candidates, {})
    return problem, [rng.randrange(candidates) for _ in range(count)]


def fewest(problem: Problem, owners: list[int]) -> int:
    """By breadth-first search over what has run; a partition runs all that its candidate can."""
    makers = [sum(1 << maker for maker in own) for own in problem.makers]

    def drained(done: int, candidate: int) -> int:
        for unit in problem.order:
            if owners[unit] == candidate and not makers[unit] & ~done:
                done |= 1 << unit
        return done

    steps, front, everything = 0, {0}, (1 << len(owners)) - 1
    while everything not in front:
        front = {drained(done, c) for done in front for c in range(len(problem.candidates))}
        steps += 1
    return steps


def assert_runs(problem: Problem, owners: list[int], batches) -> None:
    done: set[int] = set()
    for batch in batches:
        for unit in batch.units:
            assert owners[unit] == batch.candidate
            assert all(maker in done or maker in batch.units for maker in problem.makers[unit])
        done.update(batch.units)
    assert sorted(unit for batch in batches for unit in batch.units) == list(range(len(owners)))


def test_two_candidates_get_the_fewest_partitions():
    for seed in range(300):
        problem, owners = case(seed, 2)
        batches = schedule(problem, owners)
        assert_runs(problem, owners, batches)
        assert len(batches) == fewest(problem, owners), seed


@pytest.mark.parametrize(("candidates", "more"), [(3, 0.01), (4, 0.02)])
def test_more_candidates_get_few(candidates, more):
    got = least = 0
    for seed in range(300):
        problem, owners = case(seed, candidates)
        batches = schedule(problem, owners)
        assert_runs(problem, owners, batches)
        got += len(batches)
        least += fewest(problem, owners)
    assert least <= got <= (1 + more) * least


def test_solo_units_are_partitions_of_their_own():
    problem = problem_of([(), (0,), (1,), (0,)], [(1.0, 1.0)] * 4, (0, 0), {})
    problem = dataclasses.replace(problem, solo=frozenset({1}))
    batches = schedule(problem, [0, 1, 1, 0])
    assert [(b.candidate, b.units) for b in batches] == [(0, (0, 3)), (1, (1,)), (1, (2,))]


def test_nothing_to_place_is_no_partition():
    assert schedule(problem_of([], [], (0,), {}), []) == []


def test_a_circle_is_an_error():
    tensors = [Tensor("a", 1, 0, (1,)), Tensor("b", 1, 1, (0,))]
    problem = dataclasses.replace(problem_of([(), ()], [(1.0,)] * 2, (0,), {}), tensors=tensors)
    with pytest.raises(PlacementError, match="in a circle"):
        problem.check()
