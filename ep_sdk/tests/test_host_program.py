"""Running partitions of kernels in host memory: values, sharing, errors, cost."""

from __future__ import annotations

import threading
import time
import warnings
import weakref

import numpy as np
import pytest

from ep_core.contracts import ProviderFeatures
from ep_core.errors import (
    AllocationError,
    CompileError,
    NotSupportedError,
    ProviderError,
    RunError,
)
from ep_core.graph import Subgraph
from ep_sdk import KernelTable

TABLE = KernelTable({"": 21, "com.microsoft": 1})


def ufunc_row(op_type, ufunc):
    @TABLE.kernel(op_type, writes_out=True)
    def make(node):
        return lambda *inputs, out=None: ufunc(*inputs, out=out)


for _op, _ufunc in (("Add", np.add), ("Mul", np.multiply), ("Neg", np.negative), ("Log", np.log)):
    ufunc_row(_op, _ufunc)


@TABLE.kernel("Abs")
def _abs(node):
    return lambda x: np.abs(x)


@TABLE.kernel("Identity", view=True)
def _identity(node):
    return lambda x: x


@TABLE.kernel("Reshape", view=True)
def _reshape(node):
    return lambda x, shape: x.reshape(shape)


@TABLE.kernel("Split")
def _split(node):
    return lambda x, sizes=None: tuple(np.split(x, len(node.node.outputs)))


@TABLE.kernel("Dropout", writes_out=True)
def _dropout(node):
    """A tuple, as for a node with a mask; only the first output can be asked for here."""

    def run(x, ratio=None, training=None, *, out=None):
        return (np.add(x, 0, out=out), None)

    return run


@TABLE.kernel("Clip")
def _clip(node):
    def run(x, low=None, high=None):
        assert low is None
        return np.minimum(x, high)

    return run


@TABLE.kernel("SequenceConstruct")
def _sequence(node):
    """Not marked as a view: what a sequence holds is seen to without that."""
    return lambda *items: list(items)


@TABLE.kernel("SequenceAt")
def _sequence_at(node):
    return lambda items, position: items[int(position)]


@TABLE.kernel("ReduceSum")
def _reduce_sum(node):
    return lambda x: x.sum()


WILLING = ProviderFeatures(non_tensor_values=True)
ONES = np.ones(4, np.float32)


@pytest.fixture
def partition_of(host_provider, graph_of, whole):
    def make(text, **initializers):
        provider = host_provider(TABLE, features=WILLING, accept_unknown_types=True)
        return provider.compile(whole(graph_of(text, **initializers)))

    return make


def run(partition, *inputs, memory=None):
    outputs = list(memory) if memory else [None] * len(partition.accepts_outputs)
    partition.run(inputs, outputs, None)
    return outputs


def twice(partition, *inputs):
    """The first run looks at real types, later ones use the plan; both must be right."""
    first = run(partition, *inputs)
    second = run(partition, *inputs)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    return second


def test_values_and_constants(partition_of):
    part = partition_of(
        "(float[4] x) => (float[4] z) { y = Add(x, c) z = Mul(y, x) }", c=np.float32([1, 2, 3, 4])
    )
    x = np.float32([1, 2, 3, 4])
    (z,) = twice(part, x)
    np.testing.assert_array_equal(z, x * (x + x))
    assert z.dtype == np.float32


def test_left_out_inputs_are_none(partition_of):
    part = partition_of(
        "(float[4] x) => (float[4] y) { y = Clip(x, , high) }", high=np.float32(0.5)
    )
    np.testing.assert_array_equal(twice(part, ONES)[0], [0.5] * 4)


def test_several_outputs_some_not_asked_for(partition_of):
    part = partition_of("(float[4] x) => (float[2] b) { a, b = Split(x) c = Neg(a) }")
    assert len(part.accepts_outputs) == 1
    np.testing.assert_array_equal(twice(part, np.float32([1, 2, 3, 4]))[0], [3, 4])


