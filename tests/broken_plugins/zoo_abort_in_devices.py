"""A driver that aborts when asked for devices."""

import os

from zoo_common import Factory

from ep_core.hookspecs import hookimpl


class BrokenFactory(Factory):
    def devices(self):
        os.abort()


@hookimpl
def ep_provider_factory():
    return BrokenFactory("zoo_abort_in_devices")
