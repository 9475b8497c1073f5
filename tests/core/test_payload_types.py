"""Payload of every type that StreamInsight has: `docs/types.md` says what each is here, and each cell is tried."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import compute as pc

import gpu_ops as g
from gpu_ops.core.types import lower
from gpu_ops.devices import Device
from gpu_ops.devices.cuda.lowering import device_type, restore
from gpu_ops.devices.cuda.lowering import lower as to_device
from gpu_ops.errors import ColumnError, PlanError, SourceError
from tests.support.payload_table import ROWS, SAMPLES, Row

SEEDS = {
    *("byte", "sbyte", "byte[]", "int", "uint", "short", "ushort", "long", "ulong", "float", "double", "decimal"),
    *("bool", "datetime", "timespan", "guid", "char", "string"),
}
"""The types that StreamInsight's table "Supported Data Types" lists; nested types are made of them."""

UTC = pa.timestamp("us", "UTC")
rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def events(values: pa.Array) -> g.Stream:
    """An event a second, with these values."""
    seconds = pa.array([1_000_000 * number for number in range(len(values))], UTC)
    return g.events(pa.table({"at": seconds, "x": values}), start="at")


def one(table: pa.Table, name: str = "x") -> pa.Array:
    """A column of an answer in the order of time. By slices: Arrow sorts no table that has string views."""
    order = pc.sort_indices(table["start"]).to_pylist()
    return pa.concat_arrays([chunk for row in order for chunk in table[name].slice(row, 1).chunks])


# The table


def test_the_table_has_every_type() -> None:
    assert {row.seed for row in ROWS} == SEEDS | {"nested"}
    assert {(row.seed, row.declared) for row in ROWS} == set(SAMPLES)


@rows
def test_values_are_of_the_type_that_the_table_declares(row: Row) -> None:
    assert row.values.type == row.dtype
    assert row.values.null_count == 1


@rows
def test_what_polars_holds(row: Row) -> None:
    assert str(pl.DataFrame(pa.table({"x": lower(row.values)})).dtypes[0]) == row.polars


@rows
def test_what_cudf_is_given(row: Row) -> None:
    given = row.dtype if row.cudf == "itself" else row.cudf
    assert str(device_type(row.dtype)) == str(given)
    column = pa.chunked_array([row.values, row.values.slice(2)])
    assert restore(to_device(column), row.dtype).equals(column)


# Each cell


@rows
def test_payload_comes_back_as_it_was(row: Row, device_name: str) -> None:
    stream = events(row.values)
    for query in (
        stream,
        stream.shift("1h"),
        stream.filter(g.col("start") < g.col("end")),
        stream.with_columns(more=g.lit(1)).select("x"),
        stream.select(y=g.col("x")).select(x=g.col("y")),
        stream.with_columns(y=g.col("x")).select(x=g.col("y")),
        stream.chop("1h"),
    ):
        table = query.collect(device=device_name)
        assert query.schema.field("x").type == table.schema.field("x").type == row.dtype
        assert one(table).equals(row.values)


DATES = pa.array([datetime.date(2026, 1, 1), None]).dictionary_encode()


@pytest.mark.parametrize("values", [*(row.values for row in ROWS), DATES], ids=lambda values: str(values.type))
def test_a_running_query_tells_and_keeps_its_state_with_rows_and_without(values: pa.Array, tmp_path: Path) -> None:
    running = events(values).last(2).agg(n=g.count("x")).start()
    for step in (
        pa.table({"at": pa.array([], UTC), "x": values[:0]}),
        pa.table({"at": pa.array([5], UTC), "x": values[:1]}),
    ):
        assert running.status().state_bytes >= 0
        running.checkpoint(tmp_path / "state")
        running.push(step)
    running.checkpoint(tmp_path / "state")
    assert running.status().state_bytes > 0


