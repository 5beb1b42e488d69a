"""Devices, and why there are none."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from tensorrt_harness import needs_library

from ep_tensorrt import devices
from ep_tensorrt.factory import make_factory
from ep_tensorrt.library import MODULES, Library, open_library


def test_without_a_library_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in MODULES else find(name)
    )
    open_library.cache_clear()
    try:
        factory = make_factory()
        assert factory.devices() == ()
        assert "neither TensorRT nor TensorRT-RTX is installed" in str(factory.why_unavailable())
    finally:
        open_library.cache_clear()


def stand_in(*, builds_anywhere: bool) -> Library:
    targets: dict[str, Any] = {"sm_89": object(), "sm_120": object()} if builds_anywhere else {}
    return Library(None, "Stand-in", "1.0", builds_anywhere, targets, False, None)


@pytest.fixture
def rtx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "open_library", lambda: stand_in(builds_anywhere=True))


@pytest.mark.usefixtures("rtx")
def test_a_target_is_a_device_that_only_builds() -> None:
    (device,) = make_factory().devices()
    assert (device.id, device.fingerprint) == ("0", "sm_89; Stand-in 1.0")
    assert device.properties[devices.BUILD_ONLY] == "yes"


@pytest.mark.usefixtures("rtx")
def test_a_target_that_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(devices.TARGET_VARIABLE, "sm_98")
    reason = str(make_factory().why_unavailable())
    assert "expected one of sm_89, sm_120" in reason
    assert "got sm_98" in reason


def test_the_full_library_builds_only_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "open_library", lambda: stand_in(builds_anywhere=False))
    assert "builds engines only on the GPU" in str(make_factory().why_unavailable())


@pytest.mark.usefixtures("rtx")
def test_without_a_driver_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(devices.TARGET_VARIABLE)
    monkeypatch.setattr(devices, "_DRIVER", "libnothing.so.7")
    reason = str(make_factory().why_unavailable())
    assert "no NVIDIA driver (libnothing.so.7 can't be loaded)" in reason
    assert "set EP_TENSORRT_TARGET" in reason


@needs_library
def test_the_library_names_its_targets() -> None:
    library = open_library()
    assert library.name == "TensorRT-RTX"
    assert {"sm_75", "sm_89", "sm_120"} <= library.targets.keys()
