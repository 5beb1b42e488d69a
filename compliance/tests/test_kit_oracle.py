"""The oracle: what it answers, from where, and what it leaves open."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from ep_compliance.cases.case import Case
from ep_compliance.oracle import answers as oracle
from ep_compliance.oracle.answers import answer
from ep_compliance.oracle.corrections import corrections
from ep_compliance.oracle.second_opinion import Opinion
from ep_compliance.oracle.tolerance import judge

F32 = np.float32


def model_of(nodes, inputs, outputs, version, domain=""):
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in inputs.items()
    ]
    graph = helper.make_graph(
        nodes, "test", infos, [onnx.ValueInfoProto(name=name) for name in outputs]
    )
    opsets = [helper.make_opsetid("", 21 if domain else version)]
    if domain:
        opsets.append(helper.make_opsetid(domain, version))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def case_of(op_type, inputs, version, outputs=1, domain="", **attributes):
    feeds = {f"x{i}": v for i, v in enumerate(inputs) if v is not None}
    names = [f"x{i}" if v is not None else "" for i, v in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, results, domain=domain, **attributes)
    return Case(f"test/{op_type}", model_of([node], feeds, results, version, domain), feeds)


def expected(case):
    found = answer(case, cross_check=False)
    assert found.quarantine_reason is None
    return found.expected


def uncorrected(case):
    return ReferenceEvaluator(case.model).run(None, dict(case.inputs))


class TestCorrections:
    """Each against a value worked out by hand, or told by the operator's text."""

    def test_lrn_with_an_even_window(self):
        x = np.ones((1, 4, 1, 1), F32)
        case = case_of("LRN", [x], 13, size=2, alpha=2.0, beta=1.0, bias=1.0)
        # Windows reach from c - 0 to c + 1, so that the last channel sees one square.
        np.testing.assert_allclose(expected(case)[0].ravel(), [1 / 3, 1 / 3, 1 / 3, 1 / 2])

    def test_batch_normalization_9(self):
        x = np.arange(8, dtype=F32).reshape(2, 2, 2)
        scale, bias, mean, variance = (np.array(v, F32) for v in ([2, 1], [0, 1], [1, 2], [3, 0]))
        case = case_of("BatchNormalization", [x, scale, bias, mean, variance], 9, epsilon=1.0)
        first = (x[:, 0] - 1) / 2 * 2
        second = (x[:, 1] - 2) + 1
        np.testing.assert_allclose(expected(case)[0], np.stack([first, second], axis=1), rtol=1e-6)

    def test_global_max_pool_of_rank_3(self):
        x = np.array([[[1, 5, 2], [-3, -1, -2]]], F32)
        assert expected(case_of("GlobalMaxPool", [x], 1))[0].ravel().tolist() == [5, -1]

    def test_scatter_elements_keeps_nan(self):
        x = np.array([1.0, np.nan, 3.0], F32)
        inputs = [x, np.array([0, 1, 2]), np.array([np.nan, 5, 2], F32)]
        found = expected(case_of("ScatterElements", inputs, 18, reduction="min"))[0]
        np.testing.assert_array_equal(found, np.array([np.nan, np.nan, 2], F32))

    def test_pytorch_half_pixel_to_one(self):
        x = np.array([[[7.0, 1.0, 2.0, 3.0]]], F32)
        scales = np.array([1, 1, 0.25], F32)
        mode = {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}
        case = case_of("Resize", [x, None, scales], 13, **mode)
        assert expected(case)[0].ravel().tolist() == [7]

    def test_negative_pads(self):
        x = np.arange(4, dtype=F32)
        case = case_of("Pad", [x, np.array([-1, 2]), np.array(9, F32)], 13)
        assert expected(case)[0].tolist() == [1, 2, 3, 9, 9]

    def test_conv_transpose_with_groups(self):
        x = np.array([[[1.0, 2.0], [3.0, 4.0]]], F32)
        w = np.array([[[1.0, 10.0]], [[100.0, 1000.0]]], F32)
        found = expected(case_of("ConvTranspose", [x, w], 11, group=2, strides=[2]))[0]
        assert found.tolist() == [[[1, 10, 2, 20], [300, 3000, 400, 4000]]]

    @pytest.mark.parametrize(("mode", "lengths"), [("SAME_UPPER", 4), ("SAME_LOWER", 4)])
    def test_conv_transpose_auto_pad(self, mode, lengths):
        x, w = np.ones((1, 1, 2), F32), np.array([[[1.0, 2.0, 4.0]]], F32)
        found = expected(case_of("ConvTranspose", [x, w], 11, auto_pad=mode, strides=[2]))[0]
        # The whole is 1 2 5 2 4; one element goes: the last for SAME_UPPER, else the first.
        whole = [1, 2, 5, 2, 4]
        assert found.ravel().tolist() == (whole[:4] if mode == "SAME_UPPER" else whole[1:])
        assert found.size == lengths

    def test_flatten_of_nothing(self):
        assert expected(case_of("Flatten", [np.zeros((2, 0, 3), F32)], 13))[0].shape == (2, 0)

    def test_sum_of_one_negative_zero(self):
        assert np.signbit(expected(case_of("Sum", [np.array([-0.0], F32)], 13))[0]).all()

    def test_dequantize_13_per_axis(self):
        x = np.array([[10, 20], [30, 40]], np.uint8)
        inputs = [x, np.array([0.5, 2], F32), np.array([10, 0], np.uint8)]
        found = expected(case_of("DequantizeLinear", inputs, 13, axis=0))[0]
        assert found.tolist() == [[0, 5], [60, 80]]
        assert found.dtype == F32

    def test_zip_map(self):
        x = np.array([[0.25, 0.75]], F32)
        case = case_of("ZipMap", [x], 1, domain="ai.onnx.ml", classlabels_strings=["a", "b"])
        assert expected(case)[0] == [{"a": 0.25, "b": 0.75}]

    def test_loop_without_trips(self):
        body = helper.make_graph(
            [
                helper.make_node("Identity", ["c"], ["c2"]),
                helper.make_node("Identity", ["s"], ["s2"]),
                helper.make_node("Identity", ["s"], ["row"]),
            ],
            "body",
            [
                helper.make_tensor_value_info("i", TensorProto.INT64, []),
                helper.make_tensor_value_info("c", TensorProto.BOOL, []),
                helper.make_tensor_value_info("s", TensorProto.FLOAT, [2]),
            ],
            [
                helper.make_tensor_value_info("c2", TensorProto.BOOL, []),
                helper.make_tensor_value_info("s2", TensorProto.FLOAT, [2]),
                helper.make_tensor_value_info("row", TensorProto.FLOAT, [2]),
            ],
        )
        state = np.array([1, 2], F32)
        case = case_of("Loop", [np.array(0), None, state], 13, outputs=2, body=body)
        last, rows = expected(case)
        np.testing.assert_array_equal(last, state)
        assert rows.shape == (0, 2)
        assert rows.dtype == F32

    def test_log_sum_over_no_axes_is_the_logarithm(self):
        x = np.array([[1.0, np.e]], F32)
        attributes = {"noop_with_empty_axes": 1}
        case = case_of("ReduceLogSum", [x, np.zeros(0, np.int64)], 18, **attributes)
        np.testing.assert_allclose(expected(case)[0], [[0, 1]], atol=1e-7)

    def test_softmax_11_flattens(self):
        x = np.zeros((2, 3, 4), F32)
        np.testing.assert_allclose(expected(case_of("Softmax", [x], 11, axis=1))[0], 1 / 12)

    def test_lp_normalization_sums_magnitudes(self):
        x = np.array([[3.0, -1.0]], F32)
        assert expected(case_of("LpNormalization", [x], 22, p=1))[0].tolist() == [[0.75, -0.25]]

    def test_sequence_lengths_stop_a_recurrence(self):
        x = np.ones((3, 1, 1), F32)
        w, r = np.ones((1, 1, 1), F32), np.zeros((1, 1, 1), F32)
        inputs = [x, w, r, None, np.array([2], np.int32)]
        steps, last = expected(case_of("RNN", inputs, 14, outputs=2, hidden_size=1))
        np.testing.assert_allclose(steps.ravel(), [np.tanh(1), np.tanh(1), 0], rtol=1e-6)
        np.testing.assert_allclose(last.ravel(), [np.tanh(1)], rtol=1e-6)

    def test_lstm_gates_by_hand(self):
        # Only the cell gate sees the input, so that i = f = o = 1/2.
        w = np.array([0, 0, 0, 1], F32).reshape(1, 4, 1)
        r = np.zeros((1, 4, 1), F32)
        inputs = [np.ones((2, 1, 1), F32), w, r]
        _, h, c = expected(case_of("LSTM", inputs, 14, outputs=3, hidden_size=1))
        cell = 0.5 * (0.5 * np.tanh(1)) + 0.5 * np.tanh(1)
        np.testing.assert_allclose(c.ravel(), [cell], rtol=1e-6)
        np.testing.assert_allclose(h.ravel(), [0.5 * np.tanh(cell)], rtol=1e-6)

    def test_ceil_mode_drops_windows_that_begin_in_the_pads(self):
        x = np.arange(1, 5, dtype=F32).reshape(1, 1, 4)
        ceil = {"kernel_shape": [2], "strides": [3], "ceil_mode": 1, "pads": [0, 1]}
        assert expected(case_of("MaxPool", [x], 12, **ceil))[0].ravel().tolist() == [2, 4]

    def test_nearest_resize_of_strings(self):
        x = np.array([["a", "b"]], object)
        infos = [helper.make_tensor_value_info("x0", TensorProto.STRING, [1, 2])]
        scales = helper.make_tensor("s", TensorProto.FLOAT, [2], [1.0, 2.0])
        node = helper.make_node("Resize", ["x0", "", "s"], ["y"])
        out = [helper.make_tensor_value_info("y", TensorProto.STRING, None)]
        graph = helper.make_graph([node], "r", infos, out, [scales])
        opsets = [helper.make_opsetid("", 19)]
        case = Case("test/strings", helper.make_model(graph, opset_imports=opsets), {"x0": x})
        assert expected(case)[0].tolist() == [["a", "a", "b", "b"]]

    def test_every_correction_says_what_is_wrong(self):
        for correction in corrections():
            assert correction.reason
            assert correction.since <= correction.until
            assert onnx.defs.has(correction.op_type, correction.domain)


