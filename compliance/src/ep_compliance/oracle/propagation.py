"""Allowances of graphs: the errors that every node may make, carried to the outputs.

Let node k be allowed an error of at most a_k, element by element, by the rules for single nodes:
units in the last place of a function, c * sqrt(K) * eps of a sum, the measured condition of a
compound operator; and half a unit for the rounding of an exact operation whose result isn't a
number of its type. To first order the outputs then err by the sum of J_k * e_k, |e_k| <= a_k, where
J_k is the derivative of the outputs by the value of node k (Higham, "Accuracy and Stability of
Numerical Algorithms", 2nd ed., section 1.6: forward error = condition times backward error). If the
e_k are independent and of mean zero, the error stays below lambda * s with a probability of at
least 1 - 2*exp(-lambda^2/2), where s^2 is the sum of (J_k * a_k)^2 (Hoeffding, J. Amer. Statist.
Assoc. 58, 1963).

s is measured, as in `allowances`: the graph is evaluated in float64 with normal noise of deviation
a_k added to every result; the mean square of what comes out estimates s^2 whatever the graph's
condition is. lambda is `CONDITIONED_FACTOR`: 8 leaves 3e-14, and room for estimates from few draws:
one from four draws is below s/8 with a probability of 5e-4, and even then it takes an error of the
size s, while real errors are a small part of what is allowed.

What is exact stays exact: values that small whole numbers make up have no noise, and whole graphs
of them no allowance. Nothing smaller than the floor that `allowances` gives to chains is told from
noise where something is inexact.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from ep_compliance.oracle import classes
from ep_compliance.oracle.allowances import of_node, scales_beside, with_floor
from ep_compliance.oracle.evaluate import Evaluator, Values
from ep_compliance.oracle.precision import Array, float_format, is_float, narrow, spacing
from ep_compliance.oracle.tolerance import EXACT, Allowance, allowed_errors
from ep_core.contracts import Numerics

__all__ = ["can_propagate", "propagated"]

_DRAWS = 4
_ROUNDS = 3
"""Quantizations behind each other whose ties are looked at anew."""

_SINGLE = float_format(np.dtype(np.float32))

_WHOLE_SUMS = frozenset(
    {"Conv", "CumSum", "Gemm", "MatMul", "ReduceL1", "ReduceSum", "ReduceSumSquare", "Sum"}
)
"""Sums without a division: exact if all terms are whole multiples of something not too small."""


@dataclass(frozen=True, eq=False, slots=True)
class _Error:
    """What a value may be off, in its own unit, element by element.

    Attributes:
        sums: the part that scales with the accumulator's eps.
        rest: the part that doesn't.
        steps: of whole numbers.
    """

    sums: Array | float = 0.0
    rest: Array | float = 0.0
    steps: Array | int = 0

    @property
    def any(self) -> bool:
        """True if it isn't exact."""
        return bool(np.any(self.sums) or np.any(self.rest) or np.any(self.steps))


def can_propagate(evaluator: Evaluator) -> bool:
    """True for graphs of two nodes or more that are all of the default domain and of tensors."""
    nodes = evaluator.model.graph.node
    names = {name for node in nodes for name in (*node.input, *node.output) if name}
    return (
        len(nodes) > 1
        and all(_is_plain(node) for node in nodes)
        and all(evaluator.declared(name) is not None for name in names)
    )


def _is_plain(node: onnx.NodeProto) -> bool:
    nested = any(a.HasField("g") or a.graphs for a in node.attribute)
    return node.domain in ("", "ai.onnx") and not nested and node.op_type not in classes.DRAWING


def propagated(
    evaluator: Evaluator, inputs: Mapping[str, Any], exact: Values, case_id: str
) -> tuple[Allowance, ...]:
    """Return one allowance for each output of the model.

    Args:
        evaluator: of a model that `can_propagate`.
        inputs: of the case.
        exact: what `evaluator.run(inputs)` returned.
        case_id: seeds the noise.

    Raises:
        OracleError: the model can't be evaluated with noise.
    """
    errors: dict[str, _Error] = {}
    for node in evaluator.model.graph.node:
        found = _errors_of(evaluator, node, exact, case_id)
        errors.update((name, error) for name, error in found.items() if error.any)
    if not errors:
        return tuple(Allowance("graph of exact operations") for _ in evaluator.output_names)
    rng = np.random.default_rng(zlib.crc32(case_id.encode()))
    spreads = _measured(evaluator, inputs, exact, errors, rng)
    for _ in range(_ROUNDS):
        doubts = _doubts(evaluator, exact, errors, spreads)
        if not doubts:
            break
        errors.update(doubts)
        spreads = _measured(evaluator, inputs, exact, errors, rng)
    sums = _of_sums(evaluator, inputs, exact, errors, rng)
    count = len(evaluator.model.graph.node)
    return tuple(
        _allowance(evaluator, name, exact[name], spreads[name], sums.get(name, 0.0), count)
        for name in evaluator.output_names
    )


