"""Memory of a device: what goes in comes out, blocks are apart, and the books are right.

Providers in host memory have none of their own, so there is nothing to check.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ep_compliance.checks import check
from ep_compliance.driving.bench import Bench
from ep_compliance.driving.capsules import Exported
from ep_compliance.driving.findings import Broken, NotClaimed, text_of
from ep_compliance.driving.lanes import DeviceLane, open_lane
from ep_compliance.driving.values import same_bits
from ep_core.contracts import Buffer
from ep_core.errors import AllocationError, EpError
from ep_core.types import HOST_MEMORY, DataType, DeviceInfo

SHAPES: tuple[tuple[int, ...], ...] = (
    (),
    (0,),
    (1,),
    (3,),
    (2, 0, 5),
    (7, 11),
    (255,),
    (257,),
    (4099,),
    (1, 1, 1, 1, 1, 1, 1, 3),
    (64, 1031),
)
_KDL_CPU = 1

Array = np.ndarray[Any, Any]


@contextlib.contextmanager
def lane_on(bench: Bench, device: DeviceInfo | None = None) -> Iterator[DeviceLane]:
    """Open a device with memory of its own; NotClaimed where it has none."""
    with bench.open(device) as provider:
        if provider.memory == HOST_MEMORY:
            raise NotClaimed("works in host memory")
        with contextlib.closing(open_lane(provider)) as lane:
            assert isinstance(lane, DeviceLane)
            yield lane


def filled(shape: tuple[int, ...], dtype: DataType, seed: int) -> Array:
    """Values that every element type can hold, zeros and ones."""
    count = math.prod(shape)
    bits = np.random.default_rng(seed).integers(0, 2, count)
    if dtype is DataType.STRING:
        return np.array([f"text {bit}" for bit in bits], object).reshape(shape)
    return bits.reshape(shape).astype(dtype.numpy)


def holds(lane: DeviceLane, dtype: DataType) -> bool:
    """True if the memory can hold an element type; a no must be an error of the project."""
    try:
        buffer = lane.allocator.allocate((1,), dtype, lane.stream)
    except EpError:
        return False
    except Exception as error:
        text = f"allocating {dtype.text} raises {text_of(error)}, expected an EpError for a no"
        raise Broken(text) from error
    lane.release([buffer])
    return True


@check("memory/round-trip")
def round_trip(bench: Bench) -> None:
    """Every element type that can be held comes back bit by bit, whatever its shape."""
    with lane_on(bench) as lane:
        held = [dtype for dtype in DataType if holds(lane, dtype)]
        if not held:
            raise Broken("the memory holds no element type at all")
        for dtype in held:
            arrays = [filled(shape, dtype, seed) for seed, shape in enumerate(SHAPES)]
            buffers = lane.feed(arrays)
            for array, buffer in zip(arrays, buffers, strict=True):
                _check_buffer(lane, buffer, array, dtype)
            for array, back in zip(arrays, lane.fetch(buffers), strict=True):
                if not same_bits(array, back):
                    what = f"{dtype.text}{list(array.shape)}"
                    raise Broken(f"{what} comes back from the device with other bits")
            lane.release(buffers)


def _check_buffer(lane: DeviceLane, buffer: Buffer, array: Array, dtype: DataType) -> None:
    if (buffer.dtype, tuple(buffer.shape)) != (dtype, array.shape):
        got = f"{buffer.dtype.text}{list(buffer.shape)}"
        raise Broken(f"asked for {dtype.text}{list(array.shape)}, the buffer is {got}")
    if buffer.memory != lane.provider.memory:
        raise Broken(f"a buffer of {lane.provider.memory} says it lies in {buffer.memory}")
    if dtype.bits >= 8 and buffer.nbytes != (array.size * dtype.bits + 7) // 8:
        raise Broken(f"a buffer for {array.nbytes} bytes says it has {buffer.nbytes}")


@check("memory/odd-addresses")
def odd_addresses(bench: Bench) -> None:
    """Copies from and to host memory at any multiple of the element's size are right."""
    with lane_on(bench) as lane:
        for dtype in (DataType.UINT8, DataType.FLOAT, DataType.INT64):
            if not holds(lane, dtype):
                continue
            size = dtype.numpy.itemsize
            for shift in range(1, 9):
                source = np.arange(100).astype(dtype.numpy)[shift:]
                target = np.zeros(100 + size, dtype.numpy)[shift : shift + source.size]
                (buffer,) = lane.feed([source])
                lane.transfer.copy(buffer, target, lane.stream)
                lane.wait()
                if not same_bits(source, target):
                    raise Broken(f"{dtype.text} at an offset of {shift * size} bytes is corrupted")
                lane.release([buffer])


@check("memory/apart")
def apart(bench: Bench) -> None:
    """Buffers that are in use at the same time don't overlap, also after others were released."""
    with lane_on(bench) as lane:
        dtype = some_type(lane)
        live: dict[int, tuple[Array, Buffer]] = {}
        generator = np.random.default_rng(7)
        for number in range(120):
            if live and generator.random() < 0.4:
                _, buffer = live.pop(int(generator.choice(sorted(live))))
                lane.release([buffer])
            array = numbered(number, int(generator.integers(0, 700)), dtype)
            live[number] = array, lane.feed([array])[0]
        for array, buffer in live.values():
            if not same_bits(array, lane.fetch([buffer])[0]):
                raise Broken("two buffers in use at the same time overlap")
            lane.release([buffer])


def some_type(lane: DeviceLane) -> DataType:
    """An element type that the memory can hold."""
    for dtype in (DataType.FLOAT, DataType.UINT8, DataType.INT32, DataType.FLOAT16):
        if holds(lane, dtype):
            return dtype
    raise Broken("the memory holds none of float, uint8, int32, float16")


