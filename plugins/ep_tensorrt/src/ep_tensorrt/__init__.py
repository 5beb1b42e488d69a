"""The TensorRT execution provider: whole subgraphs, built into engines for NVIDIA's GPUs.

This module only announces the provider. TensorRT is imported when somebody asks for devices.
"""

from __future__ import annotations

from ep_core.contracts import ProviderFactory
from ep_core.hookspecs import hookimpl

__all__ = ["ep_provider_factory"]


@hookimpl
def ep_provider_factory() -> ProviderFactory:
    """Return the factory of the TensorRT provider."""
    from ep_tensorrt.factory import make_factory

    return make_factory()
