"""A manifest is there whole or not at all, of two writers one makes it, and what it needs stays as long as it does."""

from __future__ import annotations

import json
import threading
import zlib
from contextlib import suppress
from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import pytest

from gpu_ops.checkpoints.manifests import Manifest, Manifests, TakenError, manifest_name, new_folder, prefix
from gpu_ops.checkpoints.state_files import StateFile
from gpu_ops.errors import PlanError, SourceError
from gpu_ops.microbatches.folders import LocalFolder, open_folder

FOLDER = new_folder()


def _manifests(path: Path) -> Manifests:
    return Manifests(LocalFolder(path))


def _state(path: Path, name: str) -> StateFile:
    (path / name).write_bytes(name.encode())
    return StateFile(name, len(name), zlib.crc32(name.encode()))


def test_a_manifest_is_read_as_it_was_committed(tmp_path: Path) -> None:
    made = Manifest(1, FOLDER, [_state(tmp_path, "000000000001-a.state")], {"of": ["all", 1, None]})
    _manifests(tmp_path).commit(made)
    assert _manifests(tmp_path).read() == Manifest(1, FOLDER, tuple(made.files), made.content, made=made.made)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["000000000001-a.state", "000000000001.manifest"]


@pytest.mark.parametrize("url", ["memory://checkpoints of two", ""])
def test_of_two_writers_one_makes_a_checkpoint(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_folder(url or tmp_path / "of two", None)
    folder.make()
    one, other = Manifests(folder), Manifests(folder)
    one.commit(Manifest(1, FOLDER, []))
    with pytest.raises(TakenError, match=r"checkpoint 1 is not of this one.*one writer at a time"):
        other.commit(Manifest(1, FOLDER, []))
    # The other has seen no checkpoint yet when both give theirs the name.
    with monkeypatch.context() as patch:
        patch.setattr(Manifests, "numbers", lambda _: [])
        with pytest.raises(TakenError, match="checkpoint 1"):
            other.commit(Manifest(1, FOLDER, []))
    one.commit(Manifest(2, FOLDER, []))
    assert other.numbers() == [1, 2]
    if url:
        fsspec.filesystem("memory").rm(url, recursive=True)


@pytest.mark.parametrize("url", ["memory://a race", ""])
def test_of_many_writers_at_once_one_makes_each_checkpoint(tmp_path: Path, url: str) -> None:
    folder = open_folder(url or tmp_path, None)
    folder.make()
    start, won = threading.Barrier(4), dict[int, list[int]]()

    def write(writer: int) -> None:
        for number in range(1, 9):
            start.wait()
            with suppress(TakenError):
                Manifests(folder).commit(Manifest(number, FOLDER, [], {"by": writer}))
                won.setdefault(number, []).append(writer)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert {number: len(writers) for number, writers in won.items()} == dict.fromkeys(range(1, 9), 1)
    assert all(Manifests(folder).read(number).content == {"by": writers[0]} for number, writers in won.items())
    if url:
        fsspec.filesystem("memory").rm(url, recursive=True)


def test_a_late_writer_does_not_take_a_number_that_is_free_again(tmp_path: Path) -> None:
    made = _manifests(tmp_path)
    for number in (1, 2, 3):
        made.commit(Manifest(number, FOLDER, []))
        made.clean(1)
    with pytest.raises(TakenError, match="checkpoint 3 is"):
        made.commit(Manifest(2, FOLDER, []))


def test_an_answer_that_got_lost_is_no_second_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fsspec.filesystem("memory")
    folder = open_folder("memory://lost", None)
    put = type(memory).pipe_file

    def put_twice(self: object, *arguments: object, **options: object) -> None:
        put(self, *arguments, **options)
        put(self, *arguments, **options)

    monkeypatch.setattr(type(memory), "pipe_file", put_twice)
    Manifests(folder).commit(Manifest(1, FOLDER, []))
    assert Manifests(folder).numbers() == [1]
    memory.rm("memory://lost", recursive=True)


def test_a_file_system_that_looks_and_then_writes_is_refused(tmp_path: Path) -> None:
    class Looking(type(fsspec.filesystem("memory"))):  # type: ignore[misc]
        protocol = "looking"

    with pytest.raises(SourceError, match="of two writers both might succeed"):
        Manifests(open_folder("/there", Looking())).commit(Manifest(1, FOLDER, []))


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", link)
    with pytest.raises(SourceError, match=r"has no hard links.*\.checkpoint\(file\)"):
        _manifests(tmp_path).commit(Manifest(1, FOLDER, []))
    assert not list(tmp_path.iterdir())


def test_what_no_kept_manifest_needs_is_removed(tmp_path: Path) -> None:
    made = _manifests(tmp_path)
    old, both, new = (_state(tmp_path, f"{prefix(at, 'w-')}{at}.state") for at in (1, 2, 3))
    for name in ("notes.txt", f"{prefix(3)}garbage.state", f"{prefix(4)}next.state", ".000000000003.manifest.tmp"):
        (tmp_path / name).write_text("…")
    unfinished = tmp_path / f".{manifest_name(2)}.0123456789abcdef.tmp"
    unfinished.write_text("…")
    for number, files in enumerate(([old], [old, both], [both, new]), 1):
        made.commit(Manifest(number, FOLDER, files))
    made.clean(2)
    there = {each.name for each in tmp_path.iterdir()}
    assert there == {
        *(old.name, both.name, new.name, manifest_name(2), manifest_name(3)),
        *("notes.txt", f"{prefix(4)}next.state", ".000000000003.manifest.tmp"),
    }
    made.clean(1)
    assert {each.name for each in tmp_path.iterdir()} == there - {old.name, manifest_name(2)}
    with pytest.raises(PlanError, match="One checkpoint is kept"):
        made.clean(0)


def test_nothing_is_removed_while_a_kept_manifest_cannot_be_read(tmp_path: Path) -> None:
    made = _manifests(tmp_path)
    for number in (1, 2):
        made.commit(Manifest(number, FOLDER, [_state(tmp_path, f"{prefix(number)}a.state")]))
    (tmp_path / manifest_name(2)).write_text("{}")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SourceError, match="manifest is damaged"):
        made.clean(1)
    assert sorted(tmp_path.iterdir()) == before


