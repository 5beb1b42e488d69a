"""No GPU of the machine is used: engines are built for a target that is named."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build for GPUs of compute capability 8.9."""
    monkeypatch.setenv("EP_TENSORRT_TARGET", "sm_89")
