"""How the parts that watch a provider tell what they saw: by raising one of these."""

from __future__ import annotations

__all__ = ["Broken", "NotClaimed", "text_of"]


class Broken(Exception):  # noqa: N818 - a finding about the provider, no error of the kit
    """What the provider did wrong, in words."""


class NotClaimed(Exception):  # noqa: N818 - likewise
    """Why there is nothing to hold against the provider: it doesn't offer what is asked for."""


def text_of(error: BaseException) -> str:
    """Type and message of an error on one line of bounded length."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the provider's own class, which may do anything
        message = "an error whose message can't be had"
    return " ".join(f"{type(error).__name__}: {message}".split())[:1000]
