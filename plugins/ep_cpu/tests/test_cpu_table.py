"""The table as a whole: rows claim only what exists, and every claimed type really computes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from cpu_harness import PROVIDER, run_op

from ep_core.types import DataType

ROWS = list(PROVIDER.table)
NUMPY_OF_TEXT = {f"tensor({kind.text})": kind.numpy for kind in DataType}
UNARY = [
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu", "Cos",
    "Cosh", "Elu", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN",
    "LeakyRelu", "Log", "LogSoftmax", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu",
    "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt", "Swish",
    "Tan", "Tanh", "ThresholdedRelu",
]  # fmt: skip
BINARY = [
    "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater",
    "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mul", "Or", "Pow", "PRelu",
    "Sub", "Sum", "Xor",
]  # fmt: skip
REDUCTIONS = sorted({row.op_type for row in ROWS if row.op_type.startswith(("Reduce", "Arg"))})


def versions(op_type, domain=""):
    """Versions of an operator from 7 on, where numpy broadcasting begins."""
    return sorted(
        schema.since_version
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.name == op_type and schema.domain == domain and not schema.deprecated
    )


def allowed(schema, parameter):
    for constraint in schema.type_constraints:
        if constraint.type_param_str == parameter:
            return [NUMPY_OF_TEXT[t] for t in constraint.allowed_type_strs if t in NUMPY_OF_TEXT]
    return []


def sample(dtype):
    if dtype.kind == "O":
        return np.array([["1", "2"], ["a", ""]], dtype=object)
    return np.array([[0, 1], [1, 0]]).astype(dtype)


def typed_cases(op_types):
    return [
        pytest.param(op_type, version, id=f"{op_type}-{version}")
        for op_type in op_types
        for version in versions(op_type)
        if version >= 7 or len(onnx.defs.get_schema(op_type, version).inputs) == 1
    ]


def claimed_types(op_type, version):
    """Types of the first input that both the schema and a row allow."""
    schema = onnx.defs.get_schema(op_type, version)
    rows = [r for r in PROVIDER.table.rows("", op_type) if r.since <= version <= r.until]
    return [
        dtype
        for dtype in allowed(schema, schema.inputs[0].type_str)
        if any(DataType.from_numpy(dtype) in row.types.get("T", DataType) for row in rows)
    ]


def same_type(op_type, version):
    schema = onnx.defs.get_schema(op_type, version)
    return schema.outputs[0].type_str == schema.inputs[0].type_str


@pytest.mark.parametrize(("op_type", "version"), typed_cases(UNARY))
def test_unary_types(op_type, version):
    assert claimed_types(op_type, version)
    for dtype in claimed_types(op_type, version):
        x = sample(dtype)
        rank_0 = x[0, 0].reshape(()) if dtype.kind != "O" else np.array("1", dtype=object)
        flattens = op_type in ("Softmax", "LogSoftmax")
        for value in [x, x[:0], x.T] + ([] if flattens else [rank_0]):
            (found,) = run_op(op_type, [value], version)
            assert found.shape == value.shape
            assert found.dtype == dtype or not same_type(op_type, version)


@pytest.mark.parametrize(("op_type", "version"), typed_cases(BINARY))
def test_binary_types(op_type, version):
    assert claimed_types(op_type, version)
    for dtype in claimed_types(op_type, version):
        x = sample(dtype)
        rank_0 = x[0, 0].reshape(()) if dtype.kind != "O" else np.array("1", dtype=object)
        pairs = [(x, x), (x, x[0]), (x[:0], x[:1]), (x.T, x)]
        for one, other in pairs + ([] if op_type == "PRelu" else [(rank_0, rank_0)]):
            (found,) = run_op(op_type, [one, other], version)
            assert found.shape == one.shape
            assert found.dtype == dtype or not same_type(op_type, version)


@pytest.mark.parametrize(("op_type", "version"), typed_cases(REDUCTIONS))
def test_reduction_types(op_type, version):
    assert claimed_types(op_type, version)
    for dtype in claimed_types(op_type, version):
        expected = np.int64 if op_type.startswith("Arg") else dtype
        x = sample(dtype)
        (found,) = run_op(op_type, [x], version)
        assert found.dtype == expected
        assert found.ndim == 2
        (found,) = run_op(op_type, [x[0, 0].reshape(())], version)
        assert found.dtype == expected
        assert found.shape == ()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.domain}.{row.op_type}-{row.since}")
def test_row_names_only_what_the_schemas_have(row):
    """A type parameter that a version lacks would make the row refuse every node."""
    if row.domain == "com.microsoft" or row.op_type == "SimplifiedLayerNormalization":
        # No schemas; exporters write the latter into the standard domain.
        assert all(isinstance(key, int) for key in row.types)
        return
    inside = [v for v in versions(row.op_type, row.domain) if row.since <= v <= row.until]
    # LayerNormalization was exported before it was standard.
    assert inside
    for version in inside:
        schema = onnx.defs.get_schema(row.op_type, version, row.domain)
        for key in row.types:
            if isinstance(key, str):
                assert key in {item.type_str for item in (*schema.inputs, *schema.outputs)}


WITHOUT_ROW = {
    "Constant": "an initializer from loading on",
    "If": "has bodies, which the core runs",
    "Loop": "has a body, which the core runs",
    "Scan": "has a body, which the core runs",
    "SequenceMap": "a function with a Loop, which the core expands",
    "FlexAttention": "a function with bodies, which the core expands",
    "Gradient": "differentiates a part of the graph, which a kernel doesn't see",
}


def test_every_version_of_every_operator_has_a_row_or_a_reason():
    found = set()
    for schema in onnx.defs.get_all_schemas_with_history():
        rows = PROVIDER.table.rows(schema.domain, schema.name)
        covered = any(row.since <= schema.since_version <= row.until for row in rows)
        if not schema.deprecated and not covered:
            found.add(schema.name)
    assert found == set(WITHOUT_ROW)


def test_bfloat16_is_computed_in_its_own_type():
    x = np.array([1.0, 2.5, -3.0], ml_dtypes.bfloat16)
    assert run_op("Gelu", [x], 20)[0].dtype == ml_dtypes.bfloat16