# ---------------------------------------------------------------- what each node may err


def _errors_of(
    evaluator: Evaluator, node: onnx.NodeProto, exact: Values, case_id: str
) -> dict[str, _Error]:
    """Errors of a node's outputs by name, given exact inputs."""
    names = [name for name in node.output if name]
    if node.op_type in classes.MOVEMENT:
        return {}
    if node.op_type in ("Cast", "CastLike"):
        return {node.output[0]: _of_cast(evaluator, node, exact)}
    alone = evaluator.alone(node)
    inputs = {name: exact[name] for name in node.input if name}
    allowances = of_node(alone, node, inputs, exact, f"{case_id}/{names[0]}")
    return {
        name: _error(evaluator, node, name, exact, allowance)
        for name, allowance in zip(names, allowances, strict=False)
    }


def _of_cast(evaluator: Evaluator, node: onnx.NodeProto, exact: Values) -> _Error:
    """A rounding to another float type; an input that is off a little may be rounded elsewhere."""
    before, after = exact[node.input[0]], exact[node.output[0]]
    dtype = evaluator.declared(node.output[0])
    if dtype is None or not is_float(dtype) or before.dtype.kind != "f":
        return _Error()
    return _Error(rest=np.where(before != after, spacing(_finite(after), dtype), 0.0))


def _error(
    evaluator: Evaluator, node: onnx.NodeProto, name: str, exact: Values, allowance: Allowance
) -> _Error:
    value, dtype = exact[name], evaluator.declared(name)
    if not isinstance(value, np.ndarray) or dtype is None:
        return _Error()
    if not is_float(dtype):
        steps = np.full(value.shape, allowance.steps)
        if allowance.near_tie is not None:
            steps = np.where(allowance.near_tie, steps, 0)
        return _Error(steps=steps if value.dtype.kind in "iu" else 0)
    right = _finite(value)
    rest = allowed_errors(right, dtype, _without_sum(allowance), Numerics())
    rounds = node.op_type in classes.EXACT_OPERATORS
    if rounds:
        rest = rest + 0.5 * spacing(right, dtype)
    if rounds or node.op_type == "DequantizeLinear":
        rest = np.where(_is_held(right, dtype), 0.0, rest)
    if evaluator.single_precision and dtype == np.float64 and not rounds:
        # The oracle itself computed in float32 somewhere.
        rest = rest + classes.CONDITIONED_FLOOR * _SINGLE.eps * np.max(np.abs(right), initial=0.0)
    if not allowance.terms:
        return _Error(rest=rest)
    if node.op_type in _WHOLE_SUMS and _is_exact_sum(node, exact, allowance, dtype):
        return _Error()
    both = allowed_errors(right, dtype, allowance, Numerics())
    return _Error(sums=both - rest, rest=rest)


def _without_sum(allowance: Allowance) -> Allowance:
    return Allowance(allowance.rule, ulps=allowance.ulps, absolute=allowance.absolute)


def _finite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, 0.0)


def _is_held(values: Array, dtype: np.dtype[Any]) -> Array:
    """Where a type has exactly these values, so that a correct rounding changes nothing.

    Float64 is what the oracle computes with, so there it takes values of fewer bits to be sure.
    """
    kind = np.dtype(np.float32) if dtype == np.float64 else dtype
    return np.asarray(narrow(values, kind).astype(np.float64) == values)


def _is_exact_sum(
    node: onnx.NodeProto, exact: Values, allowance: Allowance, dtype: np.dtype[Any]
) -> bool:
    """True if every partial sum, in any order, is a number of the output's type."""
    factors = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    grains = [_grain(exact[name]) for name in node.input if name]
    if node.op_type in ("Conv", "Gemm", "MatMul"):
        product = math.prod(grains[:2]) * _grain(np.array(float(factors.get("alpha", 1.0))))
        grains = [product, *(grains[2:] if node.op_type != "MatMul" else ())]
        if node.op_type == "Gemm":
            grains[1:] = [g * _grain(np.array(float(factors.get("beta", 1.0)))) for g in grains[1:]]
    elif node.op_type == "ReduceSumSquare":
        grains = [grains[0] ** 2]
    elif node.op_type != "Sum":
        grains = grains[:1]
    largest = float(np.max(np.abs(allowance.scale), initial=0.0))
    kind = _SINGLE if dtype == np.float64 else float_format(dtype)
    return math.isfinite(largest) and largest <= min(grains) * 2.0 ** (kind.fraction_bits + 1)


def _grain(values: Array) -> float:
    """The largest power of two that divides every value."""
    fractions, exponents = np.frexp(values.astype(np.float64))
    whole = np.abs(fractions * 2.0**53).astype(np.int64).ravel()
    present = (whole != 0) & np.isfinite(fractions).ravel()
    if not present.any():
        return 1.0
    lowest_bits = (whole & -whole)[present].astype(np.float64)
    powers = np.ldexp(lowest_bits, exponents.ravel()[present] - 53)
    return float(powers.min())


