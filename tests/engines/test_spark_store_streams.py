"""A store as a stream of Spark: its batches are offsets, whatever is merged beneath; what has expired is told.

Readers are asked here as Spark asks them: offsets pass as JSON, and a reader that goes on is told where it is.
`test_spark_streams_exactly_once.py` runs one in Spark.
"""

from __future__ import annotations

import json
import pickle
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

import gpu_ops as g
from gpu_ops.engines.spark.data_source import StoreDataSource
from gpu_ops.engines.spark.store_reading import StoreStreamReader
from tests.support.examples import examples
from tests.support.ticks import at_us

SECOND = 1_000_000
Offset = dict[str, Any]


def reader(store: g.Store, **options: str) -> StoreStreamReader:
    source = StoreDataSource({"path": store.path, "kind": "kind", **options})
    made = source.streamReader(source.schema())
    assert isinstance(made, StoreStreamReader)
    return made


def append(store: g.Store, values: list[int], at: int = 0, cti: int | None = None) -> None:
    """A batch of points at a second."""
    table = pa.table({"at": pa.array([at] * len(values), pa.int64()), "n": pa.array(values, pa.int64())})
    promised = None if cti is None else at_us(cti * SECOND)
    store.append(g.events(table, start="at", unit="s").collect(), promised)


def latest(of: StoreStreamReader) -> Offset:
    made: Offset = json.loads(json.dumps(of.latestOffset()))
    return made


def rows(of: StoreStreamReader, start: Offset, end: Offset) -> tuple[list[int], int | None]:
    """The numbers that an epoch has, and its CTI."""
    tables = [
        pa.Table.from_batches([batch])
        for partition in of.partitions(start, end)
        for batch in of.read(pickle.loads(pickle.dumps(partition)))  # noqa: S301  (as Spark does)
    ]
    found = [row for table in tables for row in table.to_pylist()]
    assert {row["kind"] for row in found} <= {"insert", "cti"}
    ctis = [row["start"] for row in found if row["kind"] == "cti"]
    seconds = [int(each.timestamp()) for each in ctis]
    return [row["n"] for row in found if row["kind"] == "insert"], max(seconds, default=None)


step = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("epoch"), st.booleans(), st.booleans()),
    st.just(("compact", None, None)),
)


@examples(dear=True)
@given(st.lists(step, max_size=9), st.sampled_from([None, 1, 2]))
def test_any_cut_into_epochs(steps: list[tuple[str, Any, Any]], most: int | None) -> None:
    """Each epoch has the batches after the last one; again, if Spark asks again; and a reader may be another."""
    with tempfile.TemporaryDirectory() as folder:
        store = g.store(folder)
        append(store, [0])
        batches: list[tuple[list[int], int | None]] = [([0], None)]
        options = {} if most is None else {"maxBatchesPerTrigger": str(most)}
        now = reader(store, **options)
        reached = now.initialOffset()
        for action, one, other in [*steps, ("epoch", False, True)]:
            if action == "append":
                number = len(batches)
                cti = number if other else batches[-1][1]
                batches.append(([10 * number + each for each in range(one)], cti))
                append(store, batches[-1][0], number, number if other else None)
            elif action == "compact":
                store.compact()
            else:
                if other:  # a driver that goes on
                    now = reader(store, **options)
                    now.partitions(reached, reached)
                until = latest(now)
                assert latest(now) == until
                first, last = reached["batch"], until["batch"]
                assert last == (len(batches) if most is None else min(len(batches), first + most))
                wanted = [number for numbers, _ in batches[first:last] for number in numbers]
                for _ in range(1 + one):
                    assert rows(now, reached, until) == (wanted, batches[last - 1][1] if last > first else None)
                reached = until


def test_expired_batches(tmp_path: Path) -> None:
    """Those that had expired before are not missed; those that a query has not read, it is told of."""
    store = g.store(tmp_path / "store")
    for at in range(1, 6):
        append(store, [at], at, at)
    store.expire("1970-01-01T00:00:03Z")
    first = reader(store)
    begin, end = first.initialOffset(), latest(first)
    assert begin["gone"] == [[1, 2]]
    assert rows(first, begin, end) == ([3, 4, 5], 5)
    again = reader(store, maxBatchesPerTrigger="3")
    begin, end = again.initialOffset(), latest(again)
    store.expire("1970-01-01T00:00:05Z")  # batch 3, of this epoch, and batch 4
    with pytest.raises(g.SourceError, match="after number 0 have expired, and the query has not read them"):
        rows(again, begin, end)
    later = reader(store, since="4")
    assert rows(later, later.initialOffset(), latest(later)) == ([5], 5)
    append(store, [6], 6)
    gone_on = reader(store)
    gone_on.partitions({**begin, "batch": 5}, {**begin, "batch": 5})
    assert rows(gone_on, {**begin, "batch": 5}, latest(gone_on)) == ([6], 5)


def test_a_store_that_is_another(tmp_path: Path) -> None:
    store, other = g.store(tmp_path / "store"), g.store(tmp_path / "other")
    for each in (store, other):
        append(each, [1])
    known = latest(reader(store))
    with pytest.raises(g.SourceError, match="was made anew"):
        reader(other).partitions(known, known)
    gone_on = reader(store)
    gone_on.partitions(known, known)
    Path(store.files()[0]).unlink()
    with pytest.raises(g.SourceError, match="ends with batch 0, and the query has read batch 1"):
        gone_on.latestOffset()


def test_what_is_refused(tmp_path: Path) -> None:
    store = g.store(tmp_path / "store")
    append(store, [1])
    wrong: dict[str, dict[str, str]] = {
        "is read to no end": {"end": "2026-01-01T00:00Z"},
        "since is '-1'": {"since": "-1"},
        "maxBatchesPerTrigger is '0'": {"maxBatchesPerTrigger": "0"},
        "a column 'n' of its own": {"kind": "n"},
    }
    for said, options in wrong.items():
        with pytest.raises(g.PlanError, match=said):
            reader(store, **options)
    with pytest.raises(g.PlanError, match="in a stream alone"):
        StoreDataSource({"path": store.path, "kind": "kind"}).reader(StructType())
    with pytest.raises(g.PlanError, match=r"written by batches.*foreachBatch"):
        StoreDataSource({"path": store.path}).streamWriter(StructType(), overwrite=False)
