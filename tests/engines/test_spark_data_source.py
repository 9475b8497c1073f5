"""Spark reads a store, opening no file that it needs not, and writes one, all of a job at once."""

from __future__ import annotations

import datetime
import itertools
import operator
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.microbatches.names import Sealed
from tests.support.ticks import at_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UTC = pa.timestamp("us", "UTC")
MINUTE = 60_000_000


def table(minutes: list[tuple[float, float]], first: int = 0) -> pa.Table:
    """Events from minute to minute of 1970, numbered."""
    times = [pa.array([int(each * MINUTE) for each in side]).cast(UTC) for side in zip(*minutes, strict=True)]
    return pa.table({"start": times[0], "end": times[1], "n": pa.array(range(first, first + len(minutes)))})


@pytest.fixture
def registered(spark: SparkSession) -> SparkSession:
    from gpu_ops.engines.spark import register

    register(spark)
    return spark


@pytest.fixture
def store(tmp_path: Path) -> g.Store:
    """Minutes 0 to 3 in one batch, 2 to 10 in another, then a CTI, then 20 to 30, and 30 for ever."""
    store = g.store(tmp_path / "store")
    with store.writer() as writer:
        writer.append(table([(0, 1), (1, 3)]))
        writer.append(table([(2, 10)], 2))
        writer.advance(at_us(20 * MINUTE))
        writer.append(table([(20, 30)], 3))
        writer.append(table([(30, 40)], 4))
    return store


def load(spark: SparkSession, store: g.Store, **options: str) -> DataFrame:
    return spark.read.format("gpu_ops").options(**options).load(store.path)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row["n"] for row in frame.select("n").collect())


def test_a_store_is_a_dataframe(registered: SparkSession, store: g.Store) -> None:
    frame = load(registered, store)
    assert frame.schema.simpleString() == "struct<start:timestamp,end:timestamp,n:bigint>"
    assert frame.orderBy("n").toArrow().cast(store.schema).equals(store.read())
    assert frame.rdd.getNumPartitions() == 2  # a CTI lies between
    answer = g.events(frame, start="start", end="end").snapshot().agg(n=g.count()).collect()
    assert answer.count() == g.events(store).snapshot().agg(n=g.count()).collect().num_rows


