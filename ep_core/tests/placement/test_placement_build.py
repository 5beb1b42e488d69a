"""From graphs to problems: units, what operators take, what is copied, pins and preferences."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ep_core.contracts import Support
from ep_core.errors import ContractError, PlacementError
from ep_core.graph import Graph, Initializer, Node, ValueInfo
from ep_core.placement.build import Offer, Wishes, build
from ep_core.placement.place import place
from ep_core.placement.problem import NO_UNIT, Route, Tensor
from ep_core.placement.roofline import Sizes, assumed_speed, seconds_of, work_of
from ep_core.placement.solve import Limits
from ep_core.placement.units import units_of
from ep_core.types import (
    HOST_MEMORY,
    DataType,
    DeviceSpeed,
    MemoryInfo,
    MemoryKind,
    OpSet,
    SequenceType,
    TensorType,
)

DEVICE = MemoryInfo("dev:0", MemoryKind.DEVICE)
PEER = MemoryInfo("dev:1", MemoryKind.DEVICE)
YES, NO = Support(True), Support(False, "no kernel for it")


def tensor(*shape, dtype=DataType.FLOAT) -> TensorType:
    return TensorType(dtype, shape)


def graph_with(nodes, types, inputs=("x",), outputs=("y",), constants=None, **extra) -> Graph:
    infos = {name: ValueInfo(name, kind) for name, kind in types.items()}
    return Graph(
        name="g",
        inputs=tuple(infos.get(name, ValueInfo(name)) for name in inputs),
        outputs=tuple(infos.get(name, ValueInfo(name)) for name in outputs),
        nodes=tuple(nodes),
        initializers=constants or {},
        opsets=OpSet({"": 21}),
        values=infos,
        **extra,
    )


def op(op_type, inputs, outputs, name="", domain="", **attributes) -> Node:
    inputs, outputs = tuple(inputs.split()), tuple(outputs.split())
    return Node(name or outputs[0], op_type, domain, 21, inputs, outputs, attributes)


def offer(name, memory, answers, speed=None) -> Offer:
    return Offer(name, memory, speed or assumed_speed("cpu"), answers)


# ------------------------------------------------------------ units


def quantised(*, shared=False) -> Graph:
    """x -> DQ, w -> DQ, both -> Conv -> Q -> DQ -> Relu -> y, as exporters write it."""
    nodes = [
        op("DequantizeLinear", "x s z", "xf"),
        op("DequantizeLinear", "w s z", "wf"),
        op("Conv", "xf wf", "c"),
        op("QuantizeLinear", "c s z", "q"),
        op("DequantizeLinear", "q s z", "qf"),
        op("Relu", "qf", "r"),
        op("Sigmoid", "xf" if shared else "r", "y"),
    ]
    return graph_with(nodes, {}, outputs=("y", "r") if shared else ("y",))


def test_a_quantised_operator_is_one_unit():
    able = dict.fromkeys(range(7), (True, True))
    assert units_of(quantised(), able) == [(0, 1, 2, 3), (4,), (5,), (6,)]


def test_a_dequantised_value_with_two_readers_stays_out():
    able = dict.fromkeys(range(7), (True, True))
    assert units_of(quantised(shared=True), able) == [(0,), (1, 2, 3), (4,), (5,), (6,)]


def test_nodes_that_differ_in_who_can_run_them_stay_apart():
    able = dict.fromkeys(range(7), (True, True))
    able[3] = (False, True)
    assert units_of(quantised(), able) == [(0,), (1,), (2,), (3,), (4,), (5,), (6,)]


def test_a_result_that_is_only_a_scale_does_not_belong_to_the_quantiser():
    nodes = [
        op("DequantizeLinear", "a s z", "af"),
        op("Relu", "af", "r"),
        op("QuantizeLinear", "x r z", "y"),
    ]
    assert units_of(graph_with(nodes, {}), dict.fromkeys(range(3), (True,))) == [(0,), (1,), (2,)]


# ------------------------------------------------------------ what an operator takes


@pytest.mark.parametrize(
    ("node", "shapes", "flops", "moved"),
    [
        # (8, 16) @ (16, 4): 8 * 4 results of 16 products and sums; 128 + 64 + 32 floats
        (op("MatMul", "a b", "y"), {"a": (8, 16), "b": (16, 4), "y": (8, 4)}, 1024, 896),
        (op("Gemm", "a b", "y", transA=1), {"a": (16, 8), "b": (16, 4), "y": (8, 4)}, 1024, 896),
        # 6 * 5 * 5 results, each a 4 * 3 * 3 filter; 4 * 7 * 7 + 6 * 4 * 9 + 150 floats
        (
            op("Conv", "a b", "y"),
            {"a": (1, 4, 7, 7), "b": (6, 4, 3, 3), "y": (1, 6, 5, 5)},
            2 * 150 * 36,
            4 * (196 + 216 + 150),
        ),
        # two groups halve the filter
        (
            op("Conv", "a b", "y", group=2),
            {"a": (1, 4, 7, 7), "b": (6, 2, 3, 3), "y": (1, 6, 5, 5)},
            2 * 150 * 18,
            4 * (196 + 108 + 150),
        ),
        # every one of 4 * 5 * 5 elements meets 6 filters of 3 * 3
        (
            op("ConvTranspose", "a b", "y"),
            {"a": (1, 4, 5, 5), "b": (4, 6, 3, 3), "y": (1, 6, 7, 7)},
            2 * 100 * 54,
            4 * (100 + 216 + 294),
        ),
        # 2 heads, 5 queries and 7 keys of 8: two products of 2 * 5 * 7 * 8
        (
            op("Attention", "a b c", "y"),
            {"a": (1, 2, 5, 8), "b": (1, 2, 7, 8), "c": (1, 2, 7, 8), "y": (1, 2, 5, 8)},
            2 * 2 * (2 * 5 * 7 * 8),
            4 * (80 + 112 + 112 + 80),
        ),
        # 3 steps of 2 sequences, each with 4 * 6 x 5 and 4 * 6 x 6 weights
        (
            op("LSTM", "a b c", "y"),
            {"a": (3, 2, 5), "b": (1, 24, 5), "c": (1, 24, 6), "y": (3, 1, 2, 6)},
            2 * 6 * (24 * 11),
            4 * (30 + 120 + 144 + 36),
        ),
        (op("Add", "a b", "y"), {"a": (8, 16), "b": (16,), "y": (8, 16)}, 128, 4 * 272),
        (op("Reshape", "a b", "y"), {"a": (8, 16), "b": (2,), "y": (128,)}, 0, 0),
        (op("Gather", "a b", "y"), {"a": (1000, 16), "b": (2,), "y": (2, 16)}, 0, 256),
        # an unknown operator of that name is no convolution
        (op("Conv", "a b", "y", domain="my"), {"a": (4,), "b": (3,), "y": (2,)}, 4, 36),
        (op("MatMul", "a", "y"), {"a": (), "y": ()}, 2, 8),
    ],
)
def test_work_by_hand(node, shapes, flops, moved):
    graph = graph_with([node], {name: tensor(*shape) for name, shape in shapes.items()})
    assert work_of(node, Sizes(graph, {})) == (flops, moved)


def test_narrow_types_move_fewer_bytes():
    node = op("Add", "a a", "y")
    kind = tensor(64, dtype=DataType.INT4)
    sizes = Sizes(graph_with([node], {"a": kind, "y": kind}), {})
    assert work_of(node, sizes)[1] == 3 * 32
    assert sizes.host_bytes("a") == 64  # ml_dtypes keeps one element per byte


def test_bodies_count_once():
    body = graph_with([op("Add", "c c", "d")], {"c": tensor(4), "d": tensor(4)}, ())
    node = op("If", "x", "y", then_branch=body, else_branch=body)
    assert work_of(node, Sizes(graph_with([node], {}), {})) == (8, 2 * 48)


def test_the_roofline_is_the_larger_of_arithmetic_and_memory():
    node = op("MatMul", "a b", "y")  # 1024 operations, 896 bytes
    shapes = {"a": tensor(8, 16), "b": tensor(16, 4), "y": tensor(8, 4)}
    sizes = Sizes(graph_with([node], shapes), {})
    assert seconds_of(node, sizes, DeviceSpeed(1024.0, 1e9, 0.5, 0.0)) == pytest.approx(1.5)
    assert seconds_of(node, sizes, DeviceSpeed(1e9, 896.0, 0.5, 0.0)) == pytest.approx(1.5)


def test_symbolic_lengths_are_given_or_assumed():
    kind = TensorType(DataType.FLOAT, ("N", None, 3))
    graph = graph_with([op("Relu", "x", "y")], {"x": kind, "y": kind, "s": tensor(2)})
    sizes = Sizes(graph, {"N": 5})
    assert sizes.shape("x") == (5, 64, 3)
    assert sizes.host_bytes("x") == 4 * 5 * 64 * 3
    assert Sizes(graph, {}).shape("x") == (1, 64, 3)
    assert not sizes.is_exact("x")
    assert sizes.is_exact("s")
    assert sizes.shape("unknown") == ()


@pytest.mark.parametrize("speed", [(0.0, 1.0, 0.0, 0.0), (1.0, math.nan, 0, 0), (1, 1, -1, 0)])
def test_a_speed_that_makes_no_sense_breaks_the_contract(speed):
    with pytest.raises(ContractError, match="finite numbers"):
        DeviceSpeed(*speed)


def test_devices_that_declare_nothing_are_assumed():
    assert assumed_speed("npu").flops_per_second > assumed_speed("cpu").flops_per_second
    assert assumed_speed("abacus") == assumed_speed("cpu")


# ------------------------------------------------------------ problems


def small() -> Graph:
    """x, w -> MatMul -> Relu, Neg -> y; an overridable default and a constant are read too."""
    weight = Initializer.from_array("w", np.zeros((4, 4), np.float32))
    scale = Initializer.from_array("k", np.zeros(4, np.float32))
    kinds = {"x": tensor("N", 4), "k": tensor(4), "m": tensor("N", 4), "r": tensor("N", 4)}
    nodes = [
        op("MatMul", "x w", "m"),
        op("Mul", "m k", "r"),
        op("Neg", "m", "n"),
        op("Add", "r n", "y"),
    ]
    return graph_with(
        nodes,
        kinds,
        inputs=("x", "k"),
        constants={"w": weight, "k": scale},
        overridable=frozenset({"k"}),
    )


def both(**changes) -> list[Offer]:
    return [offer("dev", DEVICE, [YES] * 4, **changes), offer("cpu", HOST_MEMORY, [YES] * 4)]


def test_tensors_are_what_passes_between_units_and_the_caller():
    problem, units = build(small(), range(4), both(), Wishes(lengths={"N": 2}))
    assert units == [(0,), (1,), (2,), (3,)]
    assert problem.tensors == [
        Tensor("x", 32, NO_UNIT, (0,), exact=False),
        Tensor("m", 32, 0, (1, 2), exact=False),
        Tensor("k", 16, NO_UNIT, (1,)),  # its default can be overridden, so it is fed
        Tensor("r", 32, 1, (3,), exact=False),
        Tensor("n", 0, 2, (3,), exact=False),
        Tensor("y", 0, 3, (), output=True, exact=False),
    ]


def test_values_that_are_no_tensors_have_no_size():
    graph = small()
    values = {**graph.values, "m": ValueInfo("m", SequenceType(tensor(4)))}
    problem, _ = build(graph.replace(values=values), range(4), both(), Wishes())
    assert problem.tensors[1] == Tensor("m", 0, 0, (1, 2), exact=False)


def test_nodes_that_no_output_needs_are_left_out():
    problem, units = build(small().replace(outputs=(ValueInfo("m"),)), [0], both(), Wishes())
    assert units == [(0,)]
    assert [(t.name, t.consumers) for t in problem.tensors] == [("x", (0,)), ("m", ())]


def test_memories_and_routes():
    slow = DeviceSpeed(1e9, 1e9, 0, 0, copy_seconds=3.0, copy_bytes_per_second=5.0)
    fast = DeviceSpeed(1e9, 1e9, 0, 0, copy_seconds=1.0, copy_bytes_per_second=7.0)
    offers = [offer("a", DEVICE, [YES] * 4, slow), offer("b", PEER, [YES] * 4, fast), *both()[1:]]
    problem, _ = build(small(), range(4), offers, Wishes(), [(DEVICE, PEER)])
    assert problem.candidates == ("a", "b", "cpu", "core")
    assert problem.memory_of == (1, 2, 0, 0)
    assert problem.routes == {
        (0, 1): Route(3.0, 5.0),
        (1, 0): Route(3.0, 5.0),
        (0, 2): Route(1.0, 7.0),
        (2, 0): Route(1.0, 7.0),
        (1, 2): Route(3.0, 5.0),
    }


def test_a_provider_that_estimates_is_believed_within_reason():
    answers = [Support(True, cost=c) for c in (7.0, math.nan, -1.0, None)]
    problem, _ = build(small(), range(4), [offer("dev", DEVICE, answers)], Wishes())
    assert problem.seconds[0] == (7.0, math.inf)
    assert all(0 < row[0] < 1e-3 for row in problem.seconds[1:])


def test_pins_leave_one_candidate():
    problem, _ = build(small(), range(4), both(), Wishes(pins={2: "cpu"}))
    assert problem.able == [(0, 1), (0, 1), (1,), (0, 1)]
    assert problem.pinned == {2}
    assert place(small(), range(4), both(), wishes=Wishes(pins={2: "cpu"})).notes[2].owner == 1


def test_a_pin_to_a_candidate_that_cannot_is_an_error_that_names_both():
    offers = [offer("dev", DEVICE, [YES, YES, NO, YES]), *both()[1:]]
    with pytest.raises(PlacementError, match=r"Neg 'n' is pinned to 'dev', .*: no kernel for it"):
        build(small(), range(4), offers, Wishes(pins={2: "dev"}))


@pytest.mark.parametrize("wishes", [Wishes(pins={0: "gpu"}), Wishes(prefer={0: "gpu"})])
def test_wishes_for_a_candidate_that_is_not_there_are_errors(wishes):
    with pytest.raises(PlacementError, match=r"MatMul 'm' is .*'gpu', which isn't .*cpu"):
        build(small(), range(4), both(), wishes)


def test_a_preference_tips_a_close_choice_and_not_a_clear_one():
    for cost, owner in ((1.9, 1), (2.1, 0)):
        offers = [
            offer("a", HOST_MEMORY, [Support(True, cost=1.0)] * 4),
            offer("b", HOST_MEMORY, [Support(True, cost=cost)] * 4),
        ]
        placed = place(
            small(), range(4), offers, wishes=Wishes(prefer=dict.fromkeys(range(4), "b"))
        )
        assert {note.owner for note in placed.notes.values()} == {owner}
        assert placed.chosen.compute_seconds == pytest.approx(4 * (cost if owner else 1.0))


# ------------------------------------------------------------ the way in


def costs(*seconds: float) -> list[Support]:
    return [Support(True, cost=value) for value in seconds]


def test_placements_say_why():
    speed = DeviceSpeed(1e9, 1e9, 0.0, 0.25, copy_seconds=1.0, copy_bytes_per_second=1e12)
    device = offer("dev", DEVICE, costs(1, 5, 1, 1), speed)
    host = offer("cpu", HOST_MEMORY, [*costs(30, 4, 30), NO], speed)
    placed = place(small(), range(4), [device, host])
    assert placed.partitions == ((0, (0, 1, 2, 3)),)
    notes = [placed.notes[index] for index in range(4)]
    assert [note.reason for note in notes] == [
        "fastest",
        "first in the caller's order, and no better placement was found",
        "fastest",
        "no other can run it",
    ]
    assert notes[3].runner_up is None
    # moved alone, Mul would save a second and the copy of k, and need m there and r back
    assert notes[1].runner_up == 1
    assert notes[1].difference == pytest.approx(-1 - 1 + 1 + 1, abs=1e-9)
    assert [copy.value for copy in placed.copies] == ["x", "k", "y"]
    assert placed.copies[0].target == DEVICE
    assert placed.chosen.seconds == pytest.approx(8 + 3 + 0.25)


def test_copy_cost_is_a_reason():
    speed = DeviceSpeed(1e9, 1e9, 0.0, 0.0, copy_seconds=1.0, copy_bytes_per_second=1e12)
    device = offer("dev", DEVICE, [*costs(9, 3, 9), NO], speed)
    host = offer("cpu", HOST_MEMORY, costs(1, 4, 1, 1), speed)
    placed = place(small(), range(4), [device, host])
    assert placed.partitions == ((1, (0, 1, 2, 3)),)
    assert placed.notes[1].reason == "copy cost: faster on dev, copies would outweigh it"
    assert placed.greedy.owners == (0, 0, 0, 1)
    classic = place(small(), range(4), [device, host], strategy="greedy")
    assert classic.chosen == placed.greedy
    assert classic.notes[0].reason.startswith("first in the caller's order")


def test_greedy_keeps_to_limits_or_says_that_it_cannot():
    offers = [offer("dev", DEVICE, [YES, NO, YES, YES]), *both()[1:]]
    classic = place(small(), range(4), offers, strategy="greedy")
    assert len(classic.partitions) == 3
    with pytest.raises(PlacementError, match="max_partitions=2"):
        place(small(), range(4), offers, strategy="greedy", limits=Limits(max_partitions=2))
    placed = place(small(), range(4), offers, limits=Limits(max_partitions=2))
    assert len(placed.partitions) <= 2


def test_a_quantised_unit_moves_as_one():
    graph = quantised()
    dear, cheap = costs(*[1.0] * 7), costs(3.0, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9)
    offers = [offer("a", HOST_MEMORY, dear), offer("b", HOST_MEMORY, cheap)]
    placed = place(graph, range(7), offers)
    assert {placed.notes[index].owner for index in range(4)} == {0}  # 4.0 against 5.7
