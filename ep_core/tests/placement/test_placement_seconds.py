"""Predicted seconds of nodes, partitions and copies add up to what a run is predicted to take."""

from __future__ import annotations

import json

import onnx.parser
import pytest

from ep_core.contracts import FusedGroup, Support
from ep_core.loading.load import load_model
from ep_core.placement.build import Offer, Wishes
from ep_core.placement.place import place
from ep_core.types import HOST_MEMORY, DeviceSpeed, MemoryInfo, MemoryKind

HOST = DeviceSpeed(1e9, 1e9, 1e-6, 3e-6)
DEVICE = DeviceSpeed(1e12, 1e12, 2e-6, 4e-6, 5e-6, 1e9)
FAR = MemoryInfo("npu:0", MemoryKind.DEVICE)
QDQ = """
    <ir_version: 9, opset_import: ["" : 20]>
    chain (float[1, 100, 100] x, float s, uint8 z) => (float[1, 100, 100] y, float[1, 100, 100] w) {
        q = QuantizeLinear (x, s, z)
        d = DequantizeLinear (q, s, z)
        m = MatMul (d, d)
        r = QuantizeLinear (m, s, z)
        y = DequantizeLinear (r, s, z)
        w = Neg (x)
    }
"""


def graph_of(text: str):
    return load_model(onnx.parser.parse_model(text).SerializeToString()).graph


@pytest.mark.parametrize("strategy", ["cost", "greedy"])
@pytest.mark.parametrize("able", [range(6), range(1, 4), []])
def test_they_add_up(strategy, able):
    graph = graph_of(QDQ)
    answers = [Support(index in able) for index in range(6)]
    offers = [
        Offer("npu", FAR, DEVICE, answers),
        Offer("cpu", HOST_MEMORY, HOST, [Support(True)] * 6),
    ]
    placed = place(graph, range(6), offers, strategy=strategy, wishes=Wishes())
    assert len(placed.partition_seconds) == len(placed.partitions)
    copying = sum(copy.seconds for copy in placed.copies)
    assert sum(placed.partition_seconds) + copying == pytest.approx(placed.chosen.seconds)
    for (owner, indices), seconds in zip(placed.partitions, placed.partition_seconds, strict=True):
        start = offers[owner].speed.partition_seconds
        nodes = sum(placed.notes[index].seconds for index in indices)
        assert start + nodes == pytest.approx(seconds)
    for copy in placed.copies:
        assert copy.seconds == pytest.approx(5e-6 + copy.nbytes / 1e9)


def test_a_node_of_a_unit_has_its_part():
    """A product of 100 by 100 takes 2e6 operations, which is what a slow host is busy with."""
    graph = graph_of(QDQ)
    offers = [Offer("cpu", HOST_MEMORY, HOST, [Support(True)] * 6)]
    placed = place(graph, range(6), offers)
    product = next(i for i, node in enumerate(graph.nodes) if node.op_type == "MatMul")
    assert placed.notes[product].seconds == pytest.approx(1e-6 + 2e6 / 1e9)


def test_what_a_group_saves_is_taken_off_its_nodes():
    graph = graph_of(QDQ)
    answers = [Support(True, cost=1e-3)] * 6
    position = {node.op_type: index for index, node in enumerate(graph.nodes)}
    group = (position["MatMul"], max(position["MatMul"], position["QuantizeLinear"]))
    offers = [
        Offer("cpu", HOST_MEMORY, HOST, answers, groups=[FusedGroup(tuple(sorted(group)), 5e-4)])
    ]
    placed = place(graph, range(6), offers)
    assert sum(placed.partition_seconds) == pytest.approx(placed.chosen.seconds)
    assert placed.chosen.seconds < 6e-3 + HOST.partition_seconds
    nodes = sum(note.seconds for note in placed.notes.values())
    assert nodes + HOST.partition_seconds == pytest.approx(placed.chosen.seconds)


def test_an_estimate_of_the_provider_counts():
    graph = graph_of(QDQ)
    offers = [Offer("cpu", HOST_MEMORY, HOST, [Support(True, cost=0.25)] * 6)]
    placed = place(graph, range(6), offers)
    assert [note.seconds for note in placed.notes.values()] == [0.25] * 6


def test_the_report_has_them_where_costs_are_known(provide):
    from ep_core import InferenceSession, SessionOptions

    provide("cpu")
    options = SessionOptions()
    model = onnx.parser.parse_model(QDQ).SerializeToString()
    with InferenceSession(model, options, ["cpu"]) as session:
        silent = session.get_placement()
    assert {part.seconds for part in silent.partitions} == {None}
    assert {node.seconds for node in silent.nodes[""]} == {None}
    options.placement_strategy = "cost"
    with InferenceSession(model, options, ["cpu"]) as session:
        report = session.get_placement()
    (part,) = report.partitions
    assert part.seconds == pytest.approx(report.predicted_seconds)
    assert json.loads(json.dumps(report.to_dict()))["partitions"][0]["seconds"] == part.seconds
