"""com.microsoft: normalisations and embeddings against their formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_harness import UnsupportedError, run_op

from ep_core.errors import RunError

RNG = np.random.default_rng(12)
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def run(op_type, inputs, **attributes):
    return run_op(op_type, inputs, 17, domain="com.microsoft", **attributes)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def layer_norm(x, gamma, beta=0.0, epsilon=1e-12):
    x = x.astype(np.float64)
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(x.var(axis=-1, keepdims=True) + epsilon) * gamma + beta


def rms_norm(x, gamma, epsilon=1e-12):
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * gamma


@pytest.mark.parametrize("skip_shape", [(2, 3, 8), (1, 3, 8), (3, 8)])
def test_skip_broadcasts_over_the_batch(skip_shape):
    x, skip, gamma, beta = normal(2, 3, 8), normal(*skip_shape), normal(8), normal(8)
    (found,) = run("SkipLayerNormalization", [x, skip, gamma, beta], epsilon=1e-5)
    np.testing.assert_allclose(found, layer_norm(x + skip, gamma, beta, 1e-5), **TOLERANCE)
    (found,) = run("SkipSimplifiedLayerNormalization", [x, skip, gamma])
    np.testing.assert_allclose(found, rms_norm(x + skip, gamma), **TOLERANCE)


def test_skip_that_does_not_broadcast_is_an_error():
    x, gamma = normal(2, 3, 8), normal(8)
    for skip in (normal(2, 1, 8), normal(8), normal(2, 3, 7)):
        with pytest.raises(RunError, match="skip"):
            run("SkipLayerNormalization", [x, skip, gamma], shapes=False)
    with pytest.raises(RunError, match="gamma"):
        run("SkipSimplifiedLayerNormalization", [x, x, gamma[:5]], shapes=False)


def test_simplified_with_bias_and_sum():
    x, skip, gamma, bias = normal(2, 3, 8), normal(2, 3, 8), normal(8), normal(8)
    total = x + skip + bias
    (y,) = run("SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], epsilon=1e-6)
    np.testing.assert_allclose(y, rms_norm(total, gamma, 1e-6), **TOLERANCE)
    with pytest.raises(UnsupportedError, match="mean"):
        run("SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], outputs=4)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_simplified_in_the_standard_domain(dtype):
    x, scale = normal(2, 3, 8).astype(dtype), normal(3, 8).astype(dtype)
    y, inverse = run_op(
        "SimplifiedLayerNormalization", [x, scale], 11, outputs=2, axis=1, epsilon=0.25
    )
    flat = x.astype(np.float64).reshape(2, 24)
    expected = rms_norm(flat, scale.astype(np.float64).reshape(24), 0.25).reshape(2, 3, 8)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, expected, rtol=4e-3 if dtype == np.float16 else 1e-5, atol=1e-5)
    assert inverse.shape == (2, 1, 1)
    assert inverse.dtype == np.float32
    root = np.sqrt((flat * flat).mean(axis=1) + 0.25)
    np.testing.assert_allclose(inverse.reshape(-1), 1 / root, rtol=1e-5)


# ---------------------------------------------------------------- embeddings


IDS = np.array([[1, 4, 0, 2], [3, 3, 9, 8]], np.int32)
SEGMENTS = np.array([[0, 0, 1, 1], [0, 1, 1, 1]], np.int32)
WORDS, PLACES, KINDS = normal(10, 6), normal(5, 6), normal(2, 6)
GAMMA, BETA = normal(6), normal(6)


def test_embeddings_are_added_and_normalised():
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 1]], np.int32)
    y, counted, total = run(
        "EmbedLayerNormalization", [IDS, SEGMENTS, WORDS, PLACES, KINDS, GAMMA, BETA, mask],
        outputs=3,
    )  # fmt: skip
    expected = WORDS[IDS] + PLACES[:4] + KINDS[SEGMENTS]
    np.testing.assert_allclose(total, expected, **TOLERANCE)
    np.testing.assert_allclose(y, layer_norm(expected, GAMMA, BETA), **TOLERANCE)
    assert counted.tolist() == [2, 4]


def test_positions_may_be_given():
    positions = np.array([[4, 0, 2, 2]], np.int32)
    (y,) = run(
        "EmbedLayerNormalization",
        [IDS, None, WORDS, PLACES, None, GAMMA, BETA, None, positions],
    )
    expected = layer_norm(WORDS[IDS] + PLACES[positions], GAMMA, BETA)
    np.testing.assert_allclose(y, expected, **TOLERANCE)


@pytest.mark.parametrize("ids", [IDS + 7, IDS - 1, np.zeros((1, 6), np.int32)])
def test_a_word_or_place_outside_its_table_is_an_error(ids):
    with pytest.raises(RunError):
        run("EmbedLayerNormalization", [ids, None, WORDS, PLACES, None, GAMMA, BETA], shapes=False)


def test_quantised_tables():
    def codes(table):
        scale = np.float32(np.abs(table).max() / 127)
        return np.rint(table / scale).astype(np.int8), np.array(scale)

    tables = [codes(table) for table in (WORDS, PLACES, KINDS, GAMMA, BETA)]
    zero = np.zeros((), np.int8)
    y, counted = run(
        "QEmbedLayerNormalization",
        [
            IDS, SEGMENTS, *(table for table, _ in tables), None,
            *(scale for _, scale in tables), *[zero] * 5,
        ],
        outputs=2,
    )  # fmt: skip
    words, places, kinds, gamma, beta = (table * scale for table, scale in tables)
    expected = layer_norm(words[IDS] + places[:4] + kinds[SEGMENTS], gamma, beta)
    np.testing.assert_allclose(y, expected, **TOLERANCE)
    assert counted.tolist() == [0, 0]


# ---------------------------------------------------------------- groups


def group_norm(x, groups, gamma, beta, epsilon):
    """Of [N, H, W, C] in float64."""
    batch, channels = x.shape[0], x.shape[-1]
    grouped = x.astype(np.float64).reshape(batch, -1, groups, channels // groups)
    mean = grouped.mean(axis=(1, 3), keepdims=True)
    variance = grouped.var(axis=(1, 3), keepdims=True)
    return ((grouped - mean) / np.sqrt(variance + epsilon)).reshape(x.shape) * gamma + beta


@pytest.mark.parametrize("activation", [0, 1])
def test_group_norm_in_both_layouts(activation):
    x, gamma, beta = normal(2, 3, 4, 6), normal(6), normal(6)
    expected = group_norm(x, 3, gamma, beta, 1e-3)
    if activation:
        expected = expected / (1 + np.exp(-expected))
    attributes = {"groups": 3, "activation": activation, "epsilon": 1e-3}
    (found,) = run("GroupNorm", [x, gamma, beta], **attributes)
    np.testing.assert_allclose(found, expected, **TOLERANCE)
    first = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    (found,) = run("GroupNorm", [first, gamma, beta], channels_last=0, **attributes)
    np.testing.assert_allclose(found.transpose(0, 2, 3, 1), expected, **TOLERANCE)


@pytest.mark.parametrize("skip_shape", [(2, 3, 4, 6), (2, 1, 1, 6), (2, 6)])
def test_group_norm_of_a_sum(skip_shape):
    x, gamma, beta, bias = normal(2, 3, 4, 6), normal(6), normal(6), normal(6)
    skip = normal(*skip_shape)
    y, total = run("SkipGroupNorm", [x, gamma, beta, skip, bias], outputs=2, groups=2, activation=0)
    expected = x + skip.reshape(2, *(skip_shape[1:3] if len(skip_shape) == 4 else (1, 1)), 6) + bias
    np.testing.assert_allclose(total, expected, **TOLERANCE)
    np.testing.assert_allclose(y, group_norm(expected, 2, gamma, beta, 1e-5), **TOLERANCE)
    with pytest.raises(RunError, match="groups"):
        run("GroupNorm", [x, gamma, beta], groups=4, activation=0)
