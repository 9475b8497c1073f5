"""Batches of days, weeks, months and years as a zone's clocks show them: brute force, and live in any cut."""

from __future__ import annotations

import datetime
import random
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import Stream
from gpu_ops.errors import PlanError
from tests.support.cuts import in_any_cut
from tests.support.examples import examples
from tests.support.rows import rows
from tests.support.ticks import at_us, us

DAY = 86_400_000_000
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def moved(local: datetime.datetime, span: str, times: int) -> datetime.datetime:
    """A local time some spans later."""
    if span.endswith("d"):
        return local + datetime.timedelta(days=int(span[:-1]) * times)
    months = {"mo": 1, "q": 3, "y": 12}[span.lstrip("0123456789")] * int(span.rstrip("moqy")) * times
    years, month = divmod(local.month - 1 + months, 12)
    return local.replace(year=local.year + years, month=month + 1)


def batches(starts: list[int], span: str, zone: str, align: datetime.datetime) -> list[tuple[int, int, str]]:
    """When each event enters and leaves."""
    local = align.astimezone(ZoneInfo(zone)).replace(tzinfo=None)

    def end(number: int) -> int:
        shown = moved(local, span, number).replace(tzinfo=ZoneInfo(zone))
        return (shown.astimezone(datetime.UTC) - EPOCH) // datetime.timedelta(microseconds=1)

    found = []
    for start in starts:
        number = -150
        while end(number) <= start:
            number += 1
        found += [(end(number), start, "new"), (end(number + 1), start, "dead")]
    return sorted(found)


def source(starts: list[int]) -> Stream:
    return g.events(table(starts), start="start")


def table(starts: list[int]) -> pa.Table:
    return pa.table({"start": pa.array(starts, pa.timestamp("us", "UTC")), "v": pa.array(starts, pa.int64())})


def told(answer: pa.Table) -> list[tuple[Any, ...]]:
    times = answer["start"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return sorted(zip(times, answer["v"].to_pylist(), answer["status"].to_pylist(), strict=True))


@examples(20, dear=True)
@given(
    starts=st.lists(st.integers(0, 800 * DAY), max_size=8),
    span=st.sampled_from(["1d", "14d", "1mo", "1q", "2y"]),
    zone=st.sampled_from(["UTC", "Europe/Vienna", "Pacific/Auckland"]),
    chance=st.randoms(use_true_random=False),
)
def test_batches_of_the_calendar(
    device_name: str, starts: list[int], span: str, zone: str, chance: random.Random
) -> None:
    align = datetime.datetime(1970, 5, 28, 9, 30, tzinfo=datetime.UTC)
    window = source(starts).time_batches(us(span), zone=zone, align=at_us(align))
    assert told(window.changes().collect(device=device_name)) == batches(starts, span, zone, align)
    for query in (window.rows(), window.agg(n=g.count())):
        whole = rows(query.collect(device=device_name))
        assert rows(in_any_cut(query, table(starts), device_name, chance)) == whole


def test_months_begin_on_their_first_where_nothing_else_is_said() -> None:
    days = [datetime.datetime(2024, 1, 31, tzinfo=datetime.UTC), datetime.datetime(2024, 2, 1, tzinfo=datetime.UTC)]
    starts = [(day - EPOCH) // datetime.timedelta(microseconds=1) for day in days]
    window = source(starts).time_batches("1mo", zone="UTC", align=None)
    found = window.insert_stream().collect(device="cpu").sort_by("start")
    assert [str(time.date()) for time in found["start"].to_pylist()] == ["2024-02-01", "2024-03-01"]


@pytest.mark.parametrize(
    ("ask", "word"),
    [
        (lambda s: s.time_batches("1mo", zone="UTC"), "all groups share"),
        (lambda s: s.time_batches("1mo"), "span"),
        (lambda s: s.time_batches("5s", zone="UTC", align=None), "no calendar span"),
        (lambda s: s.time_batches("1mo", zone="UTC", align="2024-01-31T00:00:00Z"), "day 31"),
        (lambda s: s.last(2).intersect(s.time_batches("1d", zone="UTC", align=None)), "does not take"),
    ],
)
def test_what_is_no_batch_of_the_calendar(ask: Any, word: str) -> None:
    with pytest.raises(PlanError, match=word):
        ask(source([0]))
