"""Placement: who gets which node and why, and that partitions can be run one after the other."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ep_core.contracts import Capability, FusedGroup, ProviderFeatures, Support
from ep_core.errors import PlacementError
from ep_core.graph import Graph, Node, ValueInfo
from ep_core.partition import CORE, Candidate, partition
from ep_core.placement.rules import Rules
from ep_core.report import CopyReport, PlacementReport
from ep_core.types import (
    HOST_MEMORY,
    DataType,
    DeviceInfo,
    MemoryInfo,
    MemoryKind,
    OpSet,
    SequenceType,
    TensorType,
)

FLOATS = TensorType(DataType.FLOAT, (2,))
CPU = DeviceInfo("a", "0", "cpu")
DEVICE = MemoryInfo("b:0", MemoryKind.DEVICE)


@dataclass
class Answering:
    """The part of a provider that placement looks at: it supports the given node names."""

    supported: set[str]
    features: ProviderFeatures = field(default_factory=ProviderFeatures)
    memory: MemoryInfo = HOST_MEMORY
    answer: object = None
    device: DeviceInfo = CPU

    def get_capability(self, graph):
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is not None:
            return self.answer
        return Capability(
            tuple(
                Support(True, cost=0.5) if node.name in self.supported else Support(False, "can't")
                for node in graph.nodes
            )
        )


def candidate(name: str, supported, grant=lambda graph, node: (True, ""), **settings) -> Candidate:
    return Candidate(name, Answering(set(supported), **settings), grant)


def graph_of(edges: list[tuple[int, ...]], outputs: list[int] | None = None) -> Graph:
    """Node i reads the outputs of the nodes in edges[i], or the graph's input."""
    nodes = tuple(
        Node(f"n{i}", "Op", "", 1, tuple(f"v{j}" for j in reads) or ("x",), (f"v{i}",))
        for i, reads in enumerate(edges)
    )
    wanted = range(len(edges)) if outputs is None else outputs
    return Graph(
        name="g",
        inputs=(ValueInfo("x", FLOATS),),
        outputs=tuple(ValueInfo(f"v{i}", FLOATS) for i in wanted),
        nodes=nodes,
        initializers={},
        opsets=OpSet({"": 17}),
        values={"x": ValueInfo("x", FLOATS)},
    )


def test_the_first_in_order_wins_and_reasons_are_kept():
    graph = graph_of([(), (0,), (1,)])
    result = partition(graph, [candidate("a", {"n1"}), candidate("b", {"n0", "n1", "n2"})])
    by_name = {p.node: p for p in result.placements}
    assert [by_name[f"n{i}"].provider for i in range(3)] == ["b", "a", "b"]
    assert by_name["n1"].runner_up == "b"
    assert by_name["n1"].cost == 0.5
    assert by_name["n0"].refusals == {"a": "can't"}
    assert [spec.indices for spec in result.specs] == [(0,), (1,), (2,)]


def test_nodes_that_no_output_needs_are_left_out():
    result = partition(graph_of([(), (0,), (0,)], outputs=[1]), [candidate("a", {"n0", "n1"})])
    assert {p.node for p in result.placements} == {"n0", "n1"}


def test_unplaced_nodes_are_listed_with_every_reason():
    graph = graph_of([()] * 8)
    with pytest.raises(PlacementError) as caught:
        partition(graph, [candidate("a", set()), candidate("b", {"n7"})])
    text = str(caught.value)
    assert "7 node(s)" in text
    assert "a: can't; b: can't" in text
    assert "and 2 more" in text


def test_control_flow_that_nobody_takes_is_the_cores():
    body = graph_of([()]).replace(inputs=())
    node = Node("if", "If", "", 16, ("x",), ("v0",), {"then_branch": body, "else_branch": body})
    graph = graph_of([()]).replace(nodes=(node,))
    undeclared = candidate("a", {"if"})
    result = partition(graph, [undeclared])
    assert result.placements[0].provider == CORE
    assert "control_flow" in result.placements[0].refusals["a"]
    declared = candidate("a", {"if"}, features=ProviderFeatures(control_flow=True))
    assert partition(graph, [declared]).placements[0].provider == "a"


