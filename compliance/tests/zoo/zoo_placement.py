"""Providers that are right alone and wrong in sessions with others.

They join the tables of hosts and devices.
"""

from __future__ import annotations

import threading
import time
from typing import ClassVar

import numpy as np
from onnx.reference import ReferenceEvaluator
from zoo_base import CorrectProvider
from zoo_device import OtherMemory, OtherStreams
from zoo_device import animal as device_animal
from zoo_host import Wrapped, WrappingProvider
from zoo_host import animal as host_animal

from ep_core.contracts import Capability, ProviderFeatures, Support
from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.simulator.memory import MemoryPool, SimulatorBuffer
from ep_sdk.simulator.provider import SimulatorProvider
from ep_sdk.simulator.stream import SimulatorStream
from ep_sdk.simulator.transfer import SimulatorTransfer


class WrappingDevice(SimulatorProvider):
    """A simulator with something of its own around its partitions."""

    wrapper = Wrapped

    def compile(self, subgraph):
        return self.wrapper(super().compile(subgraph), self)


# ---------------------------------------------------------------- beside others


@device_animal("replays its first run", "placement/two-providers", "the run fails: ContractError")
class Replays(WrappingDevice):
    class wrapper(Wrapped):  # noqa: N801
        recorded = None

        def run(self, inputs, outputs, stream):
            fits = self.recorded and [b.shape for b in self.recorded] == [b.shape for b in inputs]
            self.recorded = self.recorded if fits else list(inputs)
            super().run(self.recorded, outputs, stream)


@device_animal("drops copies to other devices", "placement/three-providers", "other values")
class DropsForeign(OtherMemory):
    class transfer_class(SimulatorTransfer):  # noqa: N801
        def copy(self, source, target, stream):
            sides = [side for side in (source, target) if isinstance(side, SimulatorBuffer)]
            if all(side.memory == self._device.memory for side in sides):
                super().copy(source, target, stream)


@host_animal("gives all outputs the last value", "placement/graphs", "diamond.*other values")
class LastValue(WrappingProvider):
    class wrapper(Wrapped):  # noqa: N801
        def run(self, inputs, outputs, stream):
            super().run(inputs, outputs, stream)
            outputs[:] = [outputs[-1].copy() for _ in outputs]


@host_animal("takes captured values for constants", "placement/bodies", "If.*other values")
class FixedCaptures(WrappingProvider):
    class wrapper(Wrapped):  # noqa: N801
        captured = None

        def run(self, inputs, outputs, stream):
            if self.captured is not None:
                first = {}
                for at in self.captured:
                    first[at] = self.first.setdefault(at, np.array(inputs[at]))
                inputs = [first.get(at, value) for at, value in enumerate(inputs)]
            super().run(inputs, outputs, stream)

    def compile(self, subgraph):
        part = super().compile(subgraph)
        if subgraph.graph.name == "body":
            part.first = {}
            last = subgraph.graph.input_names[-1]
            part.captured = [at for at, name in enumerate(subgraph.inputs) if name == last]
        return part


class ControlFlow(CorrectProvider):
    """Correct; takes control flow as a whole."""

    features = ProviderFeatures(control_flow=True)

    def get_capability(self, graph):
        claims = super().get_capability(graph).nodes
        return Capability(
            tuple(
                Support(True) if node.bodies else claim
                for node, claim in zip(graph.nodes, claims, strict=True)
            )
        )

    def compile(self, subgraph):
        if any(node.bodies for node in subgraph.nodes):
            return self.make(subgraph)
        return super().compile(subgraph)

    def make(self, subgraph):
        return WholeBodies(subgraph)


class WholeBodies:
    def __init__(self, subgraph):
        self.names = subgraph.inputs
        self.evaluator = ReferenceEvaluator(subgraph.to_model())
        self.accepts_outputs = [False] * len(subgraph.outputs)

    def run(self, inputs, outputs, stream):
        results = self.evaluator.run(None, dict(zip(self.names, inputs, strict=True)))
        outputs[:] = [np.array(value) for value in results]

    def close(self):
        pass


@host_animal("runs the last branch again", "placement/whole-bodies", "If.*other values")
class SameBranch(ControlFlow):
    class OneBranch(WholeBodies):
        flag = None

        def run(self, inputs, outputs, stream):
            inputs = list(inputs)
            if "flag" in self.names:
                at = self.names.index("flag")
                self.flag = np.array(inputs[at]) if self.flag is None else self.flag
                inputs[at] = self.flag
            super().run(inputs, outputs, stream)

    def make(self, subgraph):
        return self.OneBranch(subgraph)


