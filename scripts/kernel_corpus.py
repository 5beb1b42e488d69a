"""The programs that the device kernels ask a compiler for: gone through, not run.

The kit's cases are compiled and run on a device that only notes which programs were wanted, as one
with a GPU would want them. No vendor's library is needed.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ep_compliance.cases.case import Case
from ep_compliance.cases.chains import chain_cases
from ep_compliance.cases.matrix import matrix_cases
from ep_compliance.cases.official import official_cases
from ep_core.contracts import API_VERSION, ProviderInfo
from ep_core.errors import EpError
from ep_core.graph import Graph, Subgraph
from ep_core.loading.load import load_model
from ep_core.types import DataType, DeviceInfo
from ep_sdk.device_kernels.options import OPTIONS

__all__ = ["Wanted", "wanted_programs"]

_TESTS_OF_SDK = Path(__file__).resolve().parents[1] / "ep_sdk" / "tests"


@dataclass(frozen=True, slots=True)
class Wanted:
    """One program, as `ep_sdk.device_kernels.contracts.KernelDevice.kernel` is asked for it."""

    file: str
    name: str
    defines: tuple[tuple[str, str], ...]
    head: str
    body: str


def wanted_programs() -> list[Wanted]:
    """Each once, in the order in which they were first wanted.

    Elementwise kernels are written for each expression and each way to broadcast; those of onnx's
    own cases have to do.
    """
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EP_CACHE_DIR"] = folder
        return list(dict.fromkeys(_all_wanted()))


def _all_wanted() -> Iterator[Wanted]:
    for case in itertools.chain(official_cases(), chain_cases()):
        yield from _wanted_by(case)
    for case in matrix_cases():
        yield from (item for item in _wanted_by(case) if item.file != "elementwise.cl")


def _wanted_by(case: Case) -> list[Wanted]:
    device, provider = _imagined()
    graph = load_model(case.model).graph
    claimed = [
        n for n, answer in enumerate(provider.get_capability(graph).nodes) if answer.supported
    ]
    if not claimed:
        return []
    subgraph = Subgraph.cut(graph, claimed, "claimed")
    try:
        partition = provider.compile(subgraph)
        _run(provider, partition, subgraph.graph, case.inputs)
    except (EpError, ValueError):
        # Values that the device made up don't fit together; what was wanted until then counts.
        pass
    return list(device.wanted)


def _run(provider: Any, partition: Any, graph: Graph, values: Mapping[str, Any]) -> None:
    """Run a partition whose inputs are the case's; else what depends on values isn't wanted."""
    inputs = []
    for item in graph.inputs:
        array = values.get(item.name)
        if not isinstance(array, np.ndarray):
            return
        buffer = provider.allocator.allocate(array.shape, DataType.from_numpy(array.dtype))
        provider.data_transfer.copy(array.copy(), buffer, None)
        inputs.append(buffer)
    partition.run(inputs, [None] * len(graph.outputs), provider.create_stream())


def _imagined() -> tuple[Any, Any]:
    """A device that notes what it is asked for, and its provider."""
    if str(_TESTS_OF_SDK) not in sys.path:
        sys.path.insert(0, str(_TESTS_OF_SDK))
    module = importlib.import_module("imagined_device")

    class Noting(module.Device):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(is_cpu=False)
            self.wanted: list[Wanted] = []

        def kernel(
            self,
            file: str,
            name: str,
            defines: Mapping[str, object] | None = None,
            *,
            head: str = "",
            body: str = "",
            keep: bool = True,
        ) -> Any:
            words = tuple((key, str(value)) for key, value in (defines or {}).items())
            self.wanted.append(Wanted(file, name, words, head, body))
            return super().kernel(file, name, defines, head=head, body=body, keep=keep)

    device = Noting()
    info = ProviderInfo("imagined", "1", API_VERSION, options=dict(OPTIONS))
    options = {name: spec.default for name, spec in OPTIONS.items()}
    place = DeviceInfo("imagined", "0", "gpu")
    return device, module.ImaginedProvider(info, place, options, device)
