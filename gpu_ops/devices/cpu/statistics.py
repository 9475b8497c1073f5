"""Order statistics of ranges on the CPU: the k-th of the events that hold each slot, and ranges of equal values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpu_ops.devices.cpu.compiling import INT, INTS, Ints, inlined, kernel, unsigned
from gpu_ops.devices.cpu.order import ascends, slot_order, take

_LIST = 160
"""Up to this many events at a time, a sorted list is faster than a tree, though an insert moves half of it; see W7."""

_TABLE = 1 << 16
"""Up to this many codes, a table of all codes is cheap, however few events there are."""


def range_kth(ranks: Ints, first: Ints, last: Ints, size: int, slots: Ints, k: Ints) -> Ints:
    """The k-th least of the ranks of the events that hold each of some slots.

    A sweep over the slots, O((events + slots) x log(ranks)) however many events a slot holds: with a tree of counts by
    rank (Fenwick), or a sorted list of the live events if there are few at any time.

    Examples:
        >>> twice = np.array([0, 1, 1, 3])
        >>> range_kth(np.array([5, 2]), np.array([0, 1]), np.array([2, 3]), 4, twice, np.array([0, 0, 1, 0]))
        array([ 5,  2,  5, -1])
    """
    entering, leaving = (
        np.arange(first.size) if ascends(each) else slot_order(each, size)[0] for each in (first, last)
    )
    most = _most_alive(first, last, entering, leaving)
    sweep = _kth_of_list if most <= _LIST else _kth_of_tree
    return sweep(ranks, first, last, entering, leaving, slots, k, most)


@kernel(INTS, INTS, INTS, INTS)
def _most_alive(first: Ints, last: Ints, entering: Ints, leaving: Ints) -> int:
    """How many events a slot holds at most."""
    most = alive = left = 0
    for entered in range(first.size):
        event = unsigned(entering[entered])
        while left < last.size and last[unsigned(leaving[left])] <= first[event]:
            alive -= first[unsigned(leaving[left])] < last[unsigned(leaving[left])]
            left += 1
        alive += first[event] < last[event]
        most = max(most, alive)
    return most


@kernel(INTS, INTS, INTS, INTS, INTS, INTS, INTS, INT)
def _kth_of_list(
    ranks: Ints, first: Ints, last: Ints, entering: Ints, leaving: Ints, slots: Ints, k: Ints, most: int
) -> Ints:
    held = np.empty(most + 1, np.int64)
    found = np.empty(slots.size, np.int64)
    alive = entered = left = 0
    before = -1
    for at in range(slots.size):
        slot = slots[at]
        while left < leaving.size and last[unsigned(leaving[left])] <= slot:
            event = unsigned(leaving[left])
            # What began and ended since the slot before was never put in.
            if first[event] <= before:
                rank, to = ranks[event], 0
                while held[unsigned(to)] < rank:
                    to += 1
                alive -= 1
                while to < alive:
                    held[unsigned(to)] = held[unsigned(to + 1)]
                    to += 1
            left += 1
        while entered < entering.size and first[unsigned(entering[entered])] <= slot:
            event = unsigned(entering[entered])
            if last[event] > slot:
                rank, to = ranks[event], alive
                while to > 0 and held[unsigned(to - 1)] > rank:
                    held[unsigned(to)] = held[unsigned(to - 1)]
                    to -= 1
                held[unsigned(to)] = rank
                alive += 1
            entered += 1
        found[at] = held[unsigned(k[at])] if 0 <= k[at] < alive else -1
        before = slot
    return found


@kernel(INTS, INTS, INTS, INTS, INTS, INTS, INTS, INT)
def _kth_of_tree(
    ranks: Ints, first: Ints, last: Ints, entering: Ints, leaving: Ints, slots: Ints, k: Ints, most: int
) -> Ints:
    top = 1
    for event in range(ranks.size):
        while top <= ranks[event] + 1:
            top *= 2
    tree = np.zeros(top + 1, np.int32)
    found = np.empty(slots.size, np.int64)
    alive = entered = left = 0
    before = -1
    for at in range(slots.size):
        slot = slots[at]
        while left < leaving.size and last[unsigned(leaving[left])] <= slot:
            gone = unsigned(leaving[left])
            if first[gone] <= before:
                alive -= 1
                _change(tree, ranks[gone], -1)
            left += 1
        while entered < entering.size and first[unsigned(entering[entered])] <= slot:
            came = unsigned(entering[entered])
            if last[came] > slot:
                alive += 1
                _change(tree, ranks[came], 1)
            entered += 1
        rest = k[at]
        if rest < 0 or rest >= alive:
            found[at] = -1
        elif slot == before and k[at - 1] == rest:
            found[at] = found[at - 1]
        else:
            node, step = 0, top >> 1
            while step:
                count = tree[unsigned(node + step)]
                right = int(count <= rest)
                node += step * right
                rest -= count * right
                step >>= 1
            found[at] = node
        before = slot
    return found


@inlined
def _change(tree: npt.NDArray[np.int32], rank: int, by: int) -> None:
    """One more or one less of a rank."""
    node = rank + 1
    while node < tree.size:
        tree[unsigned(node)] += by
        node += node & -node


def merged_ranges(codes: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints, Ints]:
    """The ranges of events with equal codes, merged where they overlap or touch.

    In O(events) where the codes lie close together and ``first`` ascends.

    Examples:
        >>> merged_ranges(np.array([7, 8, 7]), np.array([0, 0, 1]), np.array([2, 1, 4]))
        (array([0, 1]), array([0, 0]), array([4, 1]))
    """
    if not codes.size:
        return codes, first, last
    order = None if ascends(first) else np.argsort(first, kind="stable")
    if order is not None:
        codes, first, last = take(codes, order), take(first, order), take(last, order)
    if int(codes.max()) >= _TABLE + 4 * codes.size:
        codes = np.unique(codes, return_inverse=True)[1]
    events, begins, ends = _merged(codes, first, last, int(codes.max()) + 1)
    return (events if order is None else take(order, events)), begins, ends


@kernel(INTS, INTS, INTS, INT)
def _merged(codes: Ints, first: Ints, last: Ints, count: int) -> tuple[Ints, Ints, Ints]:
    """`merged_ranges` of events in order of their first slot; codes are below ``count``."""
    newest = np.full(count, -1, np.int64)
    events = np.empty(codes.size, np.int64)
    begins, ends = np.empty(codes.size, np.int64), np.empty(codes.size, np.int64)
    made = 0
    for event in range(codes.size):
        code = unsigned(codes[event])
        known = newest[code]
        if known >= 0 and first[event] <= ends[unsigned(known)]:
            ends[unsigned(known)] = max(ends[unsigned(known)], last[event])
        else:
            newest[code] = made
            events[made], begins[made], ends[made] = event, first[event], last[event]
            made += 1
    return events[:made], begins[:made], ends[:made]
