"""The window axis in array form: each group's boundaries in time, and joining events that touch."""

from __future__ import annotations

from array_api_compat import array_namespace

from gpu_ops.devices.array.order import group_order
from gpu_ops.devices.array.ranges import differs
from gpu_ops.devices.kernels import Array


def axis(codes: Array, start: Array, end: Array) -> tuple[Array, Array, Array, Array]:
    """The distinct boundaries of each group, and which of them each event lies between: starts and ends in one sort."""
    xp = array_namespace(codes)
    events = codes.shape[0]
    both, times = xp.concat([codes, codes]), xp.concat([start, end])
    order = group_order(both, 0, times)
    both, times = xp.take(both, order), xp.take(times, order)
    new = differs(xp, both) | differs(xp, times)
    at = xp.nonzero(new)[0]
    slots = _placed(order, xp.cumulative_sum(xp.astype(new, xp.int64)) - 1)
    return xp.take(both, at), xp.take(times, at), slots[:events], slots[events:]


def _placed(order: Array, values: Array) -> Array:
    """Values back in the places that ``order``, a permutation, took them from."""
    xp = array_namespace(values)
    made = xp.empty_like(values)
    made[order] = values
    return made


def stitch_order(codes: Array, start: Array, end: Array) -> tuple[Array, Array]:
    """Events of one group joined where one ends at the start of another: each finds its follower, then all leap.

    After k leaps every event knows the one ``2**k`` further on in its chain, or the chain's last.
    """
    xp = array_namespace(codes)
    _, _, first, last = axis(codes, start, end)
    by_end = xp.argsort(last, stable=True)
    by_start = xp.take(by_end, xp.argsort(xp.take(first, by_end), stable=True))
    ended, begun = xp.take(last, by_end), xp.take(first, by_start)
    events = xp.arange(codes.shape[0], dtype=xp.int64)
    rank = events - xp.searchsorted(ended, ended)
    at = xp.searchsorted(begun, ended) + rank
    joined = at < xp.searchsorted(begun, ended, side="right")
    before = xp.take(by_end, xp.nonzero(joined)[0])
    after = xp.take(by_start, xp.take(at, xp.nonzero(joined)[0]))
    follower = xp.asarray(events, copy=True)
    follower[before] = after
    leads = xp.ones(events.shape, dtype=xp.bool)
    leads[after] = False
    while True:
        further = xp.take(follower, follower)
        if bool(xp.all(further == follower)):
            break
        follower = further
    chosen = xp.nonzero(leads)[0]
    return chosen, xp.take(follower, chosen)
