"""Operators of ai.onnx.ml beside ONNX Runtime; where the two differ, what ONNX says is expected.

Trees have a file of their own. The differences here, each with a test below:

- SVMClassifier without support vectors takes the class with the largest score.
- LabelEncoder: the last of equal keys counts, and NaN is a key like any other.
- Binarizer maps NaN to 0, and CastMap refuses keys outside max_map.
- LinearRegressor with one target applies its post_transform.
"""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from ml_models import ML, TRANSFORMS, check, ours, random_features, same
from onnx import TensorProto, helper

from ep_core import InferenceSession
from ep_core.errors import EpError

# ---------------------------------------------------------------- linear models and SVMs


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_models(transform):
    x = np.nan_to_num(random_features(9)) / 4
    weights = np.random.default_rng(1).normal(size=15).astype(np.float32).tolist()
    offsets = [0.1, -0.2, 0.3]
    settings = {"coefficients": weights, "post_transform": transform}
    check("LinearRegressor", [x], targets=3, intercepts=offsets, **settings)
    check("LinearRegressor", [x], targets=3, **settings)
    check("LinearRegressor", [x[0]], targets=3, **settings)
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        labels = {"classlabels_strings": ["a", "b", "c"]}
        check("LinearClassifier", [x.astype(dtype)], 2, intercepts=offsets, **labels, **settings)
    two = {"classlabels_ints": [5, 6], "intercepts": [0.2, -0.1]}
    check("LinearClassifier", [x], 2, coefficients=weights[:10], post_transform=transform, **two)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_one_weight_vector_for_two_classes(transform):
    x = np.nan_to_num(random_features(10))
    settings = {"coefficients": [0.5, -1.0, 0.25, 2.0, 0.0], "intercepts": [0.125]}
    settings["post_transform"] = transform
    check("LinearClassifier", [x], 2, classlabels_ints=[5, 6], **settings)


def test_post_transform_of_one_target_is_applied():
    """ONNX Runtime applies only PROBIT where there is one target."""
    signs = np.array([[-1], [1]], np.float32)
    linear = {"coefficients": [1.0], "intercepts": [0.0]}
    (found,) = ours("LinearRegressor", [signs], post_transform="LOGISTIC", **linear)
    np.testing.assert_allclose(found, [[0.26894143], [0.7310586]], rtol=1e-6)


def support_vectors(classes, seed, columns=4):
    generator = np.random.default_rng(seed)
    counts = generator.integers(1, 5, classes)
    total = int(counts.sum())
    pairs = classes * (classes - 1) // 2
    return {
        "vectors_per_class": counts.tolist(),
        "support_vectors": generator.normal(size=total * columns).astype(np.float32).tolist(),
        "coefficients": generator.normal(size=total * (classes - 1)).astype(np.float32).tolist(),
        "rho": generator.normal(size=pairs).astype(np.float32).tolist(),
        "classlabels_ints": list(range(10, 10 + classes)),
    }, pairs


KERNELS = (("LINEAR", [0.0, 0.0, 0.0]), ("POLY", [0.5, 1.0, 3.0]), ("POLY", [0.5, 1.0, 2.0]),
           ("RBF", [0.4, 0.0, 0.0]), ("SIGMOID", [0.3, 0.1, 0.0]))  # fmt: skip


@pytest.mark.parametrize(("kernel", "parameters"), KERNELS)
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_svm_classifiers(kernel, parameters, classes):
    x = np.nan_to_num(random_features(11, columns=4))
    settings, pairs = support_vectors(classes, classes)
    settings |= {"kernel_type": kernel, "kernel_params": parameters}
    check("SVMClassifier", [x], 2, **settings)
    check("SVMClassifier", [x.astype(np.float64)], 2, **settings)
    settings |= {"prob_a": [-1.5 - i / 4 for i in range(pairs)], "prob_b": [0.1] * pairs}
    for transform in ("NONE", "LOGISTIC", "SOFTMAX"):
        check("SVMClassifier", [x], 2, post_transform=transform, **settings)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("classes", [2, 3])
def test_scores_of_svm_classifiers(transform, classes):
    x = np.nan_to_num(random_features(12, columns=4))
    settings, _ = support_vectors(classes, 7)
    settings |= {"kernel_type": "RBF", "kernel_params": [0.2, 0.0, 0.0]}
    check("SVMClassifier", [x], 2, post_transform=transform, **settings)


