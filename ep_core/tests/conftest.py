"""Fixtures of the core's tests: a registry with providers of our own, and models from text."""

from __future__ import annotations

import pytest
from reference_provider import ReferenceFactory
from storing_provider import Package, X, model_of

from ep_core import InferenceSession, SessionOptions
from ep_core.artifacts import binding
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


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The distribution that every provider of the test comes from."""
    package = Package(tmp_path / "site")
    monkeypatch.setattr(registry(), "distribution", lambda name: package.distribution)
    yield package
    binding._BUILDS.clear()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def run(package, folder):
    """`run(factory, model, options=...)`: a session and a run; outputs, placement and calls."""
    registered = []

    def make(factory, model=None, feeds=None, options=None, providers=None, **sets):
        registry().register(factory, name="cpu")
        registered.append(factory)
        factory.calls.clear()
        session_options = SessionOptions()
        for name, setting in {"cache_dir": folder, **sets}.items():
            setattr(session_options, name, setting)
        providers = providers or [("cpu", options or {})]
        with InferenceSession(model or model_of(), session_options, providers) as session:
            outputs = session.run(None, feeds or {"x": X})
            return outputs, session.get_placement(), list(factory.calls)

    yield make
    if registered:
        registry().unregister("cpu")
