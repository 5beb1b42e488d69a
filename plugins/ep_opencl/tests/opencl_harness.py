"""Sessions in which everything runs on an OpenCL device, and what a test needs to have one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from ep_core import InferenceSession, SessionOptions
from ep_core.discovery.registry import registry

FACTORY = registry().factory("opencl")
DEVICES = FACTORY.devices()
OPTIONS = {name: spec.default for name, spec in FACTORY.info.options.items()}

_chosen = list(DEVICES[:1])

needs_device = pytest.mark.skipif(not DEVICES, reason=str(FACTORY.why_unavailable()))


def choose(device):
    """Have the next tests run on a device."""
    _chosen[:] = [device]


def chosen():
    """The device that tests run on."""
    return _chosen[0]


def open_provider(**options):
    return FACTORY.create(chosen(), {**OPTIONS, **options})


def session(model, options=None):
    wanted = SessionOptions()
    wanted.disable_cpu_fallback = True
    wanted.certificate_policy = "off"
    provider = ("opencl", {"device_id": chosen().id, **(options or {})})
    return InferenceSession(model.SerializeToString(), wanted, providers=[provider])


def one_node(op_type, inputs, attributes=None, *, opset=21, outputs=1, constant=()):
    """A model of one node; `inputs` are arrays, None where one is left out."""
    names = ["" if value is None else f"x{n}" for n, value in enumerate(inputs)]
    node = helper.make_node(
        op_type, names, [f"y{n}" for n in range(outputs)], "the_node", **(attributes or {})
    )
    values = {name: value for name, value in zip(names, inputs, strict=True) if name}
    weights = [onnx.numpy_helper.from_array(values.pop(f"x{n}"), f"x{n}") for n in constant]
    kinds = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in values.items()
    ]
    results = [helper.make_empty_tensor_value_info(f"y{n}") for n in range(outputs)]
    graph = helper.make_graph([node], "one", kinds, results, weights)
    domains = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10), values


def run_one(op_type, inputs, attributes=None, **settings):
    """The outputs of one node on the device."""
    model, feeds = one_node(op_type, inputs, attributes, **settings)
    with session(model) as running:
        found = running.run(None, feeds)
    return found[0] if len(found) == 1 else found


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
