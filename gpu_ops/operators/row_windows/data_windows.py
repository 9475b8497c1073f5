"""Data windows over the rows of some groups: when each row enters its window, and when it leaves.

What a row's place among the others decides is known by the rows that are there; what time decides is known once the CTI
has passed it. So the same functions serve a batch, whose CTI is infinity, and each step of a running query, which has
the rows that are not done yet beside the new ones.
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
from gpu_ops.operators.aggregates.block import column_name
from gpu_ops.operators.events import Events, check_times, concat
from gpu_ops.operators.windows import calendars
from gpu_ops.operators.windows.windows import window_aggregate
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
    TimeBatches,
    TimeLengthBatches,
)
from gpu_ops.plan.nodes import Feed
from gpu_ops.plan.window_kinds import ASSIGNERS, CHANGED, OUT, UNKNOWN, DataWindowKind, Membership, WindowRows
from gpu_ops.plan.windows import Snapshot, WindowAggregate

_NULL = -(1 << 63)

Kind = TypeVar("Kind", bound=DataWindowKind)


def assigns(
    kind: type[Kind],
) -> Callable[[Callable[[Kind, WindowRows, Device], Membership]], Callable[[Kind, WindowRows, Device], Membership]]:
    """Let a function say how rows enter and leave a kind of window."""

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
    """(times, rows) of the rows at some indices, where each is still in the group of its own row."""
    take = device.kernels.take
    found = index < held.bounds[1:][held.code]
    index = np.where(found, index, -1)
    return np.where(found, take(held.start, np.maximum(index, 0)), UNKNOWN), index


def _numbered(held: WindowRows, number: Any, device: Device) -> tuple[Any, Any]:
    """(times, rows): for each row the first one of its group that has at least some number."""
    return _at(held, device.kernels.search_pairs(held.code, held.number, held.code, number - 1), device)


@assigns(Last)
def _last(window: Last, held: WindowRows, device: Device) -> Membership:
    count, every = window.count, window.every
    if every == 1 and window.partial and not bool((held.before > 0).any()):
        # All rows of a group are there.
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
    # Rows that are no longer among the last when the window moves again are passed over.
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
    if window.since is None:
        return _ever(held, held.start - held.first[held.code] < window.span)
    return _ever(held, (held.start >= window.since) & (held.start - window.since < window.span))


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
    origin = held.first[held.code] if window.align is None else window.align
    enter = (held.start - origin) // window.span * window.span + window.span + origin
    check_times(enter, window.span, device, verb="time_batches")
    return Membership(enter, enter + window.span, by_time, by_time)


@assigns(Session)
def _session(window: Session, held: WindowRows, device: Device) -> Membership:
    kernels, rows, start = device.kernels, len(held), held.start
    fresh = np.concatenate([np.ones_like(start[:1], dtype=np.bool_), start[1:] - start[:-1] >= window.gap])
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
    newest = kernels.keep(_ends_group(code))
    due[code[newest]] = np.where(leave[newest] == UNKNOWN, end[newest], UNKNOWN)
    by_time = np.full_like(start, -1) if held.rows else None
    enter = start if window.running else kernels.take(start[opens], session)
    # Who is in a session from its first start on enters there with all the others.
    entered = index_of(held) if window.running else by_time
    leave, caps = kernels.take(leave, session), None if cap is None else kernels.take(limit, session)
    return Membership(enter, leave, entered, by_time, due, start[held.bounds[1:] - 1], caps)


def _capped(window: Session, held: WindowRows, fresh: Any, device: Device) -> tuple[Any, Any | None]:
    """(which rows open a session, when one that each row opens ends at the latest): None where nothing caps it.

    Args:
        window: The window.
        held: Its rows.
        fresh: Which rows come after a gap.
        device: Where arrays live.
    """
    if window.cap is None and window.grid_cap is None:
        return fresh, None
    kernels, rows, start = device.kernels, len(held), held.start
    grown, cut = _session_limits(window, start)
    begins, memo = held.bounds[:-1], cast("Any", held.memo)
    known = memo[begins]
    grown[begins] = np.where(known == UNKNOWN, grown[begins], known)
    # Of a session that is over and gone it is known when its last row came: the next one may go on with it.
    goes_on = (known == UNKNOWN) & (held.noted != UNKNOWN) & (start[begins] - held.noted < window.gap)
    # A session is opened by a row after a gap, or by one that the cap has cut off: one place for either.
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
    """When a session ends at the latest that opens with each row: (after a gap, as the one before was cut)."""
    grown = np.full_like(start, UNKNOWN) if window.cap is None else np.minimum(start + window.cap, UNKNOWN)
    if window.grid_cap is None:
        return grown, grown.copy()
    past = (start - window.align) % window.grid_cap
    ahead = start - past + window.grid_cap
    return np.minimum(grown, np.where(past == 0, ahead, ahead + window.grid_cap)), np.minimum(grown, ahead)


def _ends_group(code: Any) -> Any:
    """bool: which of some rows, that stand by group, are the last of theirs.

    Where something is written for each group it is theirs: which of several a GPU would keep is left to chance.
    """
    return np.concatenate([code[1:] != code[:-1], np.ones_like(code[:1], dtype=np.bool_)])


@dataclass(frozen=True)
class _Batches:
    """Batches of rows, in order of group and time: those that are out, complete, or gather.

    Attributes:
        opens: int64 index of each one's first row.
        ends: int64 index after its last row.
        code: int32 group.
        over: int64 ticks at which its clock has run out; of one that is out, since when it is.
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
    last = _ends_group(code)
    known = made.is_out | ~last | (made.over <= held.cti)
    complete = np.where(full, start[ends - 1], np.where(known, made.over, UNKNOWN))
    latest = np.where(complete == UNKNOWN, start[opens], complete)
    check_times(start[opens], latest, device, verb="time_length_batches")
    by = np.where(full, ends - 1, -1)
    # It goes when the next one is complete; a span after it came, if no row comes before.
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
    newest = done[kernels.keep(_ends_group(code[done]))]
    noted[code[newest]] = complete[newest]
    return Membership(complete[batch], leave[batch], by[batch], left[batch], due, noted)


