"""Changes of lifetimes, and what they do to CTIs and to known durations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import LIFETIME, MAX_TIME, MIN_TIME, TICK, format_span
from gpu_ops.core.types import storage
from gpu_ops.errors import ColumnError, PlanError, unknown_column
from gpu_ops.plan.expressions import column_names, exact_divisions, output_schema
from gpu_ops.plan.nodes import Computed, Ends, Unary


class Change:
    """A change of lifetimes."""

    reads_end: ClassVar[bool] = True
    """Whether it reads the ends of events."""

    at_end: ClassVar[bool] = False
    """Whether its results begin where events end, so that nothing is to be done before."""

    @property
    def time_rule(self) -> str:
        """How a CTI passes it, in a few words."""
        return "CTI T leaves as T"

    @property
    def given(self) -> dict[str, nw.Expr]:
        """The expressions that it computes, each cast to the type that it needs."""
        return {}

    def exact(self, schema: pa.Schema) -> Change:
        """The same change, with its expressions over a payload in the form in which they are evaluated here."""
        return self

    def moved(self, cti: int) -> int | None:
        """The output CTI for a CTI that is neither the first nor the last time; None if an expression decides it."""
        return cti

    def lasting(self, before: int | None) -> int | None:
        """The length of every changed lifetime, given the length before; None if lengths differ or are unknown."""
        return None


@dataclass(frozen=True)
class SetDuration(Change):
    """``[start, start + duration)`` (StreamInsight: AlterEventDuration)."""

    reads_end = False
    duration: int

    def lasting(self, before: int | None) -> int | None:
        return self.duration

    def __str__(self) -> str:
        return f"SetDuration {format_span(self.duration)}"


@dataclass(frozen=True)
class Shift(Change):
    """Start and end move by one span; an open end stays open (StreamInsight: ShiftEventTime)."""

    by: int

    @property
    def time_rule(self) -> str:
        return f"CTI T leaves as T {'+' if self.by >= 0 else '-'} {format_span(abs(self.by))}"

    def moved(self, cti: int) -> int | None:
        return cti + self.by

    def lasting(self, before: int | None) -> int | None:
        return before

    def __str__(self) -> str:
        return f"Shift {format_span(self.by)}"


@dataclass(frozen=True)
class Extend(Change):
    """The end moves by ``by``; an empty lifetime drops the event; an open end stays open (Trill: ExtendLifetime)."""

    by: int

    def lasting(self, before: int | None) -> int | None:
        return None if before is None or before + self.by <= 0 else before + self.by

    def __str__(self) -> str:
        return f"Extend {format_span(self.by)}"


@dataclass(frozen=True)
class ClipDuration(Change):
    """No lifetime is longer than ``limit`` (Trill: ClipEventDuration with a constant)."""

    limit: int

    def lasting(self, before: int | None) -> int | None:
        return None if before is None else min(before, self.limit)

    def __str__(self) -> str:
        return f"ClipDuration {format_span(self.limit)}"


@dataclass(frozen=True)
class ToPoint(Change):
    """``[start, start + 1 tick)`` (StreamInsight: ToPointEventStream)."""

    reads_end = False

    def lasting(self, before: int | None) -> int | None:
        return TICK

    def __str__(self) -> str:
        return "ToPoint"


@dataclass(frozen=True)
class PointAtEnd(Change):
    """``[end, end + 1 tick)``; an event that never ends is dropped (Trill: PointAtEnd)."""

    at_end = True

    def lasting(self, before: int | None) -> int | None:
        return TICK

    def __str__(self) -> str:
        return "PointAtEnd"


@dataclass(frozen=True, eq=False)
class AlterLifetime(Change):
    """A new start, and a new duration or end, each an expression (StreamInsight: AlterEventLifetime).

    An event whose new lifetime is empty (zero or less) is dropped, as in Trill.
    """

    start: nw.Expr | None
    duration: nw.Expr | None
    end: nw.Expr | None

    @property
    def said(self) -> dict[str, nw.Expr]:
        """The expressions as the user wrote them."""
        every = {"start": self.start, "duration": self.duration, "end": self.end}
        return {name: value for name, value in every.items() if value is not None}

    @property
    def given(self) -> dict[str, nw.Expr]:
        return {name: value.cast(_TYPES[name]) for name, value in self.said.items()}

    def exact(self, schema: pa.Schema) -> AlterLifetime:
        return replace(self, **{name: exact_divisions([value], schema)[0] for name, value in self.said.items()})

    def moved(self, cti: int) -> int | None:
        return cti if self.start is None else None

    def __str__(self) -> str:
        return "AlterLifetime " + ", ".join(f"{name}={value!r}" for name, value in self.said.items())


@dataclass(frozen=True, eq=False)
class SinceEarlier(AlterLifetime):
    """A new start at most ``reach`` ticks before the old one.

    Attributes:
        reach: So many ticks; None if nobody knows.
    """

    reach: int | None = None

    @property
    def time_rule(self) -> str:
        return "no CTI before the end: a new start can be anywhere" if self.reach is None else super().time_rule

    def moved(self, cti: int) -> int | None:
        return None if self.reach is None else cti - self.reach


_TYPES = {"start": nw.Datetime("us", "UTC"), "end": nw.Datetime("us", "UTC"), "duration": nw.Duration("us")}


@dataclass(frozen=True)
class HopLifetime(Change):
    """Trill's HoppingWindowLifetime: the event counts in the windows ``(T - size, T]``, reported on ``[T, T + hop)``.

    The start is rounded up to the grid ``align + k * hop``. With ``hop <= size`` the lifetime becomes
    ``[ceil(start), ceil(start + size))``; with ``hop > size`` an event in no window is dropped and the others live
    ``[ceil(start), ceil(start) + size)``. The event's own end is not read.
    """

    reads_end = False
    size: int
    hop: int
    align: int = MIN_TIME

    @property
    def time_rule(self) -> str:
        return f"CTI T leaves as T rounded up to the grid of {format_span(self.hop)}"

    def moved(self, cti: int) -> int | None:
        return -((self.align - cti) // self.hop) * self.hop + self.align

    def lasting(self, before: int | None) -> int | None:
        return self.size if self.size % self.hop == 0 or self.hop > self.size else None

    def __str__(self) -> str:
        return f"HopLifetime size={format_span(self.size)} every={format_span(self.hop)}"


@dataclass(frozen=True)
class Quantize(Change):
    """Trill's QuantizeLifetime: the start rounded down to ``align + k * progress``, the end to the grid of window ends.

    ``end = floor(max(end + hop - 1, start + size))`` on the grid ``align + size + k * hop``; an open end stays open.
    With ``progress`` shorter than the hop it is ProgressiveQuantizeLifetime: results start earlier.
    """

    size: int
    hop: int
    align: int = MIN_TIME
    progress: int | None = None

    @property
    def time_rule(self) -> str:
        return f"CTI T leaves as T rounded down to the grid of {format_span(self.progress or self.hop)}"

    def moved(self, cti: int) -> int | None:
        grid = self.progress or self.hop
        return (cti - self.align) // grid * grid + self.align

    def __str__(self) -> str:
        progress = "" if self.progress is None else f" progress={format_span(self.progress)}"
        return f"Quantize size={format_span(self.size)} every={format_span(self.hop)}{progress}"


@dataclass(frozen=True, eq=False)
class Lifetime(Unary):
    """Each event with its lifetime changed."""

    change: Change

    def __post_init__(self) -> None:
        change = self.change
        if not isinstance(change, AlterLifetime):
            return
        if change.duration is not None and change.end is not None:
            raise PlanError("alter_lifetime takes a duration or an end, not both.", remedy="Leave one of them out.")
        for name, expression in change.said.items():
            where = f"alter_lifetime({name}=…)"
            made = output_schema(self.input.schema, [expression.alias("value")], where=where, only_columns=True).types[
                0
            ]
            fits, wanted = pa.types.is_timestamp, "a timestamp"
            if name == "duration":
                fits, wanted = pa.types.is_duration, "a duration"
            if not fits(made):
                raise PlanError(
                    f"{where} takes {wanted}, but this is {made}.",
                    remedy='Build it from g.col("start"), g.col("end") and durations.',
                )

    def ends(self, at: int) -> Ends:
        return "needed" if self.change.reads_end else "unread"

    @cached_property
    def duration(self) -> int | None:
        return self.change.lasting(self.input.duration)

    @cached_property
    def exact_change(self) -> Change:
        """The change, with its expressions in the form in which they are evaluated here."""
        return self.change.exact(self.input.schema)

    @cached_property
    def exact(self) -> tuple[nw.Expr, ...]:
        return tuple(self.exact_change.given.values())

    @property
    def computed(self) -> tuple[Computed, ...]:
        return tuple((each, self.input.schema) for each in self.change.given.values())

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        known = self.input.schema.names
        read = {name for each in self.change.given.values() for name in column_names(each, known)}
        return [tuple(name for name in known if name in wanted or name in read)]

    @property
    def new_start(self) -> nw.Expr | None:
        """The expression of a new start, in the form in which it is evaluated here; None if the start stays."""
        return self.exact_change.given.get("start")

    @property
    def by_start_alone(self) -> bool:
        """Whether a new start is computed from the start alone, so that a CTI can be mapped by the same expression."""
        new = self.change.given.get("start")
        return new is not None and column_names(new, [*self.input.schema.names, *LIFETIME]) == ["start"]

    @property
    def time_rule(self) -> str:
        if self.new_start is None or self.change.moved(MAX_TIME) is not None:
            return self.change.time_rule
        if self.by_start_alone:
            return "CTI T leaves as the new start of an event at T; an earlier new start is then an error"
        return "no CTI before the end: a new start can be anywhere"

    def moved_cti(self, cti: int) -> int | None:
        """The output CTI, if no expression decides it."""
        if cti in {MIN_TIME, MAX_TIME}:
            return cti
        moved = self.change.moved(cti)
        return None if moved is None else max(MIN_TIME, min(MAX_TIME, moved))

    def _whole(self) -> tuple[str, ...] | None:
        return self.input.whole

    def describe(self) -> str:
        return str(self.change)


@dataclass(frozen=True, eq=False)
class Chop(Unary):
    """Every lifetime cut at the grid ``align + k * period``; each piece keeps the payload (Trill: Chop)."""

    period: int
    align: int = MIN_TIME

    duration = None

    def describe(self) -> str:
        return f"Chop every={format_span(self.period)}"


@dataclass(frozen=True, eq=False)
class Stitch(Unary):
    """Events of equal payload joined into one where one ends exactly when the other starts (Trill: Stitch).

    With ``on`` only these columns are compared. The other columns are those of the event that starts the joined one; if
    several start it at one time, those of the first by payload.
    """

    on: tuple[str, ...] = ()

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns that are compared."""
        return self.on or tuple(self.schema.names)

    @property
    def carried(self) -> tuple[str, ...]:
        """All other columns."""
        return tuple(name for name in self.schema.names if name not in self.compared)

    def __post_init__(self) -> None:
        for name in self.on:
            if name not in self.input.schema.names:
                raise unknown_column(name, self.input.schema.names)
        for field in self.input.schema:
            if pa.types.is_nested(storage(field.type)):
                raise ColumnError(
                    f"stitch compares payloads, and {field.type} has no equality here.",
                    column=field.name,
                    remedy="Select its fields or its text as columns first.",
                )

    duration = None

    stateless = False

    gathers = True

    @property
    def together(self) -> tuple[str, ...]:
        return self.compared

    takes_part = True

    time_rule = "CTI T leaves as T, or as the start of the oldest event that may still grow"

    held = "all events of its input are held in memory"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [tuple(self.schema.names)]

    def describe(self) -> str:
        return f"Stitch on {', '.join(self.on)}" if self.on else "Stitch"
