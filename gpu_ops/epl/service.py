"""A service: turns are numbered, the clock moves, and statements are stepped, those that insert first."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.arguments import whole
from gpu_ops.core.turns import ENDED, FIRED, INSTANCE, LEVEL, PLACE, ROW, STEP, TURN
from gpu_ops.epl.deployments import Deployments
from gpu_ops.epl.failed_turns import in_turns
from gpu_ops.epl.groups import StatementGroup
from gpu_ops.epl.named_windows import RunningWindow, Triggered
from gpu_ops.epl.order import Order, SomeTurns, order_of
from gpu_ops.epl.running import DeliveredPart, RunningStatement, SentDeliveries
from gpu_ops.errors import PlanError, QueryFailedError, is_one_of
from gpu_ops.errors import shown as said
from gpu_ops.ingest.turn_numbers import moves, shown
from gpu_ops.operators.runtime.steps import FirstFailure
from gpu_ops.plan.nodes import Feed
from gpu_ops.texts.feeding import LeafRows, PlacedRows, TickRows
from gpu_ops.texts.sent_rows import arrival_times, milliseconds, placed, system_time, table_of, timed_rows

_MILLISECOND = 1000
_MOST_TICKS = 10_000_000


@dataclass
class Turns:
    """The turns of a runtime, over all of its services.

    Attributes:
        next: The number of the next one.
    """

    next: int = 0

    def take(self, count: int) -> Any:
        """The places of the next turns."""
        places = (np.arange(count, dtype=np.int64) + self.next) * TURN
        self.next += count
        return places

    def timed(self, times: Any, clock: int) -> Any:
        """The places of arrivals, each behind the turn that moves the clock to its time.

        Args:
            times: int64 milliseconds at which they come.
            clock: What the clock shows before them.

        Raises:
            PlanError: The times go back.
        """
        places = placed(times, clock, self.next)
        self.next = int(places[-1]) // TURN + 1
        return places


class Service:
    """A clock, and the statements that its events and its moves reach. One call at a time.

    Args:
        deployments: The types and the statements.
        turns: The turns, which all services share: what a statement holds goes along with it into another service.
        clock: What the clock shows first, in milliseconds since 1970.
        name: The name of an isolated service.
        system: Whether the clock is the system's: then nobody else moves it.

    Attributes:
        name: Likewise.
        clock: What the clock shows, in milliseconds since 1970.
        system: Likewise.
    """

    def __init__(
        self, deployments: Deployments, turns: Turns, clock: int, name: str = "", *, system: bool = False
    ) -> None:
        self._deployments, self._turns = deployments, turns
        self.clock, self.name, self.system = clock, name, system
        self._order, self._seen = Order((), ()), -1
        self._groups: list[StatementGroup] = []
        self._updates: dict[str, list[RunningStatement]] = {}
        self._taking: tuple[SomeTurns, list[DeliveredPart], list[RunningStatement]] | None = None

    @property
    def statements(self) -> tuple[RunningStatement, ...]:
        """Its statements, in the order in which they were deployed."""
        return tuple(each for each in self._deployments.statements.values() if each.home == self.name)

    def deploy(self, text: str) -> tuple[RunningStatement, ...]:
        """Add the statements of a text: they begin now."""
        return self._deployments.deploy(text, self.clock * _MILLISECOND, self.begin, self.name)

    def deploy_each(self, text: str, constants: Any, names: str | None) -> StatementGroup:
        """Add a statement for each row of constants: they begin now. See `Runtime.deploy_each`."""

        def begin(statements: Sequence[RunningStatement]) -> None:
            self._turns.take(len(statements))

        now = self.clock * _MILLISECOND
        return self._deployments.deploy_each(text, constants, names, now, begin, self.name)

    def begin(self, statement: RunningStatement) -> None:
        """Show a statement the clock, which is a turn.

        Raises:
            PlanError: It is about a named window of another service.
        """
        statement.home = self.name
        for window in self._deployments.named_by(statement):
            maker = next(x for x in self._deployments.alone.values() if x.plan.creates == window)
            if maker.home != self.name:
                raise PlanError(
                    f"The named window {window!r} is in another service.", remedy="Deploy the statement in that one."
                )
        if statement.group is not None:
            self._turns.take(1)  # it has no clock
            return
        self._asked(statement, ask=False)

    # Turns

    def _stepped(
        self,
        statement: RunningStatement,
        arrived: Mapping[Feed, LeafRows],
        ticks: TickRows | None,
        first: int,
        cti: int,
    ) -> pa.Table:
        """What a statement makes of some turns, from a place up to another. Nothing else steps statements."""
        if statement.offset:
            arrived = {feed: rows.ahead(statement.offset) for feed, rows in arrived.items()}
            ticks = None if ticks is None else ticks.ahead(statement.offset)
        deployments, plan = self._deployments, statement.plan
        variables = deployments.variables
        number = -1
        if plan.history is not None or plan.setting is not None:
            number = statement.number
        for feed, at in ((plan.history, number), (plan.before, -1)):
            if feed is not None:
                arrived = {**arrived, feed: variables.history(plan.variables, at, first)}
        if plan.own or plan.variable is not None:
            arrived = {**arrived, **self._own_variables(statement, first)}
        if plan.context is not None and isinstance(plan.context.leaf, Feed):
            arrived = {**arrived, plan.context.leaf: self._instances(statement, arrived, ticks, first, cti)}
        made = statement.step(arrived, (deployments.ticks, ticks), cti)
        if plan.setting is not None and plan.setting.at_outputs:
            fired = made.filter(pc.equal(made[ROW], FIRED)).select([*plan.setting.triggers, PLACE])
            variables.changed(number, plan.setting, fired, statement.failure)
        elif plan.setting is not None:
            made = variables.changed(number, plan.setting, made, statement.failure)
        return made

    def _own_variables(self, statement: RunningStatement, first: int) -> dict[Feed, LeafRows]:
        """Where the variables of a statement's context are set, and all that they are where the statement begins."""
        variables, plan = self._deployments.variables.of_contexts, statement.plan
        if plan.variable is not None:
            name, feed = plan.variable
            return {feed: variables.history(name, 1 << 62, first, whole=False)}
        whole = not statement.begun
        numbers = (statement.number, -1)
        return {
            feed: variables.history(name, number, first, whole=whole)
            for name, feeds in plan.own.items()
            for feed, number in zip(feeds, numbers, strict=True)
        }

    def _instances(
        self,
        statement: RunningStatement,
        arrived: Mapping[Feed, LeafRows],
        ticks: TickRows | None,
        first: int,
        cti: int,
    ) -> PlacedRows:
        """Where instances of a statement's context start and end; all that are there, where the statement begins."""
        deployments, plan = self._deployments, statement.plan
        assert plan.context is not None  # noqa: S101  (it is in one)
        context = deployments.contexts[plan.context.name]
        was_on = context.is_on
        context.begin()
        if statement.begun or not was_on:
            statement.begun = True
            return context.stepped(arrived, (deployments.ticks, ticks), cti)
        statement.begun = True
        return context.alive(first)

    def send(self, type_name: str, rows: Any, *, at: Any = None) -> SentDeliveries:
        """Send events, in their order: each is a turn. See `Runtime.send`."""
        table = table_of(rows, self._schema(type_name))
        # A table without columns has no rows, but events without properties are events.
        count = len(table)
        if not table.num_columns and isinstance(rows, list | Mapping):
            count = len(rows) if isinstance(rows, list) else 1
        if not count:
            return SentDeliveries([])
        if at is None:
            first, clock = self._turns.next, self.clock * _MILLISECOND
            rows = PlacedRows(self._turns.take(count), table, lambda: np.full(count, clock))
            return self._turned({type_name: rows}, None, self.clock, first)
        self._check_said()
        return self._timed({type_name: table}, arrival_times(at, count))

    def replay(self, streams: Mapping[str, Any], time: str) -> SentDeliveries:
        """Send the events of several streams in order of their times. See `Runtime.replay`."""
        self._check_said()
        tables, times = dict[str, pa.Table](), [np.zeros(0, np.int64)]
        for name, rows in streams.items():
            table, own = timed_rows(rows, self._schema(name), time)
            tables[name] = table
            times.append(own)
        every, owners = np.concatenate(times), None
        if not len(every):
            return SentDeliveries([])
        if len(tables) > 1:
            order = np.argsort(every, kind="stable")
            owners = np.repeat(np.arange(len(tables)), [len(each) for each in times[1:]])[order]
            every = every[order]
        if every[0] < self.clock:
            raise PlanError(
                f"The clock shows {self.clock}, and the first event comes at {every[0]}, which is earlier.",
                remedy="Leave earlier events out, or start the runtime's clock earlier.",
            )
        return self._timed(tables, every, owners)

    def _schema(self, type_name: str) -> pa.Schema:
        if not is_one_of(type_name, self._deployments.types):
            raise PlanError(
                f"There is no type of events {said(type_name)}.",
                remedy=f"Known: {', '.join(self._deployments.types) or 'none'}.",
            )
        return self._deployments.types[type_name]

    def _timed(self, tables: Mapping[str, pa.Table], times: Any, owners: Any = None) -> SentDeliveries:
        """Send events, each when the clock shows its time: an advance is a turn before it.

        Args:
            tables: The events of each type, in order.
            times: int64 milliseconds at which they come, ascending, of all types together.
            owners: Of which of the tables each of them is; None where there is one.
        """
        before, first = self.clock, self._turns.next
        places = self._turns.timed(times, before)
        ticks, count = None, self._turns.next - first - len(times)
        clocks = cache(lambda: times * _MILLISECOND)
        if count:

            def moved() -> tuple[Any, Any, Any]:
                if count == len(times):  # one before each
                    at, now = places - TURN, clocks()
                else:
                    at, now = moves(times, places, first, count)
                    now *= _MILLISECOND
                return at, now, np.zeros(count, np.bool_)

            ticks = TickRows(moved)
        self.clock = int(times[-1])
        if owners is None:
            arrived = {name: PlacedRows(places, table, clocks) for name, table in tables.items()}
        else:
            mine = {name: np.flatnonzero(owners == number) for number, name in enumerate(tables)}
            arrived = {
                name: _timed_rows(tables[name], places[own], times[own]) for name, own in mine.items() if len(own)
            }
        return self._turned(arrived, ticks, before, first)

    def _check_said(self) -> None:
        """Refuse to be told the time where the system tells it."""
        if self.system:
            raise PlanError(
                "The clock is the system's, and is not set.",
                remedy="Call tick() or start_timer(), or leave clock= out.",
            )

    def tick(self) -> SentDeliveries:
        """Set the clock to the system's. See `Runtime.tick`."""
        if not self.system:
            raise PlanError("The clock is not the system's.", remedy='Say Runtime(clock="system"), or advance it.')
        return self._advanced(np.array([max(system_time(), self.clock)], np.int64))

    def advance(self, now: int | dt.datetime) -> SentDeliveries:
        """Set the clock. See `Runtime.advance`."""
        self._check_said()
        return self._advanced(np.array([milliseconds(now)], np.int64))

    def advance_span(self, now: int | dt.datetime, resolution: int | None = None) -> SentDeliveries:
        """Walk the clock to a time. See `Runtime.advance_span`."""
        self._check_said()
        until, step = milliseconds(now), 1 if resolution is None else whole(resolution, name="resolution")
        if (until - self.clock) // step > _MOST_TICKS:
            raise PlanError(
                f"From {self.clock} to {until} are more than {_MOST_TICKS:,} steps.", remedy="Give a resolution."
            )
        clocks = np.arange(self.clock + step, until + 1, step, dtype=np.int64)
        if not len(clocks) or clocks[-1] != until:
            clocks = np.append(clocks, until)
        return self._advanced(clocks)

    def _advanced(self, clocks: Any) -> SentDeliveries:
        if clocks[0] < self.clock:
            raise PlanError(
                f"The clock shows {self.clock}, and cannot go back to {clocks[0]}.", remedy="Give a later time."
            )
        before, self.clock, first = self.clock, int(clocks[-1]), self._turns.next
        return self._turned({}, self._ticked(clocks), before, first)

    def tick_rows(self, *, ask: bool) -> TickRows:
        """A tick that shows the clock as it is, which is a turn; it may ask for content."""
        return self._ticked(np.array([self.clock]), ask=ask)

    def _ticked(self, clocks: Any, *, ask: bool = False) -> TickRows:
        made = self._turns.take(len(clocks)), clocks * _MILLISECOND, np.full(len(clocks), ask, np.bool_)
        return TickRows(lambda: made)

    def _turned(
        self, arrived: dict[str, PlacedRows], ticks: TickRows | None, before: int, first: int
    ) -> SentDeliveries:
        """Take some turns: each statement once, those that insert before those that read it.

        Args:
            arrived: The rows of each type.
            ticks: The moves of the clock.
            before: What the clock showed before them.
            first: The number of the first of them.
        """
        parts, failures = self.taken(SomeTurns(arrived, ticks, before, first * TURN, self._turns.next * TURN))
        sent = SentDeliveries(parts)
        sent.tell()
        for each in failures:
            self._deployments.tell(each, "failed")
        if failures and failures[0].failed is not None:
            raise failures[0].failed
        return sent

    def taken(self, turns: SomeTurns) -> tuple[list[DeliveredPart], list[RunningStatement]]:
        """Have the statements take some turns, and tell nobody.

        Returns:
            (what they deliver, the statements that have failed: first the one which would have done so first).
        """
        deployments = self._deployments
        if self._seen != deployments.changes:
            mine = (each for each in deployments.alone.values() if each.home == self.name)
            numbered = tuple((each.number, each) for each in sorted(mine, key=lambda each: each.number))
            self._order, self._seen = order_of(numbered, deployments.depths), deployments.changes
            self._groups = [each for each in deployments.groups.values() if each.home == self.name]
            self._updates = {each.plan.updates: [] for _, each in numbered if each.plan.updates}
            for _, each in numbered:
                if each.plan.updates:
                    self._updates[each.plan.updates].append(each)
        found: list[DeliveredPart] = []
        failures: list[RunningStatement] = []
        for piece in turns.pieces(self._order.cuts):
            self._step(piece, found, failures)
            deployments.settle()
        self._taking = None
        if self._groups:  # as if each had been stepped in its turn
            failures.sort(key=lambda each: (max(deployments.depths[name] for name in each.plan.reads), each.number))
        return found, failures

    def _step(self, turns: SomeTurns, found: list[DeliveredPart], failures: list[RunningStatement]) -> None:
        """Have the statements take some turns: what they deliver is added to what is found."""
        arrived, ticks, before = turns.arrived, turns.ticks, turns.before
        inserted: dict[str, list[PlacedRows]] = {}
        deployments, first = self._deployments, turns.first
        windows = _SteppedWindows(self, turns, inserted, failures)
        self._taking = turns, found, failures
        for name in self._updates.keys() & arrived.keys():
            arrived[name] = self._updated(name, arrived[name])
        for _, statement in self._order.statements:
            if statement.failed is not None or statement.plan.updates:
                continue
            try:
                self._arrive(statement.plan.reads, turns, inserted)
                mine = dict[Feed, LeafRows](self._arrived(statement, arrived))
                changed = windows.of(statement, mine)
                if statement.plan.change is not None:
                    delivered = None if changed is None else statement.delivered(changed)
                    if delivered is not None:
                        found.append(delivered)
                    continue
                if ticks is None and not mine and not deployments.variables.wakes(statement.plan.variables.waking):
                    continue
                made = self._stepped(statement, mine, ticks, first, turns.until)
                if statement.target and len(made):
                    inserted.setdefault(statement.target, []).append(statement.inserted(made))
                delivered = statement.delivered(made)
                failure = statement.failure
            except BaseException as error:  # noqa: BLE001  (the other statements take the turn, then it is raised)
                delivered, failure = None, FirstFailure(statement.device, error=error)
            if delivered is not None:
                found.append(delivered)
            if failure.error is not None:
                self.fail(statement, failure, turns, failures)
        # Groups insert nothing and set nothing, so that nobody waits for them.
        for group in self._groups:
            (name,) = group.plan.reads
            if name in inserted:
                arrived[name] = self._merged(name, inserted.pop(name), arrived.get(name), ticks, before)
            if name in arrived and (pairs := group.taken(arrived[name], turns.until, failures)) is not None:
                found.append(pairs)
        for sieve in deployments.sieves.values():
            sieve.rest()

    def _updated(self, name: str, rows: PlacedRows) -> PlacedRows:
        """Events of a type as statements change them before others see them, one statement after the other."""
        assert self._taking is not None  # noqa: S101  (turns are being taken)
        turns, found, failures = self._taking
        for statement in self._updates.get(name, ()):
            if statement.failed is not None:
                continue
            try:
                feed = self._deployments.feeds[name]
                made = self._stepped(statement, {feed: rows}, None, turns.first, turns.until)
                rows, delivered = statement.updated(made, rows)
                failure = statement.failure
            except BaseException as error:  # noqa: BLE001  (the other statements take the turn, then it is raised)
                delivered, failure = None, FirstFailure(statement.device, error=error)
            if delivered is not None:
                found.append(delivered)
            if failure.error is not None:
                self.fail(statement, failure, turns, failures)
        return rows

    def _arrive(self, names: Sequence[str], turns: SomeTurns, inserted: dict[str, list[PlacedRows]]) -> None:
        """Have what was inserted into some types among their events."""
        arrived = turns.arrived
        for name in names:
            if name in inserted:
                parts = inserted.pop(name)
                arrived[name] = self._merged(name, parts, arrived.get(name), turns.ticks, turns.before)

    def _arrived(self, statement: RunningStatement, arrived: Mapping[str, PlacedRows]) -> dict[Feed, PlacedRows]:
        """The events that a statement reads."""
        return {
            self._deployments.feeds[name]: rows
            for name in statement.plan.reads
            if (rows := statement.sifted(arrived.get(name))) is not None
        }

    def _merged(
        self, name: str, parts: Sequence[PlacedRows], sent: PlacedRows | None, ticks: TickRows | None, before: int
    ) -> PlacedRows:
        """Inserted events at places of their own, behind the turn that made them, beside those that were sent."""
        windows = self._deployments.windows
        schema = windows[name].known.schema if name in windows else self._deployments.types[name]
        made = np.concatenate([part.places for part in parts])
        table = pa.concat_tables([table_of(part.rows, schema, missing=True) for part in parts])
        if not (made[1:] >= made[:-1]).all():
            order = np.argsort(made, kind="stable")
            made, table = made[order], table.take(order)
        begins = made & -TURN
        places = begins + self._deployments.depths[name] * LEVEL
        if not (begins[1:] > begins[:-1]).all():
            rank = np.arange(len(begins)) - np.searchsorted(begins, begins)
            if int(rank.max()) * STEP >= LEVEL:
                most = LEVEL // STEP
                raise PlanError(
                    f"One turn inserts more than {most:,} events into {name!r}.", remedy="Make windows smaller."
                )
            places += rank * STEP

        def clocks() -> Any:
            if ticks is None:
                return np.full(len(places), before * _MILLISECOND)
            return shown(begins, ticks.places, ticks.clocks, before * _MILLISECOND)

        rows = PlacedRows(places, table, clocks)
        if name in self._updates:
            rows = self._updated(name, rows)
        if sent is None:
            return rows
        every = np.concatenate([sent.places, places])
        order = np.argsort(every, kind="stable")
        both = np.concatenate([sent.shown_clocks, rows.shown_clocks])
        return PlacedRows(every[order], pa.concat_tables([sent.rows, rows.rows]).take(order), both[order])

    @staticmethod
    def fail(
        statement: RunningStatement, failure: FirstFailure, turns: SomeTurns, failures: list[RunningStatement]
    ) -> None:
        """Have a statement give nothing any more."""
        assert failure.error is not None  # noqa: S101  (it has failed)
        statement.failed = in_turns(failure.error, failure.place, turns.arrived)
        failures.append(statement)
        statement.failed.add_note(f"The statement {statement.name!r} has failed, and gives nothing any more.")

    @property
    def deployments(self) -> Deployments:
        """The types and the statements."""
        return self._deployments

    def rows(self, name: str) -> pa.Table:
        """What a statement's iterator gives now. See `Runtime.rows`."""
        statement = self._deployments[name]
        if statement.home != self.name:
            raise PlanError(
                f"The statement {name!r} is not in this service.",
                remedy=f"It is in {statement.home!r}." if statement.home else "It is in the runtime's own.",
            )
        if statement.failed is not None:
            raise QueryFailedError(
                f"The statement {name!r} has failed.", remedy="Undeploy it, and deploy it again."
            ) from statement.failed
        if statement.group is not None:
            self._turns.take(1)
            return statement.schema.empty_table()  # it has no window
        if statement.plan.variable is not None:
            return self._in_instances(statement, [statement.plan.variable[0]])
        setting = statement.plan.setting
        if setting is not None and not setting.at_outputs:
            names = setting.names
            return self._in_instances(statement, names) if setting.context else self._deployments.variables.table(names)
        if statement.plan.change is not None and not statement.plan.change.into:
            return self._deployments.windows[statement.plan.change.window].content()
        return statement.held(self._asked(statement, ask=True))

    def _in_instances(self, statement: RunningStatement, names: Sequence[str]) -> pa.Table:
        """The values of variables of a context: a row for each instance."""
        assert statement.plan.context is not None  # noqa: S101  (it is in one)
        instances = self._deployments.contexts[statement.plan.context.name].table()[INSTANCE].to_numpy()
        variables = self._deployments.variables.of_contexts
        return pa.table({name: variables.values(name, np.sort(instances)) for name in names})

    def _asked(self, statement: RunningStatement, *, ask: bool) -> pa.Table:
        """Show a statement the clock, and maybe ask for its content."""
        ticks = self.tick_rows(ask=ask)
        held: dict[Feed, LeafRows] = {}
        for name in () if ask else statement.plan.reads:
            if name in self._deployments.windows:
                held |= self._deployments.windows[name].whole()
        made = self._stepped(statement, held, ticks, int(ticks.places[0]), self._turns.next * TURN)
        if statement.failure.error is not None:
            statement.failed = in_turns(statement.failure.error, statement.failure.place)
            raise statement.failed
        return made


