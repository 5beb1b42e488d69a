"""Building kernels, and the cache of binaries."""

from __future__ import annotations

import pyopencl as cl
import pytest
from opencl_harness import chosen, needs_device

from ep_core.errors import CompileError
from ep_opencl.device import open_device
from ep_opencl.programs import Programs

pytestmark = needs_device

BODY = "__kernel void one(__global float *x) { x[get_global_id(0)] = 1.0f; }"


@pytest.fixture
def programs(tmp_path, monkeypatch):
    monkeypatch.setenv("EP_CACHE_DIR", str(tmp_path))

    def make(fingerprint="a"):
        device = open_device(chosen().id)
        return Programs(device.context, device.cl_device, fingerprint, "")

    return make


def cached(tmp_path):
    return sorted((tmp_path / "opencl" / "programs").glob("*.bin"))


def test_binaries_are_kept_and_found_again(programs, tmp_path, monkeypatch):
    programs().get("elementwise.cl", {}, BODY, keep=True)
    assert len(cached(tmp_path)) == 1

    def fail(self, text, file):
        raise AssertionError("built although a binary is there")

    monkeypatch.setattr(Programs, "_build", fail)
    program = programs().get("elementwise.cl", {}, BODY, keep=True)
    assert cl.Kernel(program, "one").num_args == 1


def test_another_driver_has_binaries_of_its_own(programs, tmp_path):
    programs("a").get("elementwise.cl", {}, BODY, keep=True)
    programs("b").get("elementwise.cl", {}, BODY, keep=True)
    assert len(cached(tmp_path)) == 2


@pytest.mark.parametrize("damage", [b"", b"rubbish", b"ep-opencl program 1\n" + b"0" * 50])
def test_damaged_files_are_built_anew(programs, tmp_path, damage):
    programs().get("elementwise.cl", {}, BODY, keep=True)
    (path,) = cached(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(damage)
    program = programs().get("elementwise.cl", {}, BODY, keep=True)
    assert cl.Kernel(program, "one").num_args == 1
    assert len(path.read_bytes()) == len(whole)


def test_a_folder_that_cannot_be_written_costs_only_time(programs, tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("EP_CACHE_DIR", str(blocked))
    program = programs().get("elementwise.cl", {}, BODY, keep=True)
    assert cl.Kernel(program, "one").num_args == 1


def test_without_the_cache_nothing_is_written(programs, tmp_path):
    programs().get("elementwise.cl", {}, BODY, keep=False)
    assert cached(tmp_path) == []


def test_a_kernel_that_does_not_build_is_a_compile_error(programs):
    broken = BODY.replace("1.0f", "no_such_function()")
    with pytest.raises(CompileError, match="no_such_function") as caught:
        programs().get("elementwise.cl", {}, broken, keep=True)
    assert "driver" in str(caught.value)
