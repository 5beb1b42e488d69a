"""Real pretrained models on real inputs: the foretold answer, and ONNX Runtime's numbers.

Every model runs wholly through installed providers. The inputs and their answers are described in
`examples/pretrained/samples.py` and `answers.py`.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from ep_core import InferenceSession
from pretrained import MODELS, fetch
from pretrained.answers import TOLERANCE, check_answer
from pretrained.samples import Feeds, sample_feeds, speech_windows, synthetic_speech


def reference(name: str) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(fetch(name), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", MODELS)
def test_answer_is_right_and_equals_onnxruntime(name: str) -> None:
    feeds: Feeds = sample_feeds(name)
    with InferenceSession(fetch(name)) as session:
        outputs = session.run(None, feeds)
    expected = reference(name).run(None, feeds)
    check_answer(name, outputs)
    for ours, theirs in zip(outputs, expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, **TOLERANCE[name])


def test_state_carried_over_many_runs_stays_equal_to_onnxruntime() -> None:
    """The speech model window by window; the state goes from each run into the next."""
    windows = speech_windows(synthetic_speech())
    fresh = sample_feeds("speech")
    with InferenceSession(fetch("speech")) as session:
        ours = probabilities(session, windows, fresh)
    theirs = probabilities(reference("speech"), windows, fresh)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
    check_answer("speech-sequence", [ours])


def probabilities(
    session: InferenceSession | onnxruntime.InferenceSession, windows: np.ndarray, fresh: Feeds
) -> np.ndarray:
    """Run the windows in order and return the probability of speech in each."""
    state = fresh["state"]
    found = []
    for window in windows:
        probability, state = session.run(
            None, {"input": window[None], "state": state, "sr": fresh["sr"]}
        )
        found.append(probability[0, 0])
    return np.array(found)