def test_sequences_need_a_host_provider_that_declares_them():
    graph = graph_of([(), ()])
    graph = graph.replace(
        values={"v0": ValueInfo("v0", SequenceType(FLOATS)), "v1": ValueInfo("v1", FLOATS)}
    )
    both = {"n0", "n1"}
    device = MemoryInfo("dev:0", HOST_MEMORY.kind.DEVICE)
    able = ProviderFeatures(non_tensor_values=True)
    for refused in (
        candidate("a", both),
        candidate("a", both, features=able, memory=device),
    ):
        result = partition(graph, [refused, candidate("b", both, features=able)])
        assert [p.provider for p in result.placements] == ["b", "a"]
        assert "non_tensor_values" in result.placements[0].refusals["a"]


def test_a_certificate_that_does_not_grant_refuses():
    def grant(graph, node):
        return node.name != "n0", "uncertified: no certificate of 'a' grants it"

    result = partition(
        graph_of([(), ()]), [candidate("a", {"n0", "n1"}, grant), candidate("b", {"n0"})]
    )
    assert [p.provider for p in result.placements] == ["b", "a"]
    assert result.placements[0].refusals == {"a": "uncertified: no certificate of 'a' grants it"}


def test_earlier_refusals_hold():
    both = {"n0", "n1"}
    result = partition(
        graph_of([(), ()]),
        [candidate("a", both), candidate("b", both)],
        {("a", "n1"): "compile failed: x"},
    )
    assert [p.provider for p in result.placements] == ["a", "b"]
    assert result.placements[1].refusals == {"a": "compile failed: x"}


YES = Support(True)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (RuntimeError("boom"), "raised RuntimeError: boom"),
        ("nonsense", "returned str"),
        (Capability((YES,)), "1 answers for 2 nodes"),
        (Capability((YES, None)), "not a Support"),  # type: ignore[arg-type]
        (Capability((YES, YES), [FusedGroup((0, 1))]), "no tuple"),  # type: ignore[arg-type]
        (Capability((YES, YES), ((0, 1),)), "not a FusedGroup"),  # type: ignore[arg-type]
        (Capability((YES, YES), (FusedGroup([0, 1]),)), "not a FusedGroup"),  # type: ignore[arg-type]
        (Capability((YES, YES), (FusedGroup(("a", "b")),)), "of positions"),  # type: ignore[arg-type]
        (Capability((YES, YES), (FusedGroup((0,)),)), "two positions or more"),
        (Capability((YES, YES), (FusedGroup((1, 0)),)), "ascending"),
        (Capability((YES, YES), (FusedGroup((0, 2)),)), "isn't there"),
        (Capability((YES, YES), (FusedGroup((-1, 0)),)), "isn't there"),
        (Capability((YES, Support(False, "no")), (FusedGroup((0, 1)),)), "was refused"),
        (Capability((YES, YES), (FusedGroup((0, 1)), FusedGroup((0, 1)))), "shares a node"),
    ],
)
def test_a_broken_capability_costs_only_its_provider(answer, words):
    graph = graph_of([(), ()])
    broken = candidate("a", set(), answer=answer)
    result = partition(graph, [broken, candidate("b", {"n0", "n1"})])
    assert {p.provider for p in result.placements} == {"b"}
    assert words in result.placements[0].refusals["a"]


def test_groups_reach_the_placement_but_for_those_that_lost_a_node():
    def grant(graph, node):
        return node.name != "n2", "uncertified"

    graph = graph_of([(), (0,), (1,), (2,)])
    groups = (FusedGroup((0, 1), 0.1), FusedGroup((2, 3), 0.1))
    answer = Capability((Support(True, cost=0.5),) * 4, groups)
    fusing = candidate("a", set(), grant, answer=answer)
    result = partition(graph, [fusing, candidate("b", {f"n{i}" for i in range(4)})])
    assert ["fused" in placed.reason for placed in result.placements] == [True, True, False, False]


