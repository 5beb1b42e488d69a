"""Copies that go on beside work, and host memory that is pinned for them.

What is checked is that events alone keep copies and work in order, and that pinned arrays are what
the contract says. Whether anything really goes on at the same time is speed, and no check's matter.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ep_compliance.checks import check
from ep_compliance.driving.bench import Bench, Probe, agree, claimed_chain, run_once
from ep_compliance.driving.drive import compiled
from ep_compliance.driving.findings import Broken, NotClaimed, text_of
from ep_compliance.driving.lanes import DeviceLane, open_lane
from ep_compliance.driving.values import poisoned, same_bits
from ep_core.contracts import CompiledPartition, Event, ExecutionProvider, Stream, Value
from ep_core.errors import AllocationError, EpError
from ep_core.types import HOST_MEMORY, DataType

_ITEMS = 4
_ROUNDS = 25
_SLOW: dict[str, Any] = {"kernel_latency_us": 200, "copy_latency_us": 300}
"""Options of simulated devices, used where they exist."""

_SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (7,), (3, 5), (64, 33))

Array = np.ndarray[Any, Any]


# ---------------------------------------------------------------- copies beside work


@check("order/copies-beside-work")
def copies_beside_work(bench: Bench) -> None:
    """Copies in, work, and copies out on a stream each, interleaved and ordered by events alone."""
    changes = _SLOW if bench.declares(*_SLOW) else {}
    with bench.open(**changes) as provider:
        if not provider.features.overlaps_copies:
            raise NotClaimed("copies stand in line with work")
        probe = claimed_chain(provider, length=3, side=32)
        own = [probe.with_other_inputs(seed) for seed in range(_ITEMS)]
        with compiled(provider, probe.subgraph) as part:
            count = len(probe.subgraph.outputs)
            right = [run_once(provider, part, item.inputs, count) for item in own]
            with _three_lanes(provider) as lanes:
                for seed in range(_ROUNDS):
                    got = _interleaved(random.Random(seed), lanes, part, own, count)
                    for item, values in zip(right, got, strict=True):
                        if not agree(provider, item, values):
                            raise Broken(
                                "with copies in, work and copies out on streams of their own, "
                                "values are lost or mixed up"
                            )


class _Lanes:
    """Streams for copies in, work, and copies out."""

    def __init__(self, into: DeviceLane, work: DeviceLane, out: DeviceLane) -> None:
        self.into = into
        self.work = work
        self.out = out


@contextlib.contextmanager
def _three_lanes(provider: ExecutionProvider) -> Iterator[_Lanes]:
    with contextlib.ExitStack() as stack:
        lanes = []
        for _ in range(3):
            lane = stack.enter_context(contextlib.closing(open_lane(provider)))
            if not isinstance(lane, DeviceLane) or lane.stream is None:
                raise Broken("overlaps_copies is for asynchronous devices with their own memory")
            lanes.append(lane)
        yield _Lanes(*lanes)


def _interleaved(
    chance: random.Random,
    lanes: _Lanes,
    part: CompiledPartition,
    probes: list[Probe],
    count: int,
) -> list[list[Value]]:
    """Submit all items, a part of one, a part of another, and return the outputs of each."""
    items = [_Item(chance, lanes, part, probe, count) for probe in probes]
    remaining = [part for item in items for part in [item] * len(item.parts)]
    chance.shuffle(remaining)
    try:
        for item in remaining:
            item.parts.pop(0)()
        for item in items:
            item.finished()
    finally:
        for item in items:
            item.release_all()
        for lane in (lanes.into, lanes.work, lanes.out):
            lane.wait()
    return [item.results for item in items]


class _Item:
    """The way of one set of values into the device, through the partition, and back.

    Memory goes back as early as the contract allows, or late.

    Attributes:
        parts: what is to be submitted, in this order.
        results: complete once `finished` has returned.
    """

    def __init__(
        self,
        chance: random.Random,
        lanes: _Lanes,
        part: CompiledPartition,
        probe: Probe,
        count: int,
    ) -> None:
        self._lanes = lanes
        self._part = part
        self._sources = [np.array(value, order="C") for value in probe.inputs]
        self._inputs: list[Value] = []
        self._outputs: list[Value] = [None] * count
        self._event: Event | None = None
        self._hurries = chance.random() < 0.5
        self.results: list[Value] = []
        self.parts: list[Callable[[], None]] = [self._copy_in, self._work, self._copy_out]

    def finished(self) -> None:
        """Wait for the host's side of it."""
        assert self._event is not None
        self._event.synchronize()

    def release_all(self) -> None:
        """Give back what still is there."""
        self._lanes.into.release(self._inputs)
        self._lanes.work.release(self._outputs)
        self._inputs, self._outputs = [], []

    def _copy_in(self) -> None:
        lane = self._lanes.into
        for array in self._sources:
            kind = DataType.from_numpy(array.dtype)
            self._inputs.append(lane.allocator.allocate(array.shape, kind, lane.stream))
            lane.transfer.copy(array, self._inputs[-1], lane.stream)
        self._event = _stream(lane).record()

    def _work(self) -> None:
        lane = self._lanes.work
        self._wait(lane)
        lane.submit(self._part, self._inputs, self._outputs)
        self._event = _stream(lane).record()
        if self._hurries:
            # In the order of the stream that it was allocated for, behind the work that reads it.
            self._wait(self._lanes.into)
            self._lanes.into.release(self._inputs)
            self._inputs = []

    def _copy_out(self) -> None:
        lane = self._lanes.out
        self._wait(lane)
        for buffer in self._outputs:
            self.results.append(poisoned(np.zeros(buffer.shape, buffer.dtype.numpy)))
            lane.transfer.copy(buffer, self.results[-1], lane.stream)
        self._event = _stream(lane).record()
        if self._hurries:
            lane.release(self._outputs)
            self._outputs = []

    def _wait(self, lane: DeviceLane) -> None:
        assert self._event is not None
        _stream(lane).wait(self._event)


