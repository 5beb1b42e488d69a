"""Random models, split between providers at random: every way has to give the same answer.

What the CPU provider alone gives is held against ONNX Runtime; what the others give against the
CPU provider. Each session runs several times, with other lengths in between, while the caller
overwrites what earlier runs gave.
"""

from __future__ import annotations

import copy

import numpy as np
import onnx
import pytest
from onnx import helper
from ort_process import OrtProcess
from random_graphs import random_model

from ep_core import InferenceSession, SessionOptions
from ep_core.contracts import API_VERSION, OptionSpec, ProviderInfo
from ep_core.discovery.registry import registry
from ep_core.hookspecs import hookimpl
from ep_core.types import DeviceInfo
from ep_cpu.provider import CpuProvider
from ep_sdk import StandardFactory, as_names

SEEDS = 240
LENGTHS = (2, 5, 1, 2, 0)
OPERATORS = (
    *("Add", "Sub", "Mul", "Max", "Min", "Clip", "Relu", "Neg", "Abs", "Sign", "Floor", "Identity"),
    *(
        "Cast",
        "Transpose",
        "Unsqueeze",
        "Squeeze",
        "Reshape",
        "Concat",
        "Slice",
        "Gather",
        "MatMul",
    ),
    *("ReduceSum", "Less", "Greater", "Equal", "Where", "Shape", "Not", "Dropout", "TopK"),
)


class SecondCpu(CpuProvider):
    """The CPU provider once more, without some operators."""

    def find_row(self, kernel_node):
        if kernel_node.node.op_type in self.options["skip"]:
            return "told to skip it"
        return super().find_row(kernel_node)


class SecondCpuPlugin:
    @hookimpl
    def ep_provider_factory(self):
        options = {"skip": OptionSpec("", "operators", as_names)}
        info = ProviderInfo("second", "1", API_VERSION, options=options)
        devices = [DeviceInfo("second", "0", "cpu")]
        return StandardFactory(info, lambda: devices, SecondCpu)


@pytest.fixture(scope="module", autouse=True)
def second_cpu():
    registry().register(SecondCpuPlugin(), name="second")
    yield
    registry().unregister("second")


@pytest.fixture(scope="module")
def onnx_runtime():
    process = OrtProcess()
    yield process
    process.close()


def mixture(rng):
    """Providers, each without a random part of the operators."""

    def some(share, **options):
        return {"skip": [op for op in OPERATORS if rng.random() < share], **options}

    choices = [
        lambda: [("simulator", some(0.3)), "cpu"],
        lambda: [
            ("simulator", some(0.5, device_id="1")),
            ("simulator", some(0.3, device_id="0")),
            "cpu",
        ],
        lambda: [("second", some(0.5)), "cpu"],
        lambda: [("second", some(0.6)), ("simulator", some(0.3)), "cpu"],
        lambda: [("simulator", some(0.6)), ("second", some(0.6)), "cpu"],
    ]
    return choices[int(rng.integers(len(choices)))]()


def options_of(level):
    options = SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    return options


def is_same(left, right):
    if isinstance(left, list):
        pairs = zip(left, right, strict=True)
        return isinstance(right, list) and all(is_same(a, b) for a, b in pairs)
    alike = left.dtype == right.dtype and left.shape == right.shape
    return alike and np.array_equal(left, right)


def all_same(left, right):
    return all(is_same(a, b) for a, b in zip(left, right, strict=True))


def overwrite(values):
    for value in values:
        if isinstance(value, list):
            overwrite(value)
        elif value.dtype != object:
            value[...] = 1


@pytest.mark.parametrize("start", range(0, SEEDS, 20))
def test_any_mixture_of_providers_gives_what_the_cpu_alone_gives(start):
    for seed in range(start, start + 20):
        rng = np.random.default_rng(seed)
        random = random_model(seed)
        level = int(rng.choice([0, 1, 2, 99]))
        with (
            InferenceSession(random.model, options_of(99), providers=["cpu"]) as alone,
            InferenceSession(random.model, options_of(level), providers=mixture(rng)) as mixed,
        ):
            for number, length in enumerate(LENGTHS):
                feeds = random.feeds(number, length)
                before = copy.deepcopy(feeds)
                expected = alone.run(None, feeds)
                got = mixed.run(None, feeds)
                assert all_same(got, expected), f"seed {seed}, length {length}"
                overwrite(got)
                assert all_same(mixed.run(None, feeds), expected), f"seed {seed}, repeated"
                assert all(is_same(feeds[name], before[name]) for name in feeds), f"seed {seed}"


def test_the_cpu_alone_gives_what_onnx_runtime_gives(onnx_runtime):
    compared = 0
    for seed in range(SEEDS):
        random = random_model(seed)
        names = [value.name for value in random.model.graph.output]
        runs = [random.feeds(number, length) for number, length in enumerate(LENGTHS[:3])]
        answers = onnx_runtime.run(without_passing_on(random.model), names, runs)
        with InferenceSession(random.model, options_of(0), providers=["cpu"]) as alone:
            for feeds, expected in zip(runs, answers, strict=True):
                if expected is not None:
                    assert all_same(alone.run(None, feeds), expected), f"seed {seed}"
                    compared += 1
    assert compared > 2 * SEEDS


def without_passing_on(model):
    """The model with bodies that copy an input they give as output.

    ONNX Runtime gives such outputs memory that it writes to in later rounds.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for body in list(_bodies(changed.graph)):
        inputs = {value.name for value in body.input}
        for output in body.output:
            if output.name in inputs:
                body.node.append(helper.make_node("Identity", [output.name], [f"{output.name}_"]))
                output.name += "_"
    return changed.SerializeToString()


def _bodies(graph):
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g
                yield from _bodies(attribute.g)
