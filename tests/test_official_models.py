"""Every case that the onnx package brings, through a session as a user opens it.

Strict both ways: all pass but those that `official_cases` lists, and a listed one that passes is a
failure.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from official_cases import (
    DATA,
    NOT_COMPUTED,
    RANDOM,
    compare,
    model_case,
    model_names,
    node_cases,
)

from ep_core import InferenceSession
from ep_core.errors import PlacementError


def run(case, rtol=None, atol=None):
    model = case.model
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    session = InferenceSession(source)
    names = [value.name for value in session.get_inputs()]
    found_sets = []
    for inputs, expected in case.data_sets:
        found = session.run(None, dict(zip(names, inputs, strict=True)))
        found_sets.append((found, expected))
        if rtol is not None:
            assert len(found) == len(expected)
            for one, other in zip(found, expected, strict=True):
                compare(one, other, rtol, atol)
    return found_sets


@pytest.mark.parametrize("name", sorted(set(model_names()) - set(NOT_COMPUTED)))
def test_model(name):
    case = model_case(name)
    assert case.data_sets
    run(case, case.rtol, case.atol)


@pytest.mark.parametrize("name", sorted(NOT_COMPUTED))
def test_listed_model_is_still_refused(name):
    with pytest.raises(PlacementError):
        run(model_case(name))


@pytest.mark.parametrize("name", sorted(set(node_cases()) - RANDOM))
def test_operator(name):
    case = node_cases()[name]
    run(case, case.rtol, case.atol)


@pytest.mark.parametrize("name", sorted(RANDOM))
def test_random_operator_has_the_right_type(name):
    for found, expected in run(node_cases()[name]):
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            assert set(np.unique(one)) <= {0, 1}


def test_no_case_is_overlooked():
    names = model_names()
    assert set(names) >= set(NOT_COMPUTED)
    assert set(node_cases()) >= RANDOM
    files = [path for path in DATA.rglob("*.onnx") if "real" not in path.parts]
    assert len(names) == len(files)
