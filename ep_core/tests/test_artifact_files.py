"""The cache's files: damaged ones, folders that can't be used, their size and who may read them."""

from __future__ import annotations

import itertools
import logging
import os
import stat
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storing_provider import BRANCHES, WEIGHT, StoringFactory, X, expected, load, model_of

from ep_core.artifacts import pieces
from ep_core.artifacts.folder import ArtifactFolder

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="modes and links as POSIX has them")


def files(folder):
    return sorted(folder.iterdir())


# ---------------------------------------------------------------- damaged files


def truncated(path):
    path.write_bytes(path.read_bytes()[:-1])


def header_only(path):
    path.write_bytes(path.read_bytes()[:20])


def empty(path):
    path.write_bytes(b"")


def foreign(path):
    path.write_bytes(b"GIF89a" + bytes(5000))


def grown(path):
    path.write_bytes(path.read_bytes() + b"\0")


def other_version(path):
    data = bytearray(path.read_bytes())
    data[8] += 1
    path.write_bytes(data)


def renamed(path):
    """The artifact of another subgraph, whole, under this one's name."""
    data = bytearray(path.read_bytes())
    data[12:44] = bytes(32)
    path.write_bytes(data)


def linked(path):
    """Whole, but reached through a link that leads out of the folder."""
    outside = path.parent.parent / "outside"
    outside.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(outside)


def dangling(path):
    path.unlink()
    path.symlink_to(path.parent / "nowhere")


def pipe(path):
    path.unlink()
    os.mkfifo(path)


DAMAGES = [truncated, header_only, empty, foreign, grown, other_version, renamed]
DAMAGES += [pytest.param(damage, marks=POSIX) for damage in (linked, dangling, pipe)]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_a_miss_and_is_replaced(run, folder, caplog, damage):
    caplog.set_level(logging.INFO, "ep_core")
    factory = StoringFactory()
    run(factory)
    (path,) = files(folder)
    damage(path)
    (found,), _, calls = run(factory)
    assert calls == ["compile", "export"]
    np.testing.assert_array_equal(found, expected())
    assert "can't be used and is made anew" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert run(factory)[2] == ["import"]
    assert stat.S_ISREG(path.lstat().st_mode)


@POSIX
def test_a_link_is_replaced_and_its_target_left_alone(run, folder):
    factory = StoringFactory()
    run(factory)
    (path,) = files(folder)
    linked(path)
    outside = path.resolve()
    before = outside.read_bytes()
    run(factory)
    assert outside.read_bytes() == before
    assert not path.is_symlink()


def test_a_folder_in_place_of_the_file_costs_the_artifact_only(run, folder, caplog):
    factory = StoringFactory()
    run(factory)
    (path,) = files(folder)
    path.unlink()
    (path / "inside").mkdir(parents=True)
    assert run(factory)[2] == ["compile", "export"]
    assert "can't be kept" in caplog.text
    assert files(folder) == [path]


def test_no_memory_for_an_artifact_is_a_miss(run, monkeypatch):
    def read(path, key, size, mapped):
        raise MemoryError

    factory = StoringFactory()
    run(factory)
    monkeypatch.setattr("ep_core.artifacts.folder._read", read)
    assert run(factory)[2] == ["compile", "export"]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 255), st.binary(max_size=200))
def test_no_changed_byte_goes_unnoticed(tmp_path_factory, place, change, payload):
    folder = ArtifactFolder(tmp_path_factory.mktemp("flip"), 2**20)
    key = bytes(range(32))
    folder.write(key, payload)
    assert folder.read(key) == payload
    assert folder.read(key, mapped=True) == payload
    path = folder._file(key)
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= change
    path.unlink()
    path.write_bytes(data)
    assert folder.read(key) is None
    assert folder.read(key, mapped=True) is None


