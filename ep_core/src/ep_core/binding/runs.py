"""The ways to run a session beside `run`: with memory bound, with values, in the background."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ep_core.binding.background import Background
from ep_core.binding.io_binding import IOBinding, Ports
from ep_core.binding.layout import Layout
from ep_core.binding.plans import BoundPlans, MakePool
from ep_core.contracts import AllocatorStats, Value
from ep_core.errors import FeedError, OptionError, SessionClosedError, did_you_mean
from ep_core.options import RunOptions
from ep_core.partition import Candidate
from ep_core.report import MemoryPeak, PlacementReport
from ep_core.running.executor import ContextPool, block_sizes
from ep_core.running.plan import Plan
from ep_core.signature import Signature
from ep_core.values.value import OrtValue

__all__ = ["BoundRuns", "MemoryReport"]

_LOG = logging.getLogger("ep_core")

Result = TypeVar("Result")
Callback = Callable[[list[Value], Any, str], None]


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What a session's runs take, in bytes.

    Attributes:
        scratch_bytes: planned: host arrays between partitions that each run of `run` uses, and
            that are used again by later runs. What lies inside a partition is its provider's.
        devices: counters of the allocator of each memory that isn't the host's, peak included.
        planned: the most that the session takes of each memory, with one run under way.
    """

    scratch_bytes: int
    devices: dict[str, AllocatorStats]
    planned: dict[str, MemoryPeak]


