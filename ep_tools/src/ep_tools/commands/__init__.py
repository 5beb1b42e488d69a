"""The commands that ship with `ep`. Their modules are light: the work is imported when it's run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ep_tools.commands.bench import BenchCommand
from ep_tools.commands.check import CheckCommand
from ep_tools.commands.compare import CompareCommand
from ep_tools.commands.dump import DumpCommand
from ep_tools.commands.explain import ExplainCommand
from ep_tools.commands.info import InfoCommand
from ep_tools.commands.profile import ProfileCommand
from ep_tools.commands.providers import ProvidersCommand
from ep_tools.commands.run import RunCommand

if TYPE_CHECKING:
    from ep_core.contracts import Command

__all__ = ["BUILT_IN"]

BUILT_IN: tuple[Command, ...] = (
    RunCommand(),
    InfoCommand(),
    ProvidersCommand(),
    ExplainCommand(),
    BenchCommand(),
    CompareCommand(),
    ProfileCommand(),
    CheckCommand(),
    DumpCommand(),
)
