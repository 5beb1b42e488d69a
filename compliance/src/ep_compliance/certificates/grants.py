"""What the rows of a certificate grant, in short words, by operator, version and type parameter.

Each type parameter of the operator's schema is taken by itself. Which combinations are granted
stands in the rows only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import onnx.defs

from ep_compliance.cases.recorded.operators import OPERATORS
from ep_compliance.cases.signatures import ONNX_DOMAINS, Signature, signature_of, signatures_of
from ep_core.certificates.file import CertificateRow
from ep_core.types import DataType

__all__ = [
    "Operator",
    "Types",
    "by_parameter",
    "granted",
    "operator_name",
    "operators_in",
    "schema_types",
    "schema_versions",
    "type_words",
    "types_text",
]

Operator = tuple[str, str]
"""Domain and name."""

Types = Mapping[str, frozenset[str]]
"""Types by type parameter, as `float` or `seq(float)`."""

_WIDTHS = (8, 16, 32, 64)
_GROUPS: dict[str, frozenset[DataType]] = {
    "all types": frozenset(DataType),
    "floats": frozenset({DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT, DataType.DOUBLE}),
    "integers": frozenset(kind for kind in DataType if kind.is_integer and kind.bits in _WIDTHS),
    "signed integers": frozenset(
        kind for kind in DataType if kind.name.startswith("INT") and kind.bits in _WIDTHS
    ),
    "unsigned integers": frozenset(
        kind for kind in DataType if kind.name.startswith("UINT") and kind.bits in _WIDTHS
    ),
    "float8": frozenset(kind for kind in DataType if "FLOAT8" in kind.name and kind.bits == 8),
    "float6": frozenset(kind for kind in DataType if "FLOAT6" in kind.name),
    "4-bit integers": frozenset({DataType.INT4, DataType.UINT4}),
    "2-bit integers": frozenset({DataType.INT2, DataType.UINT2}),
    "complex": frozenset({DataType.COMPLEX64, DataType.COMPLEX128}),
}
"""Names for sets of types, larger sets first."""


def _rank(kind: DataType) -> tuple[int, int, str]:
    """Floats, integers, the rest; narrow ones first."""
    floats = kind in _GROUPS["floats"]
    return (0 if floats else 1 if kind in _GROUPS["integers"] else 2, kind.bits, kind.text)


_ORDER = {kind.text: rank for rank, kind in enumerate(sorted(DataType, key=_rank))}


# ---------------------------------------------------------------- types


def type_words(types: Iterable[str], between: str = ", ") -> str:
    """A short list of ONNX type strings: groups by their name, `tensor()` left out."""
    by_wrapper: dict[str, set[str]] = {}
    for text in types:
        wrapper, element = _unwrapped(_plain(text))
        by_wrapper.setdefault(wrapper, set()).add(element)
    parts = [
        wrapper.format(between.join(_grouped(elements)))
        for wrapper, elements in sorted(by_wrapper.items(), key=lambda item: len(item[0]))
    ]
    return between.join(parts) or "none"


def _plain(text: str) -> str:
    """`map(string,tensor(float))` and `map(string, float)` as `map(string,float)`."""
    return re.sub(r"tensor\((\w+)\)", r"\1", text).replace(" ", "")


def _unwrapped(text: str) -> tuple[str, str]:
    """`seq(float)` as `seq({})` and `float`; a map stays whole."""
    found = re.fullmatch(r"((?:seq\(|optional\()*)(\w+)\)*", text)
    if found is None:
        return "{}", text
    opened = found[1]
    return f"{opened}{{}}{')' * opened.count('(')}", found[2]


def _grouped(elements: set[str]) -> list[str]:
    left = set(elements)
    names = []
    for name, group in _GROUPS.items():
        members = {kind.text for kind in group}
        if members <= left:
            names.append(name)
            left -= members
    return [*names, *sorted(left, key=lambda text: (_ORDER.get(text, len(_ORDER)), text))]


def operator_name(operator: Operator) -> str:
    """`Conv`, or `ai.onnx.ml.Scaler` outside the default domain."""
    domain, op_type = operator
    return f"{domain}.{op_type}" if domain else op_type


# ---------------------------------------------------------------- schemas


def operators_in(domain: str) -> list[str]:
    """Names of the operators of a domain that the kit knows."""
    names = {
        schema.name
        for schema in onnx.defs.get_all_schemas()
        if schema.domain == domain and domain in ONNX_DOMAINS and not schema.deprecated
    }
    return sorted(names | {name for owner, name in OPERATORS if owner == domain})


def schema_versions(operator: Operator) -> list[int]:
    """Versions of an operator's schemas, ascending; none where it has none."""
    return [signature.since_version for signature in signatures_of(*operator)]