class BoundRuns(ABC):
    """The part of `InferenceSession` that brings memory, values and threads into its runs."""

    _active: deque[int]
    _closed: bool
    _contexts: ContextPool
    _plan: Plan
    _report: PlacementReport
    _signature: Signature
    _output_index: dict[str, int]

    @abstractmethod
    def run(
        self,
        output_names: Iterable[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Value]:
        """Compute outputs from host values."""

    def _prepare(
        self, layout: Layout, candidates: Sequence[Candidate], make_pool: MakePool
    ) -> None:
        plans = BoundPlans(layout, candidates, make_pool)
        kinds = {info.name: layout.graph.type_of(info.name) for info in layout.graph.outputs}
        providers = [candidate.provider for candidate in candidates]
        self._ports = Ports(layout.graph, self._signature, providers, plans, kinds)
        self._background = Background()

    # ------------------------------------------------------------ bound

    def io_binding(self) -> IOBinding:
        """A new binding, to say where inputs and outputs of this session's runs lie."""
        return IOBinding(self, self._ports)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Compute the outputs that are bound; they are in the binding, and ready.

        Raises:
            FeedError: no binding of this session; an input or all outputs are missing; memory for
                an output overlaps other memory, or hasn't the shape that was computed.
            RunError: the binding is in use by another run.
            and what `run` raises.
        """
        if not isinstance(iobinding, IOBinding) or iobinding._session is not self:
            got = type(iobinding).__name__
            raise FeedError("iobinding", expected="what this session's io_binding() made", got=got)
        _check_options(run_options)
        self._counted(lambda: iobinding.run(run_options))

    def run_with_ort_values(
        self,
        output_names: Iterable[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Compute outputs from values that may lie anywhere; the results lie on the host.

        Args:
            output_names: which outputs, in which order; None or empty for all.
            input_dict_ort_values: a value per input name.

        Raises:
            What `run` raises.
        """
        chosen = self._names(output_names)
        if not isinstance(input_dict_ort_values, Mapping):
            got = type(input_dict_ort_values).__name__
            raise FeedError("input_dict_ort_values", expected="a dict of OrtValues", got=got)
        binding = self.io_binding()
        for name, value in input_dict_ort_values.items():
            binding.bind_ortvalue_input(name, value)
        for name in chosen:
            binding.bind_output(name)
        self.run_with_iobinding(binding, run_options)
        found = dict(zip(dict.fromkeys(chosen), binding.get_outputs(), strict=True))
        return [found[name] for name in chosen]

    # ------------------------------------------------------------ in the background

    def run_async(
        self,
        output_names: Iterable[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callback,
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Compute outputs on another thread, and return at once.

        Args:
            output_names, input_feed, run_options: as for `run`; arrays must stay unchanged until
                the callback is called.
            callback: called once, on that thread, with the outputs, `user_data` and an empty
                text; after a failure with an empty list, `user_data` and the message.
            user_data: anything.

        Raises:
            OptionError: the callback can't be called, or wrong options.
            SessionClosedError: the session is closed. A run that waits for its turn when the
                session closes fails with that, by its callback.
        """
        if not callable(callback):
            raise OptionError("callback", expected="a function", got=type(callback).__name__)
        _check_options(run_options)
        feeds = _snapshot(input_feed)
        names = None if output_names is None else self._names(output_names)

        def work() -> None:
            results: list[Value] = []
            message = ""
            try:
                results = self.run(names, feeds, run_options)
            except BaseException as error:  # noqa: BLE001 - told to the callback
                message = str(error) or type(error).__name__
            try:
                callback(results, user_data, message)
            except BaseException:  # noqa: BLE001 - there is nobody else to tell
                _LOG.exception("the callback of run_async raised")

        self._background.submit(work)

    async def run_awaitable(
        self,
        output_names: Iterable[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Value]:
        """Compute outputs on another thread: `outputs = await session.run_awaitable(...)`.

        Cancelling the task that waits ends the run at its next step.

        Raises:
            What `run` raises.
        """
        import asyncio

        _check_options(run_options)
        feeds = _snapshot(input_feed)
        names = self._names(output_names)
        cancel = _Cancel(run_options)
        future = self._background.submit(lambda: self._run_until(names, feeds, cancel))
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            cancel.is_set = True
            raise

    # ------------------------------------------------------------ memory

    def get_memory(self) -> MemoryReport:
        """What the session's runs have taken until now, as planned and as allocators tell."""
        devices = {}
        for provider in self._ports.providers:
            if provider.allocator is not None:
                devices[str(provider.memory)] = provider.allocator.stats()
        scratch = sum(block_sizes(self._contexts.scratch).values())
        return MemoryReport(scratch, devices, dict(self._report.peak_bytes))

    # ------------------------------------------------------------ inside

    def _run_until(
        self, names: Sequence[str], feeds: dict[str, Any], cancel: _Cancel
    ) -> list[Value]:
        values = self._counted(
            lambda: self._contexts.run(self._plan, self._signature.bind(feeds), cancel)
        )
        found = dict(zip(self._ports.kinds, values, strict=True))
        return [found[name] for name in names]

    def _chosen(self, names: Iterable[str]) -> list[int]:
        """Positions of the outputs with the given names."""
        try:
            listed = None if isinstance(names, str | bytes) else list(names)
        except TypeError:
            listed = None
        if listed is None:
            raise FeedError("output_names", expected="a list of names, or None", got=repr(names))
        chosen = []
        for name in listed:
            index = self._output_index.get(name) if isinstance(name, str) else None
            if index is None:
                fix = did_you_mean(str(name), self._output_index)
                raise FeedError(f"the model has no output {name!r}", fix=fix)
            chosen.append(index)
        return chosen

    def _names(self, output_names: Iterable[str] | None) -> list[str]:
        """Names of the outputs that were asked for, checked; all of them for none."""
        names = list(self._ports.kinds)
        chosen = [] if output_names is None else self._chosen(output_names)
        return [names[index] for index in chosen] or names

    def _counted(self, work: Callable[[], Result]) -> Result:
        """Do a run, so that `close` waits for it."""
        thread = threading.get_ident()
        try:
            # Inside, so that an interrupt can't leave an entry behind.
            self._active.append(thread)
            if self._closed:
                raise SessionClosedError("the session is closed", fix="Create a new one.")
            return work()
        finally:
            if thread in self._active:
                self._active.remove(thread)


class _Cancel:
    """Ends a run where the caller's options do, or where whoever waited for it has gone."""

    def __init__(self, options: RunOptions | None) -> None:
        self._options = options
        self.is_set = False

    @property
    def terminate(self) -> bool:
        return self.is_set or (self._options is not None and self._options.terminate)


def _check_options(options: RunOptions | None) -> None:
    if options is not None and not isinstance(options, RunOptions):
        raise OptionError("run_options", expected="a RunOptions", got=type(options).__name__)


def _snapshot(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """The caller may change the dict afterwards, though not the arrays in it."""
    if not isinstance(feeds, Mapping):
        raise FeedError("input_feed", expected="a dict of values by input name", got=repr(feeds))
    return dict(feeds)
