"""From options to what `compile_model` of OpenVINO takes: a device's name and its properties.

Every property is checked against the list that the device itself gives, so that a misspelled one
is an error with the right spelling, and none is silently without effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ep_core.errors import OptionError, ProviderUnavailableError, did_you_mean
from ep_openvino.library import message_of, property_modes

__all__ = ["Configuration", "configure"]

_CAPABILITIES = {"f32": "FP32", "f16": "FP16", "bf16": "BF16"}
_OWN_OPTIONS = {
    "INFERENCE_PRECISION_HINT": "precision",
    "PERFORMANCE_HINT": "performance_hint",
    "NUM_STREAMS": "num_streams",
    "INFERENCE_NUM_THREADS": "intra_op_num_threads",
    "CACHE_DIR": "cache_dir",
    "PERF_COUNT": "the session's enable_profiling",
}


@dataclass(frozen=True)
class Configuration:
    """How models are compiled.

    Attributes:
        target: what OpenVINO calls the device, or several of them.
        devices: the devices that may be used, one unless the target is a virtual one.
        properties: for `compile_model` and for `import_model`.
        exports: compiled models can be stored.
        times_nodes: the device can be asked how long each operator takes.
        dynamic_shapes: lengths that aren't known beforehand are taken.
    """

    target: str
    devices: tuple[str, ...]
    properties: Mapping[str, Any] = field(default_factory=dict)
    exports: bool = False
    times_nodes: bool = False
    dynamic_shapes: bool = True


def configure(core: Any, device: str, options: Mapping[str, Any]) -> Configuration:
    """Work out the configuration of a device that is opened.

    Args:
        core: `openvino.Core`.
        device: OpenVINO's name of the device.
        options: parsed, all of them.

    Raises:
        OptionError: a property or precision that the device doesn't have.
        ProviderUnavailableError: a device of the target isn't there.
    """
    target = options["target"] or device
    devices = _devices(core, target) if options["target"] else (device,)
    precision = options["precision"]
    for name in devices:
        _check_precision(core, name, precision)
    single = len(devices) == 1 and not options["target"]
    own = {
        "PERFORMANCE_HINT": options["performance_hint"].upper(),
        "INFERENCE_PRECISION_HINT": precision,
        # Else 8-bit weights and caches would bring in arithmetic that nobody asked for.
        "EXECUTION_MODE_HINT": "ACCURACY" if precision == "f32" else "PERFORMANCE",
        "NUM_STREAMS": options["num_streams"] or None,
        "INFERENCE_NUM_THREADS": options["intra_op_num_threads"] or None,
    }
    asked = dict(options["properties"])
    known = {name: _settable(core, name) for name in (*devices, target)}
    _check_properties(asked, known, target)
    properties: dict[str, Any] = {}
    if options["cache_dir"]:
        properties["CACHE_DIR"] = options["cache_dir"]
    if single:
        properties |= _known_ones(own, known[device]) | asked
    else:
        properties |= _known_ones({"PERFORMANCE_HINT": own["PERFORMANCE_HINT"]}, known[target])
        properties |= {key: value for key, value in asked.items() if key in known[target]}
        properties["DEVICE_PROPERTIES"] = {
            name: _known_ones(own, known[name]) | _known_ones(asked, known[name])
            for name in devices
        }
    lists = [_read(core, name, "OPTIMIZATION_CAPABILITIES") for name in devices]
    dynamic = options["dynamic_shapes"]
    return Configuration(
        target=target,
        devices=devices,
        properties=properties,
        exports=single and all("EXPORT_IMPORT" in each for each in lists),
        times_nodes=single and "PERF_COUNT" in known[device],
        dynamic_shapes=dynamic == "on" or (dynamic == "auto" and "NPU" not in target),
    )


def _devices(core: Any, target: str) -> tuple[str, ...]:
    """The devices of a virtual one; all that there are where it names none."""
    present = tuple(core.available_devices)
    _, _, listed = target.partition(":")
    named = tuple(name.partition("(")[0].lstrip("-") for name in listed.split(",") if name)
    for name in named:
        if not any(found == name or found.startswith(f"{name}.") for found in present):
            raise ProviderUnavailableError(
                f"target {target!r} names the device {name!r}, which isn't there",
                expected=f"some of {', '.join(present)}",
            )
    return named or present


def _check_precision(core: Any, device: str, precision: str) -> None:
    found = _read(core, device, "OPTIMIZATION_CAPABILITIES")
    if _CAPABILITIES[precision] in found:
        return
    able = [name for name, word in _CAPABILITIES.items() if word in found]
    raise OptionError(
        f"device {device!r} doesn't compute in {precision}",
        expected=f"option 'precision' as {' or '.join(able) or 'nothing that is known here'}",
        got=precision,
    )


def _read(core: Any, device: str, name: str) -> tuple[str, ...]:
    try:
        return tuple(core.get_property(device, name))
    except RuntimeError as error:
        raise ProviderUnavailableError(
            f"device {device!r} of OpenVINO doesn't answer: {message_of(error)}"
        ) from error


def _settable(core: Any, device: str) -> frozenset[str]:
    """Names of the properties of a device that may be set."""
    word = device.partition(":")[0]
    try:
        modes = property_modes(core, word)
    except RuntimeError as error:
        raise ProviderUnavailableError(
            f"{word!r} of OpenVINO can't be used: {message_of(error)}"
        ) from error
    return frozenset(name for name, mode in modes.items() if "W" in mode)


def _check_properties(
    asked: Mapping[str, str], known: Mapping[str, frozenset[str]], target: str
) -> None:
    every = frozenset[str]().union(*known.values())
    for name in asked:
        if name in _OWN_OPTIONS:
            raise OptionError(
                f"property {name} can't be set among 'properties'",
                fix=f"Use {_OWN_OPTIONS[name]}.",
            )
        if name not in every:
            raise OptionError(
                f"{target} has no property {name!r} that can be set",
                fix=did_you_mean(name, every - _OWN_OPTIONS.keys()),
            )


def _known_ones(wanted: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in wanted.items() if key in known and value is not None}
