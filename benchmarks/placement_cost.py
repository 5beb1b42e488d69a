"""Greedy beside cost-based placement: real models on a CPU and a simulated device.

    python benchmarks/run.py placement

The simulator takes the same time for every kernel and for every copy, and declares it. What numpy
needs beyond that isn't declared, nor is what the CPU needs, whose speed is assumed: predictions
are there to compare placements, not to foretell times. The two placements take turns.
"""

from __future__ import annotations

import statistics
import time
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
STRATEGIES = ("greedy", "cost")


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
    name: str, device: Device, strategy: str, feeds: dict[str, Any]
) -> InferenceSession:
    """The model, with the lengths of its feeds, on the device and the CPU.

    Certificates don't count, so that they don't matter to the table.
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
    options.placement_strategy = strategy
    return InferenceSession(fetch(name), options, providers=[device.provider(), "cpu"])


def seconds_of_run(session: InferenceSession, feeds: dict[str, Any]) -> float:
    """Time one run."""
    begin = time.perf_counter()
    session.run(None, feeds)
    return time.perf_counter() - begin


def compare(name: str, device: Device) -> tuple[str, ...]:
    """Measure one model and return a row of the table."""
    feeds = sample_feeds(name)
    sessions = [open_session(name, device, strategy, feeds) for strategy in STRATEGIES]
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
        _both(on_device(report) for report in reports),
        _both(len(report.partitions) for report in reports),
        _both(len(report.copies) for report in reports),
        _both(kibibytes(report) for report in reports),
        _both(f"{seconds * 1e3:.1f}" for seconds in predicted(reports[-1])),
        _both(f"{milliseconds:.1f}" for milliseconds in measured),
    )


def predicted(report: PlacementReport) -> tuple[float, float]:
    """Seconds of greedy and of the cost-based placement, as the latter's report has both."""
    return report.greedy_seconds or 0.0, report.predicted_seconds or 0.0


def on_device(report: PlacementReport) -> int:
    """Nodes that the simulator runs."""
    return sum(p.provider == "simulator" for nodes in report.nodes.values() for p in nodes)


def kibibytes(report: PlacementReport) -> str:
    """What copies move, as far as shapes tell."""
    known = sum(copy.nbytes or 0 for copy in report.copies)
    more = "+" if any(copy.nbytes is None for copy in report.copies) else ""
    return f"{known / 1024:.0f}{more}"


def _both(pair: Any) -> str:
    return " > ".join(map(str, pair))


def main() -> None:
    """Measure and print."""
    head = ("nodes on it", "partitions", "copies", "KiB copied", "predicted, ms", "measured, ms")
    print_table(
        f"{len(NAMES)} models on {len(DEVICES)} simulated devices beside the CPU: greedy > cost; "
        f"times are medians of {ROUNDS} runs; + is where a shape isn't static",
        ("model and device", *head),
        [compare(name, device) for device in DEVICES for name in NAMES],
    )
