"""What the stand-ins promise, tried in a process of its own: `python host_cuda_trials.py NAME`."""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest
from host_cuda_calls import NOT_READY, Device, DriverError, compile_text

ADD = """extern "C" __global__ void add_one(float *x) { x[threadIdx.x] += 1; }
extern "C" __global__ void scale(float *x, char unused, float by) { x[threadIdx.x] *= by; }"""
TURN = """extern "C" __global__ void turn(float *x)
{
    __shared__ float kept[64];
    kept[threadIdx.x] = x[threadIdx.x];
    WAIT
    x[threadIdx.x] = kept[63 - threadIdx.x];
}"""
STUCK = """extern "C" __global__ void stuck(float *x)
{
    if (threadIdx.x < 3) return;
    __syncthreads();
}"""
BESIDE = 'extern "C" __global__ void beside(float *x) { x[16 + threadIdx.x] = 0; }'


def code_of(call, *arguments):
    try:
        call(*arguments)
    except DriverError as error:
        return error.code
    return 0


def values(count=64):
    return np.arange(count, dtype=np.float32)


def arguments_arrive():
    device = Device()
    memory = device.upload(values())
    given = [memory, ctypes.c_char(b"a"), ctypes.c_float(3)]
    device.launch(device.kernel(ADD, "scale"), 1, 64, given)
    assert (device.download(memory, 64) == 3 * values()).all()


def turned(text):
    device = Device()
    memory = device.upload(values())
    device.launch(device.kernel(text, "turn"), 1, 64, [memory])
    return device.download(memory, 64)


def barriers_hold():
    assert (turned(TURN.replace("WAIT", "__syncthreads();")) == values()[::-1]).all()


def a_missing_barrier_shows():
    assert not (turned(TURN.replace("WAIT", "")) == values()[::-1]).all()


def a_barrier_that_some_pass_by_is_a_fault():
    device = Device()
    memory = device.upload(values())
    # The thread of the stream may be over before the launch returns, which then tells.
    code_of(device.launch, device.kernel(STUCK, "stuck"), 1, 64, [memory])
    assert code_of(device, "cuCtxSynchronize") == 702


def writing_beside_memory_is_a_fault():
    device = Device()
    memory = device.upload(values(16))
    code_of(device.launch, device.kernel(BESIDE, "beside"), 1, 1, [memory])
    assert code_of(device, "cuCtxSynchronize") == 700
    assert code_of(device.allocate, 4) == 700


def new_memory_is_no_number():
    device = Device()
    assert np.isnan(device.download(device.allocate(64), 16)).all()


def copies_stay_inside():
    device = Device()
    memory = device.upload(values(16))
    assert code_of(device.download, memory, 17) == 1
    beyond = ctypes.c_void_p(memory.value + 4)
    assert code_of(device.download, beyond, 16) == 1


def who_does_not_wait_sees_what_was_there():
    device = Device()
    target = device.pinned(64)
    target[:] = -1
    memory, stream = device.upload(values()), device.stream()
    address = target.ctypes.data_as(ctypes.c_void_p)
    device("cuMemcpyDtoHAsync_v2", address, memory, ctypes.c_size_t(256), stream)
    assert (target == -1).all()
    assert code_of(device, "cuStreamQuery", stream) == NOT_READY
    device("cuStreamSynchronize", stream)
    assert (target == values()).all()


def events_order_streams():
    device = Device()
    kernel = device.kernel(ADD, "add_one")
    memory, copy = device.upload(values()), device.allocate(256)
    first, second, event = device.stream(), device.stream(), device.event()
    for _ in range(5):
        device.launch(kernel, 1, 64, [memory], first)
    device("cuEventRecord", event, first)
    device("cuStreamWaitEvent", second, event, 0)
    device("cuMemcpyDtoDAsync_v2", copy, memory, ctypes.c_size_t(256), second)
    device("cuStreamSynchronize", second)
    assert (device.download(copy, 64) == values() + 5).all()


def streams_without_events_are_not_ordered():
    device = Device()
    kernel = device.kernel(ADD, "add_one")
    memory, copy = device.upload(values()), device.allocate(256)
    first, second = device.stream(), device.stream()
    for _ in range(5):
        device.launch(kernel, 1, 64, [memory], first)
    device("cuMemcpyDtoDAsync_v2", copy, memory, ctypes.c_size_t(256), second)
    device("cuStreamSynchronize", second)
    assert not (device.download(copy, 64) == values() + 5).all()


def code_for_another_chip_is_refused():
    device = Device()
    assert code_of(lambda: device.kernel(ADD, "scale", architecture="sm_80")) == 209


def the_compiler_says_where_it_fails():
    with pytest.raises(ValueError, match=r"(?s)kernel\.cu:3.*nobody"):
        compile_text("\n\nint f() { return nobody; }")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
