"""The work of `ep providers`: the registry's answer as a listing or as JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ep_core.discovery.registry import ProviderState, ProviderStatus, registry
from ep_core.types import DeviceInfo
from ep_tools.console import Console, format_bytes

__all__ = ["list_providers"]

_STYLE = {
    ProviderState.AVAILABLE: "green",
    ProviderState.UNAVAILABLE: "yellow",
    ProviderState.BROKEN: "red",
}


def list_providers(*, as_json: bool, recheck: bool) -> int:
    """Print every installed provider; return the exit code.

    Args:
        as_json: one JSON document in place of lines.
        recheck: forget what earlier probes found, and probe again.
    """
    console = Console()
    known = registry()
    if recheck:
        known.recheck()
    statuses = known.providers()
    if as_json:
        console.json({"providers": [_to_json(status) for status in statuses]})
    else:
        _show(console, statuses)
    return 0


def _show(console: Console, statuses: Sequence[ProviderStatus]) -> None:
    if not statuses and os.environ.get("EP_PLUGIN_AUTOLOAD") == "0":
        console.line("EP_PLUGIN_AUTOLOAD=0 is set, so installed providers are left alone.")
        return
    if not statuses:
        console.line("No providers are installed. The default one comes with: pip install ep-cpu")
        return
    heads = console.columns(
        [
            (
                console.style(status.name, "bold"),
                console.style(status.state.value, _STYLE[status.state]),
                _origin(status),
            )
            for status in statuses
        ]
    )
    for head, status in zip(heads, statuses, strict=True):
        console.line(head)
        for device in status.devices:
            console.line(f"  device {_device_text(device)}")
        if status.reason:
            console.line(f"  {status.reason}")
        for problem in status.problems:
            console.line(f"  problem: {problem}")


def _origin(status: ProviderStatus) -> str:
    origin = f"{status.distribution} {status.version}".strip() or "registered by hand"
    usable = status.state is ProviderState.AVAILABLE
    return origin if _is_automatic(status) or not usable else f"{origin}, used only if named"


def _is_automatic(status: ProviderStatus) -> bool:
    return status.info is not None and status.info.auto


def _device_text(device: DeviceInfo) -> str:
    maker = "" if device.name.startswith(device.vendor) else f"{device.vendor} "
    parts = [f"{device.id}: {device.kind}", f"{maker}{device.name}".strip()]
    if device.memory_bytes:
        parts.append(format_bytes(device.memory_bytes))
    return ", ".join(part for part in parts if part)


def _to_json(status: ProviderStatus) -> Mapping[str, Any]:
    return {
        "name": status.name,
        "aliases": list(status.info.aliases) if status.info is not None else [],
        "distribution": status.distribution,
        "version": status.version,
        "state": status.state.value,
        "automatic": _is_automatic(status),
        "reason": status.reason,
        "problems": list(status.problems),
        "devices": [
            {
                "id": device.id,
                "kind": device.kind,
                "vendor": device.vendor,
                "name": device.name,
                "memory_bytes": device.memory_bytes,
                "fingerprint": device.fingerprint,
                "properties": dict(device.properties),
            }
            for device in status.devices
        ],
    }
