"""Sessions over real (reference) providers: the API, placement, failures, threads, closing."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

from ep_core import InferenceSession, RunOptions, SessionOptions, get_available_providers
from ep_core.contracts import ProviderFeatures
from ep_core.discovery.registry import Registry
from ep_core.errors import (
    ContractError,
    EpError,
    FeedError,
    InvalidModelError,
    OptionError,
    PlacementError,
    ProviderNotFoundError,
    RunCancelledError,
    RunError,
    SessionClosedError,
)

CHAIN = """
<ir_version: 8, opset_import: ["" : 17]>
chain (float[2, N] x, float[2, N] y) => (float[2, N] z, float[2, N] s)
{
  s = Add(x, y)
  r = Relu(s)
  m = Mul(r, y)
  z = Sub(m, x)
}
"""

X = np.array([[1.0, -2.0, 3.0], [0.5, -0.5, 0.0]], np.float32)
Y = np.array([[2.0, 1.0, -4.0], [1.0, 1.0, 1.0]], np.float32)
S = X + Y
Z = np.maximum(S, 0) * Y - X


def chain() -> onnx.ModelProto:
    return parser.parse_model(CHAIN)


def test_run_returns_outputs_in_model_order(provide):
    provide()
    with InferenceSession(chain(), providers=["cpu"]) as session:
        z, s = session.run(None, {"x": X, "y": Y})
    np.testing.assert_array_equal(z, Z)
    np.testing.assert_array_equal(s, S)


def test_output_names_select_and_order(provide):
    provide()
    with InferenceSession(chain(), providers=["cpu"]) as session:
        assert len(session.run(["s"], {"x": X, "y": Y})) == 1
        s, z = session.run(["s", "z"], {"x": X, "y": Y})
        np.testing.assert_array_equal(z, Z)
        np.testing.assert_array_equal(s, S)
        with pytest.raises(FeedError, match=r"no output 'zz'.*Did you mean 'z'"):
            session.run(["zz"], {"x": X, "y": Y})


@pytest.mark.parametrize("as_bytes", [True, False])
def test_model_from_bytes_and_path(provide, tmp_path, as_bytes):
    provide()
    path = tmp_path / "chain.onnx"
    onnx.save(chain(), path)
    with InferenceSession(path.read_bytes() if as_bytes else path) as session:
        np.testing.assert_array_equal(session.run(["z"], {"x": X, "y": Y})[0], Z)


def test_signature_as_in_onnx_runtime(provide):
    provide()
    model = chain()
    model.producer_name = "tests"
    model.metadata_props.add(key="author", value="us")
    with InferenceSession(model, providers=["CPUExecutionProvider"]) as session:
        x, _ = session.get_inputs()
        assert (x.name, x.type, x.shape) == ("x", "tensor(float)", [2, "N"])
        assert [out.name for out in session.get_outputs()] == ["z", "s"]
        assert session.get_providers() == ["CPUExecutionProvider"]
        assert session.get_provider_options()["CPUExecutionProvider"]["verbose"] == "False"
        meta = session.get_modelmeta()
        assert meta.producer_name == "tests"
        assert meta.custom_metadata_map == {"author": "us"}
        assert meta.graph_name == "chain"
    assert "CPUExecutionProvider" in get_available_providers()


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({"x": X}, r"input 'y' is missing.*tensor\(float\) of shape \[2, N\]"),
        ({"x": X, "y": Y, "q": Y}, "no input 'q'"),
        ({"x": X, "y": Y.astype(np.float64)}, "input 'y'.*float32.*float64.*astype"),
        ({"x": X, "y": Y[0]}, "input 'y'.*rank 2.*rank 1"),
        ({"x": X[:1], "y": Y}, "input 'x', dimension 0.*expected 2.*got 1"),
        ({"x": X.tolist(), "y": Y}, "input 'x'.*numpy.ndarray.*list"),
        ({"x": None, "y": Y}, "input 'x'.*NoneType"),
        ({"x": np.ma.masked_array(X), "y": Y}, "input 'x'.*MaskedArray"),
        ({"x": X.astype("datetime64[s]"), "y": Y}, "input 'x'.*datetime64"),
    ],
)
def test_wrong_feeds_name_the_input(provide, feeds, words):
    provide()
    with (
        InferenceSession(chain(), providers=["cpu"]) as session,
        pytest.raises(FeedError, match=words),
    ):
        session.run(None, feeds)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((None, None), FeedError, "input_feed.*dict"),
        ((None, [("x", X)]), FeedError, "input_feed.*dict"),
        ((5, {"x": X, "y": Y}), FeedError, "output_names.*list of names"),
        (("z", {"x": X, "y": Y}), FeedError, "output_names.*list of names"),
        (([["z"]], {"x": X, "y": Y}), FeedError, "no output"),
        ((None, {"x": X, "y": Y}, {}), OptionError, "run_options.*RunOptions.*dict"),
    ],
)
def test_arguments_of_a_wrong_kind(provide, arguments, error, words):
    provide()
    with (
        InferenceSession(chain(), providers=["cpu"]) as session,
        pytest.raises(error, match=words),
    ):
        session.run(*arguments)


def test_other_byte_order_and_strides_are_taken(provide):
    provide()
    feeds = {"x": X.astype(">f4"), "y": np.asfortranarray(Y)}
    with InferenceSession(chain(), providers=["cpu"]) as session:
        np.testing.assert_array_equal(session.run(["z"], feeds)[0], Z)


def test_placement_and_reasons(provide):
    provide("fast", {"Add", "Mul"})
    provide("cpu")
    with InferenceSession(chain(), providers=["fast", "cpu"]) as session:
        report = session.get_placement()
        z, s = session.run(None, {"x": X, "y": Y})
    np.testing.assert_array_equal(z, Z)
    np.testing.assert_array_equal(s, S)
    by_type = {p.op_type: p for p in report.nodes[""]}
    assert by_type["Add"].provider == "fast"
    assert by_type["Add"].runner_up == "cpu"
    assert by_type["Relu"].provider == "cpu"
    assert "Relu" in by_type["Relu"].refusals["fast"]
    assert report.summary.startswith("fast 2 of 4 nodes, cpu 2 [Relu, Sub]")
    assert [part.provider for part in report.partitions] == ["fast", "cpu", "fast", "cpu"]
    assert report.to_dict()["summary"] == report.summary
    assert "not on fast" in str(report)


def test_fallback_to_cpu_is_told_and_can_be_forbidden(provide, caplog):
    provide("fast", {"Add", "Mul"})
    provide("cpu")
    with (
        caplog.at_level(logging.WARNING, "ep_core"),
        InferenceSession(chain(), providers=["fast"]) as session,
    ):
        assert session.get_providers() == ["FASTExecutionProvider", "CPUExecutionProvider"]
    assert "cpu 2 [Relu, Sub]" in caplog.text
    options = SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with pytest.raises(PlacementError, match=r"(?s)2 node.*Relu.*fast: operator Relu"):
        InferenceSession(chain(), options, providers=["fast"])


def test_a_divided_model_is_told_by_default_and_a_whole_one_is_not(provide, caplog):
    provide("fast", {"Add", "Mul"})
    provide("cpu")
    for names, told in ((["fast", "cpu"], ["fast 2 of 4 nodes, cpu 2 [Relu, Sub]"]), (["cpu"], [])):
        caplog.clear()
        with InferenceSession(chain(), providers=names) as session:
            shown = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
            assert [text.split("; ")[0] for text in shown] == told
            assert all(text.startswith(session.get_placement().summary) for text in shown)
            assert all("nobody named" not in text for text in shown)


def test_compile_failure_costs_only_that_claim(provide):
    provide("fast", {"Add", "Mul", "Relu"}, fail_compile={"Mul"})
    cpu = provide("cpu")
    with InferenceSession(chain(), providers=["fast", "cpu"]) as session:
        report = session.get_placement()
        np.testing.assert_array_equal(session.run(["z"], {"x": X, "y": Y})[0], Z)
    assert any("told to fail" in reason for reason in report.refused_claims)
    mul = next(p for p in report.nodes[""] if p.op_type == "Mul")
    assert mul.provider == "cpu"
    assert mul.refusals["fast"].startswith("compile failed: ValueError: told to fail")
    assert all(p.closed == 1 for made in cpu.made for p in made.partitions)


def test_everything_is_closed_once(provide):
    factory = provide()
    session = InferenceSession(chain(), providers=["cpu"])
    session.close()
    session.close()
    (provider,) = factory.made
    assert provider.closed == 1
    assert [p.closed for p in provider.partitions] == [1] * len(provider.partitions)
    with pytest.raises(SessionClosedError):
        session.run(None, {"x": X, "y": Y})


def test_failed_creation_closes_the_providers(provide):
    factory = provide("fast", {"Add"})
    options = SessionOptions()
    options.disable_cpu_fallback = True
    with pytest.raises(PlacementError):
        InferenceSession(chain(), options, providers=["fast"])
    assert [made.closed for made in factory.made] == [1]


def test_foreign_exception_in_a_run_becomes_a_run_error(provide):
    provide("fast", {"Relu"}, fail_run=ZeroDivisionError("oops"))
    provide("cpu")
    with (
        InferenceSession(chain(), providers=["fast", "cpu"]) as session,
        pytest.raises(RunError, match="ZeroDivisionError: oops"),
    ):
        session.run(None, {"x": X, "y": Y})


def test_buffers_between_partitions_are_used_again(provide):
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    long (float[4] x) => (float[4] z)
    { a = Relu(x)  b = Neg(a)  c = Relu(b)  d = Neg(c)  e = Relu(d)  z = Neg(e) }
    """
    fast = provide("fast", {"Relu"}, accepts_outputs=True)
    cpu = provide("cpu", accepts_outputs=True)
    options = SessionOptions()
    options.graph_optimization_level = 0
    with InferenceSession(parser.parse_model(text), options, providers=["fast", "cpu"]) as session:
        x = np.array([1, -2, 3, -4], np.float32)
        first = session.run(None, {"x": x})[0]
        seen = [p.seen_outputs[0] for f in (fast, cpu) for p in f.made[0].partitions]
        given = [array for array in seen if array is not None]
        assert len(given) == 5  # all but the graph's output
        blocks = {array.__array_interface__["data"][0] for array in given}
        assert len(blocks) == 2  # two alternate
        second = session.run(None, {"x": -x})[0]
        np.testing.assert_array_equal(first, -np.maximum(-np.maximum(-np.maximum(x, 0), 0), 0))
        assert not np.shares_memory(first, second)


