"""Tests that ask for `provider` run on every CUDA device that the machine has."""

from __future__ import annotations

import pytest
from cuda_harness import DEVICES, open_provider, why_skipped


@pytest.fixture(params=[device.id for device in DEVICES] or ["no device"])
def provider(request):
    """A provider of the device; skips where there is none, with the reason."""
    if not DEVICES:
        pytest.skip(why_skipped())
    opened = open_provider(request.param)
    yield opened
    opened.close()
