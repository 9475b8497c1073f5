from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from unittest import mock

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.state_tables import check
from gpu_ops.core.time import MAX_TIME
from gpu_ops.devices import choose
from gpu_ops.errors import PlanError
from gpu_ops.operators.deliveries import changes, firing
from gpu_ops.operators.deliveries.firing import NEVER, FiringTimes, TurnMarks
from gpu_ops.plan.clock_windows import ClockSpan
from gpu_ops.plan.crontab_times import CrontabTimes
from gpu_ops.plan.rates import AtTimes, EveryPeriod, EveryRows, Rate, When
from tests.support.devices import HERE
from tests.support.firing_reference import Firing

MS = 1000
DAY = 86_400_000_000

Turn = tuple[int, int | None, int, int, bool]
"""A place, the clock behind its tick if it is one, how many rows entered and left, and whether a row is to be shown."""


def fired(
    rate: Rate, turns: list[Turn], cuts: list[int] | None = None, device: str = "cpu", *, first: bool = False
) -> list[tuple[int, int]]:
    """(place, when it fell due) of each firing; `NEVER` where a delivery fired."""
    where, found, low = choose(device), list[tuple[int, int]](), 0
    times = FiringTimes(rate, where, first=first)
    for high in [*(cuts or []), 1 << 60]:
        here = [turn for turn in turns if low <= turn[0] < high]
        marks = [turn for turn in here if turn[2] + turn[3]]
        ticks = [turn for turn in here if turn[1] is not None]
        moved = (where.columns.array(np.array([mark[at] for mark in marks], np.int64)) for at in (0, 2, 3))
        shown = where.columns.array(np.array([mark[4] for mark in marks], np.bool_)) if first else None
        place, clock = (where.columns.array(np.array([tick[at] for tick in ticks], np.int64)) for at in (0, 1))
        at, entered, left = moved
        made = times.step(TurnMarks(at, entered, left, shown), (place, clock))
        found += list(zip(*(where.columns.host(each).tolist() for each in (made.place, made.due)), strict=True))
        tables, low = times.tables(), high
        times = FiringTimes(rate, where, first=first)
        check("The state", tables, times.declared)
        times.restore(tables)
    return found


def rows(place: int, entered: int, left: int = 0) -> Turn:
    return place, None, entered, left, True


def tick(place: int, clock: int) -> Turn:
    return place, clock, 0, 0, False


def test_a_count_fires_as_soon_as_enough_have_entered_or_enough_have_left() -> None:
    turns = [rows(2, 1), rows(4, 2), rows(6, 1, 3), rows(8, 2), rows(10, 0, 1), rows(12, 7)]
    assert [place for place, _ in fired(Rate(EveryRows(3)), turns)] == [4, 6, 12]


def test_a_grid_begins_with_the_first_rows_and_a_jump_fires_once() -> None:
    # 300 the first rows, every second: 1300, 2300, 3300 ...
    turns = [tick(2, 300), rows(4, 1), tick(6, 1299), tick(8, 1300), tick(10, 5000), tick(12, 5299), tick(14, 5300)]
    turns = [(place, clock and clock * MS, *more) for place, clock, *more in turns]  # type: ignore[misc]
    rate = Rate(EveryPeriod(ClockSpan(ticks=1000 * MS)), since=0)
    assert fired(rate, turns) == [(8, 1_300_000), (10, 2_300_000), (14, 5_300_000)]