@pytest.mark.parametrize("mapped", [False, True])
def test_every_piece_has_its_place(tmp_path, monkeypatch, mapped):
    monkeypatch.setattr(pieces, "_PIECE_BYTES", 4)
    folder = ArtifactFolder(tmp_path, 2**20)
    folder.write(bytes(32), b"abcdEFGHijk")
    assert folder.read(bytes(32), mapped=mapped) == b"abcdEFGHijk"
    (path,) = files(tmp_path)
    for changed in (b"EFGHabcdijk", b"abcdEFGHijK", b"abcdabcdijk"):
        path.write_bytes(path.read_bytes()[:-11] + changed)
        assert folder.read(bytes(32), mapped=mapped) is None


def test_who_takes_mapped_files_gets_a_view_that_nobody_writes_to(run, folder):
    seen = []

    def look(provider, subgraph, artifact):
        seen.append(artifact)
        return load(provider, subgraph, bytes(artifact))

    factory = StoringFactory()
    factory.features = replace(factory.features, maps_artifacts=True)
    factory.importing = look
    run(factory)
    (found,), _, calls = run(factory)
    assert calls == ["import"]
    np.testing.assert_array_equal(found, expected())
    assert isinstance(seen[0], memoryview)
    assert seen[0].readonly
    (path,) = files(folder)
    assert path.read_bytes().endswith(bytes(seen[0]))


# ---------------------------------------------------------------- folders that can't be used


def warning_of(caplog):
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1, warnings
    return warnings[0]


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_path_that_is_a_file(run, tmp_path, caplog, below):
    blocked = tmp_path / "file"
    blocked.write_text("mine")
    for _ in range(2):
        caplog.clear()
        found, _, calls = run(
            StoringFactory(),
            model_of(BRANCHES),
            {"x": X, "c": np.array(True)},
            cache_dir=blocked / below,
        )
        assert calls == ["compile", "export"] * 3
        np.testing.assert_array_equal(found[0], (X + WEIGHT) * WEIGHT)
        assert "compiled artifacts can't be kept in" in warning_of(caplog)
    assert blocked.read_text() == "mine"


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
def test_a_path_that_can_not_be(run, caplog, path):
    assert run(StoringFactory(), cache_dir=path)[2] == ["compile", "export"]
    assert "can't be kept in" in warning_of(caplog)


@POSIX
def test_a_read_only_folder_still_serves_what_it_has(run, folder, caplog, monkeypatch):
    factory = StoringFactory()
    run(factory)
    folder.chmod(0o500)
    real = os.open

    def no_new_files(path, flags, *args, **more):
        # The superuser may write anywhere, and tests often run as one.
        if flags & os.O_CREAT and str(path).startswith(str(folder)):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, flags, *args, **more)

    monkeypatch.setattr(os, "open", no_new_files)
    monkeypatch.setattr(os, "utime", lambda path: no_new_files(path, os.O_CREAT))
    assert run(factory)[2] == ["import"]
    assert not caplog.records
    other = model_of(weight=np.float32([5, 6, 7, 8]))
    for _ in range(2):
        assert run(factory, other)[2] == ["compile", "export"]
    folder.chmod(0o700)
    assert [r.levelno for r in caplog.records] == [logging.WARNING] * 2
    assert len(files(folder)) == 1


def test_a_full_disk_leaves_nothing_behind(run, folder, caplog, monkeypatch):
    real = os.fdopen

    def full(handle, mode):
        file = real(handle, mode)
        if mode == "wb":
            file.close()
            raise OSError(28, "No space left on device")
        return file

    monkeypatch.setattr(os, "fdopen", full)
    assert run(StoringFactory())[2] == ["compile", "export"]
    assert "No space left on device" in warning_of(caplog)
    assert files(folder) == []


# ---------------------------------------------------------------- size, rights, company


def key_of(number):
    return bytes([number]) * 32


