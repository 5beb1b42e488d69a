"""How a session is made and run with profiling on, and with it off."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ep_core.artifacts.cache import ArtifactCache
from ep_core.compiler import Compiler
from ep_core.contracts import ExecutionProvider, Value
from ep_core.errors import OptionError
from ep_core.graph import Graph
from ep_core.options import SessionOptions
from ep_core.partition import Candidate, Partitioning
from ep_core.passes import Watch
from ep_core.placement.rules import Rules
from ep_core.profiling.provider import WatchedProvider
from ep_core.profiling.steps import timed_plan
from ep_core.profiling.trace import Trace
from ep_core.profiling.watching import CopyWatch
from ep_core.running.executor import ContextPool, Terminable
from ep_core.running.plan import Plan, Scratch

if TYPE_CHECKING:
    from ep_core.tuning.tuner import Tuner

__all__ = ["Profiler", "start_profiler"]

_LOG = logging.getLogger("ep_core")


class Profiler:
    """The parts of a session that are other ones when it is profiled.

    This class is for a session that isn't: nothing is wrapped, nothing is timed.
    """

    def phase(self, name: str) -> None:
        """A new phase of making the session begins; an empty name ends the last."""

    def watch(self, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates to go on with."""
        return candidates

    watch_pass: Watch | None = None
    """Sees each graph pass."""

    def compiler(
        self,
        candidates: Sequence[Candidate],
        cache: ArtifactCache | None,
        rules: Rules,
        tuner: Tuner | None,
    ) -> Compiler:
        """The session's compiler."""
        return Compiler(candidates, cache, rules, tuner)

    def contexts(
        self, providers: Sequence[ExecutionProvider], scratch: Sequence[Scratch]
    ) -> ContextPool:
        """What runs the session's plan."""
        return ContextPool(providers, scratch)

    @property
    def started_ns(self) -> int:
        """When it began, by `time.monotonic_ns`; OptionError without profiling."""
        raise _not_profiled()

    def end(self) -> str:
        """Write the trace and return its path; OptionError without profiling."""
        raise _not_profiled()

    def discard(self) -> None:
        """The session can't be made: leave nothing behind."""

    def close(self) -> None:
        """The session ends: write the trace, if nobody has."""


def start_profiler(options: SessionOptions) -> Profiler:
    """Return the profiler that the options ask for.

    Raises:
        OptionError: the trace can't be written where it should be.
    """
    return _On(Trace(options.profile_file_prefix)) if options.enable_profiling else Profiler()


def _not_profiled() -> OptionError:
    return OptionError(
        "the session isn't profiled",
        fix="Set SessionOptions.enable_profiling before the session is created.",
    )


class _On(Profiler):
    """Profiling is on."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._watch = CopyWatch(trace)
        self._began = time.perf_counter_ns()
        self._phase = ""
        self._numbers = itertools.count(1)
        self.watch_pass = self._timed_pass

    def phase(self, name: str) -> None:
        now = time.perf_counter_ns()
        if self._phase:
            self._trace.add(self._phase, "session", self._began, now)
        self._began = now
        self._phase = name

    def watch(self, candidates: list[Candidate]) -> list[Candidate]:
        return [
            replace(item, provider=WatchedProvider(item.name, item.provider, self._trace))
            for item in candidates
        ]

    def compiler(
        self,
        candidates: Sequence[Candidate],
        cache: ArtifactCache | None,
        rules: Rules,
        tuner: Tuner | None,
    ) -> Compiler:
        self._compiler = _TimedCompiler(
            candidates, cache, rules, tuner, trace=self._trace, watch=self._watch
        )
        return self._compiler

    def contexts(
        self, providers: Sequence[ExecutionProvider], scratch: Sequence[Scratch]
    ) -> ContextPool:
        return _TimedPool(providers, scratch, self._trace, self._numbers, self._compiler)

    def _timed_pass(self, name: str, graph: Graph, work: Callable[[], Graph]) -> Graph:
        start = time.perf_counter_ns()
        result = work()
        end = time.perf_counter_ns()
        sizes = {"nodes_before": _size(graph), "nodes_after": _size(result)}
        self._trace.add(name, "pass", start, end, "", changed=result is not graph, **sizes)
        return result

    @property
    def started_ns(self) -> int:
        return self._trace.started_ns

    def end(self) -> str:
        self._watch.stop()
        return self._trace.write()

    def discard(self) -> None:
        self._trace.discard()

    def close(self) -> None:
        self._watch.stop()
        try:
            self._trace.write()
        except OptionError as error:
            _LOG.warning("%s", error)


def _size(graph: Graph) -> int:
    """Nodes of a graph and of the bodies in it."""
    return len(graph.nodes) + sum(_size(b) for node in graph.nodes for b in node.bodies.values())


@dataclass(kw_only=True)
class _TimedCompiler(Compiler):
    """Times what it does for each graph, and makes plans whose steps are timed."""

    trace: Trace
    watch: CopyWatch

    def compile(self, graph: Graph, scope: str = "") -> Plan:
        with self.trace.span(f"place and compile {scope or graph.name}", "compile"):
            plan = super().compile(graph, scope)
        return self.timed(plan, scope)

    def timed(self, plan: Plan, scope: str) -> Plan:
        """The plan of a graph that was compiled, with its steps timed."""
        report = self.report()
        return timed_plan(
            plan,
            scope,
            [part for part in report.partitions if part.scope == scope],
            [copy for copy in report.copies if copy.scope == scope],
            {candidate.name: candidate.provider for candidate in self.candidates},
            self.trace,
            self.watch,
        )

    def _place(
        self, graph: Graph, refusals: dict[tuple[str, str], str], scope: str
    ) -> Partitioning:
        with self.trace.span("place", "placement", nodes=len(graph.nodes)):
            return super()._place(graph, refusals, scope)


class _TimedPool(ContextPool):
    """Times each run as a whole, and the steps of plans that were made for memory that is bound."""

    def __init__(
        self,
        providers: Sequence[ExecutionProvider],
        scratch: Sequence[Scratch],
        trace: Trace,
        numbers: Iterator[int],
        compiler: _TimedCompiler,
    ) -> None:
        super().__init__(providers, scratch)
        self._trace = trace
        self._numbers = numbers
        self._compiler = compiler
        self._timed: dict[int, tuple[Plan, Plan]] = {}

    def run(self, plan: Plan, inputs: Sequence[Value], options: Terminable | None) -> list[Value]:
        if id(plan) not in self._timed:
            # The plan itself is kept too, so that no other one gets its identity.
            self._timed[id(plan)] = (plan, self._compiler.timed(plan, ""))
        with self._trace.span(f"run {next(self._numbers)}", "run"):
            return super().run(self._timed[id(plan)][1], inputs, options)
