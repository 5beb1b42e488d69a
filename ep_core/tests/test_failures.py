"""Failures of providers and interrupts: what comes out, and that the session works afterwards."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from onnx import parser
from reference_provider import ReferencePartition, ReferenceProvider

from ep_core import InferenceSession, RunOptions, SessionOptions
from ep_core.contracts import ProviderFeatures
from ep_core.errors import (
    AllocationError,
    ContractError,
    DeviceLostError,
    FeedError,
    PlacementError,
    RunError,
    SessionClosedError,
)

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
chain (float[2, N] x) => (float[2, N] z)
{
  a = Abs(x)
  b = Neg(a)
  c = Relu(b)
  d = Abs(c)
  e = Tanh(d)
  f = Neg(e)
  z = Abs(f)
}
"""
X = np.array([[1.0, -2.0, 3.0], [0.5, -0.5, 0.0]], np.float32)


def model():
    return parser.parse_model(MODEL)


def options(**settings):
    made = SessionOptions()
    for name, value in settings.items():
        setattr(made, name, value)
    return made


@pytest.fixture(params=["whole", "split"])
def split(request, provide):
    """A session over one partition, which takes the short way, or over several."""
    fast = provide("fast", None if request.param == "whole" else {"Abs", "Relu"})
    provide()
    with InferenceSession(model(), providers=["fast", "cpu"]) as session:
        yield session, fast.made[0].partitions


# ------------------------------------------------------------ running


def test_names_of_outputs_are_checked_before_anything_runs(provide):
    provide(fail_run=ValueError("it ran"))
    with (
        InferenceSession(model(), providers=["cpu"]) as session,
        pytest.raises(FeedError, match="no output 'zz'"),
    ):
        session.run(["zz"], {"x": X})


