"""Faults that widely used runtimes had in arithmetic, end to end, each with neighbours of its kind.

Every answer is worked out by hand, and holds with and without optimisation. Shapes and broken
models have files of their own.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from fault_models import FLOATS, HALVES, f32, i64, one, run
from onnx import helper

from ep_core.errors import RunError

NAN = math.nan
INF = math.inf


# ---------------------------------------------------------------- numbers


MIN_MAX_TYPES = [
    *((8, dtype) for dtype in (np.float16, np.float32, np.float64)),
    *((12, dtype) for dtype in (np.float16, np.float32, np.float64)),
    *((13, dtype) for dtype in FLOATS),
]


@pytest.mark.parametrize(("opset", "dtype"), MIN_MAX_TYPES)
def test_nan_passes_through_min_and_max(opset, dtype):
    """Min and Max of NaN and a number are NaN, on whichever side it stands."""
    x = np.array([[NAN], [1], [20]], dtype)
    ten = {"b": np.array([10], dtype)}
    for op_type, numbers in (("Min", [NAN, 1, 10]), ("Max", [NAN, 10, 20])):
        found = one(op_type, {"x": x}, opset, ten)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found[:, 0].astype(np.float32), f32(*numbers))
    missing = {"b": np.array([NAN], dtype)}
    for op_type in ("Min", "Max"):
        assert np.isnan(one(op_type, {"x": x}, opset, missing).astype(np.float32)).all()
        node = helper.make_node(op_type, ["b", "x", "x"], ["y"])
        (found,) = run([node], {"x": x}, ["y"], opset, missing)
        assert np.isnan(found.astype(np.float32)).all()


@pytest.mark.parametrize("opset", [11, 12, 13])
def test_nan_passes_through_clip_and_reductions(opset):
    x = f32(NAN, -5, 5)
    clipped = one("Clip", {"x": x}, opset, {"low": f32(-1)[0], "high": f32(1)[0]})
    np.testing.assert_array_equal(clipped, f32(NAN, -1, 1))
    for op_type in ("ReduceMax", "ReduceMin"):
        assert np.isnan(one(op_type, {"x": x}, opset)).all()
    np.testing.assert_array_equal(one("Relu", {"x": x}, opset), f32(NAN, 0, 5))


X23 = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_cumulative_sums_over_several_axes_in_one_graph(dtype, index):
    """Down: [[1,2,3],[5,7,9]]; along: [[1,3,6],[4,9,15]]; and from the end, and without oneself."""
    nodes = [
        helper.make_node("CumSum", ["x", "a0"], ["y0"]),
        helper.make_node("CumSum", ["x", "a1"], ["y1"]),
        helper.make_node("CumSum", ["x", "a1"], ["y2"], reverse=1),
        helper.make_node("CumSum", ["x", "a1"], ["y3"], exclusive=1),
        helper.make_node("CumSum", ["x", "a2"], ["y4"], exclusive=1, reverse=1),
        helper.make_node("CumSum", ["x", "a2"], ["y5"]),
    ]
    axes = {"a0": np.array(0, index), "a1": np.array(1, index), "a2": np.array(-2, index)}
    x = X23.astype(dtype)
    expected = [
        [[1, 2, 3], [5, 7, 9]],
        [[1, 3, 6], [4, 9, 15]],
        [[6, 5, 3], [15, 11, 6]],
        [[0, 1, 3], [0, 4, 9]],
        [[4, 5, 6], [0, 0, 0]],
        [[1, 2, 3], [5, 7, 9]],
    ]
    for opset in (11, 14):
        found = run(nodes, {"x": x}, [f"y{i}" for i in range(6)], opset, axes)
        assert [item.tolist() for item in found] == expected
        assert {item.dtype for item in found} == {np.dtype(dtype)}
    with pytest.raises(RunError, match="axis"):
        one("CumSum", {"x": x}, 14, {"axis": np.array(2, index)})


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize(
    "equation",
    [
        "ijk->ki",
        "ijk->k",
        "ijk->",
        "ijk->kji",
        "ijk->jik",
        "...k->...",
        "...jk->k...",
        " i j k -> j ",
    ],
)
def test_einsum_of_one_operand(equation, dtype):
    """Indices that the output lacks are summed over, then the rest is put into its order."""
    x = np.arange(24).reshape(2, 3, 4).astype(dtype)
    sums = {
        "ijk->ki": [[sum(int(x[i, j, k]) for j in range(3)) for i in range(2)] for k in range(4)],
        "ijk->k": [sum(range(k, 24, 4)) for k in range(4)],
        "ijk->": 276,
        "ijk->kji": [[[int(x[i, j, k]) for i in range(2)] for j in range(3)] for k in range(4)],
        "ijk->jik": [[[int(x[i, j, k]) for k in range(4)] for i in range(2)] for j in range(3)],
        "...k->...": [[4 * (12 * i + 4 * j) + 6 for j in range(3)] for i in range(2)],
        "...jk->k...": [
            [sum(int(x[i, j, k]) for j in range(3)) for i in range(2)] for k in range(4)
        ],
        " i j k -> j ": [
            sum(int(x[i, j, k]) for i in range(2) for k in range(4)) for j in range(3)
        ],
    }
    found = one("Einsum", {"x": x}, 12, equation=equation)
    assert found.tolist() == sums[equation]
    assert found.dtype == dtype


def test_einsum_of_diagonals():
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    assert one("Einsum", {"x": x}, 12, equation="ii->i").tolist() == [0, 4, 8]
    assert one("Einsum", {"x": x}, 12, equation="ii").item() == 12
    assert one("Einsum", {"x": x}, 12, equation="ij->ji").tolist() == x.T.tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("target", [np.int8, np.uint8])
def test_quantisation_rounds_half_to_even(dtype, target):
    """x / 0.5 = 0.5, 1.5, 2.5, 3.5, 200 gives 0, 2, 2, 4 and the largest value."""
    x = np.array([0.25, 0.75, 1.25, 1.75, 100], dtype)
    scale = {"s": np.array(0.5, dtype), "z": np.array(0, target)}
    found = one("QuantizeLinear", {"x": x}, 19, scale)
    assert found.tolist() == [0, 2, 2, 4, 127 if target is np.int8 else 200]
    shifted = {"s": np.array(0.5, dtype), "z": np.array(3, target)}
    assert one("QuantizeLinear", {"x": x[:4]}, 19, shifted).tolist() == [3, 5, 5, 7]
    lows = one("QuantizeLinear", {"x": -x[:4]}, 19, scale)
    assert lows.tolist() == ([0, -2, -2, -4] if target is np.int8 else [0, 0, 0, 0])


def test_quantisation_of_float16_rounds_the_quotient():
    """0.05002 / 0.1 in float16 is 0.5005 (one step is 1/2048 there), and rounds away from 0."""
    x = np.array([0.05002, -0.05002, 0.26, -0.26], np.float16)
    found = one(
        "QuantizeLinear", {"x": x}, 19, {"s": np.array(0.1, np.float16), "z": np.array(0, np.int8)}
    )
    assert found.tolist() == [1, -1, 3, -3]


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("dtype", [*HALVES, np.float32])
def test_layer_normalisation_is_computed_in_float32(axis, dtype):
    """300 squared overflows float16; mean 0 and deviation 300 give 1 and -1."""
    x = np.array([[300, -300, 300, -300]], dtype)
    scale = {"s": np.ones(4, dtype)}
    found = one("LayerNormalization", {"x": x}, 17, scale, axis=axis, stash_type=1)
    assert found.tolist() == [[1, -1, 1, -1]]
    assert found.dtype == dtype
    rms = one("RMSNormalization", {"x": x}, 23, scale, axis=axis)
    assert rms.tolist() == [[1, -1, 1, -1]]


@pytest.mark.parametrize(
    ("op_type", "opset"), [("InstanceNormalization", 22), ("LpNormalization", 22)]
)
def test_other_norms_of_large_float16(op_type, opset):
    """A norm of 500 fits into float16, the sum of squares 250000 doesn't."""
    x = np.array([[[300, -300]]] if op_type[0] == "I" else [[300, -400]], np.float16)
    if op_type[0] == "I":
        weights = {"s": np.ones(1, np.float16), "b": np.zeros(1, np.float16)}
        assert one(op_type, {"x": x}, opset, weights).tolist() == [[[1, -1]]]
    else:
        found = one(op_type, {"x": x}, opset, axis=1)
        np.testing.assert_allclose(found.astype(np.float32), [[0.6, -0.8]], rtol=1e-3)


