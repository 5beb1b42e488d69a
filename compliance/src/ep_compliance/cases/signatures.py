"""What an operator takes and gives, position by position: onnx's schemas and others in one form.

Says nothing of values or attributes. Answers don't depend on what plugins have registered with
onnx, but for operators that only a plugin knows.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx

__all__ = [
    "ONNX_DOMAINS",
    "Formal",
    "Signature",
    "parsed",
    "signature_of",
    "signatures_of",
]

ONNX_DOMAINS = frozenset({"", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"})
"""The domains that onnx defines; ai.onnx is written as the empty text."""


@dataclass(frozen=True, slots=True)
class Formal:
    """One formal input or output.

    Attributes:
        kind: a type parameter such as `T`, or a type such as `tensor(int64)`.
    """

    kind: str
    optional: bool = False
    variadic: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Signature:
    """One version of an operator.

    Attributes:
        types: types by type parameter, e.g. `{"T": {"tensor(float)", "tensor(double)"}}`.
    """

    domain: str
    op_type: str
    since_version: int
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    types: Mapping[str, frozenset[str]]

    def allowed(self, formal: Formal) -> frozenset[str]:
        """The types that a formal input or output may have."""
        return self.types.get(formal.kind, frozenset({formal.kind}))


def parsed(op_type: str, inputs: str, outputs: str, types: Mapping[str, str]) -> Signature:
    """The signature of an operator in version 1 of com.microsoft, from words.

    Args:
        inputs, outputs: a type parameter or element type for each, with `?` behind an optional
            and `*` behind a variadic one.
        types: element types by type parameter, as words.
    """

    def formals(words: str) -> tuple[Formal, ...]:
        return tuple(
            Formal(_kind(word.rstrip("?*"), types), word.endswith("?"), word.endswith("*"))
            for word in words.split()
        )

    known = {
        name: frozenset(f"tensor({kind})" for kind in kinds.split())
        for name, kinds in types.items()
    }
    return Signature("com.microsoft", op_type, 1, formals(inputs), formals(outputs), known)


def _kind(word: str, types: Mapping[str, str]) -> str:
    return word if word in types else f"tensor({word})"


def signatures_of(domain: str, op_type: str) -> tuple[Signature, ...]:
    """Every version of an operator that isn't deprecated, oldest first; none if it is unknown."""
    recorded = _recorded().get((domain, op_type))
    if recorded is not None:
        return (recorded,)
    if domain in ONNX_DOMAINS:
        return _of_onnx().get((domain, op_type), ())
    # A plugin may register more of these at any time.
    return _by_operator(schema for schema in _history() if schema.domain == domain).get(
        (domain, op_type), ()
    )


def signature_of(domain: str, op_type: str, version: int) -> Signature | None:
    """The signature in force in a version of the domain, None where the operator is unknown."""
    found = None
    for signature in signatures_of(domain, op_type):
        if signature.since_version <= version:
            found = signature
    return found


def _recorded() -> Mapping[tuple[str, str], Signature]:
    # The table is made of signatures.
    from ep_compliance.cases.recorded.operators import OPERATORS

    return OPERATORS


@functools.cache
def _of_onnx() -> Mapping[tuple[str, str], tuple[Signature, ...]]:
    return _by_operator(schema for schema in _history() if schema.domain in ONNX_DOMAINS)


def _history() -> Sequence[onnx.defs.OpSchema]:
    return list(onnx.defs.get_all_schemas_with_history())


def _by_operator(
    schemas: Iterable[onnx.defs.OpSchema],
) -> Mapping[tuple[str, str], tuple[Signature, ...]]:
    found: dict[tuple[str, str], list[Signature]] = {}
    for schema in schemas:
        if not schema.deprecated:
            signature = _of_schema(schema)
            found.setdefault((signature.domain, signature.op_type), []).append(signature)
    return {key: tuple(sorted(v, key=lambda s: s.since_version)) for key, v in found.items()}


def _of_schema(schema: onnx.defs.OpSchema) -> Signature:
    return Signature(
        str(schema.domain),
        str(schema.name),
        int(schema.since_version),
        _formals(schema.inputs),
        _formals(schema.outputs),
        {
            constraint.type_param_str: frozenset(map(_written, constraint.allowed_type_strs))
            for constraint in schema.type_constraints
        },
    )


def _written(kind: str) -> str:
    """A type as the core writes it: schemas leave `tensor()` out in maps."""
    return re.sub(r"map\((\w+), (\w+)\)", r"map(\1,tensor(\2))", kind)


def _formals(formals: Sequence[onnx.defs.OpSchema.FormalParameter]) -> tuple[Formal, ...]:
    options = onnx.defs.OpSchema.FormalParameterOption
    return tuple(
        Formal(
            _written(str(formal.type_str)),
            formal.option == options.Optional,
            formal.option == options.Variadic,
        )
        for formal in formals
    )
