"""The plans of one session by where inputs and outputs lie, made when they are first wanted."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ep_core.binding.layout import Layout
from ep_core.binding.planner import BoundPlanner, CopyInto, Duplicate, Target, Wish
from ep_core.contracts import Buffer, ExecutionProvider, Value
from ep_core.errors import ContractError, SessionClosedError
from ep_core.partition import Candidate
from ep_core.report import CopyReport, MemoryPeak
from ep_core.running.executor import ContextPool, RunContext, Terminable
from ep_core.running.plan import NO_STREAM, Copy, Plan, Run, Scratch, reraise
from ep_core.types import HOST_MEMORY, MemoryInfo
from ep_core.values.holds import DeviceTensor, bury, hold, let_go

__all__ = ["BoundPlans", "Filled"]

_MOST_PLANS = 8
"""Plans kept; each has streams and reusable arrays of its own."""

_NO_STATE = RunContext((), ())
MakePool = Callable[[Sequence[ExecutionProvider], Sequence[Scratch]], ContextPool]


@dataclass(slots=True)
class Filled:
    """A wish with the memory that goes with it.

    Attributes:
        bound: inputs and outputs as they were bound, by name, which keep their memory.
        only_step: known after the first run: the one partition that is the whole plan, on the
            host, with the plan. It needs nothing else of the session, so it isn't looked up again.
        inputs: values in the order of the graph's inputs, then memory for outputs that is given.
        given: for each output of the wish the memory that it gives, or None.
        guests: an open provider of each memory that isn't the session's own.
    """

    bound: tuple[Mapping[str, Any], Mapping[str, Any]]
    wish: Wish
    inputs: tuple[Value, ...]
    given: tuple[Value | None, ...]
    guests: dict[MemoryInfo, ExecutionProvider]
    only_step: tuple[Run, Plan] | None = None


@dataclass(slots=True)
class _Entry:
    """A plan and what runs it.

    Attributes:
        users: runs under way.
    """

    plan: Plan
    pool: ContextPool
    users: int = 0


class BoundPlans:
    """Makes plans from a session's layout, keeps a handful, and runs them.

    Args:
        make_pool: makes what runs a plan.
    """

    def __init__(
        self, layout: Layout, candidates: Sequence[Candidate], make_pool: MakePool
    ) -> None:
        self._holder = object()
        self._layout = layout
        self._candidates = candidates
        self._make_pool = make_pool
        self._lock = threading.Lock()
        self._closed = False
        self._entries: dict[Wish, _Entry] = {}  # the one used last is the last
        self._guests: dict[MemoryInfo, ExecutionProvider] = {}  # held until the session closes

    def run(self, filled: Filled, options: Terminable | None) -> list[Value | DeviceTensor]:
        """Run the model; returns the outputs of the wish, in its order, all of them ready."""
        bury()
        if filled.only_step is not None and options is None:
            results = _run_one(*filled.only_step, filled.inputs)
        else:
            results = self._run_planned(filled, options)
        targets = filled.wish.outputs
        # All of them before one is complained of, so that none is lost.
        kept = [
            value if value is given else self._owned(target.memory, value)
            for target, given, value in zip(targets, filled.given, results, strict=True)
        ]
        for target, given, value in zip(targets, filled.given, kept, strict=True):
            _check_kept(target, given, value)
        return kept

    def _run_planned(self, filled: Filled, options: Terminable | None) -> list[Value]:
        entry = self._enter(filled)
        try:
            filled.only_step = _only_step(entry.plan)
            return entry.pool.run(entry.plan, filled.inputs, options)
        finally:
            with self._lock:
                entry.users -= 1

    def copies(self, filled: Filled) -> tuple[CopyReport, ...]:
        """The copies that a run would make."""
        return tuple(_copies_of(self._look_up(filled).plan))

    def peaks(self, filled: Filled) -> dict[str, MemoryPeak]:
        """What the session takes at most while such a run is under way, by memory."""
        entry = self._look_up(filled)
        return self._layout.peaks(entry.plan, entry.pool.scratch)

    def close(self) -> None:
        """Close what runs the plans; no run is under way any more."""
        with self._lock:
            self._closed = True
        for entry in self._entries.values():
            entry.pool.close()
        self._entries.clear()
        while self._guests:
            with contextlib.suppress(Exception):
                let_go(self._guests.popitem()[1], self._holder)

    def _look_up(self, filled: Filled) -> _Entry:
        """The entry of a wish, to read in it."""
        entry = self._enter(filled)
        with self._lock:
            entry.users -= 1
        return entry

    def _enter(self, filled: Filled) -> _Entry:
        """The entry of a wish, counted as used until the caller takes that back."""
        unused: list[_Entry] = []
        with self._lock:
            if self._closed:
                raise SessionClosedError("the session is closed", fix="Create a new one.")
            entry = self._entries.pop(filled.wish, None) or self._make(filled)
            entry.users += 1
            self._entries[filled.wish] = entry
            idle = [wish for wish, other in self._entries.items() if not other.users]
            for wish in idle[: max(0, len(self._entries) - _MOST_PLANS)]:
                unused.append(self._entries.pop(wish))
        for old in unused:
            old.pool.close()
        return entry

    def _make(self, filled: Filled) -> _Entry:
        for memory, provider in filled.guests.items():
            if memory not in self._guests:
                self._guests[memory] = provider
                hold(provider, self._holder)
        guests = [self._guests[memory] for memory in filled.guests]
        scratch = list(self._layout.scratch)
        planner = BoundPlanner(self._layout.graph, self._candidates, scratch, filled.wish, guests)
        plan = self._layout.fill(planner)
        pool = self._make_pool([c.provider for c in self._candidates], scratch)
        return _Entry(plan, pool)

    def _owned(self, memory: MemoryInfo, value: Value) -> Value | DeviceTensor:
        """An output that isn't in given memory; a buffer goes into the care of a `DeviceTensor`."""
        if memory == HOST_MEMORY or not isinstance(value, Buffer) or value.memory != memory:
            return value
        own = (candidate.provider for candidate in self._candidates)
        provider = next(p for p in (*own, *self._guests.values()) if p.memory == memory)
        return DeviceTensor(value, provider)


