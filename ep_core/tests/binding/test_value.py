"""`OrtValue` on the host: what it shares, what it says of itself, what it refuses."""

from __future__ import annotations

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from ep_core import OrtValue
from ep_core.errors import (
    AllocationError,
    FeedError,
    NotSupportedError,
    OptionError,
    ProviderNotFoundError,
)
from ep_core.types import HOST_MEMORY, DataType, MapType, OptionalType, SequenceType, TensorType
from ep_core.values.dlpack import DLPackError


def value_of(array) -> OrtValue:
    return OrtValue.ortvalue_from_numpy(array)


def test_on_the_host_it_shares_the_array():
    array = np.float32([1, 2, 3])
    value = value_of(array)
    array[0] = 9
    np.testing.assert_array_equal(value.numpy(), [9, 2, 3])
    assert np.shares_memory(value.numpy(), array)
    assert value.data_ptr() == array.ctypes.data


@pytest.mark.parametrize(
    "array", [np.arange(6).reshape(2, 3).T, np.arange(3).astype(">i8"), np.array(["a", "bc"])]
)
def test_other_layouts_are_copied_into_the_usual_one(array):
    value = value_of(array)
    assert value.numpy().flags.c_contiguous
    assert value.numpy().dtype == DataType.from_numpy(array.dtype).numpy
    np.testing.assert_array_equal(value.numpy(), array)
    assert not np.shares_memory(value.numpy(), array)


def test_what_it_says_of_itself():
    value = value_of(np.zeros((2, 3), np.int64))
    assert value.shape() == [2, 3]
    assert value.data_type() == "tensor(int64)"
    assert value.element_type() == TensorProto.INT64
    assert value.device_name() == "cpu"
    assert value.memory == HOST_MEMORY
    assert value.tensor_size_in_bytes() == 48
    assert value.has_value()
    assert value.is_tensor()
    assert not value.is_tensor_sequence()
    assert not value.is_sparse_tensor()
    assert repr(value) == "<OrtValue tensor(int64) [2, 3] in cpu/host>"


def test_values_that_are_no_tensors():
    floats = TensorType(DataType.FLOAT, (2,))
    sequence = OrtValue([np.zeros(2, np.float32)], OptionalType(SequenceType(floats)))
    assert sequence.is_tensor_sequence()
    assert sequence.data_type() == "optional(seq(tensor(float)))"
    assert not sequence.is_tensor()
    assert repr(sequence) == "<OrtValue optional(seq(tensor(float))) in cpu/host>"
    empty = OrtValue(None, OptionalType(floats))
    assert not empty.has_value()
    mapping = OrtValue({1: 0.5}, MapType(DataType.INT64, TensorType(DataType.FLOAT)))
    assert not mapping.is_tensor_sequence()
    for value in (sequence, empty, mapping):
        for ask in (value.numpy, value.shape, value.data_ptr, value.element_type):
            with pytest.raises(NotSupportedError, match="is for tensors"):
                ask()


@pytest.mark.parametrize(
    ("element_type", "dtype"),
    [
        (np.float32, "float32"),
        (np.dtype("int8"), "int8"),
        ("float16", "float16"),
        (TensorProto.FLOAT, "float32"),
        (TensorProto.BFLOAT16, "bfloat16"),
        (np.int64(TensorProto.UINT8), "uint8"),
        (DataType.INT4, "int4"),
    ],
)
def test_from_shape_and_type(element_type, dtype):
    value = OrtValue.ortvalue_from_shape_and_type([2, 3], element_type)
    assert value.shape() == [2, 3]
    assert str(value.numpy().dtype) == dtype
    value.numpy()[...] = 1


def test_strings_without_content_are_empty():
    value = OrtValue.ortvalue_from_shape_and_type((2,), TensorProto.STRING)
    assert value.numpy().tolist() == ["", ""]


