"""Reads the text in a picture: one model finds the lines, a second one reads each of them.

    python examples/ocr.py [PICTURE]

Both models come from the rapidocr-onnxruntime package (Apache-2.0), of which only the two ONNX
files are used. They run through `ep_core.InferenceSession`, which finds its providers as plugins.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from ep_core import InferenceSession
from pretrained import fetch

SAMPLE = Path(__file__).with_name("departures.png")
LONGEST_SIDE = 960
INK_THRESHOLD = 0.3
"""A pixel of the detector's map belongs to text above this probability."""
UNCLIP_RATIO = 1.6
"""The detector was trained on shrunken boxes: they grow by `ratio * area / perimeter`."""
LINE_HEIGHT = 48
"""Height in pixels of the strips that the reading model was trained on."""


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels; `bottom` and `right` are one past the end."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def height(self) -> int:
        return self.bottom - self.top

    @property
    def width(self) -> int:
        return self.right - self.left


@dataclass(frozen=True)
class Line:
    """One line of text, where it stands and how sure the model is (0 to 1)."""

    text: str
    confidence: float
    box: Box


def to_tensor(picture: Image.Image) -> np.ndarray:
    """Make float32 [1, 3, height, width] between -1 and 1, channels in blue-green-red order."""
    pixels = np.asarray(picture, dtype=np.float32)[:, :, ::-1]
    return np.ascontiguousarray((pixels / 127.5 - 1.0).transpose(2, 0, 1)[None])


# ---------------------------------------------------------------- finding lines


def find_lines(detector: InferenceSession, picture: Image.Image) -> list[Box]:
    """Return the boxes of the text lines, from top to bottom."""
    scale = min(1.0, LONGEST_SIDE / max(picture.size))
    width, height = (max(32, round(side * scale / 32) * 32) for side in picture.size)
    resized = picture.resize((width, height), Image.Resampling.BILINEAR)
    (probability,) = detector.run(None, {detector.get_inputs()[0].name: to_tensor(resized)})
    regions = split_regions(probability[0, 0] > INK_THRESHOLD, Box(0, height, 0, width))
    return [unclip(box, (width, height), picture.size) for box in regions if box.height > 2]


def split_regions(ink: np.ndarray, box: Box) -> Iterator[Box]:
    """Cut along empty rows, then along empty columns, until nothing can be cut any more.

    This XY cut (Nagy and Seth, 1984) takes bool [height, width] and is enough for upright text.
    """
    for top, bottom in runs(np.any(ink[box.top : box.bottom, box.left : box.right], axis=1)):
        rows = ink[box.top + top : box.top + bottom, box.left : box.right]
        for left, right in runs(np.any(rows, axis=0)):
            part = Box(box.top + top, box.top + bottom, box.left + left, box.left + right)
            if part == box:
                yield part
            else:
                yield from split_regions(ink, part)


def runs(present: np.ndarray) -> list[tuple[int, int]]:
    """Return start and end of each stretch of True in bool [n]."""
    padded = np.concatenate([[False], present, [False]])
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def unclip(box: Box, mapped: tuple[int, int], original: tuple[int, int]) -> Box:
    """Grow a box to the whole letters and bring it from the map's pixels to the picture's."""
    grow = UNCLIP_RATIO * box.width * box.height / (2 * (box.width + box.height))
    across = original[0] / mapped[0]
    down = original[1] / mapped[1]
    return Box(
        top=max(0, round((box.top - grow) * down)),
        bottom=min(original[1], round((box.bottom + grow) * down)),
        left=max(0, round((box.left - grow) * across)),
        right=min(original[0], round((box.right + grow) * across)),
    )


# ---------------------------------------------------------------- reading lines


def alphabet(reader: InferenceSession) -> list[str]:
    """Return the character of each class; the model carries the list in its metadata.

    Class 0 is the blank of the CTC code, and the space comes after the listed characters.
    """
    listed = reader.get_modelmeta().custom_metadata_map["character"]
    return ["", *listed.split("\n"), " "]


def read_line(reader: InferenceSession, picture: Image.Image, box: Box) -> Line:
    """Read the text inside one box."""
    strip = picture.crop((box.left, box.top, box.right, box.bottom))
    width = max(LINE_HEIGHT, round(box.width * LINE_HEIGHT / box.height))
    strip = strip.resize((width, LINE_HEIGHT), Image.Resampling.BICUBIC)
    (probability,) = reader.run(None, {reader.get_inputs()[0].name: to_tensor(strip)})
    text, confidence = decode(probability[0], alphabet(reader))
    return Line(text, confidence, box)


def decode(probability: np.ndarray, characters: list[str]) -> tuple[str, float]:
    """Decode float32 [steps, classes] by best path: drop repeats, then blanks.

    Connectionist temporal classification, Graves et al. 2006, section 3.2.
    """
    best = probability.argmax(axis=1)
    fresh = np.concatenate([[True], best[1:] != best[:-1]])
    kept = np.flatnonzero(fresh & (best != 0))
    text = "".join(characters[index] for index in best[kept])
    confidence = float(probability[kept, best[kept]].mean()) if len(kept) else 0.0
    return text, confidence


# ---------------------------------------------------------------- the program


def main() -> int:
    parser = argparse.ArgumentParser(description="Read the text in a picture.")
    parser.add_argument("picture", nargs="?", type=Path, default=SAMPLE)
    chosen = parser.parse_args().picture
    picture = Image.open(chosen).convert("RGB")
    models = fetch("ocr-detect"), fetch("ocr-recognise")

    begin = time.perf_counter()
    detector, reader = (InferenceSession(model) for model in models)
    loaded = time.perf_counter()
    boxes = find_lines(detector, picture)
    lines = [read_line(reader, picture, box) for box in boxes]
    finished = time.perf_counter()

    print(f"In the picture {chosen} ({picture.width} x {picture.height}) stands:\n")
    for line in lines:
        place = f"x {line.box.left}-{line.box.right}, y {line.box.top}-{line.box.bottom}"
        print(f"    {line.text:<32} {line.confidence:6.1%} sure, at {place}")
    print(f"\nFinding the lines: {detector.get_placement()}")
    print(f"Reading a line:    {reader.get_placement()}")
    print(f"\nTwo models ready in {loaded - begin:.2f} s, text found in {finished - loaded:.2f} s")
    return 0 if lines else 1


if __name__ == "__main__":
    sys.exit(main())
