"""Prints a table; numbers to the right, words to the left."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["print_table"]


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a title and a table whose first column holds words and the others numbers."""
    widths = [max(len(line[column]) for line in [head, *rows]) for column in range(len(head))]
    print(title)
    for line in [head, *rows]:
        first = line[0].ljust(widths[0])
        others = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        print("  " + "   ".join([first, *others]))
