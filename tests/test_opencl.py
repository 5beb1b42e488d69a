"""The OpenCL provider beside others: mixed placement, whole models, missing devices.

Right answers are the CPU provider's, which other tests hold against ONNX Runtime. The policy is
off, as none of these tests is about certificates.
"""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest
from divided_model import agree, is_available, mixed_feeds, mixed_model
from divided_model import open_session as open_divided

from ep_core.errors import EpError, OptionError, PlacementError
from pretrained import fetch
from pretrained.samples import sample_feeds

pytestmark = pytest.mark.skipif(not is_available("opencl"), reason="requires: an OpenCL device")

open_session = partial(open_divided, placement_strategy="greedy")


def test_a_model_is_divided_and_gives_what_the_cpu_gives() -> None:
    feeds = mixed_feeds()
    with open_session(mixed_model(), ["cpu"]) as right:
        expected = right.run(None, feeds)
    with open_session(mixed_model(), ["opencl", "cpu"]) as ours:
        placement = ours.get_placement()
        found = ours.run(None, feeds)
    agree(found, expected)
    of = {node.op_type: node.provider for node in placement.nodes[""]}
    assert (of["MatMul"], of["Softmax"]) == ("opencl", "opencl")
    assert of["Det"] == "cpu"


def test_three_memories_in_one_model() -> None:
    feeds = mixed_feeds()
    with open_session(mixed_model(), ["cpu"]) as right:
        expected = right.run(None, feeds)
    pins = {"op:Softmax": "simulator"}
    with open_session(mixed_model(), ["opencl", "simulator", "cpu"], pin=pins) as ours:
        providers = {node.provider for node in ours.get_placement().nodes[""]}
        agree(ours.run(None, feeds), expected)
    assert providers == {"opencl", "simulator", "cpu"}


@pytest.mark.skipif(not is_available("openvino"), reason="requires: openvino")
def test_two_vendors_and_the_cpu_in_one_model() -> None:
    """Softmax on OpenVINO, products on OpenCL, strings on the CPU: copies are as predicted."""
    feeds = mixed_feeds()
    with open_session(mixed_model(), ["cpu"]) as right:
        expected = right.run(None, feeds)
    pins = {"op:Softmax": "openvino", "op:MatMul": "opencl", "op:Relu": "opencl"}
    with open_session(mixed_model(), ["opencl", "openvino", "cpu"], pin=pins) as ours:
        placement = ours.get_placement()
        agree(ours.run(None, feeds), expected)
        agree(ours.run(None, feeds), expected)
    of = {node.op_type: node.provider for node in placement.nodes[""]}
    assert (of["MatMul"], of["Softmax"], of["Cast"]) == ("opencl", "openvino", "cpu")
    crossings = sorted((copy.value, copy.source == "cpu/host") for copy in placement.copies)
    # Inputs and the determinant go up; what others read comes down, each once.
    assert crossings == [("b", False), ("c", False), ("d", True), ("w", True), ("x", True)]


def test_one_session_on_many_threads() -> None:
    feeds = mixed_feeds()
    failures: list[BaseException] = []
    with open_session(mixed_model(), ["opencl", "cpu"]) as session:
        expected = session.run(None, feeds)

        def work() -> None:
            try:
                for _ in range(10):
                    agree(session.run(None, feeds), expected, rtol=0, atol=0)
            except BaseException as error:  # noqa: BLE001 - told below
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_what_it_lacks_alone_is_an_error_with_the_reason() -> None:
    with pytest.raises(PlacementError, match="operator Det has no kernel"):
        open_session(mixed_model(), ["opencl"], disable_cpu_fallback=True)


def test_an_option_that_does_not_exist_is_told() -> None:
    with pytest.raises(OptionError, match="fuse"):
        open_session(mixed_model(), [("opencl", {"fuze": True}), "cpu"])


def test_a_model_that_does_not_fit_is_an_error_of_ours() -> None:
    with (
        open_session(mixed_model(), [("opencl", {"capacity": "4K"}), "cpu"]) as session,
        pytest.raises(EpError, match="no room"),
    ):
        session.run(None, {**mixed_feeds(), "x": np.zeros((1000, 8), np.float32)})


@pytest.mark.parametrize("name", ["ocr-detect", "picture-classifier", "picture-detector"])
def test_a_whole_pretrained_model_stays_on_the_device(name: str) -> None:
    feeds = sample_feeds(name)
    with open_session(fetch(name), ["cpu"]) as right:
        expected = right.run(None, feeds)
    with open_session(fetch(name), ["opencl"], disable_cpu_fallback=True) as ours:
        agree(ours.run(None, feeds), expected, rtol=1e-3, atol=1e-4)
