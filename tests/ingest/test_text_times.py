"""Times in text: what ISO 8601 allows, in every mixture."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.ingest.text_times import read_integers, read_times

EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001
MICROSECOND = datetime.timedelta(microseconds=1)

SPOILER = "none"
"""Beside it Arrow's reader, which takes a column whole or not at all, takes none of a column."""


def read_one(text: str, *, beside: str | None = None) -> tuple[int, int, bool, bool, bool]:
    written = read_times(pa.array([text] if beside is None else [text, beside]))
    return (
        int(written.shown[0]),
        int(written.offset[0]),
        bool(written.zoned[0]),
        bool(written.dated[0]),
        bool(written.unreadable[0]),
    )


def ticks(text: str) -> int:
    return (datetime.datetime.fromisoformat(text) - EPOCH) // MICROSECOND


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2019-03-23 20:21:09", "2019-03-23 20:21:09"),
        ("2019-03-23T20:21:09", "2019-03-23 20:21:09"),
        ("2019-03-23t20:21:09.5", "2019-03-23 20:21:09.5"),
        ("2019-03-23 20:21:09,123456", "2019-03-23 20:21:09.123456"),
        ("2019-03-23 20:21:09.123456000", "2019-03-23 20:21:09.123456"),
        ("2019-03-23 20:21", "2019-03-23 20:21"),
        ("2019-03-23 20", "2019-03-23 20:00"),
        ("  2019-03-23 20:21 ", "2019-03-23 20:21"),
        ("2020-02-29T23:59:59", "2020-02-29T23:59:59"),
        ("0001-01-01T00:00:00", "0001-01-01"),
        ("9999-12-31T23:59:59.999999", "9999-12-31T23:59:59.999999"),
    ],
)
@pytest.mark.parametrize("beside", [None, SPOILER])
def test_local_times(text: str, shown: str, beside: str | None) -> None:
    assert read_one(text, beside=beside) == (ticks(shown), 0, False, False, False)


@pytest.mark.parametrize("beside", [None, SPOILER])
def test_dates(beside: str | None) -> None:
    assert read_one("2019-03-23", beside=beside) == (ticks("2019-03-23"), 0, False, True, False)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("Z", 0), ("z", 0), ("+01", 60), ("-0130", -90), ("+05:45", 345), ("-14:00", -840), ("+00:00", 0)],
)
@pytest.mark.parametrize("beside", [None, SPOILER])
def test_times_that_name_their_zone(text: str, minutes: int, beside: str | None) -> None:
    shown, offset, zoned, dated, unreadable = read_one(f"2019-03-23T20:21:09{text}", beside=beside)
    assert shown - offset == ticks("2019-03-23T20:21:09") - minutes * 60_000_000
    assert (zoned, dated, unreadable) == (True, False, False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2019-02-29",
        "1900-02-29",
        "2019-04-31",
        "2019-00-10",
        "2019-13-10",
        "2019-10-00",
        "2019-03-23 24:00",
        "2019-03-23 12:60",
        "2016-12-31T23:59:60Z",
        "2019-03-23Z",
        "2019-03-23T20:21:09+24:00",
        "2019-03-23T20:21:09+01:60",
        "2019-03-23T20:21:09.",
        "19-03-23",
        "20190323",
        "-2019-03-23",
        "2019-03-23 20:21:09 x",
        "1553372469",
    ],
)
def test_what_is_no_time(text: str) -> None:
    assert read_one(text) == (0, 0, False, False, True)


def test_what_is_finer_than_a_tick_is_left_over() -> None:
    written = read_times(pa.array(["1970-01-01T00:00:00.0000015", "1969-12-31T23:59:59.9999995", None]))
    assert written.shown.tolist() == [1, -1, 0]
    assert written.rest is not None
    assert written.rest.tolist() == [5 * 10**11, 5 * 10**11, 0]
    assert written.unreadable.tolist() == [False, False, False]


moments = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))  # noqa: DTZ001
offsets = st.none() | st.integers(-14 * 60, 14 * 60)


@given(st.lists(st.none() | st.tuples(moments, offsets, st.sampled_from("T "))))
def test_what_python_writes_is_read_back(rows: list[tuple[datetime.datetime, int | None, str] | None]) -> None:
    texts: list[str | None] = []
    for row in rows:
        if row is None:
            texts.append(None)
            continue
        moment, minutes, between = row
        zone = None if minutes is None else datetime.timezone(datetime.timedelta(minutes=minutes))
        texts.append(moment.replace(tzinfo=zone).isoformat(between))
    for extra in ([], [SPOILER]):
        written = read_times(pa.array(texts + extra, pa.string()))
        assert not written.unreadable[: len(rows)].any()
        for index, row in enumerate(rows):
            if row is not None:
                instant = (row[0] - EPOCH) // MICROSECOND - (row[1] or 0) * 60_000_000
                assert written.shown[index] - written.offset[index] == instant
                assert written.zoned[index] == (row[1] is not None)


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_integers_are_read_back(numbers: list[int | None]) -> None:
    for extra in ([], ["1.5", "", str(2**63), "-" + "9" * 30, "1e3"]):
        found, unreadable = read_integers(
            pa.array([None if each is None else str(each) for each in numbers] + extra, pa.string())
        )
        assert found.tolist() == [each or 0 for each in numbers] + [0] * len(extra)
        assert unreadable.tolist() == [False] * len(numbers) + [True] * len(extra)
