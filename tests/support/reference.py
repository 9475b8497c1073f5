"""The brute force: what every operator means, over lists of events, in plain Python, literal from the definitions.

It is the specification that the engines are tested against, so it is slow and has no ideas: windows look at every
event, sums are exact fractions, an aggregate sees the list of its values. It shares nothing with the package but the
errors.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from gpu_ops.errors import SumOverflowError, TimeError

FIRST_TIME = -62_135_596_800_000_000
"""0001-01-01T00:00Z in microseconds since 1970: the first time there is, and a point of every grid that names none."""

NEVER = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999Z: the end of an event that never ends."""

Payload = Mapping[str, Any]


class Event(NamedTuple):
    """Something that holds during ``[start, end)``, in microseconds since 1970."""

    start: int
    end: int
    payload: Payload


Events = Sequence[Event]


# Which events, which columns


def where(events: Events, condition: Callable[[Event], bool | None]) -> list[Event]:
    """The events for which the condition holds; null counts as no."""
    return [event for event in events if condition(event)]


def select(events: Events, payload: Callable[[Event], Payload]) -> list[Event]:
    """The same lifetimes with another payload."""
    return [Event(event.start, event.end, payload(event)) for event in events]


# Lifetimes


def _checked(start: int, end: int, payload: Payload) -> Event:
    if start < FIRST_TIME or start >= NEVER or end > NEVER:
        raise TimeError(f"[{start}, {end}) leaves the years 1 to 9999.")
    return Event(start, end, payload)


def _moved_end(end: int, moved: int) -> int:
    """An open end stays open; a finite one moved to where the open end is, or past it, is an error."""
    if end == NEVER:
        return NEVER
    if moved >= NEVER:
        raise TimeError("A finite end is moved past the last time there is.")
    return moved


def set_duration(events: Events, duration: int) -> list[Event]:
    return [_checked(e.start, _moved_end(e.start, e.start + duration), e.payload) for e in events]


def alter_lifetime(
    events: Events,
    start: Callable[[Event], int] | None = None,
    duration: Callable[[Event], int] | None = None,
    end: Callable[[Event], int] | None = None,
) -> list[Event]:
    """A new start (else the old one); from it a duration, or a new end, or the old end. Empty lifetimes are gone."""
    result = []
    for event in events:
        new_start = event.start if start is None else start(event)
        new_end = event.end if end is None else end(event)
        if duration is not None:
            new_end = new_start + duration(event)
        changed = _checked(new_start, new_end, event.payload)
        if changed.start < changed.end:
            result.append(changed)
    return result


def shift(events: Events, by: int) -> list[Event]:
    return [_checked(e.start + by, _moved_end(e.end, e.end + by), e.payload) for e in events]


def extend(events: Events, by: int) -> list[Event]:
    """Ends move; what shrinks to nothing is gone; an open end stays open."""
    changed = [_checked(e.start, _moved_end(e.end, e.end + by), e.payload) for e in events]
    return [event for event in changed if event.start < event.end]


def clip_duration(events: Events, limit: int) -> list[Event]:
    return [Event(e.start, min(e.end, e.start + limit), e.payload) for e in events]


def to_point(events: Events) -> list[Event]:
    return [_checked(e.start, _moved_end(e.start, e.start + 1), e.payload) for e in events]


def point_at_end(events: Events) -> list[Event]:
    """One tick at the end; an event that never ends is gone."""
    return [_checked(e.end, _moved_end(e.end, e.end + 1), e.payload) for e in events if e.end != NEVER]


def _floor(time: int, step: int, align: int) -> int:
    """The greatest ``align + k * step`` that is not after ``time``."""
    return (time - align) // step * step + align


