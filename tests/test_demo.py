"""The demo as a newcomer runs it: the text in the picture, the placement, the time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[1] / "examples" / "ocr.py"


def test_demo_reads_the_picture_and_says_where_it_ran() -> None:
    done = subprocess.run(
        [sys.executable, DEMO], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    read = [
        line.strip().split("  ")[0] for line in done.stdout.splitlines() if " sure, at " in line
    ]
    assert read == [
        "Departures from platform 4",
        "09:42 Innsbruck via Jenbach",
        "Ticket: 12.50 EUR, 2nd class",
    ]
    assert "cpu" in done.stdout
    assert "Two models ready in" in done.stdout
