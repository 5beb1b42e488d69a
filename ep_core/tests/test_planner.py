"""Plans are checked by a happens-before interpreter: every read is ordered after its write.

The interpreter gives the host and every stream a vector clock, walks the steps as the executor
does, and fails on a read that isn't ordered after the work that produced the value, on a release
that isn't ordered after the last use, on a use after a release, on memory that goes back on another
stream than it came from, on a scratch array written while others use it, and on work nobody waits
for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_partition import Answering, graph_of, random_case

from ep_core.contracts import ProviderFeatures
from ep_core.errors import ContractError
from ep_core.graph import Graph, Node, Subgraph, ValueInfo
from ep_core.partition import Candidate, partition
from ep_core.running.plan import (
    NO_STREAM,
    Copy,
    HostWait,
    Plan,
    Record,
    Release,
    Run,
    StreamWait,
)
from ep_core.running.planner import Planner
from ep_core.types import HOST_MEMORY, DataType, MemoryInfo, MemoryKind, OpSet, TensorType

FLOATS = TensorType(DataType.FLOAT, (2,))


class Device(Answering):
    """What planning looks at: memory, streams or not, who can copy where."""

    def __init__(
        self, name: str, supported, *, streams: bool, overlaps=False, pins=False, direct=()
    ):
        features = ProviderFeatures(
            asynchronous=streams, overlaps_copies=overlaps, pinned_host=pins
        )
        super().__init__(set(supported), features)
        self.memory = MemoryInfo(name, MemoryKind.DEVICE)
        self.allocator = SimpleNamespace(memory=self.memory)
        reach = {HOST_MEMORY, *(MemoryInfo(d, MemoryKind.DEVICE) for d in direct)}
        self.data_transfer = SimpleNamespace(
            can_copy=lambda a, b: (
                (a == self.memory and b in reach) or (b == self.memory and a in reach)
            )
        )


class Host(Answering):
    allocator = None
    data_transfer = None


@dataclass(frozen=True)
class Compiled:
    accepts_outputs: list[bool]


def plan_of(
    graph: Graph, candidates: list[Candidate], accepts: bool = False, scratch: list | None = None
) -> Plan:
    scratch = [] if scratch is None else scratch
    planner = Planner(graph, candidates, scratch)
    for i, spec in enumerate(partition(graph, candidates).specs):
        subgraph = Subgraph.cut(graph, spec.indices, f"p{i}")
        planner.add_run(subgraph, Compiled([accepts] * len(subgraph.outputs)), spec.candidate)
    return planner.finish()


class Interpreter:
    """Walks a plan with vector clocks; party -1 is the host, others are streams."""

    def __init__(self, plan: Plan, streams: int, scratch=()):
        self.plan = plan
        self.scratch = scratch
        self.living: dict[int, list[int]] = {}  # block -> slots that lay there
        self.home: dict[int, int] = {}  # slot -> stream in whose order its memory came
        # with the streams for copies in and out
        self.clock = {party: Counter() for party in (NO_STREAM, *range(3 * streams))}
        self.made: dict[int, tuple[int, int]] = {}
        self.uses: dict[int, list[tuple[int, int]]] = {}
        self.released: set[int] = set()
        self.events: dict[int, Counter] = {}

    def tick(self, party: int) -> tuple[int, int]:
        if party != NO_STREAM:
            self.clock[party] |= self.clock[NO_STREAM]  # submitted by the host
        self.clock[party][party] += 1
        return party, self.clock[party][party]

    def ordered(self, party: int, moment: tuple[int, int]) -> bool:
        return self.clock[party][moment[0]] >= moment[1]

    def read(self, slot: int, party: int, moment: tuple[int, int]) -> None:
        assert slot not in self.released, f"slot {slot} is used after its release"
        if slot in self.made:
            assert self.ordered(party, self.made[slot]), f"slot {slot} is read too early"
        else:
            assert slot < len(self.plan.inputs) or self.plan.template[slot] is not None
        self.uses.setdefault(slot, []).append(moment)

    def make(self, slot: int, moment: tuple[int, int]) -> None:
        assert slot not in self.made, f"slot {slot} is made twice"
        self.made[slot] = moment

    def occupy(self, at: int | None, slot: int, party: int) -> None:
        """A value is written into a scratch array: whoever lay there must be gone."""
        if at is None:
            return
        assert slot not in self.plan.outputs
        before = self.living.setdefault(self.scratch[at].block, [])
        for earlier in before:
            for moment in [self.made[earlier], *self.uses.get(earlier, [])]:
                assert self.ordered(party, moment), f"slot {earlier} is overwritten too early"
            self.released.add(earlier)  # whoever reads it now gets other bytes
        before[:] = [slot]

    def run(self) -> None:
        for step in self.plan.steps:
            self.step(step)
        for slot in self.plan.outputs:
            assert slot not in self.released
            if slot in self.made:
                assert self.ordered(NO_STREAM, self.made[slot]), "an output isn't ready"
        for party in self.clock:
            latest = (party, self.clock[party][party])
            assert self.ordered(NO_STREAM, latest), f"work on stream {party} outlives the run"
        assert set(self.plan.owners) <= self.released, "device memory is never released"

    def step(self, step) -> None:
        if isinstance(step, Run):
            moment = self.tick(step.stream)
            for slot in step.inputs:
                self.read(slot, step.stream, moment)
            for slot in step.outputs:
                self.make(slot, moment)
                self.home[slot] = step.stream
            for slot, at in zip(step.outputs, step.scratch, strict=False):
                self.occupy(at, slot, step.stream)
        elif isinstance(step, Copy):
            if NO_STREAM not in (step.stream, step.home):
                if step.home != step.stream:
                    self.clock[step.stream] |= self.clock[step.home]
                self.home[step.target] = step.home
            moment = self.tick(step.stream)
            self.read(step.source, step.stream, moment)
            self.occupy(step.scratch, step.target, step.stream)
            self.make(step.target, moment)
        elif isinstance(step, Record):
            self.events[step.event] = Counter(self.clock[step.stream])
        elif isinstance(step, HostWait):
            self.clock[NO_STREAM] |= self.events[step.event]
        elif isinstance(step, StreamWait):
            self.clock[step.stream] |= self.events[step.event]
        elif isinstance(step, Release):
            assert step.slot not in self.released
            self.released.add(step.slot)
            party = step.stream if step.allocator is not None else NO_STREAM
            if step.allocator is not None:
                assert party == self.home.get(step.slot, party), "memory goes back elsewhere"
            self.clock[party] |= self.clock[NO_STREAM]  # submitted by the host
            for moment in [self.made[step.slot], *self.uses.get(step.slot, [])]:
                assert self.ordered(party, moment), f"slot {step.slot} is released too early"
        else:
            raise AssertionError(f"unknown step {step}")


def check(plan: Plan, streams: int, scratch=()) -> None:
    Interpreter(plan, streams, scratch).run()


def copies(plan: Plan) -> list[tuple[str, str, str]]:
    return [
        (step.value, step.hop.source.device, step.hop.target.device)
        for step in plan.steps
        if isinstance(step, Copy)
    ]


def on(name: str, provider) -> Candidate:
    return Candidate(name, provider, lambda graph, node: (True, ""))


def test_a_value_is_copied_once_per_memory():
    # n0 on the host feeds n1 and n3 on the device, with n2 on the host in between
    graph = graph_of([(), (0,), (1,), (0, 2)], outputs=[3])
    device = on("dev", Device("dev", {"n1", "n3"}, streams=True))
    plan = plan_of(graph, [device, on("cpu", Host({"n0", "n2"}))])
    check(plan, 1)
    assert copies(plan) == [
        ("v0", "cpu", "dev"),
        ("v1", "dev", "cpu"),
        ("v2", "cpu", "dev"),
        ("v3", "dev", "cpu"),
    ]


@pytest.mark.parametrize("direct", [True, False])
def test_device_to_device_directly_or_through_the_host(direct):
    graph = graph_of([(), (0,)], outputs=[1])
    one = Device("one", {"n0"}, streams=True, direct=["two"] if direct else [])
    two = Device("two", {"n1"}, streams=True)
    plan = plan_of(graph, [on("one", one), on("two", two)])
    check(plan, 2)
    middle = copies(plan)[1:-1]
    if direct:
        assert middle == [("v0", "one", "two")]
    else:
        assert middle == [("v0", "one", "cpu"), ("v0", "cpu", "two")]


def test_a_device_that_cannot_reach_the_host_breaks_its_contract():
    device = Device("dev", {"n0"}, streams=True)
    device.data_transfer = SimpleNamespace(can_copy=lambda a, b: False)
    with pytest.raises(ContractError, match="cpu/host and dev/device"):
        plan_of(graph_of([()]), [on("dev", device)])


def test_host_arrays_share_blocks_only_when_they_do_not_live_together():
    graph = graph_of([(), (0,), (1,), (2,), (0, 3)], outputs=[4])
    graph = graph.replace(values={f"v{i}": ValueInfo(f"v{i}", FLOATS) for i in range(5)})
    scratch: list = []
    odd, even = on("odd", Host({"n1", "n3"})), on("even", Host({"n0", "n2", "n4"}))
    planner = Planner(graph, [odd, even], scratch)
    for spec in partition(graph, [odd, even]).specs:
        subgraph = Subgraph.cut(graph, spec.indices)
        planner.add_run(subgraph, Compiled([True] * len(subgraph.outputs)), spec.candidate)
    plan = planner.finish()
    check(plan, 0, scratch)
    # v0 lives until the end; v1 is dead once v2 exists, so v3 gets its block
    assert [item.block for item in scratch] == [0, 1, 2, 1]


def test_whole_model_on_one_host_provider_is_recognised():
    graph = graph_of([(), (0,)])
    plan = plan_of(graph, [on("cpu", Host({"n0", "n1"}))])
    assert plan.whole_model is not None
    passing = graph.replace(outputs=(*graph.outputs, ValueInfo("x", FLOATS)))
    assert plan_of(passing, [on("cpu", Host({"n0", "n1"}))]).whole_model is None


def test_constant_outputs_and_inputs_are_copied_before_they_leave():
    import numpy as np

    from ep_core.graph import Initializer

    weight = Initializer.from_array("w", np.ones(2, np.float32))
    graph = Graph(
        name="g",
        inputs=(ValueInfo("x", FLOATS),),
        outputs=tuple(ValueInfo(n, FLOATS) for n in ("x", "w", "v0", "v0")),
        nodes=(Node("n0", "Op", "", 1, ("x",), ("v0",)),),
        initializers={"w": weight},
        opsets=OpSet({"": 17}),
    )
    plan = plan_of(graph, [on("cpu", Host({"n0"}))])
    assert plan.copied_outputs == (True, True, False, True)


def sequence(plan: Plan) -> list[str]:
    """Copies and partitions in the order in which the host issues them."""
    found = []
    for step in plan.steps:
        if isinstance(step, Copy):
            way = "in" if step.hop.source == HOST_MEMORY else "out"
            found.append(f"{step.value} {way}")
        elif isinstance(step, Run):
            found.append(step.label)
    return found


def sandwich(**options) -> tuple[Plan, list[str]]:
    """On the host v0, v1 and, from v2, v3; on the device v2 of v0, and then v4 of v1 and v3."""
    graph = graph_of([(), (), (0,), (2,), (1, 3)], outputs=[4])
    device = Device("dev", {"n2", "n4"}, streams=True, **options)
    plan = plan_of(graph, [on("cpu", Host({"n0", "n1", "n3"})), on("dev", device)])
    check(plan, 2)
    return plan, sequence(plan)


@pytest.mark.parametrize("overlaps", [True, False])
def test_copies_in_go_ahead_of_host_work_and_behind_work_of_streams(overlaps):
    _, found = sandwich(overlaps=overlaps)
    assert found == [
        "cpu partition 'p0'",
        "v0 in",
        "dev partition 'p1'",
        "v2 out",
        "v1 in",
        "cpu partition 'p2'",
        "v3 in",
        "dev partition 'p3'",
        "v4 out",
    ]


def test_copies_out_go_ahead_of_host_work():
    # v1 is an output that nobody waits for; v2 is made on the host from v0
    graph = graph_of([(), (), (0,), (2,)], outputs=[1, 3])
    device = Device("dev", {"n0", "n1", "n3"}, streams=True, overlaps=True)
    plan = plan_of(graph, [on("dev", device), on("cpu", Host({"n2"}))])
    check(plan, 2)
    assert sequence(plan) == [
        "x in",
        "dev partition 'p0'",
        "v0 out",
        "v1 out",
        "cpu partition 'p1'",
        "v2 in",
        "dev partition 'p2'",
        "v3 out",
    ]


class Apart(Interpreter):
    """Notes what each copy and partition comes after."""

    def __init__(self, plan: Plan, streams: int):
        super().__init__(plan, streams)
        self.behind: dict[str, set[str]] = {}
        self.when: dict[str, tuple[int, int]] = {}

    def step(self, step) -> None:
        name = None
        if isinstance(step, Run):
            name = step.label
        elif isinstance(step, Copy):
            name = f"{step.value} {'in' if step.hop.source == HOST_MEMORY else 'out'}"
        if name is not None:
            before = self.clock[step.stream] | self.clock[NO_STREAM]
            self.behind[name] = {
                other for other, (party, count) in self.when.items() if before[party] >= count
            }
        super().step(step)
        if name is not None:
            self.when[name] = (step.stream, self.clock[step.stream][step.stream])


@pytest.mark.parametrize("overlaps", [True, False])
def test_copies_and_work_come_after_what_they_need_alone(overlaps):
    plan, _ = sandwich(overlaps=overlaps)
    apart = Apart(plan, 2)
    apart.run()
    one_line = set() if overlaps else {"dev partition 'p1'", "v2 out"}
    assert apart.behind["v1 in"] == {"v0 in", "cpu partition 'p0'"} | one_line
    assert apart.behind["v2 out"] == {"v0 in", "cpu partition 'p0'", "dev partition 'p1'"}


def test_an_early_output_is_copied_while_later_work_goes_on():
    # v0 is made first and wanted only by the caller; v1 goes to the other device and comes back
    graph = graph_of([(), (), (1,), (2,)], outputs=[0, 3])
    one = Device("one", {"n0", "n1", "n3"}, streams=True, overlaps=True, direct=["two"])
    two = Device("two", {"n2"}, streams=True, direct=["one"])
    plan = plan_of(graph, [on("one", one), on("two", two)])
    apart = Apart(plan, 2)
    apart.run()
    assert "one partition 'p2'" not in apart.behind["v0 out"]
    assert "v0 out" not in apart.behind["one partition 'p2'"]


KINDS = ["host", "blocking", "streams", "overlaps", "pins"]


def device_of(kind: str, name: str, nodes: set[str], direct: list[str]) -> Device:
    """A device with streams or without, whose copies overlap or not."""
    overlaps, pins = kind in ("overlaps", "pins"), kind in ("blocking", "pins")
    return Device(
        name, nodes, streams=kind != "blocking", overlaps=overlaps, pins=pins, direct=direct
    )


@settings(max_examples=400, deadline=None)
@given(
    random_case(),
    st.lists(st.sampled_from(KINDS), min_size=3, max_size=3),
    st.lists(st.sets(st.integers(0, 2)), min_size=3, max_size=3),
    st.booleans(),
)
def test_random_plans_are_ordered(case, kinds, reach, accepts):
    edges, owners, outputs = case
    graph = graph_of(edges, outputs)
    graph = graph.replace(
        values={**graph.values, **{f"v{i}": ValueInfo(f"v{i}", FLOATS) for i in range(len(edges))}}
    )
    candidates = []
    for position, kind in enumerate(kinds):
        nodes = {f"n{i}" for i, owner in enumerate(owners) if owner == position}
        name = f"p{position}"
        # who can copy directly to whom need not be mutual, so either side may own the copy
        others = [f"p{other}" for other in reach[position] - {position}]
        provider = Host(nodes) if kind == "host" else device_of(kind, name, nodes, others)
        candidates.append(on(name, provider))
    scratch: list = []
    plan = plan_of(graph, candidates, accepts, scratch)
    check(plan, 3, scratch)
    # nothing is copied twice, and nothing less than without streams for copies
    assert len(set(copies(plan))) == len(copies(plan))
    for candidate in candidates:
        candidate.provider.features = ProviderFeatures(
            asynchronous=candidate.provider.features.asynchronous
        )
    assert sorted(copies(plan_of(graph, candidates, accepts))) == sorted(copies(plan))