def schema_types(operator: Operator, version: int) -> Types:
    """What the schema allows by type parameter; nothing where there is no schema.

    A parameter that no input or output has is left out.
    """
    signature = _signature(operator, version)
    if signature is None:
        return {}
    used = {formal.kind for formal in (*signature.inputs, *signature.outputs)}
    return {
        parameter: frozenset(map(_plain, kinds))
        for parameter, kinds in signature.types.items()
        if parameter in used
    }


def _signature(operator: Operator, version: int) -> Signature | None:
    """The signature that begins with a version."""
    found = signature_of(*operator, version)
    return found if found is not None and found.since_version == version else None


def granted(rows: Iterable[CertificateRow]) -> dict[Operator, dict[int, Types]]:
    """What rows grant, by operator and version, both in ascending order.

    An operator without a schema has the types of its first input, or else output, under `""`.
    """
    found: dict[Operator, dict[int, dict[str, frozenset[str]]]] = {}
    for row in rows:
        operator = (row.domain, row.op_type)
        for version in _versions_in(row):
            types = found.setdefault(operator, {}).setdefault(version, {})
            for parameter, kinds in _row_types(row, version).items():
                types[parameter] = types.get(parameter, frozenset()) | kinds
    return {key: dict(sorted(found[key].items())) for key in sorted(found)}


def _versions_in(row: CertificateRow) -> list[int]:
    known = schema_versions((row.domain, row.op_type))
    return [version for version in known if row.since <= version <= row.until] or [row.since]


def _row_types(row: CertificateRow, version: int) -> dict[str, frozenset[str]]:
    """Types by parameter: those that its positions name, or all if each of them takes any."""
    operator = (row.domain, row.op_type)
    signature = _signature(operator, version)
    if signature is None:
        first = (row.inputs or row.outputs or [frozenset()])[0]
        return {"": frozenset({"any"}) if first is None else frozenset(map(_plain, first))}
    allowed = schema_types(operator, version)
    named: dict[str, frozenset[str]] = {}
    open_to_any = set()
    for formals, side in ((signature.inputs, row.inputs), (signature.outputs, row.outputs)):
        for position, kinds in enumerate(side if formals else ()):
            parameter = formals[min(position, len(formals) - 1)].kind
            if parameter in allowed and kinds is None:
                open_to_any.add(parameter)
            elif parameter in allowed and kinds is not None:
                named[parameter] = named.get(parameter, frozenset()) | set(map(_plain, kinds))
    return {**{name: allowed[name] for name in open_to_any}, **named}


def types_text(operator: Operator, version: int, types: Types) -> str:
    """`T: floats; T1: int64`, or `floats` if the schema has one parameter; all types by name."""
    parameters = sorted(schema_types(operator, version) or types)
    texts = {name: type_words(types.get(name, ())) for name in parameters}
    return by_parameter(texts)


def by_parameter(texts: Mapping[str, str]) -> str:
    """Texts with the names of their parameters, unless there is one only."""
    if len(texts) == 1:
        return next(iter(texts.values()))
    return "; ".join(f"{name}: {text}" for name, text in texts.items())
