"""The verbs that change lifetimes. `gpu_ops.Stream` has them."""

from __future__ import annotations

from collections.abc import Sequence

import narwhals as nw

from gpu_ops.api.base import DataWindowed, Stream, Verbs, Windowed
from gpu_ops.api.time_windows import aligned
from gpu_ops.core.own_errors import of_methods
from gpu_ops.core.time import Duration, Instant, positive_ticks, ticks
from gpu_ops.errors import PlanError
from gpu_ops.plan.arguments import names
from gpu_ops.plan.expressions import as_expression
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


@of_methods
class Retiming(Verbs[Stream, Windowed, DataWindowed]):
    """Verbs of a stream that change lifetimes."""

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

        An argument that is left out keeps the start, or the end (a new start alone does not move the end).
        An event whose new lifetime is empty is dropped, as in Trill; a null is an error.

        Args:
            start: A timestamp expression.
            duration: A span, or a duration expression; counted from the new start.
            end: A timestamp expression, instead of a duration.

        Raises:
            PlanError: Both duration and end are given, or no argument is, or an expression has another type.

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
                return self._change(SetDuration(length))
            duration = nw.lit(length).cast(nw.Duration("us"))
        start, end = (None if each is None else as_expression(each, where="alter_lifetime") for each in (start, end))
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

        An event whose lifetime becomes empty is dropped; an open end stays open.

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
        """Every event one tick long, at its end; an event that never ends is dropped (Trill: PointAtEnd).

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
        If ``every`` is longer than ``size``, an event between two windows is dropped, and the others live as long as a
        window, ``[T, T + size)``, as in Trill; ``hopping(size, every, membership="start")`` reports on all of
        ``[T, T + every)``.

        Args:
            size: The length of a window.
            every: From one grid point to the next; by default ``size``.
            align: A point of the grid; by default 0001-01-01T00:00Z.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [3], "v": [1]}), start="at", unit="s").hop_lifetime("10s", "5s")
            >>> [str(t) for t in (s.collect()["start"][0], s.collect()["end"][0])]
            ['1970-01-01 00:00:05+00:00', '1970-01-01 00:00:15+00:00']
        """
        length = positive_ticks(size, name="size")
        hop = length if every is None else positive_ticks(every, name="every")
        return self._change(HopLifetime(length, hop, aligned(align)))

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
            size: The length of a window.
            every: From one grid point to the next; by default ``size``.
            align: A point of the grid; by default 0001-01-01T00:00Z.
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
        return self._change(Quantize(length, hop, aligned(align), finer))

    def chop(self, period: Duration, *, align: Instant | None = None) -> Stream:
        """Lifetimes cut at the grid ``align + k * period``; each piece keeps the payload (Trill: Chop).

        Args:
            period: From one cut to the next.
            align: A point of the grid; by default 0001-01-01T00:00Z.

        Raises:
            TimeError: (when data is read) An event never ends; bound it with `clip_duration` or `alter_lifetime` first.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> rides = g.events(pa.table({"a": [50], "b": [70], "zone": [1]}), start="a", end="b", unit="s")
            >>> rides.chop("1min").collect().num_rows
            2
        """
        return self._with(Chop(self._node, positive_ticks(period, name="period"), aligned(align)))

    def stitch(self, *, on: str | Sequence[str] | None = None) -> Stream:
        """Events of equal payload joined where one ends exactly at the start of another (Trill: Stitch).

        Payloads are compared as keys are: null equals null, NaN equals NaN, and -0.0 equals 0.0 and becomes 0.0. If
        several events fit, the one that started first is joined first.

        Args:
            on: The columns that must be equal; by default all. The other columns are those of the event that starts the
                joined one. If several events of one group (equal in ``on``) start at one time, all of them get the
                other columns of the first by payload, from left to right with null first, whichever ends first and
                whichever is joined to which.

        Raises:
            ColumnError: A column is unknown, or a payload column is nested.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"a": [0, 5], "b": [5, 9], "zone": [1, 1]}), start="a", end="b", unit="s")
            >>> s.stitch().collect().num_rows
            1
            >>> s = g.events(
            ...     pa.table({"a": [0, 5], "b": [5, 9], "zone": [1, 1], "fare": [3, 4]}), start="a", end="b", unit="s"
            ... )
            >>> s.stitch(on="zone").collect().select(["zone", "fare"]).to_pylist()
            [{'zone': 1, 'fare': 3}]
        """
        compared_names = () if on is None else tuple(dict.fromkeys(names(on, where="stitch(on=…)")))
        known = self._node.schema.names
        if on is not None and not compared_names:
            raise PlanError(
                "stitch(on=…) names no column.", remedy='Name one, stitch(on="zone"), or leave on= out for all.'
            )
        # Each group of an `apply` is stitched by itself. To name all columns is to name none.
        compared = tuple(dict.fromkeys((*self._node.scope, *compared_names))) if compared_names else ()
        return self._with(Stitch(self._node, () if set(known) <= set(compared) else compared))

    def _change(self, change: Change) -> Stream:
        return self._with(Lifetime(self._node, change))
