"""Partitions of a from clause as chains of stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.turns import CLOCK
from gpu_ops.errors import shown
from gpu_ops.plan import aggregates as g
from gpu_ops.plan import moments
from gpu_ops.plan.aggregate_kinds import Aggregate
from gpu_ops.plan.combinations import Combinable
from gpu_ops.plan.cycle_chains import Becoming, Chain, IssuedAggregate, Stage
from gpu_ops.plan.cycle_picks import BestRows, CyclePick, LastMilliseconds, LastRows, LatestRows, RandomRows, Size
from gpu_ops.plan.cycles import Intake, beats_of
from gpu_ops.plan.nodes import Filter, Node, extended
from gpu_ops.plan.ordered_aggregates import median
from gpu_ops.plan.windows import Snapshot
from gpu_ops.rql.planning.conditions import conjuncts, inner_condition
from gpu_ops.rql.planning.known import KnownSources, KnownStream, QuerySettings, SizesByKey
from gpu_ops.rql.planning.refreshed import RefreshedTables, forever, is_plain
from gpu_ops.rql.planning.scopes import BoundTable, TableScope
from gpu_ops.rql.planning.selects import CycleRows, SelectPlanner
from gpu_ops.rql.queries import RowStatus, StagePartition, StoredAggregate, StreamTable
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, literal
from gpu_ops.texts.binding.conditions import truth
from gpu_ops.texts.binding.expressions import bind
from gpu_ops.texts.binding.scope import unknown
from gpu_ops.texts.expressions import Constant, Expression, FunctionCall, Logical, TextMatch
from gpu_ops.texts.placed_error import HasPlace, failure_at, unsupported

_SIZE, _SPAN = "@size", "@span"
_FEW = "@values of "


@dataclass(frozen=True)
class Accepted:
    """What a chain begins with: the events of its stream that its first condition takes, on turns.

    Attributes:
        stream: The stream.
        rows: The events, with columns for the sizes of windows where these differ.
    """

    stream: KnownStream
    rows: Node


class PartitionPlanner:
    """Makes chains of the partitions of a query.

    Args:
        known: What the query can read.
        settings: What is said of it beside its text.
    """

    def __init__(self, known: KnownSources, settings: QuerySettings) -> None:
        self._known, self._settings = known, settings

    def accepted(self, table: StreamTable) -> Accepted:
        """The events that come to a chain."""
        streams = self._known.streams
        if table.stream not in streams:
            what = "a table, and partitions are of streams" if table.stream in self._known.tables else ""
            problem = f"{table.stream!r} is {what}." if what else f"There is no stream {table.stream!r}."
            raise unknown(table, problem, table.stream, streams, streams, "Streams")
        stream, first = streams[table.stream], table.stages[0]
        rows = stream.arrivals
        if first.where is not None:
            inner = {each: inner_condition(each) for each in conjuncts(first.where)}
            joined = [each for each in inner.values() if each and each.value and not is_plain(each.query)]
            plain = [each for each, found in inner.items() if found not in joined]
            for each in joined:
                rows = self._as_read(stream).beside(rows, [BoundTable("", stream.schema, "")], each)
            tables = RefreshedTables(self._known.tables, rows, plain)
            scope = _PrefilterScope(table.alias, stream.schema, tables)
            rows = tables.rows
            for condition in plain:
                rows = Filter(rows, truth(bind(condition, scope), "'where'"))
        sizes = _sizes_of(first, self._settings.sizes, stream.schema)
        return Accepted(stream, extended(rows, (value.alias(name) for name, value in sizes.items())))

    def _as_read(self, stream: KnownStream) -> SelectPlanner:
        """Queries over tables as they had been read when each event of a stream came."""
        tables = {name: forever(table.read) for name, table in self._known.tables.items()}
        schemas = {name: table.schema for name, table in self._known.tables.items()}
        return SelectPlanner(CycleRows({}, {}, tables, schemas, {}, beats_of(stream.arrivals), None))

    def chain(self, table: StreamTable, source: Node, stream: KnownStream) -> Chain:
        """A chain of partitions.

        Args:
            table: What the text says.
            source: The events that come to it, in cycles.
            stream: The stream that they are of.
        """
        stages, schema = [], stream.schema
        for at, part in enumerate(table.stages):
            takes, conditions = self._taken(part, schema, table.alias) if at else ("new", ())
            time = CLOCK if at and any(each.aggregates for each in table.stages[:at]) else stream.time
            stage = self._stage(part, schema, table.stream, time, at)
            stages.append(replace(stage, takes=takes, where=conditions))
            if part.aggregates:
                schema = self._aggregated_schema(part, schema)
        weight = self._settings.weights.get(table.stream, 1.0)
        for part, behind in pairwise(table.stages):
            at = table.stages.index(part)
            asks = any(each.pick.asks for each in stages[at + 1 :])
            if part.stored.kind == "latest" and asks and (part.aggregates or stages[at + 1].takes == "dead"):
                raise unsupported(
                    behind,
                    "partition that makes cycles run, behind aggregates of 'latest' or rows that it expels",
                    "Take its new rows, without aggregates, or store highest or lowest behind it.",
                )
        return Chain(source, tuple(stages), self._settings.schedule, weight)

    def intake(self, rows: Node) -> Node:
        """Events on turns as points at the cycles that take them."""
        return Intake(rows, self._known.clocks, self._known.ticks, self._settings.schedule)

    def schema(self, table: StreamTable) -> pa.Schema:
        """The columns that a chain shows."""
        schema = self._known.streams[table.stream].schema
        for part in table.stages:
            if part.aggregates:
                schema = self._aggregated_schema(part, schema)
        return schema

    def _taken(self, part: StagePartition, schema: pa.Schema, alias: str) -> tuple[Becoming, tuple[nw.Expr, ...]]:
        """Which rows of the partition before a further one takes."""
        where = part.where
        conditions = list(where.operands) if isinstance(where, Logical) and where.operator == "and" else [where]
        first, *others = conditions
        if not isinstance(first, RowStatus) or first.alias or first.status == "not dead":
            place: HasPlace = part if first is None else first
            raise failure_at(
                place,
                "A partition behind another one first says which of its rows it takes.",
                "Write: where $row_status is new and …, or: is dead.",
            )
        scope = _PrefilterScope(alias, schema, None)
        made = tuple(truth(bind(each, scope), "'where'") for each in others if each is not None)
        return ("new" if first.status == "new" else "dead"), made

    def _stage(self, part: StagePartition, schema: pa.Schema, stream: str, time: str, at: int) -> Stage:
        for number, name in enumerate(part.by):
            _check_column(part, schema, name)
            if name in part.by[:number]:
                raise failure_at(part, f"The partition is by {name!r} twice.", "Name it once.")
        pick = self._pick(part, schema, stream, time, at)
        aggregates: list[IssuedAggregate] = []
        results: list[tuple[str, nw.Expr]] = []
        names = list(part.by)
        for each in part.aggregates:
            if each.alias in names:
                raise failure_at(each, f"Two columns of the partition are called {each.alias!r}.", "Rename one.")
            names.append(each.alias)
            made, result = self._aggregate(each, schema)
            aggregates += made
            results += [] if result is None else [(each.alias, result)]
        return Stage(pick, part.by, aggregates=tuple(aggregates), results=tuple(results), pinned=part.pinned)

    def _pick(self, part: StagePartition, schema: pa.Schema, stream: str, time: str, at: int) -> CyclePick:
        stored = part.stored
        sizes = _sizes_of(part, self._settings.sizes, schema)
        if sizes and at:
            raise unsupported(stored, "sizes by key of a partition behind another one", "Write a number.")
        count: Size = _SIZE if _SIZE in sizes else stored.count or 0
        match stored.kind:
            case "last":
                return LastRows(count, None if at else self._settings.waiting.get(stream))
            case "latest":
                return LatestRows(count)
            case "random":
                return RandomRows(count, self._settings.seed)
            case "span":
                if not time:
                    raise failure_at(
                        stored,
                        f"Events of {stream!r} have no time of their own, which a span is of.",
                        f"Say which column it is: times={{{stream!r}: …}}.",
                    )
                most = _SIZE if _SIZE in sizes else stored.count
                return LastMilliseconds(_SPAN if _SPAN in sizes else stored.span, time, most)
        for name in (stored.using, *stored.update):
            _check_column(stored, schema, name)
        return BestRows(count, stored.using, stored.kind == "highest", stored.update)

    def _aggregated_schema(self, part: StagePartition, schema: pa.Schema) -> pa.Schema:
        """The columns of a partition with aggregates."""
        fields: list[pa.Field] = [schema.field(name) for name in part.by]
        for each in part.aggregates:
            if each.custom:
                fields.append(self._own(each, schema).field(schema).with_name(each.alias))
                continue
            dtype = {"count": t.LONG}.get(each.function, t.DOUBLE)
            if each.diff and each.function == "count":
                dtype = t.LONG
            if each.function in {"min", "max"}:
                dtype = schema.field(each.column).type
            fields.append(pa.field(each.alias, dtype))
        return pa.schema(fields)

    def _own(self, said: StoredAggregate, schema: pa.Schema) -> Aggregate:
        """The user's own aggregate of a name."""
        known = self._settings.aggregates
        if said.function not in known:
            problem = f"There is no aggregate {said.function!r} of your own."
            raise unknown(said, problem, said.function, known, known, "aggregates= has")
        arguments = list[Any]()
        for each in said.arguments:
            if not isinstance(each, Constant):
                _check_column(each, schema, str(each))
            arguments.append(each.value if isinstance(each, Constant) else str(each))
        try:
            made: Any = known[said.function](*arguments)
            made = made.within(Snapshot()) if isinstance(made, Combinable) else made
            if isinstance(made, Aggregate):
                made.field(schema)
        except Exception as error:
            raise failure_at(said, f"The aggregate {said.function!r} refuses what it is given: {error}") from error
        if not isinstance(made, Aggregate):
            raise failure_at(
                said,
                f"The aggregate {said.function!r} gives {shown(made)}, which is no aggregate.",
                "Give one: g.mean(…), g.window_function(…), or extend.aggregate(…) of a kind of yours.",
            )
        return made

    def _aggregate(self, said: StoredAggregate, schema: pa.Schema) -> tuple[list[IssuedAggregate], nw.Expr | None]:
        """An aggregate, those that its result needs beside it, and the result."""
        if said.custom:
            return [IssuedAggregate(said.alias, self._own(said, schema), said.entrance_only)], None
        if said.function not in _FUNCTIONS:
            raise unknown(
                said, f"There is no aggregate {said.function!r}.", said.function, _FUNCTIONS, _FUNCTIONS, "There are"
            )
        _check_column(said, schema, said.column)
        dtype = schema.field(said.column).type
        plain = said.function in {"count", "min", "max"}
        if not plain and not (t.is_integer(dtype) or t.is_float(dtype)):
            raise failure_at(
                said, f"{said.function}(…) takes numbers, and {said.column!r} is of type {t.type_name(dtype)}."
            )
        column, doubles = nw.col(said.column), said.function == "sum" and t.is_integer(dtype)
        # Sums of whole numbers are those of the nearest doubles, and always finite.
        aggregate = _FUNCTIONS[said.function](column if plain or doubles else column.cast(nw.Float64()))
        differs = said.diff and said.function not in {"min", "max"}
        baseline = None
        if said.baseline:
            baselines = self._settings.baselines
            if said.baseline not in baselines:
                problem = f"There is no baseline {said.baseline!r}."
                raise unknown(said, problem, said.baseline, baselines, baselines, "There are")
            baseline = float(baselines[said.baseline])
        made = [
            IssuedAggregate(
                said.alias, aggregate, said.entrance_only, differs, baseline if differs else None, double=doubles
            )
        ]
        if plain or doubles:
            return made, None
        value = nw.col(said.alias).cast(nw.Float64())
        if said.function in {"variance", "stddev"}:
            hidden = f"{_FEW}{said.alias}"
            made.append(IssuedAggregate(hidden, g.count(column), said.entrance_only, hidden=True))
            value = nw.when(nw.col(hidden) == 1).then(nw.lit(0.0)).otherwise(value)
        return made, nw.when(value.is_finite()).then(value)


