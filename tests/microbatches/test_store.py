"""A store gives back what was appended, by number and by time, while it is written, merged and expired."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.errors import ColumnError, PlanError, SourceError, TimeError
from gpu_ops.microbatches.names import Sealed, UnsettledError, parse, read_log
from tests.support.examples import examples
from tests.support.rows import rows
from tests.support.stores import Lifetimes, held, numbers, table
from tests.support.ticks import at_us


def filled(path: Path) -> g.Store:
    """Four batches and a CTI.

    time      0    10   20   30   40   50
    1  n=0    [----)
       n=1         [--------------)
    2  n=2              [----)
    3  CTI                   |
    4  n=3                   [------------- ...
    5  n=4                        [)
    """
    store = g.store(path)
    with store.writer() as writer:
        assert writer.append(table([(0, 10), (10, 40)])) == 1
        assert writer.append(table([(20, 30)], 2)) == 2
        assert writer.advance(at_us(30)) == 3
        assert writer.append(table([(30, MAX_TIME)], 3)) == 4
        assert writer.append(table([(40, 41)], 4), cti=at_us(45)) == 5
    return store


@pytest.fixture
def store(tmp_path: Path) -> g.Store:
    return filled(tmp_path / "store")


def test_what_was_appended_is_read(store: g.Store) -> None:
    assert numbers(store.read()) == [0, 1, 2, 3, 4]
    assert store.read().schema == store.schema == table([]).schema
    assert held(store) == [(1, [0, 1], None), (2, [2], None), (3, [], 30), (4, [3], 30), (5, [4], 45)]
    assert held(store, 3) == [(4, [3], 30), (5, [4], 45)]
    assert held(store, 5) == held(store, 99) == []
    assert (len(store), store.sequence, store.cti) == (5, 5, 45)
    assert repr(store) == f"<Store {store.path}: 5 events, 5 batches in 5 files, CTI 1970-01-01T00:00:00.000045Z>"


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, [0, 1, 2, 3, 4]),
        (10, None, [1, 2, 3, 4]),  # an end is no part of a lifetime
        (None, 20, [0, 1]),
        (10, 11, [1]),
        (29, 31, [1, 2, 3]),
        (50, 60, [3]),
        (-9, 0, []),
    ],
)
def test_events_are_read_by_time(store: g.Store, start: int | None, end: int | None, expected: list[int]) -> None:
    assert numbers(store.read(at_us(start), at_us(end))) == expected
    store.compact()
    assert numbers(store.read(at_us(start), at_us(end), columns=["n"])) == expected


LIFETIMES = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)).map(lambda e: (e[0], e[0] + e[1])), max_size=4)


@examples(dear=True)
@given(st.lists(LIFETIMES, min_size=1, max_size=5), st.integers(-1, 25), st.integers(-1, 25), st.integers(0, 5))
def test_a_range_of_time_is_what_a_look_at_every_event_finds(
    tmp_path_factory: pytest.TempPathFactory, batches: list[Lifetimes], start: int, end: int, since: int
) -> None:
    store = g.store(tmp_path_factory.mktemp("store"))
    with store.writer() as writer:
        for batch in batches:
            writer.append(table(batch))
    for _ in range(2):
        expected = [each for batch in batches[since:] for each in batch if each[0] < end and each[1] > start]
        found = store.read(at_us(start), at_us(end), since=since)
        assert list(zip(*(found[name].cast(pa.int64()).to_pylist() for name in ("start", "end")), strict=True)) == (
            expected
        )
        store.compact()


def test_files_without_events_of_the_time_are_not_opened(store: g.Store) -> None:
    Path(store.files()[4]).write_bytes(b"")
    assert numbers(store.read(at_us(0), at_us(40))) == [0, 1, 2, 3]
    with pytest.raises(SourceError, match="damaged"):
        store.read(at_us(0), at_us(41))


def test_columns_are_chosen(store: g.Store) -> None:
    wide = pa.table({**{name: store.read()[name] for name in ("start", "end")}, "a": range(5), "b": list("abcde")})
    other = g.store(Path(store.path).parent / "wide", compression="lz4")
    other.append(wide)
    assert other.read(columns=["b"]).column_names == ["start", "end", "b"]
    assert other.read(at_us(30), at_us(31), columns=["b"])["b"].to_pylist() == ["b", "d"]
    with pytest.raises(ColumnError, match="It has: start, end, a, b"):
        other.read(columns=["c"])


def test_an_empty_store_says_so(tmp_path: Path) -> None:
    store = g.store(tmp_path / "none")
    assert (len(store), store.sequence, store.cti, held(store), store.files()) == (0, 0, None, [], [])
    assert store
    assert "0 events, 0 batches in 0 files, no CTI" in repr(store)
    assert not (tmp_path / "none").exists()
    asks: list[Callable[[], object]] = [lambda: store.schema, store.read]
    for ask in asks:
        with pytest.raises(SourceError, match="holds no batch yet"):
            ask()
    with pytest.raises(SourceError, match="first batch decides"):
        store.advance(at_us(0))
    assert store.append(table([])) == 1
    assert store.advance(at_us(7)) == 2
    assert store.cti == 7


def test_frames_of_other_libraries_are_appended(tmp_path: Path) -> None:
    store = g.store(tmp_path)
    whole = table([(0, 1)])
    for frame in (whole, whole.to_batches()[0], polars.DataFrame(whole), whole.to_pandas()):
        store.append(frame)
    assert numbers(store.read()) == [0, 0, 0, 0]
    with pytest.raises(SourceError, match="A list is no table"):
        store.append([1, 2])


def test_types_stay(tmp_path: Path) -> None:
    values = {
        "kind": pa.array(["a", None]).dictionary_encode(),
        "deep": pa.array([[{"x": 1}], None]),
        "id": pa.array([b"0" * 16, None], pa.binary(16)),
        "price": pa.array([1, None], pa.int64()).cast(pa.decimal128(30, 2)),
        "big": pa.array([2**63, None], pa.uint64()),
        "uuid": pa.array([b"0" * 16, None], pa.uuid()),
        "lasts": pa.array([1, None], pa.duration("ns")),
    }
    batch = pa.table({**{name: table([(0, 1), (1, 2)])[name] for name in ("start", "end")}, **values})
    store = g.store(tmp_path)
    store.append(batch)
    store.append(batch.set_column(2, "kind", pa.array(["b", "a"]).dictionary_encode()))
    assert store.schema.types == batch.schema.types
    expected = [*batch.to_pylist(), *batch.set_column(2, "kind", pa.array(["b", "a"])).to_pylist()]
    assert store.read().to_pylist() == expected
    assert store.compact() == 1
    assert store.read().to_pylist() == expected


def test_dictionaries_that_do_not_fit_into_one_are_left_apart(tmp_path: Path) -> None:
    store = g.store(tmp_path)
    for first in (0, 100):
        words = pa.array([f"{n}" for n in range(first, first + 100)]).dictionary_encode()
        column = words.cast(pa.dictionary(pa.int8(), pa.string()))
        store.append(table([(0, 1)] * 100).set_column(2, "n", column))
    assert store.compact() == 0
    assert store.verify().sound
    assert len(store) == 200


# What is refused


def test_the_first_batch_decides_the_columns(store: g.Store) -> None:
    batch = table([(50, 51)])
    with pytest.raises(ColumnError, match=r"The store has no such column. \[column 'm'\]"):
        store.append(batch.append_column("m", [[1]]))
    with pytest.raises(ColumnError, match=r"lacks a column of the store. \[column 'n'\]"):
        store.append(batch.drop_columns(["n"]))
    with pytest.raises(ColumnError, match="Two columns have this name"):
        store.append(pa.Table.from_arrays([*batch.columns, batch["n"]], names=["start", "end", "n", "n"]))
    with pytest.raises(ColumnError, match=r"is double, and in the store int64. \[column 'n'\]"):
        store.append(batch.set_column(2, "n", pa.array([1.0])))
    assert store.append(batch.select(["n", "end", "start"])) == 6
    assert store.schema.names == ["start", "end", "n"]


def test_lifetimes_are_checked(tmp_path: Path) -> None:
    store = g.store(tmp_path)
    with pytest.raises(TimeError, match="row 1"):
        store.append(table([(0, 1), (5, 5)]))
    with pytest.raises(ColumnError, match="start"):
        store.append(pa.table({"n": [1]}))
    naive = table([(0, 1)]).set_column(0, "start", pa.array([0], pa.timestamp("us")))
    with pytest.raises(TimeError, match="zone"):
        store.append(naive)
    seconds = table([(0, 10**7)]).set_column(0, "start", pa.array([3], pa.timestamp("s", "Europe/Vienna")))
    store.append(seconds)
    assert store.read()["start"].cast(pa.int64()).to_pylist() == [3_000_000]
    assert store.sequence == 1


def test_a_cti_is_kept(store: g.Store) -> None:
    with pytest.raises(TimeError, match=r"before the store's CTI.*row 1, start=1970-01-01T00:00:00.000044Z"):
        store.append(table([(45, 50), (44, 50)]))
    with pytest.raises(TimeError, match=r"never goes backwards.*The store's is 1970-01-01T00:00:00.000045Z"):
        store.advance(at_us(44))
    with pytest.raises(TimeError, match="years 1 to 9999"):
        store.append(table([(45, 50)]), cti=at_us(MAX_TIME + 1))
    assert store.sequence == 5
    assert store.append(table([(45, 50)]), cti=at_us(45)) == 6
    assert store.advance(at_us(MAX_TIME)) == 7
    with pytest.raises(TimeError, match="closed: its CTI is infinity"):
        store.append(table([(MAX_TIME - 1, MAX_TIME)]))


def test_there_is_one_writer(store: g.Store) -> None:
    with store.writer() as writer:
        for ask in (store.writer, lambda: store.append(table([(50, 51)])), store.compact):
            with pytest.raises(SourceError, match=r"has a writer: process \d+ on .*one writer at a time"):
                ask()
        assert numbers(store.read()) == [0, 1, 2, 3, 4]
        writer.append(table([(50, 51)], 5))
    with pytest.raises(SourceError, match="The writer is closed"):
        writer.append(table([(50, 51)]))
    writer.close()
    assert store.append(table([(50, 51)], 6)) == 7


def test_what_a_writer_is_asked_makes_sense(store: g.Store, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="at least one row"):
        store.compact(0)
    with store.writer() as writer, pytest.raises(PlanError, match="There are 1 to 5"):
        writer.discard(6)
    with pytest.raises(PlanError, match='It is "zstd" or "lz4"'):
        g.store(tmp_path, compression="gzip")  # type: ignore[arg-type]
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="is a file"):
        g.store(tmp_path / "file")


def test_batches_are_added_all_at_once_or_not(store: g.Store) -> None:
    with store.writer() as writer:
        with pytest.raises(TimeError):
            writer.extend([table([(50, 51)]), table([(44, 51)])])
        with pytest.raises(ColumnError):
            writer.extend([table([(50, 51)]), table([(50, 51)]).rename_columns(["start", "end", "m"])])
        assert (writer.sequence, store.sequence) == (5, 5)
        assert not store.log().leftovers
        assert writer.extend([table([(50, 51)], 5), table([(46, 47)], 6)], cti=at_us(60)) == 7
        assert writer.extend([]) == 7
        assert writer.extend([], cti=at_us(0 + 61)) == 8
    assert held(store, 5) == [(6, [5], 45), (7, [6], 60), (8, [], 61)]


# Following


def test_a_store_is_followed(store: g.Store) -> None:
    def write() -> None:
        for at in range(50, 53):
            time.sleep(0.03)
            store.append(table([(at, at + 1)], at))
        store.compact()
        store.advance(at_us(MAX_TIME))

    thread = threading.Thread(target=write)
    thread.start()
    found = [(batch.sequence, numbers(batch.events)) for batch in store.follow(since=4, poll="1ms")]
    thread.join()
    assert found == [(5, [4]), (6, [50]), (7, [51]), (8, [52]), (9, [])]
    assert list(store.follow(since=9)) == []


def test_following_ends_when_nothing_comes(store: g.Store) -> None:
    assert [batch.sequence for batch in store.follow(timeout="10ms", poll="1ms")] == [1, 2, 3, 4, 5]


@pytest.mark.services
def test_a_store_is_read_while_another_process_writes_and_merges(tmp_path: Path) -> None:
    script = """
        import sys
        import numpy as np
        import pyarrow as pa
        import gpu_ops as g
        utc = pa.timestamp("us", "UTC")
        with g.store(sys.argv[1]).writer() as writer:
            for n in range(150):
                times = pa.array([n]).cast(utc), pa.array([n + 1]).cast(utc)
                writer.append(pa.table({"start": times[0], "end": times[1], "n": [n]}), cti=np.datetime64(n, "us"))
                if n % 7 == 0:
                    writer.compact()
            writer.advance(np.datetime64(10**15, "us"))
            writer.advance("infinity")
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]) as process:
        store = g.store(tmp_path)
        found = [each for batch in store.follow(poll="1ms", timeout="60s") for each in numbers(batch.events)]
        assert process.wait(60) == 0
    assert found == list(range(150))
    assert store.sequence == 152


