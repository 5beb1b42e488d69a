"""`InferenceSession`: the front of the core, with ONNX Runtime's names where the idea is the same.

Creating one goes: open providers, load, optimise, place and compile, plan. Running one goes: check
the feeds, walk the plan, return. Nothing below this file knows it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import onnx

from ep_core.artifacts.cache import ArtifactCache
from ep_core.binding.runs import BoundRuns
from ep_core.candidates import close_candidates, open_candidates, provider_label
from ep_core.contracts import Value
from ep_core.discovery.registry import registry
from ep_core.errors import OptionError, RunError, SessionClosedError
from ep_core.expanding import expand_functions
from ep_core.folding import Evaluator
from ep_core.fusing import PlacementGuard
from ep_core.graph import Graph
from ep_core.loading.export import save_model
from ep_core.loading.load import ModelMetadata, load_model
from ep_core.options import RunOptions, SessionOptions
from ep_core.partition import CORE
from ep_core.passes import optimize
from ep_core.profiling.session import start_profiler
from ep_core.report import PlacementReport
from ep_core.running.plan import Run, reraise
from ep_core.signature import NodeArg, Signature

__all__ = ["InferenceSession", "get_available_providers"]

_LOG = logging.getLogger("ep_core")
_LOG_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
_CLOSE_POLL_SECONDS = 0.001


def get_available_providers() -> list[str]:
    """Names of the providers that can be used here, best first, in ONNX Runtime's spelling."""
    return [provider_label(registry().factory(name).info) for name in registry().available()]


