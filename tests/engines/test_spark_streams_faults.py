"""Live queries on Spark beside one another, on full disks, over damaged files, and going back; tasks run here."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest

import gpu_ops as g
from tests.support.epochs import Epoch, admitted, read, same, table
from tests.support.epochs_here import drive, finish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class KilledError(Exception):
    """Stands for a kill."""


def drawn(seed: int, count: int = 3, rows: int = 8) -> list[Epoch]:
    """Pieces of an input, whose rows are up to half a minute out of order."""
    made = random.Random(seed)
    pieces: list[Epoch] = []
    for number in range(count):
        starts = [max(0, 40 * number + made.randrange(-30, 40)) for _ in range(rows)]
        pieces.append([(at, at + made.randrange(1, 90), made.choice("abcd"), made.randrange(100)) for at in starts])
    return pieces


def counted(stream: g.Stream) -> g.Stream:
    return stream.by("item").sliding("1min").agg(n=g.count(), best=g.max("price"))


def stream(spark: SparkSession, tmp_path: Path, delay: str = "30s") -> g.Stream:
    (tmp_path / "in").mkdir(exist_ok=True)
    events = g.events(read(spark, tmp_path / "in"), start="at", end="till", unit="s")
    return events.advance_time("10s", delay=delay, late="drop")


def answer(query: Any, pieces: list[Epoch], delay: int = 30) -> Any:
    taken, _ = admitted(pieces, every=10, delay=delay, late="drop")
    return query(g.events(table(taken), start="at", end="till", unit="s")).collect()


def test_two_queries_share_the_memory_of_workers(spark: SparkSession, tmp_path: Path) -> None:
    """Step by step in turn: of the same key and of another one, in more partitions than are kept."""
    pieces = drawn(1)
    queries: dict[str, Callable[[g.Stream], g.Stream]] = {
        "same": counted,
        "other": lambda s: s.by("price").tumbling("1min").agg(n=g.count()),
    }
    where: dict[str, dict[str, Any]] = {
        name: {"into": tmp_path / name, "checkpoint": tmp_path / f"{name} checkpoint", "partitions": number}
        for name, number in (("same", 3), ("other", 1))
    }
    source = stream(spark, tmp_path)
    for until in range(1, len(pieces) + 1):
        for name, query in queries.items():
            drive(query(source), pieces[:until], **where[name])
    for name, query in queries.items():
        finish(query(source), into=where[name]["into"], checkpoint=where[name]["checkpoint"])
        same(g.epochs(tmp_path / name).read(), answer(query, pieces))


def test_a_function_that_has_changed_and_is_accepted_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Workers remember the query of the start before, which has the other function."""

    def query(factor: int) -> g.Stream:
        def most(rows: Any) -> int:
            return factor * int(max(rows["price"].to_pylist()))

        best = g.window_function(most, returns=pa.int64(), of="price")
        return stream(spark, tmp_path).by("item").tumbling("1min").agg(best=best)

    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    pieces: list[Epoch] = [[(0, 10, "a", 3)], [(200, 210, "a", 5)]]
    drive(query(1), pieces[:1], **where, partitions=1)
    drive(query(10), pieces, **where, if_functions_changed="accept")
    finish(query(10), **where, if_functions_changed="accept")
    assert sorted(g.epochs(tmp_path / "out").read()["best"].to_pylist()) == [30, 50]


def test_a_disk_that_is_full_at_any_moment(spark: SparkSession, tmp_path: Path) -> None:
    """Each sync of an epoch fails once, in a path with spaces; the same call then goes on."""
    pieces = drawn(2)
    query = counted(stream(spark, tmp_path))
    where: dict[str, Any] = {"into": tmp_path / "the results", "checkpoint": tmp_path / "the checkpoint"}
    drive(query, pieces[:1], **where, partitions=2)
    sync, errors = os.fsync, list[str]()

    for step in range(1, 60):
        calls = 0

        def full(handle: int, step: int = step) -> None:
            nonlocal calls
            calls += 1
            if calls == step:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(handle)

        try:
            with mock.patch("os.fsync", full):
                drive(query, pieces[:2], **where)
        except g.SourceError as error:
            errors.append(str(error))
        if not calls:
            break
    assert len(errors) > 4
    assert all("No space left" in each and "room and permission" in each for each in errors)
    drive(query, pieces, **where)
    finish(query, **where)
    same(g.epochs(tmp_path / "the results").read(), answer(counted, pieces))


def test_a_checkpoint_that_is_copied_goes_on_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    """Once it has, the one that it was copied from is an older one; so is a copy of before."""
    pieces = drawn(4, count=4)
    query = counted(stream(spark, tmp_path))
    checkpoint, into = tmp_path / "the checkpoint", tmp_path / "the results"
    drive(query, pieces[:1], into=into, checkpoint=checkpoint, partitions=2)
    elsewhere = shutil.copytree(checkpoint, tmp_path / "another place" / "checkpoint")
    drive(query, pieces[:3], into=into, checkpoint=elsewhere)
    with pytest.raises(g.SourceError, match=r"other files than the query's own.*an older copy"):
        drive(query, pieces, into=into, checkpoint=checkpoint)
    drive(query, pieces, into=into, checkpoint=elsewhere)
    finish(query, into=into, checkpoint=elsewhere)
    same(g.epochs(into).read(), answer(counted, pieces))


