"""com.microsoft: the operators of contrib_tensors against numpy, definitions and known values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cpu_harness import UnsupportedError, run_op

from ep_core.errors import RunError

RNG = np.random.default_rng(17)


def run(op_type, inputs, **attributes):
    return run_op(op_type, inputs, 17, domain="com.microsoft", **attributes)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_operators_that_became_standard():
    x = normal(2, 4, 5)
    np.testing.assert_array_equal(run("Trilu", [x, np.array(-1)], upper=0)[0], np.tril(x, -1))
    places = np.array([[1, 2], [0, -1]])
    np.testing.assert_array_equal(run("GatherND", [x, places])[0], x[places[:, 0], places[:, 1]])
    (found,) = run("Range", [np.array(1), np.array(8), np.array([3])])
    assert found.tolist() == [1, 4, 7]
    assert run("Range", [np.array(2.0), np.array(4.5)])[0].tolist() == [2, 3, 4]
    (found,) = run("Pad", [x[0], np.array([[1, 0, 0, 2]]), np.array([7], np.float32)])
    expected = np.pad(x[0], ((1, 0), (0, 2)), constant_values=7)
    np.testing.assert_array_equal(found, expected)
    image = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
    corners = np.array([[[[-1, -1], [1, 1], [0, 0]]]], np.float32)
    (found,) = run("GridSample", [image, corners], align_corners=1, mode="bilinear")
    assert found.reshape(-1).tolist() == [0, 5, 2.5]


def test_unique_keeps_the_order_of_appearance():
    values, places, counts = run("Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)], outputs=3)
    assert values.tolist() == [2, 1, 3, 4]
    assert places.tolist() == [0, 1, 1, 2, 3, 2]
    assert counts.tolist() == [1, 2, 2, 1]
    with pytest.raises(RunError, match="one axis"):
        run("Unique", [normal(2, 2)], outputs=3)


def test_a_new_axis():
    x = normal(2, 3)
    for axis, shape in ((0, (1, 2, 3)), (-1, (2, 3, 1)), (2, (2, 3, 1))):
        assert run("ExpandDims", [x, np.array(axis, np.int32)])[0].shape == shape
    with pytest.raises(RunError, match="axis"):
        run("ExpandDims", [x, np.array(3, np.int32)])


def test_inverses():
    x = normal(4, 3, 3) + 3 * np.eye(3, dtype=np.float32)
    (found,) = run("Inverse", [x])
    np.testing.assert_allclose(found @ x, np.broadcast_to(np.eye(3), x.shape), atol=1e-5)
    with pytest.raises(RunError, match="no inverse"):
        run("Inverse", [np.ones((2, 2), np.float32)])
    with pytest.raises(RunError, match="square"):
        run("Inverse", [normal(2, 3)])


def test_distances():
    a, b = normal(4, 3), normal(5, 3)
    expected = ((a[:, None].astype(np.float64) - b) ** 2).sum(axis=-1)
    np.testing.assert_allclose(run("CDist", [a, b])[0], expected, rtol=1e-4, atol=1e-5)
    (found,) = run("CDist", [a, b], metric="euclidean")
    np.testing.assert_allclose(found, np.sqrt(expected), rtol=1e-4, atol=1e-5)
    (found,) = run("CDist", [a, a], metric="euclidean")
    assert np.isfinite(found).all()
    with pytest.raises(UnsupportedError, match="cosine"):
        run("CDist", [a, b], metric="cosine")
    with pytest.raises(RunError, match="width"):
        run("CDist", [a, b[:, :2]], shapes=False)


def test_spectra():
    x = normal(2, 8)
    (found,) = run("Rfft", [x], signal_ndim=1)
    angles = -2j * np.pi * np.outer(np.arange(5), np.arange(8)) / 8
    expected = np.einsum("nt,ft->nf", x, np.exp(angles))
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], expected, atol=1e-5)
    np.testing.assert_allclose(run("Irfft", [found], signal_ndim=1)[0], x, atol=1e-5)
    plane = normal(3, 4, 6)
    (found,) = run("Rfft", [plane], signal_ndim=2)
    assert found.shape == (3, 4, 4, 2)
    np.testing.assert_allclose(run("Irfft", [found], signal_ndim=2)[0], plane, atol=1e-5)
    with pytest.raises(UnsupportedError, match="one-sided"):
        run("Rfft", [x], onesided=0)


def test_crops():
    image = np.arange(20, dtype=np.float32).reshape(1, 1, 4, 5)
    boxes = np.array([[0, 0, 1, 1], [0, 0, 1 / 3, 1 / 4], [1, 1, 0, 0]], np.float32)
    first = np.zeros(3, np.int32)
    (found,) = run("CropAndResize", [image, boxes, first, np.array([2, 2], np.int32)])
    assert found[:, 0].tolist() == [[[0, 4], [15, 19]], [[0, 1], [5, 6]], [[19, 15], [4, 0]]]
    (middle,) = run("CropAndResize", [image, boxes, first, np.array([1, 1], np.int32)])
    assert middle[0].item() == 9.5
    beyond = np.array([[0, 0, 2, 2]], np.float32)
    (found,) = run(
        "CropAndResize", [image, beyond, first[:1], np.array([3, 3], np.int32)],
        extrapolation_value=-1.0, mode="nearest",
    )  # fmt: skip
    assert found[0, 0].tolist() == [[0, 4, -1], [15, 19, -1], [-1, -1, -1]]
    with pytest.raises(RunError, match="index"):
        run("CropAndResize", [image, boxes, first + 1, np.array([2, 2], np.int32)])


# Published test vectors of MurmurHash3_x86_32.
VECTORS = [
    ("", 0, 0x00000000), ("", 1, 0x514E28B7), ("", 0xFFFFFFFF, 0x81F16F39),
    ("test", 0, 0xBA6BD213), ("test", 0x9747B28C, 0x704B81DC),
    ("Hello, world!", 0, 0xC0363E43), ("Hello, world!", 0x9747B28C, 0x24884CBA),
    ("The quick brown fox jumps over the lazy dog", 0, 0x2E4FF723),
]  # fmt: skip


@pytest.mark.parametrize(("word", "seed", "expected"), VECTORS)
def test_hashes_of_strings(word, seed, expected):
    (found,) = run("MurmurHash3", [np.array([word], object)], seed=seed)
    assert found.dtype == np.uint32
    assert found.tolist() == [expected]
    (found,) = run("MurmurHash3", [np.array([word], object)], seed=seed, positive=0)
    assert found.dtype == np.int32
    assert found.item() == expected - (1 << 32 if expected >= 1 << 31 else 0)


def test_numbers_hash_as_their_bytes():
    words = np.array([0x74736574, 0x33323130], np.uint32)  # "test" and "0123"
    (found,) = run("MurmurHash3", [words])
    assert found[0] == 0xBA6BD213
    (pairs,) = run("MurmurHash3", [words.view(np.uint64)])
    (text,) = run("MurmurHash3", [np.array(["test0123"], object)])
    assert pairs.tolist() == text.tolist()
    (floats,) = run("MurmurHash3", [np.array([math.pi], np.float32)])
    (same,) = run("MurmurHash3", [np.array([math.pi], np.float32).view(np.int32)])
    assert floats.tolist() == same.tolist()
