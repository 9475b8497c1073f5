"""Every kind of source gives the same events, cheaply opened, and says by name what it cannot."""

from __future__ import annotations

import datetime
import importlib
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from gpu_ops.errors import ColumnError, PlanError, SourceError, TimeError
from gpu_ops.ingest import EventSource, open_source

INSTANT = pa.timestamp("us", "UTC")
SIZE = 1_000


def table() -> pa.Table:
    start = np.arange(SIZE) * 1_000_000
    return pa.table(
        {
            "pickup": pa.array(start).view(INSTANT),
            "dropoff": pa.array(start + 60_000_000).view(INSTANT),
            "zone": pa.array([None if n % 7 == 0 else f"zone {n % 5}" for n in range(SIZE)]),
            "fare": np.arange(SIZE) / 4,
        }
    )


def rides(source: Any, **options: Any) -> EventSource:
    return open_source(source, start="pickup", end="dropoff", **options)


def whole(source: EventSource, **options: Any) -> tuple[list[int], list[int] | None, pa.Table]:
    batches = list(source.read(**options))
    ends = (
        None if source.points else [tick for batch in batches if batch.end is not None for tick in batch.end.tolist()]
    )
    payload = pa.concat_tables([batch.payload for batch in batches])
    return [tick for batch in batches for tick in batch.start.tolist()], ends, payload


def pandas() -> Any:
    return importlib.import_module("pandas")


def polars() -> Any:
    return importlib.import_module("polars")


def duckdb() -> Any:
    return importlib.import_module("duckdb")


class Streamed:
    """A thing of which nothing is known but that it gives an Arrow stream."""

    def __init__(self, given: pa.Table) -> None:
        self._given = given

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._given.__arrow_c_stream__(requested_schema)


def relation(given: pa.Table) -> Any:
    connection = duckdb().connect()
    connection.execute("set timezone='UTC'")
    return connection.from_arrow(given)