@pytest.mark.parametrize("make", [tuple, set, np.array, iter])
def test_names_of_outputs_come_in_any_collection(provide, make):
    provide()
    with InferenceSession(model(), providers=["cpu"]) as session:
        assert len(session.run(make(["z"]), {"x": X})) == 1
        assert len(session.run(np.array([]), {"x": X})) == 1


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda outputs: outputs.__setitem__(0, None), "gave no value for its output 0"),
        (lambda outputs: outputs.clear(), "changed its list of outputs; expected 1 entries; got 0"),
        (lambda outputs: outputs.append(1), "changed its list of outputs; expected 1"),
    ],
)
def test_a_partition_has_to_give_its_outputs(split, spoil, words):
    session, partitions = split
    compute = partitions[-1].run

    def run(inputs, outputs, stream):
        compute(inputs, outputs, stream)
        spoil(outputs)

    partitions[-1].run = run
    with pytest.raises(ContractError, match=rf"fast partition 'fast_\d' {words}"):
        session.run(None, {"x": X})
    partitions[-1].run = compute
    assert session.run(None, {"x": X})[0].shape == (2, 3)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (ValueError("odd"), RunError),
        (MemoryError("full"), AllocationError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
@pytest.mark.parametrize("run_options", [None, RunOptions()])
def test_what_a_partition_raises(split, raised, expected, run_options):
    session, partitions = split
    compute = partitions[0].run

    def run(inputs, outputs, stream):
        raise raised

    partitions[0].run = run
    with pytest.raises(expected, match=None if expected is KeyboardInterrupt else "fast partition"):
        session.run(None, {"x": X}, run_options)
    partitions[0].run = compute
    assert session.run(None, {"x": X}, run_options)[0].shape == (2, 3)


def test_streams_made_before_a_failure_are_closed(provide):
    """Of two asynchronous providers the second gives no stream."""
    closed = []

    class Stream:
        def close(self):
            closed.append(self)

    first, second = provide("first"), provide("second")
    for factory in (first, second):
        factory.features = ProviderFeatures(asynchronous=True)
    with InferenceSession(model(), providers=["first", "second"]) as session:
        first.made[0].create_stream = Stream

        def broken():
            raise OSError("no more queues")

        second.made[0].create_stream = broken
        with pytest.raises(RunError, match="OSError: no more queues"):
            session.run(None, {"x": X})
    assert len(closed) == 1


# ------------------------------------------------------------ closing


def test_close_inside_a_run_is_refused(split):
    session, partitions = split
    compute = partitions[0].run

    def run(inputs, outputs, stream):
        session.close()

    partitions[0].run = run
    with pytest.raises(RunError, match="inside a run"):
        session.run(None, {"x": X})
    partitions[0].run = compute
    assert session.run(None, {"x": X})[0].shape == (2, 3)


def test_everybody_who_closes_waits_for_the_end_of_runs(split):
    session, partitions = split
    compute = partitions[0].run
    started, go_on, order = threading.Event(), threading.Event(), []

    def run(inputs, outputs, stream):
        started.set()
        assert go_on.wait(10)
        compute(inputs, outputs, stream)
        order.append("run")

    def close():
        session.close()
        order.append("closed")

    partitions[0].run = run
    threads = [threading.Thread(target=session.run, args=(None, {"x": X}))]
    threads[0].start()
    assert started.wait(10)
    threads += [threading.Thread(target=close) for _ in range(3)]
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert order == ["run", "closed", "closed", "closed"]


def test_a_close_that_is_interrupted_can_be_called_again(provide):
    fast = provide("fast", {"Abs", "Relu"})
    provide()
    session = InferenceSession(model(), providers=["fast", "cpu"])
    (provider,) = fast.made
    partition = provider.partitions[0]
    close, interrupts = partition.close, [KeyboardInterrupt()]

    def closing():
        if interrupts:
            raise interrupts.pop()
        close()

    partition.close = closing
    with pytest.raises(KeyboardInterrupt):
        session.close()
    with pytest.raises(SessionClosedError):
        session.run(None, {"x": X})
    assert not provider.closed
    session.close()
    assert provider.closed == 1
    session.close()
    assert provider.closed == 1


# ------------------------------------------------------------ compiling


def place(provide, **settings):
    fast = provide("fast", **settings)
    provide()
    with InferenceSession(model(), providers=["fast", "cpu"]) as session:
        report = session.get_placement()
        np.testing.assert_allclose(
            session.run(None, {"x": X})[0], np.tanh(np.maximum(-np.abs(X), 0))
        )
    (provider,) = fast.made
    assert all(partition.closed == 1 for partition in provider.partitions)
    return {p.op_type for p in report.nodes[""] if p.provider == "cpu"}, report, provider


def test_a_failing_operator_costs_its_nodes_and_no_others(provide):
    elsewhere, report, _ = place(provide, fail_compile={"Neg"})
    assert elsewhere == {"Neg"}
    (refused,) = report.refused_claims
    assert refused == "fast refused 2 of 7 node(s) [Neg]; compile failed: ValueError: told to fail"


def test_several_failing_operators_are_found_one_by_one(provide):
    elsewhere, _, _ = place(provide, fail_compile={"Neg", "Tanh"})
    assert elsewhere == {"Neg", "Tanh"}


def test_a_provider_that_compiles_nothing_is_given_up(provide):
    elsewhere, report, provider = place(provide, fail_compile={"Abs", "Neg", "Relu", "Tanh"})
    assert elsewhere == {"Abs", "Neg", "Relu", "Tanh"}
    assert provider.partitions == []
    assert len(report.refused_claims) <= 5


def test_searches_for_the_failing_operator_are_few(provide, monkeypatch):
    """One claim of 64 nodes in which one operator fails: log2(64) more compilations, and one."""
    text = "".join(f"v{i + 1} = {'Tanh' if i == 40 else 'Abs'}(v{i})\n" for i in range(64))
    long = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N] v0) => (float[N] v64) {' + text + "}"
    )
    fast = provide("fast", fail_compile={"Tanh"})
    provide()
    calls = []
    create = fast.create

    def counted(device, options):
        provider = create(device, options)
        compute = provider.compile
        provider.compile = lambda subgraph: (calls.append(1), compute(subgraph))[1]
        return provider

    monkeypatch.setattr(fast, "create", counted)
    with InferenceSession(
        long, providers=["fast", "cpu"], sess_options=options(graph_optimization_level=0)
    ) as session:
        cpu = [p.op_type for p in session.get_placement().nodes[""] if p.provider == "cpu"]
    assert cpu == ["Tanh"]
    assert len(calls) <= 1 + 6 + 2


def test_a_lost_device_is_not_asked_again(provide, monkeypatch):
    calls = []

    def compile_(self, subgraph):
        calls.append(subgraph.name)
        raise DeviceLostError("gone")

    provide("fast")
    monkeypatch.setattr(ReferenceProvider, "compile", compile_)
    with pytest.raises(PlacementError, match="gone"):
        InferenceSession(
            model(), providers=["fast"], sess_options=options(disable_cpu_fallback=True)
        )
    assert len(calls) == 1


def test_a_partition_that_breaks_its_contract_is_closed(provide, monkeypatch):
    closed = []
    monkeypatch.setattr(ReferencePartition, "accepts_outputs", property(lambda self: []))
    monkeypatch.setattr(ReferencePartition, "close", lambda self: closed.append(self))
    provide("fast")
    with pytest.raises(PlacementError, match="accepts_outputs"):
        InferenceSession(
            model(), providers=["fast"], sess_options=options(disable_cpu_fallback=True)
        )
    assert closed
    assert len(closed) == len(set(map(id, closed)))
