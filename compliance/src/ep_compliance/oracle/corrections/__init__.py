"""Direct definitions of operators for which `onnx.reference` 1.23 is known to be wrong.

Each is the operator's text put into numpy, as plainly as possible; speed doesn't count. They get
float64 where the evaluator widens. A correction returns None for nodes that it has nothing to say
about.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from ep_compliance.errors import OracleError
from ep_core.types import DataType

__all__ = ["Correction", "NodeCall", "correct", "correction_for", "corrections", "defaults_of"]


def defaults_of(op_type: str, version: int, domain: str) -> Iterator[onnx.AttributeProto]:
    """Default values of a schema's attributes, those that have one."""
    schema = onnx.defs.get_schema(op_type, version, domain)
    for attribute in schema.attributes.values():
        if attribute.default_value.type:
            yield attribute.default_value


@dataclass(frozen=True, eq=False, slots=True)
class NodeCall:
    """One evaluation of one node.

    Attributes:
        node: the node.
        version: since_version of its schema.
        inputs: values, None for what is left out.
        output_types: types of the outputs as far as they are known.
    """

    node: onnx.NodeProto
    version: int
    inputs: tuple[Any, ...]
    output_types: tuple[onnx.TypeProto | None, ...]

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute's value; else the schema's default, which is of float32; else `default`."""
        for attribute in (*self.node.attribute, *self._defaults()):
            if attribute.name == name:
                value = onnx.helper.get_attribute_value(attribute)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def _defaults(self) -> Iterator[onnx.AttributeProto]:
        domain = "" if self.node.domain == "ai.onnx" else self.node.domain
        return defaults_of(self.node.op_type, self.version, domain)

    def dtype(self, index: int = 0) -> np.dtype[Any]:
        """The declared type of an output that is a tensor."""
        kind = self.output_types[index]
        if kind is None or not kind.tensor_type.elem_type:
            raise OracleError(f"the type of output {index} of {self.node.op_type} isn't known")
        return DataType(kind.tensor_type.elem_type).numpy

    def input(self, index: int) -> Any:
        """An input, None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def wants(self, index: int) -> bool:
        """True if the output is asked for."""
        return index < len(self.node.output) and bool(self.node.output[index])


Correct = Callable[[NodeCall], Sequence[Any] | None]


@dataclass(frozen=True, slots=True)
class Correction:
    """One correction and what it corrects."""

    domain: str
    op_type: str
    since: int
    until: int
    reason: str
    function: Correct


_CORRECTIONS: list[Correction] = []
_MODULES = (
    "arithmetic",
    "casts",
    "control",
    "convolution",
    "elementwise",
    "legacy",
    "movement",
    "normalization",
    "pooling",
    "recurrent",
    "resizing",
    "sequences",
    "traditional",
    "training",
)


def correct(
    op_type: str, *, reason: str, domain: str = "", since: int = 1, until: int = 10**6
) -> Callable[[Correct], Correct]:
    """Register the decorated function.

    Args:
        since, until: schema versions, both included.
        reason: what `onnx.reference` gets wrong.
    """

    def add(function: Correct) -> Correct:
        _CORRECTIONS.append(Correction(domain, op_type, since, until, reason, function))
        return function

    return add


def corrections() -> Sequence[Correction]:
    """Every correction."""
    for name in _MODULES:
        importlib.import_module(f"{__name__}.{name}")
    return tuple(_CORRECTIONS)


def correction_for(domain: str, op_type: str, version: int) -> Iterator[Correct]:
    """The corrections of an operator at a schema version."""
    for entry in corrections():
        same = (entry.domain, entry.op_type) == (domain, op_type)
        if same and entry.since <= version <= entry.until:
            yield entry.function
