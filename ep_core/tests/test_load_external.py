"""External data: mapped, checked against the files, and confined to the model's folder."""

from __future__ import annotations

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from ep_core.errors import InvalidModelError, ModelLimitError, UnsafePathError
from ep_core.loading.load import LoadLimits, load_model

VALUES = np.arange(6, dtype=np.float32)


def external(name="w", location="w.bin", dims=(6,), kind=TensorProto.FLOAT, **entries):
    tensor = TensorProto(name=name, dims=dims, data_type=kind, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def save(folder, tensor=None, *, attribute=None):
    """A model that adds its weight to x, in `folder`; the data file lies beside it."""
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    if attribute is not None:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=attribute))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], [tensor] if tensor is not None else [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder.mkdir(exist_ok=True)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def weight(path, **options):
    return load_model(path, **options).graph.initializers["w"].numpy()


@pytest.mark.parametrize("offset", [0, 1, 3, 4096])
@pytest.mark.parametrize("where", ["initializer", "attribute"])
def test_data_at_any_offset(tmp_path, offset, where):
    tensor = external(offset=offset, length=24)
    path = save(tmp_path, tensor) if where == "initializer" else save(tmp_path, attribute=tensor)
    (tmp_path / "w.bin").write_bytes(b"\xaa" * offset + VALUES.tobytes() + b"tail")
    array = weight(path)
    assert array.tolist() == VALUES.tolist()
    assert array.flags.aligned
    assert not array.flags.writeable


def test_offset_and_length_may_be_left_out_and_folders_nested(tmp_path):
    for location in ("w.bin", "deep/er/w.bin", "deep\\er\\w.bin", "./w.bin"):
        target = tmp_path.joinpath(*location.replace("\\", "/").split("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(VALUES.tobytes())
        assert weight(save(tmp_path, external(location=location))).tolist() == VALUES.tolist()


def test_a_large_tensor_is_mapped_and_not_read(tmp_path):
    size = 2**33
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(size)  # sparse on every common file system
    path = save(tmp_path, external(dims=(size // 4,)))
    array = weight(path)
    assert array.shape == (size // 4,)
    assert array[-1] == 0
    with pytest.raises(ModelLimitError, match="max_tensor_bytes"):
        load_model(path, limits=LoadLimits(max_tensor_bytes=size - 1))


def test_external_data_inside_a_body(tmp_path):
    branch = helper.make_graph(
        [], "b", [], [helper.make_empty_tensor_value_info("w")], [external(location="../w.bin")]
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UnsafePathError):
        load_model(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "sub/../../secret.bin",
        "..\\secret.bin",
        "/etc/passwd",
        "\\\\server\\share\\w.bin",
        "C:\\w.bin",
        "C:w.bin",
        "//server/share/w.bin",
    ],
)
def test_paths_that_leave_the_folder(tmp_path, location):
    (tmp_path / "secret.bin").write_bytes(VALUES.tobytes())
    path = save(tmp_path / "model", external(location=location))
    with pytest.raises(UnsafePathError, match="outside the model's folder"):
        load_model(path)


@pytest.mark.skipif(os.name == "nt", reason="needs links")
def test_links_that_leave_the_folder_and_links_that_do_not(tmp_path):
    (tmp_path / "secret.bin").write_bytes(VALUES.tobytes())
    path = save(tmp_path / "model", external())
    data = tmp_path / "model" / "w.bin"
    data.symlink_to(tmp_path / "secret.bin")
    with pytest.raises(UnsafePathError):
        load_model(path)
    data.unlink()
    (tmp_path / "model" / "real.bin").write_bytes(VALUES.tobytes())
    data.symlink_to("real.bin")
    assert weight(path).tolist() == VALUES.tolist()
    data.unlink()
    data.symlink_to("w.bin")
    with pytest.raises(InvalidModelError, match="can't be"):
        load_model(path)
    (tmp_path / "model" / "out").symlink_to(tmp_path)
    with pytest.raises(UnsafePathError):
        load_model(save(tmp_path / "model", external(location="out/secret.bin")))


@pytest.mark.skipif(os.name == "nt", reason="needs links")
def test_a_cache_that_links_model_and_data_into_one_store(tmp_path):
    real = save(tmp_path / "store", external())
    (tmp_path / "store" / "w.bin").write_bytes(VALUES.tobytes())
    view = tmp_path / "view"
    view.mkdir()
    (view / "m.onnx").symlink_to(real)
    (view / "w.bin").symlink_to(tmp_path / "store" / "w.bin")
    assert weight(view / "m.onnx").tolist() == VALUES.tolist()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": ""}, "no usable location"),
        ({"location": "."}, "no usable location"),
        ({"location": "missing.bin"}, "can't be read"),
        ({"location": "a\0b"}, "no usable location"),
        ({"location": "folder"}, "isn't a regular file"),
        ({"location": "w.bin/inner"}, "can't be read"),
        ({"offset": -1}, "bad offset"),
        ({"offset": "1e3"}, "bad offset"),
        ({"offset": "9" * 5000}, "bad offset"),
        ({"offset": 2**63}, "beyond the end"),
        ({"offset": 4}, "beyond the end"),
        ({"length": -24}, "bad length"),
        ({"length": 23}, "doesn't match"),
        ({"length": 2**62}, "doesn't match"),
        ({"dims": (7,)}, "beyond the end"),
        ({"dims": (2**40,)}, "exceeds the limit"),
        ({"dims": (-6,)}, "negative dimension"),
        ({"kind": TensorProto.STRING}, "strings outside string_data"),
        ({"location": "empty.bin"}, "beyond the end"),
    ],
)
def test_words_that_do_not_fit_the_file(tmp_path, entries, message):
    (tmp_path / "w.bin").write_bytes(VALUES.tobytes())
    (tmp_path / "empty.bin").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidModelError, match=message):
        load_model(save(tmp_path, external(**entries)))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "w.bin")
    with pytest.raises(InvalidModelError, match="isn't a regular file"):
        load_model(save(tmp_path, external()))


def test_bytes_and_protos_have_no_folder(tmp_path, monkeypatch):
    path = save(tmp_path, external())
    (tmp_path / "w.bin").write_bytes(VALUES.tobytes())
    monkeypatch.chdir(tmp_path)
    for source in (path.read_bytes(), onnx.load(path, load_external_data=False)):
        with pytest.raises(InvalidModelError, match="Load the model by path"):
            load_model(source)


def test_a_relative_path_is_looked_up_where_the_model_is(tmp_path, monkeypatch):
    save(tmp_path / "model", external())
    (tmp_path / "model" / "w.bin").write_bytes(VALUES.tobytes())
    monkeypatch.chdir(tmp_path / "model")
    assert weight("m.onnx").tolist() == VALUES.tolist()
    monkeypatch.chdir(tmp_path)
    assert weight("model/m.onnx").tolist() == VALUES.tolist()
