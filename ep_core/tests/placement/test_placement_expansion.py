"""Cuts: for two candidates the best assignment there is, counting units and copies."""

from __future__ import annotations

import random

import numpy as np
import pytest
from placement_problems import (
    assignments,
    problem_of,
    random_problem,
    random_row,
    units_and_copies,
)

from ep_core.placement.budget import Budget
from ep_core.placement.expansion import Prices, expand
from ep_core.placement.problem import Route


def first_able(problem) -> list[int]:
    return [able[0] for able in problem.able]


def value(problem, owners, crossing: float) -> float:
    return float(units_and_copies(problem, np.array([owners]), crossing)[0])


@pytest.mark.parametrize("crossing", [0.0, 3.0])
def test_two_candidates_get_the_optimum_of_units_and_copies(crossing):
    for seed in range(1000):
        problem = random_problem(seed, 2, 12 if seed % 10 == 0 else 9)
        prices = Prices(crossing)
        owners = expand(problem, first_able(problem), 1, prices, Budget(10**9))
        best = units_and_copies(problem, assignments(problem), crossing).min()
        assert value(problem, owners, crossing) == pytest.approx(best, rel=1e-12), seed


def test_a_step_gets_the_best_of_its_moves_from_any_placement():
    """With three candidates too, and from wherever the units are."""
    for seed in range(400):
        problem = random_problem(seed, 3, 8)
        every = assignments(problem)
        before = every[seed * 7919 % len(every)]
        target, crossing = seed % 3, (0.0, 3.0)[seed % 2]
        after = expand(problem, before.tolist(), target, Prices(crossing), Budget(10**9))
        reachable = every[((every == before) | (every == target)).all(axis=1)]
        best = units_and_copies(problem, reachable, crossing).min()
        assert value(problem, after, crossing) == pytest.approx(best, rel=1e-12), seed
        assert all(new in (old, target) for new, old in zip(after, before, strict=True))


def test_a_price_of_copies_counts_each_copy():
    """Two units that read one tensor elsewhere make one copy, and a second one for the output."""
    edges = [(), (0,), (0,)]
    routes = {(0, 1): Route(0.0, 1e9), (1, 0): Route(0.0, 1e9)}
    seconds = [(0.0, 9.0), (2.0, 0.0), (2.0, 0.0)]
    problem = problem_of(edges, seconds, (0, 1), routes)
    for price, expected in ((1.3, [0, 1, 1]), (1.4, [0, 0, 0])):  # 3 copies against 4 seconds
        owners = expand(problem, [0, 0, 0], 1, Prices(copy=price), Budget(10**9))
        assert owners == expected


def test_ties_leave_units_where_they_are():
    problem = problem_of([(), (0,)], [(1.0, 1.0)] * 2, (0, 0), {})
    assert expand(problem, [0, 0], 1, Prices(), Budget(10**9)) == [0, 0]
    assert expand(problem, [1, 1], 0, Prices(), Budget(10**9)) == [1, 1]


def test_a_direct_way_is_seen():
    routes = {(0, 1): Route(9, 1e9), (1, 0): Route(9, 1e9), (0, 2): Route(9, 1e9)}
    routes |= {(2, 0): Route(9, 1e9), (1, 2): Route(1, 1e9), (2, 1): Route(1, 1e9)}
    seconds = [(0.0, 50.0), (5.0, 0.0), (0.0, 50.0)]
    problem = problem_of([(), (0,), (1,)], seconds, (1, 2), routes)
    owners = expand(problem, [0, 0, 0], 1, Prices(), Budget(10**9))
    assert owners == [0, 1, 0]  # 2 copies of 1 s against 5 s


def test_work_grows_about_as_the_graph_does():
    """Eight times the units of a graph that is as deep as long take at most 24 times the work."""

    def work(count: int) -> int:
        rng = random.Random(5)
        edges = [
            tuple(sorted({rng.randrange(max(0, unit - 20), unit) for _ in range(2)}))
            if unit
            else ()
            for unit in range(count)
        ]
        rows = [random_row(rng, 2) for _ in range(count)]
        routes = {(0, 1): Route(5.0, 1e9), (1, 0): Route(5.0, 1e9)}
        problem = problem_of(edges, rows, (0, 1), routes)
        budget = Budget(10**9)
        expand(problem, first_able(problem), 1, Prices(2.0), budget)
        return 10**9 - budget.left

    assert work(4000) <= 24 * work(500)
