"""A device that meets the contracts of device kernels and computes nothing.

It notes which programs were wanted and which launches came, and checks what a launch promises. Its
memory is numpy's, so that copies and values are real.
"""

from __future__ import annotations

import math
import re

import numpy as np

from ep_core.contracts import AllocatorStats, ProviderFeatures
from ep_core.errors import CompileError
from ep_core.types import HOST_MEMORY, MemoryInfo, MemoryKind
from ep_sdk.device_kernels.known_values import note_values
from ep_sdk.device_kernels.provider import DeviceProvider
from ep_sdk.device_kernels.sources import program_text
from ep_sdk.device_kernels.tiles import TileChooser
from ep_sdk.pooled import PooledBuffer

MEMORY = MemoryInfo("imagined:0", MemoryKind.DEVICE)
PRELUDE = "// what the imagined compiler needs"


class Block:
    def __init__(self, pool, array):
        self.pool = pool
        self.array = array
        self.released = False
        self.stream = None
        self.lent = 0
        self.values = None


class Buffer(PooledBuffer):
    @property
    def handle(self):
        self.check()
        return self._block.array

    @property
    def values(self):
        known = self._block.values
        return None if known is None else known.reshape(self.shape)

    def remember_values(self, values):
        self._block.values = values.reshape(-1)

    def forget_values(self):
        self._block.values = None


class Pool:
    memory = MEMORY

    def __init__(self):
        self.in_use = 0

    def allocate(self, shape, dtype, stream=None):
        buffer = self.imagine(shape, dtype)
        buffer._block.array = np.zeros(math.prod(shape), dtype.numpy).view(np.uint8)
        self.in_use += buffer.nbytes
        return buffer

    def imagine(self, shape, dtype):
        return Buffer(Block(self, None), dtype, tuple(shape))

    def release(self, buffer, stream=None):
        buffer.check()
        buffer._block.released = True
        self.in_use -= buffer.nbytes

    def stats(self):
        return AllocatorStats(in_use_bytes=self.in_use)


class Transfer:
    def can_copy(self, source, target):
        return {source, target} <= {MEMORY, HOST_MEMORY}

    def copy(self, source, target, stream):
        if isinstance(target, Buffer):
            note_values(source, target)
            target.handle[:] = (
                source.handle if isinstance(source, Buffer) else source.reshape(-1).view(np.uint8)
            )
        else:
            target.reshape(-1).view(np.uint8)[:] = source.handle


class Stream:
    """Everything is done at once, so that it is its own event."""

    name = "imagined queue"
    rehearses = False

    def fault_word(self):
        return np.zeros(1, np.int32)

    def copy_bytes(self, source, source_start, target, target_start, nbytes):
        target[target_start:][:nbytes] = source[source_start:][:nbytes]

    def record(self):
        return self

    def wait(self, event):
        pass

    def synchronize(self):
        pass

    def close(self):
        pass


class Kernel:
    def __init__(self, device, name, text):
        self.device = device
        self.name = name
        # Of the parameters between the parentheses, however macros write them: at least one.
        assert re.search(rf"\b{name}\s*\(", text), f"{name} isn't in its program"

    def launch(self, stream, size, group, arguments):
        assert 1 <= len(size) <= 3
        assert all(type(length) is int and length >= 0 for length in size)
        if group is not None:
            assert len(group) == len(size)
            assert all(n % g == 0 for n, g in zip(size, group, strict=True))
            assert math.prod(group) <= 256
        if stream.rehearses:
            self.device.rehearsed.append(self.name)
            return
        for argument in arguments:
            assert isinstance(argument, np.generic | np.ndarray)
        self.device.launched.append(self.name)


class Device:
    vector_width = 4

    def __init__(self, *, is_cpu=False, has_double=True, refused=()):
        self.is_cpu = is_cpu
        self.has_double = has_double
        self.refused = refused
        self.tiles = TileChooser("imagined", "imagined")
        self.rehearsed = []
        self.launched = []
        self.texts = {}

    def kernel(self, file, name, defines=None, *, head="", body="", keep=True):
        if name in self.refused:
            raise CompileError(f"the imagined compiler refuses {name}")
        text = program_text(PRELUDE, file, defines or {}, head, body)
        self.texts[name] = text
        return Kernel(self, name, text)


class ImaginedProvider(DeviceProvider):
    features = ProviderFeatures(tells_memory=True)
    memory = MEMORY

    def __init__(self, info, device, options, opened):
        super().__init__(info, device, options)
        self._opened = opened
        self._pool = Pool()

    @property
    def opened(self):
        return self._opened

    @property
    def allocator(self):
        return self._pool

    @property
    def data_transfer(self):
        return Transfer()

    def create_stream(self):
        return Stream()
