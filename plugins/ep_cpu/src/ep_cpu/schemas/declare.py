"""How an operator is declared in a few words, and turned into an `onnx.defs.OpSchema`.

What operators there are stands in the other files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx import defs, helper

from ep_core.types import DataType, Shape

__all__ = ["Declaration", "Known", "Rule", "like_standard", "same"]

_PARAMETERS: Any = defs.OpSchema.FormalParameterOption
_OPTIONS = {"?": _PARAMETERS.Optional, "*": _PARAMETERS.Variadic}
_KINDS: Any = defs.OpSchema.AttrType
_ATTRIBUTES = {
    "f": _KINDS.FLOAT,
    "i": _KINDS.INT,
    "s": _KINDS.STRING,
    "fs": _KINDS.FLOATS,
    "is": _KINDS.INTS,
    "ss": _KINDS.STRINGS,
}
# onnx divides by some of these without a look.
_POSITIVE = frozenset({"dilations", "group", "kernel_shape", "strides"})
_LARGEST = 2**31 - 1


class Known:
    """What is known of a node while the types of its outputs are sought."""

    def __init__(self, context: Any) -> None:
        self._context = context

    @property
    def outputs(self) -> int:
        """How many outputs the node has."""
        return int(self._context.get_num_outputs())

    def has(self, index: int) -> bool:
        """True if the input is given."""
        return index < self._context.get_num_inputs() and bool(self._context.has_input(index))

    def dtype(self, index: int) -> DataType | None:
        """Element type of an input, None where unknown."""
        tensor = self._tensor(index)
        return DataType(tensor.elem_type) if tensor is not None and tensor.elem_type else None

    def shape(self, index: int) -> Shape | None:
        """Shape of an input, None where unknown."""
        tensor = self._tensor(index)
        if tensor is None or not tensor.HasField("shape"):
            return None
        return tuple(
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
            for dim in tensor.shape.dim
        )

    def constant(self, index: int) -> list[int] | None:
        """The integers of an input that is a constant, else None."""
        if not self.has(index):
            return None
        data = self._context.get_input_data(index)
        if data is None:
            return None
        return [int(value) for value in onnx.numpy_helper.to_array(data).reshape(-1)]

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute's value, or `default` where the model doesn't set it."""
        attribute = self._context.get_attribute(name)
        return default if attribute is None else helper.get_attribute_value(attribute)

    def _tensor(self, index: int) -> Any:
        kind = self._context.get_input_type(index) if self.has(index) else None
        return kind.tensor_type if kind is not None and kind.HasField("tensor_type") else None


Rule = Callable[[Known], Sequence[Shape | None]]
"""Shapes of the outputs, as many as the rule knows, from what is known of a node."""


