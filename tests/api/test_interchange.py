"""A stream in the hands of other libraries: Arrow's PyCapsule protocol, and what Python asks of containers."""

from __future__ import annotations

import importlib
import pickle
from datetime import timedelta
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import gpu_ops as g

duckdb: Any = importlib.import_module("duckdb")
pd: Any = importlib.import_module("pandas")

COLUMNS: dict[str, pa.Array] = {
    "v": pa.array([1, 2, None]),
    "text": pa.array(["a", None, "c"]),
    "view": pa.array(["a", "b" * 99, None], pa.string_view()),
    "category": pa.array(["x", None, "x"]).dictionary_encode(),
    "number_category": pa.array([7, 9, 7]).dictionary_encode(),
    "list": pa.array([[1], [], None]),
    "struct": pa.array([{"x": 1, "y": "a"}, {"x": None, "y": "b"}, None]),
    "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    "pair": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
    "money": pa.array([1, 2, None], pa.decimal128(10, 2)),
    "zoned": pa.array([1, 2, None], pa.timestamp("us", "Europe/Vienna")),
    "nanoseconds": pa.array([1, 2, None], pa.timestamp("ns")),
    "date": pa.array([1, 2, None], pa.date32()),
    "clock": pa.array([1, 2, None], pa.time64("us")),
    "span": pa.array([1, 2, None], pa.duration("us")),
    "bytes": pa.array([b"\x00", b"", None]),
    "flag": pa.array([True, False, None]),
    "guid": pa.array([b"x" * 16, b"y" * 16, None], pa.uuid()),
}


def stream() -> g.Stream:
    return g.events(pa.table({"at": [0, 1, 2], **COLUMNS}), start="at", unit="s", zone="Europe/Vienna")


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["start"])


# The protocol


def test_the_declared_schema_is_that_of_the_batches() -> None:
    for each in (stream(), stream().filter(g.col("v") > 99), stream().snapshot().agg(n=g.count(), m=g.max("category"))):
        declared = pa.schema(each)
        assert declared.names[:2] == ["start", "end"]
        assert pa.RecordBatchReader.from_stream(each).schema.equals(declared, check_metadata=True)
        assert all(batch.schema.equals(declared, check_metadata=True) for batch in each)
        assert each.collect().schema.equals(declared, check_metadata=True)


def test_every_library_takes_a_stream_where_it_takes_a_frame() -> None:
    given = stream().select("v", "text", "zoned")
    expected = rows(given.collect())
    assert rows(pa.table(given)) == expected
    assert rows(pa.RecordBatchReader.from_stream(given).read_all()) == expected
    assert rows(pl.DataFrame(given).to_arrow()) == expected
    assert rows(pl.DataFrame(pl.from_arrow(given)).to_series().struct.unnest().to_arrow()) == expected
    for backend in ("polars", "pyarrow", "pandas"):
        frame = nw.from_arrow(given, backend=backend)
        assert frame.columns == ["start", "end", "v", "text", "zoned"]
        assert frame["text"].is_null().to_list() == [False, True, False]
        assert frame["v"].sum() == 3
    pandas = pd.DataFrame.from_arrow(given)
    assert pandas["start"].dtype == "datetime64[us, Europe/Vienna]"
    assert pandas["v"].dropna().tolist() == [1, 2]


