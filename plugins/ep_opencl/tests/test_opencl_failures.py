"""Errors of OpenCL as errors of the project."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest
from opencl_harness import chosen, floats, needs_device, one_node, session

from ep_core.errors import AllocationError, DeviceLostError, EpError, RunError
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


@needs_device
def test_the_device_is_lost_in_the_middle_and_memory_comes_back(monkeypatch):
    values = floats(40, 40)
    model, feeds = one_node("Softmax", [values])
    with session(model) as running:
        (right,) = running.run(None, feeds)
        monkeypatch.setattr(
            transfer.cl, "enqueue_marker", failing_with(cl.status_code.DEVICE_NOT_AVAILABLE)
        )
        with pytest.raises(DeviceLostError):
            running.run(None, feeds)
        monkeypatch.undo()
        (again,) = running.run(None, feeds)
        after = running.get_memory()
    np.testing.assert_array_equal(again, right)
    assert "in_use_bytes=0" in str(after)


@needs_device
def test_a_device_that_is_full_says_so_and_goes_on():
    model, feeds = one_node("Relu", [floats(64)], {})
    larger, much = one_node("Relu", [floats(1 << 19)])
    with (
        session(larger, {"capacity": "1M"}) as running,
        pytest.raises(AllocationError, match="capacity"),
    ):
        running.run(None, much)
    with session(model, {"capacity": "1M"}) as running:
        (found,) = running.run(None, feeds)
    np.testing.assert_array_equal(found, np.maximum(feeds["x0"], 0))


@needs_device
def test_threads_that_build_the_same_kernels_at_once_agree(tmp_path, monkeypatch):
    monkeypatch.setenv("EP_CACHE_DIR", str(tmp_path))
    model, feeds = one_node("Elu", [floats(3, 77)], {"alpha": 0.625})
    found, failed = [], []

    def work():
        try:
            with session(model) as running:
                found.append(running.run(None, feeds)[0].tobytes())
        except EpError as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert len(found) == 6
    assert len(set(found)) == 1


PROLOGUE = """
import os, sys
sys.path.insert(0, {folder!r})
import numpy as np
from opencl_harness import DEVICES, choose, one_node, session
from ep_core.errors import EpError
choose(next(device for device in DEVICES if device.id == {device!r}))
model, feeds = one_node("Relu", [np.ones((4, 5), np.float32)])
"""


def start(body, **environment):
    """A Python process that has a model of one node at hand."""
    folder = str(Path(__file__).parent)
    code = PROLOGUE.format(folder=folder, device=chosen().id) + textwrap.dedent(body)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@needs_device
def test_processes_that_build_the_same_kernel_at_once_agree(tmp_path):
    body = "print(session(model).run(None, feeds)[0].sum())"
    processes = [start(body, EP_CACHE_DIR=str(tmp_path)) for _ in range(2)]
    for process in processes:
        assert process.communicate(timeout=120) == ("20.0\n", "")


@needs_device
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_process_is_told_to_start_otherwise():
    body = """
    running = session(model)
    running.run(None, feeds)
    pid = os.fork()
    if pid == 0:
        for work in (lambda: running.run(None, feeds), lambda: session(model)):
            try:
                work()
            except EpError as error:
                print("spawn" in str(error), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    print(running.run(None, feeds)[0].sum())
    """
    assert start(body).communicate(timeout=120) == ("True\nTrue\n20.0\n", "")


@needs_device
@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise")
def test_an_interrupt_in_a_run_leaves_a_session_that_works():
    body = """
    running = session(model)
    running.run(None, feeds)
    try:
        print("ready", flush=True)
        while True:
            running.run(None, feeds)
    except KeyboardInterrupt:
        pass
    print(running.run(None, feeds)[0].sum())
    running.close()
    """
    process = start(body)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=120) == ("20.0\n", "")


@needs_device
def test_sessions_leave_nothing_behind():
    body = """
    import gc, threading
    def count():
        gc.collect()
        counted = [os.listdir("/proc/self/" + what) for what in ("fd", "task")]
        return threading.active_count(), *map(len, counted)
    def several(number):
        for _ in range(number):
            with session(model) as running:
                running.run(None, feeds)
    several(3)
    before = count()
    several(40)
    print(count() == before)
    """
    if not Path("/proc/self/task").is_dir():
        pytest.skip("only Linux tells")
    assert start(body).communicate(timeout=120) == ("True\n", "")
