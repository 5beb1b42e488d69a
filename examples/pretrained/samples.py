"""A realistic input for each model, made by us: pictures, sounds, sentences, file contents.

Every input has an answer that a person can foretell; the tests check for it. Shapes and scalings
are those the models were trained with, as their packages document them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

__all__ = ["sample_feeds", "speech_windows", "synthetic_speech"]

Array = np.ndarray[Any, np.dtype[Any]]
Feeds = dict[str, Array]

PICTURE = Path(__file__).resolve().parents[1] / "departures.png"
FIRST_LINE = (37, 40, 476, 76)
"""Left, top, right and bottom of `Departures from platform 4` in the picture."""

SPEECH_RATE = 16000
SPEECH_WINDOW = 512
SPEECH_CONTEXT = 64
PITCH_RATE = 22050
PITCH_SAMPLES = 43844
A4_HERTZ = 440.0
MAGIKA_BLOCK = 1024
MAGIKA_PADDING = 256

SENTENCE_TOKENS = (
    # [CLS] the cat sits on the mat [SEP]
    (101, 1996, 4937, 7719, 2006, 1996, 13523, 102),
    # [CLS] a cat is sitting on a rug [SEP]
    (101, 1037, 4937, 2003, 3564, 2006, 1037, 20452, 102),
    # [CLS] interest rates rose again in march [SEP]
    (101, 3037, 6165, 3123, 2153, 1999, 2233, 102),
)
"""Token numbers of the uncased English BERT vocabulary."""

ARABIC_TOKENS = (150, 161, 174, 3, 149, 173, 173, 176, 3, 149, 173, 159, 155, 174, 175)
"""The letters of the first three words of the basmala in the numbering of the model's package."""
ARABIC_TOKENS_BILSTM = (11, 22, 35, 40, 10, 34, 34, 37, 40, 10, 34, 20, 16, 35, 36)
"""The same letters in the numbering of the package's oldest model."""
ARABIC_SPACE = 3


def sample_feeds(name: str) -> Feeds:
    """Return the feeds for one run of a model.

    Raises:
        KeyError: no model has this name.
    """
    return _SAMPLES[name]()


# ---------------------------------------------------------------- pictures


def _picture() -> Image.Image:
    return Image.open(PICTURE).convert("RGB")


def _scaled(picture: Image.Image) -> Array:
    """float32 [1, 3, height, width] in blue-green-red order, from -1 to 1."""
    pixels = np.asarray(picture, dtype=np.float32)[:, :, ::-1]
    return np.ascontiguousarray((pixels / 127.5 - 1.0).transpose(2, 0, 1)[None])


def _ocr_detect() -> Feeds:
    return {"x": _scaled(_picture())}


def _ocr_recognise() -> Feeds:
    line = _picture().crop(FIRST_LINE)
    width = round(line.width * 48 / line.height)
    return {"x": _scaled(line.resize((width, 48), Image.Resampling.BICUBIC))}


def _ocr_orientation() -> Feeds:
    """Two strips: the start of a line as it should be, and the same upside down."""
    left, top, _, bottom = FIRST_LINE
    strip = _picture().crop((left, top, left + 4 * (bottom - top), bottom))
    upright = strip.resize((192, 48), Image.Resampling.BICUBIC)
    turned = upright.transpose(Image.Transpose.ROTATE_180)
    return {"x": np.concatenate([_scaled(upright), _scaled(turned)])}


def _picture_classifier() -> Feeds:
    """float32 [1, 224, 224, 3] in blue-green-red order, less the mean colour of ImageNet."""
    pixels = np.asarray(_picture().resize((224, 224)), dtype=np.float32)[:, :, ::-1]
    return {"input:0": (pixels - np.array([104, 117, 123], dtype=np.float32))[None]}


def _picture_detector() -> Feeds:
    """float32 [1, 3, 320, 320] in red-green-blue order, from 0 to 1."""
    pixels = np.asarray(_picture().resize((320, 320)), dtype=np.float32) / 255
    return {"images": np.ascontiguousarray(pixels.transpose(2, 0, 1))[None]}


# ---------------------------------------------------------------- sounds


