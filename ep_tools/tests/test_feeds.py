from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from ep_core.errors import EpError, FeedError, OptionError
from ep_core.signature import NodeArg
from ep_core.types import DataType
from ep_tools.feeds import InputSpec, make_feeds, random_values
from ep_tools.inputs import ArrayFile, RandomValues


def feed(spec, source, **dims):
    return make_feeds([spec], [], {spec.name: source}, dims)[spec.name]


# ---------------------------------------------------------------- random values


@pytest.mark.parametrize("dtype", list(DataType))
def test_random_values_exist_for_every_type(dtype):
    array = random_values(InputSpec("x", f"tensor({dtype.text})", (2, 3)), 0, {})
    assert array.shape == (2, 3)
    assert array.dtype == dtype.numpy


@pytest.mark.parametrize("dtype", list(DataType))
def test_a_random_scalar_is_an_array_of_rank_0(dtype):
    array = random_values(InputSpec("x", f"tensor({dtype.text})", ()), 0, {})
    assert isinstance(array, np.ndarray)
    assert array.shape == ()


def test_random_floats_lie_between_0_and_1():
    array = random_values(InputSpec("x", "tensor(float)", (1000,)), 0, {})
    assert array.min() >= 0
    assert array.max() < 1
    assert 0.4 < array.mean() < 0.6


def test_random_bytes_use_their_whole_range():
    array = random_values(InputSpec("x", "tensor(uint8)", (5000,)), 0, {})
    assert (array.min(), array.max()) == (0, 255)
    array = random_values(InputSpec("x", "tensor(int8)", (5000,)), 0, {})
    assert (array.min(), array.max()) == (-128, 127)


def test_random_integers_are_0_or_1():
    array = random_values(InputSpec("x", "tensor(int64)", (100,)), 0, {})
    assert set(array.tolist()) == {0, 1}


def test_random_strings_are_letters():
    array = random_values(InputSpec("x", "tensor(string)", (50,)), 0, {})
    assert all(isinstance(item, str) and item.isalpha() for item in array)


def test_the_seed_decides_the_values():
    spec = InputSpec("x", "tensor(float)", (4,))
    assert np.array_equal(random_values(spec, 3, {}), random_values(spec, 3, {}))
    assert not np.array_equal(random_values(spec, 3, {}), random_values(spec, 4, {}))


def test_two_inputs_with_one_seed_differ():
    first = random_values(InputSpec("a", "tensor(float)", (4,)), 0, {})
    second = random_values(InputSpec("b", "tensor(float)", (4,)), 0, {})
    assert not np.array_equal(first, second)


def test_open_dimensions_are_1_unless_told():
    spec = InputSpec("x", "tensor(float)", ("batch", 3, "x.2", "time"))
    assert feed(spec, RandomValues()).shape == (1, 3, 1, 1)
    assert feed(spec, RandomValues(), batch=2, time=0).shape == (2, 3, 1, 0)


def test_a_dimension_without_a_name_is_called_after_input_and_axis():
    spec = InputSpec.of(NodeArg("x", "tensor(float)", ["batch", "?", 4, None]))
    assert str(spec) == "x: tensor(float) [batch, x.1, 4, x.3]"
    assert feed(spec, RandomValues(), **{"x.3": 5}).shape == (1, 1, 4, 5)


def test_an_unknown_dimension_is_refused_with_the_closest():
    spec = InputSpec("x", "tensor(float)", ("batch", 3))
    with pytest.raises(OptionError, match="Did you mean 'batch'"):
        feed(spec, RandomValues(), bacth=2)


@pytest.mark.parametrize("length", [10**12, 10**17])
def test_more_than_memory_holds_is_refused(length):
    spec = InputSpec("x", "tensor(float)", ("n", 1024))
    with pytest.raises(FeedError, match="--dim"):
        feed(spec, RandomValues(), n=length)


@pytest.mark.parametrize("kind", ["seq(tensor(float))", "map(int64,tensor(float))", "tensor(odd)"])
def test_other_than_a_tensor_is_refused(kind):
    with pytest.raises(FeedError, match="can't be given on the command line"):
        feed(InputSpec("x", kind, ()), RandomValues())


# ---------------------------------------------------------------- which inputs


