"""What the caller rules about placement: strategy, pins, preferences, limits.

Turns patterns over names into wishes for the nodes of one graph. Knows graphs and answers, and no
provider: those are names here.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ep_core.contracts import Support
from ep_core.errors import OptionError, PlacementError, did_you_mean
from ep_core.graph import Graph, Node
from ep_core.placement.build import Wishes
from ep_core.placement.patterns import BETWEEN, OPERATOR, Names, ends_of, is_well_formed
from ep_core.placement.solve import Limits
from ep_core.types import MemoryInfo

__all__ = ["STRATEGIES", "Rules", "as_bytes", "as_gain", "as_limit", "as_patterns", "as_strategy"]

STRATEGIES = ("auto", "greedy", "cost")


def as_strategy(name: str, value: Any) -> str:
    """Return one of STRATEGIES; OptionError for anything else."""
    if not isinstance(value, str) or value not in STRATEGIES:
        raise OptionError(
            name,
            expected=f"one of {', '.join(map(repr, STRATEGIES))}",
            got=repr(value),
            fix=did_you_mean(str(value), STRATEGIES),
        )
    return value


def as_patterns(name: str, value: Any) -> dict[str, str]:
    """Return providers by pattern; OptionError for what can't be that."""
    if not isinstance(value, Mapping):
        raise OptionError(name, expected="a dict of providers by pattern", got=repr(value))
    for pattern, provider in value.items():
        if not isinstance(pattern, str) or not isinstance(provider, str) or not provider:
            expected = "a pattern and the name of a provider, both str"
            raise OptionError(name, expected=expected, got=f"{pattern!r}: {provider!r}")
        if not is_well_formed(pattern):
            raise OptionError(
                f"pattern {pattern!r} of {name}",
                expected="a node's name, perhaps with * and ?, 'op:Conv', or 'between:a->b'",
                got=repr(pattern),
            )
    return dict(value)


def as_bytes(name: str, value: Any) -> dict[str, int]:
    """Return bytes by provider; OptionError for what can't be that."""
    if not isinstance(value, Mapping):
        raise OptionError(name, expected="a dict of bytes by provider", got=repr(value))
    for provider, limit in value.items():
        number = isinstance(limit, numbers.Integral) and not isinstance(limit, bool)
        if not isinstance(provider, str) or not number or limit < 0:
            expected = "the name of a provider, and an int from 0 up"
            raise OptionError(name, expected=expected, got=f"{provider!r}: {limit!r}")
    return {provider: int(limit) for provider, limit in value.items()}


def as_limit(name: str, value: Any) -> int | None:
    """Return an int from 0 up, or None for no limit; OptionError for anything else."""
    if value is None:
        return None
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 0:
        raise OptionError(name, expected="an int from 0 up, or None", got=repr(value))
    return int(value)


def as_gain(name: str, value: Any) -> float:
    """Return a part, from 0 to 1; OptionError for anything else."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1:
        raise OptionError(name, expected="a number from 0 to 1", got=repr(value))
    return float(value)


@dataclass(frozen=True)
class Rules:
    """How the graphs of one session are to be placed.

    Attributes:
        strategy: one of STRATEGIES.
        pin, prefer: a provider's name by pattern. A pattern is a node's name, perhaps with `*`
            and `?`, and in a body with or without the body's path before it (`if_1/then_branch/`);
            `op:` and a type of operator; or `between:a->b` for what lies between two tensors.
            Where preferences contradict each other the first one counts; pins may not.
        limits: of each graph by itself.
        memory_limits: bytes by provider.
        settled: what "auto" came to for an earlier graph; it holds for all.
        taken: bytes by memory that earlier graphs need, predicted.
    """

    strategy: str = "auto"
    pin: Mapping[str, str] = field(default_factory=dict)
    prefer: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    memory_limits: Mapping[str, int] = field(default_factory=dict)
    settled: str | None = None
    taken: Mapping[MemoryInfo, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Settings that are dicts may have been changed after they were set.
        as_patterns("pin", self.pin)
        as_patterns("prefer", self.prefer)
        as_bytes("memory_limits", self.memory_limits)

    def resolved(self, graph: Graph, names: Mapping[str, str]) -> Rules:
        """The same with the session's names of providers; checks what only a model can tell.

        Args:
            graph: the main graph.
            names: a provider's name in the session by each of its spellings.

        Raises:
            PlacementError: a provider that isn't in the session, a pattern that matches no node.
        """
        room: dict[str, int] = {}
        for provider, limit in self.memory_limits.items():
            if provider not in names:
                raise PlacementError(
                    f"memory_limits names provider {provider!r}, which isn't in the session",
                    fix=did_you_mean(provider, names),
                )
            if room.setdefault(names[provider], limit) != limit:
                raise PlacementError(
                    f"memory_limits names {names[provider]!r} twice: {dict(self.memory_limits)}",
                    fix="Leave one of them out.",
                )
        for setting, patterns in (("pin", self.pin), ("prefer", self.prefer)):
            for pattern, provider in patterns.items():
                if provider not in names:
                    raise PlacementError(
                        f"{setting} {pattern!r} names provider {provider!r}, which isn't in the "
                        "session",
                        fix=did_you_mean(provider, names),
                    )
        wanted = list(dict.fromkeys([*self.pin, *self.prefer]))
        missing = set(wanted)
        for scope, part in _graphs(graph) if wanted else ():
            there = Names(part, scope)
            missing -= {pattern for pattern in missing if there.matches(pattern)}
        for pattern in wanted:
            if pattern in missing:
                raise _unmatched(graph, pattern, "pin" if pattern in self.pin else "prefer")
        return replace(
            self,
            pin={pattern: names[provider] for pattern, provider in self.pin.items()},
            prefer={pattern: names[provider] for pattern, provider in self.prefer.items()},
            memory_limits=room,
        )

    def wishes(
        self, graph: Graph, scope: str, given: Mapping[str, Sequence[Support]] | None = None
    ) -> Wishes:
        """What the rules say of one graph's nodes.

        Args:
            given: by provider its answers. Control flow that a provider doesn't take is no
                contradiction to a pattern that only happens to match it: its bodies are meant.

        Raises:
            PlacementError: two pins of one node to different providers.
        """
        pins, sources = _chosen(graph, scope, self.pin, strict=True)
        for index, pattern in sources.items():
            node = graph.nodes[index]
            answers = (given or {}).get(pins[index])
            refused = answers is not None and not answers[index].supported
            if refused and node.bodies and not _is_narrow(pattern, node, scope):
                del pins[index]
        prefer, _ = _chosen(graph, scope, self.prefer, strict=False)
        return Wishes(pins, prefer, sources=sources)

    def answers(
        self, graph: Graph, scope: str, name: str, answers: Sequence[Support]
    ) -> tuple[Support, ...]:
        """A provider's answers, without the control flow that has a node of another inside."""
        if not self.pin or not any(node.bodies for node in graph.nodes):
            return tuple(answers)
        return tuple(
            self._answer(node, scope, name, answer)
            for node, answer in zip(graph.nodes, answers, strict=True)
        )

    def _answer(self, node: Node, scope: str, name: str, answer: Support) -> Support:
        if not answer.supported:
            return answer
        for inner, body in _bodies(node, scope):
            pins, sources = _chosen(body, inner, self.pin, strict=True)
            for index, provider in pins.items():
                if provider != name:
                    at = f"{inner}/{body.nodes[index].name}"
                    reason = f"{at!r} inside is pinned to {provider!r} by {sources[index]!r}"
                    return Support(False, reason)
        return answer


