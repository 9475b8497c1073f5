from __future__ import annotations

from collections.abc import Callable

import pytest

import gpu_ops as g
from gpu_ops import Stream
from gpu_ops.errors import PlanError, TimeError
from tests.support.reference import FIRST_TIME, NEVER, Event
from tests.support.rows import check, stream
from tests.support.ticks import at_us, us
from tests.support.timeline import timeline

Verb = Callable[[Stream], Stream]

RIDES = """
    a:     [===)
    b:       [)
    c:         [==>
    d:     *
"""

PICTURES: dict[str, tuple[Verb, str]] = {
    "set_duration": (
        lambda s: s.set_duration("3us"),
        """
        a:     [==)
        b:       [==)
        c:         [==)
        d:     [==)
        """,
    ),
    "shift forth": (
        lambda s: s.shift("2us"),
        """
        a:       [===)
        b:         [)
        c:           [==>
        d:       *
        """,
    ),
    "shift back": (
        lambda s: s.shift("-3us"),
        """
        a:  [===)
        b:    [)
        c:      [==>
        d:  *
        """,
    ),
    "extend": (
        lambda s: s.extend("2us"),
        """
        a:     [=====)
        b:       [==)
        c:         [==>
        d:     [==)
        """,
    ),
    "extend by less than nothing": (
        lambda s: s.extend("-2us"),
        """
        a:     [=)
        c:         [==>
        """,
    ),
    "clip_duration": (
        lambda s: s.clip_duration("2us"),
        """
        a:     [=)
        b:       [)
        c:         [=)
        d:     *
        """,
    ),
    "to_point": (
        lambda s: s.to_point(),
        """
        a:     *
        b:       *
        c:         *
        d:     *
        """,
    ),
    "point_at_end": (
        lambda s: s.point_at_end(),
        """
        a:         *
        b:        *
        d:      *
        """,
    ),
    "alter_lifetime with a new end": (
        lambda s: s.alter_lifetime(end=g.col("start") + g.lit(4).cast(g.Duration("us"))),
        """
        a:     [===)
        b:       [===)
        c:         [===)
        d:     [===)
        """,
    ),
    "alter_lifetime from the end on": (
        lambda s: s.clip_duration("9us").alter_lifetime(start=g.col("end"), duration="2us"),
        """
        a:         [=)
        b:        [=)
        c:                  [=)
        d:      [=)
        """,
    ),
    "alter_lifetime with a new start alone": (
        lambda s: s.alter_lifetime(start=g.col("start") + g.lit(2).cast(g.Duration("us"))),
        """
        a:       [=)
        c:           [==>
        """,
    ),
    "hop_lifetime": (
        lambda s: s.hop_lifetime("4us", "2us", align=at_us(0)),
        """
        a:     [===)
        b:       [===)
        c:         [===)
        d:     [===)
        """,
    ),
    "hop_lifetime with gaps": (
        lambda s: s.hop_lifetime("2us", "5us", align=at_us(0)),
        """
        a:      [=)
        d:      [=)
        """,
    ),
    "quantize": (
        lambda s: s.quantize("4us", align=at_us(0)),
        """
        a:     [===)
        b:     [===)
        c:         [==>
        d:     [===)
        """,
    ),
    "quantize, progressively": (
        lambda s: s.quantize("4us", progress="2us", align=at_us(0)),
        """
        a:     [===)
        b:       [=)
        c:         [==>
        d:     [===)
        """,
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_lifetimes_change_as_drawn(device_name: str, name: str) -> None:
    verb, picture = PICTURES[name]
    check(verb(stream(timeline(RIDES))), device_name, timeline(picture))


def test_chop_cuts_at_the_grid(device_name: str) -> None:
    rides = timeline("""
        a:  [=======)
        b:     [=)
        c:    *
    """)
    pieces = timeline("""
        a:  [=|==|==)
        b:     [=)
        c:    *
    """)
    check(stream(rides).chop("3us", align=at_us(0)), device_name, pieces)


def test_chop_refuses_what_never_ends(device_name: str) -> None:
    with pytest.raises(TimeError, match="never ends"):
        stream(timeline("a: [=>")).chop("3us").collect(device=device_name)


def test_stitch_joins_equal_payloads_that_touch(device_name: str) -> None:
    rides = timeline("""
        a: [==|=|==)   [=)
        b:    [=)
        b:       [=)
        a:   [====)
    """)
    joined = timeline("""
        a: [=======)   [=)
        b:    [=)
        b:       [=)
        a:   [====)
    """)
    check(stream(rides).stitch(), device_name, joined)


def test_stitch_continues_first_what_began_first(device_name: str) -> None:
    rides = timeline("""
        a:   [===|==)
        a: [=====|)
    """)
    joined = timeline("""
        a: [======)
        a:   [======)
    """)
    check(stream(rides).stitch(), device_name, joined)


def test_stitch_takes_nulls_nans_and_zeros_as_equal(device_name: str) -> None:
    nan = float("nan")
    rides = [
        Event(0, 2, {"x": nan, "k": None}),
        Event(2, 4, {"x": nan, "k": None}),
        Event(0, 2, {"x": 0.0, "k": "a"}),
        Event(2, 4, {"x": -0.0, "k": "a"}),
    ]
    joined = [Event(0, 4, {"x": nan, "k": None}), Event(0, 4, {"x": 0.0, "k": "a"})]
    check(stream(rides).stitch(), device_name, joined)


def test_the_ends_of_time_are_kept(device_name: str) -> None:
    edge = [Event(FIRST_TIME, NEVER, {"v": 1})]
    check(stream(edge).shift("5us"), device_name, [Event(FIRST_TIME + 5, NEVER, {"v": 1})])
    check(stream(edge).extend("5us"), device_name, edge)
    check(stream(edge).clip_duration("5us"), device_name, [Event(FIRST_TIME, FIRST_TIME + 5, {"v": 1})])
    late = [Event(NEVER - 3, NEVER, {"v": 1})]
    check(stream(late).clip_duration("5us"), device_name, late)
    check(stream(edge).point_at_end(), device_name, [])


TOO_FAR: dict[str, tuple[Event, Verb]] = {
    "shift past the last time": (Event(0, NEVER - 5, {"v": 1}), lambda s: s.shift("6us")),
    "shift onto the open end": (Event(0, NEVER - 5, {"v": 1}), lambda s: s.shift("5us")),
    "shift before the first time": (Event(FIRST_TIME, 0, {"v": 1}), lambda s: s.shift("-1us")),
    "shift of an open event's start": (Event(NEVER - 5, NEVER, {"v": 1}), lambda s: s.shift("6us")),
    "set_duration past the last time": (Event(NEVER - 5, NEVER, {"v": 1}), lambda s: s.set_duration("6us")),
    "set_duration onto the open end": (Event(NEVER - 5, NEVER, {"v": 1}), lambda s: s.set_duration("5us")),
    "extend past the last time": (Event(0, NEVER - 5, {"v": 1}), lambda s: s.extend("6us")),
    "extend onto the open end": (Event(0, NEVER - 5, {"v": 1}), lambda s: s.extend("5us")),
    "point_at_end at the last time": (Event(0, NEVER - 1, {"v": 1}), lambda s: s.point_at_end()),
    "to_point at the last time": (Event(NEVER - 1, NEVER, {"v": 1}), lambda s: s.to_point()),
    "alter_lifetime past the last time": (
        Event(0, NEVER, {"v": 1}),
        lambda s: s.alter_lifetime(start=g.col("end"), duration="1us"),
    ),
    "hop_lifetime past the last time": (Event(NEVER - 5, NEVER, {"v": 1}), lambda s: s.hop_lifetime("10us")),
    "quantize past the last time": (Event(0, NEVER - 5, {"v": 1}), lambda s: s.quantize(us(10**15))),
    "quantize before the first time": (Event(FIRST_TIME, 0, {"v": 1}), lambda s: s.quantize("10us", align=at_us(5))),
}


@pytest.mark.parametrize("name", TOO_FAR)
def test_a_finite_time_never_leaves_the_years_1_to_9999(device_name: str, name: str) -> None:
    event, verb = TOO_FAR[name]
    with pytest.raises(TimeError, match="years 1 to 9999"):
        verb(stream([event])).collect(device=device_name)


def test_a_null_lifetime_is_an_error(device_name: str) -> None:
    rides = stream([Event(0, 5, {"v": 1}), Event(0, 5, {"v": None})])
    changed = rides.alter_lifetime(duration=us(g.col("v").cast(g.Duration("us"))))
    with pytest.raises(TimeError, match="null duration"):
        changed.collect(device=device_name)


def test_an_empty_lifetime_is_gone(device_name: str) -> None:
    rides = stream([Event(0, 5, {"v": 2}), Event(0, 5, {"v": 0}), Event(0, 5, {"v": -3})])
    changed = rides.alter_lifetime(duration=us(g.col("v").cast(g.Duration("us"))))
    check(changed, device_name, [Event(0, 2, {"v": 2})])


BAD_PLANS: dict[str, Verb] = {
    "duration of zero": lambda s: s.set_duration(0),
    "negative limit": lambda s: s.clip_duration("-1s"),
    "no span": lambda s: s.shift("ten minutes"),
    "progress that does not divide": lambda s: s.quantize("10us", "6us", progress="4us"),
    "nothing to alter": lambda s: s.alter_lifetime(),
    "a duration and an end": lambda s: s.alter_lifetime(duration="3us", end=g.col("end")),
    "a duration that is a number": lambda s: s.alter_lifetime(duration=g.col("v")),
    "a start that is a number": lambda s: s.alter_lifetime(start=g.col("v")),
    "a start from other rows": lambda s: s.alter_lifetime(start=g.col("start").min()),
    "an unknown column": lambda s: s.alter_lifetime(end=g.col("and")),
}


@pytest.mark.parametrize("name", BAD_PLANS)
def test_what_cannot_be_meant_is_refused_when_the_plan_is_made(name: str) -> None:
    with pytest.raises(PlanError):
        BAD_PLANS[name](stream([Event(0, 1, {"v": 1})]))


def test_a_hop_longer_than_its_window_gives_lifetimes_as_long_as_the_window(device_name: str) -> None:
    # windows (5 10] and (15 20], at 10 and 20; what starts between them is in none
    events = [Event(start, start + 1, {"v": start}) for start in (3, 6, 10, 11, 15, 16, 20)]
    hopped = [(6, 10), (10, 10), (16, 20), (20, 20)]
    expected = [Event(at, at + 5, {"v": start}) for start, at in hopped]
    check(stream(events).hop_lifetime(us(5), us(10), align=at_us(0)), device_name, expected)
    # membership="start" reports the same windows on the whole hop
    counts = [Event(10, 20, {"n": 2}), Event(20, 30, {"n": 2})]
    check(
        stream(events).hopping(us(5), us(10), align=at_us(0), membership="start").agg(n=g.count()), device_name, counts
    )
