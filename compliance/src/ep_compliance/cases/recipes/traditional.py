"""ai.onnx.ml but for trees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_core.types import DataType

__all__: list[str] = []

_ML = "ai.onnx.ml"


@recipe("ArrayFeatureExtractor", domain=_ML)
def array_feature_extractor(ask: Ask) -> Iterator[Sample]:
    """Columns by number."""
    yield Sample("plain", [ask.random(3, 4), ask.ints(2, 0)], core=True)


@recipe("Binarizer", domain=_ML)
def binarizer(ask: Ask) -> Iterator[Sample]:
    """Above the threshold or not."""
    yield Sample("plain", [ask.random(3, 4)], core=True)
    yield Sample("threshold", [ask.random(3, 4)], {"threshold": 1.0})


@recipe("CastMap", domain=_ML)
def cast_map(ask: Ask) -> Iterator[Sample]:
    """Values by ascending key; sparse ones fill up."""
    text = ask.kind == "map(int64, string)"
    value = {1: "5", 3: "7"} if text else {1: 5.0, 3: 7.0}
    inner = helper.make_tensor_type_proto(8 if text else 1, [])
    kind = helper.make_map_type_proto(7, inner)
    for target in ("TO_FLOAT", "TO_INT64", "TO_STRING"):
        if target == "TO_STRING" and not text:
            continue  # whether 5.0 is `5` isn't defined, nor whether 5.5 is `5.500000`
        yield Sample(target, [value], {"cast_to": target}, types={0: kind}, core=True)


@recipe("CategoryMapper", domain=_ML)
def category_mapper(ask: Ask) -> Iterator[Sample]:
    """Both ways, with defaults."""
    table = {"cats_int64s": [1, 2, 3], "cats_strings": ["a", "b", "c"]}
    if ask.dtype is DataType.STRING:
        x: Any = np.array(["a", "c", "zzz"], object)
        yield Sample("plain", [x], {**table, "default_int64": -7}, core=True)
    else:
        yield Sample("plain", [ask.ints(3, 1, 9)], {**table, "default_string": "?"}, core=True)


@recipe("DictVectorizer", domain=_ML)
def dict_vectorizer(ask: Ask) -> Iterator[Sample]:
    """Keys in the vocabulary's order; the others are dropped."""
    key, value = ask.kind[len("map(") : -1].split(", ")
    names: list[Any] = ["a", "b", "c"] if key == "string" else [1, 2, 3]
    kind = DataType[value.upper()]
    numbers = ["x", "y"] if value == "string" else np.array([2, 5], kind.numpy).tolist()
    entries = dict(zip([names[2], names[0]], numbers, strict=True))
    vocabulary = {"string_vocabulary" if key == "string" else "int64_vocabulary": names}
    inner = helper.make_tensor_type_proto(int(kind), [])
    map_type = helper.make_map_type_proto(8 if key == "string" else 7, inner)
    yield Sample(f"{key} to {value}", [entries], vocabulary, types={0: map_type}, core=True)


@recipe("FeatureVectorizer", domain=_ML)
def feature_vectorizer(ask: Ask) -> Iterator[Sample]:
    """Columns side by side."""
    x, y = ask.random(3, 2), ask.random(3, 1)
    yield Sample("plain", [x, y], {"inputdimensions": [2, 1]}, core=True)


@recipe("Imputer", domain=_ML)
def imputer(ask: Ask) -> Iterator[Sample]:
    """One value for all columns, and one for each."""
    x = ask.random(3, 2)
    if ask.is_float:
        x[1, 0] = np.nan
        missing = {"replaced_value_float": float("nan")}
        one, each = {"imputed_value_floats": [9.5]}, {"imputed_value_floats": [1.5, 2.5]}
    else:
        x[1, 0] = -1
        missing = {"replaced_value_int64": -1}
        one, each = {"imputed_value_int64s": [9]}, {"imputed_value_int64s": [4, 5]}
    yield Sample("one", [x], {**missing, **one}, core=True)
    yield Sample("each", [x], {**missing, **each})


@recipe("LabelEncoder", domain=_ML)
def label_encoder(ask: Ask) -> Iterator[Sample]:
    """Keys of one type, values of another, and what isn't a key."""
    if ask.version == 1:
        classes = {"classes_strings": ["a", "b", "c"]}
        if ask.dtype is DataType.STRING:
            yield Sample("plain", [np.array(["c", "q"], object)], classes, core=True)
        else:
            yield Sample("plain", [ask.ints(2, 0, 7)], classes, core=True)
        return
    kinds = {DataType.STRING: "strings", DataType.INT64: "int64s", DataType.FLOAT: "floats"}
    keys = np.array(["a", "b"], object) if ask.dtype is DataType.STRING else None
    keys = np.array([1, 2], ask.dtype.numpy) if keys is None else keys
    x = np.concatenate([keys[::-1], keys[:1]])
    values = np.array([10, 20], np.int64)
    if ask.version < 4 or ask.dtype in kinds:
        if ask.dtype not in kinds:
            return
        attributes = {f"keys_{kinds[ask.dtype]}": keys.tolist()}
        for name, listed in _LISTS.items():
            yield Sample(name, [x], {**attributes, f"values_{name}": listed}, core=True)
    for kind in ask.output_types() if ask.version >= 4 else ():
        yield Sample(f"tensor to {kind.text}", [x], _tensors(keys, values, kind), core=True)


