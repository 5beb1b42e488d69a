"""Sessions in which everything runs on a CUDA device, and what a test needs to have one."""

from __future__ import annotations

import numpy as np
from onnx import helper

from ep_core import InferenceSession, SessionOptions
from ep_core.types import DataType
from ep_cuda import ep_provider_factory

FACTORY = ep_provider_factory()
DEVICES = FACTORY.devices()
OPTIONS = {name: spec.default for name, spec in FACTORY.info.options.items()}


def why_skipped():
    """Why there is no device."""
    return f"needs a CUDA device: {FACTORY.why_unavailable()}"


def open_provider(device_id="0", **options):
    device = next(found for found in DEVICES if found.id == device_id)
    return FACTORY.create(device, {**OPTIONS, **options})


def session(model, device_id, **options):
    wanted = SessionOptions()
    wanted.disable_cpu_fallback = True
    wanted.certificate_policy = "off"
    provider = ("cuda", {"device_id": device_id, **options})
    return InferenceSession(model.SerializeToString(), wanted, providers=[provider])


def model_of(op_type, inputs, attributes=None, *, opset=21):
    """A model of one node; `inputs` are arrays."""
    names = [f"x{n}" for n in range(len(inputs))]
    node = helper.make_node(op_type, names, ["y"], "the_node", **(attributes or {}))
    kinds = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in zip(names, inputs, strict=True)
    ]
    graph = helper.make_graph([node], "one", kinds, [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10
    ), dict(zip(names, inputs, strict=True))


def run_one(device_id, op_type, inputs, attributes=None, **options):
    """The output of one node on the device."""
    model, feeds = model_of(op_type, inputs, attributes)
    with session(model, device_id, **options) as running:
        return running.run(None, feeds)[0]


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def upload(provider, array):
    """A buffer of a provider with the values of an array, when they are there."""
    buffer = provider.allocator.allocate(array.shape, DataType.from_numpy(array.dtype))
    provider.data_transfer.copy(array, buffer, None)
    return buffer


def download(provider, buffer):
    """The values of a buffer."""
    array = np.empty(buffer.shape, buffer.dtype.numpy)
    provider.data_transfer.copy(buffer, array, None)
    return array
