"""Nothing is wrong with it, but the machine has no such device."""

from zoo_common import Factory

from ep_core.hookspecs import hookimpl


class AbsentFactory(Factory):
    def devices(self):
        return []

    def why_unavailable(self):
        return "no zoo accelerator is plugged in"


@hookimpl
def ep_provider_factory():
    return AbsentFactory("zoo_no_hardware")
