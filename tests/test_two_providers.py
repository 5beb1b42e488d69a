"""The simulator and the CPU provider on one model: two memories, control flow, many threads.

The right answer is always the CPU provider's alone, which `test_real_models.py` holds against
ONNX Runtime.
"""

from __future__ import annotations

import gc
import threading
import tracemalloc

import numpy as np
import pytest
from onnx import TensorProto, helper, parser

from ep_core import InferenceSession, SessionOptions
from ep_core.errors import AllocationError, DeviceLostError, EpError

SIMULATOR = ("simulator", {})


def looping_model():
    """A model in which both providers work in every scope.

    h = tanh(x @ w); Loop m times: h = relu(h @ v) + erf(h), collecting sums; then an If on the sum.
    Erf, Unique and NonZero aren't in the simulator, so bodies are split too.
    """
    vi = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["h_in", "v"], ["hv"]),
            helper.make_node("Relu", ["hv"], ["hr"]),
            helper.make_node("Erf", ["h_in"], ["he"]),
            helper.make_node("Add", ["hr", "he"], ["h_out"]),
            helper.make_node("ReduceSum", ["h_out"], ["total"], keepdims=0),
            helper.make_node("Identity", ["more_in"], ["more_out"]),
        ],
        "body",
        [
            vi("i", TensorProto.INT64, []),
            vi("more_in", TensorProto.BOOL, []),
            vi("h_in", TensorProto.FLOAT, ["N", 8]),
        ],
        [
            vi("more_out", TensorProto.BOOL, []),
            vi("h_out", TensorProto.FLOAT, ["N", 8]),
            vi("total", TensorProto.FLOAT, []),
        ],
    )
    then_branch = helper.make_graph(
        [
            helper.make_node("Mul", ["h_last", "h0"], ["t0"]),
            helper.make_node("Erf", ["t0"], ["t"]),
        ],
        "then",
        [],
        [vi("t", TensorProto.FLOAT, ["N", 8])],
    )
    else_branch = helper.make_graph(
        [helper.make_node("Sub", ["h_last", "h0"], ["e"])],
        "else",
        [],
        [vi("e", TensorProto.FLOAT, ["N", 8])],
    )
    rng = np.random.default_rng(7)

    def weight(name: str, *shape: int):
        values = rng.normal(scale=0.4, size=shape).astype(np.float32)
        return helper.make_tensor(name, TensorProto.FLOAT, shape, values.tobytes(), raw=True)

    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"]),
            helper.make_node("Tanh", ["xw"], ["h0"]),
            helper.make_node("Loop", ["m", "", "h0"], ["h_last", "totals"], body=body),
            helper.make_node("ReduceSum", ["totals"], ["grand"], keepdims=0),
            helper.make_node("Greater", ["grand", "zero"], ["positive"]),
            helper.make_node(
                "If", ["positive"], ["y"], then_branch=then_branch, else_branch=else_branch
            ),
        ],
        "looping",
        [vi("x", TensorProto.FLOAT, ["N", 4]), vi("m", TensorProto.INT64, [])],
        [
            vi("y", TensorProto.FLOAT, ["N", 8]),
            vi("totals", TensorProto.FLOAT, [None]),
            vi("h0", TensorProto.FLOAT, ["N", 8]),
        ],
        [
            weight("w", 4, 8),
            weight("v", 8, 8),
            helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feeds(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 6))
    return {
        "x": rng.normal(size=(rows, 4)).astype(np.float32),
        "m": np.array(rng.integers(0, 5), np.int64),
    }


def providers_of(session: InferenceSession) -> set[str]:
    return {p.provider for nodes in session.get_placement().nodes.values() for p in nodes}


