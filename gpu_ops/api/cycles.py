"""The verbs of queries that run in cycles: partitions, chains, row status. `gpu_ops.cycles` begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import narwhals as nw
import pyarrow as pa

from gpu_ops.api.arrivals import called_streams
from gpu_ops.api.stream import Stream
from gpu_ops.core.arguments import whole, word
from gpu_ops.core.cycles import MS, Schedule
from gpu_ops.core.own_errors import of_methods, own_errors
from gpu_ops.core.time import MIN_TIME, Duration, Instant, instant, positive_ticks
from gpu_ops.core.turns import CLOCK
from gpu_ops.errors import PlanError
from gpu_ops.errors import shown as said
from gpu_ops.plan.arguments import Names, names
from gpu_ops.plan.arrivals import on_turns
from gpu_ops.plan.combinations import Combinable
from gpu_ops.plan.cycle_chains import Becoming, Chain, IssuedAggregate, Stage, rows_of
from gpu_ops.plan.cycle_picks import BestRows, CyclePick, LastMilliseconds, LastRows, LatestRows, RandomRows, Size
from gpu_ops.plan.cycles import AtCycles, Intake, NumberedCycles, became, table_in_cycles
from gpu_ops.plan.expressions import Expression
from gpu_ops.plan.joins import Join, named_keys
from gpu_ops.plan.nodes import Filter, Node, filter_condition, selected


@own_errors
def cycles(
    *streams: Stream,
    order: str | None = None,
    start: Instant | None = None,
    until: Instant | None = None,
    every: Duration | None = None,
    weights: float | Sequence[float] = 1.0,
) -> Any:
    """Streams of a query that runs in cycles (StreamCruncher: running queries).

    A cycle takes all that has come by its time, a millisecond. It runs where events come that pass the conditions, where
    the time of a row in a window is up, and again at once while rows wait for a window. Rows that leave go before
    others come.

    Args:
        streams: One stream, or several. Where events end plays no part.
        order: A column of whole numbers or times that each stream has: the order of events that start together.
            Without it no two events of a stream may.
        start: From when on cycles can run, by default 1970: events start at most thirty years before it and 120 years
            behind it.
        until: The last time of which cycles are shown; by default all, until the time of each row is up.
        every: The time between two cycles, if the query runs at fixed times and at no other (``FIXED``).
        weights: What an event weighs, of all streams or of each: the query runs when the events that have come and
            pass the conditions weigh one together, or for another reason.

    Returns:
        A `CycleStream`; of several streams a tuple of these.

    Raises:
        ColumnError: A stream has no such column. When data is read: two events of a stream start together, and nothing
            says which is first.
        PlanError: An argument makes no sense.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> requests = pa.table({"at": [0, 1, 2, 8], "ip": ["a", "b", "a", "a"]})
        >>> per_ip = g.cycles(g.events(requests, start="at", unit="s")).partition("ip")
        >>> busy = per_ip.last_span("5s").agg(recent=g.count(), total=g.count(), pinned=True, entrance="total")
        >>> [
        ...     (str(row["start"].time()), row["ip"], row["recent"], row["total"])
        ...     for row in busy.new().collect().to_pylist()
        ... ]
        [('00:00:00', 'a', 1, 1), ('00:00:01', 'b', 1, 1), ('00:00:02', 'a', 2, 2), ('00:00:05', 'a', 1, 2),
         ('00:00:06', 'b', 0, 1), ('00:00:07', 'a', 0, 2), ('00:00:08', 'a', 1, 3), ('00:00:13', 'a', 0, 3)]
    """  # noqa: E501
    called = called_streams(streams, order, verb="cycles")
    for each in called.values():
        if each._node.on_spark:  # noqa: SLF001  (the frame of all verbs)
            raise PlanError("Queries in cycles do not run on Spark yet.", remedy="Give Arrow, pandas or Polars frames.")
    since = 0 if start is None else instant(start, name="start")
    schedule = Schedule(since // MS, 0 if every is None else milliseconds(every, "every"))
    last = None if until is None else instant(until, name="until") // MS
    nodes = {name: each._node for name, each in called.items()}  # noqa: SLF001  (the frame of all verbs)
    turns = on_turns(nodes, order=order, since=MIN_TIME)
    clocks = tuple(nodes.values())
    every_weight = [weights] * len(streams) if isinstance(weights, int | float) else list(weights)
    if len(every_weight) != len(streams) or not all(0 <= each < float("inf") for each in every_weight):
        raise PlanError(
            f"weights are {said(weights)}.", remedy="Give a number of 0 or more, or one for each stream: (0.2, 1.0)."
        )
    made = tuple(
        CycleStream(Intake(each, clocks, ticks=False, schedule=schedule), schedule, last, weight=weight)
        for each, weight in zip(turns.arrivals.values(), every_weight, strict=True)
    )
    return made if len(made) > 1 else made[0]


def milliseconds(given: Any, name: str) -> int:
    """A span of whole milliseconds.

    Raises:
        PlanError: It is none.
    """
    ticks = positive_ticks(given, name=name)
    if ticks % MS:
        raise PlanError(
            f"{name} is not of whole milliseconds, and the clock of cycles counts these.", remedy="Round it."
        )
    return ticks // MS


@of_methods
class CycleStream:
    """Rows that come in cycles. Made by `gpu_ops.cycles`, and by `CyclePartition.became`.

    Args:
        source: What comes to the first partition.
        schedule: When the query may run.
        until: The last millisecond that is shown.
        stages: The partitions so far.
        takes: What rows of the last one have become.
        conditions: Conditions on rows.
        weight: What a row weighs.
    """

    def __init__(
        self,
        source: Node,
        schedule: Schedule,
        until: int | None,
        stages: tuple[Stage, ...] = (),
        takes: Becoming = "new",
        conditions: tuple[nw.Expr, ...] = (),
        weight: float = 1.0,
    ) -> None:
        self._source, self._schedule, self._until = source, schedule, until
        self._stages, self._takes, self._conditions, self._weight = stages, takes, conditions, weight

    def where(self, *conditions: Expression) -> CycleStream:
        """Rows for which conditions hold (StreamCruncher: a pre-filter); others make no cycle run."""
        given = (*self._conditions, filter_condition(conditions))
        return CycleStream(self._source, self._schedule, self._until, self._stages, self._takes, given, self._weight)

    def among(self, table: Stream, *, on: Any, absent: bool = False, refresh: Duration = "1h") -> CycleStream:
        """Rows of which a table has an equal one as they come (StreamCruncher: ``where a in (select a from t)``).

        A query looks at a table at times that are multiples of `refresh`, and keeps what it saw.

        Args:
            table: Rows that are in the table from their starts to their ends.
            on: The columns that are equal: a name, several, or a mapping from names here to those of the table.
            absent: Whether rows pass of which the table has none (``not in``).
            refresh: How often the query looks at the table; StreamCruncher's is an hour.

        Raises:
            ColumnError: A column is unknown, or types differ.
            PlanError: These rows are of a partition.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> orders = g.events(pa.table({"at": [1, 2, 3], "who": ["a", "b", "b"]}), start="at", unit="s")
            >>> rows = {"since": [0, 2500], "to": pa.array([None, None], pa.int64()), "who": ["a", "b"]}
            >>> customers = g.events(pa.table(rows), start="since", end="to", unit="ms", null_end="open")
            >>> some = g.cycles(orders).among(customers, on="who", refresh="1s").partition().last(5)
            >>> some.new().collect()["who"].to_pylist()
            ['a', 'b']
        """
        if self._stages:
            raise PlanError(
                "Rows of a partition are compared with no table yet.", remedy="Say it before .partition(…)."
            )
        source = self._source
        for condition in self._conditions:
            source = Filter(source, condition)
        there = table_in_cycles(table._node, self._schedule, milliseconds(refresh, "refresh"))  # noqa: SLF001
        kept = Join(source, there, named_keys(on, source, there), "anti" if absent else "semi")
        return CycleStream(kept, self._schedule, self._until, weight=self._weight)

    def partition(self, *columns: str) -> CyclePartitions:
        """A window for each combination of values of some columns, null included; without columns one for all."""
        return CyclePartitions(self, names(columns, where="partition") if columns else ())

    def _chain(self, stage: Stage) -> Chain:
        source = self._source
        if not self._stages:
            for condition in self._conditions:
                source = Filter(source, condition)
            return Chain(source, (replace(stage, takes=self._takes),), self._schedule, self._weight)
        mine = replace(stage, takes=self._takes, where=self._conditions)
        return Chain(source, (*self._stages, mine), self._schedule, self._weight)


@of_methods
class CyclePartitions:
    """The columns of a partition, before it is said what windows keep.

    Args:
        stream: What comes.
        key: The columns.
    """

    def __init__(self, stream: CycleStream, key: tuple[str, ...]) -> None:
        self._stream, self._key = stream, key

    def last(self, n: Size, *, waiting: int | None = None) -> CyclePartition:
        """The last n rows: a full window takes one row in each cycle and expels the oldest (``store last n``).

        Args:
            n: A number, or a column that says it for each key: the row by which a window begins.
            waiting: How many rows may wait for a full window; what is above is dropped, the oldest first.
        """
        return self._made(LastRows(n, None if waiting is None else whole(waiting, name="waiting", least=0)))

    def last_span(self, span: Duration | str, *, stamp: str = CLOCK, most: Size | None = None) -> CyclePartition:
        """Rows until the clock is a span behind their own times (``store last n seconds``).

        A row that is too late is in for one cycle.

        Args:
            span: A span of whole milliseconds.
            stamp: The column of rows' own times; by default the time at which they came, or were issued.
            most: How many rows a window holds, or a column that says it for each key: rows of earlier cycles are
                expelled for new ones, the oldest first, and what is more waits.
        """
        return self._made(LastMilliseconds(milliseconds(span, "span"), stamp, most))

    def latest(self, n: Size) -> CyclePartition:
        """At most n rows for one cycle: the next one expels all (``store latest n``)."""
        return self._made(LatestRows(n))

    def random(self, n: Size, *, seed: int = 0) -> CyclePartition:
        """As `last`, of those rows that a coin takes (``store random n``); the seed decides which."""
        return self._made(RandomRows(n, whole(seed, name="seed", least=0)))

    def highest(self, n: Size, using: str, *, update: Names = ()) -> CyclePartition:
        """The n rows with the highest values, of equal ones the newest (``store highest n using column``).

        Args:
            n: A number, or a column that says it for each key.
            using: The column of the values; rows with null or NaN never enter.
            update: Columns of which a row expels those of earlier cycles with equal values (``with update group``).
        """
        return self._made(BestRows(n, using, highest=True, group=names(update, where="update=")))

    def lowest(self, n: Size, using: str, *, update: Names = ()) -> CyclePartition:
        """As `highest`, with the lowest values."""
        return self._made(BestRows(n, using, highest=False, group=names(update, where="update=")))

    def _made(self, pick: CyclePick) -> CyclePartition:
        return CyclePartition(self._stream._chain(Stage(pick, self._key)), self._stream._until)  # noqa: SLF001


@of_methods
class CyclePartition:
    """A partition, or a chain of partitions: the rows in its windows from cycle to cycle.

    Args:
        chain: The partitions.
        until: The last millisecond that is shown.
    """

    def __init__(self, chain: Chain, until: int | None) -> None:
        self._chain, self._until = chain, until
        (self._rows,), self._beats = rows_of([chain], until)

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        return pa.schema([each for each in self._rows.schema if not each.name.startswith("@")])

    def agg(
        self,
        *,
        pinned: bool = False,
        entrance: Names = (),
        difference: Names | dict[str, float] = (),
        **aggregates: Combinable,
    ) -> CyclePartition:
        """A row for each window with its aggregates (``with count(id) as n, …``).

        A row is issued when a value changes, null being another one each time; the row before is dead then. Columns are
        those of the partition, and the aggregates.

        Args:
            pinned: Whether a window stays when it is empty, and its aggregates with it (``pinned``).
            entrance: The aggregates for which rows that leave still count (``entrance only``).
            difference: The aggregates of which the difference from the value before is issued (``$diff``), null being
                0; or of each what it is the difference from in each case.
            aggregates: The aggregates by their names.

        Raises:
            ColumnError: A column is unknown, a name is taken, or an aggregate does not take a column's type.
            PlanError: There are aggregates already, or an aggregate reads lifetimes.
        """
        last = self._chain.stages[-1]
        if last.aggregates:
            raise PlanError("This partition has aggregates.", remedy='Say them at once, or .became("new") first.')
        if not aggregates:
            raise PlanError("agg needs aggregates.", remedy="Write .agg(n=g.count()).")
        always = difference if isinstance(difference, dict) else {}
        of_entrance, differences = names(entrance, where="entrance="), names(tuple(difference), where="difference=")
        for name in (*of_entrance, *differences):
            if name not in aggregates:
                raise PlanError(f"There is no aggregate {name!r}.", remedy=f"There are {', '.join(aggregates)}.")
        made = tuple(
            IssuedAggregate(name, each, name in of_entrance, name in differences, always.get(name))
            for name, each in aggregates.items()
        )
        stage = replace(last, aggregates=made, pinned=pinned)
        return CyclePartition(replace(self._chain, stages=(*self._chain.stages[:-1], stage)), self._until)

    def became(self, status: Becoming) -> CycleStream:
        """The rows that became ``"new"`` or ``"dead"``, in the same cycle: what the next partition of a chain takes."""
        word(status, get_args(Becoming), name="status")
        chain = self._chain
        return CycleStream(chain.source, chain.schedule, self._until, chain.stages, status, weight=chain.weight)

    def new(self) -> Stream:
        """The rows that came into the partition, in the cycle that let them in (``$row_status is new``).

        Returns:
            A stream of ``cycle`` (int64) and the columns; each row at the time that the clock showed.
        """
        return self._numbered(became(self._rows, "new"))

    def dead(self) -> Stream:
        """The rows that were expelled, in the cycle that did so (``$row_status is dead``); as `new`."""
        return self._numbered(became(self._rows, "dead"))

    def not_dead(self) -> Stream:
        """All rows that are in the partition, in each cycle (``$row_status is not dead``); as `new`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> seen = g.cycles(g.events(pa.table({"at": [0, 1, 2], "v": [5, 7, 9]}), start="at", unit="s"))
            >>> seen.partition().last(2).not_dead().collect().select(["cycle", "v"]).to_pylist()
            [{'cycle': 0, 'v': 5}, {'cycle': 1, 'v': 5}, {'cycle': 1, 'v': 7}, {'cycle': 2, 'v': 7},
             {'cycle': 2, 'v': 9}]
        """
        return self._numbered(AtCycles(self._rows, self._beats))

    def any_status(self) -> Stream:
        """All rows that are in the partition, and those that were just expelled, in each cycle; as `new`."""
        return self._numbered(AtCycles(self._rows, self._beats, stated=True))

    def _numbered(self, points: Node) -> Stream:
        shown = selected(points, self.schema.names)
        return Stream(NumberedCycles(shown, self._beats, self._chain.schedule, self._until))
