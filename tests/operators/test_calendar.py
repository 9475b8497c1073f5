"""Windows of the calendar, beside a reference that asks Python's own dates for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.errors import PlanError, TimeError

ZONES = ["UTC", "Europe/Vienna", "America/Sao_Paulo", "Asia/Kathmandu", "Australia/Lord_Howe"]
SPANS = {"1d": (0, 1), "3d": (0, 3), "1w": (0, 7), "2w": (0, 14), "1mo": (1, 0), "1q": (3, 0), "1y": (12, 0)}


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def stream(*lifetimes: tuple[str, str], key: str | None = None) -> g.Stream:
    starts, ends = zip(*((utc(start), utc(end)) for start, end in lifetimes), strict=True)
    return g.events(pa.table({"from": starts, "to": ends, "v": list(range(len(starts)))}), start="from", end="to")


def periods(zone: str, size: str, every: str, first: datetime, last: datetime) -> Iterator[tuple[datetime, datetime]]:
    """All windows that may meet ``[first, last)``, counted from 0001-01-01 as that zone's clocks show it."""

    def instant(months: int, days: int) -> datetime:
        local = utc(f"{1 + months // 12:04}-{1 + months % 12:02}-01").replace(tzinfo=None) + timedelta(days)
        shown = local.replace(tzinfo=ZoneInfo(zone))
        back = shown.astimezone(UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        if back == local:
            return shown.astimezone(UTC)
        # Clocks skip it: the first instant after the gap.
        low = local - timedelta(hours=3)
        while (low + timedelta(minutes=1)).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC).astimezone(
            ZoneInfo(zone)
        ).replace(tzinfo=None) == low + timedelta(minutes=1):
            low += timedelta(minutes=1)
        return low.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) + timedelta(minutes=1)

    (months, days), (hop_months, hop_days) = SPANS[size], SPANS[every]
    if days:
        around = (first - datetime(1, 1, 1, tzinfo=UTC)).days // hop_days
        numbers = range(around - days // hop_days - 3, around + (last - first).days // hop_days + 4)
        for number in numbers:
            yield instant(0, number * hop_days), instant(0, number * hop_days + days)
        return
    around = ((first.year - 1) * 12 + first.month - 1) // hop_months
    for number in range(around - months // hop_months - 2, around + (last - first).days // (28 * hop_months) + 4):
        yield instant(number * hop_months, 0), instant(number * hop_months + months, 0)


@given(
    zone=st.sampled_from(ZONES),
    spans=st.sampled_from(
        [
            ("1d", "1d"),
            ("3d", "1d"),
            ("1d", "3d"),
            ("1w", "1w"),
            ("2w", "1w"),
            ("1mo", "1mo"),
            ("1q", "1mo"),
            ("1y", "1q"),
        ]
    ),
    lifetimes=st.lists(
        st.tuples(
            st.integers(0, 450 * 86_400).map(lambda second: utc("2017-09-01") + timedelta(seconds=second)),
            st.timedeltas(timedelta(microseconds=1), timedelta(days=40)),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_each_window_holds_what_overlaps_it(
    device_name: str, zone: str, spans: tuple[str, str], lifetimes: list[tuple[datetime, timedelta]]
) -> None:
    events = [(start, start + lasts) for start, lasts in lifetimes]
    table = pa.table({"from": [start for start, _ in events], "to": [end for _, end in events]})
    expected = []
    first, last = min(start for start, _ in events), max(end for _, end in events)
    for begin, finish in dict.fromkeys(periods(zone, *spans, first, last)):
        held = sum(start < finish and end > begin for start, end in events)
        if held:
            expected.append((begin, finish, held))
    counted = g.events(table, start="from", end="to").hopping(*spans, zone=zone).agg(n=g.count())
    found = counted.collect(device=device_name)
    assert sorted(zip(*(found[name].to_pylist() for name in ("start", "end", "n")), strict=True)) == expected


@given(
    zone=st.sampled_from(ZONES),
    spans=st.sampled_from([("1d", "1d"), ("3d", "1d"), ("1mo", "1mo"), ("1y", "1mo")]),
    hours=st.lists(st.tuples(st.integers(0, 24 * 90), st.integers(1, 24 * 40)), min_size=1, max_size=12),
    cuts=st.integers(1, 4),
)
def test_a_running_query_gives_the_same(
    zone: str, spans: tuple[str, str], hours: list[tuple[int, int]], cuts: int
) -> None:
    begin = utc("2018-02-01")
    starts = sorted(begin + timedelta(hours=at) for at, _ in hours)
    ends = [start + timedelta(hours=lasts) for start, (_, lasts) in zip(starts, hours, strict=True)]
    table = pa.table({"from": starts, "to": ends, "v": list(range(len(starts)))})
    asked = {"n": g.count(), "total": g.sum("v"), "most": g.max("v")}
    query = g.events(table, start="from", end="to").hopping(*spans, zone=zone).agg(**asked)
    whole = query.collect().sort_by([("start", "ascending"), ("end", "ascending")])
    live = query.start()
    pieces = []
    for at in range(0, len(starts), cuts):
        live.push(table.slice(at, cuts))
        if at + cuts < len(starts):
            live.advance(starts[at + cuts])
            given = live.results()
            pieces.append(given)
            assert all(end <= starts[at + cuts] for end in given["end"].to_pylist())
    live.close()
    pieces.append(live.results())
    assert pa.concat_tables(pieces).sort_by([("start", "ascending"), ("end", "ascending")]) == whole


def test_a_day_of_a_clock_change_is_longer() -> None:
    # Vienna, 2018-10-28: 25 hours.
    days = stream(("2018-10-28T12:00", "2018-10-28T13:00")).tumbling("1d", zone="Europe/Vienna").agg(n=g.count())
    (day,) = days.collect().to_pylist()
    assert (day["start"], day["end"]) == (utc("2018-10-27T22:00"), utc("2018-10-28T23:00"))


@pytest.mark.slow
def test_an_event_may_last_through_all_days_that_there_are() -> None:
    first, last = utc("0001-02-01"), utc("9999-12-01")
    events = g.events(pa.table({"from": [first], "to": [last]}), start="from", end="to")
    found = events.tumbling("1d", zone="Europe/Vienna").agg(n=g.count()).collect()
    # Vienna's clocks are ahead of UTC: its day begins before UTC's, and one more begins before the end.
    assert found.num_rows == (last - first).days + 1
    hours = pc.divide(pc.cast(pc.subtract(found["end"], found["start"]), pa.int64()), 3_600_000_000)
    assert set(pc.unique(hours).to_pylist()) == {23, 24, 25}


EDGES = ["0001-01-01T00:00:00", "0001-01-02T12:00:00", "9999-12-30T12:00:00", "9999-12-31T23:59:59.999997"]


@pytest.mark.parametrize("zone", [*ZONES, "Pacific/Kiritimati", "America/New_York"])
@pytest.mark.parametrize("size", ["1d", "2w", "1mo", "1y"])
@pytest.mark.parametrize("at", EDGES)
def test_an_event_in_the_first_and_the_last_days_of_time_is_in_a_window(
    device_name: str, at: str, size: str, zone: str
) -> None:
    """DateTime.MinValue is 0001-01-01: such an event was in no window, and lost."""
    lifetime = (at, (utc(at) + timedelta(microseconds=1)).isoformat()[:-6])
    windows = stream(lifetime).tumbling(size, zone=zone).agg(n=g.count())
    (found,) = windows.collect(device=device_name).to_pylist()
    assert found["start"] <= utc(at) < found["end"]
    assert found["n"] == 1
    length = found["end"] - found["start"]
    assert length <= {"1d": timedelta(1), "2w": timedelta(14), "1mo": timedelta(31), "1y": timedelta(366)}[size]
    live = windows.start(device=device_name)
    live.push({"from": [utc(at)], "to": [utc(at) + timedelta(microseconds=1)], "v": [0]})
    live.close()
    assert live.results().to_pylist() == [found]


def test_days_and_months_may_begin_elsewhere() -> None:
    event = stream(("2018-03-31T20:00", "2018-03-31T21:00"))
    # Fiscal years from the first of April, and days from six in the morning.
    years = event.tumbling("1y", zone="Asia/Kolkata", align="2000-03-31T18:30:00Z").agg(n=g.count()).collect()
    assert years["start"].to_pylist() == [utc("2018-03-31T18:30")]
    days = event.tumbling("1d", zone="UTC", align="2000-01-01T06:00:00Z").agg(n=g.count()).collect()
    assert days["start"].to_pylist() == [utc("2018-03-31T06:00")]


def test_a_result_may_be_a_point() -> None:
    months = stream(("2018-03-31T20:00", "2018-03-31T21:00")).tumbling("1mo", zone="UTC", output="point")
    (month,) = months.agg(n=g.count()).collect().to_pylist()
    assert (month["start"], month["end"] - month["start"]) == (utc("2018-04-01"), timedelta(microseconds=1))


def test_what_never_ends_needs_a_bound(device_name: str) -> None:
    table = pa.table({"from": [utc("2018-03-31")], "to": pa.array([None], pa.timestamp("us", "UTC")), "v": [1]})
    endless = g.events(table, start="from", end="to", null_end="open")
    with pytest.raises(TimeError, match="until"):
        endless.tumbling("1mo", zone="UTC").agg(n=g.count()).collect(device=device_name)
    months = endless.tumbling("1mo", zone="UTC", until="2018-06-01T00:00Z").agg(n=g.count())
    assert months.collect(device=device_name)["start"].to_pylist() == [utc(f"2018-0{month}-01") for month in (3, 4, 5)]


def test_open_edges_count_from_their_start() -> None:
    rows = pa.table(
        {
            "at": [utc("2018-03-10"), utc("2018-03-10")],
            "till": [None, utc("2018-05-02")],
            "edge": ["start", "end"],
            "who": ["A", "A"],
        },
    )
    inside = g.events(rows, start="at", end="till", shape="edge", edge="edge").tumbling("1mo", zone="Europe/Vienna")
    assert len(inside.agg(n=g.count()).collect()) == 3


@pytest.mark.parametrize(
    ("size", "options", "says"),
    [
        ("1mo", {}, "zone="),
        ("5min", {"zone": "UTC"}, "calendar"),
        ("1mo", {"zone": "Mars/Olympus"}, "time zone"),
        ("1mo", {"zone": "UTC", "membership": "start"}, "overlap"),
        ("1mo", {"zone": "UTC", "align": "2018-01-31T00:00Z"}, "day 31"),
        ("0d", {"zone": "UTC"}, "calendar"),
    ],
)
def test_what_is_no_window_of_the_calendar_is_refused(size: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        stream(("2018-01-01", "2018-01-02")).tumbling(size, **options)  # type: ignore[arg-type]


def test_months_do_not_start_every_so_many_days() -> None:
    with pytest.raises(PlanError, match="different lengths"):
        stream(("2018-01-01", "2018-01-02")).hopping("1mo", "1w", zone="UTC")


def test_explain_names_the_zone() -> None:
    windows = stream(("2018-01-01", "2018-01-02")).hopping("1y", "1q", zone="Europe/Vienna").agg(n=g.count())
    assert "hopping size=12mo every=3mo zone=Europe/Vienna" in windows.explain()