def assert_equal(got, expected):
    for value, right in zip(got, expected, strict=True):
        assert value.dtype == right.dtype
        np.testing.assert_allclose(value, right, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("level", [0, 99])
def test_mixed_answers_equal_the_cpu_alone(level):
    options = SessionOptions()
    options.graph_optimization_level = level
    model = looping_model()
    with (
        InferenceSession(model, options, providers=["cpu"]) as alone,
        InferenceSession(model, options, providers=[SIMULATOR, "cpu"]) as mixed,
    ):
        assert providers_of(mixed) == {"simulator", "cpu", "core"}
        assert mixed.get_placement().copies
        for seed in range(12):
            assert_equal(mixed.run(None, feeds(seed)), alone.run(None, feeds(seed)))


def test_eight_threads_without_growth():
    """Threads share one session; device memory, threads and host memory don't grow."""
    model = looping_model()
    wrong: list[str] = []
    with (
        InferenceSession(model, providers=["cpu"]) as alone,
        InferenceSession(model, providers=[SIMULATOR, "cpu"]) as mixed,
    ):
        expected = {seed: alone.run(None, feeds(seed)) for seed in range(16)}
        allocator = mixed._candidates[0].provider.allocator

        def work(first: int) -> None:
            for round_ in range(6):
                seed = (first * 5 + round_) % 16
                try:
                    assert_equal(mixed.run(None, feeds(seed)), expected[seed])
                except (AssertionError, EpError) as error:
                    wrong.append(f"seed {seed}: {error}")

        def storm() -> None:
            threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        storm()
        assert wrong == []
        in_use = allocator.stats().in_use_bytes
        running = threading.active_count()
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(3):
            storm()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert wrong == []
        assert allocator.stats().in_use_bytes == in_use
        assert threading.active_count() <= running
        assert grown < 200_000
    assert allocator.stats().in_use_bytes == 0


def test_two_devices_of_one_provider():
    """Names tell the devices apart; values go from one to the other."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    two (float[3] x) => (float[3] y)
    { a = Relu(x)  b = Erf(a)  c = Neg(b)  y = Tanh(c) }
    """
    model = parser.parse_model(text)
    wish = [("simulator", {"device_id": "1"}), ("simulator", {"device_id": "0"}), "cpu"]
    x = np.array([-1, 0.5, 2], np.float32)
    with (
        InferenceSession(model, providers=wish) as session,
        InferenceSession(model, providers=["cpu"]) as alone,
    ):
        assert session.get_placement().providers == ("simulator:1", "simulator:0", "cpu")
        np.testing.assert_allclose(
            session.run(None, {"x": x})[0], alone.run(None, {"x": x})[0], rtol=1e-6
        )


@pytest.mark.parametrize(
    ("faults", "error"),
    [
        ({"fail_allocation_at": 12}, AllocationError),
        ({"lose_device_at": 3}, DeviceLostError),
    ],
)
def test_faults_end_in_our_errors_and_leak_nothing(faults, error):
    with InferenceSession(looping_model(), providers=[("simulator", faults), "cpu"]) as session:
        allocator = session._candidates[0].provider.allocator
        seen = []
        for seed in range(8):
            try:
                session.run(None, feeds(seed))
            except EpError as caught:
                seen.append(caught)
        assert any(isinstance(caught, error) for caught in seen)
    assert allocator.stats().in_use_bytes == 0


def test_failed_allocation_leaves_a_session_that_works():
    model = looping_model()
    with (
        InferenceSession(model, providers=["cpu"]) as alone,
        InferenceSession(
            model, providers=[("simulator", {"fail_allocation_at": 6}), "cpu"]
        ) as session,
    ):
        failed = 0
        for seed in range(6):
            try:
                assert_equal(session.run(None, feeds(seed)), alone.run(None, feeds(seed)))
            except AllocationError:
                failed += 1
        assert failed == 1


def test_compile_failure_moves_the_nodes_to_the_cpu():
    model = looping_model()
    with (
        InferenceSession(model, providers=["cpu"]) as alone,
        InferenceSession(model, providers=[("simulator", {"fail_compile": "MatMul"}), "cpu"]) as s,
    ):
        assert_equal(s.run(None, feeds(3)), alone.run(None, feeds(3)))
        assert s.get_placement().refused_claims
