from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

import narwhals as nw
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.errors import ColumnError, PlanError
from tests.support.examples import examples
from tests.support.join_reference import Condition, How, join
from tests.support.reference import FIRST_TIME, NEVER, Event, Payload
from tests.support.rows import stream
from tests.support.timeline import timeline
from tests.support.two_streams import COLUMNS, KEYS, LEFT, RIGHT, Events, check, named, sides, streams

HOWS: tuple[How, ...] = get_args(How)

# Contracts, and outages of their lines: who had a line while it was out?
CONTRACTS = timeline(
    """
    1: [=========)   who="Ada"
    1:      [=====>  who="Ben"
    2:   [==)        who="Cid"
    """,
    label="line",
)
OUTAGES = timeline(
    """
    1:  [==)     why="storm"
    1:    [==)   why="digger"
    2:      [==) why="storm"
    """,
    label="line",
)

PICTURES: dict[How, str] = {
    "inner": """
        1:  [==)         who="Ada" why="storm"
        1:    [==)       who="Ada" why="digger"
        1:      [)       who="Ben" why="digger"
    """,
    "left": """
        1:  [==)         who="Ada" why="storm"
        1:    [==)       who="Ada" why="digger"
        1: [)    [===)   who="Ada" why=None
        1:      [)       who="Ben" why="digger"
        1:       [====>  who="Ben" why=None
        2:   [==)        who="Cid" why=None
    """,
    "right": """
        1:  [==)         who="Ada" why="storm"
        1:    [==)       who="Ada" why="digger"
        1:      [)       who="Ben" why="digger"
        2:      [==)     who=None  why="storm"
    """,
    "full": """
        1:  [==)         who="Ada" why="storm"
        1:    [==)       who="Ada" why="digger"
        1: [)    [===)   who="Ada" why=None
        1:      [)       who="Ben" why="digger"
        1:       [====>  who="Ben" why=None
        2:   [==)        who="Cid" why=None
        2:      [==)     who=None  why="storm"
    """,
    "semi": """
        1:  [====)       who="Ada"
        1:      [)       who="Ben"
    """,
    "anti": """
        1: [)    [===)   who="Ada"
        1:       [====>  who="Ben"
        2:   [==)        who="Cid"
    """,
}


@pytest.mark.parametrize("how", HOWS)
def test_what_is_alive_together_and_what_is_left_over(device_name: str, how: How) -> None:
    asked = stream(CONTRACTS).join(stream(OUTAGES), on="line", how=how)
    check(asked, device_name, timeline(PICTURES[how], label="line"))


def test_lifetimes_that_touch_do_not_meet(device_name: str) -> None:
    one, two = stream(timeline("a: [==)", label="one")), stream(timeline("b:    [==)", label="two"))
    check(one.join(two), device_name, [])
    alone = [Event(0, 3, {"one": "a", "two": None}), Event(3, 6, {"one": None, "two": "b"})]
    check(one.join(two, how="full"), device_name, alone)


def test_partners_that_follow_one_another_cover_what_they_cover_together(device_name: str) -> None:
    """Pieces are as long as can be: where one partner takes over from another nothing is cut."""
    left = timeline("a: [==============)")
    right = timeline("a:   [==|==|==)  *")
    one, two = stream(left), stream(right)
    check(one.join(two, on="name", how="semi"), device_name, timeline("a:   [========)  *"))
    check(one.join(two, on="name", how="anti"), device_name, timeline("a: [=)        [==)"))


def test_equal_events_are_pairs_each(device_name: str) -> None:
    one, two = stream(timeline("a: [==)\na: [==)")), stream(timeline("a:  [==)\na:  [==)\na:  *"))
    expected = timeline("a:  [=)\n" * 4 + "a:  *\n" * 2)
    check(one.join(two, on="name"), device_name, expected)


def test_without_a_key_all_that_overlap_are_pairs(device_name: str) -> None:
    one, two = stream(timeline("a: [===>\nb:   *", label="one")), stream(timeline("c:  [==)\nd:   [=>", label="two"))
    expected = [
        Event(1, 4, {"one": "a", "two": "c"}),
        Event(2, NEVER, {"one": "a", "two": "d"}),
        Event(2, 3, {"one": "b", "two": "c"}),
        Event(2, 3, {"one": "b", "two": "d"}),
    ]
    check(one.join(two), device_name, expected)


