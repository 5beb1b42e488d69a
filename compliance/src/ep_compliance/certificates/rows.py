"""From verdicts to the rows of a certificate: what all cases of an operator have shown.

A row grants types position by position, so rows are made of what the passing cases really had
there. Merging never adds a combination of type parameters that wasn't shown.

Where onnx can't infer the type of an output it may be any, as nobody knows it before the node runs;
it follows from the inputs and attributes all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from ep_compliance.cases.case import Case, Subject
from ep_compliance.cases.signatures import Formal, signature_of, signatures_of
from ep_compliance.cases.subjects import uninferred_outputs
from ep_compliance.certificates.merging import Box, Types, merged
from ep_compliance.running.jobs import Job
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_core.graph import Graph
from ep_core.loading.convert import value_type
from ep_core.loading.load import load_model
from ep_core.types import DataType, TensorType, ValueType

__all__ = ["Row", "granted_rows"]

_Operator = tuple[str, str, int]
_GOOD = (Outcome.PASS, Outcome.WAIVED)
_SILENT = (Outcome.UNSUPPORTED, Outcome.QUARANTINED)


@dataclass(frozen=True, slots=True)
class Row:
    """Nodes that are granted; see `ep_core.certificates.file.CertificateRow`.

    Attributes:
        dtypes: names of element types by type parameter, for tables.
    """

    domain: str
    op_type: str
    since: int
    until: int
    inputs: Types
    outputs: Types
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
            "inputs": [_listed(types) for types in self.inputs],
            "outputs": [_listed(types) for types in self.outputs],
            "predicate": self.predicate,
        }


def _listed(types: frozenset[str] | None) -> list[str] | None:
    return None if types is None else sorted(types)


_Seen = tuple[frozenset[str], ...]


@dataclass(slots=True)
class _Shown:
    """What the cases of one operator, version and choice of types have shown.

    Attributes:
        alone: one that passed at least had the operator alone, fed from outside.
        vendor: the distribution that some of the cases come from, if any do.
        example: the model of such a one, with as many outputs as any.
    """

    good: int = 0
    bad: int = 0
    waived: int = 0
    alone: bool = False
    vendor: str = ""
    example: onnx.ModelProto | None = None
    inputs: _Seen = ()
    outputs: _Seen = ()


def granted_rows(pairs: Iterable[tuple[Job, Verdict]]) -> list[Row]:
    """Return the rows that a run grants, in a fixed order.

    An operator of one schema version, with one choice of types, is granted if none of its cases
    went wrong and one at least passed. A waived case does no harm, and the row says so.

    A graph of several operators that goes wrong, though each by itself goes right, costs them all
    the types that they have in it: nobody can tell which of them is to blame.
    """
    pairs = list(pairs)
    collected = _collected(pairs)
    _blame(collected, _failing_graphs(pairs))
    unknown = _unknown_outputs(collected)
    by_operator: dict[_Operator, list[Box]] = {}
    for (operator, dtypes), shown in collected.items():
        if shown.good > shown.waived and not shown.bad:
            box = Box(
                tuple((name, frozenset([text])) for name, text in dtypes),
                _closed(shown.inputs, _formals(operator, "inputs")),
                _outputs(shown.outputs, operator, unknown[operator]),
                shown.waived,
                shown.alone,
                shown.vendor,
            )
            by_operator.setdefault(operator, []).append(box)
    joined = {operator: merged(boxes) for operator, boxes in by_operator.items()}
    return sorted(_rows(joined), key=_order)


_Key = tuple[_Operator, tuple[tuple[str, str], ...]]
"""An operator and a choice of types."""


def _collected(pairs: Iterable[tuple[Job, Verdict]]) -> dict[_Key, _Shown]:
    found: dict[_Key, _Shown] = {}
    for job, verdict in pairs:
        if not isinstance(job, Case) or job.subject is None or verdict.outcome in _SILENT:
            continue
        subject = job.subject
        dtypes = tuple(sorted((name, kind.text) for name, kind in subject.dtypes.items()))
        key = ((subject.domain, subject.op_type, subject.since_version), dtypes)
        shown = found.setdefault(key, _Shown())
        shown.vendor = shown.vendor or job.vendor
        if verdict.outcome in _GOOD:
            shown.good += 1
            shown.waived += verdict.outcome is Outcome.WAIVED
            if len(job.model.graph.node) == 1:
                shown.alone = True
                shown.example = _with_more_outputs(shown.example, job.model)
            _note_types(shown, job, subject)
        else:
            shown.bad += 1
    return found


def _failing_graphs(pairs: Iterable[tuple[Job, Verdict]]) -> Iterator[Graph]:
    """Graphs about no single operator that the provider got wrong."""
    for job, verdict in pairs:
        wrong = verdict.outcome not in (*_GOOD, *_SILENT, Outcome.NOT_RUN)
        if wrong and isinstance(job, Case) and job.subject is None:
            yield load_model(job.model).graph


def _blame(collected: Mapping[_Key, _Shown], graphs: Iterable[Graph]) -> None:
    """Count a failing graph against its operators, unless one of them fails by itself."""
    known = {operator for (operator, _), shown in collected.items() if shown.bad}
    for graph in graphs:
        types: dict[_Operator, set[str]] = {}
        for node in graph.nodes:
            seen = types.setdefault((node.domain, node.op_type, node.since_version), set())
            for name in (*node.inputs, *node.outputs):
                if name and isinstance(kind := graph.type_of(name), TensorType):
                    seen.add(kind.dtype.text)
        if known & types.keys():
            continue
        for (operator, dtypes), shown in collected.items():
            shown.bad += operator in types and {text for _, text in dtypes} <= types[operator]


def _with_more_outputs(
    known: onnx.ModelProto | None, other: onnx.ModelProto | None
) -> onnx.ModelProto | None:
    if known is None or other is None:
        return known or other
    more = len(other.graph.node[0].output) > len(known.graph.node[0].output)
    return other if more else known


def _unknown_outputs(collected: Mapping[_Key, _Shown]) -> Mapping[_Operator, frozenset[int]]:
    """By operator, positions of outputs whose types onnx doesn't infer."""
    examples: dict[_Operator, onnx.ModelProto | None] = {}
    for (operator, _), shown in collected.items():
        examples[operator] = _with_more_outputs(examples.get(operator), shown.example)
    return {
        operator: frozenset() if model is None else uninferred_outputs(model)
        for operator, model in examples.items()
    }


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