def test_tuple_of_one_and_scalars_become_arrays(partition_of):
    part = partition_of(
        "(float[4] x) => (float z, float[4] d) { d, mask = Dropout(x) z = ReduceSum(d) }"
    )
    d, z = twice(part, ONES)
    assert isinstance(z, np.ndarray)
    assert (z.shape, z.dtype, z.item()) == ((), np.float32, 4.0)
    np.testing.assert_array_equal(d, ONES)


def test_too_few_outputs(host_provider, graph_of, whole):
    table = KernelTable({"": 21})
    table.kernel("Split")(lambda node: lambda x: (x,))
    graph = graph_of("(float[4] x) => (float[2] a, float[2] b) { a, b = Split(x) }")
    part = host_provider(table).compile(whole(graph))
    with pytest.raises(RunError, match=r"Split.*too few outputs; expected a tuple of 2; got 1"):
        run(part, ONES)


def test_outputs_left_out_at_the_end_need_not_be_returned(host_provider, graph_of, whole):
    """`a, "" = Split(x)`: the model spells out what it doesn't want."""
    table = KernelTable({"": 21})
    table.kernel("Split")(lambda node: lambda x: x[:2] + 0)
    graph = graph_of("(float[4] x) => (float[1] c) { a, b = Split(x) c, d = Split(a) }")
    first, second = graph.nodes
    nodes = (first.replace(outputs=("a", "")), second.replace(outputs=("c", "")))
    part = host_provider(table).compile(whole(graph.replace(nodes=nodes)))
    np.testing.assert_array_equal(twice(part, np.float32([1, 2, 3, 4]))[0], [1, 2])


# ---------------------------------------------------------------- who shares memory with whom


@pytest.mark.parametrize(
    "text",
    [
        "(float[4] x) => (float[4] y) { y = Identity(x) }",
        "(float[4] x) => (float[4] y) { a = Identity(x) y = Identity(a) }",
        "(float[4] x) => (float[2,2] y) { y = Reshape(x, shape) }",
        "(float[4] x) => (float[4] y, float[4] a) { a = Neg(x) y = Identity(a) }",
        "(float[4] x) => (float[4] a, float[4] y) { a = Neg(x) y = Identity(a) }",
        "(float[4] x) => (float[4] y, float[4] z) { a = Neg(x) y = Identity(a) z = Identity(a) }",
        "(float[4] x) => (float[4] y) { y = Identity(c) z = Neg(x) }",
        "(float[4] x) => (float[4] y, float[2,2] z)"
        " { a = Neg(x) y = Neg(a) z = Reshape(a, shape) }",
    ],
)
@pytest.mark.parametrize("given", [False, True])
def test_outputs_share_memory_with_nothing(partition_of, text, given):
    constant = np.float32([5, 6, 7, 8])
    part = partition_of(text, c=constant, shape=np.array([2, 2]))
    x = np.float32([1, 2, 3, 4])
    for _ in range(3):
        expected = run(part, x)
        memory = [np.full_like(value, 99) for value in expected] if given else None
        values = run(part, x, memory=memory)
        for position, value in enumerate(values):
            np.testing.assert_array_equal(value, expected[position])
            if given:
                assert value is memory[position]
            others = [x, *values[:position], *values[position + 1 :], *expected]
            assert not any(np.shares_memory(value, other) for other in others)
            value[...] = -1
        np.testing.assert_array_equal(x, [1, 2, 3, 4])


def test_a_view_of_what_was_made_here_isn_t_copied(partition_of):
    made = []
    part = partition_of(
        "(float[4] x) => (float[2,2] y) { a = Abs(x) y = Reshape(a, shape) }",
        shape=np.array([2, 2]),
    )
    original = part._plain_calls[0].kernel
    assert original is not None
    (y,) = twice(part, ONES)
    made.append(y)
    assert y.base is not None


