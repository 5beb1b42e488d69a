"""How much of what the CPU provider claims has cases of the kit's own."""

from __future__ import annotations

import pytest

from ep_compliance.cases.coverage import claims_of, coverage
from ep_compliance.cases.matrix import matrix_cases
from ep_compliance.cases.recorded.cases import recorded_cases
from ep_core.types import DataType
from ep_cpu.kernels import load_table

WITHOUT = {
    ("Col2Im", DataType.BOOL): "what the sum of two bools is isn't defined",
    ("ImageDecoder", DataType.UINT8): "the official cases have the files",
    ("QAttention", DataType.INT8): "ONNX Runtime's CPU provider takes no signed inputs",
    ("Unique", DataType.BOOL): "ONNX Runtime's CPU provider takes float32 only",
    ("Unique", DataType.STRING): "texts are sorted otherwise than the recorded numbers",
    ("Unique", DataType.COMPLEX64): "complex numbers have no order",
    ("Unique", DataType.COMPLEX128): "complex numbers have no order",
}
"""Claims without a case, by operator and type of the first input."""


@pytest.fixture(scope="module")
def found():
    return coverage(claims_of(load_table()), [*matrix_cases(), *recorded_cases()])


def test_nearly_every_claim_has_a_case(found):
    total = len(found.covered) + len(found.missing)
    print(f"{found.share:.2%} of {total} claims, {found.pair_share:.2%} of pairs")  # noqa: T201
    assert total > 5000
    assert found.share > 0.97
    assert found.pair_share > 0.97
    assert {claim.domain for claim in found.covered} >= {"", "ai.onnx.ml", "com.microsoft"}


def test_every_other_claim_is_known_and_has_a_reason(found):
    assert {(claim.op_type, claim.dtype) for claim in found.missing} == set(WITHOUT)
