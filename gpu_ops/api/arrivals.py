"""The verbs of what happens at each arrival: windows on turns, and what they deliver. `gpu_ops.arrivals` begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import narwhals as nw

from gpu_ops.api.contexts import ArrivalContext, instances, within
from gpu_ops.api.deliveries import ArrivalWindow, DeliveredStream, Delivering, clock_span
from gpu_ops.api.row_patterns import RowAggregate, RowTerm, matches
from gpu_ops.api.stream import Stream
from gpu_ops.core.arguments import whole
from gpu_ops.core.own_errors import of_methods, own_errors
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, Duration, Instant, instant, positive_ticks
from gpu_ops.core.turns import CLOCK, DUE, INSTANCE, NEW, ORDER, PLACE, ROW, SINCE, UNTIL
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.errors import shown as said
from gpu_ops.plan.arguments import Names, names
from gpu_ops.plan.arrivals import on_turns
from gpu_ops.plan.clock_windows import (
    Accumulated,
    ClockBatches,
    ClockedWindow,
    ClockLengthBatches,
    UntilTick,
)
from gpu_ops.plan.combinations import Combinable
from gpu_ops.plan.data_windows import DataWindow, First, FirstSpan, Last
from gpu_ops.plan.expressions import Expression
from gpu_ops.plan.lean import lean
from gpu_ops.plan.ledger import AtClock
from gpu_ops.plan.lifetimes import Lifetime, SinceEarlier
from gpu_ops.plan.nodes import Filter, Node, check_known, extended, filter_condition, selected
from gpu_ops.plan.row_matches import MOST_WAYS
from gpu_ops.plan.row_patterns import Skip
from gpu_ops.plan.window_kinds import DataWindowKind


@own_errors
def arrivals(
    *streams: Stream, order: str | None = None, start: Instant | None = None, until: Instant | None = None
) -> Any:
    """Streams whose events come one after another: each arrival is a turn, and windows change with it (Esper).

    Other windows of gpu_ops depend on events' times alone. These depend on the order in which events come, and on the
    clock: before an event that starts later than the clock shows, the clock moves to its start, as a turn of its own.
    What fell due since then happens in that turn. Events that start together come in the order of a column, those of
    several streams in the order of the streams.

    Args:
        streams: One stream, or several whose windows are joined. Where events end plays no part.
        order: A column of whole numbers or times that each stream has. Without it no two events of a stream may start
            together.
        start: What the clock shows first, as turn 0; by default a time before all others.
        until: What it shows last, when all events have come.

    Returns:
        An `ArrivalStream`; of several streams a tuple of these, on the turns of one clock. On Spark its answers are
        DataFrames; what needs all events in one order, and not those of each key, is refused when it is collected.

    Raises:
        ColumnError: A stream has no such column. When data is read: two events of a stream start together, and nothing
            says which is first.
        TimeError: (when data is read) An event starts before the clock.
        PlanError: Some of the streams are on Spark, and some are not.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> drawn = pa.table({"at": [0, 0, 4], "seq": [1, 2, 3], "account": ["a", "b", "a"], "amount": [5, 7, 1]})
        >>> stream = g.arrivals(g.events(drawn, start="at", unit="s"), order="seq")
        >>> totals = stream.last_span("10s").deliveries("account", by="account", total=g.sum("amount"))
        >>> totals.collect().drop_columns(["start", "end"]).to_pylist()
        [{'turn': 2, 'row': 'new', 'account': 'a', 'total': 5},
         {'turn': 3, 'row': 'new', 'account': 'b', 'total': 7},
         {'turn': 5, 'row': 'new', 'account': 'a', 'total': 6}]
    """
    called = called_streams(streams, order, verb="arrivals")
    since = MIN_TIME if start is None else instant(start, name="start")
    end = None if until is None else instant(until, name="until")
    nodes = {name: each._node for name, each in called.items()}  # noqa: SLF001  (the frame of all verbs)
    turns = on_turns(nodes, order=order, since=since, until=end)
    made = tuple(
        ArrivalStream(each, turns.ticks, start=None if start is None else since) for each in turns.arrivals.values()
    )
    return made if len(made) > 1 else made[0]


def called_streams(streams: Sequence[Stream], order: str | None, *, verb: str) -> dict[str, Stream]:
    """The streams of a verb by the names that errors call them.

    Raises:
        PlanError: There is none, one is no stream, or the order is no name.
        ColumnError: A column has a name of our own.
    """
    if not streams or not all(isinstance(each, Stream) for each in streams):
        raise PlanError(f"{verb} takes streams.", remedy=f"Make them first: g.{verb}(g.events(…), order=…).")
    if order is not None and not isinstance(order, str):
        raise PlanError(f"order is {said(order)}.", remedy='It is the name of a column: order="seq".')
    called = {f"stream {at}" if len(streams) > 1 else "the stream": each for at, each in enumerate(streams, 1)}
    for name, each in called.items():
        for column in each.schema.names:
            if column.startswith("@"):
                raise ColumnError(f"No column of {name} begins with @.", column=column, remedy="Rename it.")
    return called


@of_methods
class ArrivalStream(Delivering):
    """Events as they come, each a turn. `gpu_ops.arrivals` makes it; its windows are those of a `Stream`, on turns.

    Without a window rows enter and never leave: aggregates are over all that have come.
    """

    def __repr__(self) -> str:
        return f"<ArrivalStream [{', '.join(self.schema.names)}]>"

    # Which events

    def filter(self, *conditions: Expression) -> ArrivalStream:
        """The events for which all conditions hold. The others come too, and move the clock, but nobody sees them.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> drawn = g.events(pa.table({"at": [0, 1, 2], "amount": [5, 700, 900]}), start="at", unit="s")
            >>> g.arrivals(drawn).filter(g.col("amount") > 100).deliveries(n=g.count()).collect()["turn"].to_pylist()
            [4, 6]
        """
        if not conditions:
            raise PlanError("filter takes at least one condition.", remedy='Write .filter(g.col("price") > 0).')
        condition = self._condition(filter_condition(conditions), "filter")
        return self._over(Filter(self._rows, condition), self._key)

    def by(self, *columns: str) -> ArrivalStream:
        """Groups events: the next window is one for each combination of these columns (Esper: groupwin).

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> drawn = g.events(pa.table({"at": [0, 1, 2], "account": ["a", "b", "a"]}), start="at", unit="s")
            >>> last = g.arrivals(drawn).by("account").last(1)
            >>> last.deliveries("account", shown="old").collect()["account"].to_pylist()
            ['a']
        """
        check_known(self._rows.schema, columns)
        return self._over(self._rows, tuple(dict.fromkeys(columns)))

    def _over(self, rows: Node, key: tuple[str, ...]) -> ArrivalStream:
        if self._context is not None:
            key = tuple(dict.fromkeys((INSTANCE, *key)))
        return ArrivalStream(rows, self._ticks, start=self._start, key=key, context=self._context)

    # Instances

    def until(
        self,
        ends: ArrivalStream | None = None,
        *,
        on: Any = None,
        after: Duration | None = None,
        one_per: Names | None = None,
    ) -> ArrivalContext:
        """An instance from each of these arrivals on, until another ends it or the clock does (Esper: create context).

        The arrival that starts an instance is within it, the one that ends it is not. An arrival ends the instances
        that started before it, and with ``one_per`` it starts none of a key that it ends.

        Args:
            ends: Arrivals that end instances, of another stream of the same `arrivals`, or of this one.
            on: The columns in which both are equal: a name, several, or a mapping from names of this stream to names of
                ``ends``; null equals nothing. Without it an arrival ends all instances.
            after: How long an instance lasts at most.
            one_per: Columns of which each combination of values has one instance at a time, ``()`` for one in all: what
                comes meanwhile starts none. Null is a value. Without it each arrival starts one.

        Raises:
            ColumnError: A column is unknown, or key types differ.
            PlanError: ``ends`` is no stream of the same `arrivals`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> def told(at: list[int], **columns: list[object]) -> g.Stream:
            ...     return g.events(pa.table({"at": at, **columns}), start="at", unit="s")
            >>> logins, logouts, clicks = g.arrivals(
            ...     told([0, 1, 5], user=["a", "b", "a"]),
            ...     told([4, 9], user=["a", "a"]),
            ...     told([2, 3, 6], user=["a", "a", "a"], v=[1, 2, 4]),
            ... )
            >>> sessions = logins.until(logouts, on="user")
            >>> clicks.within(sessions, on="user").at_ends(total=g.sum("v"), n=g.count()).collect().drop_columns(
            ...     ["start", "end"]
            ... ).to_pylist()
            [{'turn': 10, 'row': 'new', 'instance': 0, 'user': 'a', 'total': 3, 'n': 2},
             {'turn': 16, 'row': 'new', 'instance': 2, 'user': 'a', 'total': 4, 'n': 1}]
        """
        if self._context is not None or getattr(ends, "_context", None) is not None:
            raise PlanError("Instances within instances are said in EPL alone.", remedy="create context C context A ….")
        if ends is not None and getattr(ends, "_ticks", None) is not self._ticks:
            raise PlanError(
                "The arrivals that end are not on the turns of one clock with those that start.",
                remedy="Make both of one g.arrivals(one, other).",
            )
        columns = None if one_per is None else names(one_per, where="one_per=")
        span = None if after is None else clock_span(after, "after")
        return instances(self._rows, self._ticks, None if ends is None else ends._rows, on, span, columns)  # noqa: SLF001

    def within(self, context: ArrivalContext, *, on: Any = None, suffix: str = "_start") -> ArrivalStream:
        """These arrivals with the instances that they are within: a row for each of them (Esper: context C select).

        Windows, groups and aggregates are each instance's own. What an instance holds is gone where it ends, and
        nothing says so: ask `at_ends` for it.

        Args:
            context: The instances.
            on: The columns in which an arrival is equal to the one that started the instance: a name, several, or a
                mapping from names of this stream to those of the other; null equals nothing. Without it an arrival is
                within all instances that are there.
            suffix: Behind the name of a column of the arrival that started it which this stream has too.

        Returns:
            A stream with more columns: ``instance`` (int64: numbers from 0 on, in order of their starts), and those of
            the arrival that started it.

        Raises:
            ColumnError: A column is unknown, key types differ, or a name is taken.
            PlanError: These arrivals and the instances are not of one `arrivals`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> drawn = g.events(pa.table({"at": [0, 1, 2], "account": ["a", "b", "a"]}), start="at", unit="s")
            >>> bank = g.arrivals(drawn)
            >>> by_account = bank.within(bank.until(one_per="account"), on="account")
            >>> by_account.deliveries("instance", n=g.count()).collect().select(["instance", "n"]).to_pylist()
            [{'instance': 0, 'n': 1}, {'instance': 1, 'n': 1}, {'instance': 0, 'n': 2}]
        """
        if getattr(context, "_ticks", None) is not self._ticks:
            raise PlanError(
                "These are no instances on the turns of this stream.",
                remedy="Make them of a stream of the same arrivals: logins.until(logouts, on=…).",
            )
        if self._context is not None:
            raise PlanError("Instances within instances are said in EPL alone.", remedy="create context C context A ….")
        rows = within(self._rows, context, on, suffix)
        return ArrivalStream(rows, self._ticks, start=self._start, key=(INSTANCE,), context=context)

    # Row patterns

    def match(
        self,
        pattern: RowTerm,
        measures: Mapping[str, Expression | RowAggregate],
        *,
        skip: Skip = "past last row",
        every: bool = False,
        interval: Duration | None = None,
        or_terminated: bool = False,
        within: Duration | None = None,
        registers: Mapping[str, float] | None = None,
        most: int = MOST_WAYS,
    ) -> ArrivalStream:
        """Rows one behind the other, of each combination of `by`, that fit a pattern (Esper, SQL: match_recognize).

        Args:
            pattern: The pattern, of rows that `gpu_ops.row` makes.
            measures: What is told of a match, by the names of the columns: expressions of the values of its rows.
            skip: Where later matches may begin: behind the last row, behind the first row, or anywhere. Of matches
                that end together, ``"past last row"`` gives the one that began first. ``"while open"``: all are
                matches, and none begins at a row with which another one goes on.
            every: Whether all matches are given, and not the best one of each first row.
            interval: A match is given when its first row is that old; rows that come later are no part of it. Without
                it, a match is given as it ends.
            or_terminated: Whether it is given before, as soon as a row does not go on with it.
            within: How long a match may last: no row is part of it that comes so long after its first row, or later.
            registers: Numbers that each match carries from row to row, and what they begin with (`gpu_ops.register`).
            most: How many ways to a match may be open for one key.

        Returns:
            The matches, as arrivals with the columns of `by` and the measures.

        Raises:
            ColumnError: A column is unknown.
            PlanError: A measure or a condition is none, or more ways are open (when data is read).

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> prices = pa.table({"at": range(6), "item": list("xxyxyx"), "price": [7, 5, 9, 4, 8, 8]})
            >>> high = g.row("high")
            >>> falls = g.row("falls", g.col("price") < g.previous("price"))
            >>> back = g.row("back", g.col("price") > high["price"])
            >>> found = (
            ...     g.arrivals(g.events(prices, start="at", unit="s"))
            ...     .by("item")
            ...     .match(
            ...         high + falls.repeat() + back,
            ...         {"high": high["price"], "low": falls["price"], "falls": falls.count(), "back": back["price"]},
            ...     )
            ... )
            >>> found.deliveries("item", "high", "low", "falls", "back").collect().drop_columns(
            ...     ["start", "end"]
            ... ).to_pylist()
            [{'turn': 12, 'row': 'new', 'item': 'x', 'high': 7, 'low': 4, 'falls': 2, 'back': 8}]

            As many rows ``b`` as there were rows ``a``, counted by a register:

            >>> letters = pa.table({"at": range(5), "letter": list("aabba")})
            >>> more = g.register("more")
            >>> a = g.row("a", g.col("letter") == "a", sets={"more": more + 1})
            >>> b = g.row("b", (g.col("letter") == "b") & (more > 1), sets={"more": more - 1})
            >>> last = g.row("last", (g.col("letter") == "b") & (more == 1))
            >>> equal = g.arrivals(g.events(letters, start="at", unit="s")).match(
            ...     a.repeat() + b.repeat(0) + last,
            ...     {"rows": (a + b + last).agg(g.count("letter"))},
            ...     registers={"more": 0},
            ...     skip="while open",
            ... )
            >>> equal.events("rows").collect()["rows"].to_pylist()
            [4]
        """
        if self._context is not None:
            raise PlanError("gpu_ops matches no rows within instances yet.", remedy="Match first, or use EPL.")
        came = self._rows
        if within is not None:
            came = selected(UntilTick(came, self._ticks, CLOCK, clock_span(within, "within")), came.schema.names)
        rows = matches(
            came,
            self._ticks,
            self._key,
            pattern,
            measures,
            skip=skip,
            every=every,
            interval=interval,
            or_terminated=or_terminated,
            registers=registers or {},
            windowed=within is not None,
            most=most,
        )
        # Where the clock jumps over an interval, a match is told any time after it began.
        reach = None if within is None or interval is not None else positive_ticks(within, name="within")
        return ArrivalStream(rows, self._ticks, start=self._start, reach=reach)

    def events(self, *columns: str) -> Stream:
        """These arrivals as events in time: a match of `match` or `gpu_ops.pattern` lives from its first to its last member.

        An arrival is a point. A match lives until the tick of its last member, one of a pattern until that at which it
        was complete, which is when the clock shows that something has not come. Live, a match that began before what
        was told already cannot be later in the order of starts: verbs behind it wait for all that may still begin so
        early, for ``within=`` of `match`, or without it until the end.

        Args:
            columns: Their columns; all by default.

        Raises:
            ColumnError: There is no such column.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> tries = g.events(pa.table({"at": [1, 4, 9], "good": [False, False, True]}), start="at", unit="s")
            >>> wrong, right = g.row("wrong", ~g.col("good")), g.row("right", g.col("good"))
            >>> guessed = g.arrivals(tries).match(wrong.repeat(2) + right, {"wrong": wrong.count()}, within="1min")
            >>> guessed.events().clip_duration("1h").select("wrong", last=g.col("end").dt.second()).collect()["last"]
            <pyarrow.lib.ChunkedArray object at ...>
            [
              [
                9
              ]
            ]
        """  # noqa: E501
        check_known(self.schema, columns)
        order = [nw.lit(NEW, nw.Int8).alias(ROW), nw.col(PLACE).alias(ORDER)]
        came: Node = AtClock(extended(self._rows, order), self._ticks)
        if SINCE in self._rows.schema.names:
            last = UNTIL if UNTIL in self._rows.schema.names else CLOCK
            until = nw.col(last) + nw.lit(timedelta(microseconds=TICK))
            came = Lifetime(came, SinceEarlier(nw.col(SINCE), None, until, self._reach))
        return Stream(lean(selected(came, columns or self.schema.names)))

    # Windows

    def last(self, n: int) -> ArrivalWindow:
        """The last n rows (Esper: length)."""
        return self._window(Last(whole(n, name="n")))

    def last_span(self, span: Duration) -> ArrivalWindow:
        """Rows until the clock has gone on for a span since they came (Esper: time)."""
        below = UntilTick(self._rows, self._ticks, CLOCK, clock_span(span, "span"))
        return self._made(selected(below, [*self._rows.schema.names, DUE]))

    def batches(self, n: int) -> ArrivalWindow:
        """Batches of n rows: each enters whole, and leaves when the next one enters (Esper: length_batch)."""
        return self._window(Last(whole(n, name="n"), n, partial=False), in_batches=True)

    def time_batches(self, span: Duration, *, align: Instant | None = None) -> ArrivalWindow:
        """The rows of each span, which enter at its end, and leave at the end of the next one (Esper: time_batch).

        Args:
            span: The length of a batch.
            align: A point at which one begins; by default what the clock shows when the group's first row comes.
        """
        point = None if align is None else instant(align, name="align")
        return self._window(ClockBatches(clock_span(span, "span"), point), in_batches=True)

    def time_length_batches(self, span: Duration, n: int) -> ArrivalWindow:
        """Batches that are whole with n rows, or a span after the one before (Esper: time_length_batch)."""
        return self._window(ClockLengthBatches(clock_span(span, "span"), whole(n, name="n")), in_batches=True)

    def session(self, gap: Duration) -> ArrivalWindow:
        """Rows that leave together when none has come for a span (Esper: time_accum)."""
        return self._window(Accumulated(clock_span(gap, "gap")))

    def keep_all(self) -> ArrivalWindow:
        """Rows for ever (Esper: keepall)."""
        return self._window(_EVER)

    def first(self, n: int) -> ArrivalWindow:
        """The first n rows (Esper: firstlength)."""
        return self._window(First(whole(n, name="n")))

    def unique(self, *columns: str) -> ArrivalWindow:
        """The last row of each combination of some columns (Esper: unique)."""
        return self._window(Last(1), self._checked(columns))

    def first_unique(self, *columns: str) -> ArrivalWindow:
        """The first row of each combination of some columns (Esper: firstunique)."""
        return self._window(First(1), self._checked(columns))

    def _checked(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        if not columns:
            raise PlanError("It needs the columns whose values are unique.", remedy='Write .unique("item").')
        check_known(self._rows.schema, columns)
        return columns

    def _window(self, kind: DataWindowKind, within: tuple[str, ...] = (), *, in_batches: bool = False) -> ArrivalWindow:
        group, columns = tuple(dict.fromkeys((*self._key, *within))), self._rows.schema.names
        if not getattr(kind, "by_clock", False):
            return self._made(DataWindow(self._rows, kind, group, (PLACE,)), in_batches=in_batches)
        window = ClockedWindow(self._rows, kind, group, (PLACE,), ticks=self._ticks)
        return self._made(selected(window, [*columns, *window.dues]), in_batches=in_batches)

    def _made(self, rows: Node, *, in_batches: bool = False) -> ArrivalWindow:
        return ArrivalWindow(rows, self._ticks, start=self._start, in_batches=in_batches, context=self._context)

    def at_ends(self, **aggregates: Combinable) -> Stream:
        """As `ArrivalWindow.at_ends`, over all that came within each instance."""
        return self._made(DataWindow(self._rows, _EVER)).at_ends(**aggregates)

    def deliveries(self, *columns: Expression, **options: Any) -> DeliveredStream:
        """As `ArrivalWindow.deliveries`, over all that has come."""
        return self._made(DataWindow(self._rows, _EVER)).deliveries(*columns, **options)


_EVER = FirstSpan(MAX_TIME - MIN_TIME + TICK, MIN_TIME)
