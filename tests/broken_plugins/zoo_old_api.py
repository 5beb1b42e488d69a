"""Written for an older major version of the provider API."""

from zoo_common import Factory

from ep_core.contracts import API_VERSION
from ep_core.hookspecs import hookimpl


@hookimpl
def ep_provider_factory():
    return Factory("zoo_old_api", (API_VERSION[0] - 1, 9))