NEIGHBOURS = {1: [1, 4, 9, 16], 3: [5, 14, 29, 25], 5: [14, 30, 30, 29], 4: [14, 30, 29, 25]}


@pytest.mark.parametrize(("size", "sums"), NEIGHBOURS.items())
@pytest.mark.parametrize("shape", [(1, 4), (1, 4, 1), (1, 4, 1, 1)])
def test_local_response_normalisation_over_channels(size, sums, shape):
    """Squares of the neighbours, floor((size-1)/2) before and ceil((size-1)/2) behind."""
    x = f32(1, 2, 3, 4).reshape(shape)
    found = one("LRN", {"x": x}, 13, size=size, alpha=float(size), beta=1.0, bias=2.0)
    expected = [value / (2 + total) for value, total in zip((1, 2, 3, 4), sums, strict=True)]
    np.testing.assert_allclose(found.reshape(-1), expected, rtol=1e-6)


@pytest.mark.parametrize("opset", [1, 6, 7, 9, 13, 14, 15])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_batch_normalisation_with_one_output_is_inference(opset, momentum):
    """(1 - 1) / 2 + 0 and (3 - 1) / 2 * 2 + 1: mean 1, variance 4, whatever the momentum is."""
    x = f32(1, 3, 1, 3).reshape(1, 2, 2)
    weights = {"s": f32(1, 2), "b": f32(0, 1), "m": f32(1, 1), "v": f32(4, 4)}
    attributes = {"momentum": momentum, "epsilon": 0.0}
    if opset < 7:
        attributes |= {"is_test": 1}
    if opset < 6:
        attributes["consumed_inputs"] = [0, 0, 0, 1, 1]
    found = one("BatchNormalization", {"x": x}, opset, weights, **attributes)
    assert found.tolist() == [[[0, 1], [1, 3]]]


