"""Equations of Einsum: their letters, and which letters each step of the work keeps.

Knows shapes and letters; nothing of devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ep_core.errors import RunError
from ep_sdk.shapes import Shape

__all__ = ["Equation", "Labels", "parse_equation"]

Labels = tuple[str, ...]
"""One for each axis: a letter, or `.0`, `.1`, ... for an axis under the ellipsis."""

_ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation for operands of known shapes.

    Attributes:
        shapes: of the operands.
        operands: labels of each operand; one label twice is a diagonal.
        result: labels of the result, each once.
        lengths: by label.
    """

    shapes: tuple[Shape, ...]
    operands: tuple[Labels, ...]
    result: Labels
    lengths: dict[str, int]

    def needed(self, number: int) -> set[str]:
        """Labels of an operand that the result needs, or another operand that moves along them."""
        needed = set(self.result)
        for other, (labels, shape) in enumerate(zip(self.operands, self.shapes, strict=True)):
            if other != number:
                pairs = zip(labels, shape, strict=True)
                needed |= {label for label, length in pairs if length == self.lengths[label]}
        return needed


def parse_equation(text: str, shapes: Sequence[Shape]) -> Equation:
    """Read an equation for operands of the given shapes.

    Raises:
        RunError: terms and operands don't fit, or a letter stands for two lengths.
    """
    left, arrow, right = "".join(text.split()).partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise RunError("terms of an equation", expected=len(shapes), got=text)
    operands = tuple(_labels(term, len(shape)) for term, shape in zip(terms, shapes, strict=True))
    lengths: dict[str, int] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        own = dict(zip(labels, shape, strict=True))
        for label, length in zip(labels, shape, strict=True):
            if own[label] != length:
                raise RunError(f"a diagonal along {label!r}", expected="a square", got=shape)
            known = lengths.setdefault(label, length)
            if known == 1:
                lengths[label] = length
            elif length not in (1, known):
                raise RunError(f"lengths of {label!r} in {text!r}", expected=known, got=length)
    dots = sorted((label for label in lengths if label[0] == "."), key=lambda x: -int(x[1:]))
    result = _result(right, dots) if arrow else _implied(operands, dots)
    if any(count > 1 for count in Counter(result).values()) or not set(result) <= set(lengths):
        raise RunError("the right side of an equation", expected="letters of its left", got=text)
    return Equation(tuple(shapes), operands, result, lengths)


def _labels(term: str, rank: int) -> Labels:
    """Axes under an ellipsis are counted from the last, as they broadcast."""
    before, dots, after = term.partition(_ELLIPSIS)
    hidden = rank - len(before) - len(after)
    are_letters = all(label.isalpha() for label in before + after)
    if hidden < 0 or (hidden and not dots) or not are_letters:
        raise RunError("a term of an equation", expected=f"{rank} letters", got=term)
    return (*before, *(f".{number}" for number in reversed(range(hidden))), *after)


def _result(text: str, dots: Sequence[str]) -> Labels:
    before, ellipsis, after = text.partition(_ELLIPSIS)
    return (*before, *(dots if ellipsis else ()), *after)


def _implied(operands: Sequence[Labels], dots: Sequence[str]) -> Labels:
    """Letters that stand once on the left, in the order of the alphabet."""
    counts = Counter(label for labels in operands for label in labels)
    once = sorted(label for label, count in counts.items() if count == 1 and label[0] != ".")
    return (*dots, *once)
