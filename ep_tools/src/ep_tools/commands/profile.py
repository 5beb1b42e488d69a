"""`ep profile`: the arguments of the command; the work is in `ep_tools.profile_model`."""

from __future__ import annotations

import argparse
from dataclasses import replace

from ep_tools.commands import arguments

__all__ = ["ProfileCommand"]

_EPILOG = f"""\
{arguments.INPUT_HELP}
  What --dim and --shape give is fixed before the model is placed, so that predictions are for it.

the trace:
  A JSON file for ui.perfetto.dev or chrome://tracing: making the session with every graph pass,
  placement and the compilation of every partition; then each run with its copies, partitions, waits
  and, where the provider tells, nodes. The warm-up runs are in it, but not in the tables.
  Timing costs time: compare shares, and take the time of a run from ep bench.

examples:
  ep profile model.onnx
  ep profile model.onnx --providers simulator,cpu --runs 20 --out trace.json
  ep profile model.onnx --html page.html             the page of ep explain, with these times
  ep profile model.onnx --json | jq '.operators[0]'
"""


class ProfileCommand:
    """Shows where the time of a run goes."""

    name = "profile"
    help = "show where the time goes: nodes, operators, partitions, copies; and write a trace"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        arguments.add_model(parser)
        arguments.add_feeds(parser, missing="random if it isn't named")
        arguments.add_providers(parser)
        arguments.add_level(parser)
        arguments.add_placement(parser)
        parser.add_argument(
            "--runs",
            type=arguments.positive,
            default=10,
            metavar="N",
            help="runs that count (default 10)",
        )
        parser.add_argument(
            "--warmup",
            type=arguments.count,
            default=2,
            metavar="N",
            help="runs before them (default 2)",
        )
        parser.add_argument(
            "--out",
            metavar="FILE",
            help="where the trace goes (default: a new ep_profile_*.json in this folder)",
        )
        parser.add_argument(
            "--top",
            type=arguments.positive,
            default=10,
            metavar="N",
            help="rows of each table (default 10)",
        )
        parser.add_argument(
            "--html",
            metavar="FILE",
            help="the page of ep explain, with the measured times beside the predicted ones",
        )
        arguments.add_json(parser)

    def run(self, args: argparse.Namespace) -> int:
        from ep_tools.profile_model import ProfileRequest, profile_model

        request = ProfileRequest(
            session=replace(
                arguments.session_request(args), placement=arguments.placement_request(args)
            ),
            feeds=arguments.feed_request(args, fill=True),
            runs=args.runs,
            warmup=args.warmup,
            out=args.out,
            top=args.top,
            html=args.html,
        )
        return profile_model(request, as_json=args.json)
