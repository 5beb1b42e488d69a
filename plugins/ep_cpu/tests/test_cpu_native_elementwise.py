"""Native elementwise chains: errors of the functions in ULP, special values, broadcasting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cpu_native import check_same, compile_model, model_of, needs_native, on_every_level, random
from onnx import helper

pytestmark = needs_native
node = helper.make_node


def run(level, op_type, x, **attributes):
    model = model_of([node(op_type, ["x"], ["y"], **attributes)], {"x": x})
    compiled = compile_model(model, level)
    assert compiled.kinds == ["elementwise"]
    return compiled.run({"x": x})[0]


def oracle(function, x):
    return np.array([function(value) for value in x.astype(np.float64).tolist()])


def gelu(x):
    return x * 0.5 * math.erfc(-x / math.sqrt(2))


FUNCTIONS = {
    "Exp": (math.exp, -103.0, 88.7, 2.0),
    "Log": (math.log, 1e-40, 1e30, 2.0),
    "Tanh": (math.tanh, -12.0, 12.0, 5.0),
    "Erf": (math.erf, -5.0, 5.0, 6.0),
    "Sigmoid": (lambda x: 1 / (1 + math.exp(-x)), -80.0, 80.0, 4.0),
    "Softplus": (lambda x: math.log1p(math.exp(-abs(x))) + max(x, 0.0), -80.0, 80.0, 3.0),
    "Sqrt": (math.sqrt, 0.0, 1e30, 0.51),
    "Reciprocal": (lambda x: 1 / x, 1e-30, 1e30, 0.51),
}


@on_every_level
@pytest.mark.parametrize("op_type", sorted(FUNCTIONS))
def test_functions_within_ulps(level, op_type):
    """Errors in units of the last place of the result, as native/kernels/functions.h says."""
    function, low, high, ulps = FUNCTIONS[op_type]
    generator = np.random.default_rng(3)
    parts = [generator.uniform(low, high, 20000), generator.uniform(max(low, -1), 1, 20000)]
    if low > 0:
        parts.append(np.exp(generator.uniform(math.log(low), math.log(high), 20000)))
    x = np.abs(np.concatenate(parts)) if low > 0 else np.concatenate(parts)
    x = x.astype(np.float32)
    expected = oracle(function, x)
    found = run(level, op_type, x)
    spacing = np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64)
    assert (np.abs(found - expected) / spacing).max() <= ulps


@on_every_level
def test_gelu_is_right_to_an_absolute_bound(level):
    """1 + erf loses digits far below 0, as it does in the formula of the specification."""
    x = np.linspace(-9, 9, 40001, dtype=np.float32)
    error = np.abs(run(level, "Gelu", x) - oracle(gelu, x))
    assert (error <= 4e-7 * np.abs(x) + 1e-8).all()


UNARY = (
    *("Neg", "Abs", "Sqrt", "Reciprocal", "Exp", "Log", "Tanh", "Sigmoid", "Erf", "Relu"),
    *("Floor", "Ceil", "Round", "Sign", "Softplus", "HardSwish", "HardSigmoid", "LeakyRelu"),
)


@on_every_level
@pytest.mark.parametrize("op_type", UNARY)
def test_special_values(level, op_type):
    x = np.array(
        [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-42, 8388609.0, -3e38],
        np.float32,
    )
    found = run(level, op_type, x)
    expected = compile_model(model_of([node(op_type, ["x"], ["y"])], {"x": x}), "none").run(
        {"x": x}
    )[0]
    np.testing.assert_allclose(found, expected, rtol=6e-7, atol=1e-44)
    if op_type in ("Neg", "Floor", "Ceil", "Round", "Sqrt"):
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@on_every_level
@pytest.mark.parametrize("op_type", ["Max", "Min"])
def test_extremes_pass_nan_on(level, op_type):
    feeds = {
        "a": np.array([np.nan, 1, 2, np.inf], np.float32),
        "b": np.array([1, np.nan, 3, 5], np.float32),
        "c": np.array([0, 0, 9, 7], np.float32),
    }
    check_same([node(op_type, ["a", "b", "c"], ["y"])], feeds, level)


@on_every_level
@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((5,), (5,)),
        ((3, 1, 5), (4, 1)),
        ((2, 3, 4, 5), (3, 1, 1)),
        ((2, 1, 4, 1), (1, 3, 1, 5)),
        ((1,), (2, 3)),
        ((0, 3), (1, 3)),
        ((), (4, 700)),
        ((2, 1, 3, 1, 2, 1), (1, 2, 1, 2, 1, 2)),
    ],
)
def test_broadcasting(level, op_type, one, other):
    feeds = {"a": random(*one), "b": random(*other, seed=1) + 3}
    check_same([node(op_type, ["a", "b"], ["y"])], feeds, level)


@on_every_level
def test_long_chains_become_one_step(level):
    nodes = [
        node("Mul", ["x", "x"], ["a"]),
        node("Sub", ["one", "a"], ["b"]),
        node("Tanh", ["b"], ["c"]),
        node("Add", ["c", "x"], ["d"]),
        node("Clip", ["d", "low", "high"], ["e"]),
        node("Div", ["e", "z"], ["y"]),
    ]
    constants = {
        "one": np.array(1, np.float32),
        "low": np.array(-0.5, np.float32),
        "high": np.array(0.75, np.float32),
    }
    feeds = {"x": random(7, 301), "z": random(7, 301, seed=1) + 4}
    native = check_same(nodes, feeds, level, constants)
    assert native.kinds == ["elementwise"]


@on_every_level
def test_integer_powers(level):
    for power in (2.0, 3.0):
        constants = {"p": np.array(power, np.float32)}
        check_same([node("Pow", ["x", "p"], ["y"])], {"x": random(33)}, level, constants)


def gelu_nodes(order):
    nodes = [
        node("Div", ["x", "root"], ["a"]),
        node("Erf", ["a"], ["b"]),
        node("Add", ["b", "one"], ["c"]),
    ]
    if order == 0:
        return [*nodes, node("Mul", ["x", "c"], ["d"]), node("Mul", ["d", "half"], ["y"])]
    if order == 1:
        return [*nodes, node("Mul", ["half", "x"], ["d"]), node("Mul", ["d", "c"], ["y"])]
    return [*nodes, node("Mul", ["half", "c"], ["d"]), node("Mul", ["x", "d"], ["y"])]


@on_every_level
@pytest.mark.parametrize("order", [0, 1, 2])
def test_gelu_is_found_however_it_is_written(level, order):
    constants = {
        "root": np.array(math.sqrt(2), np.float32),
        "one": np.array(1, np.float32),
        "half": np.array(0.5, np.float32),
    }
    native = check_same(gelu_nodes(order), {"x": random(3, 100)}, level, constants)
    (step,) = native.segments[0]._steps
    assert [code for code, _ in step.expression.operations] == ["gelu"]


@on_every_level
def test_what_only_looks_like_gelu_stays(level):
    constants = {
        "root": np.array(1.5, np.float32),
        "one": np.array(1, np.float32),
        "half": np.array(0.5, np.float32),
    }
    native = check_same(gelu_nodes(0), {"x": random(3, 100)}, level, constants)
    (step,) = native.segments[0]._steps
    assert len(step.expression.operations) == 5


@on_every_level
def test_a_product_with_its_sigmoid_is_one_function(level):
    nodes = [node("Sigmoid", ["x"], ["s"]), node("Mul", ["s", "x"], ["y"])]
    native = check_same(nodes, {"x": random(3, 100)}, level)
    (step,) = native.segments[0]._steps
    assert [code for code, _ in step.expression.operations] == ["silu"]
