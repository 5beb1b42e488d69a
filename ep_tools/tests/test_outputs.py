from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from ep_core.errors import EpError, NotSupportedError
from ep_core.types import DataType
from ep_tools.outputs import save_outputs, summarise


def one(value):
    (summary,) = summarise("y", value)
    return summary


def test_a_tensor_in_figures():
    summary = one(np.float32([[1, 2, 3], [4, 5, 9]]))
    assert (summary.type, summary.shape) == ("tensor(float)", (2, 3))
    assert summary.values == (1, 2, 3, 4, 5)
    assert (summary.minimum, summary.maximum, summary.mean) == (1, 9, 4)


def test_figures_leave_out_what_is_not_finite():
    summary = one(np.float32([1, np.nan, np.inf, 3, -np.inf]))
    assert (summary.minimum, summary.maximum, summary.mean) == (1, 3, 2)
    assert (summary.nan, summary.inf) == (1, 2)
    assert one(np.float32([np.nan])).mean is None


def test_large_integers_stay_exact():
    summary = one(np.array([2**63 - 1, 2**63 - 2], np.int64))
    assert summary.maximum == 2**63 - 1
    assert summary.minimum == 2**63 - 2


def test_sequences_maps_and_nothing():
    names = [summary.name for summary in summarise("y", [np.zeros(1), np.zeros(2)])]
    assert names == ["y[0]", "y[1]"]
    assert one([]).type == "empty sequence"
    assert one({"cat": 0.5}).values == ("cat: 0.5",)
    assert one(None).type == "nothing"


@pytest.mark.parametrize("dtype", list(DataType))
def test_every_type_has_figures_that_are_json(dtype):
    array = np.array(["1", "1"]) if dtype is DataType.STRING else np.ones(2, dtype.numpy)
    summary = one(array.astype(dtype.numpy))
    assert summary.type == f"tensor({dtype.text})"
    document = json.loads(json.dumps(summary.to_json(), allow_nan=False))
    assert document["shape"] == [2]
    if dtype.is_float or dtype.is_integer:
        assert document["min"] == document["max"] == document["mean"] == 1


def test_values_that_json_lacks_become_strings():
    values = one(np.float32([np.nan, np.inf, -np.inf, 0.5])).to_json()["values"]
    assert values == ["nan", "inf", "-inf", 0.5]
    assert one(np.array([1 + 2j], np.complex64)).to_json()["values"] == ["(1+2j)"]
    huge = one(np.full(4, 1e308)).to_json()
    assert (huge["max"], huge["mean"]) == (1e308, None)


def test_an_archive_holds_every_name(tmp_path: Path):
    outputs = {"file": np.float32([1]), "a/b:0": np.int64([[2]]), "s": [np.zeros(1), np.ones(1)]}
    (path,) = save_outputs(str(tmp_path / "y.npz"), outputs)
    with np.load(path) as loaded:
        assert set(loaded.files) == {"file", "a/b:0", "s[0]", "s[1]"}
        assert np.array_equal(loaded["a/b:0"], [[2]])
        assert loaded["file"].dtype == np.float32


def test_a_folder_holds_one_file_per_output(tmp_path: Path):
    outputs = {"../up": np.zeros(1), ".._up": np.ones(1), "a/b": np.zeros(2), "A_B": np.ones(3)}
    paths = save_outputs(str(tmp_path / "new" / "out"), outputs)
    assert len({path.name.lower() for path in paths}) == 4
    assert {path.parent for path in paths} == {tmp_path / "new" / "out"}
    assert np.array_equal(np.load(paths[1]), [1])


def test_strings_and_narrow_types_can_be_saved(tmp_path: Path):
    words = np.array(["a", "bb"], dtype=object)
    narrow = np.array([1, 2], ml_dtypes.bfloat16)
    (path,) = save_outputs(str(tmp_path / "y.npz"), {"words": words, "narrow": narrow})
    with np.load(path) as loaded:
        assert loaded["words"].tolist() == ["a", "bb"]
        assert np.array_equal(loaded["narrow"].view(ml_dtypes.bfloat16), narrow)


def test_a_map_cannot_be_saved(tmp_path: Path):
    with pytest.raises(NotSupportedError, match="got dict"):
        save_outputs(str(tmp_path / "y.npz"), {"y": [{1: 0.5}]})
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path):
    (tmp_path / "taken").write_text("")
    for target in [tmp_path / "taken", tmp_path / "absent" / "y.npz"]:
        with pytest.raises(EpError, match="can't save the outputs"):
            save_outputs(str(target), {"y": np.zeros(1)})
