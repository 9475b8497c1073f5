"""Statements that an event triggers: `on T set x = …`."""

from __future__ import annotations

from dataclasses import replace

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.turns import CLOCK, NEW, OLD, ORDER, PLACE, ROW
from gpu_ops.epl import statements as s
from gpu_ops.epl.patterns import EventFilter
from gpu_ops.epl.planning.joins import conjuncts
from gpu_ops.epl.planning.known_contexts import ContextNames, KnownContext, with_context_properties
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.patterns import PatternPlanner
from gpu_ops.epl.planning.planned import Ledger, PlannedStatement, known_type
from gpu_ops.epl.planning.scopes import EventScope
from gpu_ops.epl.planning.settings import setting
from gpu_ops.epl.planning.subqueries import Subqueries
from gpu_ops.epl.planning.variables import (
    ReadVariables,
    VariableColumns,
    VariableNames,
    column_of,
    feed_of,
    reads,
    was,
)
from gpu_ops.plan.joins import Union
from gpu_ops.plan.nodes import Filter, Node, Project, extended, selected
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.expressions import bind_condition
from gpu_ops.texts.binding.scope import BoundStream, StreamScope


def planned_setting(
    on: s.OnSet, ledger: Ledger, names: VariableNames, context: KnownContext | None
) -> PlannedStatement:
    """The plan of a statement that sets variables: the rows that trigger it, and what they set.

    Raises:
        PlacedError: As `gpu_ops.epl.planning.statements.planned`.
    """
    source = on.trigger.source
    names.among(on)
    on = with_context_properties(on)
    around = ContextNames(context, on)
    source = names.each_time(on.trigger.source)
    given = [replace(each, value=names.each_time(each.value)) for each in on.assignments]
    variables = VariableColumns(ledger.variables, names.found.changing)
    if isinstance(source, EventFilter):
        read, schema = [source.type_name], known_type(source, ledger)
        stream = BoundStream(on.trigger.alias, source.type_name, schema)
        pairs = [
            (each, around.pair(each, StreamScope([stream]))) for part in source.filters for each in conjuncts(part)
        ]
        equal = tuple(dict.fromkeys(pair for _, pair in pairs if pair is not None))
        rows: Node = ledger.arrivals[source.type_name]
        for mine, _ in equal:
            rows = Filter(rows, ~nw.col(mine).is_null())
        rows = around.within(rows, source.type_name, equal)
        for each in (each for each, pair in pairs if pair is None):
            scope = EventScope([stream], variables=variables, context=around)
            condition = bind_condition(each, scope, "the filter").value
            seen = variables.beside(rows, before=True) if reads(each) else rows
            rows = selected(Filter(seen, condition), rows.schema.names)
    else:
        planner = PatternPlanner(ledger, Subqueries(ledger, around), variables, around)
        _, rows = planner.plan(source)
        hidden = {CLOCK, PLACE, *around.key, *around.columns}
        read, schema = planner.reads, pa.schema([each for each in rows.schema if each.name not in hidden])
        stream = BoundStream(on.trigger.alias, "pattern", schema)
    kept = [*schema.names, *around.key, *(each for each in around.columns if each in rows.schema.names), CLOCK]
    made = setting(given, stream, selected(rows, kept).schema, ledger.variables, around)
    read = [*read, *(() if context is None else context.reads)]
    columns = pa.schema([(name, ledger.variables[name].type) for name in made.names])
    node = extended(selected(rows, kept), [nw.lit(NEW, nw.Int8()).alias(ROW), nw.lit(0, nw.Int64()).alias(ORDER)])
    return PlannedStatement(
        node,
        columns,
        tuple(dict.fromkeys(read)),
        (NEW, None),
        variables=names.found,
        history=variables.history,
        before=variables.before,
        context=context,
        own=variables.own,
        setting=made,
        filtering=frozenset(part.name for part in parts(source) if isinstance(part, e.Variable)),
    )


def planned_variable(create: s.CreateVariable, ledger: Ledger, context: KnownContext) -> PlannedStatement:
    """The plan of a variable of a context: where it is set, what it becomes, and as an old row what it was."""
    name, known = create.name, ledger.variables[create.name]
    feed = feed_of(name, known)
    rows = [
        Project(
            feed,
            (nw.col(column).alias("@column 0"), nw.lit(row, nw.Int8()).alias(ROW), nw.lit(0, nw.Int64()).alias(ORDER)),
            keep=False,
        )
        for column, row in ((column_of(name), NEW), (was(name), OLD))
    ]
    return PlannedStatement(
        Union(tuple(rows)),
        pa.schema([(name, known.type)]),
        context.reads,
        (NEW, OLD),
        variables=ReadVariables((name,), waking=frozenset({name})),
        context=context,
        streams=0,
        variable=(name, feed),
    )
