"""Copies to and from a device in every way they may come: addresses, routes, threads.

Goes on where `memory` ends; providers in host memory have nothing to check here either.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from ep_compliance.cases.case import Level
from ep_compliance.checks import check
from ep_compliance.driving.bench import Bench
from ep_compliance.driving.crowd import on_threads
from ep_compliance.driving.findings import Broken, NotClaimed, text_of
from ep_compliance.driving.lanes import DeviceLane, open_lane
from ep_compliance.driving.values import same_bits
from ep_core.contracts import ExecutionProvider
from ep_core.errors import EpError
from ep_core.types import HOST_MEMORY, DataType, MemoryInfo, MemoryKind

_COUNTS = (1, 2, 7, 64, 1000)
_SHIFTS = range(16)
_BESIDE = 32
_FILLER = 0x3C

_NOWHERE = (
    MemoryInfo("kit-nowhere:0", MemoryKind.DEVICE),
    MemoryInfo("kit-nowhere:0", MemoryKind.SHARED),
)
"""Memories that nobody has, so nobody can promise a way to them."""

Array = np.ndarray[Any, Any]


@contextlib.contextmanager
def _device(bench: Bench) -> Iterator[ExecutionProvider]:
    with bench.open() as provider:
        if provider.memory == HOST_MEMORY:
            raise NotClaimed("works in host memory")
        yield provider


@contextlib.contextmanager
def _lane(provider: ExecutionProvider) -> Iterator[DeviceLane]:
    with contextlib.closing(open_lane(provider)) as lane:
        assert isinstance(lane, DeviceLane)
        yield lane


@check("memory/every-address", level=Level.FULL)
def every_address(bench: Bench) -> None:
    """Every element type, in several sizes, from and to host memory at any byte address."""
    with _device(bench) as provider, _lane(provider) as lane:
        for dtype in DataType:
            if _holds(lane, dtype):
                for count in _COUNTS:
                    for shift in _SHIFTS:
                        _check_address(lane, dtype, count, shift)


def _holds(lane: DeviceLane, dtype: DataType) -> bool:
    if dtype is DataType.STRING:
        return False
    try:
        lane.release([lane.allocator.allocate((1,), dtype, lane.stream)])
    except EpError:
        return False
    return True


def _check_address(lane: DeviceLane, dtype: DataType, count: int, shift: int) -> None:
    """One way there and back; arrays start `shift` bytes behind a multiple of the alignment."""
    _, source = _placed(dtype, count, shift)
    owner, target = _placed(dtype, count, shift)
    source[...] = np.random.default_rng(count).integers(0, 2, count).astype(dtype.numpy)
    what = f"{count} {dtype.text} at an address of 16 n + {shift}"
    try:
        buffer = lane.allocator.allocate((count,), dtype, lane.stream)
        lane.transfer.copy(source, buffer, lane.stream)
        lane.transfer.copy(buffer, target, lane.stream)
        lane.release([buffer])
        lane.wait()
    except Exception as error:
        raise Broken(f"copying {what} raises {text_of(error)}") from error
    if not same_bits(source, target):
        raise Broken(f"{what} come back with other bits")
    start = target.ctypes.data - owner.ctypes.data
    beside = [*owner[:start], *owner[start + target.nbytes :]]
    if any(byte != _FILLER for byte in beside):
        raise Broken(f"{what}: bytes beside them were written")


def _placed(dtype: DataType, count: int, shift: int) -> tuple[Array, Array]:
    """Bytes filled with a pattern, and an array in the midst of them."""
    nbytes = count * dtype.numpy.itemsize
    owner = np.full(nbytes + 2 * _BESIDE + 32, _FILLER, np.uint8)
    start = _BESIDE + -(owner.ctypes.data + _BESIDE) % 16 + shift
    return owner, owner[start : start + nbytes].view(dtype.numpy)


@check("memory/pinned")
def pinned(bench: Bench) -> None:
    """From and to host memory that is pinned, at the start of its pages and at their very end.

    The pages are locked as far as the system lets us. Who copies from pinned memory without help of
    the host is tempted to keep the pages instead; so they are overwritten after the copy.
    """
    with _device(bench) as provider, _lane(provider) as lane:
        for dtype in (DataType.FLOAT, DataType.FLOAT16, DataType.INT64, DataType.UINT8):
            if _holds(lane, dtype):
                for count in _COUNTS:
                    for at_end in (False, True):
                        _check_pinned(lane, dtype, count, at_end)


def _check_pinned(lane: DeviceLane, dtype: DataType, count: int, at_end: bool) -> None:
    """One way there and back, the source overwritten in between."""
    nbytes = count * dtype.numpy.itemsize
    pages = [_pages(nbytes) for _ in range(2)]
    start = len(pages[0]) - nbytes if at_end else 0
    source, target = (page[start : start + nbytes].view(dtype.numpy) for page in pages)
    right = np.random.default_rng(count).integers(0, 2, count).astype(dtype.numpy)
    source[...] = right
    what = f"{count} {dtype.text} at the {'end' if at_end else 'start'} of pinned pages"
    try:
        buffer = lane.allocator.allocate((count,), dtype, lane.stream)
        lane.transfer.copy(source, buffer, lane.stream)
        lane.wait()
        pages[0][...] = _FILLER
        lane.transfer.copy(buffer, target, lane.stream)
        lane.release([buffer])
        lane.wait()
    except Exception as error:
        raise Broken(f"copying {what} raises {text_of(error)}") from error
    if not same_bits(right, target):
        raise Broken(f"{what} come back with other bits")
    if any(pages[1][:start] != _FILLER) or any(pages[1][start + nbytes :] != _FILLER):
        raise Broken(f"{what}: bytes beside them were written")


def _pages(nbytes: int) -> Array:
    """Whole pages filled with a pattern, locked in memory where that is allowed."""
    length = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    bytes_of_pages: Array = np.frombuffer(mmap.mmap(-1, length), np.uint8)
    if os.name == "posix":
        address, size = ctypes.c_void_p(bytes_of_pages.ctypes.data), ctypes.c_size_t(length)
        ctypes.CDLL(None).mlock(address, size)
    bytes_of_pages[...] = _FILLER
    return bytes_of_pages


@check("memory/foreign-routes")
def foreign_routes(bench: Bench) -> None:
    """`can_copy` promises no way to memory that nobody has, and raises for none."""
    with _device(bench) as provider:
        assert provider.data_transfer is not None
        own = provider.memory
        for other in _NOWHERE:
            for way in ((own, other), (other, own), (other, other), (other, HOST_MEMORY)):
                try:
                    answers = [provider.data_transfer.can_copy(*way) for _ in range(2)]
                except Exception as error:
                    text = f"can_copy from {way[0]} to {way[1]} raises {text_of(error)}"
                    raise Broken(text) from error
                if answers[0] is not answers[1]:
                    raise Broken(f"can_copy from {way[0]} to {way[1]} answers differently")
                if answers[0] and other in _NOWHERE:
                    raise Broken(f"can_copy promises a way from {way[0]} to {way[1]}")


@check("memory/threads")
def threads(bench: Bench) -> None:
    """Threads with streams of their own allocate, copy and release without meeting."""
    with _device(bench) as provider:
        assert provider.allocator is not None
        start = provider.allocator.stats()

        def work(number: int) -> None:
            generator = np.random.default_rng(number)
            with _lane(provider) as lane:
                for turn in range(25):
                    arrays = [
                        np.full(int(generator.integers(1, 300)), number * 50 + turn, np.float32)
                        for _ in range(3)
                    ]
                    buffers = lane.feed(arrays)
                    if not all(map(same_bits, arrays, lane.fetch(buffers))):
                        raise Broken("threads that allocate at the same time share memory")
                    lane.release(buffers)
                lane.wait()

        with _lane(provider) as lane:
            if not _holds(lane, DataType.FLOAT):
                raise NotClaimed("holds no float")
        on_threads(work, 4)
        end = provider.allocator.stats()
        if end.in_use_bytes != start.in_use_bytes:
            raise Broken("after threads have released all they had, memory counts as in use")
        if end.allocations - start.allocations != end.releases - start.releases:
            raise Broken("allocations and releases of several threads are miscounted")