@pytest.mark.parametrize("element_type", [None, 99, 0, "flot", object, True, 2.5, "M8[s]"])
def test_no_element_type(element_type):
    if element_type is object:
        element_type = np.dtype([("a", "i4")])
    with pytest.raises(OptionError, match="element_type; expected a numpy dtype"):
        OrtValue.ortvalue_from_shape_and_type([1], element_type)


@pytest.mark.parametrize(
    "shape", [None, 3, "ab", [-1], [1.5], ["N"], [True], [2**70], [1] * 65, [0, 2**62]]
)
def test_no_shape(shape):
    with pytest.raises(OptionError, match="shape; expected a list of ints"):
        OrtValue.ortvalue_from_shape_and_type(shape, np.float32)


@pytest.mark.parametrize("shape", [[2**60], [2**40, 2**40]])
def test_more_memory_than_there_is(shape):
    with pytest.raises(AllocationError, match="no memory for float"):
        OrtValue.ortvalue_from_shape_and_type(shape, np.float32)


@pytest.mark.parametrize("what", [[1.0], 3, None, np.float32(2), np.ma.masked_array([1.0])])
def test_only_arrays(what):
    with pytest.raises(FeedError, match=r"expected a numpy.ndarray"):
        value_of(what)


def test_arrays_of_types_that_onnx_hasn_t():
    with pytest.raises(NotSupportedError, match="no ONNX element type"):
        value_of(np.array(["2020-01-01"], "M8[D]"))
    with pytest.raises(FeedError, match="expected str in every element"):
        value_of(np.array([1, "a"], object))


def test_devices_by_name(provide):
    assert OrtValue.ortvalue_from_numpy(np.zeros(1), "CPU", 0).device_name() == "cpu"
    assert OrtValue.ortvalue_from_numpy(np.zeros(1), "CPUExecutionProvider").device_name() == "cpu"
    provide("hostly")  # a provider in host memory
    assert OrtValue.ortvalue_from_numpy(np.zeros(1), "hostly").device_name() == "cpu"
    with pytest.raises(ProviderNotFoundError, match="no provider 'cuda9'"):
        OrtValue.ortvalue_from_numpy(np.zeros(1), "cuda9")
    with pytest.raises(OptionError, match="expected one of '0'; got '3'"):
        OrtValue.ortvalue_from_numpy(np.zeros(1), "hostly", 3)
    for wrong in (("hostly", 1.5), ("hostly", True), (3, 0)):
        with pytest.raises(OptionError, match="device_"):
            OrtValue.ortvalue_from_numpy(np.zeros(1), *wrong)


# ---------------------------------------------------------------- in place


def test_update_inplace_writes_where_it_lies():
    array = np.zeros(3, np.float32)
    value = value_of(array)
    value.update_inplace(np.float32([1, 2, 3]))
    np.testing.assert_array_equal(array, [1, 2, 3])
    value.update_inplace(np.arange(6, dtype=np.float32)[::2])
    np.testing.assert_array_equal(array, [0, 2, 4])
    value.update_inplace(value_of(np.float32([7, 8, 9])))
    np.testing.assert_array_equal(array, [7, 8, 9])


@pytest.mark.parametrize("data", [np.zeros(3), np.zeros(2, np.float32), np.zeros((3, 1), "f4")])
def test_update_inplace_with_another_type(data):
    with pytest.raises(FeedError, match=r"expected tensor\(float\) of shape \[3\]"):
        value_of(np.zeros(3, np.float32)).update_inplace(data)


def test_update_inplace_with_no_tensor():
    value = value_of(np.zeros(3, np.float32))
    with pytest.raises(FeedError, match=r"expected a numpy.ndarray; got builtins.list"):
        value.update_inplace([1, 2, 3])
    with pytest.raises(NotSupportedError, match="is for tensors"):
        value.update_inplace(OrtValue(None, OptionalType(None)))


def test_read_only_memory_isn_t_written():
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    with pytest.raises(FeedError, match="read-only"):
        value_of(array).update_inplace(np.ones(3, np.float32))


