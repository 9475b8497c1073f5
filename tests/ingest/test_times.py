"""Columns of every type that can be times, as ticks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.errors import TimeError
from gpu_ops.ingest.rules import NO_ZONE, NULL, OUTSIDE, TOO_FINE, UNREADABLE, Round, TimeRule
from gpu_ops.ingest.times import TimeColumn, TimePolicy, Times
from gpu_ops.ingest.zones import Zone

HOUR = 3_600_000_000


def column(kind: pa.DataType, *, text: bool = False, zone: str | None = None, **policy: Any) -> TimeColumn:
    return TimeColumn("at", kind, "start", TimePolicy(zone=None if zone is None else Zone(zone), **policy), text)


def read(array: pa.Array, **policy: Any) -> Times:
    return column(array.type, **policy).read(array)


def rules(times: Times) -> dict[TimeRule, list[bool]]:
    return {rule: mask.tolist() for rule, mask in times.faults.items()}


# What becomes ticks


@pytest.mark.parametrize(("unit", "factor"), [("s", 1_000_000), ("ms", 1_000), ("us", 1)])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "+05:30"])
def test_timestamps_with_a_zone_are_instants(unit: str, factor: int, zone: str) -> None:
    assert read(pa.array([-1, 0, 7], pa.timestamp(unit, zone))).ticks.tolist() == [-factor, 0, 7 * factor]


@pytest.mark.parametrize("zone", ["]TC", "Europe", "+99:99", "../UTC", "\x00"])
def test_timestamps_of_a_zone_that_there_is_not_are_refused(zone: str) -> None:
    with pytest.raises(TimeError, match="there is no time zone") as raised:
        column(pa.timestamp("us", zone))
    assert raised.value.column == "at"


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()])
@pytest.mark.parametrize(("unit", "factor"), [("s", 1_000_000), ("ms", 1_000), ("us", 1)])
def test_integers_count_units(kind: pa.DataType, unit: str, factor: int) -> None:
    assert read(pa.array([0, 7, 100], kind), unit=unit).ticks.tolist() == [0, 7 * factor, 100 * factor]


def test_dates_are_midnights_in_their_zone() -> None:
    days = pa.array([0, -1, 18_000], pa.date32())
    assert read(days).ticks.tolist() == [0, -24 * HOUR, 18_000 * 24 * HOUR]
    assert read(days.cast(pa.date64())).ticks.tolist() == read(days).ticks.tolist()
    assert (read(days, zone="Europe/Vienna").ticks - read(days).ticks).tolist() == [-HOUR, -HOUR, -2 * HOUR]


def test_local_timestamps_are_times_of_the_zone() -> None:
    local = pa.array([0, 86_400 * 180], pa.timestamp("s"))
    assert read(local, zone="UTC").ticks.tolist() == [0, 180 * 24 * HOUR]
    assert (read(local, zone="America/New_York").ticks // HOUR).tolist() == [5, 180 * 24 + 4]


def test_ticks_are_not_copied() -> None:
    numbers = np.arange(1_000)
    for array in (pa.array(numbers), pa.array(numbers).view(pa.timestamp("us", "UTC"))):
        for part in (array, array.slice(10, 100)):
            ticks = read(part, unit="us").ticks
            assert np.shares_memory(ticks, numbers)
            assert ticks.tolist() == part.view(pa.int64()).to_pylist()
            assert not ticks.flags.writeable


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.int8(), pa.date32(), pa.date64(), pa.timestamp("ns"), pa.timestamp("us")]
)
def test_no_rows(kind: pa.DataType) -> None:
    for array in (
        pa.array([], kind),
        pa.array([1, 2], pa.int64() if kind.bit_width == 64 else kind).view(kind).slice(2),
    ):
        times = read(array, unit="s", zone="Europe/Vienna")
        assert times.ticks.dtype == np.int64
        assert len(times.ticks) == 0
        assert times.faults == {}


# What breaks a rule


def test_nulls_are_noted_and_what_lies_under_them_is_not_looked_at() -> None:
    numbers = np.array([1, 2**62, 3])
    array = pa.array(numbers, mask=np.array([False, True, False]))
    for unit in ("s", "ns", "us"):
        times = read(
            array if unit != "ns" else pa.array(numbers * 1000, mask=np.array([False, True, False])), unit=unit
        )
        assert rules(times) == {NULL: [False, True, False]}
        assert times.ticks[[0, 2]].tolist() == [1, 3] if unit != "s" else [1_000_000, 3_000_000]


@pytest.mark.parametrize("unit", ["s", "ms"])
@pytest.mark.parametrize("kind", ["timestamp", "integer"])
def test_what_does_not_fit_ticks_is_outside(unit: str, kind: str) -> None:
    factor = 1_000_000 if unit == "s" else 1_000
    numbers = [MIN_TIME // factor, MIN_TIME // factor - 1, MAX_TIME // factor, MAX_TIME // factor + 1, 2**62, -(2**63)]
    array = pa.array(numbers, pa.timestamp(unit, "UTC") if kind == "timestamp" else pa.int64())
    times = read(array, unit=unit)
    assert rules(times) == {OUTSIDE: [False, True, False, True, True, True]}
    assert times.ticks[[0, 2]].tolist() == [MIN_TIME, MAX_TIME // factor * factor]


def test_unsigned_integers_beyond_signed_ones_are_outside() -> None:
    times = read(pa.array([5, 2**63, 2**64 - 1], pa.uint64()), unit="us")
    assert rules(times) == {OUTSIDE: [False, True, True]}


def test_days_beyond_all_years_are_outside() -> None:
    times = read(pa.array([2**31 - 1, -(2**31), 0], pa.date32()), zone="Europe/Vienna")
    assert rules(times) == {OUTSIDE: [True, True, False]}


def test_nanoseconds_that_are_no_ticks_are_too_fine() -> None:
    array = pa.array([1_000, 1_001, -1, None], pa.timestamp("ns", "UTC"))
    assert rules(read(array)) == {NULL: [False, False, False, True], TOO_FINE: [False, True, True, False]}
    assert rules(read(array.drop_null().view(pa.int64()), unit="ns")) == {TOO_FINE: [False, True, True]}
    assert read(pa.array([-1_000, 0, 2_000], pa.timestamp("ns", "UTC"))).ticks.tolist() == [-1, 0, 2]


@pytest.mark.parametrize(
    ("round", "wanted"),
    [
        ("floor", [0, 0, 0, 1, 1, -1, -1, -2]),
        ("ceil", [0, 1, 1, 2, 2, 0, 0, -1]),
        ("half_even", [0, 0, 0, 2, 2, 0, -1, -2]),
    ],
)
def test_rounding(round: Round, wanted: list[int]) -> None:  # noqa: A002
    nanoseconds = [0, 1, 500, 1_500, 1_501, -500, -501, -1_500]
    assert read(pa.array(nanoseconds), unit="ns", round=round).ticks.tolist() == wanted
    texts = pa.array(
        [f"{'1970-01-01T00:00:00' if n >= 0 else '1969-12-31T23:59:59'}.{n % 10**9:09}Z" for n in nanoseconds]
    )
    times = column(pa.string(), text=True, round=round).read(texts)
    assert times.ticks.tolist() == wanted
    assert times.faults == {}


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_nanoseconds_are_exact(numbers: list[int]) -> None:
    array = pa.array(numbers, pa.timestamp("ns", "UTC"))
    assert read(array, round="floor").ticks.tolist() == [each // 1000 for each in numbers]
    assert read(array, round="ceil").ticks.tolist() == [-(-each // 1000) for each in numbers]
    halves = [(each + 500) // 1000 - (each % 1000 == 500 and each // 1000 % 2 == 0) for each in numbers]
    assert read(array, round="half_even").ticks.tolist() == halves


# Text, in CSV files


def read_text(*texts: str | None, **policy: Any) -> Times:
    return column(pa.string(), text=True, **policy).read(pa.array(texts, pa.string()))


def test_text_in_every_mixture() -> None:
    times = read_text("1970-01-01T01:00:00+01:00", "1970-01-01 01:00", "1970-01-02", None, "noon", zone="Europe/Vienna")
    assert times.ticks[:3].tolist() == [0, 0, 23 * HOUR]
    assert rules(times) == {NULL: [False] * 3 + [True, False], UNREADABLE: [False] * 4 + [True]}


def test_text_without_a_zone_anywhere() -> None:
    times = read_text("1970-01-01T00:00:00Z", "1970-01-01 01:00", "1970-01-02", None, "noon")
    assert rules(times) == {
        NULL: [False, False, False, True, False],
        UNREADABLE: [False, False, False, False, True],
        NO_ZONE: [False, True, False, False, False],
    }
    assert rules(read_text("1970-01-01", "1970-01-02")) == {}
    assert rules(read_text("1970-01-01 00:00", "1970-01-02")) == {NO_ZONE: [True, False]}


def test_the_zone_has_no_say_over_text_that_names_its_own() -> None:
    skipped = "2019-03-10T02:30:00"
    assert rules(read_text(skipped, zone="America/New_York")) != {}
    assert rules(read_text(f"{skipped}Z", "2019-01-01T00:00", zone="America/New_York")) == {}


def test_text_with_a_unit_is_integers() -> None:
    times = read_text("0", "-7", None, "x", "1.5", unit="s")
    assert times.ticks[:2].tolist() == [0, -7_000_000]
    assert rules(times) == {NULL: [False, False, True, False, False], UNREADABLE: [False, False, False, True, True]}


# What is refused before anything is read


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        (pa.timestamp("us"), "zone='UTC'"),
        (pa.int64(), "unit='s'"),
        (pa.uint8(), "unit='s'"),
        (pa.string(), "Cast it to a timestamp"),
        (pa.large_string(), "Cast it to a timestamp"),
        (pa.string_view(), "Cast it to a timestamp"),
        (pa.float64(), "integers with unit="),
        (pa.bool_(), "cast the column"),
        (pa.time64("us"), "cast the column"),
        (pa.duration("us"), "cast the column"),
        (pa.null(), "cast the column"),
        (pa.decimal128(10, 0), "cast the column"),
        (pa.dictionary(pa.int8(), pa.timestamp("us", "UTC")), "cast the column"),
        (pa.list_(pa.int64()), "cast the column"),
    ],
    ids=str,
)
def test_what_cannot_be_times_is_refused_with_the_remedy(kind: pa.DataType, remedy: str) -> None:
    with pytest.raises(TimeError) as caught:
        column(kind)
    assert caught.value.column == "at"
    assert remedy in str(caught.value)
    assert str(kind) in str(caught.value) or "text" in str(caught.value)