def test_outputs_never_share_memory(provide):
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    through (float[2] x) => (float[2] x, float[2] w, float[2] y, float[2] y)
    <float[2] w = {1, 2}>
    { y = Neg(x) }
    """
    model = parser.parse_model(text)
    del model.graph.output[3]
    provide()
    with InferenceSession(model, providers=["cpu"]) as session:
        x = np.array([5, 6], np.float32)
        outputs = session.run(None, {"x": x})
        again = session.run(None, {"x": x})
    np.testing.assert_array_equal(outputs[0], x)
    np.testing.assert_array_equal(outputs[1], [1, 2])
    np.testing.assert_array_equal(outputs[2], -x)
    for value, other in zip(outputs, again, strict=True):
        assert not np.shares_memory(value, x)
        assert not np.shares_memory(value, other)
        value += 1  # the caller may write into what it got


def test_overridable_initializer(provide):
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    default (float[2] x, float[2] w) => (float[2] y) <float[2] w = {10, 20}>
    { y = Add(x, w) }
    """
    provide()
    x = np.array([1, 2], np.float32)
    model = parser.parse_model(text)
    if not any(i.name == "w" for i in model.graph.initializer):
        tensor = helper.make_tensor("w", TensorProto.FLOAT, [2], [10.0, 20.0])
        model.graph.initializer.append(tensor)
    with InferenceSession(model, providers=["cpu"]) as session:
        assert [i.name for i in session.get_inputs()] == ["x"]
        assert [i.name for i in session.get_overridable_initializers()] == ["w"]
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], [11, 22])
        np.testing.assert_array_equal(session.run(None, {"x": x, "w": x})[0], [2, 4])


