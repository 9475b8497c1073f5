"""A runtime of statements: events are sent to it, its clock is advanced, and listeners are told what comes of it."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arguments import whole
from gpu_ops.core.time import TICK, TIME_TYPE
from gpu_ops.core.turns import CLOCK, LEVEL, PLACE, TURN
from gpu_ops.engines.local.placing import place
from gpu_ops.epl.binding.types import event_type
from gpu_ops.epl.parsing import parse
from gpu_ops.epl.placed_error import failure_at, shown_in, unsupported
from gpu_ops.epl.planning.statements import Ledger, PlannedStatement, planned
from gpu_ops.epl.queries import Query
from gpu_ops.epl.running import TICKS, DeliveredRows, PlacedRows, RunningStatement, SentDeliveries, TickRows
from gpu_ops.epl.sent_rows import arrival_times, milliseconds, table_of
from gpu_ops.epl.statements import CreateSchema, Statement
from gpu_ops.errors import ColumnError, PlanError, QueryFailedError
from gpu_ops.operators.runtime.steps import running
from gpu_ops.plan.nodes import Feed

_MILLISECOND = 1000
_MOST_TICKS = 10_000_000
_DEPTH = TURN // LEVEL


class Runtime:
    """Statements, their events, and a clock.

    Nothing happens by itself: `send` and `advance` say what happens, in its order.

    Args:
        types: The properties of each type of event: Esper's types (`"int"`, `"string"`, `"double[]"`) or Arrow's.
        start: What the clock shows first: milliseconds since 1970, or an aware datetime.
        default_selector: `"istream"`, or `"irstream"` for statements that say nothing of it to give old rows too.

    Examples:
        >>> from gpu_ops import epl
        >>> runtime = epl.Runtime({"Withdrawal": {"account": "string", "amount": "int"}})
        >>> (large,) = runtime.deploy("select account, sum(amount) as total from Withdrawal#length(2) group by account")
        >>> large.listen(lambda new, old, statement: print(new.to_pylist()))
        >>> _ = runtime.send("Withdrawal", [{"account": "a", "amount": 5}, {"account": "a", "amount": 6}])
        [{'account': 'a', 'total': 5}]
        [{'account': 'a', 'total': 11}]
    """

    def __init__(
        self,
        types: Mapping[str, Mapping[str, Any] | pa.Schema] | None = None,
        *,
        start: int | dt.datetime = 0,
        default_selector: str = "istream",
        device: str = "cpu",
    ) -> None:
        if default_selector not in {"istream", "irstream"}:
            raise PlanError(f"default_selector is {default_selector!r}.", remedy='Say "istream" or "irstream".')
        self._types: dict[str, pa.Schema] = {}
        self._feeds: dict[str, Feed] = {}
        self._depths: dict[str, int] = {}
        self._ticks = Feed(TICKS, (), TICK)
        self._clock = milliseconds(start)
        self._irstream = default_selector == "irstream"
        self._turn = 0
        self._count = 0
        self._statements: dict[str, RunningStatement] = {}
        self._device = device
        self._lock = threading.RLock()
        self.errors: list[tuple[str, Exception]] = []
        for name, fields in (types or {}).items():
            self._add_type(name, fields if isinstance(fields, pa.Schema) else event_type(fields))

    # Types and statements

    @property
    def clock(self) -> int:
        """What the clock shows, in milliseconds since 1970."""
        return self._clock

    @property
    def statements(self) -> tuple[RunningStatement, ...]:
        """The deployed statements, in the order in which they came."""
        return tuple(self._statements.values())

    def __getitem__(self, name: str) -> RunningStatement:
        """A statement by its name."""
        if name not in self._statements:
            known = ", ".join(self._statements) or "none"
            raise PlanError(f"There is no statement {name!r}.", remedy=f"Deployed: {known}.")
        return self._statements[name]

    def _add_type(self, name: str, schema: pa.Schema, depth: int = 0) -> None:
        for each in schema.names:
            if each.startswith("@"):
                raise ColumnError("A property has no name that begins with @.", column=each, remedy="Rename it.")
        self._types[name] = schema
        self._depths[name] = depth
        own = [pa.field(CLOCK, TIME_TYPE), pa.field(PLACE, pa.int64())]
        self._feeds[name] = Feed(pa.schema([*schema, *own]), (), TICK)

    def deploy(self, text: str) -> tuple[RunningStatement, ...]:
        """Add the statements of a text.

        Raises:
            TextError: A statement cannot be read, or asks for what there is not; then none is added.
        """
        if not isinstance(text, str):
            raise PlanError(f"deploy takes a text, not {type(text).__name__}.", remedy="Write select * from T.")
        with self._lock:
            return self._deploy(text)

    def _deploy(self, text: str) -> tuple[RunningStatement, ...]:
        before = self._types.copy(), self._feeds.copy(), self._depths.copy(), self._statements.copy(), self._count
        try:
            statements = parse(text)
            with shown_in(text):
                made = [self._deployed(each) for each in statements if not self._created(each)]
            return tuple(made)
        except BaseException:
            self._types, self._feeds, self._depths, self._statements, self._count = before
            raise

    def _created(self, statement: Statement) -> bool:
        """Whether a statement only makes a type of events; then there is one."""
        schema = statement.body
        if not isinstance(schema, CreateSchema):
            return False
        if schema.columns is None or schema.options:
            raise unsupported(schema, "schemas of other types", "Name the columns: create schema T (a int).")
        for each in schema.columns:
            if each.type.name in self._types:
                raise unsupported(each, "columns that are events of a type")
        try:
            fields = event_type({each.name: str(each.type) for each in schema.columns})
        except ColumnError as error:
            raise failure_at(schema, str(error)) from None
        known = self._types.get(schema.name)
        is_read = any(schema.name in each.plan.reads for each in self._statements.values())
        if known is None or not is_read:
            self._add_type(schema.name, fields)
        elif not known.equals(fields):
            raise failure_at(
                schema, f"There is another type of events {schema.name!r} already.", "Give this one another name."
            )
        return True

    def _deployed(self, statement: Statement) -> RunningStatement:
        ledger = Ledger(self._types, self._feeds, self._ticks, self._clock * _MILLISECOND, self._irstream)
        plan = planned(statement, ledger)
        self._count += 1
        name = statement.name or f"statement {self._count}"
        if name in self._statements:
            raise failure_at(statement, f"There is a statement {name!r} already.", "Give it another name.")
        target, names = self._inserted(statement, plan)
        device = place(plan.node, self._device)
        made = RunningStatement(
            name, str(statement), plan, target, names, device, running(plan.node, device), self.errors
        )
        self._statements[name] = made
        # It begins now: its clock is this one.
        made.step({}, (self._ticks, self._ticked(np.array([self._clock]))), self._feeds, self._cti)
        return made

    def _inserted(self, statement: Statement, plan: PlannedStatement) -> tuple[str, tuple[str, ...]]:
        """(the type that its rows are events of, its columns' names there); a new type if there is none."""
        query = statement.body
        if not isinstance(query, Query) or query.insert is None:
            return "", ()
        names = tuple(query.insert.columns or plan.columns.names)
        if len(names) != len(plan.columns):
            raise failure_at(
                query.insert, f"There are {len(names)} names for {len(plan.columns)} columns.", "Name each of them."
            )
        target = query.insert.target
        depth = 1 + max(self._depths[name] for name in plan.reads)
        fields = [each.with_name(name) for each, name in zip(plan.columns, names, strict=True)]
        if target not in self._types:
            self._add_type(target, pa.schema(fields), depth)
        elif target in plan.reads:
            raise unsupported(query.insert, "statements that insert into what they read")
        else:
            self._depths[target] = max(depth, self._depths[target])
            known = self._types[target]
            for each in fields:
                if each.name not in known.names:
                    raise failure_at(
                        query.insert, f"{target!r} has no property {each.name!r}.", f"It has: {', '.join(known.names)}."
                    )
        if self._depths[target] >= _DEPTH - 1:
            raise unsupported(query.insert, f"more than {_DEPTH - 2} streams one into another")
        return target, names

    @property
    def active_filters(self) -> int:
        """How many streams of events the statements listen to."""
        return sum(len(each.plan.reads) for each in self._statements.values())

    def undeploy(self, name: str) -> None:
        """Take a statement away."""
        with self._lock:
            del self._statements[self[name].name]

    # Events and time

    def _next(self, count: int) -> Any:
        """The places of the next turns."""
        places = (np.arange(count, dtype=np.int64) + self._turn) * TURN
        self._turn += count
        return places

    @property
    def _cti(self) -> int:
        return self._turn * TURN

    def send(self, type_name: str, rows: Any, *, at: Any = None) -> SentDeliveries:
        """Send events, in their order: each is a turn.

        Args:
            type_name: Their type.
            rows: A row as a mapping, a list of rows, an Arrow table or record batch, or a frame.
            at: When each event comes: int64 milliseconds since 1970, or Arrow timestamps, one for each row, none before
                the one above it or before the clock. The clock is advanced to it before the event is sent, if it is
                later than the clock. By default the clock stays.

        Returns:
            The deliveries that they made, in order; each is made when it is looked at.

        Raises:
            PlanError: There is no such type.
            ColumnError: A column is missing, a value is of another type, or a time is before the one above it; then
                nothing was sent.
            Exception: What made a statement fail. The others have taken the events, and their listeners were told.
        """
        if type_name not in self._types:
            raise PlanError(
                f"There is no type of events {type_name!r}.", remedy=f"Known: {', '.join(self._types) or 'none'}."
            )
        table = table_of(rows, self._types[type_name])
        # A table without columns has no rows, but events without properties are events.
        count = len(table) if table.num_columns or not isinstance(rows, list) else len(rows)
        if not count:
            return SentDeliveries([])
        with self._lock:
            if at is None:
                places, clocks = self._next(count), np.full(count, self._clock * _MILLISECOND)
                return self._turned({type_name: _at_places(table, places, clocks)}, None, self._clock)
            return self._sent_at(type_name, table, arrival_times(at, count, self._clock))

    def _sent_at(self, type_name: str, table: pa.Table, times: Any) -> SentDeliveries:
        """Send events, each when the clock shows its time: an advance is a turn before it."""
        moves = times > np.concatenate([[self._clock], times[:-1]])
        rank = np.arange(len(times)) + np.cumsum(moves)
        places = self._next(int(rank[-1]) + 1)
        at = np.flatnonzero(moves)
        asks = np.zeros(len(at), np.bool_)
        ticks = TickRows(places[rank[at] - 1], times[at] * _MILLISECOND, asks) if len(at) else None
        before, self._clock = self._clock, int(times[-1])
        return self._turned({type_name: _at_places(table, places[rank], times * _MILLISECOND)}, ticks, before)

    def advance(self, now: int | dt.datetime) -> SentDeliveries:
        """Set the clock. What fell due in between happens now, once.

        Args:
            now: Milliseconds since 1970, or an aware datetime; not before what the clock shows.
        """
        return self._advanced(np.array([milliseconds(now)], np.int64))

    def advance_span(self, now: int | dt.datetime, resolution: int | None = None) -> SentDeliveries:
        """Walk the clock to a time: what falls due on the way happens when it does.

        Args:
            now: As in `advance`.
            resolution: The length of a step, in milliseconds; by default 1.
        """
        until, step = milliseconds(now), 1 if resolution is None else whole(resolution, name="resolution")
        if (until - self._clock) // step > _MOST_TICKS:
            raise PlanError(
                f"From {self._clock} to {until} are more than {_MOST_TICKS:,} steps.", remedy="Give a resolution."
            )
        clocks = np.arange(self._clock + step, until + 1, step, dtype=np.int64)
        if not len(clocks) or clocks[-1] != until:
            clocks = np.append(clocks, until)
        return self._advanced(clocks)

    def _advanced(self, clocks: Any) -> SentDeliveries:
        with self._lock:
            if clocks[0] < self._clock:
                raise PlanError(
                    f"The clock shows {self._clock}, and cannot go back to {clocks[0]}.", remedy="Give a later time."
                )
            before, self._clock = self._clock, int(clocks[-1])
            return self._turned({}, self._ticked(clocks), before)

    def _ticked(self, clocks: Any, *, ask: bool = False) -> TickRows:
        return TickRows(self._next(len(clocks)), clocks * _MILLISECOND, np.full(len(clocks), ask, np.bool_))

    def _turned(self, arrived: dict[str, PlacedRows], ticks: TickRows | None, before: int) -> SentDeliveries:
        """Take some turns: each statement once, those that insert before those that read it.

        Args:
            arrived: The rows of each type.
            ticks: The moves of the clock.
            before: What the clock showed before them.
        """
        found: list[tuple[int, DeliveredRows]] = []
        inserted: dict[str, list[PlacedRows]] = {}
        ordered = sorted(
            enumerate(self._statements.values()),
            key=lambda pair: max(self._depths[name] for name in pair[1].plan.reads),
        )
        failure: BaseException | None = None
        for number, statement in ordered:
            if statement.failed is not None:
                continue
            try:
                for name in statement.plan.reads:
                    if name in inserted:
                        arrived[name] = self._merged(name, inserted.pop(name), arrived.get(name), ticks, before)
                mine = {self._feeds[name]: arrived[name] for name in statement.plan.reads if name in arrived}
                if ticks is None and not mine:
                    continue
                made = statement.step(mine, (self._ticks, ticks), self._feeds, self._cti)
                if statement.target and len(made):
                    inserted.setdefault(statement.target, []).append(statement.inserted(made))
                delivered = statement.delivered(made)
            except BaseException as error:  # noqa: BLE001  (the other statements take the turn, then it is raised)
                statement.failed = error
                failure = failure or error
                error.add_note(f"The statement {statement.name!r} has failed, and gives nothing any more.")
                continue
            if delivered is not None:
                found.append((number, delivered))
        sent = SentDeliveries(found)
        sent.tell()
        if failure is not None:
            raise failure
        return sent

    def _merged(
        self, name: str, parts: Sequence[PlacedRows], sent: PlacedRows | None, ticks: TickRows | None, before: int
    ) -> PlacedRows:
        """Inserted events at places of their own, behind the turn that made them, beside those that were sent."""
        schema = self._types[name]
        made = np.concatenate([part.places for part in parts])
        table = pa.concat_tables([table_of(part.rows, schema, missing=True) for part in parts])
        order = np.argsort(made, kind="stable")
        made, table = made[order], table.take(order)
        turn = made // TURN
        rank = np.arange(len(turn)) - np.searchsorted(turn, turn)
        if len(rank) and int(rank.max()) * 2 >= LEVEL:
            raise PlanError(
                f"One turn inserts more than {LEVEL // 2:,} events into {name!r}.", remedy="Make windows smaller."
            )
        places = turn * TURN + self._depths[name] * LEVEL + rank * 2
        clocks = np.full(len(places), before * _MILLISECOND)
        if ticks is not None:
            shown = np.append(before * _MILLISECOND, ticks.clocks)
            clocks = shown[np.searchsorted(ticks.places, turn * TURN, side="right")]
        batch = _at_places(table, places, clocks)
        if sent is None:
            return batch
        every = np.concatenate([sent.places, places])
        order = np.argsort(every, kind="stable")
        return PlacedRows(every[order], pa.concat_tables([sent.rows, batch.rows]).take(order))

    def rows(self, name: str) -> pa.Table:
        """What a statement's iterator gives now: the content of its windows, through its select clause."""
        with self._lock:
            statement = self[name]
            if statement.failed is not None:
                raise QueryFailedError(
                    f"The statement {name!r} has failed.", remedy="Undeploy it, and deploy it again."
                ) from statement.failed
            asked = self._ticked(np.array([self._clock]), ask=True)
            return statement.held(statement.step({}, (self._ticks, asked), self._feeds, self._cti))


def _at_places(table: pa.Table, places: Any, clocks: Any) -> PlacedRows:
    """Rows as arrivals at some places, while the clock shows some ticks."""
    own = {CLOCK: pa.array(clocks, pa.int64()).cast(TIME_TYPE), PLACE: pa.array(places, pa.int64())}
    return PlacedRows(places, pa.table({**{name: table[name] for name in table.column_names}, **own}))
