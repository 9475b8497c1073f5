"""Statements that differ in constants run as one: an index finds whose a row is, and one plan makes the columns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.turns import PLACE, TURN
from gpu_ops.devices import Device, choose
from gpu_ops.epl.failed_turns import in_turns
from gpu_ops.epl.planning.planned import PlannedStatement
from gpu_ops.epl.planning.standing import PlannedGroup, closed
from gpu_ops.epl.running import Delivery, Listening, RunningStatement
from gpu_ops.epl.statements import Statement
from gpu_ops.operators.row_order import run_starts
from gpu_ops.operators.runtime.steps import running
from gpu_ops.operators.standing import StandingIndex
from gpu_ops.plan.expression_text import for_readers
from gpu_ops.plan.nodes import Feed
from gpu_ops.plan.standing import StandingFilter
from gpu_ops.texts.feeding import PlacedRows

STATE = pa.schema(
    [
        ("@name", pa.string()),
        ("@number", pa.int64()),
        ("@since", pa.int64()),
        ("@keeps", pa.bool_()),
        ("@failed", pa.string()),
    ]
)
"""What a checkpoint has of each statement beside its constants."""

OWNER = "@statement"
"""The column with the place of the statement that keeps a row."""

_FACTS: Mapping[str, Callable[[RunningStatement], Any]] = {
    "@name": lambda each: each.name,
    "@number": lambda each: each.number,
    "@since": lambda each: each.since,
    "@keeps": lambda each: each.kept is not None,
    "@failed": lambda each: None if each.failed is None else str(each.failed),
}

_SPARSE = 1_024
"""So many places of statements that have gone are kept, and as many as there are statements."""


class _GroupMembers:
    """The statements of a group by their slots, those that have gone too; more may come."""

    def __init__(self) -> None:
        self.statements: list[RunningStatement] = []
        self.heard: set[int] = set()
        self._names, self._numbers = pa.array([], pa.string()), np.zeros(0, np.int64)

    @property
    def names(self) -> pa.Array:
        """What they are called."""
        if len(self._names) < len(self.statements):
            more = pa.array([each.name for each in self.statements[len(self._names) :]], pa.string())
            self._names = pa.concat_arrays([self._names, more])
        return self._names

    @property
    def numbers(self) -> Any:
        """int64 number of each."""
        if len(self._numbers) < len(self.statements):
            more = [each.number for each in self.statements[len(self._numbers) :]]
            self._numbers = np.concatenate([self._numbers, np.array(more, np.int64)])
        return self._numbers


class DeliveredPairs:
    """The deliveries of a group in a step: a row and a statement each.

    Args:
        listening: What listeners share.
        members: The statements of the group.
        rows: The rows, with the columns of the statements.
        places: The place of each row.
        source: int64 row of each delivery, ascending.
        slots: int64 statement of each delivery.
    """

    def __init__(
        self, listening: Listening, members: _GroupMembers, rows: pa.Table, places: Any, source: Any, slots: Any
    ) -> None:
        self._listening, self._members, self._rows = listening, members, rows
        self._row_places, self._source, self._slots = places, source, slots

    def __len__(self) -> int:
        return len(self._source)

    @property
    def places(self) -> Any:
        """int64 place of each."""
        return self._row_places[self._source]

    @property
    def numbers(self) -> Any:
        """int64 number of the statement of each."""
        return self._members.numbers[self._slots]

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens to one of the statements."""
        return bool(self._members.heard)

    @property
    def heard(self) -> Any:
        """Whether anybody listens to the statement of each."""
        heard = np.zeros(len(self._members.statements), np.bool_)
        heard[list(self._members.heard)] = True
        return heard[self._slots]

    @property
    def listening(self) -> Listening:
        """What its listeners share with others."""
        return self._listening

    def delivery(self, number: int) -> Delivery:
        """One of them."""
        name = self._members.statements[int(self._slots[number])].name
        return Delivery(name, self._rows.slice(int(self._source[number]), 1), None)

    def tell(self, number: int) -> None:
        """Hand one of them to those who listen."""
        self._members.statements[int(self._slots[number])].tell(self.delivery(number))

    def table(self, *, named: bool) -> pa.Table:
        """All of them as rows: `turn`, `row`, maybe `statement`, and the columns."""
        host = choose("cpu")
        turns = host.kernels.take(self._row_places // TURN, self._source)
        head = {"turn": pa.array(turns, pa.int64()), "row": pa.repeat("new", len(self))}
        if named:
            indices = pa.array(self._slots.astype(np.int32))
            head["statement"] = pa.DictionaryArray.from_arrays(indices, self._members.names, safe=False)
        rows = host.columns.take(host.columns.from_arrow(self._rows), self._source)
        rows = host.columns.to_arrow(rows, self._rows.schema)
        return pa.table([*head.values(), *rows.columns], names=[*head, *rows.column_names])

    def kept_apart(self, slots: set[int]) -> Iterator[tuple[RunningStatement, pa.Table]]:
        """The rows of some statements, each by itself."""
        mine = np.flatnonzero(np.isin(self._slots, np.fromiter(slots, np.int64, len(slots))))
        if not len(mine):
            return
        mine = mine[np.argsort(self._slots[mine], kind="stable")]
        sorted_slots = self._slots[mine]
        part = DeliveredPairs(
            self._listening, self._members, self._rows, self._row_places, self._source[mine], sorted_slots
        )
        table, begins = part.table(named=False), np.flatnonzero(np.diff(sorted_slots, prepend=-1))
        for begin, end in zip(begins, np.append(begins[1:], len(mine)), strict=True):
            yield self._members.statements[int(sorted_slots[begin])], table.slice(int(begin), int(end - begin))


class StatementGroup:
    """Statements of one template: they differ in the constants of their filters. `Runtime.deploy_each` gives it.

    Args:
        template: What they say, with parameters.
        planned: The plan for all of them.
        device: Where they compute.
        listening: What listeners share.
        ticks: The leaf of ticks.
        home: The name of the isolated service that they are in; nothing for the runtime's own.
    """

    def __init__(
        self,
        template: Statement,
        planned: PlannedGroup,
        device: Device,
        listening: Listening,
        ticks: Feed,
        home: str = "",
    ) -> None:
        self.template, self.planned, self.listening, self.home = template, planned, listening, home
        self.device, self._ticks = device, ticks
        self._keeping: set[int] = set()
        self.kept: list[DeliveredPairs | pa.Table] | None = None
        self._lock = threading.Lock()
        self._gone: set[int] = set()
        self._waiting: list[tuple[Any, ...]] = []
        self._members = _GroupMembers()
        self._index = StandingIndex(planned.asked, device)
        self._shown: RunningStatement | None = None
        values = planned.asked.values
        self._read = [] if values is None else [*values.needs(tuple(values.schema.names))[0]]

    # What users ask

    def __repr__(self) -> str:
        return f"<StatementGroup, statements: {len(self)}, as {self.template}>"

    def __len__(self) -> int:
        return len(self._members.statements) - len(self._gone)

    @property
    def statements(self) -> tuple[RunningStatement, ...]:
        """Its statements, in the order in which they came."""
        return tuple(each for slot, each in enumerate(self._members.statements) if slot not in self._gone)

    @property
    def text(self) -> str:
        """What they say, with parameters for the constants."""
        return str(self.template)

    @property
    def plan(self) -> PlannedStatement:
        """What each computes of the rows that it wants."""
        return self.planned.plan

    @property
    def asked(self) -> StandingFilter:
        """Whose rows are whose."""
        return self.planned.asked

    @property
    def schema(self) -> pa.Schema:
        """The columns of their rows."""
        return self.plan.columns

    @property
    def constants(self) -> pa.Table:
        """The constants of its statements: a row for each, with its name as `statement`."""
        self._flush()
        table, slots = self._index.questions()
        names = self._members.names.take(pa.array(slots))
        return pa.table([names, *table.columns], names=["statement", *table.column_names])

    def deliveries(self) -> pa.Table:
        """What its statements delivered since the last call, in one table.

        Its columns are `turn`, `row` (``"new"``), `statement` (the name, as a dictionary), and those of the rows. Rows
        come in order of turns, then of statements. The first call begins to keep deliveries.
        """
        with self._lock:
            kept, self.kept = self.kept, []
        return self._table_of(kept or ())

    def _table_of(self, kept: Sequence[DeliveredPairs | pa.Table]) -> pa.Table:
        tables = [each if isinstance(each, pa.Table) else each.table(named=True) for each in kept]
        return pa.concat_tables(tables) if tables else self.kept_schema.empty_table()

    @property
    def kept_schema(self) -> pa.Schema:
        """The columns of what `deliveries` gives."""
        head = [("turn", pa.int64()), ("row", pa.string()), ("statement", pa.dictionary(pa.int32(), pa.string()))]
        return pa.schema([*head, *self.schema])

    @property
    def own_kept_schema(self) -> pa.Schema:
        """The columns of what its statements keep, with whose each row is."""
        head = [(OWNER, pa.int32()), ("turn", pa.int64()), ("row", pa.string())]
        return pa.schema([*head, *self.schema])

    def state(self) -> tuple[pa.Table, pa.Table | None, pa.Table | None]:
        """What a checkpoint keeps of it.

        Returns:
            (the statements: a row for each, with their constants; what they keep, by their places among these; what the
            group keeps). The last two are None where nothing is kept.
        """
        self._flush()
        constants, slots = self._index.questions()
        statements = [self._members.statements[slot] for slot in slots.tolist()]
        own = [[_FACTS[name](each) for each in statements] for name in STATE.names]
        table = pa.table([*(pa.array(each, field.type) for each, field in zip(own, STATE, strict=True))], STATE)
        for name in constants.column_names:
            table = table.append_column(name, constants[name])
        kept = [(at, rows) for at, each in enumerate(statements) for rows in each.kept or ()]
        owners = np.repeat(np.array([at for at, _ in kept], np.int32), [len(rows) for _, rows in kept])
        apart = pa.concat_tables([rows for _, rows in kept]).add_column(0, OWNER, pa.array(owners)) if kept else None
        with self._lock:
            together = None if not self.kept else self._table_of(self.kept).unify_dictionaries()
        return table, apart, together

    @for_readers()
    def explain(self) -> str:
        """What the index does, and the plan: its nodes, each after those that it reads."""
        return "\n".join([*self.asked.describe(), *(node.describe() for node in self.plan.node.walk())])

    # What its statements ask

    def text_of(self, slot: int) -> str:
        """The text of a statement."""
        self._flush()
        return str(closed(self.template, self._index.constants_of(slot)))

    def hear(self, statement: RunningStatement) -> None:
        """Know that somebody listens to a statement."""
        self._members.heard.add(statement.slot)

    def keep(self, statement: RunningStatement) -> None:
        """Know that a statement keeps its deliveries."""
        self._keeping.add(statement.slot)

    # Coming and going

    def add(self, statement: RunningStatement, constants: tuple[Any, ...]) -> None:
        """Have a statement more."""
        self._waiting.append(constants)
        self._enter(statement)

    def add_each(self, statements: Sequence[RunningStatement], constants: pa.Table) -> None:
        """Have several statements more.

        Args:
            statements: They.
            constants: A row for each, with the columns of `StandingFilter.constants`.
        """
        self._flush()
        first = len(self._members.statements)
        self._index.add(constants, np.arange(first, first + len(statements), dtype=np.int32))
        for each in statements:
            self._enter(each)
        self._silence(statements)

    def _enter(self, statement: RunningStatement) -> None:
        statement.join(self, len(self._members.statements), self.plan)
        self._members.statements.append(statement)
        if statement.is_heard:
            self.hear(statement)
        if statement.kept is not None:
            self.keep(statement)

    def remove(self, statements: Iterable[RunningStatement]) -> None:
        """Have some statements no more."""
        self._flush()
        gone = list(statements)
        self._index.remove([each.slot for each in gone])
        for each in gone:
            self._gone.add(each.slot)
            self._members.heard.discard(each.slot)
            self._keeping.discard(each.slot)
        if len(self._gone) > len(self) + _SPARSE:
            self._close_up()

    def _close_up(self) -> None:
        """Number the statements anew: many have gone."""
        table, slots = self._index.questions()
        there = [self._members.statements[slot] for slot in slots.tolist()]
        self._index, self._members = StandingIndex(self.asked, self.device), _GroupMembers()
        self._keeping, self._gone = set(), set()
        self._index.add(table, np.arange(len(there), dtype=np.int32))
        for each in there:
            self._enter(each)
        self._silence(there)

    def _silence(self, statements: Sequence[RunningStatement]) -> None:
        """Have those that have failed ask for nothing."""
        failed = [each.slot for each in statements if each.failed is not None]
        if failed:
            self._index.silence(failed)

    def _flush(self) -> None:
        """Hand what waits to the index."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            columns = zip(*waiting, strict=True) if waiting[0] else ()
            arrays = [pa.array(each, field.type) for each, field in zip(columns, self.asked.constants, strict=True)]
            table = pa.table(arrays, self.asked.constants)
            upto = len(self._members.statements)
            self._index.add(table, np.arange(upto - len(waiting), upto, dtype=np.int32))

    # Steps

    def taken(self, rows: PlacedRows, until: int, failures: list[RunningStatement]) -> DeliveredPairs | None:
        """What its statements make of some rows.

        Args:
            rows: The rows of the type that they read.
            until: The place of the next turn.
            failures: Gets the statements that fail.
        """
        self._flush()
        try:
            frame = self.device.columns.from_arrow(rows.table(self._read))
            source, slots = self._index.matched(frame, len(rows.places))
        except Exception as error:  # noqa: BLE001  (it is what each of them would have failed of)
            first, wrong = self._first_bad(rows, error)
            made = self.taken(rows.between(0, first), until, failures) if first else None
            self._fail(
                [each for each in self.statements if each.failed is None],
                in_turns(wrong, int(rows.places[first])),
                failures,
            )
            return made
        made = self._shown_of(rows, source, slots, until, failures) if len(source) else None
        if made is not None:
            with self._lock:  # another thread may take what was kept before
                if self.kept is not None:
                    self.kept.append(made)
            for statement, table in made.kept_apart(self._keeping) if self._keeping else ():
                statement.keep(table)
        return made

    def _shown_of(
        self, rows: PlacedRows, source: Any, slots: Any, until: int, failures: list[RunningStatement]
    ) -> DeliveredPairs | None:
        """The deliveries that pairs of rows and statements make."""
        columns = self.device.columns
        source, slots = columns.host(source), columns.host(slots)
        if self.planned.picked is not None:
            picked = pa.table([rows.rows[name] for name in self.planned.picked], self.schema)
            return DeliveredPairs(self.listening, self._members, picked, rows.places, source, slots)
        begins = run_starts(source)
        some = source[begins]
        given = rows.take(some, self._stepping.reads[self.asked.rows])
        try:
            made, places = self._stepped(given, until)
        except Exception:  # noqa: BLE001  (it is found out whose rows it was)
            self._shown = None
            bad = dict(self._bad(given, until))
            failing = np.isin(source, some[list(bad)])
            kept = np.ones_like(failing)
            for slot in np.unique(slots[failing]).tolist():
                # What comes before its first bad row stands.
                row = source[(slots == slot) & failing][0]
                kept &= (slots != slot) | (source < row)
                wrong = in_turns(bad[int(np.searchsorted(some, row))], int(rows.places[row]))
                self._fail([self._members.statements[slot]], wrong, failures)
            if not kept.any():
                return None
            return self._shown_of(rows, columns.array(source[kept]), columns.array(slots[kept]), until, failures)
        if not len(made):
            return None
        if len(made) == len(some):
            row = np.cumsum(begins) - 1
        else:  # rows that `where` leaves out have no place among those that were made
            at = np.searchsorted(places, rows.places)
            there = at < len(places)
            there[there] = places[at[there]] == rows.places[there]
            kept = there[source]
            if not kept.all():
                source, slots = source[kept], slots[kept]
            row = at[source]
        return DeliveredPairs(self.listening, self._members, made, places, row, slots) if len(row) else None

    def _stepped(self, rows: PlacedRows, until: int) -> tuple[pa.Table, Any]:
        """The columns that all of its statements have of some rows, and where these rows are."""
        made = self._stepping.step({self.asked.rows: rows}, (self._ticks, None), until)
        return self._stepping.named(made), made[PLACE].to_numpy()

    @property
    def _stepping(self) -> RunningStatement:
        """What makes the columns: a statement without a filter."""
        if self._shown is None:
            own = running(self.plan.node, self.device)
            self._shown = RunningStatement("", "", self.plan, "", (), 0, self.device, own, self.listening)
        return self._shown

    def _bad(self, rows: PlacedRows, until: int, first: int = 0) -> Iterator[tuple[int, Exception]]:
        """The rows for which columns cannot be made, and why: halves that fail are cut again."""
        try:
            self._stepped(rows, until)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is that of the row)
            self._shown = None
            count = len(rows.places)
            if count == 1:
                yield first, error
                return
            for low, upto in ((0, count // 2), (count // 2, count)):
                yield from self._bad(rows.between(low, upto), until, first + low)

    def _first_bad(self, rows: PlacedRows, error: Exception) -> tuple[int, Exception]:
        """The first row of which the filters cannot be asked, and why."""
        low, high = 0, len(rows.places)
        while high - low > 1:
            middle = (low + high) // 2
            try:
                frame = self.device.columns.from_arrow(rows.between(0, middle).table(self._read))
                self._index.matched(frame, middle)
                low = middle
            except Exception as earlier:  # noqa: BLE001  (it is what all of them would have failed of)
                high, error = middle, earlier
        return low, error

    def _fail(
        self, statements: Sequence[RunningStatement], error: BaseException, failures: list[RunningStatement]
    ) -> None:
        """Some statements give nothing any more."""
        if not statements:
            return
        more = f", and so have {len(statements) - 1:,} others like it" if len(statements) > 1 else ""
        error.add_note(f"The statement {statements[0].name!r} has failed, and gives nothing any more{more}.")
        for each in statements:
            each.failed = error
        self._silence(statements)
        failures.extend(statements)
