"""The hooks are what plugins are written against: their names and shapes don't drift."""

from __future__ import annotations

import inspect

import pluggy
import pytest

from ep_core import hookspecs


def test_the_hooks_are_exactly_these_and_take_no_arguments():
    manager = pluggy.PluginManager("ep_core")
    manager.add_hookspecs(hookspecs)
    hooks = {name for name in vars(manager.hook) if name.startswith("ep_")}
    assert hooks == {"ep_provider_factory", "ep_op_schemas", "ep_graph_passes", "ep_commands"}
    for name in hooks:
        assert not inspect.signature(getattr(hookspecs, name)).parameters


def test_only_the_factory_hook_gives_one_result():
    manager = pluggy.PluginManager("ep_core")
    manager.add_hookspecs(hookspecs)
    assert manager.hook.ep_provider_factory() is None
    for name in ("ep_op_schemas", "ep_graph_passes", "ep_commands"):
        assert getattr(manager.hook, name)() == []


def test_a_hook_with_an_argument_is_refused():
    class Plugin:
        @hookspecs.hookimpl
        def ep_provider_factory(self, session):
            return None

    manager = pluggy.PluginManager("ep_core")
    manager.add_hookspecs(hookspecs)
    with pytest.raises(pluggy.PluginValidationError):
        manager.register(Plugin())


def test_the_groups_are_the_documented_ones():
    assert hookspecs.PROVIDER_GROUP == "ep_core.providers"
    assert hookspecs.COMMAND_GROUP == "ep_core.commands"
