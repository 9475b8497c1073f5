"""Times written as text (ISO 8601), as CSV files hold them, read a column at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.arrow_buffers import booleans, integers, nulls
from gpu_ops.ingest.zones import DAY, Mask, Ticks

_PATTERN = (
    r"^\s*(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})"
    r"(?P<clock>[Tt ](?P<hour>\d{2})(?::(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,18}))?)?)?"
    r"(?P<zone>[Zz]|(?P<sign>[+-])(?P<zone_hour>\d{2})(?::?(?P<zone_minute>\d{2}))?)?)?\s*$"
)
_FRACTION_DIGITS = 18
_FRACTION_PER_TICK = 10 ** (_FRACTION_DIGITS - 6)


@dataclass(frozen=True)
class WrittenTimes:
    """The times of a column of text.

    Attributes:
        shown: The clock time as if it were UTC: int64 ticks, rounded down.
        rest: The remainder after rounding, in 1e-12 ticks; None if there is none.
        offset: Ticks to subtract if the text names its zone, else 0.
        zoned: Rows whose text names its zone.
        dated: Rows whose text is a date alone.
        unreadable: Rows whose text is no time (nulls are not among them).
    """

    shown: Ticks
    rest: Ticks | None
    offset: Ticks
    zoned: Mask
    dated: Mask
    unreadable: Mask


def read_times(text: pa.Array) -> WrittenTimes:
    """The times of a column of ISO 8601 texts; years 0 to 9999, dates with or without a clock time and a zone.

    Args:
        text: An Arrow string array; nulls give 0.
    """
    size = len(text)
    nothing = np.zeros(size, np.bool_)
    none = np.zeros(size, np.int64)
    # Arrow's own reader is ten times as fast, but needs one format for the whole column.
    for kind, zoned in ((pa.timestamp("us"), nothing), (pa.timestamp("us", "UTC"), ~nothing)):
        try:
            shown = text.cast(kind)
        except pa.ArrowInvalid:
            continue
        dated = nothing if zoned.any() else integers(pc.binary_length(text)) <= len("0000-00-00")
        return WrittenTimes(_numbers(shown), None, none, zoned, dated, nothing)

    found = pc.extract_regex(text.cast(pa.string()), _PATTERN)
    matched = booleans(pc.is_valid(found))
    parts = {
        name: _integer(found, name, 1 if name in ("month", "day") else 0)
        for name in ("year", "month", "day", "hour", "minute", "second", "zone_hour", "zone_minute")
    }
    year, month, day = parts["year"], parts["month"], parts["day"]
    months = (year - 1970) * 12 + np.clip(month, 1, 12) - 1
    first, following = (each.astype("M8[M]").astype("M8[D]").astype(np.int64) for each in (months, months + 1))
    real = (month >= 1) & (month <= 12) & (day >= 1) & (day <= following - first)
    for name, limit in (("hour", 23), ("minute", 59), ("second", 59), ("zone_hour", 23), ("zone_minute", 59)):
        real &= parts[name] <= limit
    digits = pc.utf8_rpad(_present(found, "fraction", "0"), _FRACTION_DIGITS, "0").cast(pa.int64())
    fraction = _numbers(digits)
    seconds = (parts["hour"] * 60 + parts["minute"]) * 60 + parts["second"]
    shown = (first + day - 1) * DAY + seconds * 1_000_000 + fraction // _FRACTION_PER_TICK
    rest = fraction % _FRACTION_PER_TICK
    east = np.where(booleans(pc.equal(_present(found, "sign", "+"), "-")), -1, 1)
    offset = east * (parts["zone_hour"] * 60 + parts["zone_minute"]) * 60_000_000
    good = matched & real
    return WrittenTimes(
        shown=np.where(good, shown, 0),
        rest=np.where(good, rest, 0) if rest.any() else None,
        offset=np.where(good, offset, 0),
        zoned=good & booleans(pc.not_equal(_present(found, "zone", ""), "")),
        dated=good & booleans(pc.equal(_present(found, "clock", ""), "")),
        unreadable=booleans(pc.is_valid(text)) & ~good,
    )


def read_integers(text: pa.Array) -> tuple[Ticks, Mask]:
    """The integers of a column of texts, and which rows are no integers.

    Args:
        text: An Arrow string array; nulls give 0 and count as readable.
    """
    try:
        return _numbers(text.cast(pa.int64())), np.zeros(len(text), np.bool_)
    except pa.ArrowInvalid:
        pass
    found = pc.extract_regex(text.cast(pa.string()), r"^\s*\+?(?P<number>-?\d{1,38})\s*$")
    numbers = _present(found, "number", "0").cast(pa.decimal128(38, 0))
    limits = np.iinfo(np.int64)
    least, most = (pa.scalar(int(limit)).cast(numbers.type) for limit in (limits.min, limits.max))
    fits = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, most))
    readable = booleans(pc.is_valid(found)) & booleans(fits)
    values = pc.if_else(fits, numbers, pa.scalar(0).cast(numbers.type)).cast(pa.int64())
    return _numbers(values), booleans(pc.is_valid(text)) & ~readable


def _present(found: pa.StructArray, name: str, default: str) -> Any:
    """A group's text, or the default if the group or the whole pattern did not match."""
    group = pc.fill_null(pc.struct_field(found, name), "")
    return pc.if_else(pc.equal(group, ""), default, group)


def _integer(found: pa.StructArray, name: str, default: int) -> Ticks:
    return _numbers(_present(found, name, str(default)).cast(pa.int64()), default)


def _numbers(array: pa.Array, default: int = 0) -> Ticks:
    return np.where(nulls(array), default, integers(array)) if array.null_count else np.array(integers(array), np.int64)
