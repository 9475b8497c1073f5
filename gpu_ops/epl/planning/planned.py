"""Plans of statements, and what they are made over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from gpu_ops.core.time import MIN_TIME
from gpu_ops.epl.patterns import EventFilter
from gpu_ops.epl.planning.known_contexts import KnownContext
from gpu_ops.epl.planning.known_windows import KnownWindow, PlannedChange
from gpu_ops.epl.planning.settings import VariableSetting
from gpu_ops.epl.planning.variables import KnownVariable, ReadVariables
from gpu_ops.plan.nodes import Feed, Node
from gpu_ops.texts.binding.scope import unknown


@dataclass(frozen=True)
class PlannedStatement:
    """A query as a plan.

    Attributes:
        node: Points at the places of deliveries: `ROW`, `ORDER`, and its columns under the names `@column 0` and so on.
        columns: What its columns are called, and their types.
        reads: The types of events that it reads.
        shows: Which rows a listener gets as new ones and as old ones, by their kind; None for none.
        inserts: Which kinds of rows go to the stream that it inserts into.
        ordered: Whether the rows of an iterator have an order.
        variables: The variables that it reads.
        history: The leaf with their values, from place to place; None if it reads none that changes.
        before: The leaf with their values before anything is set at a place, as filters see them.
        setting: What its rows do to variables, if they do: then they are those that trigger it.
        filtering: The variables on which it depends what triggers it.
        streams: How many streams of events it listens to: those of from clauses, its own and those of sub-queries.
        context: The context that it is in; None if it is in none.
        change: What its rows do to a named window, if they do: then they are those that trigger it.
        own: The leaves of variables of its context that it reads: (history, before).
        variable: The variable of a context that it makes, and the leaf of what that becomes.
        asked: Whether an event asks a named window, and finds what earlier statements have done at the same event.
        creates: The named window that it makes; nothing for none.
        updates: The type whose events it changes before others see them; nothing for none.
        notes: What is said of it beside its nodes.
    """

    node: Node
    columns: pa.Schema
    reads: tuple[str, ...]
    shows: tuple[int | None, int | None]
    inserts: tuple[int, ...] = ()
    ordered: bool = True
    variables: ReadVariables = field(default_factory=ReadVariables)
    history: Feed | None = None
    before: Feed | None = None
    setting: VariableSetting | None = None
    filtering: frozenset[str] = frozenset()
    context: KnownContext | None = None
    streams: int = 1
    change: PlannedChange | None = None
    own: Mapping[str, tuple[Feed, Feed]] = field(default_factory=dict)
    variable: tuple[str, Feed] | None = None
    asked: bool = False
    creates: str = ""
    updates: str = ""
    notes: tuple[str, ...] = ()

    @cached_property
    def kept(self) -> pa.Schema:
        """The columns of deliveries that are kept: the turn, the word for the kind of row, and its own."""
        return pa.schema([pa.field("turn", pa.int64()), pa.field("row", pa.string()), *self.columns])

    @cached_property
    def made(self) -> list[str]:
        """The names of its columns in what its node gives."""
        return [f"@column {at}" for at in range(len(self.columns))]

    @property
    def filters(self) -> int:
        """How many filters over events are active while it runs: one for each stream that it listens to."""
        return self.streams


@dataclass(frozen=True)
class Ledger:
    """What statements are planned over.

    Attributes:
        types: The properties of each type of event.
        arrivals: The leaf of each type's arrivals.
        ticks: The leaf of ticks.
        clock: What the clock shows, in ticks.
        irstream: Whether a statement that says nothing of it gets the remove stream too.
        asks: Whether content may be asked for.
        variables: The variables.
        contexts: The contexts.
        windows: The named windows.
    """

    types: Mapping[str, pa.Schema]
    arrivals: Mapping[str, Node]
    ticks: Node
    clock: int = MIN_TIME
    irstream: bool = False
    asks: bool = True
    variables: Mapping[str, KnownVariable] = field(default_factory=dict)
    contexts: Mapping[str, KnownContext] = field(default_factory=dict)
    windows: Mapping[str, KnownWindow] = field(default_factory=dict)


def known_type(source: EventFilter, ledger: Ledger) -> pa.Schema:
    """The properties of a stream's events.

    Raises:
        PlacedError: There is no such type.
    """
    schema = ledger.types.get(source.type_name)
    if schema is None:
        known = list(ledger.types)
        raise unknown(
            source, f"There is no type of events {source.type_name!r}.", source.type_name, known, known, "Known"
        )
    return schema
