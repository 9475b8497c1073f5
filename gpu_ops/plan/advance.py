"""How time advances where events come in: which CTIs are made, and what becomes of events that come too late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa

from gpu_ops.core.time import format_span
from gpu_ops.errors import ColumnError, PlanError, is_one_of, shown
from gpu_ops.plan.arguments import flag, whole
from gpu_ops.plan.nodes import Ends, Source, SparkSource, Unary

LatePolicy = Literal["raise", "drop", "adjust", "divert"]
LateEnds = Literal["drop", "adjust"]

LATE_COLUMNS = ("cti", "late_by")
"""What a late event carries beside its payload."""


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


@dataclass(frozen=True, eq=False)
class AdvanceTime(Unary):
    """The events of a source that its CTIs let in.

    ``follows`` is where another stream comes in, whose CTIs count here too (StreamInsight: AdvanceTimeImportSettings).
    """

    settings: Advance
    follows: Source | AdvanceTime | None = None

    def __post_init__(self) -> None:
        if isinstance(self.input, SparkSource):
            raise PlanError(
                "Time advances with the order in which rows come in, and a Spark DataFrame has none.",
                remedy="Leave advance_time out: on Spark a query is answered from all rows at once.",
            )
        if not isinstance(self.input, Source):
            raise PlanError(
                f"Time advances where events come in, and this is behind {self.input.describe().split()[0]}.",
                remedy="Call .advance_time(…) right after g.events(…).",
            )
        self._check_followed()

    def _check_followed(self) -> None:
        if self.follows is None:
            return
        if not isinstance(self.follows, Source | AdvanceTime):
            raise PlanError(
                f"CTIs come from where a stream comes in, and this is behind {self.follows.describe().split()[0]}.",
                remedy="Give what g.events(…) made, with or without .advance_time(…).",
            )
        if _source(self.follows).name in {None, self.source.name}:
            raise PlanError(
                "A running query must tell the stream that it imports CTIs from by its name.",
                remedy='Say g.events(…, name="orders"), and give each stream a name of its own.',
            )

    @property
    def source(self) -> Source:
        """Where the events come in."""
        assert isinstance(self.input, Source)  # noqa: S101  (held by __post_init__)
        return self.input

    stateless = False

    def ends(self, at: int) -> Ends:
        del at
        return "passed on"

    comes_in = True

    @property
    def held(self) -> str:
        return "rows judged one after the other as they come, on the host"

    @property
    def time_rule(self) -> str:
        return "CTIs are made and late events judged here"

    @property
    def duration(self) -> int | None:
        # A late point is never let in, so points stay points; an interval may lose its beginning.
        return self.input.duration

    def describe(self) -> str:
        follows = "" if self.follows is None else f" with={_source(self.follows).name}"
        return f"AdvanceTime {self.settings}{follows}"


def _source(node: Source | AdvanceTime) -> Source:
    return node.source if isinstance(node, AdvanceTime) else node


@dataclass(frozen=True, eq=False)
class Late(Unary):
    """The events that came too late (``late="divert"``), as they came, with the CTI that each missed and by how much.

    A late start edge and its end edge are one event; without an end edge it never ends. A late end edge of an event
    that was let in shows that event as it would have been.
    """

    def __post_init__(self) -> None:
        node = self.input
        if not isinstance(node, AdvanceTime) or node.settings.late != "divert":
            raise PlanError(
                "Late events are kept aside where time advances, and only if it says so.",
                remedy='Call .late() right after .advance_time(…, late="divert").',
            )
        for name in LATE_COLUMNS:
            if name in node.schema.names:
                raise ColumnError(
                    "Late events get a column of this name.", column=name, remedy="Rename it in the source."
                )

    @property
    def advance(self) -> AdvanceTime:
        """Where time advances."""
        assert isinstance(self.input, AdvanceTime)  # noqa: S101  (held by __post_init__)
        return self.input

    @property
    def schema(self) -> pa.Schema:
        cti, late_by = LATE_COLUMNS
        return self.input.schema.append(pa.field(cti, pa.timestamp("us", self.zone))).append(
            pa.field(late_by, pa.duration("us"))
        )

    stateless = False

    comes_in = True

    @property
    def held(self) -> str:
        return "rows judged one after the other as they come, on the host"

    @property
    def time_rule(self) -> str:
        return "late stream: its CTI stays at minus infinity until the end of input"

    def describe(self) -> str:
        return "Late"