def test_bytes_under_another_type():
    bits = np.uint16([0x3F80, 0x4000])
    value = OrtValue.ortvalue_from_numpy_with_onnx_type(bits, TensorProto.BFLOAT16)
    assert value.element_type() == TensorProto.BFLOAT16
    np.testing.assert_array_equal(value.numpy().astype(np.float32), [1, 2])
    assert np.shares_memory(value.numpy(), bits)
    for wrong in (TensorProto.FLOAT, TensorProto.STRING):
        with pytest.raises(FeedError, match="data for"):
            OrtValue.ortvalue_from_numpy_with_onnx_type(bits, wrong)


def test_numpy_takes_it():
    array = np.float32([1, 2])
    value = value_of(array)
    assert np.shares_memory(np.asarray(value), array)
    assert not np.shares_memory(np.array(value), array)
    assert np.asarray(value, np.float64).dtype == np.float64


# ---------------------------------------------------------------- DLPack


@pytest.mark.parametrize(
    "dtype",
    ["?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", "F", "D"],
)
def test_dlpack_there_and_back(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    value = OrtValue.from_dlpack(array)
    assert value.__dlpack_device__() == (1, 0)
    assert np.shares_memory(value.numpy(), array)
    back = np.from_dlpack(value)
    assert back.dtype == array.dtype
    assert np.shares_memory(back, array)
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    "dtype",
    [
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e5m2fnuz,
        ml_dtypes.float8_e8m0fnu,
    ],
)
def test_types_that_numpy_s_dlpack_hasn_t(dtype):
    array = np.array([1, 2, 4], dtype)
    value = OrtValue.from_dlpack(value_of(array))
    assert value.numpy().dtype == array.dtype
    assert np.shares_memory(value.numpy(), array)
    np.testing.assert_array_equal(value.numpy().astype(float), [1, 2, 4])
    # the same, said the old way
    capsule = value_of(array).__dlpack__()
    assert OrtValue.from_dlpack(capsule).numpy().dtype == array.dtype


def test_a_capsule_is_taken_once():
    capsule = np.float32([1, 2]).__dlpack__()
    np.testing.assert_array_equal(OrtValue.from_dlpack(capsule).numpy(), [1, 2])
    with pytest.raises(DLPackError, match="is used"):
        OrtValue.from_dlpack(capsule)


def test_shared_memory_lives_as_long_as_anybody_shares_it():
    array = np.float32([1, 2, 3])
    gone = weakref.ref(array)
    back = np.from_dlpack(OrtValue.from_dlpack(array))
    del array
    gc.collect()
    np.testing.assert_array_equal(back, [1, 2, 3])
    assert gone() is not None
    del back
    gc.collect()
    assert gone() is None


class OnGpu:
    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **arguments):
        raise BufferError("the device says no")


class Old:
    """A library from before the protocol had arguments."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self):
        return self.array.__dlpack__()


def test_an_old_library():
    array = np.float32([1, 2])
    assert np.shares_memory(OrtValue.from_dlpack(Old(array)).numpy(), array)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "expected an object that has __dlpack__"),
        (OnGpu(), r"no provider here takes tensors on DLPack device \(2, 0\)"),
        (np.zeros((2, 3)).T, "isn't C-contiguous"),
        (np.array(["a"]), "can't be taken"),
        (np.zeros(2).view("M8[s]"), "can't be taken"),
    ],
)
def test_what_dlpack_can_t_bring(data, message):
    with pytest.raises(DLPackError, match=message):
        OrtValue.from_dlpack(data)
    assert issubclass(DLPackError, BufferError)


@pytest.mark.parametrize("array", [np.array(["a"], object), np.zeros(2, ml_dtypes.int4)])
def test_what_dlpack_can_t_take(array):
    with pytest.raises(BufferError, match="can't be exported by DLPack"):
        np.from_dlpack(value_of(array))
