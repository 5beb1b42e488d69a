"""An open provider for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openvino_harness import open_provider

from ep_openvino.provider import OpenVinoProvider


@pytest.fixture(scope="module")
def provider() -> Iterator[OpenVinoProvider]:
    """The provider of the CPU."""
    opened = open_provider()
    yield opened
    opened.close()
