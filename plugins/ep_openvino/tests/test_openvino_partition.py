"""Compiled partitions: values in and out, memory, shapes, threads, errors."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest
from openvino_harness import compute, graph_of, open_provider, random, whole

from ep_core.errors import CompileError, ProviderError, RunError
from ep_core.graph import Graph, Initializer
from ep_core.loading import export
from ep_openvino import convert
from ep_openvino.provider import OpenVinoProvider

PRODUCT = graph_of("g (float[2,3] x, float[3,4] w) => (float[2,4] y) { y = MatMul (x, w) }")
LARGE = graph_of("g (float[64,256] x) => (float[64,256] y) { y = Relu (x) }")
DYNAMIC = graph_of("g (float[n,3] x) => (float[n,3] y, int64[2] s) { y = Relu (x)  s = Shape (y) }")


def test_a_product(provider: OpenVinoProvider) -> None:
    (x, w) = (random(2, 3), random(3, 4))
    (y,) = compute(provider, PRODUCT, x, w)
    np.testing.assert_allclose(y, x.astype(np.float64) @ w, rtol=1e-6, atol=1e-6)
    assert y.dtype == np.float32


def test_32_bit_arithmetic_is_what_a_caller_gets_who_says_nothing(
    provider: OpenVinoProvider,
) -> None:
    graph = graph_of("g (float[64,512] x, float[512,64] w) => (float[64,64] y) { y=MatMul(x, w) }")
    (x, w) = (random(64, 512), random(512, 64))
    (y,) = compute(provider, graph, x, w)
    # bfloat16 has 8 bits: sums of 512 products would be off by a hundredth and more.
    np.testing.assert_allclose(y, x.astype(np.float64) @ w, atol=1e-4)


@pytest.mark.parametrize("graph", [PRODUCT, LARGE])
def test_results_are_new_and_stay_as_they_are(provider: OpenVinoProvider, graph: Graph) -> None:
    subgraph = whole(graph)
    part = provider.compile(subgraph)
    kinds = [graph.type_of(name) for name in subgraph.inputs]
    first: list[Any] = [None]
    second: list[Any] = [None]
    part.run([random(*kind.static_shape) for kind in kinds], first)
    before = first[0].copy()
    part.run([random(*kind.static_shape) + 1 for kind in kinds], second)
    np.testing.assert_array_equal(first[0], before)
    assert not np.shares_memory(first[0], second[0])
    assert first[0].flags.writeable
    part.close()


@pytest.mark.parametrize("graph", [PRODUCT, LARGE])
def test_given_memory_is_written_to(provider: OpenVinoProvider, graph: Graph) -> None:
    subgraph = whole(graph)
    inputs = [random(*graph.type_of(name).static_shape) for name in subgraph.inputs]
    (expected,) = compute(provider, graph, *inputs)
    part = provider.compile(subgraph)
    assert list(part.accepts_outputs) == [True]
    around = np.full(expected.size + 2, 7, np.float32)
    scattered = np.zeros((*expected.shape, 2), np.float32)[..., 0]
    for memory in (around[1:-1].reshape(expected.shape), scattered):
        outputs: list[Any] = [memory]
        part.run(inputs, outputs)
        assert outputs[0] is memory
        np.testing.assert_array_equal(memory, expected)
    assert around[0] == around[-1] == 7
    outputs = [None]
    part.run(inputs, outputs)
    assert not np.shares_memory(outputs[0], around)
    part.close()


@pytest.mark.parametrize("shape", [(2, 3), (64, 256)])
def test_inputs_of_any_layout_are_read_and_not_kept(
    provider: OpenVinoProvider, shape: tuple[int, int]
) -> None:
    rows, columns = shape
    graph = graph_of(f"g (float[{rows},{columns}] x) => (float[{rows},{columns}] y) {{ y=Abs(x) }}")
    plain = random(*shape)
    read_only = plain.copy()
    read_only.flags.writeable = False
    part = provider.compile(whole(graph))
    for x in (plain, read_only, np.asfortranarray(plain), plain[::-1, ::-1]):
        before = x.copy()
        references = sys.getrefcount(x)
        outputs: list[Any] = [None]
        part.run([x], outputs)
        np.testing.assert_array_equal(outputs[0], np.abs(before))
        np.testing.assert_array_equal(x, before)
        assert sys.getrefcount(x) == references
    part.close()


def test_lengths_that_change_from_run_to_run(provider: OpenVinoProvider) -> None:
    part = provider.compile(whole(DYNAMIC))
    assert list(part.accepts_outputs) == [False, True]
    for length in (2, 5, 0, 1, 5):
        x = random(length, 3)
        outputs: list[Any] = [None, None]
        part.run([x], outputs)
        np.testing.assert_array_equal(outputs[0], np.maximum(x, 0))
        np.testing.assert_array_equal(outputs[1], [length, 3])
        assert outputs[1].dtype == np.int64
    memory = np.zeros((2, 3), np.float32)
    outputs = [memory, None]
    part.run([random(2, 3)], outputs)
    assert outputs[0] is memory
    np.testing.assert_array_equal(memory, np.maximum(random(2, 3), 0))
    part.close()


def test_scalars_and_empty_tensors(provider: OpenVinoProvider) -> None:
    graph = graph_of("g (float x, float[0,3] e) => (float y, float[0,3] z) { y=Abs(x) z=Abs(e) }")
    (y, z) = compute(provider, graph, np.float32(-2), np.zeros((0, 3), np.float32))
    assert (y.shape, float(y), z.shape) == ((), 2.0, (0, 3))


def test_values_that_a_node_passes_on_keep_their_names(provider: OpenVinoProvider) -> None:
    graph = graph_of(
        "g (float[3] a, float[3] b) => (float[3] p, float[3] q, float[3] r, float[3] s) {"
        " p = Dropout (b)  q = Relu (p)  r = Dropout (q)  s = Sub (a, p) }"
    )
    (a, b) = (random(3), random(3) + 1)
    subgraph = whole(graph)
    feeds = [{"a": a, "b": b}[name] for name in subgraph.inputs]
    found = dict(zip(subgraph.outputs, compute(provider, graph, *feeds), strict=True))
    np.testing.assert_array_equal(found["p"], b)
    np.testing.assert_array_equal(found["q"], np.maximum(b, 0))
    np.testing.assert_array_equal(found["r"], np.maximum(b, 0))
    np.testing.assert_array_equal(found["s"], a - b)


def test_inputs_that_openvino_has_no_use_for(provider: OpenVinoProvider) -> None:
    graph = graph_of(
        "g (float[2,3] x, float[] ratio, bool[] training) => (float[2,3] y)"
        " { y = Dropout (x, ratio) }"
    )
    x = random(2, 3)
    (y,) = compute(provider, graph, x, np.float32(0.5))
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("threshold", [1, 2**30])
def test_weights_are_used_where_they_are(
    provider: OpenVinoProvider, monkeypatch: pytest.MonkeyPatch, threshold: int
) -> None:
    monkeypatch.setattr(convert, "_LARGE_BYTES", threshold)
    weights = random(3, 4)
    graph = graph_of("g (float[2,3] x, float[3,4] w) => (float[2,4] y) { y = MatMul (x, w) }")
    fixed = graph.replace(
        inputs=graph.inputs[:1], initializers={"w": Initializer.from_array("w", weights)}
    )
    model = convert.convert(provider._core, whole(fixed))
    constants = [op for op in model.get_ops() if op.get_type_name() == "Constant"]
    shared = [np.shares_memory(constant.data, weights) for constant in constants]
    assert any(shared) is (threshold == 1)
    x = random(2, 3)
    (y,) = compute(provider, fixed, x)
    np.testing.assert_allclose(y, x @ weights, rtol=1e-5, atol=1e-6)


def test_weights_beyond_what_a_proto_holds(
    provider: OpenVinoProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "_PROTOBUF_LIMIT", 2**20)
    weights = random(1024, 1024)
    graph = graph_of(
        "g (float[2,1024] x, float[1024,1024] w) => (float[2,1024] y) { y=MatMul(x,w) }"
    )
    fixed = graph.replace(
        inputs=graph.inputs[:1], initializers={"w": Initializer.from_array("w", weights)}
    )
    x = random(2, 1024)
    (y,) = compute(provider, fixed, x)
    np.testing.assert_allclose(y, x @ weights, rtol=1e-4, atol=1e-3)


def test_an_operator_that_needs_its_weight_gets_it(
    provider: OpenVinoProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert, "_LARGE_BYTES", 1)
    graph = graph_of("g (float[1,4] x, int64[2] s) => (float[2,2] y) { y = Reshape (x, s) }")
    shape = Initializer.from_array("s", np.array([2, 2]))
    fixed = graph.replace(inputs=graph.inputs[:1], initializers={"s": shape})
    (y,) = compute(provider, fixed, random(1, 4))
    assert y.shape == (2, 2)


def test_many_threads_at_once(provider: OpenVinoProvider) -> None:
    part = provider.compile(whole(LARGE))
    inputs = [random(64, 256) + number for number in range(4)]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            outputs: list[Any] = [None]
            part.run([inputs[number]], outputs)
            if not np.array_equal(outputs[0], np.maximum(inputs[number], 0)):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    part.close()


@pytest.mark.parametrize(
    "x", [np.ones((3, 2), np.float32), np.ones((1, 3), np.float32), np.ones((2, 3))]
)
def test_an_input_of_another_shape_or_type_is_an_error(provider: OpenVinoProvider, x: Any) -> None:
    with pytest.raises(RunError, match="'x' isn't what the model was compiled for"):
        compute(provider, PRODUCT, x, random(3, 4))


def test_after_an_error_runs_go_on(provider: OpenVinoProvider) -> None:
    part = provider.compile(whole(PRODUCT))
    with pytest.raises(RunError):
        part.run([random(3, 3), random(3, 4)], [None])
    outputs: list[Any] = [None]
    part.run([random(2, 3), random(3, 4)], outputs)
    assert outputs[0].shape == (2, 4)
    part.close()


def test_what_openvino_cannot_compile_is_an_error_with_its_words(
    provider: OpenVinoProvider,
) -> None:
    graph = graph_of("g (float[2] x) => (float[2] y) { y = com.microsoft.Inverse (x) }")
    with pytest.raises(CompileError, match="Inverse"):
        provider.compile(whole(graph))


def test_closing_in_any_order(provider: OpenVinoProvider) -> None:
    own = open_provider()
    (first, second) = (own.compile(whole(PRODUCT)), own.compile(whole(PRODUCT)))
    first.close()
    first.close()
    with pytest.raises(RunError, match="is closed"):
        first.run([random(2, 3), random(3, 4)], [None])
    own.close()
    own.close()
    with pytest.raises(RunError, match="is closed"):
        second.run([random(2, 3), random(3, 4)], [None])
    second.close()
    with pytest.raises(ProviderError, match="is closed"):
        own.compile(whole(PRODUCT))


def test_8_bit_weights_stay_8_bit(provider: OpenVinoProvider) -> None:
    graph = graph_of("""g (float[1,64] x, int8[64,64] w, float[] sx, uint8[] zx, float[] sw,
        int8[] zw) => (float[1,64] y) {
        q = QuantizeLinear (x, sx, zx)
        d = DequantizeLinear (q, sx, zx)
        v = DequantizeLinear (w, sw, zw)
        y = MatMul (d, v)
    }""")
    weights = np.random.default_rng(0).integers(-127, 127, (64, 64)).astype(np.int8)
    constants = {
        "w": weights,
        "sx": np.float32(0.02),
        "zx": np.uint8(128),
        "sw": np.float32(0.01),
        "zw": np.int8(0),
    }
    fixed = graph.replace(
        inputs=graph.inputs[:1],
        initializers={
            name: Initializer.from_array(name, np.asarray(value))
            for name, value in constants.items()
        },
    )
    part = provider.compile(whole(fixed))
    operators = part.compiled.get_runtime_model().get_ops()
    kinds = {
        str(op.get_rt_info()["primitiveType"].value)
        for op in operators
        if op.get_rt_info()["layerType"].value in ("FullyConnected", "MatMul")
    }
    assert kinds
    assert all("8" in kind for kind in kinds)
    part.close()
