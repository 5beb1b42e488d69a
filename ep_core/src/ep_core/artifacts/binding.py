"""What an artifact depends on beside the subgraph: provider build, device and options."""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ep_core.certificates.content import content_hash
from ep_core.contracts import ExecutionProvider
from ep_core.discovery.verdicts import required_versions
from ep_core.errors import NotSupportedError

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = ["provider_binding", "text_of"]

_BUILDS: dict[tuple[str, str], str] = {}
"""Content hashes of distributions, by name and place. What is loaded stays as it is while the
process lives, so that one look at the files is enough."""


def provider_binding(
    provider: ExecutionProvider, distribution: Distribution | None, options: Mapping[str, Any]
) -> list[str]:
    """Return what the artifacts of an open provider are bound to, in a fixed order.

    Args:
        distribution: what the provider was installed with.
        options: what it was opened with, parsed.

    Raises:
        NotSupportedError: something that has to be bound can't be told; says what.
        CertificateError: files of the distribution are missing.
    """
    from importlib.metadata import version

    info = provider.info
    device = provider.device
    if distribution is None:
        raise NotSupportedError("a provider registered by hand has no build to bind them to")
    if not device.fingerprint:
        raise NotSupportedError(f"device {device.id!r} has no fingerprint to bind them to")
    return [
        f"ep-core {version('ep-core')}",
        f"{info.name} {info.version} {info.api_version}",
        *sorted(required_versions(distribution)),
        _build_of(distribution),
        f"python {sys.implementation.cache_tag}",
        f"device {device.id}",
        device.fingerprint,
        *(
            f"{name}={text_of(name, options[name])}"
            for name, spec in sorted(info.options.items())
            if spec.artifacts
        ),
    ]


def _build_of(distribution: Distribution) -> str:
    """Name, version and content hash of a distribution."""
    name = distribution.metadata["Name"]
    key = (name, str(distribution.locate_file("")))
    if key not in _BUILDS:
        _BUILDS[key] = f"{name} {distribution.version} {content_hash(distribution)}"
    return _BUILDS[key]


def text_of(name: str, value: Any) -> str:
    """A text that is the same in every process; `repr` isn't, for sets and most objects.

    Raises:
        NotSupportedError: the value of option `name` has no such text.
    """
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, bool | int | float | str | bytes | PurePath):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = [(text_of(name, key), text_of(name, item)) for key, item in value.items()]
        return repr(sorted(pairs))
    if isinstance(value, list | tuple):
        return repr([text_of(name, item) for item in value])
    if isinstance(value, set | frozenset):
        return repr(sorted(text_of(name, item) for item in value))
    kind = type(value).__name__
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
        return f"{kind}{text_of(name, fields)}"
    raise NotSupportedError(f"option {name!r} has a value of type {kind}, which has no fixed text")