def test_alternating_chain_and_islands_need_few_partitions():
    # two chains a-b and b-a that don't touch: three partitions are enough
    graph = graph_of([(), (0,), (), (2,)])
    on_a, on_b = {"n0", "n3"}, {"n1", "n2"}
    result = partition(graph, [candidate("a", on_a), candidate("b", on_b)])
    assert len(result.specs) == 3


@st.composite
def random_case(draw):
    count = draw(st.integers(1, 14))
    edges = []
    for i in range(count):
        reads = draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set()
        edges.append(tuple(sorted(reads)))
    owners = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    outputs = draw(st.sets(st.integers(0, count - 1), min_size=1))
    return edges, owners, sorted(outputs)


@settings(max_examples=300, deadline=None)
@given(random_case())
def test_partitions_are_an_order_of_execution(case):
    edges, owners, outputs = case
    graph = graph_of(edges, outputs)
    candidates = [
        candidate(name, {f"n{i}" for i, owner in enumerate(owners) if owner == position})
        for position, name in enumerate("abc")
    ]
    result = partition(graph, candidates)
    needed = set()
    pending = list(outputs)
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending.extend(edges[node])
    ran: list[int] = []
    for spec in result.specs:
        own = set(spec.indices)
        for index in spec.indices:
            assert owners[index] == "abc".index(spec.candidate.name)
            assert all(read in own or read in ran for read in edges[index])
        ran.extend(spec.indices)
    assert sorted(ran) == sorted(needed)
    names = [spec.candidate.name for spec in result.specs]
    assert all(one != two for one, two in itertools.pairwise(names))
    assert partition(graph, candidates).specs == result.specs


@pytest.mark.parametrize("cost", [math.nan, math.inf, -1.0, -0.5, 1e300, 10**400])
def test_an_estimate_that_cant_be_is_none(cost):
    graph = graph_of([(), (0,)])
    answer = Capability((Support(True, cost=cost),) * 2, (FusedGroup((0, 1), cost),))
    found = partition(graph, [candidate("a", (), answer=answer)], rules=Rules("cost"))
    assert [placed.cost for placed in found.placements] == [None, None]
    assert 0 <= found.decision.seconds < 1


@pytest.mark.parametrize(
    ("answers", "groups", "words"),
    [
        (None, (), "get_capability raised TypeError"),
        ((Support(True, cost="1"),) * 2, (), "reason or a cost"),
        ((Support(True, cost=[1.0]),) * 2, (), "reason or a cost"),
        ((Support(True, reason=5),) * 2, (), "reason or a cost"),
        ((Support(False, reason=None),) * 2, (), "reason or a cost"),
        ((Support(True),) * 2, (FusedGroup((0, 1), "1"),), "a cost that is no number"),
    ],
)
def test_an_answer_of_another_type_costs_a_provider_its_claims(answers, groups, words):
    graph = graph_of([(), (0,)])
    broken = candidate("a", (), answer=Capability(answers, groups))
    found = partition(graph, [broken, candidate("b", ["n0", "n1"])], rules=Rules("cost"))
    assert [placed.provider for placed in found.placements] == ["b", "b"]
    assert words in found.placements[0].refusals["a"]


@pytest.mark.parametrize("strategy", ["greedy", "cost"])
@pytest.mark.parametrize("shape", [(2**62,) * 20, (2**63 - 1,) * 64, (2**62, 0), (1,) * 500])
def test_no_shape_is_too_large_to_be_placed(shape, strategy):
    graph = graph_of([(), (0,)])
    kind = TensorType(DataType.FLOAT, shape)
    graph = graph.replace(values={name: ValueInfo(name, kind) for name in ("x", "v0", "v1")})
    offers = [candidate("a", ["n0"]), candidate("b", ["n1"], memory=DEVICE)]
    found = partition(graph, offers, rules=Rules(strategy))
    assert [placed.provider for placed in found.placements] == ["a", "b"]
    assert [copy.value for copy in found.decision.copies] in ([], ["v0", "v1"])


def test_a_report_tells_of_bytes_beyond_any_number():
    copy = CopyReport("", "v", "cpu/host", "b:0/device", 2**4000)
    assert "1 copy, " in PlacementReport(("a",), {"": ()}, (), (copy,)).summary
