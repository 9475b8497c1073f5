"""How time advances at an input: which CTIs are made, and what happens to late events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from gpu_ops.core.arguments import flag, whole
from gpu_ops.core.time import format_span
from gpu_ops.errors import PlanError, is_one_of, shown

LatePolicy = Literal["raise", "drop", "adjust", "divert"]
LateEnds = Literal["drop", "adjust"]


@dataclass(frozen=True)
class Advance:
    """How time advances (StreamInsight: AdvanceTimeSettings; Trill: DisorderPolicy and PeriodicPunctuationPolicy).

    CTIs of the input itself, in rows or by calls, always count. Time never goes back: a CTI at or below the previous
    one is ignored, and none is made there.

    Attributes:
        every: A CTI after this many inserts and start edges. Dropped rows count. The CTI is the last of these rows'
            start, as adjusted, minus the delay. If that row was dropped, no CTI is made.
        period: A CTI at the first start that is at least this many ticks above the previous CTI, minus the delay. The
            first start makes the first CTI. End edges make none.
        delay: How far a CTI lies behind the start that makes it; -1 tick puts it just after that start.
        final: Whether the end of the input is a CTI at infinity.
        late: What happens to a row that arrives after a CTI above its time (its start; for an end edge its end).
            "raise"; "drop"; "adjust": the start moves to the CTI, but if the end is not above the CTI, the row is
            dropped; "divert": the row is kept aside.
        late_ends: What "adjust" does with end edges: StreamInsight drops them; Trill moves their end to the CTI.
        snapped: Trill's punctuation: the CTI of a period lies on the grid of that period (from 0001-01-01T00:00Z), end
            edges make one too, and a period is counted from the grid point below the previous CTI.
        reorder: Trill's reorder latency: rows wait until a row arrives that is later by this many ticks, and are then
            released in order of time; 0 orders nothing. A row is then late if it starts before a row that was already
            released, or more than these ticks before the latest row, whatever the CTI. None releases rows at once.

    Examples:
        >>> str(Advance(every=10, delay=5_000_000, late="drop"))
        'every=10 delay=5s late=drop'
    """

    every: int | None = None
    period: int | None = None
    delay: int = 0
    final: bool = True
    late: LatePolicy = "raise"
    late_ends: LateEnds = "drop"
    snapped: bool = False
    reorder: int | None = None

    def __post_init__(self) -> None:
        if self.every is not None and self.period is not None:
            raise PlanError(
                "CTIs are made by a number of events or by a span of time, not by both.",
                remedy="Leave one of them out.",
            )
        if self.every is not None:
            whole(self.every, name="every")
        for name, value, least in (("every", self.every, 1), ("period", self.period, 1), ("reorder", self.reorder, 0)):
            if value is not None and value < least:
                raise PlanError(f"{name} must be {least} or more, not {value}.", remedy="Give a larger one.")
        for name, word, kind in (("late", self.late, LatePolicy), ("late_ends", self.late_ends, LateEnds)):
            if not is_one_of(word, known := get_args(kind)):
                raise PlanError(
                    f"{name}={shown(word)} is no policy.", remedy=f"It is one of {', '.join(map(repr, known))}."
                )
        if self.late_ends == "adjust" and self.late != "adjust":
            raise PlanError(
                f'late_ends="adjust" moves the ends of what late="adjust" lets in, and late is {self.late!r}.',
                remedy='Say late="adjust" too, or leave late_ends out.',
            )
        flag(self.final, name="final")
        if flag(self.snapped, name="snapped") and self.period is None:
            raise PlanError(
                "snapped puts CTIs on the grid of a span, and there is no span.", remedy="Say every='5s', for instance."
            )

    def __str__(self) -> str:
        made = [] if self.every is None else [f"every={self.every}"]
        spans = {"every": self.period, "delay": self.delay or None, "reorder": self.reorder}
        made += [f"{name}={format_span(value)}" for name, value in spans.items() if value is not None]
        made.append(f"late={self.late}")
        made += ["late_ends=adjust"] * (self.late_ends == "adjust") + ["snapped"] * self.snapped
        return " ".join(made + ["no final CTI"] * (not self.final))
