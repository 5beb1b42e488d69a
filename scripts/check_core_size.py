"""Holds the core small: counts the lines of code of `ep_core` without its graph passes.

A core that an outsider can read is a promise of this project, so that going over the limit is a
decision and not an accident. Blank lines, comments and docstrings are free.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

CORE = Path(__file__).resolve().parents[1] / "ep_core" / "src" / "ep_core"
LIMIT = 3000
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
    """Print the total; list the files when it is over the limit."""
    files = [path for path in sorted(CORE.rglob("*.py")) if "passes" not in path.parts]
    sizes = {path: lines_of_code(path.read_text(encoding="utf-8")) for path in files}
    total = sum(sizes.values())
    sys.stdout.write(f"ep_core without passes: {total} lines of code, at most {LIMIT} allowed\n")
    if total <= LIMIT:
        return 0
    for path, size in sorted(sizes.items(), key=lambda item: -item[1]):
        sys.stdout.write(f"{size:6} {path.relative_to(CORE).as_posix()}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
