"""Every operator case that the onnx package generates, on the CPU provider."""

from __future__ import annotations

import sys

import onnx
import pytest
from cpu_harness import UnsupportedError, run_model
from cpu_node_cases import as_value, compare, node_cases
from cpu_unsupported_cases import CASES_OF_ONNX, NEEDS, NO_FIXED_ANSWER

LISTED = {name: reason for reason, names in NEEDS.items() for name in names}


def run_case(case):
    for inputs, expected in case.data_sets:
        found = run_model(case.model, [as_value(value) for value in inputs])
        for one, other in zip(found, expected, strict=True):
            compare(one, as_value(other), case.rtol, case.atol)


@pytest.mark.parametrize("name", sorted(set(node_cases()) - set(LISTED) - NO_FIXED_ANSWER))
def test_case(name):
    run_case(node_cases()[name])


@pytest.mark.parametrize("name", sorted(set(node_cases()) & set(LISTED)))
def test_listed_case_still_cannot_run(name):
    with pytest.raises(UnsupportedError):
        run_case(node_cases()[name])


@pytest.mark.parametrize("name", sorted(set(node_cases()) & NO_FIXED_ANSWER))
def test_random_case_has_the_right_type(name):
    case = node_cases()[name]
    for inputs, expected in case.data_sets:
        found = run_model(case.model, [as_value(value) for value in inputs])
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            assert one.shape == other.shape


def test_coverage(capsys):
    """Say how many cases run; the list must name only cases that exist."""
    cases = node_cases()
    missing = set(LISTED) & set(cases)
    with capsys.disabled():
        run = len(cases) - len(missing)
        sys.stdout.write(f"\nonnx {onnx.__version__}: {run} of {len(cases)} cases run\n")
    if onnx.__version__.startswith(CASES_OF_ONNX):
        assert set(LISTED) | NO_FIXED_ANSWER <= set(cases)
