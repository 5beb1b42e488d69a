"""Small models with weights that differ in one thing only: numbers, or shapes.

Their graphs, values and nodes have the same names, so that whoever tells compiled models apart by
names mixes them up. Right values are the business of cases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ep_compliance.driving.bench import OPSET, Probe, claims_all, whole
from ep_compliance.driving.findings import NotClaimed
from ep_core.contracts import ExecutionProvider
from ep_core.errors import EpError
from ep_core.loading.load import load_model
from ep_core.types import DataType

__all__ = ["Weighted", "find_weighted"]

_OPERATORS = ("Add", "Sub", "Mul", "MatMul", "Max")
_TYPES = (DataType.FLOAT, DataType.FLOAT16, DataType.INT32, DataType.INT64, DataType.INT8)


@dataclass(frozen=True, slots=True)
class Weighted:
    """`h = operator(x, v); y = operator(h, w)` on square matrices.

    Attributes:
        weights: 1, 2 or 3; other numbers in `v` and `w`, and other answers.
        side: length of the matrices.
    """

    operator: str
    dtype: DataType
    weights: int = 1
    side: int = 8

    def model(self) -> onnx.ModelProto:
        """The model."""
        shape = [self.side, self.side]
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            [
                helper.make_node(self.operator, ["x", "v"], ["h"], "first"),
                helper.make_node(self.operator, ["h", "w"], ["y"], "second"),
            ],
            "weighted",
            [info("x", self.dtype, shape)],
            [info("y", self.dtype, shape)],
            [numpy_helper.from_array(self._numbers(seed), name) for seed, name in enumerate("vw")],
        )
        imports = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)

    def probe(self) -> Probe:
        """The model as a subgraph, with inputs smaller than any weight."""
        inputs = np.random.default_rng(self.side).integers(1, 4, (self.side, self.side))
        return Probe(whole(load_model(self.model()).graph), (inputs.astype(self.dtype.numpy),))

    def _numbers(self, seed: int) -> np.ndarray:
        """Whole numbers that no other `weights` have, small enough for half precision."""
        generator = np.random.default_rng(seed)
        low = 4 * self.weights
        numbers = generator.integers(low, low + 4, (self.side, self.side))
        return numbers.astype(self.dtype.numpy)


def find_weighted(provider: ExecutionProvider) -> Weighted:
    """The first model of this kind that a provider claims as a whole.

    Raises:
        NotClaimed: it claims none.
    """
    for dtype in _TYPES:
        for operator in _OPERATORS:
            found = Weighted(operator, dtype)
            try:
                graph = load_model(found.model()).graph
            except EpError:
                continue  # Not every type is valid for every operator in this opset.
            if claims_all(provider, graph):
                return found
    raise NotClaimed("claims no common operator with a constant, so there is nothing to compile")
