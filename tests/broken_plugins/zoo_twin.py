"""Installed by two packages under one name."""

from zoo_common import Factory

from ep_core.hookspecs import hookimpl


@hookimpl
def ep_provider_factory():
    return Factory("zoo_twin")
