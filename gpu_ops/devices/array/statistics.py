"""Order statistics of ranges in array form: the k-th of the events that hold each slot, and ranges of equal values."""

from __future__ import annotations

from array_api_compat import array_namespace

from gpu_ops.devices.array.order import group_order
from gpu_ops.devices.array.ranges import count_upto, running_max
from gpu_ops.devices.kernels import Array


def range_kth(ranks: Array, first: Array, last: Array, size: int, slots: Array, k: Array) -> Array:
    """The k-th least of the ranks of the events that hold each slot: a binary search by bits, for all slots at once.

    At each bit, from the top, a slot asks how many of its events share the bits found so far and have a 0 next: of
    the begun events, less the ended ones. Both are a search in sorted (bits, place).
    """
    xp = array_namespace(ranks)
    found, left = xp.zeros_like(slots), xp.asarray(k, copy=True)
    top = int(xp.max(ranks)).bit_length() if ranks.shape[0] else 0
    width = size + 1
    for bit in range(top - 1, -1, -1):
        nodes = (ranks >> bit) * width
        asked = found * 2 * width + slots
        below = count_upto(xp, nodes + first, asked) - count_upto(xp, nodes + last, asked)
        right = xp.astype(left >= below, xp.int64)
        found, left = found * 2 + right, left - below * right
    # Whatever is left to pass over must still be there.
    nodes, asked = ranks * width, found * width + slots
    here = count_upto(xp, nodes + first, asked) - count_upto(xp, nodes + last, asked)
    return xp.where((k >= 0) & (left < here), found, xp.full_like(found, -1))


def merged_ranges(codes: Array, first: Array, last: Array) -> tuple[Array, Array, Array]:
    """The ranges of events with equal codes, put together: in order of code and begin, cut where none reaches over.

    How far ranges of a code have reached is a running maximum; the codes' numbers before the slots keep them apart.
    """
    xp = array_namespace(codes)
    if codes.shape[0] == 0:
        return codes, first, last
    order = group_order(codes, 0, first)
    code, begin, end = xp.take(codes, order), xp.take(first, order), xp.take(last, order)
    changed = xp.concat([xp.zeros(1, dtype=xp.int64), xp.astype(code[1:] != code[:-1], xp.int64)])
    width = int(xp.max(last)) + 1
    base = xp.cumulative_sum(changed) * width
    reach = running_max(base + end)
    new = xp.concat([xp.ones(1, dtype=xp.bool), base[1:] + begin[1:] > reach[:-1]])
    at = xp.nonzero(new)[0]
    until = xp.concat([at[1:] - 1, xp.full_like(at[:1], codes.shape[0] - 1)])
    events, begin = xp.take(order, at), xp.take(begin, at)
    end = xp.take(reach, until) - xp.take(base, at)
    order = group_order(begin, 0, events)
    return xp.take(events, order), xp.take(begin, order), xp.take(end, order)