def test_a_missing_input_is_told_with_type_shape_and_remedy():
    specs = [InputSpec("image", "tensor(float)", ("N", 3, 224, "image.3")), InputSpec("n", "b", ())]
    with pytest.raises(FeedError) as caught:
        make_feeds(specs, [], {"n": RandomValues()}, {})
    message = str(caught.value)
    assert "image: tensor(float) [N, 3, 224, image.3]" in message
    assert "--input image=random" in message
    assert "n:" not in message


def test_an_input_with_a_default_may_be_left_out_or_given():
    needed = InputSpec("x", "tensor(float)", (1,))
    extra = InputSpec("w", "tensor(float)", (2,))
    assert set(make_feeds([needed], [extra], {"x": RandomValues()}, {})) == {"x"}
    both = {"x": RandomValues(), "w": RandomValues()}
    assert set(make_feeds([needed], [extra], both, {})) == {"x", "w"}


def test_an_optional_input_may_be_left_out():
    spec = InputSpec("x", "optional(tensor(float))", ())
    assert make_feeds([spec], [], {}, {}) == {}


def test_an_unknown_input_is_refused_with_the_closest():
    with pytest.raises(FeedError, match="Did you mean 'image'"):
        make_feeds([InputSpec("image", "tensor(float)", ())], [], {"imgae": RandomValues()}, {})


# ---------------------------------------------------------------- array files


def test_an_npy_file_is_fed_as_it_is(tmp_path: Path):
    array = np.arange(6, dtype=np.float64).reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    fed = feed(InputSpec("x", "tensor(float)", (2, 3)), ArrayFile(tmp_path / "a.npy"))
    assert fed.dtype == np.float64, "whether it fits is for the session to say"
    assert np.array_equal(fed, array)


def test_an_archive_gives_the_named_array_or_its_only_one(tmp_path: Path):
    spec = InputSpec("x", "tensor(float)", (1,))
    one = np.float32([1])
    two = np.float32([2])
    np.savez(tmp_path / "one.npz", a=one)
    np.savez(tmp_path / "two.npz", a=one, b=two)
    assert feed(spec, ArrayFile(tmp_path / "one.npz")) == one
    assert feed(spec, ArrayFile(tmp_path / "two.npz", "b")) == two
    with pytest.raises(FeedError, match="Keys: a, b"):
        feed(spec, ArrayFile(tmp_path / "two.npz"))
    with pytest.raises(FeedError, match="no array 'c'"):
        feed(spec, ArrayFile(tmp_path / "two.npz", "c"))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4])
def test_types_that_numpy_files_lose_are_given_back(tmp_path: Path, dtype):
    array = np.array([0, 1, 2], dtype=dtype)
    np.save(tmp_path / "a.npy", array)
    kind = DataType.from_numpy(np.dtype(dtype)).text
    fed = feed(InputSpec("x", f"tensor({kind})", (3,)), ArrayFile(tmp_path / "a.npy"))
    assert fed.dtype == dtype
    assert np.array_equal(fed, array)


def test_text_arrays_become_strings(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.array(["a", "böse"]))
    fed = feed(InputSpec("x", "tensor(string)", (2,)), ArrayFile(tmp_path / "a.npy"))
    assert fed.dtype == object
    assert fed.tolist() == ["a", "böse"]


def test_files_that_hold_no_arrays_are_refused(tmp_path: Path):
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    good = tmp_path / "good.npy"
    np.save(good, np.zeros(100))
    (tmp_path / "short.npy").write_bytes(good.read_bytes()[:200])
    np.savez_compressed(tmp_path / "good.npz", a=np.arange(1000))
    packed = (tmp_path / "good.npz").read_bytes()
    (tmp_path / "broken.npz").write_bytes(packed[:300] + b"\xff" * 200 + packed[500:])
    (tmp_path / "cut.npz").write_bytes(packed[:-30])
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "text.npy").write_text("hello")
    (tmp_path / "folder.npy").mkdir()
    np.savez(tmp_path / "none.npz")
    spec = InputSpec("x", "tensor(float)", ())
    names = ["pickle.npy", "short.npy", "broken.npz", "cut.npz", "empty.npy", "text.npy"]
    for name in [*names, "folder.npy", "none.npz", "absent.npy", "a\0b.npy"]:
        with pytest.raises(EpError, match=r"\.np[yz]"):
            feed(spec, ArrayFile(tmp_path / name))
