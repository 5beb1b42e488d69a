"""Writes docs/operators-cpu.md: what the CPU provider computes, from its kernel table.

With `--check` it writes nothing and fails if the document is out of date. The counts of cases rest
on the lists that the tests hold to be exact, so that no case is run here.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "operators-cpu.md"
for _folder in ("tests", "plugins/ep_cpu/tests"):
    sys.path.insert(0, str(ROOT / _folder))

from ep_core.types import DataType  # noqa: E402
from ep_cpu.kernels import load_table  # noqa: E402
from ep_cpu.schemas import microsoft_schemas  # noqa: E402
from ep_sdk.kernels import KernelRow  # noqa: E402

DOMAINS = {
    "": "ai.onnx",
    "ai.onnx.ml": "ai.onnx.ml",
    "ai.onnx.preview.training": "ai.onnx.preview.training",
    "com.microsoft": "com.microsoft",
}

WIDTHS = (8, 16, 32, 64)
GROUPS: dict[str, frozenset[DataType]] = {
    "all types": frozenset(DataType),
    "all types but float6": frozenset(kind for kind in DataType if "FLOAT6" not in kind.name),
    "floats": frozenset({DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT, DataType.DOUBLE}),
    "integers": frozenset(kind for kind in DataType if kind.is_integer and kind.bits in WIDTHS),
    "signed integers": frozenset(
        kind for kind in DataType if kind.name.startswith("INT") and kind.bits in WIDTHS
    ),
    "unsigned integers": frozenset(
        kind for kind in DataType if kind.name.startswith("UINT") and kind.bits in WIDTHS
    ),
    "float8": frozenset(kind for kind in DataType if "FLOAT8" in kind.name and kind.bits == 8),
    "float6": frozenset(kind for kind in DataType if "FLOAT6" in kind.name),
    "4-bit integers": frozenset({DataType.INT4, DataType.UINT4}),
    "2-bit integers": frozenset({DataType.INT2, DataType.UINT2}),
    "complex": frozenset({DataType.COMPLEX64, DataType.COMPLEX128}),
}
"""Names for sets of types, larger sets first."""

HEADER = """\
# Operators of the CPU provider

Written by `scripts/write_operator_table.py` from the kernel table; a test fails when it is out of
date. The kernel table is also what claims and runs nodes, so nothing here is a promise apart from
the code.
"""

LEGEND = """\
Versions are those of the operator's schema, the first opset of each. Types are listed by type
parameter of the newest schema. *floats*: float16, bfloat16, float, double; *integers*: signed and
unsigned of 8 to 64 bits; *float8*: all five kinds. Cases are the operator cases of onnx in which
the operator occurs.
"""


def type_names(kinds: frozenset[DataType]) -> str:
    """A short list of types, groups by their name."""
    left = set(kinds)
    found = []
    for name, group in GROUPS.items():
        if group and group <= left:
            found.append(name)
            left -= group
    return ", ".join([*found, *sorted(kind.text for kind in left)])


def element_type(text: str) -> DataType | None:
    """The element type of `tensor(float)` and of sequences and optionals of it."""
    for wrapper in ("optional(", "seq("):
        text = text.removeprefix(wrapper)
    name = text.removeprefix("tensor(").split(")")[0].upper()
    return DataType[name] if name in DataType.__members__ else None


def parameter_types(schema: Any, rows: list[KernelRow]) -> Iterator[str]:
    """`T: floats, bool` for each type parameter of an input or output."""
    for constraint in schema.type_constraints:
        parameter = constraint.type_param_str
        claimed = frozenset().union(*(row.types.get(parameter, DataType) for row in rows))
        texts = constraint.allowed_type_strs
        kinds = frozenset(kind for text in texts if (kind := element_type(text)) is not None)
        forms = [
            name
            for prefix, name in (
                ("seq(", "sequences"),
                ("optional(", "optionals"),
                ("map(", "maps"),
            )
            if any(prefix in text for text in texts)
        ]
        names = type_names(kinds & claimed)
        if forms:
            plain = any(text.startswith("tensor(") for text in texts)
            kept = " and ".join((["tensors"] if plain else []) + forms)
            names = f"{kept} of {names}" if names else kept
        yield f"{parameter}: {names}"


def position_types(rows: list[KernelRow]) -> Iterator[str]:
    """Types by input position, for an operator without a schema."""
    limited = sorted({key for row in rows for key in row.types}, key=str)
    for key in limited:
        kinds = frozenset().union(*(row.types.get(key, DataType) for row in rows))
        yield f"input {key}: {type_names(kinds)}"


def operator_lines(
    domain: str,
    rows: Mapping[str, list[KernelRow]],
    schemas: Mapping[str, Mapping[int, Any]],
    cases: Mapping[tuple[str, str], int],
) -> Iterator[str]:
    """The lines of one domain's table."""
    yield "| Operator | Versions | Cases | Types |"
    yield "|---|---|---|---|"
    for name in sorted(rows):
        known = schemas.get(name, {})
        covered = [
            version
            for version in sorted(known)
            if any(row.since <= version <= row.until for row in rows[name])
        ]
        if covered:
            newest = covered[-1]
            fitting = [row for row in rows[name] if row.since <= newest <= row.until]
            types = "; ".join(parameter_types(known[newest], fitting))
        else:
            types = "; ".join(position_types(rows[name]))
        versions = ", ".join(map(str, covered)) or "1"
        count = cases.get((domain, name), 0) or ""
        yield f"| {name} | {versions} | {count} | {types} |"