_FUNCTIONS: Mapping[str, Callable[[nw.Expr], Aggregate]] = {
    "avg": g.mean,
    "count": lambda column: g.count(),
    "geomean": moments.geometric_mean,
    "kurtosis": moments.kurtosis,
    "max": g.max,
    "median": median,
    "min": g.min,
    "skewness": moments.skewness,
    "stddev": g.standard_deviation,
    "sum": g.sum,
    "sumsq": lambda column: g.sum(column * column),
    "variance": g.variance,
}
"""The aggregates of partitions. All but count, min and max are double; count counts rows, whatever they have."""


def _check_column(node: HasPlace, schema: pa.Schema, name: str) -> None:
    if name not in schema.names:
        raise unknown(node, f"There is no column {name!r}.", name, schema.names, schema.names, "There are")


def _sizes_of(part: StagePartition, sizes: Mapping[str, SizesByKey], schema: pa.Schema) -> dict[str, nw.Expr]:
    """Columns with the sizes of windows, where these depend on the key."""
    stored = part.stored
    if not stored.provider:
        return {}
    if stored.provider not in sizes:
        raise unknown(stored, f"There are no sizes {stored.provider!r}.", stored.provider, sizes, sizes, "There are")
    for name in part.by:
        _check_column(part, schema, name)
    declared = {_SIZE: stored.count, _SPAN: stored.span or None}
    made = {name: nw.lit(size, nw.Int64()) for name, size in declared.items() if size is not None}
    for key, size in sizes[stored.provider].items():
        if len(key) != len(part.by):
            raise failure_at(
                stored,
                f"The sizes {stored.provider!r} have the key {key!r}, and the partition is by {len(part.by)}.",
                "Give the values of its columns as a tuple.",
            )
        holds = [_is(name, value, schema) for name, value in zip(part.by, key, strict=True)]
        condition = nw.all_horizontal(*holds, ignore_nulls=False) if holds else nw.lit(True)
        for name, value in ((_SIZE, size.count), (_SPAN, size.milliseconds)):
            if value is not None and name in made:
                made[name] = nw.when(condition).then(nw.lit(value, nw.Int64())).otherwise(made[name])
    return made


