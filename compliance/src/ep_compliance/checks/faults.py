"""Faults: what fails says so by an EpError, costs nothing else, and everything closes cleanly."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ep_compliance.checks import check
from ep_compliance.driving.bench import (
    Bench,
    Probe,
    agree,
    claimed_chain,
    claims_all,
    one_node,
    run_once,
    whole,
)
from ep_compliance.driving.drive import compiled
from ep_compliance.driving.findings import Broken, NotClaimed, text_of
from ep_compliance.driving.lanes import open_lane
from ep_core.contracts import ExecutionProvider, Value
from ep_core.errors import EpError
from ep_core.types import DataType

_INJECTED = ("fail_allocation_at", "fail_copy_at", "fail_kernel_at", "lose_device_at")
"""Options by which a provider offers to fail: the number of the call that does, 0 for none."""

_WRONG_SHAPES: list[tuple[str, list[list[str]], list[tuple[int, ...]]]] = [
    ("Add", [["N"], ["M"]], [(2,), (3,)]),
    ("Mul", [["N"], ["M"]], [(2,), (3,)]),
    ("MatMul", [["A", "B"], ["C", "D"]], [(2, 3), (2, 3)]),
]
"""Operator, declared shapes, and shapes that fit the declaration but not each other."""

_MOST_CALLS = 40
_PATIENCE_SECONDS = 30.0


def _must_raise(what: str, call: Callable[[], object]) -> None:
    try:
        call()
    except EpError:
        return
    except Exception as error:
        raise Broken(f"{what} raises {text_of(error)}, expected an EpError") from error
    raise Broken(f"{what} raises nothing, expected an EpError")


def _run(provider: ExecutionProvider, probe: Probe) -> list[Value]:
    with compiled(provider, probe.subgraph) as part:
        return run_once(provider, part, probe.inputs, len(probe.subgraph.outputs))


# ---------------------------------------------------------------- errors of a run


@check("faults/wrong-shapes")
def wrong_shapes(bench: Bench) -> None:
    """Shapes that only turn out wrong when running raise an EpError; the next run is right."""
    tried = 0
    with bench.open() as provider:
        for op_type, shapes, wrong in _WRONG_SHAPES:
            graph = one_node(op_type, 2, DataType.FLOAT, shapes)
            if claims_all(provider, graph):
                square = (3, 3)[: len(wrong[0])]
                _check_shapes(provider, Probe(whole(graph), _ones([square] * 2)), wrong)
                tried += 1
    if not tried:
        raise NotClaimed("claims no common operator with symbolic dimensions")


def _check_shapes(provider: ExecutionProvider, right: Probe, wrong: list[tuple[int, ...]]) -> None:
    op_type = right.subgraph.nodes[0].op_type
    with compiled(provider, right.subgraph) as part:
        before = run_once(provider, part, right.inputs, 1)
        what = f"{op_type} of shapes {wrong[0]} and {wrong[1]}"
        _must_raise(what, lambda: run_once(provider, part, _ones(wrong), 1))
        if not agree(provider, before, run_once(provider, part, right.inputs, 1)):
            raise Broken(f"after {what} failed, a good run gives other values")


def _ones(shapes: list[tuple[int, ...]]) -> tuple[Value, ...]:
    return tuple(np.ones(shape, np.float32) for shape in shapes)


@check("faults/injected")
def injected(bench: Bench) -> None:
    """Each call that can be told to fails in turn: an EpError, and no memory is left in use."""
    options = [name for name in _INJECTED if bench.declares(name)]
    if not options:
        raise NotClaimed(f"declares none of the options {', '.join(_INJECTED)}")
    for option in options:
        for number in range(1, _MOST_CALLS):
            if _fails_cleanly(bench, option, number):
                continue
            if number == 1:
                raise Broken(f"with {option}=1 nothing fails: the error is swallowed")
            break


def _fails_cleanly(bench: Bench, option: str, number: int) -> bool:
    """True if telling this call to fail made something fail."""
    with bench.open(None, **{option: number}) as provider:
        start = provider.allocator.stats().in_use_bytes if provider.allocator is not None else 0
        failed = False
        try:
            _run(provider, claimed_chain(provider, length=3))
        except Broken as finding:
            if not isinstance(finding.__cause__, EpError):
                raise Broken(f"with {option}={number}: {finding}") from finding
            failed = True
        except EpError:
            failed = True
        except Exception as error:
            text = f"with {option}={number} it raises {text_of(error)}, expected an EpError"
            raise Broken(text) from error
        end = provider.allocator.stats().in_use_bytes if provider.allocator is not None else 0
        if end > start:
            raise Broken(f"with {option}={number}: {end - start} bytes stay in use after the error")
        return failed


@check("faults/compile")
def compile_refused(bench: Bench) -> None:
    """A refused compilation raises an EpError, leaves nothing behind, and costs nothing else."""
    if not bench.declares("fail_compile"):
        raise NotClaimed("declares no option fail_compile")
    with bench.open() as provider:
        probe = claimed_chain(provider)
    with bench.open(fail_compile="always") as provider:
        _must_raise("compile, told to fail,", lambda: provider.compile(probe.subgraph))
        if provider.allocator is not None and provider.allocator.stats().in_use_bytes:
            raise Broken("a refused compilation leaves device memory in use")


# ---------------------------------------------------------------- closing


@check("faults/close-twice")
def close_twice(bench: Bench) -> None:
    """Partitions, streams and the provider close twice, and in any order."""
    for last in ("partition", "stream", "provider"):
        with bench.open() as provider:
            probe = claimed_chain(provider)
            part = provider.compile(probe.subgraph)
            closing = {"partition": part.close, "provider": provider.close}
            if provider.features.asynchronous:
                stream = provider.create_stream()
                assert stream is not None
                closing["stream"] = stream.close
            order = sorted(closing, key=lambda name: name == last)
            for name in (*order, *order[::-1]):
                try:
                    closing[name]()
                except Exception as error:
                    text = f"closing the {name} (order: {', '.join(order)}) raises {text_of(error)}"
                    raise Broken(text) from error


@check("faults/use-after-close")
def use_after_close(bench: Bench) -> None:
    """What is used after it was closed raises an EpError."""
    with bench.open() as provider:
        probe = claimed_chain(provider)
        count = len(probe.subgraph.outputs)
        part = provider.compile(probe.subgraph)
        run_once(provider, part, probe.inputs, count)
        part.close()
        _must_raise(
            "running a closed partition", lambda: run_once(provider, part, probe.inputs, count)
        )
        provider.close()
        _must_raise("compile on a closed provider", lambda: provider.compile(probe.subgraph))
        if provider.features.asynchronous:
            _must_raise("create_stream on a closed provider", provider.create_stream)


@check("faults/provider-first")
def provider_first(bench: Bench) -> None:
    """A provider closed before its partition takes it along: running it raises an EpError."""
    with bench.open() as provider:
        probe = claimed_chain(provider)
        part = provider.compile(probe.subgraph)
        provider.close()
        outputs: list[Value] = [None] * len(probe.subgraph.outputs)
        inputs = list(probe.inputs)
        _must_raise(
            "running a partition of a closed provider", lambda: part.run(inputs, outputs, None)
        )
        part.close()


@check("faults/close-while-busy")
def close_while_busy(bench: Bench) -> None:
    """Closing the provider while work is queued ends: it waits for the work or drops it."""
    slow: dict[str, Any] = {"kernel_latency_us": 1000}
    if not bench.declares(*slow):
        slow = {}
    with bench.open(**slow) as provider:
        if not provider.features.asynchronous:
            raise NotClaimed("works synchronously")
        probe = claimed_chain(provider, length=24, side=256)
        part = provider.compile(probe.subgraph)
        lane = open_lane(provider)
        inputs = lane.feed(probe.inputs)
        outputs: list[Value] = [None] * len(probe.subgraph.outputs)
        lane.submit(part, inputs, outputs)
        failures: list[Exception] = []

        def close() -> None:
            try:
                provider.close()
            except Exception as error:  # noqa: BLE001 - looked at below
                failures.append(error)

        thread = threading.Thread(target=close, daemon=True)
        thread.start()
        thread.join(_PATIENCE_SECONDS)
        if thread.is_alive():
            raise Broken("close hangs while work is queued")
        if failures and not isinstance(failures[0], EpError):
            raise Broken(f"close while work is queued raises {text_of(failures[0])}")
        with contextlib.suppress(EpError):
            part.close()
            lane.close()


@check("faults/reopen")
def reopen(bench: Bench) -> None:
    """After it was closed the device opens again and gives the same results."""
    with bench.open() as provider:
        probe = claimed_chain(provider)
        first = _run(provider, probe)
    with bench.open() as provider:
        if not agree(provider, first, _run(provider, probe)):
            raise Broken("the device opened again gives other results")
