"""Several data windows over one stream taken together: what is in all of them, or in any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gpu_ops.time import format_span

if TYPE_CHECKING:
    from gpu_ops.plan.data_windows import Kind


@dataclass(frozen=True)
class Ends:
    """Rows are in from their start on: for a span, or until the time in a column (Esper: time, timetolive)."""

    span: int | None = None
    column: str | None = None

    def __str__(self) -> str:
        return f"until {self.column}" if self.span is None else f"last span {format_span(self.span)}"


@dataclass(frozen=True)
class Part:
    """One of the windows, with one of its own for each combination of some columns."""

    window: Kind | Ends
    within: tuple[str, ...] = ()

    def __str__(self) -> str:
        within = f" for each {', '.join(self.within)}" if self.within else ""
        return f"{self.window}{within}"


@dataclass(frozen=True)
class Together:
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

    def __str__(self) -> str:
        return f"{self.rule} of ({'; '.join(str(part) for part in self.parts)})"
