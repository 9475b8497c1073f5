"""What the file system says is believed: nothing is swallowed, and nothing that may be sound is called damaged."""

from __future__ import annotations

import errno
import gc
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.errors import SourceError
from gpu_ops.microbatches.batch_files import DamageError
from gpu_ops.microbatches.files import sync_folder
from tests.support.stores import held, table
from tests.support.ticks import at_us

pytestmark = pytest.mark.slow


def failing_sync(code: int) -> Callable[[int], None]:
    """`os.fsync` that fails for folders alone."""

    def fsync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(code, os.strerror(code))

    return fsync


# fsync


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EACCES])
def test_a_folder_that_cannot_be_synced_is_an_error(tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store = g.store(tmp_path / "store")
    store.append(table([(0, 1)]))
    answer = g.events(store).snapshot().agg(n=g.count())
    live = answer.start(device="cpu")
    monkeypatch.setattr("os.fsync", failing_sync(code))
    with pytest.raises(SourceError, match=os.strerror(code)):
        store.append(table([(1, 2)], 1))
    with pytest.raises(SourceError, match=os.strerror(code)):
        g.store(tmp_path / "other").append(table([(1, 2)], 1))
    with pytest.raises(SourceError, match=os.strerror(code)):
        answer.write(tmp_path / "answer.parquet", device="cpu")
    with pytest.raises(SourceError, match=os.strerror(code)):
        live.checkpoint(tmp_path / "checkpoint")
    monkeypatch.undo()
    # The batch had its name already: it is there or is not, and what comes next is numbered after it.
    assert store.append(table([(2, 3)], 2)) == store.sequence
    assert store.verify().sound


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_sync_folders_is_let_pass(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", failing_sync(code))
    store = g.store(tmp_path / "store")
    assert store.append(table([(0, 1)])) == 1


def test_a_folder_that_is_not_there_cannot_be_synced(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "gone")


def test_each_new_parent_folder_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, int]] = []

    def fsync(handle: int) -> None:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            synced.append((found.st_dev, found.st_ino))

    monkeypatch.setattr("os.fsync", fsync)
    path = tmp_path / "one" / "zwei Übung" / "three"
    g.store(path).append(table([(0, 1)]))
    made = {(found.st_dev, found.st_ino) for found in (each.stat() for each in (tmp_path, *path.parents, path))}
    wanted = [(each.stat().st_dev, each.stat().st_ino) for each in (tmp_path, path.parent.parent, path.parent, path)]
    assert list(dict.fromkeys(synced)) == wanted
    assert set(synced) <= made


