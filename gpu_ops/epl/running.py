"""A statement that runs: what it makes of each step, and whom it tells."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.time import TICK, TIME_TYPE
from gpu_ops.core.turns import ASK, CLOCK, EMPTY, HELD, ORDER, PLACE, ROW, TURN
from gpu_ops.devices import Device
from gpu_ops.epl.planning.planned import PlannedStatement
from gpu_ops.errors import PlanError, shown
from gpu_ops.operators.deliveries.rows import KINDS
from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.runtime.steps import RunningNode
from gpu_ops.plan.nodes import Feed

TICKS = pa.schema([(CLOCK, TIME_TYPE), (ASK, pa.bool_())])
"""The columns of ticks."""

_KIND = "@kind"
"""The column with each row's kind, by its place among `KINDS`; words are slow."""

Listener = Callable[[pa.Table | None, pa.Table | None, "RunningStatement"], None]
Subscriber = Callable[..., None]


@dataclass(frozen=True)
class Delivery:
    """What a listener is handed at once.

    Attributes:
        statement: The statement's name.
        new: The rows of the insert stream; None where there are none.
        old: The rows of the remove stream; None where there are none.
    """

    statement: str
    new: pa.Table | None
    old: pa.Table | None


class DeliveredRows:
    """The deliveries of a statement in a step: tables are cut out of one table when somebody looks.

    Args:
        statement: The statement.
        rows: The rows of the step, with the columns of the statement.
        kinds: The kind of each, by its place among `KINDS`.
        places: int64 place of each, ascending.
        at: int64 indices of the rows that are delivered.
        sides: The kinds that are new rows and old ones; -1 for none.
    """

    def __init__(
        self, statement: RunningStatement, rows: pa.Table, kinds: Any, places: Any, at: Any, sides: tuple[int, int]
    ) -> None:
        self.statement, self._rows, self._kinds, self._sides, self._at = statement, rows, kinds, sides, at
        self._begins = np.flatnonzero(np.concatenate([[True], places[at][1:] != places[at][:-1]]))
        self._ends = np.append(self._begins[1:], len(at))
        self.places = places[at[self._begins]]

    def __len__(self) -> int:
        return len(self._begins)

    def __iter__(self) -> Iterator[Delivery]:
        return map(self.delivery, range(len(self)))

    @property
    def numbers(self) -> Any:
        """The number of the statement, for each."""
        return np.full(len(self), self.statement.number)

    @property
    def heard(self) -> Any:
        """Whether anybody listens, for each."""
        return np.full(len(self), self.statement.is_heard)

    def tell(self, number: int) -> None:
        """Hand one of them to the listeners."""
        if self.statement.is_heard:
            self.statement.tell(self.delivery(number))

    def delivery(self, number: int) -> Delivery:
        """One of them."""
        rows = self._at[self._begins[number] : self._ends[number]]
        sides: list[pa.Table | None] = []
        for kind in self._sides:
            mine = rows[self._kinds[rows] == kind]
            sides.append(self._rows.slice(int(mine[0]), len(mine)) if len(mine) else None)
        return Delivery(self.statement.name, *sides)


class SentDeliveries(Sequence[Delivery]):
    """The deliveries of all statements in some turns, in the order of the turns, then of the statements.

    Args:
        parts: The deliveries of each statement.
    """

    def __init__(self, parts: Sequence[DeliveredRows]) -> None:
        self._parts = [*parts]
        self._begins = np.cumsum([0, *(len(each) for each in self._parts)])

    def __len__(self) -> int:
        return int(self._begins[-1])

    @cached_property
    def _order(self) -> Any:
        """The numbers of the deliveries in their order, which is asked for only where somebody looks."""
        empty = np.zeros(0, np.int64)
        places = np.concatenate([empty, *(each.places for each in self._parts)])
        return np.lexsort((np.concatenate([empty, *(each.numbers for each in self._parts)]), places))

    @overload
    def __getitem__(self, index: int) -> Delivery: ...

    @overload
    def __getitem__(self, index: slice) -> list[Delivery]: ...

    def __getitem__(self, index: int | slice) -> Delivery | list[Delivery]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        rows, number = self._found(int(self._order[index]))
        return rows.delivery(number)

    def tell(self) -> None:
        """Hand the deliveries to those who listen, in order."""
        if not self._parts:
            return
        heard = np.concatenate([each.heard for each in self._parts])
        if heard.any():
            for at in self._order.tolist():
                rows, number = self._found(at)
                rows.tell(number)

    def _found(self, at: int) -> tuple[DeliveredRows, int]:
        owner = int(np.searchsorted(self._begins, at, side="right")) - 1
        return self._parts[owner], at - int(self._begins[owner])


