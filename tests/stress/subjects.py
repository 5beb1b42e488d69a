"""Random models with feeds, and what the CPU provider alone answers."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np
from random_graphs import random_model

from ep_core import InferenceSession, SessionOptions

__all__ = ["MODELS", "Subject", "close_subjects", "is_same", "quiet_options", "subject_of"]

MODELS = 240
"""How many there are: seeds from 0 up."""

_KEPT = 24
_LENGTHS = (2, 5, 1, 0)


class Subject:
    """One model.

    Attributes:
        feeds: a few sets of inputs.
        answers: what the CPU provider alone gives for them, in the order of the outputs.
        names: of the outputs.
    """

    def __init__(self, seed: int) -> None:
        random = random_model(seed)
        self.seed = seed
        self.model = random.model
        self.names = [value.name for value in random.model.graph.output]
        self._alone = InferenceSession(self.model, quiet_options(), providers=["cpu"])
        self.feeds = [random.feeds(number, length) for number, length in enumerate(_LENGTHS)]
        self.answers = [self.answer(feeds) for feeds in self.feeds]
        self.inputs = {info.name: info for info in self._alone.get_inputs()}

    def answer(self, feeds: dict[str, Any]) -> list[Any]:
        """What is right for any feeds."""
        return self._alone.run(None, feeds)

    def close(self) -> None:
        """Give up the session behind the answers."""
        self._alone.close()


_lock = threading.Lock()
_subjects: OrderedDict[int, Subject] = OrderedDict()


def subject_of(seed: int) -> Subject:
    """A subject; the last few are kept."""
    with _lock:
        subject = _subjects.pop(seed, None) or Subject(seed)
        _subjects[seed] = subject
        while len(_subjects) > _KEPT:
            _subjects.popitem(last=False)[1].close()
        return subject


def close_subjects() -> None:
    """Give all of them up."""
    with _lock:
        while _subjects:
            _subjects.popitem()[1].close()


def quiet_options() -> SessionOptions:
    """Options of a session that logs nothing and needs no certificate."""
    options = SessionOptions()
    options.log_severity_level = 4
    options.certificate_policy = "off"
    return options


def is_same(left: Any, right: Any) -> bool:
    """Equal to the bit, sequences included."""
    if isinstance(left, list):
        if not isinstance(right, list) or len(left) != len(right):
            return False
        return all(is_same(a, b) for a, b in zip(left, right, strict=True))
    if left is None or right is None:
        return left is right
    return bool(
        left.dtype == right.dtype and left.shape == right.shape and np.array_equal(left, right)
    )