KINDS: dict[str, tuple[Callable[[pa.Table], Any], str, int | None]] = {
    "table": (lambda given: given, "pyarrow", SIZE),
    "batch": (lambda given: given.combine_chunks().to_batches()[0], "pyarrow", SIZE),
    "reader": (lambda given: given.to_reader(100), "reader", None),
    "dataset": (pads.dataset, "pyarrow", None),
    "pandas": (lambda given: given.to_pandas(), "pandas", SIZE),
    "pandas, indexed": (lambda given: given.to_pandas().set_index(["pickup", "zone"]), "pandas", SIZE),
    "polars": (lambda given: polars().DataFrame(given), "polars", SIZE),
    "polars, lazy": (lambda given: polars().DataFrame(given).lazy(), "polars", None),
    "narwhals": (
        lambda given: importlib.import_module("narwhals").from_native(polars().DataFrame(given)),
        "polars",
        SIZE,
    ),
    "duckdb": (relation, "duckdb", None),
    "stream": (Streamed, "reader", None),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_kind_gives_the_same_events(kind: str) -> None:
    make, origin, rows = KINDS[kind]
    source = rides(make(table()))
    assert (source.origin, source.zone, source.points, source.rows) == (
        origin,
        "UTC",
        False,
        rows,
    )
    assert set(source.schema.names) == {"zone", "fare"}
    start, end, payload = whole(source)
    assert start == [n * 1_000_000 for n in range(SIZE)]
    assert end == [n * 1_000_000 + 60_000_000 for n in range(SIZE)]
    assert payload.schema == source.schema
    assert payload.select(["fare", "zone"]).to_pylist() == table().select(["fare", "zone"]).to_pylist()
    assert source.report().rows == SIZE
    assert repr(source).startswith("<EventSource ")


def test_every_kind_reads_some_columns_in_batches(kind: str) -> None:
    make, *_ = KINDS[kind]
    source = rides(make(table()))
    batches = list(source.read(columns=["zone"], batch_rows=70))
    assert max(len(batch.start) for batch in batches) <= 70
    assert sum(len(batch.start) for batch in batches) == SIZE
    assert all(batch.payload.schema.names == ["zone"] for batch in batches)
    assert [zone for batch in batches for zone in batch.payload["zone"].to_pylist()] == table()["zone"].to_pylist()


def test_every_kind_reads_no_column(kind: str) -> None:
    make, *_ = KINDS[kind]
    batches = list(rides(make(table())).read(columns=[]))
    assert sum(batch.payload.num_rows for batch in batches) == SIZE
    assert all(batch.payload.num_columns == 0 for batch in batches)


def test_every_kind_can_be_read_again_or_says_that_it_cannot(kind: str) -> None:
    make, *_ = KINDS[kind]
    source = rides(make(table()))
    first = whole(source)
    assert source.replayable == (kind not in ("reader", "stream"))
    if source.replayable:
        assert whole(source) == first
    else:
        with pytest.raises(SourceError, match="can be read once"):
            list(source.read())


def test_every_kind_may_be_empty(kind: str) -> None:
    make, *_ = KINDS[kind]
    empty = table().slice(0, 0)
    if kind == "batch":
        made: Any = pa.RecordBatch.from_arrays(
            [column.combine_chunks() for column in empty.columns], schema=empty.schema
        )
    else:
        made = make(empty)
    source = rides(made)
    batches = list(source.read())
    assert len(batches) >= 1
    assert sum(len(batch.start) for batch in batches) == 0
    assert batches[0].payload.schema == source.schema


def test_every_kind_drops_invalid_rows(kind: str) -> None:
    make, *_ = KINDS[kind]
    given = table()
    broken = given["pickup"].to_pylist()
    broken[500] = given["dropoff"][500].as_py()
    source = rides(make(given.set_column(0, "pickup", pa.array(broken, INSTANT))), on_invalid="divert")
    start, _, payload = whole(source)
    assert len(start) == payload.num_rows == SIZE - 1
    assert payload.schema == source.schema
    assert payload["fare"].to_pylist() == [n / 4 for n in range(SIZE) if n != 500]
    rejected = source.rejected()
    assert rejected["row"].to_pylist() == [500]
    assert rejected["zone"].to_pylist() == [given["zone"][500].as_py()]


def test_a_table_in_memory_is_not_copied() -> None:
    given = table()
    (batch,) = rides(given).read()
    for ticks, name in ((batch.start, "pickup"), (batch.end, "dropoff")):
        assert ticks is not None
        assert ticks.ctypes.data == given[name].chunk(0).buffers()[1].address
    assert batch.payload["fare"].chunk(0).buffers()[1].address == given["fare"].chunk(0).buffers()[1].address
    chunked = pa.concat_tables([given.slice(0, 300), given.slice(300)])
    (batch,) = rides(chunked).read()
    assert batch.payload["fare"].num_chunks == 2
    assert len(batch.start) == SIZE


def test_polars_text_is_not_copied_either() -> None:
    frame = polars().DataFrame(table())
    (batch,) = rides(frame).read()
    assert batch.payload.schema.field("zone").type == pa.string_view()


def test_opening_reads_nothing() -> None:
    def fail() -> Iterator[pa.RecordBatch]:
        raise AssertionError("read")
        yield

    reader = pa.RecordBatchReader.from_batches(table().schema, fail())
    assert rides(reader).schema.names == ["zone", "fare"]

    def explode(frame: Any) -> Any:
        raise AssertionError("read")

    lazy = polars().DataFrame(table()).lazy().map_batches(explode, schema=polars().DataFrame(table()).schema)
    assert rides(lazy).schema.names == ["zone", "fare"]


def test_unknown_things_are_no_source() -> None:
    for thing in (7, object(), {"a": [1]}, [1, 2]):
        with pytest.raises(SourceError, match="is no source of events"):
            open_source(thing, start="a")


@pytest.mark.services
def test_a_file_is_read_without_pandas(tmp_path: Path) -> None:
    """It takes half a second to import, and pyarrow does so at the first chance that it gets."""
    pq.write_table(table(), tmp_path / "rides.parquet")
    pacsv.write_csv(table(), tmp_path / "rides.csv")
    program = f"""
        import sys
        import pathlib
        from gpu_ops.ingest import open_source
        folder = pathlib.Path({str(tmp_path)!r})
        for name in ("rides.parquet", "rides.csv"):
            for batch in open_source(folder / name, start="pickup", end="dropoff").read():
                assert len(batch.start) == {SIZE}
            for batch in open_source(folder / name, start="pickup").read():
                assert batch.end is None
        try:
            open_source(object(), start="at")
        except Exception as error:
            assert "no source" in str(error), error
        for name in ("pandas", "duckdb", "cudf", "cupy", "pyspark", "matplotlib"):
            assert name not in sys.modules, name
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


# cuDF, by a stand-in for its frame


def cudf_frame(given: pa.Table) -> Any:
    class DataFrame:
        def __init__(self, held: pa.Table) -> None:
            self._held = held
            self.columns = held.column_names

        def __len__(self) -> int:
            return int(self._held.num_rows)

        def __getitem__(self, names: list[str]) -> DataFrame:
            return DataFrame(self._held.select(names))

        def head(self, rows: int) -> DataFrame:
            return DataFrame(self._held.slice(0, rows))

        def to_arrow(self, *, preserve_index: object) -> pa.Table:
            assert preserve_index is False
            return self._held

    DataFrame.__module__ = "cudf.core.dataframe"
    return DataFrame(given)


def test_cudf_frames_come_through_arrow() -> None:
    source = rides(cudf_frame(table()))
    assert (source.origin, source.rows) == ("cudf", SIZE)
    assert whole(source, columns=["fare"])[2].equals(table().select(["fare"]))
    assert "cudf" not in sys.modules


# pandas


def test_pandas_subclasses_and_names() -> None:
    pd = pandas()
    mine = types.new_class("Mine", (pd.DataFrame,))
    frame = table().to_pandas()
    assert rides(mine(frame)).origin == "pandas"
    frame[7] = 1
    with pytest.raises(ColumnError, match="The name of a column is 7"):
        rides(frame)


def test_pandas_nan_is_null_and_objects_have_the_type_of_their_values() -> None:
    pd = pandas()
    frame = pd.DataFrame(
        {
            "at": [1, 2],
            "x": [1.5, float("nan")],
            "o": pd.Series([None, datetime.date(2020, 1, 1)], dtype=object),
            "c": pd.Categorical(["a", None]),
            "i": pd.array([1, None], dtype="Int64"),
        }
    )
    source = open_source(frame, start="at", unit="s")
    (batch,) = source.read()
    assert batch.payload.schema == source.schema
    assert source.schema.field("o").type == pa.date32()
    assert batch.payload["x"].to_pylist() == [1.5, None]
    assert batch.payload["i"].to_pylist() == [1, None]


def test_pandas_objects_of_several_types_are_refused_by_name() -> None:
    with pytest.raises(SourceError, match="column mixed"):
        open_source(pandas().DataFrame({"at": [1, 2], "mixed": [1, "a"]}), start="at", unit="s")


def test_pandas_ordered_categories_are_refused_with_the_remedy() -> None:
    frame = pandas().DataFrame({"at": [1], "size": pandas().Categorical(["S"], ordered=True)})
    with pytest.raises(SourceError, match="as_unordered"):
        open_source(frame, start="at", unit="s")


# DuckDB


def test_duckdb_relations_leave_their_connection_free() -> None:
    given = table()
    connection = duckdb().connect()
    source = rides(connection.from_arrow(given))
    batches = source.read(batch_rows=10)
    next(batches)
    with pytest.raises(SourceError, match="DuckDB does not run the relation"):
        next(source.read())
    del batches
    assert len(whole(source)[0]) == SIZE
    assert connection.sql("select 1").fetchall() == [(1,)]


def test_duckdb_columns_may_have_any_name() -> None:
    connection = duckdb().connect()
    source = open_source(
        connection.sql('select 1::bigint as "the ""start""", 2 as "a, b", 3 as "select"'), start='the "start"', unit="s"
    )
    assert whole(source)[2].to_pylist() == [{"a, b": 2, "select": 3}]