def test_an_instant_range_is_an_option(registered: SparkSession, store: g.Store) -> None:
    frame = load(registered, store, start="1970-01-01T00:02Z", end="1970-01-01T00:21Z")
    assert numbers(frame) == [1, 2, 3]
    Path(store.files()[4]).unlink()
    Path(store.files()[0]).write_bytes(b"")
    assert numbers(load(registered, store, start="1970-01-01T00:03Z", end="1970-01-01T00:21Z")) == [2, 3]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), min_size=1, max_size=3),
    st.lists(
        st.tuples(
            st.sampled_from(["EqualTo", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"]),
            st.sampled_from(["start", "end"]),
            st.integers(-1, 15),
        ),
        max_size=2,
    ),
)
def test_no_file_is_left_out_in_which_an_event_is_wanted(
    events: list[tuple[int, int]], asked: list[tuple[str, str, int]]
) -> None:
    from pyspark.sql import datasource

    from gpu_ops.engines.spark.store_reading import StoreReader

    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    filters = [
        getattr(datasource, kind)((name,), epoch + datetime.timedelta(microseconds=at)) for kind, name, at in asked
    ]
    reader = StoreReader({}, ("n",), None, None)
    assert list(reader.pushFilters(filters)) == filters
    compare: dict[str, Callable[[int, int], bool]] = {
        "EqualTo": operator.eq,
        "GreaterThan": operator.gt,
        "GreaterThanOrEqual": operator.ge,
        "LessThan": operator.lt,
        "LessThanOrEqual": operator.le,
    }
    wanted = [
        all(compare[kind]({"start": start, "end": start + length}[name], at) for kind, name, at in asked)
        for start, length in events
    ]
    first, last = min(start for start, _ in events), max(start + length for start, length in events)
    file = Sealed(1, 1, 1, len(events), first, last, None, 0, 0)
    assert file.overlaps(reader.low, reader.high) or not any(wanted)


def test_files_that_a_filter_leaves_out_are_not_opened(registered: SparkSession, store: g.Store) -> None:
    for file in (store.files()[0], store.files()[4]):
        Path(file).write_bytes(b"")
    assert numbers(load(registered, store).where("start = TIMESTAMP '1970-01-01 00:20:00'")) == [3]
    frame = load(registered, store).where(
        "`end` > TIMESTAMP '1970-01-01 00:03:00' AND start <= TIMESTAMP '1970-01-01 00:29:00' AND n > 0"
    )
    assert numbers(frame) == [2, 3]
    assert numbers(load(registered, store).where("start > TIMESTAMP '2000-01-01 00:00:00'")) == []


def test_a_dataframe_goes_into_a_store_and_comes_back(registered: SparkSession, tmp_path: Path) -> None:
    store = g.store(tmp_path / "written")
    frame = registered.range(1000).selectExpr(
        "timestamp_micros(id) AS start",
        "timestamp_micros(id + 1 + id % 7) AS end",
        "id AS n",
        "CAST(id AS STRING) AS text",
        "CAST(id AS DECIMAL(20, 2)) AS price",
        "array(named_struct('x', id)) AS deep",
        "IF(id % 3 = 0, NULL, CAST(id AS DOUBLE)) AS maybe",
    )
    write = frame.repartition(3).write.format("gpu_ops").mode("append").option("compression", "lz4")
    write.option("cti", "1970-01-01T00:00:02Z").save(store.path)
    assert (len(store), store.sequence, store.cti) == (1000, 3, 2_000_000)
    assert [batch.cti for batch in store.batches()] == [None, None, 2_000_000]
    report = store.verify()
    assert (report.sound, report.leftovers, report.foreign) == (True, (), ())
    back = load(registered, store)
    assert back.schema == frame.schema or back.schema.simpleString() == frame.schema.simpleString()
    assert back.orderBy("n").toArrow().equals(frame.orderBy("n").toArrow().cast(back.orderBy("n").toArrow().schema))
    assert store.compact() == 2
    assert sorted(store.read()["n"].to_pylist()) == list(range(1000))
    with pytest.raises(Exception, match="before the store's CTI"):
        write.save(store.path)
    assert len(store) == 1000
    assert store.verify().leftovers == ()


def test_types_that_spark_has_not_are_those_of_the_store(registered: SparkSession, tmp_path: Path) -> None:
    store = g.store(tmp_path / "typed")
    batch = table([(0, 1)])
    batch = batch.append_column("small", pa.array([7], pa.uint16())).append_column(
        "kind", pa.array(["a"]).dictionary_encode()
    )
    store.append(batch)
    frame = load(registered, store)
    assert frame.schema.simpleString() == "struct<start:timestamp,end:timestamp,n:bigint,small:int,kind:string>"
    frame.write.format("gpu_ops").mode("append").save(store.path)
    assert store.schema == batch.schema
    assert store.read().to_pylist() == batch.to_pylist() * 2
    with pytest.raises(Exception, match=r"A value does not fit into the store's uint16.*\[column 'small'\]"):
        frame.withColumn("small", frame["small"] - 8).write.format("gpu_ops").mode("append").save(store.path)
    assert len(store) == 2


def test_a_job_that_fails_leaves_nothing(registered: SparkSession, tmp_path: Path) -> None:
    store = g.store(tmp_path / "failed")
    store.append(table([(0, 1)]))
    rows = registered.range(10).repartition(2)
    lifetimes = rows.selectExpr(
        "timestamp_micros(id) AS start", "timestamp_micros(IF(id < 9, 10, 9)) AS end", "id AS n"
    )
    with pytest.raises(Exception, match="end"):
        lifetimes.write.format("gpu_ops").mode("append").save(store.path)
    with pytest.raises(Exception, match="The store has no such column"):
        rows.selectExpr("timestamp_micros(id) AS start", "timestamp_micros(id + 1) AS end", "id AS m").write.format(
            "gpu_ops"
        ).mode("append").save(store.path)
    with pytest.raises(Exception, match="never overwritten"):
        lifetimes.write.format("gpu_ops").mode("overwrite").save(store.path)
    report = store.verify()
    assert (report.sequence, report.rows, report.sound, report.leftovers) == (1, 1, True, ())


def test_what_one_job_writes_is_seen_at_once(registered: SparkSession, tmp_path: Path) -> None:
    """Files are sealed under the store's lock: a job waits for another writer, and then for none."""
    store = g.store(tmp_path / "shared")
    frame = registered.range(100).repartition(4)
    frame = frame.selectExpr("timestamp_micros(id) AS start", "timestamp_micros(id + 1) AS end", "id AS n")

    writer = store.writer()
    writer.append(table([(0, 1)]))
    seen: set[int] = set()
    done = threading.Event()

    def other() -> None:
        while not list(Path(store.path).glob(".staging-*/*.tmp")):
            time.sleep(0.01)
        time.sleep(1)
        seen.add(store.sequence)
        writer.close()
        while not done.is_set():
            seen.add(store.sequence)

    thread = threading.Thread(target=other)
    thread.start()
    frame.write.format("gpu_ops").mode("append").save(store.path)
    done.set()
    thread.join()
    assert seen <= {1, 5}
    assert 1 in seen
    assert (len(store), store.sequence) == (101, 5)


def test_an_empty_dataframe_decides_the_columns(registered: SparkSession, tmp_path: Path) -> None:
    store = g.store(tmp_path / "empty")
    frame = registered.range(0).selectExpr("timestamp_micros(id) AS start", "timestamp_micros(id) AS end", "id AS n")
    frame.write.format("gpu_ops").mode("append").save(store.path)
    assert store.schema == table([(0, 1)]).schema
    assert load(registered, store).count() == 0
    frame.write.format("gpu_ops").mode("append").option("cti", "9999-12-31T23:59:59.999999Z").save(store.path)
    assert (store.sequence, store.cti) == (2, MAX_TIME)
    with pytest.raises(Exception, match="holds no batch yet"):
        registered.read.format("gpu_ops").load(str(tmp_path / "none"))


def test_a_file_that_was_merged_since_the_plan_was_made_is_found_again(
    registered: SparkSession, store: g.Store
) -> None:
    from gpu_ops.engines.spark.store_reading import StoreReader

    reader = StoreReader({"path": store.path}, ("start", "end", "n"), None, None)
    planned = reader.partitions()
    before = [batch["n"].to_pylist() for partition in planned for batch in reader.read(partition)]
    store.compact()
    after = [batch["n"].to_pylist() for partition in planned for batch in reader.read(partition)]
    assert list(itertools.chain(*before)) == list(itertools.chain(*after)) == [0, 1, 2, 3, 4]
    assert isinstance(reader.read(None), Iterator)
    assert list(reader.read(None)) == []


def test_workers_are_told_where_the_drivers_store_is(
    store: g.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster they stand in folders of their own."""
    from pyspark.sql.types import StructType

    from gpu_ops.engines.spark.data_source import StoreDataSource, StoreWriter
    from gpu_ops.engines.spark.store_reading import StoreReader

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("store", "~/store", f"file://{tmp_path}/store", store.path):
        source = StoreDataSource({"path": path})
        reader, writer = source.reader(StructType()), source.writer(StructType(), overwrite=False)
        assert isinstance(reader, StoreReader)
        assert isinstance(writer, StoreWriter)
        assert reader.options["path"] == writer.options["path"] == str(tmp_path / "store")
        writer.abort([])
    pytest.importorskip("fsspec")
    source = StoreDataSource({"path": "memory://bids"})
    reader = source.reader(StructType())
    assert isinstance(reader, StoreReader)
    assert reader.options["path"] == "memory://bids"
