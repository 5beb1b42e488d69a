"""Which of a provider's claims have cases, by operator, version and type of the first input.

Claims come from a kernel table and the operators' signatures. What all type parameters together
may be stands in `combinations`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ep_compliance.cases.case import Case, Subject
from ep_compliance.cases.signatures import Formal, Signature, signature_of, signatures_of
from ep_compliance.cases.subjects import element_in
from ep_core.types import DataType
from ep_sdk.kernels import KernelRow

__all__ = ["Claim", "Coverage", "claimed", "claimed_types", "claims_of", "coverage"]


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """One thing a provider says it can do.

    Attributes:
        dtype: element type of the first input, of sequences and optionals too; None for operators
            without inputs.
    """

    domain: str
    op_type: str
    since_version: int
    dtype: DataType | None


@dataclass(frozen=True, slots=True)
class Coverage:
    """Claims with and without cases."""

    covered: frozenset[Claim]
    missing: frozenset[Claim]

    @property
    def share(self) -> float:
        """Covered claims of all claims, 1 where nothing is claimed."""
        total = len(self.covered) + len(self.missing)
        return len(self.covered) / total if total else 1.0

    @property
    def pair_share(self) -> float:
        """The same for pairs of operator and first input type, versions taken together."""
        covered, missing = _pairs(self.covered), _pairs(self.missing)
        total = len(covered | missing)
        return len(covered) / total if total else 1.0


def _pairs(claims: Iterable[Claim]) -> frozenset[tuple[str, str, DataType | None]]:
    return frozenset((claim.domain, claim.op_type, claim.dtype) for claim in claims)


def claims_of(rows: Iterable[KernelRow]) -> frozenset[Claim]:
    """What a kernel table claims, as far as the operators are known."""
    found = set()
    for row, signature in claimed(rows):
        for dtype in _first_types(row, signature):
            found.add(Claim(row.domain, row.op_type, signature.since_version, dtype))
    return frozenset(found)


def _first_types(row: KernelRow, signature: Signature) -> list[DataType | None]:
    if not signature.inputs:
        return [None]
    return [element_in(kind) for kind in claimed_types(row, signature, signature.inputs[0])]


def coverage(claims: Iterable[Claim], cases: Iterable[Case]) -> Coverage:
    """Say which claims have a case."""
    asked = set()
    for case in cases:
        if case.subject is not None:
            asked.add(_claim_of(case.subject))
    wanted = frozenset(claims)
    return Coverage(wanted & asked, wanted - asked)


def _claim_of(subject: Subject) -> Claim | None:
    signature = signature_of(subject.domain, subject.op_type, subject.since_version)
    if signature is None:
        return None
    dtype = None
    if signature.inputs:
        first = signature.inputs[0].kind
        fixed = None if first in signature.types else element_in(first)
        dtype = subject.dtypes.get(first, fixed)
    return Claim(subject.domain, subject.op_type, subject.since_version, dtype)


def claimed(rows: Iterable[KernelRow]) -> Iterator[tuple[KernelRow, Signature]]:
    """Rows of a kernel table with every version of the operator that they take."""
    for row in rows:
        for signature in signatures_of(row.domain, row.op_type):
            if row.since <= signature.since_version <= row.until:
                yield row, signature


def claimed_types(row: KernelRow, signature: Signature, formal: Formal) -> list[str]:
    """The types of a formal input or output that a row of a kernel table takes."""
    kinds = {kind for kind in signature.allowed(formal) if "sparse_" not in kind}
    limits = [row.types[formal.kind]] if formal.kind in row.types else []
    for place, other in enumerate(signature.inputs):
        if other.kind == formal.kind and place in row.types:
            limits.append(row.types[place])
    return sorted(kind for kind in kinds if all(element_in(kind) in limit for limit in limits))
