"""A statement that runs: what it makes of each step, and whom it tells."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.arrow_buffers import repeated, to_arrow
from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.time import TIME_TYPE
from gpu_ops.core.turns import CLOCK, EMPTY, HELD, INSTANCE, NEW, OLD, ORDER, PLACE, ROW, TURN
from gpu_ops.devices import Device
from gpu_ops.epl.planning.planned import PlannedStatement
from gpu_ops.errors import PlanError, shown
from gpu_ops.ingest.turn_numbers import all_rise, stand_in_order
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.runtime.released import EndedInstances
from gpu_ops.operators.runtime.steps import FirstFailure, RunningNode
from gpu_ops.plan.expression_text import for_readers
from gpu_ops.plan.nodes import Feed, Node
from gpu_ops.plan.standing import StandingFilter
from gpu_ops.texts.feeding import LeafRows, PlacedRows, TickRows, leaves_of, stepped_node

_TURN_BITS = TURN.bit_length() - 1

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


@dataclass
class Listening:
    """What the listeners of a runtime share.

    Attributes:
        errors: What they raised, with the statement's name.
        count: How many there have been.
    """

    errors: list[tuple[str, Exception]]
    count: int = 0


class DeliveredPart(Protocol):
    """Some of the deliveries of a step."""

    @property
    def places(self) -> Any:
        """int64 place of each."""

    @property
    def numbers(self) -> Any:
        """int64 number of the statement of each."""

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens to one of the statements."""

    @property
    def heard(self) -> Any:
        """Whether anybody listens to the statement of each."""

    @property
    def listening(self) -> Listening:
        """What its listeners share with others."""

    def __len__(self) -> int:
        """How many there are."""

    def delivery(self, number: int) -> Delivery:
        """One of them."""

    def tell(self, number: int) -> None:
        """Hand one of them to those who listen."""