def all_schemas() -> dict[str, dict[str, dict[int, Any]]]:
    """Schemas that aren't deprecated, by domain, operator and version."""
    found: dict[str, dict[str, dict[int, Any]]] = {}
    own = microsoft_schemas()
    registered = onnx.defs.get_all_schemas_with_history()
    for schema in [*own, *(item for item in registered if item.domain != "com.microsoft")]:
        if not schema.deprecated:
            versions = found.setdefault(schema.domain, {}).setdefault(schema.name, {})
            versions[schema.since_version] = schema
    return found


def case_counts(cases: Mapping[str, Any]) -> Counter[tuple[str, str]]:
    """In how many cases each operator occurs, bodies not looked into."""
    counts: Counter[tuple[str, str]] = Counter()
    for case in cases.values():
        nodes = case.model.graph.node
        counts.update({("" if n.domain == "ai.onnx" else n.domain, n.op_type) for n in nodes})
    return counts


def summary_lines(cases: Mapping[str, Any]) -> Iterator[str]:
    """How many of onnx's cases pass, and why the others don't."""
    needs = importlib.import_module("cpu_unsupported_cases").NEEDS
    official = importlib.import_module("official_cases")
    random, refused = official.RANDOM, official.NOT_COMPUTED
    models = official.model_names()
    yield "## Cases of the onnx package"
    yield ""
    yield f"onnx {onnx.__version__} brings {len(cases)} operator cases and {len(models)} models"
    yield "(`simple`, `pytorch-converted`, `pytorch-operator` and `light`)."
    yield ""
    yield f"- Through a session {len(cases) - len(random)} operator cases give the right numbers."
    yield f"  The other {len(random)} draw random numbers; they give the right types, and a test of"
    yield "  their distribution passes."
    yield f"- {len(models) - len(refused)} models give the right numbers. The others:"
    for name, reason in sorted(refused.items()):
        yield f"  - `{name}`: {reason}."
    alone = {name for names in needs.values() for name in names}
    yield f"- {len(cases) - len(alone)} operator cases run on the provider alone. What the others"
    yield "  need, which a session has:"
    yield ""
    yield "| Need | Cases |"
    yield "|---|---|"
    for reason, names in sorted(needs.items()):
        yield f"| {reason} | {len(names)} |"


def document(cases: Mapping[str, Any]) -> str:
    """The whole document."""
    table = load_table()
    schemas = all_schemas()
    counts = case_counts(cases)
    lines = [HEADER, *summary_lines(cases), ""]
    for domain, title in DOMAINS.items():
        rows: dict[str, list[KernelRow]] = {}
        for row in table:
            if row.domain == domain:
                rows.setdefault(row.op_type, []).append(row)
        known = schemas.get(domain, {})
        lines += [f"## {title}", ""]
        if domain == "":
            lines += [LEGEND]
        lines += [f"{len(rows)} operators.", ""]
        lines += [*operator_lines(domain, rows, known, counts), ""]
        missing = sorted(set(known) - set(rows))
        if missing:
            lines += [f"Without a kernel: {', '.join(missing)}.", ""]
    return "\n".join(lines)


def main() -> int:
    """Write the document, or compare it."""
    text = document(importlib.import_module("official_cases").node_cases())
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    same = TARGET.exists() and TARGET.read_text(encoding="utf-8") == text
    if not same:
        sys.stdout.write(f"{TARGET.relative_to(ROOT)}: out of date; run {Path(__file__).name}\n")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
