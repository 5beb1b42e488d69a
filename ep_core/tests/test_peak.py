"""The planned peak of a run, with partitions that tell what they take and others that don't."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from reference_provider import ReferenceProvider

from ep_core import InferenceSession, SessionOptions
from ep_core.contracts import ExecutionProvider, PartitionMemory
from ep_core.forwarding import ForwardingProvider
from ep_core.report import MemoryPeak

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
MODEL = "g (float[8] x) => (float[8] y) { a = Neg(x) b = Abs(a) c = Sqrt(b) y = Add(c, a) }"
BYTES = 32
"""Of each value."""


@pytest.fixture
def planned(provide, monkeypatch):
    """`planned(text, told=..., operators=...)`: the host's peak in a session of one or two."""
    sessions = []

    def make(text=MODEL, told=None, operators=None, accepts_outputs=False):
        factories = [provide(accepts_outputs=accepts_outputs)]
        if operators:
            factories.append(provide("fast", operators, accepts_outputs=accepts_outputs))
        if told is not None:
            for factory in factories:
                factory.features = replace(factory.features, tells_memory=True)
            tell = told if callable(told) else lambda provider, partition: told
            monkeypatch.setattr(ReferenceProvider, "get_partition_memory", tell, raising=False)
        options = SessionOptions()
        options.certificate_policy = "off"
        model = onnx.parser.parse_model(HEAD + text).SerializeToString()
        names = [factory.info.name for factory in reversed(factories)]
        sessions.append(InferenceSession(model, options, names))
        (peak,) = sessions[-1].get_placement().peak_bytes.values()
        return peak

    yield make
    for session in sessions:
        session.close()


def test_a_provider_that_doesn_t_tell(planned):
    assert planned() == MemoryPeak(None, None, "cpu doesn't tell what its partitions take")


def test_one_partition(planned):
    assert planned(told=PartitionMemory(7, 100, BYTES)) == MemoryPeak(7, 100 + BYTES)


def test_where_less_is_needed_at_one_time_than_for_both(planned):
    assert planned(told=PartitionMemory(7, 100, BYTES, 110)) == MemoryPeak(7, 110)


@pytest.mark.parametrize(
    ("stages", "most"), [(((90, ()), (60, (0,))), 60 + BYTES), (((100, ()), (60, (0,))), 100)]
)
def test_stages_are_exact_where_they_are_told(planned, stages, most):
    told = PartitionMemory(7, 100, BYTES, 132, stages)
    assert planned(told=told) == MemoryPeak(7, most)


def test_memory_that_is_given_makes_it_no_more_than_without(planned):
    """Of fast's b and c, b is its own; c is written into memory that runs share."""
    told = PartitionMemory(0, 100, BYTES, 104)
    peak = planned(told=told, operators={"Abs", "Sqrt"}, accepts_outputs=True)
    assert peak == MemoryPeak(0, 2 * BYTES + 104)


def test_several_partitions(planned):
    """`fast` runs Abs and Sqrt between Neg and Add; `a` lives from the first to the last."""
    told = PartitionMemory(5, 10, BYTES)
    peak = planned(told=told, operators={"Abs", "Sqrt"})
    # While fast works: a, and what a partition takes; the last has a, c and that.
    assert peak == MemoryPeak(15, 2 * BYTES + 10 + BYTES)


def test_arrays_that_runs_share_count_once(planned):
    """Memory that partitions are given is in the plan, whoever is alive when."""
    told = PartitionMemory(0, 10, BYTES)
    peak = planned(told=told, operators={"Abs", "Sqrt"}, accepts_outputs=True)
    assert peak == MemoryPeak(0, 2 * BYTES + 10 + BYTES)


@pytest.mark.parametrize(
    ("told", "unknown"),
    [
        (PartitionMemory(3, None, BYTES), "what cpu partition 'cpu_0' takes isn't known"),
        (PartitionMemory(3, 5, None), "what cpu partition 'cpu_0' takes isn't known"),
    ],
)
def test_what_the_partition_doesn_t_know(planned, told, unknown):
    peak = planned(told=told)
    assert (peak.constant_bytes, peak.run_bytes) == (3, None)
    assert peak.unknown.startswith(unknown)


def test_a_size_that_isn_t_known(planned):
    peak = planned(MODEL.replace("[8]", "[N]"), told=PartitionMemory(3, 5, BYTES))
    assert peak == MemoryPeak(3, None, "the size of 'y' isn't known before the run")


def test_a_result_that_is_two_is_copied(planned):
    text = "g (float[8] x) => (float[8] y, float[8] z) { y = Neg(x) z = Identity(y) }"
    peak = planned(text, told=PartitionMemory(0, 0, BYTES))
    assert peak == MemoryPeak(0, 2 * BYTES)


def test_a_provider_that_raises_costs_the_plan_and_nothing_else(planned):
    def fail(provider, partition):
        raise RuntimeError("no idea")

    assert planned(told=fail).unknown == "get_partition_memory of cpu raised RuntimeError: no idea"


def test_a_forwarding_provider_forwards_all_there_is():
    members = {name for name in vars(ExecutionProvider) if not name.startswith("_")}
    assert members
    assert {name for name in vars(ForwardingProvider) if not name.startswith("_")} == members


def test_the_reports_of_a_run(planned, provide):
    planned(told=PartitionMemory(7, 100, BYTES))
    options = SessionOptions()
    options.certificate_policy = "off"
    model = onnx.parser.parse_model(HEAD + MODEL).SerializeToString()
    with InferenceSession(model, options, ["cpu"]) as session:
        session.run(None, {"x": np.ones(8, np.float32)})
        report = session.get_placement()
        assert session.get_memory().planned == report.peak_bytes
        assert "memory cpu/host: 7 B for constants, at most 132 B in a run" in str(report)