def test_a_stream_with_itself(device_name: str) -> None:
    rides = timeline("a: [==)\nb:  [==)")
    asked = stream(rides)
    pairs = asked.join(asked, condition=g.col("name") < g.col("name_right"))
    check(pairs, device_name, timeline('a:  [=) name_right="b"'))


def test_all_of_time(device_name: str) -> None:
    ever = [Event(FIRST_TIME, NEVER, {"k": 1})]
    some = [Event(FIRST_TIME, -5, {"k": 1}), Event(NEVER - 1, NEVER, {"k": 1})]
    check(stream(ever).join(stream(some), on="k"), device_name, some)
    check(stream(ever).join(stream(some), on="k", how="anti"), device_name, [Event(-5, NEVER - 1, {"k": 1})])
    check(stream(some).join(stream(ever), on="k", how="anti"), device_name, [])


# Keys


def test_null_is_no_keys_equal_and_nan_and_zero_are_one_key_each(device_name: str) -> None:
    """Keys keep the bits that they came with: that of a pair is left's, that of a right event alone its own."""
    left = [Event(0, 9, {"x": x, "n": at}) for at, x in enumerate([math.nan, -0.0, None, 2.5])]
    right = [Event(0, 9, {"x": x, "m": at}) for at, x in enumerate([math.nan, 0.0, None, -0.0])]
    expected = [
        Event(0, 9, {"x": math.nan, "n": 0, "m": 0}),
        Event(0, 9, {"x": -0.0, "n": 1, "m": 1}),
        Event(0, 9, {"x": -0.0, "n": 1, "m": 3}),
        Event(0, 9, {"x": None, "n": 2, "m": None}),
        Event(0, 9, {"x": 2.5, "n": 3, "m": None}),
        Event(0, 9, {"x": None, "n": None, "m": 2}),
    ]
    check(stream(left).join(stream(right), on="x", how="full"), device_name, expected)


def test_one_null_among_several_keys_is_enough(device_name: str) -> None:
    left = [Event(0, 9, {"a": 1, "b": None}), Event(0, 9, {"a": 1, "b": 2})]
    asked = stream(left).join(stream(left), on=["a", "b"], how="semi")
    check(asked, device_name, left[1:])


def test_keys_of_several_widths_meet_in_the_wider_one(device_name: str) -> None:
    left = stream([Event(0, 9, {"k": 7})], pa.schema([("k", pa.int16())]))
    right = stream([Event(3, 5, {"k": 7}), Event(3, 5, {"k": 2**40})], pa.schema([("k", pa.int64())]))
    asked = left.join(right, on="k", how="right")
    assert asked.schema.types == [pa.int64()]
    check(asked, device_name, [Event(3, 5, {"k": 7}), Event(3, 5, {"k": 2**40})])


TEXTS = [
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.string()),
]


@pytest.mark.parametrize("dtype", TEXTS, ids=str)
def test_texts_are_equal_however_they_are_held(device_name: str, dtype: pa.DataType) -> None:
    left = stream([Event(0, 9, {"k": "b"}), Event(0, 9, {"k": "a"})])
    right = stream([Event(3, 5, {"k": "a", "v": 1})], pa.schema([("k", dtype), ("v", pa.int64())]))
    check(left.join(right, on="k"), device_name, [Event(3, 5, {"k": "a", "v": 1})])
    alone = stream([Event(3, 5, {"k": "c"})], pa.schema([("k", dtype)]))
    check(left.join(alone, on="k", how="right"), device_name, [Event(3, 5, {"k": "c"})])


@pytest.mark.parametrize("types", [(pa.string(), pa.int64()), (pa.int64(), pa.float64()), (pa.bool_(), pa.int8())])
def test_keys_without_a_type_in_common_are_refused(types: tuple[pa.DataType, pa.DataType]) -> None:
    left, right = (stream([], pa.schema([(name, dtype)])) for name, dtype in zip("ab", types, strict=True))
    with pytest.raises(ColumnError, match=r"no common type.*column 'a'"):
        left.join(right, on={"a": "b"})


# Names


def names(asked: g.Stream) -> list[str]:
    return [field.name for field in asked.schema]


