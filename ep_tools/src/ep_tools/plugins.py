"""Subcommands of `ep` that other packages bring, through the core's group of entry points.

Listing them reads only package metadata. They are imported, by the core, when one is asked for;
a broken one costs a warning line and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import distributions
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ep_core.contracts import Command

__all__ = ["COMMAND_GROUP", "find_command", "list_commands"]

COMMAND_GROUP = "ep_core.commands"
"""Equal to `ep_core.hookspecs.COMMAND_GROUP`, which would cost the import of the core to read."""

Warn = Callable[[str], None]


def list_commands(warn: Warn) -> dict[str, str]:
    """Return the packages that bring commands, with version, by the name of the entry point.

    An entry point is named after its command. Distributions are read one by one, so that damaged
    metadata costs its own package only. Nothing is listed if EP_PLUGIN_AUTOLOAD is 0.
    """
    found: dict[str, str] = {}
    if os.environ.get("EP_PLUGIN_AUTOLOAD") == "0":
        return found
    for distribution in distributions():
        name = "unknown distribution"
        try:
            if COMMAND_GROUP not in (distribution.read_text("entry_points.txt") or ""):
                continue
            name = str(distribution.metadata["Name"])
            for point in distribution.entry_points.select(group=COMMAND_GROUP):
                found.setdefault(point.name, f"{name} {distribution.version}")
        except Exception as error:  # noqa: BLE001 - metadata may be damaged in any way
            warn(f"the metadata of {name} is damaged: {error}; reinstall it")
    return found


def find_command(name: str, warn: Warn) -> Command | None:
    """Import the plugins and return the command of that name, None if no plugin has it."""
    from ep_core.discovery.registry import registry

    found = registry().commands()
    for problem in found.problems:
        warn(problem)
    return next((command for command in found.commands if command.name == name), None)
