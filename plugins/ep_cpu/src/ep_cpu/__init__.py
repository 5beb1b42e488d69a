"""The CPU execution provider: complete, always there, the reference for what an answer is.

This module only announces the provider. Kernels are imported when a device is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ep_core.contracts import ProviderFactory
from ep_core.hookspecs import hookimpl

__all__ = ["ep_op_schemas", "ep_provider_factory"]


@hookimpl
def ep_provider_factory() -> ProviderFactory:
    """Return the factory of the CPU provider."""
    from ep_cpu.factory import make_factory

    return make_factory()


@hookimpl
def ep_op_schemas() -> Sequence[Any]:
    """Return the schemas of com.microsoft, which onnx doesn't have."""
    from ep_cpu.schemas import microsoft_schemas

    return microsoft_schemas()
