"""Questions: support vectors whose labels are texts, which onnx's reference doesn't take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from contrib_cases.asking import Asked, Values, question

__all__: list[str] = []

_KERNEL: dict[str, Any] = {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0]}
_TWO: dict[str, Any] = {
    **_KERNEL,
    "support_vectors": [1.0, 2.0, 0.5, -1.0, -1.5, 0.25],
    "vectors_per_class": [2, 1],
    "coefficients": [0.5, 0.75, -1.25],
    "rho": [0.25],
    "classlabels_strings": ["a", "b"],
}
_THREE: dict[str, Any] = {
    **_KERNEL,
    "support_vectors": [1.0, 2.0, 0.5, -1.0, -1.5, 0.25],
    "vectors_per_class": [1, 1, 1],
    "coefficients": [0.5, -0.75, 0.25, 1.0, -1.25, -0.5],
    "rho": [0.25, -0.125, 0.5],
    "classlabels_strings": ["a", "b", "c"],
}


@question
def support_vectors() -> Iterator[Asked]:
    """Two and three classes, with and without probabilities."""
    v = Values("support vectors")
    two, both = {"prob_a": [-1.5], "prob_b": [0.25]}, (True, True)
    three = {"prob_a": [-1.5, -1.0, -0.75], "prob_b": [0.25, 0.0, -0.125]}
    forms = {
        "two classes": _TWO,
        "two classes, probabilities": {**_TWO, **two},
        "three classes": _THREE,
        "three classes, probabilities": {**_THREE, **three},
    }
    for name, attributes in forms.items():
        inputs = [v.floats(4, 2)]
        yield Asked("SVMClassifier", name, inputs, both, attributes, domain="ai.onnx.ml")
    for kind in ("int64", "int32"):
        inputs = [v.integers(4, 2, kind=kind, low=-2, high=3)]
        yield Asked("SVMClassifier", kind, inputs, both, _TWO, domain="ai.onnx.ml")
