"""Decoding of tensors of every element type, and sizes that don't fit."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from ep_core.errors import InvalidModelError, ModelLimitError, NotSupportedError
from ep_core.loading.load import LoadLimits, load_model
from ep_core.types import DataType

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])


def model(*tensors, sparse=(), nodes=()):
    relu = helper.make_node("Relu", ["x"], ["y"])
    graph = helper.make_graph([relu, *nodes], "g", [X], [Y], tensors)
    graph.sparse_initializer.extend(sparse)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def load(tensor, **options):
    tensor.name = "w"
    return load_model(model(tensor), **options).graph.initializers["w"]


# What each element type can hold: (codes as unsigned integers, the values they stand for).
# The codes of the narrow floats are from the tables of the OCP formats, as onnx lists them.
CODES = {
    DataType.FLOAT: ([0x3F800000, 0xC0000000, 0x80000000], [1.0, -2.0, -0.0]),
    DataType.DOUBLE: ([0x3FF0000000000000, 0xC000000000000000], [1.0, -2.0]),
    DataType.FLOAT16: ([0x3C00, 0xC000, 0x7C00], [1.0, -2.0, np.inf]),
    DataType.BFLOAT16: ([0x3F80, 0xC000, 0x7F80], [1.0, -2.0, np.inf]),
    DataType.FLOAT8E4M3FN: ([0x38, 0xC0, 0x7E], [1.0, -2.0, 448.0]),
    DataType.FLOAT8E4M3FNUZ: ([0x40, 0xC8, 0x7F], [1.0, -2.0, 240.0]),
    DataType.FLOAT8E5M2: ([0x3C, 0xC0, 0x7B], [1.0, -2.0, 57344.0]),
    DataType.FLOAT8E5M2FNUZ: ([0x40, 0xC4, 0x7F], [1.0, -2.0, 57344.0]),
    DataType.FLOAT8E8M0: ([127, 128, 126], [1.0, 2.0, 0.5]),
    DataType.FLOAT6E2M3: ([0x08, 0x30, 0x1F, 0x29, 0x01], [1.0, -2.0, 7.5, -1.125, 0.125]),
    DataType.FLOAT6E3M2: ([0x0C, 0x30, 0x1F], [1.0, -2.0, 28.0]),
    DataType.FLOAT4E2M1: ([0x2, 0xC, 0x7, 0x9], [1.0, -2.0, 6.0, -0.5]),
    DataType.UINT8: ([0, 200, 255], [0, 200, 255]),
    DataType.INT8: ([0, 127, 0x80], [0, 127, -128]),
    DataType.UINT16: ([1, 65535], [1, 65535]),
    DataType.INT16: ([1, 0x8000], [1, -32768]),
    DataType.UINT32: ([1, 2**32 - 1], [1, 2**32 - 1]),
    DataType.INT32: ([1, 2**31], [1, -(2**31)]),
    DataType.UINT64: ([1, 2**64 - 1], [1, 2**64 - 1]),
    DataType.INT64: ([1, 2**63], [1, -(2**63)]),
    DataType.UINT4: ([1, 15, 8], [1, 15, 8]),
    DataType.INT4: ([1, 15, 8], [1, -1, -8]),
    DataType.UINT2: ([1, 3, 2, 0, 3], [1, 3, 2, 0, 3]),
    DataType.INT2: ([1, 3, 2, 0, 3], [1, -1, -2, 0, -1]),
    DataType.BOOL: ([0, 1], [False, True]),
}


def packed(codes, bits):
    """Little-endian bytes; elements under a byte start at the lowest bits."""
    if bits >= 8:
        return b"".join(code.to_bytes(bits // 8, "little") for code in codes)
    whole = sum(code << (bits * position) for position, code in enumerate(codes))
    return whole.to_bytes((len(codes) * bits + 7) // 8, "little")


def check(initializer, kind, values):
    array = initializer.numpy()
    assert (initializer.dtype, initializer.shape) == (kind, (len(values),))
    assert array.dtype == kind.numpy
    assert array.tolist() == values or array.astype(np.float64).tolist() == values
    signs = np.signbit(np.array(values, np.float64))
    assert np.signbit(array.astype(np.float64)).tolist() == signs.tolist()
    assert not array.flags.writeable


@pytest.mark.parametrize("kind", CODES)
def test_raw_data(kind):
    codes, values = CODES[kind]
    raw = packed(codes, kind.bits)
    check(load(TensorProto(dims=[len(codes)], data_type=kind, raw_data=raw)), kind, values)


@pytest.mark.parametrize("kind", CODES)
def test_typed_fields(kind):
    codes, values = CODES[kind]
    tensor = TensorProto(dims=[len(codes)], data_type=kind)
    if kind is DataType.FLOAT:
        tensor.float_data.extend(values)
    elif kind is DataType.DOUBLE:
        tensor.double_data.extend(values)
    elif kind is DataType.INT64:
        tensor.int64_data.extend(values)
    elif kind in (DataType.UINT32, DataType.UINT64):
        tensor.uint64_data.extend(values)
    elif kind.bits in (2, 4):
        tensor.int32_data.extend(packed(codes, kind.bits))
    elif kind.is_integer:
        tensor.int32_data.extend(values)
    else:
        tensor.int32_data.extend(codes)
    check(load(tensor), kind, values)


def test_complex_numbers():
    values = np.array([1 + 2j, -3 - 4j])
    parts = [1, 2, -3, -4]
    for kind, field in ((DataType.COMPLEX64, "float_data"), (DataType.COMPLEX128, "double_data")):
        raw = TensorProto(dims=[2], data_type=kind, raw_data=values.astype(kind.numpy).tobytes())
        typed = TensorProto(dims=[2], data_type=kind, **{field: parts})
        for tensor in (raw, typed):
            array = load(tensor).numpy()
            assert array.dtype == kind.numpy
            assert array.tolist() == values.tolist()


def test_strings():
    tensor = TensorProto(dims=[3], data_type=8, string_data=[b"one", b"", "zwölf".encode()])
    array = load(tensor).numpy()
    assert array.dtype == object
    assert array.tolist() == ["one", "", "zwölf"]
    scalar = load(TensorProto(data_type=8, string_data=[b"one"])).numpy()
    assert (scalar.shape, scalar.item()) == ((), "one")
    with pytest.raises(InvalidModelError, match="UTF-8"):
        load(TensorProto(dims=[1], data_type=8, string_data=[b"\xff"]))


def test_any_byte_but_zero_is_true():
    array = load(TensorProto(dims=[4], data_type=9, raw_data=b"\x00\x01\x02\xff")).numpy()
    assert array.view(np.uint8).tolist() == [0, 1, 1, 1]


def test_empty_tensors():
    for kind in DataType:
        for shape in ([0], [2, 0, 3], [2**20, 0]):
            array = load(TensorProto(dims=shape, data_type=kind)).numpy()
            assert array.shape == tuple(shape)
            assert array.dtype == kind.numpy


def test_raw_data_is_not_copied():
    values = np.arange(100_000, dtype=np.float32)
    initializer = load(numpy_helper.from_array(values))
    tracemalloc.start()
    array = initializer.numpy()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000
    assert (array == values).all()


@pytest.mark.parametrize(
    "tensor",
    [
        TensorProto(dims=[2**33], data_type=1, raw_data=b"1234"),
        TensorProto(dims=[2**33], data_type=1, float_data=[1.0]),
        TensorProto(dims=[2**40], data_type=1, raw_data=b"1234"),
        TensorProto(dims=[2**62, 2**62, 4], data_type=1, raw_data=b"1234"),
        TensorProto(dims=[0, 2**62], data_type=1),
        TensorProto(dims=[2**32, 2**32], data_type=8, string_data=[b""]),
        TensorProto(dims=[-1], data_type=1, raw_data=b"1234"),
        TensorProto(dims=[-1, -4], data_type=1, raw_data=b"1234" * 4),
        TensorProto(dims=[2], data_type=1, raw_data=b"1234"),
        TensorProto(dims=[1], data_type=1, raw_data=b"12345678"),
        TensorProto(dims=[], data_type=1),
        TensorProto(dims=[1], data_type=1, int32_data=[1]),
        TensorProto(dims=[3], data_type=22, raw_data=b"1"),
        TensorProto(dims=[3], data_type=22, int32_data=[1, 2, 3]),
        TensorProto(dims=[2], data_type=14, float_data=[1, 2, 3]),
        TensorProto(dims=[1], data_type=8, raw_data=b"a"),
        TensorProto(dims=[1], data_type=0, raw_data=b"1"),
        TensorProto(dims=[1], data_type=-5, raw_data=b"1"),
    ],
)
@pytest.mark.parametrize("place", ["initializer", "attribute"])
def test_what_does_not_fit_is_refused_before_anything_is_allocated(tensor, place):
    tensor.name = "w"
    node = helper.make_node("Constant", [], ["w"], value=tensor)
    proto = model(tensor) if place == "initializer" else model(nodes=[node])
    tracemalloc.start()
    with pytest.raises(InvalidModelError):
        load_model(proto)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000


def test_what_nothing_here_handles():
    segment = TensorProto(dims=[1], data_type=1, raw_data=b"1234")
    segment.segment.begin = 0
    with pytest.raises(NotSupportedError, match="segments"):
        load(segment)
    with pytest.raises(NotSupportedError, match="more than 32 dimensions"):
        load(TensorProto(dims=[1] * 70, data_type=1, raw_data=b"1234"))


# ---------------------------------------------------------------- sparse


def sparse(values, indices, dims):
    return SparseTensorProto(
        values=numpy_helper.from_array(np.array(values), "s"),
        indices=numpy_helper.from_array(np.array(indices, np.int64).reshape(np.shape(indices))),
        dims=dims,
    )


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_tensors_become_dense(indices):
    tensor = sparse(np.array([7, -8], ml_dtypes.bfloat16), indices, [2, 3])
    node = helper.make_node("Constant", [], ["c"])
    node.attribute.add(name="sparse_value", type=11, sparse_tensor=tensor)
    graph = load_model(model(sparse=[tensor], nodes=[node])).graph
    for name in "sc":
        array = graph.initializers[name].numpy()
        assert array.dtype == ml_dtypes.bfloat16
        assert array.tolist() == [[0, 7, 0], [0, 0, -8]]


@pytest.mark.parametrize(
    ("values", "indices", "dims"),
    [
        ([1.0], [6], [2, 3]),
        ([1.0], [-1], [2, 3]),
        ([1.0], [[0, 3]], [2, 3]),
        ([1.0], [[0, -1]], [2, 3]),
        ([1.0], [[0, 1, 0]], [2, 3]),
        ([1.0], [[[0]]], [2, 3]),
        ([1.0, 2.0], [1], [2, 3]),
        ([1.0, 2.0], [1, 1], [2, 3]),
        ([1.0, 2.0], [2, 1], [2, 3]),
        ([[1.0]], [1], [2, 3]),
        ([1.0], [0], [-6]),
        ([1.0], [0], [0]),
    ],
)
def test_malformed_sparse_tensors(values, indices, dims):
    with pytest.raises(InvalidModelError):
        load_model(model(sparse=[sparse(values, indices, dims)]))


def test_a_sparse_tensor_can_not_ask_for_much_memory():
    bomb = sparse([1.0], [0], [2**20, 2**12])
    with pytest.raises(ModelLimitError, match="max_densified_bytes"):
        load_model(model(sparse=[bomb]))
    small = model(sparse=[sparse([1.0], [0], [100])])
    load_model(small, limits=LoadLimits(max_densified_bytes=800))
    with pytest.raises(ModelLimitError, match="max_densified_bytes"):
        load_model(small, limits=LoadLimits(max_densified_bytes=799))
