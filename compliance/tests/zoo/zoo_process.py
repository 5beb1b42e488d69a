"""Providers that are installed, most because only a worker process can hold them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

import numpy as np
from zoo_base import CorrectProvider, Plugin, table_with

from ep_core.contracts import Numerics, ProviderFeatures


def _crash(a, b):
    if a.shape != b.shape:
        os.kill(os.getpid(), signal.SIGSEGV)
    return np.multiply(a, b)


def _hang(a, b):
    while a.shape != b.shape:
        time.sleep(1)
    return np.multiply(a, b)


def _exit(a, b):
    if a.shape != b.shape:
        sys.stderr.write("zoo: out of cheese\n")
        sys.stderr.flush()
        os._exit(7)
    return np.multiply(a, b)


def _chatter(x):
    sys.stdout.write("a provider may print what it likes\n")
    os.write(1, b'{"outcome": "pass"}\n')
    return np.maximum(x, x.dtype.type(0))


def _fork(a, b):
    # The child goes on as if it were the worker, and answers too.
    if a.shape != b.shape:
        os.fork()
    return np.multiply(a, b)


def _scribble(a, b):
    if a.shape != b.shape:
        for descriptor in range(3, 64):
            with contextlib.suppress(OSError):
                os.write(descriptor, b"\x00 not an answer\n")
    return np.multiply(a, b)


class Forks(CorrectProvider):
    table = table_with(Mul=_fork)


class Scribbles(CorrectProvider):
    table = table_with(Mul=_scribble)


class Crashes(CorrectProvider):
    table = table_with(Mul=_crash)


class Hangs(CorrectProvider):
    table = table_with(Mul=_hang)


class Exits(CorrectProvider):
    table = table_with(Mul=_exit)


class Chatters(CorrectProvider):
    table = table_with(Relu=_chatter)


class Careless(CorrectProvider):
    """Two units off in its square roots, and with a say on everything else."""

    table = table_with(Sqrt=lambda x: np.sqrt(x) * (1 + 2 * np.finfo(x.dtype).eps))
    features = ProviderFeatures(numerics=Numerics(flushes_denormals=True))

    def estimate(self, kernel_node, row):
        return 0.001 if kernel_node.node.op_type == "Add" else None


class CantOpen(CorrectProvider):
    def __init__(self, *args):
        os._exit(9)


crashes = Plugin(Crashes, "crashes")
hangs = Plugin(Hangs, "hangs")
exits = Plugin(Exits, "exits")
forks = Plugin(Forks, "forks")
scribbles = Plugin(Scribbles, "scribbles")
chatters = Plugin(Chatters, "chatters")
cant_open = Plugin(CantOpen, "cant_open")
careless = Plugin(Careless, "careless")
correct = Plugin(CorrectProvider, "correct")