# Merging and expiring


def test_merging_changes_no_answer(store: g.Store) -> None:
    before = held(store)
    assert store.compact() == 4
    assert len(store.files()) == 1
    assert held(store) == before
    assert [held(store, since) for since in range(6)] == [before[since:] for since in range(6)]
    assert store.compact() == 0
    store.append(table([(50, 51)] * 3, 5))
    assert store.compact() == 0  # to write five again for three would be more than it saves
    store.append(table([(50, 51)] * 2, 8))
    assert store.compact() == 2
    assert numbers(store.read()) == list(range(10))
    assert store.verify().sound


def test_a_reader_goes_on_where_it_was_when_files_were_merged_or_expired(store: g.Store) -> None:
    expected = held(store)
    reading, late = store.batches(), store.batches()
    found = [next(reading), next(reading)]
    next(late)
    store.compact()
    found += reading
    assert [(batch.sequence, numbers(batch.events), batch.cti) for batch in found] == expected
    # What has expired since is one batch without events.
    with store.writer() as writer:
        writer.discard(1)
    assert [(batch.sequence, numbers(batch.events), batch.cti, batch.expired) for batch in late] == [(5, [], 45, True)]
    assert not any(batch.expired for batch in found)


def test_a_file_that_is_gone_is_missed(store: g.Store) -> None:
    reading = store.batches()
    next(reading)
    Path(store.files()[4]).unlink()  # the last: the listing does not tell
    assert [batch.sequence for batch in reading] == [2, 3, 4]
    reading = store.batches()
    next(reading)
    Path(store.files()[2]).unlink()
    with pytest.raises(SourceError, match="no file for batch 3, but one for batch 4"):
        list(reading)


