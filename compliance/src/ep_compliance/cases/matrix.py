"""Generated operator cases: operator x version x type of the first input x sample of its recipe.

Which samples are worth asking is the recipes' business; here they become cases: models, ids,
levels, subjects. Ids are `matrix/<operator>-<version>/<type>/<sample>`; values are seeded by
operator, version and type, so that a case is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx

from ep_compliance.cases.case import Case, Level, Subject
from ep_compliance.cases.models import one_node
from ep_compliance.cases.official import MUSTPASS_OPERATORS
from ep_compliance.cases.recipes import Ask, Sample, recipe_for, recipe_names
from ep_compliance.cases.recipes.numbers import Numbers
from ep_compliance.cases.subjects import element_in, schemas_of, subject_of
from ep_compliance.oracle.classes import DRAWING
from ep_core.types import DataType

__all__ = ["matrix_cases"]

_MUSTPASS_TYPES = (DataType.FLOAT, DataType.INT64, DataType.BOOL)


def matrix_cases(subjects: Collection[Subject] | None = None, *, begin: str = "") -> Iterator[Case]:
    """Yield the cases of every operator with a recipe.

    Args:
        begin: only operators whose cases may have ids that go on with this after `matrix/`.
        subjects: only these; their `dtypes` may name the first input's type alone, and none at all
            asks for every type. None asks for everything.
    """
    wanted = None if subjects is None else _Wanted(subjects)
    for domain, op_type in recipe_names():
        if not _may_begin(f"{domain}.{op_type}-".lstrip("."), begin):
            continue
        for schema in schemas_of(domain, op_type):
            if wanted is None or wanted.has(schema):
                for ask in _asks(schema):
                    if wanted is None or wanted.has(schema, ask.dtype):
                        yield from _cases(ask)


def _may_begin(name: str, begin: str) -> bool:
    return name.startswith(begin) or begin.startswith(name)


class _Wanted:
    """The subjects that were asked for, as sets of keys."""

    def __init__(self, subjects: Collection[Subject]) -> None:
        self._versions = {(s.domain, s.op_type, s.since_version) for s in subjects}
        self._typed = {
            (s.domain, s.op_type, s.since_version, kind)
            for s in subjects
            for kind in s.dtypes.values()
        }
        self._untyped = {(s.domain, s.op_type, s.since_version) for s in subjects if not s.dtypes}

    def has(self, schema: onnx.defs.OpSchema, dtype: DataType | None = None) -> bool:
        key = (schema.domain, schema.name, schema.since_version)
        if dtype is None:
            return key in self._versions
        return key in self._untyped or (*key, dtype) in self._typed


def _asks(schema: onnx.defs.OpSchema) -> Iterator[Ask]:
    """One ask for each type of the first input."""
    for kind in _kinds(schema):
        if "sparse_" not in kind:
            dtype = element_in(kind) if kind else DataType.FLOAT
            seed = f"{schema.domain}.{schema.name}-{schema.since_version}/{kind}"
            yield Ask(schema, kind, dtype, Numbers(seed))


def _kinds(schema: onnx.defs.OpSchema) -> list[str]:
    if not schema.inputs:
        return [""]
    first = schema.inputs[0].type_str
    for constraint in schema.type_constraints:
        if constraint.type_param_str == first:
            return sorted(constraint.allowed_type_strs)
    return [first]


def _cases(ask: Ask) -> Iterator[Case]:
    recipe = recipe_for(ask.schema.domain, ask.op_type)
    versions = schemas_of(str(ask.schema.domain), ask.op_type)
    newest = versions[-1].since_version == ask.version
    for sample in recipe(ask) if recipe is not None else ():
        if newest or sample.core:
            yield _case(ask, sample, newest)


def _case(ask: Ask, sample: Sample, newest: bool) -> Case:
    model, names = one_node(
        ask.schema,
        sample.inputs,
        sample.attributes,
        outputs=sample.outputs,
        constants=sample.constants,
        symbolic=sample.symbolic,
        types=sample.types,
    )
    feeds = {
        name: value
        for place, (name, value) in enumerate(zip(names, sample.inputs, strict=True))
        if name and place not in sample.constants
    }
    domain = f"{ask.schema.domain}." if ask.schema.domain else ""
    return Case(
        id=f"matrix/{domain}{ask.op_type}-{ask.version}/{_type_name(ask)}/{_plain(sample.name)}",
        model=model,
        inputs=feeds,
        subject=subject_of(model, model.graph.node[0]),
        level=_level(ask, sample, newest),
        draws=ask.op_type in DRAWING,
    )


def _type_name(ask: Ask) -> str:
    """`float`, `seq-float`, `optional-seq-float`, `map-int64-string`; `none` without inputs."""
    if not ask.kind:
        return "none"
    text = ask.kind.replace("tensor(", "").replace(")", "").replace(", ", "-")
    return text.replace("(", "-")


def _plain(name: str) -> str:
    return name.replace(", ", "-").replace(" ", "-")


def _level(ask: Ask, sample: Sample, newest: bool) -> Level:
    if sample.level is Level.SOAK:
        return Level.SOAK
    basic = ask.op_type in MUSTPASS_OPERATORS and not ask.schema.domain
    if basic and newest and sample.core and ask.dtype in _MUSTPASS_TYPES:
        return Level.MUSTPASS
    return Level.FULL
