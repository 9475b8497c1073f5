"""A whole query as nodes: its partitions, its alerts, and what it selects from them in each cycle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from gpu_ops.core.cycles import CYCLE_NUMBER
from gpu_ops.core.turns import ORDER
from gpu_ops.plan.cycle_chains import rows_of
from gpu_ops.plan.cycles import NumberedCycles
from gpu_ops.plan.nodes import Node
from gpu_ops.rql.planning.alerts import alert_of
from gpu_ops.rql.planning.known import KnownSources, QuerySettings
from gpu_ops.rql.planning.partitions import PartitionPlanner
from gpu_ops.rql.planning.refreshed import forever
from gpu_ops.rql.planning.scopes import clock_of
from gpu_ops.rql.planning.selects import CycleRows, SelectPlanner, names_shown
from gpu_ops.rql.queries import AlertSource, CycleQuery, JoinedTables, PlainTable, StreamTable
from gpu_ops.texts.expressions import Syntax
from gpu_ops.texts.placed_error import failure_at


@dataclass(frozen=True)
class PlannedQuery:
    """What a query computes.

    Attributes:
        node: Its rows, each with the number of its cycle, at the times that the clock showed.
        columns: The columns of its results, by the names that they have there.
        ordered: Whether the node has a column `@order`.
        streams: The streams that it reads.
        tables: The tables that it reads.
    """

    node: Node
    columns: pa.Schema
    ordered: bool
    streams: frozenset[str]
    tables: frozenset[str]


def planned(query: CycleQuery, known: KnownSources, settings: QuerySettings, until: int | None = None) -> PlannedQuery:
    """The plan of a query.

    Args:
        query: What its text says.
        known: What it can read.
        settings: What is said of it beside its text.
        until: The last millisecond of which cycles are shown; None for all.

    Raises:
        PlacedError: A name is unknown, types do not fit, or gpu_ops does not have what it asks for.
    """
    nodes = list(_all(query))
    partitions = [node for node in nodes if isinstance(node, StreamTable)]
    for node in nodes:
        if isinstance(node, JoinedTables):
            _check_plain(node, known)
    if not partitions:
        raise failure_at(
            query, "The query reads no stream, so nothing makes it run.", "Select from a partition of a stream."
        )
    planner = PartitionPlanner(known, settings)
    taken = [planner.accepted(each) for each in partitions]
    chains = [
        planner.chain(table, planner.intake(each.rows), each.stream)
        for table, each in zip(partitions, taken, strict=True)
    ]
    rows, beats = rows_of(chains, until)
    places: dict[Any, Node] = {table.place: made for table, made in zip(partitions, rows, strict=True)}
    schemas: dict[Any, pa.Schema] = {table.place: planner.schema(table) for table in partitions}
    alerts = {node.place: alert_of(node, places, schemas) for node in nodes if isinstance(node, AlertSource)}
    tables = {name: forever(table.rows) for name, table in known.tables.items()}
    reads = CycleRows(
        partitions=places,
        schemas=schemas,
        tables=tables,
        table_schemas={name: table.schema for name, table in known.tables.items()},
        alerts=alerts,
        beats=beats,
        clock=clock_of(settings.schedule),
    )
    ordered = bool(query.order_by)
    made = SelectPlanner(reads).query(query, ordered=ordered)
    numbered = NumberedCycles(made.node, beats, settings.schedule, until)
    schema = pa.schema(list(zip(names_shown(made), made.types(), strict=True)))
    return PlannedQuery(
        numbered,
        schema,
        ordered and ORDER in made.node.schema.names,
        frozenset(each.stream for each in partitions),
        frozenset(node.name for node in nodes if isinstance(node, PlainTable)),
    )


def plan_columns(plan: PlannedQuery) -> list[str]:
    """The node's columns that hold the results' columns."""
    return [CYCLE_NUMBER, *(f"@column {at}" for at in range(len(plan.columns)))]


def _check_plain(tables: JoinedTables, known: KnownSources) -> None:
    for each in tables.tables:
        if isinstance(each, PlainTable) and each.name in known.streams and each.name not in known.tables:
            raise failure_at(
                each,
                f"{each.name!r} is a stream, which is read through a partition.",
                f"Write: {each.name} (partition store last 10) as {each.alias}.",
            )


def _all(node: Syntax) -> Iterator[Syntax]:
    """A node and all below it, those of queries within too."""
    yield node
    for field in fields(node):
        waiting = [getattr(node, field.name)]
        while waiting:
            each = waiting.pop(0)
            if isinstance(each, Syntax):
                yield from _all(each)
            elif isinstance(each, tuple) and not hasattr(each, "_fields"):
                waiting[:0] = each
