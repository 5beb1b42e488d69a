"""What goes into the page: data that can't break out, sizes, and which line needs which copy."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import numpy as np
import pytest

from ep_core.types import DataType, SequenceType, TensorType
from ep_tools.explain_placing import place_model
from ep_tools.page import page_html
from ep_tools.page.document import page_document
from ep_tools.page.html import data_json
from ep_tools.page.texts import attribute_text, type_text, value_bytes
from ep_tools.requests import SessionRequest

CHAIN = """
    <ir_version: 9, opset_import: ["" : 20]>
    chain (float[2, n] x) => (float[2, n] y) <float[1] w = {2}> {
        a = Abs (x)  b = Mul (a, w)  c = Neg (b)  y = Mul (c, x)
    }
"""


@pytest.fixture
def placed(model, providers):
    return place_model(SessionRequest(model(CHAIN), ["skewed", "reference"], level=0))


def test_data_survives_and_ends_no_element():
    document = {"</script>": ["<!--", "&amp;", "\u2028", 'quote"', "\U0001f600"]}
    text = data_json(document)
    assert json.loads(text) == document
    assert text.isascii()
    assert not set("<>&") & set(text)


def test_only_our_script_and_style_may_run(placed):
    page = page_html(placed, "chain")
    policy = re.search(r'content="(default-src[^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'; ")
    for kind in ("script", "style"):
        (content,) = re.findall(f"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "http" not in page.replace("http-equiv", "")


def test_a_title_that_looks_like_a_mark_is_a_title(placed):
    page = page_html(placed, "@SCRIPT@ @DATA@")
    assert "<title>@SCRIPT@ @DATA@ - placement</title>" in page
    assert page_html(placed, "chain").count("<script") == page.count("<script") == 2


def test_boxes_links_and_partitions(placed):
    (scope,) = page_document(placed, "chain")["scopes"]
    assert [box["name"] for box in scope["boxes"]] == [
        "x",
        "Abs_0",
        "Mul_1",
        "Neg_2",
        "Mul_3",
        "y",
    ]
    values = [value[0] for value in scope["values"]]
    links = [(source, target, values[value]) for source, target, value, _, _ in scope["links"]]
    assert links == [
        (0, 1, "x"),
        (1, 2, "a"),
        (2, 3, "b"),
        (3, 4, "c"),
        (0, 4, "x"),
        (4, 5, "y"),
    ]
    part = scope["partitions"][1]
    assert (part["nodes"], part["constants"], part["constantBytes"]) == ([2], 1, 4)
    assert [kind for kind, _ in scope["steps"]] == ["partition"] * 4


def test_the_same_placement_gives_the_same_page(placed):
    assert page_html(placed, "chain") == page_html(placed, "chain")


def test_texts_of_types_and_sizes():
    assert type_text(TensorType(DataType.FLOAT, (1, "n", None))) == "float[1, n, ?]"
    assert type_text(TensorType(DataType.INT64)) == "int64[of unknown rank]"
    assert type_text(TensorType(DataType.BOOL, ())) == "bool[]"
    assert type_text(SequenceType(TensorType(DataType.FLOAT))) == "seq(tensor(float))"
    assert type_text(None) == "unknown"
    assert value_bytes(TensorType(DataType.FLOAT16, (3, 5))) == 30
    assert value_bytes(TensorType(DataType.FLOAT, (3, "n"))) is None
    assert value_bytes(TensorType(DataType.STRING, (3,))) is None


def test_attributes_are_cut_short():
    assert attribute_text(3) == "3"
    assert attribute_text((1, 2)) == "1, 2"
    assert attribute_text("NOTSET") == "NOTSET"
    assert attribute_text(np.zeros((2, 3), np.int8)) == "int8[2, 3]: 0, 0, 0, 0, 0, 0"
    assert attribute_text(tuple(range(1000))).endswith("11, ... 1000 in all")
    assert len(attribute_text("x" * 10_000)) < 200
    assert len(attribute_text(np.full(10_000, "y" * 99, object))) < 300
