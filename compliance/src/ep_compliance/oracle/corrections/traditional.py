"""Operators of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ep_compliance.oracle.corrections import NodeCall, correct

__all__: list[str] = []


@correct("ZipMap", domain="ai.onnx.ml", reason="there is no implementation")
def zip_map(call: NodeCall) -> Sequence[Any]:
    """One map from class label to score for each row."""
    scores = call.inputs[0]
    labels = call.attr("classlabels_int64s") or call.attr("classlabels_strings") or []
    keys = [label.decode() if isinstance(label, bytes) else label for label in labels]
    rows = scores.reshape(-1, len(keys))
    return [[dict(zip(keys, row, strict=True)) for row in rows]]


@correct("DictVectorizer", domain="ai.onnx.ml", reason="the result lacks its first dimension")
def dict_vectorizer(call: NodeCall) -> Sequence[Any]:
    """Values in the vocabulary's order, 0 or an empty string for keys that are missing."""
    names = call.attr("string_vocabulary") or call.attr("int64_vocabulary")
    keys = [name.decode() if isinstance(name, bytes) else name for name in names]
    dtype = call.dtype()
    nothing: Any = "" if dtype.kind == "O" else 0
    row = np.empty((1, len(keys)), dtype)
    row[0] = [call.inputs[0].get(key, nothing) for key in keys]
    return [row]


@correct("CastMap", domain="ai.onnx.ml", reason="there is no implementation")
def cast_map(call: NodeCall) -> Sequence[Any] | None:
    """Values by ascending key, in one row (form DENSE)."""
    if call.attr("map_form", "DENSE") != "DENSE":
        return None
    kind = call.attr("cast_to", "TO_FLOAT")
    convert: Any = {"TO_FLOAT": float, "TO_INT64": int, "TO_STRING": str}[kind]
    values = [convert(value) for _, value in sorted(call.inputs[0].items())]
    row = np.empty((1, len(values)), call.dtype())
    row[0] = values
    return [row]


@correct("CategoryMapper", domain="ai.onnx.ml", reason="there is no implementation")
def category_mapper(call: NodeCall) -> Sequence[Any]:
    """Strings to numbers or back, with a default."""
    x = call.inputs[0]
    texts = [text.decode() for text in call.attr("cats_strings")]
    numbers = call.attr("cats_int64s")
    forward = x.dtype == object
    table = dict(zip(texts, numbers, strict=True))
    back = dict(zip(numbers, texts, strict=True))
    default = call.attr("default_int64", -1) if forward else call.attr("default_string", "_Unused")
    found = [(table if forward else back).get(value, default) for value in x.reshape(-1).tolist()]
    result = np.empty(x.size, call.dtype())
    result[:] = found
    return [result.reshape(x.shape)]


@correct("LabelEncoder", domain="ai.onnx.ml", until=1, reason="version 1 is missing")
def label_encoder(call: NodeCall) -> Sequence[Any]:
    """Class names to their numbers, or back."""
    x = call.inputs[0]
    names = [name.decode() for name in call.attr("classes_strings")]
    if x.dtype == object:
        table = {name: number for number, name in enumerate(names)}
        default = call.attr("default_int64", -1)
        return [np.array([table.get(v, default) for v in x.reshape(-1)], np.int64).reshape(x.shape)]
    default = call.attr("default_string", "_Unused")
    found = [names[v] if 0 <= v < len(names) else default for v in x.reshape(-1).tolist()]
    return [np.array(found, object).reshape(x.shape)]
