"""Artifacts of the simulator: out and in again, refused where they should be, and in sessions."""

from __future__ import annotations

import logging
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest

from ep_core import InferenceSession, SessionOptions
from ep_core.errors import CompileError, DeviceLostError, ProviderError, RunError

TEXT = "(float[4] x) => (float[4] y) { a = Add(x, c) b = Neg(a) y = Mul(b, c) }"
C = np.float32([1, 2, 3, 4])
X = np.float32([5, 6, 7, 8])
MODEL = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y)'
    " <float[4] c = {1, 2, 3, 4}> { a = Add(x, c) b = Neg(a) y = Mul(b, c) }"
)


@pytest.fixture
def region(graph_of, whole):
    """`region(text, **constants)`: a subgraph that is a whole graph."""
    return lambda text=TEXT, **constants: whole(graph_of(text, **{"c": C, **constants}))


@pytest.fixture
def run_part(to_device, to_host):
    """`run_part(provider, part, x)`: run a partition of one input and one output once."""

    def run(provider, part, x):
        stream = provider.create_stream()
        fed = to_device(provider, stream, x)
        outputs = [None]
        try:
            part.run([fed], outputs, stream)
            return to_host(provider, stream, outputs[0])
        finally:
            for buffer in (fed, *outputs):
                if buffer is not None:
                    provider.allocator.release(buffer, stream)
            stream.close()

    return run


def artifact_of(provider, subgraph):
    return provider.export_partition(provider.compile(subgraph))


@pytest.mark.parametrize("device", ["0", "1"])
def test_what_is_imported_gives_the_same_bits(simulator, region, run_part, device):
    first = simulator()
    part = first.compile(region())
    artifact = first.export_partition(part)
    expected = run_part(first, part, X)
    first.close()
    second = simulator(device)
    imported = second.import_partition(region(), artifact)
    assert run_part(second, imported, X).tobytes() == expected.tobytes()
    np.testing.assert_array_equal(expected, -(X + C) * C)
    assert second.export_partition(imported) == artifact


def test_an_artifact_brings_its_own_weights(simulator, region, run_part):
    """The core keeps artifacts of other weights apart; what is imported here shows whose it is."""
    device = simulator()
    artifact = artifact_of(device, region(c=C * 2))
    part = device.import_partition(region(), artifact)
    np.testing.assert_array_equal(run_part(device, part, X), -(X + C * 2) * C * 2)


def test_importing_does_not_compile(simulator, region, run_part):
    artifact = artifact_of(simulator(), region())
    device = simulator(fail_compile=frozenset({"always"}), compile_latency_us=60_000_000)
    part = device.import_partition(region(), artifact)
    np.testing.assert_array_equal(run_part(device, part, X), -(X + C) * C)


def test_compiling_takes_the_time_that_it_is_told(simulator, region):
    began = time.perf_counter()
    simulator(compile_latency_us=20_000).compile(region())
    assert time.perf_counter() - began >= 0.06


BAD = {
    "empty": lambda good: b"",
    "a header without an end": lambda good: good[:20],
    "truncated": lambda good: good[:-1],
    "grown": lambda good: good + b"\0",
    "foreign": lambda good: b"\x7fELF" + bytes(500),
    "no model": lambda good: good[:24] + bytes([255]) * (len(good) - 24),
}


@pytest.mark.parametrize("what", BAD)
def test_what_it_does_not_know_is_refused(simulator, region, run_part, what):
    device = simulator()
    good = artifact_of(device, region())
    with pytest.raises(CompileError, match="the artifact "):
        device.import_partition(region(), BAD[what](good))
    part = device.import_partition(region(), good)
    np.testing.assert_array_equal(run_part(device, part, X), -(X + C) * C)


def test_an_artifact_with_another_boundary_is_refused(simulator, region):
    device = simulator()
    other = region("(float[4] x) => (float[4] y, float[4] a) { a = Add(x, c) y = Neg(a) }")
    with pytest.raises(CompileError, match=r"another subgraph; expected \('x',\) -> \('y',\)"):
        device.import_partition(region(), artifact_of(device, other))


