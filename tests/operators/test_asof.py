from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.errors import ColumnError, PlanError
from tests.support.examples import examples
from tests.support.join_reference import asof_join
from tests.support.reference import FIRST_TIME, NEVER, Event, select
from tests.support.rows import rows, stream
from tests.support.ticks import us
from tests.support.timeline import timeline
from tests.support.two_streams import COLUMNS, KEYS, LEFT, Events, check, named, sides, streams

TRADES = timeline(
    """
    a:   *     [==)
    a: *         [==>
    b:   *
    """,
    label="item",
)
QUOTES = timeline(
    """
    a:   *         price=1
    a:    [=)      price=2
    a:            *  price=3
    b:    *        price=4
    """,
    label="item",
)


def test_the_last_one_that_started_by_then(device_name: str) -> None:
    """How long it lasted plays no part, and one that starts together with the event is the last."""
    found = timeline(
        """
        a:   *         price=1
        a:         [==)  price=2
        a: *           price=None
        a:           [==>  price=2
        b:   *         price=None
        """,
        label="item",
    )
    asked = stream(TRADES).asof_join(stream(QUOTES), on="item")
    check(asked, device_name, found)
    inner = stream(TRADES).asof_join(stream(QUOTES), on="item", how="inner")
    check(inner, device_name, [event for event in found if event.payload["price"] is not None])


def test_the_first_one_that_starts_then_or_later(device_name: str) -> None:
    found = timeline(
        """
        a:   *         price=1
        a:         [==)  price=3
        a: *           price=1
        a:           [==>  price=3
        b:   *         price=4
        """,
        label="item",
    )
    check(stream(TRADES).asof_join(stream(QUOTES), on="item", direction="forward"), device_name, found)


def test_the_nearest_one_and_of_two_as_near_the_earlier(device_name: str) -> None:
    trades = timeline("a:     *   *  *")
    quotes = [
        *timeline("a:   *  v=1"),
        *timeline("a:       *  v=2"),
        *timeline("a:             *  v=3"),
    ]
    found = [*timeline("a:     *  v=1"), *timeline("a:         *  v=2"), *timeline("a:            *  v=3")]
    check(stream(trades).asof_join(stream(quotes), on="name", direction="nearest"), device_name, found)
    near = [*timeline("a:     *  v=None"), *timeline("a:         *  v=None"), *timeline("a:            *  v=3")]
    asked = stream(trades).asof_join(stream(quotes), on="name", direction="nearest", tolerance=us(1))
    check(asked, device_name, near)


@pytest.mark.parametrize(("tolerance", "far"), [(6, None), (7, 2), ("7us", 2)])
def test_not_too_long_before(device_name: str, tolerance: Any, far: int | None) -> None:
    trades = timeline("a:     *    *")
    quotes = timeline("a:   *  v=2")
    asked = stream(trades).asof_join(stream(quotes), on="name", tolerance=us(tolerance))
    check(asked, device_name, [*timeline("a:     *  v=2"), *timeline(f"a:          *  v={far}")])


def test_of_those_that_start_together_the_longest_then_the_greatest(device_name: str) -> None:
    trades = [Event(9, 10, {"n": 1})]
    for ends in ((3, 5), (5, 3)):
        quotes = [Event(1, end, {"price": end}) for end in ends]
        check(stream(trades).asof_join(stream(quotes)), device_name, [Event(9, 10, {"n": 1, "price": 5})])


ORDERS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [None, -(2**63), 0, 2**63 - 1]),
    (pa.uint64(), [None, 0, 2**64 - 1]),
    (pa.float64(), [None, -math.inf, -1.5, 0.0, math.inf, math.nan]),
    (pa.string(), [None, "", "Z", "a", "é", "\U0001f6b2"]),
    (pa.large_string(), [None, "", "a"]),
    (pa.dictionary(pa.int8(), pa.string()), [None, "", "a", "b"]),
    (pa.bool_(), [None, False, True]),
    (pa.binary(), [None, b"", b"\x00", b"\xff"]),
]


@pytest.mark.parametrize(("dtype", "ascending"), ORDERS, ids=[str(dtype) for dtype, _ in ORDERS])
def test_what_is_greatest(device_name: str, dtype: pa.DataType, ascending: list[Any]) -> None:
    """Null is least, NaN greatest, texts go by their bytes; the first column that differs decides."""
    trades = [Event(9, 10, {"n": 1})]
    schema = pa.schema([("one", dtype), ("two", pa.int64())])
    for less, more in itertools.pairwise(ascending):
        quotes = [Event(1, 2, {"one": more, "two": 0}), Event(1, 2, {"one": less, "two": 7})]
        for given_quotes in (quotes, quotes[::-1]):
            asked = stream(trades).asof_join(stream(given_quotes, schema))
            check(asked, device_name, [Event(9, 10, {"n": 1, "one": more, "two": 0})])


@pytest.mark.parametrize("order", [1, -1])
def test_columns_that_nobody_reads_decide_too(device_name: str, order: int) -> None:
    trades = stream([Event(9, 10, {"n": 1})])
    quotes = stream([Event(1, 2, {"one": 2, "two": 5}), Event(1, 2, {"one": 1, "two": 8})][::order])
    check(trades.asof_join(quotes).select("two"), device_name, [Event(9, 10, {"two": 5})])


