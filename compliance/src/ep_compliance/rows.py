"""From verdicts to the rows of a certificate: what all cases of an operator have shown.

A row grants types position by position, so rows are made of what the passing cases really had
there. Merging never adds a combination of type parameters that wasn't shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx.defs

from ep_compliance.cases import Case, Subject
from ep_compliance.jobs import Job
from ep_compliance.outcomes import Outcome, Verdict
from ep_core.loading.convert import value_type
from ep_core.loading.load import load_model
from ep_core.types import DataType, TensorType, ValueType

__all__ = ["Row", "granted_rows"]

_Types = tuple[frozenset[str], ...]
_Operator = tuple[str, str, int]
_GOOD = (Outcome.PASS, Outcome.WAIVED)
_SILENT = (Outcome.UNSUPPORTED, Outcome.QUARANTINED)


@dataclass(frozen=True, slots=True)
class Row:
    """Nodes that are granted; see `ep_core.discovery.certificate_file.CertificateRow`.

    Attributes:
        dtypes: names of element types by type parameter, for tables.
    """

    domain: str
    op_type: str
    since: int
    until: int
    inputs: _Types
    outputs: _Types
    predicate: str
    dtypes: Mapping[str, frozenset[str]]

    @property
    def record(self) -> dict[str, Any]:
        """The row as a certificate has it."""
        return {
            "domain": self.domain,
            "op_type": self.op_type,
            "since": self.since,
            "until": self.until,
            "inputs": [sorted(types) for types in self.inputs],
            "outputs": [sorted(types) for types in self.outputs],
            "predicate": self.predicate,
        }


@dataclass(slots=True)
class _Shown:
    """What the cases of one operator, version and choice of types have shown."""

    good: int = 0
    bad: int = 0
    waived: int = 0
    inputs: tuple[frozenset[str], ...] = ()
    outputs: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Box:
    """Choices of types that are granted: every combination of them.

    Attributes:
        dtypes: names of element types by type parameter, ordered by parameter.
    """

    dtypes: tuple[tuple[str, frozenset[str]], ...]
    inputs: _Types
    outputs: _Types
    waived: int


def granted_rows(pairs: Iterable[tuple[Job, Verdict]]) -> list[Row]:
    """Return the rows that a run grants, in a fixed order.

    An operator of one schema version, with one choice of types, is granted if none of its cases
    went wrong and one at least passed. A waived case counts as passed, and the row says so.
    """
    by_operator: dict[_Operator, list[_Box]] = {}
    for (operator, dtypes), shown in _collected(pairs).items():
        if shown.good and not shown.bad:
            box = _Box(
                tuple((name, frozenset([text])) for name, text in dtypes),
                _padded(shown.inputs, operator, "inputs"),
                _padded(shown.outputs, operator, "outputs"),
                shown.waived,
            )
            by_operator.setdefault(operator, []).append(box)
    merged = {operator: _merged(boxes) for operator, boxes in by_operator.items()}
    return sorted(_rows(merged), key=_order)


def _collected(
    pairs: Iterable[tuple[Job, Verdict]],
) -> dict[tuple[_Operator, tuple[tuple[str, str], ...]], _Shown]:
    found: dict[tuple[_Operator, tuple[tuple[str, str], ...]], _Shown] = {}
    for job, verdict in pairs:
        if not isinstance(job, Case) or job.subject is None or verdict.outcome in _SILENT:
            continue
        subject = job.subject
        dtypes = tuple(sorted((name, kind.text) for name, kind in subject.dtypes.items()))
        key = ((subject.domain, subject.op_type, subject.since_version), dtypes)
        shown = found.setdefault(key, _Shown())
        if verdict.outcome in _GOOD:
            shown.good += 1
            shown.waived += verdict.outcome is Outcome.WAIVED
            _note_types(shown, job, subject)
        else:
            shown.bad += 1
    return found


def _note_types(shown: _Shown, case: Case, subject: Subject) -> None:
    """Add what the inputs and outputs of the case's operator were."""
    for inputs, outputs in _types_of(case.model, subject):
        shown.inputs = _widened(shown.inputs, inputs)
        shown.outputs = _widened(shown.outputs, outputs)


