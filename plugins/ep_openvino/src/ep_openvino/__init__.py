"""The OpenVINO execution provider: whole subgraphs, compiled by OpenVINO for its devices.

This module only announces the provider. OpenVINO is imported when somebody asks for devices.
"""

from __future__ import annotations

from ep_core.contracts import ProviderFactory
from ep_core.hookspecs import hookimpl

__all__ = ["ep_provider_factory"]


@hookimpl
def ep_provider_factory() -> ProviderFactory:
    """Return the factory of the OpenVINO provider."""
    from ep_openvino.factory import make_factory

    return make_factory()
