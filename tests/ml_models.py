"""Models of one operator of ai.onnx.ml, run here and by ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from ep_core import InferenceSession

ML = "ai.onnx.ml"
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


def element_type(value):
    if value.dtype == object:
        return TensorProto.STRING
    return helper.np_dtype_to_tensor_dtype(value.dtype)


def model(op_type, inputs, outputs, version, **attributes):
    names = [f"x{i}" for i in range(len(inputs))]
    results = [f"y{i}" for i in range(outputs)]
    infos = [
        helper.make_tensor_value_info(name, element_type(value), [None] * value.ndim)
        for name, value in zip(names, inputs, strict=True)
    ]
    node = helper.make_node(op_type, names, results, domain=ML, **attributes)
    graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name=n) for n in results])
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid(ML, version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def ours(op_type, inputs, outputs=1, version=3, **attributes):
    session = InferenceSession(model(op_type, inputs, outputs, version, **attributes))
    return session.run(None, {f"x{i}": value for i, value in enumerate(inputs)})


def theirs(op_type, inputs, outputs=1, version=3, **attributes):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model(op_type, inputs, outputs, version, **attributes),
        options,
        providers=["CPUExecutionProvider"],
    )
    return session.run(None, {f"x{i}": value for i, value in enumerate(inputs)})


def same(found, expected, rtol=1e-5, atol=1e-6):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, list):
            assert one == other
            continue
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=rtol, atol=atol, equal_nan=True)
        else:
            assert one.tolist() == other.tolist()


def check(op_type, inputs, outputs=1, version=3, **attributes):
    """Both runtimes give the same."""
    found = ours(op_type, inputs, outputs, version, **attributes)
    expected = theirs(op_type, inputs, outputs, version, **attributes)
    # ONNX Runtime takes the logarithm of 1 - x * x in float32.
    probit = attributes.get("post_transform") in ("PROBIT", 4)
    same(found, expected, **({"rtol": 1e-3, "atol": 1e-3} if probit else {}))
    return found


def random_features(seed, rows=40, columns=5):
    """Halves, so that comparisons meet their thresholds, with some missing."""
    generator = np.random.default_rng(seed)
    x = generator.integers(-4, 5, (rows, columns)).astype(np.float32) / 2
    x[generator.random(x.shape) < 0.1] = np.nan
    return x
