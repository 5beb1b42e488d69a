"""Providers whose claims change from call to call: the session is right, or says what is wrong."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import parser
from reference_provider import ReferenceProvider

from ep_core import InferenceSession, SessionOptions
from ep_core.contracts import Capability, Support
from ep_core.errors import PlacementError

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
chain (float[N] x, bool flag) => (float[N] z)
{
  a = Abs(x)
  b = Neg(a)
  c = If (flag) <
    then_branch = body () => (float[N] t) { u = Tanh(b)  t = Abs(u) },
    else_branch = body () => (float[N] e) { e = Relu(b) }
  >
  d = Neg(c)
  z = Tanh(d)
}
"""
X = np.array([-1.5, 0.25, 3.0], np.float32)
RIGHT = {
    True: np.tanh(-np.abs(np.tanh(-np.abs(X)))),
    False: np.tanh(-np.maximum(-np.abs(X), 0)),
}


def changing(monkeypatch, say):
    """Let the provider `fast` answer `say(call, position)` for every node."""
    calls = itertools.count()
    honest = ReferenceProvider.get_capability

    def get_capability(self, graph):
        if self.info.name != "fast":
            return honest(self, graph)
        call = next(calls)
        return Capability(
            tuple(
                support if say(call, position) else Support(False, "not now")
                for position, support in enumerate(honest(self, graph).nodes)
            )
        )

    monkeypatch.setattr(ReferenceProvider, "get_capability", get_capability)


def level(number):
    options = SessionOptions()
    options.graph_optimization_level = number
    return options


@pytest.mark.parametrize("optimization", [0, 99])
@pytest.mark.parametrize(
    "say",
    [
        lambda call, position: call % 2,
        lambda call, position: not call % 2,
        lambda call, position: (call + position) % 2,
        lambda call, position: call == 0,
        lambda call, position: call > 2,
        *(
            lambda call, position, n=n: (2654435761 * (call + 7 * position + n) >> 4) % 2
            for n in range(6)
        ),
    ],
)
@pytest.mark.parametrize("refuses", [(), ("Neg",), ("Abs", "Neg", "Relu", "Tanh")])
def test_the_answer_stays_right(provide, monkeypatch, say, optimization, refuses):
    changing(monkeypatch, say)
    provide("fast", fail_compile=refuses)
    provide()
    options = level(optimization)
    with InferenceSession(parser.parse_model(MODEL), options, providers=["fast", "cpu"]) as session:
        for flag, right in RIGHT.items():
            (z,) = session.run(None, {"x": X, "flag": np.array(flag)})
            np.testing.assert_allclose(z, right, rtol=1e-6)


def test_alone_it_is_told(provide, monkeypatch):
    changing(monkeypatch, lambda call, position: False)
    provide("fast")
    options = level(99)
    options.disable_cpu_fallback = True
    with pytest.raises(PlacementError, match="not now"):
        InferenceSession(parser.parse_model(MODEL), options, providers=["fast"])
