"""The verbs of data windows that make batches: events gather and enter together. `gpu_ops.Stream` has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import narwhals as nw

from gpu_ops.api.base import DataWindowed, Stream, Verbs, Windowed
from gpu_ops.api.time_windows import aligned
from gpu_ops.core.arguments import flag, whole, word
from gpu_ops.core.own_errors import of_methods
from gpu_ops.core.time import MIN_TIME, Duration, Instant, instant, positive_ticks
from gpu_ops.errors import PlanError
from gpu_ops.plan.arguments import OrderBy, several
from gpu_ops.plan.calendars import Calendar, anchored, calendar_span
from gpu_ops.plan.data_windows import DataWindow, Last, TimeBatches, TimeLengthBatches
from gpu_ops.plan.expressions import Expression, bare_column
from gpu_ops.plan.nodes import Node, extended
from gpu_ops.plan.window_conditions import Until, window_condition
from gpu_ops.plan.window_kinds import DataWindowKind


@of_methods
class Batching(Verbs[Stream, Windowed, DataWindowed]):
    """Verbs of a stream that make data windows of batches."""

    def batches(self, n: int, *, order: OrderBy = None) -> DataWindowed:
        """Batches of n rows: a batch is in from its last row's start until the next batch (Esper: length_batch).

        Args:
            n: The number of rows.
            order: As in `last`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1, 2, 3, 4], "v": [1, 2, 3, 4, 5]}), start="at", unit="s")
            >>> s.batches(2).agg(total=g.sum("v")).collect().sort_by("start")["total"].to_pylist()
            [3, 7]
        """
        size = whole(n, name="n")
        return self._data_window(Last(size, size, partial=False), order=order)

    def time_batches(self, span: Duration, *, align: Instant | None = "first", zone: str | None = None) -> DataWindowed:
        """The events of each span of time; they are in during the next span (Esper: time_batch).

        Args:
            span: A positive span; with ``zone`` a calendar span: ``"1d"``, ``"2w"``, ``"1mo"``, ``"1q"``, ``"1y"``.
            align: A point at which a span begins; ``"first"``: the start of each group's first event; None:
                0001-01-01T00:00.
            zone: Spans are whole days, weeks, months, quarters or years on the clocks of this time zone.

        Raises:
            PlanError: ``zone`` is given with ``align="first"``, or without a calendar span.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [2, 3, 15], "v": [1, 2, 3]}), start="at", unit="s")
            >>> r = s.time_batches("10s").agg(total=g.sum("v")).collect().sort_by("start")
            >>> [t.second for t in r["start"].to_pylist()], r["total"].to_pylist()
            ([12, 22], [3, 3])
            >>> months = s.time_batches("1mo", zone="UTC", align=None).agg(total=g.sum("v")).collect()
            >>> [str(t.date()) for t in months["start"].to_pylist()], months["total"].to_pylist()
            (['1970-02-01'], [6])
        """
        if zone is not None:
            return self._data_window(TimeBatches(0, MIN_TIME, _calendar(span, zone, align)))
        grid = None if isinstance(align, str) and align == "first" else aligned(align)
        return self._data_window(TimeBatches(positive_ticks(span, name="span"), grid))

    def time_length_batches(
        self,
        span: Duration,
        n: int,
        *,
        since: Instant | None = None,
        idle: Literal["stop", "run"] = "stop",
        order: OrderBy = None,
    ) -> DataWindowed:
        """Batches that are complete with n events, or when a clock runs out (Esper: time_length_batch).

        A group's first event sets the clock to ``span``. It is set again whenever a batch is complete, and once more if
        it runs out without an event; after that the next event sets it. A batch is in until the next batch is complete,
        or until the clock runs out without an event. An event at that very time belongs to the next batch.

        Args:
            span: A positive span.
            n: The most events of a batch.
            since: When the clock is first set (Esper: START_EAGER); by default each group's first event sets it.
            idle: What the clock does when it has run out twice without an event: ``"stop"``, or ``"run"`` on forever
                (Esper: FORCE_UPDATE).
            order: As in `last`.

        Raises:
            PlanError: ``idle`` is unknown.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1, 2, 35], "v": [1, 2, 3, 4]}), start="at", unit="s")
            >>> r = s.time_length_batches("10s", 2).agg(total=g.sum("v")).collect().sort_by("start")
            >>> [t.second for t in r["start"].to_pylist()], r["total"].to_pylist()
            ([1, 11, 45], [3, 3, 4])
            >>> runs = s.time_length_batches("10s", 2, idle="run").agg(total=g.sum("v")).collect().sort_by("start")
            >>> [t.second for t in runs["start"].to_pylist()]
            [1, 11, 41]
        """
        word(idle, ["stop", "run"], name="idle")
        begins = None if since is None else instant(since, name="since")
        window = TimeLengthBatches(positive_ticks(span, name="span"), whole(n, name="n"), begins, idle == "run")
        return self._data_window(window, order=order)

    def batches_until(
        self, condition: Expression, *, include_trigger: bool = True, order: OrderBy = None
    ) -> DataWindowed:
        """Events gather until a condition on them holds; then they are a batch (Esper: expr_batch).

        A batch is in from the start of the event that makes the condition hold until the next batch is complete.

        Args:
            condition: As in `keep_while`; it is evaluated as each event comes.
            include_trigger: Whether the event that makes it hold belongs to this batch, or is the first of the next.
            order: As in `last`.

        Raises:
            PlanError: As `keep_while`.
            ColumnError: As `keep_while`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1, 2, 3], "v": [4, 9, 5, 8]}), start="at", unit="s")
            >>> s.batches_until(g.window.sum("v") > 10).agg(n=g.count(), v=g.sum("v")).collect().sort_by("start")[
            ...     "v"
            ... ].to_pylist()
            [13, 13]
        """
        made = window_condition(self._node.schema, condition, where="batches_until")
        return self._data_window(Until(made, flag(include_trigger, name="include_trigger")), order=order)

    def _data_window(
        self,
        window: DataWindowKind,
        *,
        within: tuple[str, ...] = (),
        order: OrderBy = None,
        hidden: Mapping[str, nw.Expr] | None = None,
    ) -> DataWindowed:
        node, columns = self._ordered(order, hidden)
        return self._data_windows(DataWindow(node, window, within, columns), tuple(self._node.schema.names))

    def _ordered(self, order: OrderBy, hidden: Mapping[str, nw.Expr] | None = None) -> tuple[Node, tuple[str, ...]]:
        """The events with columns for hidden expressions and for an order, and the names of the order's columns."""
        made, columns = dict(hidden or {}), []
        for at, expression in enumerate(several(order, where="order=")):
            name = bare_column(expression) or f"__order_{at}"
            columns.append(name)
            if name.startswith("__order_"):
                made[name] = expression
        return extended(self._node, (each.alias(name) for name, each in made.items())), tuple(columns)


def _calendar(span: Duration, zone: str, align: Instant | None) -> Calendar:
    if isinstance(align, str) and align == "first":
        raise PlanError(
            "Calendar spans begin at a time that all groups share.",
            remedy="Set align= to a point at which a span begins, or to None for midnights and firsts of months.",
        )
    size = calendar_span(span, name="span")
    return Calendar(size, size, zone, anchored(zone, align, size))
