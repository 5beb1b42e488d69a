"""The OpenVINO provider beside others: mixed placement, real sessions, caches, reports.

Right answers are the CPU provider's, which other tests hold against ONNX Runtime. The policy is
off where a test is about something else than certificates.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from divided_model import agree, is_available, mixed_feeds, mixed_model, open_session
from onnx import parser

from ep_core.errors import EpError, OptionError, PlacementError
from pretrained import fetch
from pretrained.samples import sample_feeds

pytestmark = pytest.mark.skipif(not is_available("openvino"), reason="requires: openvino installed")


def test_what_openvino_lacks_runs_on_the_cpu_without_a_copy() -> None:
    with open_session(mixed_model(), ["cpu"]) as alone:
        right = alone.run(None, mixed_feeds())
    with open_session(mixed_model(), ["openvino", "cpu"], placement_strategy="greedy") as session:
        agree(session.run(None, mixed_feeds()), right)
        placement = session.get_placement()
    owners = {node.op_type: node.provider for node in placement.nodes[""]}
    assert owners["MatMul"] == owners["Softmax"] == "openvino"
    assert owners["Det"] == owners["Cast"] == "cpu"
    assert placement.copies == ()


def test_without_another_provider_the_reason_is_told() -> None:
    with pytest.raises(PlacementError, match=r"openvino: .*No conversion rule.*Det"):
        open_session(mixed_model(), ["openvino"], disable_cpu_fallback=True)


def test_beside_a_device_with_memory_of_its_own() -> None:
    with open_session(mixed_model(), ["cpu"]) as alone:
        right = alone.run(None, mixed_feeds())
    with open_session(mixed_model(), ["simulator", "openvino", "cpu"]) as session:
        agree(session.run(None, mixed_feeds()), right)


@pytest.mark.parametrize("name", ["ocr-detect", "picture-classifier", "speech-sequence"])
def test_a_real_model_in_one_partition(name: str) -> None:
    feeds = sample_feeds(name)
    with open_session(fetch(name), ["cpu"]) as alone:
        right = alone.run(None, feeds)
    with open_session(fetch(name), ["openvino", "cpu"], placement_strategy="greedy") as session:
        agree(session.run(None, feeds), right, rtol=1e-3, atol=1e-4)
        (partition,) = session.get_placement().partitions
    assert partition.provider == "openvino"


def test_a_second_session_takes_what_the_first_compiled(tmp_path: Path) -> None:
    feeds = sample_feeds("picture-classifier")
    found = []
    for _ in range(2):
        settings = {"cache_dir": str(tmp_path), "placement_strategy": "greedy"}
        model = fetch("picture-classifier")
        with open_session(model, ["openvino", "cpu"], **settings) as session:
            found.append((session.run(None, feeds), session.get_placement().partitions))
    (first, (compiled,)), (second, (imported,)) = found
    assert (compiled.from_cache, imported.from_cache) == (False, True)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_another_precision_is_another_artifact(tmp_path: Path) -> None:
    model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 20]>
        g (float[16,512] x, float[512,16] w) => (float[16,16] y) { y = MatMul (x, w) }""")
    rng = np.random.default_rng(0)
    feeds = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in (("x", (16, 512)), ("w", (512, 16)))
    }
    for _ in range(2):
        for precision in ("f32", "bf16"):
            try:
                session = open_session(
                    model.SerializeToString(),
                    [("openvino", {"precision": precision}), "cpu"],
                    cache_dir=str(tmp_path),
                    placement_strategy="greedy",
                )
            except OptionError:
                pytest.skip("requires: a CPU that computes in bf16")
            with session:
                (y,) = session.run(None, feeds)
            error = np.max(np.abs(y - feeds["x"].astype(np.float64) @ feeds["w"]))
            assert bool(error < 1e-3) is (precision == "f32")


def test_threads_of_the_session_reach_openvino() -> None:
    with open_session(mixed_model(), ["openvino", "cpu"], intra_op_num_threads=1) as session:
        (candidate,) = [c for c in session._candidates if c.info.name == "openvino"]
        assert candidate.provider._configuration.properties["INFERENCE_NUM_THREADS"] == 1


def test_many_threads_on_one_session() -> None:
    with open_session(mixed_model(), ["openvino", "cpu"]) as session:
        right = session.run(None, mixed_feeds())
        failures: list[Exception] = []

        def work() -> None:
            try:
                for _ in range(20):
                    agree(session.run(None, mixed_feeds()), right)
            except Exception as error:  # noqa: BLE001 - reported by the test's own thread
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"device_id": "GPU.7"}, r"one of 'CPU' .*got 'GPU\.7'"),
        ({"precison": "bf16"}, "Did you mean 'precision'"),
        ({"precision": "f8"}, "expected one of f32, f16, bf16"),
        ({"properties": "ENABLE_CPU_PINING=NO"}, "Did you mean 'ENABLE_CPU_PINNING'"),
        ({"target": "HETERO:GPU.7,CPU"}, r"'GPU\.7', which isn't there"),
    ],
)
def test_wrong_options_say_what_would_be_right(options: Mapping[str, str], expected: str) -> None:
    with pytest.raises(EpError, match=expected):
        open_session(mixed_model(), [("openvino", options), "cpu"])


@pytest.mark.parametrize("target", ["AUTO:CPU", "HETERO:CPU"])
def test_ways_to_use_several_devices(target: str) -> None:
    with open_session(mixed_model(), ["cpu"]) as alone:
        right = alone.run(None, mixed_feeds())
    with open_session(mixed_model(), [("openvino", {"target": target}), "cpu"]) as session:
        agree(session.run(None, mixed_feeds()), right)
