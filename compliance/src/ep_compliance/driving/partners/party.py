"""Opens sessions in which the provider under test and the partners take part.

The certificate policy is off: what the provider may do is about to be decided here.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx

from ep_compliance.driving.bench import Bench
from ep_compliance.driving.findings import Broken, text_of
from ep_compliance.driving.partners.guest import Guest
from ep_compliance.driving.partners.host import HostPartner, OnRun
from ep_compliance.driving.partners.mixed import Mixed
from ep_compliance.driving.partners.sketches import DEVICE, HOST, TESTED, sketch, verb_of
from ep_core.certificates.grants import CertificatePolicy
from ep_core.contracts import (
    API_VERSION,
    ExecutionProvider,
    GraphPass,
    OptionSpec,
    ProviderFactory,
    ProviderInfo,
)
from ep_core.discovery.registry import registry
from ep_core.errors import EpError
from ep_core.hookspecs import hookimpl
from ep_core.levels import GraphOptimizationLevel
from ep_core.options import SessionOptions
from ep_core.session import InferenceSession
from ep_core.types import DeviceInfo
from ep_sdk.simulator import INFO as SIMULATOR

__all__ = ["DEVICE_PARTNER", "HOST_PARTNER", "THE_TESTED", "Party"]

THE_TESTED = "tested"
HOST_PARTNER = "host-partner"
DEVICE_PARTNER = "device-partner"
_SPARE = "spare-partner"
"""Names in the session. The spare one claims what nobody else does, so that there is nothing to
choose: wherever the core would rather run a node, there is one provider for it."""

_PREFIXES = {THE_TESTED: TESTED, HOST_PARTNER: HOST, DEVICE_PARTNER: DEVICE, _SPARE: ""}

_CLAIMS = "kit_claims"
_SESSION = "kit_session"
_OWN_OPTIONS = {
    _CLAIMS: OptionSpec("", "how names of nodes begin that it may claim"),
    _SESSION: OptionSpec(0, "number of the session that opens it"),
}

_DEVICE_ID = "90"
"""No device of the simulator that somebody may put to the test."""


class Party:
    """The provider under test and the partners, known to sessions while this is entered.

    Args:
        changes: options of the provider under test, beside those it is tested with.

    Raises:
        NotClaimed: the provider claims no common operator.

    Attributes:
        verb: what the provider under test is good for.
    """

    def __init__(self, bench: Bench, **changes: Any) -> None:
        self.verb = verb_of(bench)
        self._on_host_run: OnRun = _nothing
        self._bench = bench
        self._changes = changes
        self._numbers = itertools.count(1)
        self._guests: dict[int, dict[str, Guest]] = {}

    def __enter__(self) -> Party:
        with contextlib.ExitStack() as undo:
            for name in _PREFIXES:
                registry().register(_Plugin(self._factory(name), self._passes(name)), name=name)
                undo.callback(registry().unregister, name)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._undo.close()

    def model(self, text: str, *, whole: bool = False) -> onnx.ModelProto:
        """A sketch for the provider under test; see `sketches`."""
        return sketch(text, self.verb, whole=whole)

    @contextlib.contextmanager
    def interrupted(self, on_host_run: OnRun) -> Iterator[None]:
        """For as long as this lasts, call something whenever the host partner is about to run."""
        self._on_host_run = on_host_run
        try:
            yield
        finally:
            self._on_host_run = _nothing

    @contextlib.contextmanager
    def open(
        self,
        model: onnx.ModelProto,
        order: Sequence[str] = (THE_TESTED, HOST_PARTNER),
        **device_options: Any,
    ) -> Iterator[Mixed]:
        """Open a session; closed in the end.

        Args:
            order: who takes part, in order of preference.
            device_options: of the device partner, as the simulator has them.

        Raises:
            NotClaimed: the provider under test doesn't claim all that is meant for it.
            Broken: it breaks a contract when asked or closed, or can't compile what it claims.
        """
        number = next(self._numbers)
        guests = self._guests[number] = {}
        given = {THE_TESTED: {**self._bench.options, **self._changes}}
        given[DEVICE_PARTNER] = device_options
        wishes = [
            (name, {**given.get(name, {}), _CLAIMS: _PREFIXES[name], _SESSION: number})
            for name in (*order, _SPARE)
        ]
        try:
            with _opened(model, wishes, guests) as session:
                mixed = Mixed(session, model, guests, THE_TESTED)
                mixed.check_claims()
                yield mixed
        finally:
            del self._guests[number]
        if guests[THE_TESTED].problem:
            raise Broken(guests[THE_TESTED].problem)

    def _factory(self, name: str) -> ProviderFactory:
        if name == THE_TESTED:
            own, device = self._bench.factory.info, self._bench.device
        elif name == DEVICE_PARTNER:
            own = SIMULATOR
            device = DeviceInfo(name, _DEVICE_ID, "simulated")
        else:
            own = ProviderInfo(name, "1", API_VERSION)
            device = DeviceInfo(name, "0", "cpu")
        options = {**own.options, **_OWN_OPTIONS}
        info = replace(own, name=name, aliases=(), auto=False, options=options)
        return _Factory(self, info, replace(device, provider=name))

    def open_guest(self, info: ProviderInfo, options: Mapping[str, Any]) -> Guest:
        """Open one for the session whose number is in the options."""
        rest = {key: value for key, value in options.items() if key not in _OWN_OPTIONS}
        guests = self._guests[options[_SESSION]]
        rivals = tuple(guests.values()) if info.name == _SPARE else ()
        guest = Guest(self._open(info, rest), info, options[_CLAIMS], rivals)
        guests[info.name] = guest
        return guest

    def _open(self, info: ProviderInfo, options: Mapping[str, Any]) -> ExecutionProvider:
        if info.name == THE_TESTED:
            return self._bench.factory.create(self._bench.device, options)
        if info.name == DEVICE_PARTNER:
            from ep_sdk.simulator.provider import SimulatorProvider

            return SimulatorProvider(info, DeviceInfo(info.name, _DEVICE_ID, "simulated"), options)
        device = DeviceInfo(info.name, "0", "cpu")
        return HostPartner(info, device, options, lambda: self._on_host_run())

    def _passes(self, name: str) -> Sequence[GraphPass]:
        """The installed provider's own passes, if it is the one under test."""
        own = self._bench.factory.info.name
        if name != THE_TESTED or not _is_installed(own, self._bench.factory):
            return ()
        return registry().graph_passes(own)