def test_free_dimension_override(provide):
    provide()
    options = SessionOptions()
    options.add_free_dimension_override_by_name("N", 3)
    with InferenceSession(chain(), options, providers=["cpu"]) as session:
        assert session.get_inputs()[0].shape == [2, 3]
        with pytest.raises(FeedError, match="dimension 1"):
            session.run(None, {"x": X[:, :2], "y": Y[:, :2]})


def test_optimized_model_is_saved_and_equal(provide, tmp_path):
    provide()
    path = tmp_path / "optimised.onnx"
    options = SessionOptions()
    options.optimized_model_filepath = path
    InferenceSession(chain(), options, providers=["cpu"]).close()
    onnx.checker.check_model(onnx.load(path), full_check=True)
    with InferenceSession(path, providers=["cpu"]) as session:
        np.testing.assert_array_equal(session.run(["z"], {"x": X, "y": Y})[0], Z)
    assert [p.name for p in tmp_path.iterdir()] == ["optimised.onnx"]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"providers": ["cqu"]}, ProviderNotFoundError, "Did you mean.*'cpu'"),
        ({"providers": []}, OptionError, "at least one name"),
        ({"providers": "cpu"}, OptionError, "a list"),
        ({"providers": [("cpu", {"verbos": 1})]}, OptionError, "Did you mean 'verbose'"),
        ({"providers": ["cpu", "CPUExecutionProvider"]}, OptionError, "listed twice"),
        ({"providers": ["cpu"], "provider_options": []}, OptionError, "one dict per provider"),
        ({"provider_options": [{}]}, OptionError, "without providers"),
        ({"providers": ["cpu"], "sess_options": 5}, OptionError, "SessionOptions"),
        ({"providers": ["cpu"], "disabled_optimizers": ["nope"]}, OptionError, "nope"),
        ({"providers": ["cpu"], "disabled_optimizers": "nope"}, OptionError, "list of names"),
        ({"providers": ["cpu"], "disabled_optimizers": 5}, OptionError, "list of names"),
        ({"providers": [("cpu", {"device_id": 7})]}, OptionError, "device"),
    ],
)
def test_wrong_arguments(provide, arguments, error, words):
    provide()
    with pytest.raises(error, match=words):
        InferenceSession(chain(), **arguments)