def _widened(types: _Seen, seen: Sequence[str]) -> _Seen:
    length = max(len(types), len(seen))
    padded = [*types, *[frozenset[str]()] * (length - len(types))]
    return tuple(
        known | ({seen[position]} - {""} if position < len(seen) else set())
        for position, known in enumerate(padded)
    )


def _formals(operator: _Operator, side: str) -> tuple[Formal, ...]:
    """The formal inputs or outputs of an operator; none if nobody knows it."""
    domain, op_type, version = operator
    signature = signature_of(domain, op_type, version)
    if signature is None:
        return ()
    return signature.inputs if side == "inputs" else signature.outputs


def _closed(types: _Seen, formals: Sequence[Formal]) -> _Seen:
    """Close the positions that no case had: the last entry would stand for them too."""
    if formals and formals[-1].variadic:
        # Further ones of the kind are like those seen.
        fixed = types[: len(formals) - 1]
        rest = frozenset[str]().union(*types[len(formals) - 1 :])
        return (*fixed, rest)
    # Of an unknown operator nobody knows how many positions follow.
    missing = max(len(formals) - len(types), 0 if formals else 1)
    return (*types, *[frozenset[str]()] * missing)


def _outputs(types: _Seen, operator: _Operator, unknown: frozenset[int]) -> Types:
    closed = _closed(types, _formals(operator, "outputs"))
    return tuple(
        None if types and place in unknown else types for place, types in enumerate(closed)
    )


def _rows(joined: Mapping[_Operator, list[Box]]) -> list[Row]:
    """One row per box and run of adjacent schema versions that grant the same."""
    rows: list[Row] = []
    for domain, op_type in sorted({(domain, op_type) for domain, op_type, _ in joined}):
        open_rows: dict[Box, tuple[int, int]] = {}
        for version in _versions(joined, domain, op_type):
            boxes = joined.get((domain, op_type, version), [])
            for box in [box for box in open_rows if box not in boxes]:
                rows.append(_row(domain, op_type, box, *open_rows.pop(box)))
            for box in boxes:
                since, _ = open_rows.get(box, (version, version))
                open_rows[box] = (since, version)
        rows += [_row(domain, op_type, box, *span) for box, span in open_rows.items()]
    return rows


def _versions(joined: Mapping[_Operator, Any], domain: str, op_type: str) -> list[int]:
    """Every schema version of an operator, granted or not, ascending."""
    granted = {version for d, o, version in joined if (d, o) == (domain, op_type)}
    known = {signature.since_version for signature in signatures_of(domain, op_type)}
    return sorted(granted | known)


def _row(domain: str, op_type: str, box: Box, since: int, until: int) -> Row:
    notes = [f"cases of {box.vendor}"] if box.vendor else []
    notes += [] if box.alone else ["worked out from shapes"]
    notes += [f"{box.waived} waived"] if box.waived else []
    predicate = ", ".join(notes)
    return Row(domain, op_type, since, until, box.inputs, box.outputs, predicate, dict(box.dtypes))


def _order(row: Row) -> tuple[Any, ...]:
    types = [sorted(side or ()) for side in (*row.inputs, *row.outputs)]
    return (row.domain, row.op_type, row.since, row.until, types)
