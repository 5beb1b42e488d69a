"""64-bit integers that are worked out from shapes, as models with dynamic lengths work them out.

A provider may take int64 only where it can't be large, such as lengths of tensors. Fed from
outside, its operators would never be asked. Here they get what `Shape` gives, of an input whose
lengths are declared by names only. Each case is about the last operator of its graph. Ids are
`size/<operator>-<version>/<sample>`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from ep_compliance.cases.case import Case, Level
from ep_compliance.cases.chaining import Chain
from ep_compliance.cases.subjects import schemas_of, subject_of
from ep_core.types import DataType

__all__ = ["size_cases"]

_LENGTHS = (2, 3, 5)
_SIZE = "tensor(int64)"

_OLDEST_OPSET = 7
"""Operators broadcast otherwise before."""

_CAST_TO = (
    DataType.FLOAT,
    DataType.FLOAT16,
    DataType.DOUBLE,
    DataType.INT32,
    DataType.INT64,
    DataType.BOOL,
)

_AXES_AS_INPUT = {"ReduceMax": 18, "ReduceMin": 18, "ReduceProd": 18, "ReduceSum": 13}


class _Sizes(Chain):
    """A chain that begins with the shape of an input, in some version of the operators.

    Args:
        schema: of the operator that the case is about.
    """

    def __init__(self, name: str, schema: onnx.defs.OpSchema) -> None:
        self.op_type = str(schema.name)
        self.version = int(schema.since_version)
        super().__init__(
            name, DataType.FLOAT, opset=max(self.version, _OLDEST_OPSET), symbolic=True
        )
        self.x = self.input(*_LENGTHS)
        self.shape = self.node("Shape", self.x)

    def length(self, axis: int) -> str:
        """One length, of rank 0."""
        return self.node("Gather", self.shape, self.index(axis), axis=0)

    def vector(self, *axes: int) -> str:
        """Some of the lengths."""
        return self.node("Gather", self.shape, self.integers(*axes), axis=0)

    def index(self, value: int) -> str:
        """A constant of rank 0."""
        return self.stored(np.array(value, np.int64))

    def ask(self, *inputs: str, outputs: int = 1, **attributes: object) -> None:
        """Add the node that the case is about, which gives the outputs."""
        self.output(*self.nodes(self.op_type, outputs, *inputs, **attributes))


_Build = Callable[[_Sizes], None]
_SAMPLES: dict[str, dict[str, _Build]] = {}


def _asked(op_types: str, sample: str) -> Callable[[_Build], _Build]:
    """Register the decorated function as a sample of the operators in a text."""

    def add(build: _Build) -> _Build:
        for op_type in op_types.split():
            _SAMPLES.setdefault(op_type, {})[sample] = build
        return build

    return add


def size_cases() -> Iterator[Case]:
    """Yield the cases, of every version of an operator that takes int64."""
    for op_type, samples in _SAMPLES.items():
        for schema in filter(_takes_sizes, _versions(op_type)):
            for sample, build in samples.items():
                yield _case(f"size/{op_type}-{schema.since_version}/{sample}", schema, build)
    for schema in _versions("Cast"):
        for kind in _CAST_TO:
            name = f"size/Cast-{schema.since_version}/{kind.text}"
            yield _case(name, schema, _cast(kind))


def _versions(op_type: str) -> list[onnx.defs.OpSchema]:
    """Those in force in the oldest opset, and later ones."""
    schemas = schemas_of("", op_type)
    older = [schema.since_version for schema in schemas if schema.since_version <= _OLDEST_OPSET]
    return [schema for schema in schemas if schema.since_version >= max(older, default=0)]


def _cast(kind: DataType) -> _Build:
    return lambda sizes: sizes.ask(sizes.shape, to=int(kind))


def _takes_sizes(schema: onnx.defs.OpSchema) -> bool:
    """Whether the operator's last input or first output, which all its kinds have, may be int64."""
    formal = schema.outputs[0] if schema.name == "ConstantOfShape" else schema.inputs[-1]
    if schema.name in ("Slice", "Split", "Squeeze", "Unsqueeze", "Reshape", "Gather"):
        formal = schema.inputs[0]
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    return _SIZE in allowed.get(formal.type_str, [formal.type_str])


def _case(name: str, schema: onnx.defs.OpSchema, build: _Build) -> Case:
    sizes = _Sizes(name, schema)
    build(sizes)
    case = sizes.case(Level.FULL)
    typed = onnx.shape_inference.infer_shapes(case.model)
    return replace(case, subject=subject_of(typed, typed.graph.node[-1]))


# ---------------------------------------------------------------- of two


_ARITHMETIC = "Add Sub Mul Div Max Min"
_COMPARISONS = "Equal Greater GreaterOrEqual Less LessOrEqual"


@_asked(f"{_ARITHMETIC} Mod {_COMPARISONS}", "lengths")
def lengths(sizes: _Sizes) -> None:
    sizes.ask(sizes.length(2), sizes.length(1))


@_asked(f"{_ARITHMETIC} Mod {_COMPARISONS}", "constant")
def with_constant(sizes: _Sizes) -> None:
    sizes.ask(sizes.length(2), sizes.index(3))


@_asked(f"{_ARITHMETIC} Mod {_COMPARISONS}", "vectors")
def vectors(sizes: _Sizes) -> None:
    sizes.ask(sizes.shape, sizes.vector(2, 1, 0))


@_asked(f"Add Sub Mul Max Min Mod {_COMPARISONS}", "below-zero")
def below_zero(sizes: _Sizes) -> None:
    negative = sizes.node("Sub", sizes.integers(1, 3, 4), sizes.shape)
    sizes.ask(negative, sizes.integers(3, 2, 3))


