from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ep_core.errors import FeedError
from ep_tools.feeds import InputSpec, make_feeds
from ep_tools.inputs import ImageFile

RED = (255, 0, 0)
BLUE = (0, 0, 255)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """4 wide, 2 high: left half red, right half blue."""
    pixels = np.zeros((2, 4, 3), np.uint8)
    pixels[:, :2] = RED
    pixels[:, 2:] = BLUE
    path = tmp_path / "picture.png"
    Image.fromarray(pixels).save(path)
    return path


def feed(path, kind, shape, **dims):
    spec = InputSpec("image", kind, shape)
    return make_feeds([spec], [], {"image": ImageFile(path)}, dims)["image"]


def test_nchw_floats(picture):
    array = feed(picture, "tensor(float)", (1, 3, 2, 4))
    assert array.dtype == np.float32
    assert array.shape == (1, 3, 2, 4)
    assert array.flags.c_contiguous
    assert array[0, :, 0, 0].tolist() == [1, 0, 0]
    assert array[0, :, 1, 3].tolist() == [0, 0, 1]


def test_nhwc_bytes(picture):
    array = feed(picture, "tensor(uint8)", (1, 2, 4, 3))
    assert array.dtype == np.uint8
    assert array[0, 0, 0].tolist() == list(RED)
    assert array[0, 1, 3].tolist() == list(BLUE)


def test_without_a_batch(picture):
    assert feed(picture, "tensor(float)", (3, 2, 4)).shape == (3, 2, 4)
    assert feed(picture, "tensor(float)", (2, 4, 3)).shape == (2, 4, 3)


def test_grey(picture):
    # Pillow's "L" is the luma of ITU-R 601-2: 299/1000 R + 587/1000 G + 114/1000 B.
    for shape in [(1, 1, 2, 4), (1, 2, 4, 1), (2, 4)]:
        array = feed(picture, "tensor(uint8)", shape)
        assert array.shape == shape
        assert array.reshape(-1)[0] == 255 * 299 // 1000
        assert array.reshape(-1)[-1] == 255 * 114 // 1000


def test_alpha(picture):
    array = feed(picture, "tensor(uint8)", (1, 4, 2, 4))
    assert array[0, :, 0, 0].tolist() == [*RED, 255]


def test_other_float_types(picture):
    for kind, dtype in [("float16", "float16"), ("double", "float64"), ("bfloat16", "bfloat16")]:
        array = feed(picture, f"tensor({kind})", (1, 3, 2, 4))
        assert array.dtype == dtype
        assert float(array.max()) == 1


def test_the_image_is_resized_to_height_and_width(picture):
    array = feed(picture, "tensor(float)", (1, 3, 20, 10))
    assert array.shape == (1, 3, 20, 10)
    assert array[0, :, 10, 0].tolist() == [1, 0, 0]
    assert array[0, :, 10, 9].tolist() == [0, 0, 1]


def test_open_sizes_are_the_image_s_own_unless_told(picture):
    shape = ("batch", 3, "height", "image.3")
    assert feed(picture, "tensor(float)", shape).shape == (1, 3, 2, 4)
    assert feed(picture, "tensor(float)", shape, height=8).shape == (1, 3, 8, 4)


def test_a_batch_repeats_the_image(picture):
    array = feed(picture, "tensor(float)", ("batch", 3, 2, 4), batch=3)
    assert array.shape == (3, 3, 2, 4)
    assert np.array_equal(array[0], array[2])


def test_an_image_is_turned_as_its_exif_data_says(picture, tmp_path: Path):
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: turn by 90 degrees clockwise to show
    with Image.open(picture) as image:
        image.save(tmp_path / "turned.png", exif=exif)
    array = feed(tmp_path / "turned.png", "tensor(uint8)", (1, "h", "w", 3))
    assert array.shape == (1, 4, 2, 3)
    assert array[0, 0, 0].tolist() == list(RED)
    assert array[0, 3, 0].tolist() == list(BLUE)


@pytest.mark.parametrize("shape", [(), (3,), (1, 7, 2, 5), ("n", "c", "h", "w"), (1, 1, 3, 2, 4)])
def test_a_shape_that_is_no_image_is_refused(picture, shape):
    with pytest.raises(FeedError, match=r"can't take an image.*NCHW or NHWC"):
        feed(picture, "tensor(float)", shape)


@pytest.mark.parametrize("kind", ["int64", "int8", "bool", "string"])
def test_a_type_that_is_no_image_is_refused(picture, kind):
    with pytest.raises(FeedError, match="a floating type or uint8"):
        feed(picture, f"tensor({kind})", (1, 3, 2, 4))


def test_files_that_are_no_images_are_refused(picture, tmp_path: Path):
    (tmp_path / "text.png").write_text("hello")
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "short.png").write_bytes(picture.read_bytes()[:60])
    for name in ["text.png", "empty.png", "short.png", "absent.png", "a\0b.png"]:
        with pytest.raises(FeedError, match="can't read the image"):
            feed(tmp_path / name, "tensor(float)", (1, 3, 2, 4))


def test_an_image_of_no_size_is_refused(picture):
    with pytest.raises(FeedError, match="height and width above 0"):
        feed(picture, "tensor(float)", (1, 3, "h", 4), h=0)


def test_a_decompression_bomb_is_refused(picture, monkeypatch):
    for limit in (2, 6):  # twice the limit is an error of Pillow, once is a warning
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(FeedError, match="can't read the image"):
            feed(picture, "tensor(float)", (1, 3, 2, 4))