def test_merged_files_have_a_bound(tmp_path: Path) -> None:
    store = g.store(tmp_path)
    with store.writer() as writer:
        for n in range(10):
            writer.append(table([(0, 1)] * 3, 3 * n))
    assert store.compact(rows=9) == 6
    assert [file.rows for file in store.log().files] == [9, 9, 9, 3]
    assert numbers(store.read()) == list(range(30))


def test_what_has_ended_expires(store: g.Store) -> None:
    assert store.expire(at_us(29)) == 0  # n=2 ends at 30, and n=1 keeps n=0
    assert store.expire(at_us(30)) == 1
    assert numbers(store.read()) == [0, 1, 3, 4]
    # A CTI without events goes with what has expired before it.
    assert held(store) == [(1, [0, 1], None), (3, [], 30), (4, [3], 30), (5, [4], 45)]
    assert store.expire(at_us(MAX_TIME - 1)) == 3
    assert held(store) == [(3, [], 30), (4, [3], 30), (5, [], 45)]
    assert len(store.files()) == 3
    assert (store.sequence, store.cti, len(store)) == (5, 45, 1)
    assert store.expire(at_us(MAX_TIME)) == 1
    assert held(store) == [(5, [], 45)]
    assert held(store, 2) == [(5, [], 45)]
    assert [batch.expired for batch in store.batches()] == [True]
    assert store.schema == table([]).schema
    with pytest.raises(TimeError, match="before the store's CTI"):
        store.append(table([(44, 45)]))
    assert store.append(table([(45, 46)], 5)) == 6
    assert store.compact() == 0
    assert numbers(store.read()) == [5]
    assert store.verify().sound


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), LIFETIMES),
        st.tuples(st.just("advance"), st.integers(0, 3)),
        st.tuples(st.just("compact"), st.integers(1, 8)),
        st.tuples(st.just("expire"), st.integers(0, 12)),
    ),
    max_size=12,
)


