"""How many processors there are for this process."""

from __future__ import annotations

import os

from ep_core.cores import usable_cores


def test_there_is_a_core():
    assert usable_cores() >= 1


def test_a_system_without_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1
