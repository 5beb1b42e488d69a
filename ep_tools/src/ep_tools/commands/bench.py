"""`ep bench`: the arguments of the command; the work is in `ep_tools.measuring`."""

from __future__ import annotations

import argparse
import dataclasses
import time

from ep_tools.commands import arguments
from ep_tools.sides import ONNXRUNTIME

__all__ = ["BenchCommand"]

_EPILOG = f"""\
what is measured:
  import     loading the modules, once per process
  load       making the session: reading, optimising, placing, compiling
  first run  apart, because much is done on demand
  warm-up    as many runs as --warmup says, not counted
  runs       each by the wall clock, for --duration seconds or --runs times
  With --vs, both sides take turns in the same process, so that a machine that gets slower does so
  for both. The ratio is that of the medians; its spread is that of the rounds (10% to 90%).

threads:
  --intra-op-num-threads goes to every provider that has an option of that name, and to ONNX
  Runtime. numpy's matrix products take theirs from OPENBLAS_NUM_THREADS and the like; ep sets
  these too, unless they are set already.

{arguments.INPUT_HELP}
examples:
  ep bench model.onnx
  ep bench model.onnx --providers simulator,cpu --duration 10
  ep bench model.onnx --vs onnxruntime --intra-op-num-threads 1
  ep bench model.onnx --threads 4 --json

exit codes:
  0 done, 1 an error (which stderr tells), or outputs of the two sides that differ
"""


class BenchCommand:
    """Measures how long a model takes to load and run."""

    name = "bench"
    help = "measure how long a model takes to load and to run, also beside ONNX Runtime"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        arguments.add_model(parser)
        arguments.add_feeds(parser, missing="random if it isn't named")
        arguments.add_providers(parser)
        arguments.add_level(parser)
        arguments.add_placement(parser)
        length = parser.add_mutually_exclusive_group()
        length.add_argument(
            "--duration",
            type=_seconds,
            default=3.0,
            metavar="S",
            help="measure for so many seconds (default 3)",
        )
        length.add_argument(
            "--runs", type=arguments.positive, metavar="N", help="measure N runs of each thread"
        )
        parser.add_argument(
            "--warmup",
            type=arguments.count,
            default=3,
            metavar="N",
            help="runs after the first that aren't counted (default 3)",
        )
        parser.add_argument(
            "--threads",
            type=arguments.positive,
            default=1,
            metavar="K",
            help="K threads run the model at the same time (default 1)",
        )
        parser.add_argument(
            "--intra-op-num-threads",
            type=arguments.positive,
            metavar="K",
            help="threads inside one operator, on both sides (default: as many as processors)",
        )
        parser.add_argument(
            "--vs", choices=(ONNXRUNTIME,), help="measure this beside, and compare the outputs"
        )
        arguments.add_tolerance(parser)
        arguments.add_json(parser)

    def run(self, args: argparse.Namespace) -> int:
        from ep_core.cores import usable_cores
        from ep_tools.threads import limit_threads

        inner = args.intra_op_num_threads or usable_cores()
        # numpy's libraries read their settings once, when they are loaded.
        warnings = limit_threads(inner)
        start = time.perf_counter()
        from ep_tools.measuring import BenchRequest, measure

        request = BenchRequest(
            session=dataclasses.replace(
                arguments.session_request(args),
                intra_op_num_threads=inner,
                placement=arguments.placement_request(args),
            ),
            feeds=arguments.feed_request(args, fill=True),
            tolerance=arguments.tolerance(args),
            warmup=args.warmup,
            duration=args.duration,
            runs=args.runs,
            threads=args.threads,
            versus=args.vs is not None,
            import_seconds=time.perf_counter() - start,
            warnings=warnings,
        )
        return measure(request, as_json=args.json)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError(f"'{text}' isn't a number of seconds, such as 2.5")
    return value
