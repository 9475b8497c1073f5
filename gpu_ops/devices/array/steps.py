"""One step of a running query in array form: all boundaries in one sort, all searches side by side."""

from __future__ import annotations

from array_api_compat import array_namespace

from gpu_ops.devices.array.axis import axis as axis_of
from gpu_ops.devices.array.ranges import differs, keep, running_sums
from gpu_ops.devices.kernels import Array


def step_axis(
    codes: Array, low: Array, high: Array, earlier: int, known: Array, force: int, before: int, after: int
) -> tuple[Array, Array, Array, Array, Array, Array, Array, Array]:
    """The distinct boundaries of each group of a step: what is no event's is put in as an event of its own."""
    xp = array_namespace(low)
    events, groups = codes.shape[0], known.shape[0]
    began = xp.where(xp.arange(events, dtype=xp.int64) < earlier, xp.full_like(low, before), low)
    every = xp.arange(groups, dtype=xp.int32)
    first_time, last_time = xp.full_like(known, before), xp.full_like(known, after)
    has = keep(known > before)
    pieces = [
        (codes, began, high),
        (every, first_time, last_time),
        (xp.take(every, has), xp.take(known, has), xp.take(last_time, has)),
    ]
    if force < after:
        pieces.append((every, xp.full_like(known, force), last_time))
    axis_code, axis, first, last = axis_of(*(xp.concat([piece[at] for piece in pieces]) for at in range(3)))
    slots = keep(axis != after)
    begin = keep(xp.take(axis, slots) == before)
    end = keep(xp.take(axis, slots + 1) == after)
    group = xp.astype(xp.take(axis_code, slots), xp.int64)
    return axis_code, axis, first[:events], last[:events], slots, group, begin, end


def search_pairs(codes: Array, places: Array, of_codes: Array, of_places: Array) -> Array:
    """For each of some pairs where the first greater one stands: every search halves what is left in each round."""
    xp = array_namespace(places)
    rows = codes.shape[0]
    low = xp.zeros_like(of_places)
    high = xp.full_like(of_places, rows)
    for _ in range(rows.bit_length()):
        middle = (low + high) // 2
        here = xp.minimum(middle, xp.full_like(middle, rows - 1))
        code, place = xp.take(codes, here), xp.take(places, here)
        passed = (code < of_codes) | ((code == of_codes) & (place <= of_places))
        passed = passed & (low < high)
        low, high = xp.where(passed, middle + 1, low), xp.where(passed, high, middle)
    return low


def moment_places(
    codes: Array, times: Array, turns: Array, of_codes: Array, of_times: Array, of_turns: Array
) -> tuple[Array, Array]:
    """The places of moments, and of others the first at or after each: ranks of all by three stable sorts."""
    xp = array_namespace(times)
    moments = times.shape[0]
    if not moments:
        return times, xp.ones_like(of_times)
    keys = [xp.concat(pair) for pair in ((codes, of_codes), (times, of_times), (turns, of_turns))]
    order = xp.argsort(keys[2], stable=True)
    for key in (keys[1], keys[0]):
        order = xp.take(order, xp.argsort(xp.take(key, order), stable=True))
    changes = xp.zeros(order.shape[0] - 1, dtype=xp.bool)
    for key in keys:
        placed = xp.take(key, order)
        changes = changes | (placed[1:] != placed[:-1])
    ranks = xp.take(running_sums(xp, xp.astype(changes, xp.int64)), xp.argsort(order, stable=True))
    held = xp.sort(ranks[:moments])
    held = xp.take(held, keep(differs(xp, held)))
    places = xp.astype(xp.searchsorted(held, ranks), xp.int64) + 1
    return places[:moments], places[moments:]
