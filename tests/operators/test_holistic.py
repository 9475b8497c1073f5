"""Aggregates that no bounded part can say: each beside its definition, in batches and in running queries of any cut."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.errors import ColumnError, FunctionError, PlanError
from tests.support import reference
from tests.support.cuts import in_any_cut, in_some_order
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.reference import Event, key_value, order
from tests.support.rows import check, rows, stream, to_events, to_table
from tests.support.ticks import at_us
from tests.support.timeline import timeline

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("x", pa.float64()), ("t", pa.string()), ("b", pa.bool_())])
Members = list[Event]
Definition = Callable[[Members], Any]


# Definitions


def values(members: Members, name: str, *, only: bool = False) -> list[Any]:
    counted = [event for event in members if not only or event.payload["b"] is True]
    return [event.payload[name] for event in counted if event.payload[name] is not None]


def distinct(found: list[Any]) -> list[Any]:
    return list({reference.identity(value): key_value(value) for value in found}.values())


def quantile(found: list[Any], q: str, way: str) -> Any:
    if not found:
        return None
    found = sorted(map(key_value, found), key=order)
    if way == "discrete":
        return found[max(math.ceil(Fraction(q) * len(found)) - 1, 0)]
    place = Fraction(q) * (len(found) - 1)
    low, high = found[math.floor(place)], found[math.ceil(place)]
    if way in {"lower", "higher"}:
        return low if way == "lower" else high
    part = float(place - math.floor(place)) if way == "linear" else 0.5
    low, high = float(low), float(high)
    return low if low == high or place.denominator == 1 else low * (1 - part) + high * part


def mode(found: list[Any]) -> Any:
    counts = Counter(map(reference.identity, found))
    by_value = {reference.identity(value): key_value(value) for value in found}
    return min(found and by_value.values(), key=lambda v: (-counts[reference.identity(v)], order(v)), default=None)


def in_time(members: Members, name: str) -> list[Any]:
    chosen = [event for event in members if event.payload[name] is not None]
    by_value = sorted(chosen, key=lambda event: (event.start, order(event.payload[name])))
    return [event.payload[name] for event in by_value]


def nth(members: Members, name: str, n: int) -> Any:
    found = in_time(members, name)
    return found[n] if -len(found) <= n < len(found) else None


def top(members: Members, name: str, by: str, k: int, *, descending: bool) -> list[Any]:
    chosen = [event for event in members if event.payload[name] is not None and event.payload[by] is not None]
    by_value = sorted(chosen, key=lambda event: order(event.payload[name]))
    ranked = sorted(by_value, key=lambda event: order(event.payload[by]), reverse=descending)
    if descending:
        # Reversed, a sort keeps equal ones as they were.
        ranked = sorted(by_value, key=lambda event: order(event.payload[by]), reverse=True)
    return [event.payload[name] for event in ranked[:k]]


def deviation(found: list[float]) -> float | None:
    if not found:
        return None
    if not all(map(math.isfinite, found)):
        return math.nan
    mean = float(sum(map(Fraction, found)) / len(found))
    away = [Fraction(abs(value - mean)) for value in found]
    return float(sum(away) / len(found))


def state(members: Members) -> int:
    return sum((1 << (value % 60)) for value in values(members, "v"))


AGGREGATES: dict[str, tuple[g.Aggregate, Definition]] = {
    "n": (g.count(), len),
    "total": (g.sum("v"), lambda m: sum(values(m, "v")) if values(m, "v") else None),
    "kinds": (g.count_distinct("t"), lambda m: len(distinct(values(m, "t")))),
    "numbers": (g.count("x", distinct=True), lambda m: len(distinct(values(m, "x")))),
    "once": (
        g.sum("v", distinct=True, where="b"),
        lambda m: sum(set(values(m, "v", only=True))) if values(m, "v", only=True) else None,
    ),
    "evenly": (
        g.mean("v", distinct=True),
        lambda m: sum(set(values(m, "v"))) / len(set(values(m, "v"))) if values(m, "v") else None,
    ),
    "middle": (g.median("v"), lambda m: quantile(values(m, "v"), "0.5", "linear")),
    "third": (g.quantile("x", 0.3), lambda m: quantile(values(m, "x"), "0.3", "linear")),
    "lower": (g.quantile("x", 0.7, interpolation="lower"), lambda m: quantile(values(m, "x"), "0.7", "lower")),
    "word": (g.quantile("t", 0.5, interpolation="discrete"), lambda m: quantile(values(m, "t"), "0.5", "discrete")),
    "apart": (
        g.quantile("v", 0.25, interpolation="higher", distinct=True, where="b"),
        lambda m: quantile(distinct(values(m, "v", only=True)), "0.25", "higher"),
    ),
    "often": (g.mode("v"), lambda m: mode(values(m, "v"))),
    "word_often": (g.mode("t"), lambda m: mode(values(m, "t"))),
    "second": (g.nth("t", 1), lambda m: nth(m, "t", 1)),
    "last": (g.nth("v", -1), lambda m: nth(m, "v", -1)),
    "best": (g.top("v", 2), lambda m: top(m, "v", "v", 2, descending=True)),
    "words": (g.bottom("t", 3, by="v"), lambda m: top(m, "t", "v", 3, descending=False)),
    "deviation": (g.mean_absolute_deviation("x"), lambda m: deviation(values(m, "x"))),
    "listed": (g.collect_list("v"), lambda m: in_time(m, "v")),
    "set": (g.collect_set("x"), lambda m: sorted(distinct(values(m, "x")), key=order)),
    "state": (
        g.incremental(
            zero=lambda: 0,
            add=lambda s, v: s if v is None else s + (1 << (v % 60)),
            remove=lambda s, v: s if v is None else s - (1 << (v % 60)),
            result=lambda s: s,
            returns=pa.int64(),
            of="v",
        ),
        state,
    ),
    "own": (
        g.window_function(lambda t: t.num_rows * 10 + t["v"].null_count, returns=pa.int64(), of="v"),
        lambda m: len(m) * 10 + len(m) - len(values(m, "v")),
    ),
}

WINDOWS: dict[str, tuple[Callable[[g.Stream], Any], Callable[..., list[Event]]]] = {
    "snapshot": (lambda s: s.snapshot(), reference.snapshot),
    "hopping": (
        lambda s: s.hopping("7us", "3us", align=at_us(1), until=at_us(70)),
        lambda *given: reference.hopping(*given, size=7, hop=3, align=1, until=70),
    ),
    "gaps": (
        lambda s: s.hopping("3us", "8us", align=at_us(0), until=at_us(70)),
        lambda *given: reference.hopping(*given, size=3, hop=8, align=0, until=70),
    ),
    "by start": (
        lambda s: s.hopping("9us", "3us", align=at_us(0), membership="start"),
        lambda *given: reference.hopping(*given, size=9, hop=3, align=0, membership="start"),
    ),
}

some_events = st.lists(
    st.builds(
        lambda start, length, **payload: Event(start, min(start + length, MAX_TIME), payload),
        st.integers(0, 40),
        st.integers(1, 20) | st.just(MAX_TIME),
        k=st.sampled_from(["a", "b", None]),
        v=st.none() | st.integers(-3, 3),
        x=st.none() | st.sampled_from([0.1, -2.5, 7.0, 1e300, -1e300, math.nan, math.inf, -math.inf, -0.0, 0.0]),
        t=st.none() | st.sampled_from(["p", "q", "é"]),
        b=st.none() | st.booleans(),
    ),
    max_size=25,
)


def asked(events: list[Event], window: str, chosen: list[str], key: tuple[str, ...]) -> tuple[g.Stream, list[Event]]:
    made, defined = WINDOWS[window]
    answer = made(stream(events, SCHEMA).by(*key)).agg(**{name: AGGREGATES[name][0] for name in chosen})
    return answer, defined(events, {name: AGGREGATES[name][1] for name in chosen}, key)


queries = {
    "events": some_events,
    "window": st.sampled_from(list(WINDOWS)),
    "chosen": st.lists(st.sampled_from(list(AGGREGATES)), min_size=1, max_size=5, unique=True),
    "key": st.sampled_from([(), ("k",), ("k", "b")]),
    "device": st.sampled_from(HERE),
}


@given(**queries)
def test_each_is_what_its_definition_says(
    events: list[Event], window: str, chosen: list[str], key: tuple[str, ...], device: str
) -> None:
    answer, expected = asked(events, window, chosen, key)
    check(answer, device, expected)


@examples(dear=True)
@given(**queries, chance=st.randoms(use_true_random=False))
def test_live_is_batch_in_any_cut(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[Event],
    window: str,
    chosen: list[str],
    key: tuple[str, ...],
    device: str,
    chance: random.Random,
) -> None:
    answer, expected = asked(events, window, chosen, key)
    arriving = in_some_order(to_table(events, SCHEMA), chance)
    found = in_any_cut(answer, arriving, device, chance, tmp_path_factory.mktemp("live"))
    assert rows(found) == rows(expected)


# By hand


def whole(aggregate: g.Aggregate, found: list[Any], dtype: pa.DataType, device: str) -> Any:
    """The aggregate over all values at once."""
    events = [Event(0, 1, {"v": value}) for value in found]
    (answer,) = to_events(stream(events, pa.schema([("v", dtype)])).snapshot().agg(r=aggregate).collect(device=device))
    return answer.payload["r"]


def test_a_median_moves_with_what_is_alive(device_name: str) -> None:
    answer = stream(
        timeline("""
        a: [=====)    v=1
        b:   [=====)  v=8
        c:     [==)   v=5
    """)
    )
    expected = [
        *timeline("1.0: [=)", label="m"),
        *timeline("4.5:   [=)", label="m"),
        *timeline("5.0:     [=)", label="m"),
        *timeline("6.5:       [)", label="m"),
        *timeline("8.0:        [)", label="m"),
    ]
    made = [(e.start, e.end, e.payload["m"]) for e in to_events(answer.snapshot().agg(m=g.median("v")).collect())]
    assert [value for *_, value in sorted(made)] == [float(event.payload["m"]) for event in expected]


@pytest.mark.parametrize("dtype", [pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(9, 2)])
def test_medians_of_all_numbers(device_name: str, dtype: pa.DataType) -> None:
    found = [Decimal(v) if pa.types.is_decimal(dtype) else v for v in (9, 1, 2, 4)]
    assert whole(g.median("v"), found, dtype, device_name) == 3.0
    assert whole(g.quantile("v", 1), found, dtype, device_name) == 9.0
    assert whole(g.quantile("v", 0, interpolation="lower"), found, dtype, device_name) == found[1]
    assert whole(g.median("v"), [None], dtype, device_name) is None
    assert whole(g.mode("v"), [*found, found[3]], dtype, device_name) == found[3]


def test_a_share_is_its_decimal_digits(device_name: str) -> None:
    # In doubles 0.07 * 100 is a little more than 7.
    found = list(range(1, 101))
    assert whole(g.quantile("v", 0.07, interpolation="discrete"), found, pa.int64(), device_name) == 7


def test_values_far_apart_and_large_are_ranked(device_name: str) -> None:
    found = [2**63 - 1, -(2**63), 0, 7]
    assert whole(g.quantile("v", 0.5, interpolation="lower"), found, pa.int64(), device_name) == 0
    assert whole(g.count_distinct("v"), [*found, *found], pa.int64(), device_name) == 4
    assert whole(g.median("v"), [2**64 - 1, 2**64 - 1], pa.uint64(), device_name) == 2.0**64


def test_equal_keys_count_once(device_name: str) -> None:
    assert whole(g.count_distinct("v"), [math.nan, -math.nan, 0.0, -0.0, None], pa.float64(), device_name) == 2
    assert whole(g.sum("v", distinct=True), [1.5, 1.5, -0.0, 0.0], pa.float64(), device_name) == 1.5
    assert whole(g.count_distinct("v"), [b"a", b"", b"a"], pa.binary(), device_name) == 2
    assert whole(g.count_distinct("v"), [Decimal("1.50"), Decimal("1.5")], pa.decimal128(9, 2), device_name) == 1
    assert whole(g.variance("v", distinct=True), [1, 3, 3, 3], pa.int64(), device_name) == 2.0


def test_a_value_that_comes_again_before_the_first_has_left_counts_on(device_name: str) -> None:
    rides = timeline("""
        a: [====)        v=1
        b:    [====)     v=1
        c:      [=====)  v=2
        d:          [==) v=1
    """)
    answer = stream(rides).snapshot().agg(n=g.count_distinct("v"))
    expected = reference.snapshot(rides, {"n": lambda members: len(set(values(list(members), "v")))})
    check(answer, device_name, expected)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (pa.string(), "a"),
        (pa.list_(pa.int64()), [1, 2]),
        (pa.struct([("a", pa.int64())]), {"a": 1}),
        (pa.timestamp("s", "UTC"), None),
        (pa.decimal128(9, 2), Decimal("1.50")),
        (pa.dictionary(pa.int32(), pa.string()), "a"),
        (pa.bool_(), True),
    ],
)
def test_values_of_any_type_are_handed_on(device_name: str, dtype: pa.DataType, value: Any) -> None:
    events = g.events(pa.table({"at": [0, 1], "v": pa.array([value, None], dtype)}), start="at", unit="s")
    made = events.tumbling("1min").agg(first=g.nth("v", 0), none=g.nth("v", 5), all=g.collect_list("v"))
    (answer,) = made.collect(device=device_name).to_pylist()
    assert (answer["first"], answer["none"], answer["all"]) == (value, None, [] if value is None else [value])


def test_an_order_decides_between_events_of_one_start(device_name: str) -> None:
    events = [Event(0, 9, {"v": v, "p": p}) for v, p in ((1, 3), (2, 1), (3, 2), (4, None))]
    made = stream(events).snapshot().agg(all=g.collect_list("v", order=-g.col("p")), n=g.nth("v", 1, order="p"))
    (answer,) = to_events(made.collect(device=device_name))
    assert answer.payload == {"all": [4, 1, 3, 2], "n": 2}


def test_rates(device_name: str) -> None:
    events = stream([Event(at, at + 1, {"v": at}) for at in (0, 1, 2, 9)])
    by_window = events.tumbling("4us", align=at_us(0)).agg(r=g.rate("1us"), large=g.rate("2us", where=g.col("v") > 1))
    assert sorted(to_events(by_window.collect(device=device_name))) == [
        Event(0, 4, {"r": 0.75, "large": 0.5}),
        Event(8, 12, {"r": 0.25, "large": 0.5}),
    ]
    sliding = events.sliding("4us").agg(r=g.rate("1us", over="4us")).collect(device=device_name)
    assert [event.payload["r"] for event in sorted(to_events(sliding))] == [0.25, 0.5, 0.75, 0.5, 0.25, 0.25]


# Functions of the user's


def bounds(table: pa.Table, start: Any, end: Any) -> str:
    times = [table[name].cast(pa.int64()).to_pylist() for name in ("start", "end")]
    return f"{start.microsecond}-{end.microsecond} {list(zip(*times, strict=True))} {table['v'].to_pylist()}"


@pytest.mark.parametrize("clip", [False, True])
def test_a_time_sensitive_function_is_told_where_its_window_is(device_name: str, clip: bool) -> None:  # noqa: FBT001
    own = g.window_function(bounds, returns=pa.string(), of="v", time_sensitive=True, clip=clip)
    events = stream([Event(0, 9, {"v": 1}), Event(5, 7, {"v": 2})])
    expected = []
    # Window by window, though the first and the second one hold the same events.
    for window, inside in (((0, 2), [1]), ((2, 4), [1]), ((4, 6), [1, 2]), ((6, 8), [1, 2]), ((8, 10), [1])):
        times = [(0, 9), (5, 7)][: len(inside)]
        if clip:
            times = [(max(a, window[0]), min(b, window[1])) for a, b in times]
        expected.append(Event(*window, {"r": f"{window[0]}-{window[1]} {times} {inside}"}))
    answer = events.tumbling("2us", align=at_us(0)).agg(r=own, n=g.count()).select("r")
    check(answer, device_name, expected)
    live = answer.start(device=device_name)
    live.push(to_table([Event(0, 9, {"v": 1})]))
    live.advance(at_us(5))
    live.push(to_table([Event(5, 7, {"v": 2})]))
    live.close()
    assert rows(live.results()) == rows(expected)
    snapshot = events.snapshot().agg(r=own).collect(device=device_name)
    assert [event.payload["r"].split(" ")[0] for event in sorted(to_events(snapshot))] == ["0-5", "5-7", "7-9"]


def test_rows_stand_in_order_of_time_whatever_order_they_came_in(device_name: str) -> None:
    events = [Event(2, 9, {"v": 1}), Event(0, 9, {"v": 3}), Event(2, 9, {"v": 0})]
    own = g.window_function(lambda t: t["v"].to_pylist(), returns=pa.list_(pa.int64()), of="v")
    for some in (events, events[::-1]):
        answer = to_events(stream(some).snapshot().agg(r=own).collect(device=device_name))
        assert [event.payload["r"] for event in sorted(answer)] == [[3], [3, 0, 1]]


def test_a_function_that_fails_names_its_window(device_name: str) -> None:
    events = stream([Event(0, 9, {"v": 1, "k": "a"}), Event(5, 7, {"v": 0, "k": "b"})]).by("k").snapshot()
    own = g.window_function(lambda t: 1 // t["v"][0].as_py(), returns=pa.int64(), of="v")
    with pytest.raises(FunctionError, match=r"ZeroDivisionError.*000005.*000007.*k='b'") as raised:
        events.agg(r=own).collect(device=device_name)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    for gives in ("text", 1.5):
        wrong = g.window_function(lambda t, gives=gives: gives, returns=pa.int64(), of="v")
        with pytest.raises(FunctionError, match="k='a'"):
            events.agg(r=wrong).collect(device=device_name)
    add = g.incremental(zero=0, add=lambda s, v: s // v, remove=max, result=int, returns=pa.int64(), of="v")
    with pytest.raises(FunctionError, match="k='b'"):
        events.agg(r=add).collect(device=device_name)


def test_a_state_begins_anew_where_a_window_is_empty(device_name: str) -> None:
    # Removing nothing leaves 0.1 + 0.2 - 0.1 - 0.2, which is not zero.
    dusty = g.incremental(
        zero=0.0, add=lambda s, v: s + v, remove=lambda s, v: s - v, result=float, returns=pa.float64(), of="v"
    )
    events = stream([Event(0, 2, {"v": 0.1}), Event(1, 3, {"v": 0.2}), Event(5, 6, {"v": 1.0})])
    answer = to_events(events.snapshot().agg(r=dusty).collect(device=device_name))
    assert max(answer).payload["r"] == 1.0


# What is refused when the plan is made


def test_types_that_do_not_fit_are_refused() -> None:
    windows = stream([Event(0, 1, {"v": 1, "t": "a", "l": [1]})]).snapshot()
    with pytest.raises(ColumnError, match=r"quantile does not take string.*lower"):
        windows.agg(r=g.median("t"))
    with pytest.raises(ColumnError, match="mode does not take list"):
        windows.agg(r=g.mode("l"))
    with pytest.raises(ColumnError, match="distinct values does not take list"):
        windows.agg(r=g.count_distinct("l"))
    with pytest.raises(ColumnError, match="mean_absolute_deviation does not take string"):
        windows.agg(r=g.mean_absolute_deviation("t"))
    with pytest.raises(ColumnError, match="top does not take list"):
        windows.agg(r=g.top("v", 1, by="l"))
    with pytest.raises(PlanError, match="share from 0 to 1"):
        g.quantile("v", 1.5)
    with pytest.raises(PlanError, match="interpolation 'near' is unknown"):
        g.quantile("v", 0.5, interpolation="near")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="at least 1"):
        g.top("v", 0)
    with pytest.raises(PlanError, match="whole number"):
        g.nth("v", 1.5)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="Arrow type"):
        g.window_function(len, returns=int, of="v")
    with pytest.raises(PlanError, match="takes a function"):
        g.window_function("len", returns=pa.int64(), of="v")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="needs the values"):
        g.count(distinct=True)


def test_a_plan_is_told_in_the_same_words_in_every_process() -> None:
    own = g.window_function(bounds, returns=pa.string(), of="v", time_sensitive=True)
    text = stream([Event(0, 1, {"v": 1})]).snapshot().agg(r=own, d=g.count_distinct("v")).explain(device="cpu")
    assert "function=bounds" in text
    assert "count(distinct " in text
    assert " at 0x" not in text
