"""Rows of windows: the first by an order, with their ranks, and what a function of the user's makes of each."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.errors import ColumnError, FunctionError, PlanError
from gpu_ops.operators.aggregates import holistic
from tests.support import reference
from tests.support.cuts import in_any_cut, in_some_order
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.payload_table import ROWS as TYPES
from tests.support.payload_table import Row
from tests.support.reference import Event, order
from tests.support.rows import check, rows, stream, to_events, to_table
from tests.support.ticks import at_us, us

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("x", pa.float64())])
ROWS = pa.schema([("low", pa.int64()), ("n", pa.int64())])

WINDOWS: dict[str, tuple[Callable[[g.Stream], Any], Callable[..., list[Event]]]] = {
    "snapshot": (lambda s: s.snapshot(), reference.snapshot),
    "hopping": (
        lambda s: s.hopping("7us", "3us", align=at_us(1), until=at_us(70)),
        lambda *given: reference.hopping(*given, size=7, hop=3, align=1, until=70),
    ),
}

queries = {
    "events": st.lists(
        st.builds(
            lambda start, length, **payload: Event(start, min(start + length, MAX_TIME), payload),
            st.integers(0, 40),
            st.integers(1, 20) | st.just(MAX_TIME),
            k=st.sampled_from(["a", None]),
            v=st.none() | st.integers(-3, 3),
            x=st.sampled_from([None, 0.5, float("nan")]),
        ),
        max_size=25,
    ),
    "window": st.sampled_from(list(WINDOWS)),
    "key": st.sampled_from([(), ("k",)]),
    "device": st.sampled_from(HERE),
}


def unnested(events: list[Event]) -> list[Event]:
    return [
        Event(event.start, event.end, {**{n: v for n, v in event.payload.items() if n != "rows"}, **row})
        for event in events
        for row in event.payload["rows"]
    ]


def ranked(members: list[Event], k: int, key: tuple[str, ...], *, descending: bool) -> list[dict[str, Any]]:
    chosen = [event.payload for event in members if event.payload["v"] is not None]
    found = []
    for row in chosen:
        better = sum(order(e["v"]) > order(row["v"]) if descending else order(e["v"]) < order(row["v"]) for e in chosen)
        if better < k:
            found.append({"rank": better + 1, **{name: v for name, v in row.items() if name not in key}})
    return found


@given(**queries, k=st.integers(1, 4), descending=st.booleans())
def test_the_first_rows_have_sqls_rank(
    events: list[Event],
    window: str,
    key: tuple[str, ...],
    device: str,
    k: int,
    descending: bool,  # noqa: FBT001
) -> None:
    made, defined = WINDOWS[window]
    answer = made(stream(events, SCHEMA).by(*key)).top(k, by="v", descending=descending)
    check(answer, device, unnested(defined(events, {"rows": lambda m: ranked(m, k, key, descending=descending)}, key)))


def every(members: list[Event], key: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {name: v for name, v in event.payload.items() if name not in key} | {"event_start": moment(event.start)}
        for event in members
    ]


def all_rows(windows: Any) -> g.Stream:
    """But for their ends, which the reference clips."""
    made = windows.rows()
    found: g.Stream = made.select(*(name for name in made.schema.names if name != "event_end"))
    return found


def moment(time: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=time)


@examples(dear=True)
@given(
    **queries,
    k=st.integers(1, 4),
    windows=st.sampled_from(
        [
            lambda s: s.tumbling("7us", align=at_us(1), until=at_us(70)),
            lambda s: s.hopping("7us", "3us", align=at_us(1), until=at_us(70)),
            lambda s: s.snapshot(),
        ]
    ),
)
def test_pairs_of_windows_and_events_give_what_the_places_of_all_events_give(
    events: list[Event], window: str, key: tuple[str, ...], device: str, k: int, windows: Callable[[g.Stream], Any]
) -> None:
    del window
    asked = windows(stream(events, SCHEMA).by(*key))
    values = {
        "best": g.top("v", k),
        "least": g.bottom("v", k),
        "by": g.top("v", k, by="x"),
        "some": g.top("x", k, where=g.col("v") > 0),
    }
    answers = []
    for most in (0, 1 << 20):
        with mock.patch.object(holistic, "_PAIRS", most):
            answers.append([asked.top(k, by="v").collect(device=device), asked.agg(**values).collect(device=device)])
    for places, pairs in zip(*answers, strict=True):
        assert str(pairs.to_pylist()) == str(places.to_pylist())  # as text: a NaN does not equal itself


@examples(dear=True)
@given(**queries)
def test_the_rows_of_a_window_are_all_its_events(
    events: list[Event], window: str, key: tuple[str, ...], device: str
) -> None:
    made, defined = WINDOWS[window]
    answer = all_rows(made(stream(events, SCHEMA).by(*key)))
    check(answer, device, unnested(defined(events, {"rows": lambda m: every(m, key)}, key)))


def test_rows_have_the_lifetime_of_their_event(device_name: str) -> None:
    found = stream([Event(3, 9, {"v": 1})]).tumbling("5us", align=at_us(0)).rows().collect(device=device_name)
    assert found.column_names == ["start", "end", "v", "event_start", "event_end"]
    assert [found[name].cast(pa.int64()).to_pylist() for name in ("event_start", "event_end")] == [[3, 3], [9, 9]]


def test_until_says_which_windows_hold_a_row_and_clips_no_lifetime(device_name: str) -> None:
    events = [Event(0, 100, {"v": 1}), Event(65, 90, {"v": 2}), Event(70, 99, {"v": 3})]
    query = stream(events).tumbling(
        us(60), align=at_us(0), until=datetime.datetime.fromisoformat("1970-01-01T00:00:00.000070Z")
    )
    found = query.rows().collect(device=device_name)
    assert sorted(zip(*(found[name].cast(pa.int64()).to_pylist() for name in found.column_names), strict=True)) == [
        (0, 60, 1, 0, 100),
        (60, 120, 1, 0, 100),
        (60, 120, 2, 65, 90),
    ]
    lasted = query.agg(ticks=g.integral("v", unit=us(1))).collect(device=device_name).sort_by("start")
    assert lasted["ticks"].to_pylist() == [60.0, 10.0 + 2 * 5.0]


def test_a_rank_stands_behind_the_keys_and_before_the_payload(device_name: str) -> None:
    same = stream([Event(0, 1, {"v": 1, "k": "a", "x": 2.0})])
    for keys, columns in (((), ["v", "k", "x"]), (("k",), ["v", "x"]), (("x", "v"), ["k"])):
        top = same.by(*keys).tumbling(us(5), align=at_us(0)).top(1, by="x")
        assert top.schema.names == [*keys, "rank", *columns]
        assert top.collect(device=device_name).column_names == ["start", "end", *keys, "rank", *columns]
        assert same.by(*keys).tumbling(us(5), align=at_us(0)).rows().schema.names == [
            *keys,
            *columns,
            "event_start",
            "event_end",
        ]


def lows(table: pa.Table) -> dict[str, list[int]] | None:
    """For each value of v below zero how many are as low; nothing where there are none."""
    found = [v for v in table["v"].to_pylist() if v is not None and v < 0]
    return {"low": sorted(set(found)), "n": [found.count(v) for v in sorted(set(found))]} if found else None


def lows_of(members: list[Event]) -> list[dict[str, int]]:
    found = [event.payload["v"] for event in members if event.payload["v"] is not None and event.payload["v"] < 0]
    return [{"low": v, "n": found.count(v)} for v in sorted(set(found))]


@examples(dear=True)
@given(**queries, chance=st.randoms(use_true_random=False))
def test_live_is_batch_in_any_cut(
    events: list[Event], window: str, key: tuple[str, ...], device: str, chance: random.Random
) -> None:
    made, defined = WINDOWS[window]
    windows = made(stream(events, SCHEMA).by(*key))
    for answer, expected in (
        (windows.apply(lows, schema=ROWS), defined(events, {"rows": lows_of}, key)),
        (all_rows(windows), defined(events, {"rows": lambda m: every(m, key)}, key)),
        (windows.top(2, by="v"), defined(events, {"rows": lambda m: ranked(m, 2, key, descending=True)}, key)),
    ):
        arriving = in_some_order(to_table(events, SCHEMA), chance)
        assert rows(in_any_cut(answer, arriving, device, chance)) == rows(unnested(expected))


@pytest.mark.slow
@pytest.mark.parametrize("row", TYPES, ids=lambda row: row.name)
def test_values_of_every_type_come_back_whole(device_name: str, row: Row) -> None:
    seconds = pa.array([1_000_000 * number for number in range(len(row.values))], pa.timestamp("us", "UTC"))
    windows = g.events(pa.table({"at": seconds, "x": row.values}), start="at").with_columns(n=g.lit(1)).tumbling("1h")
    seen: list[pa.DataType] = []

    def as_it_is(table: pa.Table) -> pa.Table:
        seen.append(table.schema.field("x").type)
        return table

    rows_of = windows.apply(as_it_is, schema=pa.schema([("x", row.dtype)]), of=["x"])
    for answer in (windows.top(1, by="n"), rows_of):
        made = answer.collect(device=device_name)["x"].combine_chunks()
        assert made.type == row.dtype
        assert sorted(map(repr, made.to_pylist())) == sorted(map(repr, row.values.to_pylist()))
    assert seen == [row.dtype]
    listed = windows.agg(all=g.collect_list("x"), last=g.nth("x", -1)).collect(device=device_name)
    assert listed["all"].type.value_type in {row.dtype, getattr(row.dtype, "value_type", None)}
    (found,) = listed["all"].to_pylist()
    assert sorted(map(repr, found)) == sorted(repr(each) for each in row.values.to_pylist() if each is not None)
    assert listed["last"].to_pylist() == row.values.to_pylist()[-1:]


def test_a_function_gives_rows_in_any_form(device_name: str) -> None:
    windows = stream([Event(0, 9, {"k": "a", "v": 1}), Event(5, 7, {"k": "b", "v": 2})]).snapshot()
    schema = pa.schema([("v", pa.int64())])
    for function in (
        lambda table: table.select(["v"]),
        lambda table: table.select(["v"]).to_batches()[0],
        lambda table: {"v": table["v"]},
        lambda table: table.select(["v"]).to_pylist(),
    ):
        answer = windows.apply(function, schema=schema, of=["v"])
        expected = [Event(0, 5, {"v": 1}), Event(5, 7, {"v": 1}), Event(5, 7, {"v": 2}), Event(7, 9, {"v": 1})]
        check(answer, device_name, expected)


def test_a_time_sensitive_function_sees_its_window(device_name: str) -> None:
    def gaps(table: pa.Table, start: datetime.datetime, end: datetime.datetime) -> list[dict[str, Any]]:
        lived = sum(
            ((b - a) for a, b in zip(table["start"].to_pylist(), table["end"].to_pylist(), strict=True)),
            datetime.timedelta(),
        )
        return [{"of": end - start, "lived": lived}]

    schema = pa.schema([("of", pa.duration("us")), ("lived", pa.duration("us"))])
    windows = stream([Event(2, 9, {"v": 1}), Event(5, 7, {"v": 2})]).tumbling("5us", align=at_us(0))
    answer = windows.apply(gaps, schema=schema, time_sensitive=True, clip=True).collect(device=device_name)
    micro = datetime.timedelta(microseconds=1)
    assert sorted(to_events(answer)) == [
        Event(0, 5, {"of": 5 * micro, "lived": 3 * micro}),
        Event(5, 10, {"of": 5 * micro, "lived": 6 * micro}),
    ]


def test_rows_may_have_ranks_already(device_name: str) -> None:
    ranked = stream([Event(0, 1, {"v": 4}), Event(1, 2, {"v": 5})]).tumbling("5us", align=at_us(0)).top(1, by="v")
    (row,) = to_events(ranked.tumbling("10us", align=at_us(0)).rows().collect(device=device_name))
    assert (row.payload["v"], row.payload["rank"]) == (5, 1)


def test_rows_that_do_not_fit_name_their_window(device_name: str) -> None:
    windows = stream([Event(0, 9, {"k": "a", "v": 1})]).by("k").snapshot()
    wrongs = [{"low": "text"}], {"n": [1]}, 7, "text", [(1, 2)], [{"lo": 1}], [{"low": 1.5}], [{"low": 1 << 70}]
    for wrong in wrongs:
        with pytest.raises(FunctionError, match=r"k='a'"):
            windows.apply(lambda table, wrong=wrong: wrong, schema=ROWS).collect(device=device_name)


def test_what_cannot_be_is_refused() -> None:
    windows = stream([Event(0, 1, {"k": "a", "rank": 1, "l": [1]})]).by("k").snapshot()
    with pytest.raises(ColumnError, match="top adds a column rank"):
        windows.top(1, by="k")
    with pytest.raises(ColumnError, match="rows adds a column event_end"):
        stream([Event(0, 1, {"event_end": 1})]).snapshot().rows()
    with pytest.raises(ColumnError, match="ranked does not take list"):
        stream([Event(0, 1, {"l": [1]})]).snapshot().top(1, by="l")
    with pytest.raises(PlanError, match="at least 1"):
        stream([Event(0, 1, {"v": 1})]).snapshot().top(0, by="v")
    with pytest.raises(ColumnError, match="group's columns"):
        windows.apply(len, schema=pa.schema([("k", pa.string())]))
    with pytest.raises(ColumnError, match="no such column"):
        windows.apply(len, schema=ROWS, of=["w"])
    with pytest.raises(PlanError, match="Arrow schema"):
        windows.apply(len, schema={"low": int})
