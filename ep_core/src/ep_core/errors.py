"""Every error the project raises on purpose: one tree, rooted at `EpError`.

A message says what was expected, what came, who can fix it and what to do next. A caller may catch
`EpError` alone and be sure that a bad model, a bad feed, a missing provider or a failing kernel
ends there. Programming mistakes inside this package are not wrapped and stay ordinary exceptions.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "AllocationError",
    "CertificateError",
    "CompileError",
    "ContractError",
    "DeviceLostError",
    "EpError",
    "FeedError",
    "InvalidModelError",
    "ModelLimitError",
    "NotSupportedError",
    "OptionError",
    "PlacementError",
    "ProviderError",
    "ProviderNotFoundError",
    "ProviderUnavailableError",
    "RunCancelledError",
    "RunError",
    "SessionClosedError",
    "UnsafePathError",
    "did_you_mean",
]


class EpError(Exception):
    """Root of all errors raised by the core, the SDK and well-behaved providers.

    Args:
        message: what went wrong, naming the thing (tensor, node, option, file).
        expected: what would have been right.
        got: what came instead.
        fix: what the reader can do next.
    """

    def __init__(
        self, message: str, *, expected: object = None, got: object = None, fix: str | None = None
    ) -> None:
        self.expected = expected
        self.got = got
        self.fix = fix
        parts = [message]
        if expected is not None:
            parts.append(f"expected {expected}")
        if got is not None:
            parts.append(f"got {got}")
        text = "; ".join(parts)
        super().__init__(f"{text}. {fix}" if fix else text)


class InvalidModelError(EpError):
    """The model breaks the ONNX specification or can't be parsed."""


class ModelLimitError(InvalidModelError):
    """The model exceeds a `LoadLimits` bound (file size, tensor size, nesting, node count)."""


class UnsafePathError(InvalidModelError):
    """External data points outside the model's folder."""


class FeedError(EpError, ValueError):
    """A feed or requested output doesn't match the model's signature."""


class OptionError(EpError, ValueError):
    """An option has an unknown name or a value out of its range."""


class NotSupportedError(EpError):
    """The operation is valid but nothing here implements it."""


class PlacementError(EpError):
    """Nodes that no provider may run, or contradictory placement wishes."""


class ProviderError(EpError):
    """A provider failed; the base of everything a provider may raise."""


class ProviderNotFoundError(ProviderError):
    """No installed distribution offers the provider that was named."""


class ProviderUnavailableError(ProviderError):
    """The provider is installed and can't be used here; the message carries its reason."""


class ContractError(ProviderError):
    """A provider broke a contract of `ep_core.contracts`."""


class CompileError(ProviderError):
    """A provider refused or failed to compile a subgraph that it had claimed."""


class AllocationError(ProviderError, MemoryError):
    """Memory of a device, or of the host, is exhausted."""


class DeviceLostError(ProviderError):
    """The device disappeared; buffers and streams on it are void."""


class RunError(ProviderError):
    """A partition failed while running; names the node where that is known."""


class RunCancelledError(EpError):
    """`RunOptions.terminate` was set while the run was under way."""


class SessionClosedError(EpError):
    """The session was closed before or during the call."""


class CertificateError(EpError):
    """A certificate file can't be read or contradicts itself."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence that offers the closest known names, or lists them all."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return "Did you mean " + " or ".join(repr(item) for item in close) + "?"
    if not names:
        return "None are known here."
    return "Known: " + ", ".join(names) + "."
