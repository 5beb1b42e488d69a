"""The solver against the best placement of small problems, and what it promises for all."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from placement_problems import assignments, optimum, problem_of, random_problem

from ep_core.errors import OptionError, PlacementError
from ep_core.placement.objective import evaluate
from ep_core.placement.problem import IMPOSSIBLE, Problem, Route
from ep_core.placement.solve import Limits, greedy, solve

FREE = {(0, 1): Route(0.0, 1e9), (1, 0): Route(0.0, 1e9)}
SLOW = {(0, 1): Route(10.0, 1e9), (1, 0): Route(10.0, 1e9)}


def assert_sound(problem: Problem, chosen) -> None:
    """Every unit runs somewhere able, once, after what it needs; and the sums are right."""
    done: set[int] = set()
    for batch in chosen.batches:
        for unit in batch.units:
            assert chosen.owners[unit] == batch.candidate
            assert problem.seconds[unit][batch.candidate] < IMPOSSIBLE
            assert all(maker in done or maker in batch.units for maker in problem.makers[unit])
        done.update(batch.units)
    assert sorted(done) == list(range(len(problem.names)))
    assert sum(len(batch.units) for batch in chosen.batches) == len(done)
    assert evaluate(problem, chosen.owners) == chosen


def gaps(candidates: int, most: int, count: int) -> np.ndarray:
    """By problem the part by which the answer is dearer than the best placement."""
    result = []
    for seed in range(count):
        problem = random_problem(seed, candidates, most)
        solution = solve(problem)
        best = optimum(problem)
        assert_sound(problem, solution.chosen)
        assert best.cost <= solution.chosen.cost * (1 + 1e-12)
        assert solution.chosen.cost <= solution.greedy.cost
        result.append(solution.chosen.cost / best.cost - 1 if best.cost else 0.0)
    return np.array(result)


@pytest.mark.parametrize(
    ("candidates", "most", "count", "optimal", "mean", "worst"),
    [
        (2, 12, 1500, 0.993, 2e-4, 0.08),
        (3, 8, 800, 0.985, 6e-4, 0.12),
        (3, 12, 200, 0.99, 5e-5, 0.01),
    ],
)
def test_answers_are_close_to_the_best(candidates, most, count, optimal, mean, worst):
    found = gaps(candidates, most, count)
    assert (found < 1e-12).mean() >= optimal
    assert found.mean() <= mean
    assert found.max() <= worst


def test_direct_ways_between_devices_are_used_well():
    dearer = 0
    for seed in range(200):
        problem = random_problem(seed, 3, 5, direct=True)
        solution = solve(problem)
        every = (evaluate(problem, row.tolist()) for row in assignments(problem))
        best = min(outcome.cost for outcome in every)
        assert_sound(problem, solution.chosen)
        assert best <= solution.chosen.cost <= solution.greedy.cost
        dearer += solution.chosen.cost > best * (1 + 1e-12)
    assert dearer <= 4


def test_never_costlier_than_greedy_and_sound_on_larger_graphs():
    for seed in range(40):
        problem = random_problem(seed, 2 + seed % 2, 100, direct=seed % 3 == 0)
        solution = solve(problem)
        assert_sound(problem, solution.chosen)
        assert solution.chosen.cost <= solution.greedy.cost
        assert solution.greedy == greedy(problem)


# ------------------------------------------------------------ the same answer every time


def digest() -> str:
    found = []
    for seed in range(40):
        problem = random_problem(seed, 2 + seed % 2, 30, direct=seed % 5 == 0)
        chosen = solve(problem).chosen
        found.append((chosen.owners, [batch.units for batch in chosen.batches], chosen.cost))
    return json.dumps(found)


def test_the_same_problem_gives_the_same_placement():
    expected = digest()
    assert digest() == expected
    code = "import test_placement_solve as t; print(t.digest())"
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        assert done.stdout.strip() == expected


# ------------------------------------------------------------ limits and gains


def alternating(count: int, routes) -> Problem:
    """A chain whose units are each faster on the other candidate than the one before."""
    edges = [(unit - 1,) if unit else () for unit in range(count)]
    seconds = [(1.0, 3.0) if unit % 2 else (3.0, 1.0) for unit in range(count)]
    return problem_of(edges, seconds, (0, 1), routes, start=0.25)


def test_fixed_costs_of_partitions_count():
    """Copies are free: alternating costs 10 + 10/4, staying 20 + 1/4."""
    problem = alternating(10, FREE)
    chosen = solve(problem).chosen
    assert len(chosen.batches) == 10
    assert chosen.cost == pytest.approx(12.5)


def test_at_most_so_many_partitions_and_copies():
    problem = alternating(10, FREE)
    for most in (1, 2, 3, 5):
        chosen = solve(problem, Limits(max_partitions=most)).chosen
        assert len(chosen.batches) <= most
        assert_sound(problem, chosen)
    for most in (0, 2, 4):
        chosen = solve(problem, Limits(max_copies=most)).chosen
        assert len(chosen.copies) <= most
    assert solve(problem, Limits(max_copies=0)).chosen.cost == 20.25


def test_limits_are_met_well_on_graphs_too_large_to_search():
    """Six stretches of a chain are each bound to a side by 100 s, some units to the other by 20 s.

    At most six partitions: every stretch is on its side, and those units are on the wrong one, but
    for the last of each stretch but the last, which can go with the next stretch.
    """
    length, seconds, wrong = 300, [], 0
    for unit in range(6 * length):
        side = unit // length % 2
        row = [0.0, 0.0]
        if unit % 30 == 0:
            row[1 - side] = 100.0
        elif unit % 30 == 15:
            row[side] = 20.0
            wrong += 1
        seconds.append(tuple(row))
    edges = [(unit - 1,) if unit else () for unit in range(6 * length)]
    problem = problem_of(edges, seconds, (0, 0), {}, start=0.25)
    assert len(solve(problem).chosen.batches) > 100
    chosen = solve(problem, Limits(max_partitions=6)).chosen
    assert len(chosen.batches) == 6
    assert chosen.cost == pytest.approx(20.0 * (wrong - 5) + 6 * 0.25)


def test_limits_are_met_wherever_a_placement_meets_them():
    """Held against the best placement within the limits, found by trying all."""
    dearer = missed = 0
    for seed in range(150):
        problem = random_problem(seed, 2, 8)
        limits = Limits(max_partitions=1 + seed % 3, max_copies=(2, 4, None)[seed % 5 % 3])
        every = [evaluate(problem, row.tolist()) for row in assignments(problem)]
        within = [outcome.cost for outcome in every if not any(limits.excess(outcome))]
        try:
            chosen = solve(problem, limits).chosen
        except PlacementError:
            missed += bool(within)
            continue
        assert not any(limits.excess(chosen))
        dearer += chosen.cost > min(within) * (1 + 1e-12)
    assert missed == 0
    assert dearer <= 5


def test_a_limit_that_pins_contradict_is_an_error_that_names_both():
    seconds = [(1.0, math.inf), (math.inf, 1.0)]
    problem = problem_of([(), (0,)], seconds, (0, 1), FREE, pinned=frozenset({1}))
    with pytest.raises(PlacementError) as caught:
        solve(problem, Limits(max_partitions=1))
    text = str(caught.value)
    assert "max_partitions=1" in text
    assert "'n0' can run only on 'a'" in text
    assert "'n1' is pinned to 'b'" in text
    assert "2 at the least" in text
    with pytest.raises(PlacementError, match=r"max_copies=0.*'n1' is pinned to 'b'"):
        solve(problem, Limits(max_copies=0))


def test_a_small_gain_does_not_buy_a_complicated_placement():
    seconds = [(1.0, 1.0), (10.0, 9.0), (1.0, 1.0)]
    problem = problem_of([(), (0,), (1,)], seconds, (0, 0), {}, start=0.1)
    every = solve(problem)
    assert every.simple  # all on the second one
    assert every.chosen.owners == (1, 1, 1)
    problem = problem_of([(), (0,), (1,)], [(1.0, 2.0), (10.0, 9.0), (1.0, 2.0)], (0, 0), {})
    assert solve(problem).chosen.owners == (0, 1, 0)  # 11 s instead of 12 s
    assert solve(problem, Limits(min_gain=0.05)).chosen.owners == (0, 1, 0)
    kept = solve(problem, Limits(min_gain=0.1))
    assert kept.simple
    assert kept.chosen.owners == (0, 0, 0)


@pytest.mark.parametrize(
    "wrong", [{"max_copies": -1}, {"max_partitions": -2}, {"min_gain": 2.0}, {"min_gain": math.nan}]
)
def test_limits_out_of_range_are_errors(wrong):
    with pytest.raises(OptionError, match=next(iter(wrong))):
        Limits(**wrong)


def test_copies_keep_units_together():
    assert solve(alternating(10, SLOW)).chosen.owners == (0,) * 10


def test_a_unit_that_nobody_runs_is_an_error():
    problem = problem_of([(), (0,)], [(1.0, 1.0), (math.inf, math.inf)], (0, 1), FREE)
    with pytest.raises(PlacementError, match="'n1' can't run on any"):
        solve(problem)


def test_nothing_to_place():
    problem = problem_of([], [], (0, 1), FREE)
    assert solve(problem).chosen.batches == ()
