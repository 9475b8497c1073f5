"""The verbs of windows that give rows: ranked rows, all rows, or a function's rows. `gpu_ops.Windowed` has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from gpu_ops.api.base import DataWindowed, Filling, Stream, Verbs, Windowed
from gpu_ops.core.arguments import flag
from gpu_ops.core.own_errors import of_methods
from gpu_ops.core.time import LIFETIME
from gpu_ops.errors import ColumnError, PlanError, unknown_column
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.arguments import names
from gpu_ops.plan.expressions import Expression
from gpu_ops.plan.fills import filled
from gpu_ops.plan.nodes import KeyBy, Node, selected
from gpu_ops.plan.ordered_aggregates import RANK, every_row, ranked
from gpu_ops.plan.own_functions import table_function
from gpu_ops.plan.unnest import Unnest
from gpu_ops.plan.window_kinds import TimeWindowKind
from gpu_ops.plan.windows import aggregated

_ROWS = "__rows"


@of_methods
class Ranking(Verbs[Stream, Windowed, DataWindowed]):
    """Verbs that give any number of rows for each window."""

    def __init__(self, node: Node, window: TimeWindowKind, filling: Filling = None) -> None:
        super().__init__(node)
        self._window = window
        self._filling = filling

    def top(self, k: int, *, by: Expression, descending: bool = True) -> Stream:
        """The first k events of each window and group by an order, each as a row with its payload and its ``rank``.

        Ranks are SQL's RANK, from 1 on: events with equal ``by`` have one rank, and all events equal to the k-th are in
        the result (Trill: TopK). An event whose ``by`` is null has no rank.

        Args:
            k: The number of events.
            by: A column's name or an expression of any type that has an order.
            descending: Whether the greatest come first.

        Returns:
            A stream of the key's columns, ``rank``, and the payload's other columns, no longer grouped; lifetimes are
            those of the windows.

        Raises:
            ColumnError: The payload has a column ``rank``, or ``by`` has no order.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> bids = pa.table({"at": [0, 1, 2, 3], "who": ["a", "b", "c", "d"], "price": [3, 9, 4, 4]})
            >>> best = g.events(bids, start="at", unit="s").tumbling("1min").top(2, by="price")
            >>> best.collect().select(["rank", "who"]).to_pylist()
            [{'rank': 1, 'who': 'b'}, {'rank': 2, 'who': 'c'}, {'rank': 2, 'who': 'd'}]
        """
        payload = self._payload_beside("rank", verb="top")
        return self._rows(ranked(by, k, payload, descending=flag(descending, name="descending")))

    def rows(self) -> Stream:
        """The events of each window and group, each as a row with its payload.

        An event that is in several windows gives a row for each, which may be many.

        Returns:
            A stream of the key's columns, the payload's others, and the event's own lifetime as ``event_start`` and
            ``event_end``, no longer grouped; lifetimes are those of the windows. An ``until=`` of the windows decides
            which windows hold an event, but does not clip ``event_end``.

        Raises:
            ColumnError: The payload has one of these columns.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> bids = pa.table({"at": [0, 6], "price": [3, 9]})
            >>> rows = g.events(bids, start="at", unit="s").hopping("10s", "5s").rows().collect()
            >>> sorted((row["start"].second, row["price"]) for row in rows.to_pylist())
            [(0, 3), (0, 9), (5, 9), (55, 3)]
        """
        payload = self._payload_beside("event_start", "event_end", verb="rows")
        made = self._rows(every_row(payload))._node  # noqa: SLF001  (its own kind)
        return self._with(selected(made, [name for name in made.schema.names if name != RANK]))

    def apply(
        self,
        function: Callable[..., Any],
        *,
        schema: pa.Schema,
        of: Sequence[str] | None = None,
        time_sensitive: bool = False,
        clip: bool = False,
    ) -> Stream:
        """The rows that a function of your own makes of each window (StreamInsight: a user-defined operator).

        Rows are in order of their start, then of their values. The function is called once for each stretch of time in
        which the window holds the same events, and must return the same rows for the same table.

        Args:
            function: From an Arrow table of the window's events to any number of rows: a table, a dictionary of
                columns, a list of dictionaries, or None.
            schema: The rows' columns; the group's own columns are added.
            of: The columns that the function reads; by default the whole payload.
            time_sensitive: As in `gpu_ops.window_function`: the table has ``start`` and ``end``, and the function is
                called with ``(table, start, end)``, the window's bounds.
            clip: Whether these columns are clipped to the window.

        Returns:
            A stream of the group's columns and the schema's; lifetimes are those of the windows.

        Raises:
            FunctionError: (when data is read) The function failed, or its rows do not fit; it names the window.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> bids = pa.table({"at": [0, 1, 2], "price": [3, 9, 4]})
            >>> windows = g.events(bids, start="at", unit="s").tumbling("1min")
            >>> steps = windows.apply(
            ...     lambda table: [{"step": price.as_py() * 10} for price in table["price"] if price.as_py() > 3],
            ...     schema=pa.schema([("step", pa.int64())]),
            ... )
            >>> steps.collect()["step"].to_pylist()
            [90, 40]
        """
        if not isinstance(schema, pa.Schema):
            raise PlanError(
                f"apply(schema=…) takes an Arrow schema, not {type(schema).__name__}.",
                remedy='Write pa.schema([("price", pa.float64())]).',
            )
        known = self._node.schema.names
        read = tuple(dict.fromkeys(known if of is None else names(of, where="apply(…, of=…)")))
        for name in read:
            if name not in known:
                raise unknown_column(name, known)
        for at, name in enumerate(schema.names):
            if name in schema.names[:at]:
                raise ColumnError("The schema has two columns of one name.", column=name, remedy="Rename one.")
            if name in (*self._node.key, *LIFETIME):
                raise ColumnError(
                    "A row already has the group's columns and its window's lifetime.",
                    column=name,
                    remedy="Leave it out of the schema, or give it another name.",
                )
        return self._rows(table_function(function, schema, read, time_sensitive=time_sensitive, clip=clip))

    def _payload_beside(self, *added: str, verb: str) -> pa.Schema:
        """The payload without the key. A column that the verb adds must not be in it."""
        for name in added:
            if name in self._node.schema.names:
                raise ColumnError(
                    f"{verb} adds a column {name}, and there is one.",
                    column=name,
                    remedy="Give yours another name: .select(…).",
                )
        return pa.schema([field for field in self._node.schema if field.name not in self._node.key])

    def _rows(self, aggregate: Aggregate) -> Stream:
        if self._filling is not None:
            raise PlanError("A window without events has no rows to fill.", remedy="Leave fill= out.")
        return self._results(Unnest(self._aggregated({_ROWS: aggregate}), _ROWS))

    def _aggregated(self, aggregates: Mapping[str, object]) -> Node:
        """The node of aggregates over each window."""
        windows, combined = aggregated(self._node, self._window, aggregates)
        results = combined or windows
        return results if self._filling is None else filled(results, windows, *self._filling)

    def _results(self, made: Node) -> Stream:
        """Results of windows as a stream: no longer grouped, but for the groups of an `apply`."""
        return self._with(made if made.key == made.scope else KeyBy(made, made.scope))
