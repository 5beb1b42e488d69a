"""`ep providers`: the arguments of the command; the work is in `ep_tools.listing`."""

from __future__ import annotations

import argparse

__all__ = ["ProvidersCommand"]

_EPILOG = """\
examples:
  ep providers                 what is installed, and what can be used here
  ep providers --recheck       ask every provider again, after a driver was installed
  ep providers --json          the same for a program
"""


class ProvidersCommand:
    """Lists every installed provider with its devices, or why it can't be used."""

    name = "providers"
    help = "list the installed providers, their devices, or why they can't be used"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        parser.add_argument("--json", action="store_true", help="print one JSON document")
        parser.add_argument(
            "--recheck",
            action="store_true",
            help="forget what is remembered of earlier probes and probe again",
        )

    def run(self, args: argparse.Namespace) -> int:
        from ep_tools.listing import list_providers

        return list_providers(as_json=args.json, recheck=args.recheck)
