"""A trace joined to a placement: what was measured stands beside what it belongs to."""

from __future__ import annotations

import json

import pytest

from ep_core.errors import EpError
from ep_core.profiling.trace import Trace
from ep_tools.cli import main
from ep_tools.explain_deviations import deviations
from ep_tools.explain_measured import join_trace
from ep_tools.explain_placing import place_model
from ep_tools.requests import PlacementRequest, SessionRequest
from ep_tools.traces import read_trace

pytestmark = pytest.mark.usefixtures("providers")

CHAIN = """
    <ir_version: 9, opset_import: ["" : 20]>
    chain (float[3] x) => (float[3] y) { a = Abs (x)  b = Mul (a, x)  y = Abs (b) }
"""
BOTH = ["--providers", "skewed,reference", "--strategy", "cost", "--pin", "op:Mul=skewed"]
PLACEMENT = PlacementRequest("cost", [("op:Mul", "skewed")])


@pytest.fixture
def report(model):
    request = SessionRequest(model(CHAIN), ["skewed", "reference"], placement=PLACEMENT)
    return place_model(request).report


@pytest.fixture
def trace(tmp_path):
    """A trace to add to, in microseconds, and to read back."""
    made = Trace(str(tmp_path / "t"))
    zero = made._origin

    def add(name, category, start, length, queue="", **args):
        begin = zero + int(start * 1000)
        made.add(name, category, begin, begin + int(length * 1000), queue, **args)

    return add, lambda: read_trace(made.write())


def part_args(report, place, **more):
    part = report.partitions[place]
    return {
        "partition": part.name,
        "provider": part.provider,
        "scope": part.scope,
        "node_count": len(part.nodes),
        "nodes": list(part.nodes),
        **more,
    }


# ---------------------------------------------------------------- what is joined


def test_medians_over_runs_and_sums_within_a_run(report, trace):
    add, read = trace
    for number, (start, length) in enumerate([(0, 900), (1000, 10), (2000, 20), (3000, 30)]):
        add(f"run {number}", "run", start, 2 * length + 5)
        for again in (0, length):  # twice a run, as in a loop
            add("reference_0", "partition", start + again, length, **part_args(report, 0))
    measured = join_trace(report, read(), "t", skip=1)
    assert (measured.runs, measured.run_seconds) == (3, pytest.approx(45e-6))
    assert list(measured.partitions) == [0]
    assert measured.partitions[0].times == 2
    assert measured.partitions[0].seconds == pytest.approx(40e-6)
    assert measured.nodes == measured.copies == {}
    assert [span.seconds for span in measured.spans] == pytest.approx([20e-6, 20e-6])
    assert [span.start for span in measured.spans] == pytest.approx([0, 20e-6])
    (found,) = deviations(report, measured)
    assert (found.kind, found.name, found.where) == ("partition", "reference_0", "reference")
    assert found.predicted == pytest.approx(2 * report.partitions[0].seconds)
    assert found.measured == pytest.approx(40e-6)


def test_work_that_is_handed_over_takes_what_the_devices_nodes_take(report, trace):
    add, read = trace
    queued = {"measured": "handing it over"}
    add("run 1", "run", 0, 100)
    add("skewed_1, queued", "partition", 0, 3, **part_args(report, 1, **queued))
    add("reference_2, queued", "partition", 4, 3, **part_args(report, 2, **queued))
    node = {"operator": "Mul", "provider": "skewed", "partition": "skewed_1"}
    add("Mul_1", "node", 10, 40, "skewed stream 0", **node)
    add("wait for a stream", "wait", 20, 50)
    measured = join_trace(report, read(), "t")
    assert measured.partitions[1].seconds == pytest.approx(40e-6)
    assert measured.partitions[2].seconds is None, "it doesn't tell"
    assert measured.nodes == {("", "Mul_1"): measured.nodes["", "Mul_1"]}
    assert measured.rows == ("MainThread", "skewed stream 0")
    assert [(s.row, s.kind, s.target, s.queued) for s in measured.spans] == [
        (0, "partition", 1, True),
        (0, "partition", 2, True),
        (1, "node", ("", "Mul_1"), False),
        (0, "other", None, False),
    ]
    assert [item.name for item in deviations(report, measured)] == ["Mul_1", "skewed_1"]


@pytest.mark.parametrize(
    ("length", "right_to", "known"), [(40, 30, None), (400, 110, 400e-6), (9000, 5000, None)]
)
def test_a_copy_on_a_stream_takes_what_it_took_there(
    trace, model, tmp_path, length, right_to, known
):
    request = SessionRequest(model(CHAIN), ["npu", "reference"])
    placed = place_model(request, [certificate(tmp_path)])
    copy = placed.report.copies[0]
    args = {"value": copy.value, "from": copy.source, "to": copy.target, "scope": ""}
    add, read = trace
    add("run 1", "run", 0, 1000)
    add(f"copy {copy.value}, queued", "copy", 0, 3, **args, measured="handing it over")
    args |= {"right_to_us": right_to}
    add(f"copy {copy.value}", "device copy", 5, length, "copies cpu to npu, stream 1", **args)
    measured = join_trace(placed.report, read(), "t")
    assert measured.copies[0].times == 1
    assert measured.copies[0].seconds == (known and pytest.approx(known))
    assert [(s.row, s.kind, s.target, s.queued, s.unsure) for s in measured.spans] == [
        (0, "copy", 0, True, False),
        (1, "copy", 0, False, known is None),
    ]


