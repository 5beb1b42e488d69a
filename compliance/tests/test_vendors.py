"""Cases that a provider's distribution brings: what is taken, what is refused, what they grant."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import textwrap

import numpy as np
import onnx
import pytest
from onnx import helper
from zoo_base import CorrectProvider, factory_of

from ep_compliance.cases.case import Case, Subject
from ep_compliance.cases.vendors import vendor_cases
from ep_compliance.certificates.rows import granted_rows
from ep_compliance.errors import CasesError
from ep_compliance.running.judging import judge_case
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_core.types import DataType
from ep_sdk import KernelTable

FLOAT = onnx.TensorProto.FLOAT
DOMAIN = "com.mychip"


def model(op_type="Twice", domain=DOMAIN, nodes=1, kind=FLOAT, extra=()):
    """A chain of one operator on a vector of three."""
    chain = [
        helper.make_node(op_type, [f"x{i}", *extra], [f"x{i + 1}"], domain=domain)
        for i in range(nodes)
    ]
    inputs = [helper.make_tensor_value_info(name, kind, [3]) for name in ("x0", *extra)]
    outputs = [helper.make_tensor_value_info(f"x{nodes}", kind, [3])]
    graph = helper.make_graph(chain, "g", inputs, outputs)
    imports = [helper.make_opsetid("", 21)]
    if domain:
        imports.append(helper.make_opsetid(domain, 2))
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


X = np.array([1, -2, 3], np.float32)


def twice(**changes):
    return Case(
        **{"id": "twice", "model": model(), "inputs": {"x0": X}, "expected": [2 * X]} | changes
    )


class FakePoint:
    """An entry point whose callable is at hand."""

    def __init__(self, call, name="cases"):
        self.name = name
        self._call = call

    def __lt__(self, other):
        return self.name < other.name

    def load(self):
        return self._call


class FakeDistribution:
    """A distribution with entry points and a name."""

    def __init__(self, *points):
        self.metadata = {"Name": "ep-mychip"}
        self._points = points

    @property
    def entry_points(self):
        return self

    def select(self, *, group):
        return self._points if group == "ep_compliance.cases" else ()


def brought(*cases):
    return vendor_cases(FakeDistribution(FakePoint(lambda: iter(cases))))


# ---------------------------------------------------------------- what is taken


def test_an_installed_distribution(tmp_path, monkeypatch):
    module = """
        import numpy as np
        from onnx import TensorProto, helper
        from ep_compliance.cases.case import Case

        def cases():
            node = helper.make_node("Twice", ["x"], ["y"], domain="com.mychip")
            info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
            graph = helper.make_graph([node], "g", info[:1], info[1:])
            opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.mychip", 1)]
            x = np.ones(2, np.float32)
            yield Case("ones", helper.make_model(graph, opset_imports=opsets), {"x": x}, [x + x])
    """
    (tmp_path / "mychip_cases.py").write_text(textwrap.dedent(module))
    info = tmp_path / "ep_mychip-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ep-mychip\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ep_compliance.cases]\nmine = mychip_cases:cases\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (case,) = vendor_cases(importlib.metadata.Distribution.at(info))
    assert case.id == "vendor/ep-mychip/ones"
    assert case.vendor == "ep-mychip"
    assert vendor_cases(None) == []


def test_subjects_by_position_without_a_schema():
    (case,) = brought(twice())
    types = {"input 0": DataType.FLOAT, "output 0": DataType.FLOAT}
    assert case.subject == Subject(DOMAIN, "Twice", 2, types)


def test_subjects_by_the_vendors_schema():
    formal = onnx.defs.OpSchema.FormalParameter
    schema = onnx.defs.OpSchema(
        "Twice",
        DOMAIN,
        1,
        inputs=[formal("x", "T")],
        outputs=[formal("y", "T")],
        type_constraints=[("T", ["tensor(float)", "tensor(double)"], "")],
    )
    onnx.defs.register_schema(schema)
    try:
        (case,) = brought(twice())
    finally:
        onnx.defs.deregister_schema("Twice", 1, DOMAIN)
    assert case.subject == Subject(DOMAIN, "Twice", 1, {"T": DataType.FLOAT})


@pytest.mark.parametrize("domain", ["", "ai.onnx.ml", "com.microsoft"])
def test_nobody_grades_himself_on_standard_operators(domain):
    claimed = Subject(domain, "Relu", 14, {"T": DataType.FLOAT})
    (case,) = brought(twice(model=model("Relu", domain), subject=claimed))
    assert case.subject is None
    assert granted_rows([(case, Verdict(case.id, Outcome.PASS))]) == []


def test_chains_grant_nothing():
    (case,) = brought(twice(model=model(nodes=2)))
    assert case.subject is None


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: 7, "iterable of Case"),
        (lambda: [7], "expected Case objects; got int"),
        (lambda: [twice(id="")], "ids"),
        (lambda: [twice(id="two words")], "without spaces"),
        (lambda: [twice(), twice()], "two cases have the id 'vendor/ep-mychip/twice'"),
        (lambda: [twice(expected=None)], "no expected outputs.*com.mychip.Twice"),
        (lambda: [twice(model=b"")], "a ModelProto"),
        (lambda: [twice(inputs=[X])], "a mapping of inputs"),
        (lambda: 1 / 0, "ZeroDivisionError"),
        (lambda: (_ for _ in ()).throw(SystemExit(3)), "SystemExit"),
    ],
)
def test_broken_ones_are_named(given, message):
    with pytest.raises(CasesError, match=message) as caught:
        vendor_cases(FakeDistribution(FakePoint(given, "mine")))
    assert "'mine' of ep-mychip" in str(caught.value)


def test_an_entry_point_that_cannot_be_imported(tmp_path):
    info = tmp_path / "ep_mychip-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ep-mychip\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ep_compliance.cases]\nmine = no_such_module:cases\n")
    with pytest.raises(CasesError, match="no_such_module"):
        vendor_cases(importlib.metadata.Distribution.at(info))


# ---------------------------------------------------------------- what they grant


def provider_with(function):
    table = KernelTable({DOMAIN: 2})

    @table.kernel("Twice", domain=DOMAIN, types={0: {DataType.FLOAT}})
    def make(node):
        return function

    class Mychip(CorrectProvider):
        pass

    Mychip.table = table
    factory = factory_of(Mychip, "mychip")
    return factory.create(factory.devices()[0], {"threads": 1})


@pytest.mark.parametrize(
    ("function", "outcome"),
    [(lambda x: x + x, Outcome.PASS), (lambda x: x * x, Outcome.FAIL)],
    ids=["right", "wrong"],
)
def test_they_are_judged_by_what_they_expect(function, outcome):
    (case,) = brought(twice())
    judgement = judge_case(case, provider_with(function))
    assert judgement.outcome is outcome, judgement.reason


def test_the_row_says_whose_cases_they_are_and_stays_closed():
    (case,) = brought(twice())
    (row,) = granted_rows([(case, Verdict(case.id, Outcome.PASS))])
    assert row.record == {
        "domain": DOMAIN,
        "op_type": "Twice",
        "since": 2,
        "until": 2,
        "inputs": [["tensor(float)"], []],
        "outputs": [None, []],
        "predicate": "cases of ep-mychip",
    }
    known = dataclasses.replace(case, id="known")
    waived = [(case, Verdict(case.id, Outcome.PASS)), (known, Verdict("known", Outcome.WAIVED))]
    assert granted_rows(waived)[0].predicate == "cases of ep-mychip, 1 waived"


def test_a_failure_costs_the_row():
    cases = brought(twice(), twice(id="other"))
    verdicts = [Verdict(cases[0].id, Outcome.PASS), Verdict(cases[1].id, Outcome.FAIL)]
    assert granted_rows(zip(cases, verdicts, strict=True)) == []
