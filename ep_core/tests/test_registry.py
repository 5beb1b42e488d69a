"""The registry with plugins added by hand: checks, names, options, devices, hooks, threads."""

from __future__ import annotations

import threading
import time

import pytest
from onnx import defs

from ep_core.contracts import (
    API_VERSION,
    OptionSpec,
    ProviderFeatures,
    ProviderInfo,
)
from ep_core.discovery.registry import (
    ProviderState,
    Registry,
    parse_options,
    registry,
    select_device,
)
from ep_core.errors import (
    AllocationError,
    EpError,
    OptionError,
    ProviderNotFoundError,
    ProviderUnavailableError,
)
from ep_core.hookspecs import hookimpl
from ep_core.types import HOST_MEMORY, DeviceInfo, MemoryInfo, MemoryKind


def info_of(name="toy", **changes):
    fields = {"name": name, "version": "1.0", "api_version": API_VERSION, "auto": True}
    return ProviderInfo(**{**fields, **changes})


class ToyProvider:
    def __init__(self, info, device, options):
        self.info = info
        self.device = device
        self.options = options
        self.features = ProviderFeatures()
        self.memory = HOST_MEMORY
        self.allocator = None
        self.data_transfer = None


class ToyFactory:
    def __init__(self, info, ids=("0",)):
        self.info = info
        self._ids = ids

    def devices(self):
        return [DeviceInfo(self.info.name, id=text, kind="cpu") for text in self._ids]

    def why_unavailable(self):
        return None if self._ids else "no toy is plugged in"

    def create(self, device, options):
        return ToyProvider(self.info, device, options)


class Plugin:
    def __init__(self, factory):
        self._factory = factory

    @hookimpl
    def ep_provider_factory(self):
        return self._factory


@pytest.fixture
def local(monkeypatch):
    """A registry that knows no installed plugin."""
    monkeypatch.setenv("EP_PLUGIN_AUTOLOAD", "0")
    return Registry()


def add(registry, name="toy", ids=("0",), **changes):
    factory = ToyFactory(info_of(name, **changes), ids)
    registry.register(Plugin(factory), name=name)
    return factory


# ---------------------------------------------------------------- good and unavailable


def test_a_good_plugin_is_available_and_gives_its_factory(local):
    factory = add(local, version="2.5")
    (status,) = local.providers()
    assert status.state is ProviderState.AVAILABLE
    assert (status.name, status.reason, status.problems) == ("toy", "", ())
    assert status.devices == (DeviceInfo("toy", "0", "cpu"),)
    assert status.info is factory.info
    assert local.factory("toy") is factory
    assert local.distribution("toy") is None


def test_without_a_device_it_is_unavailable_with_its_own_reason(local):
    add(local, ids=())
    assert local.status("toy").state is ProviderState.UNAVAILABLE
    assert local.status("toy").reason == "no toy is plugged in"
    assert local.available() == ()
    with pytest.raises(ProviderUnavailableError, match="no toy is plugged in"):
        local.factory("toy")
    with pytest.raises(ProviderUnavailableError, match="no toy is plugged in"):
        local.create("toy")


def test_the_process_has_one_default_registry():
    assert registry() is registry()


# ---------------------------------------------------------------- broken


def broken_factory(**replaced):
    factory = ToyFactory(info_of())
    for name, value in replaced.items():
        setattr(factory, name, value)
    return factory


def raising(error):
    def call(*args):
        raise error

    return call


