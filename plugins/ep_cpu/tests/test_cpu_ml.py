"""Operators of ai.onnx.ml: values worked out by hand, and what bad models and data give."""

from __future__ import annotations

import time

import numpy as np
import pytest
from cpu_harness import run_op
from onnx import TensorProto, helper

from ep_core.errors import EpError

NAN = float("nan")


def ml(op_type, inputs, *, version=3, outputs=1, **attributes):
    found = run_op(
        op_type,
        inputs,
        19,
        domain="ai.onnx.ml",
        domain_version=version,
        outputs=outputs,
        **attributes,
    )
    return found[0] if outputs == 1 else found


def f32(*rows):
    return np.array(rows, np.float32)


# Tree 0: x0 <= 1 ? 10 : (x1 < 2 ? 20 : 30). Tree 1: x1 > 0 ? 1 : 2.
TREES = {
    "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
    "nodes_featureids": [0, 0, 1, 0, 0, 1, 0, 0],
    "nodes_values": [1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_LT", "LEAF", "LEAF", "BRANCH_GT", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 3, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [2, 0, 4, 0, 0, 2, 0, 0],
}
VOTES = {"treeids": [0, 0, 0, 1, 1], "nodeids": [1, 3, 4, 1, 2], "ids": [0] * 5}
WEIGHTS = [10.0, 20.0, 30.0, 1.0, 2.0]
REGRESSOR = {
    **TREES,
    **{f"target_{name}": values for name, values in VOTES.items()},
    "target_weights": WEIGHTS,
    "n_targets": 1,
}
POINTS = f32([1, 0], [1.5, 1], [1.5, 2], [NAN, NAN])
"""Their leaves: (10, 2), (20, 1), (30, 1), and missing values take the false branch: (30, 2)."""


def test_trees_by_hand():
    assert ml("TreeEnsembleRegressor", [POINTS], **REGRESSOR).tolist() == [[12], [21], [31], [32]]
    tracked = {**REGRESSOR, "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 1, 0, 0]}
    assert ml("TreeEnsembleRegressor", [POINTS], **tracked)[3].tolist() == [11]
    for name, last in (("AVERAGE", 16), ("MIN", 2), ("MAX", 30)):
        found = ml("TreeEnsembleRegressor", [POINTS], aggregate_function=name, **REGRESSOR)
        assert found[3].tolist() == [last]
    found = ml("TreeEnsembleRegressor", [POINTS], base_values=[100.0], **REGRESSOR)
    assert found[:, 0].tolist() == [112, 121, 131, 132]
    assert ml("TreeEnsembleRegressor", [POINTS[0]], version=1, **REGRESSOR).tolist() == [[12]]
    assert ml("TreeEnsembleRegressor", [POINTS[:0]], **REGRESSOR).shape == (0, 1)


def test_nodes_may_come_in_any_order_and_under_any_number():
    order = [4, 2, 7, 0, 3, 5, 1, 6]
    renamed = [7, 3, 9, 1, 2, 30, 10, 20]
    names = dict(zip(zip(TREES["nodes_treeids"], TREES["nodes_nodeids"], strict=True), renamed,
                     strict=True))  # fmt: skip
    shuffled = {name: [values[i] for i in order] for name, values in TREES.items()}
    for key in ("nodeids", "truenodeids", "falsenodeids"):
        pairs = zip(shuffled["nodes_treeids"], shuffled[f"nodes_{key}"], strict=True)
        shuffled[f"nodes_{key}"] = [names[pair] for pair in pairs]
    pairs = zip(VOTES["treeids"], VOTES["nodeids"], strict=True)
    votes = {**REGRESSOR, **shuffled, "target_nodeids": [names[pair] for pair in pairs]}
    assert ml("TreeEnsembleRegressor", [POINTS], **votes).tolist() == [[12], [21], [31], [32]]


def test_tree_classifier_by_hand():
    votes = {f"class_{name}": values for name, values in VOTES.items()}
    votes["class_ids"] = [0, 1, 2, 1, 0]
    labels, scores = ml(
        "TreeEnsembleClassifier",
        [POINTS],
        outputs=2,
        class_weights=WEIGHTS,
        classlabels_strings=["a", "b", "c"],
        **TREES,
        **votes,
    )
    assert scores.tolist() == [[12, 0, 0], [0, 21, 0], [0, 1, 30], [2, 0, 30]]
    assert labels.tolist() == ["a", "b", "c", "c"]
    labels, _ = ml(
        "TreeEnsembleClassifier",
        [POINTS],
        outputs=2,
        class_weights=WEIGHTS,
        classlabels_int64s=[5, 6, 7],
        base_values=[0.0, 100.0, 0.0],
        **TREES,
        **votes,
    )
    assert labels.tolist() == [6] * 4
    assert labels.dtype == np.int64


def test_two_classes_with_one_score():
    """Positive weights are a probability, mixed ones a margin; see the kernel for why."""
    votes = {f"class_{name}": values for name, values in VOTES.items()}
    settings = {"outputs": 2, "classlabels_int64s": [3, 4], **TREES, **votes}
    weights = [0.25, 0.5, 0.75, 0.125, 0.0]
    labels, scores = ml("TreeEnsembleClassifier", [POINTS], class_weights=weights, **settings)
    assert scores.tolist() == [[0.75, 0.25], [0.375, 0.625], [0.125, 0.875], [0.25, 0.75]]
    assert labels.tolist() == [3, 4, 4, 4]
    weights = [-1.0, 0.5, 1.0, -2.0, 0.25]
    labels, scores = ml("TreeEnsembleClassifier", [POINTS], class_weights=weights, **settings)
    assert scores[:, 1].tolist() == [-0.75, -1.5, -1.0, 1.25]
    assert scores[:, 0].tolist() == [0.75, 1.5, 1.0, -1.25]
    assert labels.tolist() == [3, 3, 3, 4]
    labels, scores = ml(
        "TreeEnsembleClassifier",
        [POINTS],
        class_weights=weights,
        post_transform="LOGISTIC",
        **settings,
    )
    np.testing.assert_allclose(scores[:, 1], 1 / (1 + np.exp([0.75, 1.5, 1.0, -1.25])), rtol=1e-6)
    np.testing.assert_allclose(scores.sum(axis=1), np.ones(4), rtol=1e-6)
    assert labels.tolist() == [3, 3, 3, 4]


def test_single_leaves_and_infinities():
    leaf = {
        "nodes_treeids": [0], "nodes_nodeids": [0], "nodes_featureids": [0], "nodes_values": [0.0],
        "nodes_modes": ["LEAF"], "nodes_truenodeids": [0], "nodes_falsenodeids": [0],
        "target_treeids": [0], "target_nodeids": [0], "target_ids": [1], "target_weights": [3.0],
    }  # fmt: skip
    assert ml("TreeEnsembleRegressor", [POINTS], n_targets=2, **leaf).tolist() == [[0, 3]] * 4
    inf = float("inf")
    ends = f32([-inf], [inf], [0])
    for mode, value, expected in (
        ("BRANCH_LT", -inf, [2, 2, 2]),
        ("BRANCH_GTE", -inf, [1, 1, 1]),
        ("BRANCH_LEQ", -inf, [1, 2, 2]),
        ("BRANCH_LT", inf, [1, 2, 1]),
        ("BRANCH_GT", inf, [2, 2, 2]),
        ("BRANCH_EQ", inf, [2, 1, 2]),
        ("BRANCH_NEQ", -inf, [2, 1, 1]),
        ("BRANCH_LT", 0.0, [1, 2, 2]),
        ("BRANCH_EQ", -0.0, [2, 2, 1]),
    ):
        stump = {
            **{name: values[5:] for name, values in TREES.items()},
            "nodes_featureids": [0, 0, 0],
            "nodes_modes": [mode, "LEAF", "LEAF"],
            "nodes_values": [value, 0.0, 0.0],
        }
        votes = {"target_treeids": [1, 1], "target_nodeids": [1, 2], "target_ids": [0, 0]}
        found = ml("TreeEnsembleRegressor", [ends], n_targets=1, target_weights=[1.0, 2.0],
                   **stump, **votes)  # fmt: skip
        assert found[:, 0].tolist() == expected, (mode, value)


def tensor(values, kind=TensorProto.FLOAT):
    return helper.make_tensor("t", kind, [len(values)], values)


ENSEMBLE = {
    "tree_roots": [0, 2],
    "n_targets": 2,
    "nodes_modes": tensor([0, 6, 3], TensorProto.UINT8),
    "nodes_splits": tensor([1.0, 0.0, 0.0]),
    "nodes_featureids": [0, 1, 1],
    "nodes_truenodeids": [0, 1, 3],
    "nodes_trueleafs": [1, 1, 1],
    "nodes_falsenodeids": [1, 2, 4],
    "nodes_falseleafs": [0, 1, 1],
    "leaf_targetids": [0, 0, 0, 1, 1],
    "leaf_weights": tensor(WEIGHTS),
    "membership_values": tensor([4.0, -1.0, NAN]),
}
"""Tree 0: x0 <= 1 ? 10 : (x1 in {4, -1} ? 20 : 30), for target 0. Tree 1: x1 > 0 ? 1 : 2."""


def test_tree_ensemble_by_hand():
    x = f32([1, 0], [2, 4], [2, -1], [2, 3], [NAN, NAN])
    expected = [[10, 2], [20, 1], [20, 2], [30, 1], [30, 2]]
    assert ml("TreeEnsemble", [x], version=5, **ENSEMBLE).tolist() == expected
    half = {"nodes_splits": tensor([1.0, 0, 0], TensorProto.FLOAT16)}
    half["leaf_weights"] = tensor(WEIGHTS, TensorProto.FLOAT16)
    half["membership_values"] = tensor([4.0, -1.0, NAN], TensorProto.FLOAT16)
    found = ml("TreeEnsemble", [x.astype(np.float16)], version=5, **{**ENSEMBLE, **half})
    assert found.tolist() == expected
    assert found.dtype == np.float16


def broken(**changes):
    return {**REGRESSOR, **changes}


CYCLE = broken(nodes_truenodeids=[1, 0, 0, 0, 0, 1, 0, 0])
BAD_TREES = {
    "cycle": CYCLE,
    "no such node": broken(nodes_falsenodeids=[9, 0, 4, 0, 0, 2, 0, 0]),
    "wrong length": broken(nodes_values=[1.0]),
    "twice": broken(nodes_nodeids=[0, 1, 2, 3, 3, 0, 1, 2]),
    "mode": broken(nodes_modes=["BRANCH_ODD", *TREES["nodes_modes"][1:]]),
    "target": broken(target_ids=[0, 0, 0, 0, 7]),
    "negative target": broken(target_ids=[0, 0, 0, 0, -1]),
    "vote of no leaf": broken(target_nodeids=[0, 3, 4, 1, 2]),
    "base": broken(base_values=[1.0, 2.0, 3.0]),
    "aggregate": broken(aggregate_function="MEDIAN"),
    "transform": broken(post_transform="CUBE"),
    "feature": broken(nodes_featureids=[0, 0, 5, 0, 0, 1, 0, 0]),
    "negative feature": broken(nodes_featureids=[0, 0, -1, 0, 0, 1, 0, 0]),
}


@pytest.mark.parametrize("name", BAD_TREES)
def test_bad_trees(name):
    with pytest.raises(EpError):
        ml("TreeEnsembleRegressor", [POINTS], **BAD_TREES[name])


BAD_ENSEMBLES = {
    "cycle": {"nodes_falsenodeids": [1, 0, 4], "nodes_falseleafs": [0, 0, 1]},
    "root": {"tree_roots": [3]},
    "negative root": {"tree_roots": [-1]},
    "leaf": {"nodes_truenodeids": [0, 1, 5]},
    "negative": {"nodes_truenodeids": [0, -2, 3]},
    "members": {"membership_values": tensor([4.0, NAN, 1.0, NAN])},
    "mode": {"nodes_modes": tensor([0, 6, 7], TensorProto.UINT8)},
    "aggregate": {"aggregate_function": 4},
    "length": {"leaf_weights": tensor([1.0])},
}


@pytest.mark.parametrize("name", BAD_ENSEMBLES)
def test_bad_ensembles(name):
    with pytest.raises(EpError):
        ml("TreeEnsemble", [POINTS], version=5, **{**ENSEMBLE, **BAD_ENSEMBLES[name]})


def complete_forest(trees, depth, columns):
    """Attributes of complete trees, whose leaf i weighs i."""
    inner, count = 2**depth - 1, 2 ** (depth + 1) - 1
    generator = np.random.default_rng(0)
    numbers = np.tile(np.arange(count), trees)
    leaf = numbers >= inner
    ids = np.repeat(np.arange(trees), count)
    return {
        "nodes_treeids": ids.tolist(),
        "nodes_nodeids": numbers.tolist(),
        "nodes_featureids": generator.integers(columns, size=len(ids)).tolist(),
        "nodes_values": generator.normal(size=len(ids)).astype(np.float32).tolist(),
        "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        "nodes_truenodeids": np.where(leaf, 0, 2 * numbers + 1).tolist(),
        "nodes_falsenodeids": np.where(leaf, 0, 2 * numbers + 2).tolist(),
        "target_treeids": ids[leaf].tolist(),
        "target_nodeids": numbers[leaf].tolist(),
        "target_ids": [0] * int(leaf.sum()),
        "target_weights": numbers[leaf].astype(float).tolist(),
        "n_targets": 1,
    }


def slow_scores(forest, x):
    """The same by walking one row down one tree after the other."""
    count = len(forest["nodes_nodeids"]) // (forest["nodes_treeids"][-1] + 1)
    total = 0.0
    for tree in range(forest["nodes_treeids"][-1] + 1):
        node = 0
        while forest["nodes_modes"][tree * count + node] != "LEAF":
            at = tree * count + node
            yes = x[forest["nodes_featureids"][at]] <= forest["nodes_values"][at]
            node = forest["nodes_truenodeids" if yes else "nodes_falsenodeids"][at]
        total += node
    return total


def test_ten_thousand_rows_through_a_hundred_trees():
    forest = complete_forest(100, 6, 10)
    x = np.random.default_rng(1).normal(size=(10_000, 10)).astype(np.float32)
    began = time.perf_counter()
    found = ml("TreeEnsembleRegressor", [x], **forest)
    # Building and running; walking row by row takes a minute.
    assert time.perf_counter() - began < 5
    for row in (0, 1, 4321, 9999):
        assert found[row, 0] == slow_scores(forest, x[row])


# ---------------------------------------------------------------- linear models, SVMs


def test_linear_models_by_hand():
    x = f32([1, 2], [0, -1])
    found = ml("LinearRegressor", [x], coefficients=[1.0, 10.0, 2.0, 0.0], targets=2,
               intercepts=[0.5, 0.0])  # fmt: skip
    assert found.tolist() == [[21.5, 2], [-9.5, 0]]
    labels, scores = ml("LinearClassifier", [x], outputs=2, coefficients=[1.0, 10.0, 2.0, 0.0],
                        intercepts=[0.5, 0.0], classlabels_strings=["p", "q"])  # fmt: skip
    assert labels.tolist() == ["p", "q"]
    assert scores.tolist() == [[21.5, 2], [-9.5, 0]]
    _, scores = ml("LinearClassifier", [x], outputs=2, coefficients=[1.0, 0.0, 0.0, 1.0],
                   classlabels_ints=[1, 2], post_transform="SOFTMAX")  # fmt: skip
    np.testing.assert_allclose(scores[0], [1 / (1 + np.e), np.e / (1 + np.e)], rtol=1e-6)
    _, scores = ml("LinearClassifier", [x], outputs=2, coefficients=[0.0, 0.0, 0.0, 1.0],
                   classlabels_ints=[1, 2], post_transform="SOFTMAX_ZERO")  # fmt: skip
    assert scores[0].tolist() == [0, 1]
    with pytest.raises(EpError, match="coefficients"):
        ml("LinearRegressor", [x], coefficients=[1.0, 2.0, 3.0])


def test_probit_is_the_inverse_of_the_normal_distribution():
    # Quantiles of the standard normal distribution at 0.5, 0.8413 and 0.0228.
    chances = f32([0.5, 0.84134475, 0.02275013])
    found = ml("LinearRegressor", [chances.T], coefficients=[1.0], post_transform="PROBIT")
    np.testing.assert_allclose(found[:, 0], [0, 1, -2], atol=5e-3)


def test_svms_by_hand():
    x = f32([1, 0], [0, 2])
    machine = {"support_vectors": [1.0, 0.0, 0.0, 1.0], "coefficients": [2.0, -1.0], "rho": [0.5]}
    found = ml("SVMRegressor", [x], n_supports=2, kernel_params=[0.0, 0.0, 0.0], **machine)
    assert found.tolist() == [[2.5], [-1.5]]
    found = ml("SVMRegressor", [x], n_supports=2, one_class=1, kernel_params=[0.0, 0.0, 0.0],
               **machine)  # fmt: skip
    assert found.tolist() == [[1], [-1]]
    # Squared distances 0, 2 and 5, 1.
    found = ml("SVMRegressor", [x], n_supports=2, kernel_type="RBF",
               kernel_params=[0.5, 0.0, 0.0], **machine)  # fmt: skip
    expected = 2 * np.exp([0, -2.5]) - np.exp([-1, -0.5]) + 0.5
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-6)
    labels, scores = ml("SVMClassifier", [x], outputs=2, vectors_per_class=[1, 1],
                        classlabels_ints=[8, 9], **machine)  # fmt: skip
    # A positive decision votes for the first class.
    assert labels.tolist() == [8, 9]
    assert scores.tolist() == [[-2.5, 2.5], [1.5, -1.5]]
    _, scores = ml("SVMClassifier", [x], outputs=2, vectors_per_class=[1, 1], prob_a=[-1.0],
                   prob_b=[0.0], classlabels_ints=[8, 9], **machine)  # fmt: skip
    # Two classes: the sigmoid itself; the iteration stops within 0.005 / 2.
    np.testing.assert_allclose(scores[:, 0], 1 / (1 + np.exp([-2.5, 1.5])), atol=5e-3)


def test_pairwise_probabilities_add_up():
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    _, scores = ml(
        "SVMClassifier", [x], outputs=2, vectors_per_class=[1, 1, 1], classlabels_ints=[1, 2, 3],
        support_vectors=[1.0, 0.0, 0.0, 1.0, -1.0, -1.0],
        coefficients=[1.0, -1.0, 0.5, 1.0, 1.0, -1.0],
        rho=[0.1, -0.2, 0.3], prob_a=[-1.0, -2.0, -0.5], prob_b=[0.0, 0.1, 0.2],
    )  # fmt: skip
    np.testing.assert_allclose(scores.sum(axis=1), np.ones(20), rtol=1e-6)
    assert scores.min() > 0


BAD_MACHINES = {
    "kernel": {"kernel_type": "COSINE"},
    "parameters": {"kernel_type": "RBF", "kernel_params": [1.0]},
    "coefficients": {"coefficients": [1.0]},
    "vectors": {"support_vectors": [1.0, 2.0, 3.0]},
}


@pytest.mark.parametrize("name", BAD_MACHINES)
def test_bad_machines(name):
    good = {"support_vectors": [1.0, 0.0, 0.0, 1.0], "coefficients": [2.0, -1.0], "rho": [0.5]}
    x = f32([1, 0])
    with pytest.raises(EpError):
        ml("SVMRegressor", [x], n_supports=2, **{**good, **BAD_MACHINES[name]})
    with pytest.raises(EpError):
        ml("SVMClassifier", [x], outputs=2, vectors_per_class=[1, 1], classlabels_ints=[8, 9],
           **{**good, **BAD_MACHINES[name]})  # fmt: skip
    with pytest.raises(EpError, match="features"):
        ml("SVMRegressor", [f32([1, 0, 0])], n_supports=2, **good)


# ---------------------------------------------------------------- features and categories


def test_features_by_hand():
    x = f32([3, -4], [0, 0])
    np.testing.assert_allclose(ml("Normalizer", [x], norm="L2"), [[0.6, -0.8], [0, 0]], rtol=1e-6)
    np.testing.assert_allclose(ml("Normalizer", [x], norm="L1")[0], [3 / 7, -4 / 7], rtol=1e-6)
    np.testing.assert_allclose(ml("Normalizer", [x], norm="MAX")[0], [1, -4 / 3], rtol=1e-6)
    assert ml("Scaler", [x], offset=[1.0, 0.0], scale=[2.0, 0.5]).tolist() == [[4, -2], [-2, 0]]
    found = ml("Imputer", [f32([NAN, 1], [2, NAN])], imputed_value_floats=[7.0, 8.0],
               replaced_value_float=NAN)  # fmt: skip
    assert found.tolist() == [[7, 1], [2, 8]]
    assert ml("Binarizer", [x.astype(np.int64)], threshold=-0.5).tolist() == [[1, 0], [1, 1]]
    columns = np.array([1, 1, 0], np.int64)
    found = ml("ArrayFeatureExtractor", [x, columns])
    assert found.tolist() == [[-4, -4, 3], [0, 0, 0]]
    found = ml("FeatureVectorizer", [x, x[:, :1]], inputdimensions=[1, 2])
    assert found.tolist() == [[3, 3, 0], [0, 0, 0]]


BAD_FEATURES = [
    ("Normalizer", [POINTS[None]], {}),
    ("Normalizer", [POINTS], {"norm": "L3"}),
    ("Scaler", [POINTS], {"scale": [1.0, 2.0, 3.0]}),
    ("Imputer", [POINTS], {"imputed_value_floats": [1.0, 2.0, 3.0]}),
    ("Imputer", [POINTS], {"imputed_value_int64s": [1]}),
    ("ArrayFeatureExtractor", [POINTS, np.array([2], np.int64)], {}),
    ("ArrayFeatureExtractor", [POINTS, np.array([-1], np.int64)], {}),
    ("FeatureVectorizer", [POINTS, POINTS[:1]], {}),
    ("ZipMap", [POINTS], {"classlabels_int64s": [1]}),
    ("OneHotEncoder", [POINTS], {"cats_strings": ["a"]}),
    ("OneHotEncoder", [POINTS], {}),
    ("LabelEncoder", [POINTS], {"keys_floats": [1.0], "values_floats": [1.0, 2.0]}),
    ("LabelEncoder", [POINTS], {"keys_floats": [1.0]}),
    ("CategoryMapper", [np.array([1])], {"cats_int64s": [1], "cats_strings": ["a", "b"]}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), BAD_FEATURES)
def test_bad_features(op_type, inputs, attributes):
    with pytest.raises(EpError):
        ml(op_type, inputs, **attributes)


def test_encoders_by_hand():
    names = np.array([["Amy", "Dori"], ["Sally", "Amy"]], dtype=object)
    found = ml("LabelEncoder", [names], version=2, keys_strings=["Amy", "Sally"],
               values_int64s=[5, 6])  # fmt: skip
    assert found.tolist() == [[5, -1], [6, 5]]
    found = ml("LabelEncoder", [f32(NAN, 1)], version=2, keys_floats=[NAN],
               values_strings=["none"])  # fmt: skip
    assert found.tolist() == ["none", "_Unused"]
    found = ml("LabelEncoder", [np.array([2, 7], np.int64)], version=1, classes_strings=list("abc"))
    assert found.tolist() == ["c", "_Unused"]
    one_hot = ml("OneHotEncoder", [names], cats_strings=["Sally", "Amy"])
    assert one_hot.tolist() == [[[0, 1], [0, 0]], [[1, 0], [0, 1]]]


def test_maps_by_hand():
    x = f32([0.25, 0.75], [1, 0])
    found = ml("ZipMap", [x], classlabels_strings=["no", "yes"])
    assert found == [{"no": 0.25, "yes": 0.75}, {"no": 1.0, "yes": 0.0}]
    assert ml("ZipMap", [x[0]], classlabels_int64s=[4, 2]) == [{4: 0.25, 2: 0.75}]
    assert ml("CastMap", [{7: 1.5, 2: -3.0}]).tolist() == [[-3, 1.5]]
    found = ml("CastMap", [{3: 1.5, 0: -3.0}], map_form="SPARSE", max_map=4, cast_to="TO_INT64")
    assert found.tolist() == [[-3, 0, 0, 1]]
    found = ml("DictVectorizer", [{"a": 4.0, "c": 8.0}], string_vocabulary=["a", "c", "b", "z"])
    assert found.tolist() == [[4, 8, 0, 0]]