def test_linear_svm_classifiers():
    x = np.nan_to_num(random_features(13, columns=2))
    settings = {"rho": [0.1], "kernel_params": [1.0, 0.0, 0.0]}
    weights = [0.5, -1.0, 0.25, 2.0, 0.0, 1.0]
    check("SVMClassifier", [x], 2, classlabels_ints=[7, 8, 9], coefficients=weights, **settings)
    # The first score is the larger one; ONNX Runtime answers 8 as soon as it is positive.
    row = np.array([[1, 0]], np.float32)
    labels, scores = ours(
        "SVMClassifier", [row], 2, classlabels_ints=[7, 8], coefficients=weights[:4], **settings
    )
    np.testing.assert_allclose(scores, [[0.6, 0.35]], rtol=1e-6)
    assert labels.tolist() == [7]


@pytest.mark.parametrize(("kernel", "parameters"), KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressors(kernel, parameters, one_class):
    x = np.nan_to_num(random_features(14, columns=4))
    generator = np.random.default_rng(2)
    check(
        "SVMRegressor",
        [x],
        kernel_type=kernel,
        kernel_params=parameters,
        n_supports=6,
        support_vectors=generator.normal(size=24).astype(np.float32).tolist(),
        coefficients=generator.normal(size=6).astype(np.float32).tolist(),
        rho=[-0.2],
        one_class=one_class,
    )


def test_svm_regressor_without_support_vectors():
    x = np.nan_to_num(random_features(15, columns=2))
    settings = {"rho": [0.5], "kernel_params": [1.0, 0.0, 0.0], "n_supports": 0}
    check("SVMRegressor", [x], coefficients=[1.5, -2.0], **settings)


# ---------------------------------------------------------------- features


def test_normalizer():
    x = np.array([[1, -2, 2], [0, 0, 0], [-3, -1, -2]], np.float32)
    for norm in ("MAX", "L1", "L2"):
        for dtype in (np.float32, np.float64, np.int32, np.int64):
            check("Normalizer", [x.astype(dtype)], norm=norm)
        check("Normalizer", [x[0]], norm=norm)


def test_scaler_imputer_binarizer():
    x = np.array([[1, -2, 2], [0, 3, 0]], np.float32)
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        check("Scaler", [x.astype(dtype)], scale=[2.0, 3.0, 0.5], offset=[1.0, 0.5, 0.0])
        check("Scaler", [x.astype(dtype)], scale=[2.0], offset=[1.0])
    check("Imputer", [x], imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=0.0)
    check("Imputer", [x], imputed_value_floats=[7.0], replaced_value_float=2.0)
    missing = np.where(x == 0, np.nan, x)
    check("Imputer", [missing], imputed_value_floats=[7.0], replaced_value_float=float("nan"))
    whole = x.astype(np.int64)
    check("Imputer", [whole], imputed_value_int64s=[1, 2, 3], replaced_value_int64=0)
    check("Binarizer", [x], threshold=1.0)
    (found,) = ours("Binarizer", [missing], threshold=-5.0)
    assert found.tolist() == [[1, 1, 1], [0, 1, 0]]


def test_array_feature_extractor():
    columns = np.array([2, 0], np.int64)
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        x = np.arange(12).reshape(2, 2, 3).astype(dtype)
        check("ArrayFeatureExtractor", [x, columns[None]])
        check("ArrayFeatureExtractor", [x[0], columns])
        check("ArrayFeatureExtractor", [x[0, 0], columns])
    words = np.array([["a", "b", "c"]], dtype=object)
    check("ArrayFeatureExtractor", [words, columns])


def test_feature_vectorizer():
    a = np.array([[1], [2]], np.float32)
    b = np.array([[3, 4], [5, 6]], np.float32)
    check("FeatureVectorizer", [a, b], inputdimensions=[1, 2])
    check("FeatureVectorizer", [a, b], inputdimensions=[2, 1])
    for dtype in (np.int32, np.int64, np.float64):
        check("FeatureVectorizer", [a.astype(dtype), b.astype(dtype)], inputdimensions=[1, 2])
    check("FeatureVectorizer", [b[0], b[1]], inputdimensions=[2, 2])


# ---------------------------------------------------------------- categories

STRINGS = np.array([["a", "b"], ["", "é"]], dtype=object)
NUMBERS = np.array([[1, 2], [-3, 9]], np.int64)
REALS = np.array([[1.5, np.nan], [-0.0, 9]], np.float32)
LISTS = {
    "strings": (["a", "é", "b"], STRINGS, {"default_string": "none"}),
    "int64s": ([2, -3, 1], NUMBERS, {"default_int64": 42}),
    "floats": ([1.5, 0.0, 2.5], REALS, {"default_float": 0.5}),
}


@pytest.mark.parametrize(("keys", "values"), list(itertools.product(LISTS, LISTS)))
@pytest.mark.parametrize("version", [2, 4])
def test_label_encoder(keys, values, version):
    x = LISTS[keys][1]
    settings = {f"keys_{keys}": LISTS[keys][0], f"values_{values}": LISTS[values][0]}
    check("LabelEncoder", [x], version=version, **settings)
    check("LabelEncoder", [x], version=version, **settings, **LISTS[values][2])


@pytest.mark.parametrize("key", [np.float64, np.float32, np.int64, np.int32, np.int16, object])
@pytest.mark.parametrize("value", [np.float64, np.float32, np.int64, np.int32, np.int16, object])
def test_label_encoder_with_tensors(key, value):
    """All pairs of types that ONNX allows; ONNX Runtime has kernels for some."""

    def tensor(numbers, dtype):
        if dtype is object:
            words = [f"w{number}".encode() for number in numbers]
            return helper.make_tensor("t", TensorProto.STRING, [len(words)], words)
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return helper.make_tensor("t", kind, [len(numbers)], numbers)

    words = np.array(["w3", "w8", "w1"], dtype=object)
    x = words if key is object else np.array([3, 8, 1], key)
    (found,) = ours(
        "LabelEncoder",
        [x],
        version=4,
        keys_tensor=tensor([1, 2, 3], key),
        values_tensor=tensor([4, 5, 6], value),
        default_tensor=tensor([7], value),
    )
    assert found.dtype == value
    assert found.tolist() == (["w6", "w7", "w4"] if value is object else [6, 7, 4])


def test_repeated_and_missing_keys_of_label_encoder():
    """ONNX: the last of equal keys counts, and NaN is a key. ONNX Runtime takes the first."""
    x = np.array([1, 2, 9], np.int64)
    settings = {"keys_int64s": [1, 2, 1], "values_floats": [1.0, 2.0, 3.0]}
    (found,) = ours("LabelEncoder", [x], version=4, **settings)
    assert found.tolist() == [3, 2, 0]
    assert np.signbit(found[2])
    settings = {"keys_floats": [float("nan"), -0.0], "values_strings": ["missing", "zero"]}
    x = np.array([np.nan, -0.0, 0.0, 1.0], np.float32)
    for version in (2, 4):
        (words,) = ours("LabelEncoder", [x], version=version, **settings)
        assert words.tolist() == ["missing", "zero", "zero", "_Unused"]
    check("LabelEncoder", [x], version=4, **settings)


def test_old_label_encoder_and_category_mapper():
    numbers = np.array([0, 1, 2, 5, -1], np.int64)
    words = np.array(["x", "y", "z"], dtype=object)
    check("LabelEncoder", [numbers], version=1, classes_strings=["x", "y"], default_string="?")
    check("LabelEncoder", [words], version=1, classes_strings=["x", "y"], default_int64=7)
    table = {"cats_strings": ["x", "y"], "cats_int64s": [5, -1]}
    check("CategoryMapper", [numbers], **table)
    check("CategoryMapper", [words], default_int64=3, **table)


def test_one_hot_encoder():
    check("OneHotEncoder", [NUMBERS], cats_int64s=[1, 2, -3])
    check("OneHotEncoder", [np.array([1.7, 2, 5], np.float32)], cats_int64s=[1, 2, 3])
    check("OneHotEncoder", [np.array([1.7, 2, 5])], cats_int64s=[1, 2, 3])
    check("OneHotEncoder", [STRINGS], cats_strings=["é", "a"])
    check("OneHotEncoder", [STRINGS[:1]], cats_strings=["b", "a"], zeros=0)
    with pytest.raises(EpError, match="unknown category"):
        ours("OneHotEncoder", [STRINGS], cats_strings=["b", "a"], zeros=0)
    found = ours("OneHotEncoder", [np.array([1, 3], np.int32)], cats_int64s=[1, 2, 3])
    assert found[0].tolist() == [[1, 0, 0], [0, 0, 1]]


# ---------------------------------------------------------------- maps


def test_zip_map():
    x = np.array([[0.25, 0.7], [0.5, 0.1]], np.float32)
    check("ZipMap", [x], classlabels_int64s=[3, 4])
    check("ZipMap", [x], classlabels_strings=["a", "b"])
    check("ZipMap", [x[0]], classlabels_strings=["a", "b"])


def map_model(op_type, key, value, **attributes):
    kind = onnx.TypeProto()
    kind.map_type.key_type = key
    kind.map_type.value_type.tensor_type.elem_type = value
    kind.map_type.value_type.tensor_type.shape.SetInParent()
    node = helper.make_node(op_type, ["x"], ["y"], domain=ML, **attributes)
    graph = helper.make_graph(
        [node], "one", [helper.make_value_info("x", kind)], [onnx.ValueInfoProto(name="y")]
    )
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


PAIRS = (TensorProto.INT64, TensorProto.FLOAT, {3: 1.5, 1: -2.75})
MAPS = {
    "floats": ("CastMap", *PAIRS, {}),
    "to-int64": (
        "CastMap", *PAIRS, {"cast_to": "TO_INT64"},
    ),
    "to-string": (
        "CastMap", *PAIRS, {"cast_to": "TO_STRING"},
    ),
    "sparse": (
        "CastMap", *PAIRS,
        {"map_form": "SPARSE", "max_map": 5},
    ),
    "sparse-strings": (
        "CastMap", TensorProto.INT64, TensorProto.FLOAT, {3: 1.5},
        {"map_form": "SPARSE", "max_map": 5, "cast_to": "TO_STRING"},
    ),
    "words": (
        "DictVectorizer", TensorProto.STRING, TensorProto.FLOAT, {"a": 4.0, "c": 8.0},
        {"string_vocabulary": ["a", "c", "b", "z"]},
    ),
    "numbers": (
        "DictVectorizer", TensorProto.INT64, TensorProto.FLOAT, {7: 4.0, 1: 8.0},
        {"int64_vocabulary": [1, 2, 7]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MAPS)
def test_maps(name, monkeypatch):
    op_type, key, value, feed, attributes = MAPS[name]
    if attributes.get("cast_to") == "TO_STRING":
        # ONNX doesn't say how a float is written as text, so no certificate grants it.
        monkeypatch.setenv("EP_CERTIFICATE_POLICY", "off")
    data = map_model(op_type, key, value, **attributes)
    expected = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    same(InferenceSession(data).run(None, {"x": feed}), expected.run(None, {"x": feed}))


@pytest.mark.parametrize(
    ("key", "value", "feed", "vocabulary", "expected"),
    [
        ("STRING", "DOUBLE", {"a": 0.1, "q": 8.0}, {"string_vocabulary": ["a", "c"]}, [0.1, 0.0]),
        ("STRING", "INT64", {"b": 2**60 + 1}, {"string_vocabulary": ["a", "b"]}, [0, 2**60 + 1]),
        ("INT64", "DOUBLE", {5: 0.1}, {"int64_vocabulary": [5, 6]}, [0.1, 0.0]),
        ("INT64", "STRING", {5: "x"}, {"int64_vocabulary": [4, 5]}, ["", "x"]),
    ],
)
def test_maps_that_cannot_be_fed_to_onnx_runtime(key, value, feed, vocabulary, expected):
    types = (TensorProto.DataType.Value(key), TensorProto.DataType.Value(value))
    data = map_model("DictVectorizer", *types, **vocabulary)
    (found,) = InferenceSession(data).run(None, {"x": feed})
    assert found.tolist() == [expected]
    assert found.dtype == helper.tensor_dtype_to_np_dtype(types[1])


def test_strings_to_numbers_in_cast_map():
    data = map_model("CastMap", TensorProto.INT64, TensorProto.STRING, cast_to="TO_INT64")
    assert InferenceSession(data).run(None, {"x": {3: "15", 1: "2"}})[0].tolist() == [[2, 15]]
    with pytest.raises(EpError, match="can't be cast"):
        InferenceSession(data).run(None, {"x": {3: "many"}})
    data = map_model("CastMap", TensorProto.INT64, TensorProto.FLOAT, map_form="SPARSE", max_map=2)
    with pytest.raises(EpError, match="outside max_map"):
        InferenceSession(data).run(None, {"x": {2: 1.0}})