@rows
def test_nulls_are_counted_apart(row: Row, device_name: str) -> None:
    counts = events(row.values).tumbling("1h").agg(n=g.count("x"), all=g.count()).collect(device=device_name)
    assert counts.select(["n", "all"]).to_pylist() == [{"n": 3, "all": 4}]


@rows
def test_keys(row: Row, device_name: str) -> None:
    stream = events(row.values)
    if row.ordered == "no":
        with pytest.raises(ColumnError, match="is no key"):
            stream.by("x")
        return
    table = stream.by("x").snapshot().agg(n=g.count()).collect(device=device_name)
    distinct = row.values.take(pa.array([0, 1, 2])) if row.values.type == pa.bool_() else row.values
    assert one(table).slice(0, len(distinct)).equals(distinct)
    assert stream.by("x").tumbling("1h").agg(n=g.count()).collect(device=device_name).num_rows == len(distinct)


@rows
def test_keys_are_told_apart_one_by_one(row: Row, device: Device) -> None:
    if row.ordered == "yes":
        frame = device.columns.from_arrow(pa.table({"x": row.values}))
        assert len(set(device.columns.tuples(frame))) == (3 if row.seed == "bool" else 4)


@rows
def test_extremes(row: Row, device_name: str) -> None:
    stream = events(row.values)
    if row.ordered == "no":
        with pytest.raises(ColumnError, match="does not take"):
            stream.snapshot().agg(least=g.min("x"))
        return
    # Values stand as least, null, greatest, another; the last window has nulls alone.
    windows = stream.tumbling("1h").agg(least=g.min("x"), most=g.max("x"))
    table = windows.collect(device=device_name)
    assert [field.type for field in windows.schema] == [row.dtype, row.dtype]
    assert one(table, "least").equals(row.values.slice(0, 1))
    assert one(table, "most").equals(row.values.slice(2, 1))
    alone = events(row.values.slice(1, 1)).snapshot().agg(least=g.min("x")).collect(device=device_name)
    assert one(alone, "least").equals(row.values.slice(1, 1))


def test_files_keep_every_type(tmp_path: Path) -> None:
    table = pa.table({row.name: row.values for row in ROWS})
    stream = g.events(table.append_column("at", pa.array(range(4), UTC)), start="at")
    stream.write(tmp_path / "events.parquet")
    again = g.events(str(tmp_path / "events.parquet"), start="start", end="end").collect()
    for row in ROWS:
        assert one(again, row.name).equals(row.values), row.name


# Bounds: what does not fit its type is an error where the column is made, before it is an event


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (pa.array([Decimal("1E-10")], pa.decimal128(38, 10)), pa.decimal128(38, 9)),
        (pa.array([1], pa.duration("ns")), pa.duration("us")),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([-62_135_596_800_000_000], pa.timestamp("us")), pa.timestamp("ns")),
        (pa.array([2**63 - 1], pa.duration("us")), pa.duration("ns")),
        (pa.array([2**16]), pa.uint16()),
        (pa.array([-1]), pa.uint64()),
    ],
    ids=str,
)
def test_what_does_not_fit_is_an_error(wide: pa.Array, narrow: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid):
        wide.cast(narrow)


def test_a_decimal_of_too_many_digits_is_an_error() -> None:
    for value, dtype in ((Decimal(2**96 - 1), pa.decimal128(38, 28)), (Decimal("1E-10"), pa.decimal128(38, 9))):
        with pytest.raises(pa.ArrowInvalid):
            pa.array([value], dtype)


