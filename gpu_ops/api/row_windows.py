"""The verbs of data windows: which events are in, from when to when. `gpu_ops.Stream` has them."""

from __future__ import annotations

import narwhals as nw

from gpu_ops.api.base import DataWindowed, Stream, Windowed
from gpu_ops.api.batch_windows import Batching
from gpu_ops.api.time_windows import aligned
from gpu_ops.core.arguments import flag, whole
from gpu_ops.core.own_errors import of_methods
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, Duration, Instant, instant, positive_ticks
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
from gpu_ops.plan.expressions import LIFETIME, Expression, as_expression, bare_column
from gpu_ops.plan.lifetimes import AlterLifetime, Lifetime, SetDuration
from gpu_ops.plan.nodes import selected
from gpu_ops.plan.window_conditions import While, window_condition


@of_methods
class DataWindowing(Batching[Stream, Windowed, DataWindowed]):
    """Verbs of a stream that make data windows.

    Each gives a `DataWindowed`: aggregates over what is in, or what enters and leaves. With a key there is a window for
    each group. Windows go by event time alone: rows are taken in order of their starts; rows of one start, where that
    matters, by ``order=``, then by all payload columns one after the other (null first, nested ones play no part), then
    by their ends. So an answer never depends on the order in which rows arrive.
    """

    def last(self, n: int, *, every: int = 1, partial: bool = True, order: OrderBy = None) -> DataWindowed:
        """The last n rows (Esper: length; StreamCruncher: last N).

        Args:
            n: How many.
            every: The window moves at each so many-th row alone: a row enters at the first such row at or after it,
                and leaves at the first one at which it is no longer among the last n.
            partial: Whether anything is in before there are n rows.
            order: What decides which of several rows of one start comes first.

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

        A window lasts from the first of these starts to a tick after the last one; an event belongs to it by its own
        start, so equal starts make it hold more than n. A result is a point at its window's end. There is none before
        there are n distinct starts.

        Args:
            n: How many distinct starts.

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
        """Sessions: one ends ``gap`` after the start of its last event; an event at that very time opens the next.

        All events of a session are in from its first start to its end, so that `DataWindowed.agg` gives a row for each
        session.

        Args:
            gap: A positive span.
            cap: How long a session lasts at most.
            grid_cap: Trill's cap m: a session that opens at t ends at the second point of the grid of m after t at the
                latest; at the first one if t lies on the grid, or if it opens because the one before was cut.
            align: A point of that grid; 0001-01-01T00:00Z when left out.
            running: Each event is in from its own start on (Trill: SessionTimeoutWindow; Esper: time_accum), so that
                aggregates are those of the session as far as it has come.

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
        """What started within the last ``duration``, as `sliding`, with insert and remove streams (Esper: time).

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
        """The first n rows, for ever (Esper: firstlength, firstevent).

        Args:
            n: How many.
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
        """What starts within a span, for ever (Esper: firsttime).

        Args:
            span: A positive span.
            since: From when on; each group's first start when left out.

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
        """The last event of each combination of values, until the next of the same comes (Esper: unique).

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
        """The first event of each combination of values, for ever (Esper: firstunique).

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
        """Events are in until a time that each one says (Esper: timetolive, time_order).

        Args:
            end: A timestamp expression. An event with a time that is not after its start is never in.

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

        When there is one too many, the least leaves; of equal ones the oldest. One that leaves does not come back. An
        event that leaves with its own coming was never in, and neither is one whose value is null.

        Args:
            n: How many.
            by: A column's name or an expression of any type that has an order.
            unique: Columns of which at most one event for each combination of values is in: the next one takes the
                place of the one before, and has to be good enough itself (StreamCruncher: update group).
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
        """N events drawn from all so far, each with the same chance.

        They are those with the least hashes of the seed, their start, and their number among those of one start. So the
        same are drawn each time, however the input is cut; groups with events at the same times draw the same times.

        Args:
            n: How many.
            seed: Another one draws others.
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
        """As each event comes, the oldest leave until a condition holds, or nothing is left (Esper: expr).

        Args:
            condition: Of `gpu_ops.window`: how many events are in, the oldest and the newest one, sums. Null is no.
            order: As in `last`.

        Raises:
            PlanError: It is no condition on a window.
            ColumnError: It speaks of a column that is not there.

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
        """Each event beside columns of the one that came n before it in its group (Esper: prior; SQL: lag).

        Lifetimes and grouping stay as they are. The value is null where fewer rows came before.

        Args:
            n: How many rows before.
            order: As in `last`.
            columns: ``name=column``: a payload column of the row before, under a name of its own.

        Raises:
            PlanError: n is no whole number of at least 1, or no column is named.
            ColumnError: An unknown column, or a name that is taken.

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
