"""RNN, GRU and LSTM: the reference evaluator for plain layers, numpy for what it lacks."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from opencl_harness import floats, needs_device, one_node, run_one, session

from ep_core.errors import RunError

pytestmark = needs_device

STEPS, BATCH, WIDTH, HIDDEN = 5, 3, 4, 7
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
X = floats(STEPS, BATCH, WIDTH)
LENGTHS = np.array([5, 2, 0], np.int32)


def weights(op_type, directions=1):
    """W, R and B."""
    rows = GATES[op_type] * HIDDEN
    shapes = ((rows, WIDTH), (rows, HIDDEN), (2 * rows,))
    return [0.5 * floats(directions, *shape, seed=n) for n, shape in enumerate(shapes)]


def states(op_type, directions=1):
    return [floats(directions, BATCH, HIDDEN, seed=9 + n) for n in range(outputs_of(op_type) - 1)]


def outputs_of(op_type):
    return 3 if op_type == "LSTM" else 2


def run(op_type, inputs, attributes=None):
    """All outputs; `inputs` begin with X, W and R."""
    wanted = {"hidden_size": HIDDEN, **(attributes or {})}
    return run_one(op_type, inputs, wanted, outputs=outputs_of(op_type), opset=22)


def agree(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("constant", [(), (1, 2, 3)])
@pytest.mark.parametrize("op_type", GATES)
def test_like_the_reference(op_type, constant):
    inputs = [X, *weights(op_type), None, *states(op_type)]
    model, feeds = one_node(
        op_type,
        inputs,
        {"hidden_size": HIDDEN},
        opset=22,
        outputs=outputs_of(op_type),
        constant=constant,
    )
    with session(model) as running:
        agree(running.run(None, feeds), ReferenceEvaluator(model).run(None, feeds))


def test_a_gru_that_resets_after_the_product_like_the_reference():
    attributes = {"hidden_size": HIDDEN, "linear_before_reset": 1}
    model, feeds = one_node("GRU", [X, *weights("GRU")], attributes, outputs=2)
    with session(model) as running:
        agree(running.run(None, feeds), ReferenceEvaluator(model).run(None, feeds))


def test_peepholes_like_the_reference():
    inputs = [X, *weights("LSTM"), None, *states("LSTM"), floats(1, 3 * HIDDEN, seed=5)]
    model, feeds = one_node("LSTM", inputs, {"hidden_size": HIDDEN}, outputs=3)
    with session(model) as running:
        agree(running.run(None, feeds), ReferenceEvaluator(model).run(None, feeds))


@pytest.mark.parametrize("op_type", GATES)
def test_backwards_is_forwards_of_the_reversed_sequence(op_type):
    own, first = weights(op_type), states(op_type)
    y, *last = run(op_type, [X, *own, None, *first], {"direction": "reverse"})
    forwards, *expected = run(op_type, [X[::-1].copy(), *own, None, *first])
    agree([y, *last], [forwards[::-1], *expected])


@pytest.mark.parametrize("op_type", GATES)
def test_both_directions_are_each_alone(op_type):
    own, first = weights(op_type, 2), states(op_type, 2)
    found = run(op_type, [X, *own, LENGTHS, *first], {"direction": "bidirectional"})
    for number, direction in enumerate(("forward", "reverse")):
        part = [value[number : number + 1] for value in own]
        begin = [value[number : number + 1] for value in first]
        alone = run(op_type, [X, *part, LENGTHS, *begin], {"direction": direction})
        agree(
            [found[0][:, number], *(value[number] for value in found[1:])],
            [
                alone[0][:, 0],
                *(value[0] for value in alone[1:]),
            ],
        )


@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("op_type", GATES)
def test_each_sequence_ends_at_its_length(op_type, direction):
    own, first = weights(op_type), states(op_type)
    attributes = {"direction": direction}
    y, *last = run(op_type, [X, *own, LENGTHS, *first], attributes)
    for number, length in enumerate(LENGTHS):
        one = slice(number, number + 1)
        begin = [value[:, one] for value in first]
        if length:
            alone = run(op_type, [X[:length, one].copy(), *own, None, *begin], attributes)
            agree([y[:length, :, one]], [alone[0]])
            begin = alone[1:]
        assert not y[length:, :, number].any()
        agree([value[:, one] for value in last], begin)


@pytest.mark.parametrize("op_type", GATES)
def test_batch_first_is_the_same_with_other_axes(op_type):
    own, first = weights(op_type, 2), states(op_type, 2)
    both = {"direction": "bidirectional"}
    y, *last = run(op_type, [X, *own, LENGTHS, *first], both)
    turned = [np.ascontiguousarray(value.swapaxes(0, 1)) for value in (X, *first)]
    found = run(op_type, [turned[0], *own, LENGTHS, *turned[1:]], {**both, "layout": 1})
    agree(found, [y.transpose(2, 0, 1, 3), *(value.swapaxes(0, 1) for value in last)])


def test_coupled_gates_clips_and_other_activations():
    """One step from a state of zeros, by hand."""
    w, r, b = weights("LSTM")
    attributes = {
        "input_forget": 1,
        "clip": 0.4,
        "activations": ["HardSigmoid", "Affine", "Softsign"],
        "activation_alpha": [0.3, 2.0],
        "activation_beta": [0.4, 0.1],
    }
    cell = states("LSTM")[1]
    y, _, last = run("LSTM", [X[:1], w, r, b, None, None, cell], attributes)
    gates = X[0] @ w[0].T + b[0, : 4 * HIDDEN] + b[0, 4 * HIDDEN :]
    enter, leave, _, candidate = np.split(np.clip(gates, -0.4, 0.4), 4, axis=1)
    enter, leave = (np.clip(0.3 * value + 0.4, 0, 1) for value in (enter, leave))
    new = (1 - enter) * cell[0] + enter * (2 * candidate + 0.1)
    agree([last[0], y[0, 0]], [new, leave * new / (1 + np.abs(new))])


def test_only_the_outputs_that_are_asked_for():
    whole = run("LSTM", [X, *weights("LSTM")])
    (only,) = [run_one("LSTM", [X, *weights("LSTM")], {"hidden_size": HIDDEN})]
    np.testing.assert_array_equal(only, whole[0])


def test_halves_keep_their_state_in_floats():
    found = run("GRU", [value.astype(np.float16) for value in (X, *weights("GRU"))])
    narrow = [value.astype(np.float16).astype(np.float32) for value in (X, *weights("GRU"))]
    for one, other in zip(found, run("GRU", narrow), strict=True):
        assert one.dtype == np.float16
        np.testing.assert_array_equal(one, other.astype(np.float16))


@pytest.mark.parametrize("length", [-1, STEPS + 1])
def test_a_length_out_of_range_is_told(length):
    lengths = np.array([1, length, 2], np.int32)
    with pytest.raises(RunError, match="length of a sequence"):
        run("RNN", [X, *weights("RNN"), lengths])


def test_weights_that_do_not_fit_are_told():
    w, r, b = weights("GRU")
    with pytest.raises(RunError, match="recurrent layer"):
        run("GRU", [floats(STEPS, BATCH, WIDTH + 1), w, r, b])