def test_half_a_character_is_no_text() -> None:
    with pytest.raises(UnicodeEncodeError):
        pa.array(["\ud800"])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_units_of_time_are_kept_by_aggregates(unit: str, device_name: str) -> None:
    for values in (pa.array([3, None, 5], pa.duration(unit)), pa.array([3, None, 5], pa.timestamp(unit, "UTC"))):
        windows = events(values).tumbling("1h").agg(least=g.min("x"), most=g.max("x"))
        assert one(windows.collect(device=device_name), "least").equals(values.slice(0, 1))
        assert one(windows.collect(device=device_name), "most").equals(values.slice(2, 1))
    total = events(pa.array([3, None, 5], pa.duration(unit))).tumbling("1h").agg(total=g.sum("x"))
    assert one(total.collect(device=device_name), "total").equals(pa.array([8], pa.duration(unit)))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([3, None, 5], pa.time32("s")),
        pa.array([3, None, 5], pa.time64("us")),
        pa.array([86_400_000 * 3, None, 86_400_000 * 5]).view(pa.date64()),
        pa.array([Decimal(3), None, Decimal(5)], pa.decimal32(5, 1)),
        pa.array(["a", None, "b"], pa.string_view()),
        pa.array(["a", None, "b"], pa.large_string()),
    ],
    ids=lambda values: str(values.type),
)
def test_extremes_of_other_types_are_of_the_type_that_came_in(values: pa.Array) -> None:
    table = events(values).tumbling("1h").agg(least=g.min("x"), most=g.max("x")).collect()
    assert one(table, "least").equals(values.slice(0, 1))
    assert one(table, "most").equals(values.slice(2, 1))


# Nullability comes from the data's schema


def declared(nullable: pa.Array, never: pa.Array) -> pa.Table:
    schema = pa.schema(
        [
            pa.field("at", UTC, nullable=False),
            pa.field("maybe", nullable.type),
            pa.field("never", never.type, nullable=False),
        ]
    )
    return pa.table([pa.array(range(len(never)), UTC), nullable, never], schema=schema)


def test_columns_without_nulls_stay_so_while_they_are_the_same_columns() -> None:
    stream = g.events(declared(pa.array([1, None]), pa.array([1, 2])), start="at")
    queries = {
        stream: {"maybe": True, "never": False},
        stream.filter(g.col("never") > 1): {"maybe": True, "never": False},
        stream.select("never", other=g.col("never")): {"never": False, "other": False},
        stream.with_columns(sum=g.col("never") + g.col("maybe")): {"maybe": True, "never": False, "sum": True},
        stream.with_columns(never=g.col("never") + g.col("maybe")): {"maybe": True, "never": True},
        stream.by("never").snapshot().agg(least=g.min("never")): {"never": False, "least": True},
    }
    for query, expected in queries.items():
        assert {field.name: field.nullable for field in query.schema} == expected
        assert {field.name: field.nullable for field in list(query.collect().schema)[2:]} == expected


def test_a_null_in_a_column_without_nulls_is_an_error() -> None:
    stream = g.events(declared(pa.array([1, 2, 3]), pa.array([1, 2, None])), start="at")
    with pytest.raises(SourceError, match="declared without nulls") as caught:
        stream.collect()
    assert caught.value.column == "never"
    assert caught.value.row == 2
    # A query that does not read the column does not look at it.
    assert stream.select("maybe").collect().num_rows == 3


# An event has a payload


def test_time_columns_alone_stay_as_payload(device_name: str) -> None:
    times = pa.table({"from": pa.array([1, 2], UTC), "to": pa.array([5, 6], UTC)})
    stream = g.events(times, start="from", end="to")
    assert stream.schema.names == ["from", "to"]
    assert stream.collect(device=device_name).select(["from", "to"]).equals(times)
    assert stream.snapshot().agg(n=g.count()).collect(device=device_name)["n"].to_pylist() == [1, 2, 1]


def test_a_select_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(PlanError, match="at least one column"):
        events(pa.array([1])).select()


def test_lists_of_nulls_in_a_map_come_back_from_any_place(device_name: str) -> None:
    made = pa.array([[("k", [None] * size)] for size in range(4)], pa.map_(pa.string(), pa.list_(pa.null())))
    start = datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)
    found = events(made).filter(g.col("start") > start).collect(device=device_name)
    assert one(found).to_pylist() == made.to_pylist()[2:]
