"""Convolution and pooling against direct sums, over shapes that reach every method."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cpu_harness import run_op

RNG = np.random.default_rng(7)


def direct_convolution(x, weight, bias, strides, pads, dilations, groups):
    """One output element after another place of the kernel, in float64."""
    rank = len(strides)
    widths = [(0, 0), (0, 0)] + [(pads[i], pads[i + rank]) for i in range(rank)]
    padded = np.pad(x.astype(np.float64), widths)
    kernel = weight.shape[2:]
    output = [
        (padded.shape[2 + i] - (dilations[i] * (kernel[i] - 1) + 1)) // strides[i] + 1
        for i in range(rank)
    ]
    y = np.zeros((x.shape[0], weight.shape[0], *output))
    inner, outer = x.shape[1] // groups, weight.shape[0] // groups
    for place in itertools.product(*map(range, kernel)):
        starts = [at * by for at, by in zip(place, dilations, strict=True)]
        part = tuple(
            slice(start, start + (count - 1) * step + 1, step)
            for start, count, step in zip(starts, output, strides, strict=True)
        )
        seen = padded[(slice(None), slice(None), *part)]
        for group in range(groups):
            mine = slice(group * outer, (group + 1) * outer)
            factor = weight[(mine, slice(None), *place)].astype(np.float64)
            source = seen[:, group * inner : (group + 1) * inner]
            y[:, mine] += np.einsum("nc...,mc->nm...", source, factor)
    return y + bias.reshape(1, -1, *[1] * rank)


CONVOLUTIONS = {
    "pointwise": ((2, 3, 5, 5), (4, 3, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    "pointwise-strided": ((1, 3, 5, 5), (4, 3, 1, 1), (2, 2), (0, 0, 0, 0), (1, 1), 1),
    "columns": ((2, 2, 6, 7), (5, 2, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "columns-bands": ((1, 8, 90, 90), (8, 8, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "columns-strided": ((1, 2, 9, 8), (3, 2, 3, 2), (2, 3), (1, 0, 2, 1), (1, 1), 1),
    "columns-dilated": ((1, 2, 9, 9), (3, 2, 3, 3), (2, 1), (2, 2, 2, 2), (2, 2), 1),
    "places": ((1, 9, 7, 7), (2, 9, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "places-strided": ((1, 9, 8, 7), (2, 9, 3, 3), (2, 2), (1, 1, 0, 1), (1, 1), 1),
    "depthwise": ((2, 6, 8, 8), (6, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 6),
    "depthwise-multiplied": ((1, 3, 8, 9), (6, 1, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 3),
    "grouped": ((1, 6, 6, 6), (4, 3, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 2),
    "windows-line": ((1, 1, 70), (5, 1, 32), (16,), (0, 0), (1,), 1),
    "windows-grouped": ((1, 4, 40), (4, 2, 30), (8,), (0, 0), (1,), 2),
    "line": ((2, 3, 20), (4, 3, 5), (2,), (2, 1), (2,), 1),
    "volume": ((1, 2, 5, 6, 4), (3, 2, 2, 3, 2), (1, 2, 1), (1, 0, 0, 0, 1, 1), (1, 1, 2), 1),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_convolution(name, dtype):
    shape, weight_shape, strides, pads, dilations, groups = CONVOLUTIONS[name]
    x = RNG.standard_normal(shape).astype(dtype)
    weight = RNG.standard_normal(weight_shape).astype(dtype)
    bias = RNG.standard_normal(weight_shape[0]).astype(dtype)
    (found,) = run_op(
        "Conv", [x, weight, bias], 11, strides=strides, pads=pads, dilations=dilations, group=groups
    )
    expected = direct_convolution(x, weight, bias, strides, pads, dilations, groups)
    tolerance = 2e-3 if dtype == np.float16 else 1e-5
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max()
    )
    (transposed,) = run_op(
        "Conv",
        [x.swapaxes(-1, -2).copy().swapaxes(-1, -2), weight],
        11,
        strides=strides,
        pads=pads,
        dilations=dilations,
        group=groups,
    )
    plain = expected - bias.reshape(1, -1, *[1] * len(strides))
    np.testing.assert_allclose(
        transposed, plain, rtol=tolerance, atol=tolerance * np.abs(expected).max()
    )


def test_convolution_of_an_empty_batch():
    x, weight = np.zeros((0, 2, 4, 4), np.float32), np.zeros((3, 2, 3, 3), np.float32)
    assert run_op("Conv", [x, weight], 11)[0].shape == (0, 3, 2, 2)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_automatic_padding(auto_pad):
    # Length 5, kernel 2, stride 2: SAME gives 3 windows and one element of padding.
    x = np.arange(1, 6, dtype=np.float32).reshape(1, 1, 5)
    weight = np.ones((1, 1, 2), np.float32)
    (found,) = run_op("Conv", [x, weight], 11, strides=[2], auto_pad=auto_pad)
    expected = {"SAME_UPPER": [3, 7, 5], "SAME_LOWER": [1, 5, 9], "VALID": [3, 7]}
    assert found.reshape(-1).tolist() == expected[auto_pad]


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolution_is_the_adjoint(groups):
    """<conv(x), y> must equal <x, conv_transpose(y)> for any x and y."""
    x = RNG.standard_normal((1, 4, 7, 8)).astype(np.float32)
    weight = RNG.standard_normal((6, 4 // groups, 3, 2)).astype(np.float32)
    settings = {"strides": [2, 3], "pads": [1, 0, 1, 1], "dilations": [1, 2], "group": groups}
    (y,) = run_op("Conv", [x, weight], 11, **settings)
    other = RNG.standard_normal(y.shape).astype(np.float32)
    (back,) = run_op("ConvTranspose", [other, weight], 11, output_shape=[7, 8], **settings)
    exact = {**settings, "output_padding": [0, 0]}
    (natural,) = run_op("ConvTranspose", [other, weight], 11, **exact)
    rows, columns = natural.shape[2:]
    product = float((y.astype(np.float64) * other).sum())
    part = x[:, :, :rows, :columns]
    np.testing.assert_allclose(float((part.astype(np.float64) * natural).sum()), product, rtol=1e-4)
    assert back.shape == x.shape


def direct_pool(x, kernel, strides, pads, dilations, ceil, combine):
    """Pool a line [L] window by window; `combine` gets what the window sees, and its padding."""
    reach = dilations * (kernel - 1) + 1
    room = len(x) + pads[0] + pads[1] - reach
    count = (-(-room // strides) if ceil else room // strides) + 1
    if ceil and (count - 1) * strides >= len(x) + pads[0]:
        count -= 1
    result = []
    for index in range(count):
        places = [index * strides - pads[0] + at * dilations for at in range(kernel)]
        seen = [x[place] for place in places if 0 <= place < len(x)]
        padding = sum(
            -pads[0] <= place < 0 or len(x) <= place < len(x) + pads[1] for place in places
        )
        result.append(combine(seen, padding))
    return np.array(result, np.float32)


POOLS = list(itertools.product([2, 3], [1, 2, 3], [(0, 0), (1, 0), (1, 1)], [1, 2], [0, 1]))


@pytest.mark.parametrize(("kernel", "stride", "pads", "dilation", "ceil"), POOLS)
def test_pools_against_window_by_window(kernel, stride, pads, dilation, ceil):
    line = RNG.standard_normal(9).astype(np.float32)
    settings = {
        "kernel_shape": [kernel],
        "strides": [stride],
        "pads": pads,
        "ceil_mode": ceil,
        "dilations": [dilation],
    }

    def check(op_type, combine, **more):
        expected = direct_pool(line, kernel, stride, pads, dilation, ceil, combine)
        (found,) = run_op(op_type, [line.reshape(1, 1, 9)], 22, **settings, **more)
        np.testing.assert_allclose(found.reshape(-1), expected, rtol=1e-5, atol=1e-6)

    check("MaxPool", lambda seen, padding: max(seen))
    check("AveragePool", lambda seen, padding: sum(seen) / len(seen))
    check(
        "AveragePool", lambda seen, padding: sum(seen) / (len(seen) + padding), count_include_pad=1
    )
    check("LpPool", lambda seen, padding: sum(v * v for v in seen) ** 0.5)
    check("LpPool", lambda seen, padding: sum(abs(v) for v in seen), p=1)


def test_max_pool_indices_and_nan():
    x = np.array([1, 5, 2, np.nan, 3, 4], np.float32).reshape(1, 1, 6)
    y, where = run_op("MaxPool", [x], 12, outputs=2, kernel_shape=[2], strides=[2])
    np.testing.assert_array_equal(y.reshape(-1), np.array([5, np.nan, 4], np.float32))
    assert where.reshape(-1).tolist() == [1, 3, 5]
    (plain,) = run_op("MaxPool", [x], 12, kernel_shape=[2], strides=[2])
    np.testing.assert_array_equal(plain, y)


def test_max_pool_of_integers_with_padding():
    x = np.array([[-5, -7], [-9, -3]], np.int8).reshape(1, 1, 2, 2)
    (found,) = run_op("MaxPool", [x], 12, kernel_shape=[2, 2], pads=[1, 1, 0, 0])
    assert found.reshape(2, 2).tolist() == [[-5, -5], [-5, -3]]
    y, where = run_op("MaxPool", [x], 12, outputs=2, kernel_shape=[2, 2], storage_order=1)
    assert (y.item(), where.item()) == (-3, 3)
