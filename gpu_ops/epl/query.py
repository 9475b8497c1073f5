"""Statements asked of data at rest: a text and its streams make one stream of deliveries."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Literal

import narwhals as nw
import pyarrow as pa

from gpu_ops.api.events import events
from gpu_ops.api.stream import Stream
from gpu_ops.core.own_errors import own_errors
from gpu_ops.core.turns import CLOCK, ORDER, PLACE, ROW
from gpu_ops.epl.binding.types import event_type
from gpu_ops.epl.parsing import parse
from gpu_ops.epl.placed_error import failure_at, shown_in, unsupported
from gpu_ops.epl.planning.statements import Ledger, PlannedStatement, planned
from gpu_ops.epl.queries import Query
from gpu_ops.epl.sent_rows import milliseconds
from gpu_ops.epl.statements import CreateSchema, Statement
from gpu_ops.errors import ColumnError, PlanError, shown
from gpu_ops.plan.arrivals import OnTurns, delivered, on_turns
from gpu_ops.plan.joins import Union, cast_to
from gpu_ops.plan.ledger import Inserted
from gpu_ops.plan.nodes import Filter, Node, Project

_MILLISECOND = 1000
_WORDS = ("istream", "irstream")


@own_errors
def query(
    text: str,
    inputs: Mapping[str, Any] | None = None,
    /,
    *,
    order: str | None = None,
    time: str | None = None,
    start: int | dt.datetime = 0,
    until: int | dt.datetime | None = None,
    default_selector: str = "istream",
    **more: Any,
) -> Stream:
    """What the last statement of a text delivers over data at rest: as a `Runtime` that is told all of it.

    Events come in order of time, those of one time in the order of a column, those of several inputs at one place in
    the order in which the inputs are given. Before an event whose time is later than the clock's, the clock is moved to
    it, as by `Runtime.send(…, at=…)`.

    Args:
        text: One or more statements. Those before the last may make schemas, and insert into streams that later ones
            read.
        inputs: The events of each type, where its name is no argument's.
        order: A column that all inputs have, which says in which order events come: whole numbers, or times.
        time: The column that says when an event comes: times, or milliseconds since 1970. Without it the clock stays at
            ``start``. A `Stream` has times already: the starts of its events.
        start: What the clock shows first: milliseconds since 1970, or an aware datetime.
        until: What it shows last: it is moved there, at once, when all events have come.
        default_selector: As in `Runtime`.
        more: The events of each type by its name: a frame, a table, or a `Stream`. Their columns are its properties.

    Returns:
        A stream of the rows that are delivered: ``turn``, ``row`` (``"new"`` or ``"old"``), and the columns of the
        statement, as `RunningStatement.deliveries` has them. An event and a move of the clock are a turn each, and turn
        0 is the beginning. The lifetime of a row is the tick at which the clock showed its turn's time. `collect` gives
        rows in their order on one machine; `start` runs the statement live, with an input for each type.

    Raises:
        TextError: A statement cannot be read, or asks for what there is not.
        ColumnError: ``order`` or ``time`` is no column of an input, or a column of the answer has a name twice. When
            data is read: two events of an input come at one time, and nothing says which is first.
        TimeError: (when data is read) An event comes before ``start``.
        PlanError: An input is no frame, or is on Spark, where events have no order.

    Examples:
        >>> from gpu_ops import epl
        >>> import pyarrow as pa
        >>> drawn = pa.table({"seq": [1, 2, 3], "account": ["a", "b", "a"], "amount": [5, 7, 1], "at": [0, 0, 4_000]})
        >>> text = "select account, sum(amount) as total from Withdrawal#time(10 sec) group by account"
        >>> answer = epl.query(text, Withdrawal=drawn, order="seq", time="at", until=10_000).collect()
        >>> answer.drop_columns(["start", "end"]).to_pylist()
        [{'turn': 1, 'row': 'new', 'account': 'a', 'total': 5},
         {'turn': 2, 'row': 'new', 'account': 'b', 'total': 7},
         {'turn': 4, 'row': 'new', 'account': 'a', 'total': 6},
         {'turn': 5, 'row': 'new', 'account': 'a', 'total': 1},
         {'turn': 5, 'row': 'new', 'account': 'b', 'total': None}]
    """
    given = {**(inputs or {}), **more}
    if not isinstance(text, str):
        raise PlanError(f"query takes a text, not {shown(text)}.", remedy="Write select * from T.")
    if default_selector not in _WORDS:
        raise PlanError(f"default_selector is {default_selector!r}.", remedy=f"It is one of {', '.join(_WORDS)}.")
    if not given:
        raise PlanError("There are no events.", remedy="Give a frame for each type: query(text, Withdrawal=frame).")
    is_stream = {isinstance(each, Stream) for each in given.values()}
    if len(is_stream) > 1 and time is None:
        raise PlanError(
            "Events of streams have times, and those of frames have none.", remedy='Name their column: time="at".'
        )
    nodes = {name: _events(name, each, order, time) for name, each in given.items()}
    begin = milliseconds(start) * _MILLISECOND
    end = None if until is None else milliseconds(until) * _MILLISECOND
    moves = time is not None or is_stream == {True}
    turns = on_turns(nodes, order=order if moves else None, since=begin, until=end, moves=moves)
    statements = parse(text)
    with shown_in(text):
        return Stream(_Planner(turns, irstream=default_selector == "irstream").answer(statements))


def _events(name: str, given: Any, order: str | None, time: str | None) -> Node:
    """The events of an input, at the times that say in which order they come."""
    if isinstance(given, Stream):
        return given._node  # noqa: SLF001  (the frame of all verbs)
    column = time or order
    if column is None:
        raise PlanError(
            f"Nothing says in which order the events of {name!r} come.",
            remedy='Name the column that does: order="seq", or time="at".',
        )
    try:
        frame: Any = nw.from_native(given if not isinstance(given, Mapping) else pa.table(dict(given)))
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise PlanError(
            f"The events of {name!r} are {shown(given)}.",
            remedy="Give a frame, a table or a stream: g.events(…) makes one of a file.",
        ) from error
    known = frame.collect_schema()
    for each in (column, order):
        if each is not None and each not in known:
            raise ColumnError(f"{name!r} has no such column.", column=each, remedy=f"It has: {', '.join(known)}.")
    dtype = known[column]
    if not (dtype.is_integer() or isinstance(dtype, nw.Datetime)):
        raise ColumnError(
            f"It says when events of {name!r} come, and is {dtype}.", column=column, remedy="Cast it to whole numbers."
        )
    unit: Literal["us", "ms"] = "us" if time is None else "ms"
    is_number = dtype.is_integer()
    zone = None if is_number or dtype.time_zone is not None else "UTC"
    made = events(frame.to_native(), start=column, unit=unit if is_number else None, zone=zone, name=name)
    if column in made.schema.names:
        return made._node  # noqa: SLF001
    # The time is a property like others.
    back = nw.col("start").dt.timestamp(unit).cast(dtype) if is_number else nw.col("start")
    every = (back.alias(each) if each == column else nw.col(each) for each in known)
    return Project(made._node, tuple(every), keep=False)  # noqa: SLF001


class _Planner:
    """The plans of some statements, one after another."""

    def __init__(self, turns: OnTurns, *, irstream: bool) -> None:
        self._turns, self._irstream = turns, irstream
        self._arrivals = _ArrivalsByType(turns.arrivals)
        self._types = {name: _properties(name, node) for name, node in turns.arrivals.items()}
        self._depths = dict.fromkeys(self._types, 0)
        self._read: set[str] = set()

    def answer(self, statements: tuple[Statement, ...]) -> Node:
        """What the last statement delivers."""
        for each in statements[:-1]:
            self._take(each)
        last = statements[-1]
        if not isinstance(last.body, Query):
            raise failure_at(last, "The last statement is the question, and this one asks nothing.", "Write a select.")
        plan = self._planned(last)
        columns = {f"@column {at}": each.name for at, each in enumerate(plan.columns)}
        if len(set(columns.values())) < len(columns):
            raise failure_at(last, "Two columns have one name.", "Give one of them another: select a as b.")
        return delivered(plan.node, self._turns.ticks, columns, plan.shows)

    def _planned(self, statement: Statement) -> PlannedStatement:
        ledger = Ledger(self._types, self._arrivals, self._turns.ticks, self._turns.since, self._irstream, asks=False)
        plan = planned(statement, ledger)
        self._read.update(plan.reads)
        return plan

    def _take(self, statement: Statement) -> None:
        """A statement that others read: a schema, or one that inserts."""
        body = statement.body
        if isinstance(body, CreateSchema):
            self._declare(body)
        elif isinstance(body, Query) and body.insert is not None:
            self._insert(body, self._planned(statement))
        elif isinstance(body, Query):
            raise failure_at(statement, "Nobody reads what this statement delivers.", "Write insert into … before it.")
        else:
            raise unsupported(statement, f"statements such as '{type(body).__name__}' over data at rest")

    def _declare(self, schema: CreateSchema) -> None:
        if schema.columns is None or schema.options:
            raise unsupported(schema, "schemas of other types", "Name the columns: create schema T (a int).")
        if schema.name in self._types:
            raise failure_at(schema, f"There are events {schema.name!r} already.", "Leave the schema out.")
        try:
            self._types[schema.name] = event_type({each.name: str(each.type) for each in schema.columns})
        except ColumnError as error:
            raise failure_at(schema, str(error)) from None

    def _insert(self, body: Query, plan: PlannedStatement) -> None:
        """Its rows are events of another type, behind those that there are."""
        insert = body.insert
        assert insert is not None  # noqa: S101  (the caller saw to it)
        name, names = insert.target, tuple(insert.columns or plan.columns.names)
        if len(names) != len(plan.columns):
            raise failure_at(insert, f"There are {len(names)} names for {len(plan.columns)} columns.", "Name each.")
        if name in self._read:
            raise failure_at(
                insert, f"A statement before this one reads {name!r}.", "Write those that read it behind this one."
            )
        fields = {other: each for each, other in zip(plan.columns, names, strict=True)}
        known = self._types.setdefault(name, pa.schema([each.with_name(other) for other, each in fields.items()]))
        for each in fields:
            if each not in known.names:
                raise failure_at(insert, f"{name!r} has no property {each!r}.", f"It has: {', '.join(known.names)}.")
        depth = 1 + max(self._depths[each] for each in plan.reads)
        self._depths[name] = max(depth, self._depths.get(name, 0))
        rows = Filter(plan.node, nw.col(ROW).is_in(list(plan.inserts)))
        places = {other: f"@column {at}" for at, other in enumerate(names)}
        part = cast_to(rows, known, places, (ROW, ORDER))
        before = self._arrivals.get(name)
        if isinstance(before, Inserted):
            made: Node = Inserted((*before.parts, part), before.ticks, self._depths[name], name)
        elif isinstance(before, Union):
            sent, inserted = before.parts
            assert isinstance(inserted, Inserted)  # noqa: S101  (made below)
            made = Union((sent, Inserted((*inserted.parts, part), inserted.ticks, self._depths[name], name)))
        else:
            made = Inserted((part,), self._turns.ticks, self._depths[name], name)
            made = made if before is None else Union((before, made))
        self._arrivals[name] = made


class _ArrivalsByType(dict[str, Node]):
    """The arrivals of each type."""

    def __missing__(self, name: str) -> Node:
        raise PlanError(f"There are no events of {name!r}.", remedy=f"Give them: query(text, {name}=frame).")


def _properties(name: str, node: Node) -> pa.Schema:
    """The columns of arrivals that are properties of the events."""
    names = [each for each in node.schema.names if each not in {CLOCK, PLACE}]
    for each in names:
        if each.startswith("@"):
            raise ColumnError(f"No property of {name!r} begins with @.", column=each, remedy="Rename it.")
    return pa.schema([node.schema.field(each) for each in names])