class DeliveredRows:
    """The deliveries of a statement in a step: tables are cut out of one table when somebody looks.

    Args:
        statement: The statement.
        rows: The rows of the step, with the columns of the statement.
        kinds: The kind of each.
        places: int64 place of each, ascending.
        shown: Which of the rows are delivered.
    """

    def __init__(self, statement: RunningStatement, rows: pa.Table, kinds: Any, places: Any, shown: Any) -> None:
        self.statement, self._rows, self._kinds, self._places, self._shown = statement, rows, kinds, places, shown

    @cached_property
    def _at(self) -> Any:
        """int64 indices of the rows that are delivered."""
        return np.flatnonzero(self._shown)

    @cached_property
    def _begins(self) -> Any:
        places = self._places[self._at]
        return np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]]))

    @cached_property
    def places(self) -> Any:
        """int64 place of each delivery."""
        return self._places[self._at[self._begins]]

    def __len__(self) -> int:
        return len(self._begins)

    def __iter__(self) -> Iterator[Delivery]:
        return map(self.delivery, range(len(self)))

    def rows(self, kinds: Sequence[int]) -> tuple[pa.Table, Any, Any]:
        """(the rows of some kinds, the kind of each, int64 place of each), in order."""
        at = np.flatnonzero(self._shown & _of_kinds(self._kinds, None, kinds))
        return self._rows.take(at), self._kinds[at], self._places[at]

    @property
    def numbers(self) -> Any:
        """The number of the statement, for each."""
        return np.full(len(self), self.statement.number)

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens."""
        return self.statement.is_heard

    @property
    def heard(self) -> Any:
        """Whether anybody listens, for each."""
        return np.full(len(self), self.is_heard)

    @property
    def listening(self) -> Listening:
        """What its listeners share with others."""
        return self.statement.listening

    def tell(self, number: int) -> None:
        """Hand one of them to the listeners."""
        self.statement.tell(self.delivery(number))

    def delivery(self, number: int) -> Delivery:
        """One of them."""
        begins = self._begins[number : number + 2].tolist()
        rows = self._at[slice(*begins) if len(begins) == 2 else slice(begins[0], None)]
        sides: list[pa.Table | None] = []
        for kind in self.statement.plan.shows:
            mine = rows[self._kinds[rows] == (-1 if kind is None else kind)]
            sides.append(self._rows.slice(int(mine[0]), len(mine)) if len(mine) else None)
        return Delivery(self.statement.name, *sides)


class SentDeliveries(Sequence[Delivery]):
    """The deliveries of all statements in some turns, in the order of the turns, then of the statements.

    Args:
        parts: The deliveries of each statement.
    """

    def __init__(self, parts: Sequence[DeliveredPart]) -> None:
        self._parts = [*parts]

    def __repr__(self) -> str:
        return f"<deliveries: {len(self)}>"

    @cached_property
    def _begins(self) -> Any:
        return np.cumsum([0, *(len(each) for each in self._parts)])

    def __len__(self) -> int:
        return int(self._begins[-1])

    @cached_property
    def _order(self) -> Any:
        """The numbers of the deliveries in their order, which is asked for only where somebody looks."""
        return np.lexsort(self._keys)

    @cached_property
    def _keys(self) -> tuple[Any, Any]:
        """(the number of each one's statement, its place)."""
        empty = np.zeros(0, np.int64)
        numbers = np.concatenate([empty, *(each.numbers for each in self._parts)])
        return numbers, np.concatenate([empty, *(each.places for each in self._parts)])

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
        after: tuple[int, int] | None = (-1, -1)
        while after is not None and any(each.is_heard for each in self._parts):
            heard = np.flatnonzero(np.concatenate([each.heard for each in self._parts]))
            numbers, places = (keys[heard] for keys in self._keys)
            later = (places > after[0]) | ((places == after[0]) & (numbers > after[1]))
            heard, numbers, places = heard[later], numbers[later], places[later]
            after = self._told(heard[np.lexsort((numbers, places))])

    def _told(self, order: Any) -> tuple[int, int] | None:
        """Tell until somebody else listens too.

        Returns:
            Place and number of the last one that was told; None if all were.
        """
        listening, (numbers, places) = self._parts[0].listening, self._keys
        count = listening.count
        for at in order.tolist():
            part, number = self._found(at)
            part.tell(number)
            if listening.count != count:
                return int(places[at]), int(numbers[at])
        return None

    def _found(self, at: int) -> tuple[DeliveredPart, int]:
        owner = int(np.searchsorted(self._begins, at, side="right")) - 1
        return self._parts[owner], at - int(self._begins[owner])


class Group(Protocol):
    """Statements that are computed together (`gpu_ops.epl.groups`), as one of them sees them."""

    @property
    def asked(self) -> StandingFilter:
        """Whose rows are whose."""

    def deliveries(self) -> pa.Table:
        """What they delivered since the last call, in one table."""

    def text_of(self, slot: int) -> str:
        """The text of one."""

    def hear(self, statement: RunningStatement) -> None:
        """Know that somebody listens to one."""

    def keep(self, statement: RunningStatement) -> None:
        """Know that one keeps its deliveries."""


class RowSieve(Protocol):
    """The filters of several statements (`gpu_ops.epl.sieves`), as one of them sees them."""

    def rows_of(self, number: int, rows: PlacedRows) -> PlacedRows | None:
        """The rows of a batch that a filter takes; None if there are none."""

    def remove(self, number: int) -> None:
        """Have a filter no more."""

    def __len__(self) -> int:
        """How many there are."""


@dataclass(eq=False)
class RunningStatement:
    """A deployed statement. `Runtime.deploy` makes it.

    Attributes:
        name: Its name: that of `@name`, else `statement 1` and so on.
        plan: What it computes.
        target: The type of events that its rows are too; nothing if they are none.
        names: What its columns are called there.
        since: What the clock showed when it was deployed, in ticks.
        failed: Why it does not run any more; None while it runs.
        kept: What was delivered since `deliveries` was called last; None before the first call.
        home: The name of the isolated service that it is in; nothing for the runtime's own.
        begun: Whether it has seen the instances of its context.
        offset: How far its own clock is ahead of that of its service, in ticks: it came from one with another clock.
        number: Those that were deployed later have greater ones.
        group: The `StatementGroup` that it is computed with; None if it is computed by itself.
        slot: Its place there.
        sieve: What says which rows its filter takes, and the number of the filter there; None if it is asked itself.
        listening: What listeners share.
        part_of: The name of the statement that it runs beside, as a part of it; nothing if it stands for itself.
    """

    name: str
    _text: str
    plan: PlannedStatement
    target: str
    names: tuple[str, ...]
    since: int
    _device: Device
    _running: RunningNode | None
    listening: Listening
    _listeners: list[Listener] = field(default_factory=list)
    failed: BaseException | None = None
    kept: list[pa.Table] | None = None
    home: str = ""
    begun: bool = False
    offset: int = 0
    number: int = 0
    group: Group | None = None
    slot: int = -1
    sieve: tuple[RowSieve, int] | None = None
    part_of: str = ""
    _keeping: threading.Lock = field(default_factory=threading.Lock)

    def __repr__(self) -> str:
        return f"<{'failed s' if self.failed else 'S'}tatement {self.name!r}: {self.text}>"

    @property
    def text(self) -> str:
        """Its text."""
        return self._text if self.group is None else self.group.text_of(self.slot)

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
        self.listening.count += 1
        if self.group is not None:
            self.group.hear(self)

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
        if self.group is not None:
            self.group.keep(self)
        return pa.concat_tables(kept) if kept else self.kept_schema.empty_table()

    @property
    def kept_schema(self) -> pa.Schema:
        """The columns of what `deliveries` gives."""
        return self.plan.kept

    @for_readers()
    def explain(self) -> str:
        """The plan: its nodes, each after those that it reads."""
        lines = [node.describe() for node in self.plan.node.walk()]
        return "\n".join([*self.plan.notes, *(() if self.group is None else self.group.asked.describe()), *lines])

    # Steps

    def sifted(self, rows: PlacedRows | None) -> PlacedRows | None:
        """The rows of a batch that it has to be given; None if there are none."""
        if rows is None or self.sieve is None:
            return rows
        sieve, number = self.sieve
        return sieve.rows_of(number, rows)

    def join(self, group: Group, slot: int, plan: PlannedStatement) -> None:
        """Be computed with others, at some place among them."""
        self.group, self.slot, self.plan, self._running = group, slot, plan, None
        vars(self).pop("reads", None)

    def become(self, text: str, plan: PlannedStatement, own: RunningNode) -> None:
        """Leave its group, and be computed by itself.

        Args:
            text: Its text.
            plan: What it computes.
            own: The plan as it runs.
        """
        self.group, self.slot, self._text, self.plan, self._running = None, -1, text, plan, own
        vars(self).pop("reads", None)

    @property
    def device(self) -> Device:
        """Where it computes."""
        return self._device

    @property
    def nodes(self) -> list[RunningNode]:
        """What runs, each node after those that it reads."""
        return [] if self._running is None else self._running.walk()

    def active_filters(self, instances: int = 1) -> int:
        """How many filters are active: one for each stream, and one for each atom of a pattern that waits.

        Args:
            instances: In how many instances of a context it is; its patterns know the atoms of all.
        """
        return self.plan.filters * instances + sum(node.own.active_atoms for node in self.nodes if node.own is not None)

    def step(
        self,
        arrived: Mapping[Feed, LeafRows],
        ticks: tuple[Feed, TickRows | None],
        cti: int,
    ) -> pa.Table:
        """What becomes of the events and ticks of some turns: its node's columns and `PLACE`, in order.

        Args:
            arrived: The rows of each leaf.
            ticks: The leaf of ticks, and the ticks.
            cti: The place of the next turn.
        """
        assert self._running is not None  # noqa: S101  (a group steps its statements)
        results = stepped_node(self._running, self._device, self.reads, arrived, ticks, cti)
        if self.plan.context is not None:
            self._ended.release()
        made = placed_table(results, self.plan.node.schema, self._device)
        failure = self._running.failure
        if failure is None or failure.error is None:
            return made
        return _where(made, made[PLACE].to_numpy() < failure.place)

    @property
    def failure(self) -> FirstFailure:
        """At which row the last step failed, and why, if it did; what was made before that place stands."""
        assert self._running is not None and self._running.failure is not None  # noqa: S101, PT018  (nor does its group)
        return self._running.failure

    @cached_property
    def _ended(self) -> EndedInstances:
        """The instances of its context that have ended."""
        assert self._running is not None  # noqa: S101  (a group has no context)
        return EndedInstances(self._running, self._device)

    @cached_property
    def reads(self) -> dict[Node, list[str]]:
        """The leaves of the plan, and which of their columns it reads."""
        return leaves_of(self.plan.node)

    def inserted(self, made: pa.Table) -> PlacedRows:
        """The rows of a step that are events of another stream, at the places at which they were made."""
        kinds = _kinds(made)
        some = _where(made, _of_kinds(kinds, _only(kinds), self.plan.inserts))
        rows = self.named(some).rename_columns(list(self.names))
        if INSTANCE in some.column_names:
            rows = rows.append_column(INSTANCE, some[INSTANCE])
        return PlacedRows(some[PLACE].to_numpy(), rows)

    def triggering(self, made: pa.Table) -> pa.Table:
        """The rows of a step that change a named window: with their places, and what the clock showed."""
        if self.plan.change is None or not self.plan.change.into:
            return made
        some = _where(made, _kinds(made) == NEW)
        clock = pa.array(np.zeros(len(some), np.int64)).cast(TIME_TYPE)
        return self.named(some).append_column(CLOCK, clock).append_column(PLACE, some[PLACE])

    def updated(self, made: pa.Table, rows: PlacedRows) -> tuple[PlacedRows, DeliveredRows | None]:
        """(the events of a type as this statement leaves them, what its listeners get of that).

        Args:
            made: The rows of a step: those of a statement that has failed lack the last ones.
            rows: The events as it finds them.
        """
        hit = np.flatnonzero(_kinds(made) == NEW)
        if not len(hit):
            return rows, None
        names, table = self.schema.names, rows.rows
        for at, each in enumerate(names):
            column = pa.chunked_array([*made[f"@column {at}"].chunks, *table[each].slice(len(made)).chunks])
            table = table.set_column(table.column_names.index(each), table.schema.field(each), column)
        sides = [each.select(names).take(hit) for each in (table, rows.rows)]
        kinds = np.repeat(np.array([NEW, OLD], np.int8), len(hit))
        places = np.tile(rows.places[hit], 2)
        order = np.argsort(places, kind="stable")
        named = pa.concat_tables(sides).take(order)
        kinds, places, shown = kinds[order], places[order], np.ones(len(order), np.bool_)
        if self.kept is not None:
            self.keep(self._rows_shown(named, kinds, places, shown))
        return replace(rows, rows=table), DeliveredRows(self, named, kinds, places, shown)

    def held(self, made: pa.Table) -> pa.Table:
        """The rows of a step that are content."""
        return self.named(_where(made, _kinds(made) == HELD))

    def delivered(self, made: pa.Table) -> DeliveredRows | None:
        """All deliveries in a step; None if there are none."""
        if not len(made):
            return None
        kinds = _kinds(made)
        only, shows = _only(kinds), [each for each in self.plan.shows if each is not None]
        shown = _of_kinds(kinds, only, [EMPTY, *shows])
        if not shown.any():
            return None
        places, named = made[PLACE].to_numpy(), self.named(made)
        if self.kept is not None:
            self.keep(self._rows_shown(named, kinds, places, _of_kinds(kinds, only, shows)))
        return DeliveredRows(self, named, kinds, places, shown)

    def keep(self, rows: pa.Table) -> None:
        """Have rows that `deliveries` gives, if it was called before."""
        with self._keeping:
            if self.kept is not None:
                self.kept.append(rows)

    def tell(self, delivery: Delivery) -> None:
        """Hand a delivery to the listeners."""
        for listener in tuple(self._listeners):
            try:
                listener(delivery.new, delivery.old, self)
            except Exception as error:  # noqa: BLE001  (a listener that raises stops nothing)
                self.listening.errors.append((self.name, error))

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    def _rows_shown(self, named: pa.Table, kinds: Any, places: Any, shown: Any) -> pa.Table:
        """Some of the rows, as they are kept."""
        table = _where(named, shown)
        if len(table) < len(named):
            kinds, places = kinds[shown], places[shown]
        is_new = kinds == self.plan.shows[0]
        if not len(kinds) or (is_new == is_new[0]).all():
            words = repeated("new" if len(kinds) and is_new[0] else "old", len(kinds))
        else:
            words = pc.if_else(to_arrow(is_new, pa.bool_()), "new", "old")
        turns = to_arrow(places >> _TURN_BITS, pa.int64())
        return pa.Table.from_arrays([turns, words, *table.columns], schema=self.kept_schema)

    def named(self, table: pa.Table) -> pa.Table:
        """Rows with the names of the columns."""
        return table.select(self.plan.made).rename_columns(self.schema.names)


def placed_table(results: StepInput, schema: pa.Schema, device: Device) -> pa.Table:
    """The results of a step with `PLACE`, in order of place, kind and number.

    Args:
        results: Points.
        schema: Their columns.
        device: Where they are.
    """
    tables, columns = [], device.columns
    for events in results.events:
        if len(events):
            table = columns.to_arrow(events.frame, schema)
            tables.append(table.append_column(PLACE, to_arrow(columns.host(events.start), pa.int64())))
    if not tables:
        return empty_table(schema.append(pa.field(PLACE, pa.int64())))
    return _in_order(tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks())


def _kinds(made: pa.Table) -> Any:
    """int8: the kind of each row."""
    return made[ROW].to_numpy()


def _of_kinds(kinds: Any, only: int | None, wanted: Sequence[int]) -> Any:
    """bool: which rows are of some kinds; in most steps all are of one, which is known then."""
    if only is not None:
        return np.full(len(kinds), only in wanted)
    found = np.zeros(len(kinds), np.bool_)
    for each in wanted:
        found |= kinds == each
    return found


def _only(kinds: Any) -> int | None:
    """The kind of all rows, if they are of one."""
    least = int(kinds.min()) if len(kinds) else None
    return least if least is not None and least == kinds.max() else None


def _where(table: pa.Table, mask: Any) -> pa.Table:
    """The rows for which a mask holds."""
    return table if mask.all() else table.take(np.flatnonzero(mask))


def _in_order(made: pa.Table) -> pa.Table:
    """Rows in order of place, kind and number: those of one place stand so in most steps."""
    place = made[PLACE].to_numpy()
    if all_rise(place):
        return made
    number = made[ORDER]
    kinds, number = _kinds(made), (number.fill_null(0) if number.null_count else number).to_numpy()
    if stand_in_order(place, kinds, number):
        return made
    if (place[1:] < place[:-1]).any():
        order = np.argsort(place, kind="stable")
        place, kinds, number, made = place[order], kinds[order], number[order], made.take(order)
    if stand_in_order(place, kinds, number):
        return made
    return made.take(np.lexsort((number, kinds, place)))
