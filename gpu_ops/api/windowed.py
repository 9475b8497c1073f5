"""What windows give: aggregates over each; of data windows also the events that are in, come and go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import narwhals as nw

from gpu_ops.api.top_k import Ranking
from gpu_ops.api.window_sets import Combining
from gpu_ops.core.other_names import OtherNames
from gpu_ops.core.own_errors import of_methods
from gpu_ops.core.time import TICK
from gpu_ops.errors import ColumnError, PlanError, unknown_column
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.combinations import Combinable, hangs_on_bounds
from gpu_ops.plan.data_windows import STATUS, DataWindow, Output
from gpu_ops.plan.expressions import LIFETIME, bare_column, column_names
from gpu_ops.plan.fills import filled
from gpu_ops.plan.lifetimes import Lifetime, Shift, ToPoint
from gpu_ops.plan.nodes import Node, Project
from gpu_ops.plan.window_kinds import DataWindowKind, TimeWindowKind
from gpu_ops.plan.windows import Snapshot, WindowAggregate, aggregated, by_name

if TYPE_CHECKING:
    from gpu_ops.api.stream import Stream


@of_methods
class Windowed(Ranking, OtherNames):
    """Windows over a stream, waiting for what to compute over each of them."""

    _known_as = "windows"

    def __init__(
        self, node: Node, window: TimeWindowKind, filling: tuple[Any, tuple[int, int] | None] | None = None
    ) -> None:
        self._node = node
        self._window = window
        self._filling = filling

    def __repr__(self) -> str:
        return f"<Windowed {self._window}>"

    def agg(self, *aggregates: Any, **named: Any) -> Stream:
        """One event per window and group that holds any event.

        Args:
            aggregates: Aggregates that keep the names of their columns, as expressions do in `Stream.select`:
                ``g.sum("price")`` gives ``price``, and ``g.count()`` gives ``count``.
            named: ``name=aggregate``, for instance ``n=g.count(), best=g.max("price")``, or what aggregates come
                to: ``each=g.sum("price") / g.count()``.

        Returns:
            A stream of the group's columns and the aggregates, not grouped any more; lifetimes are those of the
            windows. It is a stream as any other: windows nest.

        Raises:
            PlanError: Not an aggregate, an unknown column, or a type that the aggregate does not take.
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

    def _aggregated(self, aggregates: Mapping[str, object]) -> Node:
        filling = self._filling
        fill = None if filling is None else lambda results, windows: filled(results, windows, *filling)
        return aggregated(self._node, self._window, aggregates, fill=fill)