def test_faults(simulator, region):
    artifact = artifact_of(simulator(), region())
    with pytest.raises(CompileError, match="exporting a partition failed as told"):
        artifact_of(simulator(fail_export=True), region())
    with pytest.raises(CompileError, match="importing an artifact failed as told"):
        simulator(fail_import=True).import_partition(region(), artifact)
    with pytest.raises(CompileError, match="that this simulator didn't make"):
        simulator().export_partition(simulator().compile(region()))


def test_a_lost_or_closed_device_takes_no_artifacts(simulator, region, run_part):
    device = simulator(lose_device_at=1)
    part = device.compile(region())
    artifact = device.export_partition(part)
    with pytest.raises((DeviceLostError, RunError)):
        run_part(device, part, X)
    with pytest.raises(DeviceLostError):
        device.export_partition(part)
    with pytest.raises(DeviceLostError):
        device.import_partition(region(), artifact)
    device = simulator()
    device.close()
    with pytest.raises(ProviderError, match="closed"):
        device.import_partition(region(), artifact)


# ---------------------------------------------------------------- sessions


def session(folder, model=MODEL, **options):
    settings = SessionOptions()
    settings.disable_cpu_fallback = True
    settings.cache_dir = folder
    proto = onnx.parser.parse_model(model)
    return InferenceSession(proto, settings, [("simulator", options)])


def from_cache(one):
    (part,) = one.get_placement().partitions
    return part.from_cache


def test_the_second_session_hits(tmp_path):
    answers = []
    for hit in (False, True):
        with session(tmp_path) as one:
            assert from_cache(one) == hit
            answers.append(one.run(None, {"x": X})[0])
    assert answers[0].tobytes() == answers[1].tobytes()
    np.testing.assert_array_equal(answers[1], -(X + C) * C)


def test_other_weights_shapes_devices_and_options_miss(tmp_path):
    session(tmp_path).close()
    for model, options in [
        (MODEL.replace("{1, 2, 3, 4}", "{1, 2, 3, 5}"), {}),
        (MODEL.replace("float[4] x", "float[N, 4] x"), {}),
        (MODEL, {"alignment": 512}),
        (MODEL, {"device_id": "1"}),
    ]:
        for hit in (False, True):
            with session(tmp_path, model, **options) as one:
                assert from_cache(one) == hit
    with session(tmp_path, kernel_latency_us=1) as one:
        assert from_cache(one)


@pytest.mark.parametrize("fault", ["fail_export", "fail_import"])
def test_a_session_works_in_spite_of_faults(tmp_path, caplog, fault):
    caplog.set_level(logging.INFO, "ep_core")
    session(tmp_path).close()
    if fault == "fail_export":
        for path in tmp_path.iterdir():
            path.unlink()
    for _ in range(2):
        with session(tmp_path, **{fault: True}) as one:
            assert not from_cache(one)
            np.testing.assert_array_equal(one.run(None, {"x": X})[0], -(X + C) * C)
    assert "failed as told" in caplog.text


def test_an_import_that_runs_out_of_memory_costs_a_compilation(tmp_path, caplog):
    session(tmp_path).close()
    with session(tmp_path, fail_allocation_at=1) as one:
        assert not from_cache(one)
        np.testing.assert_array_equal(one.run(None, {"x": X})[0], -(X + C) * C)
    assert "can't import an artifact and compiles: AllocationError" in caplog.text


WORK = """
import sys, numpy as np, onnx
from ep_core import InferenceSession, SessionOptions

model = onnx.parser.parse_model(sys.argv[2])
wrong = 0
for turn in range(20):
    c = np.float32([turn % 4, 2, 3, 4])
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(c, "c"))
    settings = SessionOptions()
    settings.cache_dir = sys.argv[1]
    settings.cache_max_bytes = 700
    x = np.float32([5, 6, 7, 8])
    with InferenceSession(model, settings, ["simulator"]) as session:
        wrong += not np.array_equal(session.run(None, {"x": x})[0], -(x + c) * c)
sys.exit(wrong)
"""


def test_processes_share_a_folder(tmp_path):
    """Two processes write, read and evict the same few artifacts; every answer is right."""
    command = [sys.executable, "-c", WORK, str(tmp_path), MODEL]
    workers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for worker in workers:
        _, log = worker.communicate(timeout=120)
        assert (worker.returncode, log) == (0, "")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 700
    assert {path.suffix for path in tmp_path.iterdir()} == {".ep-artifact"}
