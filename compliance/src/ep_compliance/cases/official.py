"""The node cases that the onnx package brings along, as cases of ours."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from ep_compliance.cases.case import Case, Level, Subject
from ep_compliance.cases.subjects import subject_of
from ep_compliance.oracle.classes import DRAWING
from ep_compliance.texts import words

__all__ = ["MUSTPASS_OPERATORS", "official_cases"]

MUSTPASS_OPERATORS = words(
    "Abs Add And AveragePool BatchNormalization Cast Clip Concat Conv Div Equal Erf Exp Expand "
    "Flatten Gather Gemm GlobalAveragePool Greater Identity LayerNormalization LeakyRelu Less Log "
    "LogSoftmax MatMul Max MaxPool Min Mul Neg Not Or Pad Pow Reciprocal ReduceMax ReduceMean "
    "ReduceSum Relu Reshape Shape Sigmoid Sin Slice Softmax Split Sqrt Squeeze Sub Sum Tanh Tile "
    "Transpose Unsqueeze Where Xor"
)
"""Operators that nearly every model needs: their official cases are in the must-pass tier."""


def official_cases() -> Iterator[Case]:
    """Every official node case, ids `official/<name>`, in the package's order.

    Collecting them takes about ten seconds once per process, because onnx computes them.
    """
    for found in _collected():
        inputs, outputs = found.data_sets[0]
        yield _case(found.name, found.model, inputs, outputs)


@functools.lru_cache(maxsize=1)
def _collected() -> Sequence[Any]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return tuple(collect_testcases(None))


def _case(name: str, model: onnx.ModelProto, inputs: Sequence[Any], outputs: Sequence[Any]) -> Case:
    expected = [_value(value) for value in outputs]
    return Case(
        id=f"official/{name.removeprefix('test_')}",
        model=model,
        inputs=_feeds(model, inputs),
        expected=expected,
        subject=_subject(model),
        level=_level(model),
        draws=any(node.op_type in DRAWING for node in model.graph.node),
        made_by=f"onnx {onnx.__version__}",
    )


def _feeds(model: onnx.ModelProto, inputs: Sequence[Any]) -> Mapping[str, Any]:
    names = [info.name for info in model.graph.input]
    return {name: _value(value) for name, value in zip(names, inputs, strict=True)}


def _subject(model: onnx.ModelProto) -> Subject | None:
    nodes = model.graph.node
    return subject_of(model, nodes[0]) if len(nodes) == 1 else None


def _level(model: onnx.ModelProto) -> Level:
    nodes = model.graph.node
    basic = len(nodes) == 1 and not nodes[0].domain and nodes[0].op_type in MUSTPASS_OPERATORS
    return Level.MUSTPASS if basic else Level.FULL


def _value(value: Any) -> Any:
    """A test datum as a host value."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    if value is None or isinstance(value, dict):
        return value
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "UT" else array