def test_how_columns_are_called() -> None:
    left = stream([], pa.schema([(name, pa.int64()) for name in ("k", "v")]))
    right = stream([], pa.schema([(name, pa.int64()) for name in ("v", "k", "w")]))
    assert names(left.join(right, on="k")) == ["k", "v", "v_right", "w"]
    assert names(left.join(right, on="k", suffix="2")) == ["k", "v", "v2", "w"]
    assert names(left.join(right)) == ["k", "v", "v_right", "k_right", "w"]
    assert names(left.join(right, on={"k": "w"})) == ["k", "v", "v_right", "k_right"]
    assert names(left.join(right, on=["v", "k"])) == ["k", "v", "w"]
    for how in ("semi", "anti"):
        assert names(left.join(right, on="k", how=how)) == ["k", "v"]


@pytest.mark.parametrize("how", HOWS)
def test_a_name_that_is_taken_with_its_suffix_is_refused(how: How) -> None:
    left = stream([], pa.schema([("k", pa.int64()), ("v", pa.int64()), ("v_right", pa.int64())]))
    right = stream([], pa.schema([("k", pa.int64()), ("v", pa.int64())]))
    seen: Any = {"condition": g.col("v") > 0} if how in {"semi", "anti"} else {}
    with pytest.raises(ColumnError, match=r"'v_right' is taken.*column 'v'.*suffix"):
        left.join(right, on="k", how=how, **seen)
    with pytest.raises(ColumnError, match="taken"):
        right.join(left, on="k", how=how, **seen)
    if seen:  # columns that nobody sees are in nobody's way
        assert names(left.join(right, on="k", how=how)) == ["k", "v", "v_right"]
    assert names(left.join(right, on="k", suffix="_2")) == ["k", "v", "v_right", "v_2"]
    with pytest.raises(ColumnError, match="'end' is taken"):
        stream([], pa.schema([("e", pa.int64())])).join(stream([], pa.schema([("e", pa.int64())])), suffix="nd")


def test_the_other_sides_columns_may_be_null_in_an_outer_join() -> None:
    left = stream([], pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int64(), nullable=False)]))
    outer = left.join(left, on="k", how="left").schema
    assert outer.field("v_right").nullable


@pytest.mark.parametrize("on", ["q", ["k", "q"], {"k": "q"}, {"q": "k"}])
def test_an_unknown_key_is_refused(on: Any) -> None:
    left = stream([], LEFT)
    with pytest.raises(ColumnError, match=r"stream has no such column.*'q'.*It has"):
        left.join(stream([], RIGHT), on=on)


def test_a_lifetime_is_no_key() -> None:
    left = stream([], LEFT)
    with pytest.raises(ColumnError, match="start"):
        left.join(left, on="start")


def test_what_is_no_join_is_refused() -> None:
    left = stream([], LEFT)
    with pytest.raises(PlanError, match=r"how 'outer' is unknown.*\"full\""):
        left.join(left, on="k", how="outer")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="Table"):
        left.join(pa.table({"k": [1]}))


# Conditions


@pytest.mark.parametrize("time", ["start", "end"])
def test_a_condition_is_not_about_lifetimes(time: str) -> None:
    left = stream([], LEFT)
    with pytest.raises(PlanError, match=r"reads payloads alone.*with_columns"):
        left.join(left, on="k", condition=g.col(time) > g.col("v"))


def test_a_condition_is_a_condition_over_columns_that_there_are() -> None:
    left = stream([], LEFT)
    with pytest.raises(PlanError, match=r"condition"):
        left.join(left, on="k", condition=g.col("v") + 1)
    with pytest.raises(ColumnError, match="w"):
        left.join(left, on="k", condition=g.col("w") > 1)


class Asked(NamedTuple):
    """A condition, and the columns of a pair that it looks at."""

    reads: tuple[str, ...]
    expression: nw.Expr
    holds: Condition


def _less(pair: Payload) -> bool | None:
    return None if pair["v"] is None or pair["v_right"] is None else pair["v"] <= pair["v_right"]


CONDITIONS = [
    Asked(("v_right",), g.col("v") <= g.col("v_right"), _less),
    Asked(("w",), g.col("w") != "a", lambda pair: None if pair["w"] is None else pair["w"] != "a"),
    Asked((), g.col("v").is_null(), lambda pair: pair["v"] is None),
    Asked((), g.col("v") > 99, lambda pair: None if pair["v"] is None else pair["v"] > 99),
]