class InferenceSession(BoundRuns):
    """A model, placed on providers and ready to run. Safe to use from many threads at once.

    Args:
        path_or_bytes: file path, serialized model or `onnx.ModelProto`.
        sess_options: settings; None for the defaults.
        providers: names, or (name, options) pairs, in order of preference, in either spelling
            (`"cpu"`, `"CPUExecutionProvider"`). The option `device_id` chooses a device by its id
            as `ep providers` lists it; the first is the default. None takes every automatic
            provider that is available. The CPU provider, where it is installed, is appended as a
            fallback unless that is switched off; nodes that fall to it are told in the log.
        provider_options: one dict per entry of `providers`.
        disabled_optimizers: names of graph passes not to run.

    Raises:
        InvalidModelError: the model breaks the ONNX specification; its subclasses for limits and
            unsafe paths.
        ProviderNotFoundError, ProviderUnavailableError: a named provider isn't there; says why.
        OptionError: unknown names or wrong values of options.
        PlacementError: nodes that no provider runs, or rules of placement that can't be kept.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes | onnx.ModelProto,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        disabled_optimizers: Collection[str] = (),
    ) -> None:
        self._closed = False
        self._released = False
        self._active: deque[int] = deque()  # the thread of each run under way
        self._closing = threading.RLock()
        self._options = sess_options if sess_options is not None else SessionOptions()
        if not isinstance(self._options, SessionOptions):
            kind = type(sess_options).__name__
            raise OptionError("sess_options", expected="a SessionOptions", got=kind)
        started = time.perf_counter()
        with contextlib.ExitStack() as undo:
            self._profiler = start_profiler(self._options)
            undo.callback(self._profiler.discard)
            self._profiler.phase("open providers")
            # First the providers: they bring the schemas that loading checks and infers with.
            self._candidates = open_candidates(providers, provider_options, self._options)
            undo.callback(close_candidates, self._candidates)
            unwatched = self._candidates
            self._candidates = self._profiler.watch(unwatched)
            self._profiler.phase("load model")
            model = load_model(
                path_or_bytes,
                limits=self._options.load_limits,
                free_dimensions=self._options.free_dimensions,
            )
            self._metadata = model.metadata
            self._profiler.phase("graph passes")
            graph = self._optimized(model.graph, disabled_optimizers)
            expanded = expand_functions(graph, self._candidates)
            if expanded is not graph:
                graph = self._optimized(expanded, disabled_optimizers)
            if self._options.optimized_model_filepath:
                save_model(graph.to_model(), self._options.optimized_model_filepath)
            folder = self._options.cache_dir
            cache = ArtifactCache(folder, self._options.cache_max_bytes) if folder else None
            self._profiler.phase("place and compile")
            tuner = None
            if self._options.uses_measured_costs:
                from ep_core.tuning.tuner import make_tuner  # who doesn't measure needn't load it

                tuner = make_tuner(self._options, self._candidates, cache, measured=unwatched)
            self._compiler = self._profiler.compiler(
                self._candidates, cache, self._options.placement_rules, tuner
            )
            undo.callback(self._compiler.close)
            self._plan = self._compiler.compile(graph)
            self._report = self._compiler.report()
            self._describe(model.graph)
            self._signature = Signature(model.graph)
            opened = [candidate.provider for candidate in self._candidates]
            self._contexts = self._profiler.contexts(opened, self._compiler.scratch)
            self._whole = self._plan.whole_model
            self._prepare(self._compiler.layout, self._candidates, self._profiler.contexts)
            self._profiler.phase("")
            undo.pop_all()
        self._log_placement(time.perf_counter() - started)

    # ------------------------------------------------------------ running

    def run(
        self,
        output_names: Iterable[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Value]:
        """Compute outputs.

        Args:
            output_names: which outputs, in which order; None or empty for all.
            input_feed: a value per input name: `numpy.ndarray` of the declared dtype and shape,
                list for sequences, dict for maps, None for an empty optional.
            run_options: lets another thread cancel the run.

        Returns:
            Values of the outputs; none shares memory with a feed or with the session.

        Raises:
            FeedError: a feed doesn't match the signature, or an unknown output name.
            RunError, AllocationError, DeviceLostError: a provider failed.
            RunCancelledError: `run_options.terminate` was set.
            SessionClosedError: the session was closed.
        """
        chosen = None if output_names is None else self._chosen(output_names)
        if run_options is not None and not isinstance(run_options, RunOptions):
            kind = type(run_options).__name__
            raise OptionError("run_options", expected="a RunOptions", got=kind)
        thread = threading.get_ident()
        try:
            # Inside, so that an interrupt can't leave an entry behind that `close` waits for.
            self._active.append(thread)
            if self._closed:
                raise SessionClosedError("the session is closed", fix="Create a new one.")
            values = self._signature.bind(input_feed)
            if self._whole is not None and run_options is None:
                outputs: list[Value] = [None] * self._output_count
                self._run_whole(self._whole, values, outputs)
            else:
                outputs = self._contexts.run(self._plan, values, run_options)
        finally:
            if thread in self._active:
                self._active.remove(thread)
        return [outputs[index] for index in chosen] if chosen else outputs

    def _run_whole(self, whole: Run, values: list[Value], outputs: list[Value]) -> None:
        """The whole model is one partition on the host: one call, nothing around it."""
        try:
            whole.call(values, outputs, None)
        except Exception as error:  # noqa: BLE001 - raised again, as an error of the project
            reraise(error, whole.label)

    # ------------------------------------------------------------ describing

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that every run needs, in the model's order."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in the model's order."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs with a default, which a feed may override."""
        return list(self._overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """Producer, description and custom metadata of the model."""
        return self._metadata

    def get_providers(self) -> list[str]:
        """The session's providers in order of preference, in ONNX Runtime's spelling.

        Where two devices of one provider take part, each goes by its own name, `simulator:1`.
        """
        labels = [provider_label(candidate.info) for candidate in self._candidates]
        return [
            label if labels.count(label) == 1 else candidate.name
            for label, candidate in zip(labels, self._candidates, strict=True)
        ]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options each provider was opened with, as text, by name as in `get_providers`."""
        return {
            label: {name: str(value) for name, value in candidate.options.items()}
            for label, candidate in zip(self.get_providers(), self._candidates, strict=True)
        }

    def get_session_options(self) -> SessionOptions:
        """The settings the session was created with."""
        return self._options

    def get_placement(self) -> PlacementReport:
        """Which provider runs each node and why, the partitions, and the copies between them."""
        return self._report

    def end_profiling(self) -> str:
        """Write the trace and return its path; runs after that aren't in it.

        `close` writes it too, if nobody has called this.

        Raises:
            OptionError: the session isn't profiled, or the trace can't be written.
        """
        return self._profiler.end()

    def get_profiling_start_time_ns(self) -> int:
        """The trace's time 0 by `time.monotonic_ns`; OptionError if the session isn't profiled."""
        return self._profiler.started_ns

    # ------------------------------------------------------------ closing

    def close(self) -> None:
        """Wait for runs under way, then release everything; twice without harm.

        Raises:
            RunError: called inside a run of this session, by a provider or a signal handler.
        """
        if threading.get_ident() in tuple(self._active):
            raise RunError(
                "close() was called inside a run of the session, whose end it would wait for",
                fix="Call it after the run, or from another thread.",
            )
        with self._closing:
            self._closed = True
            if not self._released:
                while self._active:
                    time.sleep(_CLOSE_POLL_SECONDS)
                self._contexts.close()
                self._ports.plans.close()
                self._compiler.close()
                close_candidates(self._candidates)
                self._profiler.close()
                self._released = True  # a close that was interrupted begins anew
        self._background.close()

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # Without runs under way there is nothing to wait for: they hold a reference.
        if not getattr(self, "_released", True) and hasattr(self, "_contexts"):
            with contextlib.suppress(Exception):
                self.close()

    # ------------------------------------------------------------ inside

    def _optimized(self, graph: Graph, disabled: Collection[str]) -> Graph:
        return optimize(
            graph,
            self._options.graph_optimization_level,
            evaluate=Evaluator(self._candidates),
            disabled=disabled,
            accept=PlacementGuard(self._candidates),
            watch=self._profiler.watch_pass,
        )

    def _describe(self, graph: Graph) -> None:
        required = [info for info in graph.inputs if info.name not in graph.overridable]
        defaults = [info for info in graph.inputs if info.name in graph.overridable]
        self._inputs = [NodeArg.of(info) for info in required]
        self._overridable = [NodeArg.of(info) for info in defaults]
        self._outputs = [NodeArg.of(info) for info in graph.outputs]
        self._output_count = len(self._outputs)
        self._output_index = {info.name: i for i, info in enumerate(graph.outputs)}

    def _log_placement(self, seconds: float) -> None:
        """One line per session, which is shown by default where the model is divided.

        That is a warning, so that it is seen without any setting: a model on several providers, or
        on one that nobody asked for, may be what the caller wants, but shouldn't be a surprise.
        """
        unasked = {c.name for c in self._candidates if not c.named}
        placed = [p for nodes in self._report.nodes.values() for p in nodes]
        fallen = next((p for p in placed if p.provider in unasked), None)
        divided = len({p.provider for p in placed} - {CORE}) > 1
        level = logging.WARNING if divided or fallen is not None else logging.INFO
        if level >= _LOG_LEVELS[self._options.log_severity_level]:
            label = f"{self._options.logid}: " if self._options.logid else ""
            why = "" if fallen is None else f"; nobody named {fallen.why_here}"
            _LOG.log(level, "%s%s; ready in %.3f s%s", label, self._report.summary, seconds, why)