def test_threads_option_reaches_providers_that_declare_it(provide):
    factory = provide()
    options = SessionOptions()
    options.intra_op_num_threads = 3
    InferenceSession(chain(), options, providers=["cpu"]).close()
    assert factory.made[0].options["intra_op_num_threads"] == 3


def test_terminate_cancels(provide):
    provide()
    options = RunOptions()
    options.terminate = True
    with InferenceSession(chain(), providers=["cpu"]) as session:
        with pytest.raises(RunCancelledError):
            session.run(None, {"x": X, "y": Y}, options)
        options.terminate = False
        np.testing.assert_array_equal(session.run(["z"], {"x": X, "y": Y}, options)[0], Z)


def test_eight_threads_get_their_own_answers(provide):
    provide("fast", {"Relu", "Sub"}, accepts_outputs=True)
    provide("cpu", accepts_outputs=True)
    wrong: list[int] = []
    with InferenceSession(chain(), providers=["fast", "cpu"]) as session:

        def work(seed: int) -> None:
            rng = np.random.default_rng(seed)
            for _ in range(30):
                x, y = rng.normal(size=(2, 2, 5)).astype(np.float32)
                z = session.run(["z"], {"x": x, "y": y})[0]
                if not np.array_equal(z, np.maximum(x + y, 0) * y - x):
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_bad_models_raise_our_errors(provide, tmp_path):
    provide()
    for source in (b"", b"garbage", tmp_path / "missing.onnx", tmp_path):
        with pytest.raises(InvalidModelError):
            InferenceSession(source, providers=["cpu"])
    with pytest.raises(InvalidModelError, match="path of the model is empty"):
        InferenceSession("", providers=["cpu"])
    with pytest.raises(EpError):
        InferenceSession(5, providers=["cpu"])  # type: ignore[arg-type]


