"""Evaluates a model node by node in float64, with `onnx.reference` and our corrections.

No provider is involved. Floats are widened once at the inputs and stay wide as long as operators
allow it; where an operator's meaning depends on its type (Cast, quantization, comparisons of
rounded values, control flow) they are rounded to the declared type first.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from ep_compliance.errors import OracleError
from ep_compliance.oracle.classes import EXACT_OPERATORS, SINGLE_PRECISION
from ep_compliance.oracle.corrections import NodeCall, correction_for
from ep_compliance.oracle.nodes import captured, widened_node, with_defaults
from ep_compliance.oracle.precision import (
    Array,
    float_format,
    integer_limits,
    is_float,
    narrow,
    widened,
)
from ep_compliance.texts import words
from ep_core.types import DataType

__all__ = ["Disturb", "Evaluator", "Values"]

Values = dict[str, Any]

Disturb = Callable[[Array, np.dtype[Any]], Array]
"""Changes a float64 value by roundings of its declared dtype."""

_NARROW_ONLY = words(
    "ArgMax ArgMin Bernoulli BitCast Cast CastLike DynamicQuantizeLinear Equal EyeLike Greater "
    "GreaterOrEqual If ImageDecoder IsInf IsNaN Less LessOrEqual Loop Multinomial "
    "NonMaxSuppression NonZero QLinearConv QLinearMatMul QuantizeLinear RandomNormal "
    "RandomNormalLike RandomUniform RandomUniformLike Range Scan SequenceMap StringNormalizer "
    "TfIdfVectorizer TopK Unique"
)
"""Operators that see the values as the model's types hold them."""

_WIDE_TRADITIONAL = words(
    "FeatureVectorizer LinearClassifier LinearRegressor Normalizer SVMClassifier SVMRegressor "
    "Scaler TreeEnsembleClassifier TreeEnsembleRegressor"
)
"""Operators of ai.onnx.ml that compute; whatever type they are given."""

_REFERENCE_ERRORS = (Exception,)


