"""What a user is told when a vendor's library, driver or device fails, and what goes on without it.

Each failure is an error of ours that says what to do, other providers aren't touched by it, and a
session goes on elsewhere where the caller's list of providers lets it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from divided_model import agree, is_available, mixed_feeds, mixed_model, open_session
from onnx import parser

from ep_core.errors import (
    AllocationError,
    CompileError,
    DeviceLostError,
    OptionError,
    PlacementError,
)

needs_openvino = pytest.mark.skipif(
    not is_available("openvino"), reason="requires: openvino installed"
)
needs_opencl = pytest.mark.skipif(not is_available("opencl"), reason="requires: an OpenCL device")


# ---------------------------------------------------------------- the library isn't as it should be

PROGRAM = """
import sys
from divided_model import agree, mixed_feeds, mixed_model, open_session
from ep_core import get_available_providers
from ep_core.errors import EpError
name = sys.argv[1]
assert "CPUExecutionProvider" in get_available_providers()
assert not any(name in listed.lower() for listed in get_available_providers())
with open_session(mixed_model(), ["cpu"]) as session:
    agree(session.run(None, mixed_feeds()), session.run(None, mixed_feeds()))
try:
    open_session(mixed_model(), [name, "cpu"])
except EpError as error:
    print(type(error).__name__, error)
"""

FAULTS = {
    "openvino missing": ("openvino", "raise ImportError('no module')", "pip install openvino"),
    "openvino too old": ("openvino", "__version__ = '2023.1.0-1'", "2026.4 or newer"),
    "opencl missing": ("opencl", "raise ImportError('libOpenCL.so.1: no such file')", "libOpenCL"),
}


def told_without(name: str, folder: Path, **environment: str) -> str:
    """What a process is told that names a provider, with a folder before all other modules."""
    paths = [str(folder), str(Path(__file__).parent)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "EP_CACHE_DIR": str(folder / "cache"),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "source", "advice"), FAULTS.values(), ids=FAULTS)
def test_a_library_that_cannot_be_used(name: str, source: str, advice: str, tmp_path: Path) -> None:
    module = {"openvino": "openvino", "opencl": "pyopencl"}[name]
    pytest.importorskip(f"ep_{name}")
    (tmp_path / f"{module}.py").write_text(source + "\n")
    told = told_without(name, tmp_path)
    assert told.startswith("ProviderUnavailableError")
    assert advice in told


@needs_opencl
def test_an_opencl_driver_that_cannot_be_used(tmp_path: Path) -> None:
    vendors = tmp_path / "vendors"
    vendors.mkdir()
    (vendors / "broken.so").write_text("no library")
    (vendors / "broken.icd").write_text(str(vendors / "broken.so"))
    told = told_without("opencl", tmp_path, OCL_ICD_VENDORS=str(vendors))
    assert told.startswith("ProviderUnavailableError")
    assert "driver" in told
    assert "install" in told


@needs_openvino
@needs_opencl
@pytest.mark.parametrize(("name", "device"), [("openvino", "GPU.7"), ("opencl", "intel.7")])
def test_a_device_that_is_not_there(name: str, device: str) -> None:
    with pytest.raises(OptionError, match=rf"expected.*one of.*got.*{device}"):
        open_session(mixed_model(), [(name, {"device_id": device}), "cpu"])


# ---------------------------------------------------------------- it fails while a session is made


def failing(error: Exception) -> Any:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise error

    return fail


def refuse_to_compile(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the vendor's compiler refuse everything."""
    if name == "openvino":
        import openvino

        broken = RuntimeError("the plugin's compiler has no such kernel")
        monkeypatch.setattr(openvino.Core, "compile_model", failing(broken))
    else:
        from ep_opencl.device import OpenDevice

        broken = CompileError("the driver can't build it: no such kernel")
        monkeypatch.setattr(OpenDevice, "kernel", failing(broken))


