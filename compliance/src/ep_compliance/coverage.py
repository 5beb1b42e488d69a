"""Which of a provider's claims have cases: pairs of operator and type of its first input."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ep_compliance.cases import Case, Subject
from ep_compliance.subjects import first_types, schemas_of
from ep_core.types import DataType
from ep_sdk.kernels import KernelRow

__all__ = ["Claim", "Coverage", "claims_of", "coverage"]


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
    """What a kernel table claims, as far as onnx knows the operators' schemas."""
    found = set()
    for row in rows:
        for schema in schemas_of(row.domain, row.op_type):
            version = int(schema.since_version)
            if not row.since <= version <= row.until:
                continue
            allowed = row.types.get(0)
            if schema.inputs and allowed is None:
                allowed = row.types.get(str(schema.inputs[0].type_str))
            for dtype in first_types(schema):
                if allowed is None or dtype is None or dtype in allowed:
                    found.add(Claim(row.domain, row.op_type, version, dtype))
    return frozenset(found)


def coverage(claims: Iterable[Claim], cases: Iterable[Case]) -> Coverage:
    """Say which claims have a case."""
    asked = set()
    for case in cases:
        if case.subject is not None:
            asked.add(_claim_of(case.subject))
    wanted = frozenset(claims)
    return Coverage(wanted & asked, wanted - asked)


def _claim_of(subject: Subject) -> Claim:
    version = subject.since_version
    schemas = schemas_of(subject.domain, subject.op_type)
    schema = next(s for s in schemas if s.since_version == version)
    first = str(schema.inputs[0].type_str) if schema.inputs else ""
    return Claim(subject.domain, subject.op_type, version, subject.dtypes.get(first))
