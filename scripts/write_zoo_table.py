"""Writes docs/broken-providers.md: which defects of providers the kit catches, and by what.

The tables are those of the kit's own tests, which run every one of them.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ZOO = ROOT / "compliance" / "tests" / "zoo"
TARGET = ROOT / "docs" / "broken-providers.md"

HEADER = """\
# Broken providers, and what catches them

The compliance kit is held to its own standard: each of these providers has one defect, and the
check or case that is meant for it has to catch it. Correct providers have to pass everything, and
every check has to catch something. Written by `scripts/write_zoo_table.py` from the tables in
`compliance/tests/zoo`; a test fails when it is out of date.
"""
KINDS = {
    "HOST": "Providers in host memory",
    "DEVICE": "Devices with memory and streams of their own",
    "FACTORIES": "Factories and declarations",
}


def document() -> str:
    """The whole text."""
    sys.path.insert(0, str(ZOO))
    # The modules add to the tables as they are imported.
    for path in sorted(ZOO.glob("zoo_*.py")):
        importlib.import_module(path.stem)
    tables = {
        "HOST": importlib.import_module("zoo_host").HOST,
        "DEVICE": importlib.import_module("zoo_device").DEVICE,
        "FACTORIES": importlib.import_module("zoo_factories").FACTORIES,
    }
    parts = [HEADER]
    for name, title in KINDS.items():
        rows = [f"| {defect} | `{entry[1]}` |" for defect, entry in sorted(tables[name].items())]
        parts.append(f"## {title}: {len(rows)}\n\n| defect | caught by |\n|---|---|")
        parts[-1] += "".join(f"\n{row}" for row in rows) + "\n"
    return "\n".join(parts)


def main() -> None:
    """Write the file."""
    TARGET.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
