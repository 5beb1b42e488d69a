"""Memory budgets: what a placement takes by hand, and that answers fit wherever any does."""

from __future__ import annotations

import dataclasses
import math
import random

import numpy as np
import pytest
from placement_problems import assignments, problem_of, random_problem
from test_placement_build import DEVICE, NO, YES, graph_with, offer, op, tensor

from ep_core.contracts import Support
from ep_core.errors import OptionError, PlacementError
from ep_core.graph import Graph, Initializer
from ep_core.placement.build import Offer, Wishes, build
from ep_core.placement.decide import decide
from ep_core.placement.memory import needs
from ep_core.placement.objective import evaluate
from ep_core.placement.problem import NO_UNIT, Problem, Route, Tensor
from ep_core.placement.rules import Rules
from ep_core.placement.solve import Limits, first_choices, solve
from ep_core.types import HOST_MEMORY, DataType, DeviceSpeed

FREE = {(0, 1): Route(0.0, 1e9), (1, 0): Route(0.0, 1e9)}
BOTH = FREE | {(0, 2): Route(0.0, 1e9), (2, 0): Route(0.0, 1e9)}


def taken(problem: Problem, owners, memory: int = 1) -> tuple[int, int]:
    """Bytes of constants and values."""
    outcome = evaluate(problem, owners)
    found = needs(problem, owners, outcome.batches, outcome.copies, [memory])
    return found[memory]


def weight(nbytes: int, *users: int) -> Tensor:
    return Tensor("w", nbytes, NO_UNIT, users)


def chained(sizes: list[int], **extra) -> Problem:
    """x -> n0 -> n1 -> ...; `sizes` are of x and of what each makes."""
    count = len(sizes) - 1
    edges = [(unit - 1,) if unit else () for unit in range(count)]
    return problem_of(edges, [(1.0, 1.0)] * count, (1, 0), FREE, sizes=sizes, **extra)


# ------------------------------------------------------------ what a placement takes


def test_a_chain_holds_two_values_at_a_time():
    problem = chained([1, 10, 100, 1000])
    # x lives as long as the partition that reads it, n2's result to the end
    assert taken(problem, [0, 0, 0]) == (0, 1 + 100 + 1000)
    # n0's result lives until it's copied out, after x has gone
    assert taken(problem, [0, 1, 1]) == (0, 1 + 10)
    # n0's result comes as a copy, and lives as long as the partition
    assert taken(problem, [1, 0, 1]) == (0, 10 + 100)
    assert taken(problem, [1, 1, 1]) == (0, 0)


def test_a_value_lives_to_the_partition_that_reads_it_last():
    """n0 on the device is read by n1 on the host and, after it, by n2 on the device."""
    problem = problem_of([(), (0,), (0, 1)], [(1.0, 1.0)] * 3, (1, 0), FREE, sizes=[1, 50, 7, 3])
    assert taken(problem, [0, 1, 0]) == (0, 50 + 7 + 3)
    assert taken(problem, [0, 1, 1]) == (0, 1 + 50)


def test_constants_count_once_for_each_partition():
    problem = dataclasses.replace(
        chained([0, 0, 0, 0, 0]), weights=[weight(100, 0, 1), weight(7, 0, 3), weight(1, 2)]
    )
    assert taken(problem, [0, 0, 0, 0])[0] == 108
    assert taken(problem, [0, 1, 1, 0])[0] == 100 + 7 + 7
    assert taken(problem, [1, 1, 0, 1])[0] == 1


def test_what_leaves_by_way_of_the_host_lives_until_the_other_device_needs_it():
    edges = [(), (0,), ()]
    problem = problem_of(edges, [(1.0,) * 3] * 3, (1, 2, 0), BOTH, sizes=[0, 40, 5, 0])
    assert taken(problem, [0, 1, 2], 1) == (0, 40)
    assert taken(problem, [0, 1, 2], 2) == (0, 45)


