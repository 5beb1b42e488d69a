"""Times work on one open provider: nodes, what starting a partition takes, and copies.

Nothing is remembered or decided here. Whatever a provider raises goes to the caller; what was made
for a measurement is released before.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ep_core.artifacts.cache import make_partition
from ep_core.contracts import CompiledPartition, HostArray, Stream, Value
from ep_core.errors import ContractError, NotSupportedError
from ep_core.graph import Graph, Node, Subgraph, ValueInfo
from ep_core.partition import Candidate, answers, cut_claim
from ep_core.placement.roofline import Sizes
from ep_core.tuning.bounds import check_bounds
from ep_core.tuning.feeds import feed
from ep_core.tuning.work import Work
from ep_core.types import HOST_MEMORY, DataType, OpSet, TensorType

__all__ = ["Bench", "close_quietly", "quickest"]

_Submit = Callable[[], Sequence[Value | None] | None]
"""Submits work, and returns values that it makes, if any."""

_FEWEST, _MOST = 5, 50
_ENOUGH_SECONDS, _LONG_SECONDS = 0.02, 1.0
"""Runs of one measurement: at least the fewest, then until there are enough seconds of them; fewer
where they take long. The quickest counts, for whatever else the machine does can only add to it."""

_LONG = 9
"""Operators of the longer chain by which starting a partition is told from its work."""
_PROBES = (("Relu", 14), ("Abs", 13), ("Neg", 13), ("Identity", 16))
"""Operators of the chains, with their schema's version at opset 17; the first that is claimed."""

_SMALL, _LARGE = 2**8, 2**22
"""Elements, of 4 bytes each, of the two copies by which latency is told from bandwidth."""


def quickest(once: Callable[[], float]) -> float:
    """The least seconds of several tries, the first of which counts only if it takes long."""
    warm_up = once()
    if warm_up >= _LONG_SECONDS:
        return warm_up
    found = [once()]
    while sum(found) < (_LONG_SECONDS if len(found) < _FEWEST else _ENOUGH_SECONDS):
        if len(found) == _MOST:
            break
        found.append(once())
    return min(found)