def test_a_month_is_the_calendar_s() -> None:
    # From the 31st of January 1970: the 28th of February, then the 28th of March.
    turns = [tick(2, 30 * DAY), rows(4, 1), *(tick(6 + 2 * day, (30 + day) * DAY) for day in range(1, 60))]
    due = [due // DAY for _, due in fired(Rate(EveryPeriod(ClockSpan(months=1)), since=0), turns)]
    assert due == [58, 86]


def test_a_crontab_fires_at_the_first_tick_at_its_times() -> None:
    hours = CrontabTimes(minutes=frozenset({30}), hours=frozenset({0, 2}))
    turns = [tick(2, DAY), rows(4, 1), tick(6, DAY + 1_800_000_000), tick(8, DAY + 6 * 3_600_000_000)]
    assert fired(Rate(AtTimes(hours), since=0), turns) == [
        (6, DAY + 1_800_000_000),
        (8, DAY + 9_000_000_000),
    ]


def test_nothing_counts_before_after_holds() -> None:
    turns = [rows(place, 1) for place in range(2, 14, 2)]
    assert [place for place, _ in fired(Rate(EveryRows(2), after_rows=4), turns)] == [12]
    turns = [tick(2, 1), rows(4, 1), tick(6, 20_000), rows(8, 1), tick(10, 24_999), tick(12, 25_000)]
    rate = Rate(EveryPeriod(ClockSpan(ticks=5_000)), after=ClockSpan(ticks=20_000), since=0)
    assert fired(rate, turns) == [(12, 25_000)]


def test_first_counts_from_the_row_that_is_shown() -> None:
    # having price > 1, first every 2 events:   1  2  9  1  1  2  1  2  2  2
    shown = [False, True, True, False, False, True, False, True, True, True]
    turns: list[Turn] = [(2 * at, None, 1, 0, each) for at, each in enumerate(shown)]
    assert [place // 2 for place, _ in fired(Rate(EveryRows(2)), turns, first=True)] == [2, 6, 8]


_TURNS = st.lists(
    st.tuples(
        st.none() | st.sampled_from([0, 1, 400, 700, 1000, 2600, 40 * DAY]),
        st.integers(0, 3),
        st.integers(0, 2),
        st.booleans(),
    ),
    max_size=40,
)
_PERIODS = st.sampled_from(
    [ClockSpan(ticks=1), ClockSpan(ticks=1000), ClockSpan(ticks=1300), ClockSpan(months=1), ClockSpan(2, 5)]
)
_CRONTABS = st.builds(
    CrontabTimes,
    *(st.none() | st.frozensets(st.integers(low, high), min_size=1, max_size=3) for low, high in [(0, 59), (0, 23)]),
    st.none() | st.frozensets(st.integers(1, 31), min_size=1),
    st.none() | st.frozensets(st.integers(1, 12), min_size=6),
    st.none() | st.frozensets(st.integers(0, 6), min_size=1),
)
_RATES = st.builds(
    Rate,
    st.none()
    | st.builds(EveryRows, st.integers(1, 5))
    | st.builds(EveryPeriod, _PERIODS)
    | st.builds(AtTimes, _CRONTABS),
    st.none() | st.integers(0, 6),
    since=st.sampled_from([0, 5, -DAY]),
) | st.builds(Rate, st.builds(EveryPeriod, _PERIODS), after=_PERIODS, since=st.just(0))


def _turns(drawn: list[Any], since: int) -> list[Turn]:
    """Turns at even places; a tick may have a delivery at its place."""
    clock, made = since, list[Turn]()
    for at, (step, entered, left, shown) in enumerate(drawn):
        clock += step or 0
        made.append((2 * at, None if step is None else clock, entered, left, shown and entered + left > 0))
    return made


def _expected(reference: Firing, turns: list[Turn]) -> list[tuple[int, int]]:
    found = list[tuple[int, int]]()
    for place, clock, entered, left, shown in turns:
        due = None if clock is None else reference.tick(clock)
        if due is not None:
            found.append((place, due))
        passes = entered + left > 0 and reference.passes(entered) and reference.rate.every is not None
        if passes and reference.deliver(entered, left, shown=shown):
            found.append((place, NEVER))
    return found


@given(_RATES, _TURNS, st.sampled_from(["first", "all"]), st.integers(0, 1 << 30), st.sampled_from(HERE))
def test_as_one_turn_after_the_other(rate: Rate, drawn: list[Any], selection: str, seed: int, device: str) -> None:
    first = selection == "first"
    turns, chance = _turns(drawn, rate.since), random.Random(seed)
    cuts = sorted({2 * chance.randrange(0, 40) for _ in range(chance.randrange(4))})
    assert fired(rate, turns, cuts, device, first=first) == _expected(Firing(rate, first=first), turns)


_COUNTS = nw.col("count_insert"), nw.col("count_remove"), nw.col("count_insert_total"), nw.col("count_remove_total")
_CONDITIONS = [
    (_COUNTS[0] >= 3, lambda inserted, *_: inserted >= 3),
    (_COUNTS[0] + _COUNTS[1] > 4, lambda inserted, removed, *_: inserted + removed > 4),
    (_COUNTS[2] % 5 == 0, lambda _inserted, _removed, total, *_: total % 5 == 0),
    (
        (_COUNTS[3] > 6) & (_COUNTS[1] > 1),
        lambda _, removed, _total, all_removed, _fired: all_removed > 6 and removed > 1,
    ),
    (nw.col("last_output_timestamp") < 2, lambda *numbers: numbers[4] < 2),
]


@given(
    st.sampled_from(_CONDITIONS), st.none() | st.integers(0, 6), _TURNS, st.integers(0, 1 << 30), st.sampled_from(HERE)
)
def test_a_condition_as_one_delivery_after_the_other(
    condition: Any, after: int | None, drawn: list[Any], seed: int, device: str
) -> None:
    rate, chance = Rate(When(condition[0]), after, since=0), random.Random(seed)
    turns = _turns(drawn * 3, rate.since)
    cuts = sorted({2 * chance.randrange(0, 120) for _ in range(chance.randrange(4))})
    assert fired(rate, turns, cuts, device) == _expected(Firing(rate, condition=condition[1]), turns)


def test_a_condition_reads_columns_of_the_deliveries() -> None:
    where = choose("cpu")
    number = np.arange(6)
    values = where.columns.from_arrow(pa.table({"wanted": [9, 9, 3, 9, 9, 2]}))
    times = FiringTimes(Rate(When(_COUNTS[0] == nw.col("wanted")), since=0), where)
    made = times.step(TurnMarks(2 * number, number * 0 + 1, number * 0, values=values), (number[:0], number[:0]))
    assert made.place.tolist() == [4]


def test_rates_that_cannot_be_are_refused() -> None:
    with pytest.raises(PlanError, match="of 0 events is none"):
        EveryRows(0)
    with pytest.raises(PlanError, match="A window lasts"):
        ClockSpan()


def test_times_of_a_crontab() -> None:
    def day(time: int) -> str:
        return str(np.datetime64(time, "us").astype("datetime64[s]"))

    weekly = CrontabTimes(weekdays=frozenset({1}), minutes=frozenset({0}), hours=frozenset({8}))
    assert day(weekly.next_after(0)) == "1970-01-05T08:00:00"
    friday = CrontabTimes(last_weekdays=frozenset({5}), minutes=frozenset({0}), hours=frozenset({0}))
    assert day(friday.next_after(0)) == "1970-01-30T00:00:00"
    leap = CrontabTimes(months=frozenset({2}), days=frozenset({29}), minutes=frozenset({0}), hours=frozenset({0}))
    assert day(leap.next_after(0)) == "1972-02-29T00:00:00"
    either = replace(weekly, days=frozenset({3}))
    assert day(either.next_after(0)) == "1970-01-03T08:00:00"
    assert CrontabTimes(months=frozenset({2}), days=frozenset({30})).next_after(0) == MAX_TIME
    last = CrontabTimes(last_day=True, minutes=frozenset({0}), hours=frozenset({0}))
    assert day(last.next_after(31 * DAY)) == "1970-02-28T00:00:00"
    work = CrontabTimes(workdays=frozenset({3}), minutes=frozenset({0}), hours=frozenset({0}))
    assert day(work.next_after(0)) == "1970-01-02T00:00:00"  # the 3rd is a Saturday
    assert day(CrontabTimes(last_workday=True).next_after(0)) == "1970-01-30T00:00:00"


EDGES = st.lists(st.integers(0, 6), max_size=8).map(sorted)


@pytest.mark.parametrize("device", HERE)
@given(steps=st.lists(st.tuples(EDGES, EDGES), min_size=1, max_size=4), count=st.integers(1, 4))
def test_a_count_of_rows_needs_no_deliveries(device: str, steps: list[tuple[list[int], list[int]]], count: int) -> None:
    #  enter 0 1 1 3      every 2 rows: at 1, where the second one enters (and a third), then at 5, where two have left
    #  leave 3 5
    where = choose(device)
    by_rows, by_marks = (FiringTimes(Rate(EveryRows(count)), where) for _ in range(2))
    for number, step in enumerate(steps):
        come, go = (where.columns.array(np.array(each, np.int64) + 10 * number) for each in step)
        ticks = where.columns.array(np.array([10 * number])), where.columns.array(np.array([number]))
        with mock.patch.object(firing, "MANY", 1):
            assert by_rows.counts_rows
        made = by_rows.of_rows(come, go, ticks)
        wanted = by_marks.step(TurnMarks(*changes.moved(come, go, where)), ticks)
        for each, other in ((made.place, wanted.place), (made.due, wanted.due)):
            assert where.columns.host(each).tolist() == where.columns.host(other).tolist()
        assert by_rows.tables() == by_marks.tables()
