"""Which providers are installed, whether each can be used here, and opening one.

Plugins are read one by one: a broken one is listed with its reason and stops nobody else. A
provider that was never loaded here before is tried out in a child process first. Placement, graphs
and sessions don't belong here.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ep_core.contracts import (
    Command,
    ExecutionProvider,
    GraphPass,
    ProviderFactory,
    ProviderInfo,
)
from ep_core.discovery import verdicts as _verdicts
from ep_core.discovery.extras import load_commands, load_passes, register_schemas
from ep_core.discovery.options import parse_options, select_device
from ep_core.discovery.plugins import (
    PluginEntry,
    autoload,
    check_devices,
    check_provider,
    find_plugins,
    guarded,
    load_plugin,
    make_factory,
    plugin_manager,
    reason_of,
)
from ep_core.discovery.probe import Outcome, Verdict, probe, time_limit
from ep_core.errors import (
    ContractError,
    EpError,
    ProviderError,
    ProviderNotFoundError,
    ProviderUnavailableError,
    did_you_mean,
)
from ep_core.hookspecs import COMMAND_GROUP, PROVIDER_GROUP
from ep_core.types import DeviceInfo

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = [
    "CommandSet",
    "ProviderState",
    "ProviderStatus",
    "Registry",
    "parse_options",
    "registry",
    "select_device",
]

_SUFFIX = "ExecutionProvider"


class ProviderState(enum.Enum):
    """Whether a provider can be used: unavailable is the machine's fault, broken the package's."""

    AVAILABLE = "available"
    UNAVAILABLE = "unavailable"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """One installed provider as `ep providers` shows it.

    Attributes:
        distribution, version: of the package, empty for one registered by hand.
        reason: why it can't be used, a sentence; empty when available.
        info: what it says about itself, None where that can't be known.
        problems: what is wrong with it though it can be used.
    """

    name: str
    distribution: str
    version: str
    state: ProviderState
    reason: str = ""
    devices: tuple[DeviceInfo, ...] = ()
    info: ProviderInfo | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandSet:
    """Subcommands that plugins bring, and why some plugins' commands are missing."""

    commands: tuple[Command, ...]
    problems: tuple[str, ...]


@dataclass(slots=True)
class _Record:
    """What the registry knows of one entry; `status` is None until it is wanted."""

    entry: PluginEntry
    plugin: object = None
    status: ProviderStatus | None = None
    factory: ProviderFactory | None = None
    passes: tuple[GraphPass, ...] = ()
    cause: BaseException | None = None

    def conclude(self, state: ProviderState, reason: str = "", **more: Any) -> None:
        entry = self.entry
        self.status = ProviderStatus(
            entry.name, entry.distribution, entry.version, state, reason, **more
        )

    def fail(self, reason: str, cause: BaseException | None = None) -> None:
        self.cause = cause
        self.conclude(ProviderState.BROKEN, f"{self.entry.package}: {reason}")


