"""The pluggy hooks of a plugin. A provider must have `ep_provider_factory`; the rest is optional.

Providers are found by the entry-point group `ep_core.providers` (entry point name = provider
name), subcommands of `ep` by `ep_core.commands`; the value is a module or object that holds
functions marked with `hookimpl`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from ep_core.contracts import Command, GraphPass, ProviderFactory

__all__ = ["COMMAND_GROUP", "PROVIDER_GROUP", "hookimpl", "hookspec"]

PROVIDER_GROUP = "ep_core.providers"
COMMAND_GROUP = "ep_core.commands"

hookspec = pluggy.HookspecMarker("ep_core")
hookimpl = pluggy.HookimplMarker("ep_core")


@hookspec(firstresult=True)
def ep_provider_factory() -> ProviderFactory:
    """Return the provider's factory. Must be cheap: no vendor library is loaded yet."""
    raise NotImplementedError


@hookspec
def ep_op_schemas() -> Sequence[Any]:
    """Return `onnx.defs.OpSchema` objects of custom domains, for shape and type inference."""
    raise NotImplementedError


@hookspec
def ep_graph_passes() -> Sequence[GraphPass]:
    """Return passes to run on the provider's own claimed regions before it compiles them."""
    raise NotImplementedError


@hookspec
def ep_commands() -> Sequence[Command]:
    """Return subcommands of `ep`."""
    raise NotImplementedError
