"""Validation of lifetimes: a valid batch costs one pass over its times, any other is checked rule by rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import room
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.errors import TimeError
from gpu_ops.ingest.arrivals import ArrivalKind, Extent
from gpu_ops.ingest.kinds import Kinds
from gpu_ops.ingest.rules import (
    LIFETIME_RULES,
    NEGATIVE_LENGTH,
    NULL,
    OUTSIDE,
    TIME_RULES,
    UNKNOWN_EDGE,
    UNKNOWN_KIND,
    ZERO_LENGTH,
    TimeRule,
)
from gpu_ops.ingest.times import Times
from gpu_ops.ingest.zones import Mask, Ticks


@dataclass(frozen=True)
class Breach:
    """A rule and what broke it ("start", "end", "kind" or "edge"). A row's verdict is an index of `BREACHES`."""

    rule: TimeRule
    side: str

    @property
    def name(self) -> str:
        """The name in reports."""
        return f"{self.rule.name}_{self.side}" if self.rule in TIME_RULES else self.rule.name

    @property
    def problem(self) -> str:
        """The problem of a row that breaks the rule."""
        return self.rule.problem.format(side=self.side)

    @property
    def remedy(self) -> str:
        """The remedy, with the choice to leave such rows out."""
        is_null_end = self.rule is NULL and self.side == "end"
        own = 'Say null_end="open" if such an event never ends.' if is_null_end else self.rule.remedy
        return f'{own} Or leave such rows out: on_invalid="drop", or "divert" to keep them aside.'


BREACHES: tuple[Breach, ...] = (
    Breach(UNKNOWN_KIND, "kind"),
    Breach(UNKNOWN_EDGE, "edge"),
    *(Breach(rule, side) for side in ("start", "end") for rule in TIME_RULES),
    *(Breach(rule, "end") for rule in LIFETIME_RULES),
)
"""In the order of the checks."""

_FINE = 255


@dataclass(frozen=True)
class Fine:
    """What the check of a batch without invalid rows tells; see `Arrivals`."""

    extent: Extent | None = None
    point_ends: Ticks | None = None


def verdicts(
    start: Times, end: Times | None, kinds: Kinds | None = None, *, make_ends: bool = False
) -> np.ndarray | Fine:
    """The index in `BREACHES` of the first breach of each row, or `_FINE`; what the check tells if all rows are valid.

    Args:
        start: The starts.
        end: The ends; None for points. If rows are of several kinds, they must come from `read_ends`.
        kinds: The kinds of rows, if there are several.
        make_ends: Whether to make the ends of points in the same pass.
    """
    faults = {(rule.name, "start"): mask for rule, mask in start.faults.items()}
    if kinds is not None:
        faults |= {(rule.name, rule.name.removeprefix("unknown_")): mask for rule, mask in kinds.faults.items()}
        highest = MAX_TIME - (TICK if end is not None else 2 * TICK)
        # A CTI may be at infinity, where no event may start.
        late = kinds.ctis & (start.ticks > highest) & (start.ticks <= MAX_TIME)
        start = Times(np.where(late, highest, start.ticks), start.faults)
    if end is not None:
        faults |= {(rule.name, "end"): mask for rule, mask in end.faults.items()}
    told = None if faults else _all_fine(start.ticks, None if end is None else end.ticks, make_ends=make_ends)
    if told is not None:
        return told if kinds is None else Fine()
    highest = MAX_TIME if end is not None else MAX_TIME - 2 * TICK  # a point must end, and before the open end
    _note(faults, OUTSIDE, "start", (start.ticks < MIN_TIME) | (start.ticks > highest))
    if end is not None:
        _note(faults, OUTSIDE, "end", (end.ticks < MIN_TIME) | (end.ticks > MAX_TIME))
        _note(faults, ZERO_LENGTH, "end", start.ticks == end.ticks)
        _note(faults, NEGATIVE_LENGTH, "end", start.ticks > end.ticks)
    found = np.full(len(start.ticks), _FINE, np.uint8)
    for index, breach in reversed(list(enumerate(BREACHES))):
        mask = faults.get((breach.rule.name, breach.side))
        if mask is not None:
            found[mask] = index
    return found


