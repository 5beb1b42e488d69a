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


def test_chunks_have_eight_sizes_between_powers_of_two():
    arena = arena_on(Heap())
    sizes = {arena.take(nbytes).size for nbytes in range(1025, 2049)}
    assert sizes == set(range(1152, 2049, 128))
    assert arena.take(1 << 30).size == 1 << 30


def test_a_chunk_serves_its_own_size_only():
    arena = arena_on(Heap())
    large = arena.take(1024)
    arena.give(large)
    small = arena.take(512)
    assert small is not large
    assert arena.take(1000) is large
    assert small.size == 512


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


class Stream:
    """Anything that can be referred to weakly."""


def returned(arena, chunk, stream):
    """Give a chunk back on a stream, which then gets there."""
    arena.settle(chunk, arena.give(chunk, stream), stream)


def test_what_a_stream_took_stays_its_own_while_it_lives():
    arena = arena_on(Heap())
    one, two = Stream(), Stream()
    chunk = arena.take(64, one)
    returned(arena, chunk, one)
    other, third = arena.take(64, two), arena.take(64)
    assert chunk not in (other, third)
    assert arena.take(64, one) is chunk
    assert arena.stats().device_allocations == 3

    returned(arena, chunk, one)
    del one
    assert arena.take(64, two) is chunk
    assert chunk.owner() is two
    assert arena.stats().device_allocations == 3


def test_a_stream_takes_its_own_before_what_is_nobody_s():
    arena = arena_on(Heap())
    stream = Stream()
    own, free = arena.take(64, stream), arena.take(64)
    returned(arena, own, stream)
    arena.give(free)
    assert arena.take(64, stream) is own
    assert arena.take(64, stream) is free
    assert free.owner() is stream


def test_given_back_without_a_stream_it_stays_the_stream_s():
    arena = arena_on(Heap())
    stream = Stream()
    chunk = arena.take(64, stream)
    arena.give(chunk)
    assert arena.take(64) is not chunk
    assert arena.take(64, stream) is chunk
    assert chunk.is_idle


def test_others_idle_memory_goes_too_before_an_allocation_fails():
    heap = Heap(capacity=64)
    arena = arena_on(heap)
    one, two = Stream(), Stream()
    returned(arena, arena.take(64, one), one)
    assert arena.take(48, two).size == 48
    assert heap.given == {2}


@settings(max_examples=200)
@given(st.data())
def test_the_same_work_takes_no_new_memory_however_fast_its_streams_are(data):
    """What each stream takes and gives is the same in every round; when it is settled isn't."""
    arena = arena_on(Heap())
    streams = [Stream(), Stream()]
    work = data.draw(
        st.lists(st.tuples(st.integers(0, 1), st.integers(1, 80), st.booleans()), max_size=12)
    )
    counts = []
    for _ in range(4):
        out, unsettled = [], []
        for which, size, gives in work:
            out.append((arena.take(size, streams[which]), streams[which]))
            if gives:
                chunk, stream = out.pop(0)
                unsettled.append((chunk, arena.give(chunk, stream), stream))
            while unsettled and data.draw(st.booleans()):
                arena.settle(*unsettled.pop())
        for chunk, stream in out:
            unsettled.append((chunk, arena.give(chunk, stream), stream))
        for item in unsettled:
            arena.settle(*item)
        counts.append(arena.stats().device_allocations)
    assert len(set(counts)) == 1


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
    assert arena.take(40, "two").size == 48
    assert heap.given == {2}
    later.join()


def test_a_full_arena_lets_a_stream_have_its_larger_chunks():
    arena = arena_on(Heap(capacity=96))
    chunk, other = arena.take(64, "one"), arena.take(32, "two")
    arena.give(chunk, "one")
    arena.give(other, "two")
    assert arena.take(16, "one") is chunk
    assert arena.take(16, "two") is other


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
