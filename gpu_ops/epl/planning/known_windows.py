"""Named windows as statements see them: what is kept in one, and what events do to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from gpu_ops.core.turns import INSTANCE, NEW
from gpu_ops.epl import queries as q
from gpu_ops.epl.inlining import rebuilt
from gpu_ops.epl.planning.windows import StreamWindows
from gpu_ops.plan.nodes import Feed, Node
from gpu_ops.plan.row_changes import PairPrograms
from gpu_ops.texts import expressions as e
from gpu_ops.texts.placed_error import HasPlace, failure_at, unsupported

ID, CAME, SILENT = "@id", "@came", "@silent"
"""The columns of a row's number, of what the clock showed as it came, and of whether it leaves without that the
window's own listeners are told."""

NAMED = "named window"
"""The view that stands for those of a named window where a statement reads it."""


def over_named(node: Any, windows: Collection[str]) -> Any:
    """A part of a statement in which streams of named windows have a view of their own.

    Raises:
        PlacedError: One has another view.
    """

    def change(part: Any) -> Any:
        if not isinstance(part, q.StreamTerm) or getattr(part.source, "type_name", "") not in windows:
            return None
        if part.views:
            raise unsupported(part.views[0], "windows over named windows", "Create the named window with this view.")
        source = rebuilt(part.source, change)
        return replace(part, source=source, views=(q.View(NAMED, place=part.place),))

    return rebuilt(node, change) if windows else node


@dataclass(frozen=True)
class WindowLimits:
    """When rows leave a window unless events take them out.

    Attributes:
        most: How many are there at most; 0 for any number.
        span: How long each is there, in ticks; -1 for ever.
        unique: The columns of whose values there is one row each; none for any number.
    """

    most: int = 0
    span: int = -1
    unique: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnownWindow:
    """A named window.

    Attributes:
        name: Its name.
        schema: Its columns.
        arrivals: The leaf of what is inserted: its columns, `ID`, and those of arrivals.
        moves: The rows that enter its data windows and leave them, as points; None where all stay until they are taken.
        waiting: Those that begin and cease to wait for their batch, likewise; None without batches.
        content: The leaf from which statements read the rows while they are in.
        gathering: The leaf of the rows that wait; None without batches.
        alone: Whether each row leaves by itself, whatever becomes of others.
        anchored: Whether the first row says when batches end.
        order: As in `StreamWindows`.
        keys: The primary key of a table.
        aggregates: The columns of a table that queries keep.
        is_table: Whether it is a table.
        declared: The aggregates of a table's columns, as its text has them.
        context: The context that it is in: then `INSTANCE` is a column of its rows, and each instance has a window.
        limits: When rows leave, for a walk over the events that change them; None where they leave otherwise.
    """

    name: str
    schema: pa.Schema
    arrivals: Feed
    moves: Node | None
    waiting: Node | None
    content: Feed
    gathering: Feed | None
    alone: bool
    anchored: bool
    order: tuple[tuple[str, bool], ...] = ()
    keys: tuple[str, ...] = ()
    aggregates: frozenset[str] = frozenset()
    is_table: bool = False
    limits: WindowLimits | None = None
    declared: Mapping[str, e.FunctionCall] = field(default_factory=dict)
    context: str = ""

    @property
    def columns(self) -> pa.Schema:
        """Its columns as statements see them."""
        return pa.schema([each for each in self.schema if each.name != INSTANCE])

    def check_context(self, node: HasPlace, context: str) -> None:
        """Refuse statements of other contexts: which of its windows they mean nobody knows.

        Raises:
            PlacedError: The statement is not in its context.
        """
        if self.context and self.context != context:
            said = f"{self.name!r} is a named window of the context {self.context!r}, with one in each instance."
            hint = f"Write: context {self.context} …"
            raise failure_at(node, said, hint, construct="named windows of other contexts")

    def rows_for(self, *, asked: bool) -> Node:
        """The leaf of its rows: an event that asks finds those of a batch which wait."""
        return self.gathering if asked and self.gathering is not None else self.content

    def windows_of(self, rows: Node) -> StreamWindows:
        """What a statement over it has instead of windows of its own.

        Args:
            rows: The content, or those of its rows that the statement's filter takes.
        """
        if self.gathering is None or self.gathering in set(rows.walk()):
            return StreamWindows(rows, rows, order=self.order)
        waiting = self.gathering if rows is self.content else rows
        return StreamWindows(rows, waiting, None, True, self.order)

    @property
    def notes(self) -> tuple[str, ...]:
        """How its rows are found: a line, and one for each node."""
        how = "by themselves" if self.alone else "depending on each other: a step is cut where an event changes some"
        nodes = [each for each in (self.moves, self.waiting) if each is not None]
        lines = (each.describe() for node in nodes for each in node.walk())
        return f"Named window {self.name}: rows leave {how}", *lines


EVENT, KEPT = "@0 ", "@1 "
"""What the columns of the event, and those of a row in the window, begin with where they are side by side."""


@dataclass(frozen=True)
class Action:
    """What becomes of a pair of an event and a row, or of an event without a row.

    Attributes:
        kind: What it does.
        where: The column that says whether it does it; None for always.
        values: The columns with the new values of the window's columns; none where it deletes.
    """

    kind: Literal["delete", "update", "insert"]
    where: str | None
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChangeBranch:
    """The actions of a branch: the first one that fits is taken.

    Attributes:
        matched: Whether it is for rows that match, or for an event that no row matches.
        where: The column that says whether it fits; None for always.
        actions: The actions.
        always: Whether it is for all events, whatever rows match.
    """

    matched: bool
    where: str | None
    actions: tuple[Action, ...]
    always: bool = False


@dataclass(frozen=True)
class PlannedChange:
    """What an event does to a named window.

    Attributes:
        window: The name of the window.
        on: Pairs (property of the event, column of the window) that are equal where a row matches.
        pairs: The leaf: an event beside a row, whose columns are null where it has none.
        computed: All conditions and values of pairs.
        passes: The column that says whether a row matches, where equal columns do not say it; None if they do.
        branches: What is done.
        silent: Whether the listeners of the window are not told.
        deleted_as: What a row that it takes out is for its own listeners.
        into: Whether these are the rows of a query that a table keeps.
        by_key: Whether an event is about rows of its own key alone, and leaves them that key.
        programs: The conditions and values, for a walk from one event to the next; None if they have no programs.
        stepped: Why there is no walk; nothing if there is one.
        whole: The condition that says whether a row matches, equal columns included; None where there is none.
    """

    window: str
    on: tuple[tuple[str, str], ...]
    pairs: Feed
    computed: Node | None
    passes: str | None
    branches: tuple[ChangeBranch, ...]
    silent: bool = False
    deleted_as: int = NEW
    into: bool = False
    by_key: bool = False
    programs: PairPrograms | None = None
    stepped: str = ""
    whole: str | None = None

    @property
    def note(self) -> str:
        """How it is computed, in a line."""
        on = ", ".join(f"{mine}={other}" for mine, other in self.on)
        how = "in one walk over the events, with all others that change it if these go so too"
        if self.stepped:
            how = "one event after the other"
            if self.by_key or self.deletes_only:
                how = "events of all keys at once" if self.by_key else "all events at once"
                how += ", where its rows leave by themselves"
            how += f" (no walk: {self.stepped})"
        return f"Changes {self.window}{f' on {on}' if on else ''}: {how}"

    @property
    def deletes_only(self) -> bool:
        """Whether it takes out all rows that it finds, and does nothing else."""
        return all(
            action.kind == "delete" and branch.where is None and action.where is None
            for branch in self.branches
            for action in branch.actions
        )
