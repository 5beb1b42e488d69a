"""What OpenVINO is told in other words than ONNX's, so that it gives ONNX's answers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from openvino_harness import compute, graph_of, random, whole

from ep_openvino.provider import OpenVinoProvider


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_a_softmax_of_old_takes_all_dimensions_from_its_axis_on(
    provider: OpenVinoProvider, axis: int
) -> None:
    graph = graph_of(
        f"g (float[2,3,4] x) => (float[2,3,4] y) {{ y = Softmax <axis = {axis}> (x) }}", opset=11
    )
    assert provider.get_capability(graph).nodes[0].supported
    x = random(2, 3, 4)
    rows = np.exp(x.astype(np.float64)).reshape(np.prod(x.shape[:axis], dtype=int), -1)
    expected = (rows / rows.sum(axis=1, keepdims=True)).reshape(x.shape)
    (y,) = compute(provider, graph, x)
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_erf_is_right_near_zero_too(provider: OpenVinoProvider) -> None:
    graph = graph_of("g (float[2001] x) => (float[2001] y) { y = Erf (x) }")
    x = np.linspace(-3, 3, 2001).astype(np.float32)
    exact = np.array([math.erf(value) for value in x.astype(np.float64)])
    (y,) = compute(provider, graph, x)
    near = np.abs(x) < 0.7
    np.testing.assert_allclose(y[near], exact[near], rtol=3e-7)
    np.testing.assert_allclose(y, exact, rtol=2e-6)


def test_a_gelu_stays_one_operator(provider: OpenVinoProvider) -> None:
    graph = graph_of("""g (float[64] x) => (float[64] y) <float one = {1}, float half = {0.5},
        float root = {1.4142135}> {
        a = Div (x, root)
        b = Erf (a)
        c = Add (b, one)
        d = Mul (x, c)
        y = Mul (d, half)
    }""")
    part = provider.compile(whole(graph))
    kinds = [
        op.get_rt_info()["layerType"].value for op in part.compiled.get_runtime_model().get_ops()
    ]
    assert len(kinds) == 3
    part.close()
    x = random(64)
    exact = [value / 2 * (1 + math.erf(value / math.sqrt(2))) for value in x.astype(np.float64)]
    np.testing.assert_allclose(compute(provider, graph, x)[0], exact, rtol=1e-5, atol=1e-6)


def test_softplus_is_right_far_below_zero_too(provider: OpenVinoProvider) -> None:
    graph = graph_of("g (float[1001] x) => (float[1001] y) { y = Softplus (x) }")
    x = np.linspace(-80, 20, 1001).astype(np.float32)
    exact = np.log1p(np.exp(x.astype(np.float64)))
    (y,) = compute(provider, graph, x)
    np.testing.assert_allclose(y, exact, rtol=1e-6, atol=4e-7)
    far = x < -8
    np.testing.assert_allclose(y[far], exact[far], rtol=1e-6)


def test_a_mish_stays_one_operator(provider: OpenVinoProvider) -> None:
    graph = graph_of("""g (float[64] x) => (float[64] y) {
        a = Softplus (x)
        b = Tanh (a)
        y = Mul (x, b)
    }""")
    part = provider.compile(whole(graph))
    assert len(part.compiled.get_runtime_model().get_ops()) == 3
    part.close()
    x = random(64)
    exact = x * np.tanh(np.log1p(np.exp(x.astype(np.float64))))
    np.testing.assert_allclose(compute(provider, graph, x)[0], exact, rtol=1e-5, atol=1e-6)


TOP = """g (float[2,6] x, int64[1] k) => (float[a,b] v, int64[c,d] i)
    {{ v, i = TopK <axis = 1, largest = {}, sorted = {}> (x, k) }}"""


@pytest.mark.parametrize("count", [0, 1, 4, 6])
@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("largest", [0, 1])
def test_equal_numbers_come_in_the_order_of_their_positions(
    provider: OpenVinoProvider, largest: int, ordered: int, count: int
) -> None:
    x = np.array([[1, 0, 1, 2, 0, 1], [3, 3, 3, 3, 3, 3]], np.float32)
    graph = graph_of(TOP.format(largest, ordered))
    values, places = compute(provider, graph, x, [count])
    expected = np.argsort(-x if largest else x, axis=1, kind="stable")[:, :count]
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 1))
    assert places.shape == (2, count)


# The second box covers half of the first one: an overlap of exactly 0.5. The third one is apart.
BOXES = [[[0, 0, 2, 2], [0, 0, 2, 1], [5, 5, 6, 6]]]
SCORES = [[[0.9, 0.8, 0.7]]]
SUPPRESSING = """g (float[1,3,4] b, float[1,1,3] s, int64 m{0}) => (int64[n,3] y)
    {{ y = NonMaxSuppression (b, s, m{1}) }}"""


@pytest.mark.parametrize(
    ("threshold", "kept"),
    [
        (0.5, [0, 1, 2]),
        (np.nextafter(np.float32(0.5), np.float32(0)), [0, 2]),
        (0.75, [0, 1, 2]),
        (0.0, [0, 2]),
        (None, [0, 2]),
    ],
)
def test_boxes_that_overlap_by_the_threshold_are_kept(
    provider: OpenVinoProvider, threshold: float | None, kept: list[int]
) -> None:
    given = [] if threshold is None else [np.float32(threshold)]
    graph = graph_of(SUPPRESSING.format(*(("", "") if not given else (", float t", ", t"))))
    boxes, scores = (np.array(values, np.float32) for values in (BOXES, SCORES))
    (found,) = compute(provider, graph, boxes, scores, np.int64(9), *given)
    np.testing.assert_array_equal(found[:, 2], kept)


@pytest.mark.parametrize(
    ("kind", "start", "limit", "step", "right"),
    [
        ("float", 1.0, 2.0, 0.5, [1.0, 1.5]),
        ("float", 2.0, 1.0, 0.5, []),
        ("float", 1.0, 2.0, -0.5, []),
        ("float", 1.0, 1.0, -0.5, []),
        ("int32", 5, 1, -2, [5, 3]),
        ("int32", 2**24 + 1, 2**24, 1, []),
        ("int32", 2**24, 2**24 + 1, 1, [2**24]),
    ],
)
def test_a_range_that_leads_away_is_empty(
    provider: OpenVinoProvider, kind: str, start: Any, limit: Any, step: Any, right: list[Any]
) -> None:
    graph = graph_of(f"g ({kind} a, {kind} b, {kind} c) => ({kind}[n] y) {{ y = Range (a, b, c) }}")
    made = {"float": np.float32, "int32": np.int32}[kind]
    (y,) = compute(provider, graph, made(start), made(limit), made(step))
    np.testing.assert_array_equal(y, np.array(right, made))
