"""Groups that change turn by turn, in array form: sorted by group, so that running sums do what a walk does."""

from __future__ import annotations

from collections.abc import Sequence

from array_api_compat import array_namespace

from gpu_ops.core.turns import LEFT_FIRST, TURN
from gpu_ops.devices.array.ranges import differs, expand, keep, running_sums, sum_upto
from gpu_ops.devices.array.steps import search_pairs
from gpu_ops.devices.kernels import Array


def merged_order(first: Array, second: Array) -> tuple[Array, Array]:
    """The order of two ascending runs, one behind the other, and their values in that order: one stable sort."""
    xp = array_namespace(first)
    values = xp.concat([first, second])
    order = xp.argsort(values, stable=True)
    return order, xp.take(values, order)


def edge_counts(first: Array, second: Array) -> tuple[Array, Array, Array]:
    """The distinct values of two ascending runs, and how often each stands in each: a sort, and searches."""
    xp = array_namespace(first)
    values = xp.sort(xp.concat([first, second]))
    if not values.shape[0]:
        return values, values, values
    values = xp.take(values, keep(differs(xp, values)))
    counts = (
        xp.astype(xp.searchsorted(each, values, side="right") - xp.searchsorted(each, values), xp.int64)
        for each in (first, second)
    )
    return values, *counts


def numbered_turns(
    starts: Array, keys: Array, begins: Array, clock: int, turn: int
) -> tuple[Array, Array, Array, Array]:
    """The places of the turns of events of several runs, and of those in which the clock moves: by two stable sorts."""
    del begins
    xp = array_namespace(starts)
    if not starts.shape[0]:
        return starts, starts, starts, starts
    order = xp.argsort(keys, stable=True)
    order = xp.take(order, xp.argsort(xp.take(starts, order), stable=True))
    before = xp.full(1, clock, dtype=xp.int64)
    shown = xp.maximum(xp.take(starts, order), before)
    moved = shown > xp.concat([before, shown])[:-1]
    turns = turn + xp.arange(starts.shape[0], dtype=xp.int64) + xp.cumulative_sum(xp.astype(moved, xp.int64))
    own, at = xp.argsort(order, stable=True), keep(moved)
    places = turns * TURN
    return xp.take(places, own), xp.take(shown, own), xp.take(places, at) - TURN, xp.take(shown, at)


def touched_rows(codes: Array, places: Array, groups: int) -> tuple[Array, Array, Array, Array]:
    """A row for each group at each place that touches it: the runs of equal ones by group, in order of their firsts."""
    del groups
    xp = array_namespace(places)
    if not places.shape[0]:
        return places, places, places, places
    order = xp.argsort(codes, stable=True)
    code, place = xp.take(codes, order), xp.take(places, order)
    begins = differs(xp, code) | differs(xp, place)
    starts = keep(begins)
    ends = xp.concat([starts, xp.full(1, codes.shape[0], dtype=xp.int64)])[1:] - 1
    run = xp.cumulative_sum(xp.astype(begins, xp.int64)) - 1
    firsts = xp.take(order, starts)
    by_first = xp.argsort(firsts, stable=True)
    rank = xp.argsort(by_first, stable=True)
    row = xp.take(xp.take(rank, run), xp.argsort(order, stable=True))
    is_new = differs(xp, xp.take(code, starts))
    earlier = xp.concat([xp.full(1, -1, dtype=xp.int64), rank])[:-1]
    before = xp.take(xp.where(is_new, xp.full_like(rank, -1), earlier), by_first)
    return row, xp.take(firsts, by_first), xp.take(xp.take(order, ends), by_first), before


def merged_rows(codes: Array, places: Array, groups: int) -> tuple[Array, Array, Array]:
    """One row for the events of each group at each place: each run of `touched_rows`, and how long it is."""
    row, first, _, _ = touched_rows(codes, places, groups)
    return row, first, row_sums(array_namespace(row).ones_like(row), row, int(first.shape[0]))


def row_sums(values: Array, row: Array, count: int) -> Array:
    """The sum of the values of each row: differences of a running sum."""
    xp = array_namespace(values)
    upto = sum_upto(xp, values, row, xp.arange(count, dtype=xp.int64))
    return upto - xp.concat([xp.zeros(1, dtype=xp.int64), upto])[:-1]


def walked_totals(values: Array, first: Array, last: Array, group: Array, base: Array) -> tuple[Array, Array]:
    """The totals of groups at some rows in turn, and behind the last of them."""
    xp = array_namespace(values)
    rows = xp.arange(group.shape[0], dtype=xp.int64)
    upto = sum_upto(xp, values, first, rows) - sum_upto(xp, values, last, rows)
    change = upto - xp.concat([xp.zeros(1, dtype=xp.int64), upto])[:-1]
    order = xp.argsort(group, stable=True)
    grouped, every = xp.take(group, order), xp.arange(base.shape[0], dtype=group.dtype)
    running = running_sums(xp, xp.take(change, order))
    begins, ends = (xp.take(running, xp.searchsorted(grouped, every, side=side)) for side in ("left", "right"))
    since = base - begins
    totals = running[1:] + xp.take(since, grouped)
    return xp.take(totals, xp.argsort(order, stable=True)), since + ends


