"""Artifacts: only what fits in every respect gets past the header. No library is needed."""

from __future__ import annotations

from typing import Any

import pytest
from tensorrt_harness import CHAIN, STATIC, graph_of, whole

from ep_core.errors import CompileError
from ep_tensorrt.artifact import pack, unpack
from ep_tensorrt.profiles import Range

MADE_BY = "sm_89; TensorRT-RTX 1.7"
RANGES = {"x": Range((1, 4), (2, 4), (8, 4))}
SUBGRAPH = whole(graph_of(CHAIN))
ARTIFACT = pack(b"an engine" * 9, RANGES, SUBGRAPH, MADE_BY)


def test_what_was_packed_comes_back() -> None:
    assert unpack(ARTIFACT, SUBGRAPH, MADE_BY) == (b"an engine" * 9, RANGES)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: b"", "too short"),
        (lambda data: data[:40], "too short"),
        (lambda data: data[:-1], "isn't whole"),
        (lambda data: data + b"\0", "isn't whole"),
        (lambda data: data[:-1] + b"\0", "digest differs"),
        (lambda data: data[:70] + b"?" + data[71:], "digest differs"),
        (lambda data: b"\x7fELF" + data[4:], "isn't one of"),
    ],
)
def test_damage_is_found(damage: Any, words: str) -> None:
    with pytest.raises(CompileError, match=words):
        unpack(damage(ARTIFACT), SUBGRAPH, MADE_BY)


def test_an_artifact_is_of_one_device_library_and_boundary() -> None:
    with pytest.raises(CompileError, match=r"another device.*sm_120.*sm_89"):
        unpack(ARTIFACT, SUBGRAPH, "sm_120; TensorRT-RTX 1.7")
    with pytest.raises(CompileError, match="another subgraph"):
        unpack(ARTIFACT, whole(graph_of(STATIC)), MADE_BY)
