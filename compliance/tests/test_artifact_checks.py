"""The checks of artifacts: correct providers pass them, and what only a session can show."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from zoo_artifacts import Storing
from zoo_base import CorrectProvider, factory_of

from ep_compliance.checks import all_checks
from ep_compliance.checks.artifacts import other_value
from ep_compliance.driving.bench import Bench, run_once
from ep_compliance.driving.weighted import Weighted, find_weighted
from ep_compliance.running.outcomes import Outcome
from ep_core.contracts import OptionSpec
from ep_core.discovery.registry import registry
from ep_core.graph import Initializer, Subgraph
from ep_core.types import DataType
from ep_sdk.options import as_bool, as_choice, as_int
from ep_sdk.simulator import ep_provider_factory as simulator_factory

CHECKS = [name for name in all_checks() if name.startswith("artifacts/")]
SESSIONS = [name for name in CHECKS if name.startswith("artifacts/session-")]
DEVICE_ONLY = ["artifacts/without-compiling", "artifacts/options"]
ANIMALS = ("storing", "process_handle", "nameless")


def bench_of(provider_class, **more):
    factory = factory_of(provider_class, **more)
    return Bench(factory, factory.devices()[0])


def installed(name, number=0):
    return Bench(registry().factory(name), registry().status(name).devices[number])


def judged(bench, check):
    return all_checks()[check].judge(bench)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A distribution with some of the zoo's animals."""
    folder = tmp_path_factory.mktemp("site")
    info = folder / "zoo_artifacts-1.0.dist-info"
    info.mkdir()
    points = "".join(f"{name} = zoo_artifacts:{name}\n" for name in ANIMALS)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo-artifacts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[ep_core.providers]\n{points}")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("EP_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("EP_PROBE_TIMEOUT", "0")
        registry().recheck()
        yield
    registry().recheck()


# ---------------------------------------------------------------- correct providers


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("number", [0, 1])
def test_the_simulator_passes_everything(number, check):
    assert judged(installed("simulator", number), check) == (Outcome.PASS, "")


@pytest.mark.parametrize("check", CHECKS)
def test_a_host_provider_passes_what_it_can(site, check):
    outcome, reason = judged(installed("storing"), check)
    assert outcome is (Outcome.UNSUPPORTED if check in DEVICE_ONLY else Outcome.PASS), reason


@pytest.mark.parametrize("check", CHECKS)
def test_who_declares_no_artifacts_is_left_in_peace(check):
    assert judged(bench_of(CorrectProvider), check) == (
        Outcome.UNSUPPORTED,
        "declares no artifacts",
    )


@pytest.mark.parametrize("check", SESSIONS)
@pytest.mark.parametrize(
    "bench",
    [
        bench_of(Storing),
        Bench(simulator_factory(), simulator_factory().devices()[0]),
    ],
    ids=["unknown", "another under the same name"],
)
def test_sessions_need_the_installed_provider(bench, check):
    outcome, reason = judged(bench, check)
    assert outcome is Outcome.UNSUPPORTED
    assert "isn't installed" in reason


# ---------------------------------------------------------------- what only a session shows


@pytest.mark.parametrize(
    ("name", "saying"),
    [
        ("process_handle", "a session in another process compiles instead"),
        ("nameless", "the second session compiles .*aren't kept: device '0' has no fingerprint"),
    ],
)
def test_what_is_not_taken_back(site, name, saying):
    outcome, reason = judged(installed(name), "artifacts/session-hits")
    assert outcome is Outcome.FAIL
    assert re.search(saying, reason), reason


# ---------------------------------------------------------------- a core that is broken itself


def forgets_weights(patch):
    patch.setattr("ep_core.artifacts.content._add_initializers", lambda digest, items: None)


def forgets_shapes(patch):
    patch.setattr("ep_core.artifacts.content._add_types", lambda digest, graph, names: None)
    forgets_weights(patch)


def forgets_options(patch):
    patch.setattr("ep_core.artifacts.binding.text_of", lambda name, value: "")


def raises_when_it_can_not_write(patch):
    def write(path, key, payload):
        raise ZeroDivisionError

    patch.setattr("ep_core.artifacts.folder._write", write)


