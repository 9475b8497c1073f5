"""Local times to instants, by Python's time zone database.

Arrow's own conversion knows no clock change after 2037 and Polars' none after 2099; `zoneinfo` applies the last rule
for ever. It is asked for the changes of each year that occurs, not for each row.
"""

from __future__ import annotations

import calendar
import datetime
import re
import zoneinfo
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_ops.errors import PlanError, shown
from gpu_ops.ingest.rules import AMBIGUOUS, NONEXISTENT, Ambiguous, Nonexistent, TimeRule

Ticks = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

DAY = 86_400_000_000

_YEARS = range(1800, 2129)
"""The years whose changes are looked for: none is earlier, and from 2101 on a rule that goes on for ever holds."""
_STEP = 3 * DAY
"""No zone of the database has changed its offset twice within it: the shortest time was 95 hours, in 1939."""

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


class _ZonePieces(NamedTuple):
    """Pieces one behind the other, as arrays."""

    first: Ticks
    before: Ticks
    after: Ticks


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
        mornings = (np.flatnonzero(occurs) + lowest) * DAY
        pieces = _pieces(self.name, np.unique(mornings.astype("datetime64[us]").astype("datetime64[Y]")))
        morning, evening = (np.searchsorted(pieces.first, mornings + more, side="right") - 1 for more in (0, DAY - 1))
        offsets = np.zeros(len(occurs), np.int64)
        offsets[occurs] = pieces.before[morning]
        instants = local - offsets[days]
        changing = np.zeros(len(occurs), np.bool_)
        changing[occurs] = (morning != evening) | (pieces.before != pieces.after)[morning]
        # Only rows on days with a clock change remain, usually few.
        rows = np.flatnonzero(changing[days])
        if not len(rows):
            return instants, {}
        instants[rows], broken = _through_changes(local[rows], pieces, ambiguous, nonexistent)
        faults: dict[TimeRule, Mask] = {}
        for rule, mask in broken.items():
            faults[rule] = np.zeros(len(local), np.bool_)
            faults[rule][rows] = mask
        return instants, faults


def _through_changes(
    local: Ticks, pieces: _ZonePieces, ambiguous: Ambiguous, nonexistent: Nonexistent
) -> tuple[Ticks, dict[TimeRule, Mask]]:
    first, before, after = pieces
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


def _begin_of(year: int) -> int:
    """The first local time of a year, in ticks."""
    return (datetime.date(year, 1, 1) - _EPOCH.date()).days * DAY


_LASTING = {(datetime.date(year, 1, 1).weekday(), calendar.isleap(year)): year for year in _YEARS[-28:]}
"""By the weekday on which a year begins, and whether it is a leap year: one in which a lasting rule holds."""


def _pieces(name: str, years: npt.NDArray[np.datetime64]) -> _ZonePieces:
    """The pieces of some years, in order; the first of each begins with it, or in a gap that began before it."""
    found = []
    for year in (years.astype(np.int64) + _EPOCH.year).tolist():
        same = max(year, _YEARS[0])
        if year > _YEARS[-1]:
            same = _LASTING[datetime.date(year, 1, 1).weekday(), calendar.isleap(year)]
        known = _pieces_of(name, same)
        found.append(known._replace(first=known.first + (_begin_of(year) - _begin_of(same))))
    return _ZonePieces(*(np.concatenate(columns) for columns in zip(*found, strict=True)))


@lru_cache(maxsize=1 << 12)
def _pieces_of(name: str, year: int) -> _ZonePieces:
    """The pieces of one local year: what differs at its ends is halved until both ends of each part agree."""
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

    begin, end = _begin_of(year), _begin_of(year + 1)
    probes = [at(local) for local in (*range(begin, end, _STEP), end - 1)]
    pieces = [probes[0]]
    if pieces[0].before < pieces[0].after:
        # A gap that began in the year before: no earlier than its length ago.
        pieces = split(at(begin - (pieces[0].after - pieces[0].before)), pieces[0])[-1:]
    for low, high in pairwise(probes):
        pieces += split(low, high)
    return _ZonePieces(*(np.array(column, np.int64) for column in zip(*pieces, strict=True)))
