"""The walk over rows that come into windows and leave them: counts and sums of each, issued where one has changed.

Rows that leave and rows that come are merged by their places. Of each place the windows that it concerns are compared
with what they had: where a value has changed, the row of the window ends, and another one is issued.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from gpu_ops.devices.cpu.compiling import (
    CODES,
    FLOAT,
    INT,
    INT_TABLE,
    INTS,
    Codes,
    Floats,
    Ints,
    inlined,
    kernel,
    output,
    unsigned,
)

OWN = numba.types.Array(numba.types.int64, 2, "C")
_OWN_BOOLS = numba.types.Array(numba.types.boolean, 2, "C")
_BOOLS = numba.types.Array(numba.types.boolean, 2, "C", readonly=True)

HELD, EVER, SHOWN_HELD, SHOWN_EVER, WINDOW, SEEN, ISSUED, OPEN, KEY_COLUMNS = range(9)
"""The columns of a key, which fit a line of the cache: how many rows its window has, and how many have come into it;
both as they were when its row was issued; the number of the window (-1 for none), the place that concerned it last, the
one at which its row was issued, and where this is among those of the step (-1 for an earlier step)."""

HIGH, LOW, KNOWN, SHOWN, IS_NULL, TOTAL_COLUMNS = range(6)
"""The columns of a total, behind those of the key: the sum as two limbs of 32 bits, how many values it is of, and what
was issued last: the value, as its bits if it is a double, and whether it is null."""

COUNTS, COLUMN, DOUBLE, LINE, FIELDS = range(5)
"""The fields of a total: whether it counts, the number of its column, whether it is a double, and which line of values
has it."""

START, END, CODE, OF, VALUES = range(5)
"""The lines of rows of earlier steps: from where they are valid and up to where, the key, the window, from here on the
values, and behind these whether they are null."""

WINDOWS, MADE, ENDED, NULLS, NUMBERS = range(5)
"""Numbers: that of the next window; how many rows are issued, how many of earlier steps end, and how many nulls."""

UNKNOWN = 1 << 62
NEVER = -(1 << 63)
DONE = -1

_LIMB = 32
_LOWER = (1 << 32) - 1
_BASE = 4294967296.0
_EXACT = 1 << 53
_MOST = (1 << 31) - 1
_FEW = 32
"""So many windows of one place are put into the order of their numbers; who takes more puts them there itself."""


@inlined
def _own(total: Any) -> Any:
    """Where the columns of a total begin."""
    return unsigned(KEY_COLUMNS) + unsigned(total) * unsigned(TOTAL_COLUMNS)


@inlined
def _add(state: Any, key: Any, row: Any, sign: int, some: Ints, totals: Any, values: Any, valid: Any) -> None:
    """A row comes, or leaves; `some` are the totals that this changes."""
    for number in range(some.size):
        each = unsigned(some[number])
        column, at = totals[each, COLUMN], _own(each)
        if valid.shape[1] and not valid[column, row]:
            continue
        state[key, at + unsigned(KNOWN)] += sign
        if totals[each, COUNTS]:
            continue
        value = values[unsigned(column), row]
        if totals[each, DOUBLE] and not -_EXACT <= value <= _EXACT:
            near = float(value)
            high = np.floor(near / _BASE)
            state[key, at + unsigned(HIGH)] += sign * int(high)
            state[key, at + unsigned(LOW)] += sign * int(near - high * _BASE)
        else:
            state[key, at + unsigned(HIGH)] += sign * (value >> _LIMB)
            state[key, at + unsigned(LOW)] += sign * (value & _LOWER)


@inlined
def _close(
    state: Any, key: Any, place: int, lines: int, held: Ints, ever: Ints, totals: Any, until: Ints, ended: Any,
    numbers: Ints,
) -> None:  # fmt: skip
    """The row of a window ends."""
    if state[key, OPEN] >= 0:
        until[unsigned(state[key, OPEN])] = place
    else:
        at = unsigned(numbers[ENDED])
        ended[START, at], ended[END, at] = state[key, ISSUED], place
        ended[CODE, at], ended[OF, at] = np.int64(key), state[key, WINDOW]
        for each in range(lines):
            ended[VALUES + lines + each, at] = 0
        for each in range(held.size):
            ended[VALUES + held[each], at] = state[key, SHOWN_HELD]
        for each in range(ever.size):
            ended[VALUES + ever[each], at] = state[key, SHOWN_EVER]
        for each in range(totals.shape[0]):
            own, line = _own(each), totals[each, LINE]
            ended[VALUES + line, at] = state[key, own + unsigned(SHOWN)]
            ended[VALUES + lines + line, at] = state[key, own + unsigned(IS_NULL)]
        numbers[ENDED] += 1
    state[key, ISSUED] = UNKNOWN


@inlined
def _row(order: Ints, at: int) -> Any:
    """A row of an order; of none the rows stand in it."""
    return unsigned(order[unsigned(at)]) if order.size else unsigned(at)


@inlined
def _in_order(touched: Ints, count: int, state: Any) -> None:
    """Put windows into the order of their numbers."""
    for at in range(1, count):
        key, to = touched[at], at
        while to > 0 and state[unsigned(touched[to - 1]), WINDOW] > state[unsigned(key), WINDOW]:
            touched[to] = touched[to - 1]
            to -= 1
        touched[to] = key


@inlined
def _counted(
    state: Any, key: Any, place: int, at: Any, held: Ints, ever: Ints, since: Ints, issued: Ints, made: Any
) -> None:
    """Issue a row of a window of which only rows are counted."""
    here, came = state[key, HELD], state[key, EVER]
    since[at], issued[at] = place, np.int64(key)
    state[key, ISSUED], state[key, SHOWN_HELD], state[key, SHOWN_EVER] = place, here, came
    for each in range(held.size):
        made[unsigned(held[each]), at] = here
    for each in range(ever.size):
        made[unsigned(ever[each]), at] = came


@kernel(
    *(INT, INT, INTS, CODES, INTS, INTS, INT_TABLE, _BOOLS, INTS, CODES, INTS, INT_TABLE, _BOOLS),
    *(INTS, INTS, INT_TABLE, INTS, INTS, OWN, output(INT), output(INT), output(INT), output(INT), output(INT), OWN),
    *(_OWN_BOOLS, OWN, output(FLOAT), output(INT), output(INT)),
    allocates=False,
)
def issue(  # noqa: C901, PLR0912, PLR0915  (one walk: its parts would take all of its arrays)
    limit: int,
    pinned: int,
    starts: Ints,
    codes: Codes,
    comes: Ints,
    windows: Ints,
    values: Any,
    valid: Any,
    ends: Ints,
    gone_codes: Codes,
    goes: Ints,
    gone_values: Any,
    gone_valid: Any,
    held: Ints,
    ever: Ints,
    totals: Any,
    adding: Ints,
    taking: Ints,
    state: Any,
    touched: Ints,
    since: Ints,
    until: Ints,
    issued: Ints,
    of: Ints,
    made: Any,
    nulls: Any,
    ended: Any,
    double: Floats,
    bits: Ints,
    numbers: Ints,
) -> int:
    """Take what happens before a place.

    Args:
        limit: The place.
        pinned: Whether empty windows stay.
        starts: The place at which each row comes.
        codes: Its key.
        comes: The rows in order of their places; nothing if they are in it.
        windows: The number of each row's window; nothing if windows are numbered as they begin.
        values: A line for each column that is read, of whole numbers.
        valid: Which are not null, likewise; lines of no length if all are.
        ends: The place at which each row leaves, of those that do.
        gone_codes: As those of rows that come, like what follows.
        goes: Likewise.
        gone_values: Likewise.
        gone_valid: Likewise.
        held: The lines of values that show how many rows are in.
        ever: Those that show how many have come.
        totals: All other totals, with the fields above.
        adding: Those that a row changes as it comes.
        taking: Those that it changes as it leaves.
        state: The keys, with the columns above.
        touched: Room for all keys.
        since: Room for what is issued: the place from which it is valid.
        until: Up to where; `UNKNOWN` if nothing supersedes it. No room if nobody asks for it.
        issued: Its key.
        of: The number of its window; no room if nobody asks for it.
        made: Its values, a line for each total, counts of rows too.
        nulls: False for each of these.
        ended: Room for rows of earlier steps that end, a column for each.
        double: A double.
        bits: Its bits.
        numbers: See `NUMBERS`.

    Returns:
        `DONE`; or the line of a total whose sum does not fit 64 bits.
    """
    size, come, gone, coming, going = totals.shape[0], 0, 0, starts.size, ends.size
    lines, shows_held, shows_ever = made.shape[0], held.size > 0, ever.size > 0
    counts = shows_held and not (size or until.size or of.size or comes.size or goes.size)
    # Of each side the next row is looked at too.
    last_come, last_gone = coming - 1, going - 1
    while True:
        while counts and come < last_come and gone < last_gone:
            # Most often one row comes as another one leaves: both windows have changed, and nothing branches on them.
            place = starts[unsigned(come)]
            if (
                place >= limit
                or ends[unsigned(gone)] != place
                or starts[unsigned(come + 1)] == place
                or ends[unsigned(gone + 1)] == place
            ):
                break
            key, other = unsigned(codes[unsigned(come)]), unsigned(gone_codes[unsigned(gone)])
            if key == other or state[key, WINDOW] < 0 or (not pinned and state[other, HELD] == 1):
                break
            come += 1
            gone += 1
            state[key, HELD] += 1
            state[key, EVER] += 1
            state[other, HELD] -= 1
            at, behind = unsigned(numbers[MADE]), unsigned(state[other, WINDOW] < state[key, WINDOW])
            _counted(state, key, place, at + behind, held, ever, since, issued, made)
            _counted(state, other, place, at + unsigned(1) - behind, held, ever, since, issued, made)
            numbers[MADE] += 2
        place = limit
        if come < coming:
            place = min(place, starts[_row(comes, come)])
        if gone < going:
            place = min(place, ends[_row(goes, gone)])
        if place >= limit:
            return DONE
        count = 0
        while gone < going and ends[_row(goes, gone)] == place:
            row = _row(goes, gone)
            key = unsigned(gone_codes[row])
            gone += 1
            if state[key, SEEN] != place:
                state[key, SEEN] = place
                touched[unsigned(count)] = np.int64(key)
                count += 1
            state[key, HELD] -= 1
            _add(state, key, row, -1, taking, totals, gone_values, gone_valid)
        while come < coming and starts[_row(comes, come)] == place:
            row = _row(comes, come)
            key = unsigned(codes[row])
            come += 1
            if state[key, SEEN] != place:
                state[key, SEEN] = place
                touched[unsigned(count)] = np.int64(key)
                count += 1
            if state[key, WINDOW] < 0:
                if windows.size:
                    state[key, WINDOW] = windows[row]
                else:
                    state[key, WINDOW] = numbers[WINDOWS]
                    numbers[WINDOWS] += 1
                state[key, HELD], state[key, EVER], state[key, ISSUED] = 0, 0, UNKNOWN
                for each in range(size * TOTAL_COLUMNS):
                    state[key, KEY_COLUMNS + each] = 0
            state[key, HELD] += 1
            state[key, EVER] += 1
            _add(state, key, row, 1, adding, totals, values, valid)
        if count <= _FEW:
            _in_order(touched, count, state)
        for number in range(count):
            key, at = unsigned(touched[unsigned(number)]), unsigned(numbers[MADE])
            if not state[key, HELD] and not pinned:
                if until.size and state[key, ISSUED] != UNKNOWN:
                    _close(state, key, place, lines, held, ever, totals, until, ended, numbers)
                state[key, ISSUED], state[key, WINDOW] = UNKNOWN, -1
                continue
            changed = state[key, ISSUED] == UNKNOWN
            changed |= shows_held & (state[key, HELD] != state[key, SHOWN_HELD])
            changed |= shows_ever & (state[key, EVER] != state[key, SHOWN_EVER])
            for each in range(size):
                own, line = _own(each), unsigned(totals[each, LINE])
                value, is_null = state[key, own + unsigned(KNOWN)], False
                if not totals[each, COUNTS]:
                    is_null = value == 0
                    high = state[key, own + unsigned(HIGH)] + (state[key, own + unsigned(LOW)] >> _LIMB)
                    low = state[key, own + unsigned(LOW)] & _LOWER
                    state[key, own + unsigned(HIGH)], state[key, own + unsigned(LOW)] = high, low
                    if totals[each, DOUBLE]:
                        double[0] = float(high) * _BASE + float(low)
                        value = bits[0]
                    elif -_MOST - 1 <= high <= _MOST:
                        value = (high << _LIMB) | low
                    else:
                        return int(totals[each, LINE])
                made[line, at] = value
                if is_null:  # memory that nobody touches costs nothing
                    nulls[line, at] = True
                    numbers[NULLS] += 1
                changed |= is_null or value != state[key, own + unsigned(SHOWN)]
                changed |= state[key, own + unsigned(IS_NULL)] != 0
            if not changed:
                continue
            if until.size:
                if state[key, ISSUED] != UNKNOWN:
                    _close(state, key, place, lines, held, ever, totals, until, ended, numbers)
                until[at] = UNKNOWN
            since[at], issued[at] = place, np.int64(key)
            if of.size:
                of[at] = state[key, WINDOW]
            state[key, ISSUED], state[key, OPEN] = place, np.int64(at)
            state[key, SHOWN_HELD], state[key, SHOWN_EVER] = state[key, HELD], state[key, EVER]
            for each in range(held.size):
                made[unsigned(held[each]), at] = state[key, HELD]
            for each in range(ever.size):
                made[unsigned(ever[each]), at] = state[key, EVER]
            for each in range(size):
                own = _own(each)
                state[key, own + unsigned(SHOWN)] = made[unsigned(totals[each, LINE]), at]
                if not totals[each, COUNTS]:
                    state[key, own + unsigned(IS_NULL)] = state[key, own + unsigned(KNOWN)] == 0
            numbers[MADE] += 1
