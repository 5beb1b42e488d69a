"""Tensors exchanged with another library that has a DLPack of its own, on the host and a device.

The library is apache-tvm-ffi, which is in the development environment. It holds tensors on any of
DLPack's devices without touching them, so that those of a simulated device can pass through it.
"""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np
import onnx
import pytest

from ep_core import InferenceSession, OrtValue, SessionOptions

tvm_ffi = pytest.importorskip("tvm_ffi", reason="requires a second library with DLPack")

TYPES = ["f4", "f8", "f2", "i1", "i4", "i8", "u1", "?", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]
ON_DEVICE = [kind for kind in TYPES if kind != "?"]
X = np.float32([1, 2, 3, 4])


class Old:
    """The other library's tensor by the protocol from before it had arguments."""

    def __init__(self, tensor):
        self._tensor = tensor

    def __dlpack__(self):
        return self._tensor.__dlpack__()

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()


class New(Old):
    """The same, and it insists on a versioned capsule."""

    def __dlpack__(self, **arguments):
        return self._tensor.__dlpack__(**{**arguments, "max_version": (1, 0)})


def theirs_on(number, array):
    """A tensor of the other library's on a simulated device."""
    return tvm_ffi.from_dlpack(OrtValue.ortvalue_from_numpy(array, "simulator", number))


@pytest.mark.parametrize("kind", TYPES)
def test_host_tensors_there_and_back(kind):
    array = np.array([[1, 0, 2], [4, 1, 0]]).astype(kind)
    theirs = tvm_ffi.from_dlpack(OrtValue.ortvalue_from_numpy(array))
    assert tuple(theirs.shape) == (2, 3)
    for taken in (theirs, New(theirs), Old(theirs)):
        value = OrtValue.from_dlpack(taken)
        assert value.data_ptr() == array.ctypes.data
        assert value.numpy().dtype == array.dtype
        np.testing.assert_array_equal(value.numpy(), array)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("kind", ON_DEVICE)
def test_device_tensors_there_and_back(kind, number):
    array = np.array([[1, 0, 2], [4, 1, 0]]).astype(kind)
    value = OrtValue.ortvalue_from_numpy(array, "simulator", number)
    theirs = tvm_ffi.from_dlpack(value)
    assert str(theirs.device) == f"ext_dev:{number}"
    assert tuple(theirs.shape) == (2, 3)
    for taken in (theirs, New(theirs), Old(theirs)):
        again = OrtValue.from_dlpack(taken)
        assert again.data_ptr() == value.data_ptr()
        assert str(again.memory) == f"simulator:{number}/device"
        assert again.numpy().dtype == array.dtype
        np.testing.assert_array_equal(again.numpy(), array)


def test_memory_lives_as_long_as_either_side_wants_it():
    value = OrtValue.ortvalue_from_numpy(X, "simulator")
    allocator = value._content.provider.allocator
    before = allocator.stats().in_use_bytes
    theirs = tvm_ffi.from_dlpack(value)
    again = OrtValue.from_dlpack(theirs)
    del value, theirs
    gc.collect()
    others = [OrtValue.ortvalue_from_numpy(-X, "simulator") for _ in range(4)]
    np.testing.assert_array_equal(again.numpy(), X)
    del again, others
    gc.collect()
    assert allocator.stats().in_use_bytes == before - X.nbytes


def test_a_run_on_their_tensors():
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> '
        "g (float[4] x) => (float[4] y) { a = Exp(x) y = Neg(a) }"
    )
    settings = SessionOptions()
    settings.disable_cpu_fallback = True
    settings.certificate_policy = "off"
    x, y = theirs_on(0, X), theirs_on(0, np.zeros(4, np.float32))
    model = onnx.parser.parse_model(text).SerializeToString()
    with InferenceSession(model, settings, ["simulator"]) as session:
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", OrtValue.from_dlpack(x))
        binding.bind_ortvalue_output("y", OrtValue.from_dlpack(y))
        assert binding.get_copies() == ()
        session.run_with_iobinding(binding)
    np.testing.assert_allclose(OrtValue.from_dlpack(y).numpy(), -np.exp(X), rtol=1e-6)