def fine(found: np.ndarray) -> Mask:
    """The valid rows."""
    return np.asarray(found == _FINE, np.bool_)


def _note(faults: dict[tuple[str, str], Mask], rule: TimeRule, side: str, mask: Mask) -> None:
    known = faults.get((rule.name, side))
    faults[rule.name, side] = mask if known is None else known | mask


def _all_fine(start: Ticks, end: Ticks | None, *, make_ends: bool) -> Fine | None:
    """What one pass tells if all lifetimes are within the years 1 to 9999 and not empty; else None."""
    if not len(start):
        return Fine()
    # Not with the package, which would load Numba.
    from gpu_ops.devices.cpu.order import extent, extent_moved, lifetimes_extent

    if end is not None:
        least, most, latest, after = lifetimes_extent(start, end)
        return Fine(Extent(least, most, latest)) if after and least >= MIN_TIME and latest <= MAX_TIME else None
    ends = room(len(start), np.int64) if make_ends else None
    least, most = extent(start) if ends is None else extent_moved(start, TICK, ends)
    if least < MIN_TIME or most > MAX_TIME - 2 * TICK:
        return None
    return Fine(Extent(least, most, most + TICK), ends)


def open_null_ends(end: Times, kinds: Kinds | None = None) -> Times:
    """Replace null ends by infinity, but not those of end edges, which remain faults."""
    if NULL not in end.faults:
        return end
    nulls, kept = end.faults[NULL], None
    if kinds is not None:
        kept = nulls & (kinds.kinds == ArrivalKind.END)
        nulls = nulls & ~kept
    others = {rule: mask for rule, mask in end.faults.items() if rule is not NULL}
    if kept is not None and kept.any():
        others[NULL] = kept
    return Times(np.where(nulls, MAX_TIME, end.ticks), others)


def read_ends(end: Times, kinds: Kinds) -> Times:
    """Replace the ends of start edges and CTIs by infinity, without their faults."""
    without = kinds.without_end
    faults = {rule: mask & ~without for rule, mask in end.faults.items()}
    return Times(np.where(without, MAX_TIME, end.ticks), {rule: mask for rule, mask in faults.items() if mask.any()})


@dataclass(frozen=True)
class RowPlace:
    """The place of a batch: the index of its first row in the source, and in its file if there are several."""

    row: int
    file: str | None = None
    file_row: int = 0


def row_text(times: pa.Table, row: int) -> str:
    """The times of a row as text, as they came in."""
    return ", ".join(f"{name}={_value_text(times[name].slice(row, 1))}" for name in times.column_names)


def _value_text(one: pa.ChunkedArray) -> str:
    if one.null_count:
        return "null"
    if pa.types.is_integer(one.type):
        return str(one[0].as_py())
    text = str(one.cast(pa.string())[0].as_py())
    return repr(text) if pa.types.is_string(one.type) else text


def refuse(found: np.ndarray, times: pa.Table, place: RowPlace, columns: Mapping[str, str]) -> TimeError:
    """The error for the first invalid row.

    Args:
        found: The verdicts of `verdicts`.
        times: The columns of start and end as they came in, then the columns of kinds.
        place: Where the rows are.
        columns: The column of "start", and of "end", "kind" and "edge" if there is one.
    """
    row = int((found != _FINE).argmax())
    breach = BREACHES[found[row]]
    count = int((found == found[row]).sum())
    others = int((found != _FINE).sum()) - count
    more = f" ({breach.name}: {count:,} row{'s' * (count > 1)} of the {len(found):,} read together"
    more += f", beside {others:,} with other faults)" if others else ")"
    where = f", in {place.file} row {place.file_row + row}" if place.file else ""
    return TimeError(
        f"{breach.problem}{more}.",
        column=columns[breach.side],
        row=place.row + row,
        values=row_text(times, row) + where,
        remedy=breach.remedy,
    )
