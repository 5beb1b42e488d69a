"""Simulated devices with wrong addresses, imports and sizes; they join the table of devices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from zoo_device import OtherMemory
from zoo_device import animal as device_animal
from zoo_placement import with_buffers

from ep_core.types import DataType
from ep_sdk.simulator.memory import MemoryPool, SimulatorBuffer
from ep_sdk.simulator.provider import SimulatorProvider

# ---------------------------------------------------------------- addresses


def _addressed(function):
    class Buffer(SimulatorBuffer):
        __slots__ = ()

        def data_ptr(self):
            return function(super().data_ptr(), self)

    return with_buffers(Buffer)


@device_animal("has one address for all", "memory/addresses", "overlap")
class OneAddress(OtherMemory):
    pool_class = _addressed(lambda address, buffer: 4096)


@device_animal("has odd addresses", "memory/addresses", "expected a multiple of 2 above 0")
class OddAddress(OtherMemory):
    pool_class = _addressed(lambda address, buffer: address + 1)


@device_animal("has restless addresses", "memory/addresses", "when it is asked again")
class RestlessAddress(OtherMemory):
    pool_class = _addressed(lambda address, buffer: id(object()) + np.random.randint(2**40) * 8)


@device_animal("gives text for an address", "memory/addresses", "expected an int")
class TextAddress(OtherMemory):
    pool_class = _addressed(lambda address, buffer: hex(address))


def _refuse(address, buffer):
    raise NotImplementedError("no addresses here")


@device_animal("raises for an address", "memory/addresses", "expected BufferError")
class RudeAddress(OtherMemory):
    pool_class = _addressed(_refuse)


# ---------------------------------------------------------------- imports


def _careless(word):
    """A device that takes what is refused with a certain word."""

    class Careless(SimulatorProvider):
        def import_dlpack(self, tensor):
            try:
                return super().import_dlpack(tensor)
            except BufferError as error:
                if word not in str(error):
                    raise
                return self.allocator.allocate((6, 4), DataType.FLOAT)

    return Careless


device_animal("takes tensors by columns", "memory/dlpack-import", "isn't contiguous, expected")(
    _careless("contiguous")
)
device_animal("takes tensors without an address", "memory/dlpack-import", "has no address, exp")(
    _careless("no address")
)
device_animal("takes tensors askew", "memory/dlpack-import", "aligned for its elements, expected")(
    _careless("aligned")
)


@device_animal(
    "raises ValueError for tensors elsewhere", "memory/dlpack-import", "on the host rais"
)
class RudeImport(SimulatorProvider):
    def import_dlpack(self, tensor):
        try:
            return super().import_dlpack(tensor)
        except BufferError as error:
            raise ValueError(str(error)) from error


@device_animal(
    "copies what it imports", "memory/dlpack-import", "a change of the tensor isn't seen"
)
class CopiesImports(SimulatorProvider):
    def import_dlpack(self, tensor):
        taken = super().import_dlpack(tensor)
        copied = self.allocator.allocate(taken.shape, taken.dtype)
        self.data_transfer.copy(taken, copied, None)
        self.allocator.release(taken)
        return copied


@device_animal(
    "doesn't keep what it imports", "memory/dlpack-import", "reused after its own library"
)
class ForgetsOwner(SimulatorProvider):
    def import_dlpack(self, tensor):
        taken = super().import_dlpack(tensor)
        taken._block._borrowed = replace(taken._block._borrowed, owner=None)
        return taken


@device_animal("never gives imports back", "memory/dlpack-import", "never given back")
class KeepsImports(OtherMemory):
    class pool_class(MemoryPool):  # noqa: N801
        kept = ()

        def import_dlpack(self, tensor):
            taken = super().import_dlpack(tensor)
            self.kept = (*self.kept, taken._block._borrowed)
            return taken


@device_animal(
    "says it is another device of DLPack's", "memory/dlpack-import", "as its buffers say"
)
class OtherDevice(SimulatorProvider):
    def __init__(self, info, device, options):
        super().__init__(info, replace(device, dlpack_device=(2, 0)), options)


# ---------------------------------------------------------------- what partitions take


def _telling(**changes):
    class Telling(SimulatorProvider):
        def get_partition_memory(self, partition):
            return replace(super().get_partition_memory(partition), **changes)

    return Telling


device_animal("hides its constants", "memory/partition", "0 bytes of constants are told")(
    _telling(constant_bytes=0)
)
device_animal("hides what a run takes", "memory/partition", "1 bytes are told for a run")(
    _telling(together_bytes=1)
)
device_animal("tells negative sizes", "memory/partition", "expected numbers from 0 up")(
    _telling(workspace_bytes=-1)
)
device_animal("hides what a stage takes", "memory/stages", "and it takes")(
    _telling(stages=((1, ()),))
)
device_animal("tells stages of outputs that it hasn't", "memory/stages", "of 2 outputs")(
    _telling(stages=((2**20, (5,)),))
)


@device_animal("tells sizes as text", "memory/partition", "expected a PartitionMemory")
class TellsText(SimulatorProvider):
    def get_partition_memory(self, partition):
        return "a lot"
