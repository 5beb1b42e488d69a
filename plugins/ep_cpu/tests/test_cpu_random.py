"""Random operators by their distribution, and by what a seed promises.

Bounds are five standard errors of the estimate, so that a right generator fails once in a million
runs, and with a fixed seed never or always.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from cpu_harness import run_op

from ep_core.errors import RunError

COUNT = 40_000
FLOATS = [np.float32, np.float64, np.float16]
NUMBER = {np.float32: 1, np.float64: 11, np.float16: 10, ml_dtypes.bfloat16: 16}


def draw(op_type, inputs, opset=22, **attributes):
    return run_op(op_type, inputs, opset, **attributes)[0]


def check_moments(values, mean, deviation):
    values = values.astype(np.float64).reshape(-1)
    error = deviation / math.sqrt(values.size)
    assert abs(values.mean() - mean) < 5 * error
    # The standard error of a standard deviation is at most that of the mean for these two laws.
    assert abs(values.std() - deviation) < 5 * error


@pytest.mark.parametrize("dtype", [*FLOATS, ml_dtypes.bfloat16])
@pytest.mark.parametrize("like", [False, True])
def test_uniform(dtype, like):
    settings = {"low": -1.0, "high": 3.0, "seed": 5.0, "dtype": NUMBER[dtype]}
    if like:
        found = draw("RandomUniformLike", [np.zeros((COUNT,), np.float32)], **settings)
    else:
        found = draw("RandomUniform", [], shape=[COUNT], **settings)
    assert found.dtype == dtype
    assert found.shape == (COUNT,)
    assert -1 <= found.min() < -0.99
    assert 2.9 < found.max() <= 3
    check_moments(found, 1, 4 / math.sqrt(12))
    # Equal quarters hold equal shares.
    shares = np.histogram(found.astype(np.float64), bins=4, range=(-1, 3))[0] / COUNT
    assert np.abs(shares - 0.25).max() < 5 * math.sqrt(0.25 * 0.75 / COUNT) + 1e-3


@pytest.mark.parametrize("dtype", [*FLOATS, ml_dtypes.bfloat16])
@pytest.mark.parametrize("like", [False, True])
def test_normal(dtype, like):
    settings = {"mean": 2.0, "scale": 0.5, "seed": 6.0, "dtype": NUMBER[dtype]}
    if like:
        found = draw("RandomNormalLike", [np.zeros((COUNT,), np.float32)], **settings)
    else:
        found = draw("RandomNormal", [], shape=[COUNT], **settings)
    assert found.dtype == dtype
    check_moments(found, 2, 0.5)
    # 68.27 % of a normal law lie within one standard deviation, 95.45 % within two.
    distance = np.abs(found.astype(np.float64) - 2) / 0.5
    for bound, share in ((1, 0.6827), (2, 0.9545)):
        assert abs((distance < bound).mean() - share) < 0.015


@pytest.mark.parametrize("dtype", FLOATS)
def test_bernoulli(dtype):
    chances = np.repeat([0.0, 0.1, 0.5, 1.0], COUNT // 4).astype(dtype)
    found = draw("Bernoulli", [chances], seed=7.0)
    assert found.dtype == dtype
    assert set(np.unique(found)) == {0, 1}
    rates = found.astype(np.float64).reshape(4, -1).mean(axis=1)
    assert rates[0] == 0
    assert rates[3] == 1
    for rate, chance in ((rates[1], 0.1), (rates[2], 0.5)):
        assert abs(rate - chance) < 5 * math.sqrt(chance * (1 - chance) / (COUNT / 4))
    assert draw("Bernoulli", [chances], dtype=9).dtype == np.bool_
    assert draw("Bernoulli", [chances], dtype=6).dtype == np.int32


def test_multinomial():
    """Logits log(1), log(3), -inf: chances 1/4, 3/4 and none."""
    logits = np.array([[0, math.log(3), -np.inf], [5, 5, 5]], np.float32)
    found = draw("Multinomial", [logits], sample_size=COUNT, seed=8.0, dtype=7)
    assert found.dtype == np.int64
    assert found.shape == (2, COUNT)
    shares = np.bincount(found[0], minlength=3) / COUNT
    error = 5 * math.sqrt(0.25 * 0.75 / COUNT)
    assert shares[2] == 0
    assert abs(shares[0] - 0.25) < error
    assert np.abs(np.bincount(found[1], minlength=3) / COUNT - 1 / 3).max() < error
    assert draw("Multinomial", [logits.astype(np.float64)]).dtype == np.int32


def test_training_dropout():
    """A quarter is dropped, and what stays is scaled so that the mean stays."""
    x = np.ones(COUNT, np.float32)
    inputs = [x, np.array(0.25, np.float32), np.array(True)]
    y, mask = run_op("Dropout", inputs, 13, outputs=2, seed=9)
    assert mask.dtype == np.bool_
    np.testing.assert_allclose(np.unique(y), [0, 4 / 3], rtol=1e-6)
    np.testing.assert_array_equal(y != 0, mask)
    assert abs(mask.mean() - 0.75) < 5 * math.sqrt(0.25 * 0.75 / COUNT)
    with pytest.raises(RunError, match="ratio"):
        run_op("Dropout", [x, np.array(1.0, np.float32), np.array(True)], 13)


SEEDED = {
    "RandomUniform": ([], {"shape": [64]}),
    "RandomNormal": ([], {"shape": [64]}),
    "RandomUniformLike": ([np.zeros(64, np.float32)], {}),
    "RandomNormalLike": ([np.zeros(64, np.float32)], {}),
    "Bernoulli": ([np.full(64, 0.5, np.float32)], {}),
    "Multinomial": ([np.zeros((1, 9), np.float32)], {"sample_size": 64}),
}


@pytest.mark.parametrize("op_type", SEEDED)
def test_a_seed_repeats_and_none_does_not(op_type):
    inputs, attributes = SEEDED[op_type]
    first = draw(op_type, inputs, seed=1.0, **attributes)
    again = draw(op_type, inputs, seed=1.0, **attributes)
    other = draw(op_type, inputs, seed=2.0, **attributes)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert (draw(op_type, inputs, **attributes) != draw(op_type, inputs, **attributes)).any()