@dataclass
class Evaluator:
    """Evaluates one model.

    Attributes:
        model: a valid model; its opsets decide what operators mean.
        used: what answered, e.g. `onnx.reference` and the names of corrections; filled by `run`.
        single_precision: some implementation computed in float32, whatever it was given.
    """

    model: onnx.ModelProto
    used: set[str] = field(default_factory=set)
    single_precision: bool = False

    def __post_init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            inferred = onnx.shape_inference.infer_shapes(self.model, data_prop=True)
        graph = inferred.graph
        typed = [*graph.input, *graph.value_info, *graph.output]
        self._types = {
            tensor.name: onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            for tensor in self.model.graph.initializer
        }
        self._types |= {info.name: info.type for info in typed}
        self._versions = {
            ("" if o.domain == "ai.onnx" else o.domain): o.version for o in self.model.opset_import
        }
        self._initializers = {
            tensor.name: numpy_helper.to_array(tensor) for tensor in self.model.graph.initializer
        }

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs, in order."""
        return [info.name for info in self.model.graph.output]

    def run(
        self,
        inputs: Mapping[str, Any],
        *,
        wide: bool = True,
        disturb: Disturb | None = None,
        noise: Mapping[str, Array] | None = None,
    ) -> Values:
        """Return every value of the main graph by name, floats as float64.

        Args:
            inputs: as a session takes them.
            wide: evaluate in float64; False evaluates every node in its declared types.
            disturb: applied to float inputs, constants and intermediate results, not to outputs.
            noise: added to results of nodes, by name, before anything reads them.

        Raises:
            OracleError: some node can't be evaluated.
        """
        values: Values = {"": None}
        given = {**self._initializers, **inputs}
        for name, value in given.items():
            values[name] = self._disturbed(name, self._widened(name, value), disturb)
        final = set(self.output_names)
        for node in self.model.graph.node:
            for name, value in zip(node.output, self._node(node, values, wide), strict=False):
                if noise is not None and name in noise:
                    value = _with_noise(value, noise[name])
                if name not in final:
                    value = self._overflowed(name, self._disturbed(name, value, disturb))
                values[name] = value
        return values

    def rounded(self, values: Values) -> list[Any]:
        """The outputs, rounded once to their declared types."""
        return [self.narrowed(name, values[name]) for name in self.output_names]

    def alone(self, node: onnx.NodeProto) -> Evaluator:
        """An evaluator of one node of the main graph, whose inputs are inputs."""
        names = [dict.fromkeys(n for n in side if n) for side in (node.input, node.output)]
        inputs, outputs = ([_typed(n, self._types.get(n)) for n in side] for side in names)
        graph = onnx.helper.make_graph([node], "alone", inputs, outputs)
        opsets = self.model.opset_import
        return Evaluator(onnx.helper.make_model(graph, opset_imports=opsets))

    def declared(self, name: str) -> np.dtype[Any] | None:
        """The dtype of a tensor value, None where it is no tensor or unknown."""
        kind = self._types.get(name)
        if kind is None or not kind.HasField("tensor_type") or not kind.tensor_type.elem_type:
            return None
        return DataType(kind.tensor_type.elem_type).numpy

    def narrowed(self, name: str, value: Any) -> Any:
        """A value as the model's types hold it."""
        dtype = self.declared(name)
        if dtype is None or not isinstance(value, np.ndarray):
            return value
        if value.dtype == np.float64 and is_float(dtype):
            return narrow(value, dtype)
        return value

    def _widened(self, name: str, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if is_float(value.dtype) and self.declared(name) is None:
            self._remember(name, value.dtype)
        return widened(value)

    def _remember(self, name: str, dtype: np.dtype[Any]) -> None:
        """Note the type of a value that type inference didn't know."""
        kind = onnx.helper.make_tensor_type_proto(int(DataType.from_numpy(dtype)), None)
        self._types[name] = kind

    def _disturbed(self, name: str, value: Any, disturb: Disturb | None) -> Any:
        dtype = self.declared(name)
        if disturb is None or dtype is None or not isinstance(value, np.ndarray):
            return value
        return disturb(value, dtype) if is_float(dtype) else value

    def _overflowed(self, name: str, value: Any) -> Any:
        """An intermediate result whose declared type overflows is infinite for who reads it."""
        dtype = self.declared(name)
        if dtype is None or not is_float(dtype) or not isinstance(value, np.ndarray):
            return value
        with np.errstate(invalid="ignore"):
            beyond = np.abs(value) >= float_format(dtype).beyond
        return np.where(beyond, np.copysign(np.inf, value), value)

    def _node(self, node: onnx.NodeProto, values: Values, wide: bool) -> Sequence[Any]:
        inputs = [values[name] for name in node.input]
        if wide and self._can_widen(node):
            try:
                given = [_as_float(v) for v in inputs] if node.domain == _ML else inputs
                found = self._call(node, given, values, wide=True)
                return [_wide_value(value) for value in found]
            except OracleError:
                # Some implementations insist on their narrow types.
                pass
        rounded = [self.narrowed(n, v) for n, v in zip(node.input, inputs, strict=True)]
        found = [_as_value(v) for v in self._call(node, rounded, values, wide=False)]
        for name, value in zip(node.output, found, strict=False):
            if isinstance(value, np.ndarray) and name and self.declared(name) is None:
                self._remember(name, value.dtype)
        pairs = zip(node.output, found, strict=False)
        return [self._settled(name, value) for name, value in pairs]

    def _settled(self, name: str, value: Any) -> Any:
        """A result of a narrow evaluation, in the declared type if only the width differs."""
        dtype = self.declared(name)
        if isinstance(value, np.ndarray) and dtype is not None and value.dtype != dtype:
            if is_float(dtype) and (is_float(value.dtype) or value.dtype.kind in "iu"):
                value = narrow(value.astype(np.float64), dtype)
            elif value.dtype.kind in "iub" and dtype.kind in "iub":
                value = value.astype(dtype)
        return widened(value) if isinstance(value, np.ndarray) else value

    def _can_widen(self, node: onnx.NodeProto) -> bool:
        if node.op_type in _NARROW_ONLY:
            return False
        if node.domain not in ("", "ai.onnx") and node.op_type not in _WIDE_TRADITIONAL:
            return False
        kinds = [self._types.get(n) for n in (*node.input, *node.output) if n]
        if any(kind is None or not kind.HasField("tensor_type") for kind in kinds):
            return False
        return any(self._is_float(name) for name in node.output)

    def _is_float(self, name: str) -> bool:
        dtype = self.declared(name)
        return dtype is not None and is_float(dtype)

    def _call(
        self, node: onnx.NodeProto, inputs: Sequence[Any], values: Values, *, wide: bool
    ) -> Sequence[Any]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        call = NodeCall(
            node=node,
            version=self._version_of(node.op_type, domain),
            inputs=tuple(inputs),
            output_types=tuple(self._types.get(name) for name in node.output),
        )
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            outputs = self._corrected(domain, call)
            if outputs is None:
                self.used.add("onnx.reference")
                full = with_defaults(node, call.version, domain)
                asked = widened_node(full) if wide else full
                outputs = self._reference(asked, inputs, values)
                if wide and node.op_type not in EXACT_OPERATORS:
                    # A stash type of float allows everybody to compute in float32.
                    stashes = asked != full
                    known = node.op_type in SINGLE_PRECISION
                    self.single_precision |= stashes or known or any(map(_is_single, outputs))
            return outputs

    def _version_of(self, op_type: str, domain: str) -> int:
        try:
            schema = onnx.defs.get_schema(op_type, self._versions[domain], domain)
        except onnx.defs.SchemaError as error:
            name = f"{domain}.{op_type}"
            raise OracleError(f"nobody has said what {name} is", got=str(error)) from error
        return int(schema.since_version)

    def _corrected(self, domain: str, call: NodeCall) -> Sequence[Any] | None:
        for correction in correction_for(domain, call.node.op_type, call.version):
            try:
                outputs = correction(call)
            except _REFERENCE_ERRORS as error:
                text = f"{type(error).__name__}: {error}"
                raise OracleError(
                    f"the correction of {call.node.op_type} failed", got=text
                ) from error
            if outputs is not None:
                stash = call.attr("stash_type") == onnx.TensorProto.FLOAT
                self.single_precision |= stash
                self.used.add(f"correction of {call.node.op_type}")
                return outputs
        return None

    def _reference(
        self, node: onnx.NodeProto, inputs: Sequence[Any], values: Values
    ) -> Sequence[Any]:
        feeds = {n: v for n, v in zip(node.input, inputs, strict=True) if n and v is not None}
        for name in captured(node):
            if name in values and name not in feeds:
                feeds[name] = self.narrowed(name, values[name])
        infos = [_info(name, value) for name, value in feeds.items()]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "one", infos, outputs)
        one = onnx.helper.make_model(
            graph, opset_imports=self.model.opset_import, functions=self.model.functions
        )
        try:
            found = iter(ReferenceEvaluator(one).run(None, feeds))
        except _REFERENCE_ERRORS as error:
            text = f"{type(error).__name__}: {error}"
            raise OracleError(f"onnx.reference can't evaluate {node.op_type}", got=text) from error
        return [next(found) if name else None for name in node.output]


