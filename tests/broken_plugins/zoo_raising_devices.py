"""Listing devices raises."""

from zoo_common import Factory

from ep_core.hookspecs import hookimpl


class BrokenFactory(Factory):
    def devices(self):
        raise OSError("/dev/zoo: permission denied")


@hookimpl
def ep_provider_factory():
    return BrokenFactory("zoo_raising_devices")