GELU = """
<ir_version: 10, opset_import: ["" : 20]>
gelu (float[4] x) => (float[4] y)
<float root = {1.4142135}, float one = {1.0}, float half = {0.5}>
{
  d = Div(x, root)
  e = Erf(d)
  a = Add(e, one)
  m = Mul(x, a)
  y = Mul(m, half)
}
"""


@pytest.mark.parametrize(
    ("operators", "placed"),
    [
        ({"Div", "Erf", "Add", "Mul"}, {("fast", 5)}),  # Gelu would go to the cpu: not fused
        ({"Div", "Erf", "Add", "Mul", "Gelu"}, {("fast", 1)}),
        ({"Div", "Add", "Mul"}, {("cpu", 1)}),  # one part was the cpu's already
    ],
)
def test_fusions_move_no_work_to_a_provider_further_back(provide, operators, placed):
    provide("fast", operators)
    provide("cpu")
    with InferenceSession(parser.parse_model(GELU), providers=["fast", "cpu"]) as session:
        counts = Counter(p.provider for p in session.get_placement().nodes[""])
        assert set(counts.items()) == placed
        x = np.array([-1, 0, 0.5, 3], np.float32)
        right = [-0.15865525, 0.0, 0.34573123, 2.9959503]  # x * Phi(x)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], right, rtol=1e-5)


def test_a_provider_that_cannot_run_twice_at_once_takes_turns(provide):
    factory = provide()
    factory.features = ProviderFeatures(concurrent_runs=False)
    inside: list[int] = []
    most: list[int] = []
    with InferenceSession(chain(), providers=["cpu"]) as session:
        (partition,) = factory.made[0].partitions
        compute = partition.run

        def watched(inputs, outputs, stream):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.005)
            compute(inputs, outputs, stream)
            inside.pop()

        partition.run = watched
        threads = [
            threading.Thread(target=session.run, args=(None, {"x": X, "y": Y})) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert most == [1] * 6


def test_a_provider_without_the_stream_it_declares_is_told_so(provide):
    factory = provide()
    factory.features = ProviderFeatures(asynchronous=True)
    with (
        InferenceSession(chain(), providers=["cpu"]) as session,
        pytest.raises(ContractError, match="'cpu' declares asynchronous and gives no stream"),
    ):
        session.run(None, {"x": X, "y": Y})


def test_without_an_automatic_provider_the_message_names_the_others(provide, monkeypatch):
    monkeypatch.setattr(Registry, "automatic", lambda self: ())
    provide("only", auto=False)
    with pytest.raises(ProviderNotFoundError, match=r"Name one in `providers`: .*only"):
        InferenceSession(chain())


def test_whole_numbers_of_any_kind_and_of_64_bits(provide):
    provide()
    options = SessionOptions()
    options.intra_op_num_threads = np.int64(2)
    assert type(options.intra_op_num_threads) is int
    with pytest.raises(OptionError, match="64 bits"):
        options.intra_op_num_threads = 2**63
    with pytest.raises(OptionError, match=r"'N'.*64 bits"):
        options.add_free_dimension_override_by_name("N", 2**70)


@pytest.mark.parametrize("key", [5, ["session.disable_cpu_ep_fallback"], None])
def test_the_key_of_a_config_entry_is_text(key):
    options = SessionOptions()
    with pytest.raises(OptionError, match="key of a session config entry; expected a str"):
        options.add_session_config_entry(key, "1")
    with pytest.raises(OptionError, match="key of a session config entry; expected a str"):
        options.get_session_config_entry(key)


@pytest.mark.parametrize("given", [3, "{}", {"a": 1}])
def test_provider_options_are_a_list(provide, given):
    provide()
    with pytest.raises(OptionError, match="provider_options; expected a list"):
        InferenceSession(chain(), providers=["cpu"], provider_options=given)
