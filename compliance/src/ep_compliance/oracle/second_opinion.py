"""ONNX Runtime as a second opinion, where it is installed; never as a judge."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from ep_compliance.cases.case import Case
from ep_core.types import DataType

__all__ = ["Opinion", "second_opinion"]

_FATAL_ONLY = 4
_NEWEST_IR_VERSION = 11


@dataclass(frozen=True, eq=False, slots=True)
class Opinion:
    """What somebody else computes.

    Attributes:
        outputs: in the model's order.
        source: who, with version.
    """

    outputs: Sequence[Any]
    source: str


@functools.cache
def _runtime() -> Any | None:
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("onnxruntime")


def second_opinion(case: Case) -> Opinion | None:
    """Return what ONNX Runtime's CPU provider computes, without optimisations.

    None where it isn't installed, doesn't take the model, or uses types that it can't be fed.
    """
    runtime = _runtime()
    if runtime is None or not all(_can_feed(value) for value in case.inputs.values()):
        return None
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = _FATAL_ONLY
    options.intra_op_num_threads = 1
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.ir_version = min(model.ir_version, _NEWEST_IR_VERSION)
    try:
        session = runtime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        outputs = session.run(None, dict(case.inputs))
    except Exception:  # noqa: BLE001 - whatever it raises, it has no opinion
        return None
    declared = [info.type.tensor_type.elem_type for info in case.model.graph.output]
    values = [_plain(value, kind) for value, kind in zip(outputs, declared, strict=True)]
    return Opinion(values, f"onnxruntime {runtime.__version__}")


def _can_feed(value: Any) -> bool:
    """Types that cross its Python interface as they are; ml_dtypes don't."""
    if isinstance(value, list):
        return all(_can_feed(item) for item in value)
    return not (isinstance(value, np.ndarray) and value.dtype.kind == "V")


def _plain(value: Any, element_type: int) -> Any:
    """A value of its interface as ours; float8 comes as bytes."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "UT":
        return value.astype(object)
    if isinstance(value, list):
        return [_plain(item, element_type) for item in value]
    if isinstance(value, np.ndarray) and element_type:
        dtype = DataType(element_type).numpy
        if dtype.kind == "V" and dtype.itemsize == value.dtype.itemsize:
            return value.view(dtype)
    return value
