"""An image file becomes the tensor that a model's input asks for.

Only shape, layout and range are handled. Means, deviations and crops belong to the model's own
recipe; whoever needs them prepares a `.npy` file.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from ep_core.errors import FeedError
from ep_core.types import DataType

__all__ = ["ImageLayout", "find_layout", "load_image"]

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True, slots=True)
class ImageLayout:
    """Where a shape has its batch, channels, height and width, as positions; None for no such."""

    channel: int | None
    height: int
    width: int
    batch: int | None


def find_layout(name: str, shape: tuple[int | str, ...]) -> ImageLayout:
    """Tell the layout of an image input by the dimension that is 1, 3 or 4.

    Rank 4 is NCHW or NHWC, rank 3 is CHW or HWC, rank 2 is a grey image. Where both places would
    do, channels come first.

    Raises:
        FeedError: the shape is none of these.
    """
    rank = len(shape)
    if rank == 2:
        return ImageLayout(channel=None, height=0, width=1, batch=None)
    if rank in (3, 4):
        first = rank - 3
        batch = 0 if rank == 4 else None
        if shape[first] in _MODES:
            return ImageLayout(channel=first, height=first + 1, width=first + 2, batch=batch)
        if shape[-1] in _MODES:
            return ImageLayout(channel=first + 2, height=first, width=first + 1, batch=batch)
    raise FeedError(
        f"input '{name}' can't take an image",
        expected="a shape like NCHW or NHWC with 1, 3 or 4 channels",
        got=f"shape {list(shape)}",
        fix=f"Prepare the array yourself and give --input {name}=FILE.npy.",
    )


def load_image(
    path: Path,
    name: str,
    dtype: DataType,
    shape: tuple[int | str, ...],
    sizes: tuple[int | None, ...],
) -> np.ndarray[Any, Any]:
    """Read an image and fit it to an input.

    The image is turned as its EXIF data says, converted to grey, RGB or RGBA by the number of
    channels, and resized (bilinear, without keeping the aspect) to the height and width that are
    known. Floats are scaled to 0..1, uint8 stays 0..255. A batch gets the same image in each place.

    Args:
        path: any format that Pillow reads.
        name: the input, for messages.
        dtype: a floating type or UINT8.
        shape: the input's shape as the model states it; the layout is told by it.
        sizes: the same, with the lengths that are known filled in; None for an open dimension.

    Returns:
        An array of `dtype.numpy` and of the input's rank.

    Raises:
        FeedError: the input isn't an image, or the file can't be read as one.
    """
    if not (dtype.is_float or dtype is DataType.UINT8):
        raise FeedError(
            f"input '{name}' can't take an image",
            expected="a floating type or uint8",
            got=f"tensor({dtype.text})",
            fix=f"Prepare the array yourself and give --input {name}=FILE.npy.",
        )
    layout = find_layout(name, shape)
    channels = 1 if layout.channel is None else sizes[layout.channel]
    assert channels is not None
    pixels = _read(path, _MODES[channels], sizes[layout.height], sizes[layout.width])
    if layout.channel is not None:
        pixels = pixels.reshape(*pixels.shape[:2], channels)
        if layout.channel < layout.height:
            pixels = pixels.transpose(2, 0, 1)
    if dtype is not DataType.UINT8:
        pixels = (pixels.astype(np.float32) / 255).astype(dtype.numpy)
    if layout.batch is not None:
        count = sizes[layout.batch]
        pixels = np.broadcast_to(pixels, (1 if count is None else count, *pixels.shape))
    return np.ascontiguousarray(pixels)


def _read(path: Path, mode: str, height: int | None, width: int | None) -> np.ndarray[Any, Any]:
    """Return pixels of shape (height, width) or (height, width, channels), uint8."""
    try:
        with warnings.catch_warnings():
            # A picture that Pillow finds suspiciously large is refused, not just remarked on.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as file:
                image = ImageOps.exif_transpose(file).convert(mode)
    except (
        OSError,
        # Pillow raises these for broken files of one format or another.
        SyntaxError,
        ValueError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise FeedError(
            f"can't read the image '{path}'", got=str(error), fix="Check the path and the file."
        ) from error
    size = (image.width if width is None else width, image.height if height is None else height)
    if 0 in size:
        raise FeedError(
            f"can't resize the image '{path}'", expected="height and width above 0", got=size[::-1]
        )
    if size != image.size:
        image = image.resize(size, Image.Resampling.BILINEAR)
    return np.asarray(image)
