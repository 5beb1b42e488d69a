"""A driver that crashes when asked for devices."""

import ctypes

from zoo_common import Factory

from ep_core.hookspecs import hookimpl


class BrokenFactory(Factory):
    def devices(self):
        ctypes.string_at(0)


@hookimpl
def ep_provider_factory():
    return BrokenFactory("zoo_segfault_in_devices")
