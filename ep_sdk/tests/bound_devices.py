"""Sessions and values on simulated devices, and small models for them."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import onnx

from ep_core import InferenceSession, OrtValue, SessionOptions

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
CHAIN = HEAD + "g (float[4] x) => (float[4] y, float[4] z) { a = Exp(x) y = Neg(a) z = Add(y, x) }"
FREE = HEAD + "g (float[N] x) => (float[N] y) { y = Neg(x) }"
LOOP = (
    HEAD
    + """
g (float[4] x, int64 count) => (float[4] total, float[4] twice) {
    start = Identity(x)
    total = Loop (count, , start) <body = body
        (int64 i, bool go, float[4] before) => (bool more, float[4] after) {
            more = Identity(go)
            after = Add(before, x)
        }>
    twice = Add(total, total)
}
"""
)
X = np.float32([1, 2, 3, 4])
Y = -np.exp(X)
Z = Y + X


@contextlib.contextmanager
def sessions_on_devices():
    """Gives `make(text, device=..., **options)`: on one simulated device; leaves nothing behind."""
    opened = []
    threads = threading.active_count()

    def make(text=CHAIN, device=0, **options):
        settings = SessionOptions()
        settings.disable_cpu_fallback = True
        providers = [("simulator", {"device_id": str(device), **options})]
        model = onnx.parser.parse_model(text).SerializeToString()
        opened.append(InferenceSession(model, settings, providers))
        return opened[-1]

    yield make
    for one in opened:
        one.close()
    assert threading.active_count() == threads


def on(device, array=X) -> OrtValue:
    return OrtValue.ortvalue_from_numpy(array, "simulator", device)


def empty_on(device, *shape, dtype=np.float32) -> OrtValue:
    return OrtValue.ortvalue_from_shape_and_type(shape, dtype, "simulator", device)


def provider_of(one: InferenceSession):
    return one._ports.providers[0]


def in_use(one: InferenceSession) -> int:
    return provider_of(one).allocator.stats().in_use_bytes


def ends(binding) -> list[tuple[str, str, str]]:
    return [
        (copy.value, copy.source.split("/")[0], copy.target.split("/")[0])
        for copy in binding.get_copies()
    ]
