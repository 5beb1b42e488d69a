"""Times of nodes, under the names of the model."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
from openvino_harness import graph_of, open_provider, whole

from ep_core.contracts import NodeTime

CHAIN = graph_of("""g (float[n,64] x, float[64,64] w) => (float[n,64] y, int64[2] s) {
    [product] a = MatMul (x, w)
    [bend] b = Relu (a)
    [bounded] c = Softmax <axis = -1> (b)
    [sum] y = Add (c, b)
    [size] s = Shape (y)
}""")


def test_each_run_tells_when_nodes_ran() -> None:
    provider = open_provider()
    part = provider.compile(whole(CHAIN))
    told: list[NodeTime] = []
    provider.profile_partition(part, told.append)
    inputs = [np.ones((256, 64), np.float32), np.eye(64, dtype=np.float32)]
    for _ in range(2):
        told.clear()
        begin = time.perf_counter_ns()
        outputs: list[Any] = [None, None]
        part.run(inputs, outputs)
        end = time.perf_counter_ns()
        kinds = {timed.node: timed.op_type for timed in told}
        # Fused nodes count for the one that gives the result, so that not all need be there.
        expected = {"product": "MatMul", "bend": "Relu", "bounded": "Softmax", "sum": "Add"}
        assert kinds.items() <= {**expected, "size": "Shape"}.items()
        assert "bounded" in kinds
        assert all(begin <= timed.start_ns < timed.end_ns <= end for timed in told)
        ordered = sorted(told, key=lambda timed: timed.start_ns)
        assert all(a.end_ns <= b.start_ns for a, b in itertools.pairwise(ordered))
    np.testing.assert_array_equal(outputs[1], [256, 64])
    part.close()
    provider.close()
