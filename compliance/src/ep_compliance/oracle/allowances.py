"""Allowances of one case: classes of operators applied to its values.

Measures what a table can't know: the scale of sums, the condition of compound operators, the ties
of a quantization. Judges nothing.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from ep_compliance.errors import OracleError
from ep_compliance.oracle import classes
from ep_compliance.oracle.evaluate import Disturb, Evaluator, Values
from ep_compliance.oracle.precision import Array, float_format, is_float, narrow, widened
from ep_compliance.oracle.tolerance import EXACT, Allowance

__all__ = ["allowances_of", "of_node", "scales_beside", "with_floor"]

_SINGLE = np.dtype(np.float32)

_DRAWS = 4
"""Disturbed evaluations. Their largest spread, times `CONDITIONED_FACTOR`, counts."""


def allowances_of(
    evaluator: Evaluator, inputs: Mapping[str, Any], exact: Values, case_id: str
) -> tuple[Allowance, ...]:
    """Return one allowance for each output of the model.

    Args:
        evaluator: of the case's model.
        inputs: of the case.
        exact: what `evaluator.run(inputs)` returned.
        case_id: seeds the disturbances.
    """
    found = _by_class(evaluator, inputs, exact, case_id)
    if not evaluator.single_precision:
        return found
    return tuple(
        _with_single_precision(allowance, exact[name])
        if evaluator.declared(name) == np.float64
        else allowance
        for name, allowance in zip(evaluator.output_names, found, strict=True)
    )


def _with_single_precision(allowance: Allowance, exact: Any) -> Allowance:
    """Room for an oracle that knows the answer to float32 only: a few eps of the largest output."""
    if not isinstance(exact, np.ndarray) or not is_float(exact.dtype):
        return allowance
    largest = float(np.max(np.abs(exact[np.isfinite(exact)]), initial=0.0))
    eps = float_format(np.dtype(np.float32)).eps
    return dataclasses.replace(
        allowance,
        rule=f"{allowance.rule}; the oracle is exact to float32",
        absolute=allowance.absolute + classes.CONDITIONED_FLOOR * eps * largest,
    )


def _by_class(
    evaluator: Evaluator, inputs: Mapping[str, Any], exact: Values, case_id: str
) -> tuple[Allowance, ...]:
    nodes = list(evaluator.model.graph.node)
    if len(nodes) == 1 and nodes[0].domain in ("", "ai.onnx", "ai.onnx.ml"):
        return of_node(evaluator, nodes[0], inputs, exact, case_id)
    return _conditioned(evaluator, inputs, exact, case_id, f"chain of {len(nodes)} nodes")


def of_node(
    evaluator: Evaluator,
    node: onnx.NodeProto,
    inputs: Mapping[str, Any],
    exact: Values,
    case_id: str,
) -> tuple[Allowance, ...]:
    """Allowances of a model that is this one node; see `allowances_of`."""
    op_type = node.op_type
    names = evaluator.output_names
    dtypes = [evaluator.declared(name) for name in names]
    if _is_exact(node):
        signed = op_type in classes.SIGNED_ZERO_OPERATORS
        rule = f"{op_type}: correctly rounded"
        return tuple(Allowance(rule, signed_zeros=signed) for _ in names)
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    arguments = [exact[name] for name in node.input]
    if op_type in ("QuantizeLinear", "DynamicQuantizeLinear"):
        scale_type = evaluator.declared(node.input[1]) if len(node.input) > 1 else None
        return tuple(
            _quantized(op_type, arguments, exact[n], attributes, scale_type) for n in names
        )
    if op_type in classes.QUANTIZING:
        rule = f"{op_type}: one step, mean square {classes.STEP_ERROR}"
        # A step of float8 is a unit in the last place.
        return tuple(Allowance(rule, ulps=1.0, steps=1, error=classes.STEP_ERROR) for _ in names)
    if not any(dtype is not None and is_float(dtype) for dtype in dtypes):
        steps = 1 if op_type in ("Resize", "Upsample") else 0
        return tuple(Allowance(f"{op_type}: {steps} steps", steps=steps) for _ in names)
    if op_type in classes.ULPS:
        return (_elementwise(op_type, attributes, arguments, dtypes[0]),)
    if op_type in classes.SUMS:
        return (_sum(evaluator, node, attributes, inputs, exact),)
    found = _conditioned(evaluator, inputs, exact, case_id, op_type)
    if op_type in classes.INTERPOLATING:
        return tuple(_with_coordinates(allowance, arguments[0]) for allowance in found)
    return found


def _with_coordinates(allowance: Allowance, x: Array) -> Allowance:
    """Coordinates are float32: two roundings of the largest, times the range of the values."""
    finite = x[np.isfinite(x)]
    if finite.size == 0:
        return allowance
    eps = float_format(np.dtype(np.float32)).eps
    moved = 2.0 * eps * max(x.shape) * float(np.ptp(finite))
    return dataclasses.replace(allowance, absolute=allowance.absolute + moved)


def _is_exact(node: onnx.NodeProto) -> bool:
    """True for operators that round at most once, some of them only with certain attributes."""
    texts = {a.name: a.s for a in node.attribute if a.type == onnx.AttributeProto.STRING}
    if node.op_type in ("Resize", "Upsample"):
        return bool(texts.get("mode", b"nearest") == b"nearest")
    # Scatters that add or multiply round once per update.
    accumulates = texts.get("reduction") in (b"add", b"mul")
    return node.op_type in classes.EXACT_OPERATORS and not accumulates


def _elementwise(
    op_type: str,
    attributes: Mapping[str, Any],
    arguments: Sequence[Any],
    dtype: np.dtype[Any] | None,
) -> Allowance:
    ulps = classes.ULPS[op_type]
    x = arguments[0]
    loss: Array | float = 0.0
    if dtype is not None and isinstance(x, np.ndarray) and x.dtype == np.float64:
        loss = classes.formula_loss(op_type, x, attributes) * float_format(dtype).eps
    extra = " and the formula's cancellation" if np.any(loss > 0) else ""
    signed = op_type in classes.SIGNED_ZERO_OPERATORS
    rule = f"{op_type}: {ulps:g} ULP{extra}"
    return Allowance(rule, ulps=ulps, absolute=loss, signed_zeros=signed)


def _sum(
    evaluator: Evaluator,
    node: onnx.NodeProto,
    attributes: Mapping[str, Any],
    inputs: Mapping[str, Any],
    exact: Values,
) -> Allowance:
    """One rounding of the output, and those of K terms."""
    name = node.output[0]
    shapes = [getattr(exact[argument], "shape", None) for argument in node.input]
    terms = classes.number_of_terms(node.op_type, shapes, exact[name].shape, attributes)
    magnitudes = _of_magnitudes(evaluator, inputs).get(name, exact[name])
    rule = f"{node.op_type}: 1 ULP + c*sqrt(K)*eps*sum of magnitudes, K = {terms}"
    return Allowance(rule, ulps=1.0, terms=max(terms, 1), scale=np.abs(np.asarray(magnitudes)))


def _of_magnitudes(evaluator: Evaluator, inputs: Mapping[str, Any]) -> Values:
    """The model on |inputs|: for a linear operator, the sum of the magnitudes of its terms."""

    def magnitude(value: Array, dtype: np.dtype[Any]) -> Array:
        return np.abs(value)

    try:
        return _with_positive_factors(evaluator).run(inputs, disturb=magnitude)
    except OracleError:
        return {}


def _with_positive_factors(evaluator: Evaluator) -> Evaluator:
    """The evaluator, of a model whose `alpha` and `beta` of Gemm have no signs."""
    model = onnx.ModelProto()
    model.CopyFrom(evaluator.model)
    factors = [
        attribute
        for node in model.graph.node
        for attribute in node.attribute
        if node.op_type == "Gemm" and attribute.f < 0
    ]
    for attribute in factors:
        attribute.f = -attribute.f
    return Evaluator(model) if factors else evaluator


def _quantized(
    op_type: str,
    arguments: Sequence[Any],
    output: Any,
    attributes: Mapping[str, Any],
    divided_in: np.dtype[Any] | None,
) -> Allowance:
    """QuantizeLinear: exact but beside ties, where x / scale is no number of the scale's type.

    The division is done in that type, or in a wider one. A quotient that it holds exactly is the
    same however it is computed, so a true tie must go to the even neighbour; one that it rounds
    may land on either side of a tie nearby.
    """
    if is_float(output.dtype):
        return Allowance(f"{op_type}: 1 ULP", ulps=1.0)
    scale = None
    if op_type == "QuantizeLinear" and is_float(arguments[0].dtype):
        scale = scales_beside(arguments[0], arguments[1], attributes)
    if scale is None:
        return Allowance(
            f"{op_type}: one step, mean square {classes.STEP_ERROR}",
            steps=1,
            error=classes.STEP_ERROR,
        )
    kind = divided_in if divided_in is not None and divided_in.itemsize == 2 else _SINGLE
    eps = max(4 * float_format(_SINGLE).eps, float_format(kind).eps)
    with np.errstate(all="ignore"):
        quotient = widened(arguments[0]) / scale
        rounded = narrow(quotient, kind).astype(np.float64)
        distance = np.abs(np.abs(quotient - np.trunc(quotient)) - 0.5)
        near = distance <= eps * np.maximum(1, np.abs(quotient))
    doubtful = near & ((rounded != quotient) | (distance != 0))
    return Allowance(f"{op_type}: exact, one step beside ties", steps=1, near_tie=doubtful)


def scales_beside(x: Array, scale: Array, attributes: Mapping[str, Any]) -> Array | None:
    """The scales of QuantizeLinear in a shape that broadcasts with x; None for blocks of them."""
    if not scale.ndim:
        return widened(scale)
    axis = int(attributes.get("axis", 1))
    if scale.ndim > 1 or not -x.ndim <= axis < x.ndim or scale.size != x.shape[axis]:
        return None
    shape = [1] * x.ndim
    shape[axis] = scale.size
    return widened(scale).reshape(shape)


def _conditioned(
    evaluator: Evaluator, inputs: Mapping[str, Any], exact: Values, case_id: str, what: str
) -> tuple[Allowance, ...]:
    """Allow what comes out when every float input and intermediate result is disturbed."""
    names = evaluator.output_names
    spreads: dict[str, Array | float] = dict.fromkeys(names, 0.0)
    for draw in range(_DRAWS):
        disturb = _roundings(zlib.crc32(f"{case_id}/{draw}".encode()))
        try:
            found = evaluator.run(inputs, disturb=disturb)
        except OracleError:
            continue
        for name in names:
            spreads[name] = _wider(spreads[name], found[name], exact[name])
    return tuple(_from_spread(evaluator, n, spreads[n], exact[n], what) for n in names)


def _roundings(seed: int) -> Disturb:
    """Up or down by half an eps: whether the input was rounded up or down is nobody's fault."""
    rng = np.random.default_rng(seed)

    def disturb(value: Array, dtype: np.dtype[Any]) -> Array:
        eps = float_format(dtype).eps
        signs = rng.integers(0, 2, value.shape) * 2.0 - 1.0
        with np.errstate(all="ignore"):
            return np.asarray(value * (1.0 + 0.5 * eps * signs))

    return disturb