def due_places(due: Array, places: Array, clocks: Array) -> Array:
    """The places of the first ticks at or past ascending times; of as many of these as a tick has reached."""
    xp = array_namespace(due)
    at = xp.searchsorted(clocks, due)
    return xp.take(places, at[: int(xp.sum(xp.astype(at < clocks.shape[0], xp.int64)))])


def clocks_at(at: Array, places: Array, clocks: Array, before: Array) -> Array:
    """What the clock shows at some places: one search."""
    xp = array_namespace(at)
    return xp.take(xp.concat([before, clocks]), xp.searchsorted(places, at, side="right"))


def ranks_among(values: Array, among: Sequence[Array]) -> tuple[Array, int]:
    """How many distinct values of some arrays are less than each of some values, and how many there are."""
    xp = array_namespace(values)
    every = xp.sort(xp.concat([values[:0], *among]))
    distinct = xp.take(every, keep(differs(xp, every))) if every.shape[0] else every
    return xp.astype(xp.searchsorted(distinct, values), xp.int64), int(distinct.shape[0])


def turn_rows(
    codes: Array, came: Array, enter: Array, leave: Array, groups: int, based: int
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """A row for each group at each place where rows enter or leave that go in the order in which they came."""
    xp = array_namespace(codes)
    order, event, place = _edges(codes, enter, leave)
    row, begins, _, earlier = touched_rows(xp.take(codes, event), place, groups)
    first, last, group = _stays(codes, enter, leave, order, event, (row, begins), groups * based)
    goes = xp.take(order, begins) >= enter.shape[0]
    touch = xp.take(xp.take(came, event), begins) + xp.astype(goes, xp.int64) * LEFT_FIRST
    return first, last, group, xp.take(place, begins), touch, earlier


def output_rows(
    codes: Array, enter: Array, leave: Array, limits: Array, touched: Array, groups: int, based: int
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """A row for each group in each stretch between two outputs in which rows enter or leave, as `turn_rows`."""
    xp = array_namespace(codes)
    order, event, place = _edges(codes, enter, leave)
    carried = touched.shape[0]
    of = xp.concat([touched, xp.take(codes, event)])
    # What was touched before is part of the first stretch in which anything happens, or was.
    moment = xp.concat([xp.zeros(carried, dtype=xp.int64), xp.searchsorted(limits, place, side="right")])
    row, begins, ends, earlier = touched_rows(of, moment, groups)
    first, last, group = _stays(codes, enter, leave, order, event, (row[carried:], begins), groups * based, of)
    moments = xp.take(moment, begins)
    return first, last, group, moments, earlier, xp.argsort(ends, stable=True)


def _edges(codes: Array, enter: Array, leave: Array) -> tuple[Array, Array, Array]:
    """(the order of what enters before what leaves, the event of each in that order, its place)."""
    xp = array_namespace(codes)
    order, place = merged_order(enter, leave)
    old = codes.shape[0] - enter.shape[0]
    events = xp.concat([xp.arange(old, codes.shape[0]), xp.arange(leave.shape[0])])
    return order, xp.take(events, order), place


def _stays(
    codes: Array,
    enter: Array,
    leave: Array,
    order: Array,
    event: Array,
    touched: tuple[Array, Array],
    begin: int,
    of: Array | None = None,
) -> tuple[Array, Array, Array]:
    """(the row at which each event comes, that at which it goes, or the number of rows; the group of each row)."""
    xp = array_namespace(codes)
    row, begins = touched
    group = xp.concat(
        [xp.arange(begin, dtype=codes.dtype), xp.take(xp.take(codes, event) if of is None else of, begins)]
    )
    at = xp.take(row, xp.argsort(order, stable=True)) + begin
    none = xp.full(codes.shape[0], group.shape[0], dtype=xp.int64)
    come, go = at[: enter.shape[0]], at[enter.shape[0] :]
    return (
        xp.concat([none[: codes.shape[0] - enter.shape[0]], come]),
        xp.concat([go, none[leave.shape[0] :]]),
        group,
    )


def met_stretches(
    codes: Array, places: Array, of_codes: Array, came: Array, goes: Array, gone: int, late: int
) -> tuple[Array, Array]:
    """The rows of a group that are there at some places, where those that came first go first: two searches."""
    first = search_pairs(of_codes, goes, codes, places - gone)
    return first, search_pairs(of_codes, came, codes, places - late)


def pairs_in_turn(
    order: Array, own: Array, first: Array, count: Array, place: Array, lefts: int
) -> tuple[Array, Array, Array, Array]:
    """The pairs of rows of two sides with stretches of rows of the other side, one row after the other."""
    xp = array_namespace(order)
    source, offset = expand(xp.take(count, order))
    if not source.shape[0]:
        return source, source, source, source
    row = xp.take(order, source)
    mine, other, where = xp.take(own, row), xp.take(first, row) + offset, xp.take(place, row)
    is_left = row < lefts
    begins = keep(differs(xp, where))
    ends = xp.concat([begins, xp.full(1, where.shape[0], dtype=xp.int64)])[1:]
    _, number = expand(ends - begins)
    return xp.where(is_left, mine, other), xp.where(is_left, other, mine), where, number
