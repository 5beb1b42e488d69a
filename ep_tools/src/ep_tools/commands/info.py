"""`ep info`: the arguments of the command; the work is in `ep_tools.describing`."""

from __future__ import annotations

import argparse

from ep_tools.commands import arguments

__all__ = ["InfoCommand"]

_EPILOG = """\
examples:
  ep info model.onnx
  ep info model.onnx --json | jq .operators

The model is loaded and checked, not run; no provider is needed. Nodes are counted as they run:
local functions are inlined, and Constant nodes count as parameters.
"""


class InfoCommand:
    """Says what a model takes, gives and is made of."""

    name = "info"
    help = "show a model's inputs, outputs, operators, parameters and sizes"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        arguments.add_model(parser)
        arguments.add_json(parser)

    def run(self, args: argparse.Namespace) -> int:
        from ep_tools.describing import describe_model

        return describe_model(args.model, as_json=args.json)
