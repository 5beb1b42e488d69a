"""`ep new NAME`: writes a complete provider package to start from.

`names` checks the name, `project` fills in the templates and puts the folder in place; what the
package looks like stands in `templates/`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ep_core.contracts import Command
from ep_core.hookspecs import hookimpl
from ep_sdk.new.command import NewCommand
from ep_sdk.new.project import KINDS, create_project

__all__ = ["KINDS", "create_project"]


@hookimpl
def ep_commands() -> Sequence[Command]:
    """Offer `ep new`."""
    return [NewCommand()]