def test_late_rows_have_a_place_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    query, into = counted(stream(spark, tmp_path)), tmp_path / "out"
    for name, (results, late) in enumerate([(into, f"file://{into}"), (g.store(into), g.store(into))]):
        with pytest.raises(g.PlanError, match=r"would both go into .*out.*a place of its own"):
            drive(query, [], into=results, late_into=late, checkpoint=tmp_path / f"checkpoint {name}")


def test_a_folder_of_results_that_takes_nothing_more(spark: SparkSession, tmp_path: Path) -> None:
    """It becomes read-only between the commit of an epoch and its publishing; then it is mended."""
    pieces = drawn(5)
    query = counted(stream(spark, tmp_path))
    where: dict[str, Any] = {"into": tmp_path / "the results", "checkpoint": tmp_path / "the checkpoint"}
    drive(query, pieces[:1], **where, partitions=2)
    rename = Path.rename

    def refused(self: Path, target: Path) -> Path:
        if target.parent == where["into"]:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(target))
        return rename(self, target)

    seen = set()
    for _ in range(2):  # the second start finds the epoch committed, and has it to publish
        with (
            mock.patch.object(Path, "rename", refused),
            pytest.raises(g.SourceError, match=r"the results.*Read-only file system"),
        ):
            drive(query, pieces, **where)
        seen.add(g.epochs(where["into"]).last)
    assert len(seen) == 1
    drive(query, pieces, **where)
    finish(query, **where)
    same(g.epochs(where["into"]).read(), answer(counted, pieces))


def test_a_state_that_is_damaged_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """A byte of it changes between two starts; with the byte as it was the query goes on."""
    pieces = drawn(3)
    query = counted(stream(spark, tmp_path))
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    drive(query, pieces[:1], **where, partitions=1)
    (state,) = (tmp_path / "checkpoint" / "epochs").glob("*.state")
    sound = state.read_bytes()
    at = len(sound) // 2
    state.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
    with pytest.raises(g.SourceError, match=f"{state.name} is damaged: it is not what was written"):
        drive(query, pieces, **where)
    state.write_bytes(sound)
    drive(query, pieces, **where)
    finish(query, **where)
    same(g.epochs(tmp_path / "out").read(), answer(counted, pieces))


def test_going_back_is_killed_at_any_moment(spark: SparkSession, tmp_path: Path) -> None:
    """At each removal in turn; the next start ends what was begun. An ended query that goes back goes on."""
    pieces = drawn(4)
    query = counted(stream(spark, tmp_path, delay="70s"))  # nothing is late, whatever the epochs are
    where: dict[str, Any] = {"into": tmp_path / "run" / "out", "checkpoint": tmp_path / "run" / "checkpoint"}
    drive(query, pieces, **where, partitions=1, keep=9)
    finish(query, **where, keep=9)
    expected = answer(counted, pieces, delay=70)
    results = g.epochs(where["into"])
    assert results.last == len(pieces)
    until = {epoch: results.read(epoch) for epoch in range(len(pieces) + 1)}
    shutil.copytree(tmp_path / "run", tmp_path / "before")
    unlink = os.unlink
    for step in range(1, 99):
        shutil.rmtree(tmp_path / "run")
        shutil.copytree(tmp_path / "before", tmp_path / "run")
        calls = 0

        def die(*args: Any, step: int = step, **kwargs: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == step:
                raise KilledError
            unlink(*args, **kwargs)

        try:
            with mock.patch("os.unlink", die):
                query.go_back_on_spark(1, **where)
            break
        except KilledError:
            last = results.last
            assert last is not None
            same(results.read(), until[last])
        drive(query, pieces, **where, at_once=2, keep=9)
        finish(query, **where, keep=9)
        same(results.read(), expected)
        assert sorted(where["into"].glob("*.parquet")) == sorted(results.files())
    assert step > 8
    assert results.last == 1
    same(results.read(), until[1])


def test_what_does_not_go_back(spark: SparkSession, tmp_path: Path) -> None:
    pieces = drawn(5)
    query = counted(stream(spark, tmp_path))
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    drive(query, pieces, **where, partitions=1)
    with pytest.raises(g.SourceError, match=r"keeps epoch 0 no longer: it has 1, 2\."):
        query.go_back_on_spark(0, **where)
    (tmp_path / "checkpoint" / "spark" / "offsets" / "1").unlink()
    with pytest.raises(g.SourceError, match="Epoch 1 was begun with other inputs"):
        query.go_back_on_spark(1, **where)
    others: dict[str, Any] = {
        "what a function has done": lambda *_: None,
        "a store's batches": g.store(tmp_path / "store"),
    }
    for number, (why, into) in enumerate(others.items()):
        where = {"into": into, "checkpoint": tmp_path / f"checkpoint {number}"}
        drive(query, pieces[:2], **where, partitions=1)
        with pytest.raises(g.PlanError, match=f"cannot go back: {why}"):
            query.go_back_on_spark(0, **where)
