"""Needs a library that isn't there."""

import zoo_vendor_library_that_is_missing
from zoo_common import Factory

from ep_core.hookspecs import hookimpl


@hookimpl
def ep_provider_factory():
    return Factory("zoo_import_error", zoo_vendor_library_that_is_missing.VERSION)
