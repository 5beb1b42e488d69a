"""Finding installed plugins, loading them, and checking what they answer.

Shared by the registry, which works in the user's process, and the probe, which works in a child, so
that both judge a plugin alike. All foreign code is called through `guarded`. Options, remembered
verdicts and sessions don't belong here.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

from ep_core import hookspecs
from ep_core.contracts import (
    API_VERSION,
    ExecutionProvider,
    OptionSpec,
    ProviderFactory,
    ProviderFeatures,
    ProviderInfo,
)
from ep_core.errors import CertificateError, ContractError, OptionError, ProviderError
from ep_core.hookspecs import PROVIDER_GROUP
from ep_core.types import HOST_MEMORY, DeviceInfo, MemoryInfo

if TYPE_CHECKING:
    from importlib.metadata import Distribution

T = TypeVar("T")

CONTENT_GROUP = "ep_core.content"
"""Entry points that name packages of other distributions which are part of a provider."""


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """One entry point, or a plugin object added by hand.

    Attributes:
        value: `module` or `module:attribute`; empty for a plugin added by hand.
        distribution, version: of the package it comes from, empty where unknown.
        metadata: the installed distribution, None for a plugin added by hand.
        problem: why the entry point can't even be read, else empty.
    """

    group: str
    name: str
    value: str = ""
    distribution: str = ""
    version: str = ""
    metadata: Distribution | None = None
    problem: str = ""

    @property
    def package(self) -> str:
        """Distribution and version, for messages."""
        return f"{self.distribution} {self.version}".strip() or "a plugin registered by hand"


# ---------------------------------------------------------------- finding


def autoload() -> bool:
    """False if the environment variable `EP_PLUGIN_AUTOLOAD` switches entry points off.

    Raises:
        OptionError: the variable is neither `0` nor `1`.
    """
    text = os.environ.get("EP_PLUGIN_AUTOLOAD", "1")
    if text not in ("0", "1"):
        raise OptionError("environment variable EP_PLUGIN_AUTOLOAD", expected="0 or 1", got=text)
    return text == "1"


def find_plugins(group: str) -> list[PluginEntry]:
    """Read the entry points of one group from package metadata, without importing any plugin.

    Distributions are read one by one, so that damaged metadata costs its own package only.
    """
    from importlib import metadata

    found: list[PluginEntry] = []
    seen: set[str] = set()
    for distribution in metadata.distributions():
        name = "unknown distribution"
        try:
            if group not in (distribution.read_text("entry_points.txt") or ""):
                continue
            name = distribution.metadata["Name"] or name
            # The first one on sys.path is the one that imports see.
            if name.lower() in seen:
                continue
            seen.add(name.lower())
            version = distribution.version
            for point in distribution.entry_points.select(group=group):
                entry = PluginEntry(group, point.name, point.value, name, version, distribution)
                found.append(entry)
        except Exception as error:  # noqa: BLE001 - metadata may be damaged in any way
            problem = f"the metadata of {name} is damaged: {_describe(error)}; reinstall it"
            found.append(PluginEntry(group, name, distribution=name, problem=problem))
    return sorted(found, key=lambda entry: (entry.name, entry.distribution))


def source_files(distribution: Distribution) -> dict[str, Path]:
    """Files of the packages behind the provider entry points, by path relative to `sys.path`.

    Only for editable installs and those without a RECORD, whose files no metadata lists.
    """
    from importlib.util import find_spec

    if distribution.read_text("RECORD") and not _is_editable(distribution):
        return {}
    points = distribution.entry_points.select(group=PROVIDER_GROUP)
    files: dict[str, Path] = {}
    for package in sorted({point.module.partition(".")[0] for point in points}):
        spec = find_spec(package)
        if spec is None:
            continue
        if spec.submodule_search_locations is None and spec.origin:
            files[Path(spec.origin).name] = Path(spec.origin)
        for folder in map(Path, spec.submodule_search_locations or ()):
            files.update(_files_in(folder, folder.parent))
    return files


def declared_files(distribution: Distribution) -> dict[str, Path]:
    """Files of other distributions' packages that one declares as part of it, as `package_files`.

    Found without importing anything.

    Raises:
        CertificateError: a package isn't installed, or its name is none.
    """
    from importlib.util import find_spec

    files: dict[str, Path] = {}
    for point in distribution.entry_points.select(group=CONTENT_GROUP):
        names = point.value.split(".")
        spec = find_spec(names[0]) if all(map(str.isidentifier, names)) else None
        found: dict[str, Path] = {}
        for top in map(Path, (spec and spec.submodule_search_locations) or ()):
            found |= _files_in(top.joinpath(*names[1:]), top.parent)
        if not found:
            raise CertificateError(
                f"{distribution.metadata['Name']} needs the package {point.value!r}, whose files "
                "can't be found",
                fix="Reinstall it together with what it requires.",
            )
        files |= found
    return files


def _files_in(folder: Path, base: Path) -> dict[str, Path]:
    """The content of a folder, by path relative to `base`."""
    files = ((path.relative_to(base), path) for path in folder.rglob("*") if path.is_file())
    return {name.as_posix(): path for name, path in files if _is_content(name.parts)}


def package_files(distribution: Distribution) -> dict[str, Path]:
    """Every file a distribution brings, by relative posix path: code, data, native libraries.

    Left out: package metadata, byte code and scripts, which differ between equal installs. Of an
    editable install only what lies in its packages counts: build tools add modules of their own.
    """
    sources = source_files(distribution)
    packages = {name.partition("/")[0] for name in sources}
    files = {
        file.as_posix(): Path(str(file.locate()))
        for file in distribution.files or ()
        if _is_content(file.parts) and (not packages or file.parts[0] in packages)
    }
    files.update(sources)
    return files


def _is_editable(distribution: Distribution) -> bool:
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        return bool(origin.get("dir_info", {}).get("editable", False))
    except (ValueError, AttributeError):
        return False


def _is_content(parts: tuple[str, ...]) -> bool:
    bookkeeping = parts[0].endswith((".dist-info", ".egg-info")) or parts[0] == ".."
    return not bookkeeping and not parts[-1].endswith((".pyc", ".pth"))


# ---------------------------------------------------------------- calling foreign code


def guarded(doing: str, call: Callable[[], T]) -> T:
    """Call into a plugin; whatever it raises becomes a ProviderError that says `doing` what.

    SystemExit and other non-exceptions are caught too; KeyboardInterrupt is the user's, and passes.
    """
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ProviderError(f"{doing} raised {_describe(error)}") from error


def _describe(error: BaseException) -> str:
    """Type and message of an exception on one line of bounded length."""
    return " ".join("".join(traceback.format_exception_only(error)[-1:]).split())[:500]


def reason_of(error: ProviderError) -> str:
    """The message of a broken plugin's error, with who can mend it."""
    if error.fix:
        return str(error)
    return f"{error}. Update or reinstall its package, or report this to its author."