class TestEvaluation:
    def test_float64_inside_rounded_once_at_the_end(self):
        a = np.full((1, 4096), 0.1, F32)
        found = answer(case_of("ReduceSum", [a], 13), cross_check=False)
        exact = F32(a.astype(np.float64).sum())
        assert found.expected[0].ravel().tolist() == [exact]
        assert found.expected[0].dtype == F32

    def test_casts_are_evaluated_in_the_declared_type(self):
        x = {"x": np.array([0.1], F32)}
        nodes = [
            helper.make_node("Mul", ["x", "x"], ["square"]),
            helper.make_node("Cast", ["square"], ["y"], to=TensorProto.DOUBLE),
        ]
        case = Case("test/cast", model_of(nodes, x, ["y"], 21), x)
        assert expected(case)[0][0] == float(F32(0.1) * F32(0.1))

    def test_an_intermediate_result_may_overflow(self):
        x = {"x": np.array([200.0], F32)}
        nodes = [
            helper.make_node("Exp", ["x"], ["big"]),
            helper.make_node("Log", ["big"], ["y"]),
        ]
        case = Case("test/overflow", model_of(nodes, x, ["y"], 21), x)
        assert expected(case)[0].tolist() == [np.inf]

    def test_defaults_are_those_of_the_version(self):
        x = np.array([-1.0], F32)
        old, new = (expected(case_of("Selu", [x], v))[0][0] for v in (1, 6))
        assert old == pytest.approx(1.0507 * 1.6732 * (np.exp(-1) - 1), rel=1e-6)
        assert new == pytest.approx(1.0507009 * 1.6732632 * (np.exp(-1) - 1), rel=1e-6)
        assert old != new

    def test_a_chain_allows_what_its_condition_costs(self):
        # A difference of large sums: float32 can't know the last digits.
        x = {"x": np.array([1000.1], F32), "z": np.array([1000.0], F32)}
        nodes = [
            helper.make_node("Mul", ["x", "x"], ["a"]),
            helper.make_node("Mul", ["z", "z"], ["b"]),
            helper.make_node("Sub", ["a", "b"], ["y"]),
        ]
        case = Case("test/condition", model_of(nodes, x, ["y"], 21), x)
        found = answer(case, cross_check=False)
        single = x["x"] * x["x"] - x["z"] * x["z"]
        assert single != found.expected[0]
        assert judge([single], found.expected, found.context) is None
        assert judge([single + F32(5)], found.expected, found.context) is not None

    def test_the_same_answer_twice(self):
        x = np.random.default_rng(1).normal(size=(3, 8)).astype(F32)
        case = case_of("LayerNormalization", [x, np.ones(8, F32)], 17)
        first, second = (answer(case, cross_check=False) for _ in range(2))
        np.testing.assert_array_equal(first.expected[0], second.expected[0])
        one, other = (found.context.allowance(0).absolute for found in (first, second))
        np.testing.assert_array_equal(one, other)


