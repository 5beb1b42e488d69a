"""Runs a placement as a session would, to time it as a whole: partitions, copies, waits.

Inputs of the graph are made up; what flows between partitions is real. Nothing is remembered or
decided here. Whatever fails goes to the caller, and what was compiled is closed before.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from ep_core.artifacts.cache import ArtifactCache, make_partition
from ep_core.contracts import Value
from ep_core.errors import NotSupportedError
from ep_core.partition import Candidate, Partitioning, cut_claim
from ep_core.placement.roofline import Sizes
from ep_core.running.executor import ContextPool
from ep_core.running.plan import Scratch
from ep_core.running.planner import Planner
from ep_core.tuning.bench import close_quietly, quickest
from ep_core.tuning.bounds import check_bounds
from ep_core.tuning.feeds import feed

__all__ = ["trial_seconds"]


def trial_seconds(
    placed: Partitioning, candidates: Sequence[Candidate], cache: ArtifactCache | None
) -> float:
    """Least seconds of a run.

    Args:
        candidates: those that the placement uses, in the order of the session.
        cache: for partitions that may become the session's own.

    Raises:
        NotSupportedError: the core runs control flow here, whose bodies are placed later.
        whatever making inputs, compiling or running raises.
    """
    graph, scratch = placed.graph, list[Scratch]()
    by_name = {candidate.name: candidate for candidate in candidates}
    live = sorted(index for spec in placed.specs for index in spec.indices)
    check_bounds(graph, live, Sizes(graph, {}))
    planner = Planner(graph, candidates, scratch)
    with contextlib.ExitStack() as undo:
        for number, spec in enumerate(placed.specs):
            if spec.candidate is None:
                raise NotSupportedError("control flow isn't timed before its bodies are placed")
            candidate = by_name[spec.candidate.name]
            claim = cut_claim(graph, spec.indices, candidate, f"measured_{number}")
            part, _ = make_partition(candidate, claim, cache)
            undo.callback(close_quietly, part)
            planner.add_run(claim, part, candidate)
        plan = planner.finish()
        inputs = _inputs(placed)
        pool = ContextPool([candidate.provider for candidate in candidates], scratch)
        undo.callback(pool.close)

        def once() -> float:
            start = time.perf_counter()
            pool.run(plan, inputs, None)
            return time.perf_counter() - start

        return quickest(once)


def _inputs(placed: Partitioning) -> list[Value]:
    """A value for each input of the graph; its own where it has a default."""
    graph = placed.graph
    sizes = Sizes(graph, {})
    return [
        graph.initializers[name].numpy()
        if name in graph.overridable
        else feed(graph, graph.nodes, name, sizes)
        for name in graph.input_names
    ]
