from __future__ import annotations

import json

import pytest

from ep_core.discovery.registry import Registry, registry
from ep_tools.cli import main


def test_every_provider_is_listed_with_devices_or_reason(providers, capsys):
    assert main(["providers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "absent     unavailable  registered by hand"
    assert lines[1] == "  no such chip in this machine"
    assert lines[2] == "broken     broken       registered by hand"
    assert "ep_provider_factory" in lines[3]
    assert lines[4] == "reference  available    registered by hand"
    assert lines[5] == "  device 0: cpu, ONNX evaluator, 1.0 GiB"
    assert lines[6] == "  device 1: npu, second"
    assert lines[7] == "skewed     available    registered by hand, used only if named"
    assert lines[8] == "  device 0: npu, skewed"
    assert len(lines) == 9


def test_json_says_the_same(providers, capsys):
    assert main(["providers", "--json"]) == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert shown.err == ""
    by_name = {entry["name"]: entry for entry in document["providers"]}
    assert {name: entry["state"] for name, entry in by_name.items()} == {
        "absent": "unavailable",
        "broken": "broken",
        "reference": "available",
        "skewed": "available",
    }
    assert (by_name["reference"]["automatic"], by_name["skewed"]["automatic"]) == (True, False)
    assert by_name["absent"]["reason"] == "no such chip in this machine"
    assert by_name["reference"]["aliases"] == ["ReferenceExecutionProvider"]
    assert by_name["reference"]["devices"][0] == {
        "id": "0",
        "kind": "cpu",
        "vendor": "ONNX",
        "name": "evaluator",
        "memory_bytes": 2**30,
        "fingerprint": "",
        "properties": {},
    }


def test_installed_packages_are_named_with_their_version(capsys):
    assert main(["providers", "--json"]) == 0
    for entry in json.loads(capsys.readouterr().out)["providers"]:
        assert entry["distribution"]
        assert entry["version"]


def test_without_providers_the_remedy_is_told(monkeypatch, capsys):
    monkeypatch.setattr(Registry, "providers", lambda self: ())
    assert main(["providers"]) == 0
    assert "pip install ep-cpu" in capsys.readouterr().out


def test_plugins_that_are_switched_off_are_not_called_missing(monkeypatch, capsys):
    monkeypatch.setenv("EP_PLUGIN_AUTOLOAD", "0")
    registry().recheck()
    assert main(["providers"]) == 0
    assert "EP_PLUGIN_AUTOLOAD=0 is set" in capsys.readouterr().out
    monkeypatch.undo()
    registry().recheck()


@pytest.mark.parametrize(("flags", "times"), [([], 0), (["--recheck"], 1)])
def test_recheck_asks_again(flags, times, providers, monkeypatch, capsys):
    assert main(["providers"]) == 0
    calls = []
    factory = providers.factory("reference")
    devices = factory.devices()
    monkeypatch.setattr(factory, "devices", lambda: calls.append(1) or devices, raising=False)
    assert main(["providers", *flags]) == 0
    assert len(calls) == times
