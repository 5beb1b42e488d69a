"""The colours of providers, the same in every picture of a placement."""

from __future__ import annotations

__all__ = ["COLOURS", "colour_of"]

COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#d55e00",
    "#56b4e9",
    "#b3a100",
    "#7f7f7f",
)
"""Told apart with any colour vision: the palette of Okabe and Ito (2008), with a darker yellow that
stands out on white, and grey. Where there are more providers they start anew, and patterns and
letters tell them apart."""


def colour_of(position: int) -> str:
    """The colour of a provider by its place in the order of preference."""
    return COLOURS[position % len(COLOURS)]
