"""Calls itself otherwise than its entry point."""

from zoo_common import Factory

from ep_core.hookspecs import hookimpl


@hookimpl
def ep_provider_factory():
    return Factory("cpu")
