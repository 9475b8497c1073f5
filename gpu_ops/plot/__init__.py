"""Pictures of streams: values over time, lifetimes, windows with their events, and matches of patterns with theirs.

They need the extra ``plot``; nothing here keeps state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa

from gpu_ops.api.stream import Stream
from gpu_ops.core.arguments import whole
from gpu_ops.core.own_errors import own_errors
from gpu_ops.errors import PlanError, shown
from gpu_ops.plan.arguments import names
from gpu_ops.plot.bars import MOST_EVENTS, draw_bars, first_lifetimes, height, lanes, one_row_each, payload, written
from gpu_ops.plot.members import events_and_matches, events_and_windows
from gpu_ops.plot.pictures import need_matplotlib, picture
from gpu_ops.plot.steps import MOST_SERIES, draw_steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MOST_EVENTS", "MOST_SERIES", "matches", "need_matplotlib", "timeline", "windows"]


@own_errors
def timeline(
    result: Any,
    *,
    value: str | Sequence[str] = (),
    by: str | Sequence[str] = (),
    shape: Literal["lines", "stacked"] = "lines",
    text: str | Sequence[str] | None = None,
    under: Any = None,
    most: int = MOST_EVENTS,
    title: str | None = None,
    label: str | None = None,
    axes: Axes | None = None,
) -> Figure:
    """Draws events, or values, over time.

    Without ``value`` events are drawn: each is a bar from its start (a full dot: it is part of the lifetime) to its
    end (an empty one: it is not), a point is a dot, and what never ends an arrow. Each has a row, labelled by its
    payload; with ``by`` there is a lane for each key, and the payload stands on the bars. Results, ``under`` them, are
    on the same axis of time.

    With ``value`` numbers are drawn as levels: each from its start to its end, and nothing where there is no event.
    Where windows overlap, as hopping ones do, a value is drawn over the last hop of its window, so that each step is
    about the window that ends with it.

    Args:
        result: A stream, or any table-like thing with ``start`` and ``end`` timestamps.
        value: The numeric column to draw, or several; without it lifetimes are drawn.
        by: Columns whose distinct values make a series, or a lane, each.
        shape: ``"lines"``, or ``"stacked"`` areas upon each other, for counts and amounts that add up; a series then
            counts as 0 where it has no event.
        text: The columns that say what an event is: all of the payload that are not in ``by``, if left out.
        under: Another stream or table that is drawn below, or several by their names: results of windows, for instance.
        most: How many lifetimes of each are drawn at most: the first ones, and the picture says so.
        title: Stands above.
        label: Stands beside the values; their names if left out.
        axes: Where to draw, if not into a new figure.

    Returns:
        The figure; ``figure.savefig("timeline.png")`` writes it.

    Raises:
        GpuOpsError: matplotlib is not installed.
        ColumnError: A column is not there.
        PlanError: There is nothing to draw, values are not numbers, a series has several values at a time, negative
            values cannot be stacked, or an option for lifetimes is given with ``value``.

    Examples:
        >>> import gpu_ops as g
        >>> rides = pa.table({"a": [0, 60], "b": [120, 90], "zone": ["A", "B"]})
        >>> rides = g.events(rides, start="a", end="b", unit="s")
        >>> busy = rides.snapshot().agg(n=g.count())
        >>> figure = timeline(rides, under={"at once": busy})
        >>> [text.get_text() for text in figure.axes[0].texts], figure.axes[0].get_yticks().tolist()
        (['at once', '1', '2', '1'], [0, 1, 2, 3])
        >>> by_zone = rides.by("zone").snapshot().agg(n=g.count())
        >>> [line.get_label() for line in timeline(by_zone, value="n", by="zone").axes[0].lines]
        ['A', 'B']
    """
    need_matplotlib()
    values, groups = list(names(value, where="value")), list(names(by, where="by"))
    most = whole(most, name="most")
    if values:
        if text is not None or under is not None:
            raise PlanError("text= and under= are for lifetimes, and value= draws numbers.", remedy="Leave value= out.")
        table = _table(result)
        if axes is None:
            axes = picture().add_subplot()
        draw_steps(table, axes, values, groups, shape)
    else:
        events = first_lifetimes(_table(result), most, [*groups, *names(text or (), where="text")])
        schema = events.table.schema
        said = payload(events.table, groups) if text is None else list(names(text, where="text"))
        above = lanes(events, groups, written(events.table, said), "") if groups else one_row_each(events, said)
        sections = [above]
        for name, each in _named(under, "results").items():
            found = first_lifetimes(_table(each), most)
            keys = [key for key in groups if key in found.table.column_names]
            sections.append(lanes(found, keys, written(found.table, payload(found.table, keys)), name))
        if axes is None:
            axes = picture(height(sections)).add_subplot()
        draw_bars(axes, sections, schema)
    if label is not None:
        axes.set_ylabel(label)
    return _titled(axes, title)


@own_errors
def windows(
    stream: Stream,
    make: Callable[[Stream], Any],
    *,
    name: str | None = None,
    show: Mapping[str, Any] | None = None,
    most: int = MOST_EVENTS,
    title: str | None = None,
    axes: Axes | None = None,
) -> Figure:
    """Draws which event is in which window: the events above, each window below as a bar with its members marked.

    The windows are run, with a list of the members as an aggregate, and not drawn by rules of their own. A window's bar
    is the lifetime of its result, and its label names its members. A member is marked in its colour where its lifetime
    lies in the bar; one that lies outside, as in a sliding window, which holds what has been, by a dot at its start and
    a thread to the bar.

    Args:
        stream: The events, grouped or not.
        make: From a stream to windows over it: ``lambda bids: bids.tumbling("1min")``.
        name: A column that names the events; its values differ. Events are numbered by their starts if it is left out.
        show: Aggregates, as in ``agg``, that are written on the windows.
        most: How many events, and windows, are drawn at most: the first ones, and the picture says so. Windows that
            later events would still change are left out then.
        title: Stands above.
        axes: Where to draw, if not into a new figure.

    Returns:
        The figure.

    Raises:
        GpuOpsError: matplotlib is not installed.
        ColumnError: ``name`` is no column, or does not tell events apart.
        PlanError: There is nothing to draw, or ``make`` does not give windows.

    Examples:
        >>> import gpu_ops as g
        >>> bids = pa.table({"at": [1, 4, 12], "who": ["ann", "bob", "eve"], "price": [3, 9, 4]})
        >>> bids = g.events(bids, start="at", unit="s")
        >>> figure = windows(bids, lambda bids: bids.tumbling("10s"), name="who", show={"best": g.max("price")})
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['', '', '', 'ann bob', 'eve']
    """
    need_matplotlib()
    most = whole(most, name="most")
    sections, schema = events_and_windows(stream, make, name, show or {}, most)
    if axes is None:
        axes = picture(height(sections)).add_subplot()
    draw_bars(axes, sections, schema)
    return _titled(axes, title)


@own_errors
def matches(
    result: Any,
    members: Mapping[str, str] | Sequence[str],
    *,
    over: Mapping[str, Any] | None = None,
    text: str | Sequence[str] | None = None,
    most: int = MOST_EVENTS,
    title: str | None = None,
    axes: Axes | None = None,
) -> Figure:
    """Draws the matches of a pattern, each as a bar with its members marked, and the events above.

    A bar begins at the match's first member and ends where the match was found. A member is a dot of its colour.

    Args:
        result: The matches: deliveries of a pattern, of a text's query, or any table-like thing with ``start`` and
            ``end`` timestamps and a column with the time of each member.
        members: The columns that say when each member was: timestamps, null where there is none; lists of them for a
            step that is repeated. A mapping gives them names.
        over: Streams or tables that are drawn above, by their names: one that is called as a member has its colour.
        text: The columns that say what a match is: all others, if left out.
        most: How many matches, and events of each stream, are drawn at most: the first ones, and the picture says so.
        title: Stands above.
        axes: Where to draw, if not into a new figure.

    Returns:
        The figure.

    Raises:
        GpuOpsError: matplotlib is not installed.
        ColumnError: A column is not there, or is no time.
        PlanError: There is nothing to draw.

    Examples:
        >>> import gpu_ops as g
        >>> asked = pa.table({"at": [0, 2], "id": [1, 2]}).append_column("time", pa.array([0, 2], pa.timestamp("s")))
        >>> told = pa.table({"at": [3, 7], "id": [2, 1]}).append_column("time", pa.array([3, 7], pa.timestamp("s")))
        >>> asks, answers = (g.events(each, start="at", unit="s") for each in (asked, told))
        >>> one, two = g.arrivals(asks, answers)
        >>> met = g.pattern(g.every("ask", one) >> g.one("answer", two, on="id"))
        >>> found = met.deliveries("ask.id", "ask.time", "answer.time")
        >>> figure = matches(found, {"ask": "ask.time", "answer": "answer.time"}, text="ask.id")
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['', '2', '1']
    """
    need_matplotlib()
    most = whole(most, name="most")
    named = dict(members) if isinstance(members, Mapping) else {name: name for name in names(members, where="members")}
    if not named:
        raise PlanError("No column says when a member was.", remedy='Name them: members={"order": "order.time"}.')
    table = _table(result)
    above = {name: _table(each) for name, each in _named(over, "events").items()}
    said = None if text is None else list(names(text, where="text"))
    sections, colors = events_and_matches(table, named, above, said, most)
    if axes is None:
        axes = picture(height(sections)).add_subplot()
    draw_bars(axes, sections, table.schema)
    for name, color in colors.items():
        axes.scatter([], [], s=20, color=color, label=name)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(colors), frameon=False)
    return _titled(axes, title)


def _titled(axes: Axes, title: str | None) -> Figure:
    if title is not None:
        axes.set_title(title, loc="left")
    return cast("Figure", axes.get_figure(root=True))


def _table(given: Any) -> pa.Table:
    if isinstance(given, Stream):
        return pa.table(given)
    try:
        return pa.table(given)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise PlanError(
            f"{shown(given)} is neither a stream nor a table.", remedy="Draw what g.events(…) or .collect() gives."
        ) from error


def _named(given: Any, name: str) -> Mapping[str, Any]:
    if given is None:
        return {}
    return given if isinstance(given, Mapping) else {name: given}
