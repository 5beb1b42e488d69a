"""The operator test cases that the onnx package generates, and how results are compared."""

from __future__ import annotations

import functools
import warnings

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper


@functools.lru_cache(maxsize=1)
def node_cases():
    """All cases by name."""
    # The generators compute expected values with overflows on purpose.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return {case.name: case for case in collect_testcases(None)}


def as_value(value):
    """A test datum as a host value of ours."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, list | tuple):
        return [as_value(item) for item in value]
    if isinstance(value, np.ndarray) and value.dtype.kind in "UT":
        return value.astype(object)
    if value is None or isinstance(value, np.ndarray):
        return value
    return np.asarray(value)


# The references compute every step in the narrow type; the kernels round only at the end.
_STEP = {np.dtype(np.float16): 2e-3, np.dtype(ml_dtypes.bfloat16): 1.6e-2}


def compare(found, expected, rtol, atol):
    """Assert equal types, shapes and values; floats within the tolerance."""
    if isinstance(expected, list):
        assert isinstance(found, list)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            compare(one, other, rtol, atol)
        return
    if expected is None:
        assert found is None
        return
    assert isinstance(found, np.ndarray), type(found)
    assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    rtol = max(rtol, _STEP.get(expected.dtype, 0))
    if expected.dtype.kind in "fcV":
        kind = np.complex128 if expected.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(
            found.astype(kind), expected.astype(kind), rtol=rtol, atol=atol, equal_nan=True
        )
    else:
        assert found.tolist() == expected.tolist()
