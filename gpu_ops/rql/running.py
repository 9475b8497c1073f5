"""A query that runs: what it makes of each step, and whom it tells."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.cycles import CYCLE_NUMBER, MS
from gpu_ops.core.turns import ORDER
from gpu_ops.devices import Device
from gpu_ops.errors import PlanError, shown
from gpu_ops.operators.runtime.steps import RunningNode
from gpu_ops.plan.expression_text import for_readers
from gpu_ops.plan.nodes import Feed, Node
from gpu_ops.rql.planning.planned import PlannedQuery, plan_columns
from gpu_ops.texts.feeding import PlacedRows, TickRows, leaves_of, stepped_node

AT = "at"
"""The column of results with the milliseconds that the clock showed in the cycle."""


@dataclass(frozen=True)
class CycleResult:
    """The rows that a query gives in one cycle.

    Attributes:
        query: The query's name.
        cycle: The number of the cycle among those of the query, from 0 on.
        at: What the clock showed, in milliseconds since 1970.
        rows: The rows, in the order that the query says.
    """

    query: str
    cycle: int
    at: int
    rows: pa.Table


CycleListener = Callable[[CycleResult], None]


@dataclass(eq=False)
class RunningCycles:
    """A registered query. `Runtime.register` makes it.

    Attributes:
        name: Its name.
        text: Its text.
        settings: What was said of it beside its text, as it was said.
        plan: What it computes.
        failed: Why it does not run any more; None while it runs.
        kept: What it gave since `results` was called last; None before the first call.
    """

    name: str
    text: str
    settings: Mapping[str, Any]
    plan: PlannedQuery
    _device: Device
    _running: RunningNode
    errors: list[tuple[str, Exception]]
    failed: BaseException | None = None
    kept: list[pa.Table] | None = None
    _listeners: list[CycleListener] = field(default_factory=list)
    _keeping: threading.Lock = field(default_factory=threading.Lock)

    def __repr__(self) -> str:
        return f"<{'failed q' if self.failed else 'Q'}uery {self.name!r}: {self.text}>"

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        return self.plan.columns

    @property
    def result_schema(self) -> pa.Schema:
        """The columns of `results`."""
        return pa.schema([(CYCLE_NUMBER, pa.int64()), (AT, pa.int64()), *self.schema])

    def listen(self, listener: CycleListener) -> None:
        """Have a function called for each cycle that gives rows. If it raises, that is noted in `Runtime.errors`.

        Args:
            listener: Takes a `CycleResult`. It may send events itself.
        """
        if not callable(listener):
            raise PlanError(f"listener is {shown(listener)}.", remedy="It is a function of one: a CycleResult.")
        self._listeners.append(listener)

    def results(self) -> pa.Table:
        """What it gave since the last call: `cycle`, `at` (milliseconds since 1970), and its columns.

        The first call begins to keep results.
        """
        with self._keeping:
            kept, self.kept = self.kept, []
        return pa.concat_tables(kept) if kept else self.result_schema.empty_table()

    @for_readers()
    def explain(self) -> str:
        """The plan: its nodes, each after those that it reads."""
        return "\n".join(node.describe() for node in self.plan.node.walk())

    @property
    def nodes(self) -> list[RunningNode]:
        """What runs, each node after those that it reads."""
        return self._running.walk()

    @cached_property
    def reads(self) -> dict[Node, list[str]]:
        """The leaves of the plan, and which of their columns it reads."""
        return leaves_of(self.plan.node)

    def step(self, arrived: Mapping[Feed, PlacedRows], ticks: tuple[Feed, TickRows | None], cti: int) -> pa.Table:
        """The results that become final: columns as `result_schema`, in order of cycles.

        Args:
            arrived: The rows of each leaf.
            ticks: The leaf of ticks, and the ticks.
            cti: The place of the next turn.
        """
        results = stepped_node(self._running, self._device, self.reads, arrived, ticks, cti)
        schema, columns = self.plan.node.schema, self._device.columns
        tables = []
        for events in results.events:
            if len(events):
                table = columns.to_arrow(events.frame, schema)
                tables.append(table.append_column(AT, pa.array(columns.host(events.start) // MS, pa.int64())))
        if not tables:
            return self.result_schema.empty_table()
        made = tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()
        keys = [made[CYCLE_NUMBER].to_numpy()]
        if self.plan.ordered:
            keys.insert(0, made[ORDER].to_numpy())
        made = made.take(np.lexsort(keys))
        number, *own = plan_columns(self.plan)
        return pa.table([made[number], made[AT], *(made[name] for name in own)], self.result_schema)

    def keep(self, made: pa.Table) -> None:
        """Have results that `results` gives, if it was called before."""
        with self._keeping:
            if self.kept is not None and len(made):
                self.kept.append(made)

    def tell(self, result: CycleResult) -> None:
        """Hand the rows of a cycle to the listeners."""
        for listener in tuple(self._listeners):
            try:
                listener(result)
            except Exception as error:  # noqa: BLE001  (a listener that raises stops nothing)
                self.errors.append((self.name, error))

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)


def cycles_in(name: str, made: pa.Table) -> Iterator[CycleResult]:
    """The results of some cycles, each cycle by itself: slices of one table."""
    numbers, times = made[CYCLE_NUMBER].to_numpy(), made[AT].to_numpy()
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    rows = made.select(range(2, made.num_columns))
    for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
        yield CycleResult(name, int(numbers[start]), int(times[start]), rows.slice(start, end - start))
