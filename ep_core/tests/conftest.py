"""Fixtures of the core's tests: a registry with providers of our own, and models from text."""

from __future__ import annotations

import pytest
from reference_provider import ReferenceFactory

from ep_core.discovery.registry import registry


@pytest.fixture
def provide(monkeypatch):
    """Register reference providers by hand for one test: `provide("fast", operators={"Add"})`."""
    names: list[str] = []

    def add(name: str = "cpu", operators=None, **settings) -> ReferenceFactory:
        factory = ReferenceFactory(name, operators, **settings)
        registry().register(factory, name=name)
        names.append(name)
        return factory

    yield add
    for name in names:
        registry().unregister(name)