class _SteppedWindows:
    """The named windows in some turns: each is stepped as the first statement reads it, all its inserts are known then.

    Args:
        service: The service.
        turns: The turns.
        inserted: What statements have inserted, and no other has read yet.
        failures: The statements that have failed.
    """

    def __init__(
        self,
        service: Service,
        turns: SomeTurns,
        inserted: dict[str, list[PlacedRows]],
        failures: list[RunningStatement],
    ) -> None:
        self._service, self._turns, self._inserted, self._failures = service, turns, inserted, failures
        self._stepped: set[str] = set()
        self._made: dict[int, pa.Table] = {}

    def of(self, statement: RunningStatement, mine: dict[Feed, LeafRows]) -> pa.Table | None:
        """Have a statement read its named windows; what it delivers, if it changes one and has done something."""
        plan, windows = statement.plan, self._service.deployments.windows
        changed = () if plan.change is None else (plan.change.window,)
        for name in (*plan.reads, *changed):
            if name in windows:
                window = windows[name]
                if name not in self._stepped and window.failed is None:
                    self._stepped.add(name)
                    try:
                        self._step(name, window)
                    except BaseException as error:
                        window.failed = error
                        raise
                if window.failed is not None:
                    raise QueryFailedError(
                        f"The named window {name!r} has failed.",
                        remedy="Undeploy what is about it, and deploy it again.",
                    ) from window.failed
                for feed, moves in windows[name].read().items():
                    mine[feed] = moves.seen_by(statement.number) if plan.asked else moves
        return self._made.pop(statement.number, None)

    def _step(self, name: str, window: RunningWindow) -> None:
        service, turns = self._service, self._turns
        service._arrive([name], turns, self._inserted)  # noqa: SLF001  (a part of it)
        triggered, own = [], dict[int, pa.Table]()
        for each in service.deployments.changing(name, service.name):
            service._arrive(each.plan.reads, turns, self._inserted)  # noqa: SLF001
            try:
                mine = service._arrived(each, turns.arrived)  # noqa: SLF001
                if turns.ticks is None and not mine:
                    continue
                made, failure = service._stepped(each, mine, turns.ticks, turns.first, turns.until), each.failure  # noqa: SLF001
            except BaseException as error:  # noqa: BLE001  (the others take the turn, then it is raised)
                service.fail(each, FirstFailure(each.device, error=error), turns, self._failures)
                continue
            if failure.error is not None:
                service.fail(each, failure, turns, self._failures)
            assert each.plan.change is not None  # noqa: S101  (it changes the window)
            events = each.triggering(made)
            if len(events):
                triggered.append(Triggered(each.number, each.plan.change, events, events[PLACE].to_numpy()))
            if each.plan.change.into:
                own[each.number] = made
        ended = None if not window.known.context else self._ended(window.known.context)
        self._made |= window.step(turns.arrived.get(name), turns.ticks, triggered, turns.until, ended) | own

    def _ended(self, name: str) -> PlacedRows | None:
        """The instances of a context that end in these turns."""
        service, turns = self._service, self._turns
        context = service.deployments.contexts[name]
        if not context.is_on:
            return None
        reads = context.known.reads
        service._arrive(reads, turns, self._inserted)  # noqa: SLF001  (a part of it)
        feeds = service.deployments.feeds
        arrived: dict[Feed, LeafRows] = {feeds[each]: turns.arrived[each] for each in reads if each in turns.arrived}
        moved = context.stepped(arrived, (service.deployments.ticks, turns.ticks), turns.until)
        ends = moved.rows[ENDED].to_numpy(zero_copy_only=False)
        return PlacedRows(moved.places[ends], moved.rows.filter(pa.array(ends)))


def _timed_rows(table: pa.Table, places: Any, times: Any) -> PlacedRows:
    """Rows as arrivals at some places, at some times in milliseconds."""
    return PlacedRows(places, table, lambda: times * _MILLISECOND)
