"""The verbs of data windows: when events enter and leave. `gpu_ops.Stream` has them."""

from __future__ import annotations

import narwhals as nw

from gpu_ops.api.base import DataWindowed, Stream, Windowed
from gpu_ops.api.batch_windows import Batching
from gpu_ops.api.time_windows import aligned
from gpu_ops.core.arguments import flag, whole
from gpu_ops.core.own_errors import of_methods
from gpu_ops.core.time import LIFETIME, MAX_TIME, MIN_TIME, TICK, Duration, Instant, instant, positive_ticks
from gpu_ops.errors import ColumnError, PlanError, unknown_column
from gpu_ops.plan.arguments import Names, OrderBy, names
from gpu_ops.plan.data_windows import (
    Alive,
    Best,
    DataWindow,
    First,
    FirstSpan,
    Last,
    LastStarts,
    Sample,
    Session,
)
from gpu_ops.plan.expressions import Expression, as_expression, bare_column
from gpu_ops.plan.lifetimes import AlterLifetime, Lifetime, SetDuration
from gpu_ops.plan.nodes import selected
from gpu_ops.plan.window_conditions import While, window_condition


@of_methods
class DataWindowing(Batching[Stream, Windowed, DataWindowed]):
    """Verbs of a stream that make data windows.

    Each returns a `DataWindowed`, which aggregates over the events in the window, or returns the entering and leaving
    events. With a key there is a window for each group. Only event time counts: rows come in order of starts; rows
    of one start, if their order matters, by ``order=``, then by all payload columns from left to right (null first,
    nested columns do not count), then by their ends. So an answer never depends on the order of arrival.
    """

    def last(self, n: int, *, every: int = 1, partial: bool = True, order: OrderBy = None) -> DataWindowed:
        """The last n rows (Esper: length; StreamCruncher: last N).

        Args:
            n: The number of rows.
            every: The window moves only at every ``every``-th row: a row enters at the first such row at or after it,
                and leaves at the first such row at which it is no longer among the last n.
            partial: Whether rows are in before there are n of them.
            order: Expressions that order rows of one start.

        Raises:
            PlanError: n or ``every`` is no whole number of at least 1.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1, 2, 3], "v": [1, 2, 3, 4]}), start="at", unit="s")
            >>> s.last(2).agg(total=g.sum("v")).collect().sort_by("start")["total"].to_pylist()
            [1, 3, 5, 7]
            >>> s.last(3, every=2).agg(total=g.sum("v")).collect().sort_by("start")["total"].to_pylist()
            [3, 9]
        """
        flag(partial, name="partial")
        return self._data_window(Last(whole(n, name="n"), whole(every, name="every"), partial), order=order)

    def count_window(self, n: int) -> DataWindowed:
        """The events of n consecutive distinct starts (StreamInsight: count window).

        A window lasts from the first of these starts to a tick after the last one. It holds the events that start
        then, so equal starts make it hold more than n events. A result is a point at its window's end; the first comes
        with the n-th distinct start.

        Args:
            n: The number of distinct starts.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1, 1, 5], "v": [1, 2, 3, 4]}), start="at", unit="us")
            >>> r = s.count_window(2).agg(total=g.sum("v")).collect().sort_by("start")
            >>> [t.microsecond for t in r["start"].to_pylist()], r["total"].to_pylist()
            ([2, 6], [6, 9])
        """
        return self._data_window(LastStarts(whole(n, name="n")))

    def session(
        self,
        gap: Duration,
        *,
        cap: Duration | None = None,
        grid_cap: Duration | None = None,
        align: Instant | None = None,
        running: bool = False,
    ) -> DataWindowed:
        """Sessions: a session ends ``gap`` after the start of its last event; an event at that time opens the next.

        All events of a session are in from its first start to its end, so `DataWindowed.agg` gives a row for each
        session.

        Args:
            gap: A positive span.
            cap: The greatest length of a session.
            grid_cap: Trill's cap m: a session that opens at t ends at the latest at the second point of the grid of m
                after t; at the first point if t lies on the grid or if the previous session was cut.
            align: A point of that grid; by default 0001-01-01T00:00Z.
            running: Each event is in from its own start on (Trill: SessionTimeoutWindow; Esper: time_accum), so that
                aggregates are those of the session so far.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> clicks = g.events(pa.table({"at": [0, 3, 20], "v": [1, 2, 3]}), start="at", unit="s")
            >>> visits = clicks.session("10s").agg(n=g.count()).collect().sort_by("start")
            >>> [(str(end - start), n) for start, end, n in zip(*visits.to_pydict().values())]
            [('0:00:13', 2), ('0:00:10', 1)]
        """
        spans = {"cap": cap, "grid_cap": grid_cap}
        limits = {name: None if given is None else positive_ticks(given, name=name) for name, given in spans.items()}
        runs = flag(running, name="running")
        return self._data_window(Session(positive_ticks(gap, name="gap"), **limits, align=aligned(align), running=runs))

    def last_span(self, duration: Duration) -> DataWindowed:
        """Events that started within the last ``duration``: `sliding` with insert and remove streams (Esper: time).

        Args:
            duration: A positive span.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 60], "v": [1, 2]}), start="at", unit="s")
            >>> s.last_span("3min").agg(n=g.count()).collect().sort_by("start")["n"].to_pylist()
            [1, 2, 1]
        """
        length = positive_ticks(duration, name="duration")
        return self._alive(Lifetime(self._node, SetDuration(length)))

    def keep_all(self) -> DataWindowed:
        """All events so far (Esper: keepall).

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1], "v": [1, 2]}), start="at", unit="s")
            >>> s.keep_all().agg(total=g.sum("v")).collect().sort_by("start")["total"].to_pylist()
            [1, 3]
        """
        return self._data_window(FirstSpan(MAX_TIME - MIN_TIME + TICK, MIN_TIME))

    def first(self, n: int, *, order: OrderBy = None) -> DataWindowed:
        """The first n rows, forever (Esper: firstlength, firstevent).

        Args:
            n: The number of rows.
            order: As in `last`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1, 2], "v": [1, 2, 3]}), start="at", unit="s")
            >>> s.first(2).rows().collect()["v"].to_pylist()
            [1, 2]
        """
        return self._data_window(First(whole(n, name="n")), order=order)

    def first_span(self, span: Duration, *, since: Instant | None = None) -> DataWindowed:
        """Events that start within a span, forever (Esper: firsttime).

        Args:
            span: A positive span.
            since: Where the span begins; by default at each group's first start.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [5, 6, 20], "v": [1, 2, 3]}), start="at", unit="s")
            >>> s.first_span("10s").rows().collect()["v"].to_pylist()
            [1, 2]
        """
        begins = None if since is None else instant(since, name="since")
        return self._data_window(FirstSpan(positive_ticks(span, name="span"), begins))

    def unique(self, *columns: str, order: OrderBy = None) -> DataWindowed:
        """The last event of each combination of values, until the next event of that combination (Esper: unique).

        Args:
            columns: Names of payload columns; null is a value.
            order: As in `last`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> ticks = pa.table({"at": [0, 1, 2], "stock": ["a", "b", "a"], "price": [1, 2, 4]})
            >>> s = g.events(ticks, start="at", unit="s")
            >>> s.unique("stock").agg(total=g.sum("price")).collect().sort_by("start")["total"].to_pylist()
            [1, 3, 6]
        """
        return self._data_window(Last(1), within=_names(columns, verb="unique"), order=order)

    def first_unique(self, *columns: str, order: OrderBy = None) -> DataWindowed:
        """The first event of each combination of values, forever (Esper: firstunique).

        Args:
            columns: As in `unique`.
            order: As in `last`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> ticks = pa.table({"at": [0, 1, 2], "stock": ["a", "b", "a"], "price": [1, 2, 4]})
            >>> g.events(ticks, start="at", unit="s").first_unique("stock").rows().collect()["price"].to_pylist()
            [1, 2]
        """
        return self._data_window(First(1), within=_names(columns, verb="first_unique"), order=order)

    def until(self, end: nw.Expr) -> DataWindowed:
        """Events are in until a time that an expression gives for each (Esper: timetolive, time_order).

        Args:
            end: A timestamp expression. An event whose time is not after its start never enters.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1], "lasts": [9, 2]}), start="at", unit="s")
            >>> till = g.col("start") + (g.col("lasts") * 1_000_000).cast(g.Duration("us"))
            >>> s.until(till).agg(n=g.count()).collect().sort_by("start")["n"].to_pylist()
            [1, 2, 1]
        """
        return self._alive(Lifetime(self._node, AlterLifetime(None, None, as_expression(end, where="until"))))

    def highest(self, n: int, by: Expression, *, unique: Names = (), order: OrderBy = None) -> DataWindowed:
        """The n events with the highest values so far (Esper: sort, rank; StreamCruncher: highest).

        If there are more than n, the least value leaves; of equal values the oldest. An event that leaves does not come
        back. An event that would leave at once never enters, and neither does one whose value is null.

        Args:
            n: The number of events.
            by: A column's name or an expression of any type that has an order.
            unique: Columns of which each combination of values has at most one event: the next event replaces the
                previous one, if its own value is among the n (StreamCruncher: update group).
            order: As in `last`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1, 2, 3], "price": [5, 7, 1, 6]}), start="at", unit="s")
            >>> s.highest(2, "price").agg(total=g.sum("price")).collect().sort_by("start")["total"].to_pylist()
            [5, 12, 13]
        """
        return self._best(n, by, unique, order, highest=True)

    def lowest(self, n: int, by: Expression, *, unique: Names = (), order: OrderBy = None) -> DataWindowed:
        """The n events with the lowest values so far, as `highest` has the highest.

        Args:
            n: As in `highest`.
            by: Likewise.
            unique: Likewise.
            order: As in `last`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1, 2, 3], "price": [5, 7, 1, 6]}), start="at", unit="s")
            >>> s.lowest(2, "price").agg(total=g.sum("price")).collect().sort_by("start")["total"].to_pylist()
            [5, 12, 6]
        """
        return self._best(n, by, unique, order, highest=False)

    def sample(self, n: int, *, seed: int = 0, order: OrderBy = None) -> DataWindowed:
        """A sample of n events of all so far, each with the same chance.

        The sample has the least hashes of the seed, the start, and the number among events of that start. So it is the
        same each time, however the input is cut. Groups with events at the same times sample the same times.

        Args:
            n: The number of events.
            seed: Another seed gives another sample.
            order: As in `last`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": list(range(100)), "v": list(range(100))}), start="at", unit="s")
            >>> s.sample(5).agg(n=g.count()).collect().sort_by("start")["n"].to_pylist()[-1]
            5
        """
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise PlanError(f"seed is {seed!r}.", remedy="Give a whole number.")
        return self._data_window(Sample(whole(n, name="n"), seed), order=order)

    def keep_while(self, condition: Expression, *, order: OrderBy = None) -> DataWindowed:
        """As each event comes, the oldest leave until a condition holds or no event is left (Esper: expr).

        Args:
            condition: An expression of `gpu_ops.window`: the number of events, the oldest and the newest one, sums.
                Null counts as no.
            order: As in `last`.

        Raises:
            PlanError: It is no condition on a window.
            ColumnError: It reads an unknown column.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1, 2, 3], "v": [4, 4, 5, 5]}), start="at", unit="s")
            >>> same = s.keep_while(g.window.oldest("v") == g.window.newest("v")).agg(n=g.count()).collect()
            >>> same.sort_by("start")["n"].to_pylist()
            [1, 2, 1, 2]
        """
        made = window_condition(self._node.schema, condition, where="keep_while")
        return self._data_window(While(made), order=order)

    def with_prior(self, n: int = 1, *, order: OrderBy = None, **columns: str) -> Stream:
        """Each event with columns of the event n rows before it in its group (Esper: prior; SQL: lag).

        Lifetimes and grouping do not change. The value is null if fewer than n rows came before.

        Args:
            n: How many rows before.
            order: As in `last`.
            columns: ``name=column``: a payload column of that row, under a new name.

        Raises:
            PlanError: n is no whole number of at least 1, or no column is named.
            ColumnError: A column is unknown, or a name is taken.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1, 2], "price": [5, 7, 4]}), start="at", unit="s")
            >>> s.with_prior(before="price").filter(g.col("price") < g.col("before")).collect()["price"].to_pylist()
            [4]
        """
        if not columns:
            raise PlanError("with_prior names no column.", remedy='Write .with_prior(before="price").')
        names = self._node.schema.names
        given: dict[str, object] = {**columns}  # whatever was handed in
        for name, column in given.items():
            if not isinstance(column, str) or column not in names:
                raise unknown_column(column, names)
            if name in (*names, *LIFETIME):
                raise ColumnError("The stream has this column already.", column=name, remedy="Give another name.")
        node, places = self._ordered(order)
        made = DataWindow(node, Last(whole(n, name="n")), (), places, "prior", prior=tuple(columns.items()))
        return self._with(selected(made, (*names, *columns)))

    def _best(self, n: int, by: Expression, unique: Names, order: OrderBy, *, highest: bool) -> DataWindowed:
        verb = "highest" if highest else "lowest"
        value, same = as_expression(by, where=verb), names(unique, where=f"{verb}(…, unique=…)")
        column = bare_column(value) or "__by"
        window = Best(whole(n, name="n"), column, highest, same)
        return self._data_window(window, order=order, hidden={column: value} if column == "__by" else {})

    def _alive(self, node: Lifetime) -> DataWindowed:
        return self._data_windows(DataWindow(node, Alive()), tuple(node.schema.names))


def _names(columns: tuple[str, ...], *, verb: str) -> tuple[str, ...]:
    if not columns or not all(isinstance(name, str) for name in columns):
        raise PlanError(f"{verb} takes column names.", remedy=f'Write .{verb}("item"), for instance.')
    return tuple(dict.fromkeys(columns))
