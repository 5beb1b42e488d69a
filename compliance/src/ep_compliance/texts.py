"""Lists of words, for tables of operators."""

from __future__ import annotations

__all__ = ["words"]


def words(text: str) -> frozenset[str]:
    """The distinct words of a text."""
    return frozenset(text.split())
