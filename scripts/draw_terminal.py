"""Draws `docs/pictures/ep-*.svg`: what `ep` shows on a terminal, from real runs in one.

Each command runs in a pseudo-terminal, in a folder with pretrained models under plain names. What
it writes is kept as a screen would show it and drawn as text, colours included. Times in the
pictures are those of the machine that drew them.

    python scripts/draw_terminal.py [NAME ...]
"""

from __future__ import annotations

import codecs
import fcntl
import itertools
import os
import pty
import re
import select
import shlex
import shutil
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
sys.path.insert(0, str(ROOT / "examples"))

from pretrained import fetch  # noqa: E402 - found through the line above

COLUMNS, ROWS = 112, 60
SECONDS = 300

FONT_SIZE = 13.0
CELL = 7.83
LINE = 18
MARGIN = 16
TITLE = 34
BACKGROUND, FOREGROUND, BAR = "#1c2128", "#d7dde4", "#2a313a"
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341"}
FAMILY = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"

MODELS = {"vad.onnx": "speech", "files.onnx": "file-type", "marks.onnx": "arabic-marks"}
"""Names in the pictures, and those of the manifest."""

CERTIFICATES = {"cpu.json": "plugins/ep_cpu/src/ep_cpu/certificates"}
"""Names in the pictures, and the folders that have one."""

VAD = "--input sr=16000 --input state=0 --shape input=1,576"
LETTERS = "--input input=150,161,174,3,149,173,173,176"


@dataclass(frozen=True)
class Picture:
    """One picture: a command, and the moment that is shown.

    Attributes:
        until: stop the command as soon as this is found on the screen; None waits for its end.
    """

    name: str
    command: str
    until: str | None = None


ALL = (
    Picture("ep-providers", "ep providers"),
    Picture("ep-info", "ep info files.onnx"),
    Picture("ep-run", f"ep run vad.onnx --input input=random {VAD}"),
    Picture("ep-error", "ep run vad.onnx --input input=random"),
    Picture("ep-explain", "ep explain files.onnx --providers simulator,cpu --dim unk__214=1"),
    Picture("ep-bench", f"ep bench vad.onnx {VAD} --vs onnxruntime"),
    Picture("ep-progress", f"ep bench vad.onnx {VAD} --duration 4", until=r" [56]\d%"),
    Picture("ep-compare", f"ep compare marks.onnx cpu onnxruntime {LETTERS} --layers"),
    Picture("ep-profile", f"ep profile vad.onnx {VAD} --providers simulator,cpu --top 4"),
    Picture("ep-check", "ep check files.onnx --providers simulator --dim unk__214=1"),
    Picture("ep-dump", f"ep dump marks.onnx --node /fc/Add {LETTERS} --out add"),
    Picture("ep-certify", "ep certify simulator --level mustpass"),
    Picture("ep-certificate", "ep certificate show cpu.json --op 'Conv*'"),
)


@dataclass
class Screen:
    """The lines of a terminal, as far as `ep` makes use of one: styles, returns, clearing."""

    lines: list[list[tuple[str, str]]] = field(default_factory=lambda: [[]])
    style: str = ""
    column: int = 0

    def feed(self, text: str) -> None:
        """Take in what a program has written."""
        for part in re.split(r"(\x1b\[[0-9;]*[A-Za-z]|\r|\n)", text):
            if part.startswith("\x1b["):
                self._control(part[-1], part[2:-1])
            elif part == "\r":
                self.column = 0
            elif part == "\n":
                self.lines.append([])
                self.column = 0
            else:
                self._write(part)

    def _control(self, letter: str, codes: str) -> None:
        if letter == "K":
            del self.lines[-1][self.column :]
        elif letter == "m":
            self.style = "" if codes in ("", "0") else codes

    def _write(self, text: str) -> None:
        line = self.lines[-1]
        for sign in text:
            if self.column == COLUMNS:
                self.lines.append([])
                line = self.lines[-1]
                self.column = 0
            line[self.column : self.column + 1] = [(sign, self.style)]
            self.column += 1

    def text(self) -> str:
        """The lines without their styles."""
        return "\n".join("".join(sign for sign, _ in line) for line in self.lines)


