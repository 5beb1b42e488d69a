"""Lists of providers to compare, as they are written on the command line, and sessions over them.

`openvino,cpu` names providers in order of preference. Behind a colon may follow how nodes are
placed: `greedy`, `cost`, or `tune`, which measures; `openvino,cpu:tune`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from ep_core import CertificatePolicy, InferenceSession, SessionOptions

__all__ = ["EVERY_MIX", "Mix", "parse_mix"]

PLACEMENTS = ("auto", "greedy", "cost", "tune")


@dataclass(frozen=True)
class Mix:
    """Providers in order of preference, and how nodes are placed on them."""

    providers: tuple[str, ...]
    placement: str = "auto"

    def __str__(self) -> str:
        suffix = "" if self.placement == "auto" else f":{self.placement}"
        return ",".join(self.providers) + suffix

    def open(
        self,
        model: Path,
        lengths: dict[str, int],
        *,
        threads: int,
        costs: str,
        profile: str = "",
    ) -> InferenceSession:
        """Open a session.

        Args:
            model: the ONNX file.
            lengths: of dimensions that the model leaves open.
            threads: in an operator.
            costs: folder of measured costs.
            profile: where the trace of a profiled session goes, nothing for none.
        """
        options = SessionOptions()
        # Not each of the providers that are compared has a certificate for each device.
        options.certificate_policy = CertificatePolicy.OFF
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        for name, length in lengths.items():
            options.add_free_dimension_override_by_name(name, length)
        if self.placement == "tune":
            options.tune, options.cost_cache = True, costs
        else:
            options.placement_strategy = self.placement
        if profile:
            options.enable_profiling, options.profile_file_prefix = True, profile
        return InferenceSession(model, options, providers=list(self.providers))


def parse_mix(text: str) -> Mix:
    """Read a mix from the command line."""
    names, _, placement = text.partition(":")
    mix = Mix(tuple(names.split(",")), placement or "auto")
    if mix.placement not in PLACEMENTS or not all(mix.providers):
        raise argparse.ArgumentTypeError(f"not A,B or A,B:{'|'.join(PLACEMENTS)}: {text!r}")
    return mix


EVERY_MIX = tuple(
    Mix(providers, placement)
    for providers in (("openvino", "cpu"), ("opencl", "cpu"), ("opencl", "openvino", "cpu"))
    for placement in ("greedy", "cost", "tune")
)
