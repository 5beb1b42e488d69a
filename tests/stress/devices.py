"""Providers for the stress: simulated devices that are watched or fail by chance, and a host.

They are registered as `device` (two of them, `8` and `9`) and `host`. Each belongs to an `Episode`,
which knows every provider that it opened and so what is left of them.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from stress.clocks import Ordering, Timeline

from ep_core.contracts import OptionSpec
from ep_core.discovery.registry import registry
from ep_core.hookspecs import hookimpl
from ep_core.running import control_flow
from ep_core.types import HOST_MEMORY, DeviceInfo
from ep_core.values.devices import _close_all
from ep_cpu.factory import make_factory
from ep_cpu.provider import CpuProvider
from ep_sdk.factory import StandardFactory
from ep_sdk.options import as_names
from ep_sdk.simulator import INFO as SIMULATOR
from ep_sdk.simulator.provider import SimulatorProvider
from ep_sdk.simulator.stream import SimulatorEvent, SimulatorStream

__all__ = ["DEVICE", "DEVICE_IDS", "HOST", "Episode", "stress_providers"]

DEVICE = "device"
DEVICE_IDS = ("8", "9")
"""Also their numbers in DLPack, which no simulator that isn't stressed has."""

HOST = "host"

_EPISODES: dict[int, Episode] = {}
_NUMBERS = itertools.count(1)
_FOR_VALUES = 0
"""Number of the episode that devices belong to which the core opens for values alone."""


@dataclass
class Episode:
    """What providers of one episode share; a context manager, one at a time.

    Attributes:
        ordering: what their accesses are checked by; None where nothing shall be in the way.
        chances: by option of the simulator that names a fault, how likely it is each time.
        jitter: by option of the simulator that is a latency, the most it takes, in microseconds.
        direct: which side copies from device to device: `source`, `target`, or nobody, so that
            it goes through the host.
        opened: every simulated device that was opened.
        copies: every copy from one memory to another: source, target, bytes.
    """

    ordering: Ordering | None = None
    chances: Mapping[str, float] = field(default_factory=dict)
    jitter: Mapping[str, int] = field(default_factory=dict)
    direct: str = "source"
    seed: str = ""
    number: int = field(default_factory=lambda: next(_NUMBERS))
    opened: list[SimulatorProvider] = field(default_factory=list)
    copies: list[tuple[str, str, int]] = field(default_factory=list)

    def __enter__(self) -> Episode:
        _EPISODES[self.number] = _EPISODES[_FOR_VALUES] = self
        return self

    def __exit__(self, *exception: object) -> None:
        self.close_devices_of_values()
        del _EPISODES[self.number], _EPISODES[_FOR_VALUES]

    def close_devices_of_values(self) -> None:
        """Close what the core opened for values alone, unless values keep it open."""
        _close_all()

    def device(self, device_id: str, **options: Any) -> tuple[str, dict[str, Any]]:
        """For `providers` of a session."""
        return DEVICE, {"device_id": device_id, "episode": self.number, **options}

    def host(self, **options: Any) -> tuple[str, dict[str, Any]]:
        """For `providers` of a session."""
        return HOST, {"episode": self.number, **options}


class _Odds(dict[str, Any]):
    """Options of a simulated device: latencies differ each time, and faults come by chance."""

    def __init__(self, options: Mapping[str, Any], episode: Episode, rng: random.Random) -> None:
        super().__init__(options)
        self._episode = episode
        self._rng = rng

    def __getitem__(self, name: str) -> Any:
        if name in self._episode.jitter:
            return int(self._rng.random() * self._episode.jitter[name])
        if name in self._episode.chances:
            return _Sometimes(self._rng.random() < self._episode.chances[name])
        return super().__getitem__(name)


class _Sometimes:
    """Stands for the number of the call that fails: equal to that of this call, or to none."""

    def __init__(self, fails: bool) -> None:
        self._fails = fails

    def __eq__(self, other: object) -> bool:
        return self._fails

    __hash__ = None  # type: ignore[assignment]


# ---------------------------------------------------------------- devices


