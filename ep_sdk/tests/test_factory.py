from __future__ import annotations

import pytest

from ep_core.contracts import API_VERSION, ProviderInfo
from ep_core.errors import ProviderError, ProviderUnavailableError
from ep_core.types import DeviceInfo
from ep_sdk import ProviderBase, StandardFactory

INFO = ProviderInfo("chip", "1", API_VERSION)
DEVICE = DeviceInfo("chip", "0", "npu")


def raising(error):
    def list_devices():
        raise error

    return list_devices


def test_opens_a_device():
    factory = StandardFactory(INFO, lambda: [DEVICE], ProviderBase)
    assert factory.info is INFO
    assert list(factory.devices()) == [DEVICE]
    assert factory.why_unavailable() is None
    provider = factory.create(DEVICE, {"a": 1})
    assert (provider.info, provider.device, provider.options) == (INFO, DEVICE, {"a": 1})


def test_nothing_is_called_before_devices():
    StandardFactory(
        INFO, raising(AssertionError("too early")), raising(AssertionError("too early"))
    )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ProviderUnavailableError("the driver is too old"), "the driver is too old"),
        (ImportError("No module named 'chiplib'"), "can't be imported: No module named 'chiplib'"),
        (OSError("libchip.so: not found"), "failed: libchip.so: not found"),
    ],
)
def test_says_why_there_is_no_device(error, reason):
    factory = StandardFactory(INFO, raising(error), ProviderBase)
    assert list(factory.devices()) == []
    assert reason in factory.why_unavailable()
    with pytest.raises(ProviderUnavailableError, match="no device '0'"):
        factory.create(DEVICE, {})


def test_no_device_has_a_reason_too():
    factory = StandardFactory(INFO, list, ProviderBase)
    assert "found no device" in factory.why_unavailable()


def test_a_bug_while_listing_is_not_hidden():
    factory = StandardFactory(INFO, raising(ZeroDivisionError()), ProviderBase)
    with pytest.raises(ZeroDivisionError):
        factory.devices()


def test_failing_to_open_is_a_provider_error():
    def open_provider(info, device, options):
        raise RuntimeError("firmware says no")

    factory = StandardFactory(INFO, lambda: [DEVICE], open_provider)
    with pytest.raises(
        ProviderError, match="can't open device '0': RuntimeError: firmware says no"
    ):
        factory.create(DEVICE, {})


def test_unknown_device_gets_a_suggestion():
    factory = StandardFactory(INFO, lambda: [DeviceInfo("chip", "GPU.1", "gpu")], ProviderBase)
    with pytest.raises(ProviderUnavailableError, match=r"Did you mean 'GPU\.1'"):
        factory.create(DeviceInfo("chip", "GPU.2", "gpu"), {})


def test_close_closes_everything_once_even_if_something_fails():
    provider = ProviderBase(INFO, DEVICE, {})
    closed = []

    class Part:
        def __init__(self, name, fails=False):
            self.name = name
            self.fails = fails

        def close(self):
            closed.append(self.name)
            if self.fails:
                raise RuntimeError("stuck")

    first, second, third = Part("first"), Part("second", fails=True), Part("third")
    for part in (first, second, third):
        provider.track(part)
    provider.forget(third)
    with pytest.raises(RuntimeError, match="stuck"):
        provider.close()
    provider.close()
    assert closed == ["second", "first"]
    assert provider.closed
    with pytest.raises(ProviderError, match="'chip' is closed"):
        provider.track(third)
    assert closed == ["second", "first", "third"]