def load_plugin(entry: PluginEntry) -> object:
    """Import what an entry point names."""
    from importlib.metadata import EntryPoint

    point = EntryPoint(entry.name, entry.value, entry.group)
    return guarded(f"importing {entry.value!r}", point.load)


def plugin_manager(plugin: object, name: str) -> pluggy.PluginManager:
    """Wrap a plugin in a pluggy manager of its own, so that calling it calls no other plugin."""
    manager = pluggy.PluginManager("ep_core")
    manager.add_hookspecs(hookspecs)
    guarded("reading its hooks", lambda: manager.register(plugin, name))
    return manager


def make_factory(manager: pluggy.PluginManager, name: str) -> tuple[ProviderFactory, ProviderInfo]:
    """Ask a plugin for its factory and check it; nothing but `info` is read.

    Raises:
        ProviderError, ContractError: the hook or `info` fails, is missing or is wrong.
    """
    hook = manager.hook.ep_provider_factory
    if not hook.get_hookimpls():
        raise ContractError(
            "the plugin has no hook ep_provider_factory",
            expected="a function ep_provider_factory marked with ep_core.hookspecs.hookimpl",
        )
    factory = guarded("ep_provider_factory()", hook)
    if factory is None:
        raise ContractError("ep_provider_factory()", expected="a ProviderFactory", got=None)
    info = guarded("reading `info` of the factory", lambda: factory.info)
    _check_info(info, name)
    for method in ("devices", "why_unavailable", "create"):
        if not callable(getattr(factory, method, None)):
            raise ContractError(f"the factory has no method {method}()", got=type(factory).__name__)
    return factory, info


