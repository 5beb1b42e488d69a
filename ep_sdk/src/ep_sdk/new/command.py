"""The arguments of `ep new`, and what it says when it's done."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ep_sdk.new.project import KINDS, create_project

__all__ = ["NewCommand"]

_EPILOG = """\
kinds:
  kernel     a table of kernels, one function per operator; start here for a library of operators
  compiler   whole subgraphs as ONNX models; start here for a vendor's graph compiler

examples:
  ep new mychip
  ep new mychip --kind compiler --vendor "My Company" --dir ~/projects
"""


class NewCommand:
    """Writes the package `ep_NAME`."""

    name = "new"
    help = "write a new provider package that installs and passes its tests at once"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        parser.add_argument(
            "name", metavar="NAME", help="the provider's short name, such as mychip"
        )
        parser.add_argument(
            "--dir",
            type=Path,
            default=Path(),
            metavar="D",
            dest="parent",
            help="folder to write ep_NAME into (default: the current one)",
        )
        parser.add_argument(
            "--kind", choices=KINDS, default="kernel", help="how it computes (default: kernel)"
        )
        parser.add_argument(
            "--vendor", metavar="V", help="who makes it, as `ep providers` shows it"
        )

    def run(self, args: argparse.Namespace) -> int:
        folder = create_project(args.name, args.parent, kind=args.kind, vendor=args.vendor)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        listing = "".join(f"  {path.relative_to(folder)}\n" for path in files)
        # With a separator in it, pip takes it for a path and not for the name of a package.
        place = folder if folder.is_absolute() else f".{os.sep}{folder}"
        sys.stdout.write(
            f"Wrote {folder}:\n{listing}\nNext:\n"
            f'  pip install -e "{place}[test]"\n'
            f'  pytest "{place}"\n'
            "  ep providers\n"
            f"  ep certify {args.name}\n"
        )
        return 0
