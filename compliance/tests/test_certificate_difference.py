"""What one certificate grants and another doesn't, however it is cut into rows."""

from __future__ import annotations

import itertools
import json

import onnx.defs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ep_compliance.certificates.boxes import _MIXED
from ep_compliance.certificates.difference import difference, read_coverage
from ep_core.certificates.file import CertificateRow
from ep_core.errors import CertificateError

F, D, I64, BOOL = "tensor(float)", "tensor(double)", "tensor(int64)", "tensor(bool)"


def row(op_type, inputs, outputs, since, until=None, domain=""):
    def side(kinds):
        return tuple(None if kind is None else frozenset(kind) for kind in kinds)

    return CertificateRow(domain, op_type, since, until or since, side(inputs), side(outputs), "")


def texts(changes):
    return [str(change) for change in changes]


# ---------------------------------------------------------------- how rows are cut


def test_equal_rows_differ_in_nothing():
    rows = [row("Relu", [{F, D}], [{F, D}], 6, 14), row("Sum", [None], [None], 8)]
    assert difference(rows, rows) == difference([], [])


def test_cutting_by_version_is_no_difference():
    # The schemas of Relu are of versions 1, 6, 13 and 14.
    whole = [row("Relu", [{F}], [{F}], 6, 14)]
    cut = [row("Relu", [{F}], [{F}], 6, 13), row("Relu", [{F}], [{F}], 14)]
    assert difference(whole, cut) == difference(cut, whole) == difference([], [])


def test_cutting_by_type_is_no_difference():
    # Both inputs and the output of Mul have the type T, so that no node mixes float and double.
    whole = [row("Mul", [{F, D}, {F, D}], [{F, D}], 14)]
    cut = [row("Mul", [{kind}, {kind}], [{kind}], 14) for kind in (F, D)]
    assert difference(whole, cut) == difference(cut, whole) == difference([], [])


def test_a_row_for_any_type_is_one_for_all_types_of_the_schema():
    schema = onnx.defs.get_schema("Not", 1)
    assert [c.allowed_type_strs for c in schema.type_constraints] == [[BOOL]]
    rows = [row("Not", [None], [None], 1)], [row("Not", [{BOOL}], [{BOOL}], 1)]
    assert difference(*rows) == difference(*rows[::-1]) == difference([], [])


def test_without_a_schema_any_is_more_than_what_is_named():
    some, every = ([row("Op", [kinds], [{F}], 1, domain="vendor")] for kinds in ({F, D}, None))
    assert texts(difference(every, some).lost) == ["vendor.Op 1: (any) -> (float)"]
    assert texts(difference(every, some).gained) == []


# ---------------------------------------------------------------- what is lost


def test_what_is_lost_is_named_by_operator_version_and_types():
    old = [row("Mul", [{F, D}, {F, D}], [{F, D}], 7, 14), row("Relu", [{F}], [{F}], 14)]
    new = [row("Mul", [{F}, {F}], [{F}], 7, 14), row("Mul", [{D}, {D}], [{D}], 7)]
    found = difference(old, new)
    assert texts(found.lost) == [
        "Mul 13, 14: (double, double) -> (double)",
        "Relu 14: (float) -> (float)",
    ]
    assert found.gained == ()
    assert texts(difference(new, old).gained) == texts(found.lost)


def test_an_optional_input_is_lost_on_its_own():
    with_bounds = [row("Clip", [{F}, {F}, {F}], [{F}], 13)]
    without = [row("Clip", [{F}, {F}, set()], [{F}], 13)]
    assert texts(difference(with_bounds, without).lost) == [
        "Clip 13: (float, float, float) -> (float)"
    ]
    assert difference(without, with_bounds).lost == ()


def test_a_combination_of_types_is_lost_though_each_type_is_left():
    old = [row("Cast", [{F, D}], [{F, D}], 13)]
    new = [row("Cast", [{F}], [{F, D}], 13), row("Cast", [{D}], [{D}], 13)]
    assert texts(difference(old, new).lost) == ["Cast 13: (double) -> (float)"]


def test_the_last_entry_stands_for_all_further_inputs():
    one, two = [row("Max", [{F}], [{F}], 13)], [row("Max", [{F}, {F}, set()], [{F}], 13)]
    assert texts(difference(one, two).lost) == ["Max 13: (float, float, float) -> (float)"]
    assert difference(two, one).lost == ()


def test_versions_of_unknown_operators_are_told_by_the_ends_of_rows():
    old = [row("Op", [{F}], [{F}], 1, 5, domain="vendor")]
    new = [row("Op", [{F}], [{F}], 1, 3, domain="vendor")]
    assert texts(difference(old, new).lost) == ["vendor.Op 5: (float) -> (float)"]


