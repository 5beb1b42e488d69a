"""Every test runs on every OpenCL device that the machine has."""

from __future__ import annotations

import pytest
from opencl_harness import DEVICES, choose, open_provider


@pytest.fixture(autouse=True, params=[device.id for device in DEVICES] or ["no device"])
def _device(request):
    """Choose the device."""
    for device in DEVICES:
        if device.id == request.param:
            choose(device)


@pytest.fixture
def provider():
    """A provider of the device."""
    opened = open_provider()
    yield opened
    opened.close()
