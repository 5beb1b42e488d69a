"""The cache of compiled artifacts in sessions: what hits, what misses, and who takes part."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from reference_provider import ReferencePartition
from storing_provider import BRANCHES, TEXT, WEIGHT, StoringFactory, X, expected, model_of

from ep_core import SessionOptions
from ep_core.artifacts import binding
from ep_core.contracts import OptionSpec, ProviderFeatures
from ep_core.discovery.registry import registry
from ep_core.errors import CompileError, OptionError


def warning_of(caplog):
    """The only warning that was logged."""
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    return record.getMessage()


# ---------------------------------------------------------------- hits and misses


def test_the_second_session_imports(run, folder):
    factory = StoringFactory()
    (first,), placement, calls = run(factory)
    assert calls == ["compile", "export"]
    assert [part.from_cache for part in placement.partitions] == [False]
    assert "cache" not in str(placement)
    (second,), placement, calls = run(factory)
    assert calls == ["import"]
    assert [part["from_cache"] for part in placement.to_dict()["partitions"]] == [True]
    assert "3 nodes, from the cache" in str(placement)
    np.testing.assert_array_equal(first, expected())
    np.testing.assert_array_equal(second, first)
    assert len(list(folder.iterdir())) == 1


def test_nothing_is_kept_without_a_folder(run, folder):
    factory = StoringFactory()
    for nowhere in (None, ""):
        assert run(factory, cache_dir=nowhere)[2] == ["compile"]
    assert not folder.exists()


MODELS = {
    "weights": model_of(weight=np.float32([1, 2, 3, 5])),
    "an attribute": model_of(TEXT.replace("0.5", "0.25")),
    "an operator": model_of(TEXT.replace("Add", "Sub")),
    "a shape": model_of(TEXT.replace("float[4]", "float[N]")),
    "a type": model_of(TEXT.replace("float[4]", "double[4]"), np.float64([1, 2, 3, 4])),
    "the name of an input": model_of(TEXT.replace("x)", "z)").replace("(x", "(z")),
    "the operator set": model_of(TEXT.replace('"" : 17', '"" : 15')),
}


@pytest.mark.parametrize("what", MODELS)
def test_another_model_misses(run, what):
    factory = StoringFactory()
    run(factory)
    model = MODELS[what]
    kind = onnx.helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    feeds = {info.name: X.astype(kind) for info in model.graph.input}
    found, _, calls = run(factory, model, feeds)
    assert calls == ["compile", "export"]
    np.testing.assert_array_equal(found[0], ReferenceEvaluator(model).run(None, feeds)[0])
    # What was there before still hits.
    assert run(factory)[2] == ["import"]


CHANGES = {
    "the driver": lambda factory, package: setattr(factory, "fingerprint", "chip-1/driver-8"),
    "the device": lambda factory, package: setattr(factory, "device_id", "1"),
    "the provider's version": lambda factory, package: setattr(
        factory, "info", replace(factory.info, version="1.1")
    ),
    "the package's version": lambda factory, package: setattr(package, "version", "1.1"),
    "the package's files": lambda factory, package: setattr(package, "code", "answer = 43"),
    "what it requires": lambda factory, package: setattr(
        package, "requires", "Requires-Dist: numpy\n"
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_another_build_or_device_misses(run, package, what):
    factory = StoringFactory()
    run(factory)
    assert run(factory)[2] == ["import"]
    CHANGES[what](factory, package)
    assert run(factory)[2] == ["compile", "export"]


def test_options_miss_unless_artifacts_do_not_depend_on_them(run):
    factory = StoringFactory()
    run(factory, options={"tags": frozenset("abc")})
    assert run(factory, options={"tags": frozenset("cba"), "log": "x"})[2] == ["import"]
    assert run(factory, options={"tags": frozenset("ab")})[2] == ["compile", "export"]
    changed = {"tags": frozenset("abc"), "precision": "half"}
    assert run(factory, options=changed)[2] == ["compile", "export"]


def test_names_of_graphs_and_partitions_do_not_matter(run):
    factory = StoringFactory()
    run(factory)
    assert run(factory, model_of(TEXT.replace(" g (", " another (")))[2] == ["import"]


def test_partitions_inside_bodies(run):
    factory = StoringFactory()
    rounds = [(True, ["compile", "export"]), (True, ["import"]), (False, ["import"])]
    for condition, once in rounds:
        feeds = {"x": X, "c": np.array(condition)}
        (found,), placement, calls = run(factory, model_of(BRANCHES), feeds)
        assert calls == once * 3
        assert {part.from_cache for part in placement.partitions} == {once == ["import"]}
        np.testing.assert_array_equal(found, (X + WEIGHT) * WEIGHT if condition else -(X + WEIGHT))


def test_a_provider_that_takes_turns_gets_its_own_partition_back(run):
    factory = StoringFactory()
    factory.features = ProviderFeatures(artifacts=True, concurrent_runs=False)
    assert run(factory)[2] == ["compile", "export"]  # `export_partition` checks whose it is
    (found,), _, calls = run(factory)
    assert calls == ["import"]
    np.testing.assert_array_equal(found, expected())


# ---------------------------------------------------------------- who takes part


def test_a_provider_that_declares_no_artifacts_is_never_asked(run, folder):
    factory = StoringFactory()
    factory.features = ProviderFeatures()
    assert run(factory)[2] == run(factory)[2] == ["compile"]
    assert not folder.exists()


def by_hand(factory, package):
    package.is_installed = False


def no_fingerprint(factory, package):
    factory.fingerprint = ""


def no_fixed_text(factory, package):
    factory.options(tags=OptionSpec(object(), "something"))


def damaged_package(factory, package):
    # It is there and can't be read; newer Pythons leave files that are missing off the list.
    (package.folder / "native.so").mkdir(parents=True)
    package.files += "native.so,,\n"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (by_hand, "a provider registered by hand has no build"),
        (no_fingerprint, "device '0' has no fingerprint"),
        (no_fixed_text, "option 'tags' has a value of type object"),
        (damaged_package, "can't read native.so"),
    ],
)
def test_what_can_not_be_bound_is_compiled(run, folder, package, caplog, make, reason):
    caplog.set_level(logging.INFO, "ep_core")
    factory = StoringFactory()
    make(factory, package)
    (found,), _, calls = run(factory)
    assert calls == ["compile"]
    np.testing.assert_array_equal(found, expected())
    assert f"artifacts of 'cpu' aren't kept: {reason}" in caplog.text
    assert not folder.exists()


# ---------------------------------------------------------------- providers that fail


def raising(error):
    def function(*args):
        raise error

    return function


class Misfit(ReferencePartition):
    @property
    def accepts_outputs(self):
        return [False] * 7


def misfit(provider, subgraph, artifact):
    provider.partitions.append(Misfit(provider, subgraph))
    return provider.partitions[-1]


IMPORTS = {
    "CompileError": raising(CompileError("not mine")),
    "something else": raising(KeyError("x")),
    "out of memory": raising(MemoryError()),
    "no partition": lambda *args: None,
    "accepts_outputs": misfit,
}


@pytest.mark.parametrize("what", IMPORTS)
def test_an_import_that_fails_costs_a_compilation(run, folder, caplog, what):
    factory = StoringFactory()
    run(factory)
    (path,) = sorted(folder.iterdir())
    before = path.stat()
    factory.importing = IMPORTS[what]
    (found,), placement, calls = run(factory)
    assert calls == ["import", "compile", "export"]
    assert not placement.partitions[0].from_cache
    assert placement.refused_claims == ()
    np.testing.assert_array_equal(found, expected())
    assert "'cpu' can't import an artifact and compiles" in warning_of(caplog)
    assert path.stat().st_ino != before.st_ino
    assert all(part.closed for part in factory.made[-1].partitions)


EXPORTS = {
    "CompileError": (raising(CompileError("too large")), "CompileError: too large"),
    "something else": (raising(ZeroDivisionError("x")), "ZeroDivisionError: x"),
    "no bytes": (lambda part: bytearray(b"x"), "expected bytes; got bytearray"),
    "nothing": (lambda part: None, "expected bytes; got NoneType"),
}


@pytest.mark.parametrize("what", EXPORTS)
def test_an_export_that_fails_costs_the_artifact(run, folder, caplog, what):
    caplog.set_level(logging.INFO, "ep_core")
    factory = StoringFactory()
    factory.exporting, message = EXPORTS[what]
    (found,), placement, calls = run(factory)
    assert calls == ["compile", "export"]
    assert placement.partitions[0].provider == "cpu"
    np.testing.assert_array_equal(found, expected())
    assert message in caplog.text
    warned = [record.levelno for record in caplog.records] == [logging.WARNING]
    assert warned == (what != "CompileError")
    assert not folder.exists()


def test_refused_claims_are_searched_without_the_cache(run, folder):
    """Parts that are compiled only to find the culprit are nobody's artifacts."""
    picky = StoringFactory("picky", fail_compile={"LeakyRelu"})
    factory = StoringFactory()
    registry().register(picky, name="picky")
    try:
        for at_first in (True, False):
            picky.calls.clear()
            (found,), placement, calls = run(factory, providers=["picky", "cpu"])
            np.testing.assert_array_equal(found, expected())
            assert [part.provider for part in placement.partitions] == ["picky", "cpu", "picky"]
            assert {part.from_cache for part in placement.partitions} == {not at_first}
            assert calls == (["compile", "export"] if at_first else ["import"])
            assert picky.calls.count("export") == (2 if at_first else 0)
            assert "compile" in picky.calls
            assert "LeakyRelu" in placement.refused_claims[0]
            assert len(list(folder.iterdir())) == 3
    finally:
        registry().unregister("picky")


# ---------------------------------------------------------------- options


def test_settings_of_the_session(tmp_path):
    settings = SessionOptions()
    assert (settings.cache_dir, settings.cache_max_bytes) == (None, 2**30)
    settings.cache_dir = tmp_path
    settings.cache_max_bytes = 5
    assert (settings.cache_dir, settings.cache_max_bytes) == (str(tmp_path), 5)
    for name, wrong in [("cache_dir", 5), ("cache_max_bytes", -1), ("cache_max_bytes", "5")]:
        with pytest.raises(OptionError, match=name):
            setattr(settings, name, wrong)


def test_a_path_of_bytes():
    class Path:
        def __fspath__(self):
            return b"somewhere"

    settings = SessionOptions()
    settings.cache_dir = Path()
    assert settings.cache_dir == "somewhere"


def test_texts_of_option_values_are_the_same_in_every_process():
    text = binding.text_of
    letters = "abcdefghijkl"
    assert text("o", frozenset(letters)) == text("o", list(letters))
    assert text("o", {"b": 1, "a": [Path("x")]}) == text("o", {"a": (Path("x"),), "b": 1})
