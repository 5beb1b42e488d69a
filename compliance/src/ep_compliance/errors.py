"""Errors of the kit."""

from __future__ import annotations

from ep_core.errors import EpError

__all__ = ["OracleError", "OverrideError"]


class OracleError(EpError):
    """No right answer can be told for a case."""


class OverrideError(EpError):
    """A table of overrides that is malformed, loosens globally, or names what isn't there."""
