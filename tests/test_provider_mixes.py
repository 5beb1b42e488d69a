"""OpenVINO, OpenCL and the CPU provider in one model: right results, and copies as predicted.

Right answers are the CPU provider's, which other tests hold against ONNX Runtime. What each of
the providers does by itself is in `test_openvino.py` and `test_opencl.py`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from divided_model import agree, is_available, mixed_feeds, mixed_model

from ep_core import CertificatePolicy, InferenceSession, PlacementReport, SessionOptions
from pretrained import fetch
from pretrained.answers import TOLERANCE, check_answer
from pretrained.samples import sample_feeds

MIXES = (("openvino", "cpu"), ("opencl", "cpu"), ("opencl", "openvino", "cpu"))
# Without them, the first provider that can takes what the second could take too.
APART = {"op:Softmax": "openvino", "op:MatMul": "opencl", "op:Relu": "opencl"}

Feeds = Mapping[str, Any]


def needs(mix: Sequence[str]) -> None:
    for name in mix:
        if not is_available(name):
            pytest.skip(f"requires: a device of {name}")


def profiled(
    model: bytes | Path, mix: Sequence[str], feeds: Feeds, folder: Path, **settings: Any
) -> tuple[list[Any], PlacementReport, list[Mapping[str, Any]]]:
    """The results of a second run, the placement, and what the run copied between memories."""
    options = SessionOptions()
    options.certificate_policy = CertificatePolicy.OFF
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "trace")
    for name, length in settings.pop("lengths", {}).items():
        options.add_free_dimension_override_by_name(name, length)
    for name, value in settings.items():
        setattr(options, name, value)
    with InferenceSession(model, options, providers=list(mix)) as session:
        session.run(None, feeds)
        outputs = session.run(None, feeds)
        report = session.get_placement()
        trace = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    begun = max(event["ts"] for event in trace if event.get("cat") == "run")
    events = [
        event["args"] for event in trace if event.get("cat") == "copy" and event["ts"] > begun
    ]
    return outputs, report, [args for args in events if args["from"] != args["to"]]


def assert_copies_as_predicted(
    report: PlacementReport, executed: Sequence[Mapping[str, Any]]
) -> None:
    """Each predicted copy is made once, no other is, and those of known size are of that size."""
    expected = Counter((copy.value, copy.source, copy.target) for copy in report.copies)
    assert Counter((args["value"], args["from"], args["to"]) for args in executed) == expected
    known = {copy.value: copy.nbytes for copy in report.copies if copy.nbytes is not None}
    moved = {args["value"]: args["bytes"] for args in executed if args["value"] in known}
    assert moved == known


@pytest.mark.parametrize("strategy", ["greedy", "cost"])
@pytest.mark.parametrize("mix", MIXES, ids=" ".join)
def test_a_model_that_none_of_them_takes_whole(
    mix: Sequence[str], strategy: str, tmp_path: Path
) -> None:
    needs(mix)
    model, feeds = mixed_model(), mixed_feeds()
    right, _, none = profiled(model, ["cpu"], feeds, tmp_path)
    assert none == []
    settings: dict[str, Any] = {"placement_strategy": strategy, "lengths": {"n": 8}}
    if len(mix) == 3:
        settings["pin"] = APART
    found, report, executed = profiled(model, mix, feeds, tmp_path, **settings)
    agree(found, right)
    assert all(copy.nbytes is not None for copy in report.copies)
    assert_copies_as_predicted(report, executed)
    if strategy == "greedy" or len(mix) == 3:
        assert {node.provider for node in report.nodes[""]} == set(mix)


# Small ones; in the first two, ends of the net run elsewhere, in the last one the middle.
REAL = (
    (("openvino", "cpu"), "picture-classifier", {"op:Softmax": "cpu", "op:MaxPool": "cpu"}),
    (("opencl", "cpu"), "picture-classifier", {"op:Softmax": "cpu", "op:MaxPool": "cpu"}),
    (("opencl", "openvino", "cpu"), "speech-fixed", {"op:LSTM": "openvino", "op:Sigmoid": "cpu"}),
)


@pytest.mark.parametrize(("mix", "name", "pins"), REAL, ids=[" ".join(mix) for mix, _, _ in REAL])
def test_a_real_model_in_parts(
    mix: Sequence[str], name: str, pins: Mapping[str, str], tmp_path: Path
) -> None:
    needs(mix)
    feeds = sample_feeds(name)
    right, _, _ = profiled(fetch(name), ["cpu"], feeds, tmp_path)
    settings: dict[str, Any] = {"placement_strategy": "greedy", "pin": pins}
    found, report, executed = profiled(fetch(name), mix, feeds, tmp_path, **settings)
    agree(found, right, **TOLERANCE[name])
    check_answer(name, found)
    assert_copies_as_predicted(report, executed)
    assert {node.provider for node in report.nodes[""]} == set(mix)
