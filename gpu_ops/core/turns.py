"""Turns: what happens to a running query of many statements, in its order, as places on a time axis.

Each arrival of an event and each advance of the clock is a turn. A turn has a place on the axis that streams on turns
have instead of time. Events that one turn makes come at places between it and the next turn. All of these places are
even, so that a row may enter a window and leave it in one delivery: it lives from an even place to the odd one behind.
"""

from __future__ import annotations

TURN = 1 << 24
"""The distance between the places of two turns, in ticks."""

LEVEL = 1 << 21
"""The distance, within a turn, between the events that its statements insert and those that come of these."""

STEP = 4
"""The distance between the events that statements insert at one level: between two of them there is a moment more."""

CLOCK = "@clock"
"""The column with the engine's time: that of an arrival when it came, that of a tick after the advance."""

PLACE = "@place"
"""The column with the place at which a row arrived (int64): its identity, and the order of arrival."""

ASK = "@ask"
"""The column of ticks that says whether content is asked for, and the clock stays."""

DUE = "@due"
"""The column of rows in a window that the clock makes them leave: the time at which that fell due."""

BATCH_DUE = "@batch due"
"""The column of rows that enter a window in batches of the clock: the time at which the batch fell due."""

ROW = "@row"
"""The column that says what a delivered row is (int8): one of the constants below."""

NEW, OLD, HELD, MARK, EMPTY, FIRED = range(6)
"""A row of the insert stream, of the remove stream, of the content asked for; how many rows a turn moved; no row; what
an output rate had counted where it fired."""

SINCE, UNTIL = "@since", "@until"
"""The columns of matches with the clock at their first members and at their last ones."""

CHANGED = "@changed"
"""The column that says of marks whether they are no deliveries, but changes of variables."""

ENTERED, LEFT = "@entered", "@left"
"""The columns of a `MARK`: how many rows entered and how many left."""

GROUPING = "@level"
"""The column with the number of a group's level, where groups are rolled up (int64)."""

ORDER = "@order"
"""The column with the number of a row among those of its place and kind (int64)."""

LEFT_FIRST = 1 << 58
"""More than any place: groups that a row enters come before those that rows only leave, at one place."""

INSTANCE = "@instance"
"""The column with the number of an instance of a context (int64), from 0 on in the order in which they start."""

ENDED = "@ended"
"""The column of points of instances that says whether an instance ends there (bool); else it starts."""

IS_NEW, IS_OLD = "@new", "@old"
"""The columns of joined rows that say whether a row is delivered as a new one where it enters, and as an old one where
it leaves (bool)."""


def of_stream(column: str, number: int) -> str:
    """The name of one of these columns of a stream of a join, by the stream's number.

    Examples:
        >>> of_stream(PLACE, 1)
        '@place 1'
    """
    return f"{column} {number}"


ARRIVED = "@arrived"
"""The column with the number of a row among all that ever came to who keeps it (int64)."""
