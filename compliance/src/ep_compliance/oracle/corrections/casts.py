"""Casts that `onnx.reference` lacks: from and to strings, types of less than a byte, version 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from ep_compliance.oracle.corrections import NodeCall, correct
from ep_compliance.oracle.precision import Array, is_float, narrow, widened
from ep_core.types import DataType

__all__: list[str] = []


@correct("Cast", reason="strings, types of less than a byte and version 1 fail")
@correct("CastLike", reason="strings, types of less than a byte and version 1 fail")
def cast(call: NodeCall) -> Sequence[Any] | None:
    """By value: fractions are cut off, strings are parsed. Saturation is left to the reference."""
    x = call.inputs[0]
    target = DataType.from_numpy(call.dtype())
    source = DataType.from_numpy(x.dtype)
    if target is DataType.STRING and source is not DataType.STRING:
        return [_to_text(x)] if source.is_integer or _are_quarters(x) else None
    if source is DataType.STRING:
        return [x.copy() if target is DataType.STRING else _from_text(x, target)]
    if target.is_float and target.bits <= 8 and not _in_range(x, target):
        return _by_cast(call, target) if call.node.op_type == "CastLike" else None
    if target is DataType.BOOL:
        return [widened(x) != 0]
    if target.is_float:
        return [_to_float(x, target.numpy)]
    if is_float(x.dtype):
        return [np.trunc(widened(x)).astype(np.int64).astype(target.numpy)]
    if target.bits < 8 or source.bits < 8:
        return [x.astype(np.int64).astype(target.numpy)]
    return [x.astype(target.numpy)]


def _to_float(x: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.kind == "f" and not is_float(x.dtype):
        # numpy rounds wide integers once, which a way over float64 wouldn't.
        return x.astype(np.int64 if x.dtype.kind == "V" else x.dtype).astype(dtype)
    return narrow(widened(x).astype(np.float64), dtype)


def _in_range(x: Array, target: DataType) -> bool:
    """True if the narrow type holds all values exactly, so that nothing rounds or saturates."""
    with np.errstate(all="ignore"):
        wide = widened(x).astype(np.float64)
        back = wide.astype(target.numpy).astype(np.float64)
    return bool(np.all(np.isfinite(wide)) and np.all(back == wide))


def _to_text(x: Array) -> Array:
    words = np.empty(x.shape, object)
    flat = words.reshape(-1)
    whole = DataType.from_numpy(x.dtype).is_integer
    flat[:] = [str(int(value) if whole else float(value)) for value in x.reshape(-1)]
    return flat.reshape(x.shape)


def _are_quarters(x: Array) -> bool:
    """True for small floats with a fraction of quarters, which everybody writes alike."""
    if not is_float(x.dtype):
        return False
    wide = widened(x)
    with np.errstate(all="ignore"):
        plain = (np.abs(wide) < 100) & (wide * 4 % 1 == 0) & (wide % 1 != 0)
    return bool(plain.all())


def _from_text(x: Array, target: DataType) -> Array:
    values = [float(text) if target.is_float else int(text) for text in x.reshape(-1).tolist()]
    wide = np.array(values, np.float64 if target.is_float else np.int64)
    cast = narrow(wide, target.numpy) if target.is_float else wide.astype(target.numpy)
    return cast.reshape(x.shape)


def _by_cast(call: NodeCall, target: DataType) -> Sequence[Any]:
    """CastLike as the Cast that it stands for."""
    x = call.inputs[0]
    attributes: dict[str, Any] = {"to": int(target), "saturate": call.attr("saturate", 1)}
    if call.attr("round_mode") is not None:
        attributes["round_mode"] = call.attr("round_mode")
    node = onnx.helper.make_node("Cast", ["x"], ["y"], **attributes)
    kind = int(DataType.from_numpy(x.dtype))
    graph = onnx.helper.make_graph(
        [node],
        "cast",
        [onnx.helper.make_tensor_value_info("x", kind, None)],
        [onnx.helper.make_tensor_value_info("y", int(target), None)],
    )
    opsets = [onnx.helper.make_opsetid("", call.version)]
    model = onnx.helper.make_model(graph, opset_imports=opsets)
    return [np.asarray(output) for output in ReferenceEvaluator(model).run(None, {"x": x})]
