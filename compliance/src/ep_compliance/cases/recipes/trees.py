"""Trees of ai.onnx.ml: one small forest in all three forms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import numpy_helper

from ep_compliance.cases.recipes import Ask, Sample, recipe

__all__: list[str] = []

_ML = "ai.onnx.ml"

_NODES: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
    "nodes_featureids": [0, 1, 0, 0, 0, 1, 0, 0],
    "nodes_values": [0.5, -0.25, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "BRANCH_LT", "LEAF", "LEAF", "LEAF", "BRANCH_GT", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
}
_LEAVES = {"treeids": [0, 0, 0, 1, 1], "nodeids": [2, 3, 4, 1, 2]}


@recipe("TreeEnsembleRegressor", domain=_ML)
def regressor(ask: Ask) -> Iterator[Sample]:
    """Every way to aggregate, and a base value."""
    base = {
        **_NODES,
        "target_treeids": _LEAVES["treeids"],
        "target_nodeids": _LEAVES["nodeids"],
        "target_ids": [0, 0, 0, 0, 0],
        "target_weights": [1.5, -2.0, 0.5, 3.0, -1.0],
        "n_targets": 1,
    }
    x = ask.random(6, 2)
    for how in ("SUM", "AVERAGE", "MIN", "MAX"):
        yield Sample(how.lower(), [x], {**base, "aggregate_function": how}, core=True)
    yield Sample("base value", [x], {**base, "base_values": [0.75]})


@recipe("TreeEnsembleClassifier", domain=_ML)
def classifier(ask: Ask) -> Iterator[Sample]:
    """Three classes, of both types."""
    base: dict[str, Any] = {
        **_NODES,
        "class_treeids": _LEAVES["treeids"],
        "class_nodeids": _LEAVES["nodeids"],
        "class_ids": [0, 1, 2, 1, 0],
        "class_weights": [1.5, 2.0, 0.5, 3.0, 1.0],
    }
    x = ask.random(6, 2)
    named = {**base, "classlabels_strings": ["a", "b", "c"]}
    yield Sample("texts", [x], named, outputs=2, core=True)
    base["classlabels_int64s"] = [10, 20, 30]
    for transform in ("NONE", "SOFTMAX"):
        attributes = {**base, "post_transform": transform}
        yield Sample(transform.lower(), [x], attributes, outputs=2, core=True)


@recipe("TreeEnsemble", domain=_ML)
def ensemble(ask: Ask) -> Iterator[Sample]:
    """One tree with three leaves."""
    kind = ask.dtype.numpy
    attributes: dict[str, Any] = {
        "aggregate_function": 1,
        "n_targets": 2,
        "tree_roots": [0],
        "nodes_featureids": [0, 1],
        "nodes_modes": numpy_helper.from_array(np.array([0, 1], np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.array([0.5, -0.25], kind)),
        "nodes_truenodeids": [1, 0],
        "nodes_trueleafs": [0, 1],
        "nodes_falsenodeids": [2, 1],
        "nodes_falseleafs": [1, 1],
        "leaf_targetids": [0, 1, 0],
        "leaf_weights": numpy_helper.from_array(np.array([5.0, 12.0, -2.0], kind)),
    }
    yield Sample("plain", [ask.random(6, 2)], attributes, core=True)
