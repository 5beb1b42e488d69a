"""What the package offers, held as a list: adding or losing a name is a decision."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ep_core

NAMES = [
    "API_VERSION",
    "CertificatePolicy",
    "EpError",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "LoadLimits",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "PlacementReport",
    "RunOptions",
    "SessionOptions",
    "get_available_providers",
    "hookimpl",
]


def test_public_names():
    assert ep_core.__all__ == NAMES
    for name in NAMES:
        assert getattr(ep_core, name) is not None
        assert name in dir(ep_core)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="InferenceSesion"):
        ep_core.InferenceSesion  # noqa: B018


def test_importing_the_package_loads_none_of_its_rooms():
    code = "import sys, ep_core; print([m for m in sys.modules if m.startswith('ep_core.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
