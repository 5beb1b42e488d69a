"""Sessions with partners: who takes part, what they are given, and what they are held to."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from zoo_base import CorrectProvider, Plugin, factory_of, relu
from zoo_host import WrappingProvider

from ep_compliance.cases.case import Level
from ep_compliance.checks import all_checks, placement
from ep_compliance.driving.bench import Bench
from ep_compliance.driving.crowd import on_threads
from ep_compliance.driving.findings import Broken, NotClaimed
from ep_compliance.driving.growth import check_growth
from ep_compliance.driving.partners.mixed import numbers, right_answer
from ep_compliance.driving.partners.party import DEVICE_PARTNER, HOST_PARTNER, THE_TESTED, Party
from ep_compliance.driving.partners.sketches import Verb, sketch
from ep_compliance.running.collection import collect_jobs
from ep_compliance.running.outcomes import Outcome
from ep_core.contracts import Capability, Support
from ep_core.discovery.registry import registry
from ep_core.errors import CompileError, EpError, RunCancelledError
from ep_core.hookspecs import hookimpl
from ep_core.loading.load import load_model
from ep_core.types import DataType, TensorType
from ep_sdk import KernelTable
from ep_sdk.simulator import ep_provider_factory as simulator_factory

ADD = Verb("Add", 2, DataType.FLOAT, symbolic=True)
ALL = (THE_TESTED, HOST_PARTNER, DEVICE_PARTNER)
SESSIONS = [name for name in all_checks() if name.startswith(("placement/", "session/"))]


def bench_of(provider_class):
    factory = factory_of(provider_class)
    return Bench(factory, factory.devices()[0])


# ---------------------------------------------------------------- who takes part


@pytest.mark.parametrize("order", list(itertools.permutations(ALL)))
@pytest.mark.parametrize("own", [bench_of(CorrectProvider), None], ids=["host", "device"])
def test_everybody_gets_what_is_meant_for_them(own, order):
    simulator = simulator_factory()
    bench = own or Bench(simulator, simulator.devices()[0])
    with Party(bench) as party:
        model = party.model(placement._IN_TURN)
        with party.open(model, order) as mixed:
            runs = {p.node[0]: p.provider for p in mixed.placement.nodes[""]}
            assert runs == {"t": THE_TESTED, "p": HOST_PARTNER, "d": DEVICE_PARTNER}
            x = np.arange(9, dtype=np.float32).reshape(3, 3)
            # a = 2x, b = a+x, c = b+a, d = c+b, e = d+c, f = e+d, y = f+a
            y, e = mixed.run({"x": x})
            np.testing.assert_array_equal(e, 13 * x)
            np.testing.assert_array_equal(y, 23 * x)


def test_partners_are_gone_afterwards():
    before = {status.name for status in registry().providers()}
    with Party(bench_of(CorrectProvider)):
        assert {status.name for status in registry().providers()} > before
    assert {status.name for status in registry().providers()} == before


def test_the_right_answer_needs_no_provider():
    model = sketch(placement._ALTERNATING, ADD)
    x = np.ones((2, 2), np.float32)
    # a = 2, b = a+x, c = b+x, d = c+a, e = d+b, y = e+x
    assert right_answer(model, {"x": x})[0].tolist() == [[10, 10], [10, 10]]


# ---------------------------------------------------------------- sketches


def test_nodes_get_operators_and_names_in_bodies_too():
    graph = load_model(sketch(placement.LOOP, Verb("Neg", 1, DataType.INT32, True))).graph
    (loop,) = [node for node in graph.nodes if node.bodies]
    assert loop.name.startswith("c")
    body = {node.name[0]: node for node in loop.bodies["body"].nodes}
    assert body["t"].op_type == "Neg"
    assert len(body["t"].inputs) == 1
    assert graph.type_of("x").dtype is DataType.INT32
    whole = load_model(sketch(placement.LOOP, ADD, whole=True)).graph
    assert [node.name[0] for node in whole.nodes] == ["t", "t", "p"]


def test_lengths_are_fixed_for_who_must_know_them():
    fixed = load_model(sketch(placement._SCAN, Verb("Add", 2, DataType.FLOAT, False))).graph
    assert fixed.type_of("many") == TensorType(DataType.FLOAT, (4, 4, 4))
    free = load_model(sketch(placement._SCAN, ADD)).graph
    assert free.type_of("many") == TensorType(DataType.FLOAT, ("M", "N", "N"))


def test_convex_parts_of_a_lattice():
    """Held against the definition: no path leaves the part and comes back."""
    graph = load_model(sketch(placement._LATTICE, ADD)).graph
    edges = {
        (index, user)
        for index, node in enumerate(graph.nodes)
        for user in graph.consumers.get(node.outputs[0], ())
    }
    count = len(graph.nodes)
    paths = [
        path
        for size in range(2, count + 1)
        for path in itertools.combinations(range(count), size)
        if all(pair in edges for pair in itertools.pairwise(path))
    ]
    convex = {
        part
        for size in range(1, count + 1)
        for part in itertools.combinations(range(count), size)
        if not any(
            {path[0], path[-1]} <= set(part) and not set(path) <= set(part) for path in paths
        )
    }
    assert set(placement._convex_parts(graph)) == convex
    assert len(convex) < 2**count - 1


# ---------------------------------------------------------------- providers of all kinds


def _only(op_type, function):
    """A provider of one operator."""
    table = KernelTable({"": 28})

    @table.kernel(op_type, types={"T": frozenset({DataType.FLOAT})})
    def make(node):
        return function

    return type("Only", (CorrectProvider,), {"table": table})


class Static(CorrectProvider):
    """Must know every length beforehand, as many compilers do."""

    def get_capability(self, graph):
        claims = super().get_capability(graph).nodes
        return Capability(
            tuple(
                claim
                if all(_is_static(graph.type_of(name)) for name in node.inputs)
                else Support(False, "lengths are unknown")
                for node, claim in zip(graph.nodes, claims, strict=True)
            )
        )


def _is_static(kind):
    return isinstance(kind, TensorType) and kind.static_shape is not None


@pytest.mark.parametrize("identifier", SESSIONS)
@pytest.mark.parametrize(
    ("provider_class", "unsupported"),
    [
        (_only("Relu", relu), {"placement/whole-bodies", "session/own-faults"}),
        (_only("MatMul", np.matmul), {"placement/whole-bodies"}),
        (Static, {"placement/whole-bodies", "session/own-faults"}),
        (_only("Erf", np.sign), set(SESSIONS)),
    ],
    ids=["unary", "products", "static", "odd"],
)
def test_what_a_provider_lacks_is_not_held_against_it(provider_class, unsupported, identifier):
    outcome, reason = all_checks()[identifier].judge(bench_of(provider_class))
    lacks = identifier in unsupported
    assert outcome is (Outcome.UNSUPPORTED if lacks else Outcome.PASS), reason


class CantCompileTwo(CorrectProvider):
    def compile(self, subgraph):
        if len(subgraph.nodes) > 1:
            raise CompileError("one at a time")
        return super().compile(subgraph)


class Fickle(CorrectProvider):
    """Says yes in bodies every other time."""

    asked = 0

    def get_capability(self, graph):
        self.asked += 1
        if graph.name != "body" or self.asked % 2:
            return super().get_capability(graph)
        return Capability((Support(False, "not now"),) * len(graph.nodes))


class CantClose(CorrectProvider):
    def close(self):
        super().close()
        raise OSError("stuck")


@pytest.mark.parametrize(
    ("provider_class", "identifier", "saying"),
    [
        (CantCompileTwo, "placement/graphs", "tested: compile failed: CompileError: one at a time"),
        (Fickle, "placement/bodies", "get_capability is impure: asked twice about 'body'"),
        (CantClose, "placement/two-providers", "OSError: stuck"),
    ],
)
def test_what_a_provider_does_is(provider_class, identifier, saying):
    outcome, reason = all_checks()[identifier].judge(bench_of(provider_class))
    assert outcome is Outcome.FAIL
    assert saying in reason


def test_the_provider_s_own_passes_run_in_its_regions():
    seen = []

    class Pass:
        name = "Seen"

        def __call__(self, graph):
            seen.append([node.name[0] for node in graph.nodes])
            return graph

    class WithPasses(Plugin):
        @hookimpl
        def ep_graph_passes(self):
            return [Pass()]

    plugin = WithPasses(CorrectProvider, "zoo")
    registry().register(plugin, name="zoo")
    try:
        factory = registry().factory("zoo")
        outcome = all_checks()["placement/two-providers"].judge(
            Bench(factory, factory.devices()[0])
        )
    finally:
        registry().unregister("zoo")
    assert outcome == (Outcome.PASS, "")
    assert seen
    assert all(names == ["t"] for names in seen)


# ---------------------------------------------------------------- what checks lean on


def test_a_run_that_does_not_end_as_told_is_a_finding():
    with Party(bench_of(CorrectProvider)) as party:
        model = party.model(placement._ALTERNATING)
        with party.open(model) as mixed:
            feeds = numbers(model, 1)
            with pytest.raises(Broken, match="it raises nothing, expected EpError"):
                mixed.check_ends(feeds, EpError, "it")
            with (
                party.interrupted(lambda: 1 // 0),
                pytest.raises(Broken, match=r"raises RunError.*expected RunCancelledError"),
            ):
                mixed.check_ends(feeds, RunCancelledError, "it")
            mixed.check(feeds, "afterwards")


def test_growth_is_found_and_nothing_else():
    kept = []
    with pytest.raises(Broken, match=r"50 things leave .* bytes of memory allocated"):
        check_growth(None, lambda: kept.append(bytes(2000)), 50, "things")
    check_growth(None, lambda: bytes(2000), 50, "things")


def test_the_first_finding_of_many_threads_is_told():
    def work(number):
        if number == 1:
            raise NotClaimed("no such thing")

    with pytest.raises(NotClaimed, match="no such thing"):
        on_threads(work, 3)
    with pytest.raises(Broken, match="ZeroDivisionError"):
        on_threads(lambda number: 1 // 0, 1)


def test_levels_of_checks(monkeypatch):
    monkeypatch.setattr("ep_compliance.running.collection._cases", lambda *_: ())
    by_level = {level: {job.id for job in collect_jobs(level)} for level in Level}
    assert "memory/every-address" not in by_level[Level.MUSTPASS]
    assert "memory/every-address" in by_level[Level.FULL]
    soak = {name for name in by_level[Level.SOAK] if name.startswith("soak/")}
    assert len(soak) == 3
    assert not soak & by_level[Level.FULL]


def test_memory_of_a_session_is_watched():
    """A provider whose device memory isn't given back at the end of a session is found."""
    from zoo_placement import WrappingDevice

    class Leaks(WrappingDevice):
        class wrapper(WrappingProvider.wrapper):  # noqa: N801
            def close(self):
                self.provider.allocator.allocate((8,), DataType.FLOAT)
                super().close()

    simulator = simulator_factory()
    factory = type(simulator)(simulator.info, simulator.devices, Leaks)
    bench = Bench(factory, factory.devices()[0])
    outcome, reason = all_checks()["placement/two-providers"].judge(bench)
    assert outcome is Outcome.FAIL
    assert "bytes of device memory stay in use when all else is closed" in reason
