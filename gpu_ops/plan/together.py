"""Several data windows over one stream taken together: what is in all of them, or in any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from gpu_ops.core.time import format_span
from gpu_ops.plan.window_kinds import AsPart, Assigned, DataWindowKind, Enters, Rests, RowNote

BITS = 2
"""How many bits it takes to say how a window holds a row."""


@dataclass(frozen=True)
class Ends:
    """Rows are in from their start on: for a span, or until the time in a column (Esper: time, timetolive).

    It is a part alone, and no kind: by itself it is a change of lifetimes, and all events are in while they live.
    """

    span: int | None = None
    column: str | None = None

    enters: ClassVar[Enters] = "at its start"
    as_part: ClassVar[AsPart] = AsPart()

    def __str__(self) -> str:
        return f"until {self.column}" if self.span is None else f"last span {format_span(self.span)}"

    def renamed(self, names: Mapping[str, str]) -> Ends:
        """The same over columns with other names."""
        return self if self.column is None else replace(self, column=names.get(self.column, self.column))


@dataclass(frozen=True)
class Part:
    """One of the windows, with one of its own for each combination of some columns."""

    window: DataWindowKind | Ends
    within: tuple[str, ...] = ()

    def __str__(self) -> str:
        within = f" for each {', '.join(self.within)}" if self.within else ""
        return f"{self.window}{within}"


@dataclass(frozen=True)
class Together(Assigned):
    """Several windows that see the same rows, in the order of their coming.

    Attributes:
        rule: ``"all"``, an intersection: a row that any of them does not take, or drops, is dropped from all. All see a
            row before what it puts out of one is dropped from the others. Where one makes batches the others say what
            gathers for the next one, and forget a batch that is complete. ``"any"``, a union: each is as it is alone,
            and a row is in from when the first lets it in until the last that holds it drops it.
        parts: The windows.
    """

    rule: Literal["all", "any"]
    parts: tuple[Part, ...]

    leaves = "at once"
    ties = "by payload"
    on_host = True
    context = "what one window drops is dropped from the others, and all events before say what"

    def __str__(self) -> str:
        return f"{self.rule} of ({'; '.join(str(part) for part in self.parts)})"

    @property
    def enters(self) -> Enters:
        return "at its start" if all(part.window.enters == "at its start" for part in self.parts) else "later"

    @property
    def rests(self) -> Rests:
        known = (part.window.as_part for part in self.parts)
        return "nothing" if all(each is not None and each.rests == "nothing" for each in known) else "all"

    @property
    def note(self) -> RowNote:
        return RowNote("memo", least=0, most=(1 << BITS * len(self.parts)) - 1)
