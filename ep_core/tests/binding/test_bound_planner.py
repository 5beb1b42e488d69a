"""Plans for bound memory, checked by the interpreter of `test_planner` and by what slots hold.

On top of the order of work it follows which value lies in which slot and memory: a partition must
find its own inputs in its own memory, and each output must end where it is wanted, in a slot that
is nobody else's, with the caller's memory written and never released.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_partition import graph_of, random_case
from test_planner import FLOATS, KINDS, Compiled, Device, Host, Interpreter, device_of, on

from ep_core.binding.planner import BoundPlanner, CopyInto, Duplicate, Target, Wish
from ep_core.errors import ContractError
from ep_core.graph import Graph, Initializer, Subgraph, ValueInfo
from ep_core.partition import partition
from ep_core.running.plan import NO_STREAM, Copy, Run
from ep_core.types import HOST_MEMORY, DataType, MemoryInfo, MemoryKind, TensorType


def memory(name: str) -> MemoryInfo:
    return HOST_MEMORY if name == "cpu" else MemoryInfo(name, MemoryKind.DEVICE)


class Bound:
    """A plan with what is needed to check it."""

    def __init__(self, graph, candidates, inputs, outputs, *, accepts=False, guests=()):
        """`inputs`: memory names; `outputs`: (name, memory name, given)."""
        targets = tuple(Target(name, memory(where), given) for name, where, given in outputs)
        self.graph = graph
        self.wish = Wish(tuple(memory(name) for name in inputs), targets)
        self.streams = len(candidates)
        self.home = {c.name: c.provider.memory for c in candidates}
        self.subgraphs = {}
        self.scratch = []
        planner = BoundPlanner(graph, candidates, self.scratch, self.wish, guests)
        for i, spec in enumerate(partition(graph, candidates).specs):
            subgraph = Subgraph.cut(graph, spec.indices, f"p{i}")
            self.subgraphs[f"{spec.candidate.name} partition 'p{i}'"] = subgraph
            compiled = Compiled([accepts] * len(subgraph.outputs))
            planner.add_run(subgraph, compiled, spec.candidate)
        self.plan = planner.finish()

    @property
    def copies(self) -> list[tuple[str, str, str]]:
        found = []
        for step in self.plan.steps:
            if isinstance(step, Copy | CopyInto):
                hop = step.hop
                ends = ("cpu", "cpu") if hop is None else (hop.source.device, hop.target.device)
                found.append((step.value, *ends))
            elif isinstance(step, Duplicate):
                found.append((step.value, "cpu", "cpu"))
        return found

    def check(self) -> None:
        BoundInterpreter(self).run()


class BoundInterpreter(Interpreter):
    def __init__(self, bound: Bound):
        super().__init__(bound.plan, bound.streams, bound.scratch)
        self.bound = bound
        self.holds: dict[int, tuple[str, MemoryInfo]] = {}
        inputs = zip(bound.graph.input_names, bound.wish.inputs, strict=True)
        for slot, pair in enumerate(inputs):
            self.holds[slot] = pair
        self.given = {
            target.name: len(bound.wish.inputs) + position
            for position, target in enumerate(t for t in bound.wish.outputs if t.is_given)
        }
        self.written: dict[int, int] = {}  # given slot -> output slot that stands for it
        self.borrowed = len(bound.wish.inputs) + len(self.given)

    def read(self, slot, party, moment) -> None:
        if slot not in self.holds:
            (name,) = (n for n in self.bound.graph.initializers if self.is_constant(slot, n))
            self.holds[slot] = (name, HOST_MEMORY)
        super().read(slot, party, moment)

    def is_constant(self, slot, name) -> bool:
        content = self.plan.template[slot]
        return content is not None and np.array_equal(
            content, self.bound.graph.initializers[name].numpy()
        )

    def step(self, step) -> None:
        if isinstance(step, CopyInto):
            moment = self.tick(step.stream)
            self.read(step.source, step.stream, moment)
            self.make(step.target, moment)
            self.moved(step, step.source, step.target, step.hop)
            self.written[step.target] = step.target
            return
        if isinstance(step, Duplicate):
            moment = self.tick(NO_STREAM)
            self.read(step.source, NO_STREAM, moment)
            self.make(step.target, moment)
            self.moved(step, step.source, step.target, None)
            return
        if isinstance(step, Run):
            subgraph = self.bound.subgraphs[step.label]
            home = self.bound.home[step.label.partition(" ")[0]]
            super().step(step)
            assert [self.holds[slot] for slot in step.inputs] == [
                (n, home) for n in subgraph.inputs
            ]
            self.holds.update(
                {s: (n, home) for s, n in zip(step.outputs, subgraph.outputs, strict=True)}
            )
            for position, slot in step.given:
                assert self.given[subgraph.outputs[position]] == slot
                self.written[slot] = step.outputs[position]
            return
        super().step(step)
        if isinstance(step, Copy):
            self.moved(step, step.source, step.target, step.hop)

    def moved(self, step, source, target, hop) -> None:
        name, where = self.holds[source]
        ends = (HOST_MEMORY, HOST_MEMORY) if hop is None else (hop.source, hop.target)
        assert (name, where) == (step.value, ends[0])
        self.holds[target] = (name, ends[1])

    def run(self) -> None:
        for step in self.plan.steps:
            self.step(step)
        clock = self.clock[NO_STREAM]
        for party, own in self.clock.items():
            assert clock[party] >= own[party], f"work on stream {party} outlives the run"
        assert not self.released & set(range(self.borrowed)), "what is the caller's is released"
        outputs = self.plan.outputs
        assert len(set(outputs)) == len(outputs), "two outputs are one"
        leaving = set()
        for slot, target in zip(outputs, self.bound.wish.outputs, strict=True):
            assert self.holds[slot] == (target.name, target.memory)
            assert slot not in self.released
            assert self.ordered(NO_STREAM, self.made[slot]), "an output isn't ready"
            if target.is_given:
                assert self.written[self.given[target.name]] == slot
            else:
                assert slot >= self.borrowed
                assert self.plan.template[slot] is None
                if target.memory != HOST_MEMORY:
                    leaving.add(slot)
        assert leaving <= set(self.plan.owners)
        assert set(self.plan.owners) - leaving <= self.released, "device memory is never released"
        for slot in set(self.written.values()):
            assert slot not in self.plan.owners, "the caller's memory would be released"


def chain(device="dev", **options):
    """v0 = f(x), v1 = g(v0) on one device."""
    graph = typed(graph_of([(), (0,)], outputs=[1]))
    return graph, [on(device, Device(device, {"n0", "n1"}, streams=True, **options))]


def typed(graph: Graph, *unknown: str) -> Graph:
    names = [name for node in graph.nodes for name in node.outputs if name not in unknown]
    infos = {name: ValueInfo(name, FLOATS) for name in names}
    return graph.replace(values={**graph.values, **infos})


def test_what_is_on_the_device_already_is_neither_fetched_nor_brought():
    bound = Bound(*chain(), ["dev"], [("v1", "dev", False)])
    bound.check()
    assert bound.copies == []


def test_on_the_host_it_is_as_without_binding():
    bound = Bound(*chain(), ["cpu"], [("v1", "cpu", False)])
    bound.check()
    assert bound.copies == [("x", "cpu", "dev"), ("v1", "dev", "cpu")]


@pytest.mark.parametrize(("accepts", "copies"), [(True, []), (False, [("v1", "dev", "dev")])])
def test_given_memory_is_written_in_place_or_by_a_copy_at_the_end(accepts, copies):
    graph, candidates = chain(direct=["dev"])
    bound = Bound(graph, candidates, ["dev"], [("v1", "dev", True)], accepts=accepts)
    bound.check()
    assert bound.copies == copies


def test_a_device_that_can_t_copy_within_its_memory_goes_through_the_host():
    bound = Bound(*chain(), ["dev"], [("v1", "dev", True)])
    bound.check()
    assert bound.copies == [("v1", "dev", "cpu"), ("v1", "cpu", "dev")]


def test_an_output_on_a_device_goes_straight_into_given_host_memory():
    bound = Bound(*chain(), ["dev"], [("v1", "cpu", True)], accepts=True)
    bound.check()
    assert bound.copies == [("v1", "dev", "cpu")]
    assert not any(isinstance(step, Copy) for step in bound.plan.steps)


def test_memory_is_given_to_a_partition_only_where_the_shape_is_static():
    graph = graph_of([()], outputs=[0])
    graph = graph.replace(values={"v0": ValueInfo("v0", TensorType(DataType.FLOAT, ("N",)))})
    candidates = [on("cpu", Host({"n0"}))]
    bound = Bound(graph, candidates, ["cpu"], [("v0", "cpu", True)], accepts=True)
    bound.check()
    assert bound.copies == [("v0", "cpu", "cpu")]
    bound = Bound(typed(graph), candidates, ["cpu"], [("v0", "cpu", True)], accepts=True)
    bound.check()
    assert bound.copies == []


def test_an_output_that_is_an_input_is_copied_in_its_memory():
    graph, _ = chain()
    graph = graph.replace(outputs=(*graph.outputs, ValueInfo("x", FLOATS)))
    for direct in (["dev"], []):
        _, candidates = chain(direct=direct)
        outputs = [("x", "dev", False), ("v1", "dev", False)]
        bound = Bound(graph, candidates, ["dev"], outputs)
        bound.check()
        through = [("x", "dev", "cpu"), ("x", "cpu", "dev")]
        assert bound.copies == ([("x", "dev", "dev")] if direct else through)
    bound = Bound(graph, candidates, ["cpu"], [("x", "cpu", False)])
    bound.check()
    assert bound.copies == [("x", "cpu", "dev"), ("x", "cpu", "cpu")]


@pytest.mark.parametrize("where", ["cpu", "dev"])
@pytest.mark.parametrize("is_given", [True, False])
def test_an_output_that_is_a_constant(where, is_given):
    graph, candidates = chain()
    weight = Initializer.from_array("w", np.ones(2, np.float32))
    graph = graph.replace(outputs=(ValueInfo("w", FLOATS),), initializers={"w": weight})
    bound = Bound(graph, candidates, ["dev"], [("w", where, is_given)])
    bound.check()
    assert bound.copies == [("w", "cpu", where)]


def test_outputs_nobody_wants_are_given_back():
    graph, candidates = chain()
    graph = graph.replace(outputs=(ValueInfo("v0", FLOATS), *graph.outputs))
    bound = Bound(graph, candidates, ["dev"], [("v0", "cpu", False)])
    bound.check()
    assert bound.copies == [("v0", "dev", "cpu")]


@pytest.mark.parametrize("direct", [True, False])
def test_an_input_from_a_device_that_isn_t_the_session_s(direct):
    graph, candidates = chain()
    guest = Device("far", set(), streams=True, direct=["dev"] if direct else [])
    bound = Bound(graph, candidates, ["far"], [("v1", "far", False)], guests=[guest])
    bound.check()
    if direct:
        assert bound.copies == [("x", "far", "dev"), ("v1", "dev", "far")]
    else:
        through = [("x", "far", "cpu"), ("x", "cpu", "dev")]
        back = [("v1", "dev", "cpu"), ("v1", "cpu", "far")]
        assert bound.copies == [*through, *back]


def test_a_guest_that_cannot_reach_the_host_breaks_its_contract():
    graph, candidates = chain()
    guest = Device("far", set(), streams=True)
    guest.data_transfer.can_copy = lambda a, b: False
    with pytest.raises(ContractError, match="no provider copies between far/device and cpu/host"):
        Bound(graph, candidates, ["far"], [("v1", "dev", False)], guests=[guest])


@settings(max_examples=500, deadline=None)
@given(
    random_case(),
    st.lists(st.sampled_from(KINDS), min_size=3, max_size=3),
    st.lists(st.sets(st.integers(0, 3)), min_size=4, max_size=4),
    st.booleans(),
    st.data(),
)
def test_random_plans_are_right(case, kinds, reach, accepts, data):
    edges, owners, outputs = case
    graph = typed(graph_of(edges, outputs), *(["v0"] if data.draw(st.booleans()) else []))
    if data.draw(st.booleans()):
        graph = graph.replace(outputs=(*graph.outputs, ValueInfo("x", FLOATS)))
    candidates = []
    homes = ["cpu"]
    for position, kind in enumerate(kinds):
        nodes = {f"n{i}" for i, owner in enumerate(owners) if owner == position}
        name = f"p{position}"
        direct = [f"p{other}" for other in reach[position]]  # maybe itself
        if kind == "host":
            candidates.append(on(name, Host(nodes)))
            continue
        candidates.append(on(name, device_of(kind, name, nodes, direct)))
        homes.append(name)
    guest = Device("p3", set(), streams=True, direct=[f"p{other}" for other in reach[3]])
    place = st.sampled_from([*homes, "p3"])
    inputs = [data.draw(place) for _ in graph.input_names]
    names = list(dict.fromkeys(info.name for info in graph.outputs))
    wanted = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    targets = [(name, data.draw(place), data.draw(st.booleans())) for name in wanted]
    Bound(graph, candidates, inputs, targets, accepts=accepts, guests=[guest]).check()
