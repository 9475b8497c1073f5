"""What users call of a service, the runtime's own or an isolated one: one call at a time."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from gpu_ops.core.own_errors import of_methods
from gpu_ops.epl.groups import StatementGroup
from gpu_ops.epl.on_demand import queried
from gpu_ops.epl.running import RunningStatement, SentDeliveries
from gpu_ops.epl.service import Service
from gpu_ops.errors import PlanError, shown


@of_methods
class ServiceCalls:
    """The calls of a service: statements come, events come, the clock moves.

    Args:
        service: The service.
        lock: Held during a call, by all services of a runtime.
    """

    def __init__(self, service: Service, lock: threading.RLock) -> None:
        self._service, self._lock = service, lock

    @property
    def clock(self) -> int:
        """What the clock shows, in milliseconds since 1970."""
        return self._service.clock

    @property
    def statements(self) -> tuple[RunningStatement, ...]:
        """The service's statements, in the order in which they were deployed."""
        return self._service.statements

    def deploy(self, text: str) -> tuple[RunningStatement, ...]:
        """Add the statements of a text.

        Raises:
            TextError: A statement cannot be read, or asks for what there is not; then none is added.
        """
        if not isinstance(text, str):
            raise PlanError(f"deploy takes a text, not {type(text).__name__}.", remedy="Write select * from T.")
        with self._lock:
            return self._service.deploy(text)

    def query(self, text: str) -> pa.Table:
        """What a query on demand gives (Esper: fire-and-forget): it is asked once, of named windows and tables.

        `select` gives the rows that are there. `delete from W where …`, `update W set … where …` and `insert into W
        select …` change a window as an event would, and its listeners are told; they give the rows that are taken out,
        that are changed, as they are then, or that come in. Each is a turn.

        Raises:
            TextError: The query cannot be read, or asks for what there is not.

        Examples:
            >>> from gpu_ops import epl
            >>> runtime = epl.Runtime({"Trade": {"item": "string", "n": "int"}})
            >>> _ = runtime.deploy("create window W#keepall as Trade; insert into W select * from Trade")
            >>> _ = runtime.send("Trade", [{"item": "pen", "n": 5}, {"item": "pen", "n": 7}, {"item": "ink", "n": 1}])
            >>> runtime.query("select item, sum(n) as total from W group by item order by item").to_pylist()
            [{'item': 'ink', 'total': 1}, {'item': 'pen', 'total': 12}]
            >>> runtime.query("update W set n = n + 1 where item = 'ink'").to_pylist()
            [{'item': 'ink', 'n': 2}]
            >>> runtime.query("delete from W where n < 6").to_pylist()
            [{'item': 'pen', 'n': 5}, {'item': 'ink', 'n': 2}]
            >>> runtime.query("insert into W select 'cap' as item, 3 as n").to_pylist()
            [{'item': 'cap', 'n': 3}]
        """
        if not isinstance(text, str):
            raise PlanError(f"query takes a text, not {shown(text)}.", remedy="Write select * from W.")
        with self._lock:
            return queried(self._service, text)

    def deploy_each(self, text: str, constants: Any, *, names: str | None = None) -> StatementGroup:
        """Add a statement for each row of a table of constants: one parse and one plan for all of them.

        Esper's substitution parameters stand for the constants: `?:name:type`, or `?:name`, whose type is that of the
        column. A constant is a side of a comparison, a bound of a range or in a list, in a filter of the from clause.
        A comparison with null is never true. Each statement is one as if it had been deployed by itself, after the one
        of the row above.

        Args:
            text: One statement, over single events: without windows, aggregates, `insert into`, order or output rate.
            constants: The constants, by the names of the parameters: an Arrow table, a frame, a mapping of columns, or
                a list of mappings. It may have other columns.
            names: The column with the names of the statements; else they are called `statement 1` and so on.

        Returns:
            The statements of this template: these, and those that were deployed before, from texts too. It is over when
            the last one has gone.

        Raises:
            TextError: The statement cannot be read, or is none of single events, or a parameter stands where none can.
            ColumnError: A column is missing, has constants of another type, or names that are none or not different.
            PlanError: There are no constants, or there is a statement of such a name already.

        Examples:
            >>> from gpu_ops import epl
            >>> runtime = epl.Runtime({"Tick": {"symbol": "string", "price": "int"}})
            >>> rules = {"rule": ["low", "high"], "symbol": ["A", "A"], "limit": [3, 5]}
            >>> group = runtime.deploy_each(
            ...     "select price from Tick(symbol = ?:symbol and price > ?:limit:int)", rules, names="rule"
            ... )
            >>> _ = group.deliveries()
            >>> _ = runtime.send("Tick", [{"symbol": "A", "price": 4}, {"symbol": "A", "price": 6}])
            >>> group.deliveries().select(["statement", "price"]).to_pylist()
            [{'statement': 'low', 'price': 4}, {'statement': 'low', 'price': 6}, {'statement': 'high', 'price': 6}]
            >>> runtime["high"].text
            "select price from Tick(symbol='A' and price>5)"
        """
        if not isinstance(text, str):
            raise PlanError(f"deploy_each takes a text, not {type(text).__name__}.", remedy="Write select * from T.")
        with self._lock:
            return self._service.deploy_each(text, constants, names)

    # Events and time

    def send(self, type_name: str, rows: Any, *, at: Any = None) -> SentDeliveries:
        """Send events, in their order: each is a turn.

        Args:
            type_name: Their type.
            rows: A row as a mapping, a list of rows, an Arrow table or record batch, or a frame. A property
                that a mapping leaves out is null.
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
        with self._lock:
            return self._service.send(type_name, rows, at=at)

    def advance(self, now: int | dt.datetime) -> SentDeliveries:
        """Set the clock. What fell due in between happens now, once.

        Args:
            now: Milliseconds since 1970, or an aware datetime; not before what the clock shows.
        """
        with self._lock:
            return self._service.advance(now)

    def advance_span(self, now: int | dt.datetime, resolution: int | None = None) -> SentDeliveries:
        """Walk the clock to a time: what falls due on the way happens when it does.

        Args:
            now: As in `advance`.
            resolution: The length of a step, in milliseconds; by default 1.
        """
        with self._lock:
            return self._service.advance_span(now, resolution)

    def replay(self, streams: Mapping[str, Any], *, time: str) -> SentDeliveries:
        """Send the events of several streams in order of their times, in one call: each is a turn.

        The clock is advanced to the time of each event before it is sent. Events of one time come in the order of the
        streams, those of one stream in the order of its rows.

        Args:
            streams: The rows of each type, as `send` takes them, in any order.
            time: The column with the times, int64 milliseconds since 1970 or Arrow timestamps. A type need not have it.

        Returns:
            The deliveries that they made, in order; each is made when it is looked at.

        Raises:
            PlanError: There is no such type, or a row has no time, or one before the clock; then nothing was sent.
            ColumnError: A column is missing, or a value is of another type; then nothing was sent.
            Exception: As in `send`.

        Examples:
            >>> from gpu_ops import epl
            >>> runtime = epl.Runtime({"Bid": {"price": "int"}, "Ask": {"price": "int"}})
            >>> _ = runtime.deploy("select b.price as bid, a.price as ask from Bid#lastevent as b, Ask#time(5) as a")
            >>> bids = [{"ms": 1_000, "price": 9}, {"ms": 7_000, "price": 8}]
            >>> asks = [{"ms": 2_000, "price": 10}]
            >>> [each.new.to_pylist() for each in runtime.replay({"Bid": bids, "Ask": asks}, time="ms")]
            [[{'bid': 9, 'ask': 10}]]
            >>> runtime.clock
            7000
        """
        if not isinstance(streams, Mapping):
            raise PlanError(f"replay takes streams by their types, not {shown(streams)}.", remedy="Give {type: rows}.")
        with self._lock:
            return self._service.replay(streams, time)

    def rows(self, name: str) -> pa.Table:
        """What a statement's iterator gives now: the content of its windows, through its select clause.

        Raises:
            PlanError: There is no such statement in this service.
            QueryFailedError: The statement has failed.
        """
        with self._lock:
            return self._service.rows(name)
