"""Which provider computes constants: whoever runs the node, or the quickest where it is all one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from reference_provider import ReferenceFactory

from ep_core.contracts import ProviderFeatures
from ep_core.folding import Evaluator
from ep_core.loading.load import load_model
from ep_core.partition import Candidate
from ep_core.types import DeviceInfo


def candidate(name, **features):
    factory = ReferenceFactory(name)
    factory.features = replace(ProviderFeatures(), **features)
    provider = factory.create(DeviceInfo(name, "0", "cpu"), {})
    return Candidate(name, provider, lambda graph, node: (True, ""))


def computed_by(text, *inputs):
    """The value, and the provider that computed it: the first keeps artifacts, the second not."""
    slow, quick = candidate("slow", artifacts=True), candidate("quick")
    header = '<ir_version: 8, opset_import: ["" : 17]> '
    graph = load_model(onnx.parser.parse_model(header + text)).graph
    (value,) = Evaluator([slow, quick])(graph, graph.nodes[0], inputs)
    (name,) = [c.name for c in (slow, quick) if c.provider.partitions]
    return value, name


FLOATS = np.float32([[1, 2], [3, 4]])
WHOLE = np.int64([5])


@pytest.mark.parametrize(
    ("text", "inputs", "name"),
    [
        ("g (float[2,2] x) => (float[2,2] y) { y = Exp(x) }", [FLOATS], "slow"),
        ("g (float[2,2] x) => (float[2,2] y) { y = MatMul(x, x) }", [FLOATS, FLOATS], "slow"),
        ("g (float[2,2] x) => (int32[2,2] y) { y = Cast<to = 6>(x) }", [FLOATS], "slow"),
        ("g (float[2,2] x) => (float[2,2] y) { y = Transpose(x) }", [FLOATS], "quick"),
        ("g (float[2,2] x) => (float[2,2] y) { y = Mul(x, x) }", [FLOATS, FLOATS], "quick"),
        ("g (int8[1] x) => (float[1] y) { y = Cast<to = 1>(x) }", [np.int8([7])], "quick"),
        ("g (int64[1] x) => (int64[1] y) { y = Abs(x) }", [WHOLE], "slow"),
    ],
)
def test_who_computes(text, inputs, name):
    value, found = computed_by(text, *inputs)
    assert found == name
    assert value.shape == inputs[0].shape
