"""Recipes: which inputs and attributes are worth asking an operator, family by family.

A recipe gets one schema and one type of first input and yields samples. It knows what is legal for
its operator; models, ids, levels and right answers are made elsewhere.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from ep_compliance.cases.case import Level
from ep_compliance.cases.recipes.numbers import Numbers
from ep_core.types import DataType

__all__ = ["Ask", "Recipe", "Sample", "recipe", "recipe_for", "recipe_names"]

_MODULES = (
    "activations",
    "attention",
    "casts",
    "constants",
    "convolutions",
    "elementwise",
    "generators",
    "indexing",
    "large",
    "losses",
    "movement",
    "normalizations",
    "pairings",
    "pools",
    "products",
    "recurrent",
    "reductions",
    "resizing",
    "sequences",
    "signals",
    "texts",
    "traditional",
    "training",
    "trees",
    "values",
)


@dataclass(frozen=True, eq=False)
class Sample:
    """Inputs and attributes of one case.

    Attributes:
        name: of the shape class or variant; unique within operator, version and type.
        inputs: arrays, lists for sequences, None for what is left out.
        attributes: of the node.
        outputs: how many are asked for.
        constants: positions of inputs that are initializers.
        core: asked of older versions of the operator too.
        symbolic: shapes are declared by names only.
        types: declared types of inputs whose values don't tell (empty sequences, optionals).
        level: the lowest level that runs it.
    """

    name: str
    inputs: Sequence[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    constants: Sequence[int] = ()
    core: bool = False
    symbolic: bool = False
    types: Mapping[int, onnx.TypeProto] = field(default_factory=dict)
    level: Level = Level.FULL


@dataclass(frozen=True, eq=False)
class Ask:
    """What a recipe is asked for: one operator, one version, one type of first input.

    Attributes:
        schema: of the operator, in the version in question.
        kind: type string of the first input, e.g. `tensor(float)`; empty if there is no input.
        dtype: the element type in it; FLOAT if there is no input.
        numbers: seeded values.
    """

    schema: onnx.defs.OpSchema
    kind: str
    dtype: DataType
    numbers: Numbers

    @property
    def op_type(self) -> str:
        """The operator's name."""
        return str(self.schema.name)

    @property
    def version(self) -> int:
        """since_version of the schema."""
        return int(self.schema.since_version)

    @property
    def is_float(self) -> bool:
        """True for floating types of every width."""
        return self.dtype.is_float

    def has(self, attribute: str) -> bool:
        """True if the schema knows the attribute."""
        return attribute in self.schema.attributes

    def takes(self, index: int) -> bool:
        """True if the schema has an input at the position."""
        return index < len(self.schema.inputs)

    def types(self, index: int) -> tuple[DataType, ...]:
        """Element types that the input at a position may have, tensors only."""
        formal = self.schema.inputs[min(index, len(self.schema.inputs) - 1)]
        return tensor_types(self.schema, formal.type_str)

    def output_types(self, index: int = 0) -> tuple[DataType, ...]:
        """Element types that an output may have, tensors only."""
        return tensor_types(self.schema, self.schema.outputs[index].type_str)

    def type_of(self, index: int, *preferred: DataType) -> DataType:
        """The type to use for an input: the first one's where tied, else a preferred one."""
        formal = self.schema.inputs[min(index, len(self.schema.inputs) - 1)]
        if formal.type_str == self.schema.inputs[0].type_str:
            return self.dtype
        allowed = self.types(index)
        for kind in preferred:
            if kind in allowed:
                return kind
        return self.dtype if self.dtype in allowed else allowed[0]

    def random(
        self,
        *shape: int,
        dtype: DataType | None = None,
        low: float | None = None,
        high: float | None = None,
    ) -> np.ndarray[Any, Any]:
        """Random values of the first input's type, in `[low, high]` where that is given."""
        return self.numbers.random(shape, dtype or self.dtype, low, high)

    def ints(self, *values: int, dtype: DataType = DataType.INT64) -> np.ndarray[Any, Any]:
        """A vector of integers."""
        return np.array(values, dtype.numpy)


def tensor_types(schema: onnx.defs.OpSchema, type_str: str) -> tuple[DataType, ...]:
    """Element types of the tensors that a type string of a schema allows."""
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    found = []
    for text in allowed.get(type_str, [type_str]):
        if text.startswith("tensor("):
            found.append(DataType[text[len("tensor(") : -1].upper()])
    return tuple(found)


Recipe = Callable[[Ask], Iterator[Sample]]

_RECIPES: dict[tuple[str, str], list[Recipe]] = {}


def recipe(names: str, *, domain: str = "") -> Callable[[Recipe], Recipe]:
    """Register the decorated function, beside others, for the operators named in a text."""

    def add(function: Recipe) -> Recipe:
        for name in names.split():
            _RECIPES.setdefault((domain, name), []).append(function)
        return function

    return add


@functools.cache
def _load() -> None:
    for name in _MODULES:
        importlib.import_module(f"{__name__}.{name}")


def recipe_for(domain: str, op_type: str) -> Recipe | None:
    """All recipes of an operator in one, None if there is none."""
    _load()
    found = _RECIPES.get((domain, op_type))
    if found is None:
        return None
    return lambda ask: itertools.chain.from_iterable(each(ask) for each in found)


def recipe_names() -> tuple[tuple[str, str], ...]:
    """Domain and name of every operator with a recipe."""
    _load()
    return tuple(_RECIPES)
