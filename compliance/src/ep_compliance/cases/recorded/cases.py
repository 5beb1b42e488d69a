"""From recorded questions to cases: one for each choice of types that the answer holds for.

Float inputs are recorded as float32 and hold in float16 and bfloat16 too, so one answer serves
every floating type of the operator; what only moves data serves every type. Ids are
`recorded/<operator>-1/<types>/<name>`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ep_compliance.cases.case import Case, Recorded, Subject
from ep_compliance.cases.recorded.files import Question, read_questions, source_of_questions
from ep_compliance.cases.signatures import Formal, Signature, signature_of
from ep_compliance.oracle.precision import Array, narrow
from ep_core.types import DataType

__all__ = ["cases_of_question", "recorded_cases"]

_OPSET = 21
_IR_VERSION = 10

_MOVING = frozenset({"ExpandDims", "GatherND", "Range", "Trilu", "Unique"})
"""Answers of small whole numbers hold in every type."""

_UNLIKE_NUMBERS = frozenset(
    {DataType.BOOL, DataType.STRING, DataType.COMPLEX64, DataType.COMPLEX128}
)

_BY_ATTRIBUTE = frozenset({("SimplifiedLayerNormalization", "U")})
"""Type parameters that an attribute decides on."""

_Choice = Mapping[str, DataType]


def recorded_cases() -> Iterator[Case]:
    """Yield the cases of every recorded question."""
    source = source_of_questions()
    seen: set[tuple[str, str]] = set()
    for question in read_questions():
        operator = (question.domain, question.op_type)
        yield from cases_of_question(question, source, core=operator not in seen)
        seen.add(operator)


def cases_of_question(question: Question, source: str, *, core: bool) -> Iterator[Case]:
    """Yield the cases of one question.

    Args:
        core: it is the operator's first one, and is asked with shapes declared by names too.
    """
    signature = signature_of(question.domain, question.op_type, 1)
    assert signature is not None, question.op_type
    for choice in _choices(question, signature):
        asked = _Asked(question, signature, choice, source)
        yield asked.case("")
        if question.constants:
            yield asked.case("constant", constants=question.constants)
    if core:
        yield _Asked(question, signature, _as_recorded(question, signature), source).case(
            "symbolic", symbolic=True
        )


# ---------------------------------------------------------------- types


def _formals(formals: Sequence[Formal], values: Sequence[Any]) -> list[tuple[Formal, Any]]:
    """Formal parameters and values of those that are present."""
    last = len(formals) - 1
    pairs = [(formals[min(place, last)], value) for place, value in enumerate(values)]
    return [(formal, value) for formal, value in pairs if value is not None]


def _as_recorded(question: Question, signature: Signature) -> _Choice:
    found: dict[str, DataType] = {}
    for formals, values in (
        (signature.inputs, question.inputs),
        (signature.outputs, question.outputs),
    ):
        for formal, value in _formals(formals, values):
            if formal.kind in signature.types:
                found.setdefault(formal.kind, DataType.from_numpy(value.dtype))
    return found


def _choices(question: Question, signature: Signature) -> Iterator[_Choice]:
    """Types by type parameter: as recorded, and every other choice that the answer holds for."""
    recorded = _as_recorded(question, signature)
    yield recorded
    varying = [
        name
        for name, kind in recorded.items()
        if kind is DataType.FLOAT and (signature.op_type, name) not in _BY_ATTRIBUTE
    ]
    if question.fixed or not varying:
        return
    options = {name: _options(question, signature, name) for name in varying}
    if question.mixed:
        every = itertools.product(*options.values())
    else:
        common = [kind for kind in DataType if all(kind in known for known in options.values())]
        every = ((kind,) * len(varying) for kind in common)  # type: ignore[assignment]
    for kinds in every:
        if set(kinds) != {DataType.FLOAT}:
            yield {**recorded, **dict(zip(varying, kinds, strict=True))}


def _options(question: Question, signature: Signature, name: str) -> list[DataType]:
    """The types that a parameter recorded as float may have with the same answer."""
    allowed = [DataType[text[len("tensor(") : -1].upper()] for text in signature.types[name]]
    moving = question.op_type in _MOVING
    options = [kind for kind in sorted(allowed) if kind.is_float or moving]
    if question.op_type == "Unique":
        # Values that differ must stay different.
        options = [kind for kind in options if kind not in _UNLIKE_NUMBERS]
    return options


def _converted(value: Array, kind: DataType) -> Array:
    if DataType.from_numpy(value.dtype) is kind:
        return value
    if kind is DataType.STRING:
        texts = np.empty(value.shape, object)
        texts.reshape(-1)[:] = [str(int(number)) for number in value.reshape(-1)]
        return texts
    if kind is DataType.BOOL:
        return np.asarray(value != 0)
    if kind.is_float:
        return narrow(value.astype(np.float64), kind.numpy)
    return value.astype(kind.numpy)


# ---------------------------------------------------------------- cases


class _Asked:
    """A question with a choice of types."""

    def __init__(
        self, question: Question, signature: Signature, choice: _Choice, source: str
    ) -> None:
        self._question = question
        self._signature = signature
        self._choice = choice
        self._source = source
        self._inputs = self._typed(signature.inputs, question.inputs)
        self._outputs = self._typed(signature.outputs, question.outputs)

    def case(self, variant: str, *, constants: Sequence[int] = (), symbolic: bool = False) -> Case:
        """The case, with some inputs as constants or with shapes declared by names."""
        question, signature = self._question, self._signature
        domain = f"{question.domain}." if question.domain else ""
        types = "-".join(kind.text for kind in self._choice.values()) or "float"
        name = f"{question.name} {variant}".strip().replace(" ", "-")
        feeds = {
            f"x{place}": value
            for place, value in enumerate(self._inputs)
            if value is not None and place not in constants
        }
        present = [place for place, value in enumerate(self._outputs) if value is not None]
        return Case(
            id=f"recorded/{domain}{question.op_type}-{signature.since_version}/{types}/{name}",
            model=self._model(constants, symbolic),
            inputs=feeds,
            expected=[self._outputs[place] for place in present],
            subject=Subject(
                question.domain, question.op_type, signature.since_version, dict(self._choice)
            ),
            recorded=Recorded(self._source, tuple(question.spreads[place] for place in present)),
        )

    def _typed(self, formals: Sequence[Formal], values: Sequence[Array | None]) -> list[Any]:
        typed: list[Any] = []
        for place, value in enumerate(values):
            formal = formals[min(place, len(formals) - 1)]
            kind = self._choice.get(formal.kind)
            # The inputs of a variadic parameter may differ in their types.
            keeps = value is None or kind is None or formal.variadic
            typed.append(value if keeps else _converted(value, kind))  # type: ignore[arg-type]
        return typed

    def _model(self, constants: Sequence[int], symbolic: bool) -> onnx.ModelProto:
        question = self._question
        names = ["" if value is None else f"x{place}" for place, value in enumerate(self._inputs)]
        results = [
            "" if value is None else f"y{place}" for place, value in enumerate(self._outputs)
        ]
        node = helper.make_node(question.op_type, names, results, domain=question.domain)
        for key, attribute in question.attributes.items():
            # Not as keyword arguments, among which an attribute may have the name of a parameter.
            node.attribute.append(helper.make_attribute(key, attribute))
        infos, initializers = [], []
        for place, value in enumerate(self._inputs):
            if place in constants and value is not None:
                initializers.append(numpy_helper.from_array(value, names[place]))
            elif value is not None:
                infos.append(_info(names[place], value, symbolic))
        outputs = [
            helper.make_tensor_value_info(name, int(DataType.from_numpy(value.dtype)), None)
            for name, value in zip(results, self._outputs, strict=True)
            if value is not None
        ]
        graph = helper.make_graph([node], question.op_type, infos, outputs, initializers)
        imports = [helper.make_opsetid("", _OPSET)]
        if question.domain:
            imports.append(helper.make_opsetid(question.domain, self._signature.since_version))
        return helper.make_model(
            graph, opset_imports=imports, ir_version=_IR_VERSION, producer_name="ep-compliance"
        )


def _info(name: str, value: Array, symbolic: bool) -> onnx.ValueInfoProto:
    dims: list[Any] = list(value.shape)
    if symbolic:
        dims = [f"{name}_{axis}" for axis in range(value.ndim)]
    return helper.make_tensor_value_info(name, int(DataType.from_numpy(value.dtype)), dims)