def _wider(spread: Array | float, found: Any, exact: Any) -> Array | float:
    if not isinstance(exact, np.ndarray) or not isinstance(found, np.ndarray):
        return spread
    if exact.dtype.kind not in "fiu" or found.shape != exact.shape:
        return spread
    with np.errstate(all="ignore"):
        moved = np.abs(found.astype(np.float64) - exact.astype(np.float64))
    return np.maximum(spread, np.where(np.isfinite(moved), moved, 0.0))


def _from_spread(
    evaluator: Evaluator, name: str, spread: Array | float, exact: Any, what: str
) -> Allowance:
    dtype = evaluator.declared(name)
    if dtype is None or not isinstance(exact, np.ndarray) or not is_float(exact.dtype):
        return _integers_from_spread(spread, exact, what)
    rule = f"{what}: {classes.CONDITIONED_ULPS:g} ULP and {classes.CONDITIONED_FACTOR:g} spreads"
    allowance = Allowance(
        rule,
        ulps=classes.CONDITIONED_ULPS,
        absolute=classes.CONDITIONED_FACTOR * np.asarray(spread),
    )
    return with_floor(allowance, exact, dtype)


def with_floor(allowance: Allowance, exact: Array, dtype: np.dtype[Any]) -> Allowance:
    """A few eps of the largest output, for results that are small because large parts cancel.

    One eps of 16-bit types: they are computed in float32, but may be stored between steps.
    """
    finite = exact[np.isfinite(exact)]
    largest = float(np.max(np.abs(finite), initial=0.0))
    eps = float_format(dtype).eps
    single = float_format(np.dtype(np.float32)).eps
    floor = largest * max(
        eps if eps > single else 0.0, classes.CONDITIONED_FLOOR * min(eps, single)
    )
    return dataclasses.replace(allowance, absolute=allowance.absolute + floor)


def _integers_from_spread(spread: Array | float, exact: Any, what: str) -> Allowance:
    """Integers at the end of a chain: a step where a rounding before them decides."""
    moved = np.asarray(spread) > 0
    if not isinstance(exact, np.ndarray) or exact.dtype.kind not in "iu" or not moved.any():
        return EXACT
    return Allowance(f"{what}: one step beside ties", steps=1, near_tie=moved)
