"""Bad data gives a RunError that says what is wrong, never another exception or an answer."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_harness import run_op

from ep_core.errors import RunError


def i64(*values):
    return np.array(values, np.int64)


X = np.arange(6, dtype=np.float32).reshape(2, 3)
IMAGE = np.zeros((1, 2, 4, 4), np.float32)

CASES = {
    "gather-high": ("Gather", [X, i64(2)], 13, {}, "index out of range"),
    "gather-low": ("Gather", [X, i64(-3)], 13, {}, "index out of range"),
    "gather-scalar": ("Gather", [X, np.array(5, np.int64)], 13, {}, "index out of range"),
    "gather-elements": ("GatherElements", [X, i64(9, 9, 9)[None]], 13, {}, "index out of range"),
    "gather-nd": ("GatherND", [X, i64(0, 7)[None]], 13, {}, "index out of range"),
    "scatter": ("ScatterElements", [X, i64(5)[None], X[:1, :1]], 18, {}, "index out of range"),
    "scatter-nd-shape": ("ScatterND", [X, i64(0)[None], X], 18, {}, "wrong shape of updates"),
    "broadcast": ("Add", [X, np.ones((2, 2), np.float32)], 14, {}, "broadcast"),
    "matmul": ("MatMul", [X, X], 13, {}, "failed"),
    "gemm": ("Gemm", [X, X], 13, {}, "failed"),
    "reshape": ("Reshape", [X, i64(4, 2)], 14, {}, "can't reshape"),
    "reshape-two-unknown": ("Reshape", [X, i64(-1, -1)], 14, {}, "at most one -1"),
    "squeeze": ("Squeeze", [X, i64(0)], 13, {}, "can't squeeze"),
    "concat-axis": ("Concat", [X, X], 13, {"axis": 4}, "axis out of range"),
    "slice-step": ("Slice", [X, i64(0), i64(2), i64(0), i64(0)], 13, {}, "must not be 0"),
    "split-sum": ("Split", [X, i64(1, 1)], 13, {"axis": 1}, "add up"),
    "tile": ("Tile", [X, i64(2)], 13, {}, "bad repeats"),
    "top-k": ("TopK", [X, i64(9)], 11, {}, "k out of range"),
    "reduce-axis": ("ReduceSum", [X, i64(3)], 13, {}, "axis out of range"),
    "reduce-twice": ("ReduceSum", [X, i64(0, -2)], 13, {}, "named twice"),
    "argmax-empty": ("ArgMax", [X[:0]], 13, {}, "empty axis"),
    "conv-channels": ("Conv", [IMAGE, np.zeros((1, 3, 3, 3), np.float32)], 11, {}, "channels"),
    "conv-too-large": ("Conv", [IMAGE, np.zeros((1, 2, 5, 5), np.float32)], 11, {}, "longer"),
    "pool-too-large": ("MaxPool", [IMAGE], 12, {"kernel_shape": [5, 5]}, "longer"),
    "pad-crop": ("Pad", [X, i64(-3, 0, 0, 0)], 13, {}, "crop more"),
    "constant-of-shape": ("ConstantOfShape", [i64(-2)], 9, {}, "at least 0"),
    "range-zero": ("Range", [np.array(v, np.int64) for v in (0, 5, 0)], 11, {}, "must not be 0"),
    "resize-empty": ("Resize", [IMAGE[:, :, :0], None, None, i64(1, 2, 3, 3)], 13, {}, "empty"),
    "cast-text": ("Cast", [np.array(["x"], dtype=object)], 13, {"to": 1}, "can't be cast"),
    "trilu-vector": ("Trilu", [X[0]], 14, {}, "needs matrices"),
    "det": ("Det", [X], 11, {}, "square"),
    "one-hot": ("OneHot", [i64(0), i64(-1), np.zeros(2, np.float32)], 11, {}, "depth"),
    "compress": ("Compress", [X, np.ones(9, np.bool_)], 11, {"axis": 0}, "condition"),
    "quantize-axis": (
        "QuantizeLinear", [X, np.ones(2, np.float32), np.zeros(2, np.uint8)], 13, {"axis": 1},
        "wrong shape",
    ),
    "layer-norm-axis": ("LayerNormalization", [X, X[0]], 17, {"axis": 5}, "axis out of range"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bad_data(name):
    op_type, inputs, opset, attributes, text = CASES[name]
    outputs = 2 if op_type in ("Split", "TopK") else 1
    with pytest.raises(RunError, match=text):
        run_op(op_type, inputs, opset, outputs=outputs, shapes=False, **attributes)


def test_sequence_positions():
    items = [X, X + 1]
    with pytest.raises(RunError, match="outside the sequence"):
        run_op("SequenceAt", [items, np.array(2, np.int64)], 11)
    with pytest.raises(RunError, match="nothing to erase"):
        run_op("SequenceErase", [run_op("SequenceEmpty", [], 11)[0]], 11)
