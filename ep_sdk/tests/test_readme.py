"""The provider in the README is installed as it stands, discovered, and used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ep_sdk.simulator import INFO

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
PROVIDER = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
ENTRY_POINT = re.search(
    r"```toml\n\[project\.entry-points\.\"(.*?)\"\]\n(.*?)```", README, re.DOTALL
)

USE = """
import numpy as np, onnx
from ep_core import InferenceSession, SessionOptions
from ep_core.errors import PlacementError

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
MODEL = HEAD + '''g (float[2,3] x) => (float[3,2] y)
    <int64[2] shape = {0, -1}, float[1] one = {1}> {
    a = LeakyRelu <alpha = 0.5> (x)
    b = Add(a, one)
    c = Reshape(b, shape)
    y = Add(c, one)
}'''
settings = SessionOptions()
settings.disable_cpu_fallback = True
settings.certificate_policy = "off"


def open_session(text):
    model = onnx.parser.parse_model(text).SerializeToString()
    return InferenceSession(model, settings, [("minichip", {"profile": "on"})])


with open_session(MODEL) as session:
    x = np.float32([[-2, 0, 2], [4, -4, 1]])
    for _ in range(3):
        (y,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, np.where(x < 0, x / 2, x) + 2)
try:
    open_session(HEAD + 'g (float[2,3] x, int64[2] s) => (float[N,M] y) { y = Reshape(x, s) }')
except PlacementError as error:
    assert "needs a constant 'shape'" in str(error), error
else:
    raise AssertionError("a shape that isn't constant was claimed")
print("fine")
"""


def test_the_provider_is_sixty_lines_at_most():
    assert len(PROVIDER.splitlines()) <= 60


def test_the_provider_installs_and_runs(tmp_path):
    (tmp_path / "ep_minichip.py").write_text(PROVIDER, encoding="utf-8")
    group, points = ENTRY_POINT.groups()
    metadata = tmp_path / "ep_minichip-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ep-minichip\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n" + points.replace('"', ""))
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{USE}"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)},
    )
    assert done.stdout.strip() == "fine", done.stderr


@pytest.mark.parametrize("name", sorted(INFO.options))
def test_every_option_of_the_simulator_is_described(name):
    assert f"`{name}`" in README
