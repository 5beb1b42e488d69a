"""The options of the provider: names, parsers, texts. What OpenVINO makes of them is elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ep_core.contracts import OptionSpec
from ep_sdk.options import as_choice, as_int

__all__ = ["OPTIONS", "PRECISIONS", "as_properties", "as_target"]

PRECISIONS = ("f32", "f16", "bf16")
_HINTS = ("latency", "throughput", "cumulative_throughput")
_VIRTUAL = ("AUTO", "HETERO", "MULTI")
_MOST_THREADS = 1024
_MOST_STREAMS = 1024

Properties = tuple[tuple[str, str], ...]


def as_target(value: Any) -> str:
    """Parse a way to use several devices: `AUTO`, `HETERO:GPU,CPU`, `MULTI:GPU.0,GPU.1`, or "".

    Raises:
        ValueError: anything else.
    """
    text = value.strip() if isinstance(value, str) else None
    word, _, devices = (text or "").partition(":")
    known = word.upper() in _VIRTUAL and (":" not in (text or "") or devices.strip())
    if text is None or (text and not known):
        raise ValueError(f"expected {', '.join(_VIRTUAL)} or HETERO:GPU,CPU, got {value!r}")
    return text.upper().replace(" ", "")


def as_properties(value: Any) -> Properties:
    """Parse properties of OpenVINO: a dict, pairs, or text such as `KEY=VALUE,KEY=VALUE`.

    Returns:
        Pairs of texts, ordered by name.

    Raises:
        ValueError: anything else, or a name that stands there twice.
    """
    pairs: list[Any]
    if isinstance(value, str):
        pairs = [item.split("=", 1) for item in value.split(",") if item.strip()]
    elif isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, tuple):
        pairs = list(value)
    else:
        pairs = [()]
    wrong = ValueError(f"expected a dict or KEY=VALUE with commas between, got {value!r}")
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise wrong
    named = [(name.strip().upper(), _text(item)) for name, item in pairs if isinstance(name, str)]
    if len(named) != len(pairs) or not all(name for name, _ in named):
        raise wrong
    if len(dict(named)) != len(named):
        raise ValueError(f"a property stands there twice in {value!r}")
    return tuple(sorted(named))


def _text(value: Any) -> str:
    """As OpenVINO reads it: YES and NO for switches."""
    if isinstance(value, bool):
        return "YES" if value else "NO"
    return str(value).strip()


def _as_folder(value: Any) -> str:
    """Parse a folder's path; an empty one is none."""
    if not isinstance(value, str) or "\x00" in value:
        raise ValueError(f"expected the path of a folder, got {value!r}")
    return value


OPTIONS: Mapping[str, OptionSpec] = {
    "performance_hint": OptionSpec(
        "latency",
        "what to tune for: latency of one run, throughput of many at once on a device, or "
        "cumulative_throughput over all devices of a target",
        as_choice(*_HINTS),
    ),
    "precision": OptionSpec(
        "f32",
        "arithmetic of 32-bit float models: f32, or f16 or bf16 where the device has it, which is "
        "faster and less exact",
        as_choice(*PRECISIONS),
        numerics=True,
    ),
    "num_streams": OptionSpec(
        0,
        "runs that the device works on at the same time, 0 for OpenVINO's choice",
        as_int(0, _MOST_STREAMS),
    ),
    "intra_op_num_threads": OptionSpec(
        0, "threads of the CPU, 0 for OpenVINO's choice", as_int(0, _MOST_THREADS)
    ),
    "dynamic_shapes": OptionSpec(
        "auto",
        "whether nodes with lengths that aren't known beforehand are taken: on, off, or auto, "
        "which is on but for NPUs",
        as_choice("auto", "on", "off"),
    ),
    "target": OptionSpec(
        "",
        "use several devices: AUTO, HETERO:GPU,CPU or MULTI:GPU,CPU in place of the device",
        as_target,
        numerics=True,
    ),
    "cache_dir": OptionSpec(
        "",
        "folder of OpenVINO's own cache, beside the one that the session keeps; none if empty",
        _as_folder,
    ),
    "properties": OptionSpec(
        (),
        "further properties of OpenVINO's, as KEY=VALUE with commas between",
        as_properties,
        numerics=True,
    ),
}
"""By name. What bears on numbers is bound by certificates: they are made for the defaults."""
