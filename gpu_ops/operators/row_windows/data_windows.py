"""Data windows over the rows of some groups: when each row enters its window, and when it leaves.

Whatever depends on the order of rows is known from the existing rows; whatever depends on time is known once the CTI
has passed. So the same functions serve a batch, whose CTI is infinity, and each step of a running query, which has the
kept rows and the new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import narwhals as nw
import numpy as np
import pyarrow as pa

from gpu_ops.core.splitmix import STEP, mixed
from gpu_ops.core.time import MAX_TIME, TICK
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Block, Places, column_name, load_columns
from gpu_ops.operators.events import check_times
from gpu_ops.operators.row_order import ranks_of, row_order, run_ends, run_starts, stable_order
from gpu_ops.operators.state.rows import AxisRows
from gpu_ops.operators.windows import calendars
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.data_windows import (
    Alive,
    Best,
    DataWindow,
    First,
    FirstSpan,
    Last,
    LastStarts,
    Sample,
    Session,
    Sorted,
    TimeBatches,
    TimeLengthBatches,
)
from gpu_ops.plan.window_kinds import ASSIGNERS, CHANGED, OUT, UNKNOWN, DataWindowKind, Membership, WindowRows

_NO_BATCH = -(1 << 63)
"""What `timed_batches` gives for a row that opens no batch."""

Kind = TypeVar("Kind", bound=DataWindowKind)


def assigns(
    kind: type[Kind],
) -> Callable[[Callable[[Kind, WindowRows, Device], Membership]], Callable[[Kind, WindowRows, Device], Membership]]:
    """Register the function that computes how rows enter and leave a kind of window."""

    def registered(
        function: Callable[[Kind, WindowRows, Device], Membership],
    ) -> Callable[[Kind, WindowRows, Device], Membership]:
        ASSIGNERS[kind] = function
        return function

    return registered


def index_of(held: WindowRows) -> Any:
    """0, 1, …, one for each row."""
    return np.arange(len(held), like=held.start)


def _at(held: WindowRows, index: Any, device: Device) -> tuple[Any, Any]:
    """(times, rows) of the rows at some indices; (`UNKNOWN`, -1) if an index is past the end of the row's group."""
    take = device.kernels.take
    found = index < held.bounds[1:][held.code]
    index = np.where(found, index, -1)
    return np.where(found, take(held.start, np.maximum(index, 0)), UNKNOWN), index


def _numbered(held: WindowRows, number: Any, device: Device) -> tuple[Any, Any]:
    """(times, rows): for each row the first row of its group with at least a given number."""
    return _at(held, device.kernels.search_pairs(held.code, held.number, held.code, number - 1), device)