def numbered(number: int, size: int, dtype: DataType) -> Array:
    """So many elements, all with one number."""
    return np.full(size, number % 251).astype(dtype.numpy)


@check("memory/books")
def books(bench: Bench) -> None:
    """The allocator's counters follow every allocation and release, to the byte."""
    with lane_on(bench) as lane:
        dtype = some_type(lane)
        lane.wait()
        start = lane.stats()
        buffers = [lane.allocator.allocate((n,), dtype, lane.stream) for n in (0, 1, 1000)]
        asked = 1001 * dtype.numpy.itemsize
        full = lane.stats()
        if full.allocations - start.allocations != len(buffers):
            count = full.allocations - start.allocations
            raise Broken(f"{len(buffers)} allocations were counted as {count}")
        if full.in_use_bytes - start.in_use_bytes != asked:
            raise Broken(f"{asked} bytes in use count as {full.in_use_bytes - start.in_use_bytes}")
        if full.peak_bytes < full.in_use_bytes:
            raise Broken("peak_bytes is less than in_use_bytes")
        lane.release(buffers)
        lane.wait()
        end = lane.stats()
        if end.in_use_bytes != start.in_use_bytes or end.releases - start.releases != len(buffers):
            raise Broken("released buffers still count as in use")
        if end.peak_bytes < full.in_use_bytes:
            raise Broken("peak_bytes forgets the peak")


@check("memory/exhausted")
def exhausted(bench: Bench) -> None:
    """Asking for more than there can be raises AllocationError, and the next allocation works."""
    with lane_on(bench) as lane:
        dtype = some_type(lane)
        try:
            lane.allocator.allocate((2**50,), dtype, lane.stream)
        except AllocationError:
            pass
        except Exception as error:
            text = f"expected AllocationError for 2**50 elements, got {text_of(error)}"
            raise Broken(text) from error
        else:
            raise Broken("gives out 2**50 elements of memory that can't exist")
        array = numbered(3, 64, dtype)
        buffers = lane.feed([array])
        if not same_bits(array, lane.fetch(buffers)[0]):
            raise Broken("after a failed allocation the next one is corrupted")
        lane.release(buffers)


@check("memory/device-to-device")
def device_to_device(bench: Bench) -> None:
    """Direct copies that `can_copy` promises are right: within the memory, and to other devices."""
    with lane_on(bench) as lane:
        devices = [other for other in bench.factory.devices() if other.id != bench.device.id]
        tried = int(_copy_across(lane, lane))
        for device in devices:
            with lane_on(bench, device) as other:
                tried += _copy_across(lane, other) + _copy_across(other, lane)
        if not tried:
            raise NotClaimed("promises no direct copies between buffers")


def _copy_across(source: DeviceLane, target: DeviceLane) -> bool:
    """Copy from one lane's memory to the other's by the source's transfer, if that can."""
    memories = (source.provider.memory, target.provider.memory)
    if not source.transfer.can_copy(*memories):
        return False
    dtype = some_type(source)
    for size in (0, 1, 777):
        array = numbered(size + 5, size, dtype)
        (origin,) = source.feed([array])
        (copied,) = target.feed([np.zeros_like(array)])
        source.transfer.copy(origin, copied, source.stream)
        source.wait()
        back = target.fetch([copied])[0]
        source.release([origin])
        target.release([copied])
        if not same_bits(array, back):
            raise Broken(f"a direct copy of {array.nbytes} bytes from {memories[0]} is corrupted")
    return True


@check("memory/routes")
def routes(bench: Bench) -> None:
    """`can_copy` says yes for the ways to and from the host, twice alike."""
    with lane_on(bench) as lane:
        own = lane.provider.memory
        for way in ((HOST_MEMORY, own), (own, HOST_MEMORY)):
            if not (lane.transfer.can_copy(*way) and lane.transfer.can_copy(*way)):
                raise Broken(f"can_copy denies the way from {way[0]} to {way[1]}")


@check("memory/dlpack")
def dlpack(bench: Bench) -> None:
    """A buffer is exported without a copy, and its memory outlives the release; or BufferError."""
    with lane_on(bench) as lane:
        dtype = some_type(lane)
        array = numbered(9, 100, dtype)
        (buffer,) = lane.feed([array])
        exported = _export(buffer)
        lane.release([buffer])
        lane.wait()
        _scribble(lane, dtype)
        if exported is not None and not same_bits(array, np.array(exported)):
            raise Broken("memory exported by DLPack was reused after the buffer was released")


def _export(buffer: Buffer) -> Array | None:
    """The buffer as an array if it exports itself to the host, None if it refuses properly."""
    kind = buffer.__dlpack_device__()
    if not isinstance(kind, tuple) or len(kind) != 2:
        raise Broken(f"__dlpack_device__ gives {kind!r}, expected a kind and a number")
    try:
        for version in (None, (1, 0), (99, 0)):
            capsule = buffer.__dlpack__(max_version=version)
    except BufferError:
        return None
    except Exception as error:
        raise Broken(f"__dlpack__ raises {text_of(error)}, expected BufferError") from error
    if kind[0] != _KDL_CPU:
        return None
    del capsule
    tensor: Any = Exported(buffer)
    return np.from_dlpack(tensor)


def _scribble(lane: DeviceLane, dtype: DataType) -> None:
    """Allocate and fill what was just freed."""
    buffers = lane.feed([numbered(200, 100, dtype) for _ in range(8)])
    lane.release(buffers)
    lane.wait()
