"""`ep check`: the arguments of the command; the work is in `ep_tools.check_model`."""

from __future__ import annotations

import argparse
from dataclasses import replace

from ep_tools.commands import arguments

__all__ = ["CheckCommand"]

_EPILOG = f"""\
{arguments.INPUT_HELP}
  What --dim and --shape give is fixed before the model is placed, also without --measure.

examples:
  ep check model.onnx --providers openvino                 does openvino run all of it?
  ep check model.onnx --providers openvino,cpu             do the two?
  ep check model.onnx --providers npu --what-if npu.json   on a device that isn't here
  ep check model.onnx --providers openvino --certificate-policy off    certified or not
  ep check model.onnx --providers openvino --dim batch=8   for a batch of 8
  ep check model.onnx --providers openvino --measure       and is the CPU alone faster?

exit codes:
  0 the named providers run every node, fast or slow; 1 some node falls to a provider that wasn't
  named, or nobody runs it, or an error (which stderr tells); 2 wrong usage
"""


class CheckCommand:
    """Says before anything runs whether a model fits a target."""

    name = "check"
    help = "check that the named providers run a model, and say what stands in the way"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        arguments.add_model(parser)
        arguments.add_providers(parser)
        arguments.add_level(parser)
        arguments.add_placement(parser)
        arguments.add_feeds(parser, missing="random if it isn't named; only for --measure")
        parser.add_argument(
            "--what-if",
            action="append",
            default=[],
            metavar="CERTIFICATE",
            help="suppose that the provider of this certificate file were here; nothing is "
            "compiled; once for each provider",
        )
        parser.add_argument(
            "--measure",
            action="store_true",
            help="run the model, also on the CPU provider alone, and say which is faster",
        )
        arguments.add_json(parser)

    def run(self, args: argparse.Namespace) -> int:
        from ep_tools.check_model import CheckRequest, check_model

        session = replace(
            arguments.session_request(args), placement=arguments.placement_request(args)
        )
        request = CheckRequest(
            session=session,
            feeds=arguments.feed_request(args, fill=True),
            what_if=args.what_if,
            measure=args.measure,
        )
        return check_model(request, as_json=args.json)
