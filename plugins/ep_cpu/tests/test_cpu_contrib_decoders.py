"""com.microsoft: grouped attention with its cache, and rotary embeddings."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_attention import TOLERANCE, attention, by_heads, causal, normal
from cpu_harness import UnsupportedError, run_op

from ep_core.errors import RunError

RNG = np.random.default_rng(14)
HEADS, KEY_HEADS, SIZE = 4, 2, 8
COS, SIN = np.cos(normal(20, 4)), np.sin(normal(20, 4))


def run(op_type, inputs, **attributes):
    return run_op(op_type, inputs, 17, domain="com.microsoft", **attributes)


def grouped(query, key, value, past, lengths, longest, *others, outputs=3, **attributes):
    inputs = [query, key, value, *past]
    inputs += [np.array(lengths, np.int32), np.array([longest], np.int32), *others]
    return run(
        "GroupQueryAttention", inputs, outputs=outputs, num_heads=HEADS, kv_num_heads=KEY_HEADS,
        **attributes,
    )  # fmt: skip


def tokens(batch, length):
    widths = (HEADS * SIZE, KEY_HEADS * SIZE, KEY_HEADS * SIZE)
    return [normal(batch, length, width) for width in widths]


def split(query, key, value):
    """All with one key and value head per query head."""
    parts = [by_heads(query, HEADS), by_heads(key, KEY_HEADS), by_heads(value, KEY_HEADS)]
    return [part if part.shape[1] == HEADS else np.repeat(part, 2, axis=1) for part in parts]


def turned(x, places, interleaved=False):
    """Rotate pairs of [batch, heads, length, size], as complex numbers times a unit number."""
    if interleaved:
        numbers = x[..., 0::2] + 1j * x[..., 1::2]
    else:
        numbers = x[..., : SIZE // 2] + 1j * x[..., SIZE // 2 :]
    numbers = numbers * (COS + 1j * SIN)[places][:, None]
    result = np.empty(x.shape)
    if interleaved:
        result[..., 0::2], result[..., 1::2] = numbers.real, numbers.imag
    else:
        result[..., : SIZE // 2], result[..., SIZE // 2 :] = numbers.real, numbers.imag
    return result


NO_PAST = (None, None)


def test_prompt_and_packed_prompt():
    query, key, value = tokens(2, 5)
    y, present_key, present_value = grouped(query, key, value, NO_PAST, [4, 4], 5)
    np.testing.assert_allclose(y, attention(*split(query, key, value), causal(5, 5)), **TOLERANCE)
    np.testing.assert_array_equal(present_key, by_heads(key, KEY_HEADS).astype(np.float32))
    np.testing.assert_array_equal(present_value, by_heads(value, KEY_HEADS).astype(np.float32))
    packed = np.concatenate([query, key, value], axis=-1)
    found = grouped(packed, None, None, NO_PAST, [4, 4], 5)
    np.testing.assert_allclose(found[0], y, **TOLERANCE)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotation_of_a_prompt(interleaved):
    query, key, value = tokens(1, 5)
    attributes = {"do_rotary": 1, "rotary_interleaved": interleaved}
    y, present_key, _ = grouped(query, key, value, NO_PAST, [4], 5, COS, SIN, **attributes)
    parts = split(query, key, value)
    places = np.arange(5)[None]
    parts[:2] = [turned(part, places, bool(interleaved)) for part in parts[:2]]
    np.testing.assert_allclose(y, attention(*parts, causal(5, 5)), **TOLERANCE)
    np.testing.assert_allclose(present_key, parts[1][:, ::2], **TOLERANCE)


def test_steps_with_growing_and_with_fixed_caches_equal_the_whole():
    query, key, value = tokens(1, 6)
    rotary = {"do_rotary": 1}
    whole, *_ = grouped(query, key, value, NO_PAST, [5], 6, COS, SIN, **rotary)
    growing = (np.zeros((1, KEY_HEADS, 0, SIZE), np.float32),) * 2
    fixed = (np.full((1, KEY_HEADS, 9, SIZE), np.nan, np.float32),) * 2
    for start, end in ((0, 3), (3, 4), (4, 6)):
        new = [x[:, start:end] for x in (query, key, value)]
        y, *growing = grouped(*new, growing, [end - 1], end, COS, SIN, **rotary)
        np.testing.assert_allclose(y, whole[:, start:end], **TOLERANCE)
        assert growing[0].shape[2] == end
        y, *fixed = grouped(*new, fixed, [end - 1], end, COS, SIN, **rotary)
        np.testing.assert_allclose(y, whole[:, start:end], **TOLERANCE)
        assert fixed[0].shape[2] == 9
        np.testing.assert_array_equal(fixed[0][:, :, :end], growing[0])


def test_sequences_of_a_batch_have_lengths_of_their_own():
    past = (normal(2, KEY_HEADS, 7, SIZE), normal(2, KEY_HEADS, 7, SIZE))
    new = tokens(2, 1)
    y, present_key, _ = grouped(*new, past, [6, 2], 7)
    for index, before in enumerate((6, 2)):
        own = [x[index : index + 1] for x in new]
        alone, key, _ = grouped(
            *own, tuple(x[index : index + 1, :, :before] for x in past), [before], before + 1
        )
        np.testing.assert_allclose(y[index], alone[0], **TOLERANCE)
        np.testing.assert_array_equal(present_key[index, :, : before + 1], key[0])


def test_window_softcap_bias_and_sinks():
    query, key, value = tokens(1, 5)
    q, k, v = split(query, key, value)
    window = np.where(np.arange(5) <= np.arange(5)[:, None] - 2, -np.inf, 0) + causal(5, 5)
    y, *_ = grouped(query, key, value, NO_PAST, [4], 5, local_window_size=2)
    np.testing.assert_allclose(y, attention(q, k, v, window), **TOLERANCE)

    bias = normal(1, 1, 5, 5)
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(SIZE)
    capped = 1.5 * np.tanh(scores / 1.5) + bias + causal(5, 5)
    weights = np.exp(capped) / np.exp(capped).sum(axis=-1, keepdims=True)
    none = (None,) * 3
    y, _, _, shown = grouped(
        query, key, value, NO_PAST, [4], 5, *none, bias, outputs=4, softcap=1.5, qk_output=2
    )
    np.testing.assert_allclose(shown, weights, **TOLERANCE)
    np.testing.assert_allclose(
        y, np.concatenate(list((weights @ v)[0]), axis=-1)[None], **TOLERANCE
    )

    sink = normal(HEADS)
    total = np.exp(scores + causal(5, 5)).sum(axis=-1, keepdims=True)
    for given, attributes, extra in (
        ((*none, None, sink), {}, np.exp(sink)[:, None, None]),
        ((), {"smooth_softmax": 1}, 1.0),
    ):
        weights = np.exp(scores + causal(5, 5)) / (total + extra)
        y, *_ = grouped(query, key, value, NO_PAST, [4], 5, *given, **attributes)
        expected = np.concatenate(list((weights @ v)[0]), axis=-1)[None]
        np.testing.assert_allclose(y, expected, **TOLERANCE)


@pytest.mark.parametrize(
    ("lengths", "longest", "past"),
    [([4], 3, 0), ([9], 5, 0), ([-1], 5, 0), ([4, 4], 5, 0), ([9], 10, 2), ([2], 9, 9)],
)
def test_lengths_that_contradict_the_inputs(lengths, longest, past):
    cache = (normal(1, KEY_HEADS, past, SIZE),) * 2
    with pytest.raises(RunError):
        grouped(*tokens(1, 5), cache, lengths, longest)


def test_rotation_without_or_beyond_its_caches():
    with pytest.raises(RunError, match="cos_cache"):
        grouped(*tokens(1, 5), NO_PAST, [4], 5, do_rotary=1)
    with pytest.raises(RunError):
        grouped(*tokens(1, 5), NO_PAST, [4], 5, COS[:3], SIN[:3], do_rotary=1)


@pytest.mark.parametrize(
    ("others", "attributes"),
    [
        ((None,) * 9 + (np.array([1], np.int32),), {}),
        ((None,) * 5 + (np.ones(1, np.float32),) * 2, {"k_quant_type": "PER_TENSOR"}),
        ((), {"sliding_window_cache": 1, "local_window_size": 4}),
        ((), {"v_quant_type": "PER_CHANNEL"}),
    ],
)
def test_what_grouped_attention_does_not_do_is_refused(others, attributes):
    with pytest.raises(UnsupportedError, match="isn't implemented"):
        grouped(*tokens(1, 5), NO_PAST, [4], 5, *others, **attributes)


# ---------------------------------------------------------------- rotary embedding


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding_in_both_shapes(interleaved):
    x = normal(2, 3, 16)
    heads = by_heads(x, 2).astype(np.float32)
    places = RNG.integers(0, 20, (2, 3))
    for positions, rows in ((places, places), (np.array([6]), np.array([[6, 7, 8]] * 2))):
        expected = turned(heads, rows, bool(interleaved))
        (found,) = run("RotaryEmbedding", [heads, positions, COS, SIN], interleaved=interleaved)
        np.testing.assert_allclose(found, expected, **TOLERANCE)
        (found,) = run("RotaryEmbedding", [x, positions, COS, SIN], interleaved=interleaved)
        flat = expected.transpose(0, 2, 1, 3).reshape(2, 3, 16)
        np.testing.assert_allclose(found, flat, **TOLERANCE)


def test_partial_rotation_leaves_the_rest():
    x = normal(1, 3, 24)
    (found,) = run(
        "RotaryEmbedding", [x, np.array([[5, 0, 2]]), COS, SIN], num_heads=2,
        rotary_embedding_dim=8,
    )  # fmt: skip
    heads = by_heads(x, 2)
    expected = np.concatenate(
        [turned(heads[..., :8], np.array([[5, 0, 2]])), heads[..., 8:]], axis=-1
    )
    np.testing.assert_allclose(by_heads(found, 2), expected, **TOLERANCE)


@pytest.mark.parametrize(
    ("shape", "positions", "attributes"),
    [
        ((2, 3, 16), np.array([18]), {}),
        ((2, 3, 16), np.array([[-1, 0, 1]] * 2), {}),
        ((2, 3, 16), np.array([0, 1]), {}),
        ((2, 3, 15), np.array([0]), {}),
        ((2, 3, 16), np.array([0]), {"num_heads": 4}),
        ((3, 16), np.array([0]), {}),
    ],
)
def test_bad_inputs_of_rotary_embedding(shape, positions, attributes):
    with pytest.raises(RunError):
        run("RotaryEmbedding", [normal(*shape), positions, COS, SIN], shapes=False, **attributes)


def test_scaled_rotation_is_refused():
    with pytest.raises(UnsupportedError, match="scale"):
        run("RotaryEmbedding", [normal(2, 3, 16), np.array([0]), COS, SIN], scale=2.0)
