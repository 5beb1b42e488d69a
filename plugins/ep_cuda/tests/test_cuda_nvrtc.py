"""Compiling without a device: NVRTC alone, where it is installed."""

from __future__ import annotations

from ctypes.util import find_library

import pytest

from ep_core.errors import CompileError, ProviderUnavailableError
from ep_cuda.dialect import OPTIONS, text_of
from ep_cuda.needs import NVRTC_VARIABLE, find_nvrtc
from ep_cuda.nvrtc import Nvrtc, target_for

LIBRARY = find_nvrtc()
needs_nvrtc = pytest.mark.skipif(LIBRARY is None, reason="NVRTC isn't installed")

ARCHITECTURES = (75, 80, 86, 90, 100, 120)


@pytest.mark.parametrize(
    ("capability", "target"),
    [
        ((7, 5), "sm_75"),
        ((8, 0), "sm_80"),
        ((8, 9), "sm_86"),  # code of 8.6 runs on 8.9
        ((9, 0), "sm_90"),
        ((11, 0), "compute_100"),  # no code for this major version: the driver translates
        ((13, 0), "compute_120"),
        ((7, 0), None),  # older than all
        ((6, 1), None),
    ],
)
def test_what_to_compile_for(capability, target):
    assert target_for(capability, ARCHITECTURES) == target


def test_a_library_that_isnt_there_is_told_of():
    with pytest.raises(ProviderUnavailableError, match="NVRTC can't be loaded"):
        Nvrtc("/nowhere/libnvrtc.so")


def test_a_library_that_is_something_else_is_told_of():
    with pytest.raises(ProviderUnavailableError, match="is no NVRTC"):
        Nvrtc(find_library("c") or "msvcrt")


@needs_nvrtc
def test_a_kernel_is_compiled():
    compiler = Nvrtc(LIBRARY)
    assert compiler.version() >= (11, 2)
    target = f"sm_{compiler.architectures()[0]}"
    text = text_of("moving.cl", {"UNIT": "float", "RANK": 1, "MODE": 0})
    code = compiler.compile(text, "moving.cl", target, OPTIONS)
    assert code[:4] == b"\x7fELF"


@needs_nvrtc
def test_an_error_has_the_line_of_the_log():
    compiler = Nvrtc(LIBRARY)
    target = f"sm_{compiler.architectures()[0]}"
    with pytest.raises(CompileError) as caught:
        compiler.compile("__global__ void f() { nonsense; }", "bad.cu", target, OPTIONS)
    assert "bad.cu" in str(caught.value)
    assert "nonsense" in str(caught.value)
    assert "nvidia-cuda-nvrtc" in str(caught.value)


@needs_nvrtc
def test_a_variable_that_names_nothing_is_an_error_in_words(monkeypatch):
    monkeypatch.setenv(NVRTC_VARIABLE, "/nowhere/at/all.so")
    with pytest.raises(ProviderUnavailableError, match="/nowhere/at/all"):
        Nvrtc(find_nvrtc())
