"""Simulated devices with one defect each, as `DEVICE[name] = (provider class, catcher, how)`."""

from __future__ import annotations

import numpy as np

from ep_core.contracts import AllocatorStats
from ep_core.errors import AllocationError
from ep_core.types import DataType
from ep_sdk.simulator.memory import MemoryPool, device_array
from ep_sdk.simulator.provider import SimulatorProvider
from ep_sdk.simulator.stream import SimulatorEvent, SimulatorStream
from ep_sdk.simulator.transfer import SimulatorTransfer

DEVICE = {}


def animal(name, caught_by, saying):
    def add(provider_class):
        DEVICE[name] = (provider_class, caught_by, saying)
        return provider_class

    return add


class OtherStreams(SimulatorProvider):
    """A simulator with streams of another class."""

    stream_class = SimulatorStream

    def create_stream(self):
        stream = self.stream_class(self.simulated, on_close=self.forget)
        self.track(stream)
        return stream


class OtherMemory(SimulatorProvider):
    """A simulator with an allocator and a transfer of other classes."""

    pool_class = MemoryPool
    transfer_class = SimulatorTransfer

    def __init__(self, info, device, options):
        super().__init__(info, device, options)
        self._pool = self.pool_class(self.simulated, options["capacity"], options["alignment"])
        self._transfer = self.transfer_class(self.simulated)


# ---------------------------------------------------------------- order


class _HastyEvent(SimulatorEvent):
    def synchronize(self):
        pass


class _DoneEvent(SimulatorEvent):
    def done(self):
        return True


def _recording(event_class):
    class Stream(SimulatorStream):
        def record(self):
            event = super().record()
            event.__class__ = event_class
            return event

    return Stream


@animal("event.synchronize returns at once", "order/event-on-host", "isn't done|too early")
class HastyEvent(OtherStreams):
    stream_class = _recording(_HastyEvent)


@animal("event is done too early", "order/event-polled", "too early")
class DoneEvent(OtherStreams):
    stream_class = _recording(_DoneEvent)


@animal("stream doesn't wait for events", "order/event-on-stream", "too early")
class DeafStream(OtherStreams):
    class stream_class(SimulatorStream):  # noqa: N801
        def wait(self, event):
            pass


@animal("stream waits for its own events only", "order/foreign-event", "foreign event")
class ProvincialStream(OtherStreams):
    class stream_class(SimulatorStream):  # noqa: N801
        def wait(self, event):
            if isinstance(event, SimulatorEvent):
                super().wait(event)


@animal("synchronize returns at once", "zoo/add", "")
class HastyStream(OtherStreams):
    def __init__(self, info, device, options):
        super().__init__(info, device, {**options, "kernel_latency_us": 2000})

    class stream_class(SimulatorStream):  # noqa: N801
        def synchronize(self):
            pass


@animal("swallows errors of a stream", "faults/injected", "swallowed")
class SwallowingStream(OtherStreams):
    class stream_class(SimulatorStream):  # noqa: N801
        def synchronize(self):
            try:
                super().synchronize()
            except Exception:  # noqa: BLE001
                return


@animal("frees memory that is in use", "order/early-release", "before the work that reads it|freed")
class EarlyFree(OtherMemory):
    class pool_class(MemoryPool):  # noqa: N801
        def release(self, buffer, stream=None):
            super().release(buffer, None)


# ---------------------------------------------------------------- memory


@animal("leaks device memory", "zoo/add", "leaked")
class LeaksBuffers(SimulatorProvider):
    def compile(self, subgraph):
        self.allocator.allocate((10,), DataType.FLOAT)
        return super().compile(subgraph)


@animal("doesn't release constants", "zoo/add_constant", "leaked")
class KeepsConstants(SimulatorProvider):
    def compile(self, subgraph):
        part = super().compile(subgraph)
        part._release_all = lambda buffers, stream: None
        return part


@animal("copies too few bytes", "memory/round-trip", "other bits")
class ShortCopies(OtherMemory):
    class transfer_class(SimulatorTransfer):  # noqa: N801
        def copy(self, source, target, stream):
            if isinstance(source, np.ndarray) and source.nbytes > 256:
                source = source.copy()
                source.reshape(-1).view(np.uint8)[-1] ^= 255
            super().copy(source, target, stream)


@animal("copies wrongly between devices", "memory/device-to-device", "corrupted")
class WrongDirect(OtherMemory):
    class transfer_class(SimulatorTransfer):  # noqa: N801
        def copy(self, source, target, stream):
            if not isinstance(source, np.ndarray) and not isinstance(target, np.ndarray):
                return
            super().copy(source, target, stream)


@animal("counts wrongly", "memory/books", "counted as|count as")
class WrongBooks(OtherMemory):
    class pool_class(MemoryPool):  # noqa: N801
        def stats(self):
            true = super().stats()
            return AllocatorStats(
                true.in_use_bytes // 2, true.peak_bytes, true.reserved_bytes, true.allocations
            )


@animal("raises MemoryError", "memory/exhausted", "expected AllocationError")
class PlainMemoryError(OtherMemory):
    class pool_class(MemoryPool):  # noqa: N801
        def allocate(self, shape, dtype, stream=None):
            try:
                return super().allocate(shape, dtype, stream)
            except AllocationError as error:
                raise MemoryError(str(error)) from None


@animal("gives out overlapping buffers", "memory/apart", "overlap|beyond the ends")
class Overlapping(OtherMemory):
    class pool_class(MemoryPool):  # noqa: N801
        shared = None

        def allocate(self, shape, dtype, stream=None):
            buffer = super().allocate(shape, dtype, stream)
            block = buffer._block
            if 1000 < block.nbytes < 2000:
                if self.shared is None:
                    self.shared = np.full(4096, 0x5C, np.uint8)
                block.storage = self.shared[: block.nbytes + 128]
            return buffer


@animal("mutates device inputs", "zoo/relu", "changes an input")
class MutatesInputs(SimulatorProvider):
    def compile(self, subgraph):
        part = super().compile(subgraph)
        return _Scribbling(part)


class _Scribbling:
    def __init__(self, part):
        self._part = part
        self.accepts_outputs = part.accepts_outputs
        self.close = part.close

    def run(self, inputs, outputs, stream):
        self._part.run(inputs, outputs, stream)
        (first, *_) = inputs

        def work():
            device_array(first).reshape(-1)[:1] = 0

        stream.submit(work)


@animal("output is a device input", "zoo/relu", "is an input or another output")
class OutputIsInput(SimulatorProvider):
    def compile(self, subgraph):
        return _PassingThrough(super().compile(subgraph))


class _PassingThrough(_Scribbling):
    def run(self, inputs, outputs, stream):
        outputs[0] = inputs[0]
