"""How many processors there are for this process, and work on all of them."""

from __future__ import annotations

import os
import threading

import pytest

from ep_core import cores
from ep_core.cores import map_in_threads, usable_cores


def test_there_is_a_core():
    assert usable_cores() >= 1


def test_a_system_without_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1


@pytest.fixture(params=[1, 3])
def processors(request, monkeypatch):
    monkeypatch.setattr(cores, "usable_cores", lambda: request.param)


def test_results_are_in_the_order_of_jobs(processors):
    assert map_in_threads(lambda job: job * job, list(range(50))) == [n * n for n in range(50)]
    assert map_in_threads(str, []) == []


def test_an_error_of_a_job_is_the_callers(processors):
    with pytest.raises(ZeroDivisionError):
        map_in_threads(lambda job: 1 // job, [1, 0, 1])


def test_no_threads_can_be_started(processors, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert map_in_threads(str, [1, 2, 3]) == ["1", "2", "3"]