def test_only_what_may_be_too_small_counts():
    problem = dataclasses.replace(
        chained([1, 10, 100]), weights=[weight(1000, 0)], budgets={1: 1111}
    )
    assert problem.tight == {}
    assert dataclasses.replace(problem, budgets={1: 1110}).tight == {1: 1110}


# ------------------------------------------------------------ answers


def limited(seed: int, candidates: int, most: int) -> Problem:
    """A random problem with constants; memories are as large as some placement needs, or less."""
    problem = random_problem(seed, candidates, most)
    rng = random.Random(seed + 7)
    count = len(problem.names)
    weights = []
    for _ in range(rng.randint(0, count)):
        users = sorted(rng.sample(range(count), rng.randint(1, min(2, count))))
        weights.append(weight(rng.choice([10, 100, 1000]), *users))
    memories = range(1, max(problem.memory_of) + 1)
    problem = dataclasses.replace(problem, weights=weights, budgets=dict.fromkeys(memories, 1))
    some = evaluate(problem, [rng.choice(able) for able in problem.able])
    found = needs(problem, some.owners, some.batches, some.copies, memories)
    part = rng.choice([1, 1, 1.2, 0.7])
    return dataclasses.replace(problem, budgets={m: int(sum(found[m]) * part) for m in memories})


@pytest.mark.parametrize(
    ("candidates", "most", "count", "optimal", "worst"),
    [(2, 7, 300, 0.98, 0.1), (3, 5, 150, 0.97, 0.1)],
)
def test_answers_fit_wherever_any_does(candidates, most, count, optimal, worst):
    gaps, binding, refused = [], 0, 0
    for seed in range(count):
        problem = limited(seed, candidates, most)
        every = [evaluate(problem, row.tolist()) for row in assignments(problem)]
        fitting = [outcome.cost for outcome in every if not outcome.overflow]
        if not fitting:
            with pytest.raises(PlacementError, match="memory limit"):
                solve(problem)
            refused += 1
            continue
        chosen = solve(problem).chosen
        assert not chosen.overflow
        assert chosen == evaluate(problem, chosen.owners)
        binding += min(outcome.cost for outcome in every) < min(fitting)
        gaps.append(chosen.cost / min(fitting) - 1 if min(fitting) else 0.0)
    assert (np.array(gaps) < 1e-9).mean() >= optimal
    assert max(gaps) <= worst
    assert binding > count / 12
    assert refused


def test_greedy_fits_wherever_it_can_and_is_greedy_where_it_fits():
    changed = 0
    for seed in range(200):
        problem = limited(seed, 2, 7)
        every = [evaluate(problem, row.tolist()) for row in assignments(problem)]
        first = [able[0] for able in problem.able]
        if all(outcome.overflow for outcome in every):
            continue
        chosen = first_choices(problem, first, Limits()).chosen
        assert not chosen.overflow
        if not evaluate(problem, first).overflow:
            assert chosen.owners == tuple(first)
        changed += chosen.owners != tuple(first)
    assert changed > 10


def test_large_budgets_change_nothing():
    for seed in range(60):
        problem = limited(seed, 2 + seed % 2, 30)
        free = dataclasses.replace(problem, budgets={})
        wide = dataclasses.replace(problem, budgets=dict.fromkeys(problem.budgets, 10**9))
        assert solve(wide).chosen == solve(free).chosen


def test_the_same_problem_gives_the_same_answer():
    def answer(problem: Problem) -> str:
        try:
            return str(solve(dataclasses.replace(problem)).chosen)
        except PlacementError as error:
            return str(error)

    for seed in range(20):
        problem = limited(seed, 2 + seed % 2, 30)
        assert answer(problem) == answer(problem)


