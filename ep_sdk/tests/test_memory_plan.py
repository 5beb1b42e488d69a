from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ep_sdk import Lifetime, plan_memory

LIFETIMES = st.lists(
    st.builds(
        lambda nbytes, start, length: Lifetime(nbytes, start, start + length),
        st.integers(1, 5000),
        st.integers(0, 20),
        st.integers(0, 8),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(LIFETIMES, st.sampled_from([1, 64, 256]), st.sampled_from([0, 20_000]))
def test_values_that_live_together_never_overlap(lifetimes, alignment, most_values):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ep_sdk.memory_plan._MOST_VALUES", most_values)
        plan = plan_memory(lifetimes, alignment)
    for i, (a, a_offset) in enumerate(zip(lifetimes, plan.offsets, strict=True)):
        assert a_offset % alignment == 0
        assert a_offset + a.nbytes <= plan.planned_bytes
        for b, b_offset in list(zip(lifetimes, plan.offsets, strict=True))[:i]:
            together = a.start <= b.end and b.start <= a.end
            apart = a_offset + a.nbytes <= b_offset or b_offset + b.nbytes <= a_offset
            assert apart or not together
    assert plan.live_bytes <= plan.planned_bytes <= plan.unshared_bytes


def test_a_chain_needs_two_places():
    """Each value is read by the step that writes the next, so two live at any time."""
    plan = plan_memory([Lifetime(1000, step, step + 1) for step in range(50)])
    assert plan.planned_bytes == 2 * 1024
    assert plan.unshared_bytes == 50 * 1024
    assert plan.live_bytes == 2 * 1024


def test_the_smallest_gap_that_fits_is_taken():
    # Two gaps are free at step 2, of 256 and of 128 bytes; the value of 128 must take the second.
    plan = plan_memory(
        [
            Lifetime(512, 0, 9),
            Lifetime(256, 0, 1),
            Lifetime(255, 0, 9),
            Lifetime(128, 0, 1),
            Lifetime(127, 0, 9),
            Lifetime(65, 2, 3),
        ]
    )
    assert plan.offsets[5] == plan.offsets[3]


def test_nothing_to_plan():
    plan = plan_memory([])
    assert (plan.offsets, plan.planned_bytes, plan.live_bytes) == ((), 0, 0)


@pytest.mark.parametrize("count", [2000, 20_000])
@pytest.mark.parametrize("all_live_to_the_end", [False, True])
def test_large_plans_are_quick(count, all_live_to_the_end):
    ends = [count if all_live_to_the_end else i + 1 + i % 7 for i in range(count)]
    lifetimes = [Lifetime(64 + i % 977, i, end) for i, end in enumerate(ends)]
    start = time.process_time()
    plan = plan_memory(lifetimes)
    assert time.process_time() - start < 2
    assert plan.planned_bytes < 2 * plan.live_bytes
