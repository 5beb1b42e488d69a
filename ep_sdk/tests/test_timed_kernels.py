"""Kernels are timed in sessions that are profiled, on the host and on a device's stream."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from ep_core import InferenceSession, SessionOptions
from ep_core.contracts import ProviderFeatures
from ep_core.errors import ProviderError, RunError
from ep_core.types import DataType
from ep_sdk.kernels import KernelTable

CHAIN = (
    '<ir_version: 8, opset_import: ["" : 17]> '
    "g (float[4] x) => (float[4] d) { a = Exp(x) b = Mul(a, a) c = Neg(b) d = Add(c, x) }"
)
X = np.float32([1, 2, 3, 4])
LATENCY_US = 3000


def host_table() -> KernelTable:
    table = KernelTable({"": 17})
    floats = {"T": frozenset({DataType.FLOAT})}
    table.kernel("Neg", types=floats)(lambda node: np.negative)
    table.kernel("Abs", types=floats)(lambda node: slow_abs)
    return table


def slow_abs(value):
    time.sleep(0.002)
    return np.abs(value)


@pytest.fixture
def events(tmp_path):
    """`events(*devices, runs=1, text=...)`: a trace of sessions on simulated devices."""

    def trace(*devices, runs=1):
        settings = SessionOptions()
        settings.disable_cpu_fallback = True
        settings.enable_profiling = True
        settings.profile_file_prefix = str(tmp_path / "trace")
        providers = [("simulator", {"device_id": str(n), **o}) for n, o in enumerate(devices)]
        model = onnx.parser.parse_model(CHAIN).SerializeToString()
        with InferenceSession(model, settings, providers) as session:
            for _ in range(runs):
                (d,) = session.run(None, {"x": X})
            placement = session.get_placement()
            path = session.end_profiling()
        np.testing.assert_allclose(d, -np.exp(X) * np.exp(X) + X, rtol=1e-6)
        return json.loads(Path(path).read_text()), placement

    return trace


def of_kind(events, category):
    return sorted((e for e in events if e.get("cat") == category), key=lambda e: e["ts"])


def row_names(events):
    return {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}


def test_nodes_of_a_device_are_timed_where_they_run(events):
    found, _ = events({"kernel_latency_us": LATENCY_US})
    nodes = of_kind(found, "node")
    assert [(e["name"], e["args"]["operator"]) for e in nodes] == [
        ("Exp_0", "Exp"),
        ("Mul_1", "Mul"),
        ("Neg_2", "Neg"),
        ("Add_3", "Add"),
    ]
    rows = row_names(found)
    assert len({e["tid"] for e in nodes}) == 1
    assert rows[nodes[0]["tid"]].startswith("simulator stream ")
    for event, after in zip(nodes, [*nodes[1:], None], strict=True):
        assert event["dur"] >= LATENCY_US
        assert after is None or event["ts"] + event["dur"] <= after["ts"]


def test_what_the_host_only_queues_is_called_that(events):
    found, _ = events({"kernel_latency_us": LATENCY_US})
    (part,) = of_kind(found, "partition")
    (run,) = of_kind(found, "run")
    (wait,) = [e for e in of_kind(found, "wait") if e["name"] == "wait for a stream"]
    assert part["name"] == "simulator_0, queued"
    assert "stream" in part["args"]["measured"]
    # The host is through long before the device, waits for it, and is done after it.
    last = of_kind(found, "node")[-1]
    assert part["ts"] + part["dur"] < last["ts"]
    assert run["dur"] >= wait["dur"] > 2 * LATENCY_US
    assert run["ts"] + run["dur"] >= last["ts"] + last["dur"]


def test_copies_on_streams_are_timed_where_they_happen(events):
    found, placement = events({"copy_latency_us": LATENCY_US}, runs=2)
    copies = of_kind(found, "device copy")
    assert sorted(c["name"] for c in copies) == sorted(
        f"copy {c.value}" for c in placement.copies * 2
    )
    rows = row_names(found)
    for copy in copies:
        source, target = (copy["args"][side].partition("/")[0] for side in ("from", "to"))
        assert rows[copy["tid"]].startswith(f"copies {source} to {target}, stream ")
    queued = {c["name"]: c["ts"] for c in of_kind(found, "copy")}
    assert all(copy["ts"] > queued[f"{copy['name']}, queued"] for copy in copies[-2:])


def test_two_devices_have_rows_and_counters_of_their_own(events):
    found, placement = events({"skip": "Neg"}, {}, runs=2)
    assert len(placement.partitions) == 3
    runs = of_kind(found, "run")
    for run in runs:
        parts = [
            e["args"]["partition"]
            for e in of_kind(found, "partition")
            if run["ts"] <= e["ts"] < run["ts"] + run["dur"]
        ]
        assert parts == [part.name for part in placement.partitions]
    copies = of_kind(found, "copy")
    assert {e["args"]["bytes"] for e in copies} == {16}
    assert len(copies) == 2 * len(placement.copies)
    rows = row_names(found)
    used = {rows[e["tid"]].split(" stream")[0] for e in of_kind(found, "node")}
    assert used == {"simulator:0", "simulator:1"}
    counters = {e["name"] for e in found if e["ph"] == "C"}
    assert counters == {"bytes in use, simulator:0/device", "bytes in use, simulator:1/device"}


def test_bound_device_memory(tmp_path):
    settings = SessionOptions()
    settings.enable_profiling = True
    settings.profile_file_prefix = str(tmp_path / "trace")
    model = onnx.parser.parse_model(CHAIN).SerializeToString()
    with InferenceSession(model, settings, ["simulator"]) as session:
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_output("d", "simulator", 0)
        session.run_with_iobinding(binding)
        session.run_with_iobinding(binding)
        (d,) = binding.copy_outputs_to_cpu()
        found = json.loads(Path(session.end_profiling()).read_text())
    np.testing.assert_allclose(d, -np.exp(X) * np.exp(X) + X, rtol=1e-6)
    assert len(of_kind(found, "run")) == 2
    assert len(of_kind(found, "partition")) == 2
    assert len(of_kind(found, "node")) == 8
    assert {e["args"]["to"] for e in of_kind(found, "copy")} == {"simulator:0/device"}


def test_estimates_stand_beside_the_times(events):
    found, _ = events({"kernel_latency_us": 50})
    (part,) = of_kind(found, "partition")
    # Four kernels, and what is assumed for starting a partition on a device of unknown kind.
    assert part["args"]["predicted_us"] == pytest.approx(4 * 50 + 5)
    for copy in of_kind(found, "copy"):
        assert copy["args"]["predicted_us"] == pytest.approx(10, rel=0.01), "a copy's latency"


def test_a_failing_kernel_ends_its_stream_and_not_the_trace(tmp_path):
    settings = SessionOptions()
    settings.enable_profiling = True
    settings.profile_file_prefix = str(tmp_path / "trace")
    model = onnx.parser.parse_model(CHAIN).SerializeToString()
    providers = [("simulator", {"fail_kernel_at": 2})]
    with InferenceSession(model, settings, providers) as session:
        with pytest.raises(RunError, match="as told"):
            session.run(None, {"x": X})
        session.run(None, {"x": X})
        found = json.loads(Path(session.end_profiling()).read_text())
    done = [e["args"]["operator"] for e in of_kind(found, "node")]
    assert done == ["Exp", "Exp", "Mul", "Neg", "Add"]


@pytest.mark.parametrize(
    "text",
    [
        "(float[4] x) => (float[4] y) { a = Abs(x) y = Neg(a) }",
        "(float[4] x) => (float[4] y) { y = Abs(x) }",
    ],
    ids=["program", "one node"],
)
def test_host_kernels_are_timed_by_their_call(host_provider, graph_of, whole, text):
    seen = []
    provider = host_provider(host_table(), features=ProviderFeatures(profiles_nodes=True))
    partition = provider.compile(whole(graph_of(text)))
    provider.profile_partition(partition, seen.append)
    for _ in range(3):  # watched, planned, planned
        outputs = [None]
        start = time.perf_counter_ns()
        partition.run([X], outputs, None)
        end = time.perf_counter_ns()
        np.testing.assert_array_equal(np.abs(outputs[0]), X)
        first = next(item for item in seen if item.op_type == "Abs")
        assert start <= first.start_ns
        assert seen[-1].end_ns <= end
        assert first.end_ns - first.start_ns >= 2_000_000
        assert [item.op_type for item in seen] == ["Abs", "Neg"][: len(seen)]
        assert {item.queue for item in seen} == {""}
        seen.clear()


def test_a_program_that_is_not_timed_calls_its_kernels_themselves(host_provider, graph_of, whole):
    provider = host_provider(host_table())
    partition = provider.compile(whole(graph_of("(float[4] x) => (float[4] y) { y = Neg(x) }")))
    assert partition._kernel is np.negative
    provider.profile_partition(partition, lambda time: None)
    assert partition._kernel is not np.negative


def test_a_partition_of_somebody_else_is_refused(host_provider):
    with pytest.raises(ProviderError, match="another one's partition"):
        host_provider(host_table()).profile_partition(object(), lambda time: None)
