"""Parsers for the options of a provider, to be used as `OptionSpec.parse`.

Options come from Python (`3`, `True`) and from command lines and files (`"3"`, `"on"`); every
parser takes both. A value that doesn't fit raises ValueError saying what would be right; the core
adds the option's name. Nothing here knows a particular provider.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

__all__ = ["as_bool", "as_bytes", "as_choice", "as_int", "as_names"]

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def as_bool(value: Any) -> bool:
    """Parse a switch: bool, 0 or 1, or one of true/false, yes/no, on/off in any case.

    Raises:
        ValueError: anything else.
    """
    word = str(value).strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"expected true or false, got {value!r}")


def as_int(minimum: int | None = None, maximum: int | None = None) -> Callable[[Any], int]:
    """Return a parser for whole numbers within `minimum..maximum`, both included.

    The parser raises ValueError for numbers outside and for anything that isn't a whole number.
    """
    wanted = "a whole number"
    if minimum is not None and maximum is not None:
        wanted += f" from {minimum} to {maximum}"
    elif minimum is not None:
        wanted += f" of at least {minimum}"
    elif maximum is not None:
        wanted += f" of at most {maximum}"

    def parse(value: Any) -> int:
        try:
            # A bool is an int to Python and a mistake here; 2.5 must not become 2.
            number = None if isinstance(value, bool | float) else int(value)
        except (TypeError, ValueError):
            number = None
        below = number is not None and minimum is not None and number < minimum
        above = number is not None and maximum is not None and number > maximum
        if number is None or below or above:
            raise ValueError(f"expected {wanted}, got {value!r}")
        return number

    return parse


def as_choice(*choices: str) -> Callable[[Any], str]:
    """Return a parser for one word out of `choices`, in any case.

    The parser returns the word as spelled in `choices` and raises ValueError for any other.
    """
    by_lower = {choice.lower(): choice for choice in choices}

    def parse(value: Any) -> str:
        found = by_lower.get(str(value).strip().lower())
        if found is None:
            raise ValueError(f"expected one of {', '.join(choices)}, got {value!r}")
        return found

    return parse


def as_names(value: Any) -> frozenset[str]:
    """Parse a set of names: a list, or text with commas between, such as `Relu,Add`.

    Raises:
        ValueError: anything else.
    """
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, Collection) or not all(isinstance(item, str) for item in items):
        raise ValueError(f"expected names with commas between, or a list of names, got {value!r}")
    return frozenset(item.strip() for item in items if item.strip())


def as_bytes(value: Any) -> int:
    """Parse an amount of memory in bytes: a number, or text such as `512`, `64K`, `2 GiB`.

    K, M, G and T are powers of 1024.

    Raises:
        ValueError: anything else, negative amounts and fractions included.
    """
    match = None if isinstance(value, bool) else _SIZE.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"expected bytes such as 1048576, 64K or 2G, got {value!r}")
    return int(match[1]) * _UNITS[match[2].lower()]
