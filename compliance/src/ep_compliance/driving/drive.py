"""Drives a provider through one case at the level of the contracts, without a session.

Claim, compile, run three times, close; on the way everything the contracts promise about purity,
inputs, outputs, ownership and memory is held against what happens. Whether the answers are right is
for others to say.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ep_compliance.cases.case import Case
from ep_compliance.driving.findings import Broken, NotClaimed, text_of
from ep_compliance.driving.fused import group_fault, is_duration
from ep_compliance.driving.lanes import DeviceLane, HostLane, open_lane
from ep_compliance.driving.runs import Ran, Values, runs_of
from ep_core.contracts import (
    AllocatorStats,
    Capability,
    CompiledPartition,
    ExecutionProvider,
    Support,
    Value,
)
from ep_core.errors import EpError
from ep_core.graph import Graph, Subgraph
from ep_core.loading.load import load_model

__all__ = [
    "Driven",
    "ask",
    "claim",
    "compiled",
    "drive",
    "drive_subgraph",
    "feeds_of",
    "predicted_seconds",
    "timed_runs",
]

_PATIENCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Driven:
    """What came of driving one case.

    Attributes:
        answers: outputs in the model's order, once per kind of run, all to be judged.
        failure: what the provider did wrong; empty if nothing.
        unsupported: why it doesn't claim the graph; empty if it does.
        run_seconds: median of the runs after the first, from the call until the outputs are there.
        predicted_seconds: sum of the provider's estimates, None unless it gave one for every node.
    """

    answers: tuple[tuple[Value, ...], ...] = ()
    failure: str = ""
    unsupported: str = ""
    run_seconds: float | None = None
    predicted_seconds: float | None = None


def drive(case: Case, provider: ExecutionProvider) -> Driven:
    """Run a case on an open provider, which stays open.

    Raises:
        EpError: the core can't load the case's model, or an input is missing; the provider hasn't
            been asked.
    """
    graph = load_model(case.model).graph
    subgraph = Subgraph.cut(graph, range(len(graph.nodes)), "case")
    feeds = feeds_of(graph, case)
    try:
        capability = claim(provider, graph)
        answers, seconds = _answers(case, provider, subgraph, feeds)
    except NotClaimed as answer:
        return Driven(unsupported=str(answer))
    except Broken as finding:
        return Driven(failure=str(finding))
    predicted = predicted_seconds(capability)
    return Driven(answers, run_seconds=statistics.median(seconds), predicted_seconds=predicted)


def feeds_of(graph: Graph, case: Case) -> dict[str, Value]:
    """The value of every input of a graph: the case's, or the model's default.

    Raises:
        EpError: an input has neither.
    """
    feeds = {}
    for name in graph.input_names:
        if name in case.inputs:
            feeds[name] = case.inputs[name]
        elif name in graph.overridable:
            feeds[name] = graph.initializers[name].numpy()
        else:
            raise EpError(f"case {case.id!r} has no value for input {name!r}")
    return feeds


def claim(provider: ExecutionProvider, graph: Graph) -> Capability:
    """Ask for a claim of the whole graph, twice, and return it.

    Raises:
        NotClaimed: the reasons of the nodes that it leaves out.
        Broken: it raises, answers differently the second time, or answers something else.
    """
    lone = provider.allocator
    before = lone.stats() if lone is not None else None
    first = ask(provider, graph)
    if ask(provider, graph) != first:
        raise Broken("get_capability is impure: asked twice, it answers differently")
    if lone is not None and lone.stats() != before:
        raise Broken("get_capability is impure: it allocates")
    if not graph.nodes:
        raise NotClaimed("the graph has no node")
    refused = {
        f"{node.key}: {support.reason}"
        for node, support in zip(graph.nodes, first.nodes, strict=True)
        if not support.supported
    }
    if refused:
        raise NotClaimed("; ".join(sorted(refused)))
    return first


def predicted_seconds(capability: Capability) -> float | None:
    """The sum of a provider's estimates; None unless it gave one for every node."""
    costs = [support.cost for support in capability.nodes if support.cost is not None]
    return sum(costs) if len(costs) == len(capability.nodes) else None


