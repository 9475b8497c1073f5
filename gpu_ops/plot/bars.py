"""Lifetimes as bars in rows: the start is inclusive (a full dot), the end exclusive (an empty dot)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import plain_type
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, TIME_TYPE
from gpu_ops.errors import PlanError
from gpu_ops.plot.pictures import COLORS, check_columns, natural, show_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

MOST_EVENTS = 60
"""More events than this are hard to tell apart; the first ones are drawn."""

ROW = 0.3
"""The height of a row, in inches."""

_DAY = 86_400_000_000

_INK = "0.25"
_LONGEST = 48
_LETTER = 0.009
"""The approximate width of a letter, as a share of the axis."""

_PLAIN: dict[str, Any] = {"parse_math": False}
"""Texts from the payload are no formulas, even with dollar signs."""


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """The first lifetimes of a table, by start, then by end.

    Attributes:
        table: Their rows.
        start: In ticks.
        end: In ticks; `MAX_TIME` where it is open.
        rows: The number of rows of the whole table.
        cut: The start of the first lifetime that is left out; None if none is.
    """

    table: pa.Table
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    rows: int
    cut: int | None

    @property
    def said(self) -> str:
        """A note about those that are left out."""
        return "" if self.table.num_rows == self.rows else f"the first {self.table.num_rows:,} of {self.rows:,}"


def first_lifetimes(table: pa.Table, most: int, columns: Sequence[str] = ()) -> Lifetimes:
    """The first rows of a result.

    Raises:
        ColumnError: A column, or a lifetime, is missing.
    """
    check_columns(table, columns)
    start, end = (table[name].cast(TIME_TYPE).cast(pa.int64()).to_numpy() for name in ("start", "end"))
    order = np.lexsort((end, start))
    first = order[:most]
    cut = int(start[order[most]]) if order.size > most else None
    # Arrow takes no rows of Polars' own kind of text.
    plain = table.cast(pa.schema([field.with_type(plain_type(field.type)) for field in table.schema]))
    return Lifetimes(plain.take(pa.array(first)), start[first], end[first], table.num_rows, cut)


@dataclass(frozen=True, eq=False)
class Marks:
    """Which events are in which windows, with an element for each such pair.

    Attributes:
        row: The window's.
        start: The event's, in ticks.
        end: The event's.
        window_start: The window's.
        window_end: The window's.
        place: Where in its row a stretch is drawn, from -0.5 to 0.5.
        colors: The event's.
    """

    row: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    window_start: NDArray[np.int64]
    window_end: NDArray[np.int64]
    place: NDArray[np.float64]
    colors: list[str]


@dataclass(frozen=True, eq=False)
class Bars:
    """Bars in rows, under a heading.

    Attributes:
        heading: A text in a row of its own above them; empty for none.
        labels: Each row's label.
        row: Each bar's.
        start: In ticks.
        end: In ticks.
        colors: Each bar's.
        texts: The text above each bar; behind it, if it is thick.
        thick: Whether bars are wide and pale, as a ground for marks.
        marks: The marks on the bars.
    """

    heading: str
    labels: list[str]
    row: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    colors: list[str]
    texts: list[str]
    thick: bool = False
    marks: Marks | None = None

    @property
    def height(self) -> int:
        """The height in rows."""
        return len(self.labels) + bool(self.heading)


def one_row_each(events: Lifetimes, columns: Sequence[str]) -> Bars:
    """A row for each event, labelled by its payload."""
    labels = written(events.table, columns)
    count = len(labels)
    return Bars(events.said, labels, np.arange(count), events.start, events.end, [COLORS[0]] * count, [""] * count)


def lanes(
    events: Lifetimes,
    keys: Sequence[str],
    texts: list[str],
    heading: str,
    *,
    color: Callable[[int, int], str] = lambda lane, event: COLORS[lane % len(COLORS)],
) -> Bars:
    """A lane for each key, with enough rows to keep its bars and their texts apart.

    Args:
        events: The lifetimes.
        keys: The columns whose values make the lanes; one lane without columns.
        texts: Each event's.
        heading: The heading of all lanes.
        color: The colour of each event, from its lane and its number.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    columns = [events.table[name].to_pylist() for name in keys]
    for event in range(len(events.start)):
        # Lists are no keys of a dictionary.
        groups.setdefault(tuple(repr(column[event]) for column in columns), []).append(event)
    named = [(tuple(_value(column[members[0]]) for column in columns), members) for members in groups.values()]
    low, high = _limits([(events.start, events.end)])
    taken = max(high - low, 1)
    row = np.zeros(len(events.start), np.int64)
    labels: list[str] = []
    colors = [""] * len(events.start)
    for lane, (key, members) in enumerate(sorted(named, key=lambda each: natural(each[0]))):
        free: list[int] = []
        for event in members:
            start, end = int(events.start[event]), int(min(events.end[event], high))
            reach = start + max(end - start, int(taken * max(len(texts[event]) * _LETTER, 0.02)))
            mine = next((at for at, until in enumerate(free) if until <= start), len(free))
            free[mine : mine + 1] = [reach]
            row[event] = len(labels) + mine
            colors[event] = color(lane, event)
        labels += [" ".join(key), *[""] * (len(free) - 1)]
    return Bars(headed(heading, events.said), labels, row, events.start, events.end, colors, texts)


def written(table: pa.Table, columns: Sequence[str]) -> list[str]:
    """Payloads as short texts: the value of a single column, or the name and value of each column."""
    values = [[_value(value) for value in table[name].to_pylist()] for name in columns]
    if len(columns) > 1:
        values = [[f"{name}={value}" for value in column] for name, column in zip(columns, values, strict=True)]
    return [shortened(" ".join(row)) for row in zip(*values, strict=True)] if columns else [""] * table.num_rows


