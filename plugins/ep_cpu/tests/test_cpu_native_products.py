"""Native products of matrices and attention, against float64 and against the kernels in numpy."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_native import check_same, compile_model, model_of, needs_native, on_every_level, random
from onnx import helper

pytestmark = needs_native
node = helper.make_node

SIZES = (1, 2, 7, 8, 9, 23, 49)


@on_every_level
@pytest.mark.parametrize("columns", [1, 5, 16, 17, 47, 48, 49, 100])
def test_every_edge_of_a_tile(level, columns):
    """Rows from one to several tiles, and depths around nothing special."""
    for rows in SIZES:
        for depth in (1, 3, 64):
            a, b = random(rows, depth), random(depth, columns)
            model = model_of([node("MatMul", ["a", "b"], ["y"])], {"a": a}, {"b": b})
            compiled = compile_model(model, level)
            (found,) = compiled.run({"a": a})
            expected = a.astype(np.float64) @ b.astype(np.float64)
            bound = depth * 1.2e-7 * (np.abs(a).astype(np.float64) @ np.abs(b)) + 1e-30
            assert (np.abs(found - expected) <= bound).all()
            assert compiled.kinds == ["matmul"]


@on_every_level
def test_deep_products_are_cut_into_blocks(level):
    feeds = {"a": random(5, 2500)}
    weights = {"b": random(2500, 33), "c": random(33)}
    nodes = [node("Gemm", ["a", "b", "c"], ["g"]), node("Relu", ["g"], ["y"])]
    native = check_same(nodes, feeds, level, weights)
    assert native.kinds == ["matmul"]


@on_every_level
def test_empty_products(level):
    check_same([node("MatMul", ["a", "b"], ["y"])], {"a": random(0, 4)}, level, {"b": random(4, 3)})
    check_same([node("MatMul", ["a", "b"], ["y"])], {"a": random(3, 0)}, level, {"b": random(0, 3)})


@on_every_level
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((4, 5, 6), (6, 7)),
        ((2, 3, 5, 6), (2, 3, 6, 9)),
        ((3, 5, 6), (2, 1, 6, 9)),
        ((1, 1, 5, 6), (2, 3, 6, 1)),
    ],
)
def test_batches_broadcast(level, left, right):
    feeds = {"a": random(*left), "b": random(*right, seed=1)}
    check_same([node("MatMul", ["a", "b"], ["y"])], feeds, level)


@on_every_level
def test_transposed_weights(level):
    nodes = [node("Gemm", ["a", "b", "c"], ["y"], transB=1)]
    check_same(nodes, {"a": random(9, 20)}, level, {"b": random(50, 20), "c": random(1, 50)})


@on_every_level
def test_bias_activation_and_residual_become_one_step(level):
    nodes = [
        node("MatMul", ["a", "w"], ["p"]),
        node("Add", ["bias", "p"], ["q"]),
        node("Mul", ["q", "scale"], ["r"]),
        node("Sigmoid", ["r"], ["s"]),
        node("Mul", ["s", "q"], ["t"]),
        node("Add", ["a", "t"], ["y"]),
    ]
    feeds = {"a": random(3, 10, 60)}
    constants = {
        "w": random(60, 60),
        "bias": random(60),
        "scale": np.array([1.5], np.float32),
    }
    native = check_same(nodes, feeds, level, constants)
    assert native.kinds == ["matmul"]


@on_every_level
def test_a_result_that_others_need_stays(level):
    nodes = [node("MatMul", ["a", "w"], ["p"]), node("Relu", ["p"], ["y"])]
    native = check_same(
        nodes, {"a": random(3, 10)}, level, {"w": random(10, 20)}, outputs=("y", "p")
    )
    assert native.kinds == ["matmul", "elementwise"]


def attention_nodes(mask: bool, divided: bool):
    nodes = [
        node("Transpose", ["q"], ["qt"], perm=[0, 2, 1, 3]),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 3, 1]),
        node("Transpose", ["v"], ["vt"], perm=[0, 2, 1, 3]),
        node("MatMul", ["qt", "kt"], ["s0"]),
        node("Div", ["s0", "root"], ["s1"]) if divided else node("Mul", ["root", "s0"], ["s1"]),
    ]
    if mask:
        nodes.append(node("Add", ["s1", "mask"], ["s2"]))
    return [
        *nodes,
        node("Softmax", ["s2" if mask else "s1"], ["w"], axis=-1),
        node("MatMul", ["w", "vt"], ["o"]),
        node("Transpose", ["o"], ["y"], perm=[0, 2, 1, 3]),
    ]


@on_every_level
@pytest.mark.parametrize("keys", [1, 16, 50, 130])
@pytest.mark.parametrize("divided", [False, True])
def test_attention_is_one_step(level, keys, divided):
    feeds = {
        "q": random(2, 75, 3, 20),
        "k": random(2, keys, 3, 20, seed=1),
        "v": random(2, keys, 3, 24, seed=2),
    }
    constants = {"root": np.array(4.0 if divided else 0.25, np.float32)}
    native = check_same(attention_nodes(False, divided), feeds, level, constants)
    assert native.kinds == ["attention"]


@on_every_level
@pytest.mark.parametrize("shape", [(2, 1, 1, 50), (1, 1, 75, 50), (2, 3, 75, 50), (2, 1, 75, 1)])
def test_attention_with_a_mask(level, shape):
    feeds = {
        "q": random(2, 75, 3, 20),
        "k": random(2, 50, 3, 20, seed=1),
        "v": random(2, 50, 3, 24, seed=2),
        "mask": random(*shape),
    }
    if shape[-1] > 1:
        feeds["mask"][..., 3:9] = -np.inf
    native = check_same(
        attention_nodes(True, True), feeds, level, {"root": np.array(4.0, np.float32)}
    )
    assert native.kinds == ["attention"]


@on_every_level
def test_extreme_scores_do_not_overflow(level):
    feeds = {name: random(1, 10, 2, 8, seed=i) * 60 for i, name in enumerate("qkv")}
    constants = {"root": np.array(1.0, np.float32)}
    check_same(attention_nodes(False, False), feeds, level, constants, tolerance=2e-5)
