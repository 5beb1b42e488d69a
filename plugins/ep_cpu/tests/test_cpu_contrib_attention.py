"""com.microsoft: attention against softmax(Q K^T) V written out, masks and caches included."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_attention import HEADS, SIZE, TOLERANCE, attention, by_heads, causal, normal
from cpu_harness import UnsupportedError, run_op

from ep_core.errors import RunError

RNG = np.random.default_rng(13)
BATCH, LENGTH = 2, 4
CLOSED = -10000.0  # what the operators add to the score of a key that doesn't count


def run(op_type, inputs, **attributes):
    return run_op(op_type, inputs, 17, domain="com.microsoft", **attributes)


# ---------------------------------------------------------------- packed weights

X, WEIGHT, BIAS = normal(BATCH, LENGTH, 6), normal(6, 48), normal(48)
PARTS = [by_heads(part) for part in np.split(X @ WEIGHT + BIAS, 3, axis=-1)]
COLUMN_MASK = np.array([[1, 1, 0, 1], [0, 1, 1, 1]], np.int32)
SQUARE_MASK = RNG.integers(0, 2, (BATCH, LENGTH, LENGTH)).astype(np.int32)
MASKS = {
    "none": (None, np.zeros((1, 1, 1, 1))),
    "lengths": (np.array([2, 4], np.int32), (np.arange(4) >= [[2], [4]])[:, None, None] * CLOSED),
    "ends and starts": (
        np.array([3, 4, 0, 1], np.int32),
        ((np.arange(4) >= [[3], [4]]) | (np.arange(4) < [[0], [1]]))[:, None, None] * CLOSED,
    ),
    "columns": (COLUMN_MASK, (1 - COLUMN_MASK)[:, None, None] * CLOSED),
    "squares": (SQUARE_MASK, (1 - SQUARE_MASK)[:, None] * CLOSED),
    "all positions": (
        np.tril(np.ones((BATCH, 1, 9, 9), np.int32)),
        np.triu(np.ones((4, 4)), 1) * CLOSED,
    ),
    "placeholder": (np.zeros((BATCH, 1), np.int32), 0.0),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_masks_of_attention(name, unidirectional):
    mask, bias = MASKS[name]
    extra = normal(1, HEADS, LENGTH, LENGTH)
    bias = bias + extra + (causal(LENGTH, LENGTH) if unidirectional else 0)
    (found,) = run(
        "Attention", [X, WEIGHT, BIAS, mask, None, extra], num_heads=HEADS,
        unidirectional=unidirectional,
    )  # fmt: skip
    np.testing.assert_allclose(found, attention(*PARTS, bias), **TOLERANCE)


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_past_keys_come_first_and_go_on(unidirectional):
    past = normal(2, BATCH, HEADS, 3, SIZE)
    query, key, value = PARTS
    key, value = (
        np.concatenate([old, new], 2) for old, new in zip(past, (key, value), strict=True)
    )
    found, present = run(
        "Attention", [X, WEIGHT, BIAS, None, past], outputs=2, num_heads=HEADS, scale=0.3,
        unidirectional=unidirectional,
    )  # fmt: skip
    bias = causal(LENGTH, LENGTH + 3, 3) if unidirectional else 0
    np.testing.assert_allclose(found, attention(query, key, value, bias, 0.3), **TOLERANCE)
    np.testing.assert_allclose(present, np.stack([key, value]), **TOLERANCE)


def test_values_may_be_wider_than_keys():
    weight = normal(6, 16 + 16 + 24)
    query, key, value = np.split(X @ weight, [16, 32], axis=-1)
    (found,) = run("Attention", [X, weight], num_heads=HEADS, qkv_hidden_sizes=[16, 16, 24])
    expected = attention(by_heads(query), by_heads(key), by_heads(value))
    np.testing.assert_allclose(found, expected, **TOLERANCE)


def test_quantised_projection():
    codes = RNG.integers(0, 256, X.shape, dtype=np.uint8)
    weight = RNG.integers(-128, 128, (6, 48), dtype=np.int8)
    zeros = RNG.integers(-3, 4, 48, dtype=np.int8)
    scales = np.abs(normal(48)) * 0.01
    inputs = [codes, weight, BIAS, np.array(0.02, np.float32), scales, MASKS["lengths"][0]]
    (found,) = run("QAttention", [*inputs, np.array(7, np.uint8), zeros], num_heads=HEADS)
    x = (codes.astype(np.float64) - 7) * 0.02
    projected = x @ ((weight.astype(np.float64) - zeros) * scales) + BIAS
    parts = [by_heads(part) for part in np.split(projected, 3, axis=-1)]
    np.testing.assert_allclose(found, attention(*parts, MASKS["lengths"][1]), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ([X, WEIGHT[:5], BIAS], {}),
        ([X, WEIGHT, BIAS], {"num_heads": 5}),
        ([X, WEIGHT, BIAS], {"qkv_hidden_sizes": [16, 16, 17]}),
        ([X, WEIGHT, BIAS, np.ones((BATCH, 3), np.int32)], {}),
        ([X, WEIGHT, BIAS, np.ones(3, np.int32)], {}),
        ([X, WEIGHT, BIAS, None, normal(2, BATCH, HEADS, 3, 5)], {}),
        ([X, WEIGHT, BIAS, None, None, normal(1, 1, 3, 4)], {}),
    ],
)
def test_bad_inputs_of_attention(inputs, attributes):
    with pytest.raises(RunError):
        run("Attention", inputs, shapes=False, **{"num_heads": HEADS, **attributes})


def test_what_attention_does_not_do_is_refused_before_the_run():
    with pytest.raises(UnsupportedError, match="do_rotary"):
        run("Attention", [X, WEIGHT, BIAS], num_heads=HEADS, do_rotary=1)
    past = [None, normal(2, BATCH, HEADS, 3, SIZE), None, np.array([1], np.int32)]
    with pytest.raises(UnsupportedError, match="share"):
        run("Attention", [X, WEIGHT, BIAS, *past], num_heads=HEADS)


# ---------------------------------------------------------------- separate query, key, value

QUERY, KEY, VALUE = normal(BATCH, 3, 16), normal(BATCH, 5, 16), normal(BATCH, 5, 12)
KEY_MASK = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], np.int32)


def test_cross_attention_with_biases_and_mask():
    bias, extra = normal(16 + 16 + 12), normal(BATCH, 1, 3, 5)
    y, key, value, scores = run(
        "MultiHeadAttention", [QUERY, KEY, VALUE, bias, KEY_MASK, extra], outputs=4, num_heads=HEADS
    )
    parts = [by_heads(QUERY + bias[:16]), by_heads(KEY + bias[16:32]), by_heads(VALUE + bias[32:])]
    added = (1 - KEY_MASK)[:, None, None] * CLOSED + extra
    np.testing.assert_allclose(y, attention(*parts, added), **TOLERANCE)
    np.testing.assert_allclose(key, parts[1], **TOLERANCE)
    np.testing.assert_allclose(value, parts[2], **TOLERANCE)
    products = parts[0] @ parts[1].transpose(0, 1, 3, 2) / np.sqrt(8) + added
    np.testing.assert_allclose(scores, products, rtol=1e-4, atol=1e-3)


def test_packed_inputs_equal_separate_ones():
    query, key, value = normal(BATCH, 3, 16), normal(BATCH, 3, 16), normal(BATCH, 3, 16)
    bias = normal(48)
    expected = run("MultiHeadAttention", [query, key, value, bias], outputs=3, num_heads=HEADS)
    split = [x.reshape(BATCH, 3, HEADS, SIZE) for x in (query, key, value)]
    packed = [np.stack(split, axis=3), None, None, bias]
    for found, wanted in zip(
        run("MultiHeadAttention", packed, outputs=3, num_heads=HEADS), expected, strict=True
    ):
        np.testing.assert_allclose(found, wanted, **TOLERANCE)
    pair = [query, np.stack(split[1:], axis=3), None, bias]
    (found,) = run("MultiHeadAttention", pair, num_heads=HEADS)
    np.testing.assert_allclose(found, expected[0], **TOLERANCE)


def test_cached_keys_get_no_bias_again():
    key, value, bias = normal(BATCH, HEADS, 5, SIZE), normal(BATCH, HEADS, 5, SIZE), normal(48)
    (found,) = run("MultiHeadAttention", [QUERY, key, value, bias], num_heads=HEADS)
    expected = attention(by_heads(QUERY + bias[:16]), key, value)
    np.testing.assert_allclose(found, expected, **TOLERANCE)


def test_decoding_step_by_step_equals_the_whole_sequence():
    """With a cache each step sees the keys of all steps before it."""
    query, key, value = normal(BATCH, 5, 16), normal(BATCH, 5, 16), normal(BATCH, 5, 16)
    (whole,) = run("MultiHeadAttention", [query, key, value], num_heads=HEADS, unidirectional=1)
    past = [np.zeros((BATCH, HEADS, 0, SIZE), np.float32)] * 2
    for start, end in ((0, 3), (3, 4), (4, 5)):
        new = [x[:, start:end] for x in (query, key, value)]
        y, *past = run(
            "MultiHeadAttention", [*new, None, None, None, *past], outputs=3, num_heads=HEADS,
            unidirectional=1,
        )  # fmt: skip
        np.testing.assert_allclose(y, whole[:, start:end], **TOLERANCE)


@pytest.mark.parametrize(
    "inputs",
    [
        [QUERY, KEY],
        [QUERY, KEY, VALUE[:, :4]],
        [QUERY[:1], KEY, VALUE],
        [QUERY, KEY, VALUE, normal(7)],
        [QUERY, KEY, VALUE, None, np.ones((BATCH, 6), np.int32)],
        [QUERY, KEY, VALUE, None, None, None, normal(BATCH, HEADS, 2, SIZE)],
        [normal(BATCH, 3, 15), KEY, VALUE],
    ],
)
def test_bad_inputs_of_multi_head_attention(inputs):
    with pytest.raises(RunError):
        run("MultiHeadAttention", inputs, shapes=False, num_heads=HEADS)


def test_unidirectional_cross_attention_is_not_defined():
    with pytest.raises(RunError, match="unidirectional"):
        run("MultiHeadAttention", [QUERY, KEY, VALUE], num_heads=HEADS, unidirectional=1)
