"""From what the caller asks for to open providers: names, options, fallback, certificates."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ep_core.certificates.grants import CertificatePolicy, grants_for
from ep_core.contracts import ProviderInfo
from ep_core.discovery.options import parse_options, select_device
from ep_core.discovery.registry import ProviderState, registry
from ep_core.errors import OptionError, ProviderNotFoundError, ProviderUnavailableError
from ep_core.options import SessionOptions
from ep_core.partition import Candidate
from ep_core.values.holds import retire

__all__ = ["close_candidates", "open_candidates", "provider_label"]

_LOG = logging.getLogger("ep_core")
_FALLBACK = "cpu"
_ORT_SUFFIX = "ExecutionProvider"

Wish = tuple[str, dict[str, Any]]


def provider_label(info: ProviderInfo) -> str:
    """A provider's name in ONNX Runtime's spelling, or its own name if it has none."""
    return next((alias for alias in info.aliases if alias.endswith(_ORT_SUFFIX)), info.name)


def open_candidates(
    providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None,
    provider_options: Sequence[Mapping[str, Any]] | None,
    options: SessionOptions,
) -> list[Candidate]:
    """Open what the caller wants, in order; see `InferenceSession` for the arguments.

    Raises:
        ProviderNotFoundError, ProviderUnavailableError: with the reason.
        OptionError: malformed arguments, unknown options, one device asked for twice.
    """
    if providers is None:
        if provider_options is not None:
            raise OptionError("provider_options without providers", fix="Name the providers too.")
        return _open_automatic(options)
    wishes = _wishes(providers, provider_options)
    opened: list[Candidate] = []
    try:
        for name, given in wishes:
            opened.append(_open(name, given, options, named=True))
        if not options.disable_cpu_fallback and _FALLBACK not in {c.info.name for c in opened}:
            fallback = _open_quietly(_FALLBACK, options, named=False)
            if fallback is not None:
                opened.append(fallback)
        return _with_unique_names(opened)
    except BaseException:
        close_candidates(opened)
        raise


def close_candidates(candidates: Sequence[Candidate]) -> None:
    """Close the providers, last opened first; one that fails doesn't keep the others open.

    A provider whose memory still holds values closes with the last of them.
    """
    for candidate in reversed(candidates):
        with contextlib.suppress(Exception):
            retire(candidate.provider)


def _wishes(
    providers: Sequence[str | tuple[str, Mapping[str, Any]]],
    provider_options: Sequence[Mapping[str, Any]] | None,
) -> list[Wish]:
    if isinstance(providers, str) or not isinstance(providers, Sequence) or not providers:
        raise OptionError(
            "providers", expected="a list with at least one name", got=repr(providers)
        )
    if provider_options is None:
        provider_options = [{}] * len(providers)
    if isinstance(provider_options, str) or not isinstance(provider_options, Sequence):
        kind = type(provider_options).__name__
        raise OptionError("provider_options", expected="a list with a dict per provider", got=kind)
    if len(provider_options) != len(providers):
        raise OptionError(
            "provider_options",
            expected=f"one dict per provider, {len(providers)} in all",
            got=f"{len(provider_options)}",
        )
    wishes = []
    for entry, extra in zip(providers, provider_options, strict=True):
        name, own = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, {})
        if not isinstance(name, str) or not isinstance(own, Mapping):
            expected = "a name or a (name, options) pair"
            raise OptionError("an entry of providers", expected=expected, got=repr(entry))
        if not isinstance(extra, Mapping):
            raise OptionError(f"options of provider {name!r}", expected="a dict", got=repr(extra))
        wishes.append((name, {**own, **extra}))
    return wishes


def _open_automatic(options: SessionOptions) -> list[Candidate]:
    names = registry().automatic()
    opened = [c for name in names if (c := _open_quietly(name, options, named=True)) is not None]
    if not opened:
        reasons = [
            f"{status.name}: {status.reason}"
            for status in registry().providers()
            if status.state is not ProviderState.AVAILABLE
        ]
        by_name = registry().available()
        raise ProviderNotFoundError(
            "no execution provider takes part by itself" + "".join(f"\n  {r}" for r in reasons),
            fix=f"Name one in `providers`: {', '.join(by_name)}."
            if by_name
            else "Install one, for example: pip install ep-cpu",
        )
    return _with_unique_names(opened)


def _open_quietly(name: str, options: SessionOptions, *, named: bool) -> Candidate | None:
    """Open a provider that nobody named; if it can't be opened, say so in the log and go on."""
    try:
        return _open(name, {}, options, named=named)
    except ProviderNotFoundError:
        return None
    except ProviderUnavailableError as error:
        _LOG.warning("provider %r is left out: %s", name, error)
        return None


def _open(name: str, given: dict[str, Any], options: SessionOptions, *, named: bool) -> Candidate:
    status = registry().status(name)
    info = registry().factory(name).info
    threads = options.intra_op_num_threads
    if threads and "intra_op_num_threads" in info.options:
        given.setdefault("intra_op_num_threads", threads)
    _, own = select_device(info, status.devices, given)
    parsed = parse_options(info, own)
    provider = registry().create(name, given)
    try:
        distribution = registry().distribution(name)
        grants = grants_for(
            provider.info, distribution, provider.device, parsed, options.certificate_policy
        )
    except BaseException:
        provider.close()
        raise
    return Candidate(
        name=info.name,
        provider=provider,
        grant=grants,
        passes=registry().graph_passes(name),
        named=named,
        options=parsed,
        note=grants.reason if grants.policy is CertificatePolicy.ENFORCE else "",
    )


def _with_unique_names(opened: list[Candidate]) -> list[Candidate]:
    """Tell two devices of one provider apart by their ids."""
    names = [candidate.info.name for candidate in opened]
    result: list[Candidate] = []
    for candidate in opened:
        name = candidate.info.name
        if names.count(name) > 1:
            name = f"{name}:{candidate.provider.device.id}"
        if any(other.name == name for other in result):
            raise OptionError(
                f"provider {candidate.info.name!r} is listed twice for one device",
                fix="List it once, or choose another device with device_id.",
            )
        result.append(candidate.renamed(name))
    return result
