"""`ep run`: the arguments of the command; the work is in `ep_tools.running`."""

from __future__ import annotations

import argparse
import dataclasses

from ep_tools.commands import arguments

__all__ = ["RunCommand"]

_EPILOG = f"""\
{arguments.INPUT_HELP}
examples:
  ep run model.onnx --input x=random
  ep run model.onnx --input image=cat.jpg --providers cpu --repeat 10
  ep run model.onnx --input ids=tokens.npy --input mask=1 --dim batch=4 --json
  ep run vad.onnx --input input=random --input state=0 --input sr=16000 --dim input.1=512
"""


class RunCommand:
    """Runs a model once or more, and shows outputs, placement and times."""

    name = "run"
    help = "run a model and show its outputs, where it ran, and how long it took"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        arguments.add_model(parser)
        arguments.add_feeds(parser, missing="all are needed")
        arguments.add_providers(parser)
        arguments.add_level(parser)
        arguments.add_placement(parser)
        parser.add_argument(
            "--repeat",
            type=arguments.count,
            default=0,
            metavar="N",
            help="run N more times after the first, and show the best of them",
        )
        parser.add_argument(
            "--output",
            metavar="FILE.npz|DIR",
            help="save the outputs in one archive, or as one .npy file each in a folder",
        )
        arguments.add_json(parser)

    def run(self, args: argparse.Namespace) -> int:
        from ep_tools.running import RunRequest, run_model

        request = RunRequest(
            session=dataclasses.replace(
                arguments.session_request(args), placement=arguments.placement_request(args)
            ),
            feeds=arguments.feed_request(args, fill=False),
            repeat=args.repeat,
            output=args.output,
        )
        return run_model(request, as_json=args.json)