# What cannot be read


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ENOSPC, errno.ENOMEM, errno.ESTALE])
def test_what_cannot_be_read_is_not_called_damaged(tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store = g.store(tmp_path)
    store.append(table([(0, 1)]))

    def refuses(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(pa, "OSFile", refuses)
        for read in (store.read, store.compact, lambda: list(store.batches()), lambda: store.append(table([(1, 2)]))):
            with pytest.raises(SourceError, match=os.strerror(code)) as raised:
                read()
            assert "no sign of damage" in str(raised.value)
            assert "discard" not in str(raised.value)
        report = store.verify()
        assert (report.damaged, len(report.unreadable), report.sound) == ((), 2, False)
    with monkeypatch.context() as patch:
        patch.setattr("os.scandir", refuses)
        with pytest.raises(SourceError, match="no sign of damage"):
            _ = store.sequence
    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", refuses)
        with pytest.raises(SourceError, match="no sign of damage"):
            g.store(tmp_path)
    assert held(store) == [(1, [0], None)]
    assert store.verify().sound


def test_too_little_memory_is_not_called_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = g.store(tmp_path)
    store.append(table([(0, 1)]))

    def refuses(*_: Any, **__: Any) -> None:
        raise pa.ArrowMemoryError("malloc of size 8 failed")

    monkeypatch.setattr(pa.ipc, "open_file", refuses)
    with pytest.raises(SourceError, match=r"no memory to read .*malloc") as raised:
        store.read()
    assert not isinstance(raised.value, DamageError)


# The lock


def test_a_writer_that_is_dropped_gives_its_lock_back(tmp_path: Path) -> None:
    for place in (tmp_path / "here", "memory://dropped writer"):
        store = g.store(place)
        writer = store.writer()
        writer.append(table([(0, 1)]))
        with pytest.raises(SourceError, match="has a writer"):
            store.writer()
        del writer
        gc.collect()
        assert store.append(table([(1, 2)], 1)) == 2
    fsspec.filesystem("memory").rm("/dropped writer", recursive=True)


def test_a_writer_whose_block_fails_gives_its_lock_back(tmp_path: Path) -> None:
    store = g.store(tmp_path)

    def fails(error: type[BaseException]) -> None:
        with store.writer() as writer:
            writer.append(table([(0, 1)]))
            raise error

    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error):
            fails(error)
    assert store.append(table([(1, 2)], 1)) == 3


@pytest.mark.parametrize("function", ["flock", "fstat", "identity"])
def test_a_writer_that_cannot_be_opened_holds_no_lock(
    tmp_path: Path, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    store = g.store(tmp_path)
    places = {"flock": "fcntl.flock", "fstat": "os.fstat", "identity": "pathlib.Path.rename"}
    with monkeypatch.context() as patch:
        patch.setattr(places[function], refuses)
        with pytest.raises(SourceError, match="Input/output error") as raised:
            store.writer()
    assert raised.tb is not None  # which keeps what the failed call held
    assert store.append(table([(0, 1)])) == 1
    assert not store.verify().leftovers


def test_a_full_disk_does_not_keep_the_lock_from_being_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = g.store(tmp_path)
    monkeypatch.setattr("os.pwrite", refuses)
    with store.writer(), pytest.raises(SourceError, match="has a writer: one that has just begun"):
        store.writer()
    assert store.append(table([(0, 1)])) == 1


@pytest.mark.parametrize("how", ["removed", "replaced", "with the folder"])
def test_a_lock_that_is_taken_away_stops_the_writer_before_it_seals(tmp_path: Path, how: str) -> None:
    store = g.store(tmp_path / "store")
    lock = tmp_path / "store" / ".writer.lock"
    with store.writer() as writer:
        writer.append(table([(0, 1)]))
        if how == "with the folder":
            (tmp_path / "store").rename(tmp_path / "away")
            with g.store(tmp_path / "store").writer() as second:
                second.append(table([(5, 6)], 5))
        else:
            lock.unlink()
            if how == "replaced":
                lock.touch()
        second = store.writer()
        assert second.append(table([(1, 2)], 1)) == 2
        writes: list[Callable[[], object]] = [
            lambda: writer.append(table([(2, 3)], 2)),
            lambda: writer.advance(at_us(MAX_TIME)),
            lambda: writer.extend([table([(2, 3)], 2)]),
            lambda: writer.expire(at_us(100)),
            writer.compact,
        ]
        for write in writes:
            with pytest.raises(SourceError, match=r"\.writer\.lock, which the writer holds, was replaced"):
                write()
        second.close()
        lock.unlink()
        with pytest.raises(SourceError, match=r"\.writer\.lock, which the writer holds, was removed"):
            writer.advance(at_us(MAX_TIME))
    assert store.append(table([(2, 3)], 2)) == 3
    assert [number for number, _, _ in held(store)] == [1, 2, 3]


def test_a_forked_process_does_not_take_the_lock_from_the_writer() -> None:
    store = g.store("memory://forked writer")
    writer = store.writer()
    writer._lock._process += 1  # type: ignore[attr-defined]  # as in a child
    writer.close()
    with pytest.raises(SourceError, match="has a writer"):
        store.writer()
    fsspec.filesystem("memory").rm("/forked writer", recursive=True)
