"""The user's verbs. A `Stream` is a plan; every verb gives a new one; only `collect` and its kin touch data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from gpu_ops.api.execution import Answering
from gpu_ops.api.joins import Joining
from gpu_ops.api.lifetimes import Retiming
from gpu_ops.api.time_windows import Windowing
from gpu_ops.api.user_windows import OwnWindowing
from gpu_ops.core.other_names import OtherNames
from gpu_ops.core.own_errors import of_methods, own_errors, theirs
from gpu_ops.core.time import Duration, positive_ticks, ticks
from gpu_ops.errors import PlanError, refuse_names, shown
from gpu_ops.microbatches.stores import Store
from gpu_ops.plan.advance import Advance, AdvanceTime, Late
from gpu_ops.plan.arguments import names
from gpu_ops.plan.expressions import Expression, as_expression
from gpu_ops.plan.nodes import Filter, KeyBy, Node, Project, Scope, Source, filter_condition
from gpu_ops.plan.unnest import Repeat

if TYPE_CHECKING:
    from gpu_ops.engines.live.fingerprints import IfFunctionsChanged
    from gpu_ops.engines.live.running_query import RunningQuery
    from gpu_ops.engines.local.shapes import Shape
    from gpu_ops.ingest import CsvOptions


@own_errors
def events(
    source: Any,
    *,
    start: str | None = None,
    end: str | None = None,
    key: str | Sequence[str] | None = None,
    unit: Literal["s", "ms", "us", "ns"] | None = None,
    zone: str | None = None,
    round: Literal["floor", "ceil", "half_even"] | None = None,  # noqa: A002  (the word that users look for)
    null_end: Literal["raise", "open"] = "raise",
    on_invalid: Literal["raise", "drop", "divert"] = "raise",
    ambiguous: Literal["raise", "earliest", "latest"] = "raise",
    nonexistent: Literal["raise", "shift_forward", "shift_backward"] = "raise",
    format: Literal["parquet", "arrow", "csv"] | None = None,  # noqa: A002
    csv: CsvOptions | None = None,
    kind: str | None = None,
    shape: Literal["edge"] | None = None,
    edge: str | None = None,
    name: str | None = None,
    trust: bool = False,
    max_bytes: int | None = None,
) -> Stream:
    """A stream of events from any table-like thing: each row is an event with a lifetime and a payload.

    Args:
        source: A pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a pandas, Polars, DuckDB or cuDF frame,
            a PySpark DataFrame, anything with ``__arrow_c_stream__``, or a path: a Parquet, Arrow IPC or CSV file,
            a folder of them, or a glob. Or a `gpu_ops.store`, as far as it goes now; its lifetimes are its own.
        start: The column with each event's start; only a store needs none.
        end: The column with each event's end, exclusive. Without it events are points, one tick (1 µs) long.
        key: Columns to group by, as with `Stream.by`.
        unit: The unit of integer times, counted since 1970-01-01T00:00Z.
        zone: The time zone of naive timestamps, for instance ``"Europe/Vienna"``.
        round: How times finer than 1 µs are rounded; they are refused unless this says so.
        null_end: ``"open"`` lets a null end mean that the event never ends.
        on_invalid: What happens to rows without a valid lifetime: an error, or they are dropped, or kept aside for
            `Stream.rejected`. They are counted in `Stream.report` in each case.
        ambiguous: Which of the two instants a local time means that a clock change makes occur twice.
        nonexistent: What a local time becomes that a clock change skips.
        format: What files are where their names do not say.
        csv: How CSV files are written: delimiter, quotes, what reads as null.
        kind: The column that says whether a row is an event (``"insert"``) or a CTI (``"cti"``), in any case. A CTI is
            a promise that from there on no event starts, and no end edge ends, before its time. It has that time in
            the start's column; its other columns are not looked at.
        shape: ``"edge"`` where an event comes in two rows (StreamInsight: edge events): a start edge, whose end is not
            looked at, and an end edge with the same start and payload, and the end.
        edge: The column that says which of them a row is: ``"start"`` or ``"end"``, in any case; or ``"interval"``,
            an event whose end is known already, as Trill mixes them. Of start edges that are the same the first
            is ended first; one that no end edge ends never ends.
        name: What a running query, `Stream.report` and `Stream.rejected` call it, where there are several inputs.
        trust: Whether values in files, readers and datasets are taken as they are. They are validated whole before
            anything computes on them; one gives that up for a little time, and a file that is damaged inside, or made
            to do harm, may then end the process or give wrong answers.
        max_bytes: How many bytes a file may unpack to, in all and at a time; what is more is an error. Without it, a
            piece of a file (a record batch, a row group) may come to half of this machine's memory, and the file in
            all to that or to 64 times its own size.

    Returns:
        A stream whose payload is all other columns.

    Raises:
        ColumnError: A column is not there, or one of the payload is called ``start`` or ``end``.
        TimeError: The time columns cannot be times. What is wrong with single rows is raised when they are read.
        SourceError: The source cannot be read.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> rides = pa.table({"pickup": [0, 60], "dropoff": [120, 90], "zone": ["A", "B"]})
        >>> alive = g.events(rides, start="pickup", end="dropoff", unit="s").snapshot().agg(n=g.count())
        >>> alive.collect()["n"].to_pylist()
        [1, 2, 1]
        >>> door = {"at": [0, 5, 0], "till": [None, None, 9], "edge": ["start", "start", "end"], "who": ["A", "B", "A"]}
        >>> inside = g.events(pa.table(door), start="at", end="till", unit="s", shape="edge", edge="edge")
        >>> inside.snapshot().agg(n=g.count()).collect()["n"].to_pylist()
        [1, 2, 1]
    """
    if isinstance(source, Store):
        start, end = start or "start", end or "end"
    for argument, said in (("start", start), ("end", end), ("kind", kind), ("edge", edge), ("name", name)):
        if said is not None and not isinstance(said, str):
            raise PlanError(f"{argument} is {shown(said)}, and no name.", remedy=f'Write {argument}="{argument}".')
    grouped = names(key, where="key")
    if start is None:
        raise PlanError("A source needs the column of its events' starts.", remedy='Say start="ts", for instance.')
    options: dict[str, Any] = {
        "start": start,
        "end": end,
        "unit": unit,
        "zone": zone,
        "round": round,
        "null_end": null_end,
        "on_invalid": on_invalid,
        "ambiguous": ambiguous,
        "nonexistent": nonexistent,
    }
    arrivals: dict[str, Any] = {"kind": kind, "shape": shape, "edge": edge}
    node: Node
    if type(source).__module__.startswith("pyspark."):
        given = [name for name, value in arrivals.items() if value is not None]
        if given:
            raise PlanError(
                f"{given[0]}= is about rows in their order of arrival, and a Spark DataFrame has none.",
                remedy="Give whole events: a row with its start and its end for each, and no CTIs.",
            )
        from gpu_ops.engines.spark import open_spark

        node = open_spark(source, **options)
    else:
        from gpu_ops.ingest import open_source

        node = Source(
            open_source(source, **options, **arrivals, format=format, csv=csv, trust=trust, max_bytes=max_bytes), name
        )
    stream = Stream(node)
    return stream if key is None else stream.by(*grouped)


@of_methods
class Stream(Retiming, Windowing, OwnWindowing, Joining, Answering, OtherNames):
    """Events with lifetimes and payloads, as a plan. Streams are immutable and may be used in many queries.

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
        self._node = node
        refuse_names(node.schema.names)
        # Known at each step, they are never asked for through thousands of steps at once.
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
            conditions: Narwhals expressions over payload columns, ``start`` and ``end``, each row by itself.

        Raises:
            PlanError: Not a condition, an unknown column, or an expression that looks at other rows.

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
            columns: Names and expressions, each row by itself.
            named: Expressions with the names that they get.

        Raises:
            PlanError: As `filter`; or no payload column would be left; or a column of `key` would be lost.

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
            columns: Expressions, each row by itself; they keep their names.
            named: Expressions with the names that they get.

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
        """Each event as many times as an expression says (Trill: SelectMany); null, 0 and less: not at all.

        Args:
            times: A column's name or an expression, of whole numbers.

        Raises:
            ColumnError: It is of another type.
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
        """Grouped: the next window is computed for each distinct combination of these columns by itself.

        The grouping holds until a window has used it, whatever is taken of the window (``agg``, ``rows``, ``top``,
        ``each``, ``changes`` …), or until `distinct`, which groups by columns of its own; verbs that hand events on
        hand it on. Another ``by`` replaces it, and ``by()`` takes it away. Null is a group of its own, all NaNs are
        one, and -0.0 equals 0.0.

        Args:
            columns: Names of payload columns, of any type that is not nested.

        Raises:
            ColumnError: An unknown column, or one whose type is no key.

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
        """What a pipeline gives for each group by itself (StreamInsight and Trill: group and apply).

        The pipeline is written as for a single group's events, and runs once, for all groups together. Windows, `by`,
        `distinct`, and joins of streams that come from the given one, stay within the group. As in any join, null
        matches no null. It may group and apply again.

        Args:
            pipeline: A function of a stream that returns a stream made from it. The group's columns are there, and
                have to stay; a window's result has them, too.

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
            raise PlanError("apply needs groups.", remedy='Group first: .by("item").apply(…).')
        if not callable(pipeline):
            raise PlanError(
                f"apply takes a function of a stream, not {type(pipeline).__name__}.",
                remedy="Write .apply(lambda s: s.tumbling('1min').agg(n=g.count())).",
            )
        made: object = theirs(pipeline, Stream(Scope(self._node, key)))
        if not isinstance(made, Stream) or made._node.scope != key:  # noqa: SLF001  (its own kind)
            raise PlanError(
                "The pipeline of apply returns no stream made from the one that it was given.",
                remedy="Return what its verbs give: .apply(lambda s: s.tumbling('1min').agg(n=g.count())).",
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
    ) -> Stream:
        """CTIs made from the rows of the source in their order, and what becomes of rows that come too late.

        It means StreamInsight's AdvanceTimeSettings; ``snapped``, ``reorder`` and ``late_ends="adjust"`` are Trill's
        ways. A row is late that has an earlier time than the last CTI: its start, and of an end edge its end. A row at
        the CTI's own time is not late. CTIs that come in as rows (``kind=`` of `events`) count as well.

        Args:
            every: A CTI after so many rows that are not end edges, those left out among them, at the last one's start;
                or, given as a span (text or timedelta), one at the first start that is at least that far above the last
                CTI. The first start brings the first one. A row that is left out brings none.
            delay: How far behind that start the CTI is. ``"-1us"`` puts it just behind the event.
            final: Whether the end of the input is a CTI at infinity.
            late: What becomes of a late row: an error; ``"drop"``; ``"adjust"``: its start is moved to the CTI, or
                it is dropped if it ends by then, as a point always does; ``"divert"``: it is left out, for `late`.
                A start edge that is left out takes its end edge along. All are counted in `report`.
            late_ends: What ``"adjust"`` does with late end edges: they are dropped, so that their event never ends, or
                moved to the CTI, as in Trill.
            snapped: CTIs lie on the grid of the span ``every`` from 0001-01-01T00:00Z, and end edges bring them too
                (Trill: periodic punctuation).
            reorder: Rows wait until one comes that is later by this span, and go on ordered by time (Trill: reorder
                latency). Late is then what is earlier than rows that have gone on. Zero lets rows go on at once.
            advance_with: Another stream, as `events` made it and with a name, whose CTIs count here too, with or
                without ``every``: a slow or silent stream goes along with a fast one. It matters to running queries
                alone: a batch does not know which of two streams' rows came first.

        Raises:
            PlanError: It does not stand right behind the source, the source is a Spark DataFrame, or the settings do
                not fit together.
            TimeError: (when data is read) A row is late and ``late`` is ``"raise"``.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> bids = g.events(pa.table({"at": [10, 20, 12, 25], "v": [1, 2, 3, 4]}), start="at", unit="s")
            >>> bids.advance_time(1, delay="5s", late="drop").collect()["v"].to_pylist()
            [1, 2, 4]
            >>> bids.advance_time("10s", delay="10s", late="drop").collect()["v"].to_pylist()
            [1, 2, 3, 4]
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
        )
        if not isinstance(advance_with, Stream | None):
            raise PlanError(f"advance_with is {shown(advance_with)}.", remedy="It is another stream, from g.events(…).")
        other: Any = None if advance_with is None else advance_with._node.unkeyed  # noqa: SLF001
        return self._below_key(lambda node: AdvanceTime(node, settings, other))

    def late(self) -> Stream:
        """The events that came too late, as they came, behind ``advance_time(…, late="divert")``.

        A late start edge is one event with its end edge. A late end edge, whose event goes on without it, shows that
        event as it would have been.

        Returns:
            The payload, then ``cti``, the CTI that the event missed, and ``late_by``, by how much.

        Raises:
            PlanError: It stands behind anything else.

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
        """What is about the source stands behind it, and the grouping behind that."""
        if self._node.unkeyed is not self._node:
            return Stream(self._node.over(make(*self._node.inputs)))
        return Stream(make(self._node))


@own_errors
def restore(
    path: str | Path,
    stream: Stream,
    *,
    device: str = "auto",
    on_results: Callable[[pa.Table], None] | None = None,
    shape: Shape = "interval",
    max_waiting: int | None = None,
    if_functions_changed: IfFunctionsChanged = "raise",
    trust: bool = False,
    max_bytes: int | None = None,
) -> RunningQuery:
    """A running query as a checkpoint found it: it goes on with the first event that it had not taken in.

    Args:
        path: What `RunningQuery.checkpoint` wrote.
        stream: The query, as it was when it was started; expressions are not in a checkpoint.
        device: As in `Stream.start`; it may be another one than before.
        on_results: Likewise.
        shape: Likewise.
        max_waiting: Likewise.
        if_functions_changed: What happens if a function of yours in the query does something else than the one that the
            checkpoint was made with: an error, or ``"accept"``. A hash of its code tells (`docs/live.md`).
        trust: As in `events`: whether the tables in the checkpoint are taken as they are.
        max_bytes: Likewise: how many bytes they may unpack to.

    Raises:
        SourceError: There is no checkpoint, it is damaged, or it is of another plan; then the difference is shown. Or a
            function of yours has changed.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa, pathlib, tempfile
        >>> events = g.events(pa.schema([("at", pa.int64())]).empty_table(), start="at", unit="s")
        >>> counts = events.tumbling("1min").agg(n=g.count())
        >>> live = counts.start(device="cpu")
        >>> live.push({"at": [1, 2]})
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "counts.checkpoint"
        >>> live.checkpoint(path)
        >>> again = g.restore(path, counts, device="cpu")
        >>> again.push({"at": [3]})
        >>> again.close()
        >>> again.results()["n"].to_pylist()
        [3]
    """
    from gpu_ops.core.bounds import Bounds
    from gpu_ops.engines.live.running_query import restored

    if not isinstance(stream, Stream):
        raise PlanError(f"restore takes a stream, not {shown(stream)}.", remedy="Write it as it was started.")
    node = stream._node  # noqa: SLF001
    bounds = Bounds(trust, max_bytes)
    return restored(Path(path), node, device, on_results, shape, max_waiting, if_functions_changed, bounds)