@examples(dear=True)
@given(ACTIONS)
def test_any_history_keeps_what_has_not_ended(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, Any]]
) -> None:
    store = g.store(tmp_path_factory.mktemp("store"))
    expected: list[tuple[int, int, int]] = []  # start, end, number of the batch
    ctis: list[int | None] = []
    expired = MIN_TIME
    with store.writer() as writer:
        writer.append(table([]))
        ctis.append(None)
        for verb, given_ in actions:
            cti = writer.cti or 0
            if verb == "append":
                lifetimes = [(start + cti, end + cti) for start, end in given_]
                writer.append(table(lifetimes))
                ctis.append(writer.cti)
                expected += [(*each, len(ctis)) for each in lifetimes]
            elif verb == "advance":
                writer.advance(at_us(cti + given_))
                ctis.append(cti + given_)
            elif verb == "compact":
                writer.compact(given_)
            else:
                before = len(store)
                assert before - writer.expire(at_us(cti + given_)) == len(store)
                expired = max(expired, cti + given_)
            assert (store.sequence, store.cti) == (len(ctis), ctis[-1])
    found = [
        (event["start"], event["end"], batch.sequence)
        for batch in store.batches()
        for event in batch.events.set_column(0, "start", batch.events["start"].cast(pa.int64()))
        .set_column(1, "end", batch.events["end"].cast(pa.int64()))
        .to_pylist()
    ]
    assert [each for each in expected if each in found] == found
    assert [each for each in expected if each[1] > expired] == [each for each in found if each[1] > expired]
    assert all(batch.cti == ctis[batch.sequence - 1] for batch in store.batches())
    report = store.verify()
    assert (report.sound, report.leftovers, report.foreign, report.rows) == (True, (), (), len(found))


