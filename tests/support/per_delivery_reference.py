"""The rows of each delivery ordered, limited, and without equal ones, one delivery after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_ops.core.turns import EMPTY, HELD, NEW, OLD, ORDER, ROW

Row = dict[str, Any]


def arranged(
    rows: Sequence[Row],
    keys: Sequence[tuple[str, bool]] = (),
    distinct: Sequence[str] | None = None,
    limit: int | None = None,
    offset: int = 0,
    *,
    leaves_empty: bool = False,
) -> list[Row]:
    """The rows that are left, in order of place, kind and number.

    Args:
        rows: The rows.
        keys: Columns, and whether each is descending.
        distinct: As in `PerDelivery`, like the others.
        limit: How many rows stay.
        offset: How many are left out.
        leaves_empty: Whether a delivery of which no row is left is an empty one.
    """
    made = [row for row in rows if row[ROW] not in {NEW, OLD, HELD}]
    for place, kind in sorted({(row["place"], row[ROW]) for row in rows if row[ROW] in {NEW, OLD, HELD}}):
        here = sorted((row for row in rows if (row["place"], row[ROW]) == (place, kind)), key=lambda row: row[ORDER])
        for name, descending in reversed(keys):
            here.sort(key=lambda row: (row[name] is not None, row[name]), reverse=descending)
        seen, left = list[Any](), list[Row]()
        for row in here[offset : None if limit is None else offset + limit]:
            values = None if distinct is None else [row[name] for name in distinct]
            if distinct is None or values not in seen:
                left.append(row)
                seen.append(values)
        made += [{**row, ORDER: number} for number, row in enumerate(left)]
    had, has = ({row["place"] for row in each if row[ROW] in {NEW, OLD}} for each in (rows, made))
    made += [{"place": place, ROW: EMPTY, ORDER: 0} for place in had - has if leaves_empty]
    return sorted(made, key=lambda row: (row["place"], row[ROW], row[ORDER]))