# Columns


def test_an_unknown_column_is_named_with_the_nearest() -> None:
    for options in ({"start": "pick_up"}, {"start": "dropoff", "end": "pick_up"}):
        with pytest.raises(ColumnError, match="Did you mean 'pickup'"):
            open_source(table(), **options)  # type: ignore[arg-type]
    with pytest.raises(ColumnError, match="Did you mean 'fare'"):
        rides(table()).read(columns=["fair"])


def test_columns_of_one_name_are_refused() -> None:
    twice = pa.table([table()["pickup"], table()["fare"], table()["fare"]], names=["pickup", "fare", "fare"])
    for source in (twice, twice.to_pandas()):
        with pytest.raises(ColumnError, match=r"Two columns have this name\. \[column 'fare'\]"):
            open_source(source, start="pickup")


def test_names_of_the_lifetime_are_kept_for_it() -> None:
    given = table().rename_columns(["start", "end", "zone", "fare"])
    assert open_source(given, start="start", end="end").schema.names == ["zone", "fare"]
    with pytest.raises(ColumnError, match="Rename it in the source, or say end='end'"):
        open_source(given, start="start")
    with pytest.raises(ColumnError, match="Rename it"):
        rides(table().rename_columns(["pickup", "dropoff", "zone", "start"]))


def test_diverted_rows_need_two_names() -> None:
    given = table().rename_columns(["pickup", "dropoff", "zone", "rule"])
    assert rides(given).schema.names == ["zone", "rule"]
    with pytest.raises(ColumnError, match="Rename it"):
        rides(given, on_invalid="divert")


def test_start_and_end_are_two_columns() -> None:
    with pytest.raises(PlanError, match="one column"):
        open_source(table(), start="pickup", end="pickup")


