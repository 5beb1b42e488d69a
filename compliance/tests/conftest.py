"""Makes the zoo importable, and installs some of its animals as distributions."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from ep_core.discovery.registry import registry

ZOO = Path(__file__).parent / "zoo"
sys.path.insert(0, str(ZOO))

# A provider that is loaded first would keep it from being imported at all.
importlib.import_module("onnx.reference")

INSTALLED = (
    "correct",
    "crashes",
    "hangs",
    "exits",
    "forks",
    "scribbles",
    "chatters",
    "cant_open",
    "careless",
)


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """A distribution `zoo-x` for each animal that needs a process of its own."""
    folder = tmp_path_factory.mktemp("site")
    info = folder / "zoo_all-1.0.dist-info"
    info.mkdir()
    points = "".join(f"{name} = zoo_process:{name}\n" for name in INSTALLED)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo-all\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[ep_core.providers]\n{points}")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("EP_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("EP_PROBE_TIMEOUT", "0")
        registry().recheck()
        yield folder
    registry().recheck()