def _stream(lane: DeviceLane) -> Stream:
    assert lane.stream is not None
    return lane.stream


# ---------------------------------------------------------------- pinned host memory


@check("memory/pinned-host")
def pinned_host(bench: Bench) -> None:
    """Arrays of `allocate_pinned`: plain, apart, counted, good for copies, alive after `close`."""
    with bench.open() as provider:
        if not provider.features.pinned_host:
            raise NotClaimed("gives out no pinned host memory")
        if provider.memory == HOST_MEMORY:
            raise Broken("pinned_host is for devices with memory of their own")
        before = _pinned_bytes(provider)
        kinds = [kind for kind in DataType if kind is not DataType.STRING]
        arrays = [_pinned(provider, shape, kind) for kind in kinds for shape in _SHAPES]
        _check_apart(arrays)
        _check_counted(provider, before, arrays)
        del arrays
        gc.collect()
        if _pinned_bytes(provider) != before:
            raise Broken("pinned memory that nobody refers to counts as held")
        _check_views(provider, before)
        _check_copies(provider)
        _check_too_large(provider)
        kept = _pinned(provider, (1000,), DataType.INT32)
        kept[...] = np.arange(1000)
    if not np.array_equal(kept, np.arange(1000)):
        raise Broken("a pinned array loses its contents when the provider is closed")
    kept[...] = 7
    if not (kept == 7).all():
        raise Broken("a pinned array can't be written once the provider is closed")


def _pinned(provider: ExecutionProvider, shape: tuple[int, ...], kind: DataType) -> Array:
    what = f"allocate_pinned of {kind.text}{list(shape)}"
    try:
        array: Any = provider.allocate_pinned(shape, kind)
    except Exception as error:
        raise Broken(f"{what} raises {text_of(error)}") from error
    if not isinstance(array, np.ndarray):
        raise Broken(f"{what} gives no array, but {type(array).__name__}")
    if (array.shape, array.dtype) != (shape, kind.numpy):
        raise Broken(f"{what} gives {array.dtype}{list(array.shape)}")
    if not array.flags.c_contiguous or not array.flags.writeable or not array.flags.aligned:
        raise Broken(f"{what} gives an array that isn't C-contiguous, writeable and aligned")
    return array


def _check_apart(arrays: list[Array]) -> None:
    ends = sorted((array.ctypes.data, array.ctypes.data + array.nbytes) for array in arrays)
    for (_, end), (start, _) in itertools.pairwise(span for span in ends if span[0] < span[1]):
        if start < end:
            raise Broken("pinned arrays overlap each other")


def _check_counted(provider: ExecutionProvider, before: int, arrays: list[Array]) -> None:
    if _pinned_bytes(provider) < before + sum(array.nbytes for array in arrays):
        raise Broken("pinned memory isn't counted as pinned_bytes")


def _check_views(provider: ExecutionProvider, before: int) -> None:
    array = _pinned(provider, (64,), DataType.INT64)
    array[...] = np.arange(64)
    view = array[10:20].reshape(2, 5)
    del array
    gc.collect()
    others = [_pinned(provider, (64,), DataType.INT64) for _ in range(8)]
    for other in others:
        other[...] = -1
    if not np.array_equal(view, np.arange(10, 20).reshape(2, 5)):
        raise Broken("a view doesn't keep its pinned memory")
    del view, other, others
    gc.collect()
    if _pinned_bytes(provider) != before:
        raise Broken("pinned memory whose last view is gone counts as held")


def _check_copies(provider: ExecutionProvider) -> None:
    """There and back, on a stream and without."""
    with contextlib.closing(open_lane(provider)) as lane:
        assert isinstance(lane, DeviceLane)
        for kind in (DataType.FLOAT, DataType.FLOAT16, DataType.INT64, DataType.UINT8):
            for stream in (lane.stream, None):
                _check_copy(provider, lane, kind, stream)


def _check_copy(
    provider: ExecutionProvider, lane: DeviceLane, kind: DataType, stream: Stream | None
) -> None:
    source, target = (_pinned(provider, (257,), kind) for _ in range(2))
    source[...] = np.random.default_rng(3).integers(0, 2, 257).astype(kind.numpy)
    target[...] = 7
    try:
        buffer = lane.allocator.allocate((257,), kind, stream)
    except EpError:
        return  # a type that the device doesn't hold
    lane.transfer.copy(source, buffer, stream)
    lane.transfer.copy(buffer, target, stream)
    lane.allocator.release(buffer, stream)
    lane.wait()
    if not same_bits(source, target):
        raise Broken(f"{kind.text} copied from and to pinned memory come back with other bits")


def _check_too_large(provider: ExecutionProvider) -> None:
    try:
        provider.allocate_pinned((1 << 60,), DataType.FLOAT)
    except AllocationError:
        return
    except Exception as error:
        raise Broken(
            f"pinned memory beyond all bounds: expected AllocationError, got {text_of(error)}"
        ) from error
    raise Broken("allocate_pinned gives more memory than there is")


def _pinned_bytes(provider: ExecutionProvider) -> int:
    assert provider.allocator is not None
    return provider.allocator.stats().pinned_bytes