def test_a_frame_of_time_columns_alone_keeps_them() -> None:
    times = table().select(["pickup", "dropoff"])
    source = rides(times)
    assert source.schema.names == ["pickup", "dropoff"]
    assert whole(source)[2].equals(times)
    source = open_source(times.rename_columns(["start", "end"]), start="start", end="end")
    assert source.schema.names == ["start_time", "end_time"]
    assert whole(source, columns=["end_time"])[2]["end_time"].equals(times["dropoff"])
    points = open_source(pa.table({"start": [7]}), start="start", unit="ms")
    assert whole(points) == ([7_000], None, pa.table({"start_time": [7]}))


@pytest.mark.parametrize(("name", "kind"), [("v\0w", pa.int8()), ("v", pa.list_(pa.struct([("a\0", pa.int8())])))])
def test_names_that_others_would_cut_are_refused(name: str, kind: pa.DataType) -> None:
    with pytest.raises(ColumnError, match="holds a U\\+0000") as raised:
        open_source(pa.schema([("at", pa.int64()), (name, kind)]).empty_table(), start="at", unit="s")
    assert raised.value.column == name


def test_a_column_without_a_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "indexed.csv"
    path.write_text(",at,v\n0,1,2\n", encoding="utf-8")
    with pytest.raises(ColumnError, match=r"has no name.*index=False"):
        open_source(path, start="at", unit="s")


def test_payload_types_that_cannot_be_carried_are_refused_by_name() -> None:
    given = table().append_column("span", pa.nulls(SIZE, pa.month_day_nano_interval()))
    with pytest.raises(SourceError, match=r"column 'span'") as caught:
        rides(given)
    assert "Cast it to a duration" in str(caught.value)


def test_batches_hold_at_least_a_row() -> None:
    with pytest.raises(PlanError, match="batch_rows"):
        rides(table()).read(batch_rows=0)


# Zones


def test_results_carry_the_zone_that_came_in() -> None:
    def zone_of(kind: pa.DataType, **options: Any) -> str:
        return open_source(pa.table({"at": pa.array([0], pa.int64()).cast(kind), "v": [1]}), start="at", **options).zone

    assert zone_of(pa.timestamp("us", "America/New_York")) == "America/New_York"
    assert zone_of(pa.timestamp("us", "America/New_York"), zone="Europe/Vienna") == "America/New_York"
    assert zone_of(pa.timestamp("us"), zone="Europe/Vienna") == "Europe/Vienna"
    assert zone_of(pa.int64(), unit="s") == "UTC"
    assert zone_of(pa.int64(), unit="s", zone="Europe/Vienna") == "Europe/Vienna"


def test_local_times_that_a_clock_change_touches_follow_a_policy() -> None:
    local = pa.array(["2019-03-10T02:30", "2019-11-03T01:30"]).cast(pa.timestamp("s"))
    given = pa.table({"at": local, "v": [1, 2]})

    def ticks(**options: Any) -> list[int]:
        return whole(open_source(given, start="at", zone="America/New_York", **options))[0]

    with pytest.raises(TimeError, match=r"nonexistent_start.*shift_forward"):
        ticks()
    with pytest.raises(TimeError, match=r"ambiguous_start.*earliest"):
        ticks(nonexistent="shift_forward")
    march, november = ticks(nonexistent="shift_forward", ambiguous="latest")
    assert datetime.datetime.fromtimestamp(march / 1e6, datetime.UTC).isoformat() == "2019-03-10T07:00:00+00:00"
    assert datetime.datetime.fromtimestamp(november / 1e6, datetime.UTC).isoformat() == "2019-11-03T06:30:00+00:00"
    assert ticks(nonexistent="shift_backward", ambiguous="earliest") == [march - 1, november - 3_600_000_000]


def test_start_and_end_may_differ_in_type() -> None:
    given = pa.table({"a": pa.array([0], pa.date32()), "b": pa.array([90_000], pa.uint32()), "v": [1]})
    assert whole(open_source(given, start="a", end="b", unit="s"))[:2] == ([0], [90_000_000_000])


def test_real_taxi_rides(shared_data: Path) -> None:
    source = open_source(
        shared_data / "taxis.csv",
        start="pickup",
        end="dropoff",
        zone="America/New_York",
        on_invalid="divert",
        ambiguous="earliest",
        nonexistent="shift_forward",
    )
    start, end, payload = whole(source)
    assert source.report().rows == 6_433
    assert source.report().invalid == {"zero_length": 6}
    assert len(start) == payload.num_rows == 6_427
    assert end is not None
    assert len({*start, *end}) == 12_806
    assert min(start) == 1_551_414_543_000_000  # 2019-02-28 23:29:03 in New York
    assert payload.schema.field("fare").type == pa.float64()
    assert source.rejected()["row"].to_pylist() == sorted(source.rejected()["row"].to_pylist())