def synthetic_speech(seconds: float = 1.0) -> Array:
    """Return float32 samples at 16 kHz: half a second of near silence, then vowels.

    A falling pulse train (the vocal cords) through three resonances (the mouth) that move between
    the vowels a and i four times a second. Formants after Peterson and Barney 1952, table II.
    """
    count = int(seconds * SPEECH_RATE)
    time = np.arange(count) / SPEECH_RATE
    syllable = 0.5 - 0.5 * np.cos(2 * np.pi * 4 * time)
    phase = np.cumsum(130 - 25 * time / seconds) / SPEECH_RATE
    pulses = np.diff(np.floor(phase), prepend=0.0)
    voice = pulses
    for low, high in ((730, 270), (1090, 2290), (2440, 3010)):
        voice = _resonance(voice, low + (high - low) * syllable, bandwidth=90.0)
    voice = voice * (0.3 + 0.7 * syllable)
    noise = np.random.default_rng(7).normal(0, 1e-4, count + SPEECH_RATE // 2)
    noise[SPEECH_RATE // 2 :] += 0.5 * voice / np.abs(voice).max()
    return noise.astype(np.float32)


def _resonance(signal: Array, hertz: Array, bandwidth: float) -> Array:
    """A two-pole filter whose centre moves; the textbook digital resonator (Klatt 1980)."""
    radius = np.exp(-np.pi * bandwidth / SPEECH_RATE)
    feedback = 2 * radius * np.cos(2 * np.pi * hertz / SPEECH_RATE)
    result = np.zeros(len(signal) + 2)
    for index, sample in enumerate(signal):
        result[index + 2] = sample + feedback[index] * result[index + 1] - radius**2 * result[index]
    return result[2:]


def speech_windows(sound: Array) -> Array:
    """Cut a sound into float32 [windows, 576]: 512 new samples after the 64 before them."""
    count = len(sound) // SPEECH_WINDOW
    padded = np.concatenate([np.zeros(SPEECH_CONTEXT, np.float32), sound])
    size = SPEECH_CONTEXT + SPEECH_WINDOW
    starts = range(0, count * SPEECH_WINDOW, SPEECH_WINDOW)
    return np.stack([padded[start : start + size] for start in starts])


def _speech() -> Feeds:
    """One window from the middle of the voice, with the state of a fresh start."""
    windows = speech_windows(synthetic_speech())
    return {
        "input": windows[len(windows) * 2 // 3][None],
        "state": np.zeros((2, 1, 128), np.float32),
        "sr": np.array(SPEECH_RATE, np.int64),
    }


def _speech_one_rate() -> Feeds:
    """For models that know one sampling rate only."""
    feeds = _speech()
    del feeds["sr"]
    return feeds


def _speech_sequence() -> Feeds:
    fresh = np.zeros((1, 1, 128), np.float32)
    return {"input": speech_windows(synthetic_speech()), "h": fresh, "c": fresh.copy()}


def _pitch() -> Feeds:
    """float32 [1, 43844, 1]: a plucked A4 with a few harmonics, two seconds at 22050 Hz."""
    time = np.arange(PITCH_SAMPLES) / PITCH_RATE
    tone = sum(np.sin(2 * np.pi * A4_HERTZ * n * time) / n**2 for n in range(1, 6))
    plucked = 0.4 * tone * np.exp(-time)
    return {"serving_default_input_2:0": plucked.astype(np.float32)[None, :, None]}


# ---------------------------------------------------------------- text and bytes


def _file_type() -> Feeds:
    """int32 [1, 2048]: the first and the last 1024 bytes of a Python file, this one."""
    content = Path(__file__).read_bytes().strip()
    start = list(content[:MAGIKA_BLOCK])
    end = list(content[-MAGIKA_BLOCK:])
    start += [MAGIKA_PADDING] * (MAGIKA_BLOCK - len(start))
    end = [MAGIKA_PADDING] * (MAGIKA_BLOCK - len(end)) + end
    return {"bytes": np.array([start + end], np.int32)}


def _sentences() -> Feeds:
    """int64 [3, longest]: shorter sentences are padded with zeros and masked."""
    longest = max(len(tokens) for tokens in SENTENCE_TOKENS)
    numbers = np.zeros((len(SENTENCE_TOKENS), longest), np.int64)
    for row, tokens in enumerate(SENTENCE_TOKENS):
        numbers[row, : len(tokens)] = tokens
    return {
        "input_ids": numbers,
        "attention_mask": (numbers != 0).astype(np.int64),
        "token_type_ids": np.zeros_like(numbers),
    }


def _arabic_marks() -> Feeds:
    return {"input": np.array([ARABIC_TOKENS], np.int64)}


def _arabic_marks_first() -> Feeds:
    """The first model counts all letters, but not the space, from one higher."""
    tokens = np.array([ARABIC_TOKENS], np.int64)
    return {"input": np.where(tokens == ARABIC_SPACE, tokens, tokens + 1)}


def _arabic_marks_bilstm() -> Feeds:
    return {"input_ids": np.array([ARABIC_TOKENS_BILSTM], np.int64)}


_SAMPLES: dict[str, Callable[[], Feeds]] = {
    "ocr-detect": _ocr_detect,
    "ocr-recognise": _ocr_recognise,
    "ocr-orientation": _ocr_orientation,
    "picture-classifier": _picture_classifier,
    "picture-detector": _picture_detector,
    "file-type": _file_type,
    "speech": _speech,
    "speech-sequence": _speech_sequence,
    "speech-opset15": _speech,
    "speech-half": _speech_one_rate,
    "speech-one-if": _speech,
    "speech-fixed": _speech_one_rate,
    "pitch": _pitch,
    "sentences": _sentences,
    "arabic-marks": _arabic_marks,
    "arabic-marks-first": _arabic_marks_first,
    "arabic-marks-third": _arabic_marks,
    "arabic-marks-both": _arabic_marks,
    "arabic-marks-bilstm": _arabic_marks_bilstm,
}
