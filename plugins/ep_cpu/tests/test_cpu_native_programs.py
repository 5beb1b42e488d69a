"""Native programs as partitions: mixed ones, threads, forks, shared weights, memory, options."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import numpy as np
import pytest
from cpu_native import (
    LEVELS,
    check_same,
    compile_model,
    model_of,
    needs_native,
    on_every_level,
    random,
)
from onnx import helper

from ep_core.contracts import NodeTime
from ep_core.discovery.registry import registry
from ep_core.errors import EpError, RunError
from ep_cpu.native.binding import native_module

pytestmark = needs_native
node = helper.make_node


def perceptron(rows="rows"):
    """Two layers over any number of rows."""
    nodes = [
        node("Gemm", ["x", "w1", "b1"], ["h"], name="first"),
        node("Relu", ["h"], ["r"], name="bend"),
        node("Gemm", ["r", "w2", "b2"], ["y"], name="second"),
    ]
    weights = {
        "w1": random(300, 400),
        "b1": random(400),
        "w2": random(400, 200, seed=1),
        "b2": random(200),
    }
    return model_of(nodes, {"x": random(1, 300)}, weights, shapes={"x": [rows, 300]})


@on_every_level
def test_other_kernels_stand_between_native_segments(level):
    """Cos has no native operation; nodes that don't wait for it go before it."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Cos", ["a"], ["b"]),
        node("Relu", ["x"], ["c"]),
        node("Add", ["b", "c"], ["d"]),
        node("MatMul", ["d", "w"], ["y"]),
    ]
    native = check_same(nodes, {"x": random(9, 20)}, level, {"w": random(20, 20)})
    assert native.kinds == ["matmul", "elementwise", "elementwise", "matmul"]
    assert len(native.segments) == 2


@on_every_level
def test_nodes_whose_results_nobody_reads(level):
    nodes = [
        node("Cos", ["x"], ["a"]),
        node("Relu", ["a"], ["unread"]),
        node("Sin", ["x"], ["b"]),
        node("MatMul", ["b", "w"], ["y"]),
    ]
    model = model_of(nodes, {"x": random(3, 4)}, {"w": random(4, 4)})
    (found,) = compile_model(model, level).run({"x": random(3, 4)})
    np.testing.assert_allclose(found, np.sin(random(3, 4)) @ random(4, 4), rtol=1e-5, atol=1e-5)


@on_every_level
def test_results_do_not_depend_on_threads_or_on_others_at_work(level):
    model = perceptron()
    expected = {n: compile_model(model, level).run({"x": random(n, 300)})[0] for n in (1, 5, 200)}
    shared = compile_model(model, level, threads=4)
    problems = []

    def work(count):
        for _ in range(20):
            (found,) = shared.run({"x": random(count, 300)})
            if not np.array_equal(found, expected[count]):
                problems.append(count)

    threads = [threading.Thread(target=work, args=(n,)) for n in expected for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_more_runs_at_once_than_the_pool_has_places():
    model = perceptron()
    shared = compile_model(model, LEVELS[0], threads=2)
    x = random(60, 300)
    (expected,) = shared.run({"x": x})
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(shared.run({"x": x})[0])) for _ in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(threads)
    assert all(np.array_equal(item, expected) for item in found)


