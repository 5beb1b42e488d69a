"""What a provider says about itself, and how it takes options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ep_compliance.checks import check
from ep_compliance.driving.bench import Bench
from ep_compliance.driving.findings import Broken, text_of
from ep_core.contracts import Numerics, ProviderFeatures
from ep_core.discovery.plugins import check_devices, check_provider
from ep_core.errors import ContractError, OptionError
from ep_core.types import HOST_MEMORY

_JUNK: tuple[Any, ...] = (
    "",
    " ",
    "no such value",
    "\x00",
    "1e999",
    "\N{SNOWMAN}",
    -1,
    10**40,
    1.5,
    float("nan"),
    None,
    True,
    b"bytes",
    [],
    {},
    object(),
)


@check("options/defaults")
def defaults(bench: Bench) -> None:
    """Every option has a text, a default that its own parser takes, and the device opens so."""
    for name, spec in bench.factory.info.options.items():
        if not spec.doc:
            raise Broken(f"option {name!r} says nothing about itself")
        try:
            again = spec.parse(spec.default)
        except Exception as error:
            raise Broken(f"option {name!r} refuses its own default: {text_of(error)}") from error
        if again != spec.default:
            raise Broken(f"option {name!r} turns its default {spec.default!r} into {again!r}")
    with bench.open():
        pass


@check("options/wrong-values")
def wrong_values(bench: Bench) -> None:
    """A parser takes a value or raises ValueError, whatever comes."""
    for name, spec in bench.factory.info.options.items():
        for value in _JUNK:
            try:
                spec.parse(value)
            except ValueError:
                continue
            except Exception as error:
                text = f"option {name!r} given {value!r} raises {text_of(error)}"
                raise Broken(f"{text}, expected ValueError") from error


@check("options/unknown")
def unknown(bench: Bench) -> None:
    """An option that the provider doesn't have is refused before the device is opened."""
    try:
        with bench.open(no_such_option_of_any_provider=1):
            pass
    except OptionError:
        return
    raise Broken("takes an option that it doesn't declare")


@check("life/devices")
def devices(bench: Bench) -> None:
    """Devices are listed twice alike, each with what a certificate can be bound to."""
    factory = bench.factory
    try:
        first, _ = check_devices(factory, factory.info.name)
        second, _ = check_devices(factory, factory.info.name)
    except ContractError as error:
        raise Broken(str(error)) from error
    if first != second:
        raise Broken("devices() answers differently the second time")
    for device in first:
        if not device.fingerprint:
            raise Broken(f"device {device.id!r} has no fingerprint to bind a certificate to")
        if not isinstance(device.properties, Mapping):
            raise Broken(f"properties of device {device.id!r} are no mapping")


@check("life/identity")
def identity(bench: Bench) -> None:
    """An open provider is the one that was asked for, and what it declares fits together."""
    with bench.open() as provider:
        if provider.info != bench.factory.info:
            raise Broken("`info` of the open provider differs from its factory's")
        if provider.device != bench.device:
            raise Broken(f"asked for device {bench.device.id!r}, got {provider.device.id!r}")
        try:
            check_provider(provider)
        except ContractError as error:
            raise Broken(str(error)) from error
        features = provider.features
        _check_features(features)
        stream = provider.create_stream()
        if provider.features.asynchronous != (stream is not None):
            raise Broken("create_stream() and `asynchronous` contradict each other")
        if stream is not None:
            stream.close()
        own = provider.allocator
        if own is not None and own.memory != provider.memory:
            raise Broken("the allocator is for another memory than the provider's")
        if provider.features.non_tensor_values and provider.memory != HOST_MEMORY:
            raise Broken("`non_tensor_values` is for providers in host memory only")
    with bench.open() as provider:
        if provider.features != features:
            raise Broken("what it declares differs when the device is opened again")


def _check_features(features: ProviderFeatures) -> None:
    if not isinstance(features.numerics, Numerics):
        raise Broken("feature 'numerics' is no Numerics")
    declared = {name: getattr(features, name) for name in features.__slots__ if name != "numerics"}
    declared |= {name: getattr(features.numerics, name) for name in Numerics.__slots__}
    for name, value in declared.items():
        if not isinstance(value, bool):
            raise Broken(f"feature {name!r} is no bool")
    if features.overlaps_copies and not features.asynchronous:
        raise Broken("`overlaps_copies` needs `asynchronous`")
