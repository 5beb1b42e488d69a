"""Certificates in short words: types, versions, tables of operators by provider."""

from __future__ import annotations

import onnx.defs
import pytest

from ep_compliance.certificates.grants import granted, schema_types, type_words
from ep_compliance.certificates.tables import markdown_tables, support_tables, text_tables
from ep_core.certificates.file import Certificate, CertificateRow
from ep_core.types import DataType

F, D, H, B = "tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)"
FLOATS = {F, D, H, B}


def row(op_type, inputs, outputs, since, until=None, domain=""):
    sides = [tuple(None if k is None else frozenset(k) for k in side) for side in (inputs, outputs)]
    return CertificateRow(domain, op_type, since, until or since, *sides, "")


def certificate(*rows, provider="toy"):
    one = (1, 0)
    texts = (
        "ep-toy",
        "1.0",
        "sha256:0",
        one,
        one,
        "toy-1",
        "0.1.0",
        "a",
        "b",
        "full",
        "2030-12-31",
    )
    return Certificate(provider, *texts, {}, (), (), rows)


def cells(*certificates, domain=""):
    (found,) = [t for t in support_tables(certificates) if t.domain == domain]
    return {name: list(texts) for name, texts in found.cells.items()}


# ---------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("types", "words"),
    [
        (FLOATS, "floats"),
        ({F, D, "tensor(bool)"}, "float, double, bool"),
        ({f"tensor({kind.text})" for kind in DataType}, "all types"),
        ({"tensor(int4)", "tensor(uint4)", F}, "4-bit integers, float"),
        ({"seq(tensor(float))", "seq(tensor(double))", F}, "float, seq(float, double)"),
        ({"optional(seq(tensor(float)))"}, "optional(seq(float))"),
        # As the core writes a map, and as onnx does.
        ({"map(string,tensor(float))"}, "map(string,float)"),
        ({"seq(map(int64, float))"}, "seq(map(int64,float))"),
        ({"any"}, "any"),
        (set(), "none"),
    ],
)
def test_types_in_words(types, words):
    assert type_words(types) == words


def test_types_are_told_by_parameter():
    pow_13 = row("Pow", [{F, D}, {F}], [{F, D}], 13)
    assert granted([pow_13]) == {("", "Pow"): {13: {"T": {"float", "double"}, "T1": {"float"}}}}


def test_any_is_what_the_schema_allows():
    types = granted([row("Relu", [None], [None], 14)])["", "Relu"][14]
    assert types == schema_types(("", "Relu"), 14)
    assert "int32" in types["T"]
    # Both are of the type T, so that one of them limits the other.
    assert granted([row("Relu", [None], [{F}], 14)])["", "Relu"][14] == {"T": {"float"}}


def test_any_output_says_nothing_of_what_the_inputs_limit():
    fused = row("FusedMatMul", [{F}, {F}], [None], 1, domain="com.microsoft")
    assert granted([fused]) == {("com.microsoft", "FusedMatMul"): {1: {"T": {"float"}}}}


def test_an_operator_without_a_schema_has_the_types_of_its_first_input():
    found = granted([row("Op", [{F}, {D}], [{H}], 1, domain="vendor")])
    assert found == {("vendor", "Op"): {1: {"": {"float"}}}}
    assert cells(certificate(row("Op", [{F}], [{F}], 1, domain="vendor")), domain="vendor") == {
        "Op": ["float"]
    }


# ---------------------------------------------------------------- cells


def test_a_cell_compares_with_the_schemas():
    # Sqrt has versions 1, 6 and 13; bfloat16 came with the last.
    old = [row("Sqrt", [{F, D, H}], [{F, D, H}], 1, 6)]
    assert cells(certificate(*old, row("Sqrt", [FLOATS], [FLOATS], 13))) == {"Sqrt": ["all"]}
    assert cells(certificate(*old)) == {"Sqrt": ["1 to 6"]}
    assert cells(certificate(row("Sqrt", [{F}], [{F}], 6, 13))) == {"Sqrt": ["from 6: float"]}
    assert cells(certificate(row("Sqrt", [FLOATS], [FLOATS], 13))) == {"Sqrt": ["from 13"]}
    less = row("Sqrt", [{F, D, H}], [{F, D, H}], 13)
    assert cells(certificate(*old, less)) == {"Sqrt": ["1 to 6: all · from 13: all but bfloat16"]}


