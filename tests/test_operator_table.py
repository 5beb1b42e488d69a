"""The table of operators in the documents is what the kernel table says now."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import onnx
import pytest
from official_cases import node_cases

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "operators-cpu.md"


def writer():
    path = ROOT / "scripts" / "write_operator_table.py"
    spec = importlib.util.spec_from_file_location("write_operator_table", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_table_is_current():
    """If this fails: .venv/bin/python scripts/write_operator_table.py"""
    text = DOCUMENT.read_text(encoding="utf-8")
    if f"onnx {onnx.__version__} brings" not in text:
        pytest.skip(f"written with another onnx than {onnx.__version__}")
    assert writer().document(node_cases()) == text


def test_sets_of_types_have_short_names():
    script = writer()
    kind = script.DataType
    assert script.type_names(script.GROUPS["floats"]) == "floats"
    assert script.type_names(frozenset({kind.FLOAT, kind.BOOL})) == "bool, float"
    assert script.type_names(script.GROUPS["integers"] | {kind.INT4, kind.UINT4}) == (
        "integers, 4-bit integers"
    )
    assert script.element_type("seq(tensor(float16))") is kind.FLOAT16
    assert script.element_type("map(string, float)") is None
