"""How much of what the CPU provider claims has generated cases."""

from __future__ import annotations

from ep_compliance.coverage import claims_of, coverage
from ep_compliance.matrix import matrix_cases
from ep_cpu.kernels import load_table


def test_nearly_every_claim_has_a_case():
    # Schemas that a plugin registers (com.microsoft) come and go with the tests that ran before.
    claims = [c for c in claims_of(load_table()) if c.domain in ("", "ai.onnx.ml")]
    found = coverage(claims, matrix_cases())
    total = len(found.covered) + len(found.missing)
    print(f"{found.share:.1%} of {total} claims, {found.pair_share:.1%} of pairs")  # noqa: T201
    assert total > 5000
    assert found.share > 0.95
    assert found.pair_share > 0.95