MAJOR, MINOR = API_VERSION
BROKEN = {
    "no hook": (object(), "no hook ep_provider_factory"),
    "hook gives None": (Plugin(None), "got None|expected a ProviderFactory"),
    "hook gives garbage": (Plugin(42), "reading `info` of the factory raised AttributeError"),
    "info is garbage": (Plugin(broken_factory(info={"name": "toy"})), "expected a ProviderInfo"),
    "other name": (Plugin(ToyFactory(info_of("toi"))), "expected 'toy'; got 'toi'"),
    "older major": (
        Plugin(ToyFactory(info_of(api_version=(MAJOR - 1, 9)))),
        "Update the plugin's package",
    ),
    "newer major": (Plugin(ToyFactory(info_of(api_version=(MAJOR + 1, 0)))), "Update ep-core"),
    "newer minor": (
        Plugin(ToyFactory(info_of(api_version=(MAJOR, MINOR + 1)))),
        "Update ep-core",
    ),
    "version is text": (Plugin(ToyFactory(info_of(api_version="1.0"))), "expected two integers"),
    "aliases are text": (Plugin(ToyFactory(info_of(aliases="Toy"))), "a tuple of str; got 'Toy'"),
    "options are bare": (Plugin(ToyFactory(info_of(options={"n": 1}))), "OptionSpec by name"),
    "priority is text": (Plugin(ToyFactory(info_of(priority="high"))), "got 'high'"),
    "no create": (Plugin(broken_factory(create=None)), "no method create"),
    "devices raises": (
        Plugin(broken_factory(devices=raising(OSError("driver is gone")))),
        "devices\\(\\) raised OSError: driver is gone",
    ),
    "devices exits": (
        Plugin(broken_factory(devices=raising(SystemExit(3)))),
        "devices\\(\\) raised SystemExit: 3",
    ),
    "devices is None": (Plugin(broken_factory(devices=lambda: None)), "got NoneType"),
    "a device is text": (Plugin(broken_factory(devices=lambda: ["gpu0"])), "got a str"),
    "a foreign device": (
        Plugin(broken_factory(devices=lambda: [DeviceInfo("other", "0", "cpu")])),
        "got provider 'other'",
    ),
    "equal ids": (Plugin(ToyFactory(info_of(), ("0", "0"))), "got '0' twice"),
    "no reason given": (
        Plugin(broken_factory(devices=list, why_unavailable=lambda: "")),
        "expected a sentence",
    ),
    "why_unavailable raises": (
        Plugin(broken_factory(devices=list, why_unavailable=raising(KeyError("x")))),
        "why_unavailable\\(\\) raised KeyError",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plugin_is_listed_with_its_reason_and_disturbs_nobody(local, case):
    plugin, reason = BROKEN[case]
    status = local.register(plugin, name="toy")
    add(local, "good")
    assert status.state is ProviderState.BROKEN
    assert status.devices == ()
    with pytest.raises(ProviderUnavailableError, match=reason) as caught:
        local.factory("toy")
    assert status.reason in str(caught.value)
    assert [s.name for s in local.providers()] == ["good", "toy"]
    assert local.automatic() == ("good",)
    assert local.create("good").info.name == "good"


def test_an_older_minor_version_is_served(local, monkeypatch):
    monkeypatch.setattr("ep_core.discovery.plugins.API_VERSION", (MAJOR, 7))
    add(local, api_version=(MAJOR, 3))
    assert local.status("toy").state is ProviderState.AVAILABLE


def test_nothing_is_called_before_the_versions_were_compared(local):
    called = []
    factory = ToyFactory(info_of(api_version=(MAJOR + 1, 0)))
    factory.devices = lambda: called.append("devices")
    factory.why_unavailable = lambda: called.append("why_unavailable")
    local.register(Plugin(factory), name="toy")
    assert called == []


def test_the_cause_of_a_failure_is_kept_for_the_author(local):
    error = OSError("driver is gone")
    local.register(Plugin(broken_factory(devices=raising(error))), name="toy")
    with pytest.raises(ProviderUnavailableError) as caught:
        local.factory("toy")
    assert caught.value.__cause__ is error


def test_an_exception_with_a_raising_str_is_still_described(local):
    class NastyError(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    status = local.register(Plugin(broken_factory(devices=raising(NastyError()))), name="toy")
    assert "NastyError" in status.reason


def test_keyboard_interrupt_passes_and_the_next_use_tries_again(local):
    factory = ToyFactory(info_of())
    factory.devices = raising(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        local.register(Plugin(factory), name="toy")
    del factory.devices
    assert local.factory("toy") is factory


def test_a_plugin_that_asks_for_itself_while_it_is_loaded_fails_alone(local):
    factory = ToyFactory(info_of())
    factory.devices = lambda: local.factory("toy").devices()
    status = local.register(Plugin(factory), name="toy")
    assert status.state is ProviderState.BROKEN
    assert "is being loaded" in status.reason


# ---------------------------------------------------------------- names


def test_names_are_taken_in_both_spellings(local):
    toy = add(local, "toy")
    wild = add(local, "wild", aliases=("TheWildOne", "wild-2"))
    assert local.factory("ToyExecutionProvider") is toy
    assert local.factory("WildExecutionProvider") is wild
    assert local.factory("TheWildOne") is wild
    assert local.status("wild-2").name == "wild"


def test_a_name_by_convention_loads_nothing_else(local):
    add(local, "toy")
    loads = []
    other = ToyFactory(info_of("other"))
    other.devices = lambda: loads.append(1) or []
    local.register(Plugin(other), name="other")
    local.recheck()
    loads.clear()
    local.factory("ToyExecutionProvider")
    assert loads == []


def test_an_unknown_name_offers_the_nearest(local):
    add(local, "openvino")
    with pytest.raises(ProviderNotFoundError, match="Did you mean 'openvino'"):
        local.factory("openvno")
    with pytest.raises(ProviderNotFoundError, match="'CUDAExecutionProvider'"):
        local.create("CUDAExecutionProvider")
    for strange in ("", 7, None):
        with pytest.raises(ProviderNotFoundError):
            local.factory(strange)


def test_an_alias_of_two_providers_is_ambiguous(local):
    add(local, "one", aliases=("Fast",))
    add(local, "two", aliases=("Fast",))
    with pytest.raises(ProviderNotFoundError, match="ambiguous: 'one' and 'two'"):
        local.factory("Fast")


def test_by_priority_and_automatic(local):
    add(local, "last", priority=0)
    add(local, "b", priority=50)
    add(local, "a", priority=50)
    add(local, "manual", priority=99, auto=False)
    add(local, "absent", ids=())
    assert local.available() == ("manual", "a", "b", "last")
    assert local.automatic() == ("a", "b", "last")


def test_registering_again_replaces_and_unregister_removes(local):
    add(local)
    second = add(local)
    assert local.factory("toy") is second
    local.unregister("toy")
    assert local.providers() == ()
    with pytest.raises(ProviderNotFoundError):
        local.unregister("toy")


def test_recheck_looks_again(local):
    factory = add(local, ids=())
    assert local.available() == ()
    factory._ids = ("0",)
    assert local.available() == ()
    local.recheck()
    assert local.available() == ("toy",)


# ---------------------------------------------------------------- options and devices


OPTIONS = {
    "threads": OptionSpec(4, "number of threads", int),
    "precision": OptionSpec("float32", "float32 or float16"),
}


def test_options_are_parsed_and_defaults_filled_in(local):
    add(local, options=OPTIONS)
    assert local.create("toy", {"threads": "2"}).options == {"threads": 2, "precision": "float32"}
    assert parse_options(info_of(options=OPTIONS), None) == {"threads": 4, "precision": "float32"}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"thread": 2}, "provider 'toy' has no option 'thread'. Did you mean 'threads'?"),
        ({"threads": "many"}, "option 'threads' of provider 'toy' can't be 'many': invalid"),
        ({"threads": "many"}, "It is: number of threads"),
        ({"threads": None}, "can't be None"),
        ({3: 4}, "no option 3"),
        ([("threads", 1)], "expected a dict; got list"),
    ],
)
def test_wrong_options_are_named(given, text):
    with pytest.raises(OptionError) as caught:
        parse_options(info_of(options=OPTIONS), given)
    assert text in str(caught.value)