def test_operators_of_mixed_types_are_those_of_onnx():
    found = {
        schema.name
        for schema in onnx.defs.get_all_schemas_with_history()
        for formal in (*schema.inputs, *schema.outputs)
        if not formal.is_homogeneous and schema.domain.startswith(("ai.onnx", ""))
    }
    assert found == _MIXED


# ---------------------------------------------------------------- against trying every node

KINDS = {"Clip": (F, D), "Pow": (F, D), "Max": (F, D), "Cast": (F, I64)}
"""Operators with optional inputs, two type parameters, and a variadic input, in version 13."""


def nodes(op_type):
    """Every node with these types, as types of inputs (None for left out) and of the output."""
    kinds = KINDS[op_type]
    for first in kinds:
        if op_type == "Clip":
            for given in itertools.product([first, None], repeat=2):
                yield (first, *given), (first,)
        elif op_type == "Pow":
            yield from (((first, other), (first,)) for other in kinds)
        elif op_type == "Max":
            yield from (((first,) * count, (first,)) for count in (1, 2, 3))
        else:
            yield from (((first,), (other,)) for other in kinds)


def grants(granted, node):
    """The rule of the core: types by position, the last entry for all later ones."""

    def fits(allowed, kinds):
        for position, kind in enumerate(kinds):
            if kind is None:
                continue
            entry = allowed[min(position, len(allowed) - 1)] if allowed else frozenset()
            if entry is not None and kind not in entry:
                return False
        return True

    return fits(granted.inputs, node[0]) and fits(granted.outputs, node[1])


@st.composite
def rows(draw, op_type):
    kinds = st.one_of(st.none(), st.frozensets(st.sampled_from(KINDS[op_type])))
    side = st.lists(kinds, max_size=3)
    cut = st.builds(lambda i, o: row(op_type, i, o, 13), side, st.lists(kinds, max_size=1))
    return draw(st.lists(cut, max_size=4))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), op_type=st.sampled_from(sorted(KINDS)))
def test_exactly_the_lost_nodes_are_named(data, op_type):
    old, new = data.draw(rows(op_type)), data.draw(rows(op_type))
    lost = [
        node
        for node in nodes(op_type)
        if any(grants(r, node) for r in old) and not any(grants(r, node) for r in new)
    ]
    found = difference(old, new).lost
    for node in lost:
        assert any(grants(change, node) for change in found), node
    for node in nodes(op_type):
        # A change with an input says nothing of the node without it.
        whole = [c for c in found if grants(c, node) and stands(c, node)]
        assert not whole or node in lost, node


def stands(change, node):
    """True if each value that a change has is there in the node."""
    sides = zip((change.inputs, change.outputs), node, strict=True)
    return all(
        sum(kind is not None for kind in kinds) >= sum(bool(entry) for entry in entries)
        for entries, kinds in sides
    )


# ---------------------------------------------------------------- files


def report(**changes):
    record = {
        "domain": "",
        "op_type": "Relu",
        "since": 14,
        "until": 14,
        "inputs": [[F]],
        "outputs": [[F]],
        "predicate": "",
    }
    return {
        "provider": "toy",
        "device": {"id": "0", "fingerprint": "toy-1"},
        "level": "full",
        "date": "2030-12-31",
        "rows": [record],
        "verdicts": [],
        **changes,
    }


def test_a_report_is_read_like_a_certificate(tmp_path):
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report()))
    coverage = read_coverage(path)
    assert (coverage.provider, coverage.device, coverage.level) == ("toy", "toy-1", "full")
    assert coverage.rows == (row("Relu", [{F}], [{F}], 14),)


@pytest.mark.parametrize(
    ("content", "saying"),
    [
        (None, "can't read .*old.json"),
        ("{", "can't read .*expected a certificate, or the report.json of a run"),
        ("[" * 100_000, "can't read"),
        ("[]", "format; expected 1"),
        ('{"format": 1}', "'provider' is missing"),
        (json.dumps(report(rows=None)), "isn't a report of this kit"),
        (json.dumps(report(device="toy")), "isn't a report of this kit"),
        (json.dumps(report(rows=[{"domain": ""}])), "what isn't a row stands among rows"),
        (json.dumps(report(rows=[1])), "what isn't a row stands among rows; got 1"),
    ],
)
def test_a_file_that_is_neither_is_refused(tmp_path, content, saying):
    path = tmp_path / "old.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CertificateError, match=saying):
        read_coverage(path)
