"""RNN, GRU and LSTM against a plain loop over the equations of the specification."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_harness import run_op

RNG = np.random.default_rng(11)
STEPS, BATCH, WIDTH, HIDDEN = 4, 3, 5, 2
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_step(x, h, c, w, r, b, p):
    """Gates in the order input, output, forget, cell; p in the order input, output, forget."""
    i, o, f, g = np.split(x @ w.T + h @ r.T + b[: 4 * HIDDEN] + b[4 * HIDDEN :], 4, axis=1)
    p_i, p_o, p_f = np.split(p, 3)
    c_new = sigmoid(f + p_f * c) * c + sigmoid(i + p_i * c) * np.tanh(g)
    return sigmoid(o + p_o * c_new) * np.tanh(c_new), c_new


def gru_step(x, h, w, r, b, after):
    """Gates in the order update, reset, hidden."""
    wb, rb = np.split(b, 2)
    xz, xr, xh = np.split(x @ w.T + wb, 3, axis=1)
    rz, rr, rh = np.split(r, 3)
    bz, br, bh = np.split(rb, 3)
    z, reset = sigmoid(xz + h @ rz.T + bz), sigmoid(xr + h @ rr.T + br)
    carried = reset * (h @ rh.T + bh) if after else (reset * h) @ rh.T + bh
    return (1 - z) * np.tanh(xh + carried) + z * h


def rnn_step(x, h, w, r, b):
    return np.tanh(x @ w.T + h @ r.T + b[:HIDDEN] + b[HIDDEN:])


def reference(kind, x, w, r, b, lengths, h0, c0, p, directions, after):
    """Y [T, D, N, H], Y_h and Y_c [D, N, H]; x is [T, N, I]."""
    y = np.zeros((STEPS, len(directions), BATCH, HIDDEN))
    last_h, last_c = h0.copy(), c0.copy()
    for d, backwards in enumerate(directions):
        for n in range(BATCH):
            steps = range(lengths[n])
            h, c = h0[d, n : n + 1], c0[d, n : n + 1]
            for t in reversed(steps) if backwards else steps:
                value = x[t, n : n + 1]
                if kind == "LSTM":
                    h, c = lstm_step(value, h, c, w[d], r[d], b[d], p[d])
                elif kind == "GRU":
                    h = gru_step(value, h, w[d], r[d], b[d], after)
                else:
                    h = rnn_step(value, h, w[d], r[d], b[d])
                y[t, d, n] = h[0]
            last_h[d, n], last_c[d, n] = h[0], c[0]
    return y, last_h, last_c


@pytest.mark.parametrize(("kind", "after"), [("RNN", 0), ("GRU", 0), ("GRU", 1), ("LSTM", 0)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("layout", [0, 1])
def test_against_the_equations(kind, after, direction, ragged, layout):
    directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    count, gates = len(directions), GATES[kind]
    x = RNG.standard_normal((STEPS, BATCH, WIDTH)).astype(np.float32)
    w = RNG.standard_normal((count, gates * HIDDEN, WIDTH)).astype(np.float32)
    r = RNG.standard_normal((count, gates * HIDDEN, HIDDEN)).astype(np.float32)
    b = RNG.standard_normal((count, 2 * gates * HIDDEN)).astype(np.float32)
    h0 = RNG.standard_normal((count, BATCH, HIDDEN)).astype(np.float32)
    c0 = RNG.standard_normal((count, BATCH, HIDDEN)).astype(np.float32)
    p = RNG.standard_normal((count, 3 * HIDDEN)).astype(np.float32)
    lengths = np.array([4, 2, 1] if ragged else [4, 4, 4], np.int32)
    expected = reference(
        kind,
        *(v.astype(np.float64) for v in (x, w, r, b)),
        lengths,
        h0.astype(np.float64),
        c0.astype(np.float64),
        p,
        directions,
        after,
    )

    def given(value):
        return value.swapaxes(0, 1).copy() if layout else value

    inputs = [given(x), w, r, b, lengths, given(h0)]
    settings = {"hidden_size": HIDDEN, "direction": direction, "layout": layout}
    if kind == "LSTM":
        inputs += [given(c0), p]
    if kind == "GRU":
        settings["linear_before_reset"] = after
    if kind == "RNN":
        settings["activations"] = ["Tanh"] * count
    results = 3 if kind == "LSTM" else 2
    found = run_op(kind, inputs, 14, outputs=results, **settings)
    y = expected[0].transpose(2, 0, 1, 3) if layout else expected[0]
    np.testing.assert_allclose(found[0], y, rtol=1e-4, atol=1e-5)
    for one, other in zip(found[1:], expected[1:], strict=False):
        np.testing.assert_allclose(one, given(other), rtol=1e-4, atol=1e-5)


def test_clip_bounds_the_gates():
    x = np.full((1, 1, 1), 100, np.float32)
    ones = np.ones((1, 1, 1), np.float32)
    (y,) = run_op("RNN", [x, ones, ones], 14, hidden_size=1, clip=0.5)
    assert y.item() == pytest.approx(np.tanh(0.5), rel=1e-6)


def test_activations_take_their_alphas_in_order():
    # f = Affine(2, 1), g = LeakyRelu(0.5), h = Affine(3, 0): every gate sees -1.
    x = np.full((1, 1, 1), -1, np.float32)
    w = np.ones((1, 4, 1), np.float32)
    r = np.zeros((1, 4, 1), np.float32)
    y, _, c = run_op(
        "LSTM",
        [x, w, r],
        14,
        outputs=3,
        hidden_size=1,
        activations=["Affine", "LeakyRelu", "Affine"],
        activation_alpha=[2.0, 0.5, 3.0],
        activation_beta=[1.0, 0.0],
    )
    # Gates are 2 * -1 + 1 = -1, the candidate -0.5, so c = 0.5 and h = -1 * 1.5.
    assert c.item() == pytest.approx(0.5)
    assert y.item() == pytest.approx(-1.5)


def test_coupled_gates():
    x = np.zeros((1, 1, 1), np.float32)
    w, r = np.zeros((1, 4, 1), np.float32), np.zeros((1, 4, 1), np.float32)
    c0 = np.ones((1, 1, 1), np.float32)
    _, _, c = run_op(
        "LSTM", [x, w, r, None, None, None, c0], 14, outputs=3, hidden_size=1, input_forget=1
    )
    assert c.item() == pytest.approx(0.5)
