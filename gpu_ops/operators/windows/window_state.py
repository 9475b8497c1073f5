"""What a running window remembers: rows, totals and extremes; as tables they are written, declared and read back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import integers
from gpu_ops.core.state_parts import Parts, in_parts
from gpu_ops.core.state_tables import Field, Mask, RowRule, StateTable, Tables
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Block, PartName, column_name, load_columns
from gpu_ops.operators.aggregates.forms import ranked_by
from gpu_ops.operators.aggregates.selection import Extremum
from gpu_ops.operators.state.fields import AFTER, clock, extent, row_columns, table_of
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows
from gpu_ops.operators.windows.incremental_block import ROWS, Totals, stored
from gpu_ops.operators.windows.order_statistics import OrderStatistics
from gpu_ops.operators.windows.pareto_runs import ParetoRuns
from gpu_ops.operators.windows.value_counts import CODES as CODES_OF_VALUES
from gpu_ops.operators.windows.value_counts import ValueCounts
from gpu_ops.operators.windows.window_operator import WindowOperator
from gpu_ops.plan.aggregate_kinds import kind_named
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.windows import WindowAggregate

_NULLABLE = {"column": Field(pa.string()), "form": Field(pa.string())}
"""The columns of which a value was ever null, and their forms."""

_ROWS = stored(ROWS[0], (*ROWS[1:], "0"))
"""The column with the number of live events of each group."""


class WindowState(WindowOperator, family=True):
    """The state of a running window; `IncrementalWindow` steps it.

    Args:
        node: The node, lowered to plain columns.
        device: Where arrays live.
    """

    def __init__(self, node: WindowAggregate, device: Device) -> None:
        self._waiting, self._ending = RowRuns(("low",), device), RowRuns(("high",), device)
        super().__init__(node, device, {"waiting": self._waiting, "ending": self._ending})
        self._totals = Totals()
        self._nullable: set[tuple[str, str]] = set()
        ranked: dict[tuple[str, str], None] = {}
        self._orders: dict[PartName, OrderStatistics] = {}
        self._ordered: dict[PartName, Aggregate] = {}
        self._values: dict[str, ValueCounts] = {}
        self._best: dict[PartName, ParetoRuns] = {}
        self._read: list[Aggregate] = []
        for aggregate in node.aggregates:
            keeps, read = aggregate.keeps(node.input.schema), replace(aggregate, distinct=False)
            if keeps == "values":
                name = column_name(aggregate.expression)
                self._values.setdefault(name, ValueCounts(node.group, name, node.input.schema, device))
            elif keeps == "order":
                self._order(aggregate)
            elif keeps == "extreme":
                extreme = Extremum.of(aggregate, node.input.schema)
                self._best[extreme.name] = ParetoRuns(extreme, device)
                if extreme.by_rank:
                    ranked[extreme.column, extreme.form] = None
                    # Its values stay a frame, to be ranked in each step; only which rows take part is read now.
                    read = replace(read, kind=kind_named("count"), expression=None, others=())
            self._read.append(read)
        self._runs |= {stored("extreme", name): each for name, each in self._best.items()}
        self._ranked = list(ranked)
        self._framed = list(dict.fromkeys(name for each in self._ranked for name in ranked_by(*each)))

    def _order(self, aggregate: Aggregate) -> None:
        where = None if aggregate.filter is None else column_name(aggregate.filter)
        name: PartName = ("order", column_name(aggregate.expression), where)
        self._orders[name], self._ordered[name] = OrderStatistics(self._device), aggregate

    # The rows that it keeps

    def _loaded(self, frame: Any, codes: Any) -> AxisRows:
        """Rows of a frame, without places."""
        device = self._device
        columns = load_columns(self._read, self._node.input.schema, frame, device)
        columns |= {(name, CODES_OF_VALUES): values.of(frame) for name, values in self._values.items()}
        for name, column in columns.items():
            if column.valid is not None:
                self._has_null(name)
        ranked = device.columns.select(frame, self._framed) if self._framed else None
        return AxisRows(codes, codes, codes, columns, ranked)

    def _has_null(self, name: tuple[str, str]) -> None:
        if name not in self._nullable:
            self._nullable.add(name)
            self._totals.first_null(name[0])

    def _nothing(self) -> AxisRows:
        """No rows, with all columns."""
        device, schema = self._device, self._node.input.schema
        frame = device.columns.from_arrow(pa.Table.from_batches([], schema))
        none = device.columns.array(np.zeros(0, np.int64))
        return replace(self._loaded(frame, none.astype(np.int32)), low=none, high=none)

    # The tables

    def _plain_tables(self) -> dict[str, pa.Table]:
        """What is known of groups beside their totals, and of columns."""
        made = super()._plain_tables()
        if not made:
            return {}
        if self._totals.plans:
            made["floats"] = self._totals.plan_table()
        if self._nullable:
            made["nullable"] = table_of(_NULLABLE, sorted(self._nullable))
        return made

    def state_parts(self) -> Parts:
        """The state: groups with their totals, events that wait for their start, events by their end, extremes."""
        made = super().state_parts()
        if not made:
            return {}
        values = {stored("values", (name,)): each.parts() for name, each in self._values.items()}
        orders = {stored("ordered", name): each.saved() for name, each in self._orders.items()}
        return {**made, **{name: each for name, each in (values | orders).items() if each}}

    @property
    def entire_tables(self) -> tuple[str, ...]:
        """Those of groups, values and codes: rows of one are read beside rows of others."""
        return (*super().entire_tables, *self._remembered())

    def _remembered(self) -> dict[str, OrderStatistics | ValueCounts]:
        orders = {stored("ordered", name): each for name, each in self._orders.items()}
        return orders | {stored("values", (name,)): each for name, each in self._values.items()}

    def _group_columns(self, numbers: Any) -> dict[str, Any]:
        return super()._group_columns(numbers) | self._totals.columns(numbers, self._device)

    def _restore_groups(self, groups: pa.Table) -> None:
        super()._restore_groups(groups)
        self._totals.restore(groups, self._device)

    def _completed(self, name: str, rows: AxisRows) -> AxisRows:
        if name not in {"waiting", "ending"}:
            return rows
        nothing = self._nothing().columns
        return replace(rows, columns={each: rows.columns.get(each, nothing[each]) for each in nothing})

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        if not tables:
            return
        node, schema = self._node, self._node.input.schema
        yield clock(node.window)
        done = int(tables["clock"]["done"][0].as_py())
        yield Totals.plans_declared()
        plans = Totals.plans_of(tables["floats"]) if "floats" in tables else {}
        names = tables["groups"].column_names if "groups" in tables else []
        grid = node.window.grid is not None
        rules = (_given_up_to(done),) if grid else ()
        yield from self._groups_declared(self._last_declared(done) | Totals.declared(names, plans), rules)
        groups = self._group_count(tables)
        numbers = {}
        for name, values in self._values.items():
            kept = stored("values", (name,))
            yield values.declared(kept, self._conditions(name))
            known = tables[kept].num_rows if kept in tables else 0
            numbers[name, CODES_OF_VALUES] = Field(pa.int64(), least=0, most=known - 1)
        yield StateTable("nullable", _NULLABLE, unique=tuple(_NULLABLE))
        nothing, least, most = self._nothing(), *extent(node.window)
        frame = pa.schema([schema.field(name) for name in self._framed])
        # An event whose end is not known yet ends after all others.
        open_end = (AFTER,) if grid and node.input.gives_open else ()
        for name, low, high in (
            ("waiting", max(least, done + 1), least),
            ("ending", least, max(least, done + 1)),
        ):
            begin = Field(self._axis, least=low, most=most)
            # Between two windows of a grid an event is in none.
            end = Field(self._axis, not grid and name == "waiting", high, most, open_end, from_="low" if grid else None)
            end = end if grid else replace(end, above="low")
            yield StateTable(
                name,
                row_columns(begin, end, groups, columns=nothing.columns, numbers=numbers, frame=frame),
                doubts=self._few_windows(done),
            )
        for extreme, runs in self._best.items():
            place = Field(self._axis, least=max(least, done + 1), most=most, besides=open_end)
            yield runs.declared(stored("extreme", extreme), place, groups, schema)
        for part, orders in self._orders.items():
            yield orders.declared(stored("ordered", part), groups)

    def _conditions(self, column: str) -> list[str]:
        """The names of the conditions under which a column's distinct values are counted."""
        distinct = [each for each in self._node.aggregates if each.distinct]
        mine = [each for each in distinct if column_name(each.expression) == column]
        return [Block.which(each) or "" for each in mine]

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        super().restore(tables)
        if "floats" in tables:
            self._totals.plans |= Totals.plans_of(tables["floats"])
        if "nullable" in tables:
            self._nullable = {(row["column"], row["form"]) for row in tables["nullable"].to_pylist()}
        self._restore_remembered(in_parts(tables))

    def put_back(self, parts: Parts) -> None:
        """The state that `state_parts` gave."""
        remembered = self._remembered()
        super().put_back({name: each for name, each in parts.items() if name not in remembered})
        self._restore_remembered(parts)

    def _restore_remembered(self, parts: Parts) -> None:
        for name, remembered in self._remembered().items():
            if parts.get(name):
                remembered.restore(parts[name], len(self._groups))


def _given_up_to(done: int) -> RowRule:
    """Of a group with events the results are given up to where all are: else the windows between would come again."""

    def holds(groups: pa.Table) -> Mask:
        last, rows = (integers(groups[name].combine_chunks()) for name in ("last", _ROWS))
        return np.asarray((rows == 0) | (last == done), np.bool_)

    return RowRule("last", f"is not {done}, up to where results are given", holds)
