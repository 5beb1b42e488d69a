"""Arguments that several commands share, so that they are called and explained the same."""

from __future__ import annotations

import argparse

from ep_tools.inputs import (
    parse_dim,
    parse_input,
    parse_memory_limit,
    parse_pin,
    parse_provider_option,
    parse_shape,
)
from ep_tools.requests import FeedRequest, PlacementRequest, SessionRequest, Tolerance

__all__ = [
    "INPUT_HELP",
    "add_dims",
    "add_feeds",
    "add_json",
    "add_level",
    "add_model",
    "add_placement",
    "add_providers",
    "add_tolerance",
    "count",
    "feed_request",
    "placement_request",
    "positive",
    "session_request",
    "tolerance",
]

INPUT_HELP = """\
inputs:
  x=data.npy         an array in numpy's format, fed as it is
  x=data.npz:key     one array of an archive; the key may be left out if it holds only one
  x=photo.png        an image, resized to the input's height and width, in RGB order. The layout is
                     told by the dimension that is 1, 3 or 4 (NCHW or NHWC); float inputs get
                     0..1, uint8 inputs 0..255; a batch gets the same image in every place
  x=random[:SEED]    values by type and shape: floats in 0..1, 8-bit integers over their range,
                     other integers 0 or 1; the seed is 0 if it isn't given
  x=16000            one number, true, false or "text" fills the whole input, whatever its shape
  x=1,2,3            a list; [[1, 2], [3, 4]] for more dimensions. Leading dimensions of 1 are
                     added if the input has more. Texts stand in double quotes: 'x="a","b"'
  Dimensions that the model leaves open are 1 for random values and single numbers, and the image's
  own size for images, unless --dim or --shape says otherwise. A dimension without a name is called
  after input and axis: x.2. An input of unknown rank needs --shape x=2,3.
"""


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add MODEL."""
    parser.add_argument("model", metavar="MODEL", help="path of an .onnx file")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def add_feeds(parser: argparse.ArgumentParser, *, missing: str) -> None:
    """Add --input, --dim and --shape; `missing` says what becomes of inputs that aren't named."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        type=parse_input,
        metavar="NAME=VALUE",
        dest="inputs",
        help=f"what to feed to one input of the model; once for each (see below); {missing}",
    )
    add_dims(parser)
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        type=parse_shape,
        metavar="NAME=INT,INT",
        dest="shapes",
        help="shape of an input for random values and single numbers",
    )


def add_dims(parser: argparse.ArgumentParser) -> None:
    """Add --dim."""
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        type=parse_dim,
        metavar="NAME=INT",
        dest="dims",
        help="length of a dimension that the model leaves open; one without a name is called "
        "after input and axis: x.2",
    )


def add_providers(parser: argparse.ArgumentParser) -> None:
    """Add --providers, --provider-option and --certificate-policy."""
    parser.add_argument(
        "--providers",
        type=_names,
        metavar="A,B",
        help="providers to use, in order of preference (default: all that are automatic)",
    )
    parser.add_argument(
        "--provider-option",
        action="append",
        default=[],
        type=parse_provider_option,
        metavar="A.KEY=VALUE",
        dest="provider_options",
        help="an option of one of the --providers",
    )
    parser.add_argument(
        "--certificate-policy",
        choices=("enforce", "warn", "off"),
        help="what becomes of nodes that no certificate grants: other providers get them, they run "
        "with a warning, or they run (default: the variable EP_CERTIFICATE_POLICY, else enforce)",
    )


def add_level(parser: argparse.ArgumentParser) -> None:
    """Add --level."""
    parser.add_argument(
        "--level",
        type=int,
        choices=(0, 1, 2, 3, 99),
        default=99,
        help="graph optimisation: 0 none, 1 basic, 2 extended, 3 layout, 99 all (default)",
    )


def add_placement(parser: argparse.ArgumentParser) -> None:
    """Add --strategy, --pin, --max-..., --memory-limit, --tune and --cost-cache."""
    group = parser.add_argument_group("where nodes may run")
    group.add_argument(
        "--strategy",
        choices=("auto", "greedy", "cost"),
        default="auto",
        help="greedy: the first provider that can; cost: the least predicted time, with assumed "
        "speeds where none are declared; auto: cost if the providers declare enough (default)",
    )
    group.add_argument(
        "--pin",
        action="append",
        default=[],
        type=parse_pin,
        metavar="PATTERN=PROVIDER",
        dest="pins",
        help="nodes that have to run there: a name with * and ?, op:TYPE, or between:VALUE->VALUE",
    )
    group.add_argument(
        "--max-copies", type=count, metavar="N", help="copies between memories, for each scope"
    )
    group.add_argument(
        "--max-partitions", type=count, metavar="N", help="partitions, for each scope"
    )
    group.add_argument(
        "--memory-limit",
        action="append",
        default=[],
        type=parse_memory_limit,
        metavar="PROVIDER=SIZE",
        dest="memory_limits",
        help="memory of a provider's device that the model may take, such as npu=512MiB (default: "
        "what the device has)",
    )
    group.add_argument(
        "--tune",
        action="store_true",
        help="measure what nodes, copies and placements take, place by that, and remember it",
    )
    group.add_argument(
        "--cost-cache",
        metavar="DIR",
        help="where measured costs are remembered (default: the user's cache); without --tune they "
        "are only read, and only from this folder",
    )


def add_tolerance(parser: argparse.ArgumentParser) -> None:
    """Add --rtol and --atol."""
    defaults = Tolerance()
    parser.add_argument(
        "--rtol",
        type=_bound,
        default=defaults.rtol,
        metavar="R",
        help=f"relative tolerance, for floats only (default {defaults.rtol:g})",
    )
    parser.add_argument(
        "--atol",
        type=_bound,
        default=defaults.atol,
        metavar="A",
        help=f"absolute tolerance (default {defaults.atol:g})",
    )


def session_request(args: argparse.Namespace) -> SessionRequest:
    """Return what `add_model`, `add_providers` and `add_level` have read."""
    return SessionRequest(
        args.model,
        args.providers,
        args.provider_options,
        args.level,
        certificate_policy=args.certificate_policy,
    )


def placement_request(args: argparse.Namespace) -> PlacementRequest:
    """Return what `add_placement` has read."""
    return PlacementRequest(
        strategy=args.strategy,
        pins=args.pins,
        max_copies=args.max_copies,
        max_partitions=args.max_partitions,
        tune=args.tune,
        cost_cache=args.cost_cache,
        memory_limits=args.memory_limits,
    )


def feed_request(args: argparse.Namespace, *, fill: bool) -> FeedRequest:
    """Return what `add_feeds` has read; with `fill`, inputs that aren't named are random."""
    return FeedRequest(args.inputs, args.dims, args.shapes, fill)


def tolerance(args: argparse.Namespace) -> Tolerance:
    """Return what `add_tolerance` has read."""
    return Tolerance(args.rtol, args.atol)


def count(text: str) -> int:
    """Read a whole number of at least 0.

    Raises:
        argparse.ArgumentTypeError: it isn't one.
    """
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"'{text}' isn't a whole number of at least 0")
    return int(text)


def positive(text: str) -> int:
    """Read a whole number of at least 1.

    Raises:
        argparse.ArgumentTypeError: it isn't one.
    """
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' isn't a whole number of at least 1")
    return int(text)


def _bound(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' isn't a number of at least 0, such as 1e-3")
    return value


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"'{text}' isn't a list of names, such as openvino,cpu")
    return names
