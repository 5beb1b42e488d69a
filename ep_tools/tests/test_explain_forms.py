"""`ep explain`: the nodes that are chosen, the forms that are written, and what can't be."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from ep_tools.cli import main

pytestmark = pytest.mark.usefixtures("providers")

BODIES = """
    <ir_version: 9, opset_import: ["" : 20]>
    chain (float[n] x, bool flag) => (float[n] y, float[n] z) {
        a = Abs (x)  b = Mul (a, x)  c = Neg (b)  y = Mul (c, c)
        z = If (flag) <
            then_branch = yes () => (float[n] p) { p = Abs (y) },
            else_branch = no () => (float[n] q) { q = Neg (y) }
        >
    }
"""
FULL = Path("/dev/full")
SKEWED = ["--providers", "skewed,reference", "--level", "0"]


def explain(capsys, *arguments: str) -> str:
    assert main(["explain", *arguments]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


def refused(capsys, *arguments: str) -> str:
    assert main(["explain", *arguments]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err


# ---------------------------------------------------------------- some nodes


def chosen(shown: str) -> list[str]:
    _, _, rows = shown.partition("\nnodes\n")
    return [line.split("  ")[1] for line in rows.splitlines() if line.startswith("  ")]


def test_nodes_are_chosen_by_operator_name_and_provider(model, capsys):
    path = model(BODIES)
    whole = chosen(explain(capsys, path, *SKEWED, "--all"))
    assert len(whole) == 7
    assert len(chosen(explain(capsys, path, *SKEWED, "--op", "M*"))) == 2
    assert len(chosen(explain(capsys, path, *SKEWED, "--op", "Abs"))) == 2
    assert len(chosen(explain(capsys, path, *SKEWED, "--provider", "reference"))) == 4
    assert chosen(explain(capsys, path, *SKEWED, "--provider", "core")) == ["If_4"]
    assert len(chosen(explain(capsys, path, *SKEWED, "--node", "*then_branch*"))) == 1
    both = explain(capsys, path, *SKEWED, "--op", "Neg", "--provider", "reference")
    assert len(chosen(both)) == 2
    assert "partitions" not in both


def test_json_has_the_chosen_nodes_only(model, capsys):
    document = json.loads(explain(capsys, model(BODIES), *SKEWED, "--op", "Mul", "--json"))
    assert {node["op_type"] for nodes in document["nodes"].values() for node in nodes} == {"Mul"}
    assert list(document["nodes"]) == [""]
    assert len(document["partitions"]) == 6, "these are whole"


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (["--op", "Mull"], "no node fits --op 'Mull'. Did you mean 'Mul'?"),
        (["--provider", "cpu"], "Known: core, reference, skewed."),
        (["--op", "Mul", "--provider", "core"], "Each fits some nodes, and none fits all"),
    ],
)
def test_a_choice_of_nothing_is_an_error(wish, message, model, capsys):
    assert message in refused(capsys, model(BODIES), *SKEWED, *wish)


# ---------------------------------------------------------------- forms and files


def test_json_goes_to_a_file_beside_the_lines(model, capsys, tmp_path):
    target = tmp_path / "report.json"
    shown = explain(capsys, model(BODIES), *SKEWED, "--json", str(target))
    assert shown.startswith("placement   ")
    assert f"written     {target}, " in shown
    document = json.loads(target.read_text())
    for stdout in (["--json"], ["--json", "-"]):
        assert (
            json.loads(explain(capsys, str(tmp_path / "model.onnx"), *SKEWED, *stdout)) == document
        )


def test_steps_are_in_the_order_they_run(model, capsys):
    document = json.loads(explain(capsys, model(BODIES), *SKEWED, "--json"))
    kinds = [next(iter(step.items())) for step in document["steps"][""]]
    names = [part["name"] for part in document["partitions"] if part["scope"] == ""]
    assert [name for kind, name in kinds if kind == "partition"] == names
    assert kinds[-1] == ("node", "If_4")
    assert set(document["steps"]) == {"", "If_4/then_branch", "If_4/else_branch"}


def test_all_forms_at_once(model, capsys, tmp_path):
    files = {flag: tmp_path / f"out{flag}" for flag in ("--json", "--dot", "--html")}
    flags = [word for flag, path in files.items() for word in (flag, str(path))]
    explain(capsys, model(BODIES), *SKEWED, *flags, "--save-partitions", str(tmp_path / "parts"))
    assert all(path.stat().st_size > 100 for path in files.values())
    assert len(list((tmp_path / "parts").iterdir())) == 6
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_file_is_replaced_as_a_whole(model, capsys, tmp_path):
    target = tmp_path / "page.html"
    target.write_text("x" * 10_000_000)
    explain(capsys, model(BODIES), *SKEWED, "--html", str(target))
    assert target.read_text().startswith("<!DOCTYPE html>")
    assert target.stat().st_size < 1_000_000


def test_a_link_leads_to_what_is_written(model, capsys, tmp_path):
    (tmp_path / "there").mkdir()
    target = tmp_path / "page.html"
    target.symlink_to(tmp_path / "there" / "real.html")
    explain(capsys, model(BODIES), *SKEWED, "--html", str(target))
    assert target.is_symlink()
    assert (tmp_path / "there" / "real.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("flag", ["--json", "--dot", "--html"])
def test_a_model_is_never_written_over(flag, model, capsys, tmp_path):
    path = model(BODIES)
    before = (tmp_path / "model.onnx").read_bytes()
    assert "would write over a model" in refused(capsys, path, *SKEWED, flag, path)
    assert (tmp_path / "model.onnx").read_bytes() == before


@pytest.mark.parametrize("flag", ["--json", "--dot", "--html", "--save-partitions"])
def test_a_place_that_is_not_there_is_an_error_before_any_work(flag, model, capsys, tmp_path):
    message = refused(capsys, "no-model", *SKEWED, flag, str(tmp_path / "no" / "such"))
    assert flag in message
    assert "a folder that exists" in message


@pytest.mark.skipif(sys.platform == "win32", reason="needs permissions as POSIX has them")
@pytest.mark.skipif(
    sys.platform != "win32" and os.geteuid() == 0, reason="needs a user whom permissions stop"
)
def test_a_folder_that_forbids_writing(model, capsys, tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    assert main(["explain", model(BODIES), *SKEWED, "--html", str(folder / "page.html")]) == 1
    assert "can't write" in capsys.readouterr().err


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
def test_a_full_disk_is_an_error(model, capsys):
    assert main(["explain", model(BODIES), *SKEWED, "--html", "/dev/full"]) == 1
    assert "can't write '/dev/full'" in capsys.readouterr().err
    assert FULL.is_char_device()


def test_two_forms_cannot_share_stdout(model, capsys):
    assert "stdout" in refused(capsys, model(BODIES), "--json", "--dot", "-")


def test_force_belongs_to_partitions(model, capsys):
    assert "--save-partitions" in refused(capsys, model(BODIES), "--force")


def test_an_unreadable_model_is_an_error(capsys, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"\x00\xff" * 40)
    target = tmp_path / "page.html"
    refused(capsys, str(tmp_path / "bad.onnx"), *SKEWED, "--html", str(target))
    assert not target.exists()
