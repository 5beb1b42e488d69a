"""The hook gives nothing."""

from ep_core.hookspecs import hookimpl


@hookimpl
def ep_provider_factory():
    return None