@dataclass(frozen=True)
class Declaration:
    """An operator in version 1 of its domain.

    Attributes:
        name: the operator.
        inputs, outputs: `name:type` words, with `?` behind an optional and `*` behind a variadic
            one. A type is a parameter of `types` or an element type such as `int64`.
        attributes: `name:kind` words; the kinds are f, i, s, and fs, is, ss for lists. `!` behind
            marks a required one.
        types: element types by parameter, as words.
        shapes: finds the shapes of the outputs.
        dtypes: element types by output, for those that no parameter tells.
        domain: `com.microsoft`, but for what is written into the standard domain.
    """

    name: str
    inputs: str
    outputs: str
    attributes: str = ""
    types: Mapping[str, str] = field(default_factory=dict)
    shapes: Rule | None = None
    dtypes: Callable[[Known], Mapping[int, DataType | None]] | None = None
    domain: str = "com.microsoft"

    def schema(self) -> defs.OpSchema:
        """Build the schema, with type inference."""
        schema = defs.OpSchema(
            self.name,
            self.domain,
            1,
            inputs=[self._parameter(word) for word in self.inputs.split()],
            outputs=[self._parameter(word) for word in self.outputs.split()],
            type_constraints=[
                (name, [f"tensor({kind})" for kind in kinds.split()], "")
                for name, kinds in self.types.items()
            ],
            attributes=[_attribute(word) for word in self.attributes.split()],
        )
        schema.set_type_and_shape_inference_function(self._infer)
        return schema

    def _parameter(self, word: str) -> Any:
        name, kind = word.rstrip("?*").split(":")
        kind = kind if kind in self.types else f"tensor({kind})"
        option = _OPTIONS.get(word[-1], _PARAMETERS.Single)
        return defs.OpSchema.FormalParameter(name, kind, param_option=option)

    def _infer(self, context: Any) -> None:
        """Set the types of the outputs; what can't be told stays open, and nothing raises.

        An exception would cost the types of the whole model. Contradictions show in the run.
        """
        try:
            self._set_types(context)
        except Exception:  # noqa: BLE001 - whatever a strange model makes a rule do
            return

    def _set_types(self, context: Any) -> None:
        known = Known(context)
        dtypes = self._output_dtypes(known)
        for index, dtype in enumerate(dtypes[: known.outputs]):
            if dtype is not None:
                context.set_output_type(index, helper.make_tensor_type_proto(dtype, None))
        shapes = () if self.shapes is None else self.shapes(known)
        for index, shape in enumerate(shapes[: known.outputs]):
            dtype = dtypes[index]
            if dtype is not None and shape is not None:
                context.set_output_type(index, helper.make_tensor_type_proto(dtype, shape))

    def _output_dtypes(self, known: Known) -> list[DataType | None]:
        by_kind: dict[str, DataType | None] = {}
        for index, word in enumerate(self.inputs.split()):
            kind = word.rstrip("?*").split(":")[1]
            by_kind[kind] = by_kind.get(kind) or known.dtype(index)
        found = []
        for word in self.outputs.split():
            kind = word.rstrip("?*").split(":")[1]
            found.append(by_kind.get(kind) if kind in self.types else DataType[kind.upper()])
        if self.dtypes is not None:
            for index, dtype in self.dtypes(known).items():
                found[index] = dtype
        return found


def _attribute(word: str) -> Any:
    name, kind = word.rstrip("!").split(":")
    return defs.OpSchema.Attribute(name, _ATTRIBUTES[kind], "", required=word.endswith("!"))


# ---------------------------------------------------------------- common rules


def same(known: Known) -> Sequence[Shape | None]:
    """The first output has the shape of the first input."""
    return (known.shape(0),)


def like_standard(
    op_type: str,
    shapes: Sequence[Shape | None],
    attributes: Mapping[str, Any] | None = None,
    version: int = 13,
) -> Shape | None:
    """The shape that an operator of ai.onnx gives for inputs of the given shapes, by onnx.

    Args:
        op_type: the operator; the dtype of its inputs doesn't matter here.
        shapes: of its inputs; None where one is unknown.
        attributes: its attributes; those that are None are left out.
        version: opset version.
    """
    given = {name: value for name, value in (attributes or {}).items() if value is not None}
    if not all(_sane(name, value) for name, value in given.items()):
        return None
    names = [f"x{index}" for index in range(len(shapes))]
    kinds = {
        name: helper.make_tensor_type_proto(DataType.FLOAT, shape)
        for name, shape in zip(names, shapes, strict=True)
    }
    node = helper.make_node(op_type, names, ["y"], **given)
    schema = defs.get_schema(op_type, version)
    found = onnx.shape_inference.infer_node_outputs(schema, node, kinds).get("y")
    if found is None or not found.tensor_type.HasField("shape"):
        return None
    return tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
        for dim in found.tensor_type.shape.dim
    )


def _sane(name: str, value: Any) -> bool:
    values = value if isinstance(value, (list, tuple)) else [value]
    numbers = [item for item in values if isinstance(item, int)]
    least = 1 if name in _POSITIVE else -_LARGEST
    return all(least <= number <= _LARGEST for number in numbers)