# ---------------------------------------------------------------- pools


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("opset", [11, 19, 22])
def test_average_pool_counts_padding_at_both_ends(auto_pad, opset):
    """Six ones, kernel 5, two rows of padding at each end: sums 3, 4, 5, 5, 4, 3 over 5."""
    x = np.ones((1, 1, 6, 1), np.float32)
    settings = {"kernel_shape": [5, 1], "auto_pad": auto_pad}
    found = one("AveragePool", {"x": x}, opset, count_include_pad=1, **settings)
    np.testing.assert_allclose(found.reshape(-1), f32(3, 4, 5, 5, 4, 3) / 5, rtol=1e-6)
    found = one("AveragePool", {"x": x}, opset, **settings)
    np.testing.assert_allclose(found.reshape(-1), np.ones(6), rtol=1e-6)


def test_same_padding_with_an_even_kernel():
    """Kernel 4 over 4: three rows of padding, the odd one behind (UPPER) or in front (LOWER)."""
    x = np.ones((1, 1, 4), np.float32)
    for auto_pad, sums in (("SAME_UPPER", [3, 4, 3, 2]), ("SAME_LOWER", [2, 3, 4, 3])):
        found = one("AveragePool", {"x": x}, 19, kernel_shape=[4], auto_pad=auto_pad,
                    count_include_pad=1)  # fmt: skip
        assert (found * 4).reshape(-1).tolist() == sums


@pytest.mark.parametrize(
    ("length", "kernel", "stride", "pads", "maxima"),
    [
        # ceil((2 - 1) / 2) + 1 = 2 windows, of which the second begins at 2, behind the input.
        (2, 1, 2, [0, 0], [1]),
        (4, 1, 3, [1, 1], [-INF, 3]),
        # Begins at 4 with one element of its own.
        (5, 2, 2, [0, 0], [2, 4, 5]),
        (5, 3, 3, [0, 1], [3, 5]),
    ],
)
@pytest.mark.parametrize("opset", [19, 22])
def test_windows_behind_the_input_are_dropped(length, kernel, stride, pads, maxima, opset):
    x = np.arange(1, length + 1, dtype=np.float32).reshape(1, 1, length)
    settings = {"kernel_shape": [kernel], "strides": [stride], "ceil_mode": 1, "pads": pads}
    found = one("AveragePool", {"x": x}, opset, count_include_pad=1, **settings)
    assert found.shape == (1, 1, len(maxima))
    if pads[0] == 0:
        found = one("MaxPool", {"x": x}, opset, **settings)
        assert found.reshape(-1).tolist() == maxima


