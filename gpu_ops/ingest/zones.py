"""Local times to instants, by Python's time zone database.

Arrow's own conversion knows no clock change after 2037 and Polars' none after 2099; `zoneinfo` applies the last rule
for ever. It is asked once for each day that occurs, not for each row.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_ops.errors import PlanError, shown
from gpu_ops.ingest.rules import AMBIGUOUS, NONEXISTENT, Ambiguous, Nonexistent, TimeRule

Ticks = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

DAY = 86_400_000_000

_OFFSET = re.compile(r"([+-])([01]\d|2[0-3]):?([0-5]\d)")
_TICK = datetime.timedelta(microseconds=1)
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001  (local times have no zone: that is the point)


class _ZonePiece(NamedTuple):
    """A stretch of local time within which nothing changes; offsets are local time minus UTC, in ticks."""

    first: int
    before: int
    after: int
    """Where the clock went back, local times occur twice: first at `before`, then at `after`, which is less.
    Where it went forward, they never occur: `before` is less than `after`. Elsewhere both are equal (PEP 495)."""


@dataclass(frozen=True)
class Zone:
    """A time zone by its name in the time zone database, or as an offset such as ``+05:30``.

    Raises:
        PlanError: There is no such zone.

    Examples:
        >>> Zone("Europe/Vienna")
        Zone(name='Europe/Vienna')
    """

    name: str

    def __post_init__(self) -> None:
        """Refuse an unknown name."""
        if not isinstance(self.name, str):
            raise PlanError(f"A time zone is a text, not {shown(self.name)}.", remedy="Write zone='Europe/Vienna'.")
        if _OFFSET.fullmatch(self.name) is None:
            try:
                zoneinfo.ZoneInfo(self.name)
            except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
                raise PlanError(
                    f"There is no time zone {self.name!r}.",
                    remedy="Give a name such as 'Europe/Vienna', 'UTC', or an offset such as '+05:30'.",
                ) from error

    @property
    def info(self) -> datetime.tzinfo:
        """The zone as Python's `datetime` takes it."""
        ahead = self._ahead
        return zoneinfo.ZoneInfo(self.name) if ahead is None else datetime.timezone(ahead)

    @property
    def _ahead(self) -> datetime.timedelta | None:
        """How far an offset is ahead of UTC; None for a name of the database."""
        offset = _OFFSET.fullmatch(self.name)
        if offset is None:
            return None
        ahead = datetime.timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return ahead if offset[1] == "+" else -ahead

    def to_utc(
        self, local: Ticks, ambiguous: Ambiguous, nonexistent: Nonexistent
    ) -> tuple[Ticks, dict[TimeRule, Mask]]:
        """Instants for local times.

        Args:
            local: Clock times as if they were UTC: int64 ticks within the years 1 to 9999.
            ambiguous: Which instant to take for a time that occurred twice.
            nonexistent: What replaces a time that never occurred: the first instant after the gap, or the last before.

        Returns:
            Ticks, and for each broken rule a mask of the rows that a policy of "raise" refuses.
        """
        ahead = self._ahead
        if ahead is not None:
            return local - ahead // _TICK, {}
        if not len(local):
            return local, {}
        days = local // DAY
        lowest = int(days.min())
        days -= lowest
        occurs = np.zeros(int(days.max()) + 1, np.bool_)
        occurs[days] = True
        pieces = {day: _day(self.name, lowest + day) for day in np.flatnonzero(occurs).tolist()}
        offsets = np.zeros(len(occurs), np.int64)
        for day, (piece, *_) in pieces.items():
            offsets[day] = piece.before
        instants = local - offsets[days]
        changes = [day for day, (piece, *more) in pieces.items() if more or piece.before != piece.after]
        if not changes:
            return instants, {}
        # Only rows on days with a clock change remain, usually few.
        changing = np.zeros(len(occurs), np.bool_)
        changing[changes] = True
        rows = np.flatnonzero(changing[days])
        parts = [piece for day in changes for piece in pieces[day]]
        instants[rows], broken = _through_changes(local[rows], parts, ambiguous, nonexistent)
        faults: dict[TimeRule, Mask] = {}
        for rule, mask in broken.items():
            faults[rule] = np.zeros(len(local), np.bool_)
            faults[rule][rows] = mask
        return instants, faults


def _through_changes(
    local: Ticks, pieces: list[_ZonePiece], ambiguous: Ambiguous, nonexistent: Nonexistent
) -> tuple[Ticks, dict[TimeRule, Mask]]:
    first, before, after = (np.array(column, np.int64) for column in zip(*pieces, strict=True))
    at = np.searchsorted(first, local, side="right") - 1
    twice, skipped = (before > after)[at], (before < after)[at]
    instants = local - np.where(twice & (ambiguous == "latest"), after[at], before[at])
    # A gap begins while the clock still has the old offset: that instant is the first after it.
    instants[skipped] = (first - before)[at[skipped]] - (nonexistent == "shift_backward")
    faults: dict[TimeRule, Mask] = {}
    if ambiguous == "raise" and twice.any():
        faults[AMBIGUOUS] = twice
    if nonexistent == "raise" and skipped.any():
        faults[NONEXISTENT] = skipped
    return instants, faults


@lru_cache(maxsize=1 << 16)
def _day(name: str, day: int) -> tuple[_ZonePiece, ...]:
    """The pieces of one local day.

    It is halved until both ends of each part agree. That finds every change, because no zone of the database has
    changed its offset twice within three days (the shortest time between two changes was 95 hours, in 1939).
    """
    zone = zoneinfo.ZoneInfo(name)

    def at(local: int) -> _ZonePiece:
        shown = _EPOCH + datetime.timedelta(microseconds=local)
        before, after = (shown.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
        return _ZonePiece(local, *(0 if each is None else each // _TICK for each in (before, after)))

    def split(low: _ZonePiece, high: _ZonePiece) -> list[_ZonePiece]:
        if low[1:] == high[1:]:
            return []
        if high.first - low.first == 1:
            return [high]
        middle = at((low.first + high.first) // 2)
        return split(low, middle) + split(middle, high)

    morning = at(day * DAY)
    if morning.before < morning.after:
        # A gap that began on the day before: no earlier than its length ago.
        morning = split(at(morning.first - (morning.after - morning.before)), morning)[-1]
    return (morning, *split(morning, at(day * DAY + DAY - 1)))
