"""Lists devices as text."""

from zoo_common import Factory

from ep_core.hookspecs import hookimpl


class BrokenFactory(Factory):
    def devices(self):
        return ["zoo:0"]


@hookimpl
def ep_provider_factory():
    return BrokenFactory("zoo_garbage_devices")
