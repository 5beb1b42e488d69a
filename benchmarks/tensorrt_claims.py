"""Writes docs/tensorrt-claims.md: what the TensorRT provider takes, without a GPU.

Models are the pretrained ones of the examples, after the core's passes; engines aren't built. Node
cases are those of ONNX, of which all nodes have to be taken. The claims of a file are worked out in
a process of their own each, as a parser that crashes would end this one.

    python benchmarks/tensorrt_claims.py
"""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from pretrained.fetch import fetch
from pretrained.manifest import MODELS

TARGET = Path(__file__).resolve().parents[1] / "docs" / "tensorrt-claims.md"
GPU = "sm_89"

HEADER = """\
# What TensorRT takes

Claims of `ep-tensorrt` for {gpu}, by {library}, on a machine without a GPU: what its parser accepts
and the provider doesn't refuse. Nothing was run. Written by `benchmarks/tensorrt_claims.py`.

## Models

After the core's basic graph passes; [real models](real-models.md) tells which they are. A partition
is what is claimed and connected; placement may make more of one, to keep the graph free of cycles.

| model | nodes | claimed | partitions | most frequent refusals |
|---|---|---|---|---|
{models}

## ONNX's node cases

Of {cases} node cases of onnx {onnx}, all nodes of {taken} are claimed, with
`trt_min_subgraph_size` 1. The first reasons for the others, with the numbers of cases:

| reason | cases |
|---|---|
{reasons}
"""


def main() -> None:
    """Write the page."""
    if sys.argv[1:2] == ["--cases"]:
        print(json.dumps(_cases()))
    elif sys.argv[1:2] == ["--model"]:
        print(json.dumps(_model(sys.argv[2])))
    else:
        _write()


def _write() -> None:
    from importlib.metadata import version

    rows = []
    for name in MODELS:
        told = _asked("--model", str(fetch(name)))
        if told is None:
            rows.append(f"| {name} | the parser ended the process | | | |")
            continue
        refused = "; ".join(f"{number} {word}" for word, number in told["refused"])
        rows.append(
            f"| {name} | {told['nodes']} | {told['claimed']} | {told['partitions']} | {refused} |"
        )
    cases = _asked("--cases")
    if cases is None:
        sys.exit("the parser ended the process on a node case")
    reasons = [f"| {reason} | {number} |" for reason, number in cases["reasons"]]
    text = HEADER.format(
        gpu=GPU,
        library=cases["library"],
        models="\n".join(rows),
        cases=cases["cases"],
        onnx=version("onnx"),
        taken=cases["taken"],
        reasons="\n".join(reasons),
    )
    TARGET.write_text(text, encoding="utf-8")


def _asked(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, __file__, *arguments], stdout=subprocess.PIPE, check=False
    )
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def _open(**options: Any) -> Any:
    os.environ["EP_TENSORRT_TARGET"] = GPU
    from ep_core.discovery.options import parse_options
    from ep_tensorrt.factory import make_factory

    factory = make_factory()
    (device,) = factory.devices()
    return factory.create(device, parse_options(factory.info, options))


def _model(path: str) -> dict[str, Any]:
    from ep_core.loading.load import load_model
    from ep_tensorrt.claims import regions

    provider = _open()
    graph = load_model(_simplified(path)).graph
    answers = provider.get_capability(graph).nodes
    taken = [place for place, answer in enumerate(answers) if answer.supported]
    refused = collections.Counter(
        node.op_type
        for node, answer in zip(graph.nodes, answers, strict=True)
        if not answer.supported
    )
    return {
        "nodes": len(answers),
        "claimed": len(taken),
        "partitions": len(list(regions(graph, taken))),
        "refused": refused.most_common(4),
    }


def _simplified(path: str) -> bytes:
    """The model after the core's basic passes, which fuse nothing into operators of others."""
    from ep_core import GraphOptimizationLevel, InferenceSession, SessionOptions
    from ep_core.certificates.grants import CertificatePolicy

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model.onnx"
        options = SessionOptions()
        options.certificate_policy = CertificatePolicy.OFF
        options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(target)
        InferenceSession(path, options, providers=["cpu"]).close()
        return target.read_bytes()


def _cases() -> dict[str, Any]:
    from onnx.backend.test.case.node import collect_testcases

    from ep_core.errors import EpError
    from ep_core.loading.load import load_model

    provider = _open(trt_min_subgraph_size=1)
    reasons: collections.Counter[str] = collections.Counter()
    taken = 0
    cases = collect_testcases(None)
    for case in cases:
        assert case.model is not None
        try:
            graph = load_model(case.model).graph
        except EpError:
            reasons["the core refuses the model"] += 1
            continue
        answers = provider.get_capability(graph).nodes
        refused = [answer.reason for answer in answers if not answer.supported]
        taken += not refused
        if refused:
            reasons[_kind(refused[0])] += 1
    return {
        "library": provider.device.fingerprint.partition("; ")[2],
        "cases": len(cases),
        "taken": taken,
        "reasons": reasons.most_common(),
    }


def _kind(reason: str) -> str:
    """A reason without names."""
    kinds = {
        "has no operators of domain": "an operator of another domain than ONNX's",
        "has bodies": "a node with bodies, which the core runs",
        "isn't known": "an unknown type or rank",
        "takes tensors only": "sequences and optionals",
        "doesn't compute as ONNX says": "an element type that TensorRT lacks",
        "has no elements": "tensors without elements",
        "gives a shape": "a shape that comes as an input",
        "in this place": "the parser refuses the nodes together",
        "can't parse it": "the parser refuses the node",
        "makes": "the parser makes another type or rank of an output",
    }
    return next((kind for words, kind in kinds.items() if words in reason), "the node's form")


if __name__ == "__main__":
    main()