def _types_of(model: onnx.ModelProto, subject: Subject) -> Iterator[tuple[list[str], list[str]]]:
    """Type texts by position, `""` where a value is left out or unknown."""
    own = [n for n in model.graph.node if n.op_type == subject.op_type]
    known = {info.name: info.type for info in (*model.graph.input, *model.graph.output)}
    texts = {name: str(value_type(proto, name)) for name, proto in known.items()}
    texts |= {t.name: str(TensorType(DataType(t.data_type))) for t in model.graph.initializer}
    if len(own) == len(model.graph.node) == 1:
        names = [name for name in (*own[0].input, *own[0].output) if name]
        if all(name in texts for name in names):
            # Types that the model states need no inference, which takes most of the time here.
            yield (
                [texts.get(n, "") for n in own[0].input],
                [texts.get(n, "") for n in own[0].output],
            )
            return
    graph = load_model(model).graph
    for node in graph.nodes:
        if (node.domain, node.op_type) == (subject.domain, subject.op_type):
            yield (
                [_text(graph.type_of(name)) for name in node.inputs],
                [_text(graph.type_of(name)) for name in node.outputs],
            )


def _text(kind: ValueType | None) -> str:
    return "" if kind is None else str(kind)


def _widened(types: _Types, seen: Sequence[str]) -> _Types:
    length = max(len(types), len(seen))
    padded = [*types, *[frozenset[str]()] * (length - len(types))]
    return tuple(
        known | ({seen[position]} - {""} if position < len(seen) else set())
        for position, known in enumerate(padded)
    )


def _padded(types: _Types, operator: _Operator, side: str) -> _Types:
    """Close the positions that no case had: the last entry would stand for them too."""
    domain, op_type, version = operator
    if not onnx.defs.has(op_type, domain):
        return types
    formals = getattr(onnx.defs.get_schema(op_type, version, domain), side)
    if formals and formals[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic:
        # Further ones of the kind are like those seen.
        fixed = types[: len(formals) - 1]
        rest = frozenset[str]().union(*types[len(formals) - 1 :])
        return (*fixed, rest)
    return (*types, *[frozenset[str]()] * (len(formals) - len(types)))


# ---------------------------------------------------------------- merging


def _merged(boxes: list[_Box]) -> list[_Box]:
    """Join boxes that differ in one type parameter only, which adds no combination."""
    names = sorted({name for box in boxes for name, _ in box.dtypes})
    for name in names:
        groups: dict[Any, list[_Box]] = {}
        for box in boxes:
            others = tuple(item for item in box.dtypes if item[0] != name)
            has = any(item[0] == name for item in box.dtypes)
            shape = (len(box.inputs), len(box.outputs), bool(box.waived))
            groups.setdefault((others, has, shape), []).append(box)
        boxes = [_union(group, name) for group in groups.values()]
    return boxes


def _union(boxes: Sequence[_Box], name: str) -> _Box:
    first = boxes[0]
    joined = frozenset[str]().union(
        *(kinds for box in boxes for key, kinds in box.dtypes if key == name)
    )
    return _Box(
        tuple((key, joined if key == name else kinds) for key, kinds in first.dtypes),
        _joined([box.inputs for box in boxes]),
        _joined([box.outputs for box in boxes]),
        sum(box.waived for box in boxes),
    )


def _joined(sides: Sequence[_Types]) -> _Types:
    return tuple(frozenset[str]().union(*column) for column in zip(*sides, strict=True))


def _rows(merged: Mapping[_Operator, list[_Box]]) -> list[Row]:
    """One row per box and run of adjacent schema versions that grant the same."""
    rows: list[Row] = []
    for domain, op_type in sorted({(domain, op_type) for domain, op_type, _ in merged}):
        open_rows: dict[_Box, tuple[int, int]] = {}
        for version in _versions(merged, domain, op_type):
            boxes = merged.get((domain, op_type, version), [])
            for box in [box for box in open_rows if box not in boxes]:
                rows.append(_row(domain, op_type, box, *open_rows.pop(box)))
            for box in boxes:
                since, _ = open_rows.get(box, (version, version))
                open_rows[box] = (since, version)
        rows += [_row(domain, op_type, box, *span) for box, span in open_rows.items()]
    return rows


def _versions(merged: Mapping[_Operator, Any], domain: str, op_type: str) -> list[int]:
    """Every schema version of an operator, granted or not, ascending."""
    granted = {version for d, o, version in merged if (d, o) == (domain, op_type)}
    known = {
        schema.since_version
        for schema in _history()
        if (schema.domain, schema.name) == (domain, op_type)
    }
    return sorted(granted | known)


_HISTORY: list[Any] = []


def _history() -> list[Any]:
    if not _HISTORY:
        _HISTORY.extend(onnx.defs.get_all_schemas_with_history())
    return _HISTORY


def _row(domain: str, op_type: str, box: _Box, since: int, until: int) -> Row:
    predicate = f"{box.waived} waived" if box.waived else ""
    return Row(domain, op_type, since, until, box.inputs, box.outputs, predicate, dict(box.dtypes))


def _order(row: Row) -> tuple[Any, ...]:
    types = [sorted(side) for side in (*row.inputs, *row.outputs)]
    return (row.domain, row.op_type, row.since, row.until, types)
