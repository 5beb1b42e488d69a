"""Damaged models: whatever happens to the bytes, loading gives a model or an EpError."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from ep_core.errors import EpError
from ep_core.loading.load import load_model

node = helper.make_node
info = helper.make_tensor_value_info


def small_models():
    """One model each with weights, control flow and local functions."""
    weight = numpy_helper.from_array(np.ones((3, 2, 1, 1), np.float32), "w")
    shape = numpy_helper.from_array(np.array([0, -1], np.int64), "s")
    nodes = [
        node("Conv", ["x", "w"], ["a"], kernel_shape=[1, 1], strides=[1, 1]),
        node("Shape", ["a"], ["b"]),
        node("Constant", [], ["c"], value_ints=[0]),
        node("Gather", ["b", "c"], ["d"], axis=0),
        node("Reshape", ["a", "s"], ["e"]),
        node("Softmax", ["e"], ["y"], axis=-1),
    ]
    x, y = info("x", 1, ["N", 2, 4, 4]), info("y", 1, None)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("loc", 1)]
    weighted = helper.make_graph(nodes, "weights", [x], [y], [weight, shape])
    yield helper.make_model(weighted, opset_imports=imports, ir_version=8)

    empty = helper.make_empty_tensor_value_info
    body = helper.make_graph(
        [node("Identity", ["go"], ["again"]), node("Add", ["state", "x"], ["next"])],
        "body",
        [info("step", 7, []), info("go", 9, []), info("state", 1, [2])],
        [empty("again"), empty("next")],
    )
    loop = node("Loop", ["n", "", "x"], ["y"], body=body)
    inputs = [info("n", 7, []), info("x", 1, [2])]
    control = helper.make_graph([loop], "control", inputs, [y])
    yield helper.make_model(control, opset_imports=imports, ir_version=8)

    inner = helper.make_function("loc", "F", ["a"], ["b"], [node("Neg", ["a"], ["b"])], imports)
    calls = [node("F", ["x"], ["h"], domain="loc"), node("F", ["h"], ["y"], domain="loc")]
    graph = helper.make_graph(calls, "calls", [info("x", 1, [2])], [y])
    yield helper.make_model(graph, functions=[inner], opset_imports=imports, ir_version=8)


def damaged(data, rng):
    kind = rng.random()
    if kind < 0.1:
        return data[: rng.randrange(len(data))]
    if kind < 0.2:
        start = rng.randrange(len(data))
        return data[:start] + data[start + rng.randint(1, 8) :]
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        position = rng.randrange(len(data))
        changed[position] = rng.choice([rng.randrange(256), changed[position] ^ 1, 0, 255])
    return bytes(changed)


@pytest.mark.parametrize("seed", range(6))
def test_damaged_bytes(seed):
    rng = random.Random(seed)
    models = [model.SerializeToString() for model in small_models()]
    outcomes: Counter[str] = Counter()
    for _ in range(150):
        started = time.perf_counter()
        try:
            load_model(damaged(rng.choice(models), rng))
            outcomes["loaded"] += 1
        except EpError:
            outcomes["refused"] += 1
        assert time.perf_counter() - started < 1
    assert outcomes["refused"] > 20
    assert outcomes["loaded"] > 0


@pytest.mark.parametrize("number", [0, -1, 2**31 - 1, 2**31, -(2**31), 2**62, -(2**63)])
def test_numbers_out_of_range(number):
    for model in small_models():
        for item in model.graph.node:
            for attribute in item.attribute:
                if attribute.type == 2:
                    attribute.i = number
                elif attribute.type == 7:
                    attribute.ints[:] = [number] * len(attribute.ints)
        for value in model.graph.input:
            for dim in value.type.tensor_type.shape.dim:
                dim.dim_value = number
        for tensor in model.graph.initializer:
            if tensor.data_type == TensorProto.INT64:
                tensor.CopyFrom(numpy_helper.from_array(np.array([number] * 2), tensor.name))
        started = time.perf_counter()
        with contextlib.suppress(EpError):
            load_model(model)
        assert time.perf_counter() - started < 1


@pytest.mark.parametrize(
    "bad",
    [
        node("LayerNormalization", ["x", "x"], ["y"], axis=2**31),
        node("LayerNormalization", ["x", "x"], ["y"], axis=2**63 - 1),
        node("GatherND", ["x", "i"], ["y"], batch_dims=-5),
        node("Split", ["x"], ["y", "z"], num_outputs=1),
        node("Einsum", ["x"], ["y"], equation="\0" * 9),
    ],
    ids=lambda item: item.op_type,
)
def test_what_onnx_does_not_survive(bad):
    # Each of these crashes or hangs onnx.shape_inference in the version they were found with.
    inputs = [info("x", 1, [2, 3]), info("i", 7, [2, 1])]
    graph = helper.make_graph([bad], "g", inputs, [info("y", 1, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with pytest.raises(EpError):
        load_model(model)
