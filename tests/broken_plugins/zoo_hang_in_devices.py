"""A driver that waits for hardware that never answers."""

import threading

from zoo_common import Factory

from ep_core.hookspecs import hookimpl


class BrokenFactory(Factory):
    def devices(self):
        threading.Event().wait()


@hookimpl
def ep_provider_factory():
    return BrokenFactory("zoo_hang_in_devices")
