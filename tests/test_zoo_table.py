"""The table of broken providers in the documents is that of the kit's tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

WRITE = """
import sys
sys.path.insert(0, "scripts")
import write_zoo_table
sys.stdout.write(write_zoo_table.document())
"""


def test_the_table_is_current():
    """If this fails: .venv/bin/python scripts/write_zoo_table.py"""
    done = subprocess.run(
        [sys.executable, "-c", WRITE], cwd=ROOT, capture_output=True, text=True, check=True
    )
    text = (ROOT / "docs" / "broken-providers.md").read_text(encoding="utf-8")
    assert done.stdout == text
    assert text.count("\n| ") > 100