# ---------------------------------------------------------------- what comes out


def _measured(
    evaluator: Evaluator,
    inputs: Mapping[str, Any],
    exact: Values,
    errors: Mapping[str, _Error],
    rng: np.random.Generator,
) -> dict[str, Array]:
    """Deviations by name, of the outputs and of what is quantized."""
    names = {node.input[0] for node in _quantizing(evaluator)} | set(evaluator.output_names)
    squares: dict[str, Array] = {name: np.zeros(exact[name].shape) for name in names}
    for _ in range(_DRAWS):
        noise = {name: _drawn(errors[name], exact[name], rng) for name in errors}
        found = evaluator.run(inputs, noise=noise)
        for name in squares:
            squares[name] = squares[name] + _moved(found[name], exact[name]) ** 2
    return {name: np.sqrt(total / _DRAWS) for name, total in squares.items()}


def _of_sums(
    evaluator: Evaluator,
    inputs: Mapping[str, Any],
    exact: Values,
    errors: Mapping[str, _Error],
    rng: np.random.Generator,
) -> dict[str, Array]:
    """Deviations that come of sums alone, where outputs may have been summed up in 16 bits."""
    dtypes = [evaluator.declared(name) for name in evaluator.output_names]
    has_narrow = any(d is not None and is_float(d) and d.itemsize == 2 for d in dtypes)
    sums = {name: _Error(sums=e.sums) for name, e in errors.items() if np.any(e.sums)}
    return _measured(evaluator, inputs, exact, sums, rng) if has_narrow and sums else {}


def _quantizing(evaluator: Evaluator) -> list[onnx.NodeProto]:
    return [node for node in evaluator.model.graph.node if node.op_type == "QuantizeLinear"]


def _doubts(
    evaluator: Evaluator,
    exact: Values,
    errors: Mapping[str, _Error],
    spreads: Mapping[str, Array],
) -> dict[str, _Error]:
    """Steps of quantized values whose quotient is so near a tie that noise may carry it over.

    Draws alone would miss most of them. Only what isn't known yet.
    """
    found = {}
    for node in _quantizing(evaluator):
        x, name = exact[node.input[0]], node.output[0]
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        scale = scales_beside(x, exact[node.input[1]], attributes)
        noise = spreads[node.input[0]]
        if scale is None or not np.any(noise) or exact[name].dtype.kind not in "iu":
            continue
        with np.errstate(all="ignore"):
            quotient = np.abs(x / scale)
            distance = np.abs(quotient - np.trunc(quotient) - 0.5)
            near = (noise > 0) & (distance <= classes.CONDITIONED_FACTOR * noise / scale)
        known = np.asarray(errors.get(name, _Error()).steps) > 0
        if np.any(near & ~known):
            found[name] = _Error(steps=(near | known).astype(np.int64))
    return found


def _drawn(error: _Error, value: Array, rng: np.random.Generator) -> Array:
    if np.any(error.steps):
        return np.asarray((2 * rng.integers(0, 2, value.shape) - 1) * error.steps)
    deviation = np.asarray(error.sums) + np.asarray(error.rest)
    return np.asarray(rng.standard_normal(value.shape) * deviation)


def _moved(found: Any, exact: Any) -> Array:
    """How far the noise moved a value; a bool that turns over has moved by 1."""
    if found.dtype == object or found.shape != exact.shape:
        return np.zeros(exact.shape)
    with np.errstate(all="ignore"):
        moved = np.abs(found.astype(np.float64) - exact.astype(np.float64))
    return np.where(np.isfinite(moved), moved, 0.0)


def _allowance(
    evaluator: Evaluator, name: str, exact: Array, spread: Array, sums: Array | float, count: int
) -> Allowance:
    dtype = evaluator.declared(name)
    if dtype is None or not is_float(dtype):
        return _whole(exact, spread, count)
    if not np.any(spread):
        return Allowance("exact, as far as it comes from exact operations")
    factor = classes.CONDITIONED_FACTOR
    rule = f"graph of {count} nodes: {factor:g} deviations of what its nodes are allowed"
    allowance = Allowance(
        rule,
        ulps=1.0,
        absolute=factor * spread,
        # With one term the scale counts times the eps of the accumulator.
        terms=1 if np.any(sums) else 0,
        scale=factor * np.asarray(sums) / _SINGLE.eps,
    )
    return with_floor(allowance, exact, dtype)


def _whole(exact: Array, spread: Array, count: int) -> Allowance:
    """Whole numbers: twice as far as the noise carried them, where it did."""
    if exact.dtype.kind not in "iu" or not np.any(spread):
        return EXACT
    steps = math.ceil(2.0 * float(np.max(spread)))
    rule = f"graph of {count} nodes: {steps} steps where roundings decide"
    return Allowance(rule, steps=steps, near_tie=np.asarray(spread) > 0)
