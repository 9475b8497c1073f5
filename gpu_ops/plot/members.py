"""Which event is in which window, or in which match of a pattern.

Windows are run with a list of their events as an aggregate; a match says when its events were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.api.events import events
from gpu_ops.api.stream import Stream, Windowed
from gpu_ops.core.time import TICK, TIME_TYPE, format_time
from gpu_ops.errors import ColumnError, PlanError, unknown_column
from gpu_ops.plan.ordered_aggregates import collect_list
from gpu_ops.plot.bars import Bars, Lifetimes, Marks, first_lifetimes, headed, lanes, payload, shortened, written
from gpu_ops.plot.pictures import COLORS

_MEMBERS = "__members"


def events_and_windows(
    stream: Stream, make: Callable[[Stream], Any], name: str | None, show: Mapping[str, Any], most: int
) -> tuple[list[Bars], pa.Schema]:
    """The events of a stream, and under them its windows; see `gpu_ops.plot.windows`."""
    if not isinstance(stream, Stream):
        raise PlanError(f"windows draws a stream, not {type(stream).__name__}.", remedy="Make one with g.events(…).")
    shown = first_lifetimes(pa.table(stream), most, [] if name is None else [name])
    name, shown = _named(shown, name)
    names = written(shown.table, [name])
    colors = [COLORS[at % len(COLORS)] for at in range(len(names))]
    above = lanes(shown, stream.key, names, "events", color=lambda _, event: colors[event])

    windows = make(events(shown.table, start="start", end="end").by(*stream.key))
    if not hasattr(windows, "agg"):
        raise PlanError(
            f"The function gives {type(windows).__name__}, not windows.",
            remedy='Write for instance plot.windows(bids, lambda bids: bids.tumbling("1min")).',
        )
    if isinstance(windows, Windowed):
        windows = _filled(windows, show)
    results = pa.table(windows.agg(**{_MEMBERS: collect_list(name)}, **show))
    heading = "windows"
    if shown.cut is not None:
        # Later windows may hold events that are not shown.
        ends = results["end"].cast(TIME_TYPE).cast(pa.int64()).to_numpy()
        results = results.filter(pa.array(ends <= shown.cut))
        heading = f"windows until {format_time(shown.cut)}"
    below = _windows(first_lifetimes(results, most), heading, stream.key, shown, name, colors)
    return [above, below], shown.table.schema


def _filled(windows: Windowed, show: Mapping[str, Any]) -> Windowed:
    """The same windows, with no members in filled rows, whatever else fills them."""
    filling = windows._filling  # noqa: SLF001  (the package's own)
    if filling is None:
        return windows
    words, span = filling
    words = {name: words if isinstance(words, str) else words.get(name, "null") for name in show}
    return Windowed(windows._node, windows._window, (words, span))  # noqa: SLF001


def _named(shown: Lifetimes, name: str | None) -> tuple[str, Lifetimes]:
    """The column that names events; by default numbers."""
    if name is None:
        name = "event"
        while name in shown.table.column_names:
            name += "_"
        return name, replace(shown, table=shown.table.append_column(name, pa.array(range(len(shown.start)))))
    column = shown.table[name]
    if column.null_count or len(column.unique()) < len(column):
        raise ColumnError(
            "Two events have the same name, or one has none.",
            column=name,
            remedy="Name a column whose values differ, or leave name= out: events are numbered then.",
        )
    return name, shown


def _windows(
    windows: Lifetimes, heading: str, keys: tuple[str, ...], shown: Lifetimes, name: str, colors: list[str]
) -> Bars:
    """A row for each window, labelled by its key and its members."""
    number = {value: at for at, value in enumerate(shown.table[name].to_pylist())}
    members = [[number[value] for value in found or ()] for found in windows.table[_MEMBERS].to_pylist()]
    names = written(shown.table, [name])
    labels = [shortened(" ".join(names[each] for each in found)) for found in members]
    if keys:
        groups = zip(*(written(windows.table, [key]) for key in keys), strict=True)
        labels = [f"{' '.join(group)}: {label}" for group, label in zip(groups, labels, strict=True)]
    row = np.repeat(np.arange(len(members)), [len(found) for found in members])
    event = np.array([each for found in members for each in found], np.int64)
    # Members lie above each other in the bar; of more than four, some share a place.
    place = [(at % 4 - (min(len(found), 4) - 1) / 2) * 0.11 for found in members for at in range(len(found))]
    marks = Marks(
        row,
        shown.start[event],
        shown.end[event],
        windows.start[row],
        windows.end[row],
        np.array(place),
        [colors[each] for each in event],
    )
    count = len(members)
    texts = written(windows.table, payload(windows.table, (*keys, _MEMBERS)))
    heading = headed(heading, windows.said)
    return Bars(
        heading, labels, np.arange(count), windows.start, windows.end, ["0.25"] * count, texts, thick=True, marks=marks
    )


def events_and_matches(
    matches: pa.Table, members: Mapping[str, str], over: Mapping[str, pa.Table], text: Sequence[str] | None, most: int
) -> tuple[list[Bars], dict[str, str]]:
    """The events, a heading for each stream, and under them the matches; and each member's colour.

    See `gpu_ops.plot.matches`.
    """
    colors = {name: COLORS[at % len(COLORS)] for at, name in enumerate(dict.fromkeys([*members, *over]))}
    times = [_times(matches, column) for column in members.values()]
    found = first_lifetimes(
        matches.append_column(_MEMBERS, pa.array([_together(each) for each in zip(*times, strict=True)], _PLACES)),
        most,
        [] if text is None else text,
    )
    above = []
    for name, table in over.items():
        shown = first_lifetimes(table, most)
        seen = [each.name for each in shown.table.schema if pa.types.is_timestamp(each.type)]  # on the axis
        said = written(shown.table, payload(shown.table, seen))
        above.append(lanes(shown, (), said, name, color=_always(colors[name])))
    return [*above, _matches(found, members, list(colors.values()), text)], {name: colors[name] for name in members}


def _always(color: str) -> Callable[[int, int], str]:
    return lambda lane, event: color


_PLACES = pa.list_(pa.struct({"member": pa.int64(), "at": pa.int64()}))


def _together(times: tuple[list[int], ...]) -> list[tuple[int, int]]:
    """The members of a match, by number and time."""
    return [(member, at) for member, found in enumerate(times) for at in found]


def _times(matches: pa.Table, column: str) -> list[list[int]]:
    """When a member was, in ticks: none for null, several for a list."""
    if column not in matches.column_names:
        raise unknown_column(column, matches.column_names, what="result")
    values = matches[column].combine_chunks()
    one = not (pa.types.is_list(values.type) or pa.types.is_large_list(values.type))
    kind = values.type if one else values.type.value_type
    if not pa.types.is_timestamp(kind):
        raise ColumnError(
            f"It is {values.type}, not a timestamp.",
            column=column,
            remedy="Let each match say when its events were: keep the time as a column of the events, too.",
        )
    if one:
        return [[] if each is None else [each] for each in values.cast(TIME_TYPE).cast(pa.int64()).to_pylist()]
    lists = values.cast(pa.list_(TIME_TYPE)).cast(pa.list_(pa.int64())).to_pylist()
    return [[at for at in each or () if at is not None] for each in lists]


def _matches(found: Lifetimes, members: Mapping[str, str], colors: list[str], text: Sequence[str] | None) -> Bars:
    """A row for each match: from its first member to when it was found."""
    said = [name for name in payload(found.table, (_MEMBERS, *members.values())) if name not in {"turn", "row"}]
    labels = written(found.table, said if text is None else text)
    places = [[(each["member"], each["at"]) for each in match] for match in found.table[_MEMBERS].to_pylist()]
    row = np.repeat(np.arange(len(places)), [len(match) for match in places])
    at = np.array([at for match in places for _, at in match], np.int64)
    start = found.start.copy()
    np.minimum.at(start, row, at)
    marks = Marks(
        row,
        at,
        at + TICK,
        start[row],
        np.maximum(found.end[row], at + TICK),
        np.zeros(len(row)),
        [colors[member] for match in places for member, _ in match],
    )
    count = len(places)
    return Bars(
        headed("matches", found.said),
        labels,
        np.arange(count),
        start,
        found.end,
        ["0.25"] * count,
        [""] * count,
        thick=True,
        marks=marks,
    )