@pytest.mark.parametrize("how", HOWS)
def test_a_condition_is_part_of_the_match(device_name: str, how: How) -> None:
    """Of an outer join's events remains what no partner covers for which it holds; null counts as no."""
    left = timeline("a: [=====)")
    right = timeline("""
        a:  [==)    v=1
        a:   [===)  v=2
        a:  [====)  v=None
    """)
    asked = stream(left).join(stream(right), on="name", how=how, condition=g.col("v") != 1)
    pictures: dict[How, str] = {
        "inner": "a:   [===) v=2",
        "left": "a:   [===) v=2\na: [=)      v=None",
        "right": "a:   [===) v=2\na:  [==)   v=1\na:  [====) v=None",
        "full": "a:   [===) v=2\na:  [==)   v=1\na:  [====) v=None\na: [=)      v=None",
        "semi": "a:   [===)",
        "anti": "a: [=)",
    }
    check(asked, device_name, timeline(pictures[how]))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Events, Events, Mapping[str, str], How, Asked | None]:
    left, right = draw(sides())
    key = draw(st.sampled_from(KEYS))
    after = names(stream([], LEFT).join(stream([], RIGHT), on=named(key)))
    fitting = [each for each in CONDITIONS if set(each.reads) <= set(after)]
    return left, right, key, draw(st.sampled_from(HOWS)), draw(st.none() | st.sampled_from(fitting))


@examples(dear=True)
@given(case=cases())
def test_every_join_is_the_brute_forces(
    device_name: Any, case: tuple[Events, Events, Mapping[str, str], How, Any]
) -> None:
    left, right, key, how, condition = case
    one, two = streams(left, right)
    expression, holds = (None, None) if condition is None else (condition.expression, condition.holds)
    asked = one.join(two, on=named(key), how=how, condition=expression)
    check(asked, device_name, join(left, right, key, how, columns=COLUMNS, condition=holds))


@examples(dear=True)
@given(both=sides(), how=st.sampled_from(HOWS), name=st.sampled_from(["k", "x", "v"]))
def test_a_column_alone_of_a_join(device_name: Any, both: tuple[Events, Events], how: How, name: str) -> None:
    """Columns that nobody reads are not carried along; what is read is right all the same."""
    left, right = both
    one, two = streams(left, right)
    whole = join(left, right, {"k": "k"}, how, columns=COLUMNS)
    expected = [Event(event.start, event.end, {name: event.payload[name]}) for event in whole]
    check(one.join(two, on="k", how=how).select(name), device_name, expected)
    counted = one.join(two, on="k", how=how).snapshot().agg(n=g.count()).collect(device=device_name)
    assert (counted.num_rows == 0) == (not whole)


def test_points_stay_points(device_name: str) -> None:
    """Sources without ends: their events need none."""
    at = pa.table({"at": [1, 5, 9], "v": [1, 2, 3]})
    points = g.events(at, start="at", unit="us")
    long = stream([Event(0, 6, {"w": 7})])
    both = [Event(1, 2, {"v": 1, "w": 7}), Event(5, 6, {"v": 2, "w": 7})]
    check(points.join(long), device_name, both)
    check(points.join(long, how="left"), device_name, [*both, Event(9, 10, {"v": 3, "w": None})])
    check(points.join(long, how="anti"), device_name, [Event(9, 10, {"v": 3})])
    rest = [Event(*times, {"v": None, "w": 7}) for times in ((0, 1), (2, 5))]
    check(points.join(long, how="right"), device_name, [*both, *rest])
    check(
        points.join(points, on="v", how="semi"),
        device_name,
        [Event(t, t + 1, {"v": v}) for t, v in ((1, 1), (5, 2), (9, 3))],
    )


def test_joins_and_windows_nest(device_name: str) -> None:
    contracts, outages = stream(CONTRACTS), stream(OUTAGES)
    hit = contracts.join(outages, on="line").by("line").snapshot().agg(n=g.count())
    expected = timeline("1:  [=)[)    n=1\n1:    [)[)   n=2", label="line")
    check(hit, device_name, expected)
    again = hit.join(contracts, on="line", how="anti")
    check(again, device_name, [])


@pytest.mark.slow
def test_many_pairs_come_in_pieces(device_name: str) -> None:
    """More pairs than are looked at together."""
    count = 1500
    crowd = stream([Event(0, 10, {"n": number}) for number in range(count)])
    answer = crowd.join(crowd, suffix="_2").snapshot().agg(n=g.count(), total=g.sum("n_2")).collect(device=device_name)
    assert answer["n"].to_pylist() == [count**2]
    assert answer["total"].to_pylist() == [count * count * (count - 1) // 2]
