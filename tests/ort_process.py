"""ONNX Runtime in a process of its own, because it dies of some valid models (empty axes)."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

import numpy as np
import onnxruntime


def _serve(connection: Connection) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    while (request := connection.recv()) is not None:
        model, names, runs = request
        answers: list[list[object] | None] = []
        try:
            session = onnxruntime.InferenceSession(model, options, providers)
        except Exception:  # noqa: BLE001 - an operator or a type that it doesn't have
            answers = [None] * len(runs)
        for feeds in runs[len(answers) :]:
            try:
                answers.append(session.run(names, feeds))
            except Exception:  # noqa: BLE001 - as above
                answers.append(None)
        connection.send(answers)


class OrtProcess:
    """Answers of ONNX Runtime, None for what it can't run."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, child = context.Pipe()
        self._process = context.Process(target=_serve, args=(child,), daemon=True)
        self._process.start()
        child.close()

    def run(self, model: bytes, names: list[str], runs: list[dict[str, object]]) -> list[object]:
        """One list of outputs per run."""
        try:
            self._connection.send((model, names, runs))
            answers = self._connection.recv()
        except (EOFError, OSError):
            self.close()
            self._start()
            return [None] * len(runs)
        return [None if answer is None else [_text(v) for v in answer] for answer in answers]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._connection.close()


def _text(value: object) -> object:
    """Strings as objects, which is how they are everywhere else."""
    return value.astype(object) if isinstance(value, np.ndarray) and value.dtype == "U" else value