def test_the_device_is_chosen_by_id(local):
    add(local, ids=("0", "1"), options=OPTIONS)
    assert local.create("toy").device.id == "0"
    assert local.create("toy", {"device_id": 1}).device.id == "1"
    assert local.create("toy", {"device": "1", "threads": 1}).options["threads"] == 1
    with pytest.raises(OptionError, match=r"one of '0' \(cpu\), '1' \(cpu\); got '2'"):
        local.create("toy", {"device_id": 2})
    with pytest.raises(OptionError, match="got '0' and '1'"):
        local.create("toy", {"device_id": 0, "device": 1})


def test_a_provider_that_declares_device_gets_it_itself():
    devices = [DeviceInfo("toy", "0", "cpu")]
    info = info_of(options={"device": OptionSpec("any", "which")})
    assert select_device(info, devices, {"device": "x"}) == (devices[0], {"device": "x"})


def test_create_wraps_what_is_no_ep_error(local):
    factory = add(local)
    factory.create = raising(OSError("bus error"))
    with pytest.raises(ProviderUnavailableError, match="device '0' of provider 'toy' raised OSErr"):
        local.create("toy")
    error = AllocationError("device memory is full")
    factory.create = raising(error)
    with pytest.raises(AllocationError) as caught:
        local.create("toy")
    assert caught.value is error