def test_the_dearest_units_stay_where_room_is_short():
    """Ten units of 100 bytes each save 1 to 10 s on the device, which has room for four."""
    edges = [(unit - 1,) if unit else () for unit in range(10)]
    seconds = [(0.0, 1.0 + unit) for unit in range(10)]
    problem = problem_of(edges, seconds, (1, 0), FREE, sizes=[0] * 11)
    problem = dataclasses.replace(
        problem, weights=[weight(100, unit) for unit in range(10)], budgets={1: 400}
    )
    chosen = solve(problem).chosen
    assert chosen.owners == (1,) * 6 + (0,) * 4
    assert chosen.compute_seconds == sum(range(1, 7))


def test_thousands_of_units_fit():
    rng = random.Random(3)
    count = 3000
    edges = [(unit - 1,) if unit else () for unit in range(count)]
    seconds = [(1.0, float(rng.randint(2, 9))) for _ in range(count)]
    problem = problem_of(edges, seconds, (1, 0), FREE, sizes=[1] * (count + 1))
    weights = [weight(rng.randint(1, 1000), unit) for unit in range(count)]
    half = sum(item.nbytes for item in weights) // 2
    problem = dataclasses.replace(problem, weights=weights, budgets={1: half})
    chosen = solve(problem).chosen
    assert not chosen.overflow
    assert sum(taken(problem, chosen.owners)) > 0.8 * half
    classic = first_choices(problem, [0] * count, Limits()).chosen
    assert not classic.overflow
    assert chosen.cost < classic.cost


# ------------------------------------------------------------ graphs, rules, words


SPEED = DeviceSpeed(1e12, 1e12, 1e-6, 0.0, copy_seconds=1e-6, copy_bytes_per_second=1e12)
SLOW = DeviceSpeed(1e9, 1e9, 1e-6, 0.0)


def layers(count: int = 4) -> Graph:
    """x -> MatMul with a weight of 4,096 bytes, `count` times."""
    kind = tensor(1, 32)
    names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
    nodes = [op("MatMul", f"{names[i]} w{i}", names[i + 1]) for i in range(count)]
    weights = {
        f"w{i}": Initializer.from_array(f"w{i}", np.zeros((32, 32), np.float32))
        for i in range(count)
    }
    return graph_with(nodes, dict.fromkeys(names, kind), constants=weights)


def sides(npu=YES, cpu=YES, count: int = 4, **extra) -> list[Offer]:
    return [
        dataclasses.replace(offer("npu", DEVICE, [npu] * count, SPEED), **extra),
        offer("cpu", HOST_MEMORY, [cpu] * count, SLOW),
    ]


def providers(decision) -> list[str]:
    return [placement.provider for placement in decision.placements]


@pytest.mark.parametrize("strategy", ["cost", "greedy"])
def test_nodes_move_until_it_fits(strategy):
    rules = Rules(strategy, memory_limits={"npu": 9000})
    decision = decide(layers(), sides(), rules)
    assert providers(decision).count("npu") == 2
    assert decision.needs[DEVICE] == 2 * 4096 + 3 * 128
    assert decision.basis.endswith("; memory budget of npu")
    moved = [p.reason for p in decision.placements if p.provider == "cpu"]
    assert moved == ["memory budget of npu"] * 2
    unlimited = decide(layers(), sides(), Rules(strategy))
    assert providers(unlimited) == ["npu"] * 4
    assert unlimited.needs == {}


def test_greedy_fills_the_device_in_order():
    decision = decide(layers(), sides(), Rules("greedy", memory_limits={"npu": 9000}))
    assert providers(decision) == ["npu", "npu", "cpu", "cpu"]


def test_auto_without_known_costs_stays_greedy():
    offers = [dataclasses.replace(o, declared=False) for o in sides()]
    decision = decide(layers(), offers, Rules(memory_limits={"npu": 9000}))
    assert decision.strategy == "greedy"
    assert providers(decision) == ["npu", "npu", "cpu", "cpu"]
    assert decision.basis.endswith("; memory budget of npu")


