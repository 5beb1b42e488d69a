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
  ep explain model.onnx --providers simulator,cpu --all         every node
  ep explain model.onnx --providers simulator,cpu --op 'Conv*'  some nodes
  ep explain model.onnx --dim batch=1                           sizes of copies known
  ep explain model.onnx --html page.html                        a page that any browser opens
  ep explain model.onnx --html page.html --profile trace.json   with the times of ep profile
  ep explain model.onnx --dot - | dot -Tsvg > model.svg         a picture by Graphviz
  ep explain model.onnx --save-partitions parts                 each partition as a model
  ep explain model.onnx --what-if npu.json                      a device that isn't here
  ep explain model.onnx --providers simulator,cpu --strategy cost --pin 'op:Softmax=cpu'
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
        _add_what_if(parser)
        _add_profile(parser)
        arguments.add_placement(parser)
        _add_choice(parser)
        _add_forms(parser)

    def run(self, args: argparse.Namespace) -> int:
        from ep_tools.explain_text import NodeFilter
        from ep_tools.explaining import ExplainWishes, explain_model

        request = replace(
            arguments.session_request(args),
            free_dimensions=args.dims,
            placement=arguments.placement_request(args),
        )
        wishes = ExplainWishes(
            every_node=args.every_node,
            nodes=NodeFilter(args.node, args.op_type, args.provider),
            json=args.json,
            dot=args.dot,
            html=args.html,
            partitions=args.partitions,
            force=args.force,
            what_if=args.what_if,
            profile=args.profile,
        )
        return explain_model(request, wishes)


def _add_what_if(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="CERTIFICATE",
        help="place as if the provider of this certificate file were here, in front of the others "
        "unless --providers names it; nothing is compiled; once for each provider",
    )


def _add_profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile",
        metavar="TRACE",
        help="a trace that ep profile has written, or a session of the same model, providers, "
        "lengths and options: what was measured stands beside what is predicted",
    )


def _add_choice(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to show")
    group.add_argument(
        "--all",
        action="store_true",
        dest="every_node",
        help="show everything, each node on a line of its own",
    )
    group.add_argument(
        "--node", metavar="PATTERN", help="only nodes of such a name, with * and ? (also in --json)"
    )
    group.add_argument(
        "--op", metavar="PATTERN", dest="op_type", help="only nodes of such an operator"
    )
    group.add_argument("--provider", metavar="NAME", help="only nodes that this provider runs")


def _add_forms(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to write")
    group.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="one JSON document; to stdout, in place of the lines, without a FILE or with -",
    )
    group.add_argument("--dot", metavar="FILE", help="text for Graphviz; - is stdout")
    group.add_argument(
        "--html", metavar="FILE", help="a page for a browser, which needs nothing else"
    )
    group.add_argument(
        "--save-partitions",
        metavar="DIR",
        dest="partitions",
        help="each partition as a model of its own, in a folder",
    )
    group.add_argument(
        "--force", action="store_true", help="let --save-partitions write over files of its names"
    )