class TestSources:
    x = np.array([1.0, 2.0], F32)

    def test_official_data_settles_it(self):
        case = dataclasses.replace(case_of("Neg", [self.x], 13), expected=[self.x])
        found = answer(case)
        assert found.expected[0] is self.x
        assert found.source == "official data"
        assert found.quarantine_reason is None

    def test_official_data_is_sharpened_where_the_two_agree(self):
        rough = np.array([2.7182, 7.3891], F32)
        case = dataclasses.replace(case_of("Exp", [self.x], 13), expected=[rough])
        found = answer(case)
        assert found.expected[0].tolist() == [F32(np.exp(1.0)), F32(np.exp(2.0))]
        assert found.source.startswith("official data, onnx.reference")

    def test_a_second_opinion_quarantines(self, monkeypatch):
        other = Opinion([self.x], "another runtime")
        monkeypatch.setattr(oracle, "second_opinion", lambda case: other)
        found = answer(case_of("Neg", [self.x], 13))
        assert "another runtime disagrees with onnx.reference" in found.quarantine_reason
        assert answer(case_of("Neg", [self.x], 13), cross_check=False).quarantine_reason is None

    def test_a_second_opinion_may_be_less_exact(self, monkeypatch):
        other = Opinion([np.exp(self.x) * F32(1 + 1e-4)], "another runtime")
        monkeypatch.setattr(oracle, "second_opinion", lambda case: other)
        assert answer(case_of("Exp", [self.x], 13)).quarantine_reason is None

    def test_a_correction_needs_no_second_opinion(self, monkeypatch):
        other = Opinion([self.x * 2], "another runtime")
        monkeypatch.setattr(oracle, "second_opinion", lambda case: other)
        found = answer(case_of("Sum", [self.x], 13))
        assert found.quarantine_reason is None
        assert "correction of Sum" in found.source

    def test_what_nobody_knows_is_quarantined(self):
        kind = np.zeros(2, np.uint8)
        case = case_of("ImageDecoder", [kind], 20)
        found = answer(case, cross_check=False)
        assert "no oracle can answer it" in found.quarantine_reason

    def test_draws(self):
        node = helper.make_node("RandomNormal", [], ["y"], shape=[2, 3])
        case = Case("test/random", model_of([node], {}, ["y"], 22), {})
        found = answer(case)
        assert found.context.draws
        assert judge([np.zeros((2, 3), F32)], found.expected, found.context) is None
        assert judge([np.zeros((3, 2), F32)], found.expected, found.context) is not None
