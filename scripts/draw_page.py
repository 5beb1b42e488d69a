"""Draws `docs/pictures/explain-*.png`: the pages of `ep explain` and `ep profile` in a browser.

Needs chromium (Debian: apt-get install chromium), or another browser named in EP_BROWSER.

    python scripts/draw_page.py
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx.parser
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
sys.path.insert(0, str(ROOT / "ep_tools" / "tests"))

from headless import (  # type: ignore[import-not-found]  # noqa: E402 - through the line above
    Browser,
    find_browser,
)

from ep_tools.cli import main as ep  # noqa: E402

WIDTH, HEIGHT = 1440, 860
PROVIDERS = ("--providers", "simulator,cpu")
SPEED = ("--provider-option", "simulator.speed=1e12,1e11,1e-5,1e-4,1e-4,1e10")
"""A device that is ten times as fast as the CPU provider, and not near."""
SLOW = (
    *("--provider-option", "simulator.speed=1e12,1e11,6e-4,1e-4,1.5e-3,1e10"),
    *("--provider-option", "simulator.kernel_latency_us=700"),
    *("--provider-option", "simulator.copy_latency_us=1600"),
)
"""One that takes so long that its times are well seen, and tells nearly the truth about them."""
LARGE = Path(onnx.__file__).parent / "backend/test/data/light/light_densenet121.onnx"
"""A model of 1,746 nodes that comes with the package onnx."""


@dataclass(frozen=True)
class Picture:
    """One picture: the command that writes the page, without `--html`, and what of it to show."""

    name: str
    command: tuple[str, ...]
    address: str


def example(folder: Path) -> Path:
    """The model of the README's first example, saved."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r'parse_model\("""(.*?)"""\)', readme, re.DOTALL)
    if found is None:
        raise LookupError("README.md has no model any more")
    path = folder / "ranking.onnx"
    onnx.save(onnx.parser.parse_model(found[1]), path)
    return path


def main() -> int:
    """Draw all pictures."""
    browser_path = find_browser()
    if browser_path is None:
        sys.stderr.write("no browser: install chromium, or name one in EP_BROWSER\n")
        return 1
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pinned = ("--pin", "op:Softmax=simulator", "--out", str(folder / "trace.json"))
        small = ("profile", str(example(folder)), *PROVIDERS, *SLOW, *pinned)
        large = ("explain", str(LARGE), "--level", "0", *PROVIDERS, *SPEED)
        pictures = (
            Picture("explain-small", small, "#node=TopK_2&theme=light&timeline=measured"),
            Picture("explain-large", large, "#tab=copies&theme=light"),
            Picture(
                "explain-times",
                large,
                "#tab=times&theme=dark&colour=predicted&timeline=predicted",
            ),
        )
        browser = Browser(browser_path, folder, WIDTH, HEIGHT)
        try:
            for picture in pictures:
                page = folder / f"{picture.name}.html"
                if ep([*picture.command, "--html", str(page)]) != 0:
                    return 1
                browser.open(page, picture.address)
                image = Image.open(io.BytesIO(browser.screenshot())).convert("RGB")
                target = PICTURES / f"{picture.name}.png"
                # The method that keeps the rare colours of a scale as well as those of the ground.
                few = image.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
                few.save(target, optimize=True)
                sys.stdout.write(f"{target.relative_to(ROOT)}\n")
        finally:
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