class Bench:
    """Times work on one open provider. Closed before the provider."""

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self._provider = candidate.provider
        self._stream: Stream | None = None

    def close(self) -> None:
        """Close the stream; failed work on it doesn't matter any more."""
        stream, self._stream = self._stream, None
        if stream is not None:
            with contextlib.suppress(Exception):
                stream.close()

    def seconds(self, work: Work) -> float:
        """Least seconds of one run of a partition, its start included.

        Raises:
            whatever making inputs, compiling or running raises.
        """
        check_bounds(work.graph, work.indices, work.sizes)
        subgraph = cut_claim(work.graph, work.indices, self.candidate, "measured")
        with contextlib.ExitStack() as undo:
            feeds = (feed(work.graph, subgraph.nodes, n, work.sizes) for n in subgraph.inputs)
            inputs = [self._brought(array, undo) for array in feeds]
            part, _ = make_partition(self.candidate, subgraph, None)
            undo.callback(close_quietly, part)
            undo.callback(self._settle)
            shapes: list[Any] = []

            def run() -> Sequence[Value | None]:
                outputs: list[Value | None] = [None] * len(subgraph.outputs)
                part.run(inputs, outputs, self._queue())
                shapes[:] = [getattr(value, "shape", None) for value in outputs]
                return outputs

            self._once(run)
            _check_shapes(shapes, subgraph, work.sizes)
            return quickest(lambda: self._once(run))

    def start_seconds(self) -> float:
        """What starting a partition takes: a chain of one operator less what one more takes.

        Raises:
            NotSupportedError: the provider claims none of the operators that are tried.
        """
        one, many = (self.seconds(work) for work in self._chains())
        return max(0.0, one - max(0.0, many - one) / (_LONG - 1))

    def copying(self) -> tuple[float, float]:
        """Seconds of the smallest copy, and bytes per second; both ways' mean.

        Raises:
            NotSupportedError: the provider works in host memory.
        """
        small, large = self._copied(_SMALL), self._copied(_LARGE)
        # Where latency is most of it, or noise, the difference says nothing of the bandwidth.
        return small, 4 * (_LARGE - _SMALL) / max(large - small, large / 10, 1e-9)

    # ------------------------------------------------------------ inside

    def _chains(self) -> list[Work]:
        for op_type, version in _PROBES:
            chains = [_chain(op_type, version, length) for length in (1, _LONG)]
            if all(a.supported for c in chains for a in answers(c.graph, self.candidate, {})):
                return chains
        raise NotSupportedError("none of the simplest operators is claimed")

    def _brought(self, array: HostArray, undo: contextlib.ExitStack) -> Value:
        """The array in the provider's memory."""
        allocator, transfer = self._provider.allocator, self._provider.data_transfer
        if self._provider.memory == HOST_MEMORY or allocator is None or transfer is None:
            return array
        buffer = allocator.allocate(array.shape, DataType.from_numpy(array.dtype))
        undo.callback(allocator.release, buffer)
        transfer.copy(array, buffer, None)
        return buffer

    def _copied(self, count: int) -> float:
        """Seconds of a copy of so many elements, the mean of there and back."""
        transfer = self._provider.data_transfer
        if self._provider.memory == HOST_MEMORY or transfer is None:
            raise NotSupportedError("nothing is copied to host memory")
        array = np.ones(count, np.float32)
        with contextlib.ExitStack() as undo:
            buffer = self._brought(array, undo)
            undo.callback(self._settle)
            there = quickest(
                lambda: self._once(lambda: transfer.copy(array, buffer, self._queue()))
            )
            back = quickest(lambda: self._once(lambda: transfer.copy(buffer, array, self._queue())))
        return (there + back) / 2

    def _once(self, work: _Submit) -> float:
        """Seconds until the work is done; what it gave goes back to the allocator then."""
        start = time.perf_counter()
        outputs = work()
        try:
            self._wait()
            return time.perf_counter() - start
        finally:
            self._release(outputs or ())

    def _release(self, values: Sequence[Value | None]) -> None:
        allocator = self._provider.allocator
        if self._provider.memory != HOST_MEMORY and allocator is not None:
            for value in values:
                if value is not None:
                    allocator.release(value, self._queue())

    def _queue(self) -> Stream | None:
        if self._stream is None and self._provider.features.asynchronous:
            self._stream = self._provider.create_stream()
        return self._stream

    def _wait(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()

    def _settle(self) -> None:
        """After a measurement, failed or not: no work is left, and the next one starts clean."""
        try:
            self._wait()
        except Exception:  # noqa: BLE001 - the measurement has failed with the same
            self.close()


def _check_shapes(shapes: Sequence[Any], subgraph: Subgraph, sizes: Sizes) -> None:
    """Raise ContractError where the inputs left a partition without work to do."""
    for name, shape in zip(subgraph.outputs, shapes, strict=True):
        expected = sizes.shape(name)
        if shape is not None and math.prod(shape) == 0 < math.prod(expected):
            raise ContractError(f"output {name!r}", expected=expected, got=shape)


def close_quietly(part: CompiledPartition) -> None:
    """Close a partition that nobody needs."""
    with contextlib.suppress(Exception):
        part.close()


def _chain(op_type: str, version: int, length: int) -> Work:
    """The smallest work there is: operators on one element, one after the other."""
    kind = TensorType(DataType.FLOAT, (1,))
    infos = [ValueInfo(f"value_{number}", kind) for number in range(length + 1)]
    nodes = tuple(
        Node(f"node_{at}", op_type, "", version, (f"value_{at}",), (f"value_{at + 1}",))
        for at in range(length)
    )
    graph = Graph(
        name="chain",
        inputs=(infos[0],),
        outputs=(infos[-1],),
        nodes=nodes,
        initializers={},
        opsets=OpSet({"": 17}),
        values={info.name: info for info in infos},
    )
    return Work(graph, tuple(range(length)), Sizes(graph, {}), "")
