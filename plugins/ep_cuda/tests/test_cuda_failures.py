"""What the driver's errors become, and what a forked process is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ep_core.errors import AllocationError, DeviceLostError, RunError

_FORKED = """
import os
from cuda_harness import floats, open_provider, upload
from ep_core.errors import DeviceLostError

provider = open_provider({device!r})
stream = provider.create_stream()
upload(provider, floats(10))
event = stream.record()
child = os.fork()
if child == 0:
    code = 1
    try:
        for use in (event.synchronize, stream.synchronize, stream.record):
            try:
                use()
            except DeviceLostError as error:
                assert "spawn" in str(error)
            else:
                raise AssertionError(use)
        stream.close()
        provider.close()
        code = 0
    finally:
        os._exit(code)
assert os.waitpid(child, 0)[1] == 0
stream.close()
provider.close()
"""

_THREAD = """
import threading
import numpy as np
from cuda_harness import floats, run_one

inputs = [floats(3), np.array([1, 2], np.int64)]
thread = threading.Thread(target=run_one, args=({device!r}, "Gather", inputs))
thread.start()
thread.join()
"""


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("MemoryError", "cuMemAlloc failed: out of memory", AllocationError),
        (
            "LogicError",
            "cuStreamSynchronize failed: an illegal memory access was encountered",
            DeviceLostError,
        ),
        ("LaunchError", "cuEventSynchronize failed: unspecified launch failure", DeviceLostError),
        ("LogicError", "cuLaunchKernel failed: invalid argument", RunError),
    ],
)
@pytest.mark.usefixtures("provider")
def test_errors_of_the_driver_are_ours(kind, text, expected):
    import pycuda.driver as drv

    from ep_cuda.failures import translate

    found = translate(getattr(drv, kind)(text), "doing something")
    assert type(found) is expected
    assert "while doing something" in str(found)
    assert text in str(found)


def _run(program, provider):
    command = [sys.executable, "-c", program.format(device=provider.device.id)]
    return subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False, timeout=60
    )


def test_a_forked_process_is_told_and_can_close(provider):
    found = _run(_FORKED, provider)
    assert found.returncode == 0, found.stderr


def test_a_process_ends_quietly_after_a_thread_opened_the_device(provider):
    found = _run(_THREAD, provider)
    assert found.returncode == 0, found.stderr
    assert found.stderr == ""


def test_a_kernel_of_a_closed_provider_is_refused(provider):
    provider.close()
    provider.close()
    with pytest.raises(Exception, match="closed"):
        provider.create_stream()
