"""Trees of ai.onnx.ml beside ONNX Runtime; where the two differ, what ONNX says is expected.

The differences, each with a test below:

- TreeEnsembleClassifier with two classes that both have votes takes the larger score, whatever the
  labels are called (ONNX Runtime returns 0 or 1 by the sign of the second score).
- A missing value takes the false branch of BRANCH_NEQ, as of every node that doesn't track it.
- A regressor with one target applies its post_transform.
- Regressors take integers, as ONNX lists; ONNX Runtime has none.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from ml_models import TRANSFORMS, check, ours, random_features, same, theirs
from onnx import TensorProto, helper

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ")


def random_forest(prefix, seed, *, trees=7, depth=4, columns=5, targets=1, modes=MODES, votes=None):
    """Attributes of a forest of unbalanced trees."""
    generator = np.random.default_rng(seed)
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    nodes = {name: [] for name in (*names, "missing_value_tracks_true")}
    leaves = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}

    def grow(tree, number, level):
        leaf = level == depth or (level > 1 and generator.random() < 0.3)
        row = {
            "treeids": tree,
            "nodeids": number,
            "featureids": 0 if leaf else int(generator.integers(columns)),
            "values": 0.0 if leaf else float(generator.integers(-4, 5) / 2),
            "modes": "LEAF" if leaf else str(generator.choice(modes)),
            "truenodeids": 0 if leaf else 2 * number + 1,
            "falsenodeids": 0 if leaf else 2 * number + 2,
            "missing_value_tracks_true": 0 if leaf else int(generator.integers(2)),
        }
        for name, value in row.items():
            nodes[name].append(value)
        if not leaf:
            grow(tree, 2 * number + 1, level + 1)
            grow(tree, 2 * number + 2, level + 1)
            return
        for target in votes(tree) if votes else range(targets):
            weight = float(np.float32(generator.normal()))
            for name, value in zip(leaves, (tree, number, target, weight), strict=True):
                leaves[name].append(value)

    for tree in range(trees):
        grow(tree, 0, 0)
    return {
        **{f"nodes_{name}": values for name, values in nodes.items()},
        **{f"{prefix}_{name}": values for name, values in leaves.items()},
    }


@pytest.mark.parametrize("mode", [*MODES, "BRANCH_NEQ", "mixed"])
def test_modes_of_tree_nodes(mode):
    modes = MODES if mode == "mixed" else (mode,)
    x = random_features(1)
    if mode == "BRANCH_NEQ":
        x = np.nan_to_num(x)
    for seed in range(4):
        forest = random_forest("target", seed, modes=modes)
        check("TreeEnsembleRegressor", [x], n_targets=1, **forest)
        del forest["nodes_missing_value_tracks_true"]
        check("TreeEnsembleRegressor", [x], version=1, n_targets=1, **forest)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_aggregates_of_tree_regressors(aggregate, targets):
    x = random_features(2)
    forest = random_forest("target", 5, targets=targets)
    settings = {"n_targets": targets, "aggregate_function": aggregate, **forest}
    check("TreeEnsembleRegressor", [x], **settings)
    base = [0.5, -1.0, 2.0][:targets]
    check("TreeEnsembleRegressor", [x], base_values=base, **settings)


@pytest.mark.parametrize("aggregate", ["SUM", "MIN", "MAX"])
def test_leaves_that_vote_for_some_targets(aggregate):
    x = random_features(3)
    forest = random_forest("target", 6, targets=4, votes=lambda tree: [tree % 3])
    check("TreeEnsembleRegressor", [x], n_targets=4, aggregate_function=aggregate, **forest)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_of_tree_regressors(transform):
    x = random_features(4)
    forest = random_forest("target", 7, targets=3)
    forest["target_weights"] = [abs(weight) / 30 for weight in forest["target_weights"]]
    check("TreeEnsembleRegressor", [x], n_targets=3, post_transform=transform, **forest)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
def test_types_of_tree_inputs(dtype):
    """ONNX Runtime has no regressors on integers."""
    x = np.nan_to_num(random_features(5)).astype(dtype)
    forest = random_forest("target", 8)
    found = ours("TreeEnsembleRegressor", [x], n_targets=1, **forest)
    floats = x.astype(np.float32)
    same(found, theirs("TreeEnsembleRegressor", [floats], n_targets=1, **forest))
    forest = random_forest("class", 9, targets=3)
    check("TreeEnsembleClassifier", [x], 2, classlabels_int64s=[3, 1, 2], **forest)


def test_trees_with_doubles():
    """Thresholds that float32 can't tell apart from the features."""
    x = np.array([[0.1], [np.nextafter(0.1, 1)], [np.nextafter(0.1, 0)]])
    forest = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "nodes_values_as_tensor": helper.make_tensor("v", TensorProto.DOUBLE, [3], [0.1, 0, 0]),
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights_as_tensor": helper.make_tensor("w", TensorProto.DOUBLE, [2], [1.0, 2.0]),
    }
    (found,) = check("TreeEnsembleRegressor", [x], n_targets=1, **forest)
    assert found.tolist() == [[1], [2], [1]]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("strings", [False, True])
