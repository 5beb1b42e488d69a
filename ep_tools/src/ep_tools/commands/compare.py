"""`ep compare`: the arguments of the command; the work is in `ep_tools.comparing`."""

from __future__ import annotations

import argparse

from ep_tools.commands import arguments
from ep_tools.sides import parse_side

__all__ = ["CompareCommand"]

_EPILOG = f"""\
sides:
  simulator,cpu      providers, in order of preference
  level:0            a level of graph optimisation (0, 1, 2, 3, 99), on --providers
  onnxruntime        ONNX Runtime's CPU provider, where it is installed; at --level

{arguments.INPUT_HELP}
agreement:
  Two floats agree if |a - b| <= atol + rtol * |b|, where b is the one of side B; NaN agrees with
  NaN, and inf with inf. Integers agree if |a - b| <= atol; booleans and texts if they are equal.
  An excess of 3 says: three times what the tolerance allows.

examples:
  ep compare model.onnx cpu onnxruntime
  ep compare model.onnx level:0 level:99 --rtol 1e-5
  ep compare model.onnx simulator,cpu cpu --layers --input x=photo.png
  ep compare model.onnx simulator,cpu cpu --isolate
  ep compare model.onnx simulator,cpu cpu --reduce small.onnx

exit codes:
  0 all outputs agree, 1 they don't, or an error (which stderr tells)
"""


class CompareCommand:
    """Runs a model in two ways and compares the outputs."""

    name = "compare"
    help = "compare a model's outputs on two lists of providers, two levels, or ONNX Runtime"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        arguments.add_model(parser)
        for letter in "AB":
            parser.add_argument(
                f"side_{letter.lower()}",
                metavar=letter,
                type=parse_side,
                help="providers, level:N or onnxruntime (see below)",
            )
        arguments.add_feeds(parser, missing="random if it isn't named")
        arguments.add_tolerance(parser)
        parser.add_argument(
            "--layers",
            action="store_true",
            help="compare the result of every node as well, and find the first that differs",
        )
        parser.add_argument(
            "--isolate",
            action="store_true",
            help="as --layers, but A runs each node by itself, on what B has there, so that errors "
            "don't add up",
        )
        parser.add_argument(
            "--reduce",
            metavar="OUT.onnx",
            help="as --layers, and save the smallest model found that still differs, with its "
            "inputs in OUT.npz; needs ep-compliance",
        )
        arguments.add_providers(parser)
        arguments.add_level(parser)
        arguments.add_json(parser)

    def run(self, args: argparse.Namespace) -> int:
        from ep_tools.comparing import CompareRequest, compare_sides

        request = CompareRequest(
            session=arguments.session_request(args),
            feeds=arguments.feed_request(args, fill=True),
            sides=(args.side_a, args.side_b),
            tolerance=arguments.tolerance(args),
            layers=args.layers or args.isolate or args.reduce is not None,
            isolate=args.isolate,
            reduce=args.reduce,
        )
        return compare_sides(request, as_json=args.json)
