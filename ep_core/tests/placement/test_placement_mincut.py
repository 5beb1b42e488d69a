"""Minimum cuts against every cut of small networks."""

from __future__ import annotations

import itertools
import random

from ep_core.placement.mincut import ENDLESS, Network


def cut_value(side: list[bool], excess: list[int], arcs) -> int:
    """What a cut costs; True is the sink's side."""
    ends = sum(max(e, 0) if sink else max(-e, 0) for e, sink in zip(excess, side, strict=True))
    crossing = sum(forward for tail, head, forward in arcs if not side[tail] and side[head])
    return ends + crossing


def test_cuts_are_minimal_and_have_the_smallest_sink_side():
    for seed in range(400):
        rng = random.Random(seed)
        size = rng.randint(1, 8)
        network = Network(size)
        arcs = []
        for _ in range(rng.randint(0, 3 * size)):
            tail, head = rng.randrange(size), rng.randrange(size)
            if tail != head:
                both = [rng.choice([0, 1, 2, 5, ENDLESS]), rng.choice([0, 0, 3])]
                network.connect(tail, head, *both)
                arcs += [(tail, head, both[0]), (head, tail, both[1])]
        excess = [rng.randint(-9, 9) for _ in range(size)]
        network.excess[:] = excess
        got = network.cut()
        sides = [list(side) for side in itertools.product([False, True], repeat=size)]
        values = [cut_value(side, excess, arcs) for side in sides]
        best = [side for side, value in zip(sides, values, strict=True) if value == min(values)]
        assert got in best, seed
        assert sum(got) == min(sum(side) for side in best), seed


def test_a_long_chain_needs_few_waves():
    """Every node sends a little to the one sink at the far end, through a narrow arc."""
    size = 20_000
    network = Network(size)
    for node in range(size - 1):
        network.connect(node, node + 1, size * 10, size * 10)
    network.excess[:] = [1] * size
    network.excess[-1] = -(size // 2)
    assert not any(network.cut())
    assert network.work < 10 * 3 * size
