"""Artifacts: what is exported comes back and computes the same; nothing else gets to OpenVINO."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from openvino_harness import graph_of, open_provider, whole

from ep_core.errors import CompileError
from ep_core.graph import Initializer, Subgraph
from ep_openvino.artifact import pack, unpack
from ep_openvino.provider import OpenVinoProvider


def product(side: int = 512, seed: int = 0) -> Subgraph:
    """A product with a large weight, in which 16-bit floats would show."""
    graph = graph_of(
        f"g (float[4,{side}] x, float[{side},{side}] w, float[1] unused) => (float[4,{side}] y)"
        " { y = MatMul (x, w) }"
    )
    weight = np.random.default_rng(seed).standard_normal((side, side)).astype(np.float32)
    constants = {"w": Initializer.from_array("w", weight)}
    return whole(graph.replace(inputs=graph.inputs[:1], initializers=constants))


def run(part: Any, x: Any) -> Any:
    outputs: list[Any] = [None]
    part.run([x], outputs)
    part.close()
    return outputs[0]


def test_what_is_imported_computes_in_32_bits_too(provider: OpenVinoProvider) -> None:
    subgraph = product()
    x = np.random.default_rng(1).standard_normal((4, 512)).astype(np.float32)
    part = provider.compile(subgraph)
    artifact = provider.export_partition(part)
    compiled = run(part, x)
    imported = run(provider.import_partition(subgraph, artifact), x)
    exact = x.astype(np.float64) @ subgraph.constants["w"].numpy()
    np.testing.assert_array_equal(imported, compiled)
    np.testing.assert_allclose(imported, exact, atol=1e-4)


def test_an_artifact_outlives_its_provider() -> None:
    subgraph = product(8)
    x = np.ones((4, 8), np.float32)
    first = open_provider()
    artifact = first.export_partition(first.compile(subgraph))
    first.close()
    second = open_provider()
    y = run(second.import_partition(subgraph, artifact), x)
    second.close()
    np.testing.assert_allclose(y, x @ subgraph.constants["w"].numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: (
            data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
        ),
        lambda data: b"\x7fELF" + data[4:],
        lambda data: data[200:],
    ],
    ids=["empty", "short", "cut", "longer", "a bit flipped", "another kind", "no header"],
)
def test_damaged_artifacts_never_reach_openvino(
    provider: OpenVinoProvider, monkeypatch: pytest.MonkeyPatch, damage: Any
) -> None:
    subgraph = product(8)
    artifact = provider.export_partition(provider.compile(subgraph))

    class NoCore:
        def import_model(self, *_: Any) -> None:
            raise AssertionError("OpenVINO was given a damaged artifact")

    monkeypatch.setattr(provider, "_core", NoCore())
    with pytest.raises(CompileError, match="artifact"):
        provider.import_partition(subgraph, damage(artifact))


def test_an_artifact_is_of_one_openvino_and_of_one_boundary() -> None:
    (small, large) = (product(8), product(16))
    artifact = pack(b"blob", small, "2026.4.0-1")
    assert bytes(unpack(artifact, small, "2026.4.0-1")) == b"blob"
    with pytest.raises(CompileError, match=r"another OpenVINO.*2026\.5.*2026\.4"):
        unpack(artifact, small, "2026.5.0-1")
    with pytest.raises(CompileError, match="of another subgraph"):
        unpack(artifact, large, "2026.4.0-1")


def test_what_is_closed_exports_nothing(provider: OpenVinoProvider) -> None:
    part = provider.compile(product(8))
    part.close()
    with pytest.raises(CompileError, match="closed"):
        provider.export_partition(part)


def test_a_target_of_several_devices_exports_nothing() -> None:
    provider = open_provider(target="HETERO:CPU")
    part = provider.compile(product(8))
    with pytest.raises(CompileError, match="exports no models of HETERO:CPU"):
        provider.export_partition(part)
    np.testing.assert_allclose(
        run(part, np.ones((4, 8), np.float32)),
        np.ones((4, 8)) @ product(8).constants["w"].numpy(),
        rtol=1e-5,
        atol=1e-6,
    )
    provider.close()