def _chosen(
    graph: Graph, scope: str, patterns: Mapping[str, str], *, strict: bool
) -> tuple[dict[int, str], dict[int, str]]:
    """Provider, and the pattern that says so, by position of a node."""
    providers: dict[int, str] = {}
    sources: dict[int, str] = {}
    names = Names(graph, scope)
    for pattern, provider in patterns.items():
        for index in names.matches(pattern):
            other = providers.setdefault(index, provider)
            first = sources.setdefault(index, pattern)
            if strict and other != provider:
                node = graph.nodes[index]
                raise PlacementError(
                    f"pins contradict each other: {node.key} {node.name!r} is pinned to {other!r} "
                    f"by {first!r} and to {provider!r} by {pattern!r}",
                    fix="Remove one of them, or make its pattern narrower.",
                )
    return providers, sources


def _is_narrow(pattern: str, node: Node, scope: str) -> bool:
    """It means this node, or nodes of its kind, in so many words."""
    return pattern.startswith(OPERATOR) or pattern in (node.name, f"{scope}/{node.name}")


def _graphs(graph: Graph, scope: str = "") -> Iterator[tuple[str, Graph]]:
    """A graph and all bodies inside, each with its path."""
    yield scope, graph
    for node in graph.nodes:
        yield from _bodies(node, scope)


def _bodies(node: Node, scope: str) -> Iterator[tuple[str, Graph]]:
    """The bodies inside a node, of all depths, each with its path."""
    for name, body in node.bodies.items():
        inner = f"{scope}/{node.name}/{name}" if scope else f"{node.name}/{name}"
        yield from _graphs(body, inner)


def _unmatched(graph: Graph, pattern: str, setting: str) -> PlacementError:
    parts = [part for _, part in _graphs(graph)]
    nodes = [node for part in parts for node in part.nodes]
    wanted, known = pattern, {node.name for node in nodes}
    told = "matches no node of the model after its graph passes"
    if pattern.startswith(OPERATOR):
        wanted, known = pattern.removeprefix(OPERATOR), {node.op_type for node in nodes}
    elif pattern.startswith(BETWEEN):
        made = (name for node in nodes for name in node.outputs)
        known = {*made, *(name for part in parts for name in part.input_names)}
        start, end = ends_of(pattern)
        wanted = end if start in known else start
        way = f"no way in one graph leads from {start!r} to {end!r}"
        told += f": {way if wanted in known else f'there is no tensor {wanted!r}'}"
    hint = did_you_mean(wanted, known) if wanted not in known else ""
    advice = (
        "A pass may have removed or fused the node: with graph_optimization_level "
        "ORT_DISABLE_ALL every node stays."
    )
    return PlacementError(
        f"{setting} {pattern!r} {told}",
        fix=f"{hint} {advice}" if hint.startswith("Did you mean") else advice,
    )
