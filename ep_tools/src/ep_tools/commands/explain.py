"""`ep explain`: the arguments of the command; the work is in `ep_tools.explaining`."""

from __future__ import annotations

import argparse
from dataclasses import replace

from ep_tools.commands import arguments

__all__ = ["ExplainCommand"]

_EPILOG = """\
examples:
  ep explain model.onnx
  ep explain model.onnx --providers simulator,cpu
  ep explain model.onnx --providers simulator,cpu --all       every node
  ep explain model.onnx --dim batch=1                         sizes of copies known
  ep explain model.onnx --json | jq '.nodes[""][] | select(.provider == "cpu") | .node'

Nodes are those that are left after graph optimisation; --level 0 shows the model's own. A body of
If, Loop or Scan is a scope of its own, such as if_1/then_branch.
"""


class ExplainCommand:
    """Shows where each node runs, and why not elsewhere."""

    name = "explain"
    help = "show which provider runs which node, why, and what is copied between them"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        arguments.add_model(parser)
        arguments.add_providers(parser)
        arguments.add_level(parser)
        arguments.add_dims(parser)
        parser.add_argument(
            "--all",
            action="store_true",
            dest="every_node",
            help="show everything, each node on a line of its own",
        )
        arguments.add_json(parser)

    def run(self, args: argparse.Namespace) -> int:
        from ep_tools.explaining import explain_model

        request = replace(arguments.session_request(args), free_dimensions=args.dims)
        return explain_model(request, every_node=args.every_node, as_json=args.json)