@_asked("Sum", "lengths")
def many(sizes: _Sizes) -> None:
    sizes.ask(sizes.length(0), sizes.length(1), sizes.length(2))


# ---------------------------------------------------------------- of one


@_asked("Abs Neg Identity", "below-zero")
def of_one(sizes: _Sizes) -> None:
    sizes.ask(sizes.node("Sub", sizes.integers(1, 3, 4), sizes.shape))


@_asked(" ".join(_AXES_AS_INPUT), "all")
def reduced(sizes: _Sizes) -> None:
    sizes.ask(sizes.shape)


@_asked(" ".join(_AXES_AS_INPUT), "axis")
def reduced_to_scalar(sizes: _Sizes) -> None:
    if sizes.version >= _AXES_AS_INPUT[sizes.op_type]:
        sizes.ask(sizes.shape, sizes.integers(0), keepdims=0)
    else:
        sizes.ask(sizes.shape, axes=[0], keepdims=0)


@_asked("Transpose", "matrix")
def transposed(sizes: _Sizes) -> None:
    sizes.ask(_matrix(sizes), perm=[1, 0])


@_asked("Flatten", "matrix")
def flattened(sizes: _Sizes) -> None:
    sizes.ask(_matrix(sizes), axis=0)


def _matrix(sizes: _Sizes) -> str:
    """Lengths as rows and columns."""
    return sizes.node("Gather", sizes.shape, sizes.stored(np.array([[0, 1, 2], [2, 1, 0]])), axis=0)


# ---------------------------------------------------------------- moved and cut


@_asked("Gather", "one")
def gathered(sizes: _Sizes) -> None:
    sizes.ask(sizes.shape, sizes.index(-2 if sizes.version >= 11 else 1), axis=0)


@_asked("Gather", "several")
def gathered_several(sizes: _Sizes) -> None:
    sizes.ask(sizes.shape, sizes.integers(2, 0), axis=0)


@_asked("Slice", "first")
def first_ones(sizes: _Sizes) -> None:
    if sizes.version < 10:
        sizes.ask(sizes.shape, starts=[0], ends=[2], axes=[0])
    else:
        sizes.ask(sizes.shape, *(sizes.integers(n) for n in (0, 2, 0)))


@_asked("Slice", "last")
def last_ones(sizes: _Sizes) -> None:
    end = 2**63 - 1
    if sizes.version < 10:
        sizes.ask(sizes.shape, starts=[-1], ends=[end])
    else:
        sizes.ask(sizes.shape, *(sizes.integers(n) for n in (-1, end, 0, 1)))


@_asked("Concat", "lengths")
def joined(sizes: _Sizes) -> None:
    product = sizes.node("Mul", sizes.vector(1), sizes.vector(2))
    sizes.ask(sizes.vector(0), product, sizes.integers(-1), axis=0)


@_asked("Split", "lengths")
def parts(sizes: _Sizes) -> None:
    if sizes.version < 13:
        sizes.ask(sizes.shape, outputs=2, axis=0, split=[1, 2])
    else:
        sizes.ask(sizes.shape, sizes.integers(1, 2), outputs=2, axis=0)


@_asked("Unsqueeze", "length")
def unsqueezed(sizes: _Sizes) -> None:
    if sizes.version < 13:
        sizes.ask(sizes.length(1), axes=[0])
    else:
        sizes.ask(sizes.length(1), sizes.integers(0))


@_asked("Squeeze", "length")
def squeezed(sizes: _Sizes) -> None:
    if sizes.version < 13:
        sizes.ask(sizes.vector(1), axes=[0])
    else:
        sizes.ask(sizes.vector(1), sizes.integers(0))


@_asked("Reshape", "length")
def reshaped(sizes: _Sizes) -> None:
    sizes.ask(sizes.length(2), sizes.integers(-1))


@_asked("Expand", "lengths")
def expanded(sizes: _Sizes) -> None:
    sizes.ask(sizes.vector(1), sizes.vector(0, 2))


@_asked("Tile", "lengths")
def tiled(sizes: _Sizes) -> None:
    sizes.ask(sizes.shape, sizes.vector(1))


@_asked("Tile", "constant")
def tiled_twice(sizes: _Sizes) -> None:
    sizes.ask(sizes.shape, sizes.integers(2))


# ---------------------------------------------------------------- made and chosen


@_asked("Range", "length")
def counted(sizes: _Sizes) -> None:
    sizes.ask(sizes.index(0), sizes.length(2), sizes.index(1))


@_asked("Range", "backwards")
def counted_back(sizes: _Sizes) -> None:
    sizes.ask(sizes.length(2), sizes.index(-1), sizes.index(-2))


@_asked("ConstantOfShape", "ones")
def ones(sizes: _Sizes) -> None:
    value = helper.make_tensor("value", onnx.TensorProto.INT64, [1], [1])
    sizes.ask(sizes.vector(1, 0), value=value)


@_asked("Where", "given-lengths")
def chosen(sizes: _Sizes) -> None:
    # What exporters write for `expand`: -1 stands for the length that is there.
    wanted = sizes.node("Concat", sizes.integers(-1), sizes.vector(1), sizes.integers(-1), axis=0)
    is_open = sizes.node("Equal", wanted, sizes.integers(-1, -1, -1))
    sizes.ask(is_open, sizes.shape, wanted)


@_asked("Where", "constant")
def chosen_constant(sizes: _Sizes) -> None:
    sizes.ask(sizes.node("Equal", sizes.shape, sizes.integers(3)), sizes.index(1), sizes.shape)
