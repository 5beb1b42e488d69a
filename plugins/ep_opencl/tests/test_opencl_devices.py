"""Discovery: what is told of devices, and what is said where there are none."""

from __future__ import annotations

import ctypes.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pyopencl as cl
import pytest
from opencl_harness import DEVICES, FACTORY, chosen, needs_device

from ep_opencl import devices, runtimes, trying
from ep_opencl.probe import run_trial
from ep_opencl.processor import instruction_set
from ep_sdk.processor import architecture


@needs_device
def test_devices_are_told_with_driver_and_version():
    device = DEVICES[0]
    assert device.provider == "opencl"
    assert device.name
    assert device.memory_bytes > 0
    assert device.speed is not None


@needs_device
def test_a_fingerprint_has_the_driver_and_no_model_of_a_processor():
    for device in DEVICES:
        assert device.properties["driver"] in device.fingerprint
        platform = device.id.partition(".")[0]
        assert platform in device.fingerprint
        if device.kind == "cpu":
            assert device.fingerprint.startswith(f"{architecture()}; ")
            assert device.name not in device.fingerprint
            assert not re.search(r"epyc|xeon|ryzen|core\(tm\)", device.fingerprint, re.IGNORECASE)


class Described:
    """As much of pyopencl's device as a fingerprint takes."""

    name = "  Shiny 9000 "
    driver_version = "7.1"
    version = "OpenCL 3.0 "
    native_vector_width_float = 8

    def __init__(self, kind):
        self.type = kind


def test_another_model_with_the_same_instructions_has_the_same_fingerprint(monkeypatch):
    monkeypatch.setattr(devices, "processor_facts", lambda: {"flags": "fpu avx2 fma sse4_2"})
    monkeypatch.setattr(devices, "architecture", lambda: "x86_64")
    first, second = Described(cl.device_type.CPU), Described(cl.device_type.CPU)
    second.name = "Dull 10"
    assert devices._fingerprint(first, "pocl") == "x86_64; avx2; pocl driver 7.1"
    assert devices._fingerprint(second, "pocl") == devices._fingerprint(first, "pocl")
    # Compiled code isn't exchanged between them all the same.
    assert devices._build_key(second) != devices._build_key(first)


def test_code_for_a_processor_is_kept_apart_by_everything_it_can_do(monkeypatch):
    keys = set()
    for flags in ("avx512f", "avx512f avx512_bf16"):
        monkeypatch.setattr(devices, "processor_facts", lambda flags=flags: {"flags": flags})
        keys.add(devices._build_key(Described(cl.device_type.CPU)))
    assert len(keys) == 2


def test_a_gpu_is_known_by_its_chip_and_driver():
    gpu = Described(cl.device_type.GPU)
    assert devices._fingerprint(gpu, "amd") == "Shiny 9000; amd driver 7.1"


def test_a_processor_declares_less_than_its_peak_and_more_with_more_cores(monkeypatch):
    monkeypatch.setattr(devices, "usable_cores", lambda: 4)
    processor = Described(cl.device_type.CPU)
    processor.max_clock_frequency = 3000
    speeds = []
    for units in (1, 4, 16):
        processor.max_compute_units = units
        speeds.append(devices._speed(processor, "intel"))
    one, four, all_but_four_forbidden = speeds
    # 8 lanes at 3 GHz, a multiplication and an addition each.
    assert one.flops_per_second < 48e9
    assert four.flops_per_second == pytest.approx(4 * one.flops_per_second)
    assert four.operator_seconds == one.operator_seconds
    assert all_but_four_forbidden == four


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu sse4_2 avx fma avx2 avx512f avx512dq avx512bw avx512vl avx512_vnni", "avx512"),
        ("fpu sse4_2 avx fma avx2 avx512f", "avx2"),
        ("fpu sse4_2 avx avx2", "avx"),
        ("fpu sse4_2", "sse4.2"),
        ("fp asimd sve", "sve"),
        ("fp asimd", "neon"),
        ("", "vectors of 4"),
    ],
)
def test_instruction_sets(flags, expected):
    assert instruction_set(flags, 4) == expected


@needs_device
def test_ids_are_the_same_each_time_and_name_the_platform():
    first = [device.id for device in FACTORY.devices()]
    assert first == [device.id for device in FACTORY.devices()]
    assert len(set(first)) == len(first)
    assert all("." in item for item in first)


def test_no_driver_says_what_to_install(monkeypatch):
    def no_platform():
        raise cl.LogicError("clGetPlatformIDs", -1001)

    monkeypatch.setattr(devices.cl, "get_platforms", no_platform)
    assert FACTORY.devices() == ()
    reason = FACTORY.why_unavailable()
    assert reason is not None
    assert "no OpenCL driver" in reason
    assert "pip install ep-opencl[cpu-runtime]" in reason


def test_a_driver_without_devices_is_told_apart(monkeypatch):
    monkeypatch.setattr(devices.cl, "get_platforms", list)
    assert "have no device" in str(FACTORY.why_unavailable())