def ask(provider: ExecutionProvider, graph: Graph) -> Capability:
    """Call `get_capability` and hold its answer to the contract.

    Raises:
        Broken: it raises, or the answer isn't one `Support` per node, a no with a reason, a cost
            in seconds, groups as `FusedGroup` has them.
    """
    try:
        capability = provider.get_capability(graph)
    except Exception as error:
        raise Broken(f"get_capability raises {text_of(error)}") from error
    if not isinstance(capability, Capability) or len(capability.nodes) != len(graph.nodes):
        raise Broken(f"get_capability doesn't answer for each of {len(graph.nodes)} nodes")
    for node, support in zip(graph.nodes, capability.nodes, strict=True):
        if not isinstance(support, Support):
            raise Broken(f"get_capability answers {type(support).__name__} for a node")
        if not support.supported and not support.reason:
            raise Broken(f"get_capability says no to {node.key} without a reason")
        if support.cost is not None and not is_duration(support.cost):
            raise Broken(f"get_capability's cost of {node.key} is {support.cost!r}, no seconds")
    fault = group_fault(graph, capability)
    if fault is not None:
        raise Broken(f"get_capability fuses what it can't: {fault}")
    return capability


@contextlib.contextmanager
def compiled(provider: ExecutionProvider, subgraph: Subgraph) -> Iterator[CompiledPartition]:
    """Compile what was claimed and close it twice in the end.

    Raises:
        Broken: it can't be compiled or closed.
    """
    try:
        partition = provider.compile(subgraph)
    except Exception as error:
        raise Broken(f"claimed, but compile fails: {text_of(error)}") from error
    with contextlib.ExitStack() as stack:
        stack.callback(_close, partition)
        accepts = partition.accepts_outputs
        if len(accepts) != len(subgraph.outputs):
            count = len(subgraph.outputs)
            raise Broken(f"accepts_outputs has {len(accepts)} entries for {count} outputs")
        yield partition


def _close(partition: CompiledPartition) -> None:
    try:
        partition.close()
        partition.close()
    except Exception as error:
        raise Broken(f"close of the partition, called twice, raises {text_of(error)}") from error


def drive_subgraph(
    provider: ExecutionProvider, subgraph: Subgraph, inputs: Sequence[Value], *, repeatable: bool
) -> list[Values]:
    """Compile and run what the provider has claimed; return the outputs that are to be judged.

    Args:
        inputs: host values in the order of `subgraph.inputs`.
        repeatable: equal inputs must give equal bits.

    Raises:
        Broken: what the provider does wrong.
    """
    return timed_runs(provider, subgraph, inputs, repeatable=repeatable).answers


def timed_runs(
    provider: ExecutionProvider, subgraph: Subgraph, inputs: Sequence[Value], *, repeatable: bool
) -> Ran:
    """Like `drive_subgraph`; return the times of the runs too.

    Raises:
        Broken: what the provider does wrong.
    """
    try:
        lane = open_lane(provider)
    except Exception as error:
        raise Broken(f"no stream or memory to work with: {text_of(error)}") from error
    with contextlib.closing(lane):
        before = lane.stats()
        with compiled(provider, subgraph) as partition:
            ran = runs_of(lane, partition, subgraph, inputs, repeatable=repeatable)
        _check_memory(lane, before)
    return ran


def _answers(
    case: Case, provider: ExecutionProvider, subgraph: Subgraph, feeds: dict[str, Value]
) -> tuple[tuple[tuple[Value, ...], ...], Sequence[float]]:
    """The outputs of every kind of run, and the times of the runs after the first."""
    inputs = [feeds[name] for name in subgraph.inputs]
    repeatable = provider.features.deterministic and not case.draws
    ran = timed_runs(provider, subgraph, inputs, repeatable=repeatable)
    graph = subgraph.graph
    known = {**{name: item.numpy() for name, item in graph.initializers.items()}, **feeds}
    pairs = (zip(subgraph.outputs, values, strict=True) for values in ran.answers)
    named = [{**known, **dict(pair)} for pair in pairs]
    answers = tuple(tuple(values[name] for name in graph.output_names) for values in named)
    return answers, ran.seconds[1:]


def _check_memory(lane: HostLane | DeviceLane, before: AllocatorStats) -> None:
    """After everything is closed and released the allocator is where it was."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        after = lane.stats()
        kept = after.in_use_bytes - before.in_use_bytes
        left = (after.allocations - after.releases) - (before.allocations - before.releases)
        if not kept and not left:
            return
        # Memory may come back a little later, when a stream of the provider's own gets there.
        if time.monotonic() > deadline:
            raise Broken(f"device memory is leaked: {kept} bytes in {left} buffers")
        time.sleep(0.01)