def aged(folder, number, seconds):
    """Make an artifact look last used that long ago."""
    path = folder._file(key_of(number))
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def test_what_was_used_longest_ago_goes_first(tmp_path):
    folder = ArtifactFolder(tmp_path, 4 * 1100)
    for number in range(4):
        folder.write(key_of(number), bytes(1000))
        aged(folder, number, 100 - number)
    assert folder.read(key_of(0)) is not None  # now the one used last
    folder.write(key_of(4), bytes(1000))
    kept = [number for number in range(5) if folder.read(key_of(number)) is not None]
    assert kept == [0, 2, 3, 4]
    assert sum(path.stat().st_size for path in files(tmp_path)) <= 4 * 1100


def test_the_newest_stays_whatever_the_clocks_say(tmp_path):
    folder = ArtifactFolder(tmp_path, 2000)
    folder.write(key_of(0), bytes(1500))
    aged(folder, 0, -1000)
    folder.write(key_of(1), bytes(1500))
    assert folder.read(key_of(0)) is None
    assert folder.read(key_of(1)) is not None


def test_only_our_own_files_are_removed(tmp_path):
    bystanders = ["notes.txt", "a" * 64, f"{'a' * 64}.ep-artifact.bak", f"x{'a' * 64}.ep-artifact"]
    for name in bystanders:
        (tmp_path / name).write_bytes(bytes(5000))
    (tmp_path / f"{'b' * 64}.ep-artifact").mkdir()
    folder = ArtifactFolder(tmp_path, 2000)
    for number in range(3):
        folder.write(key_of(number), bytes(1500))
        aged(folder, number, 10 - number)
    left = {path.name for path in files(tmp_path)}
    assert left == {*bystanders, f"{'b' * 64}.ep-artifact", f"{key_of(2).hex()}.ep-artifact"}


@POSIX
def test_links_are_not_ours_to_remove(tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(bytes(9000))
    inside = tmp_path / "cache"
    inside.mkdir()
    link = inside / f"{'c' * 64}.ep-artifact"
    link.symlink_to(outside)
    ArtifactFolder(inside, 2000).write(key_of(1), bytes(1500))
    assert link.is_symlink()
    assert outside.stat().st_size == 9000
    assert len(files(inside)) == 2


def test_an_artifact_larger_than_the_whole_is_not_kept(run, folder):
    factory = StoringFactory()
    assert run(factory, cache_max_bytes=50)[2] == ["compile", "export"]
    assert run(factory, cache_max_bytes=0)[2] == ["compile", "export"]
    assert not folder.exists()


def test_what_a_dead_process_left_is_cleared_away(tmp_path):
    folder = ArtifactFolder(tmp_path, 2**20)
    old = tmp_path / f"{'d' * 64}.k2j3.ep-unfinished"
    fresh = tmp_path / f"{'e' * 64}.k2j3.ep-unfinished"
    for path in (old, fresh):
        path.write_bytes(b"half")
    then = old.stat().st_mtime - 7200
    os.utime(old, (then, then))
    folder.write(key_of(1), b"whole")
    assert not old.exists()
    assert fresh.exists()


@POSIX
def test_files_are_private_to_the_user(run, folder):
    before = os.umask(0)
    try:
        run(StoringFactory())
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(files(folder)[0].stat().st_mode) == 0o600


def test_readers_and_writers_at_once_see_whole_artifacts(tmp_path):
    """Writers replace one artifact over and over while readers look and others are evicted."""
    key = key_of(9)
    payloads = [bytes([n]) * (1000 + 5000 * n) for n in range(4)]
    problems = []
    stop = threading.Event()

    def write(number):
        folder = ArtifactFolder(tmp_path, 40_000)
        for turn in itertools.count():
            if stop.is_set():
                return
            folder.write(key, payloads[(number + turn) % 4])
            folder.write(key_of(turn % 7), bytes(3000))

    def read():
        folder = ArtifactFolder(tmp_path, 40_000)
        for _ in range(300):
            found = folder.read(key)
            if found is not None and found not in payloads:
                problems.append(found)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in (*writers, *readers):
        thread.start()
    for thread in readers:
        thread.join()
    stop.set()
    for thread in writers:
        thread.join()
    assert not problems
    assert not [path for path in files(tmp_path) if path.suffix == ".ep-unfinished"]
