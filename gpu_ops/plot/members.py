"""Which event is in which window: the windows are run with a list of their events as an aggregate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.api.events import events
from gpu_ops.api.stream import Stream, Windowed
from gpu_ops.core.time import TIME_TYPE, format_time
from gpu_ops.errors import ColumnError, PlanError
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
