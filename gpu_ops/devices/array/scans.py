"""Scans in array form: by leaps that get twice as long, or a row of every group at a time."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from gpu_ops.devices.array.order import group_order
from gpu_ops.devices.array.ranges import differs, expand, keep, running_sums
from gpu_ops.devices.kernels import Array


def reached(following: Array, roots: Array) -> Array:
    """Which places are reached from some roots: by leaps over 1, 2, 4 … places from all that are reached already."""
    xp = array_namespace(following)
    places = following.shape[0]
    # One place more, which nothing leads out of.
    leap = xp.concat([following, xp.asarray([places], dtype=following.dtype)])
    found = xp.zeros(places + 1, dtype=xp.bool)
    found[roots] = True
    while bool(xp.any(leap[:-1] < places)):
        found[leap[found]] = True
        leap = xp.take(leap, leap)
    found[leap[found]] = True
    return found[:places]


def best_rows(codes: Array, ranks: Array, unique: Array, count: int) -> Array:
    """Which row makes each one leave, where the best are kept: round k takes the k-th row of every group."""
    xp = array_namespace(ranks)
    rows = codes.shape[0]
    left = xp.full(rows, rows, dtype=xp.int64)
    if rows == 0:
        return left
    begins = keep(differs(xp, codes))
    sizes = xp.concat([begins[1:], xp.asarray([rows], dtype=begins.dtype)]) - begins
    longest = int(xp.max(sizes))
    count = min(count, longest)
    # The kept rows of each group; no row is one more than all, with the least of ranks.
    kept = xp.full((begins.shape[0], count), rows, dtype=xp.int64)
    for turn in range(longest):
        here = xp.nonzero(sizes > turn)[0]
        row = xp.take(begins, here) + turn
        held = kept[here]
        if unique.shape[0]:
            again = (held < rows) & (xp.take(unique, xp.where(held < rows, held, 0)) == xp.take(unique, row)[:, None])
            which = xp.nonzero(again)
            left[held[which]] = row[which[0]]
            held[which] = rows
        empty = held >= rows
        rank = xp.take(ranks, xp.where(empty, 0, held))
        least = xp.min(xp.where(empty, (1 << 63) - 1, rank), axis=1)
        oldest = xp.min(xp.where(~empty & (rank == least[:, None]), held, rows), axis=1)
        full = ~xp.any(empty, axis=1)
        loses = full & (xp.take(ranks, row) < least)
        left[row[loses]] = row[loses]
        wins = full & ~loses
        left[oldest[wins]] = row[wins]
        place = xp.argmax(xp.where(full[:, None], held == oldest[:, None], empty), axis=1)
        taken = xp.nonzero(~loses)[0]
        held[taken, place[taken]] = row[taken]
        kept[here] = held
    return left


def least_rows(codes: Array, bounds: Array, count: int) -> tuple[Array, Array]:
    """The rows of each stretch that have its least codes: those up to the last one of them in order."""
    xp = array_namespace(codes)
    begins, sizes = bounds[:-1], bounds[1:] - bounds[:-1]
    if not codes.shape[0]:
        return codes, sizes
    stretch, _ = expand(sizes)
    order = group_order(xp.astype(stretch, xp.int32), sizes.shape[0], codes)
    # Of a stretch without rows nobody asks.
    last = xp.maximum(begins + xp.minimum(sizes, xp.full_like(sizes, count)) - 1, xp.zeros_like(sizes))
    most = xp.take(codes, xp.take(order, last))
    among = codes <= xp.take(most, stretch)
    upto = running_sums(xp, xp.astype(among, xp.int64))
    return keep(among), xp.take(upto, bounds[1:]) - xp.take(upto, begins)


def window_walk(
    holds: Array, width: int, oldest: Array, newest: Array, ends: Array, mode: int
) -> tuple[Array, Array, Array, Array]:
    """Walk through windows by a condition: each round is one step in every group that is still in its block."""
    xp = array_namespace(holds)
    one, other = xp.asarray(oldest, copy=True), xp.asarray(newest, copy=True)
    groups = xp.arange(oldest.shape[0], dtype=xp.int64)
    rows, by = [oldest[:0]], [oldest[:0]]
    while True:
        within = (other < ends) & (one - oldest < width) & (other - newest < width)
        at = xp.nonzero(within)[0]
        if at.shape[0] == 0:
            gone_rows, gone_by = xp.concat(rows), xp.concat(by)
            order = xp.argsort(gone_rows)
            return one, other, xp.take(gone_rows, order), xp.take(gone_by, order)
        here, there = one[at], other[at]
        empty = here > there
        cell = (groups[at] * width + here - oldest[at]) * width + there - newest[at]
        met = holds[xp.where(empty, 0, cell)] & ~empty
        if mode == 0:
            gone = ~met & ~empty
            rows.append(here[gone])
            by.append(there[gone])
            one[at] = xp.where(gone, here + 1, here)
            other[at] = xp.where(gone, there, there + 1)
            continue
        done = met & ((there > here) | (mode == 1))
        rows.append(here[done])
        by.append(there[done])
        one[at] = xp.where(done, there + (1 if mode == 1 else 0), here)
        other[at] = there + 1


def timed_batches(start: Array, begins: Array, ends: Array, closed: Array, span: int, count: int, turns: int) -> Array:
    """Which rows open a batch, and when its time is over: round k takes the k-th batch of every group."""
    xp = array_namespace(start)
    rows = start.shape[0]
    over = xp.full(rows, -(1 << 63), dtype=xp.int64)
    some = xp.nonzero(ends > begins)[0]
    row, end, last = (xp.take(each, some) for each in (begins, ends, closed))
    while row.shape[0]:
        time = xp.take(start, row)
        turn = xp.maximum((time - last) // span + 1, 1)
        until = xp.where((last == 1 << 62) | (turn > turns), time + span, last + turn * span)
        over[row] = until
        low, high = row, end
        while bool(xp.any(low < high)):
            middle = (low + high) // 2
            before = xp.take(start, xp.minimum(middle, end - 1)) < until
            moves = low < high
            low, high = xp.where(moves & before, middle + 1, low), xp.where(moves & ~before, middle, high)
        after = xp.minimum(low, row + count)
        last = xp.where(after - row == count, xp.take(start, after - 1), until)
        left = xp.nonzero(after < end)[0]
        row, end, last = xp.take(after, left), xp.take(end, left), xp.take(last, left)
    return over


def clocked_batches(
    place: Array,
    due: Array,
    begins: Array,
    ends: Array,
    timers: Array,
    held: Array,
    tick_place: Array,
    tick_clock: Array,
    tick_due: Array,
    count: int,
    runs: int,
) -> tuple[Array, Array, Array, Array, Array, Array, Array, Array]:
    """When batches are complete that rows or ticks complete: round k takes the k-th batch of every group."""
    xp, none = array_namespace(place), 1 << 62
    groups, rows, ticks = begins.shape[0], place.shape[0], tick_place.shape[0]
    enter, leave, came, fell = (xp.full(rows, none, dtype=xp.int64) for _ in range(4))
    over, over_fell = (xp.full(groups, none, dtype=xp.int64) for _ in range(2))
    after, fired = xp.asarray(timers, copy=True), xp.zeros(ticks + 1, dtype=xp.bool)
    # One row and one tick more, past all others, that searches may land on.
    past = xp.asarray([none], dtype=xp.int64)
    places, dues = xp.concat([place, past]), xp.concat([due, past])
    tick_places, tick_dues = xp.concat([tick_place, past]), xp.concat([tick_due, past])
    group = xp.arange(groups, dtype=xp.int64)
    row, end, timer, had = begins, ends, timers, held
    low, high, first = begins, begins, True
    while group.shape[0]:
        timer = xp.where((timer == none) & (row < end), xp.take(dues, xp.minimum(row, xp.asarray(rows))), timer)
        after[group] = timer
        tick = xp.astype(xp.searchsorted(tick_clock, timer), xp.int64)
        at_tick = xp.where(timer == none, none, xp.take(tick_places, tick))
        full = xp.minimum(row + count - 1, xp.asarray(rows))
        at_full = xp.where(row + count - 1 < end, xp.take(places, full), none)
        is_full, goes = at_full < at_tick, (at_full < none) | (at_tick < none)
        at = xp.minimum(at_full, at_tick)
        upto = xp.where(is_full, full + 1, _first_past(xp, places, row, end, at_tick))
        why = xp.where(is_full, none, timer)
        stays = (upto > row) | had | (runs != 0)
        following = xp.where(is_full, xp.take(dues, full), xp.where(stays, xp.take(tick_dues, tick), none))
        some = keep(goes)
        group, row, end, upto, at, why, low, high, tick, is_full, following = (
            xp.take(each, some) for each in (group, row, end, upto, at, why, low, high, tick, is_full, following)
        )
        fired[xp.where(is_full, ticks, tick)] = True
        source, offset = expand(high - low)
        before = xp.take(low, source) + offset
        leave[before], fell[before] = xp.take(at, source), xp.take(why, source)
        if first:
            over[group], over_fell[group], first = at, why, False
        source, offset = expand(upto - row)
        entering = xp.take(row, source) + offset
        enter[entering], came[entering] = xp.take(at, source), xp.take(why, source)
        after[group] = following
        low, high, had, row, timer = row, upto, upto > row, upto, following
    return enter, leave, came, fell, over, over_fell, after, fired[:ticks]


def _first_past(xp: Any, places: Array, low: Array, high: Array, limit: Array) -> Array:
    """For each stretch of ascending places the index of the first one at or past a limit; its end for none."""
    while bool(xp.any(low < high)):
        middle = (low + high) // 2
        before, moves = xp.take(places, middle) < limit, low < high
        low, high = xp.where(moves & before, middle + 1, low), xp.where(moves & ~before, middle, high)
    return low
