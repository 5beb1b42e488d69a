"""ImageDecoder, through Pillow, which comes with the extra `ep-cpu[image]`."""

from __future__ import annotations

import importlib.util
import io
import warnings

import numpy as np

from ep_core.errors import InvalidModelError
from ep_cpu.kernels.support import Array, text
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that ONNX names, by Pillow's names; PPM covers PBM, PGM, PPM and PNM."""

_MODES = {"RGB": "RGB", "BGR": "RGB", "GRAYSCALE": "L"}

_MOST_PIXELS = 1 << 28
"""A small file can claim to hold any number of pixels; one that claims more isn't decoded."""


def _needs_pillow(node: KernelNode) -> str | None:
    if importlib.util.find_spec("PIL") is None:
        return "ImageDecoder needs Pillow: pip install 'ep-cpu[image]'"
    return None


@TABLE.kernel("ImageDecoder", since=20, predicate=_needs_pillow)
def _image_decoder(node: KernelNode) -> Kernel:
    pixel_format = text(node.attr("pixel_format", "RGB"))
    mode = _MODES.get(pixel_format.upper())
    if mode is None:
        raise InvalidModelError(
            "unknown pixel_format of ImageDecoder",
            expected="RGB, BGR or Grayscale",
            got=pixel_format,
        )
    channels = len(mode)

    def run(encoded: Array) -> Array:
        pixels = decode(encoded.astype(np.uint8, copy=False).tobytes(), mode)
        if pixels is None:
            return np.zeros((0, 0, channels), np.uint8)
        if pixel_format.upper() == "BGR":
            pixels = np.ascontiguousarray(pixels[:, :, ::-1])
        return pixels

    return run


def decode(data: bytes, mode: str) -> Array | None:
    """Decode an image file into [height, width, channels] of uint8.

    Args:
        data: the file.
        mode: `RGB` or `L`, Pillow's name for shades of grey.

    Returns:
        None for whatever can't be decoded: ONNX wants no error then, but an empty matrix.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
                if image.width * image.height > _MOST_PIXELS:
                    return None
                pixels = np.array(image.convert(mode))
    except Exception:  # noqa: BLE001 - codecs raise anything on damaged files
        return None
    return pixels.reshape(*pixels.shape[:2], len(mode))