def _ceil(time: int, step: int, align: int) -> int:
    """The least ``align + k * step`` that is not before ``time``."""
    return -((align - time) // step) * step + align


def hop_lifetime(events: Events, size: int, hop: int, align: int = FIRST_TIME) -> list[Event]:
    """Trill's HoppingWindowLifetime: grid points T count the starts in ``(T - size, T]``; the end plays no part."""
    result = []
    for event in events:
        first = _ceil(event.start, hop, align)
        if hop <= size:
            result.append(_checked(first, _ceil(event.start + size, hop, align), event.payload))
        elif first - size < event.start:
            result.append(_checked(first, first + size, event.payload))
    return result


def quantize(events: Events, size: int, hop: int, align: int = FIRST_TIME, progress: int | None = None) -> list[Event]:
    """Trill's QuantizeLifetime and, with ``progress``, ProgressiveQuantizeLifetime."""
    result = []
    for event in events:
        start = _floor(event.start, progress or hop, align)
        end = _floor(max(event.end + hop - 1, event.start + size), hop, align + size)
        result.append(_checked(start, _moved_end(event.end, end), event.payload))
    return result


def chop(events: Events, period: int, align: int = FIRST_TIME) -> list[Event]:
    """Cut at ``align + k * period``."""
    result = []
    for event in events:
        if event.end == NEVER:
            raise TimeError("chop of an event that never ends.")
        start = event.start
        while start < event.end:
            end = min(_floor(start, period, align) + period, event.end)
            result.append(Event(start, end, event.payload))
            start = end
    return result


def stitch(events: Events) -> list[Event]:
    """Events of equal payload, one ending where another starts, joined into one.

    Events are taken by start, then end; each continues, of the events that end where it starts and are not continued
    yet, the one that began first. Which values are equal is as for keys, and so is which of them stays.
    """
    result: list[Event] = []
    latest: list[int] = []  # which event was joined to each last
    alike = select(events, lambda event: {name: key_value(value) for name, value in event.payload.items()})
    for taken, event in enumerate(sorted(alike, key=lambda event: (event.start, event.end))):
        before = [
            i
            for i, other in enumerate(result)
            if other.end == event.start and _group(other.payload) == _group(event.payload)
        ]
        if before:
            earliest = min(before, key=latest.__getitem__)
            result[earliest] = Event(result[earliest].start, event.end, result[earliest].payload)
            latest[earliest] = taken
        else:
            result.append(event)
            latest.append(taken)
    return result


# Keys


def key_value(value: Any) -> Any:
    """The value that stands for all that are the same key: one NaN for all NaNs, 0.0 for -0.0."""
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value + 0.0
    return value


def identity(value: Any) -> tuple[str, Any]:
    """Equal for the same key and for nothing else: Python's own equality holds that nan != nan and True == 1."""
    value = key_value(value)
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, list | dict):
        return "nested", repr(value)
    return type(value).__name__, value


def _group(payload: Payload, key: Sequence[str] | None = None) -> tuple[tuple[str, Any], ...]:
    return tuple(identity(payload[name]) for name in (sorted(payload) if key is None else key))


def groups(events: Events, key: Sequence[str]) -> Iterator[tuple[Payload, list[Event]]]:
    """The key's values and the events of each group; all events where there is no key."""
    found: dict[object, list[Event]] = {}
    for event in events:
        found.setdefault(_group(event.payload, key), []).append(event)
    for members in found.values():
        yield {name: key_value(members[0].payload[name]) for name in key}, members


# Aggregates

Kind = Literal["count", "sum", "mean", "min", "max", "variance", "standard_deviation"]

INT64 = (-(2**63), 2**63 - 1)
UINT64 = (0, 2**64 - 1)
DECIMAL_LIMIT = 10**38


@dataclass(frozen=True)
class Aggregate:
    """One aggregate over a column (or rows), only over events where the boolean column ``only`` is true."""

    kind: Kind
    column: str | None = None
    only: str | None = None
    of: Literal["sample", "population"] = "sample"
    whole: tuple[int, int] = field(default=INT64)
    """The least and the greatest integer sum that its type holds."""


def aggregate(spec: Aggregate | Callable[[Events], Any], members: Events) -> Any:
    """The aggregate over the events of one window; a function of these is an aggregate of its own."""
    if not isinstance(spec, Aggregate):
        return spec(members)
    counted = [event for event in members if spec.only is None or event.payload[spec.only] is True]
    if spec.column is None:
        return len(counted)
    values = [event.payload[spec.column] for event in counted if event.payload[spec.column] is not None]
    if spec.kind == "count":
        return len(values)
    if not values:
        return None
    if spec.kind == "sum":
        return _sum(values, spec.whole)
    if spec.kind == "mean":
        if _not_finite(values) is not None:
            return _float_sum(values)
        return _rounded(sum(map(Fraction, values), start=Fraction(0)) / len(values))
    if spec.kind == "min":
        return key_value(min(values, key=order))
    if spec.kind == "max":
        return key_value(max(values, key=order))
    variance = _variance(values, degrees=1 if spec.of == "sample" else 0)
    if variance is None or spec.kind == "variance":
        return variance
    return math.sqrt(variance)


def _sum(values: list[Any], whole: tuple[int, int]) -> Any:
    if isinstance(values[0], float):
        return _float_sum(values)
    if isinstance(values[0], timedelta):
        return sum(values, timedelta())
    if isinstance(values[0], Decimal):
        with localcontext(prec=200):
            total = sum(values, Decimal(0))
            if abs(total.scaleb(-int(values[0].as_tuple().exponent))) >= DECIMAL_LIMIT:
                raise SumOverflowError("A decimal sum needs more than 38 digits.")
        return total
    if not whole[0] <= sum(values) <= whole[1]:
        raise SumOverflowError("An integer sum does not fit.")
    return sum(values)


