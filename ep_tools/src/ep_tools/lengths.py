"""Lengths that a model leaves open: those that a command line fixes, those that placement assumes.

A command that compares a prediction with a measurement has to predict for what it feeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ep_core.errors import OptionError
from ep_core.graph import Graph
from ep_core.loading.load import load_model
from ep_core.placement.roofline import Sizes
from ep_core.signature import NodeArg
from ep_tools.feeds import InputSpec, unknown_input
from ep_tools.requests import FeedRequest, SessionRequest
from ep_tools.sessions import Session, by_name, session_options

__all__ = ["OtherLength", "fix_lengths", "other_lengths", "tell_other_lengths"]

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class OtherLength:
    """An open dimension for which a prediction assumes another length than was fed."""

    name: str
    assumed: int
    fed: int


def fix_lengths(request: SessionRequest, feeds: FeedRequest) -> tuple[SessionRequest, FeedRequest]:
    """Have the session fix the lengths that `--dim` and `--shape` give, in place of only feeding.

    Raises:
        EpError: the model can't be loaded, a name isn't there, or two lengths contradict each
            other.
    """
    lengths = by_name("--dim", feeds.dims)
    shapes = by_name("--shape", feeds.shapes)
    if shapes:
        specs = {value.name: InputSpec.of(NodeArg.of(value)) for value in _graph(request).inputs}
        for name, shape in shapes.items():
            if name not in specs:
                raise unknown_input(name, specs)
            specs[name].with_shape(shape)
            for dim, length in zip(specs[name].shape, shape, strict=False):
                if isinstance(dim, str) and lengths.setdefault(dim, length) != length:
                    raise OptionError(
                        f"--shape {name} contradicts another length of '{dim}'",
                        expected=lengths[dim],
                        got=length,
                    )
    fixed = replace(request, free_dimensions=tuple(lengths.items()))
    return fixed, replace(feeds, dims=())


def other_lengths(
    session: Session, request: SessionRequest, feeds: Mapping[str, np.ndarray[Any, Any]]
) -> tuple[OtherLength, ...]:
    """Say where a prediction assumes other lengths than were fed.

    Args:
        session: of the request.

    Raises:
        EpError: the model can't be loaded.
    """
    if all(isinstance(dim, int) for arg in session.get_inputs() for dim in arg.shape):
        return ()
    graph = _graph(request)
    sizes = Sizes(graph, {})
    found: dict[str, OtherLength] = {}
    for value in graph.inputs:
        spec = InputSpec.of(NodeArg.of(value))
        if value.name not in feeds:
            continue
        rows = zip(spec.shape, sizes.shape(value.name), feeds[value.name].shape, strict=False)
        for dim, assumed, fed in rows:
            if isinstance(dim, str) and assumed != fed:
                found.setdefault(dim, OtherLength(dim, assumed, fed))
    return tuple(found.values())


def tell_other_lengths(found: Sequence[OtherLength]) -> str:
    """A sentence for the reader, which says what to do."""
    shown = found[:_SHOWN]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    named = ", ".join(f"{item.name} is {item.assumed}, not {item.fed}" for item in shown)
    flags = " ".join(f"--dim {item.name}={item.fed}" for item in shown)
    return (
        f"Predictions are for other lengths than the inputs have: {named}{more}. To have both "
        f"for the same: {flags}"
    )


def _graph(request: SessionRequest) -> Graph:
    options = session_options(request)
    return load_model(
        request.model, limits=options.load_limits, free_dimensions=options.free_dimensions
    ).graph
