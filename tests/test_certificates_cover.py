"""Rows that a full run could grant, held against what the CPU provider claims.

A node is refused if no row has its types, so every combination of types that the provider takes
needs a case, and so does every optional input and output.
"""

from __future__ import annotations

import collections
import subprocess
import sys
from dataclasses import dataclass

import pytest

from ep_compliance.cases.combinations import combinations_of, missing_positions, rows_by_operator
from ep_compliance.cases.matrix import matrix_cases
from ep_compliance.cases.recorded.cases import recorded_cases
from ep_compliance.certificates.rows import granted_rows
from ep_compliance.running.jobs import jobs_hash
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_cpu.kernels import load_table

USUAL = {"tensor(int64)", "tensor(int32)", "tensor(float)"}


@pytest.fixture(scope="module")
def cases():
    return [*matrix_cases(), *recorded_cases()]


@pytest.fixture(scope="module")
def rows(cases):
    passed = ((case, Verdict(case.id, Outcome.PASS)) for case in cases)
    return rows_by_operator(granted_rows(passed))


@pytest.fixture(scope="module")
def claimed():
    return combinations_of(load_table())


@dataclass(frozen=True)
class Gap:
    """Combinations of an operator that no row grants, and why that is right.

    Attributes:
        applies: takes the types by type parameter.
    """

    names: str
    reason: str
    applies: object = lambda types: True


def unlike(*names):
    return lambda types: len({types[name] for name in names}) > 1


GAPS = (
    Gap(
        "OneHot",
        "indices and depths of unusual types are asked with float values only",
        lambda t: not {t["T1"], t["T2"]} <= USUAL and t["T3"] != "tensor(float)",
    ),
    Gap(
        "Cast CastLike",
        "how a bool is written, and which texts are true, isn't defined",
        lambda t: {t["T1"], t["T2"]} == {"tensor(bool)", "tensor(string)"},
    ),
    Gap(
        "CastMap",
        "whether 5.5 is written `5.500000` isn't defined",
        lambda t: t["T2"] == "tensor(string)",
    ),
    Gap(
        "CenterCropPad", "what fills a tensor of texts isn't defined", lambda t: "string" in t["T"]
    ),
    Gap("Col2Im", "what the sum of two bools is isn't defined", lambda t: "bool" in t["T"]),
    Gap("ImageDecoder", "the official cases have the files"),
    Gap(
        "RMSNormalization",
        "onnx infers the type of the input where its schema says that of the scale",
        unlike("T", "V"),
    ),
    Gap(
        "CategoryMapper LabelEncoder",
        "it maps from one type to the other",
        lambda t: t["T1"] == t["T2"] and t["T1"] in ("tensor(int64)", "tensor(string)"),
    ),
    Gap(
        "Unique",
        "ONNX Runtime takes float32 only, and complex numbers have no order",
        lambda t: t["T"] not in USUAL,
    ),
    Gap(
        "QAttention",
        "ONNX Runtime takes unsigned inputs only",
        lambda t: t["T1"] == "tensor(int8)",
    ),
    Gap("QLinearConv", "ONNX Runtime has results of the input's type only", unlike("T1", "T3")),
    Gap(
        "QLinearConv QGemm MatMulIntegerToFloat",
        "ONNX Runtime takes no unsigned weights with signed inputs",
        lambda t: (
            (t.get("T1") or t["A"], t.get("T2") or t["B"]) == ("tensor(int8)", "tensor(uint8)")
        ),
    ),
)

CLOSED = {
    ("Attention", "input 3"): "masks are asked where query and value have one type",
    ("Attention", "input 6"): "past_sequence_length goes with a shared buffer, which isn't claimed",
    ("BatchNormalization", "outputs"): "what they hold in training isn't defined before version 14",
    ("Dropout", "output 1"): "before version 10 the mask isn't defined in inference",
    ("GatherBlockQuantized", "input 3"): "floats have no zero points",
    ("GroupQueryAttention", "inputs"): "quantised caches and norms aren't claimed",
    ("MultiHeadAttention", "inputs"): "beams aren't claimed",
    ("QGemm", "input 8"): "floats have no zero points; codes have that of the input's type",
    ("SimplifiedLayerNormalization", "output 1"): "ONNX Runtime keeps statistics in float32",
    ("SkipSimplifiedLayerNormalization", "outputs"): "statistics aren't claimed",
}
"""Optional inputs and outputs that no row grants, by operator."""


def reason_of(combination):
    types = dict(combination.types)
    for gap in GAPS:
        if combination.op_type in gap.names.split() and gap.applies(types):
            return gap
    return None


def test_every_combination_is_granted_or_has_a_reason(claimed, rows):
    missing = [c for c in claimed if missing_positions(c, rows) is None]
    unexplained = sorted(str(c) for c in missing if reason_of(c) is None)
    assert unexplained == []
    # Types of OneHot multiply; of all the others nearly all is granted.
    others = [c for c in claimed if c.op_type != "OneHot"]
    share = sum(c.op_type != "OneHot" for c in missing) / len(others)
    print(f"{1 - share:.2%} of {len(others)} combinations beside OneHot")  # noqa: T201
    assert len(others) > 16000
    assert share < 0.01
    assert {reason_of(c).reason for c in missing} == {gap.reason for gap in GAPS}


def test_every_optional_input_and_output_is_granted_or_has_a_reason(claimed, rows):
    closed = collections.defaultdict(set)
    for combination in claimed:
        for name in missing_positions(combination, rows) or ():
            closed[combination.op_type].add(name)
    found = {
        (op_type, names.pop() if len(names) == 1 else f"{min(names).split()[0]}s")
        for op_type, names in closed.items()
        if op_type != "Attention"
    }
    found |= {("Attention", name) for name in closed["Attention"]}
    assert found == set(CLOSED)


def test_rows_are_few_enough_to_read(rows):
    assert 700 < sum(map(len, rows.values())) < 1500


def test_cases_are_the_same_after_a_provider_has_registered_its_schemas(cases):
    script = (
        "from ep_core.discovery.registry import registry\n"
        "registry().factory('cpu')\n"
        "import onnx\n"
        "assert onnx.defs.has('FastGelu', 'com.microsoft')\n"
        "from ep_compliance.running.jobs import jobs_hash\n"
        "from ep_compliance.cases.matrix import matrix_cases\n"
        "from ep_compliance.cases.recorded.cases import recorded_cases\n"
        "print(jobs_hash([*matrix_cases(), *recorded_cases()]))\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == jobs_hash(cases)
