"""Several data windows over one stream taken together: what is in all of them, or in any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import narwhals as nw

from gpu_ops.core.time import format_span
from gpu_ops.errors import PlanError
from gpu_ops.plan.data_windows import Alive, DataWindow
from gpu_ops.plan.lifetimes import Change, Lifetime
from gpu_ops.plan.nodes import Node, Project, extended
from gpu_ops.plan.window_kinds import AsPart, Assigned, DataWindowKind, Enters, Remains, RowNote

SetRule = Literal["all", "any"]

BITS = 2
"""How many bits it takes to say how a window holds a row."""

_TAKEN = (
    "last, batches, last_span, until, first, first_span, keep_all, unique, first_unique, highest, lowest, "
    "time_batches, time_length_batches"
)
_MOST = 30
"""What each window knows of a row is two bits of one number."""


@dataclass(frozen=True)
class UntilTime:
    """Rows are in from their start on: for a span, or until the time in a column (Esper: time, timetolive).

    It is a part alone, and no kind: by itself it is a change of lifetimes, and all events are in while they live.
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
    """One of the windows, with one of its own for each combination of some columns."""

    window: DataWindowKind | UntilTime
    within: tuple[str, ...] = ()

    def __str__(self) -> str:
        within = f" for each {', '.join(self.within)}" if self.within else ""
        return f"{self.window}{within}"


@dataclass(frozen=True)
class WindowSet(Assigned):
    """Several windows that see the same rows, in the order of their coming.

    Attributes:
        rule: ``"all"``, an intersection: a row that any of them does not take, or drops, is dropped from all. All see a
            row before what it puts out of one is dropped from the others. Where one makes batches the others say what
            gathers for the next one, and forget a batch that is complete. ``"any"``, a union: each is as it is alone,
            and a row is in from when the first lets it in until the last that holds it drops it.
        parts: The windows.
    """

    rule: SetRule
    parts: tuple[SetPart, ...]

    leaves = "at once"
    ties = "by payload"
    on_host = True
    halo = "what one window drops is dropped from the others, and all events before say what"

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
    """A window as a part: its stream, the columns that it needs beside the payload, what it is, its order."""

    stream: Node
    hidden: Mapping[str, nw.Expr]
    parts: tuple[SetPart, ...]
    order: tuple[str, ...]


def taken_together(rule: SetRule, windows: Sequence[tuple[DataWindow, Sequence[str]]], *, verb: str) -> DataWindow:
    """Several windows over one stream as one; what it needs beside the payload is behind that.

    Args:
        rule: As in `WindowSet`.
        windows: Each with the names of its payload, beside which it may need more.
        verb: The user's, for errors.

    Raises:
        PlanError: They are over different streams, or cannot be taken together.
    """
    if len(windows) < 2:
        raise PlanError(f"{verb} has nothing to take.", remedy=f'Give a window: s.last(9).{verb}(s.unique("item")).')
    taken = [_taken(*each, rule, at, verb) for at, each in enumerate(windows)]
    stream = taken[0].stream
    if any(each.stream.identity != stream.identity for each in taken):
        raise PlanError(
            f"{verb} takes windows over one stream, and these are over different ones.",
            remedy=f'Name the stream, and make all of it: by = bids.by("item"); by.last(9).{verb}(by.unique("price")).',
        )
    parts = tuple(part for each in taken for part in each.parts)
    if len(parts) > _MOST:
        raise PlanError(f"{verb} of {len(parts)} windows.", remedy=f"Take at most {_MOST}.")
    roles = [(part, _role(part.window, verb)) for part in parts]
    batches = [part for part, role in roles if (role.timer if rule == "any" else role.batches)]
    if len(batches) > 1:
        raise PlanError(
            f"Two windows make batches: {batches[0]} and {batches[1]}.",
            remedy="Take one of them.",
        )
    orders = {each.order for each in taken if each.order}
    if len(orders) > 1:
        raise PlanError(
            f"{verb} of windows with different order=.",
            remedy="Events come in one order: give order= to one window, or the same columns to all.",
        )
    hidden = {name: expression for each in taken for name, expression in each.hidden.items()}
    below = extended(stream, (expression.alias(name) for name, expression in hidden.items()))
    return DataWindow(below, WindowSet(rule, parts), (), next(iter(orders), ()))


def _taken(window: DataWindow, names: Sequence[str], rule: SetRule, at: int, verb: str) -> _Window:
    """A window as the ``at``-th part, with the columns that it needs beside the payload under names of their own."""
    below, kind, order = window.input, window.window, window.order
    if isinstance(kind, Alive):  # the verbs make it, over a change of lifetimes; another kind may be over anything
        assert isinstance(below, Lifetime)  # noqa: S101  (that is how last_span and until are made)
        ends, hidden = _ends(below.change, f"__{at}_until")
        return _Window(below.input, hidden, (SetPart(ends),), order)
    parts = kind.parts if isinstance(kind, WindowSet) else (SetPart(kind, window.within),)
    if isinstance(kind, WindowSet) and kind.rule != rule:
        other = "an intersection" if kind.rule == "all" else "a union"
        raise PlanError(
            f"{verb} takes no window that is {other} itself.",
            remedy="Write its events as a stream, .rows(), or take all windows by one verb.",
        )
    for part in parts:
        _role(part.window, verb)
    if below.schema.names == list(names):
        return _Window(below, {}, parts, order)
    assert isinstance(below, Project)  # noqa: S101  (that is where the verbs put what they need beside the payload)
    made = dict(zip(below.schema.names[len(names) :], below.expressions, strict=True))
    renamed = {name: f"__{at}{name}" for name in made}
    return _Window(
        below.input,
        {renamed[name]: expression for name, expression in made.items()},
        tuple(replace(part, window=part.window.renamed(renamed)) for part in parts),
        tuple(renamed.get(name, name) for name in order),
    )


def _ends(change: Change, name: str) -> tuple[UntilTime, dict[str, nw.Expr]]:
    """Until when events live that last a span, or as long as an expression says."""
    if change.given:
        return UntilTime(column=name), {name: change.given["end"]}
    return UntilTime(span=change.lasting(None)), {}


def _role(window: DataWindowKind | UntilTime, verb: str) -> AsPart:
    if window.as_part is None:
        raise PlanError(f"{verb} does not take this window: {window}.", remedy=f"It takes {_TAKEN}.")
    return window.as_part