# What the listing tells

SEALED = st.builds(
    lambda first, more, commit, rows, start, length, cti, size, crc, kind: Sealed(
        first,
        first + more,
        first + more + commit,
        rows if kind == "rows" else 0,
        start if kind == "rows" else None,
        start + length if kind == "rows" else None,
        cti,
        size,
        crc,
        kind == "expired",
    ),
    st.integers(1, 10**14),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(1, 10**12),
    st.integers(MIN_TIME, MAX_TIME - 9),
    st.integers(1, 9),
    st.none() | st.integers(MIN_TIME, MAX_TIME),
    st.integers(0, 2**40),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["rows", "none", "expired"]),
)


@given(SEALED)
def test_a_name_tells_what_it_was_made_of(file: Sealed) -> None:
    assert parse(file.name) == file
    assert len(file.name) < 200


@given(st.text(max_size=30) | SEALED.map(lambda file: file.name.replace("0", "00", 1)))
def test_another_name_tells_nothing(name: str) -> None:
    made = parse(name)
    assert made is None or made.name == name


def sealed(first: int, last: int, rows: int = 1, *, commit: int | None = None, crc: int = 0) -> str:
    start, end = (0, 1) if rows else (None, None)
    return Sealed(first, last, commit or last, rows, start, end, None, 9, crc, rows == 0).name


def test_a_wider_file_hides_those_it_was_made_of() -> None:
    log = read_log([sealed(1, 1), sealed(2, 2), sealed(3, 3), sealed(2, 3, 2), sealed(1, 1, 0), sealed(4, 4)])
    assert [file.name for file in log.files] == [sealed(1, 1, 0), sealed(2, 3, 2), sealed(4, 4)]
    assert set(log.leftovers) == {sealed(1, 1), sealed(2, 2), sealed(3, 3)}


