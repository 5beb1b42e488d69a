"""Lists of words for tables of operators, ids for people who mistype them, texts for reports."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

__all__ = ["printable", "similar_ids", "words"]


def printable(text: str) -> str:
    """The text on one line, with codes for what can't be seen or written in XML."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def similar_ids(name: str, known: Sequence[str]) -> str:
    """A sentence that offers the ids most like a name; there are too many to list them all."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if not close:
        return "No id is like it."
    return "Did you mean " + " or ".join(repr(item) for item in close) + "?"


def words(text: str) -> frozenset[str]:
    """The distinct words of a text."""
    return frozenset(text.split())