class Registry:
    """Providers by name. Safe to use from many threads.

    Names are accepted as the entry point spells them (`cpu`) and as aliases
    (`CPUExecutionProvider`). Methods that take a name raise ProviderNotFoundError for one that
    nothing offers, and ProviderUnavailableError, with the reason, for one that can't be used.
    Before its first use here a plugin is probed, which may take seconds; other threads wait.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._by_hand: dict[str, _Record] = {}
        self._installed: list[_Record] | None = None

    # ------------------------------------------------------------ listing

    def providers(self) -> tuple[ProviderStatus, ...]:
        """Load every provider and return their states by name; broken ones are among them."""
        with self._lock:
            records = self._records()
            self._load(records)
            return tuple(_status(record) for record in records)

    def status(self, name: str) -> ProviderStatus:
        """Return the state of one provider, also when it can't be used."""
        with self._lock:
            return _status(self._find(name))

    def available(self) -> tuple[str, ...]:
        """Names of the providers that can be used, in order of priority."""
        return tuple(status.name for status in _by_priority(self.providers()))

    def automatic(self) -> tuple[str, ...]:
        """Names of those that take part when the caller names none, in order of priority.

        The others aren't asked for their devices, which may take seconds.
        """
        with self._lock:
            records = self._records()
            self._load(records, only_automatic=True)
            known = [record.status for record in records if record.status is not None]
        return tuple(s.name for s in _by_priority(known) if s.info and s.info.auto)

    # ------------------------------------------------------------ using

    def factory(self, name: str) -> ProviderFactory:
        """Return the factory of a provider that has at least one device."""
        return self._usable(name)[0]

    def create(self, name: str, options: Mapping[str, Any] | None = None) -> ExecutionProvider:
        """Open a device of a provider; the caller closes it.

        Args:
            name: the provider.
            options: what `parse_options` takes, and the device's id as `device_id` or `device`.

        Raises:
            OptionError: unknown options, wrong values, no such device.
            ProviderUnavailableError: the provider fails to open the device.
            ContractError: what it returns breaks the contract.
        """
        factory, status = self._usable(name)
        assert status.info is not None
        device, rest = select_device(status.info, status.devices, options)
        parsed = parse_options(status.info, rest)
        what = f"opening device {device.id!r} of provider {status.name!r}"
        try:
            provider = guarded(what, lambda: factory.create(device, parsed))
            guarded(f"checking provider {status.name!r}", lambda: check_provider(provider))
        except ProviderError as error:
            if isinstance(error.__cause__, EpError):
                raise error.__cause__ from None
            raise ProviderUnavailableError(str(error)) from error.__cause__
        return provider

    def graph_passes(self, name: str) -> tuple[GraphPass, ...]:
        """Return the passes that a provider wants run on its own regions."""
        with self._lock:
            return self._find(name).passes

    def distribution(self, name: str) -> Distribution | None:
        """Return the installed distribution of a provider, None for one registered by hand."""
        with self._lock:
            return self._find(name).entry.metadata

    def commands(self) -> CommandSet:
        """Load the plugins of the group `ep_core.commands` and return their subcommands."""
        commands: dict[str, Command] = {}
        problems: list[str] = []
        for entry in find_plugins(COMMAND_GROUP) if autoload() else ():
            try:
                for command in load_commands(entry):
                    if command.name in commands:
                        raise ContractError(f"the command {command.name!r} exists already")
                    commands[command.name] = command
            except ProviderError as error:
                problems.append(f"{entry.package}: commands of {entry.name!r}: {error}")
        return CommandSet(tuple(commands.values()), tuple(problems))

    # ------------------------------------------------------------ changing

    def register(self, plugin: object, *, name: str) -> ProviderStatus:
        """Add a plugin by hand, in tests and notebooks; it hides an installed one of its name.

        Args:
            plugin: a module or object with functions marked `ep_core.hookspecs.hookimpl`. It is
                loaded at once, in this process.
            name: equal to the `info.name` of its factory.
        """
        with self._lock:
            record = _Record(PluginEntry(PROVIDER_GROUP, name), plugin)
            self._by_hand[name] = record
            self._load([record])
            return _status(record)

    def unregister(self, name: str) -> None:
        """Remove a plugin that was added by hand; sessions that use it go on."""
        with self._lock:
            if self._by_hand.pop(name, None) is None:
                raise ProviderNotFoundError(
                    f"no provider {name!r} was registered by hand",
                    fix=did_you_mean(name, self._by_hand),
                )

    def recheck(self) -> None:
        """Forget every verdict, in memory and on disk, so that the next use looks again."""
        import importlib

        with self._lock:
            importlib.invalidate_caches()
            self._installed = None
            for record in self._records():
                if record.entry.metadata is not None:
                    _verdicts.forget(record.entry)
            self._by_hand = {
                name: _Record(record.entry, record.plugin) for name, record in self._by_hand.items()
            }

    # ------------------------------------------------------------ inside

    def _records(self) -> list[_Record]:
        if self._installed is None:
            entries = find_plugins(PROVIDER_GROUP) if autoload() else []
            self._installed = [_Record(entry) for entry in entries]
            _mark_ambiguous(self._installed)
        shown = [r for r in self._installed if r.entry.name not in self._by_hand]
        return sorted([*shown, *self._by_hand.values()], key=lambda record: record.entry.name)

    def _usable(self, name: str) -> tuple[ProviderFactory, ProviderStatus]:
        with self._lock:
            record = self._find(name)
            status = _status(record)
            if record.factory is None or status.state is not ProviderState.AVAILABLE:
                raise ProviderUnavailableError(
                    f"provider {status.name!r} can't be used: {status.reason}"
                ) from record.cause
            return record.factory, status

    def _find(self, name: str) -> _Record:
        """Return the loaded record of a name; only an unusual alias makes it load all."""
        records = self._records()
        short = str(name).removesuffix(_SUFFIX).lower()
        for spelling in (name, short):
            named = [record for record in records if record.entry.name == spelling]
            if named:
                self._load(named)
                return named[0]
        self._load(records)
        known = [record.entry.name for record in records]
        aliased = []
        for record in records:
            info = _status(record).info
            aliases = info.aliases if info is not None else ()
            known.extend(aliases)
            if name in aliases:
                aliased.append(record)
        if len(aliased) > 1:
            owners = " and ".join(repr(record.entry.name) for record in aliased)
            raise ProviderNotFoundError(
                f"the provider name {name!r} is ambiguous: {owners} both answer to it",
                fix="Use one of these names.",
            )
        if not aliased:
            raise ProviderNotFoundError(
                f"no provider {name!r} is installed", fix=did_you_mean(str(name), known)
            )
        return aliased[0]

    def _load(self, records: Sequence[_Record], *, only_automatic: bool = False) -> None:
        """Bring records to a status: probe those that need it, side by side, then load each.

        With `only_automatic`, those that are used only if named have no status afterwards.
        """
        waiting = [record for record in records if record.status is None]
        if not waiting:
            return
        for record, verdict in zip(waiting, _verdicts_for(waiting), strict=True):
            if verdict.outcome in (Outcome.SURVIVED, Outcome.UNTRIED):
                try:
                    _load_here(record, only_automatic)
                except BaseException:
                    record.status = None
                    raise
            else:
                record.fail(verdict.reason)


