"""Shape operators in all their versions, and reading and writing by index."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from cpu_harness import run_op

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def i64(*values):
    return np.array(values, np.int64)


def only(op_type, inputs, opset, **attributes):
    (found,) = run_op(op_type, inputs, opset, **attributes)
    return found


def test_axes_as_attribute_and_as_input():
    wide = X[:, None]
    for opset, inputs, attributes in ((11, [], {"axes": [1]}), (13, [i64(1)], {})):
        np.testing.assert_array_equal(only("Squeeze", [wide, *inputs], opset, **attributes), X)
        np.testing.assert_array_equal(only("Unsqueeze", [X, *inputs], opset, **attributes), wide)
    total = X.sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(only("ReduceSum", [X], 11, axes=[1]), total)
    np.testing.assert_array_equal(only("ReduceSum", [X, i64(1)], 13), total)
    np.testing.assert_array_equal(only("ReduceMax", [X], 13, axes=[-2]), X.max(1, keepdims=True))
    np.testing.assert_array_equal(only("ReduceMax", [X, i64(-2)], 18), X.max(1, keepdims=True))


def test_reductions_over_no_axes():
    empty = i64()
    assert only("ReduceSum", [X, empty], 13).shape == (1, 1, 1)
    np.testing.assert_array_equal(only("ReduceSum", [X, empty], 13, noop_with_empty_axes=1), X)
    squares = only("ReduceSumSquare", [X], 18, noop_with_empty_axes=1)
    np.testing.assert_array_equal(squares, X * X)


def test_reduction_types_wrap_and_truncate():
    x = np.array([[2**31 - 1, 1]], np.int32)
    assert only("ReduceSum", [x, i64(1)], 13).item() == -(2**31)
    assert only("ReduceMean", [np.array([-1, -2], np.int32)], 18).item() == -1
    many = np.full(4096, 0.1, np.float16)
    # A running sum in float16 would stop growing at 256.
    assert only("ReduceSum", [many], 13).item() == pytest.approx(409.6, rel=1e-3)
    assert only("ReduceMean", [many.astype(ml_dtypes.bfloat16)], 18).dtype == ml_dtypes.bfloat16
    big = np.array([1000.0, 1000.0], np.float32)
    assert only("ReduceLogSumExp", [big], 18).item() == pytest.approx(1000 + np.log(2))


def test_reshape_zero_and_minus_one():
    assert only("Reshape", [X, i64(0, -1)], 13).shape == (2, 12)
    hollow = X[:0]
    assert only("Reshape", [hollow, i64(0, 12)], 13).shape == (0, 12)
    assert only("Reshape", [hollow, i64(3, 0)], 14, allowzero=1).shape == (3, 0)
    assert only("Reshape", [X], 1, shape=[4, 6]).shape == (4, 6)


def test_shape_with_bounds():
    assert only("Shape", [X], 13).tolist() == [2, 3, 4]
    assert only("Shape", [X], 15, start=1).tolist() == [3, 4]
    assert only("Shape", [X], 15, start=-9, end=-1).tolist() == [2, 3]
    assert only("Shape", [X], 15, start=2, end=1).tolist() == []


def test_flatten_at_every_axis():
    shapes = {0: (1, 24), 1: (2, 12), 2: (6, 4), 3: (24, 1), -1: (6, 4)}
    for axis, shape in shapes.items():
        assert only("Flatten", [X], 13, axis=axis).shape == shape
    assert only("Flatten", [np.array(1, np.float32)], 13, axis=0).shape == (1, 1)


def test_slices():
    low, high = -(2**63), 2**63 - 1
    np.testing.assert_array_equal(only("Slice", [X, i64(1), i64(high), i64(2)], 13), X[:, :, 1:])
    reverse = [i64(-1), i64(low), i64(-1), i64(-1)]
    np.testing.assert_array_equal(only("Slice", [X, *reverse], 13), X[:, :, ::-1])
    np.testing.assert_array_equal(
        only("Slice", [X, i64(3), i64(0), i64(2), i64(-2)], 13), X[:, :, 3:0:-2]
    )
    assert only("Slice", [X, i64(9), i64(10), i64(1)], 13).shape == (2, 0, 4)
    np.testing.assert_array_equal(
        only("Slice", [X], 9, starts=[0, 1], ends=[1, -1], axes=[0, 2]), X[:1, :, 1:-1]
    )


def test_splits():
    def parts(opset, inputs, outputs, **attributes):
        found = run_op("Split", [X, *inputs], opset, outputs=outputs, **attributes)
        return [part.shape for part in found]

    assert parts(11, [], 2, axis=2) == [(2, 3, 2), (2, 3, 2)]
    assert parts(11, [], 2, axis=2, split=[1, 3]) == [(2, 3, 1), (2, 3, 3)]
    assert parts(13, [i64(0, 4)], 2, axis=-1) == [(2, 3, 0), (2, 3, 4)]
    assert parts(18, [], 2, axis=1, num_outputs=2) == [(2, 2, 4), (2, 1, 4)]


def test_old_forms_of_concat_and_tile():
    assert only("Concat", [X, X], 1).shape == (2, 6, 4)
    row = np.array([1, 2], np.float32)
    one = np.array([3], np.float32)
    found = only("Tile", [row, one, np.array([0], np.float32)], 1)
    assert found.tolist() == [1, 2, 1, 2, 1, 2]
    assert only("Tile", [row, i64(0)], 13).shape == (0,)


def test_old_forms_of_pad_and_upsample():
    image = np.array([[1, 2]], np.float32).reshape(1, 1, 1, 2)
    padded = only("Pad", [image], 2, pads=[0, 0, 0, 1, 0, 0, 1, 0], value=9.0)
    assert padded.reshape(2, 3).tolist() == [[9, 1, 2], [9, 9, 9]]
    grown = only("Upsample", [image], 7, scales=[1.0, 1.0, 2.0, 2.0])
    assert grown.reshape(2, 4).tolist() == [[1, 1, 2, 2]] * 2
    scales = np.array([1, 1, 1, 2], np.float32)
    assert only("Upsample", [image, scales], 9, mode="linear").reshape(-1).tolist() == [
        1,
        1.5,
        2,
        2,
    ]


def test_old_softmax_flattens():
    found = only("Softmax", [X], 11, axis=1)
    np.testing.assert_allclose(found.reshape(2, -1).sum(axis=1), [1, 1], rtol=1e-6)
    found = only("Softmax", [X], 13, axis=1)
    np.testing.assert_allclose(found.sum(axis=1), np.ones((2, 4)), rtol=1e-6)
    assert only("Hardmax", [np.array([[1, 3, 3]], np.float32)], 13).tolist() == [[0, 1, 0]]


def test_gather_family():
    np.testing.assert_array_equal(only("Gather", [X, i64(-1)[0]], 13, axis=1), X[:, -1])
    np.testing.assert_array_equal(only("Gather", [X, i64(2, 0)], 13, axis=2), X[:, :, [2, 0]])
    index = np.array([[[0, -1]], [[3, 2]]], np.int32)
    np.testing.assert_array_equal(
        only("GatherElements", [X, index], 13, axis=2), [[[0, 3]], [[15, 14]]]
    )
    np.testing.assert_array_equal(
        only("GatherND", [X, i64(1, 0)[:, None]], 13, batch_dims=1), [X[0, 1], X[1, 0]]
    )


def test_top_k_and_ties():
    x = np.array([3, 1, 3, 2, 3], np.int32)
    values, where = run_op("TopK", [x, i64(2)], 11, outputs=2)
    assert (values.tolist(), where.tolist()) == ([3, 3], [0, 2])
    values, where = run_op("TopK", [x, i64(3)], 11, outputs=2, largest=0)
    assert (values.tolist(), where.tolist()) == ([1, 2, 3], [1, 3, 0])
    low = np.array([-128, 127], np.int8)
    assert run_op("TopK", [low, i64(1)], 24, outputs=2)[1].tolist() == [1]
    assert run_op("TopK", [x.astype(np.float32)], 1, outputs=2, k=1)[1].tolist() == [0]


def test_arg_max_picks_first_or_last():
    x = np.array([[2, 2, 1]], np.float32)
    assert only("ArgMax", [x], 13, axis=1, keepdims=0).tolist() == [0]
    assert only("ArgMax", [x], 13, axis=1, keepdims=0, select_last_index=1).tolist() == [1]


def test_constant_of_shape_and_range():
    assert only("ConstantOfShape", [i64()], 9).shape == ()
    assert only("ConstantOfShape", [i64(2, 0)], 9).shape == (2, 0)
    start, limit, delta = (np.array(v, np.int32) for v in (10, 4, -4))
    assert only("Range", [start, limit, delta], 11).tolist() == [10, 6]
    start, limit, delta = (np.array(v, np.float32) for v in (0, 1, 0.25))
    assert only("Range", [start, limit, delta], 11).tolist() == [0, 0.25, 0.5, 0.75]


def test_nearest_resize_modes():
    x = np.array([1, 2, 3, 4], np.float32).reshape(1, 1, 4)
    sizes = i64(1, 1, 2)

    def sample(**attributes):
        return only("Resize", [x, None, None, sizes], 19, **attributes).reshape(-1).tolist()

    # Half-pixel centres lie at 0.5 and 2.5, between two samples.
    assert sample(nearest_mode="round_prefer_floor") == [1, 3]
    assert sample(nearest_mode="round_prefer_ceil") == [2, 4]
    assert sample(nearest_mode="floor") == [1, 3]
    assert sample(nearest_mode="ceil") == [2, 4]
    assert sample(coordinate_transformation_mode="asymmetric") == [1, 3]
    assert sample(mode="linear") == [1.5, 3.5]
    assert sample(mode="linear", coordinate_transformation_mode="align_corners") == [1, 4]
    # Twice as wide a triangle: weights 0.25, 0.75, 0.75, 0.25, the edge repeated outside.
    assert sample(mode="linear", antialias=1) == pytest.approx([3.25 / 2, 6.75 / 2])


def test_resize_keeps_the_aspect_ratio():
    x = np.zeros((1, 1, 2, 4), np.float32)
    settings = {"axes": [2, 3], "mode": "linear"}
    for policy, shape in (("not_larger", (3, 6)), ("not_smaller", (6, 12))):
        found = only(
            "Resize", [x, None, None, i64(6, 6)], 19, keep_aspect_ratio_policy=policy, **settings
        )
        assert found.shape[2:] == shape
