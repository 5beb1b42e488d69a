"""The arena of a device's allocator: sizes, streams, pressure, closing, threads."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ep_core.errors import AllocationError
from ep_sdk import Arena

ALIGNMENT = 16


class Heap:
    """A device with so many bytes; knows what it has given."""

    def __init__(self, capacity: int = 1 << 40):
        self.left = capacity
        self.given: set[int] = set()
        self.count = 0

    def reserve(self, size: int) -> tuple[int, int]:
        if size > self.left:
            raise AllocationError("full", got=size)
        self.left -= size
        self.count += 1
        self.given.add(self.count)
        return self.count, size

    def free(self, raw: tuple[int, int]) -> None:
        self.given.remove(raw[0])
        self.left += raw[1]


def arena_on(heap: Heap, patience: float = 0.0) -> Arena[tuple[int, int]]:
    return Arena(heap.reserve, heap.free, ALIGNMENT, patience)


def test_sizes_are_rounded_up_and_used_again():
    heap = Heap()
    arena = arena_on(heap)
    chunk = arena.take(17)
    assert (chunk.size, chunk.wanted, chunk.raw) == (32, 17, (1, 32))
    arena.give(chunk)
    assert arena.take(32) is chunk
    assert heap.count == 1


def test_a_large_chunk_isn_t_spent_on_a_small_request():
    arena = arena_on(Heap())
    large = arena.take(1024)
    arena.give(large)
    small = arena.take(490)
    assert small is not large
    assert arena.take(512) is large
    assert small.size == 496


def test_the_smallest_that_fits_is_taken():
    arena = arena_on(Heap())
    chunks = [arena.take(size) for size in (160, 128, 144)]
    for chunk in chunks:
        arena.give(chunk)
    assert arena.take(130) is chunks[2]


@pytest.mark.parametrize("nbytes", [0, 1])
def test_nothing_at_all_is_a_chunk_too(nbytes):
    arena = arena_on(Heap())
    chunk = arena.take(nbytes)
    assert chunk.size == ALIGNMENT * nbytes
    arena.give(chunk)
    assert arena.take(nbytes) is chunk


def test_a_stream_has_its_own_back_at_once_and_others_when_it_is_settled():
    arena = arena_on(Heap())
    chunk = arena.take(64, "one")
    turn = arena.give(chunk, "one")
    other = arena.take(64, "two")
    assert other is not chunk
    assert arena.take(64, "one") is chunk
    assert not chunk.is_idle

    arena.settle(chunk, turn, "one")  # too late, it has been taken again
    turn = arena.give(chunk, "one")
    third = arena.take(64, "two")
    assert third is not chunk
    arena.settle(chunk, turn, "one")
    assert arena.take(64, "two") is chunk
    assert chunk.is_idle


def test_an_older_turn_settles_nothing():
    arena = arena_on(Heap())
    chunk = arena.take(64, "one")
    first = arena.give(chunk, "one")
    arena.take(64, "one")
    arena.give(chunk, "one")
    arena.settle(chunk, first, "one")
    assert arena.take(64, "two") is not chunk


def test_idle_memory_goes_before_an_allocation_fails():
    heap = Heap(capacity=128)
    arena = arena_on(heap)
    kept, idle = arena.take(32), arena.take(64)
    arena.give(idle)
    large = arena.take(96)
    assert heap.given == {1, 3}
    with pytest.raises(AllocationError, match="full"):
        arena.take(16)
    arena.give(large)
    arena.give(kept)
    arena.trim()
    assert heap.left == 128


def test_a_full_arena_waits_for_what_streams_still_hold():
    heap = Heap(capacity=64)
    arena = arena_on(heap, patience=10)
    chunk = arena.take(64, "one")
    turn = arena.give(chunk, "one")
    later = threading.Timer(0.05, lambda: arena.settle(chunk, turn, "one"))
    later.start()
    assert arena.take(40, "two") is chunk
    later.join()


def test_without_patience_it_doesn_t_wait():
    arena = arena_on(Heap(capacity=64))
    arena.give(arena.take(64, "one"), "one")
    with pytest.raises(AllocationError):
        arena.take(64, "two")


def test_closed_it_keeps_nothing():
    heap = Heap()
    arena = arena_on(heap)
    chunks = [arena.take(16, "one") for _ in range(3)]
    arena.give(chunks[0])
    arena.close()
    assert heap.given == {2, 3}
    arena.give(chunks[1])
    turn = arena.give(chunks[2], "one")
    assert heap.given == {3}
    arena.settle(chunks[2], turn, "one")
    assert heap.given == set()
    assert arena.stats().reserved_bytes == 0


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from("tgs"), st.integers(0, 400), st.sampled_from([None, "a", "b"])),
        max_size=60,
    )
)
def test_any_order_of_calls_keeps_count(calls):
    """No chunk is out twice, and the counters are what a list of them says."""
    heap = Heap()
    arena = arena_on(heap)
    out, unsettled, peak = [], [], 0
    for kind, number, stream in calls:
        if kind == "t":
            chunk = arena.take(number, stream)
            assert all(chunk is not other for other in out)
            assert chunk.wanted == number <= chunk.size
            out.append(chunk)
        elif kind == "g" and out:
            chunk = out.pop(number % len(out))
            turn = arena.give(chunk, stream)
            if stream is not None:
                unsettled.append((chunk, turn, stream))
        elif kind == "s" and unsettled:
            arena.settle(*unsettled.pop(number % len(unsettled)))
        stats = arena.stats()
        peak = max(peak, sum(chunk.wanted for chunk in out))
        assert stats.in_use_bytes == sum(chunk.wanted for chunk in out)
        assert stats.peak_bytes == peak
        assert stats.allocations - stats.releases == len(out)
        assert stats.reserved_bytes == (1 << 40) - heap.left


def test_many_threads():
    heap = Heap()
    arena = arena_on(heap)
    shared = []

    def work(number: int) -> None:
        for size in range(200):
            chunk = arena.take(size, number)
            shared.append(chunk.raw)
            shared.remove(chunk.raw)
            turn = arena.give(chunk, number)
            arena.settle(chunk, turn, number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = arena.stats()
    assert (stats.in_use_bytes, stats.allocations, stats.releases) == (0, 1200, 1200)
    arena.trim()
    assert heap.given == set()
