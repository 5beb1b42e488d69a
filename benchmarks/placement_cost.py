"""Greedy beside placement by declared and by measured costs: real models on two devices.

    python benchmarks/run.py placement

The devices are the CPU and a simulator, which takes the same time for every kernel and for every
copy, and declares it. What numpy needs beyond that isn't declared, and what the CPU declares is
coarse: by declared costs, predictions are there to compare placements, not to foretell times. The
three placements take turns.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ep_core import InferenceSession, PlacementReport, SessionOptions
from ep_core.certificates.grants import CertificatePolicy
from pretrained import fetch
from pretrained.samples import sample_feeds
from table import print_table

__all__ = ["main"]

ROUNDS = 5
NAMES = (
    "ocr-detect",
    "ocr-recognise",
    "ocr-orientation",
    "picture-classifier",
    "file-type",
    "speech",
    "pitch",
    "sentences",
    "arabic-marks",
    "arabic-marks-bilstm",
)
STRATEGIES = ("greedy", "cost", "tuned")


@dataclass(frozen=True)
class Device:
    """A simulated device: microseconds that kernels and copies take."""

    name: str
    kernel: int
    copy: int

    def provider(self) -> tuple[str, dict[str, Any]]:
        """The simulator as this device, which declares the same as it does."""
        speed = f"1e11,2e10,{self.kernel * 1e-6},1e-4,{self.copy * 1e-6},1e10"
        options = {"kernel_latency_us": self.kernel, "copy_latency_us": self.copy, "speed": speed}
        return "simulator", options


DEVICES = (
    Device("fast and near", kernel=20, copy=20),
    Device("fast and far", kernel=20, copy=2000),
    Device("slow and near", kernel=1000, copy=20),
)


def open_session(
    name: str, device: Device, strategy: str, feeds: dict[str, Any], costs: str
) -> InferenceSession:
    """The model, with the lengths of its feeds, on the device and the CPU.

    Measured costs are kept in the folder `costs`. Certificates don't count, so that they don't
    matter to the table.
    """
    options = SessionOptions()
    options.certificate_policy = CertificatePolicy.OFF
    with InferenceSession(fetch(name), options, providers=["cpu"]) as plain:
        pairs = {
            (dim, length)
            for arg in plain.get_inputs()
            for dim, length in zip(arg.shape, feeds[arg.name].shape, strict=True)
        }
    names = [dim for dim, _ in pairs]
    for dim, length in pairs:
        if isinstance(dim, str) and names.count(dim) == 1:  # some give all dimensions one name
            options.add_free_dimension_override_by_name(dim, length)
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if strategy == "tuned":
        options.tune, options.cost_cache = True, costs
    else:
        options.placement_strategy = strategy
    return InferenceSession(fetch(name), options, providers=[device.provider(), "cpu"])


def seconds_of_run(session: InferenceSession, feeds: dict[str, Any]) -> float:
    """Time one run."""
    begin = time.perf_counter()
    session.run(None, feeds)
    return time.perf_counter() - begin


def compare(name: str, device: Device, costs: str) -> tuple[str, ...]:
    """Measure one model and return a row of the table."""
    feeds = sample_feeds(name)
    sessions = [open_session(name, device, strategy, feeds, costs) for strategy in STRATEGIES]
    try:
        for session in sessions:
            session.run(None, feeds)  # warms up, isn't timed
        rounds = [[seconds_of_run(session, feeds) for session in sessions] for _ in range(ROUNDS)]
        reports = [session.get_placement() for session in sessions]
    finally:
        for session in sessions:
            session.close()
    measured = [statistics.median(side) * 1e3 for side in zip(*rounds, strict=True)]
    return (
        f"{name}, {device.name}",
        _beside(on_device(report) for report in reports),
        _beside(len(report.partitions) for report in reports),
        _beside(len(report.copies) for report in reports),
        _beside(kibibytes(report) for report in reports),
        _beside(f"{seconds * 1e3:.1f}" for seconds in predicted(reports)),
        _beside(f"{milliseconds:.1f}" for milliseconds in measured),
    )


def predicted(reports: Sequence[PlacementReport]) -> tuple[float, ...]:
    """Seconds of greedy and of what was placed by cost, both by declared costs; and as measured."""
    _, cost, tuned = reports
    return cost.greedy_seconds or 0.0, cost.predicted_seconds or 0.0, tuned.predicted_seconds or 0.0


def on_device(report: PlacementReport) -> int:
    """Nodes that the simulator runs."""
    return sum(p.provider == "simulator" for nodes in report.nodes.values() for p in nodes)


def kibibytes(report: PlacementReport) -> str:
    """What copies move, as far as shapes tell."""
    known = sum(copy.nbytes or 0 for copy in report.copies)
    more = "+" if any(copy.nbytes is None for copy in report.copies) else ""
    return f"{known / 1024:.0f}{more}"


def _beside(items: Any) -> str:
    return " > ".join(map(str, items))


def main() -> None:
    """Measure and print."""
    head = ("nodes on it", "partitions", "copies", "KiB copied", "predicted, ms", "measured, ms")
    with tempfile.TemporaryDirectory() as costs:
        print_table(
            f"{len(NAMES)} models on {len(DEVICES)} simulated devices beside the CPU: greedy > by "
            f"declared costs > by measured costs; times are medians of {ROUNDS} runs; + is where a "
            "shape isn't static",
            ("model and device", *head),
            [compare(name, device, costs) for device in DEVICES for name in NAMES],
        )
