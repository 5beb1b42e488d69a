"""A program of its own: build and run a small kernel on one device, and see whether it is right.

Some drivers end the process when their compiler meets a processor that it doesn't know. Started as
`python probe.py PLATFORM NUMBER`, it needs nothing but pyopencl, and ends with 0 if all is well.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import pyopencl as cl

__all__ = ["run_trial"]

# What the kernels of the provider use most: wide vectors, multiply-add, and a function.
_SOURCE = """
__kernel void trial(__global float *x)
{
    const float16 a = vload16(get_global_id(0), x);
    vstore16(fma(a, a, exp(a - a)), get_global_id(0), x);
}
"""
_NO_CACHE: Any = False


def run_trial(device: cl.Device) -> None:
    """Build a kernel and run it.

    Raises:
        cl.Error: the driver fails.
        ArithmeticError: the results are wrong.
    """
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    program = cl.Program(context, _SOURCE)
    with warnings.catch_warnings():
        # Pyopencl warns of whatever a compiler says.
        warnings.simplefilter("ignore")
        program.build("", cache_dir=_NO_CACHE)
    values = np.arange(64, dtype=np.float32)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, values.nbytes)
    cl.enqueue_copy(queue, buffer, values)
    kernel = cl.Kernel(program, "trial")
    kernel.set_args(buffer)
    cl.enqueue_nd_range_kernel(queue, kernel, (4,), None)
    found = np.empty_like(values)
    cl.enqueue_copy(queue, found, buffer)
    if not np.array_equal(found, values * values + 1):
        raise ArithmeticError("error: its kernels compute wrong values")


if __name__ == "__main__":
    wanted, number = sys.argv[1:]
    platform = next(item for item in cl.get_platforms() if item.name == wanted)
    run_trial(platform.get_devices()[int(number)])