def certificate(folder) -> str:
    row = {"domain": "", "op_type": "Mul", "since": 1, "until": 25, "predicate": ""}
    document = dict.fromkeys(
        ["content_hash", "kit_version", "cases_hash", "results_hash", "level", "date"], "0"
    )
    document |= {"format": 1, "provider": "npu", "distribution": "ep-npu", "version": "1"}
    document |= {"api_from": [1, 0], "api_until": [1, 9], "device_fingerprint": "", "options": {}}
    document |= {"waivers": [], "overrides": []}
    document["rows"] = [row | {"inputs": [None], "outputs": [None]}]
    (folder / "npu.json").write_text(json.dumps(document))
    return str(folder / "npu.json")


def test_what_is_of_no_run_does_not_count(report, trace):
    add, read = trace
    add("run 1", "run", 100, 50)
    for start in (10, 110, 160):
        add("reference_0", "partition", start, 20, **part_args(report, 0))
    measured = join_trace(report, read(), "t")
    assert measured.partitions[0].times == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"provider": "cpu"}, "on cpu"),
        ({"partition": "npu_0"}, "'npu_0' of 1 nodes"),
        ({"node_count": 7}, "of 7 nodes"),
        ({"nodes": ["Relu_0"]}, "is of another placement"),
        ({"scope": "if_1/then_branch"}, "is of another placement"),
    ],
)
def test_a_trace_of_another_placement_is_refused(report, trace, changes, words):
    add, read = trace
    add("run 1", "run", 0, 50)
    add("reference_0", "partition", 0, 20, **part_args(report, 0) | changes)
    with pytest.raises(EpError, match=words):
        join_trace(report, read(), "t")


def test_a_trace_without_a_run_is_refused(report, trace):
    add, read = trace
    add("run 1", "run", 0, 50)
    found = read()
    with pytest.raises(EpError, match="no run that counts"):
        join_trace(report, found, "t", skip=1)


@pytest.mark.parametrize("missing", ["partition", "nodes", "scope"])
def test_a_trace_of_another_version_is_refused(report, trace, missing):
    add, read = trace
    add("run 1", "run", 0, 50)
    args = part_args(report, 0)
    del args[missing]
    add("reference_0", "partition", 0, 20, **args)
    with pytest.raises(EpError, match="no trace of this version"):
        join_trace(report, read(), "t")


RUN = {"ph": "X", "name": "run 1", "cat": "run", "ts": 0, "dur": 5, "tid": 1}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "3",
        "[3]",
        "[[]]",
        '{"events": []}',
        '[{"ph": "X"}]',
        json.dumps([{**RUN, "ts": "soon"}]),
        json.dumps([{**RUN, "dur": -1}]),
        json.dumps([{**RUN, "args": []}]),
        json.dumps([{**RUN, "tid": None}]),
        '[{"ph": "X", "name": "r", "cat": "run", "ts": NaN, "dur": 1, "tid": 1}]',
        "[" * 100_000,
        "\udcff",
    ],
)
def test_what_is_no_trace_is_refused(model, tmp_path, capsys, content):
    path = tmp_path / "t.json"
    path.write_text(content, "utf-8", errors="surrogateescape")
    with pytest.raises(EpError, match="is no trace of ep-core"):
        read_trace(str(path))
    assert main(["explain", model(CHAIN), *BOTH, "--profile", str(path)]) == 1
    assert "is no trace of ep-core" in capsys.readouterr().err


def test_a_file_that_is_not_there(model, tmp_path, capsys):
    assert main(["explain", model(CHAIN), "--profile", str(tmp_path / "none.json")]) == 1
    assert "can't be read" in capsys.readouterr().err


def test_both_forms_of_chromes_format_are_read(tmp_path):
    for content in ([RUN], {"traceEvents": [RUN], "displayTimeUnit": "ms"}):
        (tmp_path / "t.json").write_text(json.dumps(content))
        (event,) = read_trace(str(tmp_path / "t.json")).of("run")
        assert (event.start, event.seconds, event.row) == (0, 5e-6, 1)


# ---------------------------------------------------------------- on the command line


def test_explain_joins_what_profile_has_written(model, tmp_path, capsys):
    path, trace = model(CHAIN), str(tmp_path / "trace.json")
    assert main(["profile", path, *BOTH, "--runs", "3", "--out", trace, "--json"]) == 0
    profile = json.loads(capsys.readouterr().out)
    assert {item["kind"] for item in profile["deviations"]} == {"partition"}
    assert len(profile["deviations"]) == 3
    for item in profile["deviations"]:
        assert item["predicted"] > 0
        assert 0 < item["measured"] < profile["run_seconds"] * 2
    assert main(["explain", path, *BOTH, "--profile", trace, "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["measured"]
    assert measured["runs"] == 5, "the warm-up too: a trace doesn't tell what it was"
    assert [item["partition"] for item in measured["partitions"]] == [0, 1, 2]
    assert main(["explain", path, *BOTH, "--profile", trace]) == 0
    shown = capsys.readouterr().out
    assert "a run, the median of 5" in shown
    assert "predicted and measured" in shown
    assert main(["explain", path, "--providers", "reference", "--profile", trace]) == 1
    assert "is of another placement" in capsys.readouterr().err


def test_profile_shows_predictions_and_writes_the_page(model, tmp_path, capsys):
    path, page = model(CHAIN), tmp_path / "page.html"
    out = ["--out", str(tmp_path / "t.json")]
    assert main(["profile", path, *BOTH, *out, "--html", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "predicted and measured" in shown
    assert f"page       {page}" in shown
    text = page.read_text("utf-8")
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert data["times"]["measured"]["runs"] == 10
    assert len(data["timeline"]["spans"]) == 3
    assert [part["measured"][0] for part in data["scopes"][0]["partitions"]] == [1, 1, 1]


def test_a_page_that_cannot_be_written_is_told_before_the_runs(model, tmp_path, capsys):
    path = model(CHAIN)
    assert main(["profile", path, "--html", path]) == 1
    assert "would write over a model" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.json*"))