@pytest.mark.parametrize("op_type", ["GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"])
@pytest.mark.parametrize("spatial", [(4,), (2, 2), (1, 2, 2)])
def test_global_pools_keep_the_rank(op_type, spatial):
    """Two channels of four elements: 1 2 3 4 and 5 6 7 8."""
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 2, *spatial)
    found = one(op_type, {"x": x}, 22)
    assert found.shape == (1, 2, *[1] * len(spatial))
    expected = {
        "GlobalMaxPool": [4, 8],
        "GlobalAveragePool": [2.5, 6.5],
        "GlobalLpPool": [math.sqrt(30), math.sqrt(174)],
    }
    np.testing.assert_allclose(found.reshape(-1), expected[op_type], rtol=1e-6)


# ---------------------------------------------------------------- reductions

SCALARS = {"ReduceMin": 3.5, "ReduceMax": 3.5, "ReduceSum": 3.5, "ReduceProd": 3.5,
           "ReduceMean": 3.5, "ReduceL1": 3.5, "ReduceL2": 3.5, "ReduceSumSquare": 12.25,
           "ReduceLogSum": math.log(3.5), "ReduceLogSumExp": 3.5}  # fmt: skip


@pytest.mark.parametrize("op_type", SCALARS)
@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reduction_of_a_scalar(op_type, opset, keepdims):
    x = np.array(3.5, np.float32)
    found = one(op_type, {"x": x}, opset, keepdims=keepdims)
    assert found.shape == ()
    np.testing.assert_allclose(found, SCALARS[op_type], rtol=1e-6)


EMPTY = {
    "ReduceMax": -INF, "ReduceMin": INF, "ReduceSum": 0, "ReduceProd": 1, "ReduceL1": 0,
    "ReduceL2": 0, "ReduceSumSquare": 0, "ReduceLogSum": -INF, "ReduceLogSumExp": -INF,
}  # fmt: skip


@pytest.mark.parametrize("op_type", EMPTY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("axis", [0, -2])
def test_reduction_of_nothing_is_the_neutral_element(op_type, dtype, axis):
    x = np.zeros((0, 4), dtype)
    opset = 13 if op_type == "ReduceSum" else 20
    found = one(op_type, {"x": x}, opset, {"axes": i64(axis)}, keepdims=0)
    assert found.tolist() == [EMPTY[op_type]] * 4
    assert found.dtype == dtype
    kept = one(op_type, {"x": x}, opset, {"axes": i64(axis)})
    assert kept.shape == (1, 4)
    # Nothing is left where the other axis goes.
    assert one(op_type, {"x": x}, opset, {"axes": i64(1)}, keepdims=0).shape == (0,)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.int8, np.uint32, np.uint64])
def test_reduction_of_no_integers(dtype):
    if dtype in (np.uint8, np.int8):
        cases = {"ReduceMax": np.iinfo(dtype).min, "ReduceMin": np.iinfo(dtype).max}
    else:
        cases = {"ReduceMax": np.iinfo(dtype).min, "ReduceMin": np.iinfo(dtype).max,
                 "ReduceSum": 0, "ReduceProd": 1}  # fmt: skip
    x = np.zeros((0, 2), dtype)
    for op_type, expected in cases.items():
        found = one(op_type, {"x": x}, 20, {"axes": i64(0)}, keepdims=0)
        assert found.tolist() == [expected] * 2
        assert found.dtype == dtype


def test_reduction_of_no_axes():
    """noop_with_empty_axes hands the input on; without it everything is reduced."""
    node = helper.make_node("ReduceSum", ["x"], ["y"], noop_with_empty_axes=1)
    assert run([node], {"x": X23}, ["y"], 13)[0].tolist() == X23.tolist()
    assert one("ReduceSum", {"x": X23}, 13, {"axes": i64()}).tolist() == [[21]]
