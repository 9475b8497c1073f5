"""Changes of lifetime: what they mean, and what they do to a duration that is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import narwhals as nw
import pyarrow as pa

from gpu_ops.errors import ColumnError, PlanError, unknown_column
from gpu_ops.plan.expressions import check_row_wise, exact_divisions, guards, output_schema
from gpu_ops.plan.integers import Guard
from gpu_ops.plan.nodes import Computed, Ends, Unary
from gpu_ops.time import MIN_TIME, TICK, format_span


@dataclass(frozen=True)
class SetDuration:
    """``[start, start + duration)`` (StreamInsight: AlterEventDuration)."""

    duration: int

    def __str__(self) -> str:
        return f"SetDuration {format_span(self.duration)}"


@dataclass(frozen=True)
class Shift:
    """Start and end move by as much; an open end stays open (StreamInsight: ShiftEventTime)."""

    by: int

    def __str__(self) -> str:
        return f"Shift {format_span(self.by)}"


@dataclass(frozen=True)
class Extend:
    """The end moves by ``by``; an event that shrinks to nothing is gone; an open end stays open (ExtendLifetime)."""

    by: int

    def __str__(self) -> str:
        return f"Extend {format_span(self.by)}"


@dataclass(frozen=True)
class ClipDuration:
    """No lifetime is longer than ``limit`` (Trill: ClipEventDuration with a constant)."""

    limit: int

    def __str__(self) -> str:
        return f"ClipDuration {format_span(self.limit)}"


@dataclass(frozen=True)
class ToPoint:
    """``[start, start + 1 tick)`` (StreamInsight: ToPointEventStream)."""

    def __str__(self) -> str:
        return "ToPoint"


@dataclass(frozen=True)
class PointAtEnd:
    """``[end, end + 1 tick)``; an event that never ends has none (Trill: PointAtEnd)."""

    def __str__(self) -> str:
        return "PointAtEnd"


@dataclass(frozen=True, eq=False)
class AlterLifetime:
    """A new start, and a new duration or end, each an expression (StreamInsight: AlterEventLifetime).

    A result that is empty (duration of zero or less) is gone, as in Trill.
    """

    start: nw.Expr | None
    duration: nw.Expr | None
    end: nw.Expr | None

    @property
    def given(self) -> dict[str, nw.Expr]:
        """What is given, each in the type that it is taken in."""
        casts = {
            "start": (self.start, nw.Datetime("us", "UTC")),
            "end": (self.end, nw.Datetime("us", "UTC")),
            "duration": (self.duration, nw.Duration("us")),
        }
        return {name: value.cast(dtype) for name, (value, dtype) in casts.items() if value is not None}

    def __str__(self) -> str:
        given = {"start": self.start, "duration": self.duration, "end": self.end}
        return "AlterLifetime " + ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)


@dataclass(frozen=True)
class HopLifetime:
    """Trill's HoppingWindowLifetime: the event counts in the windows ``(T - size, T]``, reported on ``[T, T + hop)``.

    The start is rounded up to the grid ``align + k * hop``. With ``hop <= size`` the lifetime becomes
    ``[ceil(start), ceil(start + size))``; with ``hop > size`` an event in no window is gone and the others live
    ``[ceil(start), ceil(start) + size)``. The end that came in plays no part.
    """

    size: int
    hop: int
    align: int = MIN_TIME

    def __str__(self) -> str:
        return f"HopLifetime size={format_span(self.size)} every={format_span(self.hop)}"


@dataclass(frozen=True)
class Quantize:
    """Trill's QuantizeLifetime: the start rounded down to ``align + k * progress``, the end to the grid of window ends.

    ``end = floor(max(end + hop - 1, start + size))`` on the grid ``align + size + k * hop``; an open end stays open.
    With ``progress`` shorter than the hop it is ProgressiveQuantizeLifetime: results begin early.
    """

    size: int
    hop: int
    align: int = MIN_TIME
    progress: int | None = None

    def __str__(self) -> str:
        progress = "" if self.progress is None else f" progress={format_span(self.progress)}"
        return f"Quantize size={format_span(self.size)} every={format_span(self.hop)}{progress}"


Change = SetDuration | Shift | Extend | ClipDuration | ToPoint | PointAtEnd | AlterLifetime | HopLifetime | Quantize


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
        for name, expression in (("start", change.start), ("duration", change.duration), ("end", change.end)):
            if expression is None:
                continue
            where = f"alter_lifetime({name}=…)"
            check_row_wise(expression, where=where)
            made = output_schema(self.input.schema, [expression.alias("value")], where=where, only_columns=True).field(
                0
            )
            wanted = pa.types.is_duration if name == "duration" else pa.types.is_timestamp
            if not wanted(made.type):
                raise PlanError(
                    f"{where} takes {'a duration' if name == 'duration' else 'a timestamp'}, but this is {made.type}.",
                    remedy='Build it from g.col("start"), g.col("end") and durations.',
                )

    def ends(self, at: int) -> Ends:
        del at
        return "unread" if isinstance(self.change, SetDuration | ToPoint | HopLifetime) else "needed"

    @cached_property
    def duration(self) -> int | None:
        change, before = self.change, self.input.duration
        if isinstance(change, SetDuration):
            return change.duration
        if isinstance(change, ToPoint | PointAtEnd):
            return TICK
        if isinstance(change, Shift):
            return before
        if isinstance(change, HopLifetime):
            return change.size if change.size % change.hop == 0 or change.hop > change.size else None
        if before is None:
            return None
        if isinstance(change, Extend):
            return before + change.by if before + change.by > 0 else None
        if isinstance(change, ClipDuration):
            return min(before, change.limit)
        return None

    @cached_property
    def exact(self) -> Change:
        """The change, its expressions as they are evaluated here."""
        change = self.change
        if not isinstance(change, AlterLifetime):
            return change
        given = {name: getattr(change, name) for name in ("start", "duration", "end")}
        exact = {
            name: None if expression is None else exact_divisions([expression], self.input.schema)[0]
            for name, expression in given.items()
        }
        return AlterLifetime(**exact)

    @cached_property
    def guards(self) -> dict[int, Guard]:
        """What watches over expressions of `AlterLifetime` whose whole numbers may not fit, by their places there."""
        if not isinstance(self.change, AlterLifetime) or not isinstance(self.exact, AlterLifetime):
            return {}
        return guards(list(self.change.given.values()), self.input.schema, list(self.exact.given.values()))

    @property
    def computed(self) -> tuple[Computed, ...]:
        given = self.change.given.values() if isinstance(self.change, AlterLifetime) else ()
        return tuple((each, self.input.schema) for each in given)

    def describe(self) -> str:
        return str(self.change)


@dataclass(frozen=True, eq=False)
class Chop(Unary):
    """Every lifetime cut at the grid ``align + k * period``; the pieces keep the payload (Trill: Chop)."""

    period: int
    align: int = MIN_TIME

    @property
    def duration(self) -> int | None:
        return None

    def describe(self) -> str:
        return f"Chop every={format_span(self.period)}"


@dataclass(frozen=True, eq=False)
class Stitch(Unary):
    """Events of equal payload, one ending where the other starts, joined into one (Trill: Stitch).

    With ``on`` these columns have to be equal alone, and the others are those of the event that begins: of several
    that begin at one time the first one's, in the order of their payload.
    """

    on: tuple[str, ...] = ()

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns that have to be equal."""
        return self.on or tuple(self.schema.names)

    @property
    def carried(self) -> tuple[str, ...]:
        """All others."""
        return tuple(name for name in self.schema.names if name not in self.compared)

    def __post_init__(self) -> None:
        for name in self.on:
            if name not in self.input.schema.names:
                raise unknown_column(name, self.input.schema.names)
        for field in self.input.schema:
            if pa.types.is_nested(field.type):
                raise ColumnError(
                    f"stitch compares payloads, and {field.type} has no equality here.",
                    column=field.name,
                    remedy="Select its fields or its text as columns first.",
                )

    @property
    def duration(self) -> int | None:
        return None

    @property
    def stateless(self) -> bool:
        return False

    def describe(self) -> str:
        return f"Stitch on {', '.join(self.on)}" if self.on else "Stitch"
