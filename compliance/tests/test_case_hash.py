"""The hash of a set of cases is the same on every machine, and tells different sets apart."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest

from ep_compliance.cases.case import Subject
from ep_compliance.cases.matrix import matrix_cases
from ep_compliance.cases.recipes.numbers import Numbers
from ep_compliance.running.jobs import jobs_hash
from ep_core.types import DataType

OPERATORS = ("Add", "Cast", "LSTM", "OneHot", "Resize", "TopK", "Where")

SCRIPT = """
from ep_compliance.cases.case import Subject
from ep_compliance.cases.chains import chain_cases
from ep_compliance.running.jobs import jobs_hash
from ep_compliance.cases.matrix import matrix_cases
from ep_compliance.cases.recorded.cases import recorded_cases
import onnx, sys
subjects = [
    Subject("", name, schema.since_version)
    for name in sys.argv[1:]
    for schema in onnx.defs.get_all_schemas_with_history()
    if schema.name == name and not schema.domain
]
print(jobs_hash([*matrix_cases(subjects), *chain_cases(), *recorded_cases()]))
"""


def hash_in_a_process(**environment):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *OPERATORS],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return done.stdout.strip()


def test_it_depends_on_no_machine():
    """Neither on the order of sets nor on which kernels the linear algebra library picks."""
    seen = {
        hash_in_a_process(PYTHONHASHSEED=seed, OPENBLAS_CORETYPE=core)
        for seed, core in (("1", "Prescott"), ("2", "Haswell"))
    }
    assert len(seen) == 1
    assert seen.pop().startswith("sha256:")


def test_values_that_are_computed_do_not_count_but_who_computes_them_does():
    """As those of official cases, which the onnx package computes whenever they are collected."""
    case = next(iter(matrix_cases([Subject("", "Relu", 14)])))
    case = dataclasses.replace(case, made_by="onnx 1", expected=[np.ones(2)])
    before = jobs_hash([case])
    changed = {name: np.zeros_like(value) for name, value in case.inputs.items()}
    assert jobs_hash([dataclasses.replace(case, inputs=changed, expected=[])]) == before
    assert jobs_hash([dataclasses.replace(case, made_by="onnx 0")]) != before


@pytest.mark.parametrize("part", ["inputs", "model", "id", "draws"])
def test_everything_else_counts(part):
    case = next(iter(matrix_cases([Subject("", "Relu", 14)])))
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.doc_string = "other"
    others = {
        "inputs": {name: value + 1 for name, value in case.inputs.items()},
        "model": model,
        "id": f"{case.id}x",
        "draws": True,
    }
    assert jobs_hash([dataclasses.replace(case, **{part: others[part]})]) != jobs_hash([case])


def test_a_plugin_that_registers_schemas_changes_no_case():
    subjects = [Subject("", "Relu", 14), Subject("ai.onnx.ml", "Scaler", 1)]
    before = jobs_hash(matrix_cases(subjects))
    onnx.defs.register_schema(onnx.defs.OpSchema("Relu", "com.mychip", 99))
    try:
        assert jobs_hash(matrix_cases(subjects)) == before
    finally:
        onnx.defs.deregister_schema("Relu", 99, "com.mychip")


class TestNumbers:
    """From raw bits by integers and single roundings; `fractions` are exact multiples of 2**-53."""

    def raw(self, count):
        import zlib

        return [int(bits) for bits in np.random.PCG64(zlib.crc32(b"seed")).random_raw(count)]

    def test_floats(self):
        values = Numbers("seed").random((5,), DataType.DOUBLE, -1, 3)
        assert values.tolist() == [(bits >> 11) * 2.0**-53 * 4.0 + -1.0 for bits in self.raw(5)]

    def test_integers_of_every_width(self):
        for kind, low, high in (
            (DataType.INT8, -9, 9),
            (DataType.UINT64, 2**63, 2**64 - 1),
            (DataType.INT64, -(2**63), 2**63 - 1),
        ):
            values = Numbers("seed").random((50,), kind, low, high)
            right = [bits % (high - low + 1) + low for bits in self.raw(50)]
            assert values.tolist() == right

    def test_permutations(self):
        bits = self.raw(9)
        assert Numbers("seed").permutation(9) == sorted(range(9), key=bits.__getitem__)
        assert sorted(Numbers("x").permutation(9)) == list(range(9))
