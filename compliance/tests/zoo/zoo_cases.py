"""A few cases with answers from numpy, enough to tell the animals of the zoo apart."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

from ep_compliance.cases.case import Case, Level
from ep_compliance.cases.subjects import subject_of


def case(name, op_type, inputs, expected, *, constants=(), level=Level.FULL, opset=17):
    """A one-node case; inputs at the positions in `constants` become initializers."""
    names = [f"x{i}" for i in range(len(inputs))]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"])],
        name,
        [
            info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for i, (n, v) in enumerate(zip(names, inputs, strict=True))
            if i not in constants
        ],
        [info("y", helper.np_dtype_to_tensor_dtype(expected.dtype), None)],
        [numpy_helper.from_array(inputs[i], names[i]) for i in constants],
    )
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    feeds = {n: v for i, (n, v) in enumerate(zip(names, inputs, strict=True)) if i not in constants}
    subject = subject_of(model, model.graph.node[0])
    return Case(f"zoo/{name}", model, feeds, [expected], subject, level)


def _floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


A = _floats(2, 3)
B = _floats(3, seed=1)
SPECIAL = np.array([np.nan, -np.inf, np.inf, -0.0, 1e-40, -3], np.float32)

CASES = {
    c.id: c
    for c in [
        case("add", "Add", [A, A], A + A, level=Level.MUSTPASS),
        case("add_broadcast", "Add", [_floats(3, 1), _floats(1, 3)], _floats(3, 1) + _floats(1, 3)),
        case("add_constant", "Add", [A, B], A + B, constants=(1,)),
        case("add_int", "Add", [np.arange(5), np.arange(5)], 2 * np.arange(5)),
        case("mul", "Mul", [A, B], A * B),
        case("matmul", "MatMul", [A, _floats(3, 4)], A @ _floats(3, 4)),
        case("relu", "Relu", [A], np.maximum(A, np.float32(0))),
        case("relu_special", "Relu", [SPECIAL], np.maximum(SPECIAL, np.float32(0))),
        case("relu_empty", "Relu", [_floats(0, 4)], _floats(0, 4)),
        case("relu_scalar", "Relu", [np.array(-2, np.float32)], np.array(0, np.float32)),
        case("sqrt", "Sqrt", [np.abs(A)], np.sqrt(np.abs(A))),
        case("identity", "Identity", [A], A),
        case("identity_constant", "Identity", [A], A, constants=(0,)),
        case("softmax", "Softmax", [np.zeros(2, np.float32)], np.full(2, 0.5, np.float32)),
    ]
}
