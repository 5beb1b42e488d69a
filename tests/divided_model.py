"""A model that providers of devices take in parts, and what it takes to run and compare it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import parser

from ep_core import InferenceSession, SessionOptions
from ep_core.discovery.registry import ProviderState, registry

CLOSE = {"rtol": 1e-4, "atol": 1e-5}

MIXED = """<ir_version: 9, opset_import: ["" : 20]>
mixed (float[n,8] x, float[8,8] w) => (float[n,8] y, string[n,8] text, float d) {
    a = MatMul (x, w)
    b = Relu (a)
    d = Det (b)
    text = Cast <to = 8> (b)
    c = Add (b, d)
    y = Softmax <axis = -1> (c)
}"""
"""Two parts that devices take, with a determinant and strings in between, which they don't."""


def is_available(provider: str) -> bool:
    """A requirement of tests: the provider is installed and has a device here."""
    if provider not in registry().available():
        return False
    return registry().status(provider).state is ProviderState.AVAILABLE


def open_session(
    model: bytes | str, providers: list[Any], policy: str = "off", **settings: Any
) -> InferenceSession:
    options = SessionOptions()
    options.certificate_policy = policy
    for name, value in settings.items():
        setattr(options, name, value)
    return InferenceSession(model, options, providers=providers)


def mixed_model() -> bytes:
    return parser.parse_model(MIXED).SerializeToString()


def mixed_feeds() -> Mapping[str, Any]:
    values = np.random.default_rng(0).standard_normal((2, 8, 8)).astype(np.float32)
    return {"x": values[0], "w": values[1]}


def agree(ours: list[Any], right: list[Any], **tolerance: float) -> None:
    for a, b in zip(ours, right, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if a.dtype == object:
            # Texts of floats differ in the last digit.
            a, b = a.astype(np.float64), b.astype(np.float64)
        np.testing.assert_allclose(a, b, **(tolerance or CLOSE))
