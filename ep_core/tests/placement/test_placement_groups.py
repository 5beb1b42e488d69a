"""Fused groups: what they save, when, and that every part of the solver knows it."""

from __future__ import annotations

import dataclasses
import math
import random

import numpy as np
import pytest
from placement_problems import (
    assignments,
    optimum,
    problem_of,
    random_problem,
    units_and_copies,
    with_groups,
)
from test_placement_build import (
    DEVICE,
    NO,
    YES,
    graph_with,
    offer,
    op,
    quantised,
    tensor,
)

from ep_core.contracts import FusedGroup, Support
from ep_core.graph import ValueInfo
from ep_core.placement.budget import Budget
from ep_core.placement.build import Wishes, build
from ep_core.placement.decide import decide
from ep_core.placement.estimate import Estimate
from ep_core.placement.expansion import Prices, expand
from ep_core.placement.objective import evaluate
from ep_core.placement.place import place
from ep_core.placement.problem import Group
from ep_core.placement.roofline import Sizes, fused_seconds, seconds_of
from ep_core.placement.rules import Rules
from ep_core.placement.solve import Limits, solve
from ep_core.types import HOST_MEMORY, DeviceSpeed


def cases(candidates: int, most: int, count: int):
    """Random problems with groups."""
    for seed in range(count):
        problem = with_groups(random_problem(seed, candidates, most), seed)
        if problem.groups:
            yield seed, problem


# ------------------------------------------------------------ the objective


def test_a_group_saves_where_it_is_together():
    edges = [(), (0,), (1,)]
    problem = problem_of(edges, [(3.0, 4.0)] * 3, (0, 0), {}, start=1.0)
    problem = dataclasses.replace(problem, groups=[Group(1, (0, 1), 5.0)])
    assert evaluate(problem, [1, 1, 0]).seconds == 4 + 4 - 5 + 3 + 2
    assert evaluate(problem, [1, 1, 0]).fused == (0,)
    assert evaluate(problem, [0, 0, 0]).seconds == 9 + 1
    assert evaluate(problem, [1, 0, 0]).fused == ()


def test_a_group_in_two_partitions_is_not_together():
    """n0 -> n1 -> n2 and n0 -> n2: with n1 elsewhere, n0 and n2 can't run as one."""
    problem = problem_of([(), (0,), (0, 1)], [(1.0, 1.0)] * 3, (0, 0), {})
    problem = dataclasses.replace(problem, groups=[Group(0, (0, 2), 0.5)])
    assert evaluate(problem, [0, 1, 0]).fused == ()
    assert evaluate(problem, [0, 0, 0]).seconds == 2.5


@pytest.mark.parametrize("crossing", [0.0, 3.0])
def test_two_candidates_get_the_optimum_with_groups(crossing):
    for seed, problem in cases(2, 9, 300):
        owners = [able[0] for able in problem.able]
        after = expand(problem, owners, 1, Prices(crossing), Budget(10**9))
        best = units_and_copies(problem, assignments(problem), crossing).min()
        got = units_and_copies(problem, np.array([after]), crossing)[0]
        assert got == pytest.approx(best, rel=1e-12, abs=1e-9), seed


def test_a_step_gets_the_best_of_its_moves_with_groups():
    for seed, problem in cases(3, 7, 200):
        every = assignments(problem)
        before = every[seed * 7919 % len(every)]
        target, crossing = seed % 3, (0.0, 3.0)[seed % 2]
        after = expand(problem, before.tolist(), target, Prices(crossing), Budget(10**9))
        reachable = every[((every == before) | (every == target)).all(axis=1)]
        best = units_and_copies(problem, reachable, crossing).min()
        got = units_and_copies(problem, np.array([after]), crossing)[0]
        assert got == pytest.approx(best, rel=1e-12, abs=1e-9), seed