def test_what_create_returns_is_held_to_the_contract(local):
    factory = add(local)
    factory.create = lambda device, options: None
    with pytest.raises(EpError, match="checking provider 'toy' raised AttributeError"):
        local.create("toy")

    def no_allocator(device, options):
        provider = ToyProvider(factory.info, device, options)
        provider.memory = MemoryInfo("toy:0", MemoryKind.DEVICE)
        return provider

    factory.create = no_allocator
    with pytest.raises(EpError, match="an allocator and a data transfer"):
        local.create("toy")


# ---------------------------------------------------------------- other hooks


def schema(name, since=1, domain="test.registry"):
    kind = defs.OpSchema.FormalParameter
    return defs.OpSchema(
        name,
        domain,
        since,
        inputs=[kind("X", "T")],
        outputs=[kind("Y", "T")],
        type_constraints=[("T", ["tensor(float)"], "")],
    )


class SchemaPlugin(Plugin):
    def __init__(self, factory, schemas):
        super().__init__(factory)
        self._schemas = schemas

    @hookimpl
    def ep_op_schemas(self):
        return self._schemas


@pytest.fixture
def forget_schemas():
    yield
    for name in ("Once", "Twice", "Good"):
        if defs.has(name, "test.registry"):
            defs.deregister_schema(name, 1, "test.registry")


@pytest.mark.usefixtures("forget_schemas")
def test_schemas_are_registered_once(local):
    plugin = SchemaPlugin(ToyFactory(info_of()), [schema("Once")])
    assert local.register(plugin, name="toy").problems == ()
    assert defs.has("Once", "test.registry")
    local.recheck()
    assert local.status("toy").problems == ()


@pytest.mark.usefixtures("forget_schemas")
def test_a_wrong_schema_is_a_problem_and_no_failure(local):
    first = SchemaPlugin(ToyFactory(info_of()), [schema("Twice")])
    local.register(first, name="toy")
    schemas = [schema("Twice"), "Relu", schema("Good")]
    rival = SchemaPlugin(ToyFactory(info_of("rival")), schemas)
    status = local.register(rival, name="rival")
    assert status.state is ProviderState.AVAILABLE
    assert "already registered" in status.problems[0]
    assert "got str" in status.problems[1]
    assert len(status.problems) == 2
    assert defs.has("Good", "test.registry")


class NoPass:
    name = "no-pass"

    def __call__(self, graph):
        return graph


class PassPlugin(Plugin):
    def __init__(self, factory, passes):
        super().__init__(factory)
        self._passes = passes

    @hookimpl
    def ep_graph_passes(self):
        if isinstance(self._passes, Exception):
            raise self._passes
        return self._passes


def test_graph_passes_are_collected_per_provider(local):
    mine = NoPass()
    local.register(PassPlugin(ToyFactory(info_of()), [mine]), name="toy")
    add(local, "other")
    assert local.graph_passes("toy") == (mine,)
    assert local.graph_passes("other") == ()


@pytest.mark.parametrize(
    ("passes", "problem"),
    [
        (ValueError("oops"), "ep_graph_passes() raised ValueError: oops"),
        ([NoPass(), "fuse"], "expected a GraphPass; got str"),
        (NoPass(), "expected a list or tuple; got NoPass"),
    ],
)
def test_wrong_passes_are_a_problem_and_no_failure(local, passes, problem):
    status = local.register(PassPlugin(ToyFactory(info_of()), passes), name="toy")
    assert status.state is ProviderState.AVAILABLE
    assert problem in status.problems[0]
    assert local.graph_passes("toy") == ()


# ---------------------------------------------------------------- threads


def test_many_threads_load_a_provider_once(local):
    loads = []

    class SlowFactory(ToyFactory):
        def devices(self):
            loads.append(threading.get_ident())
            time.sleep(0.02)
            return super().devices()

    local.register(Plugin(SlowFactory(info_of())), name="toy")
    local.recheck()
    loads.clear()
    found = []

    def use():
        found.append((local.factory("toy").info.name, local.available()))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert found == [("toy", ("toy",))] * 8
