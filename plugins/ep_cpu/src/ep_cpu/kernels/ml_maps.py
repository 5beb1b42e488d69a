"""Maps of ai.onnx.ml, and features put together: ZipMap, CastMap, DictVectorizer and such.

A host map is a dict from `int` or `str` to Python numbers or strings.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.errors import InvalidModelError, RunError
from ep_cpu.kernels.ml_support import DOMAIN, class_labels, feature_rows, string_array
from ep_cpu.kernels.support import Array, text
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode


@TABLE.kernel("ZipMap", domain=DOMAIN)
def _zip_map(node: KernelNode) -> Kernel:
    keys = class_labels(node, "classlabels_int64s").tolist()

    def run(x: Array) -> list[dict[Any, float]]:
        rows = feature_rows(x)
        if rows.shape[1] != len(keys):
            raise RunError("ZipMap needs one key per column", expected=len(keys), got=rows.shape[1])
        return [dict(zip(keys, row, strict=True)) for row in rows.tolist()]

    return run


_CAST_TARGETS: dict[str, Any] = {
    "TO_FLOAT": np.float32,
    "TO_INT64": np.int64,
    "TO_STRING": object,
}


@TABLE.kernel("CastMap", domain=DOMAIN)
def _cast_map(node: KernelNode) -> Kernel:
    target = text(node.attr("cast_to", "TO_FLOAT")).upper()
    form = text(node.attr("map_form", "DENSE")).upper()
    length = int(node.attr("max_map", 1))
    if target not in _CAST_TARGETS or form not in ("DENSE", "SPARSE"):
        raise InvalidModelError(
            "unknown cast_to or map_form of CastMap",
            expected=f"{', '.join(_CAST_TARGETS)}; DENSE, SPARSE",
            got=(target, form),
        )

    def run(pairs: dict[int, Any]) -> Array:
        keys = sorted(pairs)
        if form == "SPARSE" and keys and not 0 <= keys[0] <= keys[-1] < length:
            raise RunError(
                "a key of the map lies outside max_map",
                expected=f"0 to {length - 1}",
                got=(keys[0], keys[-1]),
            )
        result = np.zeros(length if form == "SPARSE" else len(keys), _CAST_TARGETS[target])
        if target == "TO_STRING":
            # What ONNX Runtime writes there; ONNX says nothing.
            result[:] = "0.f"
        places = keys if form == "SPARSE" else range(len(keys))
        for place, key in zip(places, keys, strict=True):
            result[place] = _cast_item(pairs[key], target)
        return result[None, :]

    return run


def _cast_item(value: Any, target: str) -> Any:
    if target == "TO_STRING":
        return value if isinstance(value, str) else f"{float(value):f}"
    try:
        return float(value) if target == "TO_FLOAT" else int(float(value))
    except (ValueError, OverflowError):
        raise RunError(f"a value of the map can't be cast by {target}", got=repr(value)) from None


@TABLE.kernel("DictVectorizer", domain=DOMAIN)
def _dict_vectorizer(node: KernelNode) -> Kernel:
    words = [text(word) for word in node.attr("string_vocabulary", ())]
    # A key outside the vocabulary is left out, as by scikit-learn's vectoriser. The result has a
    # row, as ONNX Runtime's: models that go on with it count on two dimensions.
    keys: list[Any] = words or [int(key) for key in node.attr("int64_vocabulary", ())]

    def run(pairs: dict[Any, Any]) -> Array:
        kind = node.output_dtype()
        dtype = np.dtype(np.float32) if kind is None else kind.numpy
        if dtype.kind == "O":
            return string_array([str(pairs.get(key, "")) for key in keys], (1, len(keys)))
        return np.array([[pairs.get(key, 0) for key in keys]], dtype)

    return run


@TABLE.kernel("FeatureVectorizer", domain=DOMAIN)
def _feature_vectorizer(node: KernelNode) -> Kernel:
    widths = [int(width) for width in node.attr("inputdimensions", ())]

    def run(*inputs: Array) -> Array:
        if widths and len(widths) != len(inputs):
            raise RunError(
                "FeatureVectorizer needs one of inputdimensions per input",
                expected=len(inputs),
                got=len(widths),
            )
        rows = [feature_rows(x) for x in inputs]
        if len({len(part) for part in rows}) > 1:
            raise RunError("the inputs have different numbers of rows", got=[len(r) for r in rows])
        wanted = widths or [part.shape[1] for part in rows]
        result = np.zeros((len(rows[0]), sum(wanted)), np.float32)
        start = 0
        for part, width in zip(rows, wanted, strict=True):
            # An input that is narrower than declared is filled up with zeros, a wider one cut.
            kept = min(width, part.shape[1])
            result[:, start : start + kept] = part[:, :kept]
            start += width
        return result

    return run
