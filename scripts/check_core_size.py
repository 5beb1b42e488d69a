"""Holds the core small: counts the lines of code of `ep_core`, room by room.

A core that an outsider can read is a promise of this project, so that going over a limit is a
decision and not an accident (docs/adr/0005). Blank lines, comments and docstrings are free.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

CORE = Path(__file__).resolve().parents[1] / "ep_core" / "src" / "ep_core"
LIMITS = {
    "": 2470,  # contracts, graph, sessions: what a provider author reads
    "running": 1130,
    "loading": 1940,
    "certificates": 350,
    "discovery": 900,
    "artifacts": 400,
    "binding": 820,
    "values": 760,
    "passes": 2500,
    "profiling": 530,
    "placement": 2500,
    "tuning": 880,
}
FREE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


def lines_of_code(source: str) -> int:
    """Count the lines that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in FREE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - _text_lines(ast.parse(source)))


def _text_lines(tree: ast.Module) -> set[int]:
    """Lines of docstrings and of the strings that document a constant."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def main() -> int:
    """Print each room's total; list the files of a room that is over its limit."""
    rooms: dict[str, dict[str, int]] = {}
    for path in sorted(CORE.rglob("*.py")):
        place = path.relative_to(CORE)
        room = place.parts[0] if len(place.parts) > 1 else ""
        rooms.setdefault(room, {})[place.as_posix()] = lines_of_code(path.read_text("utf-8"))
    over = False
    for room, sizes in rooms.items():
        total = sum(sizes.values())
        limit = LIMITS.get(room, 0)
        sys.stdout.write(f"ep_core/{room}: {total} lines of code, at most {limit} allowed\n")
        if total > limit:
            over = True
            for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
                sys.stdout.write(f"{size:6} {name}\n")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
