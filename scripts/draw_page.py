"""Draws `docs/pictures/explain-*.png`: the page of `ep explain --html` in a real browser.

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
LARGE = Path(onnx.__file__).parent / "backend/test/data/light/light_densenet121.onnx"
"""A model of 1,746 nodes that comes with the package onnx."""


@dataclass(frozen=True)
class Picture:
    """One picture: a model, how to explain it, and what of the page to show."""

    name: str
    model: Path
    arguments: tuple[str, ...]
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
    """Draw both pictures."""
    browser_path = find_browser()
    if browser_path is None:
        sys.stderr.write("no browser: install chromium, or name one in EP_BROWSER\n")
        return 1
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pictures = (
            Picture("explain-small", example(folder), (), "#node=TopK_2&theme=light"),
            Picture("explain-large", LARGE, ("--level", "0"), "#tab=copies&theme=light"),
        )
        browser = Browser(browser_path, folder, WIDTH, HEIGHT)
        try:
            for picture in pictures:
                page = folder / f"{picture.name}.html"
                wish = ["--providers", "simulator,cpu", "--html", str(page)]
                if ep(["explain", str(picture.model), *picture.arguments, *wish]) != 0:
                    return 1
                browser.open(page, picture.address)
                image = Image.open(io.BytesIO(browser.screenshot())).convert("RGB")
                target = PICTURES / f"{picture.name}.png"
                image.quantize(128, dither=Image.Dither.NONE).save(target, optimize=True)
                sys.stdout.write(f"{target.relative_to(ROOT)}\n")
        finally:
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
