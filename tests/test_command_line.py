"""`ep` with installed providers, ONNX Runtime and a real terminal; and its manual."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest

from ep_tools.cli import main
from ep_tools.commands import BUILT_IN
from pretrained import fetch

MANUAL = Path(__file__).resolve().parents[1] / "docs" / "command-line.md"
VAD = ["--input", "sr=16000", "--input", "state=0", "--shape", "input=1,576"]

CHAIN = """
    <ir_version: 9, opset_import: ["" : 20]>
    chain (float[n] x) => (float[n] y) { a = Abs (x)  b = HardSigmoid (a)  y = Sqrt (b) }
"""
# A Conv that has taken in the BatchNormalization behind it rounds its weights once more.
FUSED = """
    <ir_version: 9, opset_import: ["" : 17]>
    fused (float[1, 1, n] x) => (float[1, 1, n] y)
    <float[1, 1, 1] w = {3.1}, float[1] scale = {0.7}, float[1] bias = {0.1},
     float[1] mean = {0.2}, float[1] variance = {7.3}>
    {
        a = Abs (x)
        c = Conv (a, w)
        n = BatchNormalization (c, scale, bias, mean, variance)
        y = Neg (n)
    }
"""


@pytest.fixture
def chain(tmp_path: Path) -> str:
    path = tmp_path / "chain.onnx"
    onnx.save(onnx.parser.parse_model(CHAIN), path)
    return str(path)


def ep_json(capsys, code: int, *arguments: str):
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


# ---------------------------------------------------------------- real models


def test_a_real_model_runs_on_written_values(capsys):
    path = str(fetch("speech"))
    document = ep_json(capsys, 0, "run", path, "--input", "input=random", *VAD)
    assert [output["shape"] for output in document["outputs"]] == [[1, 1], [2, 1, 128]]


def test_a_real_model_is_described(capsys):
    document = ep_json(capsys, 0, "info", str(fetch("speech-one-if")))
    assert document["control_flow"] == {"If": 1}
    assert document["nodes"]["bodies"] > document["nodes"]["main"]
    proto = onnx.load(fetch("speech-one-if"))
    assert document["ir_version"] == proto.ir_version
    assert document["opsets"] == {"ai.onnx": proto.opset_import[0].version}


def test_a_real_model_is_timed_and_compared_beside_onnxruntime(capsys):
    path = str(fetch("speech"))
    arguments = ["bench", path, *VAD, "--vs", "onnxruntime", "--runs", "6"]
    document = ep_json(capsys, 0, *arguments)
    assert [side["name"] for side in document["sides"]] == ["ep-core", "onnxruntime"]
    assert document["agree"] is True
    assert document["ratio"]["low"] <= document["ratio"]["high"]
    assert ep_json(capsys, 1, *arguments, "--rtol", "0", "--atol", "0")["agree"] is False


def test_layers_of_a_real_model_equal_those_of_onnxruntime(capsys):
    path = str(fetch("speech-fixed"))
    document = ep_json(capsys, 0, "compare", path, "cpu", "onnxruntime", "--layers")
    layers = document["layers"]
    assert layers["first"] is None
    assert layers["failures"] == {}
    assert len(layers["values"]) > 50
    assert {entry["providers"][1] for entry in layers["values"]} == {"onnxruntime"}


def test_an_8_bit_net_differs_where_it_rounds():
    """On the kernels in Python: the native core rounds as ONNX Runtime does."""
    letters = "input=150,161,174,3,149,173,173,176"
    arguments = ["compare", str(fetch("arabic-marks")), "cpu", "onnxruntime", "--input", letters]
    done = subprocess.run(
        [sys.executable, "-m", "ep_tools", *arguments, "--layers", "--json"],
        env=os.environ | {"EP_CPU_INSTRUCTIONS": "none"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    first = document["layers"]["first"]
    assert "Quantize" in first["operator"]
    before = [e for e in document["layers"]["values"] if e["index"] < first["index"]]
    assert before
    assert all(entry["agrees"] for entry in before)


# ---------------------------------------------------------------- levels and providers


def test_a_difference_that_fusing_makes_is_found(tmp_path: Path, capsys):
    path = str(tmp_path / "fused.onnx")
    onnx.save(onnx.parser.parse_model(FUSED), path)
    arguments = ["compare", path, "level:0", "level:99", "--providers", "cpu", "--layers"]
    arguments += ["--dim", "n=1000", "--rtol", "0", "--atol", "0"]
    layers = ep_json(capsys, 1, *arguments)["layers"]
    assert layers["first"]["name"] == "n"
    assert layers["first"]["operator"] == "BatchNormalization"
    assert "one output at a time" in layers["notes"][-1]


def test_copies_have_sizes_once_the_shapes_are_known(chain: str, capsys):
    arguments = ["explain", chain, "--providers", "simulator,cpu"]
    copies = ep_json(capsys, 0, *arguments)["copies"]
    assert copies
    assert all(copy["nbytes"] is None for copy in copies)
    copies = ep_json(capsys, 0, *arguments, "--dim", "n=1000")["copies"]
    assert all(copy["nbytes"] == 4000 for copy in copies)
    assert main([*arguments, "--dim", "n=1000"]) == 0
    assert "3.9 KiB" in capsys.readouterr().out


def test_the_simulator_equals_the_cpu(chain: str, capsys):
    assert ep_json(capsys, 0, "compare", chain, "simulator", "cpu", "--dim", "n=50")["agree"]


# ---------------------------------------------------------------- streams


def run_in_terminal(*arguments: str, **variables: str) -> str:
    """Run `ep` with stdout and stderr on a pseudo-terminal, and return what it wrote."""
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    environment |= {"TERM": "xterm", "COLUMNS": "100", **variables}
    process = subprocess.Popen(
        [sys.executable, "-m", "ep_tools", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            data = b""
        if not data:
            break
        written += data
    process.wait()
    os.close(ours)
    return written.decode()


def test_a_terminal_gets_colours_and_bars_and_a_pipe_gets_neither(chain: str):
    arguments = ["bench", chain, "--runs", "5"]
    shown = run_in_terminal(*arguments)
    assert "\x1b[1mplacement\x1b[0m" in shown
    assert "█" in shown
    assert "\x1b[1m" not in run_in_terminal(*arguments, NO_COLOR="1")
    assert "█" not in run_in_terminal(*arguments, TERM="dumb")
    # A limit on numpy's threads that is set already is worth a warning, which isn't meant here.
    quiet = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-m", "ep_tools", *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=quiet,
    )
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stderr == ""


def test_bars_leave_nothing_behind(chain: str):
    shown = run_in_terminal("compare", chain, "level:0", "level:99", "--layers")
    # What stands on a line in the end is what comes after the last return that clears it.
    lines = [line.rpartition("\r\x1b[K")[2] for line in shown.replace("\r\n", "\n").split("\n")]
    assert not any("..." in line or "%" in line for line in lines)
    assert any("all outputs agree" in line for line in lines)


def test_a_new_package_is_written_with_stdout_closed(tmp_path: Path):
    command = f'"{sys.executable}" -m ep_tools new mychip --dir "{tmp_path}" >&-'
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ep_mychip" / "pyproject.toml").exists()


# ---------------------------------------------------------------- the manual


@pytest.mark.parametrize("command", BUILT_IN, ids=lambda command: command.name)
def test_the_manual_names_every_option(command, capsys):
    assert main([command.name, "--help"]) == 0
    options = set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    manual = MANUAL.read_text(encoding="utf-8")
    assert f"## ep {command.name}\n" in manual
    assert f"pictures/ep-{command.name}.svg" in manual
    missing = {option for option in options if not re.search(rf"{option}\b", manual)}
    assert missing == set()


def subcommands(told: str) -> list[str]:
    """The actions that a command's help lists."""
    _, _, listed = told.partition("  ACTION\n")
    return re.findall(r"^    ([a-z]+)  ", listed, re.MULTILINE)


def test_every_option_of_the_manual_exists(capsys):
    known = {"--help", "--debug"}
    asked = [[command.name] for command in BUILT_IN] + [["new"], ["certify"], ["certificate"]]
    for words in asked:
        main([*words, "--help"])
        told = capsys.readouterr().out
        known |= set(re.findall(r"(--[a-z-]+)", told))
        asked += [[*words, name] for name in subcommands(told)]
    manual = MANUAL.read_text(encoding="utf-8")
    assert set(re.findall(r"(?<![-\w])(--[a-z][a-z-]*)", manual)) <= known
