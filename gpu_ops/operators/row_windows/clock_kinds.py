"""Data windows by a clock, or by stamps: when each row enters its window, and when it leaves.

The clock is that of the rows' own column, and of the step's ticks. What falls due happens at the first tick whose clock
is at or past it. A row's own clock is before all times at which something falls due for it, so that no tick before the
row is taken for one after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_ops.core.time import MAX_TIME
from gpu_ops.core.turns import CLOCK
from gpu_ops.devices import Device
from gpu_ops.errors import TimeError
from gpu_ops.operators.row_order import greatest_by, run_ends, run_starts, stable_order
from gpu_ops.operators.row_windows.data_windows import assigns, gathering_begins, index_of
from gpu_ops.operators.row_windows.ticks import Ticks
from gpu_ops.plan.clock_windows import (
    Accumulated,
    ClockBatches,
    ClockLengthBatches,
    ClockSpan,
    FirstClock,
    StampBatches,
    StampSpan,
)
from gpu_ops.plan.window_kinds import CHANGED, OUT, UNKNOWN, DataWindowKind, Membership, WindowRows
from gpu_ops.plan.window_sets import WindowSet


def opening(window: DataWindowKind) -> int | None:
    """When a window is first due before any row has come; None if it waits for its first row."""
    if isinstance(window, WindowSet):
        found = (opening(part.window) for part in window.parts if isinstance(part.window, DataWindowKind))
        return next((each for each in found if each is not None), None)
    if isinstance(window, ClockBatches) and window.since is not None:
        since = np.array([window.since])
        return int(window.span.next_end(since, since if window.align is None else np.array([window.align]))[0])
    if isinstance(window, ClockLengthBatches) and window.since is not None:
        return int(window.span.after(np.array([window.since]))[0])
    return None


def clock_of(held: WindowRows, device: Device) -> Any:
    """int64: what the clock showed when each row came."""
    return device.columns.values(held.frame, CLOCK)[0]


def after(span: ClockSpan, times: Any, device: Device) -> Any:
    """int64: times that are a span after others; `UNKNOWN` stays."""
    if not span.months:
        return np.where(times == UNKNOWN, UNKNOWN, times + span.ticks)
    host = device.columns.host(times)
    some = np.where(host == UNKNOWN, 0, host)
    return device.columns.array(np.where(host == UNKNOWN, UNKNOWN, span.after(some)))


def next_end(span: ClockSpan, times: Any, point: Any, device: Device) -> Any:
    """int64: the first points of grids after some times; `UNKNOWN` stays."""
    if not span.months:
        return np.where(times == UNKNOWN, UNKNOWN, span.next_end(np.where(times == UNKNOWN, 0, times), point))
    host = device.columns.host(times)
    found = span.next_end(np.where(host == UNKNOWN, 0, host), device.columns.host(point))
    return device.columns.array(np.where(host == UNKNOWN, UNKNOWN, found))


def _by_none(held: WindowRows) -> Any:
    return np.full_like(held.start, -1)


@assigns(FirstClock)
def _first_clock(window: FirstClock, held: WindowRows, device: Device) -> Membership:
    clock = clock_of(held, device)
    inside, noted = inside_first(window, held, clock, device)
    never = np.full_like(held.start, MAX_TIME)
    return Membership(np.where(inside, held.start, OUT), never, index_of(held), _by_none(held), noted=noted)


def inside_first(window: FirstClock, held: WindowRows, clock: Any, device: Device) -> tuple[Any, Any]:
    """(which rows come in time, the time from which each group counts)."""
    noted = _noted_first(held, clock) if window.since is None else np.full_like(held.noted, window.since)
    return clock < after(window.span, noted, device)[held.code], noted


def _noted_first(held: WindowRows, values: Any) -> Any:
    """int64 for each group: what was noted, or the value of its first row."""
    first = np.minimum(held.bounds[:-1], max(len(held) - 1, 0))
    here = (held.bounds[1:] > held.bounds[:-1]) & (held.noted == UNKNOWN)
    return np.where(here, values[first], held.noted) if len(held) else held.noted


# Rows that leave together


@assigns(Accumulated)
def _accumulated(window: Accumulated, held: WindowRows, device: Device) -> Membership:
    """A run of rows with no tick a span after each of them; the rows of earlier steps are of one run."""
    kernels, start, clock = device.kernels, held.start, clock_of(held, device)
    due = np.full_like(held.first, UNKNOWN)
    if not len(held):
        return Membership(start, start, start, start, due, held.noted)
    is_old = held.number < held.before[held.code]
    # An open run may be shown by its first row alone; the clock of its last row was noted.
    last_old = is_old & ~np.concatenate([is_old[1:] & (held.code[1:] == held.code[:-1]), np.zeros_like(is_old[:1])])
    clock = np.where(last_old, held.noted[held.code], clock)
    until = after(window.span, clock, device)
    breaks = (clock[1:] >= until[:-1]) | (held.code[1:] != held.code[:-1])
    breaks = breaks & ~(is_old[1:] & is_old[:-1] & (held.code[1:] == held.code[:-1]))
    fresh = np.concatenate([np.ones_like(breaks, shape=(1,)), breaks])
    opens = kernels.keep(fresh)
    ends = np.concatenate([opens[1:], np.full_like(opens[:1], len(held))])
    run, _ = kernels.expand(ends - opens)
    fell = until[ends - 1]
    leave = held.ticks.places_at(held.ticks.first_at(fell))
    newest = kernels.keep(run_ends(held.code[opens]))
    code = held.code[opens[newest]]
    due[code] = np.where(leave[newest] == UNKNOWN, fell[newest], UNKNOWN)
    noted = held.noted.copy()
    noted[code] = clock[ends[newest] - 1]
    by_none = _by_none(held)
    take = kernels.take
    return Membership(start, take(leave, run), index_of(held), by_none, due, noted, fell=take(fell, run))


# Batches


@assigns(ClockBatches)
def _clock_batches(window: ClockBatches, held: WindowRows, device: Device) -> Membership:
    ticks, span, kernels, clock = held.ticks, window.span, device.kernels, clock_of(held, device)
    points = _noted_first(held, clock) if window.align is None else np.full_like(held.noted, window.align)
    # The next post of a row's batch, which is the last tick's doing once the row is in.
    is_new = held.number >= _of_rows(held.before, held, device)
    every_due = np.where(is_new, next_end(span, clock, _of_rows(points, held, device), device), held.memo)
    # The rows of a batch stand one behind the other: what becomes of them is computed once.
    begins = kernels.keep(run_starts(held.code, every_due, held.enter))
    run, _ = kernels.expand(np.diff(np.concatenate([begins, np.full_like(begins, len(held), shape=(1,))])))
    code, due, entered = (kernels.take(each, begins) for each in (held.code, every_due, held.enter))
    gathers, point = entered == UNKNOWN, points[code]
    posted = ticks.first_at(due)
    enter = np.where(gathers, ticks.places_at(posted), entered)
    over = np.where(gathers, next_end(span, ticks.clocks_at(posted), point, device), due)
    leave = ticks.places_at(ticks.first_at(over))
    memo = np.where(over == UNKNOWN, due, over)
    by_none = _by_none(held)
    membership = Membership(kernels.take(enter, run), kernels.take(leave, run), by_none, by_none, None, points)
    membership.memo, membership.fell = kernels.take(memo, run), kernels.take(over, run)
    membership.came = kernels.take(due, run)
    # Rows of groups that were not due may not be shown: nothing has become of them.
    before = np.where(held.due <= _last(ticks), UNKNOWN, held.due)
    if not window.runs:
        membership.due = np.minimum(before, _least_by(held, code, np.where(leave == UNKNOWN, memo, UNKNOWN), device))
        return membership
    is_new = kernels.take(is_new, begins)
    begin = np.minimum(held.due, _least_by(held, code, np.where(is_new, due, UNKNOWN), device))
    membership.due, at, fell = _posts(span, begin, points, ticks, device)
    membership.posts = _first_of_each(at, fell, device)
    return membership


def _of_rows(values: Any, held: WindowRows, device: Device) -> Any:
    """Values of groups for their rows; the only group's for all."""
    return values if len(values) == 1 else device.kernels.take(values, held.code.astype(np.int64))