@pytest.mark.parametrize(
    ("candidates", "most", "count", "optimal", "worst"),
    [(2, 9, 300, 0.99, 0.2), (3, 6, 150, 0.98, 0.1)],
)
def test_answers_with_groups_are_close_to_the_best(candidates, most, count, optimal, worst):
    gaps, fused = [], 0
    for _, problem in cases(candidates, most, count):
        solution = solve(problem)
        best = optimum(problem)
        assert best.cost <= solution.chosen.cost * (1 + 1e-12) + 1e-9
        assert solution.chosen.cost <= solution.greedy.cost
        assert evaluate(problem, solution.chosen.owners) == solution.chosen
        fused += bool(solution.chosen.fused)
        gaps.append(solution.chosen.cost / best.cost - 1 if best.cost > 1e-9 else 0.0)
    assert (np.array(gaps) < 1e-9).mean() >= optimal
    assert max(gaps) <= worst
    assert fused > len(gaps) / 2


def test_what_a_move_changes_is_known_beforehand():
    """Where partitions keep their order, estimates of moves are what measuring them gives."""
    checked = 0
    for seed, problem in cases(2, 8, 200):
        problem = dataclasses.replace(problem, partition_seconds=(0.0, 0.0))
        rng = random.Random(seed)
        outcome = evaluate(problem, [rng.choice(able) for able in problem.able])
        if len(outcome.fused) != sum(
            all(outcome.owners[u] == g.candidate for u in g.units) for g in problem.groups
        ):
            continue
        for group in problem.groups:
            units = tuple(u for u in group.units if outcome.owners[u] != group.candidate)
            owners = list(outcome.owners)
            for unit in units:
                owners[unit] = group.candidate
            after = evaluate(problem, owners)
            if not units or len({after.order[u] for u in group.units}) > 1:
                continue
            if len(after.fused) < sum(
                all(owners[u] == g.candidate for u in g.units) for g in problem.groups
            ):
                continue
            change, _ = Estimate(problem, outcome).change(units, group.candidate)
            assert outcome.cost + change == pytest.approx(after.cost, abs=1e-9), seed
            checked += 1
    assert checked > 50


def test_two_units_move_together_where_neither_would_alone():
    """Each alone is dearer by 1 s; fused they are cheaper by 3 s."""
    problem = problem_of([(), (0,)], [(4.0, 5.0)] * 2, (0, 0), {})
    assert solve(problem).chosen.owners == (0, 0)
    problem = dataclasses.replace(problem, groups=[Group(1, (0, 1), 5.0)])
    assert solve(problem).chosen.owners == (1, 1)
    assert solve(problem).chosen.seconds == 5.0
    kept = solve(problem, Limits(min_gain=0.5)).chosen
    assert kept.owners == (1, 1)  # all on one candidate is simple


# ------------------------------------------------------------ from offers


SPEED = DeviceSpeed(1e9, 1e6, 1e-3, 0.0)  # 1 us per byte, 1 ms per operator


def chain():
    """x -> Relu -> Neg -> Abs -> y, 1,000 floats each; the middle value is read by nobody else."""
    kind = tensor(1000)
    nodes = [op("Relu", "x", "a"), op("Neg", "a", "b"), op("Abs", "b", "y")]
    return graph_with(nodes, dict.fromkeys(("x", "a", "b", "y"), kind))


def device(answers, groups):
    return dataclasses.replace(offer("dev", DEVICE, answers, SPEED), groups=groups)


def host():
    return offer("cpu", HOST_MEMORY, [YES] * 3, DeviceSpeed(1e6, 1e3, 1.0, 0.0))


def test_what_passes_inside_a_group_stays_out_of_memory():
    sizes = Sizes(chain(), {})
    outputs = frozenset({"y"})
    # 4,000 bytes in and 4,000 out: 8 ms, and 1 ms for one operator
    assert fused_seconds((0, 1, 2), sizes, SPEED, outputs) == pytest.approx(9e-3)
    assert fused_seconds((0, 1), sizes, SPEED, outputs) == pytest.approx(9e-3)
    # an output in the middle is written all the same
    assert fused_seconds((0, 1), sizes, SPEED, frozenset({"a", "y"})) == pytest.approx(13e-3)
    assert sum(seconds_of(node, sizes, SPEED) for node in chain().nodes) == pytest.approx(27e-3)


