"""The rules of lifetimes: which rows break them, what an error says of the first, and what the policies do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.errors import PlanError, TimeError
from gpu_ops.ingest import EventSource, IngestReport, open_source

INSTANT = pa.timestamp("us", "UTC")


def intervals(*rows: tuple[int | None, int | None], **options: Any) -> EventSource:
    table = pa.table(
        {
            "from": pa.array([row[0] for row in rows], pa.int64()),
            "to": pa.array([row[1] for row in rows], pa.int64()),
            "n": pa.array(range(len(rows)), pa.int32()),
        }
    )
    return open_source(table, start="from", end="to", unit="us", **options)


def kept(source: EventSource, **options: Any) -> list[int]:
    return [number for batch in source.read(**options) for number in batch.payload["n"].to_pylist()]


# 0  [=====)
# 1     [======>
# 2  *             one tick
# 3        [>      from the last tick but one
def test_valid_lifetimes_pass() -> None:
    source = intervals((0, 6), (3, MAX_TIME), (0, 1), (MAX_TIME - 1, MAX_TIME), (MIN_TIME, MAX_TIME))
    assert kept(source) == [0, 1, 2, 3, 4]
    assert source.report() == IngestReport(5, 5, {}, {})


TICKS = st.one_of(st.integers(0, 9), st.integers(MIN_TIME, MAX_TIME - 2))


@given(rows=st.lists(st.tuples(TICKS, st.integers(1, 9) | st.integers(1, MAX_TIME)), min_size=1, max_size=40))
def test_the_check_says_where_valid_lifetimes_are(rows: list[tuple[int, int]]) -> None:
    lifetimes = [(start, min(start + lasts, MAX_TIME)) for start, lasts in rows]
    (batch,) = intervals(*lifetimes).read()
    starts, ends = zip(*lifetimes, strict=True)
    assert batch.extent == (min(starts), max(starts), max(ends))


@given(starts=st.lists(TICKS, min_size=1, max_size=40), batch_rows=st.integers(1, 50))
def test_the_check_makes_the_ends_of_points_if_they_are_asked_for(starts: list[int], batch_rows: int) -> None:
    source = open_source(pa.table({"at": pa.array(starts, pa.int64())}), start="at", unit="us")
    ends = list[int]()
    for asked, plain in zip(source.read(None, batch_rows, point_ends=True), source.read(None, batch_rows), strict=True):
        least, most = min(asked.start), max(asked.start)
        assert asked.extent == plain.extent == (least, most, most + 1)
        assert (asked.end, plain.end, plain.point_ends) == (None, None, None)
        ends += np.asarray(asked.point_ends).tolist()
    assert ends == [start + 1 for start in starts]


def test_the_check_of_a_batch_that_loses_rows_says_nothing_of_it() -> None:
    starts = pa.table({"at": pa.array([MAX_TIME, 5, None], pa.int64())})
    (batch,) = open_source(starts, start="at", unit="us", on_invalid="drop").read(point_ends=True)
    assert (batch.start.tolist(), batch.extent, batch.point_ends) == ([5], None, None)


BROKEN: list[tuple[int | None, int | None, str, str]] = [
    (None, 5, "null_start", "from"),
    (5, None, "null_end", "to"),
    (None, None, "null_start", "from"),
    (MIN_TIME - 1, 5, "outside_start", "from"),
    (MAX_TIME + 1, MAX_TIME + 2, "outside_start", "from"),
    (-(2**63), 2**63 - 1, "outside_start", "from"),
    (0, MAX_TIME + 1, "outside_end", "to"),
    (0, -(2**63), "outside_end", "to"),
    (5, 5, "zero_length", "to"),
    (MAX_TIME, MAX_TIME, "zero_length", "to"),
    (5, 4, "negative_length", "to"),
    (MAX_TIME, MIN_TIME, "negative_length", "to"),
]


@pytest.mark.parametrize(("start", "end", "rule", "column"), BROKEN)
def test_an_error_names_column_row_values_rule_and_remedy(
    start: int | None, end: int | None, rule: str, column: str
) -> None:
    with pytest.raises(TimeError) as caught:
        kept(intervals((0, 1), (start, end), (2, 3)))
    error = caught.value
    assert error.column == column
    assert error.row == 1
    assert error.values == f"from={'null' if start is None else start}, to={'null' if end is None else end}"
    assert rule in str(error)
    assert error.remedy is not None
    assert 'on_invalid="drop"' in error.remedy


@pytest.mark.parametrize(("start", "end", "rule", "column"), BROKEN)
def test_each_rule_is_counted_once(start: int | None, end: int | None, rule: str, column: str) -> None:
    del column
    source = intervals((0, 1), (start, end), (2, 3), (start, end), on_invalid="drop")
    assert kept(source) == [0, 2]
    report = source.report()
    assert (report.rows, report.valid, report.invalid) == (4, 2, {rule: 2})
    assert report.first[rule].startswith("row 1: from=")


def test_the_error_counts_the_rows_and_looks_at_the_first() -> None:
    with pytest.raises(TimeError) as caught:
        kept(intervals((0, 1), (7, 7), (9, 8), (7, 7), (7, 7)))
    assert "zero_length: 3 rows of the 5 read together, beside 1 with other faults" in str(caught.value)


def test_rows_are_counted_in_the_source_not_in_the_batch() -> None:
    rows = [(n, n + 1) for n in range(100)]
    rows[77] = (7, 7)
    for batch_rows in (None, 1, 10, 77, 78, 1000):
        with pytest.raises(TimeError) as caught:
            kept(intervals(*rows), batch_rows=batch_rows)
        assert caught.value.row == 77
        source = intervals(*rows, on_invalid="divert")
        assert kept(source, batch_rows=batch_rows) == [n for n in range(100) if n != 77]
        assert source.rejected().to_pylist() == [{"from": 7, "to": 7, "n": 77, "rule": "zero_length", "row": 77}]


def test_a_null_end_may_be_open() -> None:
    source = intervals((0, None), (3, 5), null_end="open")
    (batch,) = source.read()
    assert batch.end is not None
    assert batch.end.tolist() == [MAX_TIME, 5]
    with pytest.raises(TimeError, match="null_start"):
        kept(intervals((None, None), null_end="open"))


def test_the_remedy_for_a_null_end_is_to_open_it() -> None:
    with pytest.raises(TimeError, match='null_end="open"'):
        kept(intervals((0, None)))


def test_points_end_before_time_does() -> None:
    def points(*ticks: int) -> EventSource:
        return open_source(pa.table({"at": pa.array(ticks).view(INSTANT), "n": range(len(ticks))}), start="at")

    (batch,) = points(MIN_TIME, MAX_TIME - 2).read()
    assert batch.end is None
    for late in (MAX_TIME - 1, MAX_TIME, MIN_TIME - 1):
        with pytest.raises(TimeError, match="outside_start"):
            kept(points(0, late))


def test_diverted_rows_come_whole_whatever_columns_were_read() -> None:
    source = intervals((0, 1), (9, 8), (None, 3), on_invalid="divert")
    (batch,) = source.read(columns=[])
    assert batch.payload.num_columns == 0
    assert batch.payload.num_rows == len(batch.start) == 1
    assert source.rejected().to_pylist() == [
        {"from": 9, "to": 8, "n": 1, "rule": "negative_length", "row": 1},
        {"from": None, "to": 3, "n": 2, "rule": "null_start", "row": 2},
    ]


def test_what_is_rejected_has_its_schema_before_anything_is() -> None:
    source = intervals((0, 1), on_invalid="divert")
    assert source.rejected().schema.names == ["from", "to", "n", "rule", "row"]
    kept(source)
    assert source.rejected().num_rows == 0
    assert source.report() == IngestReport(1, 1, {}, {})


def test_a_read_that_was_broken_off_is_not_reported() -> None:
    source = intervals((0, 1), (2, 3))
    next(source.read(batch_rows=1))
    assert source.report().rows == 0
    kept(source, batch_rows=1)
    assert source.report().rows == 2


def test_values_are_shown_as_they_came() -> None:
    table = pa.table(
        {
            "a": pa.array([1_000], pa.timestamp("ms", "UTC")),
            "b": pa.array([0], pa.date32()),
            "n": [1],
        }
    )
    with pytest.raises(TimeError) as caught:
        list(open_source(table, start="a", end="b").read())
    assert caught.value.values == "a=1970-01-01 00:00:01.000Z, b=1970-01-01"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("null_end", "close"),
        ("on_invalid", "ignore"),
        ("ambiguous", "first"),
        ("nonexistent", "shift"),
        ("unit", "min"),
        ("round", "up"),
        ("format", "json"),
    ],
)
def test_a_policy_that_does_not_exist_is_refused(option: str, value: str) -> None:
    with pytest.raises(PlanError, match=f"{option}='{value}' is no policy"):
        open_source(pa.table({"at": [1]}), start="at", **{option: value})  # type: ignore[arg-type]


times = st.sampled_from([None, MIN_TIME - 1, MIN_TIME, -1, 0, 1, 2, MAX_TIME - 1, MAX_TIME, MAX_TIME + 1])


@given(st.lists(st.tuples(times, times), max_size=30), st.integers(1, 40), st.sampled_from(["raise", "open"]))
def test_any_rows_by_the_definition(rows: list[tuple[int | None, int | None]], batch_rows: int, null_end: str) -> None:
    def valid(start: int | None, end: int | None) -> bool:
        if end is None and null_end == "open":
            end = MAX_TIME
        return start is not None and end is not None and MIN_TIME <= start < end <= MAX_TIME

    source = intervals(*rows, on_invalid="divert", null_end=null_end)
    good = [index for index, row in enumerate(rows) if valid(*row)]
    assert kept(source, batch_rows=batch_rows) == good
    assert sorted([*good, *source.rejected()["row"].to_pylist()]) == list(range(len(rows)))
    report = source.report()
    assert (report.rows, report.valid, sum(report.invalid.values())) == (len(rows), len(good), len(rows) - len(good))
    assert report.invalid.keys() == report.first.keys()


def test_a_late_fault_in_a_long_table_is_found() -> None:
    start = np.arange(200_001)
    end = start + 1
    for at, value in ((200_000, 200_000), (100_000, 0), (0, MAX_TIME + 1)):
        broken = end.copy()
        broken[at] = value
        table = pa.table({"from": start, "to": broken})
        with pytest.raises(TimeError) as caught:
            list(open_source(table, start="from", end="to", unit="us").read())
        assert caught.value.row == at
