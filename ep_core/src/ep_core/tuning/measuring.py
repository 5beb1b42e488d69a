"""Measures what isn't known yet, within a limit of time, and remembers it.

A measurement that fails costs nothing but itself; it is remembered as one that fails. A device that
gets lost isn't measured any further.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ep_core.artifacts.cache import ArtifactCache
from ep_core.errors import DeviceLostError, EpError
from ep_core.graph import Graph
from ep_core.partition import Candidate, Partitioning
from ep_core.placement.build import Offer, node_seconds
from ep_core.placement.roofline import Sizes
from ep_core.tuning.bench import Bench
from ep_core.tuning.costs import Figures, Nodes
from ep_core.tuning.store import CostStore, binding_of
from ep_core.tuning.trial import trial_seconds
from ep_core.tuning.work import Work, key_of_text, work_of
from ep_core.types import HOST_MEMORY

__all__ = ["Measuring"]

_LOG = logging.getLogger("ep_core")
_MOST_SECONDS = 30.0
"""Spent in one session; a measurement that has begun is brought to its end."""
_NODES_SHARE = 0.5
"""Of these seconds, the part for single nodes; the rest is for placements."""

_START, _LATENCY, _RATE = map(key_of_text, ("start", "latency", "rate"))


class Measuring:
    """What a session knows of its devices, and measures of them.

    Args:
        candidates: as they are to be measured.
        folder: where costs are remembered; None for the session only.
        allowed: False reads what is there and measures nothing.
        cache: for partitions that may become the session's own.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        folder: Path | None,
        allowed: bool,
        cache: ArtifactCache | None,
    ) -> None:
        self._candidates = candidates
        self._benches = [Bench(candidate) for candidate in candidates]
        self._bindings = {candidate.name: binding_of(candidate) for candidate in candidates}
        self._folder = folder
        self._subjects: dict[tuple[str, ...], _Subject] = {}
        self._allowed = allowed
        self._active = False
        self._cache = cache
        self._spent = 0.0
        self._counts = [0, 0]  # measured, failed

    @contextlib.contextmanager
    def of(self, title: str, *, active: bool) -> Iterator[None]:
        """While a graph is measured; then devices are let go, and all is saved and told.

        Args:
            active: False measures nothing of this graph.
        """
        spent = self._spent
        self._active = active and self._allowed
        self._counts = [0, 0]
        try:
            yield
        finally:
            for bench in self._benches:
                bench.close()
            for subject in self._subjects.values():
                subject.store.save()
            measured, failed = self._counts
            if measured or failed:
                over = "; time is up" if self._spent >= _MOST_SECONDS else ""
                _LOG.info(
                    "%s: measured %d costs in %.1f s, and failed to measure %d%s",
                    *(title, measured, self._spent - spent, failed, over),
                )

    def figures(self) -> list[Figures]:
        """By candidate, what starting a partition and copying take."""
        return [self._figures(bench) for bench in self._benches]

    def nodes(
        self, graph: Graph, offers: Sequence[Offer], live: Sequence[int], sizes: Sizes
    ) -> list[dict[Nodes, float]]:
        """By candidate, seconds of a partition of each node alone, and of each fused group.

        First come nodes that several can run, of these the ones that are predicted to take longest.
        """
        rows: dict[int, list[float]] = {index: [] for index in live}
        for index, row in rows.items():
            for offer in offers:
                if offer.answers[index].supported:
                    node, answer = graph.nodes[index], offer.answers[index]
                    row.append(node_seconds(node, answer, offer.speed, sizes))
        works: dict[Nodes, Work | None] = {}
        jobs: list[tuple[bool, float, Nodes, int]] = []
        for at, offer in enumerate(offers):
            for nodes in _units(offer, rows):
                if nodes not in works:
                    works[nodes] = _work(graph, nodes, sizes)
                sole = all(len(rows[index]) < 2 for index in nodes)
                jobs.append((sole, -sum(max(rows[index]) for index in nodes), nodes, at))
        found: list[dict[Nodes, float]] = [{} for _ in offers]
        for _, _, nodes, at in sorted(jobs):
            seconds = self._seconds(self._benches[at], works[nodes])
            if seconds is not None:
                found[at][nodes] = seconds
        return found

    def whole(self, placed: Partitioning) -> float | None:
        """Seconds of one run of a placement, None where they can't be had."""
        used = {spec.candidate.name for spec in placed.specs if spec.candidate is not None}
        involved = [candidate for candidate in self._candidates if candidate.name in used]
        live = sorted(index for spec in placed.specs for index in spec.indices)
        work = _work(placed.graph, live, Sizes(placed.graph, {}))
        if work is None or any(self._subject(c.name).lost for c in involved):
            return None
        owners = (spec.candidate.name if spec.candidate else "" for spec in placed.specs)
        parts = (spec.indices for spec in placed.specs)
        key = key_of_text(work.key, *map(repr, zip(owners, parts, strict=True)))
        subject = self._subject(*(candidate.name for candidate in involved))
        if self._may(subject, key, 1.0):
            run = partial(trial_seconds, placed, involved, self._cache)
            self._try(subject, key, lambda: {key: run()})
        for candidate in involved if subject.lost else ():
            # Which of them it was isn't known; the host is still there.
            away = candidate.provider.memory != HOST_MEMORY
            self._subject(candidate.name).lost |= away
        return subject.store.get(key)

    # ------------------------------------------------------------ one measurement

    def _figures(self, bench: Bench) -> Figures:
        subject = self._subject(bench.candidate.name)
        if self._may(subject, _START, _NODES_SHARE):
            self._try(subject, _START, lambda: {_START: bench.start_seconds()})
        away = bench.candidate.provider.memory != HOST_MEMORY
        if away and self._may(subject, _RATE, _NODES_SHARE):
            keys = (_LATENCY, _RATE)
            self._try(subject, _RATE, lambda: dict(zip(keys, bench.copying(), strict=True)))
        return Figures(*(subject.store.get(key) for key in (_START, _LATENCY, _RATE)))

    def _seconds(self, bench: Bench, work: Work | None) -> float | None:
        if work is None:
            return None
        subject = self._subject(bench.candidate.name)
        if self._may(subject, work.key, _NODES_SHARE):
            self._try(subject, work.key, lambda: {work.key: bench.seconds(work)})
        return subject.store.get(work.key)

    def _subject(self, *names: str) -> _Subject:
        """What is known of some candidates together."""
        if names not in self._subjects:
            bindings = [self._bindings[name] for name in names]
            texts = [text for binding in bindings for text in binding or ()]
            store = CostStore(self._folder, None if None in bindings else texts)
            self._subjects[names] = _Subject(" and ".join(names), store)
        return self._subjects[names]

    def _may(self, subject: _Subject, key: str, share: float) -> bool:
        """It isn't known, and there is time and a device to measure it."""
        late = self._spent >= share * _MOST_SECONDS
        return self._active and not (late or subject.lost or subject.store.knows(key))

    def _try(self, subject: _Subject, key: str, measure: Callable[[], dict[str, float]]) -> None:
        """Measure, and remember what comes of it under its keys; a failure under `key`."""
        start = time.perf_counter()
        try:
            for own, seconds in measure().items():
                subject.store.put(own, seconds)
            self._counts[0] += 1
        except DeviceLostError as error:
            subject.lost = True
            told = "%s lost a device in measuring, which isn't measured any further: %s"
            _LOG.warning(told, subject.name, error)
        except Exception as error:  # noqa: BLE001 - costs this measurement only
            subject.store.put(key, None)
            self._counts[1] += 1
            _LOG.debug("a cost of %s can't be measured: %s", subject.name, error)
        self._spent += time.perf_counter() - start


@dataclass
class _Subject:
    """One candidate or several that run a model together, and what is known of them."""

    name: str
    store: CostStore
    lost: bool = False


def _units(offer: Offer, live: Container[int]) -> Iterator[Nodes]:
    """What is measured of an offer: nodes, and groups that it can run as a whole."""
    able = [answer.supported and index in live for index, answer in enumerate(offer.answers)]
    yield from ((index,) for index, yes in enumerate(able) if yes)
    yield from (group.nodes for group in offer.groups if all(able[index] for index in group.nodes))


def _work(graph: Graph, indices: Sequence[int], sizes: Sizes) -> Work | None:
    """None where something has no digest: then it isn't measured either."""
    try:
        return work_of(graph, indices, sizes)
    except EpError:
        return None