FORKING = """
import os, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from cpu_native import LEVELS, compile_model, random
from test_cpu_native_programs import perceptron
compiled = compile_model(perceptron(), LEVELS[0], threads=3)
x = random(200, 300)
(expected,) = compiled.run({"x": x})
child = os.fork()
if child == 0:
    (found,) = compiled.run({"x": x})
    (again,) = compiled.run({"x": x})
    os._exit(0 if np.array_equal(found, expected) and np.array_equal(again, expected) else 1)
_, status = os.waitpid(child, 0)
(found,) = compiled.run({"x": x})
assert np.array_equal(found, expected)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_forked_child_gets_threads_of_its_own():
    folder = __file__.rpartition("/")[0]
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, folder]
    subprocess.run(command, check=True, timeout=60)


def test_two_programs_of_one_model_share_packed_weights():
    gc.collect()
    before = native_module().living_weights()
    first = compile_model(perceptron(), LEVELS[0])
    assert native_module().living_weights() == before + 2
    second = compile_model(perceptron(), LEVELS[0], threads=2)
    assert native_module().living_weights() == before + 2
    first.partition.close()
    x = random(3, 300)
    assert np.isfinite(second.run({"x": x})[0]).all()
    second.partition.close()
    gc.collect()
    assert native_module().living_weights() == before


def test_weights_of_equal_size_and_other_content_are_kept_apart():
    feeds = {"x": random(2, 16)}
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    held = []
    for seed in range(4):
        w = random(16, 16, seed=seed)
        compiled = compile_model(model_of(nodes, feeds, {"w": w}), LEVELS[0])
        held.append(compiled)
        np.testing.assert_allclose(compiled.run(feeds)[0], feeds["x"] @ w, rtol=1e-5, atol=1e-5)


def test_memory_given_for_an_output_is_written_into():
    compiled = compile_model(perceptron(), LEVELS[0])
    assert compiled.partition.accepts_outputs == [True]
    x = random(3, 300)
    (expected,) = compiled.run({"x": x})
    memory = np.empty((3, 200), np.float32)
    results = [memory]
    compiled.partition.run([x], results, None)
    assert results[0] is memory
    np.testing.assert_array_equal(memory, expected)
    with pytest.raises(RunError):
        compiled.partition.run([x], [np.empty((4, 200), np.float32)], None)


def test_many_shapes_in_turn():
    compiled = compile_model(perceptron(), LEVELS[0])
    expected = compile_model(perceptron(), "none")
    for count in [*range(1, 50), 1, 2, 3]:
        x = random(count, 300)
        np.testing.assert_allclose(
            compiled.run({"x": x})[0], expected.run({"x": x})[0], rtol=1e-4, atol=2e-3
        )


def test_a_closed_partition_says_so():
    compiled = compile_model(perceptron(), LEVELS[0])
    compiled.partition.close()
    compiled.partition.close()
    with pytest.raises(RunError, match="closed"):
        compiled.run({"x": random(1, 300)})


def test_steps_are_timed_one_by_one():
    factory = registry().factory("cpu")
    provider = factory.create(factory.devices()[0], {"instructions": LEVELS[0]})
    compiled = compile_model(perceptron(), LEVELS[0])
    times: list[NodeTime] = []
    provider.profile_partition(compiled.partition, times.append)
    x = random(40, 300)
    results = [None]
    compiled.partition.run([x], results, None)
    assert [time.node for time in times] == ["bend", "second"]
    assert all(time.start_ns < time.end_ns for time in times)
    assert times[0].end_ns <= times[1].start_ns


def test_memory_is_told_with_packed_weights():
    factory = registry().factory("cpu")
    provider = factory.create(factory.devices()[0], {"instructions": LEVELS[0]})
    memory = provider.get_partition_memory(compile_model(perceptron(32), LEVELS[0]).partition)
    weights = 4 * (300 * 400 + 400 + 400 * 200 + 200)
    assert weights + 4 * (300 * 400 + 400 * 200) <= memory.constant_bytes <= 2.2 * weights
    assert 4 * 32 * 400 <= memory.workspace_bytes <= 4 * 32 * 400 + 4096
    assert memory.output_bytes == 4 * 32 * 200


@pytest.mark.parametrize(
    "options",
    [{"instructions": "mmx"}, {"intra_op_num_threads": -1}, {"intra_op_num_threads": "x"}],
)
def test_wrong_options_are_refused(options):
    from ep_core import InferenceSession

    with pytest.raises(EpError):
        InferenceSession(perceptron().SerializeToString(), providers=[("cpu", options)])


@on_every_level
def test_shapes_from_one_segment_are_known_in_another(level):
    """The second Reshape needs a length that is computed before Cos, which isn't native."""
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Shape", ["r"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Concat", ["n", "rest"], ["target"], axis=0),
        node("Reshape", ["r", "target"], ["a"]),
        node("Cos", ["a"], ["c"]),
        node("Reshape", ["c", "target"], ["b"]),
        node("MatMul", ["b", "w"], ["y"]),
    ]
    constants = {
        "zero": np.array([0], np.int64),
        "rest": np.array([4, 5], np.int64),
        "w": random(5, 6),
    }
    for count in (1, 3):
        native = check_same(
            nodes, {"x": random(count, 20)}, level, constants, shapes={"x": ["n", 20]}
        )
        assert len(native.segments) == 2
        assert native.segments[1]._steps[-1].kind == "matmul"
