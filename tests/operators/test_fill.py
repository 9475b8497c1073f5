"""Rows for windows without events, beside a reference that walks from window to window."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.errors import ColumnError, PlanError
from tests.support.cuts import in_any_cut, in_some_order
from tests.support.examples import examples
from tests.support.reference import Aggregate, Event, hopping
from tests.support.rows import check, rows, stream, to_events, to_table
from tests.support.ticks import at_us, us
from tests.support.timeline import timeline

AGGREGATES = {"n": Aggregate("count"), "v": Aggregate("sum", "v")}
PAYLOAD = pa.schema([("k", pa.string()), ("v", pa.int64())])


def filled(
    results: list[Event], key: Sequence[str], size: int, hop: int, fill: Mapping[str, str], span: tuple[int, int] | None
) -> list[Event]:
    """Each group's windows one after the other; of a window without a result a row is made."""
    groups: dict[Any, dict[int, Event]] = {} if key or span is None else {None: {}}
    for event in results:
        groups.setdefault(event.payload.get("k"), {})[event.start] = event
    made = []
    for value, windows in groups.items():
        at, until = (min(windows), max(windows) + hop) if span is None else (-60, span[1])
        last: Event | None = None
        while at < until or (windows and at <= max(windows)):
            if at in windows:
                last = windows[at]
            elif span is None or (at < span[1] and at + size > span[0]):
                payload: dict[str, Any] = {"k": value} if key else {}
                for name, how in fill.items():
                    payload[name] = {"null": None, "zero": 0, "last": last and last.payload[name]}[how]
                made.append(Event(at, at + size, payload))
            at += hop
    return made


RANDOM = st.randoms(use_true_random=False)
points = st.lists(st.tuples(st.integers(0, 60), st.sampled_from(["a", "b", None]), st.integers(-3, 3)), max_size=8)
fills = st.fixed_dictionaries({name: st.sampled_from(["null", "zero", "last"]) for name in ("n", "v")})
spans = st.none() | st.tuples(st.integers(-20, 40), st.integers(1, 50)).map(lambda each: (each[0], each[0] + each[1]))
grids = st.sampled_from([(4, 4), (6, 2), (2, 6), (5, 3)])


@examples(dear=True)
@given(points=points, fill=fills, span=spans, grid=grids, key=st.sampled_from([[], ["k"]]), chance=RANDOM)
def test_fill(
    points: list[tuple[int, Any, int]],
    fill: dict[str, Any],
    span: tuple[int, int] | None,
    grid: tuple[int, int],
    key: list[str],
    chance: random.Random,
) -> None:
    events = [Event(at, at + 1, {"k": k, "v": v}) for at, k, v in points]
    size, hop = grid
    results = hopping(events, AGGREGATES, key, size=size, hop=hop, align=0)
    expected = rows([*results, *filled(results, key, size, hop, fill, span)])

    over: dict[str, Any] = {} if span is None else {"span": (at_us(span[0]), at_us(span[1]))}

    def ask(s: g.Stream) -> g.Stream:
        return s.by(*key).hopping(us(size), us(hop), align=at_us(0), fill=fill, **over).agg(n=g.count(), v=g.sum("v"))

    for device in ("cpu", "array"):
        assert rows(ask(stream(events, PAYLOAD)).collect(device=device)) == expected
    found = in_any_cut(ask(stream([], PAYLOAD)), in_some_order(to_table(events, PAYLOAD), chance), "cpu", chance)
    assert rows(found) == expected


@examples(dear=True)
@given(points=points, how=st.sampled_from(["null", "zero", "last"]), key=st.sampled_from([[], ["k"]]), chance=RANDOM)
def test_what_is_combined_is_filled_as_a_whole(
    points: list[tuple[int, Any, int]], how: Any, key: list[str], chance: random.Random
) -> None:
    events = [Event(at, at + 1, {"k": k, "v": v}) for at, k, v in points]

    def ask(s: g.Stream, fill: Any) -> g.Stream:
        return s.by(*key).tumbling("4us", align=at_us(0), fill=fill).agg(n=g.count(), m=g.sum("v") / g.count() + 1)

    results = to_events(ask(stream(events, PAYLOAD), None).collect())
    empty = filled(results, key, 4, 4, {"n": how, "m": how}, None)
    zero = {"m": 0.0} if how == "zero" else {}
    expected = rows([*results, *(Event(each.start, each.end, {**each.payload, **zero}) for each in empty)])
    for device in ("cpu", "array"):
        assert rows(ask(stream(events, PAYLOAD), how).collect(device=device)) == expected
    found = in_any_cut(ask(stream([], PAYLOAD), how), in_some_order(to_table(events, PAYLOAD), chance), "cpu", chance)
    assert rows(found) == expected


@given(points=points, key=st.sampled_from([[], ["k"]]), size=st.sampled_from([2, 4]), chance=RANDOM)
def test_nothing_later_can_be_promised(
    points: list[tuple[int, Any, int]], key: list[str], size: int, chance: random.Random
) -> None:
    """A promise that stays behind the windows' own is kept to the tick: the next event of some group fills there."""
    events = [Event(at, at + 1, {"k": k, "v": v}) for at, k, v in sorted(points, key=lambda each: each[0])]
    windows = stream([], PAYLOAD).by(*key).tumbling(us(size), align=at_us(0)).agg(n=g.count()).start()
    made = stream([], PAYLOAD).by(*key).tumbling(us(size), align=at_us(0), fill="null").agg(n=g.count()).start()
    at = chance.randrange(0, 80)
    for live in (windows, made):
        live.push(to_table([each for each in events if each.start < at], PAYLOAD))
        live.advance(at_us(at))
        live.results()
    if made.cti == windows.cti:
        return
    assert made.cti < windows.cti
    for value in ("a", "b", None):
        made.push(to_table([Event(1000, 1001, {"k": value, "v": 0})], PAYLOAD))
    made.close()
    assert min(event.start for event in to_events(made.results())) == made_promise(events, at, key, size)


