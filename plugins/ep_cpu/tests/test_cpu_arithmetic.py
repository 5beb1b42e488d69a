"""Right values of element-wise operators where types and special values make it tricky."""

from __future__ import annotations

import math
import pickle

import ml_dtypes
import numpy as np
import pytest
from cpu_harness import run_op
from onnx import TensorProto

NAN = float("nan")
INF = float("inf")


def f32(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_integer_division_truncates_towards_zero(dtype):
    a = np.array([7, -7, 7, -7, 6], dtype)
    b = np.array([2, 2, -2, -2, 3], dtype)
    (found,) = run_op("Div", [a, b], 14)
    assert found.tolist() == [3, -3, -3, 3, 2]
    assert found.dtype == dtype


def test_integer_division_by_zero_gives_an_answer():
    (found,) = run_op("Div", [np.array([5, -5], np.int32), np.zeros(2, np.int32)], 14)
    assert found.tolist() == [0, 0]


def test_smallest_integer_divided_by_minus_one_wraps():
    low = np.array([-(2**31)], np.int32)
    assert run_op("Div", [low, np.array([-1], np.int32)], 14)[0].tolist() == [-(2**31)]


def test_integer_sum_wraps_around():
    (found,) = run_op("Add", [np.array([127, 100], np.int8), np.array([1, 100], np.int8)], 14)
    assert found.tolist() == [-128, -56]
    (found,) = run_op("Mul", [np.array([65536], np.int32), np.array([65536], np.int32)], 14)
    assert found.tolist() == [0]


def test_mod_signs():
    a = np.array([-4, 7, 5, 4, -7, 8], np.int32)
    b = np.array([2, -3, 8, -2, 3, 5], np.int32)
    assert run_op("Mod", [a, b], 13)[0].tolist() == [0, -2, 5, 0, 2, 3]
    assert run_op("Mod", [a, b], 13, fmod=1)[0].tolist() == [0, 1, 5, 0, -1, 3]
    x, y = f32(-4.3, 7.2, 5.0), f32(2.1, -3.4, 8.0)
    expected = [math.fmod(float(p), float(q)) for p, q in zip(x, y, strict=True)]
    np.testing.assert_allclose(run_op("Mod", [x, y], 13, fmod=1)[0], expected, rtol=1e-6)


def test_pow_of_mixed_types_has_the_type_of_the_base():
    base = np.array([2, -2, 3, 10], np.int32)
    (found,) = run_op("Pow", [base, f32(3, 3, 0, 1)], 15)
    assert found.tolist() == [8, -8, 1, 10]
    assert found.dtype == np.int32
    (found,) = run_op("Pow", [base, np.array([-1, -1, 0, 2], np.int64)], 15)
    assert found.tolist() == [0, 0, 1, 100]
    (found,) = run_op("Pow", [f32(4.0), np.array([-1], np.int64)], 15)
    assert found.tolist() == [0.25]
    ones = np.array([1, -1, -1], np.int64)
    assert run_op("Pow", [ones, np.array([-5, -2, -3], np.int64)], 15)[0].tolist() == [1, 1, -1]
    big = np.array([3], np.int32)
    assert run_op("Pow", [big, np.array([21], np.int32)], 15)[0].tolist() == [
        (3**21 + 2**31) % 2**32 - 2**31
    ]


def test_min_and_max_propagate_nan_from_either_side():
    a = np.array([[NAN], [-5.0], [2.0]], np.float32)
    (low,) = run_op("Min", [a, f32(0)], 13)
    (high,) = run_op("Max", [a, f32(0)], 13)
    np.testing.assert_array_equal(low, np.array([[NAN], [-5.0], [0.0]], np.float32))
    np.testing.assert_array_equal(high, np.array([[NAN], [0.0], [2.0]], np.float32))
    (high,) = run_op("Max", [f32(1, 1), f32(NAN, 3), f32(2, 2)], 13)
    np.testing.assert_array_equal(high, f32(NAN, 3))


def test_clip_keeps_nan_and_lets_the_maximum_win():
    x = f32(NAN, -5, 0.5, 5)
    np.testing.assert_array_equal(
        run_op("Clip", [x, np.float32(0).reshape(()), np.float32(1).reshape(())], 13)[0],
        f32(NAN, 0, 0.5, 1),
    )
    low, high = np.array(3, np.float32), np.array(1, np.float32)
    assert run_op("Clip", [f32(0, 2, 9), low, high], 13)[0].tolist() == [1, 1, 1]
    assert run_op("Clip", [np.array([1, 9], np.int8), None, np.array(4, np.int8)], 13)[
        0
    ].tolist() == [1, 4]
    assert run_op("Clip", [x[1:]], 13)[0].tolist() == [-5, 0.5, 5]


def test_relu_keeps_nan_and_handles_integers():
    np.testing.assert_array_equal(run_op("Relu", [f32(NAN, -1, 2)], 14)[0], f32(NAN, 0, 2))
    assert run_op("Relu", [np.array([-3, 4], np.int8)], 14)[0].tolist() == [0, 4]


def test_round_half_to_even():
    (found,) = run_op("Round", [f32(0.5, 1.5, 2.5, -0.5, -1.5)], 11)
    assert found.tolist() == [0, 2, 2, 0, -2]
    assert math.copysign(1, found[3]) == -1


def test_sign_of_zero_survives():
    (found,) = run_op("Mul", [f32(-0.0, 0.0), f32(1.0, -1.0)], 14)
    assert [math.copysign(1, value) for value in found] == [-1, -1]


def test_bit_shift_beyond_the_width():
    x = np.array([1, 255], np.uint8)
    assert run_op("BitShift", [x, np.array([8, 9], np.uint8)], 11, direction="LEFT")[
        0
    ].tolist() == [0, 0]
    signed = np.array([-8, -8, 8], np.int32)
    by = np.array([1, 40, 2], np.int32)
    assert run_op("BitShift", [signed, by], 28, direction="RIGHT")[0].tolist() == [-4, -1, 2]


def test_is_inf_by_sign():
    x = f32(-INF, INF, NAN, 1)
    assert run_op("IsInf", [x], 10)[0].tolist() == [True, True, False, False]
    assert run_op("IsInf", [x], 10, detect_negative=0)[0].tolist() == [False, True, False, False]
    assert run_op("IsInf", [x], 10, detect_positive=0)[0].tolist() == [True, False, False, False]
    assert not run_op("IsInf", [x], 10, detect_positive=0, detect_negative=0)[0].any()


def test_erf_and_gelu_against_the_c_library():
    x = np.linspace(-6, 6, 4001, dtype=np.float32)
    exact = np.array([math.erf(float(value)) for value in x])
    (found,) = run_op("Erf", [x], 13)
    np.testing.assert_allclose(found, exact, rtol=5e-7, atol=1e-12)
    gelu = 0.5 * x.astype(np.float64) * (1 + np.array([math.erf(v / math.sqrt(2)) for v in x]))
    np.testing.assert_allclose(run_op("Gelu", [x], 20)[0], gelu, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(run_op("Erf", [f32(NAN, INF, -INF)], 13)[0], f32(NAN, 1, -1))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_sigmoid_saturates_without_nan(dtype):
    (found,) = run_op("Sigmoid", [np.array([-1e4, 0, 1e4]).astype(dtype)], 13)
    assert found.dtype == dtype
    assert found.astype(np.float64).tolist() == [0, 0.5, 1]


def test_softplus_does_not_overflow():
    (found,) = run_op("Softplus", [f32(-1000, 0, 1000)], 1)
    np.testing.assert_allclose(found, [0, math.log(2), 1000], rtol=1e-6)


def test_non_contiguous_blocks_of_a_formula():
    x = np.linspace(-3, 3, 50_000, dtype=np.float32).reshape(250, 200)
    (found,) = run_op("Sigmoid", [x.T], 13)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-x.T.astype(np.float64))), rtol=1e-6)
    (found,) = run_op("Sigmoid", [x], 13)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-x.astype(np.float64))), rtol=1e-6)


