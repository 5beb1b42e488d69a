"""`ep dump`: the arguments of the command; the work is in `ep_tools.dump_node`."""

from __future__ import annotations

import argparse

from ep_tools.commands import arguments

__all__ = ["DumpCommand"]

_EPILOG = f"""\
what is written:
  model.onnx         the node as a model of its own; constants stay inside
  test_data_set_0    its inputs and outputs, as in the test cases of ONNX
  inputs, outputs    all values that the node reads and gives, in numpy's format
  The model's node gets its inputs as they are at --level and on --providers, with its results as
  outputs. It is then run by itself, to see whether it gives the same.

{arguments.INPUT_HELP}
examples:
  ep dump model.onnx --node Conv_12 --out conv
  ep dump model.onnx --node logits --input x=photo.png --providers simulator,cpu --out last
"""


class DumpCommand:
    """Writes one node of a model with its values."""

    name = "dump"
    help = "write a node's inputs and outputs, and the node as a model that repeats them"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        arguments.add_model(parser)
        parser.add_argument(
            "--node", required=True, metavar="NAME", help="name of a node, or of one of its results"
        )
        arguments.add_feeds(parser, missing="random if it isn't named")
        arguments.add_providers(parser)
        arguments.add_level(parser)
        parser.add_argument(
            "--out", required=True, metavar="DIR", help="the folder to make; empty if it exists"
        )
        arguments.add_json(parser)

    def run(self, args: argparse.Namespace) -> int:
        from ep_tools.dump_node import DumpRequest, dump_node

        request = DumpRequest(
            session=arguments.session_request(args),
            feeds=arguments.feed_request(args, fill=True),
            node=args.node,
            out=args.out,
        )
        return dump_node(request, as_json=args.json)
