"""What a placement costs: by hand for small ones, and copy for copy as plans have it."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from placement_problems import problem_of, random_edges
from test_partition import graph_of
from test_planner import Compiled, Device, Host, on

from ep_core.contracts import Support
from ep_core.graph import Graph, Node, Subgraph, ValueInfo
from ep_core.memory import direct_hop
from ep_core.placement.build import CORE, Offer, Wishes
from ep_core.placement.objective import evaluate
from ep_core.placement.place import place
from ep_core.placement.problem import Route
from ep_core.placement.roofline import assumed_speed
from ep_core.running.control_flow import Body
from ep_core.running.plan import Copy
from ep_core.running.planner import Planner
from ep_core.types import HOST_MEMORY, DataType, OpSet, TensorType

THERE, BACK = Route(1.0, 10.0), Route(2.0, 100.0)
ROUTES = {(0, 1): THERE, (1, 0): BACK}


def test_a_sum_by_hand():
    """x -> n0 on the host -> n1, n2 on the device -> n3 on the host, which is an output."""
    edges = [(), (0,), (0, 1), (2,)]
    seconds = [(1.0, 90.0), (90.0, 2.0), (90.0, 4.0), (8.0, 90.0)]
    problem = problem_of(edges, seconds, (0, 1), ROUTES, start=0.5, sizes=[1, 20, 1, 300, 1])
    outcome = evaluate(problem, [0, 1, 1, 0])
    assert [batch.units for batch in outcome.batches] == [(0,), (1, 2), (3,)]
    assert outcome.copies == ((1, 0, 1), (3, 1, 0))  # t0 once for both readers, t2 back
    assert outcome.compute_seconds == 15.0
    assert outcome.copy_seconds == (1 + 20 / 10) + (2 + 300 / 100)
    assert outcome.seconds == outcome.cost == 15.0 + 8.0 + 3 * 0.5


def test_inputs_and_outputs_are_in_host_memory():
    problem = problem_of([()], [(1.0, 1.0)], (0, 1), ROUTES)
    assert evaluate(problem, [1]).copies == ((0, 0, 1), (1, 1, 0))
    assert evaluate(problem, [0]).copies == ()


def test_candidates_that_share_a_memory_need_no_copy():
    problem = problem_of([(), (0,)], [(1.0, 1.0)] * 2, (1, 1), ROUTES)
    assert evaluate(problem, [0, 1]).copies == ((0, 0, 1), (2, 1, 0))


def test_a_bias_counts_in_comparisons_and_not_in_predictions():
    problem = problem_of([()], [(1.0, 2.0)], (0, 0), {}, bias=[(5.0, 0.0)])
    outcome = evaluate(problem, [0])
    assert (outcome.seconds, outcome.cost) == (1.0, 6.0)
    assert problem.costs == [(6.0, 2.0)]


# ------------------------------------------------------------ what plans do


def random_graph(rng: random.Random) -> tuple[Graph, list[tuple[int, ...]]]:
    edges = random_edges(rng, rng.randint(1, 12))
    outputs = sorted(rng.sample(range(len(edges)), rng.randint(1, len(edges))))
    graph = graph_of(edges, outputs)
    values = dict(graph.values)
    for index in range(len(edges)):
        length = rng.choice([1, 2, 5, None])
        values[f"v{index}"] = ValueInfo(f"v{index}", TensorType(DataType.INT16, (length,)))
    return graph.replace(values=values), edges


def needed(edges: list[tuple[int, ...]], graph: Graph) -> list[int]:
    pending = [graph.producers[name] for name in graph.output_names]
    found: set[int] = set()
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += edges[node]
    return sorted(found)


def random_providers(rng: random.Random):
    names = ["p0", "p1", "p2", "p3"]
    result = []
    for name in names:
        if rng.random() < 0.3:
            result.append(on(name, Host(set())))
        else:
            peers = [other for other in names if other != name and rng.random() < 0.4]
            result.append(on(name, Device(name, set(), streams=rng.random() < 0.5, direct=peers)))
    return result


def direct_pairs(candidates):
    """Pairs of devices between which the planner copies directly."""
    providers = [candidate.provider for candidate in candidates]
    devices = [p.memory for p in providers if p.memory != HOST_MEMORY]
    return [
        pair
        for pair in itertools.permutations(devices, 2)
        if direct_hop(*pair, providers) is not None
    ]


def test_predicted_copies_are_those_of_the_plan():
    counts: Counter[bool] = Counter()
    for seed in range(400):
        rng = random.Random(seed)
        graph, edges = random_graph(rng)
        live = needed(edges, graph)
        candidates = random_providers(rng)
        yes = [Support(True)] * len(edges)
        speed = assumed_speed("gpu")
        offers = [Offer(c.name, c.provider.memory, speed, yes) for c in candidates]
        pins = {index: f"p{rng.randrange(4)}" for index in live}
        placed = place(
            graph, live, offers, wishes=Wishes(pins=pins), direct=direct_pairs(candidates)
        )
        planner = Planner(graph, candidates, [])
        for candidate, indices in placed.partitions:
            subgraph = Subgraph.cut(graph, indices)
            compiled = Compiled([False] * len(subgraph.outputs))
            planner.add_run(subgraph, compiled, candidates[candidate])
        planned = Counter(
            (step.value, step.hop.source, step.hop.target, step.nbytes)
            for step in planner.finish().steps
            if isinstance(step, Copy)
        )
        predicted = Counter(
            (copy.value, copy.source, copy.target, copy.nbytes if copy.exact else None)
            for copy in placed.copies
        )
        assert planned == predicted, seed
        counts[bool(planned)] += 1
    assert counts[True] > 300


def test_control_flow_of_the_core_is_on_the_host():
    """If between two device nodes: its condition and capture come to the host, its result goes."""
    floats = TensorType(DataType.FLOAT, (2,))
    body = Graph(
        name="body",
        inputs=(),
        outputs=(ValueInfo("v0", floats),),
        nodes=(),
        initializers={},
        opsets=OpSet({"": 17}),
    )
    graph = graph_of([(), (0,), (1,)]).replace(outputs=(ValueInfo("v2", floats),))
    branches = {"then_branch": body, "else_branch": body}
    nodes = list(graph.nodes)
    nodes[1] = Node("n1", "If", "", 16, ("x",), ("v1",), branches)
    graph = graph.replace(nodes=tuple(nodes))
    device = on("dev", Device("dev", {"n0", "n2"}, streams=False))
    answers = [Support(True), Support(False, "no"), Support(True)]
    offer = Offer("dev", device.provider.memory, assumed_speed("gpu"), answers)
    placed = place(graph, [0, 1, 2], [offer])
    assert placed.partitions == ((0, (0,)), (1, (1,)), (0, (2,)))
    assert placed.notes[1].owner == 1 == len([offer])  # the core
    planner = Planner(graph, [device], [])
    for candidate, indices in placed.partitions:
        if candidate == 1:
            inner = Planner(body.replace(inputs=(ValueInfo("v0", floats),)), [device], [])
            plan = inner.finish()
            bodies = {name: Body(plan, ("v0",), (floats,)) for name in branches}
            planner.add_control_flow(graph.nodes[1], bodies)
        else:
            subgraph = Subgraph.cut(graph, indices)
            planner.add_run(subgraph, Compiled([False] * len(subgraph.outputs)), device)
    planned = [s.value for s in planner.finish().steps if isinstance(s, Copy)]
    assert Counter(planned) == Counter(copy.value for copy in placed.copies)
    assert planned == ["x", "v0", "v1", "v2"]
    assert CORE == "core"


@pytest.mark.parametrize("output", [False, True])
def test_the_second_copy_of_a_tensor_starts_where_the_planner_starts_it(output):
    """n0 on device 2, read on the host and then on device 1, which 2 reaches directly."""
    edges = [(), (0,), (0, 1)]
    routes = {(0, 1): THERE, (1, 0): BACK, (0, 2): THERE, (2, 0): BACK, (2, 1): THERE}
    outputs = [0] if output else []
    problem = problem_of(edges, [(1.0,) * 3] * 3, (1, 2, 0), routes, outputs=outputs)
    moves = [(s, t) for tensor, s, t in evaluate(problem, [1, 2, 0]).copies if tensor == 1]
    assert moves == [(2, 0), (0, 1)]  # it is on the host already
    moves = [(s, t) for tensor, s, t in evaluate(problem, [1, 0, 0]).copies if tensor == 1]
    assert moves == [(2, 1), (1, 0)] if output else [(2, 1)]
