"""Bindings on the host: what goes in and comes out, without copies, and what is refused."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from onnx import TensorProto, parser

from ep_core import InferenceSession, OrtValue
from ep_core.errors import (
    ContractError,
    FeedError,
    OptionError,
    RunCancelledError,
    RunError,
    SessionClosedError,
)
from ep_core.options import RunOptions

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
STATIC = (
    HEAD + "g (float[3] x, float[3] y) => (float[3] s, float[3] p) { s = Add(x, y) p = Mul(s, x) }"
)
FREE = HEAD + "g (float[N] x, float[N] y) => (float[N] s) { s = Add(x, y) }"
MIXED = (
    HEAD
    + """g (float[2] x, optional(float[2]) maybe) => (seq(float[2]) both, bool there, float[2] x2)
    { both = SequenceConstruct(x, x) there = OptionalHasElement(maybe) x2 = Add(x, x) }"""
)
X = np.float32([1, 2, 3])
Y = np.float32([10, 20, 30])


@pytest.fixture
def session(provide):
    opened = []

    def make(text=STATIC, **settings):
        factory = provide(accepts_outputs=settings.pop("accepts_outputs", True), **settings)
        opened.append(InferenceSession(parser.parse_model(text), providers=["cpu"]))
        opened[-1].factory = factory
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.fixture
def bound(session):
    """A session and a binding with both inputs bound."""

    def make(text=STATIC, **settings):
        one = session(text, **settings)
        binding = one.io_binding()
        binding.bind_cpu_input("x", X.copy())
        binding.bind_cpu_input("y", Y.copy())
        return one, binding

    return make


def value_of(array) -> OrtValue:
    return OrtValue.ortvalue_from_numpy(array)


def partition_of(one):
    return one.factory.made[-1].partitions[0]


# ---------------------------------------------------------------- what works


def test_outputs_come_in_the_order_they_were_bound(bound):
    one, binding = bound()
    binding.bind_output("p")
    binding.bind_output("s", "cpu", 0)
    assert one.run_with_iobinding(binding) is None
    p, s = binding.get_outputs()
    np.testing.assert_array_equal(p.numpy(), (X + Y) * X)
    np.testing.assert_array_equal(s.numpy(), X + Y)
    assert (p.device_name(), p.data_type(), p.shape()) == ("cpu", "tensor(float)", [3])
    for array, value in zip(binding.copy_outputs_to_cpu(), (p, s), strict=True):
        assert array is value.numpy()


def test_only_what_is_bound_comes_out(bound):
    one, binding = bound()
    binding.bind_output("s")
    one.run_with_iobinding(binding)
    assert len(binding.get_outputs()) == 1


def test_the_caller_s_memory_is_written_by_the_partition_itself(bound):
    one, binding = bound()
    target = np.zeros(3, np.float32)
    binding.bind_ortvalue_output("s", value_of(target))
    binding.bind_output("p")
    assert binding.get_copies() == ()
    one.run_with_iobinding(binding)
    np.testing.assert_array_equal(target, X + Y)
    assert binding.get_outputs()[0].data_ptr() == target.ctypes.data
    seen, free = partition_of(one).seen_outputs
    assert np.shares_memory(seen, target)
    assert free is None


def test_where_the_partition_can_t_one_copy_at_the_end_does(bound):
    one, binding = bound(accepts_outputs=False)
    target = np.zeros(3, np.float32)
    binding.bind_ortvalue_output("s", value_of(target))
    (copy,) = binding.get_copies()
    assert (copy.value, copy.source, copy.target, copy.nbytes) == ("s", "cpu/host", "cpu/host", 12)
    one.run_with_iobinding(binding)
    np.testing.assert_array_equal(target, X + Y)


def test_inputs_aren_t_copied(bound):
    one, binding = bound()
    array = X.copy()
    binding.bind_cpu_input("x", array)
    binding.bind_output("s")
    one.run_with_iobinding(binding)
    array[:] = 5
    one.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), 5 + Y)


def test_a_host_value_as_input(bound):
    one, binding = bound()
    value = value_of(X.copy())
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("s")
    one.run_with_iobinding(binding)
    value.update_inplace(Y)
    one.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), Y + Y)


def test_results_of_earlier_runs_stay(bound):
    one, binding = bound()
    binding.bind_output("s")
    kept = []
    for factor in range(4):
        binding.bind_cpu_input("x", X * factor)
        one.run_with_iobinding(binding)
        kept += binding.get_outputs()
    for factor, value in enumerate(kept):
        np.testing.assert_array_equal(value.numpy(), X * factor + Y)


def test_raw_host_memory(bound):
    one, binding = bound()
    source, target = X.copy(), np.zeros(3, np.float32)
    binding.bind_input("x", "cpu", 0, np.float32, [3], source.ctypes.data)
    binding.bind_output("s", "cpu", 0, TensorProto.FLOAT, (3,), target.ctypes.data)
    assert binding.get_copies() == ()
    one.run_with_iobinding(binding)
    np.testing.assert_array_equal(target, X + Y)
    source[:] = 7
    one.run_with_iobinding(binding)
    np.testing.assert_array_equal(target, 7 + Y)


def test_shapes_that_are_known_late(bound):
    one, binding = bound(FREE)
    target = np.zeros(3, np.float32)
    binding.bind_ortvalue_output("s", value_of(target))
    assert [copy.nbytes for copy in binding.get_copies()] == [None]
    one.run_with_iobinding(binding)
    np.testing.assert_array_equal(target, X + Y)
    for name in ("x", "y"):
        binding.bind_cpu_input(name, np.zeros(2, np.float32))
    with pytest.raises(
        FeedError, match=r"doesn't fit this run; expected float\[2\]; got float\[3\]"
    ):
        one.run_with_iobinding(binding)
    np.testing.assert_array_equal(target, X + Y)
    binding.bind_output("s")
    one.run_with_iobinding(binding)
    assert binding.get_outputs()[0].shape() == [2]


def test_values_that_are_no_tensors(session):
    one = session(MIXED)
    binding = one.io_binding()
    binding.bind_cpu_input("x", X[:2])
    for name in ("both", "there"):
        binding.bind_output(name)
    one.run_with_iobinding(binding)
    both, there = binding.get_outputs()
    assert both.is_tensor_sequence()
    assert both.data_type() == "seq(tensor(float))"
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], [X[:2], X[:2]])
    assert not there.numpy()
    binding.bind_cpu_input("maybe", X[:2])
    one.run_with_iobinding(binding)
    assert binding.get_outputs()[1].numpy()
    with pytest.raises(FeedError, match="expected a tensor; got list"):
        binding.bind_ortvalue_output("both", both)


def test_an_output_that_is_an_input_shares_nothing(session):
    text = HEAD + "g (float[3] x) => (float[3] x, float[3] n) { n = Neg(x) }"
    one = session(text)
    array, target = X.copy(), np.zeros(3, np.float32)
    binding = one.io_binding()
    binding.bind_cpu_input("x", array)
    binding.bind_output("x")
    one.run_with_iobinding(binding)
    assert not np.shares_memory(binding.get_outputs()[0].numpy(), array)
    binding.bind_ortvalue_output("x", value_of(target))
    one.run_with_iobinding(binding)
    np.testing.assert_array_equal(target, X)


def test_defaults_of_inputs_are_used(session):
    text = HEAD + "g (float[3] x, float[3] y = {1, 1, 1}) => (float[3] s) { s = Add(x, y) }"
    one = session(text)
    (s,) = one.run_with_ort_values(["s"], {"x": value_of(X)})
    np.testing.assert_array_equal(s.numpy(), X + 1)
    (s,) = one.run_with_ort_values(["s"], {"x": value_of(X), "y": value_of(Y)})
    np.testing.assert_array_equal(s.numpy(), X + Y)


# ---------------------------------------------------------------- what is refused


def test_wrong_inputs(session):
    binding = session().io_binding()
    for array, message in (
        (X.astype(np.float64), "expected dtype float32"),
        (X[:2], "expected 3 in shape"),
        (X[None], "expected rank 1"),
        ([1, 2, 3], "expected numpy.ndarray"),
    ):
        with pytest.raises(FeedError, match=message):
            binding.bind_cpu_input("x", array)
    with pytest.raises(FeedError, match="has no input 'z'"):
        binding.bind_cpu_input("z", X)
    with pytest.raises(FeedError, match="expected an OrtValue; got ndarray"):
        binding.bind_ortvalue_input("x", X)
    with pytest.raises(FeedError, match="expected dtype float32"):
        binding.bind_ortvalue_input("x", value_of(X.astype(np.int64)))
    with pytest.raises(FeedError, match="has no input None"):
        binding.bind_ortvalue_input(None, value_of(X))


def test_wrong_outputs(session):
    binding = session().io_binding()
    read_only = np.zeros(3, np.float32)
    read_only.flags.writeable = False
    for array, message in (
        (np.zeros(3), r"expected tensor\(float\); got tensor\(double\)"),
        (np.zeros(4, np.float32), "expected 3 in shape"),
        (np.zeros((3, 1), np.float32), "expected rank 1"),
        (read_only, "expected writeable and C-contiguous"),
    ):
        with pytest.raises(FeedError, match=message):
            binding.bind_ortvalue_output("s", value_of(array))
    for bind in (
        lambda: binding.bind_output("q"),
        lambda: binding.bind_output(["s"]),
        lambda: binding.bind_ortvalue_output("x", value_of(X)),
    ):
        with pytest.raises(FeedError, match="the model has no output"):
            bind()
    with pytest.raises(FeedError, match="expected an OrtValue; got ndarray"):
        binding.bind_ortvalue_output("s", X)
    with pytest.raises(OptionError, match="buffer_ptr needs element_type and shape"):
        binding.bind_output("s", buffer_ptr=4096)


@pytest.mark.parametrize("address", [0, -8, 3, 2**63, "here", None, 1.5, True])
def test_no_address(session, address):
    binding = session().io_binding()
    with pytest.raises(OptionError, match="buffer_ptr of 'x'"):
        binding.bind_input("x", "cpu", 0, np.float32, [3], address)
    with pytest.raises((OptionError, FeedError)):
        binding.bind_output("s", "cpu", 0, np.float32, [3], address or 0)


def test_what_raw_memory_can_t_be(session):
    binding = session().io_binding()
    for shape in ([0, 2**62], [1] * 65):
        with pytest.raises(OptionError, match="shape; expected a list of ints"):
            binding.bind_input("x", "cpu", 0, np.float32, shape, 4096)
    for kind in (TensorProto.STRING, TensorProto.INT4):
        with pytest.raises(OptionError, match="raw memory can't hold"):
            binding.bind_input("x", "cpu", 0, kind, [3], 4096)
    with pytest.raises(FeedError, match="expected dtype float32"):
        binding.bind_input("x", "cpu", 0, np.float64, [3], np.zeros(3).ctypes.data)
    with pytest.raises(FeedError, match="has no input 'z'"):
        binding.bind_input("z", "cpu", 0, np.float32, [3], 0)


def test_what_is_missing(session):
    one = session()
    binding = one.io_binding()
    binding.bind_cpu_input("x", X)
    with pytest.raises(FeedError, match="no output is bound"):
        one.run_with_iobinding(binding)
    binding.bind_output("s")
    with pytest.raises(FeedError, match="input 'y' is missing"):
        one.run_with_iobinding(binding)
    with pytest.raises(FeedError, match="input 'y' is missing"):
        binding.get_copies()
    with pytest.raises(RunError, match="no outputs yet"):
        binding.get_outputs()
    with pytest.raises(RunError, match="no outputs yet"):
        binding.copy_outputs_to_cpu()
    binding.bind_cpu_input("y", Y)
    one.run_with_iobinding(binding)
    binding.clear_binding_inputs()
    with pytest.raises(FeedError, match="input 'x' is missing"):
        one.run_with_iobinding(binding)
    binding.clear_binding_outputs()
    with pytest.raises(FeedError, match="no output is bound"):
        one.run_with_iobinding(binding)


def test_overlapping_memory(bound):
    one, binding = bound()
    block = np.zeros(8, np.float32)
    binding.bind_ortvalue_output("s", value_of(block[:3]))
    binding.bind_ortvalue_output("p", value_of(block[2:5]))
    with pytest.raises(FeedError, match="bound to output 'p' overlaps that of output 's'"):
        one.run_with_iobinding(binding)
    binding.bind_ortvalue_output("p", value_of(block[3:6]))
    one.run_with_iobinding(binding)
    np.testing.assert_array_equal(block, [*(X + Y), *((X + Y) * X), 0, 0])
    binding.bind_cpu_input("y", block[4:7])
    with pytest.raises(FeedError, match="overlaps that of input 'y'"):
        one.run_with_iobinding(binding)


def test_memory_in_a_sequence_counts_as_the_input_s(session):
    text = HEAD + "g (seq(float[3]) q) => (float[3] first) { at = Constant <value = int64 {0}> () "
    one = session(text + "first = SequenceAt(q, at) }")
    array = X.copy()
    binding = one.io_binding()
    binding.bind_cpu_input("q", [Y, array])
    binding.bind_ortvalue_output("first", value_of(array))
    with pytest.raises(FeedError, match="overlaps that of input 'q'"):
        one.run_with_iobinding(binding)


def test_what_the_caller_does_to_its_array_object_changes_nothing(bound):
    one, binding = bound()
    array, target = X.copy(), np.zeros(3, np.float32)
    binding.bind_cpu_input("x", array)
    binding.bind_ortvalue_output("s", value_of(target))
    array.shape = (3, 1)
    target.flags.writeable = False
    one.run_with_iobinding(binding)
    np.testing.assert_array_equal(target, X + Y)


def test_a_binding_belongs_to_its_session(bound):
    one, binding = bound()
    binding.bind_output("s")
    with InferenceSession(parser.parse_model(STATIC), providers=["cpu"]) as other:
        for wrong in (binding, None, {"x": X}):
            with pytest.raises(FeedError, match="expected what this session's io_binding"):
                other.run_with_iobinding(wrong)
    with pytest.raises(OptionError, match="expected a RunOptions"):
        one.run_with_iobinding(binding, {"terminate": True})
    one.close()
    with pytest.raises(SessionClosedError):
        one.run_with_iobinding(binding)
    with pytest.raises(SessionClosedError):
        binding.get_copies()
    with pytest.raises(SessionClosedError):
        one.run_with_ort_values(None, {"x": value_of(X), "y": value_of(Y)})


def test_wrong_arguments_of_run_with_ort_values(session):
    one = session()
    with pytest.raises(FeedError, match="expected a dict of OrtValues"):
        one.run_with_ort_values(None, [value_of(X)])
    with pytest.raises(FeedError, match="expected an OrtValue"):
        one.run_with_ort_values(None, {"x": X, "y": Y})
    with pytest.raises(FeedError, match="has no output 'q'"):
        one.run_with_ort_values(["q"], {"x": value_of(X), "y": value_of(Y)})
    with pytest.raises(FeedError, match="input 'y' is missing"):
        one.run_with_ort_values(None, {"x": value_of(X)})


def test_a_failed_run_is_an_error_and_the_next_works(bound):
    one, binding = bound()
    binding.bind_output("s")
    provider = one.factory.made[-1]
    provider.fail_run = ValueError("broken")
    with pytest.raises(RunError, match="broken"):
        one.run_with_iobinding(binding)
    provider.fail_run = None
    one.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), X + Y)


def test_a_provider_that_doesn_t_write_where_it_should(bound, monkeypatch):
    one, binding = bound()
    binding.bind_ortvalue_output("s", value_of(np.zeros(3, np.float32)))
    part = partition_of(one)
    honest = type(part).run

    def run(self, inputs, outputs, stream):
        honest(self, inputs, outputs, stream)
        outputs[0] = outputs[0].copy()

    monkeypatch.setattr(type(part), "run", run)
    with pytest.raises(ContractError, match="given memory for output 's' and returned other"):
        one.run_with_iobinding(binding)


def test_a_run_has_what_was_bound_when_it_began(bound, monkeypatch):
    one, binding = bound()
    target = value_of(np.zeros(3, np.float32))
    binding.bind_ortvalue_output("s", target)
    binding.bind_output("p")
    part = partition_of(one)
    honest = type(part).run

    def run(self, inputs, outputs, stream):
        binding.clear_binding_inputs()
        binding.clear_binding_outputs()
        binding.bind_output("p")
        honest(self, inputs, outputs, stream)

    with monkeypatch.context() as patch:
        patch.setattr(type(part), "run", run)
        one.run_with_iobinding(binding)
    s, p = binding.get_outputs()
    np.testing.assert_array_equal(s.numpy(), X + Y)
    assert np.shares_memory(s.numpy(), target.numpy())
    np.testing.assert_array_equal(p.numpy(), (X + Y) * X)
    with pytest.raises(FeedError, match="input 'x' is missing"):
        one.run_with_iobinding(binding)


def test_a_cancelled_run(bound):
    one, binding = bound()
    binding.bind_output("s")
    options = RunOptions()
    options.terminate = True
    with pytest.raises(RunCancelledError):
        one.run_with_iobinding(binding, options)
    options.terminate = False
    one.run_with_iobinding(binding, options)


def test_threads_with_a_binding_each(session):
    one = session()
    wrong = []

    def work(seed):
        target = np.zeros(3, np.float32)
        binding = one.io_binding()
        binding.bind_cpu_input("y", Y)
        binding.bind_ortvalue_output("s", value_of(target))
        binding.bind_output("p")
        for turn in range(40):
            x = X * (seed + turn)
            binding.bind_cpu_input("x", x)
            one.run_with_iobinding(binding)
            p = binding.copy_outputs_to_cpu()[1]
            if not np.array_equal(target, x + Y) or not np.array_equal(p, (x + Y) * x):
                wrong.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