def test_sequences_are_copied_deeply(partition_of):
    part = partition_of(
        "(float[4] x) => (seq(float[4]) s) { a = Neg(x) s = SequenceConstruct(x, a) }"
    )
    x = np.float32([1, 2, 3, 4])
    for _ in range(2):
        (sequence,) = run(part, x)
        assert isinstance(sequence, list)
        assert not np.shares_memory(sequence[0], x)
        np.testing.assert_array_equal(sequence[1], -x)


def test_what_a_sequence_holds_isn_t_overwritten(partition_of):
    """`a` is last read by SequenceConstruct, but lives on inside the sequence."""
    part = partition_of(
        "(float[4] x, int64 i) => (float[4] y) {"
        " a = Neg(x) s = SequenceConstruct(a) b = Neg(x) c = Add(b, b) d = Add(c, c)"
        " e = SequenceAt(s, i) y = Add(e, d) }"
    )
    x = np.float32([1, 2, 3, 4])
    np.testing.assert_array_equal(twice(part, x, np.array(0))[0], -x - 4 * x)


def test_inputs_may_be_strided_and_read_only(partition_of):
    part = partition_of("(float[4] x) => (float[4] z) { y = Neg(x) z = Add(y, x) }")
    x = np.arange(8, dtype=np.float32)[::2]
    x.flags.writeable = False
    np.testing.assert_array_equal(twice(part, x)[0], np.zeros(4))


def test_nothing_is_kept_after_a_run(partition_of):
    part = partition_of("(float[4] x) => (float[4] z) { y = Neg(x) z = Add(y, x) }")

    class Tracked(np.ndarray):
        pass

    for _ in range(3):
        x = ONES.copy().view(Tracked)
        gone = weakref.ref(x)
        run(part, x)
        del x
        assert gone() is None


def test_values_are_released_at_their_last_use(host_provider, graph_of, whole):
    """While the last node runs, only its own input is still alive."""
    refs = []
    alive = []

    class Tracked(np.ndarray):
        pass

    def make(node):
        def kernel(x):
            alive.append(sum(ref() is not None for ref in refs))
            result = np.abs(x).view(Tracked)
            refs.append(weakref.ref(result))
            return result

        return kernel

    table = KernelTable({"": 21})
    table.kernel("Abs")(make)
    graph = graph_of("(float[4] x) => (float[4] d) { a = Abs(x) b = Abs(a) c = Abs(b) d = Abs(c) }")
    run(host_provider(table).compile(whole(graph)), ONES)
    assert alive == [0, 1, 1, 1]


# ---------------------------------------------------------------- memory given by the caller


def test_the_last_kernel_writes_into_given_memory(partition_of):
    part = partition_of("(float[4] x) => (float[4] z) { y = Neg(x) z = Add(y, x) }")
    assert list(part.accepts_outputs) == [True]
    run(part, ONES)
    memory = np.full(4, 7, np.float32)
    outputs = [memory]
    part.run([ONES], outputs, None)
    assert outputs[0] is memory
    np.testing.assert_array_equal(memory, np.zeros(4))


def test_accepts_outputs_tells_the_truth(partition_of):
    part = partition_of("(float[4] x) => (float[4] y, float[4] z) { y = Abs(x) z = Identity(y) }")
    assert list(part.accepts_outputs) == [False, False]


@pytest.mark.parametrize(
    "memory", [np.zeros((3, 4), np.float32), np.zeros(4, np.float64), np.zeros(1, np.float32)]
)
@pytest.mark.parametrize(
    "text",
    [
        "(float[4] x) => (float[4] y) { y = Neg(x) }",
        "(float[4] x) => (float[4] y) { a = Neg(x) y = Neg(a) }",
        "(float[4] x) => (float[4] y) { y = Abs(x) }",
    ],
)
def test_memory_that_doesn_t_fit(partition_of, text, memory):
    part = partition_of(text)
    for _ in range(3):
        with pytest.raises(RunError, match="memory given for output 'y' doesn't fit"):
            run(part, ONES, memory=[memory])
        run(part, ONES)


# ---------------------------------------------------------------- errors


