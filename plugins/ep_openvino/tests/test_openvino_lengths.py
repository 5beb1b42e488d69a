"""Kernels and states that don't fit, where only a run knows the lengths."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openvino_harness import graph_of, open_provider, whole

from ep_core.errors import RunError
from ep_openvino.lengths import needs_length_check

TEXT = """g (float[n,1,m] x, float[4,1,8] w) => (float[n,4,k] y) {
    a = Abs (x)
    y = Conv <strides = [4]> (a, w)
}"""


def test_a_length_that_does_not_fit_is_told_and_others_go_on() -> None:
    provider = open_provider()
    part = provider.compile(whole(graph_of(TEXT)))
    w = np.ones((4, 1, 8), np.float32)
    failures = []

    def work() -> None:
        for length in (8, 3, 7, 12, 3, 8):
            outputs: list[Any] = [None]
            x = np.full((2, 1, length), -1, np.float32)
            if length < 8:
                with pytest.raises(RunError, match=r"lengths don't fit.*size \(dim: 8\)"):
                    part.run([x, w], outputs)
                assert outputs == [None]
            else:
                part.run([x, w], outputs)
                assert outputs[0].tolist() == [[[8.0] * (length // 4 - 1)] * 4] * 2

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    part.close()
    provider.close()
    assert not failures


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_state_of_another_batch_is_told(op_type: str, gates: int) -> None:
    text = f"""g (
        float[s,b,3] x, float[1,{2 * gates},3] w, float[1,{2 * gates},2] r, float[1,c,2] h)
        => (float[s,1,b,2] y) {{ y = {op_type} <hidden_size = 2> (x, w, r, , , h) }}"""
    provider = open_provider()
    part = provider.compile(whole(graph_of(text)))
    inputs = [np.ones((1, 2 * gates, size), np.float32) for size in (3, 2)]
    x = np.ones((1, 4, 3), np.float32)
    with pytest.raises(RunError, match=r"lengths don't fit.*batch"):
        part.run([x, *inputs, np.zeros((1, 1, 2), np.float32)], [None])
    outputs: list[Any] = [None]
    part.run([x, *inputs, np.zeros((1, 4, 2), np.float32)], outputs)
    assert outputs[0].shape == (1, 1, 4, 2)
    part.close()
    provider.close()


def test_an_axis_that_is_not_of_length_1_is_told() -> None:
    text = "g (float[n,3,m] x) => (float[3] y) <int64[2] axes = {0, 2}> { y = Squeeze (x, axes) }"
    provider = open_provider()
    part = provider.compile(whole(graph_of(text)))
    for length in (64, 1, 2):
        outputs: list[Any] = [None]
        x = np.ones((1, 3, length), np.float32)
        if length == 1:
            part.run([x], outputs)
            assert outputs[0].tolist() == [1, 1, 1]
        else:
            with pytest.raises(RunError, match=r"'Squeeze' of 'y' isn't of length 1"):
                part.run([x], outputs)
    part.close()
    provider.close()


SHORT = """
import numpy as np
from onnx import parser
from openvino_harness import graph_of, open_provider, whole
weights = ", ".join(["0.5"] * 16 * 256)
graph = graph_of("g (float[n,1,m] x) => (float[n,16,k] y)"
    f" <float[16,1,256] w = {{{weights}}}> {{ y = Conv <strides = [128]> (x, w) }}")
part = open_provider().compile(whole(graph))
try:
    part.run([np.ones((1, 1, 64), np.float32)], [None])
except Exception as error:
    print(type(error).__name__)
"""


def test_a_constant_kernel_does_not_end_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHORT],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "RunError"), done.stderr


def test_known_lengths_need_no_look() -> None:
    assert needs_length_check(whole(graph_of(TEXT)))
    known = TEXT.replace("n,1,m", "2,1,9").replace("n,4,k", "2,4,1")
    assert not needs_length_check(whole(graph_of(known)))
    without = "g (float[n] x) => (float[n] y) { y = Abs (x) }"
    assert not needs_length_check(whole(graph_of(without)))