@pytest.mark.parametrize(
    ("breaks", "check", "saying"),
    [
        (forgets_weights, "session-misses", "other weights takes the artifact of another"),
        (forgets_shapes, "session-misses", "takes the artifact of another"),
        (forgets_options, "session-misses", "a session with alignment=.* takes the artifact"),
        (raises_when_it_can_not_write, "session-folders", "ZeroDivisionError"),
    ],
)
def test_a_cache_that_mixes_things_up_is_caught(monkeypatch, breaks, check, saying):
    """Providers have no part in these checks; the zoo has no animal for them."""
    breaks(monkeypatch)
    outcome, reason = judged(installed("simulator"), f"artifacts/{check}")
    assert outcome is Outcome.FAIL
    assert re.search(saying, reason), reason


# ---------------------------------------------------------------- options


class Scaled(Storing):
    """What it compiles depends on an option, and it may not say so."""

    def compile(self, subgraph):
        scale = self.options["scale"]
        scaled = {
            name: Initializer.from_array(name, item.numpy() * item.dtype.numpy.type(scale))
            for name, item in subgraph.constants.items()
        }
        graph = subgraph.graph.replace(initializers=scaled)
        return super().compile(Subgraph.cut(graph, subgraph.indices, subgraph.name))

    def import_partition(self, subgraph, artifact):
        options, self._options = self._options, {"scale": 1}
        try:
            return super().import_partition(subgraph, artifact)
        finally:
            self._options = options


def test_an_option_that_says_wrongly_that_artifacts_do_not_depend_on_it():
    spec = OptionSpec(1, "what weights are multiplied by", as_int(1), artifacts=False)
    outcome, reason = judged(bench_of(Scaled, options={"scale": spec}), "artifacts/options")
    assert outcome is Outcome.FAIL
    assert reason.startswith("an artifact made without scale=2 gives other values with it")
    honest = {"scale": replace(spec, artifacts=True)}
    assert judged(bench_of(Scaled, options=honest), "artifacts/options")[0] is Outcome.UNSUPPORTED


def test_a_guessed_word_that_names_a_file_leaves_none_behind(monkeypatch, tmp_path):
    written = []

    class Logging(Storing):
        def __init__(self, info, device, options):
            super().__init__(info, device, options)
            if options["log"]:
                written.append(Path(options["log"]).absolute())
                written[-1].write_text("opened")

    monkeypatch.chdir(tmp_path)
    spec = OptionSpec("", "a file to write", artifacts=False)
    judged(bench_of(Logging, options={"log": spec}), "artifacts/options")
    assert written
    assert list(tmp_path.iterdir()) == []
    assert not any(path.exists() for path in written)


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (OptionSpec(1, "a number", as_int(1)), "2"),
        (OptionSpec(True, "a switch", as_bool), "0"),
        (OptionSpec("full", "how exact", as_choice("full", "half")), "half"),
        (OptionSpec("a", "one of a or b", lambda value: {"a": "a", "b": "b"}.get(value, "a")), "b"),
        (OptionSpec("only", "no choice", as_choice("only")), None),
    ],
)
def test_other_values_are_guessed(spec, value):
    assert other_value(spec) == value


# ---------------------------------------------------------------- the models


def test_weighted_models_differ_in_what_they_say_alone():
    with bench_of(CorrectProvider).open() as provider:
        first = find_weighted(provider)
        assert first == Weighted("Add", DataType.FLOAT)
        for operator in ("Add", "Sub", "Mul", "MatMul"):
            answers = {}
            for kind in (Weighted(operator, DataType.FLOAT, weights=n) for n in (1, 2, 3)):
                probe = kind.probe()
                part = provider.compile(probe.subgraph)
                (y,) = run_once(provider, part, probe.inputs, 1)
                part.close()
                x = probe.inputs[0]
                v, w = (c.numpy() for c in probe.subgraph.constants.values())
                function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
                call = function.get(operator, np.matmul)
                np.testing.assert_array_equal(y, call(call(x, v), w))
                answers[y.tobytes()] = kind
                assert probe.subgraph.inputs == ("x",)
                assert [node.name for node in probe.subgraph.nodes] == ["first", "second"]
            assert len(answers) == 3