@dataclass(frozen=True)
class PlacedRows:
    """Rows at their places, in order."""

    places: Any
    rows: pa.Table


@dataclass(frozen=True)
class TickRows:
    """Ticks: int64 places, int64 clocks in ticks of time, and whether each asks for content."""

    places: Any
    clocks: Any
    asks: Any

    def table(self) -> pa.Table:
        """The ticks as rows."""
        return pa.table({CLOCK: pa.array(self.clocks, pa.int64()), ASK: self.asks}).cast(TICKS)


@dataclass(eq=False)
class RunningStatement:
    """A deployed statement. `Runtime.deploy` makes it.

    Attributes:
        name: Its name: that of `@name`, else `statement 1` and so on.
        text: Its text.
        plan: What it computes.
        target: The type of events that its rows are too; nothing if they are none.
        names: What its columns are called there.
        since: What the clock showed when it was deployed, in ticks.
        failed: Why it does not run any more; None while it runs.
        kept: What was delivered since `deliveries` was called last; None before the first call.
        home: The name of the isolated service that it is in; nothing for the runtime's own.
        offset: How far its own clock is ahead of that of its service, in ticks: it came from one with another clock.
        number: Those that were deployed later have greater ones.
    """

    name: str
    text: str
    plan: PlannedStatement
    target: str
    names: tuple[str, ...]
    since: int
    _device: Device
    _running: RunningNode
    _errors: list[tuple[str, Exception]]
    _listeners: list[Listener] = field(default_factory=list)
    failed: BaseException | None = None
    kept: list[pa.Table] | None = None
    home: str = ""
    offset: int = 0
    number: int = 0
    _keeping: threading.Lock = field(default_factory=threading.Lock)

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        return self.plan.columns

    def listen(self, listener: Listener) -> None:
        """Have a function called with each delivery. If it raises, that is noted in `Runtime.errors`, and all goes on.

        It is called when all statements have taken the turn, so it may send events itself.

        Args:
            listener: Takes the new rows, the old rows (Arrow tables, or None) and the statement.
        """
        if not callable(listener):
            raise PlanError(f"listener is {shown(listener)}.", remedy="It is a function of three: new, old, statement.")
        self._listeners.append(listener)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Have a function called with each new row, a column an argument, as Python values.

        Args:
            subscriber: Takes as many arguments as there are columns.
        """

        def each(new: pa.Table | None, old: pa.Table | None, statement: RunningStatement) -> None:
            del old, statement
            for row in zip(*(() if new is None else new.to_pydict().values()), strict=True):
                subscriber(*row)

        self.listen(each)

    def deliveries(self) -> pa.Table:
        """What was delivered since the last call, as a table: `turn`, `row` (``"new"`` or ``"old"``), and the columns.

        The first call begins to keep deliveries.
        """
        with self._keeping:
            kept, self.kept = self.kept, []
        return pa.concat_tables(kept) if kept else self.kept_schema.empty_table()

    @property
    def kept_schema(self) -> pa.Schema:
        """The columns of what `deliveries` gives."""
        return pa.schema([pa.field("turn", pa.int64()), pa.field("row", pa.string()), *self.schema])

    def explain(self) -> str:
        """The plan: its nodes, each after those that it reads."""
        return "\n".join(node.describe() for node in self.plan.node.walk())

    # Steps

    @property
    def device(self) -> Device:
        """Where it computes."""
        return self._device

    @property
    def nodes(self) -> list[RunningNode]:
        """What runs, each node after those that it reads."""
        return self._running.walk()

    def step(
        self,
        arrived: Mapping[Feed, PlacedRows],
        ticks: tuple[Feed, TickRows | None],
        feeds: Mapping[str, Feed],
        cti: int,
    ) -> pa.Table:
        """What becomes of the events and ticks of some turns: its node's columns, `PLACE` and codes of kinds, in order.

        Args:
            arrived: The rows of each leaf.
            ticks: The leaf of ticks, and the ticks.
            feeds: All other leaves.
            cti: The place of the next turn.
        """
        moved, rows = ticks
        leaves: dict[Any, tuple[StepInput, int]] = {}
        placed = dict(arrived) if rows is None else {**arrived, moved: PlacedRows(rows.places, rows.table())}
        own = (self.plan.history, self.plan.before)
        for feed in (*feeds.values(), moved, *(each for each in own if each is not None)):
            given = StepInput()
            if feed in placed:
                frame = self._device.columns.from_arrow(placed[feed].rows)
                given = StepInput([Events(self._device.columns.array(placed[feed].places), TICK, frame)])
            leaves[feed, "whole"] = leaves[feed, "open"] = (given, cti)
        results, _ = self._running.step(leaves)
        self._running.rest()
        schema, tables = self.plan.node.schema, []
        for events in results.events:
            if len(events):
                table = self._device.columns.to_arrow(events.frame, schema)
                places = pa.array(self._device.columns.host(events.start))
                kinds = pc.index_in(table[ROW].combine_chunks(), pa.array(KINDS)).cast(pa.int8())
                table = table.drop_columns([ROW]).append_column(PLACE, places).append_column(_KIND, kinds)
                tables.append(table)
        if not tables:
            rest = [field for field in schema if field.name != ROW]
            return pa.schema([*rest, (PLACE, pa.int64()), (_KIND, pa.int8())]).empty_table()
        return _in_order(pa.concat_tables(tables).combine_chunks())

    def inserted(self, made: pa.Table) -> PlacedRows:
        """The rows of a step that are events of another stream, at the places at which they were made."""
        some = made.take(np.flatnonzero(np.isin(_kinds(made), [KINDS.index(each) for each in self.plan.inserts])))
        return PlacedRows(some[PLACE].to_numpy(), self._named(some).rename_columns(list(self.names)))

    def held(self, made: pa.Table) -> pa.Table:
        """The rows of a step that are content."""
        return self._named(made.take(np.flatnonzero(_kinds(made) == KINDS.index(HELD))))

    def delivered(self, made: pa.Table) -> DeliveredRows | None:
        """All deliveries in a step; None if there are none."""
        kinds, places = _kinds(made), made[PLACE].to_numpy()
        words = self.plan.shows
        shown = np.logical_or.reduce([kinds == KINDS.index(word) for word in (EMPTY, *words) if word is not None])
        at = np.flatnonzero(shown)
        if not len(at):
            return None
        named = self._named(made)
        if self.kept is not None:
            rows = self._shown(named, kinds, places, at)
            with self._keeping:  # another thread may take what was kept before
                self.kept.append(rows)
        sides = tuple(-1 if word is None else KINDS.index(word) for word in words)
        return DeliveredRows(self, named, kinds, places, at, (sides[0], sides[1]))

    def tell(self, delivery: Delivery) -> None:
        """Hand a delivery to the listeners."""
        for listener in tuple(self._listeners):
            try:
                listener(delivery.new, delivery.old, self)
            except Exception as error:  # noqa: BLE001  (a listener that raises stops nothing)
                self._errors.append((self.name, error))

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    def _shown(self, named: pa.Table, kinds: Any, places: Any, at: Any) -> pa.Table:
        new, _ = self.plan.shows
        some = at[kinds[at] != KINDS.index(EMPTY)]
        is_new = pa.array(kinds[some] == KINDS.index(str(new)))
        table = named.take(some)
        turns = pa.array(places[some] // TURN, pa.int64())
        columns = [turns, pc.if_else(is_new, "new", "old"), *table.columns]
        return pa.table(columns, self.kept_schema)

    def _named(self, table: pa.Table) -> pa.Table:
        """Rows with the names of the columns."""
        names = [f"@column {at}" for at in range(len(self.schema))]
        return table.select(names).rename_columns(self.schema.names)


def _kinds(made: pa.Table) -> Any:
    """The place of each row's kind among `KINDS`."""
    return made[_KIND].to_numpy()


def _in_order(made: pa.Table) -> pa.Table:
    """Rows in order of place, kind and number: those of one place stand so in most steps."""
    place = made[PLACE].to_numpy()
    if (place[1:] > place[:-1]).all():
        return made
    kinds, number = _kinds(made), made[ORDER].fill_null(0).to_numpy()
    if (place[1:] < place[:-1]).any():
        order = np.argsort(place, kind="stable")
        place, kinds, number, made = place[order], kinds[order], number[order], made.take(order)
    later = (kinds[1:] > kinds[:-1]) | ((kinds[1:] == kinds[:-1]) & (number[1:] >= number[:-1]))
    if ((place[1:] > place[:-1]) | later).all():
        return made
    return made.take(np.lexsort((number, kinds, place)))