def _check_kept(target: Target, given: Value | None, value: Value | DeviceTensor) -> None:
    """Raise ContractError if a provider gave something else than it was asked for."""
    if given is not None and value is not given:
        raise ContractError(
            f"a provider was given memory for output {target.name!r} and returned other memory",
            fix="Its partition says in accepts_outputs that it writes into what it is given.",
        )
    is_foreign = given is None and value is not None and not isinstance(value, DeviceTensor)
    if is_foreign and target.memory != HOST_MEMORY:
        raise ContractError(
            f"a provider returned something else than a buffer for output {target.name!r}",
            expected=f"a buffer in {target.memory}",
            got=type(value).__name__,
        )


def _only_step(plan: Plan) -> tuple[Run, Plan] | None:
    step = plan.steps[0] if len(plan.steps) == 1 else None
    if isinstance(step, Run) and step.stream == NO_STREAM and not step.scratch:
        return step, plan
    return None


def _run_one(step: Run, plan: Plan, inputs: Sequence[Value]) -> list[Value]:
    """Run a plan of one host partition: nothing to wait for, and no state between steps."""
    values = [*inputs, *plan.template[len(inputs) :]]
    try:
        step.execute(values, _NO_STATE)
    except BaseException as error:  # noqa: BLE001 - raised again, as an error of the project
        reraise(error, step.label)
    return [values[slot] for slot in plan.outputs]


def _copies_of(plan: Plan) -> Iterator[CopyReport]:
    host = str(HOST_MEMORY)
    for step in plan.steps:
        if isinstance(step, Duplicate):
            yield CopyReport("", step.value, host, host, None)
        elif isinstance(step, Copy | CopyInto):
            source, target = (host, host)
            if step.hop is not None:
                source, target = str(step.hop.source), str(step.hop.target)
            yield CopyReport("", step.value, source, target, step.nbytes)
