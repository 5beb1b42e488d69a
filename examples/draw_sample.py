"""Draws `departures.png`, the picture that `ocr.py` reads.

The picture is committed; run this again only to change it. The font is the one inside Pillow, so
that nothing has to be installed and the picture comes out the same everywhere.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

PICTURE = Path(__file__).with_name("departures.png")
SIZE = (640, 288)
LINES = (
    "Departures  from  platform  4",
    "09:42  Innsbruck  via  Jenbach",
    "Ticket:  12.50  EUR,  2nd  class",
)
INK = (34, 40, 58)


def paper() -> Image.Image:
    """A sheet that is darker towards one corner and has a little grain."""
    width, height = SIZE
    across = np.linspace(0, 1, width)[None, :]
    down = np.linspace(0, 1, height)[:, None]
    shade = 246 - 26 * (across + down) / 2
    grain = np.random.default_rng(4).normal(0, 2.0, (height, width))
    grey = (shade + grain).clip(0, 255)
    return Image.fromarray(np.stack([grey, grey * 0.985, grey * 0.95], axis=-1).astype(np.uint8))


def main() -> None:
    picture = paper()
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(size=34)
    for row, line in enumerate(LINES):
        pen.text((36, 36 + 80 * row), line, fill=INK, font=font)
    picture.quantize(32).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