def test_the_order_of_rows_decides_nothing(device_name: str) -> None:
    """Not even between zeros that are equal but have different bits."""
    trades = stream([Event(9, 10, {"n": 1})])
    quotes = [Event(1, 2, {"x": 0.0, "two": 1}), Event(1, 2, {"x": -0.0, "two": 1})]
    answers = [trades.asof_join(stream(some)).collect(device=device_name) for some in (quotes, quotes[::-1])]
    assert rows(answers[0]) == rows(answers[1])


def test_all_of_time(device_name: str) -> None:
    trades = [Event(FIRST_TIME, NEVER, {"n": 1}), Event(NEVER - 1, NEVER, {"n": 2})]
    quotes = [Event(FIRST_TIME, FIRST_TIME + 1, {"price": 3})]
    expected = [Event(event.start, event.end, {**event.payload, "price": 3}) for event in trades]
    check(stream(trades).asof_join(stream(quotes)), device_name, expected)
    far = stream(trades).asof_join(stream(quotes), tolerance=us(NEVER - FIRST_TIME - 2), how="inner")
    check(far, device_name, expected[:1])


def test_points_stay_points(device_name: str) -> None:
    """Sources without ends: their events need none."""
    points = g.events(pa.table({"at": [1, 5, 9], "v": [1, 2, 3]}), start="at", unit="us")
    others = g.events(pa.table({"at": [4, 5, 5], "w": [7, 8, 9]}), start="at", unit="us")
    expected = [Event(1, 2, {"v": 1, "w": None}), Event(5, 6, {"v": 2, "w": 9}), Event(9, 10, {"v": 3, "w": 9})]
    check(points.asof_join(others), device_name, expected)
    check(points.asof_join(others, how="inner", on={"v": "w"}), device_name, [])


def test_nobody_to_look_for_and_nowhere_to_look(device_name: str) -> None:
    some = timeline("a: *", label="k")
    one, nothing = stream(some), stream([], pa.schema([("k", pa.string()), ("v", pa.int64())]))
    check(one.asof_join(nothing, on="k"), device_name, timeline("a: *  v=None", label="k"))
    check(one.asof_join(nothing, on="k", how="inner"), device_name, [])
    check(nothing.asof_join(one, on="k"), device_name, [])


def test_how_columns_are_called() -> None:
    left, right = streams([], [])
    assert left.asof_join(right, on="k").schema.names == ["k", "x", "v", "v_right", "x_right", "w"]
    assert left.asof_join(right, on="k", suffix="2").schema.names == ["k", "x", "v", "v2", "x2", "w"]
    assert left.asof_join(right, on={"k": "w"}).schema.names == ["k", "x", "v", "v_right", "k_right", "x_right"]
    with pytest.raises(ColumnError, match=r"'v' is taken.*suffix"):
        left.asof_join(right, on="k", suffix="")


def test_what_cannot_be_is_refused() -> None:
    left, right = streams([], [])
    with pytest.raises(PlanError, match=r"how 'right'.*\"left\" or \"inner\""):
        left.asof_join(right, how="right")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"direction 'next'"):
        left.asof_join(right, direction="next")  # type: ignore[arg-type]
    for span in (0, -1, "-1s"):
        with pytest.raises(PlanError, match="tolerance"):
            left.asof_join(right, tolerance=us(span))
    with pytest.raises(ColumnError, match="no common type"):
        left.asof_join(right, on={"k": "v"})
    with pytest.raises(ColumnError, match="'q'"):
        left.asof_join(right, on="q")


@examples(dear=True)
@given(
    both=sides(),
    key=st.sampled_from(KEYS),
    tolerance=st.none() | st.integers(1, 9),
    how=st.sampled_from(["left", "inner"]),
    direction=st.sampled_from(["backward", "forward", "nearest"]),
)
def test_every_asof_join_is_the_brute_forces(
    device_name: Any,
    both: tuple[Events, Events],
    key: Mapping[str, str],
    tolerance: int | None,
    how: Literal["left", "inner"],
    direction: Literal["backward", "forward", "nearest"],
) -> None:
    left, right = _one_zero(both[0]), _one_zero(both[1])
    one, two = streams(left, right)
    asked = one.asof_join(two, on=named(key), tolerance=us(tolerance), how=how, direction=direction)
    expected = asof_join(left, right, key, how, columns=COLUMNS, tolerance=tolerance, direction=direction)
    check(asked, device_name, expected)
    for name in LEFT.names[0], next(name for name in asked.schema.names if name not in LEFT.names):
        alone = [Event(event.start, event.end, {name: event.payload[name]}) for event in expected]
        check(asked.select(name), device_name, alone)


def _one_zero(some: Events) -> Events:
    """Which of two zeros is greater, the brute force does not say."""

    def payload(event: Event) -> dict[str, Any]:
        return {name: 0.0 if name == "x" and value == 0.0 else value for name, value in event.payload.items()}

    return select(some, payload)
