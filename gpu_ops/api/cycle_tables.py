"""The verbs of queries over several partitions: their contents, cycle by cycle, as streams that other verbs combine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw

from gpu_ops.api.cycles import CyclePartition
from gpu_ops.api.stream import Stream
from gpu_ops.core.cycles import DEAD, NEW, STATUS
from gpu_ops.core.own_errors import of_methods, own_errors
from gpu_ops.errors import PlanError, UnknownNameError
from gpu_ops.errors import shown as said
from gpu_ops.plan.cycle_chains import rows_of
from gpu_ops.plan.cycles import AtCycles, NumberedCycles, beats_of, became, table_in_cycles
from gpu_ops.plan.nodes import Node, Project, extended, selected

_WORDS = nw.when(nw.col(STATUS) == NEW).then(nw.lit("new")).otherwise(nw.lit("old"))


@own_errors
def cycle_tables(**partitions: CyclePartition) -> CycleTables:
    """Partitions as tables of one query: each cycle sees what they hold then (StreamCruncher: joins of partitions).

    The streams that it gives are points on an axis of cycles, and rows of one cycle meet: joins of all kinds, `union`,
    `distinct` and `by(…).snapshot().agg(…)` are those of each cycle. A partition may be taken twice, to be joined with
    itself (``self#``). `CycleTables.answer` gives the result its times.

    Args:
        partitions: The partitions, of one `gpu_ops.cycles`, by names.

    Raises:
        PlanError: They are none, or not of one `cycles`.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> def told(at, order):
        ...     return g.events(pa.table({"at": at, "order": order}), start="at", unit="s")
        >>> ordered, shipped = g.cycles(told([0, 1], [7, 8]), told([3, 9], [7, 8]))
        >>> tables = g.cycle_tables(
        ...     ordered=ordered.partition().last_span("5s"), shipped=shipped.partition().last_span("5s")
        ... )
        >>> both = tables.new("shipped").join(tables.not_dead("ordered"), on="order")
        >>> [(str(row["start"].time()), row["order"]) for row in tables.answer(both).collect().to_pylist()]
        [('00:00:03', 7)]
        >>> missing = tables.dead("ordered").join(tables.any_status("shipped"), on="order", how="anti")
        >>> [(str(row["start"].time()), row["order"]) for row in tables.answer(missing).collect().to_pylist()]
        [('00:00:06', 8)]
    """
    given: Any = partitions
    if not given or not all(isinstance(each, CyclePartition) for each in given.values()):
        raise PlanError("cycle_tables takes partitions by names.", remedy="Write orders=coming.partition().last(9).")
    if len({(each._chain.schedule, each._until) for each in partitions.values()}) > 1:  # noqa: SLF001
        raise PlanError("The partitions are not of one g.cycles(…).", remedy="Make all of the streams of one.")
    return CycleTables(partitions)


@of_methods
class CycleTables:
    """The partitions of one query. Made by `gpu_ops.cycle_tables`.

    Args:
        partitions: The partitions by their names.
    """

    def __init__(self, partitions: Mapping[str, CyclePartition]) -> None:
        some = list(partitions.values())
        self._schedule, self._until = some[0]._chain.schedule, some[0]._until  # noqa: SLF001  (the nodes of verbs)
        self._partitions = dict(partitions)
        rows, self._beats = rows_of([each._chain for each in some], self._until)  # noqa: SLF001
        self._rows = dict(zip(partitions, rows, strict=True))

    def new(self, name: str) -> Stream:
        """The rows of a partition, in the cycle that let them in.

        Raises:
            UnknownNameError: There is no such partition.
        """
        return self._shown(name, became(self._of(name), "new"))

    def dead(self, name: str) -> Stream:
        """The rows of a partition, in the cycle that expelled them; errors as `new`."""
        return self._shown(name, became(self._of(name), "dead"))

    def not_dead(self, name: str, *, while_: Stream | None = None) -> Stream:
        """All rows of a partition, in each cycle; errors as `new`.

        Args:
            name: The partition.
            while_: A stream of this object: the rows are those of its cycles alone, which is less work.
        """
        beats = self._beats if while_ is None else beats_of(while_._node)  # noqa: SLF001  (the nodes of verbs)
        return self._shown(name, AtCycles(self._of(name), beats))

    def any_status(self, name: str) -> Stream:
        """All rows of a partition, and those that have just been expelled, in each cycle.

        Returns:
            A stream with one column more, ``status``: ``"new"``, ``"old"`` or ``"dead"``.
        """
        stated = AtCycles(self._of(name), self._beats, stated=True)
        words = nw.when(nw.col(STATUS) == DEAD).then(nw.lit("dead")).otherwise(_WORDS).alias("status")
        columns = [nw.col(each) for each in self._partitions[name].schema.names]
        return Stream(Project(extended(stated, [words]), (*columns, nw.col("status")), keep=False))

    def table(self, rows: Stream) -> Stream:
        """Rows that are there from their starts to their ends by the clock, in each cycle in between: a plain table."""
        on_cycles = table_in_cycles(rows._node, self._schedule)  # noqa: SLF001  (the nodes of verbs)
        return Stream(selected(AtCycles(on_cycles, self._beats), rows.schema.names))

    def answer(self, rows: Stream) -> Stream:
        """Rows of cycles at the times that the clock showed, with the number of the ``cycle`` among all of the query.

        Args:
            rows: What was made of the streams of this object.
        """
        return Stream(NumberedCycles(rows._node, self._beats, self._schedule, self._until))  # noqa: SLF001

    def _of(self, name: str) -> Node:
        if name not in self._rows:
            raise UnknownNameError(
                f"There is no partition {said(name)} here.", remedy=f"There are {', '.join(self._rows)}."
            )
        return self._rows[name]

    def _shown(self, name: str, points: Node) -> Stream:
        return Stream(selected(points, self._partitions[name].schema.names))
