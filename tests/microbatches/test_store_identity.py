"""A store has an identity of its own: a copy keeps it, and a store that is made anew does not have it."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pytest

import gpu_ops as g
from gpu_ops.errors import SourceError
from gpu_ops.microbatches.folders import open_folder
from gpu_ops.microbatches.identity import StoreIdentity, read_identity, write_identity
from tests.support.stores import held, table
from tests.support.ticks import at_us

NUMBERS = itertools.count()


class Place:
    """A folder for a store, on this machine or not, and a way to its files beside the store's own."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.files, self.root = fsspec.core.url_to_fs(path)

    def read(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.files.cat_file(f"{self.root}/store.json"))
        return said

    def write(self, content: bytes) -> None:
        self.files.pipe_file(f"{self.root}/store.json", content)

    def remove(self, name: str = "/store.json") -> None:
        self.files.rm(self.root + name, recursive=True)


@pytest.fixture(params=["local", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "local":
        yield Place(str(tmp_path / "a störe"))
    else:
        made = Place(f"memory://a störe {next(NUMBERS)}")
        yield made
        if made.files.exists(made.root):
            made.remove("")


def test_the_first_write_gives_it_and_all_others_keep_it(place: Place) -> None:
    store = g.store(place.path)
    assert store.identity is None
    assert (store.sequence, store.verify().sound) == (0, True)
    store.append(table([(0, 10)]))
    identity = store.identity
    assert identity is not None
    assert place.read() == {"format": 1, "id": identity}
    store.append(table([(5, 10), (6, 12)], 1), cti=at_us(5))
    store.compact()
    store.expire(at_us(30))
    store.advance(at_us(40))
    with store.writer() as writer:
        assert writer.identity == StoreIdentity(identity)
        writer.discard(2)
    assert g.store(place.path).identity == identity
    report = store.verify()
    assert (report.sound, report.foreign, report.leftovers) == (True, (), ())
    place.remove("")
    again = g.store(place.path)
    again.append(table([(0, 1)]))
    assert again.identity not in {None, identity}


def test_a_store_of_an_older_version_gets_it_at_its_next_write(place: Place) -> None:
    store = g.store(place.path)
    store.append(table([(0, 10)]))
    place.remove()
    assert store.identity is None
    assert held(store) == [(1, [0], None)]
    assert store.verify().sound
    store.append(table([(1, 2)], 1))
    assert store.identity is not None


def test_a_copy_keeps_it(tmp_path: Path) -> None:
    store = g.store(tmp_path / "one")
    store.append(table([(0, 10)]))
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    copy = g.store(tmp_path / "other")
    copy.append(table([(1, 2)], 1))
    assert copy.identity == store.identity is not None


def test_who_writes_is_kept(place: Place) -> None:
    store = g.store(place.path)
    with store.writer() as writer:
        writer.append(table([(0, 10)]))
        writer.claim("a follower", 1)
        assert writer.identity.follower == "a follower"
        name = writer.identity.name
    store.append(table([(1, 2)], 1))
    store.compact()
    assert read_identity(open_folder(place.path, None)) == StoreIdentity(name, "a follower", 1)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"7", b"null", b'{"format": 1}', b'{"format": 1, "id": 7}', b"\xff\xfe", b'{"id": "a"}'],
)
def test_a_damaged_one_is_named(place: Place, content: bytes) -> None:
    store = g.store(place.path)
    store.append(table([(0, 10)]))
    place.write(content)
    for ask in (lambda: store.identity, store.writer, lambda: store.append(table([(1, 2)]))):
        with pytest.raises(SourceError, match=r"store\.json is damaged.*Or remove it"):
            ask()
    assert held(store) == [(1, [0], None)]
    [wrong] = store.verify().damaged
    assert "store.json is damaged" in wrong
    # What the error says helps, and the writer that could not be opened holds no lock.
    place.remove()
    assert store.append(table([(1, 2)], 1)) == 2


def test_one_of_a_later_version_is_refused(place: Place) -> None:
    store = g.store(place.path)
    store.append(table([(0, 10)]))
    place.write(b'{"format": 2, "id": "a", "follower": null}')
    with pytest.raises(SourceError, match=r"has format 2, and this version of gpu_ops reads 1"):
        store.append(table([(1, 2)]))
    report = store.verify()
    assert (report.damaged, len(report.unreadable)) == ((), 1)


def test_it_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_folder(tmp_path, None)
    write_identity(folder, StoreIdentity("one"))

    def refuses(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    for function in ("pathlib.Path.rename", "os.fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(function, refuses)
            with pytest.raises(SourceError, match="No space left"):
                write_identity(folder, StoreIdentity("another", "a follower", 3))
        assert read_identity(folder) == StoreIdentity("one")
        assert folder.names() == {"store.json"}
