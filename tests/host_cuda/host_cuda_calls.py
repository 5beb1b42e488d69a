"""The driver's and the compiler's interface as the trials use it, through ctypes alone."""

from __future__ import annotations

import ctypes
import os

import numpy as np

__all__ = ["Device", "DriverError", "compile_text"]

NOT_READY = 600


class DriverError(RuntimeError):
    """A call failed; `code` is the driver's."""

    def __init__(self, name, code):
        super().__init__(f"{name}: error {code}")
        self.code = code


def compile_text(text, architecture="sm_90", options=()):
    """The binary of a program, or the compiler's log as an error."""
    nvrtc = ctypes.CDLL(os.environ["EP_CUDA_NVRTC"])
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    given = [f"--gpu-architecture={architecture}", "-default-device", *options]
    words = (ctypes.c_char_p * len(given))(*(word.encode() for word in given))
    result = nvrtc.nvrtcCompileProgram(program, len(given), words)
    part = "ProgramLog" if result else "CUBIN"
    nbytes = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{part}Size")(program, ctypes.byref(nbytes))
    content = ctypes.create_string_buffer(nbytes.value)
    getattr(nvrtc, f"nvrtcGet{part}")(program, content)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    if result:
        raise ValueError(content.value.decode())
    return content.raw


class Device:
    """The primary context of a device, current on the calling thread."""

    def __init__(self, number=0):
        self.library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)
        context = ctypes.c_void_p()
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
        self("cuCtxPushCurrent_v2", context)

    def __call__(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise DriverError(name, code)

    def _made(self, name, *arguments):
        handle = ctypes.c_void_p()
        self(name, ctypes.byref(handle), *arguments)
        return handle

    def allocate(self, nbytes):
        return self._made("cuMemAlloc_v2", ctypes.c_size_t(nbytes))

    def upload(self, array):
        memory = self.allocate(array.nbytes)
        self("cuMemcpyHtoD_v2", memory, array.ctypes.data_as(ctypes.c_void_p), _size(array))
        return memory

    def download(self, memory, count, dtype=np.float32):
        array = np.empty(count, dtype)
        self("cuMemcpyDtoH_v2", array.ctypes.data_as(ctypes.c_void_p), memory, _size(array))
        return array

    def pinned(self, count):
        address = self._made("cuMemHostAlloc", ctypes.c_size_t(4 * count), 0)
        floats = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(floats, (count,))

    def stream(self):
        """One that doesn't wait for the default stream."""
        return self._made("cuStreamCreate", 1)

    def event(self):
        return self._made("cuEventCreate", 0)

    def kernel(self, text, name, **options):
        module = self._made("cuModuleLoadData", compile_text(text, **options))
        return self._made("cuModuleGetFunction", module, name.encode())

    def launch(self, kernel, grid, block, arguments, stream=None):
        """Arguments are ctypes' values; each is passed by a pointer to it."""
        pointers = [ctypes.cast(ctypes.pointer(item), ctypes.c_void_p) for item in arguments]
        array = (ctypes.c_void_p * len(pointers))(*pointers)
        self("cuLaunchKernel", kernel, grid, 1, 1, block, 1, 1, 0, stream, array, None)


def _size(array):
    return ctypes.c_size_t(array.nbytes)
