"""A store on a file system that is not this machine's; fsspec's memory stands in for one."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import pytest

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.errors import SourceError
from tests.support.stores import held, numbers, table
from tests.support.ticks import at_us

FOLDERS = itertools.count()


@pytest.fixture
def url() -> Iterator[str]:
    name = f"memory://store {next(FOLDERS)}"
    yield name
    memory = fsspec.filesystem("memory")
    if memory.exists(name):
        memory.rm(name, recursive=True)


def test_it_is_a_store_as_any_other(url: str) -> None:
    store = g.store(url)
    assert (store.sequence, len(store), store.verify().sound) == (0, 0, True)
    with store.writer() as writer:
        writer.append(table([(0, 10), (10, 40)]))
        writer.extend([table([(20, 30)], 2), table([(25, 26)], 3)], cti=at_us(26))
        writer.advance(at_us(30))
    before = held(store)
    assert before == [(1, [0, 1], None), (2, [2], None), (3, [3], 26), (4, [], 30)]
    assert store.compact() == 3
    assert held(store) == before
    assert numbers(store.read(at_us(26), at_us(27))) == [1, 2]
    assert numbers(g.events(store).collect()) == [0, 1, 2, 3]
    assert store.expire(at_us(40)) == 4
    assert store.append(table([(30, MAX_TIME)], 4), cti=at_us(MAX_TIME)) == 5
    assert held(store) == [(4, [], 30), (5, [4], MAX_TIME)]
    assert [batch.sequence for batch in store.follow()] == [4, 5]
    assert (store.path, store.verify().sound, store.verify().leftovers) == (url.replace("//", "///"), True, ())
    with fsspec.open(store.files()[1]) as file:
        assert file.read()[:6] == b"ARROW1"


def test_a_file_system_may_be_given(url: str, tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    g.store(url).append(table([(0, 1)]))
    assert len(g.store(url.removeprefix("memory:/"), filesystem=memory)) == 1
    local = g.store(tmp_path / "here", filesystem=fsspec.filesystem("file"))
    local.append(table([(0, 1)]))
    assert len(g.store(f"file://{tmp_path}/here")) == len(g.store(tmp_path / "here")) == 1
    with pytest.raises(SourceError, match="is no fsspec file system"):
        g.store("somewhere", filesystem=object())
    with pytest.raises(SourceError, match="cannot be opened"):
        g.store("nowhere://store")


def test_a_second_writer_is_refused_until_it_takes_over_by_name(url: str) -> None:
    store = g.store(url)
    killed = store.writer()
    killed.append(table([(0, 1)]))
    with pytest.raises(
        SourceError, match=r"has a writer: process \d+ on .*take its place: .writer\(take_over="
    ) as error:
        store.writer()
    owner = str(error.value).partition("has a writer: ")[2].partition(". A store")[0]
    with pytest.raises(SourceError, match="has a writer"):
        store.writer(take_over="process 1 on another machine")
    with store.writer(take_over=owner) as writer:
        assert writer.append(table([(1, 2)], 1)) == 2
        # The one that was thought to be dead was not: it stops before it seals anything.
        with pytest.raises(SourceError, match="has been taken over by process"):
            killed.append(table([(1, 2)], 2))
        killed.close()
        with pytest.raises(SourceError, match="has a writer"):
            store.writer()
    assert store.append(table([(2, 3)], 2)) == 3
    assert numbers(store.read()) == [0, 1, 2]


def test_what_a_killed_writer_left_is_removed(url: str) -> None:
    memory = fsspec.filesystem("memory")
    store = g.store(url)
    with store.writer() as writer:
        writer.append(table([(0, 1)]))
        writer.extend([table([(1, 2)], 1), table([(2, 3)], 2)])
    memory.rm(store.files()[2])
    memory.pipe_file(f"{url}/.0123.tmp", b"ARR")
    assert numbers(store.read()) == [0]
    assert len(store.verify().leftovers) == 2
    assert store.append(table([(1, 2)], 3)) == 2
    assert numbers(store.read()) == [0, 3]
    assert not store.verify().leftovers


def test_damage_is_found(url: str) -> None:
    memory = fsspec.filesystem("memory")
    store = g.store(url)
    store.append(table([(0, 1)]))
    [path] = store.files()
    content = memory.cat_file(path)
    for damaged in (content[:-1], content[:500] + b"?" + content[501:], b""):
        memory.pipe_file(path, damaged)
        with pytest.raises(SourceError, match="is damaged"):
            store.read()


@pytest.mark.services
def test_without_fsspec_the_error_says_what_to_install() -> None:
    script = """
import sys
sys.modules["fsspec"] = sys.modules["fsspec.core"] = None
import gpu_ops as g
try:
    g.store("s3://bucket/store")
except g.SourceError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "fsspec is not installed. Install it with what it needs" in done.stdout
