"""An engine as a partition: which engine a run needs, and when one is built anew.

How an engine runs on a GPU is in `running.py`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, Protocol

from ep_core.contracts import HostArray, Stream, Value
from ep_core.errors import CompileError, EpError, NotSupportedError, RunError
from ep_core.graph import Subgraph
from ep_tensorrt.profiles import Ranges, merged, spans

__all__ = ["Runner", "TensorRtPartition"]

_LOG = logging.getLogger(__name__)


class Runner(Protocol):
    """An engine that is loaded on a GPU."""

    def run(self, inputs: Sequence[HostArray]) -> Sequence[HostArray]:
        """Compute the outputs; arrays are in the subgraph's order, and results are new."""
        ...

    def close(self) -> None:
        """Unload it; called once."""
        ...


class TensorRtPartition:
    """Meets `ep_core.contracts.CompiledPartition`; the core calls one run at a time.

    Args:
        subgraph: what it computes.
        engine: serialized, with the ranges that it was built for; None if shapes are to be
            observed first.
        build: makes a serialized engine for ranges.
        load: loads one; None where there is no GPU.
        may_rebuild: shapes that no engine was built for are no error.
        on_close: called once, with the partition, when it is closed.
    """

    def __init__(
        self,
        subgraph: Subgraph,
        engine: tuple[bytes, Ranges] | None,
        build: Callable[[Ranges], bytes],
        load: Callable[[bytes], Runner] | None,
        on_close: Callable[[Any], None],
        *,
        may_rebuild: bool,
    ) -> None:
        self.subgraph = subgraph
        self._engine = engine
        self._build = build
        self._load = load
        self._may_rebuild = may_rebuild
        self._on_close = on_close
        self._label = f"'tensorrt', subgraph {subgraph.name!r}"
        self._runner: Runner | None = None
        self._closed = False
        self._closing = threading.Lock()

    @property
    def accepts_outputs(self) -> Sequence[bool]:
        """None: results are copied from the GPU into arrays of their own."""
        return [False] * len(self.subgraph.outputs)

    @property
    def engine(self) -> tuple[bytes, Ranges]:
        """The serialized engine and its ranges.

        Raises:
            CompileError: the partition is closed, or its shapes aren't known before a run.
        """
        if self._closed:
            raise CompileError(f"{self._label}: the partition is closed")
        if self._engine is None:
            raise CompileError(
                f"{self._label} has no engine before its first run",
                fix="Declare the shapes of inputs with trt_profile_min_shapes and its sisters.",
            )
        return self._engine

    def run(
        self,
        inputs: Sequence[Value],
        outputs: MutableSequence[Value | None],
        stream: Stream | None = None,
    ) -> None:
        """Run the engine; see `CompiledPartition.run`."""
        if self._closed:
            raise RunError(f"{self._label} is closed", fix="Compile the subgraph again.")
        if self._load is None:
            raise RunError(
                f"{self._label} is built for a GPU that isn't here",
                fix="Run it where the GPU is; the session's cache_dir holds the engine.",
            )
        try:
            results = self._runner_for([value.shape for value in inputs], self._load).run(inputs)
        except EpError:
            raise
        except Exception as error:
            raise RunError(f"{self._label} failed: {type(error).__name__}: {error}") from error
        for place, result in enumerate(results):
            memory = outputs[place]
            if memory is None:
                outputs[place] = result
            else:
                memory[...] = result

    def _runner_for(
        self, shapes: Sequence[tuple[int, ...]], load: Callable[[bytes], Runner]
    ) -> Runner:
        if self._engine is None or not spans(self._engine[1], shapes):
            self._rebuild(shapes)
        if self._runner is None:
            self._runner = load(self.engine[0])
        return self._runner

    def _rebuild(self, shapes: Sequence[tuple[int, ...]]) -> None:
        given = dict(zip(self.subgraph.inputs, shapes, strict=True))
        if not self._may_rebuild:
            raise NotSupportedError(
                f"{self._label}: no engine was built for shapes {given}",
                fix="Declare them with trt_profile_min_shapes and its sisters, "
                "or set on_recompile to warn.",
            )
        before = self._engine[1] if self._engine is not None else None
        ranges = merged(before, self.subgraph.inputs, shapes)
        begin = time.perf_counter()
        engine = self._build(ranges)
        seconds = time.perf_counter() - begin
        _LOG.warning("%s: built an engine for shapes %s in %.2f s", self._label, given, seconds)
        self._unload()
        self._engine = (engine, ranges)

    def _unload(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def close(self) -> None:
        """Unload the engine; twice without harm."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        try:
            self._unload()
        finally:
            self._engine = None
            self._on_close(self)