def test_tree_classifier_with_many_classes(transform, strings):
    x = random_features(6)
    forest = random_forest("class", 10, targets=4)
    forest["class_weights"] = [abs(weight) / 30 for weight in forest["class_weights"]]
    labels = (
        {"classlabels_strings": list("dabc")} if strings else {"classlabels_int64s": [7, -1, 4, 0]}
    )
    settings = {**labels, **forest, "post_transform": transform}
    check("TreeEnsembleClassifier", [x], 2, **settings)
    check("TreeEnsembleClassifier", [x], 2, base_values=[0.1, 0.2, 0.3, 0.15], **settings)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("base", [None, [0.25]])
def test_boosted_trees_for_two_classes(transform, base):
    """All leaves vote for class 0, as gradient boosting writes it; the score is that of class 1."""
    x = random_features(7)
    forest = random_forest("class", 11, votes=lambda _: [0])
    settings = {**forest, "post_transform": transform, "classlabels_int64s": [10, 20]}
    if base:
        settings["base_values"] = base
    check("TreeEnsembleClassifier", [x], 2, **settings)


def test_forests_of_probabilities_for_two_classes():
    x = random_features(8)
    forest = random_forest("class", 12, votes=lambda _: [0])
    forest["class_weights"] = [abs(weight) / 10 for weight in forest["class_weights"]]
    labels, scores = check(
        "TreeEnsembleClassifier", [x], 2, classlabels_strings=["no", "yes"], **forest
    )
    assert labels.tolist() == np.where(scores[:, 1] > 0.5, "yes", "no").tolist()
    assert {"no", "yes"} == set(labels.tolist())
    forest["class_ids"] = [1] * len(forest["class_ids"])
    check("TreeEnsembleClassifier", [x], 2, classlabels_strings=["no", "yes"], **forest)


def test_missing_values_take_the_false_branch_of_not_equal():
    """ONNX: missing_value_tracks_true alone decides. ONNX Runtime follows NaN != 0."""
    x = np.array([[0], [1], [np.nan]], np.float32)
    forest = stump("target", [{0: 1.0}, {0: 2.0}])
    forest["nodes_modes"] = ["BRANCH_NEQ", "LEAF", "LEAF"]
    (found,) = ours("TreeEnsembleRegressor", [x], n_targets=1, **forest)
    assert found[:, 0].tolist() == [2, 1, 2]
    forest["nodes_missing_value_tracks_true"] = [1, 0, 0]
    (found,) = check("TreeEnsembleRegressor", [x], n_targets=1, **forest)
    assert found[:, 0].tolist() == [2, 1, 1]
    (found,) = check("TreeEnsembleRegressor", [x[:2]], n_targets=1, **forest)


def stump(prefix, votes):
    """One tree of one feature: the first leaf for x <= 0, the second above; votes by leaf."""
    flat = [(leaf + 1, target, weight) for leaf, pairs in enumerate(votes)
            for target, weight in pairs.items()]  # fmt: skip
    return {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.0, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        f"{prefix}_treeids": [0] * len(flat),
        f"{prefix}_nodeids": [leaf for leaf, _, _ in flat],
        f"{prefix}_ids": [target for _, target, _ in flat],
        f"{prefix}_weights": [weight for _, _, weight in flat],
    }


SIGNS = np.array([[-1], [1]], np.float32)


def test_two_classes_with_votes_for_both_take_the_larger_score():
    """ONNX: "Returns the top class". ONNX Runtime gives [1, 1] here, which are no labels even."""
    forest = stump("class", [{0: 0.7, 1: 0.3}, {0: 0.2, 1: 0.8}])
    labels, scores = ours(
        "TreeEnsembleClassifier", [SIGNS], 2, classlabels_int64s=[10, 20], **forest
    )
    assert labels.tolist() == [10, 20]
    np.testing.assert_allclose(scores, [[0.7, 0.3], [0.2, 0.8]], rtol=1e-6)


def test_margin_of_positive_weights_is_a_margin_under_logistic():
    """The label agrees with the probability, where ONNX Runtime wants the margin above 0.5."""
    forest = stump("class", [{0: 0.3}, {0: 0.8}])
    settings = {"classlabels_int64s": [10, 20], "post_transform": "LOGISTIC", **forest}
    labels, scores = ours("TreeEnsembleClassifier", [SIGNS], 2, **settings)
    assert labels.tolist() == [20, 20]
    same([scores], theirs("TreeEnsembleClassifier", [SIGNS], 2, **settings)[1:])


