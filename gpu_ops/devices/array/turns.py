"""Groups that change turn by turn, in array form: sorted by group, so that running sums do what a walk does."""

from __future__ import annotations

from array_api_compat import array_namespace

from gpu_ops.devices.array.ranges import differs, keep, running_sums, sum_upto
from gpu_ops.devices.kernels import Array


def merged_order(first: Array, second: Array) -> tuple[Array, Array]:
    """The order of two ascending runs, one behind the other, and their values in that order: one stable sort."""
    xp = array_namespace(first)
    values = xp.concat([first, second])
    order = xp.argsort(values, stable=True)
    return order, xp.take(values, order)


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
