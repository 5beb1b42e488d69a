"""Checks the documents: every relative link and anchor leads somewhere, the pictures are current.

Links to other sites aren't followed. Code blocks and code spans are not looked at.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
PICTURES = ("draw_architecture.py",)


def documents() -> list[Path]:
    """Every Markdown file of the project, hidden folders left out."""
    found = [path.relative_to(ROOT) for path in ROOT.rglob("*.md")]
    return sorted(path for path in found if not any(part.startswith(".") for part in path.parts))


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as the usual Markdown viewers make them."""
    return {
        re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        for title in HEADING.findall(FENCE.sub("", text))
    }


def broken_links(document: Path) -> list[str]:
    """Return a line for each link of a document that leads nowhere."""
    text = (ROOT / document).read_text(encoding="utf-8")
    wrong = []
    for link in LINK.findall(SPAN.sub("", FENCE.sub("", text))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / document).parent / name if name else ROOT / document
        if not target.exists():
            wrong.append(f"{document}: no file {name}")
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            wrong.append(f"{document}: no heading #{anchor} in {name or document}")
    return wrong


def main() -> int:
    """Print what is wrong."""
    found = documents()
    wrong = [line for document in found for line in broken_links(document)]
    for script in PICTURES:
        drawing = [sys.executable, str(ROOT / "scripts" / script), "--check"]
        if subprocess.run(drawing, check=False).returncode != 0:
            wrong.append(f"scripts/{script}: picture out of date")
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    sys.stdout.write(f"{len(found)} documents, {len(wrong)} faults\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