_DEFAULT = Registry()


def registry() -> Registry:
    """Return the registry of this process, which sessions use."""
    return _DEFAULT


# ---------------------------------------------------------------- loading one plugin


def _status(record: _Record) -> ProviderStatus:
    assert record.status is not None
    return record.status


def _by_priority(statuses: Sequence[ProviderStatus]) -> list[ProviderStatus]:
    """Those that can be used, highest priority first, then by name."""
    usable = [(-s.info.priority, s.name, s) for s in statuses if s.info and s.devices]
    return [status for _, _, status in sorted(usable, key=lambda item: item[:2])]


def _mark_ambiguous(records: Sequence[_Record]) -> None:
    """Name clashes are nobody's to win; damaged metadata is settled here too."""
    for record in records:
        name = record.entry.name
        rivals = [other.entry.package for other in records if other.entry.name == name]
        if record.entry.problem:
            record.fail(record.entry.problem)
        elif len(rivals) > 1:
            record.fail(
                f"the provider name {name!r} is ambiguous, it is offered by "
                f"{' and by '.join(rivals)}; uninstall all but one"
            )


def _verdicts_for(records: Sequence[_Record]) -> list[Verdict]:
    """Return a verdict per record: remembered, or from a probe now. By hand means trusted."""
    limit = time_limit()
    verdicts = [Verdict(Outcome.UNTRIED)] * len(records)
    unknown = []
    for i, record in enumerate(records):
        if record.entry.metadata is None or limit == 0:
            continue
        remembered = _verdicts.recall(record.entry, limit)
        if remembered is None:
            unknown.append(i)
        else:
            verdicts[i] = remembered
    probed = probe([records[i].entry for i in unknown], limit)
    for i, verdict in zip(unknown, probed, strict=True):
        verdicts[i] = verdict
        _verdicts.remember(records[i].entry, verdict)
    return verdicts


def _load_here(record: _Record, only_automatic: bool) -> None:
    entry = record.entry
    record.fail("is being loaded; a plugin can't ask the registry for itself")
    try:
        plugin = record.plugin if entry.metadata is None else load_plugin(entry)
        manager = plugin_manager(plugin, entry.name)
        factory, info = make_factory(manager, entry.name)
        if only_automatic and not info.auto:
            record.status = None
            return
        devices, reason = check_devices(factory, entry.name)
    except ProviderError as error:
        record.fail(reason_of(error), error.__cause__)
        return
    if not devices:
        record.conclude(ProviderState.UNAVAILABLE, reason, info=info)
        return
    schema_problems = register_schemas(manager, entry.name)
    record.passes, pass_problems = load_passes(manager)
    record.factory = factory
    problems = schema_problems + pass_problems
    record.conclude(ProviderState.AVAILABLE, devices=devices, info=info, problems=problems)
