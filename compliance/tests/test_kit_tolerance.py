"""Every class of operators: what is right passes, and the smallest real mistake doesn't."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

from ep_compliance.cases.case import Case
from ep_compliance.oracle.answers import answer
from ep_compliance.oracle.precision import narrow, spacing
from ep_compliance.oracle.tolerance import EXACT, Allowance, Context, judge
from ep_core.contracts import Numerics

F32 = np.float32


def case_of(op_type, inputs, version, outputs=1, **attributes):
    names = [f"x{i}" for i in range(len(inputs))]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in zip(names, inputs, strict=True)
    ]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, results, **attributes)

    graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name=n) for n in results])
    opsets = [helper.make_opsetid("", version)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    model = onnx.shape_inference.infer_shapes(model)
    return Case(f"test/{op_type}", model, dict(zip(names, inputs, strict=True)))


def verdict(case, got):
    right = answer(case, cross_check=False)
    assert right.quarantine_reason is None
    return judge([got], right.expected, right.context)


def rng():
    return np.random.default_rng(7)


def neighbour(values, place, steps=1):
    moved = values.copy()
    for _ in range(steps):
        moved.flat[place] = np.nextafter(moved.flat[place], moved.dtype.type(np.inf))
    return moved


def plain(got, expected, allowance=EXACT, **context):
    return judge([got], [expected], Context([allowance], **context))


class TestExact:
    def test_equal_bits_pass_and_one_neighbour_fails(self):
        x = rng().normal(size=5).astype(F32)
        assert plain(x.copy(), x) is None
        assert "1 of 5 values wrong; worst at [2]" in plain(neighbour(x, 2), x)

    @pytest.mark.parametrize("dtype", ["int8", "uint64", "int64", "bool"])
    def test_integers_off_by_one(self, dtype):
        largest = 1 if dtype == "bool" else np.iinfo(dtype).max
        x = np.array([0, 1, largest], dtype)
        wrong = x.copy()
        wrong[2] = 0
        assert plain(x.copy(), x) is None
        assert plain(wrong, x) is not None

    def test_the_largest_uint64_differs_from_its_neighbour(self):
        x = np.array([2**64 - 1], np.uint64)
        assert plain(x - np.uint64(1), x) is not None

    def test_narrow_integers(self):
        x = np.array([-8, 7, 0], ml_dtypes.int4)
        assert plain(x.copy(), x) is None
        assert plain(x[::-1].copy(), x) is not None

    def test_strings(self):
        x = np.array(["a", "", "ä"], object)
        assert plain(x.copy(), x) is None
        assert plain(np.array(["a", "", "a"], object), x) is not None

    def test_dtype_and_shape(self):
        x = np.zeros((2, 3), F32)
        assert "dtype float32 expected, got float64" in plain(x.astype(np.float64), x)
        assert "shape (2, 3) expected, got (3, 2)" in plain(x.T, x)
        assert "shape (2, 3) expected, got (1, 2, 3)" in plain(x[None], x)

    def test_movement_must_not_shift_indices(self):
        x = np.arange(12, dtype=F32).reshape(3, 4)
        case = case_of("Gather", [x, np.array([0, 2], np.int64)], 13)
        assert verdict(case, x[[0, 2]]) is None
        assert verdict(case, x[[0, 1]]) is not None

    def test_neg_keeps_the_sign_of_zero(self):
        case = case_of("Neg", [np.array([0.0, -0.0, 1.0], F32)], 13)
        assert verdict(case, np.array([-0.0, 0.0, -1.0], F32)) is None
        assert verdict(case, np.array([0.0, 0.0, -1.0], F32)) is not None

    def test_relu_may_give_either_zero(self):
        case = case_of("Relu", [np.array([-0.0, -1.0, 2.0], F32)], 14)
        assert verdict(case, np.array([0.0, 0.0, 2.0], F32)) is None
        assert verdict(case, np.array([-0.0, 0.0, 2.0], F32)) is None


class TestSpecialValues:
    x = np.array([np.nan, np.inf, -np.inf, 1.0], F32)

    def test_nan_of_any_payload(self):
        other = self.x.copy()
        other.view(np.uint32)[0] = 0xFFC12345
        assert np.isnan(other[0])
        assert plain(other, self.x) is None

    @pytest.mark.parametrize("place", range(4))
    def test_swallowed_and_invented(self, place):
        wrong = self.x.copy()
        wrong[place] = 0 if place < 3 else np.nan
        assert plain(wrong, self.x) is not None
        assert plain(wrong, self.x, Allowance("8 ULP", ulps=8)) is not None

    def test_wrong_sign_of_infinity(self):
        allowance = Allowance("8 ULP", ulps=8)
        assert plain(np.array([np.inf], F32), np.array([-np.inf], F32), allowance) is not None

    def test_rounding_may_overflow_only_with_an_allowance(self):
        largest = np.array([np.finfo(F32).max], F32)
        infinite = np.array([np.inf], F32)
        one = Allowance("1 ULP", ulps=1)
        assert plain(infinite, largest, one) is None
        assert plain(infinite, largest) is not None
        assert plain(infinite, largest / 2, Allowance("8 ULP", ulps=8)) is not None

    def test_saturation_is_no_overflow(self):
        largest = np.array([np.finfo(F32).max], F32)
        assert plain(largest, np.array([np.inf], F32), Allowance("8 ULP", ulps=8)) is not None

    def test_an_infinite_term_allows_nothing(self):
        allowance = Allowance("sum", terms=4, scale=np.array([np.inf]))
        assert plain(np.array([5.0], F32), np.array([np.inf], F32), allowance) is not None

    def test_denormals_may_be_flushed_only_where_declared(self):
        tiny = np.array([1e-40, -1e-45, 1.0], F32)
        flushed = np.array([0.0, -0.0, 1.0], F32)
        numerics = Numerics(flushes_denormals=True)
        assert plain(flushed, tiny) is not None
        assert plain(flushed, tiny, numerics=numerics) is None
        assert plain(np.zeros(3, F32), tiny, numerics=numerics) is not None


class TestUnits:
    @pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul"])
    def test_correctly_rounded(self, op_type):
        a, b = rng().normal(size=(2, 9)).astype(F32)
        case = case_of(op_type, [a, b], 14)
        right = {"Add": a + b, "Sub": a - b, "Mul": a * b}[op_type]
        assert verdict(case, right) is None
        assert verdict(case, neighbour(right, 4)) is not None

    def test_one_unit(self):
        a, b = rng().uniform(1, 2, size=(2, 9)).astype(F32)
        case = case_of("Div", [a, b], 14)
        assert verdict(case, neighbour(a / b, 4)) is None
        assert verdict(case, neighbour(a / b, 4, steps=2)) is not None

    def test_exp_has_three(self):
        x = np.linspace(-3, 3, 9).astype(F32)
        right = np.exp(x.astype(np.float64)).astype(F32)
        case = case_of("Exp", [x], 13)
        assert verdict(case, neighbour(right, 5, steps=3)) is None
        assert verdict(case, neighbour(right, 5, steps=4)) is not None

    def test_erf_by_a_low_order_formula_fails(self):
        x = np.linspace(-2, 2, 41).astype(F32)
        crude = np.tanh(x * F32(1.128379) * (1 + F32(0.08943) * x * x)).astype(F32)
        assert verdict(case_of("Erf", [x], 13), crude) is not None

    def test_tanh_without_relative_accuracy_at_zero_fails(self):
        x = np.array([1e-4], F32)
        cancelling = 1 - 2 / (1 + np.exp(2 * x))
        assert verdict(case_of("Tanh", [x], 13), cancelling.astype(F32)) is not None
        assert verdict(case_of("Tanh", [x], 13), np.tanh(x)) is None

    def test_elu_may_cancel_as_its_formula_does(self):
        x = np.array([-1e-4, -0.5, 2.0], F32)
        direct = np.where(x < 0, np.exp(x) - F32(1), x)
        assert verdict(case_of("Elu", [x], 6), direct) is None
        assert verdict(case_of("Elu", [x], 6), np.where(x < 0, x, x)) is not None

    @pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
    def test_half_types_round_once(self, kind):
        a, b = (rng().uniform(1, 2, 64).astype(kind) for _ in range(2))
        case = case_of("Mul", [a, b[::-1].copy()], 14)
        exact = a.astype(np.float64) * b[::-1].astype(np.float64)
        right = narrow(exact, np.dtype(kind))
        down = np.floor(exact / spacing(exact, np.dtype(kind))) * spacing(exact, np.dtype(kind))
        assert verdict(case, right) is None
        assert verdict(case, down.astype(kind)) is not None

    def test_round_to_even(self):
        x = np.array([0.5, 1.5, 2.5, -0.5], F32)
        case = case_of("Round", [x], 11)
        assert verdict(case, np.rint(x)) is None
        away = np.sign(x) * np.floor(np.abs(x) + F32(0.5))
        assert verdict(case, away) is not None

    @pytest.mark.parametrize("kind", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
    def test_cast_to_float8_rounds_to_even(self, kind):
        eps = float(ml_dtypes.finfo(kind).eps)
        x = np.array([1 + eps / 2, 1 + 1.5 * eps], F32)
        case = case_of("Cast", [x], 19, to=int(helper.np_dtype_to_tensor_dtype(np.dtype(kind))))
        assert verdict(case, x.astype(kind)) is None
        assert verdict(case, np.array([1 + eps, 1 + 2 * eps]).astype(kind)) is not None


class TestSums:
    def matmul(self):
        a = rng().normal(size=(3, 64)).astype(F32)
        b = rng().normal(size=(64, 4)).astype(F32)
        return a, b, case_of("MatMul", [a, b], 13)

    def test_any_order_of_summation(self):
        a, b, case = self.matmul()
        one_by_one = np.zeros((3, 4), F32)
        for k in range(64):
            one_by_one = one_by_one + a[:, k : k + 1] * b[k]
        assert verdict(case, one_by_one) is None
        assert verdict(case, a @ b) is None

    def test_a_missing_term(self):
        a, b, case = self.matmul()
        assert verdict(case, a[:, :-1] @ b[:-1]) is not None

    def test_half_precision_inside(self):
        a, b, case = self.matmul()
        inside = (a.astype(np.float16) @ b.astype(np.float16)).astype(F32)
        assert verdict(case, inside) is not None

    def test_narrow_accumulation_must_be_declared(self):
        a = rng().uniform(0.5, 1, size=(1, 1024)).astype(np.float16)
        case = case_of("ReduceSum", [a, np.array([1], np.int64)], 13)
        total = np.float16(0)
        for value in a[0]:
            total = np.float16(total + value)
        got = np.array([[total]], np.float16)
        right = answer(case, cross_check=False)
        assert judge([got], right.expected, right.context) is not None
        declared = dataclasses.replace(right.context, numerics=Numerics(narrow_accumulation=True))
        assert judge([got], right.expected, declared) is None

    def test_convolution_reads_one_pixel_too_far(self):
        x = rng().normal(size=(2, 3, 8, 8)).astype(F32)
        w = rng().normal(size=(4, 3, 1, 1)).astype(F32)
        case = case_of("Conv", [x, w], 11)
        right = np.einsum("nchw,mc->nmhw", x, w[:, :, 0, 0])
        assert verdict(case, right) is None
        assert verdict(case, np.roll(right, 1, axis=3)) is not None
        swapped = right[[1, 0]]
        assert verdict(case, swapped) is not None

    def test_pads_that_count_in_a_mean(self):
        x = rng().uniform(1, 2, (1, 1, 4, 4)).astype(F32)
        case = case_of("AveragePool", [x], 11, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        right = answer(case, cross_check=False).expected[0]
        wrong = right.copy()
        wrong[0, 0, 0, 0] *= F32(4 / 9)
        assert verdict(case, right) is None
        assert verdict(case, wrong) is not None


class TestConditioned:
    def softmax(self, x):
        shifted = np.exp(x - x.max(axis=-1, keepdims=True))
        return shifted / shifted.sum(axis=-1, keepdims=True)

    def test_softmax(self):
        x = rng().normal(size=(3, 7)).astype(F32)
        case = case_of("Softmax", [x], 13)
        right = self.softmax(x)
        assert verdict(case, right) is None
        assert verdict(case, self.softmax(x.T).T) is not None
        assert verdict(case, right * F32(1 + 1e-5)) is not None

    def layer_norm(self, x, epsilon):
        mean = x.mean(axis=-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + F32(epsilon))

    def test_layer_norm_with_a_far_mean_is_held_to_its_condition(self):
        x = (1000 + rng().normal(size=(4, 16))).astype(F32)
        one = np.ones(16, F32)
        case = case_of("LayerNormalization", [x, one], 17)
        assert verdict(case, self.layer_norm(x, 1e-5)) is None
        squares = (x * x).mean(axis=-1, keepdims=True) - x.mean(axis=-1, keepdims=True) ** 2
        cancelled = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(np.abs(squares) + F32(1e-5))
        assert verdict(case, cancelled) is not None

    def test_layer_norm_with_the_wrong_epsilon(self):
        x = (rng().normal(size=(4, 16)) * 0.1).astype(F32)
        case = case_of("LayerNormalization", [x, np.ones(16, F32)], 17)
        assert verdict(case, self.layer_norm(x, 1e-5)) is None
        assert verdict(case, self.layer_norm(x, 1e-6)) is not None

    def test_resize_by_another_convention(self):
        x = rng().normal(size=(1, 1, 4, 4)).astype(F32)
        scales = np.array([1, 1, 2, 2], F32)
        inputs = [x, np.zeros(0, F32), scales]
        half = case_of("Resize", inputs, 13, mode="linear")
        corners = case_of(
            "Resize", inputs, 13, mode="linear", coordinate_transformation_mode="align_corners"
        )
        other = answer(corners, cross_check=False).expected[0]
        assert verdict(half, answer(half, cross_check=False).expected[0]) is None
        assert verdict(half, other) is not None


class TestQuantized:
    def test_ties_go_to_even_and_others_are_exact(self):
        x = np.array([0.5, 1.5, 2.5, -0.5, 7.2, 1000], F32)
        scale, zero = np.array(1, F32), np.array(0, np.int8)
        case = case_of("QuantizeLinear", [x, scale, zero], 13)
        assert verdict(case, np.array([0, 2, 2, 0, 7, 127], np.int8)) is None
        assert verdict(case, np.array([1, 2, 3, -1, 7, 127], np.int8)) is not None
        assert verdict(case, np.array([0, 2, 2, 0, 8, 127], np.int8)) is not None
        assert verdict(case, np.array([0, 2, 2, 0, 7, -24], np.int8)) is not None

    def test_beside_a_tie_either_step_is_right(self):
        x = np.array([0.15, 4.0], F32)
        case = case_of("QuantizeLinear", [x, np.array(0.1, F32), np.array(0, np.uint8)], 13)
        assert verdict(case, np.array([1, 40], np.uint8)) is None
        assert verdict(case, np.array([2, 40], np.uint8)) is None
        assert verdict(case, np.array([1, 41], np.uint8)) is not None

    def test_matmul_may_be_one_step_off_in_places_but_not_biased(self):
        a = rng().integers(0, 60, (8, 16)).astype(np.uint8)
        b = rng().integers(0, 60, (16, 8)).astype(np.uint8)
        scale, zero = np.array(0.05, F32), np.array(3, np.uint8)
        inputs = [a, scale, zero, b, scale, zero, np.array(0.6, F32), zero]
        case = case_of("QLinearMatMul", inputs, 10)
        right = answer(case, cross_check=False).expected[0]
        off = right.copy()
        off[0, 0] += 1
        assert verdict(case, off) is None
        off[0, 0] += 1
        assert verdict(case, off) is not None

    def test_a_bias_everywhere_is_a_mean_square_error(self):
        right = np.full(100, 10, np.uint8)
        allowance = Allowance("one step", steps=1, error=1e-3)
        assert plain(right.copy(), right, allowance) is None
        assert "mean square" in plain(right + np.uint8(1), right, allowance)


class TestContainers:
    def test_sequences(self):
        x = [np.zeros(2, F32), np.ones((1, 3), F32)]
        assert judge([list(x)], [x], Context()) is None
        assert "a sequence of 2 expected, got 1" in judge([x[:1]], [x], Context())
        assert "element 0: shape" in judge([x[::-1]], [x], Context())

    def test_optionals(self):
        assert judge([None], [None], Context()) is None
        assert judge([np.zeros(1)], [None], Context()) is not None
        assert judge([None], [np.zeros(1)], Context()) is not None

    def test_maps(self):
        right = [{"a": F32(0.5), "b": F32(1)}]
        assert judge([[{"a": 0.5, "b": 1.0}]], [right], Context()) is None
        assert "key 'b'" in judge([[{"a": 0.5, "b": 1.5}]], [right], Context())
        assert "keys" in judge([[{"b": 1.0, "a": 0.5}]], [right], Context())

    def test_number_of_outputs(self):
        assert judge([], [np.zeros(1)], Context()) == "1 outputs expected, got 0"

    def test_draws_are_compared_by_type_and_shape(self):
        context = Context(draws=True)
        assert judge([np.ones(3, F32)], [np.zeros(3, F32)], context) is None
        assert judge([np.ones(4, F32)], [np.zeros(3, F32)], context) is not None


class TestPrecision:
    @pytest.mark.parametrize(
        "kind",
        [
            np.float16,
            np.float32,
            ml_dtypes.bfloat16,
            ml_dtypes.float8_e4m3fn,
            ml_dtypes.float8_e5m2,
            ml_dtypes.float4_e2m1fn,
        ],
    )
    def test_spacing_is_the_distance_to_the_next_value(self, kind):
        dtype = np.dtype(kind)
        bits = np.arange(min(2 ** (8 * dtype.itemsize) // 2, 2**15))
        unsigned = {1: np.uint8, 2: np.uint16, 4: np.uint32}[dtype.itemsize]
        if dtype == ml_dtypes.float4_e2m1fn:
            bits = np.arange(8)
        with np.errstate(invalid="ignore"):
            values = bits.astype(unsigned).view(dtype).astype(np.float64)
        values = values[np.isfinite(values)]
        np.testing.assert_array_equal(spacing(values[:-1], dtype), np.diff(values))

    def test_bfloat16_is_rounded_once(self):
        # Beyond the middle by less than float32 can tell: twice rounded, it would go to even.
        value = np.array([1 + 2.0**-8 + 2.0**-40])
        assert narrow(value, np.dtype(ml_dtypes.bfloat16)).astype(float)[0] == 1 + 2.0**-7


def test_the_message_says_where_and_by_how_much():
    got, expected = np.array([1.0, 2.5], F32), np.array([1.0, 2.0], F32)
    text = judge([got], [expected], Context([Allowance("Exp: 3 ULP", ulps=3)], names=["y"]))
    assert text == (
        "output y: 1 of 2 values wrong; worst at [1]: got 2.5, expected 2.0, off by 0.5 = "
        "2.1e+06 ULP; allowed: Exp: 3 ULP"
    )