class StressedDevice(SimulatorProvider):
    """A simulated device of an episode."""

    def __init__(self, info, device, options):
        self._episode = _EPISODES[options["episode"]]
        rng = random.Random(f"{self._episode.seed} {device.id} {len(self._episode.opened)}")
        super().__init__(info, device, _Odds(options, self._episode, rng))
        own = replace(type(self).features, overlaps_copies=options["overlap"])
        self.features = replace(own, pinned_host=options["pinned"])
        self._ordering = self._episode.ordering
        self._watched_allocator = super().allocator
        self._watched_transfer = _Transfer(super().data_transfer, self.memory, self._episode)
        if self._ordering is not None:
            self._watched_allocator = _Allocator(super().allocator, self._ordering)
        self._episode.opened.append(self)

    @property
    def allocator(self):
        return self._watched_allocator

    @property
    def data_transfer(self):
        return self._watched_transfer

    def create_stream(self):
        if self._ordering is None:
            return super().create_stream()
        self.check_open()
        self.simulated.check()
        stream = _Stream(self.simulated, self.forget, self._ordering)
        self.track(stream)
        return stream

    def import_dlpack(self, tensor):
        buffer = super().import_dlpack(tensor)
        if self._ordering is not None:
            self._watched_allocator.imported(buffer)
        return buffer

    def _loaded(self, subgraph):
        partition = super()._loaded(subgraph)
        if self._ordering is not None:
            partition.change_kernels(lambda step: _watched_kernel(step, self._ordering))
        return partition


class _Stream(SimulatorStream):
    """A stream with a clock."""

    def __init__(self, device, on_close, ordering):
        self.ordering = ordering
        super().__init__(device, on_close)
        self.line = Timeline(f"{self.name} of {device.memory.device}")

    def record(self):
        event = super().record()
        event.__class__ = _Event
        event.ordering = self.ordering
        event.clock = self.ordering.recorded(self.line)
        return event

    def wait(self, event):
        super().wait(event)
        if isinstance(event, _Event):
            self.ordering.waits(self.line, event.clock)

    def synchronize(self):
        clock = self.ordering.recorded(self.line)
        try:
            super().synchronize()
        finally:
            self.ordering.host_waited(clock)

    def close(self):
        super().close()
        self.ordering.stream_closed(self.line)


class _Event(SimulatorEvent):
    """An event that knows what its stream knew."""

    ordering: Ordering
    clock: dict[Timeline, int]

    def done(self):
        happened = super().done()
        if happened:
            self.ordering.host_waited(self.clock)
        return happened

    def synchronize(self):
        try:
            super().synchronize()
        finally:
            self.ordering.host_waited(self.clock)


class _Allocator:
    """Notes what is given out and given back, and that nothing is given out too early."""

    def __init__(self, inner, ordering):
        self.inner = inner
        self._ordering = ordering
        self._given_back = {}  # by address: who gave it back, and whether the stream got there

    @property
    def memory(self):
        return self.inner.memory

    def allocate(self, shape, dtype, stream=None):
        buffer = self.inner.allocate(shape, dtype, stream)
        line = _line_of(stream, self._ordering)
        key = _address(buffer)
        earlier = self._given_back.pop(key, None)
        if earlier is not None and earlier[0] is not line and not earlier[1]:
            self._ordering.races.append(
                f"{buffer!r} was given to {line.name} before {earlier[0].name}, which gave it "
                "back, had got there"
            )
        self._ordering.allocated(key, line, repr(buffer))
        return buffer

    def imported(self, buffer):
        """A buffer over memory of others, which may be known by another buffer."""
        self._ordering.shared(_address(buffer), repr(buffer))

    def release(self, buffer, stream=None):
        key = _address(buffer)
        line = _line_of(stream, self._ordering)
        self._ordering.released(key, line)
        got_there = []
        if stream is not None and stream.submit_release(lambda: got_there.append(True)):
            self._given_back[key] = (line, got_there)
        self.inner.release(buffer, stream)

    def stats(self):
        return self.inner.stats()


class _Transfer:
    """Notes what is copied; copies from device to device as the episode says."""

    def __init__(self, inner, own, episode):
        self._inner = inner
        self._own = own
        self._episode = episode
        self._ordering = episode.ordering

    def can_copy(self, source, target):
        sides = {"source": source, "target": target}
        if HOST_MEMORY not in sides.values() and sides.get(self._episode.direct) != self._own:
            return False
        return self._inner.can_copy(source, target)

    def copy(self, source, target, stream):
        way = (_memory_of(source), _memory_of(target))
        if way[0] != way[1]:
            self._episode.copies.append((*way, source.nbytes))
        if self._ordering is not None:
            line = _line_of(stream, self._ordering)
            _note(self._ordering, source, line, "a copy that reads it", writes=False)
            _note(self._ordering, target, line, "a copy that writes it", writes=True)
        self._inner.copy(source, target, stream)