def test_a_group_never_takes_longer_than_its_nodes():
    """A Gather reads little of a large table, alone or fused."""
    kinds = {"t": tensor(1000, 64), "i": tensor(2), "g": tensor(2, 64), "y": tensor(2, 64)}
    graph = graph_with([op("Gather", "t i", "g"), op("Relu", "g", "y")], kinds, inputs=("t", "i"))
    sizes = Sizes(graph, {})
    alone = sum(seconds_of(node, sizes, SPEED) for node in graph.nodes)
    assert fused_seconds((0, 1), sizes, SPEED, frozenset({"y"})) < alone


@pytest.mark.parametrize(
    ("costs", "group_cost", "saving"),
    [
        ((None,) * 3, None, 18e-3),
        ((None,) * 3, 7e-3, 20e-3),
        ((2.0,) * 3, 1.5, 4.5),
        ((2.0,) * 3, None, 4.0),  # a third of the nodes', as the rooflines are
        ((2.0,) * 3, math.nan, 4.0),
        ((2.0,) * 3, -1.0, 4.0),
        ((2.0,) * 3, 6.0, None),
        ((2.0,) * 3, 9.0, None),
    ],
)
def test_what_a_group_saves(costs, group_cost, saving):
    answers = [Support(True, cost=cost) for cost in costs]
    group = FusedGroup((0, 1, 2), group_cost)
    problem, _ = build(chain(), range(3), [device(answers, [group]), host()], Wishes())
    if saving is None:
        assert problem.groups == ()
    else:
        (found,) = problem.groups
        assert (found.candidate, found.units) == (0, (0, 1, 2))
        assert found.saving == pytest.approx(saving)


def test_a_group_that_lost_a_node_is_dropped():
    groups = [FusedGroup((0, 1)), FusedGroup((1, 2))]
    refused = device([NO, YES, YES], groups)
    problem, _ = build(chain(), range(3), [refused, host()], Wishes())
    assert [group.units for group in problem.groups] == [(1, 2)]
    pinned, _ = build(
        chain(), range(3), [device([YES] * 3, groups), host()], Wishes(pins={2: "cpu"})
    )
    assert [group.units for group in pinned.groups] == [(0, 1)]
    shorter = chain().replace(outputs=(ValueInfo("b", tensor(1000)),))
    unused, _ = build(shorter, [0, 1], [device([YES] * 3, groups), host()], Wishes())
    assert [group.units for group in unused.groups] == [(0, 1)]


def test_a_group_may_be_part_of_a_unit():
    graph = quantised()
    dear = offer("a", HOST_MEMORY, [Support(True, cost=1.0)] * 7)
    dear = dataclasses.replace(dear, groups=[FusedGroup((1, 2, 3), 0.5), FusedGroup((4, 5), 0.5)])
    problem, units = build(graph, range(7), [dear], Wishes())
    assert [tuple(units[u] for u in group.units) for group in problem.groups] == [
        ((0, 1, 2, 3),),
        ((4,), (5,)),
    ]
    assert place(graph, range(7), [dear]).chosen.seconds == pytest.approx(7 - 2.5 - 1.5, rel=1e-4)


@pytest.mark.parametrize("strategy", ["cost", "greedy"])
def test_reasons_name_the_others(strategy):
    offers = [device([YES] * 3, [FusedGroup((0, 1))]), host()]
    decision = decide(chain(), offers, Rules(strategy))
    reasons = [placement.reason for placement in decision.placements]
    assert reasons[0].endswith("; fused with b")
    assert reasons[1].endswith("; fused with a")
    assert "fused" not in reasons[2]
    assert decision.seconds == pytest.approx(9e-3 + 9e-3 + sum(c.seconds for c in decision.copies))
    assert sum(decision.partition_seconds) == pytest.approx(18e-3)
    assert sum(placement.seconds for placement in decision.placements) == pytest.approx(18e-3)


def test_long_groups_are_not_listed_in_full():
    nodes = [op("Relu", f"v{i}", f"v{i + 1}") for i in range(9)]
    graph = graph_with(nodes, {}, inputs=("v0",), outputs=("v9",))
    one = dataclasses.replace(
        offer("a", HOST_MEMORY, [YES] * 9), groups=[FusedGroup(tuple(range(9)))]
    )
    reason = decide(graph, [one], Rules("cost")).placements[0].reason
    assert reason.endswith("fused with v2, v3, v4, v5, v6 and 3 more")
