"""Runs that nobody waits for: callbacks, awaitables, cancelling, closing."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import parser

from ep_core import InferenceSession, RunOptions
from ep_core.errors import (
    FeedError,
    OptionError,
    RunCancelledError,
    RunError,
    SessionClosedError,
)

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[3] x) => (float[3] n, float[3] e) { n = Neg(x) e = Exp(n) }
"""
X = np.float32([1, 2, 3])
PATIENCE = 10


@pytest.fixture
def session(provide):
    """A session, and `gate`: while it is cleared, runs wait inside the provider."""
    factory = provide()
    threads = threading.active_count()
    with InferenceSession(parser.parse_model(TEXT), providers=["cpu"]) as one:
        part = factory.made[-1].partitions[0]
        one.provider = factory.made[-1]
        one.gate, one.entered = threading.Event(), threading.Semaphore(0)
        one.gate.set()
        computed = part.run

        def run(inputs, outputs, stream):
            one.entered.release()
            assert one.gate.wait(PATIENCE)
            computed(inputs, outputs, stream)

        part.run = run
        yield one
        one.gate.set()
    assert threading.active_count() <= threads  # those of earlier tests may end meanwhile


class Answers:
    """A callback that keeps what it is called with."""

    def __init__(self):
        self.items = []
        self.there = threading.Semaphore(0)

    def __call__(self, *answer):
        self.items.append(answer)
        self.there.release()

    def wait(self, count=1):
        for _ in range(count):
            assert self.there.acquire(timeout=PATIENCE)
        return self.items


def test_the_callback_gets_results_and_its_data(session):
    answers = Answers()
    data = object()
    assert session.run_async(["e", "n"], {"x": X}, answers, data) is None
    ((results, given, message),) = answers.wait()
    np.testing.assert_allclose(results, [np.exp(-X), -X], rtol=1e-6)
    assert given is data
    assert message == ""


def test_none_means_all_outputs(session):
    answers = Answers()
    for names in (None, []):
        session.run_async(names, {"x": X}, answers, None)
    assert [len(results) for results, _, _ in answers.wait(2)] == [2, 2]


def test_it_returns_before_the_run_is_done(session):
    answers = Answers()
    session.gate.clear()
    session.run_async(None, {"x": X}, answers, None)
    assert session.entered.acquire(timeout=PATIENCE)
    assert not answers.items
    session.gate.set()
    assert answers.wait()[0][2] == ""


def test_a_failure_comes_as_text(session):
    answers = Answers()
    session.provider.fail_run = ValueError("broken")
    session.run_async(None, {"x": X}, answers, "data")
    session.run_async(None, {"x": X[:2]}, answers, "data")
    (failed, refused) = sorted(answers.wait(2), key=lambda item: "expected" in item[2])
    assert failed[:2] == ([], "data")
    assert "broken" in failed[2]
    assert refused[:2] == ([], "data")
    assert "expected 3 in shape [3]" in refused[2]


def test_a_process_without_threads_to_spare(session, monkeypatch):
    def refuse(self, work):
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    with pytest.raises(RunError, match="in the background can't start: cannot schedule"):
        session.run_async(None, {"x": X}, Answers(), None)
    with pytest.raises(RunError, match="can't start"):
        asyncio.run(session.run_awaitable(None, {"x": X}))


def test_whatever_a_provider_raises_is_told(session, caplog):
    answers = Answers()
    session.provider.fail_run = SystemExit("enough")

    def answer_and_leave(*answer):
        answers(*answer)
        raise SystemExit("too")

    with caplog.at_level(logging.ERROR, "ep_core"):
        session.run_async(None, {"x": X}, answer_and_leave, "data")
        assert answers.wait() == [([], "data", "enough")]
        session.close()
    assert "the callback of run_async raised" in caplog.text


def test_wrong_arguments_are_told_at_once(session):
    answers = Answers()
    with pytest.raises(OptionError, match="callback; expected a function"):
        session.run_async(None, {"x": X}, "later", None)
    with pytest.raises(FeedError, match="no output 'q'"):
        session.run_async(["q"], {"x": X}, answers, None)
    with pytest.raises(FeedError, match="input_feed; expected a dict"):
        session.run_async(None, [X], answers, None)
    with pytest.raises(OptionError, match="expected a RunOptions"):
        session.run_async(None, {"x": X}, answers, None, {"terminate": True})
    assert not answers.items


def test_a_callback_that_raises_is_logged(session, caplog):
    def callback(*answer):
        raise LookupError("in the callback")

    answers = Answers()
    with caplog.at_level(logging.ERROR, "ep_core"):
        session.run_async(None, {"x": X}, callback, None)
        session.run_async(None, {"x": X}, answers, None)
        answers.wait()
        session.close()
    assert "the callback of run_async raised" in caplog.text
    assert "in the callback" in caplog.text


