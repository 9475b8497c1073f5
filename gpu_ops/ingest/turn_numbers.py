"""The places of arrivals on the axis of turns: one pass over their times, on the host on any device."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from gpu_ops.core.arrow_buffers import room
from gpu_ops.core.turns import TURN
from gpu_ops.devices.cpu.compiling import INT, INTS, kernel, output

Ints = npt.NDArray[np.int64]
_KINDS = numba.types.Array(numba.types.int8, 1, "C", readonly=True)


def numbered(times: Ints, clock: int, turn: int) -> tuple[Ints, int]:
    """(int64 places of arrivals, the number of the first one that comes earlier than the one before it, or -1).

    A turn that moves the clock goes before each arrival that comes later than the one before it.

    Args:
        times: The times at which they come.
        clock: What the clock shows before them.
        turn: The number of the first turn.

    Examples:
        >>> places, back = numbered(np.array([3, 3, 5]), 3, 10)
        >>> (places // TURN).tolist(), back
        ([10, 11, 13], -1)
    """
    places = room(len(times), np.int64)
    return places, _number(np.ascontiguousarray(times), clock, turn, places)


@kernel(INTS, INT, INT, output(INT), allocates=False)
def _number(times: Ints, clock: int, turn: int, places: Ints) -> int:
    # A loop that may end early has no wide instructions, nor has one that looks at the row before by its number.
    following, falls, same = times[1:], 0, 0
    for row in range(following.size):
        falls += times[row] > following[row]
        same += times[row] == following[row]
    if times.size and (falls or times[0] < clock):
        for row in range(times.size):
            if times[row] < clock:
                return row
            clock = times[row]
    place = (turn - 1) * TURN
    if times.size and not same:
        # Each row moves the clock, the first one perhaps not.
        place += TURN << INT(times[0] > clock)
        for row in range(times.size):
            places[row] = place + row * (2 * TURN)
        return -1
    for row in range(times.size):
        time = times[row]
        place += TURN << INT(time > clock)
        places[row] = place
        clock = time
    return -1


def moves(times: Ints, places: Ints, turn: int, count: int) -> tuple[Ints, Ints]:
    """(int64 places, the times that the clock shows there) of the turns that move the clock before some arrivals.

    Args:
        times: The times at which they come.
        places: Their places.
        turn: The number of the first turn.
        count: How many of the turns move the clock.

    Examples:
        >>> at, shown = moves(np.array([3, 3, 5]), np.array([10, 11, 13]) * TURN, 10, 1)
        >>> (at // TURN).tolist(), shown.tolist()
        ([12], [5])
    """
    at, shown = room(count, np.int64), room(count, np.int64)
    _move(np.ascontiguousarray(times), places, (turn - 1) * TURN, at, shown)
    return at, shown


@kernel(INTS, INTS, INT, output(INT), output(INT), allocates=False)
def _move(times: Ints, places: Ints, last: int, at: Ints, shown: Ints) -> int:
    made = 0
    for row in range(times.size):
        if places[row] - last > TURN:
            at[made], shown[made] = places[row] - TURN, times[row]
            made += 1
        last = places[row]
    return made


def shown(places: Ints, at: Ints, clocks: Ints, clock: int) -> Ints:
    """int64: what the clock shows at some ascending places.

    Args:
        places: The places.
        at: Where the clock is moved, ascending.
        clocks: What it shows from there on.
        clock: What it shows before.

    Examples:
        >>> shown(np.array([1, 2, 5]), np.array([2]), np.array([7]), 3).tolist()
        [3, 7, 7]
    """
    made = room(len(places), np.int64)
    _show(places, at, clocks, clock, made)
    return made


@kernel(INTS, INTS, INTS, INT, output(INT), allocates=False)
def _show(places: Ints, at: Ints, clocks: Ints, clock: int, made: Ints) -> int:
    tick = 0
    for row in range(places.size):
        while tick < at.size and at[tick] <= places[row]:
            clock = clocks[tick]
            tick += 1
        made[row] = clock
    return tick


def all_rise(places: Ints) -> bool:
    """Whether each place is past the one before it.

    Examples:
        >>> all_rise(np.array([1, 2, 3])), all_rise(np.array([1, 2, 2]))
        (True, False)
    """
    return bool((places[1:] > places[:-1]).all()) if len(places) < _FEW else _all_rise(places)


def stand_in_order(places: Ints, kinds: npt.NDArray[np.int8], numbers: Ints) -> bool:
    """Whether rows stand in order of place, kind and number.

    Examples:
        >>> kinds = np.zeros(3, np.int8)
        >>> stand_in_order(np.array([1, 2, 2]), kinds, np.array([1, 0, 1]))
        True
        >>> stand_in_order(np.array([1, 2, 2]), kinds, np.array([1, 1, 0]))
        False
    """
    if len(places) < _FEW:
        same, later = kinds[1:] == kinds[:-1], kinds[1:] > kinds[:-1]
        later |= same & (numbers[1:] >= numbers[:-1])
        return bool(((places[1:] > places[:-1]) | ((places[1:] == places[:-1]) & later)).all())
    return _stand_in_order(places, kinds, numbers)


_FEW = 1 << 12
"""Up to this many rows, NumPy takes less time than to load a kernel."""


@kernel(INTS, allocates=False)
def _all_rise(places: Ints) -> bool:
    following, wrong = places[1:], 0
    for row in range(following.size):
        wrong += places[row] >= following[row]
    return wrong == 0


@kernel(INTS, _KINDS, INTS, allocates=False)
def _stand_in_order(places: Ints, kinds: npt.NDArray[np.int8], numbers: Ints) -> bool:
    next_place, next_kind, next_number, wrong = places[1:], kinds[1:], numbers[1:], 0
    for row in range(next_place.size):
        same, later = next_kind[row] == kinds[row], next_kind[row] > kinds[row]
        later |= same & (next_number[row] >= numbers[row])
        wrong += not ((next_place[row] > places[row]) | ((next_place[row] == places[row]) & later))
    return wrong == 0