def test_a_commit_counts_when_its_last_file_is_there() -> None:
    two = [sealed(2, 2, commit=4), sealed(3, 3, commit=4)]
    log = read_log([sealed(1, 1), *two])
    assert (log.sequence, set(log.leftovers)) == (1, set(two))
    assert read_log([sealed(1, 1), *two, sealed(4, 4)]).sequence == 4
    # Another commit took the numbers before what was left of the first was removed.
    log = read_log([sealed(1, 1), sealed(2, 2, crc=1), *two])
    assert (log.sequence, set(log.leftovers)) == (2, set(two))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([sealed(1, 1), sealed(3, 3)], "no file for batch 2, but one for batch 3"),
        ([sealed(2, 2)], "no file for batch 1"),
        ([sealed(1, 1), sealed(1, 1, crc=1)], "Two files hold batch 1"),
        ([sealed(1, 2), sealed(2, 3)], "Two files hold batch 2"),
    ],
)
def test_lost_files_and_rivals_are_named(tmp_path: Path, names: list[str], message: str) -> None:
    with pytest.raises(UnsettledError, match=message):
        read_log(names)
    for name in names:
        (tmp_path / name).touch()
    store = g.store(tmp_path)
    for ask in (store.read, store.verify, lambda: store.append(table([(0, 1)])), lambda: store.sequence):
        with pytest.raises(SourceError, match=message):
            ask()


# Others


def test_other_programs_read_the_files(store: g.Store) -> None:
    expected = store.read()
    assert pads.dataset(store.path, format="ipc", exclude_invalid_files=True).to_table().equals(expected)
    assert pads.dataset(store.files(), format="ipc").to_table().equals(expected)
    assert (
        polars.read_ipc(f"{store.path}/*.arrow")
        .to_arrow()
        .equals(expected.cast(polars.DataFrame(expected).to_arrow().schema))
    )
    assert polars.scan_ipc(store.files()).select(polars.col("n").sum()).collect().item() == 10
    dataset = pads.dataset(store.files(), format="ipc")
    later = duckdb.from_arrow(dataset).filter("\"end\" > TIMESTAMPTZ '1970-01-02'")
    assert later.aggregate("sum(n), count(*)").fetchall() == [(3, 1)]
    assert dataset.schema == expected.schema


def test_a_store_is_a_source(store: g.Store) -> None:
    stream = g.events(store)
    assert stream.schema.names == ["n"]
    answer = stream.snapshot().agg(n=g.count())
    expected = g.events(store.read(), start="start", end="end").snapshot().agg(n=g.count())
    assert rows(answer.collect()) == rows(expected.collect())
    store.append(table([(50, 51)], 5))
    assert numbers(stream.collect()) == [0, 1, 2, 3, 4]  # as far as it went then
    assert stream.report().valid == 5
    assert numbers(g.events(store, end="end").filter(g.col("n") > 3).collect()) == [4, 5]
    assert "micro-batch store, 6 rows x 3 columns" in g.events(store).explain()
    with pytest.raises(PlanError, match="needs the column"):
        g.events(table([]))


def test_an_answer_is_written_to_a_store(store: g.Store, tmp_path: Path) -> None:
    answer = g.events(store).tumbling("1min", until=at_us(100)).agg(total=g.sum("n"))
    target = g.store(tmp_path / "answers")
    report = answer.write(target)
    assert (report.rows, report.path, report.size) == (
        1,
        Path(target.path),
        sum(Path(file).stat().st_size for file in target.files()),
    )
    assert target.read()["total"].to_pylist() == [10]
    assert target.cti == MAX_TIME
    with pytest.raises(TimeError, match="is closed"):
        answer.write(target)
    nothing = g.store(tmp_path / "nothing")
    assert answer.filter(g.col("total") < 0).write(nothing).rows == 0
    assert (nothing.schema, nothing.cti) == (target.schema, MAX_TIME)


@pytest.mark.services
def test_importing_the_package_needs_no_fsspec() -> None:
    script = "import sys, gpu_ops; gpu_ops.store('x'); print({'fsspec', 'pyspark', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_events_within_a_time_are_chosen_whatever_their_columns_are(tmp_path: Path) -> None:
    texts = ["short", "longer than what lies in a view", None]
    payload = {"text": pa.array(texts, pa.string_view()), "bytes": pa.array([b"1", None, b"2" * 40], pa.binary_view())}
    store = g.store(tmp_path)
    store.append(g.events(pa.table({"at": [0, 5, 9], **payload}), start="at", unit="s").collect())
    assert store.read("1970-01-01T00:00:05Z", "1970-01-01T00:00:09Z")["text"].to_pylist() == texts[1:2]
    assert store.read("1970-01-01T00:00:06Z")["bytes"].to_pylist() == [b"2" * 40]