def _is(name: str, value: object, schema: pa.Schema) -> nw.Expr:
    column = nw.col(name)
    if value is None:
        return column.is_null()
    return (column == literal(value, schema.field(name).type)).fill_null(False)


class _PrefilterScope(TableScope):
    """Expressions about events before they come to a partition.

    Args:
        alias: What the partition is called.
        schema: The columns of the events.
        tables: What tables hold that queries within read; None where no query may stand.
    """

    def __init__(self, alias: str, schema: pa.Schema, tables: RefreshedTables | None) -> None:
        super().__init__([BoundTable("", schema, "")], nw.col(CLOCK).dt.timestamp("ms"))
        self._of, self._tables = alias, tables

    def special(self, node: Expression) -> Bound | None:
        """A query over tables; and what StreamCruncher does not have here is refused by its name."""
        if isinstance(node, RowStatus):
            raise failure_at(
                node,
                "A partition's condition asks for the row status of the partition before it, first of all.",
                "Write it behind where: $row_status is new and …; of this partition ask in the query's where.",
            )
        if self._tables is not None and (made := self._tables.bound(node, self)) is not None:
            return made
        if isinstance(node, TextMatch):
            raise unsupported(node, "'like' in a partition's condition", "Write it in the query's where.")
        if isinstance(node, FunctionCall) and node.name.lower() != "current_timestamp":
            raise unsupported(
                node, f"function {node.name!r} in a partition's condition", "Write it in the query's where."
            )
        return super().special(node)
