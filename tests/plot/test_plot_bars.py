"""Lifetimes and windows as bars: what is drawn, as matplotlib's own objects say."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import gpu_ops as g
from gpu_ops import plot
from gpu_ops.plot.pictures import COLORS
from tests.support.timeline import timeline as events_of

SECOND = 1_000_000


def stream(picture: str, *key: str) -> g.Stream:
    """The events of a picture, a column a second; the labels are the column ``name``."""
    events = events_of(picture, tick=SECOND)
    columns = {name: [event.payload[name] for event in events] for name in events[0].payload}
    times = {
        name: pa.array([getattr(event, name) for event in events]).cast(pa.timestamp("us", "UTC"))
        for name in ("start", "end")
    }
    return g.events(pa.table(times | columns), start="start", end="end").by(*key)


def seconds(dates: Any) -> list[float]:
    """What matplotlib counts in days since 1970."""
    return [round(float(each) * 86_400, 3) for each in np.atleast_1d(dates)]


def of_label(axes: Axes, label: str) -> list[Any]:
    return [each for each in axes.collections if each.get_label() == label]


def bars(axes: Axes, label: str = "_bars") -> list[tuple[float, float, float]]:
    """Row, start and end in seconds of each bar."""
    found: list[tuple[float, float, float]] = []
    for lines in of_label(axes, label):
        assert isinstance(lines, LineCollection)
        for (start, row), (end, _) in lines.get_segments():
            first, last = seconds([start, end])
            found.append((round(float(row), 2), first, last))
    return found


def dots(axes: Axes, label: str) -> list[tuple[float, float]]:
    """Row and second of each dot."""
    found: list[tuple[float, float]] = []
    for each in of_label(axes, label):
        assert isinstance(each, PathCollection)
        found += [(float(row), seconds(at)[0]) for at, row in np.asarray(each.get_offsets())]
    return found


def labels(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_a_row_for_each_lifetime_in_order_of_start() -> None:
    events = stream("""
        late:       [====)    n=1
        early: [========)     n=2
        point:    *           n=3
    """)
    (axes,) = plot.timeline(events).axes
    assert labels(axes) == ["name=early n=2", "name=point n=3", "name=late n=1"]
    assert bars(axes) == [(0, 0, 9), (2, 5, 10)]
    assert dots(axes, "_starts") == [(0, 0), (2, 5)]
    assert dots(axes, "_ends") == [(0, 9), (2, 10)]
    assert dots(axes, "_points") == [(1, 3)]
    assert axes.get_xlabel() == "time (UTC)"
    assert axes.get_ylim() == (2.5, -0.5)


def test_the_start_is_full_and_the_end_empty() -> None:
    (axes,) = plot.timeline(stream("a: [==)")).axes
    (start,), (end,) = of_label(axes, "_starts"), of_label(axes, "_ends")
    assert to_hex(start.get_facecolor()[0]) == COLORS[0].lower()
    assert to_hex(end.get_facecolor()[0]) == "#ffffff"
    assert to_hex(end.get_edgecolor()[0]) == COLORS[0].lower()


def test_what_never_ends_is_an_arrow() -> None:
    (axes,) = plot.timeline(
        stream("""
        a: [=======)
        b:  [==>
    """)
    ).axes
    ((row, at),) = dots(axes, "_endless")
    assert row == 1
    assert 8 < at <= seconds(axes.get_xlim()[1])[0]
    assert dots(axes, "_ends") == [(0, 8)]


def test_a_lane_for_each_key_of_as_many_rows_as_it_takes() -> None:
    events = stream("""
        a: [=====)            k=10
        b:    [=====)         k=10
        c:          [==)      k=10
        d: [========)         k=9
    """)
    (axes,) = plot.timeline(events, by="k").axes
    assert labels(axes) == ["9", "10", ""]
    assert sorted(bars(axes)) == [(0, 0, 9), (1, 0, 6), (1, 9, 12), (2, 3, 9)]
    assert sorted(texts(axes)) == ["a", "b", "c", "d"]
    assert texts(plot.timeline(events, by="k", text=()).axes[0]) == []


def test_the_text_of_a_short_bar_keeps_its_row_for_itself() -> None:
    table = pa.table({"at": [0, 1, 100], "name": ["a quite long name", "b", "c"], "k": [1, 1, 1]})
    (axes,) = plot.timeline(g.events(table, start="at", unit="s"), by="k").axes
    assert dots(axes, "_points") == [(0, 0), (1, 1), (0, 100)]


def test_results_stand_under_the_events_on_the_same_axis() -> None:
    events = stream("""
        a: [====)
        b:   [====)
    """)
    under = {"at once": events.snapshot().agg(n=g.count()), "none": events.filter(g.col("name") == "x")}
    (axes,) = plot.timeline(events, under=under).axes
    assert labels(axes) == ["a", "b", "", "", ""]
    assert bars(axes) == [(0, 0, 5), (1, 2, 7), (3, 0, 2), (3, 2, 5), (3, 5, 7)]
    assert texts(axes) == ["at once", "1", "2", "1", "none"]
    (axes,) = plot.timeline(events, under=under["at once"]).axes
    assert texts(axes)[0] == "results"


def test_results_of_the_same_key_have_lanes() -> None:
    events = stream("""
        a: [====)       k=1
        b:   [====)     k=2
    """)
    (axes,) = plot.timeline(events, by="k", under=events.by("k").snapshot().agg(n=g.count(), m=g.mean("k"))).axes
    assert labels(axes) == ["1", "2", "", "1", "2"]
    assert texts(axes) == ["a", "b", "results", "n=1 m=1", "n=1 m=2"]


def test_only_the_first_are_drawn_and_the_picture_says_so() -> None:
    table = pa.table({"at": list(range(5000, 0, -1))})
    (axes,) = plot.timeline(g.events(table, start="at", unit="s"), most=3).axes
    assert texts(axes) == ["the first 3 of 5,000"]
    assert dots(axes, "_points") == [(1, 1), (2, 2), (3, 3)]
    (axes,) = plot.timeline(g.events(table, start="at", unit="s")).axes
    assert len(dots(axes, "_points")) == plot.MOST_EVENTS


def test_a_long_payload_is_cut() -> None:
    (axes,) = plot.timeline(g.events(pa.table({"at": [0], "v": ["x" * 1000]}), start="at", unit="s")).axes
    assert labels(axes) == ["x" * 47 + "…"]


def test_payloads_of_any_type_are_written() -> None:
    table = pa.table({"at": [0], "v": pa.array([[1, None]]), "w": [1 / 3], "x": pa.array([None], pa.string())})
    (axes,) = plot.timeline(g.events(table, start="at", unit="s")).axes
    assert labels(axes) == ["v=1 null w=0.333333 x=null"]


def test_dollars_are_no_formula() -> None:
    table = pa.table({"at": [0, 9], "price": ["$5 to $6", r"$\nothing$"], "k": ["$", "$$"]})
    events = g.events(table, start="at", unit="s")
    for figure in (
        plot.timeline(events, by="k", under={"$x$ and $": events}),
        plot.timeline(events),
        plot.windows(events, lambda events: events.snapshot(), name="price", show={"best": g.max("price")}),
    ):
        figure.draw_without_rendering()
        assert all(not text.get_parse_math() for text in (*figure.axes[0].texts, *figure.axes[0].get_yticklabels()))


def test_lanes_of_lists() -> None:
    table = pa.table({"at": [0, 1], "k": [[1, 2], None]})
    (axes,) = plot.timeline(g.events(table, start="at", unit="s"), by="k").axes
    assert labels(axes) == ["1 2", "null"]


def test_tumbling_windows_hold_what_overlaps_them() -> None:
    # 0         10        20
    # |=========|=========|
    #  a  [=b======)   c
    events = stream("""
        a:  *
        b:    [========)
        c:                *
    """)
    (axes,) = plot.windows(events, lambda events: events.tumbling("10s"), name="name", show={"n": g.count()}).axes
    assert labels(axes) == ["", "", "", "a b", "b c"]
    assert texts(axes) == ["events", "a", "b", "c", "windows", "2", "2"]
    assert bars(axes)[-2:] == [(3, 0, 10), (4, 10, 20)]
    assert dots(axes, "_members") == [(3, 1), (4, 15)]
    assert [(round(row), start, end) for row, start, end in bars(axes, "_stretches")] == [(3, 3, 10), (4, 10, 12)]
    assert dots(axes, "_members outside") == []


def test_members_have_the_colour_of_their_event() -> None:
    (axes,) = plot.windows(stream("a: *  *"), lambda events: events.tumbling("10s")).axes
    (members,) = of_label(axes, "_members")
    assert [to_hex(color) for color in members.get_facecolor()] == [color.lower() for color in COLORS[:2]]
    (points,) = of_label(axes, "_points")
    assert [to_hex(color) for color in points.get_facecolor()] == [color.lower() for color in COLORS[:2]]


def test_a_sliding_window_holds_what_has_been() -> None:
    # a    *
    # b       *
    #      |==|==|==|
    (axes,) = plot.windows(stream("a: *  *"), lambda events: events.sliding("5s")).axes
    assert labels(axes)[-3:] == ["0", "0 1", "1"]
    assert bars(axes)[-3:] == [(3, 0, 3), (4, 3, 5), (5, 5, 8)]
    assert dots(axes, "_members") == [(3, 0), (4, 3)]
    assert dots(axes, "_members outside") == [(4, 0), (5, 3)]
    assert bars(axes, "_threads") == [(4, 0, 3), (5, 3, 5)]


def test_each_group_has_lanes_and_windows_of_its_own() -> None:
    events = stream(
        """
        a: [==)      k=x
        b:  [==)     k=y
        """,
        "k",
    )
    (axes,) = plot.windows(events, lambda events: events.snapshot(), name="name").axes
    assert labels(axes) == ["", "x", "y", "", "x: a", "y: b"]


def test_windows_that_later_events_would_change_are_left_out() -> None:
    table = pa.table({"at": [1, 2, 11, 12, 13, 25]})
    events = g.events(table, start="at", unit="s")
    (axes,) = plot.windows(events, lambda events: events.tumbling("10s"), most=4).axes
    # The fifth event starts at 13, in the second window.
    assert labels(axes)[-1] == "0 1"
    assert "events (the first 4 of 6)" in texts(axes)
    assert "windows until 1970-01-01T00:00:13Z" in texts(axes)


@pytest.mark.parametrize("fill", ["null", "zero", "last", {"n": "zero"}])
def test_empty_windows_are_drawn_without_members(fill: Any) -> None:
    events = stream("a: *             *")
    (axes,) = plot.windows(events, lambda events: events.tumbling("5s", fill=fill)).axes
    assert labels(axes)[-3:] == ["0", "", "1"]


def test_empty_windows_show_what_they_are_filled_with() -> None:
    events = stream("a: *             *")
    (axes,) = plot.windows(events, lambda events: events.tumbling("5s", fill="zero"), show={"n": g.count()}).axes
    assert texts(axes)[-3:] == ["1", "0", "1"]


def test_a_data_window_is_drawn_as_any_other() -> None:
    (axes,) = plot.windows(stream("a: * * * *"), lambda events: events.last(2)).axes
    assert labels(axes)[-4:] == ["0", "0 1", "1 2", "2 3"]
    assert [row for row, _ in dots(axes, "_endless")] == [6]


def test_windows_over_what_never_ends() -> None:
    events = stream("""
        a: [====)
        b:   [==>
    """)
    (axes,) = plot.windows(events, lambda events: events.snapshot(), name="name").axes
    assert labels(axes)[-3:] == ["a", "a b", "b"]
    assert [row for row, _ in dots(axes, "_endless")] == [2, 6]


def test_windows_may_be_grouped_in_the_function() -> None:
    events = stream("""
        a: [==)      k=x
        b:  [==)     k=y
    """)
    (axes,) = plot.windows(events, lambda events: events.by("k").last(1), name="name").axes
    assert labels(axes)[-2:] == ["a", "b"]
    assert texts(axes)[-2:] == ["x", "y"]


def test_the_numbers_make_way_for_a_column_of_their_name() -> None:
    events = g.events(pa.table({"at": [0, 1], "event": ["x", "x"]}), start="at", unit="s")
    (axes,) = plot.windows(events, lambda events: events.tumbling("5s")).axes
    assert labels(axes)[-1] == "0 1"


def test_polars_frames_are_drawn() -> None:
    frame = pl.DataFrame({"at": [0, 1], "who": ["a", "b"], "kind": pl.Series(["x", "y"], dtype=pl.Categorical)})
    events = g.events(frame, start="at", unit="s")
    assert labels(plot.timeline(events).axes[0]) == ["who=a kind=x", "who=b kind=y"]
    assert labels(plot.timeline(events.collect(), by="kind").axes[0]) == ["x", "y"]
    (axes,) = plot.windows(events.by("kind"), lambda events: events.tumbling("5s"), name="who").axes
    assert labels(axes)[-2:] == ["x: a", "y: b"]


def test_into_axes_that_are_given() -> None:
    figure = Figure()
    above, below = figure.subplots(2)
    events = stream("a: [==)")
    assert plot.timeline(events, axes=above, title="Events", label="who") is figure
    assert plot.windows(events, lambda events: events.snapshot(), axes=below, title="Windows") is figure
    assert (above.get_title(loc="left"), above.get_ylabel()) == ("Events", "who")
    assert below.get_title(loc="left") == "Windows"
    figure.draw_without_rendering()


@pytest.mark.parametrize(
    ("draw", "error", "message"),
    [
        (lambda events: plot.timeline(events, by="kk"), g.ColumnError, "no such column.*'kk'"),
        (lambda events: plot.timeline(events, text="kk"), g.ColumnError, "no such column.*'kk'"),
        (lambda events: plot.timeline(events, most=0), g.PlanError, "most is 0.*at least 1"),
        (lambda events: plot.timeline(events, value="v", under=events), g.PlanError, "under= are for lifetimes"),
        (lambda events: plot.timeline(events.filter(g.col("v") > 9)), g.PlanError, "nothing to draw"),
        (
            lambda events: plot.windows(events.filter(g.col("v") > 9), lambda events: events.snapshot()),
            g.PlanError,
            "nothing to draw",
        ),
        (lambda events: plot.timeline({"start": [1], "end": [2]}), g.ColumnError, "int64, not a timestamp.*'start'"),
        (lambda events: plot.windows(events, lambda events: events), g.PlanError, "gives Stream, not windows"),
        (
            lambda events: plot.windows(events, lambda events: events.snapshot(), name="v"),
            g.ColumnError,
            "the same name.*'v'.*numbered",
        ),
        (
            lambda events: plot.windows(pa.table(events), lambda events: events.snapshot()),
            g.PlanError,
            r"draws a stream, not Table.*g.events",
        ),
    ],
)
def test_what_cannot_be_drawn(draw: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        draw(stream("a: * *  v=1"))


def moments(*seconds: int | None) -> pa.Array:
    return pa.array([None if each is None else each * SECOND for each in seconds], pa.timestamp("us", "UTC"))


def test_a_match_goes_from_its_first_member_to_when_it_is_found() -> None:
    # second    0   1   2   3   4   5   6
    # first     a       b
    # then          a           b
    # last                          b b
    # found             1               2
    members = {"first": moments(0, 2), "then": moments(1, 4)}
    last = pa.array([None, [5 * SECOND, 5 * SECOND + SECOND // 2]], pa.list_(pa.timestamp("us", "UTC")))
    times = {"start": moments(2, 6), "end": moments(3, 7), "turn": [3, 9], "row": ["new", "new"]}
    found = pa.table({**times, "who": ["a", "b"], **members, "last": last})
    (axes,) = plot.matches(found, [*members, "last"], title="Found").axes
    assert labels(axes) == ["", "a", "b"]
    assert bars(axes) == [(1, 0, 3), (2, 2, 7)]
    assert dots(axes, "_members") == [(1, 0), (1, 1), (2, 2), (2, 4), (2, 5), (2, 5.5)]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["first", "then", "last"]
    assert axes.get_title(loc="left") == "Found"


def test_streams_above_matches_have_the_colours_of_their_members() -> None:
    found = pa.table({"start": moments(3), "end": moments(4), "a.time": moments(1), "b.time": moments(3)})
    streams = {name: stream(f"{name}: * *") for name in ("b", "c", "a")}
    (axes,) = plot.matches(found, {"a": "a.time", "b": "b.time"}, over=streams).axes
    assert [text.get_text() for text in axes.texts if text.get_fontweight() == "bold"] == ["b", "c", "a", "matches"]
    colors = [to_hex(color) for each in of_label(axes, "_points") for color in each.get_facecolors()]
    assert [each.upper() for each in colors] == [COLORS[1]] * 2 + [COLORS[2]] * 2 + [COLORS[0]] * 2


@pytest.mark.parametrize(
    ("draw", "error", "message"),
    [
        (lambda found: plot.matches(found, ["tt"]), g.ColumnError, "no such column.*'tt'"),
        (lambda found: plot.matches(found, ["who"]), g.ColumnError, "string, not a timestamp.*'who'.*keep the time"),
        (lambda found: plot.matches(found, []), g.PlanError, "No column says when a member was"),
        (lambda found: plot.matches(found, ["start"], text="x"), g.ColumnError, "no such column.*'x'"),
        (lambda found: plot.matches(found.slice(1), ["start"]), g.PlanError, "nothing to draw"),
    ],
)
def test_which_matches_cannot_be_drawn(draw: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        draw(pa.table({"start": moments(3), "end": moments(4), "who": ["a"]}))


@pytest.mark.filterwarnings("ignore:Plotting microsecond time intervals")  # matplotlib's own, of coarse ticks
@pytest.mark.parametrize("year", ["0001-01-02", "1970-01-01", "2024-02-29", "9999-12-30"])
def test_windows_of_a_microsecond_are_drawn_in_any_year(year: str) -> None:
    start = datetime.fromisoformat(year).replace(tzinfo=UTC)
    events = g.events(
        pa.table({"start": [start], "end": [start + timedelta(microseconds=1)]}), start="start", end="end"
    )
    for make in (lambda events: events.tumbling("1us"), lambda events: events.snapshot()):
        figure = plot.windows(events, make)
        low, high = figure.axes[0].get_xlim()
        assert low < high
        figure.savefig(io.BytesIO())
