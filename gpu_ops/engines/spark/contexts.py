"""What a slice of time is shown of a data window's rows, so that it knows when its own are in. Plans only, no Spark.

A row's stay hangs on rows that come before it and after it. Each kind of window says how far that reaches; where it
reaches back to the first row of all, a slice cannot know it, and the window is one task.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_ops.plan.calendars import Calendar
from gpu_ops.plan.data_windows import (
    Alive,
    Best,
    DataWindow,
    First,
    FirstSpan,
    Kind,
    Last,
    LastStarts,
    Sample,
    Session,
    TimeBatches,
    TimeLengthBatches,
)
from gpu_ops.plan.window_conditions import Until, While
from gpu_ops.time import MAX_TIME, MIN_TIME, format_span, format_time


@dataclass(frozen=True)
class Alone:
    """Each row by itself: a slice is shown those that start in it."""

    def __str__(self) -> str:
        return "a slice is shown the events that start in it"


@dataclass(frozen=True)
class Living:
    """The rows that are alive when one comes: a slice is shown all that are alive in it."""

    def __str__(self) -> str:
        return "a slice is shown the events that are alive in it"


@dataclass(frozen=True)
class Around:
    """So many rows before and after.

    Attributes:
        count: How many.
        every: The window moves at each so many-th row: a slice is told how many come before, but for multiples of it.
        starts: Whether distinct starts are counted, and not rows.
    """

    count: int
    every: int = 1
    starts: bool = False

    def __str__(self) -> str:
        return f"a slice is shown {self.count} {'starts' if self.starts else 'events'} before it and after it"


@dataclass(frozen=True)
class Silence:
    """What comes after no row has started for so long: a slice begins there.

    Attributes:
        gap: How long, in ticks.
    """

    gap: int

    def __str__(self) -> str:
        return f"a slice begins where no event has started for {format_span(self.gap)}"


@dataclass(frozen=True)
class Grid:
    """The rows of one stretch of a grid: a slice begins with a stretch.

    Attributes:
        span: How long a stretch is.
        align: A point of the grid; None for the group's first start.
        calendar: The stretches, if they are a calendar's.
    """

    span: int
    align: int | None
    calendar: Calendar | None = None

    def __str__(self) -> str:
        if self.calendar is not None:
            return f"a slice begins with a window of the calendar: {self.calendar}"
        point = "the first start" if self.align is None else format_time(self.align)
        return f"a slice begins so many times {format_span(self.span)} from {point}"


Context = Alone | Living | Around | Silence | Grid


def context(node: DataWindow) -> Context | str:
    """How far the stays of a window's rows reach; or why no bound is known, in words.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> s = g.events(pa.table({"at": [0, 1], "v": [1, 2]}), start="at", unit="s")
        >>> str(context(s.last(3).rows()._node))
        'a slice is shown 3 events before it and after it'
        >>> context(s.first(3).rows()._node)
        'which events come first, all before them say'
    """
    window = node.window
    if node.output == "each" and node.within:
        return "each event is told what is in the windows of all others too, and a slice does not see these"
    if isinstance(window, Alive):
        return Living() if node.output == "each" else Alone()
    if isinstance(window, Last):
        # With the last n at a multiple of m, a row is in until n + m - 1 rows after it at the latest.
        return Around(window.count + window.every - 1, window.every)
    if isinstance(window, LastStarts):
        return Around(window.count, starts=True)
    if isinstance(window, Session):
        return Silence(window.gap)
    if isinstance(window, TimeLengthBatches) and window.since is None and not window.runs:
        # The clock runs out for the batch that gathers, for the one that is out, and once more with nothing to do.
        return Silence(3 * window.span)
    if isinstance(window, TimeBatches):
        return Grid(window.span, window.align, window.calendar)
    return _unbounded(window)


def _unbounded(window: Kind) -> str:
    if isinstance(window, FirstSpan) and window.span > MAX_TIME - MIN_TIME:
        return "all events stay, and a slice would be shown all that come before it"
    if isinstance(window, First | FirstSpan):
        return "which events come first, all before them say"
    if isinstance(window, Best):
        return f"which values are the {'highest' if window.highest else 'lowest'} so far, all events before say"
    if isinstance(window, Sample):
        return "which events are drawn so far, all before them say"
    if isinstance(window, TimeLengthBatches):
        return "when the clock that never stops runs out, all events before say"
    if isinstance(window, While | Until):
        return "what the condition has left in the window, all events before say"
    return "what one window drops is dropped from the others, and all events before say what"
