"""What the arguments of a command ask for, as data.

Light on purpose: arguments are parsed before numpy, onnx and the core are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ep_tools.inputs import InputSource

__all__ = ["FeedRequest", "PlacementRequest", "SessionRequest", "Tolerance"]


@dataclass(frozen=True)
class PlacementRequest:
    """What a placement has to keep to.

    Attributes:
        strategy: `auto`, `greedy` or `cost`.
        pins: pattern and provider.
        max_copies, max_partitions: None for no limit.
        tune: measure what nodes take, and place by that.
        cost_cache: where measured costs are remembered; None for the user's cache.
        memory_limits: provider and bytes.
    """

    strategy: str = "auto"
    pins: Sequence[tuple[str, str]] = ()
    max_copies: int | None = None
    max_partitions: int | None = None
    tune: bool = False
    cost_cache: str | None = None
    memory_limits: Sequence[tuple[str, int]] = ()

    @property
    def in_words(self) -> tuple[tuple[str, str], ...]:
        """What was asked for beyond the defaults: pairs of a title and a text."""
        found = [("strategy", self.strategy)] if self.strategy != "auto" else []
        found += [("costs", "measured")] if self.tune else []
        found += [("pin", f"{pattern} to {provider}") for pattern, provider in self.pins]
        limits = (("copies", self.max_copies), ("partitions", self.max_partitions))
        found += [(name, f"at most {n} in each graph") for name, n in limits if n is not None]
        found += [("memory", f"{name} has {limit} bytes") for name, limit in self.memory_limits]
        return tuple(found)


@dataclass(frozen=True)
class SessionRequest:
    """How to make a session.

    Attributes:
        model: path of the model.
        providers: names in order of preference; None for the automatic choice.
        provider_options: provider, option, value.
        level: value of `GraphOptimizationLevel`.
        intra_op_num_threads: threads inside one operator; 0 leaves it to the provider.
        free_dimensions: lengths to fix for named dimensions that the model leaves open.
        placement: where nodes may run.
        certificate_policy: `enforce`, `warn` or `off`; None for the environment's.
    """

    model: str
    providers: Sequence[str] | None = None
    provider_options: Sequence[tuple[str, str, str]] = ()
    level: int = 99
    intra_op_num_threads: int = 0
    free_dimensions: Sequence[tuple[str, int]] = ()
    placement: PlacementRequest = PlacementRequest()
    certificate_policy: str | None = None


@dataclass(frozen=True)
class FeedRequest:
    """What to feed: pairs of name and value, in the order given.

    Attributes:
        inputs: where the value of each input comes from.
        dims: lengths of dimensions that the model leaves open.
        shapes: shapes of whole inputs.
        fill: inputs that aren't named get random values; otherwise they are an error.
    """

    inputs: Sequence[tuple[str, InputSource]] = ()
    dims: Sequence[tuple[str, int]] = ()
    shapes: Sequence[tuple[str, tuple[int, ...]]] = ()
    fill: bool = False


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Two floats agree if |a - b| <= atol + rtol * |b|, two integers if |a - b| <= atol."""

    rtol: float = 1e-3
    atol: float = 1e-4