def test_the_device_says_how_much_there_is_and_the_caller_may_say_otherwise():
    offers = sides(memory_bytes=9000)
    assert providers(decide(layers(), offers, Rules("cost"))).count("npu") == 2
    rules = Rules("cost", memory_limits={"npu": 10**6})
    assert providers(decide(layers(), offers, rules)) == ["npu"] * 4
    rules = Rules("cost", memory_limits={"npu": 0})
    assert providers(decide(layers(), offers, rules)) == ["cpu"] * 4


def test_what_earlier_graphs_need_is_taken():
    rules = Rules("cost", memory_limits={"npu": 9000}, taken={DEVICE: 4000})
    assert providers(decide(layers(), sides(), rules)).count("npu") == 1
    rules = Rules("cost", memory_limits={"npu": 9000}, taken={DEVICE: 10**6})
    assert providers(decide(layers(), sides(), rules)) == ["cpu"] * 4


def test_two_providers_in_one_memory_share_it():
    other = offer("gpu", DEVICE, [YES] * 4, SPEED)
    rules = Rules("cost", memory_limits={"npu": 9000, "gpu": 100_000})
    decision = decide(layers(), [*sides(), other], rules)
    assert providers(decision).count("cpu") == 2


@pytest.mark.parametrize("strategy", ["cost", "greedy", "auto"])
def test_a_limit_that_nothing_fits_is_an_error_that_names_both(strategy):
    rules = Rules(strategy, pin={"v1": "npu"}, memory_limits={"npu": 4000})
    with pytest.raises(PlacementError) as caught:
        decide(layers(), sides(), rules)
    text = str(caught.value)
    assert "memory limit of 'npu', 4000 bytes" in text
    assert "'v1' is pinned there and needs 4352 bytes" in text
    assert "4096 bytes of constants and 256 bytes of values" in text
    with pytest.raises(PlacementError, match="'v0' can run nowhere else"):
        decide(layers(), sides(cpu=NO), Rules(strategy, memory_limits={"npu": 4000}))


def test_a_limit_for_a_provider_in_host_memory_is_an_error():
    with pytest.raises(PlacementError, match="'cpu', which works in host memory"):
        decide(layers(), sides(), Rules("cost", memory_limits={"cpu": 4000}))


def test_a_limit_for_a_provider_that_is_not_there_is_an_error():
    rules = Rules("cost", memory_limits={"nqu": 4000})
    with pytest.raises(PlacementError, match=r"memory_limits names provider 'nqu'.*npu"):
        rules.resolved(layers(), {"npu": "npu", "cpu": "cpu"})
    found = Rules(memory_limits={"NPU": 5}).resolved(layers(), {"NPU": "npu:0"})
    assert found.memory_limits == {"npu:0": 5}


@pytest.mark.parametrize(
    "value", [5, {"npu": -1}, {"npu": 1.5}, {"npu": True}, {3: 5}, {"npu": "1 GiB"}, None]
)
def test_limits_that_are_none_are_errors(value):
    with pytest.raises(OptionError, match="memory_limits"):
        Rules(memory_limits=value)


def test_constants_of_bodies_count():
    inner = Initializer.from_array("k", np.zeros(50, np.float32))
    nodes = [op("Add", "c k", "d")]
    body = graph_with(nodes, {"c": tensor(50)}, inputs=(), outputs=("d",), constants={"k": inner})
    graph = graph_with(
        [op("If", "p", "y", then_branch=body, else_branch=body)],
        {"p": tensor(dtype=DataType.BOOL), "y": tensor(50)},
        inputs=("p",),
    )
    whole = offer("npu", DEVICE, [Support(True)])
    problem, _ = build(graph, [0], [whole], Wishes(), room={DEVICE: 5})
    assert [(item.nbytes, item.consumers) for item in problem.weights] == [(400, (0,))]
    assert problem.budgets == {1: 5}
    assert math.isinf(problem.seconds[0][1])
