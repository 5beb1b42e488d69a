"""Discovery: what is told of devices, and what is said where there are none."""

from __future__ import annotations

import os
from pathlib import Path

import pyopencl as cl
import pytest
from opencl_harness import DEVICES, FACTORY, needs_device

from ep_opencl import devices, runtimes


@needs_device
def test_devices_are_told_with_driver_and_version():
    device = DEVICES[0]
    assert device.provider == "opencl"
    assert device.name
    assert device.memory_bytes > 0
    assert device.properties["driver"] in device.fingerprint
    assert f"OpenCL {device.properties['OpenCL']}" in device.fingerprint
    assert device.speed is not None


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
    def fail(program, options):
        raise cl.RuntimeError("clBuildProgram failed: error: unknown target CPU 'generic'")

    monkeypatch.setattr(devices, "build_quietly", fail)
    monkeypatch.setattr(devices, "_short_name", lambda platform: "pocl")
    reason = str(FACTORY.why_unavailable())
    assert "unknown target CPU" in reason
    assert "pyopencl[pocl]" in reason


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
