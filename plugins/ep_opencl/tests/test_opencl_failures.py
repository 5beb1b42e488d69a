"""Errors of OpenCL as errors of the project."""

from __future__ import annotations

import pyopencl as cl
import pytest
from opencl_harness import DEVICES, needs_device

from ep_core.errors import AllocationError, DeviceLostError, RunError
from ep_opencl.device import open_device
from ep_opencl.failures import explained, translate


class FakeError(cl.Error):
    """Like pyopencl's, which only the library itself can make with a code."""

    def __init__(self, code):
        super().__init__(f"clSomething failed: {code}")
        self._code = code

    code = property(lambda self: self._code)


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE, AllocationError, "smaller batches"),
        (cl.status_code.OUT_OF_RESOURCES, AllocationError, "smaller batches"),
        (cl.status_code.DEVICE_NOT_AVAILABLE, DeviceLostError, "new session"),
        (-9999, DeviceLostError, "new session"),
        (cl.status_code.INVALID_KERNEL_ARGS, RunError, "clSomething"),
    ],
)
def test_codes_have_meanings(code, kind, advice):
    error = translate(FakeError(code), "testing")
    assert type(error) is kind
    assert "while testing" in str(error)
    assert advice in str(error)


@needs_device
def test_a_real_error_is_explained_and_keeps_its_cause():
    context = open_device(DEVICES[0].id).context
    doing = "asking for nothing"
    with pytest.raises(AllocationError, match=doing) as caught, explained(doing):
        cl.Buffer(context, cl.mem_flags.READ_WRITE, 0)
    assert isinstance(caught.value.__cause__, cl.Error)