_LISTS: dict[str, list[Any]] = {
    "int64s": [10, 20],
    "floats": [1.5, 2.5],
    "strings": ["x", "y"],
}


def _tensors(keys: Any, values: Any, kind: DataType) -> dict[str, Any]:
    """Keys, values and a default as attributes of LabelEncoder."""
    if kind is DataType.STRING:
        values, default = np.array(["x", "y"], object), np.array(["z"], object)
    else:
        values, default = values.astype(kind.numpy), np.array([7], kind.numpy)
    return {
        "keys_tensor": numpy_helper.from_array(keys),
        "values_tensor": numpy_helper.from_array(values),
        "default_tensor": numpy_helper.from_array(default),
    }


@recipe("LinearClassifier", domain=_ML)
def linear_classifier(ask: Ask) -> Iterator[Sample]:
    """Three classes of both types, with post-transformations."""
    base: dict[str, Any] = {
        "coefficients": [0.5, -1.0, 0.25, 2.0, -0.75, 1.5],
        "intercepts": [0.1, -0.2, 0.3],
    }
    named = {**base, "classlabels_strings": ["a", "b", "c"]}
    yield Sample("texts", [ask.random(4, 2)], named, outputs=2, core=True)
    base["classlabels_ints"] = [4, 5, 6]
    for transform in ("NONE", "SOFTMAX", "LOGISTIC"):
        attributes = {**base, "post_transform": transform}
        yield Sample(transform.lower(), [ask.random(4, 2)], attributes, outputs=2, core=True)


@recipe("LinearRegressor", domain=_ML)
def linear_regressor(ask: Ask) -> Iterator[Sample]:
    """One and two targets."""
    x = ask.random(4, 3)
    one = {"coefficients": [0.5, -1.0, 0.25], "intercepts": [0.5]}
    two = {
        "coefficients": [0.5, -1.0, 0.25, 2.0, 0.1, -3.0],
        "targets": 2,
        "intercepts": [0.5, 1.0],
    }
    yield Sample("one", [x], one, core=True)
    yield Sample("two", [x], two)


@recipe("Normalizer", domain=_ML)
def normalizer(ask: Ask) -> Iterator[Sample]:
    """Three norms."""
    for norm in ("MAX", "L1", "L2"):
        yield Sample(norm, [ask.random(3, 4, low=1, high=5)], {"norm": norm}, core=True)


@recipe("OneHotEncoder", domain=_ML)
def one_hot_encoder(ask: Ask) -> Iterator[Sample]:
    """Known and unknown categories."""
    if ask.dtype is DataType.STRING:
        x: Any = np.array(["a", "c", "zzz"], object)
        yield Sample("plain", [x], {"cats_strings": ["a", "b", "c"]}, core=True)
    else:
        x = np.array([3, 1, 9]).astype(ask.dtype.numpy)
        yield Sample("plain", [x], {"cats_int64s": [1, 2, 3]}, core=True)


@recipe("Scaler", domain=_ML)
def scaler(ask: Ask) -> Iterator[Sample]:
    """One factor, and one for each column."""
    x = ask.random(3, 2)
    yield Sample("each", [x], {"offset": [0.5, 1.0], "scale": [2.0, 0.25]}, core=True)
    yield Sample("one", [x], {"offset": [0.5], "scale": [2.0]})


@recipe("SVMRegressor", domain=_ML)
def svm_regressor(ask: Ask) -> Iterator[Sample]:
    """Every kernel."""
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        attributes = {
            "kernel_type": kernel,
            "kernel_params": [0.5, 0.25, 2.0],
            "support_vectors": [1.0, 2.0, 0.5, -1.0],
            "coefficients": [0.5, -1.5],
            "n_supports": 2,
            "rho": [0.25],
        }
        yield Sample(kernel.lower(), [ask.random(3, 2)], attributes, core=True)


@recipe("SVMClassifier", domain=_ML)
def svm_classifier(ask: Ask) -> Iterator[Sample]:
    """Two classes without probabilities; texts are among the recorded cases."""
    attributes = {
        "kernel_type": "RBF",
        "kernel_params": [0.5, 0.0, 3.0],
        "support_vectors": [1.0, 2.0, 0.5, -1.0],
        "vectors_per_class": [1, 1],
        "coefficients": [0.5, -1.5],
        "classlabels_ints": [0, 1],
        "rho": [0.25],
    }
    yield Sample("two classes", [ask.random(3, 2)], attributes, outputs=2, core=True)


@recipe("ZipMap", domain=_ML)
def zip_map(ask: Ask) -> Iterator[Sample]:
    """Both kinds of labels."""
    yield Sample("numbers", [ask.random(2, 3)], {"classlabels_int64s": [7, 8, 9]}, core=True)
    yield Sample("strings", [ask.random(2, 2)], {"classlabels_strings": ["a", "b"]}, core=True)
