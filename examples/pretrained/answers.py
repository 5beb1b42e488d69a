"""What each model has to say to its sample, and how far its numbers may lie from ONNX Runtime's.

Answers are those that a person would give; `samples.py` describes the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from pretrained.fetch import fetch
from pretrained.manifest import MODELS
from pretrained.samples import sample_feeds

__all__ = ["TOLERANCE", "check_answer"]

Array = np.ndarray[Any, np.dtype[Any]]
Outputs = Sequence[Array]

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
TOLERANCE: dict[str, dict[str, float]] = {
    **dict.fromkeys(MODELS, PLAIN_FLOAT),
    "pitch": LOGARITHM,
    **{name: DYNAMIC_INT8 for name in MODELS if name.startswith("arabic-marks")},
    "arabic-marks-bilstm": STACKED_INT8,
}

PYTHON_LABEL = 143
"""Number of `python` among the labels of the file-type model."""
A4_KEY = 48
"""Keys from A0, which is 0, to A4."""


def check_answer(name: str, outputs: Outputs) -> None:
    """See whether a model says what it should to its sample.

    Raises:
        AssertionError: it doesn't.
        KeyError: no model has this name.
    """
    _ANSWERS[name](outputs)


def _lines_stand_out(outputs: Outputs) -> None:
    """Three stretches of rows with text, and none along the edges of the sheet."""
    rows = (outputs[0][0, 0] > 0.3).any(axis=1)
    starts = np.flatnonzero(rows[1:] & ~rows[:-1])
    assert len(starts) == 3
    assert not rows[0]
    assert not rows[-1]


def _first_line_is_read(outputs: Outputs) -> None:
    properties = onnx.load(fetch("ocr-recognise"), load_external_data=False).metadata_props
    (listed,) = (item.value for item in properties if item.key == "character")
    characters = ["", *listed.split("\n"), " "]
    best = outputs[0][0].argmax(axis=1)
    fresh = np.concatenate([[True], best[1:] != best[:-1]])
    assert "".join(characters[index] for index in best[fresh]) == "Departures from platform 4"


def _second_strip_is_upside_down(outputs: Outputs) -> None:
    assert outputs[0].argmax(axis=1).tolist() == [0, 1]


def _picture_is_harmless(outputs: Outputs) -> None:
    assert outputs[0][0, 0] > 0.95


def _nothing_is_detected(outputs: Outputs) -> None:
    """Four numbers for each box, then how likely each kind of thing is; there are no people."""
    assert outputs[0].shape == (1, 22, 2100)
    assert outputs[0][0, 4:].max() < 0.01


def _file_is_python(outputs: Outputs) -> None:
    assert outputs[0][0].argmax() == PYTHON_LABEL


def _window_is_speech(outputs: Outputs) -> None:
    assert outputs[0][0, 0] > 0.5


def _speech_begins_after_half_a_second(outputs: Outputs) -> None:
    speaking = outputs[0] > 0.5
    first = int(speaking.argmax())
    assert 0.5 <= first * 512 / 16000 < 0.65
    assert speaking[first:].all()


def _note_is_a4(outputs: Outputs) -> None:
    notes = outputs[1][0, 10:60].mean(axis=0)
    assert notes.argmax() == A4_KEY


def _cats_are_closer_than_money(outputs: Outputs) -> None:
    mask = sample_feeds("sentences")["attention_mask"][:, :, None]
    meaning = (outputs[0] * mask).sum(axis=1) / mask.sum(axis=1)
    meaning /= np.linalg.norm(meaning, axis=1, keepdims=True)
    likeness = meaning @ meaning.T
    assert likeness[0, 1] > 0.7
    assert likeness[0, 2] < 0.2


def _basmala_is_vowelled(outputs: Outputs) -> None:
    """Bismi llahi r-rahmani: kasra 47, sukun 63, shadda with fatha 31, fatha 24, no mark 0."""
    marks = [47, 63, 47, 0, 0, 0, 31, 47, 0, 0, 0, 31, 63, 24, 47]
    assert outputs[0][0].argmax(axis=1).tolist() == marks


def _marks_are_right(marks: Array, kasra: int, sukun: int, shadda: int, fatha: int) -> None:
    """The eight letters that carry a mark, the ending of the last word left out."""
    places = [0, 1, 2, 6, 7, 11, 12, 13]
    assert marks[places].tolist() == [kasra, sukun, kasra, shadda, kasra, shadda, sukun, fatha]


def _basmala_is_vowelled_everywhere(outputs: Outputs) -> None:
    """Letters without a mark get any: the first model knows no way to say none."""
    _marks_are_right(outputs[0][0].argmax(axis=1), kasra=46, sukun=61, shadda=30, fatha=23)


def _basmala_is_vowelled_by_two_heads(outputs: Outputs) -> None:
    """One head says whether there is a mark, the other says which."""
    _marks_are_right(outputs[1][0].argmax(axis=1), kasra=47, sukun=63, shadda=31, fatha=24)


def _basmala_is_vowelled_by_two_nets(outputs: Outputs) -> None:
    _marks_are_right(outputs[0][0], kasra=47, sukun=63, shadda=31, fatha=24)
    assert (outputs[0][0, [3, 4, 5, 8, 9, 10]] == 0).all()


def _doubled_letters_are_marked(outputs: Outputs) -> None:
    """This model writes sparingly: the doubled letters have shadda with fatha, which is 9."""
    assert np.flatnonzero(outputs[0][0].argmax(axis=1) == 9).tolist() == [6, 11]


_ANSWERS: dict[str, Callable[[Outputs], None]] = {
    "ocr-detect": _lines_stand_out,
    "ocr-recognise": _first_line_is_read,
    "ocr-orientation": _second_strip_is_upside_down,
    "picture-classifier": _picture_is_harmless,
    "picture-detector": _nothing_is_detected,
    "file-type": _file_is_python,
    "speech": _window_is_speech,
    "speech-sequence": _speech_begins_after_half_a_second,
    "speech-opset15": _window_is_speech,
    "speech-half": _window_is_speech,
    "speech-one-if": _window_is_speech,
    "speech-fixed": _window_is_speech,
    "pitch": _note_is_a4,
    "sentences": _cats_are_closer_than_money,
    "arabic-marks": _basmala_is_vowelled,
    "arabic-marks-first": _basmala_is_vowelled_everywhere,
    "arabic-marks-third": _basmala_is_vowelled_by_two_heads,
    "arabic-marks-both": _basmala_is_vowelled_by_two_nets,
    "arabic-marks-bilstm": _doubled_letters_are_marked,
}