def failing(error):
    table = KernelTable({"": 21})

    def make(node):
        def kernel(x):
            raise error

        return kernel

    table.kernel("Neg")(make)
    table.kernel("Abs")(lambda node: lambda x: np.abs(x))
    return table


CHAIN = "(float[4] x) => (float[4] z) { y = Abs(x) [bad] z = Neg(y) }"
ONE = "(float[4] y) => (float[4] z) { [bad] z = Neg(y) }"


@pytest.mark.parametrize("text", [CHAIN, ONE])
def test_an_exception_names_the_node(host_provider, graph_of, whole, text):
    cause = ValueError("operands differ")
    part = host_provider(failing(cause)).compile(whole(graph_of(text)))
    with pytest.raises(RunError) as caught:
        run(part, ONES)
    message = str(caught.value)
    assert "node 'bad' (Neg) failed: ValueError: operands differ" in message
    assert "its inputs: float[4]" in message
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize("text", [CHAIN, ONE])
def test_errors_of_the_project_keep_their_type(host_provider, graph_of, whole, text):
    cause = NotSupportedError("no such mode", got="cubic")
    part = host_provider(failing(cause)).compile(whole(graph_of(text)))
    for _ in range(2):
        with pytest.raises(NotSupportedError) as caught:
            run(part, ONES)
        assert str(caught.value) == "node 'bad' (Neg): no such mode; got cubic"
        assert caught.value.got == "cubic"


@pytest.mark.parametrize("text", [CHAIN, ONE])
def test_out_of_memory(host_provider, graph_of, whole, text):
    part = host_provider(failing(MemoryError("64 GiB"))).compile(whole(graph_of(text)))
    with pytest.raises(AllocationError, match=r"node 'bad' .*64 GiB"):
        run(part, ONES)


@pytest.mark.parametrize("text", [CHAIN, ONE])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupts_pass(host_provider, graph_of, whole, text, error):
    part = host_provider(failing(error())).compile(whole(graph_of(text)))
    with pytest.raises(error):
        run(part, ONES)