def _posts(span: ClockSpan, due: Any, points: Any, ticks: Ticks, device: Device) -> tuple[Any, Any, Any]:
    """The posts of groups that post at each end of their grids, be it nothing.

    Args:
        span: The distance of the grids' points.
        due: int64: when the next post of each group is due; `UNKNOWN` for none.
        points: int64: a point of each group's grid.
        ticks: The moves of the clock.
        device: Where arrays live.

    Returns:
        (when each group's next post is due after that, the ticks of all posts, when each fell due).
    """
    kernels, at = device.kernels, ticks.first_at(due)
    if len(due) == 1 and len(ticks):
        # From each tick leads a way to the next one that posts.
        following = ticks.first_at(next_end(span, ticks.clock, np.full_like(ticks.clock, points[0]), device))
        posts = kernels.keep(kernels.reached(following, at)) if int(at[0]) < len(ticks) else at[:0]
        ends = next_end(span, ticks.clocks_at(posts), np.full_like(posts, points[0]), device)
        fell = np.concatenate([due, ends])
        return fell[-1:], posts, fell[:-1]
    found, due, group = [(at[:0], due[:0])], due.copy(), np.arange(len(due), like=due)
    while len(some := kernels.keep(at < len(ticks))):
        group, at = group[some], at[some]
        found.append((at, due[group]))
        due[group] = next_end(span, ticks.clocks_at(at), points[group], device)
        at = ticks.first_at(due[group])
    places, fell = (np.concatenate(each) for each in zip(*found, strict=True))
    return due, places, fell


