"""The tables of operators in the documents are what the certificates in the packages say now."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "support.md"


@pytest.fixture(scope="module")
def writer():
    path = ROOT / "scripts" / "write_support_tables.py"
    spec = importlib.util.spec_from_file_location("write_support_tables", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_current(writer):
    """If this fails: `make certify`, or only .venv/bin/python scripts/write_support_tables.py"""
    text = DOCUMENT.read_text(encoding="utf-8")
    if f"in onnx {onnx.__version__}," not in text:
        pytest.skip(f"written with another onnx than {onnx.__version__}")
    assert writer.document(writer.certificates()) == text


def test_an_operator_less_shows(writer):
    found = writer.certificates()
    assert found, "no package has a certificate"
    whole = writer.document(found)
    first = found[0]
    operator = first.rows[0].op_type
    fewer = replace(first, rows=tuple(row for row in first.rows if row.op_type != operator))
    assert writer.document([fewer, *found[1:]]) != whole
