"""Data types against onnx's own tables, value types and operator sets."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from ep_core.errors import NotSupportedError
from ep_core.types import (
    HOST_MEMORY,
    DataType,
    MapType,
    MemoryInfo,
    MemoryKind,
    OpSet,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
)

# Widths of the types that a byte can hold several of, or parts of one.
NARROW = {
    "UINT4": 4,
    "INT4": 4,
    "FLOAT4E2M1": 4,
    "UINT2": 2,
    "INT2": 2,
    "FLOAT6E2M3": 6,
    "FLOAT6E3M2": 6,
}


@pytest.mark.parametrize("kind", DataType)
def test_numbers_names_and_widths_are_onnx_s(kind):
    if kind.name not in onnx.TensorProto.DataType.keys():  # noqa: SIM118 - not a mapping
        pytest.skip(f"onnx {onnx.__version__} doesn't know {kind.name}")
    assert onnx.TensorProto.DataType.Value(kind.name) == kind
    if kind is DataType.STRING:
        assert (kind.bits, kind.numpy) == (0, np.dtype(object))
    else:
        assert onnx.helper.tensor_dtype_to_np_dtype(kind) == kind.numpy
        assert kind.bits == NARROW.get(kind.name, kind.numpy.itemsize * 8)
    assert DataType.from_numpy(kind.numpy) is kind


def test_texts_are_those_of_onnx_schemas():
    # Taken from the type strings that operator schemas list.
    schemas = onnx.defs.get_all_schemas()
    listed = {t for s in schemas for c in s.type_constraints for t in c.allowed_type_strs}
    for kind in DataType:
        if kind is not DataType.UINT2 and kind is not DataType.INT2:
            assert str(TensorType(kind)) in listed


def test_kinds():
    floats = {kind for kind in DataType if kind.is_float}
    assert floats == {kind for kind in DataType if kind.name == "DOUBLE" or "FLOAT" in kind.name}
    assert {kind.name for kind in DataType if kind.is_integer} == {
        f"{sign}INT{bits}" for sign in ("", "U") for bits in (2, 4, 8, 16, 32, 64)
    }


def test_from_numpy():
    assert DataType.from_numpy(np.float32) is DataType.FLOAT
    assert DataType.from_numpy(np.dtype(">i8")) is DataType.INT64
    assert DataType.from_numpy(np.dtype("U5")) is DataType.STRING
    assert DataType.from_numpy(ml_dtypes.bfloat16) is DataType.BFLOAT16
    with pytest.raises(NotSupportedError, match="datetime64"):
        DataType.from_numpy(np.dtype("datetime64[s]"))


def test_value_types():
    tensor = TensorType(DataType.FLOAT, (2, 3))
    assert tensor.static_shape == (2, 3)
    assert TensorType(DataType.FLOAT, ()).static_shape == ()
    for shape in (None, (2, None), ("N",)):
        assert TensorType(DataType.FLOAT, shape).static_shape is None
    assert str(SparseTensorType(DataType.BOOL)) == "sparse_tensor(bool)"
    assert str(SequenceType(tensor)) == "seq(tensor(float))"
    assert str(OptionalType(SequenceType(tensor))) == "optional(seq(tensor(float)))"
    assert str(MapType(DataType.STRING, tensor)) == "map(string,tensor(float))"
    assert len({tensor, TensorType(DataType.FLOAT, (2, 3))}) == 1


def test_memories():
    assert HOST_MEMORY.is_host
    assert MemoryInfo("gpu:0", MemoryKind.SHARED).is_host
    assert not MemoryInfo("gpu:0", MemoryKind.DEVICE).is_host
    assert str(HOST_MEMORY) == "cpu/host"


def test_operator_sets():
    opsets = OpSet({"ai.onnx": 17, "mine": 1})
    assert opsets == {"": 17, "mine": 1}
    assert opsets["ai.onnx"] == opsets[""] == 17
    assert "other" not in opsets
    assert repr(opsets) == "OpSet({'': 17, 'mine': 1})"
