"""What is said of a row at which a statement fails: the turn, the event, and the expression as it is written."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from gpu_ops.core.time import MAX_TIME
from gpu_ops.core.turns import TURN
from gpu_ops.errors import GpuOpsError, IntegerOverflowError, SumOverflowError
from gpu_ops.texts.feeding import PlacedRows

_LIFETIME = re.compile(r"start=([^,]*)Z, end=[^,]*(?:, )?")
_OWN = re.compile(r"(?:, |^)@row=[^,]*")
"""A value that is none of the user's."""

_REMEDIES: dict[type[GpuOpsError], str] = {
    IntegerOverflowError: "Cast what it reads to a type that holds the result: cast(v, long), or cast(v, double).",
    SumOverflowError: "Sum a wider type, for instance a double: sum(cast(v, double)).",
}


def in_turns(error: BaseException, place: int, arrived: Mapping[str, PlacedRows] | None = None) -> BaseException:
    """An error of a row on turns, in words of turns and events: the places of turns are no times.

    Args:
        error: The error.
        place: The place of the row; `MAX_TIME` if the error says it.
        arrived: The rows of each type that came in the step; None if that is known.

    Examples:
        >>> failed = IntegerOverflowError("v*v does not fit.", values="start=1970-01-01T00:00:33.554432Z, end=x, v=9")
        >>> print(in_turns(failed, MAX_TIME))
        v*v does not fit. [turn 2, v=9] Cast what it reads to a type that holds the result: cast(v, long), or cast(v, double).
    """  # noqa: E501
    found = _LIFETIME.search(getattr(error, "values", None) or "")
    if place == MAX_TIME and found is not None:
        place = int(np.datetime64(found[1], "us").astype(np.int64))
    if place == MAX_TIME:
        return error
    made = _placed(error, place, found) if isinstance(error, GpuOpsError) and found is not None else error
    if made is error:
        made.add_note(f"It is a row of turn {place // TURN}.")
    for name, rows in (arrived or {}).items():
        at = int(np.searchsorted(rows.places, place))
        if at < len(rows.places) and int(rows.places[at]) == place:
            made.add_note(f"It is event {at} of the {len(rows.places):,} of type {name!r} in this call, from 0 on.")
    return made


def _placed(error: GpuOpsError, place: int, lifetime: re.Match[str]) -> GpuOpsError:
    """The same error of a row at a turn, which has no lifetime."""
    said = error.values or ""
    said = _OWN.sub("", said[: lifetime.start()] + said[lifetime.end() :])
    values = [f"turn {place // TURN}", said.removeprefix(", ")]
    made = type(error)(
        error.problem,
        column=None if error.column is None or error.column.startswith("@") else error.column,
        row=error.row,
        values=", ".join(each for each in values if each),
        remedy=_REMEDIES.get(type(error), error.remedy),
    )
    made.__cause__, made.__traceback__ = error.__cause__, error.__traceback__
    for note in getattr(error, "__notes__", ()):
        made.add_note(note)
    return made