def _first_of_each(at: Any, fell: Any, device: Device) -> tuple[Any, Any]:
    """The ticks of posts, each once, with the first of the times at which its posts fell due."""
    if not len(at):
        return at, fell
    order = stable_order([at, fell], at, device)
    at, fell = at[order], fell[order]
    first = device.kernels.keep(run_starts(at))
    return at[first], fell[first]


def _least_by(held: WindowRows, codes: Any, values: Any, device: Device) -> Any:
    """int64 for each group: the least of some values of groups; `UNKNOWN` without any."""
    if not len(values):
        return np.full_like(held.first, UNKNOWN)
    return np.minimum(~greatest_by(codes, ~values, len(held.first), device), UNKNOWN)


def _last(ticks: Ticks) -> int:
    return OUT if ticks.last is None else ticks.last


@assigns(ClockLengthBatches)
def _clock_length_batches(window: ClockLengthBatches, held: WindowRows, device: Device) -> Membership:
    ticks, kernels, begins = held.ticks, device.kernels, gathering_begins(held)
    found = kernels.clocked_batches(
        held.start,
        after(window.span, clock_of(held, device), device),
        begins,
        held.bounds[1:],
        held.noted,
        begins > held.bounds[:-1],
        ticks.place,
        ticks.clock,
        after(window.span, ticks.clock, device),
        window.count,
        int(window.runs),
    )
    enter, leave, came, fell, over, over_fell, timers, fired = found
    is_out = held.enter != UNKNOWN
    leave, fell = (np.where(is_out, first[held.code], each) for each, first in ((leave, over), (fell, over_fell)))
    enter = np.where(is_out, held.enter, enter)
    membership = Membership(enter, leave, _by_none(held), _by_none(held), timers, timers, fell=fell, came=came)
    if window.runs:
        posts = kernels.keep(fired)
        membership.posts = posts, ticks.clocks_at(posts)
    return membership


# Windows by stamps


@assigns(StampSpan)
def _stamp_span(window: StampSpan, held: WindowRows, device: Device) -> Membership:
    is_new = held.number >= held.before[held.code]
    latest = _running_max(np.where(is_new, stamps_of(window.stamp, held.frame, device), held.memo), held, device)
    over = device.kernels.search_pairs(held.code, latest, held.code, after(window.span, latest, device) - 1)
    leave, left = _at_rows(held, over)
    return Membership(held.start, leave, index_of(held), left, memo=latest)


@assigns(StampBatches)
def _stamp_batches(window: StampBatches, held: WindowRows, device: Device) -> Membership:
    kernels, stamps = device.kernels, stamps_of(window.stamp, held.frame, device)
    points = _noted_first(held, stamps) if window.align is None else np.full_like(held.noted, window.align)
    is_new = held.number >= held.before[held.code]
    # A row is past the end of the batch that gathers if the end of its own span is greater.
    ends = np.where(is_new, next_end(window.span, stamps, points[held.code], device), held.memo)
    ends = _running_max(ends, held, device)
    following = kernels.search_pairs(held.code, ends, held.code, ends)
    enter, entered = _at_rows(held, following)
    # The batch after that is complete with the first row past the end of that row's.
    second = kernels.take(following, np.minimum(following, max(len(held) - 1, 0))) if len(held) else following
    leave, left = _at_rows(held, np.where(entered < 0, len(held), second))
    enter = np.where(held.enter == UNKNOWN, enter, held.enter)
    return Membership(enter, leave, entered, left, noted=points, memo=ends)


def stamps_of(name: str, frame: Any, device: Device) -> Any:
    """int64 stamps.

    Raises:
        TimeError: A stamp is null.
    """
    stamps, valid = device.columns.values(frame, name)
    if valid is not None and not bool(valid.all()):
        raise TimeError("A row of a window by stamps has no stamp.", remedy="Filter such events out first.")
    return stamps


def _at_rows(held: WindowRows, index: Any) -> tuple[Any, Any]:
    """(places, rows) of the rows at some indices; (`UNKNOWN`, -1) if an index is past the end of the row's group."""
    found = index < held.bounds[1:][held.code]
    index = np.where(found, index, -1)
    return np.where(found, held.start[np.maximum(index, 0)], UNKNOWN) if len(held) else index, index


def _running_max(values: Any, held: WindowRows, device: Device) -> Any:
    """int64: for each row the greatest value of its group so far."""
    if len(held.first) == 1 or not len(held):
        return device.kernels.running_max(values)
    known, ranks = np.unique(values, return_inverse=True)
    lead = held.code.astype(np.int64) * len(known)
    return known[device.kernels.running_max(lead + ranks) - lead]


def _due_changed(window: DataWindowKind, before: Any, after: Any, due: Any, cti: int) -> Any:
    return np.where(due <= cti, UNKNOWN, 0)


def _none_changed(window: DataWindowKind, before: Any, after: Any, due: Any, cti: int) -> Any:
    return np.zeros_like(due)


CHANGED |= {Accumulated: _due_changed, ClockBatches: _due_changed, FirstClock: _none_changed}