def _check_info(info: object, name: str) -> None:
    """Hold a factory's `info` to the contract: API version first, then the rest."""
    if not isinstance(info, ProviderInfo):
        raise ContractError(
            "`info` of the factory", expected="a ProviderInfo", got=type(info).__name__
        )
    _check_api_version(info.api_version)
    if info.name != name:
        raise ContractError(
            "`info.name` differs from the entry point", expected=repr(name), got=repr(info.name)
        )
    if not isinstance(info.aliases, tuple) or not all(isinstance(a, str) for a in info.aliases):
        raise ContractError("`info.aliases`", expected="a tuple of str", got=repr(info.aliases))
    if not isinstance(info.priority, int):
        raise ContractError("`info.priority`", expected="an int", got=repr(info.priority))
    specs = info.options
    if not isinstance(specs, Mapping) or not all(isinstance(s, OptionSpec) for s in specs.values()):
        raise ContractError("`info.options`", expected="OptionSpec by name", got=repr(specs))


def _check_api_version(version: Any) -> None:
    core = ".".join(map(str, API_VERSION))
    if (
        not isinstance(version, tuple)
        or len(version) != 2
        or not all(isinstance(number, int) for number in version)
    ):
        raise ContractError("`info.api_version`", expected="two integers", got=repr(version))
    if version[0] == API_VERSION[0] and version[1] <= API_VERSION[1]:
        return
    older = version < API_VERSION
    raise ContractError(
        "the plugin is written for another version of the provider API",
        expected=f"API {API_VERSION[0]}.x up to {core}, which this ep-core speaks",
        got=".".join(map(str, version)),
        fix="Update the plugin's package." if older else "Update ep-core.",
    )


def check_devices(factory: ProviderFactory, name: str) -> tuple[tuple[DeviceInfo, ...], str]:
    """Ask a factory for its devices; with none, the second value is its reason.

    Raises:
        ProviderError, ContractError: a method fails or returns something else.
    """
    devices = guarded("devices()", factory.devices)
    if not isinstance(devices, (list, tuple)):
        raise ContractError(
            "devices()", expected="a list or tuple of DeviceInfo", got=type(devices).__name__
        )
    ids: set[str] = set()
    for device in devices:
        _check_device(device, name)
        if device.id in ids:
            raise ContractError("devices()", expected="distinct ids", got=f"{device.id!r} twice")
        ids.add(device.id)
    if devices:
        return tuple(devices), ""
    reason = guarded("why_unavailable()", factory.why_unavailable)
    if not isinstance(reason, str) or not reason.strip():
        raise ContractError(
            "why_unavailable()", expected="a sentence, as devices() is empty", got=repr(reason)
        )
    return (), reason


def _check_device(device: object, name: str) -> None:
    if not isinstance(device, DeviceInfo):
        raise ContractError(
            "devices()", expected="DeviceInfo objects", got=f"a {type(device).__name__}"
        )
    if device.provider != name or not isinstance(device.id, str) or not device.id:
        raise ContractError(
            "a device of devices()",
            expected=f"provider {name!r} and an id that is a non-empty str",
            got=f"provider {device.provider!r} and id {device.id!r}",
        )


def check_provider(provider: ExecutionProvider) -> None:
    """Hold what a factory made to the contract, as far as that costs nothing."""
    if not isinstance(provider.features, ProviderFeatures):
        raise ContractError("`features` of the provider", expected="ProviderFeatures")
    if not isinstance(provider.memory, MemoryInfo):
        raise ContractError("`memory` of the provider", expected="a MemoryInfo")
    on_host = provider.memory == HOST_MEMORY
    if not on_host and (provider.allocator is None or provider.data_transfer is None):
        raise ContractError(
            "a provider with a memory of its own", expected="an allocator and a data transfer"
        )
