"""Every operator on every type that it is claimed for, from the operator cases of onnx.

A case lends its node, its attributes and the shapes of its inputs. The inputs of one type parameter
are filled with zeros and ones, which every type can hold, once in the case's own type and once in
each other. What moves elements must give the same elements; what computes must give the same up to
the precision of the type, where that is a float.
"""

from __future__ import annotations

import collections

import ml_dtypes
import numpy as np
import onnx
import pytest
from cpu_harness import PROVIDER, run_model, run_op
from cpu_node_cases import as_value, node_cases
from cpu_unsupported_cases import NEEDS, NO_FIXED_ANSWER
from onnx import helper

from ep_core.types import DataType

LISTED = NO_FIXED_ANSWER.union(*NEEDS.values())
CASES_PER_OPERATOR = 3

MOVING = frozenset({
    "CenterCropPad", "Compress", "Concat", "ConcatFromSequence", "DepthToSpace", "Expand",
    "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Optional",
    "OptionalGetElement", "Pad", "Reshape", "ReverseSequence", "Scatter", "SequenceAt",
    "SequenceConstruct", "SequenceErase", "SequenceInsert", "Slice", "SpaceToDepth", "Split",
    "SplitToSequence", "Squeeze", "TensorScatter", "Tile", "Transpose", "Trilu", "Unsqueeze",
    "Where",
})  # fmt: skip
"""Operators whose outputs hold only elements of their inputs, or zeros."""

NEEDS_ITS_VALUES = frozenset({
    "BitCast",  # from and to types of one width
    "Cast", "CastLike",  # have a test of their own
    "DequantizeLinear", "QuantizeLinear",  # types that depend on each other
    "ImageDecoder",  # reads a file
    "SequenceInsert",  # two parameters that can't change apart
    "MelWeightMatrix", "Range",  # zeros and ones make no sense
    "StringNormalizer", "StringSplit", "RegexFullMatch", "StringConcat",  # one type only
})  # fmt: skip

PRECISION = {
    np.dtype(np.float16): 4e-3,
    np.dtype(ml_dtypes.bfloat16): 3e-2,
    np.dtype(np.float32): 1e-5,
    np.dtype(np.float64): 1e-5,
}
NUMPY_OF_TEXT = {
    f"{before}tensor({kind.text}){after}": kind.numpy
    for kind in DataType
    for before, after in (("", ""), ("seq(", ")"), ("optional(", ")"), ("optional(seq(", "))"))
}
INTEGER_TEXTS = {f"tensor({kind.text})" for kind in DataType if kind.is_integer}


def templates():
    """Cases of one node, a few per operator and version."""
    counts = collections.Counter()
    for name, case in node_cases().items():
        nodes = case.model.graph.node
        if name in LISTED or len(nodes) != 1 or nodes[0].domain not in ("", "ai.onnx"):
            continue
        op_type = nodes[0].op_type
        opset = next(o.version for o in case.model.opset_import if o.domain in ("", "ai.onnx"))
        key = (op_type, onnx.defs.get_schema(op_type, opset).since_version)
        if op_type not in NEEDS_ITS_VALUES and counts[key] < CASES_PER_OPERATOR:
            counts[key] += 1
            yield pytest.param(name, id=f"{op_type}-{name.removeprefix('test_')}")


def positions(formal, count, parameter):
    """Positions below `count` that have the type parameter; a variadic one repeats to the end."""
    return [
        index for index in range(count) if formal[min(index, len(formal) - 1)].type_str == parameter
    ]