def test_opset_1_to_6_broadcasting():
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    b = f32(10, 20, 30)
    (found,) = run_op("Add", [a, b], 6, axis=1, broadcast=1)
    np.testing.assert_array_equal(found, a + b[:, None])
    (found,) = run_op("Sub", [a, f32(1, 2, 3, 4)], 6, broadcast=1)
    np.testing.assert_array_equal(found, a - f32(1, 2, 3, 4))
    flags = a > 5
    (found,) = run_op("And", [flags, np.array([True, False])], 1, axis=0, broadcast=1)
    np.testing.assert_array_equal(found, flags & np.array([True, False])[:, None, None])
    (found,) = run_op("Pow", [a, f32(2)], 1, broadcast=1)
    np.testing.assert_allclose(found, a * a)


def test_cast_saturates_float8():
    x = f32(1000, -1000, NAN, 0.4)
    (found,) = run_op("Cast", [x], 19, to=17)
    np.testing.assert_array_equal(found.astype(np.float32), f32(448, -448, NAN, 0.40625))
    (found,) = run_op("Cast", [x], 19, to=17, saturate=0)
    np.testing.assert_array_equal(found.astype(np.float32)[:3], f32(NAN, NAN, NAN))
    (found,) = run_op("Cast", [x], 19, to=19)
    assert found.dtype == ml_dtypes.float8_e5m2
    np.testing.assert_array_equal(
        run_op("Cast", [f32(INF)], 19, to=19)[0].astype(np.float32), f32(57344)
    )