def test_the_dict_of_feeds_may_change_afterwards(session):
    answers = Answers()
    session.gate.clear()
    feeds = {"x": X}
    for _ in range(8):
        session.run_async(None, feeds, answers, None)
    feeds.clear()
    session.gate.set()
    assert {message for _, _, message in answers.wait(8)} == {""}


def test_many_runs_share_a_few_threads(session):
    answers = Answers()
    threads = set()

    def callback(results, data, message):
        threads.add(threading.get_ident())
        answers(results, data, message)

    for number in range(60):
        session.run_async(["n"], {"x": X * number}, callback, number)
    for results, number, message in answers.wait(60):
        assert message == ""
        np.testing.assert_array_equal(results[0], -X * number)
    assert 1 <= len(threads) <= 4


def test_run_options_cancel(session):
    answers = Answers()
    options = RunOptions()
    options.terminate = True
    session.run_async(None, {"x": X}, answers, None, options)
    assert "cancelled" in answers.wait()[0][2]


# ---------------------------------------------------------------- closing


def test_close_waits_for_runs_under_way_and_fails_those_that_wait(session):
    answers = Answers()
    session.gate.clear()
    for number in range(10):
        session.run_async(None, {"x": X}, answers, number)
    for _ in range(4):
        assert session.entered.acquire(timeout=PATIENCE)
    closer = threading.Thread(target=session.close)
    closer.start()
    while not session._closed:
        pass
    session.gate.set()
    closer.join(PATIENCE)
    assert not closer.is_alive()
    items = answers.wait(10)
    assert sorted(number for _, number, _ in items) == list(range(10))
    done = [number for _, number, message in items if not message]
    assert len(done) == 4
    assert all("the session is closed" in message for _, _, message in items if message)
    with pytest.raises(SessionClosedError):
        session.run_async(None, {"x": X}, answers, None)


def test_a_callback_may_close_the_session(session):
    answers = Answers()

    def callback(*answer):
        session.close()
        answers(*answer)

    session.gate.clear()
    for _ in range(7):
        session.run_async(None, {"x": X}, callback, None)
    session.gate.set()
    assert len(answers.wait(7)) == 7


def test_a_callback_may_start_the_next_run(session):
    answers = Answers()

    def callback(results, count, message):
        if count:
            session.run_async(None, {"x": results[0]}, callback, count - 1)
        else:
            answers(results, count, message)

    session.run_async(None, {"x": X}, callback, 5)
    np.testing.assert_array_equal(answers.wait()[0][0][0], X)


# ---------------------------------------------------------------- awaiting


def test_awaiting(session):
    async def main():
        return await session.run_awaitable(["e"], {"x": X})

    np.testing.assert_allclose(asyncio.run(main())[0], np.exp(-X), rtol=1e-6)


def test_many_at_once(session):
    async def main():
        runs = [session.run_awaitable(None, {"x": X * number}) for number in range(20)]
        return await asyncio.gather(*runs)

    for number, (n, e) in enumerate(asyncio.run(main())):
        np.testing.assert_array_equal(n, -X * number)
        np.testing.assert_allclose(e, np.exp(-X * number), rtol=1e-6)


def test_errors_are_raised_where_it_is_awaited(session):
    async def main(**wrong):
        arguments = {"output_names": None, "input_feed": {"x": X}, **wrong}
        await session.run_awaitable(**arguments)

    session.provider.fail_run = ValueError("broken")
    with pytest.raises(RunError, match="broken"):
        asyncio.run(main())
    with pytest.raises(FeedError, match="no output 'q'"):
        asyncio.run(main(output_names=["q"]))
    with pytest.raises(FeedError, match="input 'x' is missing"):
        asyncio.run(main(input_feed={}))
    options = RunOptions()
    options.terminate = True
    with pytest.raises(RunCancelledError):
        asyncio.run(main(run_options=options))
    assert options.terminate
    session.close()
    with pytest.raises(SessionClosedError):
        asyncio.run(main())


def test_cancelling_the_task_ends_the_run(session):
    """The run stops at its next step, and the caller's options stay as they were."""
    options = RunOptions()
    seen = []
    contexts = session._contexts
    run_plan = contexts.run

    def watched(plan, inputs, terminable):
        try:
            return run_plan(plan, inputs, terminable)
        finally:
            seen.append(terminable.terminate)

    contexts.run = watched

    async def main():
        session.gate.clear()
        task = asyncio.create_task(session.run_awaitable(None, {"x": X}, options))
        while not session.entered.acquire(blocking=False):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        session.gate.set()

    asyncio.run(main())
    session.close()
    assert seen == [True]
    assert not options.terminate


def test_the_loop_goes_on_meanwhile(session):
    async def main():
        session.gate.clear()
        task = asyncio.create_task(session.run_awaitable(None, {"x": X}))
        ticks = 0
        while not session.entered.acquire(blocking=False):
            await asyncio.sleep(0.001)
        for _ in range(5):
            await asyncio.sleep(0)
            ticks += 1
        assert not task.done()
        session.gate.set()
        await task
        return ticks

    assert asyncio.run(main()) == 5