def _memory_of(side):
    return str(HOST_MEMORY if isinstance(side, np.ndarray) else side.memory)


def _watched_kernel(step, ordering):
    """Notes what a kernel reads and writes; views read and write nothing."""
    kernel = step.kernel
    what = f"{step.node.op_type} {step.node.name!r}"
    if step.aliases:
        return kernel

    def watched(stream, *inputs, **options):
        line = _line_of(stream, ordering)
        for buffer in inputs:
            if buffer is not None:
                _note(ordering, buffer, line, f"{what} that reads it", writes=False)
        result = kernel(stream, *inputs, **options)
        for buffer in result if isinstance(result, tuple) else (result,):
            if buffer is not None:
                _note(ordering, buffer, line, f"{what} that writes it", writes=True)
        return result

    return watched


def _note(ordering, side, line, what, *, writes):
    if isinstance(side, np.ndarray):
        (ordering.wrote_array if writes else ordering.read_array)(side, line, what)
    else:
        (ordering.wrote if writes else ordering.read)(_address(side), line, what)


def _line_of(stream, ordering):
    """A stream's timeline; that of the host where there is no stream."""
    return ordering.host if stream is None else stream.line


def _address(buffer):
    """Where a buffer's bytes are; what is a view of another one is at the same place."""
    return (buffer.memory, buffer.data_ptr())


# ---------------------------------------------------------------- the host


class StressedHost(CpuProvider):
    """The CPU provider without some operators, whose partitions note what they use."""

    def __init__(self, info, device, options):
        super().__init__(info, device, options)
        episode = _EPISODES[options["episode"]]
        self._ordering = episode.ordering

    def find_row(self, kernel_node):
        if kernel_node.node.op_type in self.options["skip"]:
            return "told to skip it"
        return super().find_row(kernel_node)

    def compile(self, subgraph):
        partition = super().compile(subgraph)
        return partition if self._ordering is None else _HostPartition(partition, self._ordering)


class _HostPartition:
    def __init__(self, inner, ordering):
        self._inner = inner
        self._ordering = ordering

    @property
    def accepts_outputs(self):
        return self._inner.accepts_outputs

    def run(self, inputs, outputs, stream):
        self._ordering.host_reads(inputs, "a host partition that reads it")
        self._inner.run(inputs, outputs, stream)
        self._ordering.host_writes(outputs, "a host partition that writes it")

    def close(self):
        self._inner.close()


# ---------------------------------------------------------------- registering


class _DevicePlugin:
    @hookimpl
    def ep_provider_factory(self):
        own = {
            "episode": OptionSpec(0, "number of the episode", artifacts=False),
            "pinned": OptionSpec(True, "give out page-locked memory", artifacts=False),
        }
        info = replace(SIMULATOR, name=DEVICE, aliases=(), options={**SIMULATOR.options, **own})
        devices = [
            DeviceInfo(DEVICE, number, "simulated", dlpack_device=(12, int(number)))
            for number in DEVICE_IDS
        ]
        return StandardFactory(info, lambda: devices, StressedDevice)


class _HostPlugin:
    @hookimpl
    def ep_provider_factory(self):
        own = {
            "episode": OptionSpec(0, "number of the episode", artifacts=False),
            "skip": OptionSpec(frozenset(), "operators that are not claimed", as_names),
        }
        info = replace(make_factory().info, name=HOST, aliases=(), auto=False, options=own)
        return StandardFactory(info, lambda: [DeviceInfo(HOST, "0", "cpu")], StressedHost)


@contextmanager
def stress_providers() -> Iterator[None]:
    """For as long as this lasts the providers are known, and control flow notes what it reads."""
    plain = control_flow.execute

    def watched(plan, inputs, state):
        outputs = plain(plan, inputs, state)
        for episode in list(_EPISODES.values()):
            if episode.ordering is not None:
                episode.ordering.host_reads(outputs, "control flow that reads it")
        return outputs

    plugins = {DEVICE: _DevicePlugin(), HOST: _HostPlugin()}
    for name in registry().available():
        registry().status(name)  # what a vendor's library starts and keeps isn't ours to count
    try:
        for name, plugin in plugins.items():
            registry().register(plugin, name=name)
        control_flow.execute = watched
        yield
    finally:
        control_flow.execute = plain
        for name in plugins:
            registry().unregister(name)
