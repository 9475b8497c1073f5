"""The walk through the changes of several partitions: which values of a column complete a pattern, and when."""

from __future__ import annotations

from typing import Any

import numba

from gpu_ops.devices.cpu.compiling import INT_TABLE, INTS, Ints, kernel, output

OWN = numba.types.Array(numba.types.int64, 2, "C")

WAITS, ARMED, DONE = range(3)
"""The states of a value in a pattern: it is not complete; it is, and waits for a row to leave; it has fired or never
will, until none of the pattern's rows is there."""

PLACE, PATTERN, FIRST = range(3)
"""The columns of what fires: where, which pattern, and from here on the row of each source, -1 for none."""


@kernel(
    *(INTS, INTS, INTS, INTS, INTS, INT_TABLE),
    *(output(numba.types.int64), OWN, OWN, OWN),
    allocates=False,
)
def fired(
    places: Ints,
    values: Ints,
    comes: Ints,
    sources: Ints,
    rows: Ints,
    patterns: Any,
    there: Ints,
    states: Any,
    latest: Any,
    output_rows: Any,
) -> int:
    """Take some changes.

    Args:
        places: The place of each change.
        values: Its value; changes of one value and one place are together, places of a value ascend.
        comes: Whether a row comes; of one value and place those that leave are first.
        sources: Whose row it is.
        rows: Its number, of those that come.
        patterns: Of each pattern the bits of the sources that have to be there, and those of all that it is about.
        there: The bits of the sources that have each value.
        states: The state of each value in each pattern.
        latest: The row of each source that came last with each value.
        output_rows: Room for what fires.

    Returns:
        How much fires.
    """
    count, at = 0, 0
    while at < places.size:
        place, value, removed, added = places[at], values[at], 0, 0
        while at < places.size and values[at] == value and places[at] == place and comes[at] == 0:
            removed |= 1 << sources[at]
            at += 1
        removed &= there[value]
        for pattern in range(patterns.shape[0]):
            wanted, about = patterns[pattern, 0], patterns[pattern, 1]
            if states[value, pattern] == ARMED and removed & wanted:
                states[value, pattern] = DONE
                output_rows[count, PLACE], output_rows[count, PATTERN] = place, pattern
                for source in range(latest.shape[1]):
                    row = latest[value, source] if wanted >> source & 1 else -1
                    output_rows[count, FIRST + source] = row
                count += 1
            if not (there[value] & ~removed) & about:
                states[value, pattern] = WAITS
        there[value] &= ~removed
        while at < places.size and values[at] == value and places[at] == place:
            added |= 1 << sources[at]
            latest[value, sources[at]] = rows[at]
            at += 1
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
                    output_rows[count, PLACE], output_rows[count, PATTERN] = place, pattern
                    for source in range(latest.shape[1]):
                        row = latest[value, source] if wanted >> source & 1 else -1
                        output_rows[count, FIRST + source] = row
                    count += 1
    return count
