"""A column of times, of any type that can be one, as ticks. What single rows do wrong is found here, not judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import integers, nulls, to_arrow
from gpu_ops.core.arrow_types import is_text
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.errors import PlanError, TimeError
from gpu_ops.ingest.rules import (
    NO_ZONE,
    NULL,
    OUTSIDE,
    TOO_FINE,
    UNREADABLE,
    Ambiguous,
    Nonexistent,
    Round,
    TimeRule,
    Unit,
)
from gpu_ops.ingest.text_times import read_integers, read_times
from gpu_ops.ingest.zones import DAY, Mask, Ticks, Zone

_TICKS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_IS = pa.types


@dataclass(frozen=True)
class TimePolicy:
    """How times are read that their type alone does not explain."""

    unit: Unit | None = None
    zone: Zone | None = None
    round: Round | None = None
    ambiguous: Ambiguous = "raise"
    nonexistent: Nonexistent = "raise"


@dataclass(frozen=True)
class Times:
    """A column of times, read.

    Attributes:
        ticks: int64; a read-only view of the column's own memory where that holds ticks already. Any value stands
            where a rule is broken. Columns that hold ticks already are not looked at: they may be outside of all years.
        faults: The rows that break a rule, as a mask for each rule that is broken.
    """

    ticks: Ticks
    faults: dict[TimeRule, Mask]


@dataclass(frozen=True)
class TimeColumn:
    """One of the two columns of a lifetime.

    Args:
        name: The column.
        kind: Its Arrow type.
        side: "start" or "end".
        policy: What the type does not say.
        text: Whether text is read as ISO 8601 (or, with a unit, as integers): so in CSV files, and nowhere else.

    Raises:
        TimeError: No such column can be times, or the policy leaves out what it needs.
    """

    name: str
    kind: pa.DataType
    side: str
    policy: TimePolicy
    text: bool

    def __post_init__(self) -> None:
        """Refuse, before anything is read, what cannot be times."""
        problem = remedy = None
        if _IS.is_timestamp(self.kind):
            if self.kind.tz is None and self.policy.zone is None:
                problem = f"The {self.side} is {self.kind}, a local time without a zone"
                remedy = f"Say where its clock hangs: zone='UTC', zone='Europe/Vienna' … ({self.name} stays as it is)."
            elif self.kind.tz is not None and not _is_zone(self.kind.tz):
                problem = f"The {self.side} is {self.kind}, and there is no time zone {self.kind.tz!r}"
                remedy = "Cast it to a timestamp of a zone that there is, such as timestamp('us', 'UTC')."
        elif _IS.is_integer(self.kind):
            if self.policy.unit is None:
                problem = f"The {self.side} is {self.kind}, a number without a unit"
                remedy = "Say what it counts since 1970-01-01T00:00Z: unit='s', 'ms', 'us' or 'ns'."
        elif is_text(self.kind):
            if not self.text:
                problem = f"The {self.side} is text ({self.kind})"
                remedy = "Cast it to a timestamp first: only in CSV files are times read from text."
        elif not _IS.is_date(self.kind):
            problem = f"The {self.side} is {self.kind}, which is no time"
            remedy = "Give timestamps, dates, or integers with unit=; cast the column to one of these."
        if problem is not None:
            raise TimeError(f"{problem}.", column=self.name, remedy=remedy)

    @property
    def counts(self) -> bool:
        """Whether it can hold numbers, of which a unit says what they count."""
        return bool(_IS.is_integer(self.kind)) or (self.text and is_text(self.kind))

    @property
    def zone(self) -> str | None:
        """The zone that the column's type carries."""
        return self.kind.tz if _IS.is_timestamp(self.kind) else None

    def read(self, array: pa.Array) -> Times:
        """Ticks of an array of the column."""
        faults: dict[TimeRule, Mask] = {}
        if array.null_count:
            faults[NULL] = nulls(array)
        if is_text(self.kind):
            return self._read_text(array, faults)
        if _IS.is_timestamp(self.kind):
            ticks = self._scaled(array, self.kind.unit, faults)
            return self._local(ticks, faults) if self.kind.tz is None else Times(ticks, faults)
        if _IS.is_date(self.kind):
            ticks = self._scaled(array, "day" if _IS.is_date32(self.kind) else "ms", faults)
            return self._local(ticks, faults)
        return Times(self._scaled(array, self.policy.unit or "us", faults), faults)

    def _scaled(self, array: pa.Array, unit: str, faults: dict[TimeRule, Mask]) -> Ticks:
        counts = _counts(array)
        if _IS.is_uint64(self.kind) and len(counts) and counts.min() < 0:
            _add(faults, OUTSIDE, counts < 0)
            counts = np.maximum(counts, 0)
        if NULL in faults:
            # What lies under a null may be anything.
            counts = np.where(faults[NULL], 0, counts)
        return self._to_ticks(counts, unit, faults)

    def _to_ticks(self, counts: Ticks, unit: str, faults: dict[TimeRule, Mask]) -> Ticks:
        if unit == "us":
            return counts
        if unit == "ns":
            try:
                # Three times as fast, but it knows only all or nothing.
                return _counts(to_arrow(counts, pa.timestamp("ns")).cast(pa.timestamp("us")))
            except pa.ArrowInvalid:
                ticks = counts // 1000
            rest = counts - ticks * 1000
            return self._rounded(ticks, rest, 1000, faults)
        factor = DAY if unit == "day" else _TICKS[unit]
        return _within(counts, -(-MIN_TIME // factor), MAX_TIME // factor, faults) * factor

    def _rounded(self, ticks: Ticks, rest: Ticks, whole: int, faults: dict[TimeRule, Mask]) -> Ticks:
        """Ticks rounded by what was left over, `rest` out of `whole`."""
        if self.policy.round is None:
            _add(faults, TOO_FINE, rest != 0)
            return ticks
        if self.policy.round == "floor":
            return ticks
        if self.policy.round == "ceil":
            return np.asarray(ticks + (rest != 0), np.int64)
        twice = 2 * rest
        return np.asarray(ticks + ((twice > whole) | ((twice == whole) & (ticks % 2 == 1))), np.int64)

    def _local(self, shown: Ticks, faults: dict[TimeRule, Mask]) -> Times:
        if self.policy.zone is None or self.policy.zone.name == "UTC":
            return Times(shown, faults)
        shown = _within(shown, MIN_TIME, MAX_TIME, faults)
        ticks, found = self.policy.zone.to_utc(shown, self.policy.ambiguous, self.policy.nonexistent)
        for rule, mask in found.items():
            _add(faults, rule, mask)
        return Times(ticks, faults)

    def _read_text(self, array: pa.Array, faults: dict[TimeRule, Mask]) -> Times:
        if self.policy.unit is not None:
            counts, unreadable = read_integers(array)
            _add(faults, UNREADABLE, unreadable)
            return Times(self._to_ticks(counts, self.policy.unit, faults), faults)
        written = read_times(array)
        _add(faults, UNREADABLE, written.unreadable)
        shown = written.shown
        if written.rest is not None:
            shown = self._rounded(shown, written.rest, 10**12, faults)
        if written.zoned.all():
            return Times(shown - written.offset, faults)
        if self.policy.zone is None:
            _add(faults, NO_ZONE, ~(written.zoned | written.dated | written.unreadable | faults.get(NULL, False)))
            return Times(shown - written.offset, faults)
        # Where the text names its zone, the policy's zone has no say.
        local = self._local(np.where(written.zoned, 0, shown), {})
        for rule, mask in local.faults.items():
            _add(faults, rule, mask & ~written.zoned)
        return Times(np.where(written.zoned, shown - written.offset, local.ticks), faults)


def refuse_idle_unit(sides: Sequence[TimeColumn], unit: Unit | None) -> None:
    """Refuse a unit where no column of times holds numbers: what it should change stays as it is.

    Raises:
        TimeError: It is so.
    """
    if unit is not None and not any(each.counts for each in sides):
        raise TimeError(
            f"unit={unit!r} says what integers count, and the {sides[0].side} is {sides[0].kind}, a time by itself.",
            column=sides[0].name,
            remedy="Leave unit= out.",
        )


def _counts(array: pa.Array) -> Ticks:
    """An integer-like array as int64: its own memory if it has 64 bits, nulls and all."""
    values = integers(array)
    if _IS.is_unsigned_integer(array.type):
        values = values.view(f"u{values.itemsize}")
    return values.view(np.int64) if values.itemsize == 8 else values.astype(np.int64)


def _within(values: Ticks, lowest: int, highest: int, faults: dict[TimeRule, Mask]) -> Ticks:
    """The values, with 0 for those that are outside, which are noted."""
    if not len(values) or (values.min() >= lowest and values.max() <= highest):
        return values
    outside = (values < lowest) | (values > highest)
    _add(faults, OUTSIDE, outside)
    return np.where(outside, 0, values)


def _add(faults: dict[TimeRule, Mask], rule: TimeRule, mask: Mask) -> None:
    if mask.any():
        faults[rule] = faults[rule] | mask if rule in faults else mask


def _is_zone(name: str) -> bool:
    try:
        Zone(name)
    except PlanError:
        return False
    return True