class _Factory:
    """Meets `ep_core.contracts.ProviderFactory`; every provider it opens is a guest."""

    def __init__(self, party: Party, info: ProviderInfo, device: DeviceInfo) -> None:
        self.info = info
        self._party = party
        self._device = device

    def devices(self) -> Sequence[DeviceInfo]:
        """The one that is put to the test, or the partner's."""
        return [self._device]

    def why_unavailable(self) -> str | None:
        """There always is one."""
        return None

    def create(self, device: DeviceInfo, options: Mapping[str, Any]) -> ExecutionProvider:
        """Open a guest."""
        return self._party.open_guest(self.info, options)


class _Plugin:
    """What is registered."""

    def __init__(self, factory: ProviderFactory, passes: Sequence[GraphPass]) -> None:
        self._factory = factory
        self._passes = passes

    @hookimpl
    def ep_provider_factory(self) -> ProviderFactory:
        """The guest's factory."""
        return self._factory

    @hookimpl
    def ep_graph_passes(self) -> Sequence[GraphPass]:
        """The guest's own passes."""
        return self._passes


def _nothing() -> None:
    pass


def _is_installed(name: str, factory: ProviderFactory) -> bool:
    try:
        return registry().factory(name) is factory
    except EpError:
        return False


@contextlib.contextmanager
def _opened(
    model: onnx.ModelProto,
    wishes: Sequence[tuple[str, Mapping[str, Any]]],
    guests: Mapping[str, Guest],
) -> Iterator[InferenceSession]:
    options = SessionOptions()
    options.certificate_policy = CertificatePolicy.OFF
    options.disable_cpu_fallback = True
    options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = InferenceSession(model, options, providers=wishes)
    except Exception as error:
        problem = guests[THE_TESTED].problem if THE_TESTED in guests else ""
        text = problem or f"a session with partners can't be opened: {text_of(error)}"
        raise Broken(text) from error
    with session:
        yield session
