"""Factories with one defect each, as `FACTORIES[name] = (factory, catcher, how)`."""

from __future__ import annotations

import itertools
from dataclasses import replace

from zoo_base import CorrectProvider, factory_of

from ep_core.contracts import OptionSpec
from ep_core.types import DeviceInfo
from ep_sdk.factory import StandardFactory

_FINGERPRINTS = (f"zoo-{n}" for n in itertools.count())


def _with_option(default, parse):
    return factory_of(CorrectProvider, options={"level": OptionSpec(default, "how much", parse)})


def _other_devices():
    return [DeviceInfo("zoo", "0", "cpu", fingerprint=next(_FINGERPRINTS))]


def _nameless_devices():
    return [DeviceInfo("zoo", "0", "cpu")]


class _Everything(dict):
    """Options that say yes to every name."""

    def __contains__(self, name):
        return True


def _taking_everything():
    factory = factory_of(CorrectProvider)
    info = replace(factory.info, options=_Everything(factory.info.options))
    return StandardFactory(info, factory.devices, CorrectProvider)


FACTORIES = {
    "an option refuses its default": (
        _with_option("high", int),
        "options/defaults",
        "refuses its own default: ValueError",
    ),
    "an option raises something else": (
        _with_option(1, lambda value: value + 1 - 1),
        "options/wrong-values",
        "raises TypeError",
    ),
    "takes any option": (_taking_everything(), "options/unknown", "doesn't declare"),
    "devices change": (
        factory_of(CorrectProvider, list_devices=_other_devices),
        "life/devices",
        "differently",
    ),
    "a device has no fingerprint": (
        factory_of(CorrectProvider, list_devices=_nameless_devices),
        "life/devices",
        "no fingerprint",
    ),
}
