"""Cheap producers that run twice: the plan is what was predicted, and never dearer than without."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from placement_problems import problem_of, random_problem
from test_placement_build import DEVICE, NO, YES, graph_with, offer, op, tensor
from test_planner import Compiled, Device, Host, on

from ep_core.errors import PlacementError
from ep_core.graph import Graph, Initializer, Subgraph, ValueInfo
from ep_core.placement.build import Offer, Wishes, build
from ep_core.placement.cloning import cloned
from ep_core.placement.decide import decide
from ep_core.placement.objective import Outcome, evaluate
from ep_core.placement.place import place
from ep_core.placement.problem import NO_UNIT, Problem, Route, Tensor
from ep_core.placement.roofline import Sizes
from ep_core.placement.rules import Rules
from ep_core.placement.solve import Limits, solve
from ep_core.placement.units import is_clonable
from ep_core.running.plan import Copy
from ep_core.running.planner import Planner
from ep_core.types import HOST_MEMORY, DataType, DeviceSpeed, SequenceType, TensorType

# ------------------------------------------------------------ against the best there is


def with_clones(problem: Problem, owners, clones) -> Outcome:
    """What a placement with clones (unit and candidate) comes to; readers there read the clone."""
    owners, tensors, seconds = list(owners), list(problem.tensors), list(problem.seconds)
    count = len(owners)
    for unit, candidate in clones:
        for position, item in enumerate(problem.tensors):
            if unit in item.consumers:
                users = (*tensors[position].consumers, len(owners))
                tensors[position] = dataclasses.replace(tensors[position], consumers=users)
        row = problem.seconds[unit]
        seconds.append(tuple(c if at == candidate else math.inf for at, c in enumerate(row)))
        owners.append(candidate)
    place_of = [problem.memory_of[owner] for owner in owners]
    made = {item.producer: at for at, item in enumerate(problem.tensors)}
    for clone, (unit, candidate) in enumerate(clones, count):
        item = tensors[made[unit]]
        there = problem.memory_of[candidate]
        taken = tuple(user for user in item.consumers if place_of[user] == there)
        left = tuple(user for user in item.consumers if place_of[user] != there)
        tensors[made[unit]] = dataclasses.replace(item, consumers=left)
        tensors.append(dataclasses.replace(item, producer=clone, consumers=taken, output=False))
    extended = dataclasses.replace(
        problem, names=[""] * len(owners), seconds=seconds, tensors=tensors
    )
    return evaluate(extended, owners)


def optimum_with_clones(problem: Problem) -> float:
    """By trying every assignment with every set of clones, at most one for each memory."""
    best = math.inf
    for owners in itertools.product(*problem.able):
        choices = []
        for unit in sorted(problem.clonable):
            by_memory: dict[int, list[int | None]] = {}
            for candidate in problem.able[unit]:
                memory = problem.memory_of[candidate]
                if memory != problem.memory_of[owners[unit]]:
                    by_memory.setdefault(memory, [None]).append(candidate)
            choices += [[(unit, c) for c in found] for found in by_memory.values()]
        for picked in itertools.product(*choices):
            clones = [(unit, c) for unit, c in picked if c is not None]
            best = min(best, with_clones(problem, owners, clones).cost)
    return best


def case(seed: int, candidates: int, most: int) -> Problem:
    """A random problem some of whose units are cheap and may be cloned."""
    problem = random_problem(seed, candidates, most)
    rng = random.Random(seed + 99)
    cheap = frozenset(u for u in range(len(problem.names)) if rng.random() < 0.4)
    rows = [
        tuple(c if c == math.inf else rng.choice([0.0, 0.5, 1.0]) for c in row)
        if unit in cheap
        else row
        for unit, row in enumerate(problem.seconds)
    ]
    return dataclasses.replace(problem, clonable=cheap, seconds=rows)


@pytest.mark.parametrize(
    ("candidates", "most", "count", "optimal", "mean", "least"),
    [(2, 5, 200, 0.99, 1e-3, 1), (3, 4, 60, 0.98, 1e-3, 0)],
)
def test_answers_with_clones_are_close_to_the_best(candidates, most, count, optimal, mean, least):
    gaps, used = [], 0
    for seed in range(count):
        problem = case(seed, candidates, most)
        solution = solve(problem)
        without = solve(dataclasses.replace(problem, clonable=frozenset()))
        best = optimum_with_clones(problem)
        assert best <= solution.chosen.cost * (1 + 1e-12)
        assert solution.chosen.cost <= without.chosen.cost
        assert solution.chosen.cost <= solution.greedy.cost
        assert evaluate(solution.problem, solution.chosen.owners) == solution.chosen
        used += bool(solution.origins)
        gaps.append(solution.chosen.cost / best - 1 if best else 0.0)
    assert (np.array(gaps) < 1e-9).mean() >= optimal
    assert np.mean(gaps) <= mean
    assert used >= least


@pytest.mark.parametrize(("seed", "most"), [(531, 4), (507, 4), (50, 5)])
def test_units_move_where_that_pays_only_with_clones_for_them(seed, most):
    """Without clones each of these placements is best as it is, and 14 to 290 % dearer."""
    problem = case(seed, 3, most)
    solution = solve(problem)
    assert solution.origins
    assert solution.chosen.cost == pytest.approx(optimum_with_clones(problem), rel=0.02)


def test_larger_graphs_keep_their_promises_with_clones():
    used = 0
    for seed in range(24):
        problem = case(seed, 2 + seed % 2, 60)
        solution = solve(problem)
        assert solution.chosen.cost <= solution.greedy.cost
        assert evaluate(solution.problem, solution.chosen.owners) == solution.chosen
        used += len(solution.origins)
        clones = solution.chosen.owners[len(problem.names) :]
        for unit, candidate in zip(solution.origins, clones, strict=True):
            assert unit in problem.clonable
            assert candidate in problem.able[unit]
            home = problem.memory_of[solution.chosen.owners[unit]]
            assert problem.memory_of[candidate] != home
    assert used > 10


def digest() -> str:
    found = []
    for seed in range(20):
        solution = solve(case(seed, 2 + seed % 2, 30))
        found.append((solution.chosen.owners, solution.origins, solution.chosen.cost))
    return json.dumps(found)


def test_the_same_problem_gives_the_same_clones():
    code = "import test_placement_clones as t; print(t.digest())"
    environment = {**os.environ, "PYTHONHASHSEED": "3"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == digest()


def test_limits_count_with_clones():
    for seed in range(60):
        problem = case(seed, 2, 10)
        with contextlib.suppress(PlacementError):
            assert solve(problem, Limits(max_partitions=2)).chosen.partitions <= 2


# ------------------------------------------------------------ by hand


DEAR = {(0, 1): Route(10.0, 1e9), (1, 0): Route(10.0, 1e9)}


def test_a_producer_runs_on_both_sides_of_what_both_have():
    """x is fed and read on the device: a cheap reader of it is cloned instead of copied."""
    edges = [(), (), (0, 1), (1,)]  # n1 is cheap; n2 on the device and n3 on the host read it
    seconds = [(0.0, 99.0), (0.5, 0.5), (0.0, 99.0), (99.0, 0.0)]
    problem = problem_of(edges, seconds, (1, 0), DEAR, outputs=[])
    plain = solve(problem)
    # x goes there, n2's result back, and n1's one way
    assert plain.chosen.seconds == pytest.approx(10 + 0.5 + 10 + 10)
    solution = solve(dataclasses.replace(problem, clonable=frozenset({1})))
    assert solution.origins == (1,)
    assert solution.chosen.seconds == pytest.approx(10 + 0.5 + 0.5 + 10)


def test_constants_of_clones_take_memory():
    problem = problem_of(
        [(), (), (0, 1), (1,)],
        [(0.0, 99.0), (0.5, 0.5), (0.0, 99.0), (99.0, 0.0)],
        (1, 0),
        DEAR,
        weights=[Tensor("w", 100, NO_UNIT, (1,))],
        budgets={1: 10**6},
        clonable=frozenset({1}),
    )
    solution = solve(problem)
    assert solution.origins == (1,)
    (weight,) = solution.problem.weights
    assert weight.consumers == (1, 4)


def test_a_chain_comes_along_and_what_nobody_reads_any_more_moves():
    """n1 -> n2 -> n3 are cheap; n3 is read on the host, n1 on the device too, n2 by n3 alone."""
    edges = [(), (0,), (1,), (2,), (3,), (1, 0)]
    far = 99.0
    seconds = [(0.0, 0.0), (0.5, 0.5), (0.5, 0.5), (0.5, 0.5), (far, 0.0), (0.0, far)]
    problem = problem_of(edges, seconds, (1, 0), DEAR, outputs=[0])
    problem = dataclasses.replace(problem, clonable=frozenset({1, 2, 3}))
    start = evaluate(problem, [0, 0, 0, 0, 1, 0])
    found = cloned(problem, start)
    assert found.origins == (1,)
    assert found.outcome.owners == (0, 0, 1, 1, 1, 0, 1)
    assert found.outcome.cost == pytest.approx(start.cost - 10 + 0.5)


# ------------------------------------------------------------ which nodes


def test_which_nodes_may_run_twice():
    ints, big = tensor(4, dtype=DataType.INT64), tensor(64, 64)
    kinds = {
        **dict.fromkeys(("s", "c", "g", "m", "k", "n"), ints),
        **dict.fromkeys(("x", "b", "r", "f", "z"), big),
        "t": TensorType(DataType.STRING, (1,)),
        "q": SequenceType(big),
    }
    nodes = {
        op("Shape", "x", "s"): True,
        op("ConstantOfShape", "s", "z"): True,
        op("Gather", "s i", "g"): True,
        op("Cast", "s", "c"): True,
        op("Cast", "x", "b"): False,  # large
        op("Mul", "s s", "m"): True,
        op("Mul", "x x", "f"): False,  # floats round
        op("RandomNormal", "", "r"): False,
        op("Cast", "s", "t"): False,  # strings
        op("Shape", "x", "k", domain="my"): False,
        op("Identity", "v", "q"): False,
        op("Shape", "x", "unknown"): False,
        op("Gather", "table i", "n"): False,  # it would bring a large constant along
    }
    table = Initializer.from_array("table", np.zeros((2048,), np.int64))
    graph = graph_with(list(nodes), kinds, constants={"table": table})
    sizes = Sizes(graph, {})
    found = {node: is_clonable(graph, at, sizes) for at, node in enumerate(graph.nodes)}
    assert found == nodes


def test_what_a_body_captures_is_not_cloned():
    body = graph_with([op("Relu", "s", "w")], {}, inputs=(), outputs=("w",))
    nodes = [op("Shape", "x", "s"), op("If", "p", "y", then_branch=body, else_branch=body)]
    graph = graph_with(nodes, {"s": tensor(2, dtype=DataType.INT64)}, inputs=("x", "p"))
    assert not is_clonable(graph, 0, Sizes(graph, {}))


# ------------------------------------------------------------ graphs


def shaped() -> Graph:
    """Shape(x) is read on both sides: by Expand on the device, by Gather on the host."""
    ints = tensor(2, dtype=DataType.INT64)
    kinds = {
        **dict.fromkeys(("x", "a", "e", "y"), tensor(2, 4)),
        **dict.fromkeys(("s", "g", "z"), ints),
    }
    nodes = [
        op("Relu", "x", "a"),
        op("Shape", "x", "s"),
        op("Expand", "a s", "e"),
        op("Gather", "s i", "g"),
        op("Bucket", "g", "z"),
        op("Neg", "e", "y"),
    ]
    return graph_with(nodes, kinds, inputs=("x", "i"), outputs=("y", "z"))


SPEED = DeviceSpeed(1e12, 1e12, 1e-6, 0.0, copy_seconds=1e-3, copy_bytes_per_second=1e12)


def sides() -> list[Offer]:
    """A device that has Relu, Shape, Expand and Neg; a host that has the rest and Shape."""
    there = [YES, YES, YES, NO, NO, YES]
    here = [NO, YES, NO, YES, YES, NO]
    return [offer("npu", DEVICE, there, SPEED), offer("cpu", HOST_MEMORY, here, SPEED)]


def test_a_clone_is_a_node_of_its_own():
    decision = decide(shaped(), sides(), Rules("cost"))
    assert decision.clones == {"s (copy for cpu)": "s"}
    graph = decision.graph
    names = [node.name for node in graph.nodes]
    assert names == ["a", "s", "s (copy for cpu)", "e", "g", "z", "y"]
    assert graph.nodes[2].inputs == ("x",)
    assert graph.nodes[2].outputs == ("s (copy for cpu)",)
    assert graph.nodes[4].inputs == ("s (copy for cpu)", "i")
    assert graph.nodes[3].inputs == ("a", "s")
    assert graph.type_of("s (copy for cpu)") == graph.type_of("s")
    placement = decision.placements[2]
    assert (placement.node, placement.op_type, placement.provider) == (names[2], "Shape", "cpu")
    assert placement.reason == "a copy of 's', so that its result needn't be copied"
    assert decision.indices == (0, 1, 1, 2, 3, 4, 5)
    assert [copy.value for copy in decision.copies] == ["x", "y"]
    assert decision.partitions == ((0, (0, 1, 3, 6)), (1, (2, 4, 5)))


def test_greedy_has_no_clones():
    decision = decide(shaped(), sides(), Rules("greedy"))
    assert decision.clones == {}
    assert [node.name for node in decision.graph.nodes] == ["a", "s", "e", "g", "z", "y"]
    assert [copy.value for copy in decision.copies] == ["x", "s", "y"]


def test_a_name_that_is_taken_is_not_taken_again():
    graph = shaped()
    nodes = [n.replace(name="s (copy for cpu)") if n.name == "a" else n for n in graph.nodes]
    decision = decide(graph.replace(nodes=tuple(nodes)), sides(), Rules("cost"))
    assert decision.clones == {"s (copy 2 for cpu)": "s"}


def test_a_pinned_node_runs_once():
    decision = decide(shaped(), sides(), Rules("cost", pin={"s": "npu"}))
    assert decision.clones == {}


def random_shapes(rng: random.Random) -> Graph:
    """Nodes of a few operators, some cheap, over small and large values; all outputs are used."""
    small, large = tensor(2, dtype=DataType.INT64), tensor(16, 16)
    kinds = {"x": large}
    nodes = []
    for index in range(rng.randint(4, 14)):
        known = list(kinds)
        name = f"v{index}"
        kind = rng.choice(["Shape", "Cast", "Gather", "Relu", "Add", "Bucket"])
        reads = [rng.choice(known)]
        if kind in ("Add", "Gather"):
            reads.append(rng.choice(known))
        nodes.append(op(kind, " ".join(reads), name))
        kinds[name] = small if kind in ("Shape", "Cast", "Gather") else large
    read = {name for node in nodes for name in node.inputs}
    ends = [node.outputs[0] for node in nodes if node.outputs[0] not in read]
    outputs = tuple(dict.fromkeys([*ends, *(n for n in kinds if n != "x" and rng.random() < 0.1)]))
    return graph_with(nodes, kinds, outputs=outputs)


def test_copies_of_a_plan_with_clones_are_those_predicted():
    """Byte for byte, on random graphs with two devices and the host."""
    clones = copies = 0
    for seed in range(250):
        rng = random.Random(seed)
        graph = random_shapes(rng)
        count = len(graph.nodes)
        candidates = [
            on("p0", Device("p0", set(), streams=rng.random() < 0.5)),
            on("p1", Device("p1", set(), streams=False)),
            on("p2", Host(set())),
        ]
        offers = []
        for number, candidate in enumerate(candidates):
            answers = [
                YES if node.op_type in ("Shape", "Cast") or at % 3 == number else NO
                for at, node in enumerate(graph.nodes)
            ]
            offers.append(Offer(candidate.name, candidate.provider.memory, SPEED, answers))
        placed = place(graph, range(count), offers)
        clones += len(placed.graph.nodes) - count
        planner = Planner(placed.graph, candidates, [])
        for candidate, indices in placed.partitions:
            subgraph = Subgraph.cut(placed.graph, indices)
            compiled = Compiled([False] * len(subgraph.outputs))
            planner.add_run(subgraph, compiled, candidates[candidate])
        planned = Counter(
            (step.value, step.hop.source, step.hop.target, step.nbytes)
            for step in planner.finish().steps
            if isinstance(step, Copy)
        )
        predicted = Counter((c.value, c.source, c.target, c.nbytes) for c in placed.copies)
        assert planned == predicted, seed
        copies += len(placed.copies)
        made: set[str] = {"x"}
        for node in placed.graph.nodes:
            assert made.issuperset(node.reads), seed
            made.update(node.outputs)
        assert len({node.name for node in placed.graph.nodes}) == len(placed.graph.nodes)
    assert clones > 20
    assert copies > 100


def test_problems_of_graphs_know_what_may_be_cloned():
    problem, units = build(shaped(), range(6), sides(), Wishes())
    assert {shaped().nodes[units[unit][0]].name for unit in problem.clonable} == {"s", "e", "g"}
    values = {**shaped().values, "s": ValueInfo("s")}
    problem, _ = build(shaped().replace(values=values), range(6), sides(), Wishes())
    assert len(problem.clonable) == 2
