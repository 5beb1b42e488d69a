"""Native RNN, LSTM and GRU against the kernels in numpy and float64, at every level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cpu_native import check_same, compile_model, model_of, on_every_level, random
from onnx import helper

from ep_core.errors import RunError

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
OUTPUTS = {"RNN": ["y", "y_h"], "GRU": ["y", "y_h"], "LSTM": ["y", "y_h", "y_c"]}
STEPS, WIDTH = 5, 7


def case(
    kind: str, directions: int, batch: int, hidden: int, layout: int = 0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is fed, and constant weights."""
    columns = GATES[kind] * hidden
    x = random(STEPS, batch, WIDTH)
    state = random(directions, batch, hidden, seed=1)
    cell = random(directions, batch, hidden, seed=2)
    feeds = {"x": x, "lengths": np.arange(batch, dtype=np.int32) % (STEPS + 1), "h": state}
    if kind == "LSTM":
        feeds["c"] = cell
    if layout:
        for name in ("x", "h", "c"):
            if name in feeds:
                feeds[name] = np.ascontiguousarray(feeds[name].swapaxes(0, 1))
    constants = {
        "w": random(directions, columns, WIDTH, seed=3) * 0.5,
        "r": random(directions, columns, hidden, seed=4) * 0.3,
        "b": random(directions, 2 * columns, seed=5),
    }
    if kind == "LSTM":
        constants["p"] = random(directions, 3 * hidden, seed=6)
    return feeds, constants


def inputs_of(kind: str) -> list[str]:
    return ["x", "w", "r", "b", "lengths", "h", *(["c", "p"] if kind == "LSTM" else [])]


@on_every_level
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", list(GATES))
@pytest.mark.parametrize(("batch", "hidden"), [(1, 16), (19, 5)])
def test_all_inputs(level, kind, direction, layout, batch, hidden):
    directions = 2 if direction == "bidirectional" else 1
    feeds, constants = case(kind, directions, batch, hidden, layout)
    node = helper.make_node(
        kind, inputs_of(kind), OUTPUTS[kind], hidden_size=hidden, direction=direction, layout=layout
    )
    native = check_same([node], feeds, level, constants, outputs=OUTPUTS[kind], tolerance=1e-5)
    assert native.kinds == ["recurrent"]


@on_every_level
def test_only_the_weights_and_the_last_state(level):
    feeds, constants = case("LSTM", 1, 3, 33)
    node = helper.make_node("LSTM", ["x", "w", "r"], ["", "y"], hidden_size=33)
    weights = {name: constants[name] for name in ("w", "r")}
    check_same([node], {"x": feeds["x"]}, level, weights, tolerance=1e-5)


@on_every_level
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("clip", [None, 0.4])
def test_gru_that_resets_the_state_or_the_product(level, after, clip):
    feeds, constants = case("GRU", 2, 2, 20)
    extra = {} if clip is None else {"clip": clip}
    node = helper.make_node(
        "GRU",
        inputs_of("GRU"),
        OUTPUTS["GRU"],
        hidden_size=20,
        direction="bidirectional",
        linear_before_reset=after,
        **extra,
    )
    check_same([node], feeds, level, constants, outputs=OUTPUTS["GRU"], tolerance=1e-5)


@on_every_level
def test_coupled_gates_and_clip(level):
    feeds, constants = case("LSTM", 1, 2, 9)
    node = helper.make_node(
        "LSTM", inputs_of("LSTM"), OUTPUTS["LSTM"], hidden_size=9, input_forget=1, clip=0.5
    )
    check_same([node], feeds, level, constants, outputs=OUTPUTS["LSTM"], tolerance=1e-5)


