"""Intersections and unions of data windows over one stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import narwhals as nw

from gpu_ops.core.time import format_span
from gpu_ops.errors import PlanError
from gpu_ops.plan.data_windows import Alive, DataWindow, Refused
from gpu_ops.plan.lifetimes import Change, Lifetime
from gpu_ops.plan.nodes import Node, Project, extended
from gpu_ops.plan.window_kinds import AsPart, Assigned, DataWindowKind, Enters, Remains, RowNote

SetRule = Literal["all", "any"]

BITS = 2
"""The number of bits that one window needs for each row."""

_TAKEN = (
    "last, batches, last_span, until, first, first_span, keep_all, unique, first_unique, highest, lowest, "
    "time_batches, time_length_batches"
)
_MOST = 30
"""The most windows that one number of a row has bits for."""


@dataclass(frozen=True)
class UntilTime:
    """Rows are in from their start on: for a span, or until the time in a column (Esper: time, timetolive).

    It exists only as a part. Such a window by itself is a change of lifetimes under `Alive`.
    """

    span: int | None = None
    column: str | None = None

    enters: ClassVar[Enters] = "at its start"
    as_part: ClassVar[AsPart] = AsPart()

    def __str__(self) -> str:
        return f"until {self.column}" if self.span is None else f"last span {format_span(self.span)}"

    def renamed(self, names: Mapping[str, str]) -> UntilTime:
        """The same over columns with other names."""
        return self if self.column is None else replace(self, column=names.get(self.column, self.column))


@dataclass(frozen=True)
class SetPart:
    """One of the windows, with a window for each combination of some columns."""

    window: DataWindowKind | UntilTime
    within: tuple[str, ...] = ()

    def __str__(self) -> str:
        within = f" for each {', '.join(self.within)}" if self.within else ""
        return f"{self.window}{within}"


@dataclass(frozen=True)
class WindowSet(Assigned):
    """Several windows that see the same rows in the same order.

    Attributes:
        rule: ``"all"``, an intersection: a row that any window refuses or drops is dropped from all. All windows see a
            new row before the rows that it displaces are dropped from the others. If one window makes batches, the
            others decide what gathers for the next batch, and forget a complete batch. ``"any"``, a union: each window
            behaves as it does alone, and a row is in from its first enter to its last leave.
        parts: The windows.
        refused: What becomes of a row that a window drops as it comes, as in `gpu_ops.plan.data_windows.Sorted`; what
            the first rows' windows refuse is never shown, nor what gathers.
    """

    rule: SetRule
    parts: tuple[SetPart, ...]
    refused: Refused = "dropped"

    leaves = "at once"
    ties = "by payload"
    on_host = True
    halo = "what one window drops is dropped from the others, which depends on all earlier events"

    def __str__(self) -> str:
        return f"{self.rule} of ({'; '.join(str(part) for part in self.parts)})"

    @property
    def enters(self) -> Enters:
        return "at its start" if all(part.window.enters == "at its start" for part in self.parts) else "later"

    @property
    def remains(self) -> Remains:
        known = (part.window.as_part for part in self.parts)
        return "nothing" if all(each is not None and each.remains == "nothing" for each in known) else "all"

    @property
    def note(self) -> RowNote:
        return RowNote("memo", least=0, most=(1 << BITS * len(self.parts)) - 1)


@dataclass(frozen=True)
class _Window:
    """A window as a part: its stream, the columns that it needs besides the payload, its parts and its order."""

    stream: Node
    hidden: Mapping[str, nw.Expr]
    parts: tuple[SetPart, ...]
    order: tuple[str, ...]


def taken_together(rule: SetRule, windows: Sequence[tuple[DataWindow, Sequence[str]]], *, verb: str) -> DataWindow:
    """Several windows over one stream as one; columns that they need besides the payload follow it.

    Args:
        rule: As in `WindowSet`.
        windows: Each with the names of its payload; its input may have more columns.
        verb: The user's verb, for errors.

    Raises:
        PlanError: The windows are over different streams, or cannot be taken together.
    """
    if len(windows) < 2:
        raise PlanError(f"{verb} needs a second window.", remedy=f'Give a window: s.last(9).{verb}(s.unique("item")).')
    taken = [_taken(*each, rule, at, verb) for at, each in enumerate(windows)]
    stream = taken[0].stream
    if any(each.stream.identity != stream.identity for each in taken):
        raise PlanError(
            f"{verb} takes windows over one stream, and these are over different streams.",
            remedy=f'Make all windows from one variable: by = bids.by("item"); by.last(9).{verb}(by.unique("price")).',
        )
    parts = tuple(part for each in taken for part in each.parts)
    if len(parts) > _MOST:
        raise PlanError(f"{verb} was given {len(parts)} windows.", remedy=f"Take at most {_MOST}.")
    roles = [(part, _role(part.window, verb)) for part in parts]
    batches = [part for part, role in roles if (role.timer if rule == "any" else role.batches)]
    if len(batches) > 1:
        raise PlanError(
            f"Two windows make batches: {batches[0]} and {batches[1]}.",
            remedy="Leave one of them out.",
        )
    orders = {each.order for each in taken if each.order}
    if len(orders) > 1:
        raise PlanError(
            f"{verb} was given windows with different order=.",
            remedy="There is one order of events: give order= to one window, or the same columns to all.",
        )
    hidden = {name: expression for each in taken for name, expression in each.hidden.items()}
    below = extended(stream, (expression.alias(name) for name, expression in hidden.items()))
    return DataWindow(below, WindowSet(rule, parts), (), next(iter(orders), ()))


def _taken(window: DataWindow, names: Sequence[str], rule: SetRule, at: int, verb: str) -> _Window:
    """A window as the ``at``-th part, with the columns that it needs besides the payload renamed."""
    below, kind, order = window.input, window.window, window.order
    if isinstance(kind, Alive):  # the verbs make it over a change of lifetimes
        assert isinstance(below, Lifetime)  # noqa: S101  (that is how last_span and until are made)
        ends, hidden = _ends(below.change, f"__{at}_until")
        return _Window(below.input, hidden, (SetPart(ends),), order)
    parts = kind.parts if isinstance(kind, WindowSet) else (SetPart(kind, window.within),)
    if isinstance(kind, WindowSet) and kind.rule != rule:
        other = "an intersection" if kind.rule == "all" else "a union"
        raise PlanError(
            f"{verb} takes no window that is itself {other}.",
            remedy="Turn it into a stream with .rows(), or combine all windows with one verb.",
        )
    for part in parts:
        _role(part.window, verb)
    if below.schema.names == list(names):
        return _Window(below, {}, parts, order)
    assert isinstance(below, Project)  # noqa: S101  (the verbs add columns by a projection)
    made = dict(zip(below.schema.names[len(names) :], below.expressions, strict=True))
    renamed = {name: f"__{at}{name}" for name in made}
    return _Window(
        below.input,
        {renamed[name]: expression for name, expression in made.items()},
        tuple(replace(part, window=part.window.renamed(renamed)) for part in parts),
        tuple(renamed.get(name, name) for name in order),
    )


def _ends(change: Change, name: str) -> tuple[UntilTime, dict[str, nw.Expr]]:
    """The ends of events that last a span, or until the time of an expression."""
    if change.given:
        return UntilTime(column=name), {name: change.given["end"]}
    return UntilTime(span=change.lasting(None)), {}


def _role(window: DataWindowKind | UntilTime, verb: str) -> AsPart:
    if window.as_part is None:
        raise PlanError(f"{verb} does not take this window: {window}.", remedy=f"It takes {_TAKEN}.")
    return window.as_part
