"""Choices of types for all type parameters of an operator: what is claimed, and what rows grant.

Combinations that contradict an operator's definition aren't among them; which those are stands
here, as no schema says it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ep_compliance.cases.coverage import claimed, claimed_types
from ep_compliance.cases.signatures import Formal, Signature, signature_of
from ep_compliance.cases.subjects import element_in
from ep_compliance.certificates.rows import Row
from ep_sdk.kernels import KernelRow

__all__ = ["Combination", "combinations_of", "missing_positions", "rows_by_operator"]


@dataclass(frozen=True, slots=True, order=True)
class Combination:
    """A choice of types for every type parameter of an operator.

    Attributes:
        types: types such as `tensor(float)` by type parameter, ordered by parameter.
    """

    domain: str
    op_type: str
    since_version: int
    types: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        types = " ".join(f"{name}={kind}" for name, kind in self.types)
        domain = f"{self.domain}." if self.domain else ""
        return f"{domain}{self.op_type}-{self.since_version} {types}"


def combinations_of(table: Iterable[KernelRow]) -> frozenset[Combination]:
    """Every combination that a kernel table claims."""
    found = set()
    for row, signature in claimed(table):
        formals: dict[str, Formal] = {}
        for formal in (*signature.inputs, *signature.outputs):
            if formal.kind in signature.types:
                formals.setdefault(formal.kind, formal)
        options = [claimed_types(row, signature, formal) for formal in formals.values()]
        consistent = _TIES.get((row.domain, row.op_type), _always)
        for types in itertools.product(*options):
            choice = dict(zip(formals, types, strict=True))
            if consistent(choice):
                ordered = tuple(sorted(choice.items()))
                version = signature.since_version
                found.add(Combination(row.domain, row.op_type, version, ordered))
    return frozenset(found)


def rows_by_operator(rows: Iterable[Row]) -> Mapping[tuple[str, str], Sequence[Row]]:
    """The rows that a run grants, by domain and name."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.domain, row.op_type), []).append(row)
    return found


def missing_positions(
    combination: Combination, rows: Mapping[tuple[str, str], Sequence[Row]]
) -> Sequence[str] | None:
    """Which optional inputs and outputs of a combination no row grants beside the required ones.

    Args:
        rows: from `rows_by_operator`.

    Returns:
        Names such as `input 3`; None if no row grants even what is required.
    """
    signature = signature_of(combination.domain, combination.op_type, combination.since_version)
    assert signature is not None
    by_row = [
        _refused(row, signature, dict(combination.types))
        for row in rows.get((combination.domain, combination.op_type), ())
        if row.since <= combination.since_version <= row.until
    ]
    granting = [set(refused) for refused in by_row if refused is not None]
    return sorted(set.intersection(*granting)) if granting else None


def _refused(row: Row, signature: Signature, types: Mapping[str, str]) -> list[str] | None:
    refused = []
    for side, formals, allowed in (
        ("input", signature.inputs, row.inputs),
        ("output", signature.outputs, row.outputs),
    ):
        for place, formal in enumerate(formals):
            kind = types.get(formal.kind, formal.kind)
            granted = allowed[min(place, len(allowed) - 1)] if allowed else frozenset[str]()
            if granted is None or kind in granted:
                continue
            # Of outputs the first one is there, whatever else is.
            if not (formal.optional or (side == "output" and place > 0)):
                return None
            refused.append(f"{side} {place}")
    return refused


# ---------------------------------------------------------------- what contradicts itself


_Choice = Mapping[str, str]


def _always(choice: _Choice) -> bool:
    return True


def _wrapped(inner: str, outer: str) -> Callable[[_Choice], bool]:
    """What goes into a container, or comes out of one, is what the container holds."""

    def consistent(choice: _Choice) -> bool:
        small, large = choice[inner], choice[outer]
        return large in (small, f"seq({small})", f"optional({small})")

    return consistent


def _equal(*names: str) -> Callable[[_Choice], bool]:
    """Parameters that differ in their limits only."""
    return lambda choice: len({choice[name] for name in names}) == 1


def _same_width(choice: _Choice) -> bool:
    source, target = element_in(choice["T1"]), element_in(choice["T2"])
    return source.bits == target.bits


def _all_floats_or_none(choice: _Choice) -> bool:
    """Nobody defines products of integers and floats."""
    kinds = [element_in(choice[name]) for name in ("T1", "T2", "T3")]
    return len({kind.is_float for kind in kinds}) == 1


def _of_map(choice: _Choice) -> bool:
    return element_in(choice["T1"]) is element_in(choice["T2"])


def _same_or(name: str, other: str, exception: str) -> Callable[[_Choice], bool]:
    return lambda choice: choice[name] in (choice[other], exception)


_TIES: Mapping[tuple[str, str], Callable[[_Choice], bool]] = {
    ("", "BitCast"): _same_width,
    ("", "ConcatFromSequence"): _wrapped("T", "S"),
    ("", "Optional"): _wrapped("V", "O"),
    ("", "OptionalGetElement"): _wrapped("V", "O"),
    ("", "QLinearMatMul"): _all_floats_or_none,
    ("", "SequenceAt"): _wrapped("T", "S"),
    ("", "SequenceConstruct"): _wrapped("T", "S"),
    ("", "SequenceInsert"): _wrapped("T", "S"),
    ("", "SplitToSequence"): _wrapped("T", "S"),
    ("ai.onnx.ml", "DictVectorizer"): _of_map,
    ("com.microsoft", "GroupQueryAttention"): _equal("T", "C"),
    ("com.microsoft", "MatMulNBits"): _same_or("T3", "T1", "tensor(uint8)"),
    ("com.microsoft", "MultiHeadAttention"): _equal("T", "QK"),
    ("com.microsoft", "QGemm"): _same_or("Y", "Z", "tensor(float)"),
    ("com.microsoft", "QLinearConcat"): _equal("T", "V"),
}