def record(picture: Picture, folder: Path) -> Screen:
    """Run a command in a pseudo-terminal and return what stands on it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        folders = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {
            **os.environ,
            "PATH": folders,
            "TERM": "xterm-256color",
            "COLUMNS": str(COLUMNS),
            "XDG_DATA_HOME": "data",
        }
        environment = {k: v for k, v in environment.items() if not k.endswith("_NUM_THREADS")}
        environment.pop("NO_COLOR", None)
        os.execvpe("ep", shlex.split(picture.command), environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen = Screen()
    for text in _written(terminal):
        screen.feed(text)
        if picture.until is not None and re.search(picture.until, screen.text()):
            break
    os.close(terminal)
    os.waitpid(pid, 0)
    return screen


def _written(terminal: int) -> Iterator[str]:
    decode = codecs.getincrementaldecoder("utf-8")().decode
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            data = os.read(terminal, 65536)
        except OSError:  # how Linux says that the program has closed the terminal
            return
        if not data:
            return
        yield decode(data)
    raise TimeoutError(f"no end after {SECONDS} s")


def draw(picture: Picture, screen: Screen) -> str:
    """Return the screen as SVG text."""
    lines = [[(sign, "1") for sign in f"$ {picture.command}"], *screen.lines]
    wrapped = [
        line[at : at + COLUMNS] for line in lines for at in range(0, len(line) or 1, COLUMNS)
    ]
    while wrapped and not wrapped[-1]:
        wrapped.pop()
    width = round(2 * MARGIN + COLUMNS * CELL)
    height = TITLE + 2 * MARGIN + LINE * len(wrapped) - 6
    dots = "".join(
        f'<circle cx="{MARGIN + 18 * i}" cy="{TITLE // 2}" r="5.5" fill="{colour}"/>'
        for i, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    rows = "\n".join(
        _row(line, TITLE + MARGIN + 10 + LINE * number) for number, line in enumerate(wrapped)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(picture.command, quote=True)} in a terminal">\n'
        f'<rect width="{width}" height="{height}" rx="9" fill="{BACKGROUND}"/>\n'
        f'<path d="M0 {TITLE} V9 a9 9 0 0 1 9 -9 H{width - 9} a9 9 0 0 1 9 9 V{TITLE} z" '
        f'fill="{BAR}"/>\n{dots}\n'
        f'<g font-family="{FAMILY}" font-size="{FONT_SIZE}" fill="{FOREGROUND}">\n'
        f"{rows}\n</g>\n</svg>\n"
    )


def _row(line: list[tuple[str, str]], y: int) -> str:
    """One text element per word, each in its place, so that columns stand whatever the font."""
    parts = []
    text = "".join(sign for sign, _ in line)
    for style, start, end in _stretches(line):
        for word in re.finditer(r"\S+", text[start:end]):
            x = MARGIN + (start + word.start()) * CELL
            parts.append(
                f'<text x="{x:.1f}" y="{y}" textLength="{len(word[0]) * CELL:.1f}"'
                f"{_attributes(style)}>{escape(word[0], quote=False)}</text>"
            )
    return "".join(parts)


def _stretches(line: list[tuple[str, str]]) -> Iterator[tuple[str, int, int]]:
    """Style, start and end of each stretch of one style."""
    start = 0
    for style, signs in itertools.groupby(line, key=lambda cell: cell[1]):
        end = start + len(list(signs))
        yield style, start, end
        start = end


def _attributes(style: str) -> str:
    codes = style.split(";")
    weight = ' font-weight="bold"' if "1" in codes else ""
    colour = next((f' fill="{COLOURS[code]}"' for code in codes if code in COLOURS), "")
    return weight + colour


def main() -> int:
    """Draw the pictures that are named, or all."""
    names = sys.argv[1:]
    unknown = sorted(set(names) - {picture.name for picture in ALL})
    if unknown:
        sys.stderr.write(f"no picture {unknown[0]}; known: {', '.join(p.name for p in ALL)}\n")
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, model in MODELS.items():
            shutil.copyfile(fetch(model), folder / name)
        for name, source in CERTIFICATES.items():
            for path in sorted((ROOT / source).glob("*.json"))[:1]:
                shutil.copyfile(path, folder / name)
        for picture in ALL:
            if not names or picture.name in names:
                target = PICTURES / f"{picture.name}.svg"
                target.write_text(draw(picture, record(picture, folder)), encoding="utf-8")
                sys.stdout.write(f"{target.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