def made_promise(events: list[Event], at: int, key: list[str], size: int) -> int:
    """The start of the first window that some group may yet have empty."""
    last: dict[Any, int] = {}
    for event in events:
        window = event.start // size * size
        if window + size <= at:
            last[event.payload["k"] if key else None] = window
    return min(last.values()) + size


def test_a_checkpoint_keeps_what_stands_before_a_gap(tmp_path: Path) -> None:
    def ask(s: g.Stream) -> g.Stream:
        return s.by("k").tumbling("4us", align=at_us(0), fill={"n": "zero", "v": "last"}).agg(n=g.count(), v=g.sum("v"))

    events = [Event(0, 1, {"k": "a", "v": 7}), Event(1, 2, {"k": "b", "v": 8}), Event(13, 14, {"k": "a", "v": 9})]
    live = ask(stream([], PAYLOAD)).start()
    live.push(to_table(events[:2], PAYLOAD))
    live.advance(at_us(8))
    before = rows(live.results())
    live.checkpoint(tmp_path / "checkpoint")
    again = g.restore(tmp_path / "checkpoint", ask(stream([], PAYLOAD)))
    again.push(to_table(events[2:], PAYLOAD))
    again.close()
    assert sorted(before + rows(again.results())) == rows(ask(stream(events, PAYLOAD)).collect())


def test_between_the_first_and_the_last_window(device_name: str) -> None:
    rides = timeline("""
        3:  *
        4:              *
    """)
    total = timeline(
        """
        3: [===)
        3:     [===|===)
        4:             [===)
        """,
        label="v",
    )
    check(stream(rides).tumbling("4us", align=at_us(0), fill="last").agg(v=g.sum("name")), device_name, total)


def test_a_span_of_nothing_but_empty_windows(device_name: str) -> None:
    empty = (
        stream([], PAYLOAD).tumbling("4us", align=at_us(0), fill="zero", span=(at_us(0), at_us(10))).agg(n=g.count())
    )
    expected = [Event(at, at + 4, {"n": 0}) for at in (0, 4, 8)]
    check(empty, device_name, expected)
    check(
        stream([], PAYLOAD).by("k").tumbling("4us", fill="zero", span=(at_us(0), at_us(10))).agg(n=g.count()),
        device_name,
        [],
    )


def test_months_and_points_are_filled(device_name: str) -> None:
    day = 86_400_000_000
    events = [Event(0, 1, {"v": 1}), Event(100 * day, 100 * day + 1, {"v": 2})]
    months = stream(events).tumbling("1mo", zone="Europe/Vienna", fill="zero", output="point").agg(n=g.count())
    found = months.collect(device=device_name).sort_by("start")
    assert found["n"].to_pylist() == [1, 0, 0, 1]
    assert [each.isoformat()[:13] for each in found["start"].to_pylist()] == [
        "1970-01-31T23", "1970-02-28T23", "1970-03-31T23", "1970-04-30T23",
    ]  # fmt: skip
    over = {"fill": "null", "span": ("1969-12-01T00:00Z", "1970-01-05T00:00Z")}
    before = stream(events).tumbling("1mo", zone="UTC", **over).agg(n=g.count())  # type: ignore[arg-type]
    assert before.collect(device=device_name).sort_by("start")["n"].to_pylist() == [None, 1, 1]


def test_by_start_the_grid_points_within_the_span_are_filled(device_name: str) -> None:
    events = [Event(5, 6, {"v": 1})]
    asked = (
        stream(events)
        .hopping("4us", "2us", align=at_us(0), membership="start", fill="zero", span=(at_us(4), at_us(12)))
        .agg(n=g.count())
    )
    expected = [Event(at, at + 2, {"n": n}) for at, n in ((4, 0), (6, 1), (8, 1), (10, 0))]
    check(asked, device_name, expected)


def test_types_keep_their_zeros() -> None:
    table = pa.table(
        {
            "at": pa.array([0, 3_000_000], pa.timestamp("us", "UTC")),
            "d": pa.array([Decimal("1.50"), Decimal("2.50")], pa.decimal128(5, 2)),
            "x": [0.5, 1.5],
            "t": ["one", "two"],
        }
    )
    windows = g.events(table, start="at").tumbling("1s", fill={"d": "zero", "x": "zero", "t": "last", "n": "null"})
    asked = windows.agg(d=g.sum("d"), x=g.max("x"), t=g.max("t"), n=g.count())
    found = asked.collect().sort_by("start")
    assert found.drop_columns(["start", "end"]).to_pylist()[1] == {
        "d": Decimal("0.00"),
        "x": 0.0,
        "t": "one",
        "n": None,
    }


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"fill": "zero"}, "no zero of string"),
        ({"fill": "nothing"}, "no way to fill"),
        ({"fill": {"m": "zero"}}, "'m'"),
        ({"span": (at_us(0), at_us(1))}, "span= needs fill="),
        ({"fill": "null", "span": (at_us(1), at_us(1))}, "empty"),
    ],
)
def test_what_cannot_be_filled_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises((PlanError, ColumnError), match=says):
        stream([], PAYLOAD).tumbling("4us", **options).agg(t=g.max("k"))


def test_explain_says_with_what() -> None:
    asked = stream([], PAYLOAD).tumbling("4us", fill={"n": "zero", "v": "last"}).agg(n=g.count(), v=g.sum("v"))
    assert "Fill n=zero, v=last" in asked.explain()