def _not_finite(values: list[Any]) -> float | None:
    """What IEEE 754 makes of a sum with NaN or infinities in it; None when all values are finite."""
    floats = [value for value in values if isinstance(value, float) and not math.isfinite(value)]
    if not floats:
        return None
    return sum(floats[1:], start=floats[0])


def _rounded(exact: Fraction) -> float:
    """The nearest double, half to even; infinity when it is too large. Division of integers rounds that way."""
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _float_sum(values: list[Any]) -> float:
    """The exact sum, rounded once."""
    special = _not_finite(values)
    if special is not None:
        return math.nan if math.isnan(special) else special
    return _rounded(sum((Fraction(value) for value in values), start=Fraction(0)))


def _variance(values: list[Any], degrees: int) -> float | None:
    if len(values) == degrees:
        return None
    if _not_finite(values) is not None:
        return math.nan
    exact = [Fraction(value) for value in values]
    mean = sum(exact, start=Fraction(0)) / len(exact)
    squares = sum(((value - mean) ** 2 for value in exact), start=Fraction(0))
    return _rounded(squares / (len(exact) - degrees))


def order(value: Any) -> tuple[bool, Any]:
    """NaN is greatest; text is ordered by its UTF-8 bytes."""
    if isinstance(value, float) and math.isnan(value):
        return True, 0.0
    return False, value.encode() if isinstance(value, str) else value


# Windows

Aggregates = Mapping[str, Aggregate | Callable[[Events], Any]]


def _result(start: int, end: int, key: Payload, aggregates: Aggregates, members: Events) -> Event:
    return Event(start, end, {**key, **{name: aggregate(spec, members) for name, spec in aggregates.items()}})


def snapshot(events: Events, aggregates: Aggregates, key: Sequence[str] = ()) -> list[Event]:
    """A result between each two neighbouring end points of lifetimes, where any event is alive."""
    result = []
    for values, members in groups(events, key):
        times = sorted({time for event in members for time in (event.start, event.end)})
        for start, end in pairwise(times):
            alive = [event for event in members if event.start <= start and end <= event.end]
            if alive:
                result.append(_result(start, end, values, aggregates, alive))
    return result


def hopping(
    events: Events,
    aggregates: Aggregates,
    key: Sequence[str] = (),
    *,
    size: int,
    hop: int,
    align: int = FIRST_TIME,
    membership: Literal["overlap", "start"] = "overlap",
    output: Literal["window", "point", "hop"] | None = None,
    until: int | None = None,
) -> list[Event]:
    """A result for each window of the grid that holds any event.

    With ``membership="overlap"`` the windows are ``[T, T + size)``, each with the events that overlap it; with
    ``"start"`` they are ``(T - size, T]``, each with the events that start in it; T runs over ``align + k * hop``.
    """
    output = output or ("window" if membership == "overlap" else "hop")
    if until is not None:
        events = [Event(e.start, min(e.end, until), e.payload) for e in events if e.start < until]
    elif membership == "overlap" and any(event.end == NEVER for event in events):
        raise TimeError("A hopping window over an event that never ends.")
    result = []
    for values, members in groups(events, key):
        near = set[int]()
        for event in members:
            end = event.start if membership == "start" else event.end
            near.update(range(_floor(event.start - size, hop, align), end + size + hop, hop))
        for point in sorted(near):
            start, end = (point, point + size) if membership == "overlap" else (point - size, point)
            if membership == "overlap":
                inside = [event for event in members if event.start < end and event.end > start]
            else:
                inside = [event for event in members if start < event.start <= end]
            if inside:
                lifetimes = {"window": (start, end), "point": (end, end + 1), "hop": (point, point + hop)}
                lifetime = _checked(*lifetimes[output], {})
                result.append(_result(lifetime.start, lifetime.end, values, aggregates, inside))
    return result


# Comparing


def segments(events: Events) -> list[tuple[int, int, Any, int]]:
    """What a stream says at each instant, however it is cut into rows.

    Returns:
        Per payload the longest stretches over which the number of rows with it stays the same: (start, end, payload,
        number), in order.
    """
    result = []
    for _, members in groups(events, sorted(events[0].payload) if events else ()):
        joined: list[tuple[int, int, Any, int]] = []
        for start, end, payload, number in (
            (e.start, e.end, members[0].payload, e.payload["number"])
            for e in snapshot(members, {"number": Aggregate("count")})
        ):
            if joined and joined[-1][1] == start and joined[-1][3] == number:
                start = joined.pop()[0]  # noqa: PLW2901  (the stretch began earlier)
            joined.append((start, end, payload, number))
        result.extend(joined)
    return sorted(result, key=lambda row: (row[0], row[1], repr(_group(row[2])), row[3]))