@host_animal("caches programs by their first node", "placement/pieces", "cut out")
class FirstNode(CorrectProvider):
    def __init__(self, *args):
        super().__init__(*args)
        self.known = {}

    def compile(self, subgraph):
        key = (subgraph.nodes[0].name, len(subgraph.inputs), len(subgraph.outputs))
        if key not in self.known:
            self.known[key] = super().compile(subgraph)
        return self.known[key]


class _Padded(SimulatorBuffer):
    __slots__ = ()

    @property
    def nbytes(self):
        return -(-super().nbytes // 256) * 256


def with_buffers(buffer_class):
    """A memory pool that gives out buffers of another class."""

    class Pool(MemoryPool):
        def allocate(self, shape, dtype, stream=None):
            buffer = super().allocate(shape, dtype, stream)
            buffer.__class__ = buffer_class
            return buffer

    return Pool


@device_animal("tells padded sizes", "placement/copies", "are planned")
class PaddedSizes(OtherMemory):
    pool_class = with_buffers(_Padded)


# ---------------------------------------------------------------- copies


@device_animal("needs aligned sources", "memory/every-address", "at an address of 16 n")
class AlignedSources(OtherMemory):
    class transfer_class(SimulatorTransfer):  # noqa: N801
        def copy(self, source, target, stream):
            if isinstance(source, np.ndarray) and not source.flags.aligned:
                source = np.zeros_like(source)
            super().copy(source, target, stream)


@device_animal("promises every way", "memory/foreign-routes", "promises a way")
class PromisesAll(OtherMemory):
    class transfer_class(SimulatorTransfer):  # noqa: N801
        def can_copy(self, source, target):
            return True


@device_animal("allocates on one thread only", "memory/threads", "")
class OneThread(OtherMemory):
    class pool_class(MemoryPool):  # noqa: N801
        def allocate(self, shape, dtype, stream=None):
            self.newest = super().allocate(shape, dtype, stream)
            time.sleep(0.0002)
            return self.newest


# ---------------------------------------------------------------- sessions


@host_animal("partitions share their scratch", "session/threads", "threads on one session")
class SharedByPartitions(WrappingProvider):
    class wrapper(Wrapped):  # noqa: N801
        def __init__(self, part, provider):
            super().__init__(part, provider)
            self.turn = threading.Lock()

        def run(self, inputs, outputs, stream):
            with self.turn:
                self.provider.inputs = inputs
                time.sleep(0.0005)
                super().run(self.provider.inputs, outputs, stream)


@host_animal("caches programs by their name", "session/look-alikes", "beside another one")
class ByPartitionName(CorrectProvider):
    known: ClassVar[dict] = {}

    def compile(self, subgraph):
        key = (subgraph.name, len(subgraph.inputs), len(subgraph.outputs))
        part = super().compile(subgraph)
        return self.known.setdefault(key, part)


@host_animal("closes for all", "session/create-and-close", "others come and go|one of several")
class ClosesForAll(WrappingProvider):
    closings = 0

    class wrapper(Wrapped):  # noqa: N801
        def __init__(self, part, provider):
            super().__init__(part, provider)
            self.made_at = ClosesForAll.closings

        def run(self, inputs, outputs, stream):
            if self.made_at != ClosesForAll.closings:
                raise RunError("the library was shut down")
            super().run(inputs, outputs, stream)

    def close(self):
        super().close()
        ClosesForAll.closings += 1


@device_animal("frees nothing without a stream", "session/cancelled", "a cancelled run leaves")
class NeedsStream(OtherMemory):
    class pool_class(MemoryPool):  # noqa: N801
        def release(self, buffer, stream=None):
            if stream is not None:
                super().release(buffer, stream)


@device_animal("gives up after any error", "session/partner-fails", "doesn't recover")
class GivesUp(OtherStreams):
    class stream_class(SimulatorStream):  # noqa: N801
        def heard(self, error):
            super().heard(error)
            self.device._lost = True


@device_animal("leaks when it fails", "session/own-faults", "in use")
class LeaksInFailing(WrappingDevice):
    class wrapper(Wrapped):  # noqa: N801
        def run(self, inputs, outputs, stream):
            allocator = self.provider.allocator
            workspace = allocator.allocate((16,), DataType.FLOAT, stream)
            super().run(inputs, outputs, stream)
            allocator.release(workspace, stream)