def _sealed(said: object) -> bytes:
    body = json.dumps(said).encode()
    return body + b"\ncrc32:%08x" % zlib.crc32(body)


WHOLE = {"format": 1, "version": "1", "folder": "f", "number": 1, "made": "m", "files": [], "content": {}}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it is not what was written"),
        (_sealed(WHOLE)[:-1], "it is not what was written"),
        (_sealed(WHOLE).replace(b'"m"', b'"n"'), "it is not what was written"),
        (_sealed([]), "should be an object"),
        (b"[" * 100_000 + b"\ncrc32:%08x" % zlib.crc32(b"[" * 100_000), "is damaged"),
        (_sealed({**WHOLE, "number": 2}), "it is of checkpoint 2"),
        (_sealed({**WHOLE, "files": [{"name": f"{prefix(1)}.state", "size": -1, "crc": 0}]}), "size' is -1"),
        (_sealed({**WHOLE, "files": [{"name": "../passwd", "size": 9, "crc": 0}]}), "the name of a state file"),
        (_sealed({**WHOLE, "format": 7, "version": "9"}), "has format 7.*gpu_ops that wrote it: 9"),
    ],
)
def test_a_damaged_manifest_is_named(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / manifest_name(1)).write_bytes(content)
    with pytest.raises(SourceError, match=f"{manifest_name(1)}.*{says}"):
        _manifests(tmp_path).read()


def test_a_folder_without_checkpoints_says_so(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no checkpoint: it has none"):
        _manifests(tmp_path / "missing").read()
    _manifests(tmp_path).commit(Manifest(1, FOLDER, []))
    with pytest.raises(SourceError, match="has no checkpoint 5: it has 1"):
        _manifests(tmp_path).read(5)