@needs_openvino
@needs_opencl
@pytest.mark.parametrize("name", ["openvino", "opencl"])
def test_what_does_not_compile_runs_elsewhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of lengths that are known, OpenCL builds what it needs when a session is made.
    model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 20]>
        g (float[8,8] x, float[8,8] w) => (float[8,8] y) {
            a = MatMul (x, w)
            y = Softmax <axis = -1> (a)
        }""").SerializeToString()
    feeds = mixed_feeds()
    with open_session(model, ["cpu"]) as alone:
        right = alone.run(None, feeds)
    refuse_to_compile(name, monkeypatch)
    with open_session(model, [name, "cpu"], placement_strategy="greedy") as session:
        agree(session.run(None, feeds), right)
        report = session.get_placement()
    assert {node.provider for node in report.nodes[""]} == {"cpu"}
    assert "no such kernel" in " ".join(report.refused_claims)
    with pytest.raises(PlacementError, match=r"compile failed.*no such kernel"):
        open_session(model, [name], disable_cpu_fallback=True)


@needs_opencl
def test_weights_that_do_not_fit_run_elsewhere() -> None:
    weights = ", ".join(["0.5"] * 64 * 64)
    model = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 20]>
        g (float[4,64] x) => (float[4,64] y) <float[64,64] w = {{{weights}}}> {{
            a = MatMul (x, w)
            y = Relu (a)
        }}""").SerializeToString()
    feeds = {"x": np.ones((4, 64), np.float32)}
    settings = {"capacity": "8K"}
    with open_session(model, [("opencl", settings), "cpu"], placement_strategy="greedy") as session:
        (y,) = session.run(None, feeds)
        where = {node.op_type: node.provider for node in session.get_placement().nodes[""]}
    assert where["MatMul"] == "cpu"
    assert y.tolist() == [[32.0] * 64] * 4


# ---------------------------------------------------------------- it fails in a run

IN_A_RUN = {
    "memory": ("[GPU] clEnqueueNDRangeKernel, error code: -5 CL_OUT_OF_RESOURCES", AllocationError),
    "device": ("[GPU] CL_DEVICE_NOT_AVAILABLE", DeviceLostError),
}


@needs_openvino
@pytest.mark.parametrize(("message", "kind"), IN_A_RUN.values(), ids=IN_A_RUN)
def test_openvino_fails_in_a_run(
    message: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ep_openvino.request import Request

    feeds = mixed_feeds()
    with open_session(mixed_model(), ["openvino", "cpu"], placement_strategy="greedy") as session:
        right = session.run(None, feeds)
        monkeypatch.setattr(Request, "run", failing(RuntimeError(message)))
        with pytest.raises(kind, match="openvino") as caught:
            session.run(None, feeds)
        assert caught.value.fix
        monkeypatch.undo()
        agree(session.run(None, feeds), right)


@needs_opencl
@pytest.mark.parametrize(
    ("told", "kind"),
    [("OUT_OF_RESOURCES", AllocationError), ("DEVICE_NOT_AVAILABLE", DeviceLostError)],
)
def test_opencl_fails_in_a_run_between_others(
    told: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyopencl as cl

    from ep_opencl import device

    class Failure(cl.Error):  # pyopencl's own can't be made with a code
        code = getattr(cl.status_code, told)

    feeds = mixed_feeds()
    with open_session(mixed_model(), ["opencl", "cpu"], placement_strategy="greedy") as session:
        right = session.run(None, feeds)
        launch = failing(Failure(f"clEnqueueNDRangeKernel failed: {told}"))
        monkeypatch.setattr(device.cl, "enqueue_nd_range_kernel", launch)
        with pytest.raises(kind) as caught:
            session.run(None, feeds)
        assert caught.value.fix
        # The session is closed with the device as it is; what is left of the machine goes on.
    with open_session(mixed_model(), ["cpu"]) as elsewhere:
        agree(elsewhere.run(None, feeds), right)
    monkeypatch.undo()
    with open_session(mixed_model(), ["opencl", "cpu"], placement_strategy="greedy") as again:
        agree(again.run(None, feeds), right)
