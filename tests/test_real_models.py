"""Real pretrained models on real inputs: the foretold answer, and ONNX Runtime's numbers.

Every model runs wholly through installed providers. The inputs and their answers are described in
`examples/pretrained/samples.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest

from ep_core import InferenceSession
from pretrained import MODELS, fetch
from pretrained.samples import Feeds, sample_feeds, speech_windows, synthetic_speech

PLAIN_FLOAT = {"rtol": 1e-3, "atol": 1e-4}
"""float32 sums in another order, through tens of layers. ONNX Runtime's own results with and
without its optimisations differ by up to 1.5e-5 here."""
LOGARITHM = {"rtol": 0.0, "atol": 2e-3}
"""The net takes the logarithm of the power in nearly silent bands, where rounding is all there is:
ONNX Runtime's own results with and without its optimisations differ by 8e-4."""
DYNAMIC_INT8 = {"rtol": 0.0, "atol": 0.15}
"""Activations are rounded to 8 bits at run time. A last-bit difference before such a rounding moves
a value by a whole step (1/255 of its range), and a recurrent net carries that on. The outputs are
scores up to 18."""
STACKED_INT8 = {"rtol": 0.0, "atol": 0.3}
"""The same through three such nets in a row and an attention, each of which rounds again."""
TOLERANCE = {
    **dict.fromkeys(MODELS, PLAIN_FLOAT),
    "pitch": LOGARITHM,
    **{name: DYNAMIC_INT8 for name in MODELS if name.startswith("arabic-marks")},
    "arabic-marks-bilstm": STACKED_INT8,
}

PYTHON_LABEL = 143
"""Number of `python` among the labels of the file-type model."""
A4_KEY = 48
"""Keys from A0, which is 0, to A4."""


def reference(name: str) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(fetch(name), providers=["CPUExecutionProvider"])


# ---------------------------------------------------------------- the foretold answers


def lines_stand_out(outputs: list[np.ndarray]) -> None:
    """Three stretches of rows with text, and none along the edges of the sheet."""
    rows = (outputs[0][0, 0] > 0.3).any(axis=1)
    starts = np.flatnonzero(rows[1:] & ~rows[:-1])
    assert len(starts) == 3
    assert not rows[0]
    assert not rows[-1]


def first_line_is_read(outputs: list[np.ndarray]) -> None:
    session = InferenceSession(fetch("ocr-recognise"))
    listed = session.get_modelmeta().custom_metadata_map["character"]
    characters = ["", *listed.split("\n"), " "]
    best = outputs[0][0].argmax(axis=1)
    fresh = np.concatenate([[True], best[1:] != best[:-1]])
    assert "".join(characters[index] for index in best[fresh]) == "Departures from platform 4"


def second_strip_is_upside_down(outputs: list[np.ndarray]) -> None:
    assert outputs[0].argmax(axis=1).tolist() == [0, 1]


def picture_is_harmless(outputs: list[np.ndarray]) -> None:
    assert outputs[0][0, 0] > 0.95


def file_is_python(outputs: list[np.ndarray]) -> None:
    assert outputs[0][0].argmax() == PYTHON_LABEL


def window_is_speech(outputs: list[np.ndarray]) -> None:
    assert outputs[0][0, 0] > 0.5


def speech_begins_after_half_a_second(outputs: list[np.ndarray]) -> None:
    speaking = outputs[0] > 0.5
    first = int(speaking.argmax())
    assert 0.5 <= first * 512 / 16000 < 0.65
    assert speaking[first:].all()


def note_is_a4(outputs: list[np.ndarray]) -> None:
    notes = outputs[1][0, 10:60].mean(axis=0)
    assert notes.argmax() == A4_KEY


def cats_are_closer_than_money(outputs: list[np.ndarray]) -> None:
    mask = sample_feeds("sentences")["attention_mask"][:, :, None]
    meaning = (outputs[0] * mask).sum(axis=1) / mask.sum(axis=1)
    meaning /= np.linalg.norm(meaning, axis=1, keepdims=True)
    likeness = meaning @ meaning.T
    assert likeness[0, 1] > 0.7
    assert likeness[0, 2] < 0.2


def basmala_is_vowelled(outputs: list[np.ndarray]) -> None:
    """Bismi llahi r-rahmani: kasra 47, sukun 63, shadda with fatha 31, fatha 24, no mark 0."""
    marks = [47, 63, 47, 0, 0, 0, 31, 47, 0, 0, 0, 31, 63, 24, 47]
    assert outputs[0][0].argmax(axis=1).tolist() == marks


def marks_are_right(marks: np.ndarray, kasra: int, sukun: int, shadda: int, fatha: int) -> None:
    """The eight letters that carry a mark, the ending of the last word left out."""
    places = [0, 1, 2, 6, 7, 11, 12, 13]
    assert marks[places].tolist() == [kasra, sukun, kasra, shadda, kasra, shadda, sukun, fatha]


def basmala_is_vowelled_everywhere(outputs: list[np.ndarray]) -> None:
    """Letters without a mark get any: the first model knows no way to say none."""
    marks_are_right(outputs[0][0].argmax(axis=1), kasra=46, sukun=61, shadda=30, fatha=23)


def basmala_is_vowelled_by_two_heads(outputs: list[np.ndarray]) -> None:
    """One head says whether there is a mark, the other says which."""
    marks_are_right(outputs[1][0].argmax(axis=1), kasra=47, sukun=63, shadda=31, fatha=24)


def basmala_is_vowelled_by_two_nets(outputs: list[np.ndarray]) -> None:
    marks_are_right(outputs[0][0], kasra=47, sukun=63, shadda=31, fatha=24)
    assert (outputs[0][0, [3, 4, 5, 8, 9, 10]] == 0).all()


def doubled_letters_are_marked(outputs: list[np.ndarray]) -> None:
    """This model writes sparingly: the doubled letters have shadda with fatha, which is 9."""
    assert np.flatnonzero(outputs[0][0].argmax(axis=1) == 9).tolist() == [6, 11]


ANSWERS: dict[str, Callable[[list[np.ndarray]], None]] = {
    "ocr-detect": lines_stand_out,
    "ocr-recognise": first_line_is_read,
    "ocr-orientation": second_strip_is_upside_down,
    "picture-classifier": picture_is_harmless,
    "file-type": file_is_python,
    "speech": window_is_speech,
    "speech-sequence": speech_begins_after_half_a_second,
    "speech-opset15": window_is_speech,
    "speech-half": window_is_speech,
    "speech-one-if": window_is_speech,
    "speech-fixed": window_is_speech,
    "pitch": note_is_a4,
    "sentences": cats_are_closer_than_money,
    "arabic-marks": basmala_is_vowelled,
    "arabic-marks-first": basmala_is_vowelled_everywhere,
    "arabic-marks-third": basmala_is_vowelled_by_two_heads,
    "arabic-marks-both": basmala_is_vowelled_by_two_nets,
    "arabic-marks-bilstm": doubled_letters_are_marked,
}


# ---------------------------------------------------------------- tests


@pytest.mark.parametrize("name", MODELS)
def test_answer_is_right_and_equals_onnxruntime(name: str) -> None:
    feeds: Feeds = sample_feeds(name)
    with InferenceSession(fetch(name)) as session:
        outputs = session.run(None, feeds)
    expected = reference(name).run(None, feeds)
    ANSWERS[name](outputs)
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
    speech_begins_after_half_a_second([ours])


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
