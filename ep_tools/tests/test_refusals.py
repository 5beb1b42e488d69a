"""Refusals by reason, and the brief form for a terminal."""

from __future__ import annotations

from ep_tools.refusals import Refusal, in_brief


def refusals(reasons) -> list[Refusal]:
    return [Refusal("npu", reason, (f"n{place}",)) for place, reason in enumerate(reasons)]


def test_many_reasons_that_differ_in_names_are_told_as_one():
    ranks = [f"the rank of 'value_{i}' isn't known" for i in range(4)]
    assert in_brief(refusals([*ranks, "operator If has no kernel"])) == (
        Refusal("npu", "the rank of '...' isn't known", ("n0", "n1", "n2", "n3")),
        Refusal("npu", "operator If has no kernel", ("n4",)),
    )


def test_a_few_are_told_word_for_word():
    few = refusals(["needs a constant 'axes'", "needs a constant 'shape'", "dtype 'float' 'axes'"])
    assert list(in_brief(few)) == few


def test_providers_stay_apart_and_most_nodes_come_first():
    found = [
        Refusal("npu", "operator Abs has no kernel", ("a",)),
        Refusal("gpu", "operator Abs has no kernel", ("a", "b")),
    ]
    assert in_brief(found) == (found[1], found[0])
