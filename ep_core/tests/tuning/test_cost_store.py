"""What was measured lasts in files, whatever else lies there and whoever else writes."""

from __future__ import annotations

import json
import logging
import os
import threading

import pytest

from ep_core.tuning import store as room
from ep_core.tuning.store import CostStore

BINDING = ["device 0", "provider 1.0"]


def seconds_in(folder, *keys):
    store = CostStore(folder, BINDING)
    return {key: store.get(key) for key in keys if store.knows(key)}


def filled(folder, binding=BINDING, **costs):
    store = CostStore(folder, binding)
    for key, seconds in costs.items():
        store.put(key, seconds)
    store.save()
    return store


def only_file(folder):
    (path,) = folder.iterdir()
    return path


def test_costs_and_failures_come_back_exactly(folder):
    filled(folder, a=0.1, b=None, c=1 / 3, d=0.0)
    assert seconds_in(folder, *"abcde") == {"a": 0.1, "b": None, "c": 1 / 3, "d": 0.0}


def test_another_binding_is_another_file(folder):
    filled(folder, a=1.0)
    filled(folder, ["device 1", "provider 1.0"], a=2.0)
    assert seconds_in(folder, "a") == {"a": 1.0}
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("place", [None, BINDING])
def test_without_a_folder_or_a_binding_a_store_remembers_for_its_own_life(folder, place):
    store = CostStore(None if place else folder, place)
    store.put("a", 1.0)
    store.save()
    assert store.get("a") == 1.0
    assert not folder.exists()


def test_nothing_new_writes_nothing(folder):
    CostStore(folder, BINDING).save()
    assert not folder.exists()


def test_what_another_wrote_meanwhile_is_kept(folder):
    one, other = CostStore(folder, BINDING), CostStore(folder, BINDING)
    one.put("a", 1.0)
    one.save()
    other.put("b", 2.0)
    other.save()
    assert seconds_in(folder, "a", "b") == {"a": 1.0, "b": 2.0}


def test_many_threads_at_once_lose_nothing(folder):
    def work(number):
        for step in range(20):
            filled(folder, **{f"{number}_{step}": float(step)})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keys = [f"{number}_{step}" for number in range(6) for step in range(20)]
    assert len(seconds_in(folder, *keys)) == len(keys)
    assert len(list(folder.iterdir())) == 1, "no unfinished file is left"


def data_with(**changes):
    return json.dumps({"format": room.FORMAT, "binding": BINDING, "seconds": {"a": 1.0}} | changes)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00garbage",
        b"[1, 2]",
        b"null",
        b"{",
        b"[" * 100_000,
        data_with(format=99).encode(),
        data_with(binding=["another"]).encode(),
        data_with(seconds=[1.0]).encode(),
        data_with(seconds={"a": "1.0"}).encode(),
        data_with(seconds={"a": -1.0}).encode(),
        data_with(seconds={"a": True}).encode(),
        data_with(seconds={"a": float("nan")}).encode(),
        data_with(seconds={"a": float("inf")}).encode(),
        data_with(seconds={"a": 10**400}).encode(),
        data_with(seconds={"a": 1e300}).encode(),
        b" " * (room._MOST_BYTES + 1),
    ],
    ids=lambda content: repr(content[:40]),
)
def test_a_file_that_is_damaged_or_foreign_is_told_and_replaced(folder, caplog, content):
    filled(folder, a=5.0)
    path = only_file(folder)
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING, "ep_core"):
        assert seconds_in(folder, "a") == {}
    assert str(path) in caplog.text
    filled(folder, b=2.0)
    assert seconds_in(folder, "a", "b") == {"b": 2.0}


def test_a_link_or_a_folder_in_place_of_the_file_isnt_read(folder, tmp_path):
    filled(folder, a=5.0)
    path = only_file(folder)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert seconds_in(folder, "a") == {}
    path.unlink()
    path.mkdir()
    assert seconds_in(folder, "a") == {}


def test_a_folder_that_cant_be_written_is_a_warning(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with caplog.at_level(logging.WARNING, "ep_core"):
        store = filled(blocked / "costs", a=1.0)
    assert "can't be kept" in caplog.text
    assert store.get("a") == 1.0


def test_a_full_disk_leaves_the_old_file(folder, caplog, monkeypatch):
    filled(folder, a=1.0)

    def full(path, text):
        raise OSError("no space left on device")

    monkeypatch.setattr(room, "write_atomically", full)
    filled(folder, b=2.0)
    assert "no space left" in caplog.text
    assert seconds_in(folder, "a", "b") == {"a": 1.0}


def test_the_oldest_entries_and_files_go_first(folder, monkeypatch):
    monkeypatch.setattr(room, "_MOST_ENTRIES", 3)
    monkeypatch.setattr(room, "_MOST_FILES", 2)
    for number in range(5):
        filled(folder, **{f"k{number}": float(number)})
    assert seconds_in(folder, *(f"k{number}" for number in range(5))) == {
        "k2": 2.0,
        "k3": 3.0,
        "k4": 4.0,
    }
    for age, device in enumerate(["x", "y"]):
        filled(folder, [device], a=1.0)
        for path in folder.iterdir():
            os.utime(path, (path.stat().st_mtime - 10 * (2 - age),) * 2)
    assert len(list(folder.iterdir())) == 2
    assert seconds_in(folder, "k4") == {}, "the file of BINDING was the oldest"


def test_what_is_new_stays_and_what_was_left_unfinished_goes_whatever_the_clock_says(
    folder, monkeypatch
):
    """The others seem to be from tomorrow, and one is of a process that was killed in writing."""
    monkeypatch.setattr(room, "_MOST_FILES", 3)
    folder.mkdir()
    for number, end in enumerate([".tmp", ".json", ".json", ".json"]):
        path = folder / f"costs-{number}{end}"
        path.write_text("")
        os.utime(path, (4e9 + number, 4e9 + number))
    filled(folder, a=1.0)
    assert seconds_in(folder, "a") == {"a": 1.0}
    assert sorted(path.name for path in folder.iterdir())[:2] == ["costs-2.json", "costs-3.json"]
    assert len(list(folder.iterdir())) == 3
