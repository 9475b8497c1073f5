"""The user's verbs. A `Stream` is a plan; every verb gives a new one; only `collect` and its kin touch data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import narwhals as nw
import pyarrow as pa

from gpu_ops.errors import PlanError
from gpu_ops.plan.expressions import Expression, as_expression
from gpu_ops.plan.lifetimes import (
    AlterLifetime,
    Change,
    Chop,
    ClipDuration,
    Extend,
    HopLifetime,
    Lifetime,
    PointAtEnd,
    Quantize,
    SetDuration,
    Shift,
    Stitch,
    ToPoint,
)
from gpu_ops.plan.nodes import Filter, KeyBy, Node, Project, Source, filter_condition
from gpu_ops.plan.windows import (
    Hopping,
    Membership,
    Snapshot,
    Window,
    WindowAggregate,
    WindowOutput,
    named_aggregates,
)
from gpu_ops.time import MIN_TIME, Duration, Instant, instant, positive_ticks, ticks

if TYPE_CHECKING:
    from gpu_ops.ingest import CsvOptions, IngestReport
    from gpu_ops.store.files import WriteReport


def events(
    source: Any,
    *,
    start: str,
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
) -> Stream:
    """A stream of events from any table-like thing: each row is an event with a lifetime and a payload.

    Args:
        source: A pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a pandas, Polars, DuckDB or cuDF frame,
            a PySpark DataFrame, anything with ``__arrow_c_stream__``, or a path: a Parquet, Arrow IPC or CSV file,
            a folder of them, or a glob.
        start: The column with each event's start.
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
    """
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
    node: Node
    if type(source).__module__.startswith("pyspark.sql"):
        from gpu_ops.engines.spark import open_spark

        node = open_spark(source, **options)
    else:
        from gpu_ops.ingest import open_source

        node = Source(open_source(source, **options, format=format, csv=csv))
    stream = Stream(node)
    return stream if key is None else stream.by(*([key] if isinstance(key, str) else key))


class Stream:
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

    def __init__(self, node: Node) -> None:
        self._node = node

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

        The grouping holds until a window's ``agg`` has used it, or another ``by`` replaces it; ``by()`` takes it away.
        Null is a group of its own, all NaNs are one, and -0.0 equals 0.0.

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
        return Stream(KeyBy(self._node, tuple(dict.fromkeys(columns))))

    # Lifetimes

    def _change(self, change: Change) -> Stream:
        return Stream(Lifetime(self._node, change))

    def set_duration(self, duration: Duration) -> Stream:
        """Every event lives ``[start, start + duration)`` (StreamInsight: AlterEventDuration).

        Args:
            duration: A positive span.

        Raises:
            PlanError: The span is not positive.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="s").set_duration("5s")
            >>> str(s.collect()["end"][0])
            '1970-01-01 00:00:05+00:00'
        """
        return self._change(SetDuration(positive_ticks(duration, name="duration")))

    def alter_lifetime(
        self,
        *,
        start: nw.Expr | None = None,
        duration: nw.Expr | Duration | None = None,
        end: nw.Expr | None = None,
    ) -> Stream:
        """A new lifetime computed for each event (StreamInsight: AlterEventLifetime).

        What is left out stays: the start, or the end (with a new start the end stays where it is).
        An event whose new lifetime is empty is gone, as in Trill; a null is an error.

        Args:
            start: A timestamp expression.
            duration: A span, or a duration expression; counted from the new start.
            end: A timestamp expression, instead of a duration.

        Raises:
            PlanError: Both duration and end are given, neither anything else, or an expression of another type.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> rides = g.events(pa.table({"a": [0], "b": [90], "zone": [1]}), start="a", end="b", unit="s")
            >>> str(rides.alter_lifetime(start=g.col("end"), duration="1s").collect()["end"][0])
            '1970-01-01 00:01:31+00:00'
        """
        if start is None and duration is None and end is None:
            raise PlanError("alter_lifetime takes a start, a duration or an end.", remedy="Give at least one.")
        if duration is not None and not isinstance(duration, nw.Expr):
            length = positive_ticks(duration, name="duration")
            if start is None and end is None:
                return self.set_duration(length)
            duration = nw.lit(length).cast(nw.Duration("us"))
        return self._change(AlterLifetime(start, duration, end))

    def shift(self, by: Duration) -> Stream:
        """Lifetimes moved by a positive or negative span; an open end stays open (StreamInsight: ShiftEventTime).

        Args:
            by: The span.

        Raises:
            TimeError: (when data is read) A time would leave the years 1 to 9999.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="s").shift("-1h")
            >>> str(s.collect()["start"][0])
            '1969-12-31 23:00:00+00:00'
        """
        return self._change(Shift(ticks(by, name="by")))

    def extend(self, by: Duration) -> Stream:
        """Ends moved by a positive or negative span (Trill: ExtendLifetime).

        An event that shrinks to nothing is gone; an open end stays open.

        Args:
            by: The span.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> rides = g.events(pa.table({"a": [0, 0], "b": [90, 9], "zone": [1, 2]}), start="a", end="b", unit="s")
            >>> rides.extend("-10s").collect()["zone"].to_pylist()
            [1]
        """
        return self._change(Extend(ticks(by, name="by")))

    def clip_duration(self, limit: Duration) -> Stream:
        """No lifetime longer than a span (Trill: ClipEventDuration).

        Args:
            limit: A positive span.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> rides = g.events(pa.table({"a": [0], "b": [90], "zone": [1]}), start="a", end="b", unit="s")
            >>> str(rides.clip_duration("1min").collect()["end"][0])
            '1970-01-01 00:01:00+00:00'
        """
        return self._change(ClipDuration(positive_ticks(limit, name="limit")))

    def to_point(self) -> Stream:
        """Every event one tick long, at its start (StreamInsight: ToPointEventStream).

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> rides = g.events(pa.table({"a": [0], "b": [90], "zone": [1]}), start="a", end="b", unit="s")
            >>> str(rides.to_point().collect()["end"][0])
            '1970-01-01 00:00:00.000001+00:00'
        """
        return self._change(ToPoint())

    def point_at_end(self) -> Stream:
        """Every event one tick long, at its end; one that never ends is gone (Trill: PointAtEnd).

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> rides = g.events(pa.table({"a": [0], "b": [90], "zone": [1]}), start="a", end="b", unit="s")
            >>> str(rides.point_at_end().collect()["start"][0])
            '1970-01-01 00:01:30+00:00'
        """
        return self._change(PointAtEnd())

    def hop_lifetime(self, size: Duration, every: Duration | None = None, *, align: Instant | None = None) -> Stream:
        """Trill's window assignment by start: lifetimes become the hops at which the event counts.

        An event counts in the windows ``(T - size, T]`` that hold its start, and such a window is reported on
        ``[T, T + every)``: ``hop_lifetime(…).snapshot()`` is Trill's hopping (tumbling, without ``every``) window.
        With ``every`` longer than ``size`` an event that falls between two windows is gone.

        Args:
            size: How long a window is.
            every: From one grid point to the next; ``size`` when left out.
            align: A point of the grid; 0001-01-01T00:00Z when left out.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [3], "v": [1]}), start="at", unit="s").hop_lifetime("10s", "5s")
            >>> [str(t) for t in (s.collect()["start"][0], s.collect()["end"][0])]
            ['1970-01-01 00:00:05+00:00', '1970-01-01 00:00:15+00:00']
        """
        length = positive_ticks(size, name="size")
        hop = length if every is None else positive_ticks(every, name="every")
        return self._change(HopLifetime(length, hop, _align(align)))

    def quantize(
        self,
        size: Duration,
        every: Duration | None = None,
        *,
        align: Instant | None = None,
        progress: Duration | None = None,
    ) -> Stream:
        """Trill's QuantizeLifetime: lifetimes rounded outward to a grid.

        The start is rounded down to ``align + k * every``; the end to the grid of window ends, at least one window
        after the start. With ``progress`` the start is rounded down to that finer grid (ProgressiveQuantizeLifetime).

        Args:
            size: How long a window is.
            every: From one grid point to the next; ``size`` when left out.
            align: A point of the grid; 0001-01-01T00:00Z when left out.
            progress: A span that divides ``every``.

        Raises:
            PlanError: A span is not positive, or ``progress`` does not divide ``every``.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [3], "v": [1]}), start="at", unit="s").quantize("10s")
            >>> [str(t) for t in (s.collect()["start"][0], s.collect()["end"][0])]
            ['1970-01-01 00:00:00+00:00', '1970-01-01 00:00:10+00:00']
        """
        length = positive_ticks(size, name="size")
        hop = length if every is None else positive_ticks(every, name="every")
        finer = None if progress is None else positive_ticks(progress, name="progress")
        if finer is not None and hop % finer:
            raise PlanError("progress does not divide every.", remedy="Choose a span that fits into it exactly.")
        return self._change(Quantize(length, hop, _align(align), finer))

    def chop(self, period: Duration, *, align: Instant | None = None) -> Stream:
        """Lifetimes cut at the grid ``align + k * period``; each piece keeps the payload (Trill: Chop).

        Args:
            period: From one cut to the next.
            align: A point of the grid; 0001-01-01T00:00Z when left out.

        Raises:
            TimeError: (when data is read) An event never ends; bound it with `clip_duration` or `alter_lifetime` first.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> rides = g.events(pa.table({"a": [50], "b": [70], "zone": [1]}), start="a", end="b", unit="s")
            >>> rides.chop("1min").collect().num_rows
            2
        """
        return Stream(Chop(self._node, positive_ticks(period, name="period"), _align(align)))

    def stitch(self) -> Stream:
        """Events of equal payload joined where one ends exactly at the start of another (Trill: Stitch).

        Payloads are equal as keys are: null to null, NaN to NaN, 0.0 to -0.0, which becomes 0.0. Where several events
        would fit, the one that started first is joined first.

        Raises:
            ColumnError: A payload column is nested.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"a": [0, 5], "b": [5, 9], "zone": [1, 1]}), start="a", end="b", unit="s")
            >>> s.stitch().collect().num_rows
            1
        """
        return Stream(Stitch(self._node))

    # Windows

    def snapshot(self) -> Windowed:
        """Windows between neighbouring end points of lifetimes: the answer at every instant it changes (StreamInsight).

        Stretches without events give nothing. Results are clipped to their window.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> rides = g.events(pa.table({"a": [0, 60], "b": [120, 90], "zone": [1, 2]}), start="a", end="b", unit="s")
            >>> rides.snapshot().agg(n=g.count()).collect()["n"].to_pylist()
            [1, 2, 1]
        """
        return Windowed(self._node, Snapshot())

    def sliding(self, duration: Duration) -> Windowed:
        """At every instant of change, the events that started within the last ``duration``.

        It is ``set_duration(duration).snapshot()``; for intervals that keep their own length, use
        ``extend(duration).snapshot()``.

        Args:
            duration: A positive span.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 60], "v": [1, 2]}), start="at", unit="s")
            >>> s.sliding("3min").agg(m=g.mean("v")).collect()["m"].to_pylist()
            [1.0, 1.5, 2.0]
        """
        return self.set_duration(duration).snapshot()

    def hopping(
        self,
        size: Duration,
        every: Duration,
        *,
        align: Instant | None = None,
        membership: Membership = "overlap",
        output: WindowOutput | None = None,
        until: Instant | None = None,
    ) -> Windowed:
        """Windows ``[align + k * every, + size)``, each with every event that overlaps it (StreamInsight).

        Windows without events give nothing.

        Args:
            size: How long a window is.
            every: From the start of one window to the next.
            align: A point of the grid; 0001-01-01T00:00Z, a Monday, when left out.
            membership: ``"overlap"``; or ``"start"``, Trill's repetitive hopping: at each grid point T, the events that
                started in ``(T - size, T]``.
            output: A result's lifetime: ``"window"`` the window, ``"point"`` one tick at its end, ``"hop"`` from the
                grid point to the next. Left out: ``"window"``, and ``"hop"`` with ``membership="start"``.
            until: Lifetimes are clipped there first; needed where events never end.

        Raises:
            PlanError: A span is not positive; an option is unknown.
            TimeError: (when data is read) An event never ends and ``until`` is not given.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [3], "v": [7]}), start="at", unit="s")
            >>> r = s.hopping(size="10s", every="5s").agg(total=g.sum("v")).collect()
            >>> [str(t)[11:19] for t in r["start"]], r["total"].to_pylist()
            (['23:59:55', '00:00:00'], [7, 7])
        """
        if membership not in ("overlap", "start"):
            raise PlanError(f"membership {membership!r} is unknown.", remedy='It is "overlap" or "start".')
        shape = output or ("window" if membership == "overlap" else "hop")
        if shape not in ("window", "point", "hop"):
            raise PlanError(f"output {output!r} is unknown.", remedy='It is "window", "point" or "hop".')
        return Windowed(
            self._node,
            Hopping(
                positive_ticks(size, name="size"),
                positive_ticks(every, name="every"),
                _align(align),
                membership,
                shape,
                None if until is None else instant(until, name="until"),
            ),
        )

    def tumbling(
        self,
        size: Duration,
        *,
        align: Instant | None = None,
        membership: Membership = "overlap",
        output: WindowOutput | None = None,
        until: Instant | None = None,
    ) -> Windowed:
        """Hopping windows whose hop is their size: they lie side by side.

        Args:
            size: How long a window is.
            align: As in `hopping`.
            membership: As in `hopping`.
            output: As in `hopping`.
            until: As in `hopping`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 59, 60], "v": [1, 2, 3]}), start="at", unit="s")
            >>> s.tumbling("1min").agg(total=g.sum("v")).collect()["total"].to_pylist()
            [3, 3]
        """
        return self.hopping(size, size, align=align, membership=membership, output=output, until=until)

    # Answers

    def collect(self, *, device: str = "auto") -> Any:
        """The answer, in the kind of frame that the data came in; an Arrow table when in doubt.

        Args:
            device: ``"cpu"``, ``"gpu"`` (or an error that says why not), or ``"auto"``: a GPU if one works.
                ``"array"`` runs the GPU's kernels on NumPy, which is slow and for tests.

        Returns:
            Columns ``start`` and ``end`` (``timestamp[us]`` in the zone that came in), then the payload. The order of
            rows is no part of the answer. For a PySpark source it is a DataFrame, and nothing has run yet.

        Raises:
            TimeError: A row has no valid lifetime (``on_invalid="raise"``), or a time would leave the years 1 to 9999.
            SumOverflowError: An integer or decimal sum does not fit its type.
            DeviceError: The device cannot be had.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="s").collect().column_names
            ['start', 'end', 'v']
        """
        return self._engine().collect(self._node, device)

    def to_reader(self, *, device: str = "auto") -> pa.RecordBatchReader:
        """The answer as a reader of Arrow record batches, computed as it is read.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="s").to_reader().read_all().num_rows
            1
        """
        return self._engine().reader(self._node, device)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Arrow's PyCapsule protocol: any library that speaks it takes a stream where it takes a frame."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self.to_reader())

    def write(
        self,
        path: str | Path,
        *,
        device: str = "auto",
        if_exists: Literal["raise", "replace"] = "raise",
        row_group_rows: int = 1 << 20,
    ) -> WriteReport:
        """The answer in a Parquet or Arrow IPC file (by the name's ending), whole or not at all.

        Args:
            path: Where to; ``.parquet``, ``.arrow``, ``.ipc`` or ``.feather``.
            device: As in `collect`.
            if_exists: Whether an existing file is replaced or an error.
            row_group_rows: Rows per row group.

        Raises:
            SourceError: The ending is unknown, the folder is missing, or the file exists.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa, pathlib, tempfile
            >>> path = pathlib.Path(tempfile.mkdtemp()) / "answer.parquet"
            >>> g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="s").write(path).rows
            1
        """
        written: WriteReport = self._engine().write(self._node, device, Path(path), if_exists, row_group_rows)
        return written

    def explain(self, *, device: str = "auto") -> str:
        """The plan as a tree: per node its engine, device, key, columns, time rule, and why it runs where it runs.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="s")
            >>> print(s.tumbling("1min").agg(n=g.count()).explain(device="cpu").splitlines()[0])
            Window tumbling size=1min agg n=count()
        """
        from gpu_ops.engines.explain import explain

        return explain(self._node, device)

    def report(self) -> IngestReport:
        """What the last read of the source counted: rows, valid rows, and refused rows by rule."""
        counted: IngestReport = self._source().report()
        return counted

    def rejected(self) -> pa.Table:
        """The rows that the last read kept aside (``on_invalid="divert"``), with the rule that each one broke."""
        return self._source().rejected()

    def _source(self) -> Any:
        for node in self._node.walk():
            if isinstance(node, Source):
                return node.source
        raise PlanError(
            "Rows of a Spark DataFrame are counted on the cluster.",
            remedy="Use gpu_ops.engines.spark.invalid_rows(…).",
        )

    def _engine(self) -> Any:
        from gpu_ops.plan.nodes import SparkSource

        if any(isinstance(node, SparkSource) for node in self._node.walk()):
            from gpu_ops.engines import spark

            return spark
        from gpu_ops.engines import local

        return local


class Windowed:
    """Windows over a stream, waiting for what to compute over each of them."""

    def __init__(self, node: Node, window: Window) -> None:
        self._node = node
        self._window = window

    def __repr__(self) -> str:
        return f"<Windowed {self._window}>"

    def agg(self, **aggregates: Any) -> Stream:
        """One event per window and group that holds any event.

        Args:
            aggregates: ``name=aggregate``, for instance ``n=g.count(), best=g.max("price")``.

        Returns:
            A stream of the group's columns and the aggregates; lifetimes are those of the windows. It is a stream as
            any other: windows nest.

        Raises:
            PlanError: Not an aggregate, an unknown column, or a type that the aggregate does not take.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1], "v": [1, 2]}), start="at", unit="s")
            >>> s.tumbling("1min").agg(n=g.count(), top=g.max("v")).schema.names
            ['n', 'top']
        """
        return Stream(WindowAggregate(self._node, self._window, named_aggregates(aggregates)))


def _align(align: Instant | None) -> int:
    return MIN_TIME if align is None else instant(align, name="align")
