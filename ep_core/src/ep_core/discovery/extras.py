"""What plugins bring beside a provider: operator schemas, graph passes, subcommands of `ep`.

A failure here never costs a provider; it is said in words and the rest goes on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pluggy

from ep_core.contracts import Command, GraphPass
from ep_core.discovery.plugins import PluginEntry, guarded, load_plugin, plugin_manager
from ep_core.errors import ContractError, ProviderError

_schema_owners: dict[tuple[str, str, int], str] = {}


def register_schemas(manager: pluggy.PluginManager, owner: str) -> tuple[str, ...]:
    """Register a plugin's operator schemas with onnx, each once, and return what went wrong.

    onnx keeps one table per process: of two plugins that define the same operator and version
    the first one wins, and the second one's problem says so.
    """
    problems = []
    try:
        schemas = _answers(manager.hook.ep_op_schemas, "ep_op_schemas()")
    except ProviderError as error:
        return (str(error),)
    for schema in schemas:
        try:
            guarded("ep_op_schemas()", functools.partial(_register_schema, schema, owner))
        except ProviderError as error:
            problems.append(str(error))
    return tuple(problems)


def _register_schema(schema: Any, owner: str) -> None:
    from onnx import defs

    if not isinstance(schema, defs.OpSchema):
        raise TypeError(f"expected onnx.defs.OpSchema objects, got {type(schema).__name__}")
    key = (schema.domain, schema.name, schema.since_version)
    if _schema_owners.get(key) == owner:
        return
    defs.register_schema(schema)
    _schema_owners[key] = owner


def load_passes(manager: pluggy.PluginManager) -> tuple[tuple[GraphPass, ...], tuple[str, ...]]:
    """Return a plugin's graph passes, and what went wrong."""
    try:
        passes = _answers(manager.hook.ep_graph_passes, "ep_graph_passes()")
        for item in passes:
            _require(item, "ep_graph_passes()", "a GraphPass", "__call__")
    except ProviderError as error:
        return (), (str(error),)
    return passes, ()


def load_commands(entry: PluginEntry) -> tuple[Command, ...]:
    """Import a plugin of the group `ep_core.commands` and return its subcommands.

    Raises:
        ProviderError: the plugin can't be imported, or its hook fails or returns something else.
    """
    if entry.problem:
        raise ProviderError(entry.problem)
    manager = plugin_manager(load_plugin(entry), entry.name)
    commands = _answers(manager.hook.ep_commands, "ep_commands()")
    for command in commands:
        _require(command, "ep_commands()", "Command objects", "configure", "run")
        if not isinstance(getattr(command, "help", None), str):
            raise ContractError("a command of ep_commands()", expected="a `help` text")
    return commands


def _answers(hook: Callable[[], Any], what: str) -> tuple[Any, ...]:
    """Flatten what a plugin's implementations of a hook return."""
    found: list[Any] = []
    for answer in guarded(what, hook):
        if not isinstance(answer, (list, tuple)):
            raise ContractError(what, expected="a list or tuple", got=type(answer).__name__)
        found.extend(answer)
    return tuple(found)


def _require(item: Any, what: str, expected: str, *methods: str) -> None:
    named = isinstance(getattr(item, "name", None), str)
    if not named or not all(callable(getattr(item, method, None)) for method in methods):
        raise ContractError(what, expected=expected, got=type(item).__name__)