def _timed_batches(window: TimeLengthBatches, held: WindowRows, device: Device) -> _Batches:
    kernels, start = device.kernels, held.start
    # Rows of the batch that is out come first; those of the one that gathers have not entered yet.
    out = np.concatenate([np.zeros_like(held.bounds[:1]), np.cumsum(held.enter != UNKNOWN)])
    begins = held.bounds[:-1] + out[held.bounds[1:]] - out[held.bounds[:-1]]
    set_at = held.noted if window.since is None else np.where(held.noted == UNKNOWN, window.since, held.noted)
    turns = UNKNOWN if window.runs else 2
    over = kernels.timed_batches(start, begins, held.bounds[1:], set_at, window.span, window.count, turns)
    gathered = kernels.keep(over != _NULL)
    # What is out is a batch too, complete since the rows entered; so it opens with the group's first row.
    leads = kernels.keep(begins > held.bounds[:-1])
    opens = np.concatenate([gathered, held.bounds[leads]])
    over = np.concatenate([over[gathered], held.noted[leads]])
    code = np.concatenate([held.code[gathered], leads.astype(np.int32)])
    is_out = np.arange(len(opens), like=start) >= len(gathered)
    order = np.argsort(opens, kind="stable")
    opens = opens[order]
    ends = np.concatenate([opens[1:], np.full_like(opens[:1], len(held))])
    return _Batches(opens, ends, code[order], over[order], is_out[order])


@assigns(Best)
def _best(window: Best, held: WindowRows, device: Device) -> Membership:
    rank, ranked = ranks_of(held.frame, window.by, held.schema.field(window.by).type, device)
    unique = None
    if window.unique:
        same, count, _ = device.columns.key_codes(held.frame, window.unique)
        unique = held.code.astype(np.int64) * count + same
    return _greatest(window.count, rank if window.highest else ~rank, ranked, unique, held, device)


@assigns(Sample)
def _sample(window: Sample, held: WindowRows, device: Device) -> Membership:
    # All rows of one start come in one step.
    index = index_of(held)
    fresh = np.concatenate([np.ones_like(index[:1], dtype=np.bool_), held.start[1:] != held.start[:-1]])
    fresh[held.bounds[:-1]] = True
    ties = device.kernels.keep(fresh)
    among = index - ties[np.searchsorted(ties, index, side="right") - 1]
    is_new = held.number >= held.before[held.code]
    drawn: Any = np.where(is_new, hashes(window.seed, held.start, among), held.memo)
    stay = _greatest(window.count, ~drawn, None, None, held, device)
    stay.memo = drawn
    return stay