@on_every_level
@pytest.mark.parametrize(
    ("name", "alpha", "beta"),
    [
        ("Relu", [], []),
        ("Softsign", [], []),
        ("Softplus", [], []),
        ("LeakyRelu", [0.2], []),
        ("ThresholdedRelu", [0.3], []),
        ("Elu", [0.7], []),
        ("Affine", [0.4], [0.1]),
        ("ScaledTanh", [0.8], [0.6]),
        ("HardSigmoid", [], []),
    ],
)
def test_activations(level, name, alpha, beta):
    feeds, constants = case("RNN", 1, 2, 21)
    node = helper.make_node(
        "RNN",
        inputs_of("RNN"),
        OUTPUTS["RNN"],
        hidden_size=21,
        activations=[name],
        **({"activation_alpha": alpha} if alpha else {}),
        **({"activation_beta": beta} if beta else {}),
    )
    check_same([node], feeds, level, constants, outputs=OUTPUTS["RNN"], tolerance=1e-5)


@on_every_level
def test_lstm_against_float64(level):
    feeds, constants = case("LSTM", 1, 2, 24)
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=24)
    weights = {name: constants[name] for name in ("w", "r", "b")}
    model = model_of([node], {"x": feeds["x"]}, weights)
    (found,) = compile_model(model, level).run({"x": feeds["x"]})
    w, r, b = (weights[name][0].astype(np.float64) for name in ("w", "r", "b"))
    h = c = np.zeros((2, 24))
    for step, x in enumerate(feeds["x"].astype(np.float64)):
        enter, leave, forget, candidate = np.split(x @ w.T + h @ r.T + b[:96] + b[96:], 4, axis=1)
        enter, leave, forget = (1 / (1 + np.exp(-gate)) for gate in (enter, leave, forget))
        c = forget * c + enter * np.tanh(candidate)
        h = leave * np.tanh(c)
        np.testing.assert_allclose(found[step, 0], h, atol=2e-6)


@on_every_level
def test_a_length_out_of_range_is_left_to_the_kernel(level):
    feeds, constants = case("GRU", 1, 2, 4)
    feeds["lengths"][0] = STEPS + 1
    node = helper.make_node("GRU", inputs_of("GRU"), OUTPUTS["GRU"], hidden_size=4)
    native = compile_model(model_of([node], feeds, constants, OUTPUTS["GRU"]), level)
    with pytest.raises(RunError, match="length"):
        native.run(feeds)
    assert native.refused


@on_every_level
def test_weights_that_are_fed_are_left_to_the_kernel(level):
    feeds, constants = case("RNN", 1, 2, 4)
    node = helper.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=4)
    given = {"x": feeds["x"], "w": constants["w"], "r": constants["r"]}
    assert compile_model(model_of([node], given), level).segments == []


@on_every_level
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_lstm_with_8_bit_weights(level, kind, by_column, batch):
    hidden, directions = 12, 2
    feeds, weights = case("LSTM", directions, batch, hidden)
    limits = np.iinfo(kind)
    generator = np.random.default_rng(3)
    count = (directions, 4 * hidden) if by_column else (directions,)
    constants = {name: weights[name] for name in ("b", "p")}
    for name, inner in (("w", WIDTH), ("r", hidden)):
        shape = (directions, inner, 4 * hidden)
        constants[name] = generator.integers(limits.min, limits.max + 1, shape).astype(kind)
        constants[name + "_scale"] = generator.uniform(0.002, 0.006, count).astype(np.float32)
        middle = (limits.min + limits.max + 1) // 2
        constants[name + "_zero"] = generator.integers(middle - 9, middle + 9, count).astype(kind)
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        [*inputs_of("LSTM"), "w_scale", "w_zero", "r_scale", "r_zero"],
        OUTPUTS["LSTM"],
        domain="com.microsoft",
        hidden_size=hidden,
        direction="bidirectional",
    )
    model = model_of([node], feeds, constants, OUTPUTS["LSTM"])
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    expected = compile_model(model, "none").run(feeds)
    native = compile_model(model, level)
    assert native.kinds == ["recurrent"]
    for one, other in zip(native.run(feeds), expected, strict=True):
        # A state that lies between two codes may go to either: one code is 1/255 of the range.
        np.testing.assert_allclose(one, other, atol=4e-3)
        assert np.median(np.abs(one - other)) < 1e-6
    assert not native.refused