@assigns(Last)
def _last(window: Last, held: WindowRows, device: Device) -> Membership:
    count, every = window.count, window.every
    if every == 1 and window.partial and not bool((held.before > 0).any()):
        # No group has rows from earlier steps.
        same = held.code[count:] == held.code[:-count]
        left = np.full_like(held.start, UNKNOWN)
        left[:-count] = np.where(same, held.start[count:], UNKNOWN)
        if not held.rows:
            return Membership(held.start, left, None, None)
        by = np.where(left == UNKNOWN, -1, index_of(held) + count)
        return Membership(held.start, left, index_of(held), by)
    if every == 1 and window.partial:
        left, by = _numbered(held, held.number + count, device)
        return Membership(held.start, left, index_of(held), by)
    enter = held.number // every * every + (every - 1)
    if not window.partial:
        enter = np.maximum(enter, (count - 1) // every * every + (every - 1))
    leave = (held.number + count) // every * every + (every - 1)
    entered, row = _numbered(held, enter, device)
    left, by = _numbered(held, leave, device)
    # A row that is no longer among the last ones when the window moves never enters.
    return Membership(np.where(leave <= enter, OUT, entered), left, row, by)


@assigns(LastStarts)
def _last_starts(window: LastStarts, held: WindowRows, device: Device) -> Membership:
    entered, row = _numbered(held, np.maximum(held.number, window.count - 1), device)
    left, by = _numbered(held, held.number + window.count, device)
    return Membership(entered, left, row, by)


@assigns(First)
def _first(window: First, held: WindowRows, device: Device) -> Membership:
    return _ever(held, held.number < window.count)


@assigns(FirstSpan)
def _first_span(window: FirstSpan, held: WindowRows, device: Device) -> Membership:
    return _ever(held, inside_span(window, held))


def inside_span(window: FirstSpan, held: WindowRows) -> Any:
    """bool: which rows start within the span."""
    since = held.first[held.code] if window.since is None else window.since
    return (held.start >= since) & (held.start - since < window.span)


def _ever(held: WindowRows, inside: Any) -> Membership:
    never = np.full_like(held.start, MAX_TIME)
    return Membership(np.where(inside, held.start, OUT), never, index_of(held), np.full_like(held.start, -1))


@assigns(Alive)
def _alive(window: Alive, held: WindowRows, device: Device) -> Membership:
    return Membership(held.start, held.end, index_of(held), np.full_like(held.start, -1))


@assigns(TimeBatches)
def _time_batches(window: TimeBatches, held: WindowRows, device: Device) -> Membership:
    by_time = np.full_like(held.start, -1)
    if window.calendar is not None:
        if not len(held):
            return Membership(held.start, held.start, by_time, by_time)
        number, _ = calendars.overlapped(window.calendar, held.start, held.start + TICK, device)
        complete, over = (calendars.lifetimes(window.calendar, number + more, device)[1] for more in (0, 1))
        return Membership(complete, over, by_time, by_time)
    enter = batch_ends(window, held, device)
    return Membership(enter, enter + window.span, by_time, by_time)


def batch_ends(window: TimeBatches, held: WindowRows, device: Device) -> Any:
    """int64 ticks at which each row's batch is complete, on a regular grid."""
    origin = held.first[held.code] if window.align is None else window.align
    ends = (held.start - origin) // window.span * window.span + window.span + origin
    check_times(ends, window.span, device, verb="time_batches")
    return ends


@assigns(Session)
def _session(window: Session, held: WindowRows, device: Device) -> Membership:
    kernels, rows, start = device.kernels, len(held), held.start
    earlier = start[:-1]
    if held.continues:
        # The open session may be shown by its first row alone; the start of its last row was noted.
        is_old = held.number < held.before[held.code]
        earlier = np.where(is_old[:-1] & ~is_old[1:], held.noted[held.code[:-1]], earlier)
    fresh = np.concatenate([np.ones_like(start[:1], dtype=np.bool_), start[1:] - earlier >= window.gap])
    fresh[held.bounds[:-1]] = True
    opening, cap = _capped(window, held, fresh, device)
    opens = kernels.keep(opening)
    ends = np.concatenate([opens[1:], np.full_like(opens[:1], rows)])
    session, _ = kernels.expand(ends - opens)
    limit = np.full_like(opens, UNKNOWN) if cap is None else cap[opens]
    end = np.minimum(start[ends - 1] + window.gap, limit)
    # A finite end that lands on the maximum would read as "never ends": one tick past it, so that it is refused.
    end = np.where(end == MAX_TIME, MAX_TIME + TICK, end)
    check_times(start[opens], end, device, verb="session")
    code = held.code[opens]
    follows = ends < held.bounds[code + 1]
    leave = np.where(follows | (end <= held.cti), end, UNKNOWN)
    due = np.full_like(held.first, UNKNOWN)
    # Each group is written once: which of several values a GPU would keep is left to chance.
    newest = kernels.keep(run_ends(code))
    due[code[newest]] = np.where(leave[newest] == UNKNOWN, end[newest], UNKNOWN)
    by_time = np.full_like(start, -1) if held.rows else None
    enter = start if window.running else kernels.take(start[opens], session)
    # If all rows enter at the session's first start, time makes them enter.
    entered = index_of(held) if window.running else by_time
    leave, caps = kernels.take(leave, session), None if cap is None else kernels.take(limit, session)
    return Membership(enter, leave, entered, by_time, due, start[held.bounds[1:] - 1], caps)


def _capped(window: Session, held: WindowRows, fresh: Any, device: Device) -> tuple[Any, Any | None]:
    """(which rows open a session, the latest end of a session that each row opens; None without a cap).

    Args:
        window: The window.
        held: Its rows.
        fresh: The rows that come after a gap.
        device: Where arrays live.
    """
    if window.cap is None and window.grid_cap is None:
        return fresh, None
    kernels, rows, start = device.kernels, len(held), held.start
    grown, cut = _session_limits(window, start)
    begins, memo = held.bounds[:-1], cast("Any", held.memo)
    known = memo[begins]
    grown[begins] = np.where(known == UNKNOWN, grown[begins], known)
    # The last row of a session that is over is known by its time: the next row may continue that session.
    goes_on = (known == UNKNOWN) & (held.noted != UNKNOWN) & (start[begins] - held.noted < window.gap)
    # A session is opened by a row after a gap, or by a row that the cap cuts off: each row has a place for either.
    limits, codes = np.concatenate([grown, cut]), np.concatenate([held.code, held.code])
    gaps = kernels.keep(fresh)
    after = np.searchsorted(gaps, index_of(held), side="right")
    gap = np.where(after < len(gaps), gaps[np.minimum(after, len(gaps) - 1)], rows)
    over = kernels.search_pairs(held.code, start, codes, limits - 1)
    following = np.minimum(np.concatenate([gap, gap]), over)
    closed = following >= held.bounds[codes + 1]
    at = np.where(closed, 0, following)
    following = np.where(closed, 2 * rows, np.where(fresh[at], at, at + rows))
    found = kernels.reached(following, np.where(goes_on, begins + rows, begins))
    return found[:rows] | found[rows:], np.where(found[rows:], cut, grown)


def _session_limits(window: Session, start: Any) -> tuple[Any, Any]:
    """The latest end of a session that each row opens: (after a gap, after a session that the cap cut)."""
    grown = np.full_like(start, UNKNOWN) if window.cap is None else np.minimum(start + window.cap, UNKNOWN)
    if window.grid_cap is None:
        return grown, grown.copy()
    past = (start - window.align) % window.grid_cap
    ahead = start - past + window.grid_cap
    return np.minimum(grown, np.where(past == 0, ahead, ahead + window.grid_cap)), np.minimum(grown, ahead)


def gathering_begins(held: WindowRows) -> Any:
    """int64: for each group the index of the first row that has not entered; those that have entered stand first."""
    entered = np.concatenate([np.zeros_like(held.bounds[:1]), np.cumsum(held.enter != UNKNOWN)])
    return held.bounds[:-1] + entered[held.bounds[1:]] - entered[held.bounds[:-1]]


@dataclass(frozen=True)
class _BatchBounds:
    """Batches of rows, in order of group and time: batches that are out, complete, or still gathering.

    Attributes:
        opens: int64 index of each batch's first row.
        ends: int64 index after its last row.
        code: int32 group.
        over: int64 ticks at which its time is over; for a batch that is out, the time since when it is out.
        is_out: Whether it is out.
    """

    opens: Any
    ends: Any
    code: Any
    over: Any
    is_out: Any


@assigns(TimeLengthBatches)
def _time_length_batches(window: TimeLengthBatches, held: WindowRows, device: Device) -> Membership:
    kernels, rows, start = device.kernels, len(held), held.start
    made = _timed_batches(window, held, device)
    opens, ends, code = made.opens, made.ends, made.code
    full = (ends - opens == window.count) & ~made.is_out
    last = run_ends(code)
    known = made.is_out | ~last | (made.over <= held.cti)
    complete = np.where(full, start[ends - 1], np.where(known, made.over, UNKNOWN))
    latest = np.where(complete == UNKNOWN, start[opens], complete)
    check_times(start[opens], latest, device, verb="time_length_batches")
    by = np.where(full, ends - 1, -1)
    # A batch leaves when the next one is complete; without further rows, a span after it was complete.
    soon = ~last & (start[np.minimum(ends, rows - 1)] < complete + window.span)
    alone = np.where((complete + window.span <= held.cti) | ~last, complete + window.span, UNKNOWN)
    leave = np.where(soon, np.concatenate([complete[1:], complete[:1]]), np.where(complete == UNKNOWN, UNKNOWN, alone))
    left = np.where(soon, np.concatenate([by[1:], by[:1]]), -1)
    batch = np.searchsorted(opens, index_of(held), side="right") - 1
    due, noted = np.full_like(held.first, UNKNOWN), held.noted.copy()
    ending = kernels.keep(last)
    waits = np.where(complete == UNKNOWN, made.over, complete + window.span)[ending]
    due[code[ending]] = np.where((leave == UNKNOWN)[ending], waits, UNKNOWN)
    done = kernels.keep(complete != UNKNOWN)
    newest = done[kernels.keep(run_ends(code[done]))]
    noted[code[newest]] = complete[newest]
    return Membership(complete[batch], leave[batch], by[batch], left[batch], due, noted)


def _timed_batches(window: TimeLengthBatches, held: WindowRows, device: Device) -> _BatchBounds:
    kernels, start = device.kernels, held.start
    begins = gathering_begins(held)
    set_at = held.noted if window.since is None else np.where(held.noted == UNKNOWN, window.since, held.noted)
    turns = UNKNOWN if window.runs else 2
    over = kernels.timed_batches(start, begins, held.bounds[1:], set_at, window.span, window.count, turns)
    gathered = kernels.keep(over != _NO_BATCH)
    # The batch that is out is complete since its rows entered; it opens with the group's first row.
    leads = kernels.keep(begins > held.bounds[:-1])
    opens = np.concatenate([gathered, held.bounds[leads]])
    over = np.concatenate([over[gathered], held.noted[leads]])
    code = np.concatenate([held.code[gathered], leads.astype(np.int32)])
    is_out = np.arange(len(opens), like=start) >= len(gathered)
    order = np.argsort(opens, kind="stable")
    opens = opens[order]
    ends = np.concatenate([opens[1:], np.full_like(opens[:1], len(held))])
    return _BatchBounds(opens, ends, code[order], over[order], is_out[order])


@assigns(Best)
def _best(window: Best, held: WindowRows, device: Device) -> Membership:
    rank, ranked = best_ranks(window, held, device)
    unique = None
    if window.unique:
        same, count, _ = device.columns.key_codes(held.frame, window.unique)
        unique = held.code.astype(np.int64) * count + same
    return _greatest(window.count, rank, ranked, unique, held, device)


def best_ranks(window: Best, held: WindowRows, device: Device) -> tuple[Any, Any | None]:
    """(int64 rank of each row, the best the greatest; which rows have one, None for all)."""
    rank, ranked = ranks_of(held.frame, window.by, held.schema.field(window.by).type, device)
    return rank if window.highest else ~rank, ranked


@assigns(Sorted)
def _sorted(window: Sorted, held: WindowRows, device: Device) -> Membership:
    unique = None
    if window.unique:
        same, count, _ = device.columns.key_codes(held.frame, window.unique)
        unique = held.code.astype(np.int64) * count + same
    membership = _greatest(window.count, ~sorted_places(window, held, device), None, unique, held, device)
    if window.refused == "shown":
        refused = membership.enter == OUT
        membership.enter = np.where(refused, held.start, membership.enter)
        membership.leave = np.where(refused, held.start + TICK, membership.leave)
        membership.left = np.where(refused, index_of(held), membership.left)
    return membership


def sorted_places(window: Sorted, held: WindowRows, device: Device) -> Any:
    """int64: the place of each row in the order; equal rows have one place."""
    keys = []
    for name, descending in window.by:
        ranks, _ = ranks_of(held.frame, name, held.schema.field(name).type, device)
        keys.append(~ranks if descending else ranks)
    if len(keys) == 1:
        return keys[0]
    order = stable_order(keys, held.start, device)
    places = np.empty_like(order)
    places[order] = np.cumsum(run_starts(*(device.kernels.take(key, order) for key in keys)))
    return places


@assigns(Sample)
def _sample(window: Sample, held: WindowRows, device: Device) -> Membership:
    # All rows of one start come in one step.
    index = index_of(held)
    ties = device.kernels.keep(run_starts(held.code, held.start))
    among = index - ties[np.searchsorted(ties, index, side="right") - 1]
    is_new = held.number >= held.before[held.code]
    drawn: Any = np.where(is_new, hashes(window.seed, held.start, among), held.memo)
    membership = _greatest(window.count, ~drawn, None, None, held, device)
    membership.memo = drawn
    return membership


def _greatest(
    count: int, rank: Any, ranked: Any | None, unique: Any | None, held: WindowRows, device: Device
) -> Membership:
    """When rows are in that are among the best so far.

    Args:
        count: How many rows are in.
        rank: int64 for each row, the best the greatest.
        ranked: Which rows have a rank; None for all.
        unique: int64, equal for rows of which only one may be in; None if there is no such rule.
        held: The rows.
        device: Where arrays live.
    """
    kernels, index = device.kernels, index_of(held)
    rows = index if ranked is None else kernels.keep(ranked)
    same = held.start[:0] if unique is None else np.unique(unique[rows], return_inverse=True)[1].astype(np.int64)
    found = kernels.best_rows(held.code[rows], rank[rows], same, count)
    left = np.full_like(held.start, -1)
    membership = Membership(np.full_like(held.start, OUT), np.full_like(held.start, UNKNOWN), index, left)
    place = np.arange(len(rows), like=held.start)
    membership.enter[rows] = np.where(found == place, OUT, held.start[rows])
    leaves = kernels.keep((found != place) & (found < len(rows)))
    gone, by = rows[leaves], rows[found[leaves]]
    membership.leave[gone], membership.left[gone] = held.start[by], by
    return membership


# The kept rows that a step may change


def _last_changed(window: Last, before: Any, after: Any, due: Any, cti: int) -> Any:
    if window.every > 1:
        # When the window moves, rows enter and leave; in between none does.
        return np.where(after // window.every > before // window.every, UNKNOWN, 0)
    leaves = np.maximum(after - window.count, 0)
    return leaves if window.partial else _once_full(window.count, before, after, leaves)


def _once_full(count: int, before: Any, after: Any, leaves: Any) -> Any:
    # No row is in before there are ``count`` rows.
    return np.where(before >= count, leaves, np.where(after >= count, UNKNOWN, 0))


def _starts_changed(window: LastStarts, before: Any, after: Any, due: Any, cti: int) -> Any:
    return _once_full(window.count, before, after, np.maximum(after - window.count, 0))


def _due_changed(window: TimeBatches | Session, before: Any, after: Any, due: Any, cti: int) -> Any:
    # Before a session is due, no row comes a gap after the one before it.
    return np.where(due <= cti, UNKNOWN, 0)


CHANGED |= {Last: _last_changed, LastStarts: _starts_changed, TimeBatches: _due_changed, Session: _due_changed}


# A result for each row that enters


def moment_places(
    node: DataWindow,
    rows: AxisRows,
    codes: Any,
    membership: Membership,
    enters: Any | None,
    leaves: Any | None,
    device: Device,
) -> tuple[Any, Any]:
    """(places of enters, from 1 on, in the order in which rows enter; of leaves the place of the first enter after).

    The order is by time; at one time, those that time alone makes come before those that rows make. A row that leaves
    is not in any more at the place of its leave.

    Args:
        node: The window.
        rows: Rows, those among them with which others enter or leave.
        codes: int32 number of each row's key.
        membership: When they are in.
        enters: int64 indices of the rows whose enters have a place; None for all.
        leaves: int64 indices of the rows whose leaves have one; None for all.
        device: Where arrays live.
    """
    take = device.kernels.take
    order = row_order(codes, rows.low, rows.high, rows.frame, node.input.schema, node.order, device, ties=True)
    turn = None
    if order is not None:
        turn = np.empty_like(order)
        turn[order] = np.arange(len(rows), like=order)
    moments: list[Any] = []
    for at, time, by in (
        (enters, membership.enter, membership.entered),
        (leaves, membership.leave, membership.left),
    ):
        some = [codes, time, by] if at is None else [take(each, at) for each in (codes, time, by)]
        if turn is not None:
            some[2] = np.where(some[2] < 0, -1, turn[np.maximum(some[2], 0)])
        moments += some
    return device.kernels.moment_places(*moments)


def each_row(node: DataWindow, rows: AxisRows, codes: Any, membership: Membership, asked: Any, device: Device) -> Any:
    """Aggregates over what is in when some rows enter, right after that: a frame with a row for each.

    Every enter has a place on an axis of its own. The rows that are in after an enter hold its slot there.

    Args:
        node: The window and its aggregates.
        rows: The rows.
        codes: int32 number of each row's key.
        membership: When they are in.
        asked: int64 indices of the rows that are asked for.
        device: Where arrays live.
    """
    kernels, columns = device.kernels, device.columns
    inside = kernels.keep((membership.enter != OUT) & (membership.enter != UNKNOWN))
    content, entered = rows.frame, None
    if len(inside) < len(rows):
        content = columns.take(rows.frame, inside)
        entered = np.zeros_like(rows.low)
    some = None if entered is None else inside
    # A row that never leaves does so after all enters of its group: its time is the last one.
    low, high = moment_places(node, rows, codes, membership, some, some, device)
    if entered is None:
        entered = low
    else:
        entered[inside] = low
    aggregates, schema = node.aggregates, node.input.schema
    there = low < high
    if not bool(there.all()):
        # A row that leaves at its own enter may leave its slot empty: it stays there, but no aggregate counts it.
        aggregates, content, schema = _only(there, aggregates, content, schema, device)
        high = np.maximum(high, low + 1)
    size = int(low.max()) + 1
    if not kernels.ascends(low):
        order = np.argsort(low, kind="stable")
        low, high, content = low[order], high[order], columns.take(content, order)
    slots, some, pick = entered if len(asked) == len(entered) else kernels.take(entered, asked), asked, None
    if not bool((slots[1:] > slots[:-1]).all()):
        slots, first, pick = np.unique(slots, return_index=True, return_inverse=True)
        some = asked[first]
    loaded = load_columns(aggregates, schema, content, device)
    block = Block(device, low, high, size, loaded, schema, slots)

    def places() -> Places:
        start, owners = membership.enter[some], columns.key_codes(rows.frame, node.key)
        return Places(owners[0][some], start, start + TICK, owners[2], node.key)

    block.places = places
    values = block.results(aggregates)
    return values if pick is None else columns.take(values, pick)


def _only(
    there: Any, aggregates: Sequence[Aggregate], frame: Any, schema: pa.Schema, device: Device
) -> tuple[tuple[Aggregate, ...], Any, pa.Schema]:
    """(aggregates that count only some rows, a frame with the columns of these conditions, its types)."""
    columns, names = device.columns, dict[str | None, str]()
    for aggregate in aggregates:
        given = None if aggregate.filter is None else column_name(aggregate.filter)
        if given in names:
            continue
        holds = there
        if given is not None:
            values, valid = columns.values(frame, given)
            holds = there & values.astype(np.bool_) & (True if valid is None else valid)
        name = names[given] = f"__there {len(names)}"
        frame = columns.beside(frame, columns.build({name: (holds, None, pa.bool_())}))
        schema = schema.append(pa.field(name, pa.bool_()))
    made = (None if each.filter is None else column_name(each.filter) for each in aggregates)
    only = tuple(replace(each, filter=nw.col(names[name])) for each, name in zip(aggregates, made, strict=True))
    return only, frame, schema


def hashes(seed: int, start: Any, number: Any) -> Any:
    """int64 numbers that look drawn, of a seed, starts, and numbers among equal starts (SplitMix64)."""
    drawn = start.astype(np.uint64)
    for part in (np.uint64(seed % (1 << 64)), number.astype(np.uint64)):
        drawn = mixed(drawn * STEP + part)
    return drawn.astype(np.int64)