def _greatest(
    count: int, rank: Any, ranked: Any | None, unique: Any | None, held: WindowRows, device: Device
) -> Membership:
    """When rows are in that are the best of those so far.

    Args:
        count: How many are in.
        rank: int64 for each row, the best the greatest.
        ranked: Which rows have one; None for all.
        unique: int64, equal for rows of which only one may be in; None where any may.
        held: The rows.
        device: Where arrays live.
    """
    kernels, index = device.kernels, index_of(held)
    rows = index if ranked is None else kernels.keep(ranked)
    same = held.start[:0] if unique is None else np.unique(unique[rows], return_inverse=True)[1].astype(np.int64)
    found = kernels.best_rows(held.code[rows], rank[rows], same, count)
    left = np.full_like(held.start, -1)
    stay = Membership(np.full_like(held.start, OUT), np.full_like(held.start, UNKNOWN), index, left)
    place = np.arange(len(rows), like=held.start)
    stay.enter[rows] = np.where(found == place, OUT, held.start[rows])
    leaves = kernels.keep((found != place) & (found < len(rows)))
    gone, by = rows[leaves], rows[found[leaves]]
    stay.leave[gone], stay.left[gone] = held.start[by], by
    return stay


# What a step may change


def _last_changed(window: Last, before: Any, after: Any, due: Any, cti: int) -> Any:
    if window.every > 1:
        # When the window moves, rows enter and leave; in between none does.
        return np.where(after // window.every > before // window.every, UNKNOWN, 0)
    leaves = np.maximum(after - window.count, 0)
    return leaves if window.partial else _once_full(window.count, before, after, leaves)


def _once_full(count: int, before: Any, after: Any, leaves: Any) -> Any:
    # Before there are as many, none is in.
    return np.where(before >= count, leaves, np.where(after >= count, UNKNOWN, 0))


def _starts_changed(window: LastStarts, before: Any, after: Any, due: Any, cti: int) -> Any:
    return _once_full(window.count, before, after, np.maximum(after - window.count, 0))


def _batches_changed(window: TimeBatches, before: Any, after: Any, due: Any, cti: int) -> Any:
    return np.where(due <= cti, UNKNOWN, 0)


CHANGED |= {Last: _last_changed, LastStarts: _starts_changed, TimeBatches: _batches_changed}


# One row for each


def each_row(node: DataWindow, frame: Any, start: Any, end: Any, stay: Membership, rows: Any, device: Device) -> Any:
    """Aggregates over what is in when some rows enter, right after that: a frame with a row for each.

    All that comes and goes in a group is put in order, by time, what time alone does before what rows do. So every
    enter and leave has a place on an axis of its own, and the snapshots along it are what is asked.

    Args:
        node: The window and its aggregates.
        frame: The payload.
        start: int64 ticks.
        end: int64 ticks.
        stay: When the rows are in.
        rows: int64 indices of those that are asked for.
        device: Where arrays live.
    """
    kernels = device.kernels
    codes, _, _ = device.columns.key_codes(frame, node.key)
    order = row_order(codes, start, end, frame, node.input.schema, node.order, device, ties=True)
    turn = np.arange(len(start), like=start)
    if order is not None:
        turn[order] = turn.copy()
    inside = kernels.keep((stay.enter != OUT) & (stay.enter != UNKNOWN))
    leaves = stay.leave[inside]
    moments = [
        np.stack([np.where(row < 0, -1, turn[np.maximum(row, 0)]), time, codes[inside].astype(np.int64)])
        for time, row in ((stay.enter[inside], stay.entered[inside]), (leaves, stay.left[inside]))
    ]
    every = np.concatenate(moments, axis=1)
    order = np.lexsort(every)
    placed = every[:, order]
    fresh = np.concatenate([np.ones_like(start[:1], dtype=np.bool_), (placed[:, 1:] != placed[:, :-1]).any(axis=0)])
    place = np.empty_like(order)
    place[order] = np.cumsum(fresh)
    low, high = place[: len(inside)], place[len(inside) :]
    # After all others: what never leaves, or nobody knows when.
    high = np.where((leaves == UNKNOWN) | (leaves == MAX_TIME), 2 * len(inside) + 2, high)
    aggregates, content, schema = node.aggregates, device.columns.take(frame, inside), node.input.schema
    there = low < high
    if not bool(there.all()):
        # A row that leaves with its own coming may leave nothing: it stands there, and no aggregate looks at it.
        aggregates, content, schema = _only(there, aggregates, content, schema, device)
        high = np.maximum(high, low + 1)
    window = WindowAggregate(Feed(schema, node.key, None), Snapshot(), aggregates)
    results = concat(window_aggregate(window, Events(low, high, content), device), device)
    assert results is not None  # noqa: S101  (whoever is asked for is in)
    at = np.zeros_like(low, shape=2 * len(inside) + 3)
    at[results.start] = np.arange(len(results), like=start)
    values = device.columns.select(results.frame, [aggregate.name for aggregate in node.aggregates])
    return device.columns.take(values, at[low[np.searchsorted(inside, rows)]])


def _only(
    there: Any, aggregates: Sequence[Aggregate], frame: Any, schema: pa.Schema, device: Device
) -> tuple[tuple[Aggregate, ...], Any, pa.Schema]:
    """Aggregates that look at some of the rows alone, and a frame with the columns that say so, and its types."""
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


# The order of rows


def row_order(
    codes: Any, start: Any, end: Any, frame: Any, schema: pa.Schema, first: Sequence[str], device: Device, *, ties: bool
) -> Any | None:
    """int64 order of rows by group, then start; of one start by some columns, then all others, null first, then end.

    It is None for rows that stand in it.

    Args:
        codes: int32 groups.
        start: int64 ticks.
        end: int64 ticks.
        frame: The payload.
        schema: Its types; nested columns play no part.
        first: The columns that come first.
        device: Where arrays live.
        ties: Whether rows of one start need an order.
    """
    kernels, order = device.kernels, None
    code, time = codes, start
    if not kernels.is_ordered(codes, start):  # so there are some
        order = kernels.group_order(codes, int(codes.max()) + 1, start)
        code, time = kernels.take(codes, order), kernels.take(start, order)
    if not ties or len(time) < 2:
        return order
    same = (time[1:] == time[:-1]) & (code[1:] == code[:-1])
    if not bool(same.any()):
        return order
    no = np.zeros_like(same, shape=1)
    places = kernels.keep(np.concatenate([same, no]) | np.concatenate([no, same]))
    rows = places if order is None else kernels.take(order, places)
    some = device.columns.take(frame, rows)
    keys = []
    for name in dict.fromkeys((*first, *schema.names)):
        if name not in some.columns or pa.types.is_nested(schema.field(name).type):
            continue
        keys.append(ranks_of(some, name, schema.field(name).type, device)[0])
        if pa.types.is_floating(schema.field(name).type):  # 0.0 and -0.0 are of one rank
            floats, _ = device.columns.values(some, name)
            keys.append(floats.view(f"i{floats.itemsize}"))
    keys = [kernels.take(code, places), kernels.take(time, places), *keys, kernels.take(end, rows)]
    found = np.arange(len(rows), like=start)
    for key in reversed(keys):
        found = found[np.argsort(key[found], kind="stable")]
    order = np.arange(len(time), like=start) if order is None else order.copy()
    order[places] = rows[found]
    return order


def ranks_of(frame: Any, name: str, dtype: pa.DataType, device: Device) -> tuple[Any, Any | None]:
    """(int64 order codes of a column, NaN the greatest, null the least; which are there, None for all)."""
    if pa.types.is_floating(dtype):
        values, valid = device.columns.values(frame, name)
        codes = device.kernels.order_float(values.astype(np.float64))
    else:
        codes, valid, _ = device.columns.ranks(frame, name)
    return (codes, None) if valid is None else (np.where(valid, codes, _NULL), valid)


def hashes(seed: int, start: Any, number: Any) -> Any:
    """int64 numbers that look drawn, of a seed, starts, and numbers among equal starts (SplitMix64)."""
    drawn = start.astype(np.uint64)
    for part in (np.uint64(seed % (1 << 64)), number.astype(np.uint64)):
        drawn = mixed(drawn * STEP + part)
    return drawn.astype(np.int64)