def test_cast_integers_keep_the_low_bits():
    (found,) = run_op("Cast", [np.array([200, 300, -1], np.int16)], 13, to=3)
    assert found.tolist() == [-56, 44, -1]
    (found,) = run_op("Cast", [np.array([9, -9], np.int32)], 21, to=22)
    assert found.astype(np.int32).tolist() == [-7, 7]


def test_cast_strings():
    words = np.array(["3.5", "-INF", "nan", "+inf"], dtype=object)
    np.testing.assert_array_equal(run_op("Cast", [words], 13, to=1)[0], f32(3.5, -INF, NAN, INF))
    assert run_op("Cast", [np.array(["12", "-7"], dtype=object)], 13, to=7)[0].tolist() == [12, -7]
    (found,) = run_op("Cast", [f32(1.5, NAN, -INF)], 13, to=8)
    assert found.tolist() == ["1.5", "NaN", "-INF"]


def test_bit_cast():
    assert run_op("BitCast", [f32(1.0)], 26, to=6)[0].tolist() == [0x3F800000]
    (found,) = run_op("BitCast", [np.array([-1, -8, 3], ml_dtypes.int4)], 26, to=21)
    assert found.astype(np.int32).tolist() == [15, 8, 3]


def test_sum_of_half_floats_is_rounded_once():
    """0.3333 + 1000 is 1000 in float16; in float32 the small part survives."""
    values = [np.array([v], np.float16) for v in (0.3333, 1000, -1000)]
    (total,) = run_op("Sum", values, 13)
    assert total.dtype == np.float16
    np.testing.assert_allclose(total, [0.3333], rtol=1e-3)


def test_a_default_attribute_is_float32_like_one_that_is_set():
    x = np.array([-1.0], np.float64)
    (default,) = run_op("LeakyRelu", [x], 16)
    (given,) = run_op("LeakyRelu", [x], 16, alpha=0.01)
    assert default[0] == given[0] == -float(np.float32(0.01))


def test_arrays_out_of_a_pickle_are_like_any_other():
    """numpy's dtype of an unpickled array is equal to the built-in one, but another object."""
    x = pickle.loads(pickle.dumps(np.array([-8, 3], np.int64)))
    assert run_op("Cast", [x], 13, to=TensorProto.STRING)[0].tolist() == ["-8", "3"]
    largest = pickle.loads(pickle.dumps(np.array([np.finfo(np.float64).max])))
    assert run_op("IsInf", [largest], 20)[0].tolist() == [False]


def test_gelu_of_the_largest_number_is_itself():
    x = np.array([np.finfo(np.float64).max, -np.finfo(np.float64).max])
    for approximate in ("none", "tanh"):
        (y,) = run_op("Gelu", [x], 20, approximate=approximate)
        assert y.tolist() == [x[0], 0.0]


@pytest.mark.parametrize("stack", [(2, 2, 0), (0, 2, 3), (2, 0, 3)])
def test_a_stack_of_empty_matrices_times_one_matrix(stack):
    a, b = np.ones(stack, np.float32), np.ones((stack[-1], 3), np.float32)
    (found,) = run_op("MatMul", [a, b], 13)
    np.testing.assert_array_equal(found, np.full((*stack[:-1], 3), stack[-1], np.float32))
    codes = [a.astype(np.uint8), b.astype(np.int8)]
    (found,) = run_op("MatMulInteger", codes, 10)
    np.testing.assert_array_equal(found, np.full((*stack[:-1], 3), stack[-1], np.int32))
