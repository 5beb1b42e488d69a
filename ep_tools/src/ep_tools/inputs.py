"""The words of a command line that say what to feed: `x=file.npy`, `x=random:7`, `x=1,2,3`.

Only text is looked at here; files are read, and values made, in `feeds`.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "ArrayFile",
    "ImageFile",
    "InputSource",
    "LiteralValue",
    "RandomValues",
    "parse_dim",
    "parse_input",
    "parse_memory_limit",
    "parse_pin",
    "parse_provider_option",
    "parse_shape",
]

IMAGE_SUFFIXES = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)
FORMS = (
    "NAME=FILE.npy, NAME=FILE.npz, NAME=FILE.npz:KEY, NAME=IMAGE.png, NAME=random[:SEED], "
    "NAME=NUMBER, NAME=1,2,3 or NAME='\"TEXT\"'"
)


@dataclass(frozen=True, slots=True)
class ArrayFile:
    """A `.npy` file, or one array of a `.npz` file; without a key its only one."""

    path: Path
    key: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.key}" if self.key else str(self.path)


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image, resized to fit the input."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class RandomValues:
    """Values drawn by the input's type and shape; the same seed gives the same values."""

    seed: int = 0

    def __str__(self) -> str:
        return f"random:{self.seed}"


@dataclass(frozen=True, slots=True)
class LiteralValue:
    """A value written out: a number, true, false, a text, or a list of them, nested or not."""

    value: Any

    def __str__(self) -> str:
        return json.dumps(self.value)


InputSource = ArrayFile | ImageFile | RandomValues | LiteralValue


def parse_input(text: str) -> tuple[str, InputSource]:
    """Return name and source of one `--input`.

    Raises:
        argparse.ArgumentTypeError: the text has none of the known forms.
    """
    name, equals, what = text.partition("=")
    if not name or not equals or not what:
        raise argparse.ArgumentTypeError(f"'{text}' isn't one of {FORMS}")
    seeded = re.fullmatch(r"random(?::(\d{1,18}))?", what)
    if seeded:
        return name, RandomValues(int(seeded[1] or 0))
    archive = re.fullmatch(r"(.+\.npz):(.+)", what, flags=re.IGNORECASE)
    if archive:
        return name, ArrayFile(Path(archive[1]), archive[2])
    # A literal can't be taken for a file: none ends in one of these.
    path = Path(what)
    suffix = path.suffix.lower()
    if suffix in {".npy", ".npz"}:
        return name, ArrayFile(path)
    if suffix in IMAGE_SUFFIXES:
        return name, ImageFile(path)
    return name, LiteralValue(_literal(what))


def _literal(text: str) -> Any:
    """Read JSON; values with commas between them are a list, as `1,2,3` is `[1, 2, 3]`."""
    try:
        values = json.loads(f"[{text}]")
    # Beside bad syntax: thousands of digits, thousands of brackets.
    except (ValueError, RecursionError):
        values = []
    if not values or not _is_plain(values):
        raise argparse.ArgumentTypeError(f"can't tell what '{text}' is; expected {FORMS}")
    return values[0] if len(values) == 1 else values


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return isinstance(value, (bool, int, float, str))


def parse_dim(text: str) -> tuple[str, int]:
    """Return name and length of one `--dim NAME=INT`.

    Raises:
        argparse.ArgumentTypeError: no name, or not a whole number of at least 0.
    """
    name, _, length = text.rpartition("=")
    if not name or not re.fullmatch(r"[0-9]{1,18}", length):
        raise argparse.ArgumentTypeError(f"'{text}' isn't NAME=INT, such as batch=4")
    return name, int(length)


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Return name and lengths of one `--shape NAME=INT,INT,...`.

    Raises:
        argparse.ArgumentTypeError: no name, or not whole numbers of at least 0.
    """
    name, _, lengths = text.rpartition("=")
    if not name or not re.fullmatch(r"[0-9]{1,18}(,[0-9]{1,18})*", lengths):
        raise argparse.ArgumentTypeError(f"'{text}' isn't NAME=INT,INT,..., such as x=1,3,224,224")
    return name, tuple(map(int, lengths.split(",")))


def parse_pin(text: str) -> tuple[str, str]:
    """Return pattern and provider of one `--pin PATTERN=PROVIDER`; a pattern may hold `=`.

    Raises:
        argparse.ArgumentTypeError: a part is missing.
    """
    pattern, _, provider = text.rpartition("=")
    if not pattern or not provider:
        raise argparse.ArgumentTypeError(f"'{text}' isn't PATTERN=PROVIDER, such as op:Conv=cpu")
    return pattern, provider


def parse_memory_limit(text: str) -> tuple[str, int]:
    """Return provider and bytes of one `--memory-limit PROVIDER=SIZE`, such as `npu=512MiB`.

    Raises:
        argparse.ArgumentTypeError: it is anything else. K, M, G and T are powers of 1024.
    """
    found = re.fullmatch(r"([^=]+)=(\d+) ?([KMGT]?)(?:i?B)?", text, flags=re.IGNORECASE | re.ASCII)
    if not found or len(found[2]) > 18:
        raise argparse.ArgumentTypeError(f"'{text}' isn't PROVIDER=SIZE, such as npu=512MiB")
    return found[1], int(found[2]) * 1024 ** " KMGT".index(found[3].upper() or " ")


def parse_provider_option(text: str) -> tuple[str, str, str]:
    """Return provider, option and value of one `--provider-option PROVIDER.KEY=VALUE`.

    Raises:
        argparse.ArgumentTypeError: a part is missing.
    """
    found = re.fullmatch(r"([^.=]+)\.([^=]+)=(.*)", text, flags=re.DOTALL)
    if not found:
        raise argparse.ArgumentTypeError(
            f"'{text}' isn't PROVIDER.KEY=VALUE, such as cpu.threads=2"
        )
    return found[1], found[2], found[3]