@needs_device
def test_a_compiler_that_builds_nothing_makes_a_device_unusable(monkeypatch):
    fails = "error: unknown target CPU 'generic'"
    monkeypatch.setattr(devices, "compiler_failure", lambda *device: fails)
    monkeypatch.setattr(devices, "_short_name", lambda platform: "pocl")
    reason = str(FACTORY.why_unavailable())
    assert "unknown target CPU" in reason
    assert "pyopencl[pocl]" in reason


@pytest.fixture
def probe(tmp_path, monkeypatch):
    """Have drivers tried by a program of the test's, with an empty cache."""
    monkeypatch.setenv("EP_CACHE_DIR", str(tmp_path / "cache"))
    program = tmp_path / "probe.py"
    monkeypatch.setattr(trying, "_PROGRAM", program)
    trying.compiler_failure.cache_clear()
    yield program
    trying.compiler_failure.cache_clear()


def test_a_driver_that_ends_the_process_is_told(probe):
    probe.write_text(
        "import os, sys\n"
        "print('LLVM ERROR: Cannot select: fma', file=sys.stderr, flush=True)\n"
        "os.abort()"
    )
    assert trying.compiler_failure("key", "platform", 0) == "LLVM ERROR: Cannot select: fma"


def test_a_driver_that_ends_without_a_word_is_told(probe):
    probe.write_text("raise SystemExit(3)")
    assert trying.compiler_failure("key", "platform", 0) == "it ended with 3"


def test_a_driver_that_never_answers_is_told(probe, monkeypatch):
    monkeypatch.setattr(trying, "_PATIENCE_SECONDS", 0.2)
    probe.write_text("import time\ntime.sleep(60)")
    assert "no answer" in trying.compiler_failure("key", "platform", 0)


def test_a_driver_that_works_is_tried_once(probe):
    probe.write_text("")
    assert trying.compiler_failure("key", "platform", 0) is None
    probe.write_text("raise SystemExit(3)")
    trying.compiler_failure.cache_clear()
    assert trying.compiler_failure("key", "platform", 0) is None
    assert trying.compiler_failure("another driver", "platform", 0) is not None


def test_a_cache_that_cannot_be_written_costs_a_trial(probe, tmp_path):
    (tmp_path / "cache").write_text("a file")
    probe.write_text("")
    assert trying.compiler_failure("key", "platform", 0) is None


@needs_device
def test_the_trial_itself_works():
    found = next(item for item in devices.find_devices() if item.info.id == chosen().id)
    run_trial(found.device)


def run_listing(vendors):
    """What a new process says that can choose its drivers only there."""
    code = (
        "from ep_core.discovery.registry import registry\n"
        "from ep_core.errors import EpError\n"
        "try:\n"
        "    print(registry().factory('opencl').devices())\n"
        "except EpError as error:\n"
        "    print(error)\n"
    )
    environment = {**os.environ, "OCL_ICD_VENDORS": str(vendors)}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no file ends with .icd"),
        ("/nowhere/libnothing.so", "libnothing.so"),
        (str(ctypes.util.find_library("m")), "is no driver"),
    ],
    ids=["no file", "a missing library", "a library that is no driver"],
)
def test_a_folder_of_drivers_that_gives_none_is_explained(tmp_path, content, said):
    if content is not None:
        (tmp_path / "some.icd").write_text(content + "\n")
    told = run_listing(tmp_path)
    assert "no OpenCL driver is installed" in told
    assert f"OCL_ICD_VENDORS names {tmp_path}" in told
    assert said in told
    assert "pip install ep-opencl[cpu-runtime]" in told


def test_a_folder_of_drivers_that_is_missing_is_explained(tmp_path):
    assert "which isn't there" in run_listing(tmp_path / "nothing")


def test_finding_drivers_leaves_the_environment_alone():
    before = dict(os.environ)
    runtimes.find_drivers.cache_clear()
    runtimes.find_drivers()
    assert dict(os.environ) == before


def test_a_users_choice_of_drivers_stands(monkeypatch):
    monkeypatch.setenv("OCL_ICD_VENDORS", "/nowhere")
    with runtimes._visible_drivers([]):
        assert os.environ["OCL_ICD_VENDORS"] == "/nowhere"
    assert os.environ["OCL_ICD_VENDORS"] == "/nowhere"


def test_a_missing_library_of_a_driver_is_told(monkeypatch):
    real = runtimes.find_library

    def without_one(distribution, name):
        if name == "libsvml.so":
            return None
        return Path("libintelocl.so") if name == "libintelocl.so" else real(distribution, name)

    monkeypatch.setattr(runtimes, "find_library", without_one)
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    problems = []
    with runtimes._visible_drivers(problems):
        folder = Path(os.environ["OCL_ICD_VENDORS"])
        assert (folder / "intel-opencl-rt.icd").read_text() == "libintelocl.so\n"
    assert any("libsvml.so" in item and "missing" in item for item in problems)


def test_a_distribution_that_is_not_installed_has_no_library():
    assert runtimes.find_library("no-such-distribution", "libx.so") is None


@pytest.mark.parametrize(
    ("platform", "name"),
    [
        ("NVIDIA CUDA", "nvidia"),
        ("Intel(R) OpenCL Graphics", "intel"),
        ("Portable Computing Language", "pocl"),
        ("Some New Thing", "some-new-thing"),
    ],
)
def test_platforms_have_short_names(platform, name):
    assert devices._short_name(platform) == name