def test_equal_types_are_one_stretch_whatever_the_schemas_have():
    rows = [row("Add", [{F, D, H}] * 2, [{F, D, H}], 1, 14)]
    assert cells(certificate(*rows)) == {"Add": ["1: all · from 6: float16, float, double"]}


def test_a_parameter_that_is_whole_goes_without_saying():
    kinds = [{F, D}, {F}]
    assert cells(certificate(row("Pow", kinds, [{F, D}], 15))) == {
        "Pow": ["from 15: T: float, double; T1: float"]
    }
    gather = row("Gather", [{F}, {"tensor(int32)", "tensor(int64)"}], [{F}], 1, 13)
    assert cells(certificate(gather)) == {"Gather": ["T: float"]}
    closed = row("Gather", [{F}, set()], [{F}], 13)
    assert cells(certificate(closed)) == {"Gather": ["from 13: T: float; Tind: none"]}


# ---------------------------------------------------------------- tables


def test_a_table_has_a_column_for_each_certificate():
    one = certificate(row("Relu", [{F}], [{F}], 14), provider="one")
    two = certificate(row("Abs", [{F}], [{F}], 13), provider="two")
    (table,) = support_tables([one, two])
    assert table.cells == {"Abs": ["", "from 13: float"], "Relu": ["from 14: float", ""]}
    assert table.versions["Relu"] == "1, 6, 13, 14"
    assert table.types["Relu"] == "floats, signed integers"
    assert "Conv" in table.missing
    assert "Relu" not in table.missing
    # Deprecated before anybody could have been certified for it.
    assert onnx.defs.get_schema("Scatter", 11).deprecated
    assert "Scatter" not in table.missing


def test_domains_have_tables_of_their_own():
    found = certificate(
        row("Scaler", [{F}], [{F}], 1, domain="ai.onnx.ml"),
        row("Relu", [{F}], [{F}], 14),
        row("FusedMatMul", [FLOATS] * 2, [FLOATS], 1, domain="com.microsoft"),
    )
    tables = {table.domain: table for table in support_tables([found])}
    assert list(tables) == ["", "ai.onnx.ml", "com.microsoft"]
    assert tables["ai.onnx.ml"].types["Scaler"] == "float, double, int32, int64"
    assert tables["com.microsoft"].cells == {"FusedMatMul": ["all"]}


def test_markdown_has_whole_rows():
    text = markdown_tables([certificate(row("Relu", [{F}], [{F}], 14)), certificate()])
    lines = text.splitlines()
    assert lines[:7] == [
        "## ai.onnx",
        "",
        "1 operators.",
        "",
        "| Operator | Versions | Types | toy (1) | toy (2) |",
        "|---|---|---|---|---|",
        "| Relu | 1, 6, 13, 14 | floats, signed integers | from 14: float |  |",
    ]
    assert lines[8].startswith("Nobody is certified for: Abs, Acos,")


def test_text_is_aligned_and_cuts_long_cells():
    many = [
        row("Attention", [{kind}] * 3, [{kind}], version)
        for kind, version in ((F, 23), (D, 24), (H, 25))
    ]
    text = text_tables([certificate(*many, row("Relu", [{F}], [{F}], 14))])
    lines = text.splitlines()
    assert lines[0] == "ai.onnx: 2 operators"
    assert lines[1] == "Operator   toy"
    assert lines[2].endswith("...")
    assert len(lines[2]) == len("Operator   ") + 48
    assert lines[3] == "Relu       from 14: float"
