"""The classes of streams and windows: both are plans, and every verb gives a new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import narwhals as nw
import pyarrow as pa

from gpu_ops.api.base import Filling, Verbs
from gpu_ops.api.execution import Answering
from gpu_ops.api.joins import Joining
from gpu_ops.api.lifetimes import Retiming
from gpu_ops.api.time_windows import Windowing
from gpu_ops.api.top_k import Ranking
from gpu_ops.api.user_windows import OwnWindowing
from gpu_ops.api.window_sets import Combining
from gpu_ops.core.other_names import OtherNames
from gpu_ops.core.own_errors import of_methods, theirs
from gpu_ops.core.time import LIFETIME, TICK, Duration, positive_ticks, ticks
from gpu_ops.errors import PlanError, refuse_names, shown
from gpu_ops.plan.advance import Advance, AdvanceTime, Late
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.arguments import names
from gpu_ops.plan.combinations import hangs_on_bounds
from gpu_ops.plan.data_windows import STATUS, DataWindow, Output
from gpu_ops.plan.expressions import Expression, as_expression, bare_column, column_names
from gpu_ops.plan.lifetimes import Lifetime, Shift, ToPoint
from gpu_ops.plan.nodes import Filter, KeyBy, Node, Project, Scope, extended, filter_condition, selected
from gpu_ops.plan.unnest import Repeat
from gpu_ops.plan.window_kinds import TimeWindowKind
from gpu_ops.plan.windows import Snapshot, WindowAggregate, aggregated, by_name


class _Made(Verbs["Stream", "Windowed", "DataWindowed"]):
    """Verbs return the classes below."""

    def _with(self, node: Node) -> Stream:
        return Stream(node)

    def _windows(self, node: Node, window: TimeWindowKind, filling: Filling = None) -> Windowed:
        return Windowed(node, window, filling)

    def _data_windows(self, alive: DataWindow, names: tuple[str, ...]) -> DataWindowed:
        return DataWindowed(alive, names)


@of_methods
class Windowed(_Made, Ranking["Stream", "Windowed", "DataWindowed"], OtherNames):
    """Windows over a stream, which lack what to compute over each of them."""

    _known_as = "windows"

    def __repr__(self) -> str:
        return f"<Windowed {self._window}>"

    def agg(self, *aggregates: Any, **named: Any) -> Stream:
        """One event per window and group that holds any event.

        Args:
            aggregates: Aggregates that keep the names of their columns, as expressions do in `Stream.select`:
                ``g.sum("price")`` gives ``price``, and ``g.count()`` gives ``count``.
            named: ``name=aggregate``, for instance ``n=g.count(), best=g.max("price")``, or a combination of
                aggregates: ``each=g.sum("price") / g.count()``.

        Returns:
            A stream of the group's columns and the aggregates, no longer grouped; lifetimes are those of the windows.
            It may have windows in turn: windows nest.

        Raises:
            PlanError: An argument is no aggregate, a column is unknown, or an aggregate does not take its type.
            ColumnError: Two results would have one name.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1], "v": [1, 2]}), start="at", unit="s")
            >>> s.tumbling("1min").agg(n=g.count(), top=g.max("v")).schema.names
            ['n', 'top']
            >>> s.tumbling("1min").agg(g.count(), g.max("v")).schema.names
            ['count', 'v']
        """
        return self._results(self._aggregated(by_name(self._node, aggregates, named, where="agg")))


@of_methods
class DataWindowed(Combining["Stream", "Windowed", "DataWindowed"], Windowed):
    """A data window: events that enter and leave it. Made by the verbs of a stream, as `last` or `session`.

    Aggregates are over the events that are in; there is a result for each stretch in which these stay the same. In an
    aggregate, ``start`` and ``end`` are the event's own.
    """

    def __init__(self, alive: DataWindow, names: tuple[str, ...]) -> None:
        self._alive, self._names = alive, names
        super().__init__(selected(alive, names), Snapshot())

    def __repr__(self) -> str:
        return f"<{self._alive.explained()}>"

    def agg(self, *aggregates: Any, **named: Any) -> Stream:
        """One event for each stretch in which the same events are in, for each group that has any in.

        Args:
            aggregates: As in `Windowed.agg`.
            named: As in `Windowed.agg`.

        Returns:
            A stream of the group's columns and the aggregates; for `count_window` a point at each window's end.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1, 2], "v": [1, 2, 3]}), start="at", unit="s")
            >>> s.last(2).agg(top=g.max("v")).collect().sort_by("start")["top"].to_pylist()
            [1, 2, 3]
        """
        return super().agg(*aggregates, **named)

    def _results(self, made: Node) -> Stream:
        if self._alive.window.counts == "starts":
            made = Lifetime(Lifetime(made, ToPoint()), Shift(TICK))
        return super()._results(made)

    def _aggregated(self, aggregates: Mapping[str, object]) -> Node:
        """Aggregates that read events' own lifetimes, not the stretches for which the events are in."""
        core, combined = aggregated(self._alive.input, Snapshot(), aggregates)
        changed = LIFETIME if self._alive.window.enters != "at its start" else ("end",)
        if not any(column_names(each, changed) for aggregate in core.aggregates for each in aggregate.reads):
            return super()._aggregated(aggregates)
        below, lowered = self._below_of(core)
        windows = replace(core, input=replace(self._alive, input=below), aggregates=lowered)
        return windows if combined is None else replace(combined, input=windows)

    def rows(self) -> Stream:
        """The events, each for as long as it is in; an event that never enters is dropped. The result is not grouped.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1, 5], "v": [1, 2, 3]}), start="at", unit="s")
            >>> rows = s.last(1).rows().collect()
            >>> [(end - start).seconds for start, end, _ in zip(*rows.to_pydict().values()) if end.year < 9999]
            [1, 4]
        """
        return super()._results(self._node)

    def insert_stream(self) -> Stream:
        """A point for each event when it enters (Esper: istream). The result is not grouped.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1, 5], "v": [1, 2, 3]}), start="at", unit="s")
            >>> s.batches(2).insert_stream().collect()["v"].to_pylist()
            [1, 2]
        """
        return super()._results(self._given("insert"))

    def remove_stream(self) -> Stream:
        """A point for each event when it leaves (Esper: rstream). The result is not grouped.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1, 5], "v": [1, 2, 3]}), start="at", unit="s")
            >>> s.last(1).remove_stream().collect()["v"].to_pylist()
            [1, 2]
        """
        return super()._results(self._given("remove"))

    def changes(self) -> Stream:
        """A point at each enter and at each leave, with ``status`` ``"new"`` or ``"dead"`` (Esper: irstream).

        StreamCruncher calls it row status. An event that enters and leaves at one tick has both points, though it is
        not among `rows`. The result is not grouped.

        Raises:
            ColumnError: The payload has a column ``status``.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1], "v": [1, 2]}), start="at", unit="s")
            >>> changes = s.last(1).changes().collect().sort_by([("start", "ascending"), ("v", "ascending")])
            >>> list(zip(changes["v"].to_pylist(), changes["status"].to_pylist()))
            [(1, 'new'), (1, 'dead'), (2, 'new')]
        """
        return super()._results(self._given("changes"))

    def each(self, *aggregates: Any, **named: Any) -> Stream:
        """One row for each event that enters: its payload, and aggregates over the window right after it has entered.

        Events of one start enter one by one, in the window's order (Esper: a query that selects both columns and
        aggregates). The events of a batch enter together.

        Args:
            aggregates: As in `Windowed.agg`.
            named: As in `Windowed.agg`.

        Returns:
            A stream of the payload and the aggregates, no longer grouped; each lifetime is the point at which the event
            enters.

        Raises:
            ColumnError: An aggregate has the name of a payload column.
            PlanError: As in `Windowed.agg`; or an aggregate depends on how long a window lasts.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 0, 1], "v": [1, 2, 3]}), start="at", unit="s")
            >>> each = s.last(2).each(total=g.sum("v")).collect().sort_by("v")
            >>> list(zip(each["v"].to_pylist(), each["total"].to_pylist()))
            [(1, 1), (2, 3), (3, 5)]
        """
        asked = by_name(self._alive.input, aggregates, named, where="each")
        for name, aggregate in asked.items():
            if hangs_on_bounds(aggregate, Snapshot()):
                raise PlanError(
                    f"each({name}=…) depends on the window's length, but each() gives rows of one tick.",
                    remedy="Use .agg(…), or a rate over a span: g.rate('1s', over='1min').",
                )
        core, combined = aggregated(self._alive.input, Snapshot(), asked)
        below, lowered = self._below_of(core)
        node = replace(self._alive, input=below, output="each", aggregates=lowered)
        columns = [nw.col(name) for name in self._names]
        if combined is None:
            columns += [nw.col(name) for name in asked]
            return super()._results(Project(node, tuple(columns), keep=False))
        columns += combined.expressions[len(core.group) :]
        return super()._results(Project(node, tuple(columns), keep=False, said=combined.said))

    def _below_of(self, core: WindowAggregate) -> tuple[Node, tuple[Aggregate, ...]]:
        """The events that come in, with a column more for each expression that aggregates are over, and these."""
        columns, aggregates = core.plain()
        return extended(self._alive.input, (each for each in columns if bare_column(each) is None)), aggregates

    def _given(self, output: Output) -> Node:
        shown = (*self._names, STATUS) if output == "changes" else self._names
        return selected(replace(self._alive, output=output), shown)


