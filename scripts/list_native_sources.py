"""Lists the sources of the CPU provider's compiled module, with their hashes, in its package.

    python scripts/list_native_sources.py [--check]

A certificate is bound to the list instead of the module, whose bytes differ by compiler. Building
the module writes the same list (`list_sources.cmake`); this one is for installs without a compiler.
With `--check`, nothing is written, and a list that is out of date is an error.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "plugins" / "ep_cpu"
PATTERNS = ("*.cpp", "*.h", "CMakeLists.txt")
LIST = PACKAGE / "src" / "ep_cpu" / "_native.sources"


def list_sources() -> str:
    """A line for each source: SHA-256, two spaces, its path below the folder `native`."""
    folder = PACKAGE / "native"
    found = [path for pattern in PATTERNS for path in folder.rglob(pattern)]
    hashes = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in found
    }
    lines = [f"{hashes[name]}  {name}" for name in sorted(hashes)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the list, or check it."""
    listed = list_sources()
    if "--check" not in sys.argv[1:]:
        LIST.write_text(listed, encoding="utf-8")
    elif not LIST.exists() or LIST.read_text(encoding="utf-8") != listed:
        sys.exit(f"{LIST} is out of date: run python scripts/list_native_sources.py")


if __name__ == "__main__":
    main()
