"""The walk through the changes of several partitions: which values of a column complete a pattern, and when."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from gpu_ops.devices.cpu.compiling import CODES, INT, INT_TABLE, INTS, Codes, Ints, inlined, kernel, output, unsigned

OWN = numba.types.Array(numba.types.int64, 2, "C")

WAITS, ARMED, DONE = range(3)
"""The states of a value in a pattern: it is not complete; it is, and waits for a row to leave; it has fired or never
will, until none of the pattern's rows is there."""

PLACE, PATTERN, FIRST = range(3)
"""The columns of what fires: where, which pattern, and from here on the row of each source, -1 for none."""

NEVER = 1 << 62


@inlined
def _fire(place: int, value: Any, pattern: int, wanted: int, latest: Any, output_rows: Any, count: int) -> int:
    """A pattern fires, with the rows of the sources that it wants."""
    row = unsigned(count)
    output_rows[row, PLACE], output_rows[row, PATTERN] = place, pattern
    for source in range(latest.shape[1]):
        output_rows[row, FIRST + source] = latest[value, source] if wanted >> source & 1 else -1
    return count + 1


@kernel(
    *(INTS, CODES, INTS, INTS, INT_TABLE),
    *(output(INT), OWN, OWN, output(INT), output(INT), OWN, output(INT), OWN),
    allocates=False,
)
def fired(  # noqa: C901, PLR0912  (one walk: its parts would take all of its arrays)
    places: Ints,
    values: Codes,
    rows: Ints,
    begins: Ints,
    patterns: Any,
    there: Ints,
    states: Any,
    latest: Any,
    heads: Ints,
    due: Ints,
    moved: Any,
    touched: Ints,
    output_rows: Any,
) -> int:
    """Take some changes: of each place the rows that leave, then those that come.

    Args:
        places: The place of each change: those of rows that leave the first source, the second and so on, and those of
            rows that come to each; the places of each of these stretches ascend.
        values: Its value; -1 for null, which equals nothing.
        rows: Its number, of those that come.
        begins: Where each stretch begins, and where the last one ends.
        patterns: Of each pattern the bits of the sources that have to be there, and those of all that it is about.
        there: The bits of the sources that have each value.
        states: The state of each value in each pattern.
        latest: The row of each source that came last with each value.
        heads: Room for the number of the next change of each stretch.
        due: Room for its place.
        moved: Room for the bits of the sources that each value leaves, and comes to; zeros.
        touched: Room for as many values as there are changes.
        output_rows: Room for what fires.

    Returns:
        How much fires.
    """
    sources, fires = latest.shape[1], 0
    for each in range(2 * sources):
        heads[each] = begins[each]
        due[each] = places[unsigned(begins[each])] if begins[each] < begins[each + 1] else NEVER
    now, count, leaves = -NEVER, 0, False
    while True:
        # The next change is chosen without a branch that nobody foresees. Of one place those that leave come first.
        place, chosen = NEVER, 0
        for each in range(2 * sources):
            chosen = each if due[each] < place else chosen
            place = min(place, due[each])
        if leaves and (place != now or chosen >= sources):
            leaves = False
            for number in range(count):
                value = unsigned(touched[number])
                removed = moved[value, 0] & there[value]
                for pattern in range(patterns.shape[0]):
                    wanted, about = patterns[pattern, 0], patterns[pattern, 1]
                    if states[value, pattern] == ARMED and removed & wanted:
                        states[value, pattern] = DONE
                        fires = _fire(now, value, pattern, wanted, latest, output_rows, fires)
                    if not (there[value] & ~removed) & about:
                        states[value, pattern] = WAITS
                there[value] &= ~removed
        if place != now:
            for number in range(count):
                value = unsigned(touched[number])
                added = moved[value, 1]
                moved[value, 0] = moved[value, 1] = 0
                there[value] |= added
                for pattern in range(patterns.shape[0]):
                    wanted, about = patterns[pattern, 0], patterns[pattern, 1]
                    is_whole = (there[value] & about) == wanted
                    if states[value, pattern] == ARMED and not is_whole:
                        states[value, pattern] = DONE
                    elif states[value, pattern] == WAITS and added & about and is_whole:
                        states[value, pattern] = ARMED
                        if wanted == about:
                            states[value, pattern] = DONE
                            fires = _fire(now, value, pattern, wanted, latest, output_rows, fires)
            if place == NEVER:
                return fires
            now, count = place, 0
        at = heads[unsigned(chosen)]
        heads[unsigned(chosen)] = at + 1
        due[unsigned(chosen)] = places[unsigned(at + 1)] if at + 1 < begins[unsigned(chosen + 1)] else NEVER
        comes = chosen >= sources
        leaves |= not comes
        if values[unsigned(at)] < 0:
            continue
        value, source = unsigned(values[unsigned(at)]), unsigned(chosen - sources if comes else chosen)
        if not moved[value, 0] | moved[value, 1]:
            touched[unsigned(count)] = np.int64(value)
            count += 1
        moved[value, unsigned(1 if comes else 0)] |= 1 << np.int64(source)
        if comes:
            latest[value, source] = rows[unsigned(at)]
