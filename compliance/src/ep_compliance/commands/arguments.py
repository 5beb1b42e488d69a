"""Arguments that several commands of the kit take."""

from __future__ import annotations

from collections.abc import Sequence

from ep_core.errors import OptionError

__all__ = ["option_values"]


def option_values(texts: Sequence[str]) -> dict[str, str]:
    """Take `KEY=VALUE` texts apart.

    Raises:
        OptionError: one isn't of that form.
    """
    options = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise OptionError("--option", expected="KEY=VALUE", got=repr(text))
        options[key] = value
    return options
