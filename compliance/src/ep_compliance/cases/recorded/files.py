"""The file of recorded questions: its shape, reading and writing it.

Text, one JSON object per line: first who answered, then the questions in a fixed order. Arrays are
`{"type": "float", "shape": [2, 3], "data": "<base64 of little-endian bytes>"}`, texts a list.
"""

from __future__ import annotations

import base64
import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import numpy as np

from ep_compliance.oracle.precision import Array
from ep_core.types import DataType

__all__ = ["Question", "read_questions", "source_of_questions", "written"]

_FORMAT = 1
_FILE = "microsoft.jsonl"


@dataclass(frozen=True, eq=False, slots=True)
class Question:
    """One operator with inputs and the answer.

    Attributes:
        domain, op_type: the operator.
        name: of what is special about it; unique within the operator.
        inputs: None for those that are left out.
        outputs: None for those that aren't asked for.
        spreads: by output, element by element, how far it moves for a relative change of the float
            inputs, in units of that change, rounded up to a power of two; None for other types.
        constants: inputs that may be constants in a second case.
        mixed: type parameters are combined, instead of being equal.
        fixed: the answer holds for the types of the inputs only.
    """

    domain: str
    op_type: str
    name: str
    inputs: Sequence[Array | None]
    outputs: Sequence[Array | None]
    spreads: Sequence[Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: tuple[int, ...] = ()
    mixed: bool = False
    fixed: bool = False


@functools.cache
def _lines() -> tuple[str, ...]:
    text = files("ep_compliance.cases.recorded").joinpath(_FILE).read_text(encoding="utf-8")
    return tuple(text.splitlines())


def source_of_questions() -> str:
    """Who answered, with version."""
    return str(json.loads(_lines()[0])["source"])


def read_questions() -> tuple[Question, ...]:
    """The questions in the order of the file."""
    return tuple(_question(json.loads(line)) for line in _lines()[1:])


def written(source: str, questions: Iterable[Question]) -> str:
    """The text of a file."""
    lines = [json.dumps({"format": _FORMAT, "source": source})]
    lines += [json.dumps(_record(question), ensure_ascii=False) for question in questions]
    return "\n".join(lines) + "\n"


def _record(question: Question) -> dict[str, Any]:
    record: dict[str, Any] = {
        "domain": question.domain,
        "op": question.op_type,
        "name": question.name,
        "attributes": dict(sorted(question.attributes.items())),
        "inputs": [_array_record(value) for value in question.inputs],
        "outputs": [_array_record(value) for value in question.outputs],
        "spreads": [_array_record(value) for value in question.spreads],
    }
    if question.constants:
        record["constants"] = list(question.constants)
    for flag in ("mixed", "fixed"):
        if getattr(question, flag):
            record[flag] = True
    return record


def _question(record: Mapping[str, Any]) -> Question:
    return Question(
        domain=record["domain"],
        op_type=record["op"],
        name=record["name"],
        inputs=[_array(value) for value in record["inputs"]],
        outputs=[_array(value) for value in record["outputs"]],
        spreads=[_array(value) for value in record["spreads"]],
        attributes=record["attributes"],
        constants=tuple(record.get("constants", ())),
        mixed=record.get("mixed", False),
        fixed=record.get("fixed", False),
    )


def _array_record(value: Array | None) -> dict[str, Any] | None:
    if value is None:
        return None
    kind = DataType.from_numpy(value.dtype)
    if kind is DataType.STRING:
        data: Any = value.reshape(-1).tolist()
    else:
        raw = np.ascontiguousarray(value).tobytes()
        data = base64.b64encode(raw).decode("ascii")
    return {"type": kind.text, "shape": list(value.shape), "data": data}


def _array(record: Mapping[str, Any] | None) -> Array | None:
    if record is None:
        return None
    kind, shape = DataType[record["type"].upper()], tuple(record["shape"])
    if kind is DataType.STRING:
        texts = np.empty(math.prod(shape), object)
        texts[:] = record["data"]
        return texts.reshape(shape)
    return np.frombuffer(base64.b64decode(record["data"]), kind.numpy).reshape(shape)
