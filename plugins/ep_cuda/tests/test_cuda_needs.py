"""What is told where CUDA, or a part of what is needed, isn't there."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys

import pytest

from ep_core.errors import ProviderUnavailableError
from ep_cuda import INFO, ep_provider_factory, needs


@pytest.fixture
def nothing(monkeypatch):
    """A machine without anything of CUDA."""

    def refuse(name):
        raise OSError(f"{name}: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(needs, "files", lambda name: ())
    monkeypatch.delenv(needs.NVRTC_VARIABLE, raising=False)


@pytest.mark.usefixtures("nothing")
def test_everything_that_is_missing_is_told_at_once():
    with pytest.raises(ProviderUnavailableError) as caught:
        needs.check_needs()
    text = str(caught.value)
    assert "no NVIDIA driver" in text
    assert "scripts/build_pycuda_wheel.py" in text
    assert "ep-cuda[nvrtc]" in text


@pytest.mark.usefixtures("nothing")
def test_the_factory_lists_no_device_and_says_why():
    factory = ep_provider_factory()
    assert list(factory.devices()) == []
    assert "no NVIDIA driver" in factory.why_unavailable()


def test_a_driver_that_is_broken_is_told_in_its_own_words(monkeypatch, nothing):
    def refuse(name):
        raise OSError("invalid ELF header")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    with pytest.raises(ProviderUnavailableError, match="invalid ELF header"):
        needs.check_needs()


def test_only_what_is_missing_is_told(monkeypatch, nothing):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    needs.check_needs()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ProviderUnavailableError) as caught:
        needs.check_needs()
    assert "pycuda" in str(caught.value)
    assert "driver" not in str(caught.value)


def test_the_variable_names_nvrtc_before_all_others(monkeypatch):
    monkeypatch.setenv(needs.NVRTC_VARIABLE, "/somewhere/libnvrtc.so")
    assert needs.find_nvrtc() == "/somewhere/libnvrtc.so"


def test_importing_the_package_loads_nothing_of_cuda():
    assert INFO.name == "cuda"
    assert not INFO.auto
    modules = {"pycuda", "ep_cuda.device", "ep_cuda.provider"}
    program = f"import ep_cuda, sys; assert not {modules!r} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [("gpu_mem_limit", -1), ("gpu_mem_limit", "much"), ("arena_extend_strategy", "kNone")],
)
def test_options_that_dont_fit_are_refused(name, value):
    with pytest.raises(ValueError, match="expected"):
        INFO.options[name].parse(value)


def test_options_take_the_words_of_onnxruntime():
    assert INFO.options["gpu_mem_limit"].parse("2147483648") == 2**31
    strategy = INFO.options["arena_extend_strategy"].parse("kNextPowerOfTwo")
    assert strategy == "kNextPowerOfTwo"