@of_methods
class Stream(
    _Made,
    Retiming["Stream", "Windowed", "DataWindowed"],
    Windowing["Stream", "Windowed", "DataWindowed"],
    OwnWindowing["Stream", "Windowed", "DataWindowed"],
    Joining["Stream", "Windowed", "DataWindowed"],
    Answering["Stream", "Windowed", "DataWindowed"],
    OtherNames,
):
    """A plan of events with lifetimes and payloads. Streams are immutable and may be used in many queries.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> table = pa.table({"at": [0, 1, 5], "item": ["a", "b", "a"], "price": [3, 9, 4]})
        >>> bids = g.events(table, start="at", unit="s")
        >>> best = bids.by("item").sliding("10s").agg(best=g.max("price"))
        >>> best.schema.names
        ['item', 'best']
    """

    _known_as = "stream"

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        refuse_names(node.schema.names)
        # Cached at each step, so that no later question recurses through thousands of steps.
        _ = node.schema, node.key, node.scope, node.zone, node.duration, node.gives_open

    # What it is

    @property
    def schema(self) -> pa.Schema:
        """The payload's Arrow schema: all columns but ``start`` and ``end``."""
        return self._node.schema

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that the next window groups by."""
        return self._node.key

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        key = f" by {', '.join(self.key)}" if self.key else ""
        return f"<Stream{key} [{fields}]>"

    # Which events, which columns

    def filter(self, *conditions: Expression) -> Stream:
        """The events for which all conditions hold; null counts as no.

        Args:
            conditions: Narwhals expressions of each row by itself, over payload columns, ``start`` and ``end``.

        Raises:
            PlanError: An argument is no condition, reads an unknown column, or looks at other rows.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> bids = g.events(pa.table({"at": [0, 1], "price": [3, 9]}), start="at", unit="s")
            >>> bids.filter(g.col("price") * 2 > 10).collect()["price"].to_pylist()
            [9]
        """
        if not conditions:
            raise PlanError("filter takes at least one condition.", remedy='Write .filter(g.col("price") > 0).')
        return Stream(Filter(self._node, filter_condition(conditions)))

    def select(self, *columns: Expression, **named: Expression) -> Stream:
        """The same lifetimes with a new payload.

        Args:
            columns: Names, and expressions of each row by itself.
            named: Expressions by their new names.

        Raises:
            PlanError: As `filter`; or no payload column, or not all columns of `key`, would be left.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> bids = g.events(pa.table({"at": [0], "price": [3], "item": ["a"]}), start="at", unit="s")
            >>> bids.select("item", twice=g.col("price") * 2).schema.names
            ['item', 'twice']
        """
        return self._project("select", columns, named, keep=False)

    def with_columns(self, *columns: Expression, **named: Expression) -> Stream:
        """The same events with columns added or replaced.

        Args:
            columns: Expressions of each row by itself; they keep their names.
            named: Expressions by their new names.

        Raises:
            PlanError: As `filter`; or it would replace ``start`` or ``end``.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> rides = g.events(pa.table({"a": [0], "b": [90], "zone": [1]}), start="a", end="b", unit="s")
            >>> rides.with_columns(lasted=g.col("end") - g.col("start")).collect()["lasted"].to_pylist()
            [datetime.timedelta(seconds=90)]
        """
        return self._project("with_columns", columns, named, keep=True)

    def repeat(self, times: Expression) -> Stream:
        """Each event as often as an expression says (Trill: SelectMany); never for null, 0 and less.

        Args:
            times: A column's name or an expression, of whole numbers.

        Raises:
            ColumnError: The expression has another type.
            PlanError: As `filter`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> sold = pa.table({"at": [0, 1, 2], "item": ["a", "b", "c"], "n": [2, 0, 1]})
            >>> g.events(sold, start="at", unit="s").repeat("n").collect()["item"].to_pylist()
            ['a', 'a', 'c']
        """
        numbered = self._project("repeat", (), {"__times": times}, keep=True)
        return Stream(Repeat(numbered._node, "__times"))  # noqa: SLF001  (its own kind)

    def _project(
        self, verb: str, columns: tuple[Expression, ...], named: dict[str, Expression], *, keep: bool
    ) -> Stream:
        expressions = [as_expression(column, where=verb) for column in columns]
        expressions += [as_expression(value, where=verb).alias(name) for name, value in named.items()]
        if not expressions:
            raise PlanError(f"{verb} takes at least one column.", remedy=f'Write .{verb}("price").')
        return Stream(Project(self._node, tuple(expressions), keep))

    def by(self, *columns: str) -> Stream:
        """Groups events: the next window is computed for each distinct combination of these columns by itself.

        The grouping holds until a window uses it, by any of its verbs (``agg``, ``rows``, ``top``, ``each``,
        ``changes`` …), or until `distinct`, which groups by its own columns. Other verbs keep it. Another ``by``
        replaces it, and ``by()`` removes it. Null is a group of its own, all NaNs are one group, and -0.0 equals 0.0.

        Args:
            columns: Names of payload columns, of any type that is not nested.

        Raises:
            ColumnError: A column is unknown, or its type cannot be a key.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> bids = g.events(pa.table({"at": [0, 1], "item": ["a", "b"]}), start="at", unit="s")
            >>> bids.by("item").tumbling("1min").agg(n=g.count()).collect()["n"].to_pylist()
            [1, 1]
        """
        for name in columns:
            if not isinstance(name, str):
                raise PlanError(
                    f"by takes column names, not {type(name).__name__}.",
                    remedy="Make the column first: .with_columns(day=…).by('day').",
                )
        return Stream(KeyBy(self._node, tuple(dict.fromkeys((*self._node.scope, *columns)))))

    def apply(self, pipeline: Callable[[Stream], Stream]) -> Stream:
        """Applies a pipeline to each group by itself (StreamInsight and Trill: group and apply).

        The pipeline is written for the events of one group, and runs once, for all groups together. Its windows, `by`,
        `distinct`, and joins of streams made from the given one stay within a group. As in any join, null does not
        match null. A pipeline may group and apply again.

        Args:
            pipeline: A function from a stream to a stream made from it. The stream has the group's columns, and the
                result must keep them; the result of a window has them too.

        Raises:
            PlanError: The stream is not grouped, or the pipeline does not return a stream made from the given one.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> bids = pa.table({"at": [0, 1, 61], "item": ["a", "b", "a"], "price": [5, 3, 9]})
            >>> busiest = (
            ...     g.events(bids, start="at", unit="s")
            ...     .by("item")
            ...     .apply(lambda s: s.tumbling("1min").agg(n=g.count()).tumbling("1h").agg(most=g.max("n")))
            ... )
            >>> most = busiest.collect()
            >>> sorted(zip(most["item"].to_pylist(), most["most"].to_pylist()))
            [('a', 1), ('b', 1)]
        """
        outer, key = self._node.scope, self._node.key
        if not set(key) - set(outer):
            raise PlanError("apply needs a grouped stream.", remedy='Group first: .by("item").apply(…).')
        if not callable(pipeline):
            raise PlanError(
                f"apply takes a function of a stream, not {type(pipeline).__name__}.",
                remedy="Write .apply(lambda s: s.tumbling('1min').agg(n=g.count())).",
            )
        made: object = theirs(pipeline, Stream(Scope(self._node, key)))
        if not isinstance(made, Stream) or made._node.scope != key:  # noqa: SLF001  (its own kind)
            raise PlanError(
                "The pipeline of apply must return a stream made from the given one.",
                remedy="Return the result of its verbs: .apply(lambda s: s.tumbling('1min').agg(n=g.count())).",
            )
        return Stream(Scope(made._node, outer))  # noqa: SLF001

    # When time advances

    def advance_time(
        self,
        every: int | Duration | None = None,
        *,
        delay: Duration = "0s",
        final: bool = True,
        late: Literal["raise", "drop", "adjust", "divert"] = "raise",
        late_ends: Literal["drop", "adjust"] = "drop",
        snapped: bool = False,
        reorder: Duration | None = None,
        advance_with: Stream | None = None,
        per: str | Sequence[str] | None = None,
        low_watermark: Duration | None = None,
        lag: Duration = "0s",
    ) -> Stream:
        """Makes CTIs from the rows of the source in their order, and decides what happens to late rows.

        It is StreamInsight's AdvanceTimeSettings; ``snapped``, ``reorder`` and ``late_ends="adjust"`` are Trill's. A
        row is late if its time is before the previous CTI; its time is its start, or the end of an end edge. A row at
        the CTI's own time is not late. CTIs in rows (``kind=`` of `events`) count as well.

        Args:
            every: A CTI after this many inserts and start edges, at the last one's start; dropped rows count. Or, given
                as a span (text or timedelta), a CTI at the first start that is at least that far above the previous
                CTI; the first start makes the first one. A dropped row makes none.
            delay: How far the CTI lies behind that start. ``"-1us"`` puts it just after the start.
            final: Whether the end of the input is a CTI at infinity.
            late: What happens to a late row: an error; ``"drop"``; ``"adjust"``: its start moves to the CTI, but if it
                ends by then, as a point always does, it is dropped; ``"divert"``: it is kept aside for `late`. The end
                edge of a dropped start edge is dropped too. `report` counts them all.
            late_ends: What ``"adjust"`` does with late end edges: they are dropped, so that their event never ends, or
                moved to the CTI, as in Trill.
            snapped: CTIs lie on the grid of the span ``every`` from 0001-01-01T00:00Z, and end edges make them too
                (Trill: periodic punctuation).
            reorder: Rows wait until a row arrives that is later by this span, and are then released in order of time
                (Trill: reorder latency). A row is then late if it starts before a row that was already released, or
                more than this span before the latest row. Zero releases rows at once.
            per: Columns of whose values each combination has a clock of its own, as devices, shards or partitions of
                Kafka have (Trill: partitioned streams). All that is said here of CTIs and of rows is then about those
                of one partition. A CTI row whose partition is null is a *low watermark*, a CTI of all partitions,
                also of those that are yet to come. What follows is within partitions, as in `apply`, until
                `one_clock`; results come at the low watermark, or at the end of the input.
            low_watermark: With ``per``: a row of any partition makes a low watermark as it arrives, at its time minus
                ``lag``, rounded down to the grid of this span, if that is above the last one. A silent partition does
                not hold it back.
            lag: How far the low watermark lies behind that row.
            advance_with: Another stream, as `events` made it and with a name, whose CTIs count here too, with or
                without ``every``: a slow or silent stream follows a fast one. Only running queries use it: in a batch
                the order of arrival of two streams is unknown.

        Raises:
            PlanError: It does not directly follow the source, the source is a Spark DataFrame, or the settings
                contradict each other.
            ColumnError: A column of ``per`` is unknown, or its type cannot be a key.
            TimeError: (when data is read) A row is late and ``late`` is ``"raise"``.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> bids = g.events(pa.table({"at": [10, 20, 12, 25], "v": [1, 2, 3, 4]}), start="at", unit="s")
            >>> bids.advance_time(1, delay="5s", late="drop").collect()["v"].to_pylist()
            [1, 2, 4]
            >>> bids.advance_time("10s", delay="10s", late="drop").collect()["v"].to_pylist()
            [1, 2, 3, 4]
            >>> read = g.events(pa.table({"at": [50, 3, 4, 2], "device": list("abbb")}), start="at", unit="s")
            >>> read.advance_time(reorder="0s", late="drop").collect()["device"].to_pylist()
            ['a']
            >>> read.advance_time(reorder="0s", late="drop", per="device").collect()["device"].to_pylist()
            ['a', 'b', 'b']
        """
        number = every if isinstance(every, int) and not isinstance(every, bool) else None
        period: Any = None if number is not None else every
        settings = Advance(
            every=number,
            period=None if period is None else positive_ticks(period, name="every"),
            delay=ticks(delay, name="delay"),
            final=final,
            late=late,
            late_ends=late_ends,
            snapped=snapped,
            reorder=None if reorder is None else ticks(reorder, name="reorder"),
            per=() if per is None else names(per, where="per"),
            low_watermark=None if low_watermark is None else positive_ticks(low_watermark, name="low_watermark"),
            lag=ticks(lag, name="lag"),
        )
        if not isinstance(advance_with, Stream | None):
            raise PlanError(f"advance_with is {shown(advance_with)}.", remedy="It is another stream, from g.events(…).")
        other: Any = None if advance_with is None else advance_with._node.unkeyed  # noqa: SLF001
        advanced = self._below_key(lambda node: AdvanceTime(node, settings, other))
        if not settings.per:
            return advanced
        key = tuple(dict.fromkeys((*settings.per, *advanced.key)))
        whole: Node = Scope(advanced._node.unkeyed, settings.per)  # noqa: SLF001  (its own kind)
        return Stream(whole if key == settings.per else KeyBy(whole, key))

    def one_clock(self) -> Stream:
        """Ends the partitions of ``advance_time(…, per=…)``: what follows is about the events of all of them together.

        Their time is the low watermark, which is a CTI of all partitions: no partition has a later event before it. An
        event is here as soon as its own partition has taken it in, but nothing that could still change is final before
        the low watermark, however far the clocks of partitions are.

        Raises:
            PlanError: The stream has one clock already, or is within an `apply`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> read = g.events(pa.table({"at": [50, 3, 4], "device": list("abb")}), start="at", unit="s")
            >>> each = read.advance_time(late="drop", per="device").tumbling("1min").agg(n=g.count())
            >>> sorted(each.collect()["n"].to_pylist())
            [1, 2]
            >>> each.one_clock().tumbling("1min").agg(n=g.sum("n")).collect()["n"].to_pylist()
            [3]
        """
        if not any(each.settings.per == self._node.scope for each in self._node.all(AdvanceTime) if each.settings.per):
            raise PlanError(
                "one_clock ends partitions with clocks of their own, and this stream has none here.",
                remedy='It follows .advance_time(…, per="device"), outside of .apply(…).',
            )
        return Stream(Scope(self._node, ()))

    def late(self) -> Stream:
        """The late events as they arrived, right after ``advance_time(…, late="divert")``.

        A late start edge and its end edge are one event. A late end edge gives its event as it would have been; the
        event itself goes on without the end.

        Returns:
            The payload, then ``cti``, the CTI that the event missed, and ``late_by``, by how much.

        Raises:
            PlanError: It follows anything else.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> bids = g.events(pa.table({"at": [10, 20, 12], "v": [1, 2, 3]}), start="at", unit="s")
            >>> late = bids.advance_time(1, late="divert").late().collect()
            >>> late["v"].to_pylist(), late["late_by"].to_pylist()
            ([3], [datetime.timedelta(seconds=8)])
        """
        return self._below_key(Late)

    def _below_key(self, make: Callable[[Node], Node]) -> Stream:
        """Puts a node right above the source, below the grouping."""
        keyed, made = list[Node](), self._node
        while made.unkeyed is not made:
            keyed.append(made)
            (made,) = made.inputs
        made = make(made)
        for each in reversed(keyed):
            made = each.over(made)
        return Stream(made)
