"""Cases that widely used runtimes got wrong at some time; expected values derived by hand."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_harness import run_op

from ep_core.errors import RunError

NAN = float("nan")
INF = float("inf")


def f32(*values):
    return np.array(values, np.float32)


def test_cumsum_over_two_axes_and_reversed():
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    axis = [np.array(0, np.int64), np.array(1, np.int64)]
    assert run_op("CumSum", [x, axis[0]], 14)[0].tolist() == [[1, 2, 3], [5, 7, 9]]
    assert run_op("CumSum", [x, axis[1]], 14)[0].tolist() == [[1, 3, 6], [4, 9, 15]]
    assert run_op("CumSum", [x, axis[1]], 14, reverse=1)[0].tolist() == [[6, 5, 3], [15, 11, 6]]
    (found,) = run_op("CumSum", [x, axis[1]], 14, reverse=1, exclusive=1)
    assert found.tolist() == [[5, 3, 0], [11, 6, 0]]


def test_einsum_of_one_operand_reduces_and_transposes():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    (found,) = run_op("Einsum", [x], 12, equation=" a b c -> c a ")
    np.testing.assert_array_equal(found, x.sum(axis=1).T)
    assert run_op("Einsum", [x], 12, equation="abc->")[0].item() == 276
    (found,) = run_op("Einsum", [np.eye(3, dtype=np.int32)], 12, equation="ii->i")
    assert found.tolist() == [1, 1, 1]


def test_average_pool_counts_the_padding_at_both_ends():
    # Five rows of ones, kernel 5, SAME: two rows of padding on each side; the sums over the
    # windows are 3, 4, 5, 4, 3 and every divisor is 5.
    x = np.ones((1, 1, 5, 1), np.float32)
    settings = {"kernel_shape": [5, 1], "auto_pad": "SAME_LOWER"}
    (found,) = run_op("AveragePool", [x], 19, count_include_pad=1, **settings)
    np.testing.assert_allclose(found.reshape(-1), f32(0.6, 0.8, 1.0, 0.8, 0.6), rtol=1e-6)
    (found,) = run_op("AveragePool", [x], 19, **settings)
    np.testing.assert_allclose(found.reshape(-1), np.ones(5), rtol=1e-6)


def test_pool_drops_windows_that_start_in_the_right_padding():
    # Length 4, pads (1, 1), kernel 1, stride 3: ceil would give starts -1, 2 and 5; the last one
    # lies in the padding behind the input.
    x = f32(1, 2, 3, 4).reshape(1, 1, 4)
    settings = {"kernel_shape": [1], "strides": [3], "pads": [1, 1], "ceil_mode": 1}
    (found,) = run_op("AveragePool", [x], 19, count_include_pad=1, **settings)
    assert found.reshape(-1).tolist() == [0, 3]
    (found,) = run_op("MaxPool", [x], 12, kernel_shape=[2], strides=[3], pads=[1, 1], ceil_mode=1)
    assert found.reshape(-1).tolist() == [1, 4]


def test_average_pool_with_ceil_mode_divides_by_what_is_there():
    # Length 5, kernel 2, stride 2, ceil: the third window holds one element and nothing else.
    x = f32(1, 2, 3, 4, 5).reshape(1, 1, 5)
    (found,) = run_op("AveragePool", [x], 19, kernel_shape=[2], strides=[2], ceil_mode=1)
    assert found.reshape(-1).tolist() == [1.5, 3.5, 5]


def test_quantize_float16_rounds_to_nearest():
    # 0.05002 / 0.1 in float16 is a little above one half.
    x = np.array([0.05002, -0.05002, 0.26, -0.26], np.float16)
    scale, zero = np.array(0.1, np.float16), np.array(0, np.int8)
    (found,) = run_op("QuantizeLinear", [x, scale, zero], 19)
    assert found.tolist() == [1, -1, 3, -3]
    assert found.dtype == np.int8


def test_split_to_sequence_of_strings_without_keepdims():
    x = np.array([["a", "b"], ["c", "d"]], dtype=object)
    (found,) = run_op("SplitToSequence", [x], 24, keepdims=0, axis=1)
    assert [part.tolist() for part in found] == [["a", "c"], ["b", "d"]]
    (found,) = run_op("SplitToSequence", [x, np.array(2, np.int64)], 24, keepdims=0)
    assert [part.shape for part in found] == [(2, 2)]


def test_negative_pads_crop():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    pads = np.array([-1, 1, 0, -2], np.int64)
    (found,) = run_op("Pad", [x, pads, f32(9)], 13)
    assert found.tolist() == [[9, 4, 5], [9, 8, 9]]
    (found,) = run_op("Pad", [x, np.array([0, -1, 0, 2], np.int64)], 13, mode="edge")
    assert found[0].tolist() == [1, 2, 3, 3, 3]


def test_reduction_of_a_scalar_is_the_scalar():
    x = np.array(3.5, np.float32)
    for op_type, opset in (("ReduceMin", 18), ("ReduceSum", 13), ("ReduceMean", 18)):
        (found,) = run_op(op_type, [x], opset)
        assert found.shape == ()
        assert found.item() == 3.5
    assert run_op("ArgMax", [x], 13, axis=0)[0].item() == 0


def test_reduction_of_nothing():
    x = np.zeros((2, 0), np.float32)
    axes = np.array([1], np.int64)
    cases = {"ReduceMax": -INF, "ReduceMin": INF, "ReduceSum": 0, "ReduceProd": 1, "ReduceL1": 0,
             "ReduceLogSumExp": -INF, "ReduceLogSum": -INF}  # fmt: skip
    for op_type, expected in cases.items():
        opset = 13 if op_type == "ReduceSum" else 20
        (found,) = run_op(op_type, [x, axes], opset, keepdims=0)
        assert found.tolist() == [expected] * 2, op_type
    whole = np.zeros((2, 0), np.int32)
    assert run_op("ReduceMax", [whole, axes], 20)[0].tolist() == [[-(2**31)]] * 2
    assert run_op("ReduceMin", [whole, axes], 20)[0].tolist() == [[2**31 - 1]] * 2
    flags = np.zeros((1, 0), np.bool_)
    assert run_op("ReduceMax", [flags, axes], 20)[0].tolist() == [[False]]
    assert run_op("ReduceMin", [flags, axes], 20)[0].tolist() == [[True]]


def test_scatter_elements_reductions_propagate_nan():
    x = f32(1, NAN, 3)
    index = np.array([0, 1, 2, 2], np.int64)
    updates = f32(NAN, 5, 7, 2)
    (high,) = run_op("ScatterElements", [x, index, updates], 18, reduction="max")
    np.testing.assert_array_equal(high, f32(NAN, NAN, 7))
    (low,) = run_op("ScatterElements", [x, index, updates], 18, reduction="min")
    np.testing.assert_array_equal(low, f32(NAN, NAN, 2))
    (total,) = run_op(
        "ScatterElements", [f32(1, 2, 3), index, f32(1, 1, 1, 1)], 18, reduction="add"
    )
    assert total.tolist() == [2, 3, 5]


def test_resize_to_one_element_with_pytorch_half_pixel():
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4) + 1
    sizes = np.array([1, 1, 1, 1], np.int64)
    (found,) = run_op(
        "Resize",
        [x, None, None, sizes],
        13,
        mode="cubic",
        coordinate_transformation_mode="pytorch_half_pixel",
    )
    assert found.tolist() == [[[[1.0]]]]


def test_layer_normalization_of_float16_is_computed_in_float32():
    # In float16 the squares would overflow: 300 ** 2 > 65504.
    x = np.array([[300, -300, 300, -300]], np.float16)
    one, zero = np.ones(4, np.float16), np.zeros(4, np.float16)
    y, mean, inverse = run_op("LayerNormalization", [x, one, zero], 17, outputs=3)
    assert y.tolist() == [[1, -1, 1, -1]]
    assert mean.dtype == inverse.dtype == np.float32
    np.testing.assert_allclose(inverse, [[1 / 300]], rtol=1e-5)


def test_lrn_sums_over_neighbouring_channels():
    # Channels 1, 2, 3, 4 with alpha = size = 3: sums of squares of neighbours 5, 14, 29, 25.
    x = f32(1, 2, 3, 4).reshape(1, 4, 1, 1)
    (found,) = run_op("LRN", [x], 13, size=3, alpha=3.0, beta=1.0, bias=1.0)
    np.testing.assert_allclose(found.reshape(-1), [1 / 6, 2 / 15, 3 / 30, 4 / 26], rtol=1e-6)


def test_reverse_sequence():
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    (found,) = run_op("ReverseSequence", [x, np.array([3, 1], np.int64)], 10)
    assert found.tolist() == [[4, 1], [2, 3], [0, 5]]
    with pytest.raises(RunError, match="sequence length out of range"):
        run_op("ReverseSequence", [x, np.array([4, 1], np.int64)], 10)


def test_batch_normalization_with_one_output_is_inference():
    x = f32(1, 3).reshape(2, 1)
    parameters = [f32(2), f32(1), f32(1), f32(4)]
    for opset in (7, 9, 13):
        (found,) = run_op("BatchNormalization", [x, *parameters], opset, momentum=0.1, epsilon=0.0)
        assert found.reshape(-1).tolist() == [1, 3]
    (found,) = run_op("BatchNormalization", [x, *parameters], 15, epsilon=0.0)
    assert found.reshape(-1).tolist() == [1, 3]


def test_batch_normalization_that_trains():
    # Mean 2, variance 1 over the batch; the running values move by 1 - momentum.
    x = f32(1, 3).reshape(2, 1, 1)
    inputs = [x, f32(1), f32(0), f32(0), f32(0)]
    y, mean, variance = run_op(
        "BatchNormalization", inputs, 15, outputs=3, training_mode=1, momentum=0.75, epsilon=0.0
    )
    assert y.reshape(-1).tolist() == [-1, 1]
    np.testing.assert_allclose([mean[0], variance[0]], [0.5, 0.25], rtol=1e-6)


def test_global_pools_keep_the_rank():
    x = np.arange(8, dtype=np.float32).reshape(1, 2, 4)
    assert run_op("GlobalMaxPool", [x], 1)[0].tolist() == [[[3], [7]]]
    assert run_op("GlobalAveragePool", [x], 1)[0].tolist() == [[[1.5], [5.5]]]
    (found,) = run_op("GlobalLpPool", [f32(3, 4).reshape(1, 1, 2)], 2)
    assert found.tolist() == [[[5]]]


def test_where_and_expand_of_strings():
    words = np.array(["a", "b"], dtype=object)
    (found,) = run_op("Where", [np.array([True, False]), words, words[::-1]], 16)
    assert found.tolist() == ["a", "a"]
    (found,) = run_op("Expand", [words, np.array([2, 2], np.int64)], 13)
    assert found.tolist() == [["a", "b"], ["a", "b"]]
