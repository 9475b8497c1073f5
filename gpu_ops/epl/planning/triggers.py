"""Statements that an event triggers: `on T set x = …`."""

from __future__ import annotations

from dataclasses import replace

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.turns import CLOCK, NEW, ORDER, PLACE, ROW
from gpu_ops.epl import statements as s
from gpu_ops.epl.patterns import EventFilter
from gpu_ops.epl.planning.known_contexts import ContextNames
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.patterns import PatternPlanner
from gpu_ops.epl.planning.planned import Ledger, PlannedStatement, known_type
from gpu_ops.epl.planning.scopes import EventScope
from gpu_ops.epl.planning.settings import setting
from gpu_ops.epl.planning.subqueries import Subqueries
from gpu_ops.epl.planning.variables import VariableColumns, VariableNames, reads
from gpu_ops.plan.nodes import Filter, Node, extended, selected
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.expressions import bind_condition
from gpu_ops.texts.binding.scope import BoundStream
from gpu_ops.texts.placed_error import unsupported


def planned_setting(on: s.OnSet, ledger: Ledger, names: VariableNames) -> PlannedStatement:
    """The plan of a statement that sets variables: the rows that trigger it, and what they set.

    Raises:
        PlacedError: As `gpu_ops.epl.planning.statements.planned`.
    """
    source = on.trigger.source
    if not ledger.asks:
        raise unsupported(on, "variables that are set over data at rest", "Run the text in a Runtime.")
    names.among(on)
    source = names.each_time(source)
    given = [replace(each, value=names.each_time(each.value)) for each in on.assignments]
    variables = VariableColumns(ledger.variables, names.found.changing)
    if isinstance(source, EventFilter):
        read, schema = [source.type_name], known_type(source, ledger)
        stream = BoundStream(on.trigger.alias, source.type_name, schema)
        rows: Node = ledger.arrivals[source.type_name]
        for each in source.filters:
            condition = bind_condition(each, EventScope([stream], variables=variables), "the filter").value
            seen = variables.beside(rows, before=True) if reads(each) else rows
            rows = selected(Filter(seen, condition), rows.schema.names)
    else:
        outside = ContextNames(None, on)
        planner = PatternPlanner(ledger, Subqueries(ledger, outside), variables, outside)
        _, rows = planner.plan(source)
        read, schema = planner.reads, pa.schema([each for each in rows.schema if each.name not in {CLOCK, PLACE}])
        stream = BoundStream(on.trigger.alias, "pattern", schema)
    kept = [*schema.names, CLOCK]
    made = setting(given, stream, selected(rows, kept).schema, ledger.variables)
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
        setting=made,
        filtering=frozenset(part.name for part in parts(source) if isinstance(part, e.Variable)),
    )
