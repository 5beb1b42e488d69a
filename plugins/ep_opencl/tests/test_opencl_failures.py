"""Errors of OpenCL as errors of the project."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest
from opencl_harness import chosen, floats, needs_device, one_node, session

from ep_core.errors import AllocationError, DeviceLostError, RunError
from ep_opencl import device, memory, transfer
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
    context = open_device(chosen().id).context
    doing = "asking for nothing"
    with pytest.raises(AllocationError, match=doing) as caught, explained(doing):
        cl.Buffer(context, cl.mem_flags.READ_WRITE, 0)
    assert isinstance(caught.value.__cause__, cl.Error)


def failing_with(code):
    def fail(*arguments, **options):
        raise FakeError(code)

    return fail


@needs_device
@pytest.mark.parametrize(
    ("module", "name", "code", "kind"),
    [
        (device, "enqueue_nd_range_kernel", cl.status_code.DEVICE_NOT_AVAILABLE, DeviceLostError),
        (device, "enqueue_nd_range_kernel", cl.status_code.OUT_OF_RESOURCES, AllocationError),
        (memory, "Buffer", cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE, AllocationError),
        (transfer, "enqueue_copy", cl.status_code.DEVICE_NOT_AVAILABLE, DeviceLostError),
    ],
)
def test_a_failing_driver_is_told_and_a_new_session_works(module, name, code, kind, monkeypatch):
    model, feeds = one_node("MatMul", [floats(3, 5), floats(5, 7)])
    with session(model) as running:
        monkeypatch.setattr(module.cl, name, failing_with(code))
        with pytest.raises(kind):
            running.run(None, feeds)
        monkeypatch.undo()
    with session(model) as running:
        (found,) = running.run(None, feeds)
    np.testing.assert_allclose(found, feeds["x0"] @ feeds["x1"], rtol=1e-5)
