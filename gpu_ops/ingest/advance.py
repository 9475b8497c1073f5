"""How time advances where events come in: which CTIs are made, and what becomes of events that come too late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpu_ops.core.arguments import flag, whole
from gpu_ops.core.time import format_span
from gpu_ops.errors import PlanError
from gpu_ops.ingest.rules import check_choice

LatePolicy = Literal["raise", "drop", "adjust", "divert"]
LateEnds = Literal["drop", "adjust"]


@dataclass(frozen=True)
class Advance:
    """How time advances (StreamInsight: AdvanceTimeSettings; Trill: DisorderPolicy and PeriodicPunctuationPolicy).

    CTIs that come in, as rows or from outside, count whatever is set here. Time never goes back: a CTI that is not
    above the last one says nothing, and none is made that would not be.

    Attributes:
        every: A CTI after so many rows that are not end edges, those left out among them, at the start that the last
            of them was let in with, less the delay; none if that one was left out.
        period: A CTI at the first start that is so many ticks or more above the last CTI, less the delay. Before there
            was any CTI, the first start brings one. End edges bring none.
        delay: How far behind a start the CTI made from it is; -1 tick is just past it.
        final: Whether the end of the input is a CTI at infinity.
        late: What becomes of a row that comes after a CTI above its time (a start; of an end edge the end). "raise";
            "drop"; "adjust": the start becomes the CTI if the end is above it, else the row is dropped; "divert": it is
            left out and kept aside.
        late_ends: What "adjust" does with end edges: StreamInsight drops them; Trill moves their end to the CTI.
        snapped: Trill's punctuation: the CTI of a period lies on the grid of that period (from 0001-01-01T00:00Z), end
            edges bring one too, and a period is counted from the grid point below the last CTI.
        reorder: Trill's reorder latency: rows wait until one comes that is later by so many ticks, then go on ordered
            by time; 0 orders nothing. A row is late then that is earlier than one gone on, or than the latest row by
            more than these ticks, CTI or no CTI. None lets rows go on as they come: late is what a CTI says.

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
            check_choice(name, word, kind)
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
