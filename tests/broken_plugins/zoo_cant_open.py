"""Lists a device and can't open it."""

from zoo_common import Factory

from ep_core.hookspecs import hookimpl


class BrokenFactory(Factory):
    def create(self, device, options):
        raise RuntimeError("the device is in use")


@hookimpl
def ep_provider_factory():
    return BrokenFactory("zoo_cant_open")
