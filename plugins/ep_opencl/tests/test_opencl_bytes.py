"""Products of bytes are exact, however long the sums and however large the values."""

from __future__ import annotations

import numpy as np
import pytest
from opencl_harness import chosen, floats, needs_device, one_node, run_one, session

from ep_opencl.device import open_device

pytestmark = needs_device

RANDOM = np.random.default_rng(11)


def extremes(shape, dtype):
    """Whole tensors of the largest value but for a few places."""
    info = np.iinfo(dtype)
    values = np.full(shape, info.max, dtype)
    places = RANDOM.integers(0, values.size, values.size // 7 + 1)
    values.reshape(-1)[places] = RANDOM.integers(info.min, info.max + 1, len(places))
    return values


def run(op_type, inputs, attributes=None, constant=()):
    model, feeds = one_node(op_type, inputs, attributes, constant=constant)
    with session(model) as running:
        return running.run(None, feeds)[0]


@pytest.mark.parametrize("constant", [(), (1,), (1, 3)])
@pytest.mark.parametrize("rows", [1, 7, 40])
@pytest.mark.parametrize("depth", [3, 256, 257, 5000])
def test_matrices(depth, rows, constant):
    a, b = extremes((rows, depth), np.uint8), extremes((depth, 35), np.int8)
    zeros = [np.array(255, np.uint8), extremes((35,), np.int8)]
    expected = (a.astype(np.int64) - 255) @ (b.astype(np.int64) - zeros[1])
    found = run("MatMulInteger", [a, b, *zeros], constant=constant)
    np.testing.assert_array_equal(found, expected)


def test_both_unsigned_and_one_zero_for_each_row():
    a, b = extremes((2, 30, 600), np.uint8), extremes((600, 33), np.uint8)
    zeros = extremes((30,), np.uint8)
    expected = (a.astype(np.int64) - zeros[:, None]) @ b.astype(np.int64)
    found = run("MatMulInteger", [a, b, zeros, np.array(0, np.uint8)])
    np.testing.assert_array_equal(found, expected)


def convolved(x, w, strides, groups=1):
    """Sums of int64, place by place of the window."""
    images, _, height, width = x.shape
    filters, own, tall, wide = w.shape
    high = (height - tall) // strides + 1
    broad = (width - wide) // strides + 1
    result = np.zeros((images, filters, high, broad), np.int64)
    share = filters // groups
    for group in range(groups):
        part = x[:, group * own : (group + 1) * own].astype(np.int64)
        filter_slice = slice(group * share, (group + 1) * share)
        for i in range(tall):
            for j in range(wide):
                seen = part[
                    :, :, i : i + high * strides : strides, j : j + broad * strides : strides
                ]
                taps = w[filter_slice, :, i, j].astype(np.int64)
                result[:, filter_slice] += np.einsum("nchw,fc->nfhw", seen, taps)
    return result


CONVOLUTIONS = {
    "along padded planes": ((1, 40, 12, 13), (20, 40, 3, 3), 1, 1),
    "unfolded": ((2, 40, 12, 13), (20, 40, 3, 3), 2, 1),
    "in groups": ((2, 12, 9, 9), (10, 6, 3, 3), 1, 2),
    "one by one": ((1, 6, 9, 9), (6, 1, 3, 3), 1, 6),
    "a window longer than a part": ((1, 6, 20, 20), (9, 6, 17, 17), 1, 1),
    "one by one, with a long window": ((1, 4, 19, 19), (4, 4, 17, 17), 1, 1),
    "1 x 1": ((1, 300, 8, 8), (16, 300, 1, 1), 1, 1),
}


@pytest.mark.parametrize("is_cpu", [True, False])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name, is_cpu, monkeypatch):
    """Without `is_cpu` by the kernels for GPUs, which multiply integers."""
    monkeypatch.setattr(open_device(chosen().id), "is_cpu", is_cpu)
    shape, weight_shape, strides, groups = CONVOLUTIONS[name]
    x, w = extremes(shape, np.uint8), extremes(weight_shape, np.int8)
    zeros = [np.array(1, np.uint8), extremes(weight_shape[:1], np.int8)]
    shifted = w.astype(np.int64) - zeros[1].reshape(-1, 1, 1, 1)
    expected = convolved(x.astype(np.int64) - 1, shifted, strides, groups)
    attributes = {"strides": [strides, strides], "group": groups}
    found = run("ConvInteger", [x, w, *zeros], attributes)
    np.testing.assert_array_equal(found, expected)


def test_a_bias_that_no_float_holds_is_added_to_whole_numbers():
    """Scales of 1 and a range of one byte: the last bits of sum and bias have to meet exactly."""
    x, w = extremes((1, 20, 6, 6), np.uint8), extremes((8, 20, 3, 3), np.int8)
    sums = convolved(x, w, 1)
    bias = (-sums[0, :, 0, 0] + np.arange(8)).astype(np.int32)
    one, byte = np.array(1, np.float32), np.array(0, np.uint8)
    inputs = [x, one, byte, w, one, np.array(0, np.int8), one, byte, bias]
    found = run_one("QLinearConv", inputs)
    expected = np.clip(sums + bias.reshape(-1, 1, 1), 0, 255)
    np.testing.assert_array_equal(found, expected)
    assert found[0, :, 0, 0].tolist() == list(range(8))


def test_the_kernels_for_gpus_unfold_halves_as_floats(monkeypatch):
    x, w = (floats(*shape).astype(np.float16) for shape in ((1, 20, 9, 9), (8, 20, 3, 3)))
    found = []
    for is_cpu in (True, False):
        monkeypatch.setattr(open_device(chosen().id), "is_cpu", is_cpu)
        found.append(run_one("Conv", [x, w], {"strides": [2, 2]}).astype(np.float32))
    np.testing.assert_allclose(*found, rtol=2e-3, atol=2e-3)
