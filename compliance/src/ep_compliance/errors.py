"""Errors of the kit."""

from __future__ import annotations

from ep_core.errors import EpError

__all__ = ["CasesError", "OracleError", "OverrideError", "ReportError"]


class CasesError(EpError):
    """Cases that a provider's distribution brings can't be used."""


class OracleError(EpError):
    """No right answer can be told for a case."""


class OverrideError(EpError):
    """A table of overrides that is malformed, loosens globally, or names what isn't there."""


class ReportError(EpError):
    """A report, or what belongs to it, can't be written."""