def pattern(shape, dtype):
    """Zeros and ones in no simple order."""
    bits = (np.arange(int(np.prod(shape))) ** 2 // 3 % 2).reshape(shape)
    return bits.astype(str).astype(object) if dtype.kind == "O" else bits.astype(dtype)


def filled(value, dtype):
    if isinstance(value, list):
        return [filled(item, dtype) for item in value]
    return value if value is None else pattern(value.shape, dtype)


def element(value):
    """The dtype of a value; None for an empty list."""
    while isinstance(value, list):
        if not value:
            return None
        value = value[0]
    return None if value is None else value.dtype


def retyped(model, chosen, dtype):
    """A copy of the model whose chosen inputs are declared with another element type."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kind = onnx.TensorProto.STRING if dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(dtype)
    names = {copy.graph.node[0].input[index] for index in chosen}
    for info in copy.graph.input:
        if info.name in names:
            innermost(info.type).elem_type = kind
    for info in copy.graph.output:
        info.ClearField("type")
    return copy


def innermost(proto):
    while not proto.HasField("tensor_type"):
        proto = proto.sequence_type if proto.HasField("sequence_type") else proto.optional_type
        proto = proto.elem_type
    return proto.tensor_type


def numbers(value):
    """All elements as float64, in one flat list; strings as the numbers that they spell."""
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    if value is None:
        return []
    if value.dtype.kind == "O":
        return [float(item or 0) for item in value.reshape(-1)]
    if value.dtype == ml_dtypes.float8_e8m0fnu:
        # Powers of two only: a zero becomes NaN.
        value = np.nan_to_num(value.astype(np.float32))
    return (
        np.abs(value).astype(np.float64).reshape(-1).tolist()
        if value.dtype.kind == "c"
        else (value.astype(np.float64).reshape(-1).tolist())
    )


def integers_only(constraint):
    """Sizes, indices and quantised data: zeros and ones would mean something else."""
    return all(text in INTEGER_TEXTS for text in constraint.allowed_type_strs)


def in_type(value, dtype):
    """The same numbers in another integer type; None if that can't hold them."""
    cast = value.astype(dtype)
    return cast if (cast.astype(np.int64) == value.astype(np.int64)).all() else None


def reduces(node):
    """True for a scatter that adds or compares, which strings don't do."""
    return any(item.name == "reduction" and item.s != b"none" for item in node.attribute)


def claimed(rows, version, parameter, dtype):
    kind = DataType.from_numpy(dtype)
    return any(
        kind in row.types.get(parameter, DataType)
        for row in rows
        if row.since <= version <= row.until
    )


def check_types(case, schema, constraint):
    node = case.model.graph.node[0]
    parameter = constraint.type_param_str
    rows = PROVIDER.table.rows("", node.op_type)
    present = [name for name in node.input if name]
    feeds = dict(zip(present, (as_value(v) for v in case.data_sets[0][0]), strict=True))
    chosen = [i for i in positions(schema.inputs, len(node.input), parameter) if node.input[i]]
    names = {node.input[index] for index in chosen}
    own = next((kind for name in names if (kind := element(feeds[name])) is not None), None)
    if own is None:
        return
    written = positions(schema.outputs, len(node.output), parameter)
    # An output whose type no input says takes it from wherever it likes.
    inputs = {item.type_str for item, name in zip(schema.inputs, node.input, strict=False) if name}
    known = [item.type_str in inputs for item in schema.outputs]
    texts = [text for text in constraint.allowed_type_strs if text in NUMPY_OF_TEXT]
    base = None
    for dtype in dict.fromkeys([own, *(NUMPY_OF_TEXT[text] for text in texts)]):
        if not claimed(rows, schema.since_version, parameter, dtype):
            continue
        change = in_type if integers_only(constraint) else filled
        values = [change(v, dtype) if name in names else v for name, v in feeds.items()]
        if dtype.kind == "O" and reduces(node):
            continue
        if any(one is None is not other for one, other in zip(values, feeds.values(), strict=True)):
            continue
        outputs = run_model(retyped(case.model, chosen, dtype), values)
        base = outputs if base is None else base
        for index, (found, first) in enumerate(zip(outputs, base, strict=True)):
            where = f"{node.op_type} output {index} for {parameter} = {dtype}"
            if known[min(index, len(known) - 1)]:
                expected = dtype if index in written else element(first)
                assert element(found) in (expected, None), where
            if node.op_type in MOVING:
                np.testing.assert_array_equal(numbers(found), numbers(first), err_msg=where)
            elif own in PRECISION and dtype in PRECISION:
                tolerance = max(PRECISION[own], PRECISION[dtype])
                np.testing.assert_allclose(
                    numbers(found), numbers(first), rtol=tolerance, atol=tolerance, err_msg=where
                )
            elif dtype.kind != "O":
                assert len(numbers(found)) == len(numbers(first)), where


@pytest.mark.parametrize("name", list(templates()))
def test_all_types(name):
    case = node_cases()[name]
    opset = next(o.version for o in case.model.opset_import if o.domain in ("", "ai.onnx"))
    schema = onnx.defs.get_schema(case.model.graph.node[0].op_type, opset)
    for constraint in schema.type_constraints:
        check_types(case, schema, constraint)


# ---------------------------------------------------------------- types that depend on each other

ALL_TYPES = [kind.numpy for kind in DataType]
NEWEST_CAST = 28
FLOAT6 = [DataType.FLOAT6E2M3.numpy, DataType.FLOAT6E3M2.numpy]


@pytest.mark.parametrize("source", ALL_TYPES, ids=str)
def test_cast_between_all_types(source):
    """0 and 1 survive every cast, and so does a shape without elements."""
    texts = onnx.defs.get_schema("Cast", NEWEST_CAST).type_constraints[0].allowed_type_strs
    allowed = {NUMPY_OF_TEXT[text] for text in texts}
    for target in ALL_TYPES:
        if source not in allowed or target not in allowed:
            continue
        x = pattern((2, 3), source)
        kind = int(DataType.from_numpy(target))
        (found,) = run_op("Cast", [x], NEWEST_CAST, to=kind)
        assert found.dtype == target
        if ml_dtypes.float8_e8m0fnu not in (source, target):
            assert numbers(found) == numbers(pattern((2, 3), np.dtype(np.float64)))
        (found,) = run_op("Cast", [x[:0]], NEWEST_CAST, to=kind)
        assert (found.dtype, found.shape) == (target, (0, 3))
        if not {source, target} & set(FLOAT6):
            (found,) = run_op("CastLike", [x, pattern((1,), target)], 25)
            assert found.dtype == target


FLOAT_SCALES = [np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
QUANTISED = [
    np.dtype(kind)
    for kind in (
        np.int8, np.uint8, np.int16, np.uint16, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2,
        ml_dtypes.uint2, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e5m2fnuz, ml_dtypes.float4_e2m1fn,
    )
]  # fmt: skip


@pytest.mark.parametrize("kind", QUANTISED, ids=str)
def test_quantisation_to_all_types_and_back(kind):
    """0 and half a step round to 0, one step to 1, and back."""
    for scale in FLOAT_SCALES:
        x = np.array([[0, 0.5], [0.25, 0]]).astype(scale)
        step, zero = np.array(0.5).astype(scale), np.array(0).astype(kind)
        (found,) = run_op("QuantizeLinear", [x, step, zero], 25)
        assert found.dtype == kind
        half = 0.5 if "float" in str(kind) else 0
        assert numbers(found) == [0, 1, half, 0]
        (back,) = run_op("DequantizeLinear", [found, step, zero], 25)
        assert back.dtype == scale
        assert numbers(back) == [0, 0.5, half / 2, 0]
        per_axis = np.array([0.5, 0.25]).astype(scale)
        (found,) = run_op("QuantizeLinear", [x, per_axis, np.array([0, 0]).astype(kind)], 25)
        assert numbers(found)[:3:2] == [0, half]
        number = int(DataType.from_numpy(kind))
        (found,) = run_op("QuantizeLinear", [x, step], 25, output_dtype=number)
        assert found.dtype == kind


FLOAT8 = QUANTISED[8:12]


@pytest.mark.parametrize("kind", FLOAT8, ids=str)
def test_product_of_float8(kind):
    """2 * 1.5 + 4 * 0.5 = 5 with scales 1; halved by the output's scale."""
    a = np.array([[2, 4]]).astype(kind)
    b = np.array([[1.5], [0.5]]).astype(kind)
    one, two = np.array(1, np.float32), np.array(2, np.float32)
    zero = np.array(0).astype(kind)
    (found,) = run_op("QLinearMatMul", [a, one, zero, b, one, zero, two, zero], 21)
    assert found.dtype == kind
    assert numbers(found) == [2.5]
    whole = np.array(3, np.uint8)
    (found,) = run_op("QLinearMatMul", [a, one, zero, b, one, zero, one, whole], 21)
    assert found.tolist() == [[8]]


IN_SEQUENCES = [
    kind
    for text in onnx.defs.get_schema("SequenceInsert", 24).type_constraints[0].allowed_type_strs
    if (kind := NUMPY_OF_TEXT.get(text)) is not None
]


@pytest.mark.parametrize("dtype", IN_SEQUENCES, ids=str)
def test_sequences_of_all_types(dtype):
    items = [pattern((2,), dtype), pattern((3,), dtype)]
    (found,) = run_op("SequenceInsert", [items, pattern((1,), dtype), np.array(0, np.int64)], 11)
    assert [item.shape for item in found] == [(1,), (2,), (3,)]
    assert all(item.dtype == dtype for item in found)
    (found,) = run_op("SequenceEmpty", [], 11, dtype=int(DataType.from_numpy(dtype)))
    assert found == []


@pytest.mark.parametrize(
    ("kind", "cases"),
    [
        # Largest 7.5; steps of 1/8 below 1, of 1/2 from 4 on; halves go to even.
        (FLOAT6[0], {0.0625: 0.0, 0.1875: 0.25, 4.25: 4.0, 7.4: 7.5, 100.0: 7.5, -100.0: -7.5}),
        # Largest 28; steps of 1/16 at the bottom, of 4 from 16 on.
        (FLOAT6[1], {0.03125: 0.0, 0.09375: 0.125, 18.0: 16.0, 27.0: 28.0, 1e6: 28.0, -1e6: -28.0}),
    ],
    ids=str,
)
def test_casts_to_float6(kind, cases):
    x = np.array(list(cases), np.float32)
    (found,) = run_op("Cast", [x], NEWEST_CAST, to=int(DataType.from_numpy(kind)))
    assert found.dtype == kind
    assert found.astype(np.float32).tolist() == list(cases.values())
    (back,) = run_op("Cast", [found], NEWEST_CAST, to=1)
    assert back.tolist() == list(cases.values())
