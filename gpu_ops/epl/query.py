"""Statements asked of data at rest: a text and its streams make one stream of deliveries."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.api.stream import Stream
from gpu_ops.core.own_errors import own_errors
from gpu_ops.core.turns import CLOCK, ORDER, PLACE, ROW
from gpu_ops.epl.deployments import Deployments
from gpu_ops.epl.embedded_statements import deployed, needs_runtime
from gpu_ops.epl.parsing import parse
from gpu_ops.epl.planning.updates import changed_arrivals
from gpu_ops.epl.running import RunningStatement
from gpu_ops.errors import PlanError, shown
from gpu_ops.plan.arrivals import OnTurns, delivered, on_turns
from gpu_ops.plan.embedded_statements import EmbeddedStatements
from gpu_ops.plan.joins import Union, cast_to
from gpu_ops.plan.ledger import Inserted
from gpu_ops.plan.nodes import Filter, Node
from gpu_ops.texts.at_rest import events_of
from gpu_ops.texts.sent_rows import milliseconds

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
        text: One or more statements. Those before the last may make schemas, insert into streams that later ones read,
            and make and change named windows, tables and variables.
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
        rows in their order on one machine, a DataFrame of DataFrames; `start` runs the statement live, with an input
        for each type.

    Raises:
        TextError: A statement cannot be read, or asks for what there is not.
        ColumnError: ``order`` or ``time`` is no column of an input, or a column of the answer has a name twice. When
            data is read: two events of an input come at one time, and nothing says which is first.
        TimeError: (when data is read) An event comes before ``start``.
        PlanError: An input is no frame, or some are on Spark and some are not. When an answer on Spark is collected:
            the text needs all events in one order, and not those of each key.

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
    nodes = {name: events_of(name, each, order, time) for name, each in given.items()}
    begin = milliseconds(start) * _MILLISECOND
    end = None if until is None else milliseconds(until) * _MILLISECOND
    moves = time is not None or is_stream == {True}
    turns = on_turns(nodes, order=order if moves else None, since=begin, until=end, moves=moves)
    irstream = default_selector == "irstream"
    if needs_runtime(parse(text)):
        return Stream(_embedded(turns, text, begin, irstream=irstream))
    deployments = Deployments(irstream=irstream, device="cpu", errors=[], asks=False)
    for name, node in turns.arrivals.items():
        names = [each for each in node.schema.names if each not in {CLOCK, PLACE}]
        deployments.add_type(name, pa.schema([node.schema.field(each) for each in names]))
    made = deployments.deploy(text, begin, lambda statement: None)
    if not made:
        raise PlanError("The text asks nothing.", remedy="Write a select as the last statement.")
    return Stream(_OverData(turns, deployments).answer(made))


def _embedded(turns: OnTurns, text: str, since: int, *, irstream: bool) -> Node:
    """What the last statement of a text delivers where statements change what others read."""
    names = tuple(turns.arrivals)
    arrivals = tuple(turns.arrivals.values())
    node = EmbeddedStatements(arrivals, turns.ticks, names, text, since, irstream, pa.schema([]))
    _, made = deployed(node, "cpu")
    for each in made[:-1]:
        plan = each.plan
        if not (each.target or plan.updates or plan.change or plan.setting or plan.creates or plan.variable):
            raise _unread(each)
    last = made[-1]
    return delivered(replace(node, columns=last.plan.columns), turns.ticks, _columns_of(last), last.plan.shows)


def _columns_of(statement: RunningStatement) -> dict[str, str]:
    """The names of a statement's columns in its plan, and what they are called."""
    columns = {f"@column {at}": each.name for at, each in enumerate(statement.plan.columns)}
    if len(set(columns.values())) < len(columns):
        raise PlanError("Two columns have one name.", remedy="Give one of them another: select a as b.")
    return columns


def _unread(statement: RunningStatement) -> PlanError:
    return PlanError(
        f"Nobody reads what the statement {statement.name!r} delivers.", remedy="Write insert into … before it."
    )


class _OverData:
    """The plans of statements, with streams as their leaves."""

    def __init__(self, turns: OnTurns, deployments: Deployments) -> None:
        self._turns, self._deployments = turns, deployments
        self._names: dict[Node, str] = {feed: name for name, feed in deployments.feeds.items()}
        self._arrivals: dict[str, Node] = {}

    def answer(self, statements: Sequence[RunningStatement]) -> Node:
        """What the last statement delivers."""
        *others, last = statements
        for each in others:
            if not (each.target or each.plan.updates or self._deployments.beside(each)):
                raise _unread(each)
        plan = last.plan
        if plan.updates:
            raise PlanError(f"The statement {last.name!r} changes events.", remedy="Write a select behind it.")
        return delivered(self._over(plan.node), self._turns.ticks, _columns_of(last), plan.shows)

    def _over(self, plan: Node) -> Node:
        """A plan over these streams."""
        made: dict[Node, Node] = {}
        for each in plan.walk():
            if each is self._deployments.ticks:
                made[each] = self._turns.ticks
            elif each in self._names:
                made[each] = self._arriving(self._names[each])
            else:
                made[each] = each.over(*(made[below] for below in each.inputs))
        return made[plan]

    def _arriving(self, name: str) -> Node:
        """The arrivals of a type: those that come, and those that statements insert."""
        if name not in self._arrivals:
            found = [self._turns.arrivals[name]] if name in self._turns.arrivals else []
            inserting = [each for each in self._deployments.alone.values() if each.target == name]
            if inserting:
                parts, level = tuple(map(self._inserted, inserting)), self._deployments.depths[name]
                found.append(Inserted(parts, self._turns.ticks, level, name))
            if not found:
                raise PlanError(f"There are no events of {name!r}.", remedy=f"Give them: query(text, {name}=frame).")
            rows = found[0] if len(found) == 1 else Union(tuple(found))
            for each in self._deployments.alone.values():
                rows = changed_arrivals(each.plan, rows) if each.plan.updates == name else rows
            self._arrivals[name] = rows
        return self._arrivals[name]

    def _inserted(self, statement: RunningStatement) -> Node:
        """The rows that a statement inserts, with the columns of their type."""
        plan = statement.plan
        rows = Filter(self._over(plan.node), nw.col(ROW).is_in(list(plan.inserts)))
        places = {name: f"@column {at}" for at, name in enumerate(statement.names)}
        return cast_to(rows, self._deployments.types[statement.target], places, (ROW, ORDER))
