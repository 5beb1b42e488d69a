"""Timing real partitions: what is made for it is released, and failures are the caller's."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from ep_core import SessionOptions
from ep_core.candidates import close_candidates, open_candidates
from ep_core.errors import ContractError, NotSupportedError
from ep_core.loading.load import load_model
from ep_core.placement.roofline import Sizes
from ep_core.tuning import bench as room
from ep_core.tuning import store
from ep_core.tuning.bench import Bench
from ep_core.tuning.work import work_of


@pytest.fixture
def opened(provide):
    """`opened(operators=...)`: a bench, and the provider it times."""
    candidates = []

    def make(**settings):
        factory = provide("cpu", **settings)
        options = SessionOptions()
        options.certificate_policy = "off"
        candidates.extend(open_candidates(["cpu"], None, options))
        return Bench(candidates[-1]), factory.made[-1]

    yield make
    close_candidates(candidates)


def work(body="y = Neg(x)", inputs="float[3] x", outputs="float[3] y"):
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => ({outputs}) {{ {body} }}'
    graph = load_model(onnx.parser.parse_model(text)).graph
    return work_of(graph, range(len(graph.nodes)), Sizes(graph, {}))


def test_a_partition_is_run_several_times_and_closed(opened):
    bench, provider = opened()
    assert bench.seconds(work()) > 0
    (part,) = provider.partitions
    assert part.closed == 1


def test_what_fails_to_compile_or_to_run_raises_and_is_closed(opened):
    bench, provider = opened(fail_compile={"Abs"})
    with pytest.raises(ValueError, match="told to fail"):
        bench.seconds(work("y = Abs(x)"))
    provider.fail_run = ArithmeticError("boom")
    with pytest.raises(ArithmeticError, match="boom"):
        bench.seconds(work())
    assert [part.closed for part in provider.partitions] == [1]
    provider.fail_run = None
    assert bench.seconds(work()) > 0, "the next measurement is a new one"


def test_work_that_its_inputs_leave_nothing_of_isnt_timed(opened):
    bench, provider = opened()
    # The shape of Slice's result isn't known, and zeros for `ends` leave nothing of the input.
    sliced = work("y = Slice(x, s, e)", "float[3] x, int64[1] s, int64[1] e", "float[n] y")
    with pytest.raises(ContractError, match="output"):
        bench.seconds(sliced)
    assert [part.closed for part in provider.partitions] == [1]


def test_starting_a_partition_is_timed_with_an_operator_that_is_claimed(opened):
    bench, provider = opened(operators={"Neg"})
    assert bench.start_seconds() >= 0
    counts = [len(part.subgraph.nodes) for part in provider.partitions]
    assert counts == [1, 9]
    assert {node.op_type for part in provider.partitions for node in part.subgraph.nodes} == {"Neg"}


def test_without_such_an_operator_the_start_cant_be_timed(opened):
    bench, _ = opened(operators={"MatMul"})
    with pytest.raises(NotSupportedError):
        bench.start_seconds()


def test_nothing_is_copied_to_host_memory(opened):
    bench, _ = opened()
    with pytest.raises(NotSupportedError):
        bench.copying()


def test_a_longer_run_takes_longer(opened, monkeypatch):
    """The clock is ours, so that the figures are exact: every run of n nodes takes 2 + n."""
    now = [0.0]
    monkeypatch.setattr("ep_core.tuning.bench.time.perf_counter", lambda: now[0])
    bench, provider = opened()
    compile_ = provider.compile

    def timed(subgraph):
        part = compile_(subgraph)
        run = part.run

        def running(*args):
            now[0] += 2 + len(subgraph.nodes)
            run(*args)

        part.run = running
        return part

    provider.compile = timed
    assert bench.seconds(work()) == 3
    assert bench.seconds(work("a = Neg(x) b = Neg(a) y = Neg(b)")) == 5
    assert bench.start_seconds() == 2


def test_runs_see_arrays_that_are_right(opened):
    bench, provider = opened()
    seen = []
    compile_ = provider.compile

    def watched(subgraph):
        part = compile_(subgraph)
        run = part.run
        part.run = lambda inputs, *rest: (
            seen.append([x.copy() for x in inputs]),
            run(inputs, *rest),
        )
        return part

    provider.compile = watched
    bench.seconds(work("y = Gather(d, i)", "float[5, 2] d, int64[3] i", "float[3, 2] y"))
    data, indices = seen[0]
    assert (data.shape, data.dtype, indices.tolist()) == ((5, 2), np.float32, [0, 0, 0])
    assert all(np.array_equal(data, later[0]) for later in seen)


@pytest.mark.parametrize(("small", "large"), [(1e-5, 1e-3), (1e-5, 1e-5), (2e-5, 1e-5), (0.0, 0.0)])
def test_a_bandwidth_is_never_more_than_what_can_be_remembered(opened, monkeypatch, small, large):
    """Noise may make a large copy seem as quick as a small one."""
    bench, _ = opened()
    monkeypatch.setattr(bench, "_copied", lambda count: small if count == room._SMALL else large)
    latency, rate = bench.copying()
    assert latency == small
    assert 0 < rate <= store._MOST_SECONDS
    if small < large:
        assert rate == pytest.approx(4 * (room._LARGE - room._SMALL) / (large - small))