def payload(table: pa.Table, but: Sequence[str] = ()) -> list[str]:
    """The payload's columns, without some."""
    return [name for name in table.column_names if name not in {"start", "end", *but}]


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return " ".join(map(_value, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def shortened(text: str) -> str:
    """A text that fits beside a picture."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def headed(heading: str, said: str) -> str:
    """A heading, with what is said about the events below it in parentheses."""
    return f"{heading} ({said})" if heading and said else heading or said


def height(sections: Sequence[Bars]) -> float:
    """The height of a picture of sections, in inches."""
    return 0.9 + ROW * sum(each.height for each in sections)


def draw_bars(axes: Axes, sections: Sequence[Bars], schema: pa.Schema) -> None:
    """Draws sections below each other, on one axis of time.

    Raises:
        PlanError: There is no bar.
    """
    if not any(each.start.size for each in sections):
        raise PlanError("There is nothing to draw: the result has no event.", remedy="See what a filter left.")
    low, high = _limits([(each.start, each.end) for each in sections])
    # matplotlib counts days as floats: far from 1970 it tells no microseconds apart.
    told_apart = 4 * int(np.spacing(max(abs(low), abs(high)) / _DAY) * _DAY)
    margin = max((high - low) // 40, told_apart, 1)
    axes.set_xlim(_time(max(low - margin, MIN_TIME)), _time(min(high + margin, MAX_TIME)))
    labels: list[str] = []
    for section in sections:
        if section.heading:
            place: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center"}
            axes.text(0, len(labels), section.heading, weight="bold", **place, **_PLAIN)
            labels.append("")
        _draw_section(axes, section, len(labels), high)
        labels += section.labels
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_yticks(range(len(labels)), labels, **_PLAIN)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.25)
    show_time(axes, schema)
    axes.spines["left"].set_visible(False)


def _limits(lifetimes: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> tuple[int, int]:
    """The first and the last known time, and a little more if an event never ends."""
    known = [np.concatenate([start, end[end < MAX_TIME]]) for start, end in lifetimes if start.size]
    if not known:
        return 0, 1
    times = np.concatenate(known)
    low, high = int(times.min()), int(times.max())
    endless = any((end == MAX_TIME).any() for _, end in lifetimes)
    return low, high + max((high - low) // 20, 1_000_000) * endless


def _time(ticks: Any) -> Any:
    return np.asarray(ticks, np.int64).astype("datetime64[us]")


def _draw_section(axes: Axes, bars: Bars, first: int, last: int) -> None:
    row = bars.row + first
    colors = np.array(bars.colors, dtype=object)
    point = bars.end - bars.start == TICK
    endless = bars.end == MAX_TIME
    end = np.minimum(bars.end, last)
    long = ~point
    body: dict[str, Any] = {"linewidth": 9, "alpha": 0.25} if bars.thick else {"linewidth": 3.5, "alpha": 0.6}
    axes.hlines(row[long], _time(bars.start[long]), _time(end[long]), colors=list(colors[long]), label="_bars", **body)
    if bars.marks is not None:
        _draw_marks(axes, bars.marks, first)
    marks: list[tuple[str, Any, NDArray[np.int64], dict[str, Any]]] = [
        ("_ends", long & ~endless, end, {"marker": "o", "facecolors": "white"}),
        ("_endless", endless, end, {"marker": ">"}),
        ("_starts", long, bars.start, {"marker": "o"}),
        ("_points", point, bars.start, {"marker": "D" if bars.thick else "o"}),
    ]
    for label, which, at, style in marks:
        if which.any():
            color = list(colors[which])
            paint: dict[str, Any] = {"edgecolors": color} if "facecolors" in style else {"color": color}
            axes.scatter(
                _time(at[which]), row[which], s=14 if bars.thick else 26, label=label, zorder=3, **style, **paint
            )
    look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "color": _INK, "zorder": 4, **_PLAIN}
    at, offset, place = (end, (7, 0), "center") if bars.thick else (bars.start, (-2, 4), "baseline")
    for time, where, text in zip(at, row, bars.texts, strict=True):
        if text:
            axes.annotate(text, (_time(time), where), offset, va=place, **look)


def _draw_marks(axes: Axes, marks: Marks, above: int) -> None:
    """Draws the part of each member's lifetime in the window; of a member outside, its start and a thread."""
    row = marks.row + above
    start = np.maximum(marks.start, marks.window_start)
    end = np.minimum(marks.end, marks.window_end)
    outside = start >= end
    point = ~outside & (marks.end - marks.start == TICK)
    inside = ~outside & ~point
    colors = np.array(marks.colors, dtype=object)
    if outside.any():
        # One thread for each window, from the member that starts first; the others would lie on it.
        _, first = np.unique(row[outside], return_index=True)
        thread = np.flatnonzero(outside)[first]
        window = np.where(marks.start < marks.window_start, marks.window_start, marks.window_end)
        style: dict[str, Any] = {"colors": "0.6", "linewidth": 0.6, "linestyle": "dotted", "label": "_threads"}
        axes.hlines(row[thread], _time(marks.start[thread]), _time(window[thread]), **style)
    if inside.any():
        place = (row + marks.place)[inside]
        style = {"colors": list(colors[inside]), "linewidth": 1.8, "label": "_stretches"}
        axes.hlines(place, _time(start[inside]), _time(end[inside]), **style)
    for label, which in (("_members", point), ("_members outside", outside)):
        if which.any():
            axes.scatter(_time(marks.start[which]), row[which], s=20, c=list(colors[which]), label=label, zorder=3.5)