@of_methods
class DataWindowed(Combining, Windowed):
    """A data window: events that enter and leave it. Made by the verbs of a stream, as `last` or `session`.

    Aggregates are over what is in; there is a result for each stretch in which that stays the same. Where they ask for
    ``start`` or ``end``, for an order or as a function of yours, it is the event's own.
    """

    def __init__(
        self,
        below: Node,
        window: DataWindowKind,
        within: tuple[str, ...],
        order: tuple[str, ...],
        names: tuple[str, ...],
    ) -> None:
        self._below, self._kind, self._within, self._order, self._names = below, window, within, order, names
        super().__init__(self._given("alive"), Snapshot())

    def __repr__(self) -> str:
        return f"<{self._window_node('alive').describe()}>"

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
        if self._kind.counts == "starts":
            made = Lifetime(Lifetime(made, ToPoint()), Shift(TICK))
        return super()._results(made)

    def _aggregated(self, aggregates: Mapping[str, object]) -> Node:
        """Of events with the lifetimes that they have themselves, and not those for which they are in."""
        core, combined = self._parts(aggregates)
        changed = LIFETIME if self._kind.enters != "at its start" else ("end",)
        if not any(column_names(each, changed) for aggregate in core.aggregates for each in aggregate.reads):
            return super()._aggregated(aggregates)
        below, lowered = self._below_of(core)
        alive = DataWindow(below, self._kind, self._within, self._order)
        windows = replace(core, input=alive, aggregates=lowered)
        return windows if combined is None else replace(combined, input=windows)

    def rows(self) -> Stream:
        """The events, each for as long as it is in; those that are never in are gone. They are not grouped any more.

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
        """A point for each event when it enters (Esper: istream); they are not grouped any more.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1, 5], "v": [1, 2, 3]}), start="at", unit="s")
            >>> s.batches(2).insert_stream().collect()["v"].to_pylist()
            [1, 2]
        """
        return super()._results(self._given("insert"))

    def remove_stream(self) -> Stream:
        """A point for each event when it leaves (Esper: rstream); they are not grouped any more.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1, 5], "v": [1, 2, 3]}), start="at", unit="s")
            >>> s.last(1).remove_stream().collect()["v"].to_pylist()
            [1, 2]
        """
        return super()._results(self._given("remove"))

    def changes(self) -> Stream:
        """Both, with a column ``status``: ``"new"`` or ``"dead"`` (Esper: irstream; StreamCruncher: row status).

        An event that enters and leaves at one tick is both there, though it is never among `rows`. What is given is not
        grouped any more.

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
        """One row for each event that enters: its payload, beside aggregates over what is in right after that.

        Events of one start enter one after the other, as the window takes them (Esper: a query that selects both
        columns and aggregates). Those of a batch enter together.

        Args:
            aggregates: As in `Windowed.agg`.
            named: As in `Windowed.agg`.

        Returns:
            A stream of the payload and the aggregates, not grouped any more; lifetimes are points at which the events
            enter.

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
        asked = by_name(self._below, aggregates, named, where="each")
        for name, aggregate in asked.items():
            if isinstance(aggregate, Combinable) and hangs_on_bounds(aggregate.within(Snapshot())):
                raise PlanError(
                    f"each({name}=…) depends on how long a window lasts, and a row for each event lasts a tick.",
                    remedy="Take it from .agg(…), or a rate over a span: g.rate('1s', over='1min').",
                )
        core, combined = self._parts(asked)
        below, lowered = self._below_of(core)
        node = DataWindow(below, self._kind, self._within, self._order, "each", lowered)
        columns = [nw.col(name) for name in self._names]
        if combined is None:
            columns += [nw.col(name) for name in asked]
            return super()._results(Project(node, tuple(columns), keep=False))
        columns += combined.expressions[len(core.group) :]
        return super()._results(Project(node, tuple(columns), keep=False, said=combined.said))

    def _parts(self, aggregates: Mapping[str, object]) -> tuple[WindowAggregate, Project | None]:
        """Aggregates over the events that come in, and what combines them, if anything does."""
        made = aggregated(self._below, Snapshot(), aggregates)
        combined = made if isinstance(made, Project) else None
        core = made if combined is None else combined.input
        assert isinstance(core, WindowAggregate)  # noqa: S101  (a combination stands on nothing else)
        return core, combined

    def _below_of(self, core: WindowAggregate) -> tuple[Node, tuple[Aggregate, ...]]:
        """The events that come in, with a column more for each expression that aggregates are over, and these."""
        lowered = core.lowered()
        if lowered is core:
            return self._below, core.aggregates
        assert isinstance(lowered.input, Project)  # noqa: S101  (of what aggregates are over)
        hidden = tuple(each for each in lowered.input.expressions if bare_column(each) is None)
        return Project(self._below, hidden, keep=True) if hidden else self._below, lowered.aggregates

    def _prior(self, columns: tuple[tuple[str, Any], ...]) -> Stream:
        for name, column in columns:
            if not isinstance(column, str) or column not in self._names:
                raise unknown_column(column, list(self._names))
            if name in (*self._names, *LIFETIME):
                raise ColumnError("The stream has this column already.", column=name, remedy="Give another name.")
        node = DataWindow(self._below, self._kind, self._within, self._order, "prior", prior=columns)
        if self._below.schema.names == list(self._names):
            return _stream(node)
        shown = (*self._names, *(name for name, _ in columns))
        return _stream(Project(node, tuple(nw.col(name) for name in shown), keep=False))

    def _window_node(self, output: Output) -> DataWindow:
        return DataWindow(self._below, self._kind, self._within, self._order, output)

    def _given(self, output: Output) -> Node:
        node = self._window_node(output)
        if self._below.schema.names == list(self._names):
            return node
        shown = (*self._names, STATUS) if output == "changes" else self._names
        return Project(node, tuple(nw.col(name) for name in shown), keep=False)


def _stream(node: Node) -> Stream:
    from gpu_ops.api.stream import Stream

    return Stream(node)