@pytest.mark.parametrize(
    "text",
    [
        "(float[1] x) => (float[1] y) { y = Log(x) }",
        "(float[1] x) => (float[1] y) { a = Neg(x) b = Log(a) y = Neg(b) }",
    ],
)
def test_floating_point_warnings_are_off(partition_of, text):
    part = partition_of(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            run(part, np.zeros(1, np.float32))
            run(part, np.float32([-1]))


def test_a_kernel_that_can_t_be_made_is_a_compile_error(host_provider, graph_of, whole):
    table = KernelTable({"": 21})

    @table.kernel("Neg")
    def make(node):
        raise ValueError("odd attribute")

    graph = graph_of("(float[4] x) => (float[4] y) { [n1] y = Neg(x) }")
    with pytest.raises(CompileError, match=r"node 'n1' .*ValueError: odd attribute"):
        host_provider(table).compile(whole(graph))


def test_compiling_what_wasn_t_claimed(host_provider, graph_of, whole):
    graph = graph_of("(float[4] x) => (float[4] y) { [n1] y = Sin(x) }")
    with pytest.raises(CompileError, match=r"'n1' .*not claimed: operator Sin has no kernel"):
        host_provider(TABLE).compile(whole(graph))


# ---------------------------------------------------------------- closing


@pytest.mark.parametrize("order", ["partition first", "provider first"])
def test_close_in_any_order_and_twice(host_provider, graph_of, whole, order):
    graph = graph_of("(float[4] x) => (float[4] z) { y = Neg(x) z = Add(y, x) }")
    provider = host_provider(TABLE)
    part = provider.compile(whole(graph))
    first, second = (part, provider) if order == "partition first" else (provider, part)
    for item in (first, second, first, second):
        item.close()
    with pytest.raises(RunError, match="partition is closed"):
        run(part, ONES)
    with pytest.raises(ProviderError, match="'test' is closed"):
        provider.compile(whole(graph))


def test_closed_partitions_are_forgotten(host_provider, graph_of, whole):
    graph = graph_of("(float[4] x) => (float[4] y) { y = Neg(x) }")
    provider = host_provider(TABLE)
    part = provider.compile(whole(graph))
    gone = weakref.ref(part)
    part.close()
    del part
    assert gone() is None


# ---------------------------------------------------------------- threads and cost


def test_eight_threads_in_one_partition(partition_of):
    part = partition_of(
        "(float[64] x) => (float[64] z) { a = Neg(x) b = Add(a, a) c = Mul(b, x) d = Neg(c)"
        " e = Add(d, x) z = Add(e, c) }"
    )
    wrong = []

    def work(seed):
        x = np.full(64, seed, np.float32)
        for _ in range(200):
            (z,) = run(part, x)
            if not (z == seed).all():
                wrong.append((seed, z))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(part._frames) <= 8


@pytest.mark.parametrize("op_type", ["Abs", "Identity"])
def test_sixty_nodes_cost_less_than_a_microsecond_each(host_provider, graph_of, whole, op_type):
    lines = " ".join(f"v{i + 1} = {op_type}(v{i})" for i in range(60))
    graph = graph_of(f"(float[4] v0) => (float[4] v60) {{ {lines} }}")
    table = KernelTable({"": 21})
    table.kernel(op_type, view=op_type == "Identity")(lambda node: lambda x: x)
    part = host_provider(table).compile(whole(graph))
    inputs = [ONES]
    best = 1.0
    for _ in range(30):
        start = time.process_time()
        for _ in range(20):
            part.run(inputs, [None], None)
        best = min(best, (time.process_time() - start) / 20)
    assert best / 60 < 1e-6


def test_captured_subgraph_boundaries(host_provider, graph_of):
    """A cut in the middle of a graph: one input from before, two outputs that go on."""
    graph = graph_of(
        "(float[4] x) => (float[4] e) { a = Abs(x) b = Neg(a) c = Add(b, a) d = Abs(b)"
        " e = Add(c, d) }"
    )
    cut = Subgraph.cut(graph, [1, 2])
    assert (cut.inputs, cut.outputs) == (("a",), ("b", "c"))
    part = host_provider(TABLE).compile(cut)
    b, c = run(part, ONES)
    np.testing.assert_array_equal(b, -ONES)
    np.testing.assert_array_equal(c, 0 * ONES)


def test_thousands_of_outputs_in_the_same_memory_are_quick(partition_of):
    """2,500 views of 5 values leave at once; all have to be memory of their own."""
    views = [f"y{i} = Identity(a{i % 5})" for i in range(2500)]
    bases = [f"a{i} = Neg(x)" for i in range(5)]
    outputs = ", ".join(f"float[4] y{i}" for i in range(2500))
    text = f"(float[4] x) => ({outputs}) {{ {' '.join(bases + views)} }}"
    start = time.process_time()
    part = partition_of(text)
    assert time.process_time() - start < 4
    found = twice(part, ONES)
    assert len({value.__array_interface__["data"][0] for value in found}) == 2500


def test_kernels_see_one_memory_layout_in_every_run(graph_of, whole, host_provider):
    """Matrix products round by layout: the first run must not see another one than later runs."""
    seen = []
    table = KernelTable({"": 21})

    @table.kernel("Transpose", view=True)
    def transpose(node):
        return lambda x: x.T

    @table.kernel("Neg", writes_out=True)
    def negate(node):
        return lambda x, out=None: np.negative(x, out=out)

    @table.kernel("Abs")
    def watch(node):
        return lambda x: (seen.append(x.flags.c_contiguous), np.abs(x))[1]

    text = "(float[2, 3] x) => (float[3, 2] y) { t = Transpose(x)  n = Neg(t)  y = Abs(n) }"
    part = host_provider(table).compile(whole(graph_of(text)))
    for _ in range(3):
        part.run([np.ones((2, 3), np.float32)], [None], None)
    assert seen == [True] * 3
