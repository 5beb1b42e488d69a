"""From `ep new` to a certificate: what a vendor's first day looks like."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ep_sdk.new import KINDS, create_project


class Vendor:
    """A new provider `my_chip`, installed as from its folder, and commands run beside it."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.package = create_project("my_chip", folder, kind=kind)
        self.certificates = self.package / "src/ep_my_chip/certificates"
        site = folder / "site"
        info = site / "ep_my_chip-0.1.0.dist-info"
        info.mkdir(parents=True)
        info.joinpath("METADATA").write_text(
            "Metadata-Version: 2.1\nName: ep-my-chip\nVersion: 0.1.0\n"
        )
        project = tomllib.loads((self.package / "pyproject.toml").read_text())["project"]
        lines = []
        for group, points in project["entry-points"].items():
            lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
        info.joinpath("entry_points.txt").write_text("\n".join(lines))
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(site), str(self.package / "src")]),
            "EP_CACHE_DIR": str(folder / "cache"),
            "XDG_DATA_HOME": str(folder / "data"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "EP_CERTIFICATE_POLICY": "enforce",
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.package,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_package_passes_its_tests_and_the_suite(tmp_path, kind):
    vendor = Vendor(tmp_path, kind)
    chosen = "ep_my_chip or life or claims or memory or Relu-14 or Add-14"
    done = vendor.run("-m", "pytest", "-q", "-W", "error", "-k", chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed" not in done.stdout
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 10


RELU = """
import numpy as np, onnx.parser
from ep_core import InferenceSession, SessionOptions
from ep_core.errors import PlacementError
model = onnx.parser.parse_model(
    '<ir_version: 9, opset_import: ["": 20]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
)
options = SessionOptions()
options.disable_cpu_fallback = True
try:
    with InferenceSession(model.SerializeToString(), options, providers=["my_chip"]) as session:
        print(session.run(None, {"x": np.array([-1, 2], np.float32)})[0], session.get_placement())
except PlacementError as error:
    print(error)
"""


def test_a_new_package_gets_a_certificate_and_is_trusted(tmp_path):
    vendor = Vendor(tmp_path, "kernel")
    assert "uncertified: run `ep certify my_chip`" in vendor.run("-c", RELU).stdout
    folder = str(vendor.certificates)
    certify = ["certify", "my_chip", "--level", "mustpass", "--certificate-folder", folder]
    done = vendor.run("-m", "ep_tools", *certify)
    assert done.returncode == 0, done.stdout + done.stderr
    verify = vendor.run("-m", "ep_tools", "certificate", "verify", "my_chip")
    assert verify.returncode == 0, verify.stdout
    assert vendor.run("-c", RELU).stdout.startswith("[0. 2.] my_chip 1 of 1 node;")
    kernels = vendor.package / "src/ep_my_chip/kernels.py"
    kernels.write_text(kernels.read_text().replace("np.maximum", "np.minimum"))
    changed = vendor.run("-c", RELU).stdout
    assert "uncertified" in changed
    assert "the installed files have changed since it was made" in changed
