"""`ep run`: the arguments of the command; the work is in `ep_tools.running`."""

from __future__ import annotations

import argparse

from ep_tools.inputs import parse_dim, parse_input, parse_provider_option

__all__ = ["RunCommand"]

_EPILOG = """\
inputs:
  x=data.npy         an array in numpy's format, fed as it is
  x=data.npz:key     one array of an archive; the key may be left out if it holds only one
  x=photo.png        an image, resized to the input's height and width, in RGB order. The layout is
                     told by the dimension that is 1, 3 or 4 (NCHW or NHWC); float inputs get
                     0..1, uint8 inputs 0..255; a batch gets the same image in every place
  x=random[:SEED]    values by type and shape: floats in 0..1, 8-bit integers over their range,
                     other integers 0 or 1; the seed is 0 if it isn't given
  Dimensions that the model leaves open are 1 for random inputs, and the image's own size for
  images, unless --dim says otherwise. One without a name is called after input and axis: x.2.

examples:
  ep run model.onnx --input x=random
  ep run model.onnx --input image=cat.jpg --providers cpu --repeat 10
  ep run model.onnx --input ids=tokens.npy --input mask=random --dim batch=4 --json
"""


class RunCommand:
    """Runs a model once or more, and shows outputs, placement and times."""

    name = "run"
    help = "run a model and show its outputs, where it ran, and how long it took"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        parser.add_argument("model", metavar="MODEL", help="path of an .onnx file")
        parser.add_argument(
            "--input",
            action="append",
            default=[],
            type=parse_input,
            metavar="NAME=VALUE",
            dest="inputs",
            help="what to feed to one input of the model; once for each (see below)",
        )
        parser.add_argument(
            "--dim",
            action="append",
            default=[],
            type=parse_dim,
            metavar="NAME=INT",
            dest="dims",
            help="length of a dimension that the model leaves open",
        )
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
            "--level",
            type=int,
            choices=(0, 1, 2, 99),
            default=99,
            help="graph optimisation: 0 none, 1 basic, 2 extended, 99 all (default)",
        )
        parser.add_argument(
            "--repeat",
            type=_count,
            default=0,
            metavar="N",
            help="run N more times after the first, and show the best of them",
        )
        parser.add_argument(
            "--output",
            metavar="FILE.npz|DIR",
            help="save the outputs in one archive, or as one .npy file each in a folder",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def run(self, args: argparse.Namespace) -> int:
        from ep_tools.running import RunRequest, run_model

        request = RunRequest(
            model=args.model,
            inputs=args.inputs,
            dims=args.dims,
            providers=args.providers,
            provider_options=args.provider_options,
            level=args.level,
            repeat=args.repeat,
            output=args.output,
        )
        return run_model(request, as_json=args.json)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"'{text}' isn't a list of names, such as openvino,cpu")
    return names


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"'{text}' isn't a whole number of at least 0")
    return int(text)
