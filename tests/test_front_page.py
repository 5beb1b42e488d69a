"""The front page keeps its word: its code runs, and the provider it shows is found and used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
USE_THE_PROVIDER = """
import numpy as np
import onnx.parser
from ep_core import InferenceSession

model = onnx.parser.parse_model(
    '<ir_version: 9, opset_import: ["" : 20]> g (float[3] x) => (float[3] y) { y = Relu (x) }'
)
with InferenceSession(model.SerializeToString(), providers=["mynpu"]) as session:
    (y,) = session.run(None, {"x": np.array([-1, 0, 2], np.float32)})
    print(y.tolist(), session.get_placement().summary)
"""


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text("utf-8"), re.M | re.S)


def run_python(program: str, path: Path, **settings: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(path), "XDG_CACHE_HOME": str(path / "cache")}
    environment |= settings
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"{program}\n{done.stderr}", pytrace=False)
    return done.stdout


def test_usage_block_runs_and_prints_the_shown_report(tmp_path: Path) -> None:
    usage, _ = blocks("python")
    printed = run_python(usage, tmp_path)
    assert printed.strip() in [block.strip() for block in blocks("text")]


def test_provider_block_is_a_provider(tmp_path: Path) -> None:
    _, provider = blocks("python")
    (entry_point,) = blocks("toml")
    assert entry_point == '[project.entry-points."ep_core.providers"]\nmynpu = "mynpu"\n'
    metadata = tmp_path / "mynpu-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mynpu\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text("[ep_core.providers]\nmynpu = mynpu\n")
    (tmp_path / "mynpu.py").write_text(provider)
    # As the page says for a provider that is being written.
    assert "EP_CERTIFICATE_POLICY=warn" in README.read_text("utf-8")
    printed = run_python(USE_THE_PROVIDER, tmp_path, EP_CERTIFICATE_POLICY="warn")
    assert printed.strip() == "[0.0, 0.0, 2.0] mynpu 1 of 1 node; no copies"
