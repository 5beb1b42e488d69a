"""Providers around a vendor's compiler, shown with onnx's reference evaluator as the vendor."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from ep_core.contracts import API_VERSION, FusedGroup, ProviderFeatures, ProviderInfo, Support
from ep_core.errors import (
    AllocationError,
    CompileError,
    NotSupportedError,
    ProviderError,
    RunError,
)
from ep_core.graph import Subgraph
from ep_core.types import DeviceInfo
from ep_sdk import CompiledModel, CompilerProvider

CHAIN = "(float[2,3] x, float[3] w) => (float[2,3] y) { a = Add(x, w) y = Relu(a) }"
X = np.float32([[-1, 2, -3], [4, -5, 6]])
W = np.float32([1, 1, 1])


class ReferenceProvider(CompilerProvider):
    """Like many vendors it reorders inputs, drops unused ones, and owns its output memory."""

    def supports(self, node, graph):
        if node.op_type == "Sin":
            return Support(False, "Sin is left to others")
        return Support(True, cost=1e-6)

    def compile_model(self, model, subgraph):
        from onnx.reference import ReferenceEvaluator

        onnx.checker.check_model(model)
        evaluator = ReferenceEvaluator(model)
        used = {name for node in model.graph.node for name in node.input}
        names = tuple(sorted(name for name in evaluator.input_names if name in used))
        buffers = {}

        def run(feeds):
            assert sorted(feeds) == list(names)
            results = evaluator.run(None, dict(feeds))
            for name, value in zip(evaluator.output_names, results, strict=True):
                kept = buffers.setdefault(name, np.empty_like(value))
                kept[...] = value
            return dict(reversed(buffers.items()))

        return CompiledModel(run, inputs=names, close=lambda: self.events.append("closed"))

    def __init__(self, *args):
        super().__init__(*args)
        self.events = []


def open_provider(cls=ReferenceProvider):
    return cls(ProviderInfo("vendor", "1", API_VERSION), DeviceInfo("vendor", "0", "npu"), {})


def compile_all(provider, graph):
    return provider.compile(Subgraph.cut(graph, range(len(graph.nodes)), "region"))


def run(part, *inputs, memory=(None,)):
    outputs = list(memory)
    part.run(inputs, outputs, None)
    return outputs


def provider_with(compile_model):
    return open_provider(type("Vendor", (ReferenceProvider,), {"compile_model": compile_model}))


def vendor_of(run_function, **kwargs):
    """A provider whose compiled model is one function."""
    return provider_with(lambda self, model, subgraph: CompiledModel(run_function, **kwargs))


def test_compiles_and_runs_real_models(graph_of):
    provider = open_provider()
    part = compile_all(provider, graph_of(CHAIN))
    np.testing.assert_array_equal(run(part, X, W)[0], np.maximum(X + W, 0))


def test_capability_comes_from_supports(graph_of):
    graph = graph_of("(float[2] x) => (float[2] y) { a = Sin(x) y = Neg(a) }")
    sin, neg = open_provider().get_capability(graph).nodes
    assert (sin.supported, sin.reason) == (False, "Sin is left to others")
    assert (neg.supported, neg.cost) == (True, 1e-6)


def test_what_a_compiler_fuses_is_told(graph_of):
    def fused_groups(self, graph, answers):
        assert [answer.supported for answer in answers] == [True, True]
        return [FusedGroup((0, 1), 1e-6)]

    provider = open_provider(type("Vendor", (ReferenceProvider,), {"fused_groups": fused_groups}))
    assert provider.get_capability(graph_of(CHAIN)).groups == (FusedGroup((0, 1), 1e-6),)
    assert open_provider().get_capability(graph_of(CHAIN)).groups == ()


def test_a_query_for_groups_that_raises_is_a_no_with_its_message(graph_of):
    def fused_groups(self, graph, answers):
        raise RuntimeError("query crashed")

    provider = open_provider(type("Vendor", (ReferenceProvider,), {"fused_groups": fused_groups}))
    capability = provider.get_capability(graph_of(CHAIN))
    assert capability.groups == ()
    assert all("query crashed" in answer.reason for answer in capability.nodes)


def test_a_query_that_raises_is_a_no_with_its_message(graph_of):
    def claims(self, graph):
        raise RuntimeError("query crashed")

    provider = open_provider(type("Vendor", (ReferenceProvider,), {"claims": claims}))
    (first, second) = provider.get_capability(graph_of(CHAIN)).nodes
    assert not first.supported
    assert second.reason == "the query of 'vendor' failed: RuntimeError: query crashed"


def test_binds_by_name_and_leaves_out_unused_inputs(graph_of):
    """Two outputs, and an input (Dropout's ratio) that the vendor's model no longer has."""
    graph = graph_of(
        "(float[2] z, float[2] a, float[2] m) => (float[2] p, float[2] q)"
        " { p = Sub(z, a) q = Sub(m, z) }"
    )
    part = compile_all(open_provider(), graph)
    z, a, m = np.float32([5, 5]), np.float32([1, 2]), np.float32([9, 9])
    assert part._outputs == ("p", "q")
    p, q = run(part, z, a, m, memory=(None, None))
    np.testing.assert_array_equal(p, [4, 3])
    np.testing.assert_array_equal(q, [4, 4])

    fed = []

    def keep_one(feeds):
        fed.append(sorted(feeds))
        return {"p": z, "q": z}

    part = compile_all(vendor_of(keep_one, inputs=("m",)), graph)
    run(part, z, a, m, memory=(None, None))
    assert fed == [["m"]]


def test_results_are_the_callers_own(graph_of):
    part = compile_all(open_provider(), graph_of(CHAIN))
    (first,) = run(part, X, W)
    (second,) = run(part, X * 2, W)
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, np.maximum(X + W, 0))


@pytest.mark.parametrize("fresh", [True, False])
def test_fresh_outputs_are_not_copied(graph_of, fresh):
    made = []

    def vendor(feeds):
        made.append(np.maximum(feeds["x"] + feeds["w"], 0))
        return {"y": made[-1]}

    part = compile_all(vendor_of(vendor, fresh_outputs=fresh), graph_of(CHAIN))
    (y,) = run(part, X, W)
    assert (y is made[0]) == fresh
    np.testing.assert_array_equal(y, made[0])


def test_writes_into_given_memory(graph_of):
    part = compile_all(open_provider(), graph_of(CHAIN))
    assert list(part.accepts_outputs) == [False]
    memory = np.zeros((2, 3), np.float32)
    assert run(part, X, W, memory=(memory,))[0] is memory
    np.testing.assert_array_equal(memory, np.maximum(X + W, 0))
    with pytest.raises(RunError, match="memory given for output 'y' doesn't fit"):
        run(part, X, W, memory=(np.zeros((4, 2, 3), np.float32),))


def test_a_result_of_another_type_is_an_error(graph_of):
    provider = vendor_of(lambda feeds: {"y": feeds["x"].astype(np.float64)})
    with pytest.raises(RunError, match="'y' of another type; expected float32; got float64"):
        run(compile_all(provider, graph_of(CHAIN)), X, W)


def test_a_missing_result_is_an_error(graph_of):
    part = compile_all(vendor_of(lambda feeds: {"z": X, "a": X}), graph_of(CHAIN))
    with pytest.raises(RunError, match=r"returned no 'y'; got outputs \['a', 'z'\]"):
        run(part, X, W)


def raising(error):
    def function(*args):
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (RuntimeError("bad state"), RunError, "'vendor', subgraph 'region' failed: .*bad state"),
        (MemoryError("too much"), AllocationError, "ran out of memory: too much"),
        (NotSupportedError("no such layout"), NotSupportedError, "no such layout"),
    ],
)
def test_errors_while_running(graph_of, error, expected, message):
    part = compile_all(vendor_of(raising(error)), graph_of(CHAIN))
    with pytest.raises(expected, match=message):
        run(part, X, W)


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (RuntimeError("unknown op"), CompileError, r"compile 'region' \(2 nodes\): .*unknown op"),
        (MemoryError(), AllocationError, "ran out of memory to compile 'region'"),
        (NotSupportedError("no such layout"), NotSupportedError, "no such layout"),
    ],
)
def test_errors_while_compiling(graph_of, error, expected, message):
    with pytest.raises(expected, match=message):
        compile_all(provider_with(raising(error)), graph_of(CHAIN))


def test_an_input_of_the_vendors_own_is_an_error(graph_of):
    closed = []
    provider = vendor_of(dict, inputs=("x", "hidden"), close=lambda: closed.append(True))
    with pytest.raises(CompileError, match="an input 'hidden' of its own"):
        compile_all(provider, graph_of(CHAIN))
    assert closed == [True]


@pytest.mark.parametrize("order", ["partition first", "provider first"])
def test_close_in_any_order_and_twice(graph_of, order):
    provider = open_provider()
    part = compile_all(provider, graph_of(CHAIN))
    first, second = (part, provider) if order == "partition first" else (provider, part)
    for item in (first, second, first, second):
        item.close()
    assert provider.events == ["closed"]
    with pytest.raises(RunError, match="partition is closed"):
        run(part, X, W)
    with pytest.raises(ProviderError, match="'vendor' is closed"):
        compile_all(provider, graph_of(CHAIN))


def test_failing_to_release_is_reported(graph_of):
    provider = vendor_of(dict, close=raising(RuntimeError("busy")))
    part = compile_all(provider, graph_of(CHAIN))
    with pytest.raises(ProviderError, match="can't be released: RuntimeError: busy"):
        part.close()
    part.close()
    provider.close()


def test_a_compiler_has_to_be_given():
    with pytest.raises(TypeError, match="compile_model"):
        open_provider(CompilerProvider)


# ---------------------------------------------------------------- artifacts


class StoringProvider(ReferenceProvider):
    """Its artifacts are the models themselves."""

    features = ProviderFeatures(concurrent_runs=False, artifacts=True)

    def compile_model(self, model, subgraph):
        return self.load(model.SerializeToString())

    def import_model(self, artifact, subgraph):
        return self.load(artifact)

    def load(self, artifact):
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(onnx.load_from_string(artifact))

        def run(feeds):
            return dict(zip(evaluator.output_names, evaluator.run(None, feeds), strict=True))

        return CompiledModel(run, export=lambda: artifact)


def whole_of(graph):
    return Subgraph.cut(graph, range(len(graph.nodes)), "region")


def test_artifacts_go_out_and_come_in(graph_of):
    graph = graph_of(CHAIN)
    provider = open_provider(StoringProvider)
    artifact = provider.export_partition(compile_all(provider, graph))
    provider.close()
    with pytest.raises(ProviderError, match="'vendor' is closed"):
        provider.import_partition(whole_of(graph), artifact)
    other = open_provider(StoringProvider)
    part = other.import_partition(whole_of(graph), artifact)
    np.testing.assert_array_equal(run(part, X, W)[0], np.maximum(X + W, 0))
    assert other.export_partition(part) == artifact
    other.close()
    with pytest.raises(RunError, match="partition is closed"):
        run(part, X, W)


def test_a_vendor_that_refuses_an_artifact(graph_of):
    provider = open_provider(StoringProvider)
    with pytest.raises(CompileError, match=r"can't import 'region' \(2 nodes\): "):
        provider.import_partition(whole_of(graph_of(CHAIN)), b"no model")


def test_what_can_not_be_exported(graph_of):
    plain = open_provider()
    with pytest.raises(CompileError, match="the partition can't be exported"):
        plain.export_partition(compile_all(plain, graph_of(CHAIN)))
    with pytest.raises(CompileError, match="isn't one of provider 'vendor'"):
        plain.export_partition(object())
    with pytest.raises(CompileError, match="'vendor' imports no models"):
        plain.import_partition(whole_of(graph_of(CHAIN)), b"")
    provider = open_provider(StoringProvider)
    part = compile_all(provider, graph_of(CHAIN))
    part.close()
    with pytest.raises(CompileError, match="the partition is closed"):
        provider.export_partition(part)


def test_failing_to_export_is_an_error_of_the_project(graph_of):
    provider = vendor_of(dict, export=raising(OSError("device busy")))
    with pytest.raises(CompileError, match="can't be exported: OSError: device busy"):
        provider.export_partition(compile_all(provider, graph_of(CHAIN)))