def _is_single(value: Any) -> bool:
    """True for values that float32 holds exactly, as results of float64 hardly ever are."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.size == 0:
        return False
    finite = value[np.isfinite(value)].astype(np.float64)
    fractional = finite[finite * 2.0**12 % 1 != 0]
    if fractional.size == 0:
        return False
    return bool(np.all(fractional.astype(np.float32) == fractional))


def _typed(name: str, kind: onnx.TypeProto | None) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name, type=kind)


def _with_noise(value: Any, noise: Array) -> Any:
    """A result with noise of its shape; whole numbers stay within their type."""
    if not isinstance(value, np.ndarray) or value.shape != noise.shape:
        return value
    if value.dtype.kind not in "iu":
        return value + noise
    smallest, largest = integer_limits(value.dtype)
    return np.clip(value.astype(np.int64) + noise, smallest, largest).astype(value.dtype)


def _info(name: str, value: Any) -> onnx.ValueInfoProto:
    """Type of a feed as far as `onnx.reference` needs it."""
    if isinstance(value, np.ndarray):
        dtype = int(DataType.from_numpy(value.dtype))
        return onnx.helper.make_tensor_value_info(name, dtype, list(value.shape))
    return onnx.ValueInfoProto(name=name)


_ML = "ai.onnx.ml"


def _as_float(value: Any) -> Any:
    """Integers as float64, for operators of ai.onnx.ml."""
    is_integer = isinstance(value, np.ndarray) and value.dtype.kind in "iu"
    return value.astype(np.float64) if is_integer else value


def _wide_value(value: Any) -> Any:
    value = _as_value(value)
    return widened(value) if isinstance(value, np.ndarray) else value


def _as_value(value: Any) -> Any:
    """What `onnx.reference` returns, as a host value; strings become object arrays."""
    if isinstance(value, np.ndarray):
        return value.astype(object) if value.dtype.kind in "UT" else value
    if isinstance(value, list | tuple):
        return [_as_value(item) for item in value]
    if value is None or isinstance(value, dict):
        return value
    return np.asarray(value)