def test_post_transform_of_one_target_is_applied():
    """ONNX Runtime applies only PROBIT where there is one target."""
    forest = stump("target", [{0: -1.0}, {0: 1.0}])
    settings = {"n_targets": 1, **forest}
    (found,) = ours("TreeEnsembleRegressor", [SIGNS], post_transform="LOGISTIC", **settings)
    np.testing.assert_allclose(found, [[0.26894143], [0.7310586]], rtol=1e-6)


def ensemble(modes, splits, *, members=None, dtype=np.float32, **settings):
    """TreeEnsemble of one tree that is a chain: a node's true branch is leaf i, false goes on."""
    count = len(modes)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def tensor(values, kind=kind):
        return helper.make_tensor("t", kind, [len(values)], values)

    attributes = {
        "tree_roots": [0],
        "n_targets": 1,
        "nodes_featureids": [0] * count,
        "nodes_modes": tensor(modes, TensorProto.UINT8),
        "nodes_splits": tensor(splits),
        "nodes_truenodeids": list(range(count)),
        "nodes_trueleafs": [1] * count,
        "nodes_falsenodeids": [*range(1, count), count],
        "nodes_falseleafs": [0] * (count - 1) + [1],
        "leaf_targetids": [0] * (count + 1),
        "leaf_weights": tensor([float(i + 1) for i in range(count + 1)]),
        **settings,
    }
    if members is not None:
        attributes["membership_values"] = tensor(members)
    return attributes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tree_ensemble_of_version_5(dtype):
    x = np.array([[-1], [0], [1], [2], [3], [4], [5], [np.nan]], dtype)
    for mode in range(5):
        for tracks in ([0, 0], [1, 0], [0, 1]):
            settings = ensemble([mode, 4 - mode], [1.0, 3.0], dtype=dtype)
            settings["nodes_missing_value_tracks_true"] = tracks
            check("TreeEnsemble", [x], version=5, **settings)
    for aggregate, transform in itertools.product(range(4), (0, 4)):
        settings = ensemble([0, 1], [1.0, 3.0], dtype=dtype, aggregate_function=aggregate)
        settings["leaf_weights"] = helper.make_tensor(
            "w", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [3], [0.25, 0.5, 0.75]
        )
        check("TreeEnsemble", [x], version=5, post_transform=transform, **settings)


def test_set_membership_in_trees():
    nan = float("nan")
    x = np.array([[-1], [0], [1], [2], [3], [4], [5], [1.5], [nan]], np.float32)
    settings = ensemble([6, 0, 6], [0.0, 0.5, 0.0], members=[3.0, 1.0, nan, 5.0, 4.0, 0.0, nan])
    (found,) = check("TreeEnsemble", [x], version=5, **settings)
    assert found[:, 0].tolist() == [2, 2, 1, 4, 1, 3, 3, 4, 4]


def test_many_members():
    generator = np.random.default_rng(3)
    members = generator.choice(200, 60, replace=False).astype(float)
    x = np.concatenate([np.arange(-3, 203), np.arange(0, 200, 7) + 0.5]).astype(np.float32)[:, None]
    settings = ensemble([6], [0.0], members=[*members, float("nan")])
    (found,) = ours("TreeEnsemble", [x], version=5, **settings)
    assert found[:, 0].tolist() == np.where(np.isin(x[:, 0], members), 1, 2).tolist()


def test_large_batches_of_deep_trees():
    """More rows than walk down together, and trees deep enough to drop what has arrived."""
    generator = np.random.default_rng(4)
    x = generator.normal(size=(40_000, 3)).astype(np.float32)
    chain = {f"nodes_{k}": [] for k in ("treeids", "nodeids", "featureids", "values", "modes",
                                        "truenodeids", "falsenodeids")}  # fmt: skip
    votes = {f"target_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(3):
        for level in range(24):
            threshold = float(np.float32(generator.normal()))
            for mode, number in (("BRANCH_LT", 2 * level), ("LEAF", 2 * level + 1)):
                row = (tree, number, level % 3, threshold, mode, number + 1, number + 2)
                for values, value in zip(chain.values(), row, strict=True):
                    values.append(value)
        for values, value in zip(chain.values(), (tree, 48, 0, 0.0, "LEAF", 0, 0), strict=True):
            values.append(value)
        for number in (*range(1, 48, 2), 48):
            for values, value in zip(votes.values(), (tree, number, 0, float(number)), strict=True):
                values.append(value)
    check("TreeEnsembleRegressor", [x], n_targets=1, **chain, **votes)
