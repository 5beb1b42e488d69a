"""`ep explain` with real providers and models: its placement is the session's, its files work."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from ep_core import InferenceSession
from ep_tools.cli import main
from ep_tools.explain_placing import place_model
from ep_tools.requests import PlacementRequest, SessionRequest
from ep_tools.sessions import open_session
from pretrained import fetch

BOTH = ["simulator", "cpu"]


def feeds_of(session: InferenceSession) -> dict[str, np.ndarray]:
    """Small whole numbers for every input; dimensions that are open become 1."""
    rng = np.random.default_rng(5)
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
    return {
        arg.name: rng.integers(
            0, 200, [dim if isinstance(dim, int) else 1 for dim in arg.shape]
        ).astype(kinds[arg.type])
        for arg in session.get_inputs()
    }


WISHES = {
    "auto": PlacementRequest(),
    "cost": PlacementRequest("cost"),
    "pinned": PlacementRequest("cost", [("*", "cpu")], max_copies=0),
}


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("level", [0, 99])
@pytest.mark.parametrize("name", ["speech", "file-type", "arabic-marks", "ocr-orientation"])
def test_the_placement_is_the_sessions(name, level, wish):
    request = SessionRequest(str(fetch(name)), BOTH, level=level, placement=WISHES[wish])
    with open_session(request) as session:
        expected = session.get_placement()
    placed = place_model(request)
    assert placed.report == expected
    assert list(placed.graphs) == list(placed.steps)
    for scope, steps in placed.steps.items():
        mine = [i for i, part in enumerate(expected.partitions) if part.scope == scope]
        assert [step.index for step in steps if step.kind == "partition"] == mine
        mine = [i for i, copy in enumerate(expected.copies) if copy.scope == scope]
        assert [step.index for step in steps if step.kind == "copy"] == mine


@pytest.mark.parametrize("name", ["file-type", "arabic-marks"])
def test_saved_partitions_one_after_the_other_are_the_model(name, tmp_path, capsys):
    path = str(fetch(name))
    folder = tmp_path / "parts"
    wish = ["--providers", "simulator,cpu", "--save-partitions", str(folder)]
    assert main(["explain", path, *wish]) == 0
    capsys.readouterr()
    with InferenceSession(path, providers=BOTH) as session:
        feeds = feeds_of(session)
        expected = dict(
            zip([arg.name for arg in session.get_outputs()], session.run(None, feeds), strict=True)
        )
        partitions = session.get_placement().partitions
    files = sorted(folder.iterdir())
    assert len(files) == len(partitions)
    values = dict(feeds)
    for file, part in zip(files, partitions, strict=True):
        onnx.checker.check_model(onnx.load(file))
        with InferenceSession(file, providers=[part.provider]) as session:
            assert session.get_placement().providers[0] == part.provider
            needed = [arg.name for arg in session.get_inputs()]
            assert needed == list(part.inputs)
            made = session.run(list(part.outputs), {key: values[key] for key in needed})
        values |= dict(zip(part.outputs, made, strict=True))
    for key, right in expected.items():
        np.testing.assert_allclose(values[key], right, rtol=1e-5, atol=1e-6)


def test_a_device_that_is_not_here_gets_what_the_device_would(tmp_path, capsys):
    """A certificate for the operators that the simulator runs places the model as it does."""
    path = str(fetch("file-type"))
    with open_session(SessionRequest(path, BOTH)) as session:
        real = session.get_placement()
    on_device = {node.op_type for node in real.nodes[""] if node.provider == "simulator"}
    elsewhere = {node.op_type for node in real.nodes[""] if node.provider != "simulator"}
    row = {"domain": "", "since": 1, "until": 99, "inputs": [None], "outputs": [None]}
    document = dict.fromkeys(
        ["content_hash", "kit_version", "cases_hash", "results_hash", "level", "date"], "0"
    )
    document |= {"format": 1, "provider": "simulator", "distribution": "ep-sdk", "version": "1"}
    document |= {"api_from": [1, 0], "api_until": [1, 9], "device_fingerprint": "", "options": {}}
    document |= {"waivers": [], "overrides": [], "rows": []}
    document["rows"] = [row | {"op_type": name, "predicate": ""} for name in sorted(on_device)]
    certificate = tmp_path / "simulator.json"
    certificate.write_text(json.dumps(document), encoding="utf-8")
    wish = ["--providers", "simulator,cpu", "--what-if", str(certificate), "--json"]
    assert main(["explain", path, *wish]) == 0
    guessed = json.loads(capsys.readouterr().out)
    owners = {node["node"]: node["provider"] for node in guessed["nodes"][""]}
    sure = [node for node in real.nodes[""] if node.op_type not in on_device & elsewhere]
    assert len(sure) > 50
    assert {node.node: owners[node.node] for node in sure} == {
        node.node: node.provider for node in sure
    }
    assert guessed["copies"]