@pytest.mark.parametrize("name", COLUMNS)
def test_duckdb_reads_each_type_of_column(name: str) -> None:
    given = stream().select(name)  # noqa: F841  (DuckDB finds it by its name)
    answer = duckdb.sql(f'select "{name}" from given order by "start"').to_arrow_table()
    assert answer.column_names == [name]
    found, wanted = answer[name].to_pylist(), COLUMNS[name].to_pylist()
    if name == "guid":  # a text in what DuckDB gives
        wanted = [None if value is None else str(value) for value in wanted]
    if name == "span":  # an interval of months, days and nanoseconds there
        found = [None if value is None else timedelta(microseconds=value.nanoseconds // 1000) for value in found]
    assert found == wanted


def test_duckdb_filters_picks_and_joins_a_stream() -> None:
    given = stream().select("v", "text")
    nothing = given.filter(g.col("v") > 99)
    with duckdb.connect() as connection:
        connection.register("registered", given)
        for name in ("registered", "given"):
            assert connection.sql(f"select text from {name} where v > 1").fetchall() == [(None,)]
            assert connection.sql(f"select count(*), sum(v) from {name}").fetchall() == [(3, 3)]
            joined = f'select a.v, b.text from {name} a join {name} b on a."end" > b.start and b.v < a.v order by all'
            assert connection.sql(joined).fetchall() == [(2, "a")]
        assert connection.sql("select v from nothing").fetchall() == []
        assert connection.sql("describe nothing").fetchall()[0][:2] == ("start", "TIMESTAMP WITH TIME ZONE")
    assert given.collect().num_rows == nothing.collect().num_rows + 3


def test_a_reader_is_read_for_duckdb_once() -> None:
    table = pa.table({"at": [0, 1], "v": [5, 6]})
    once = g.events(table.to_reader(), start="at", unit="s")  # noqa: F841  (DuckDB finds it by its name)
    assert duckdb.sql("select sum(v) from once").fetchall() == [(11,)]


# A requested schema


def test_requested_types_are_given() -> None:
    given = stream().select("v", "text")
    time = pa.timestamp("us", "UTC")
    asked = pa.schema([("start", time), ("end", time), ("v", pa.float64()), ("text", pa.large_string())])
    table = pa.RecordBatchReader.from_stream(given, schema=asked).read_all()
    assert table.schema == asked
    assert table["v"].to_pylist() == [1.0, 2.0, None]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([("v", pa.int64())], "The answer has the columns start, end, v, and v are requested"),
        ([("v", pa.int64()), ("start", pa.int64()), ("end", pa.int64())], r"Request other types alone.*select\(…\)"),
        ([("start", pa.int64()), ("end", pa.int64()), ("v", pa.struct([("x", pa.int8())]))], "cannot be given in the"),
    ],
)
def test_what_cannot_be_given_is_refused(fields: list[tuple[str, pa.DataType]], said: str) -> None:
    with pytest.raises(g.PlanError, match=said):
        pa.RecordBatchReader.from_stream(stream().select("v"), schema=pa.schema(fields))


def test_a_value_that_does_not_fit_the_requested_type_is_an_error() -> None:
    given = stream().select(big=g.col("v") * 1_000_000)
    asked = pa.schema(given).set(2, pa.field("big", pa.int8()))
    with pytest.raises(pa.ArrowInvalid, match="1000000 not in range"):
        pa.RecordBatchReader.from_stream(given, schema=asked).read_all()


# What Python asks of containers


def test_a_stream_iterates_over_its_batches() -> None:
    given = stream().select("v")
    assert sum(batch.num_rows for batch in given) == 3
    assert pa.Table.from_batches(list(given)) == given.collect()


@pytest.mark.parametrize(
    ("ask", "say"),
    [
        (len, r"no length.*\.collect\(\)"),
        (bool, "neither true nor false.*is None"),
        (lambda given: given["v"], r"\.select\('v'\), or \.collect\(\)\['v'\]"),
        (lambda given: given[0], r"neither columns nor rows.*\.collect\(\)"),
        (lambda given: "v" in given, r"name in stream\.schema\.names"),
        (np.asarray, r"no array.*\.collect\(\)"),
        (np.array, r"no array.*\.collect\(\)"),
        (pd.DataFrame, r"no array.*pyarrow\.table\(stream\)\.to_pandas\(\)"),
        (reversed, "no length"),
    ],
)
def test_what_only_an_answer_has_is_refused_with_a_remedy(ask: Any, say: str) -> None:
    with pytest.raises(g.NotCollectedError, match=say) as refused:
        ask(stream())
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)  # noqa: S301  (our own)


def test_streams_are_equal_as_the_same_object() -> None:
    one, other = stream(), stream()
    assert one == one  # noqa: PLR0124
    assert one != other
    assert len({one, other, one}) == 2
