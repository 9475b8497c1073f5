"""Queries over tables in the conditions of partitions: what they gave when the tables were read last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

import narwhals as nw

from gpu_ops.core.time import MAX_TIME
from gpu_ops.core.turns import CLOCK, PLACE
from gpu_ops.plan.aggregates import count
from gpu_ops.plan.lifetimes import AlterLifetime, Lifetime
from gpu_ops.plan.lookups import Looked, Lookup
from gpu_ops.plan.nodes import Filter, Node, Project, extended
from gpu_ops.plan.windows import named_aggregates
from gpu_ops.rql.planning.conditions import aggregate_calls, walked
from gpu_ops.rql.planning.known import KnownTable
from gpu_ops.rql.planning.scopes import BoundTable, TableScope
from gpu_ops.rql.queries import CycleQuery, InnerQuery, JoinedTables, PlainTable, QueryHasRows
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, as_type
from gpu_ops.texts.binding.conditions import compared_as, truth
from gpu_ops.texts.binding.expressions import bind
from gpu_ops.texts.binding.scope import unknown
from gpu_ops.texts.expressions import Expression, Inclusion, Syntax
from gpu_ops.texts.placed_error import unsupported

_ASKED, _VALUE = "@asked", "@value"


def forever(rows: Node) -> Node:
    """Rows that stay once they have come."""
    end = nw.lit(MAX_TIME, nw.Int64()).cast(nw.Datetime("us", "UTC"))
    return Lifetime(rows, AlterLifetime(None, None, end))


class RefreshedTables:
    """The queries within a condition on events, as further columns of the events.

    Args:
        known: The tables.
        rows: The events, on turns.
        conditions: What is asked of the events.

    Attributes:
        rows: The events with these columns.

    Raises:
        PlacedError: A query is not one that can stand here.
    """

    def __init__(self, known: Mapping[str, KnownTable], rows: Node, conditions: Sequence[Expression]) -> None:
        self._known, self.rows = known, rows
        self._made: dict[Inclusion, Bound] = {}
        scope = TableScope([BoundTable("", rows.schema, "")], nw.col(CLOCK).dt.timestamp("ms"))
        for number, node in enumerate(dict.fromkeys(found for each in conditions for found in _inclusions(each))):
            self._made[node] = self._looked(number, node, scope)

    def bound(self, node: Expression, scope: TableScope) -> Bound | None:
        """Whether a value is among those of a query, if this node says so."""
        return self._made.get(node) if isinstance(node, Inclusion) else None

    def _looked(self, number: int, node: Inclusion, scope: TableScope) -> Bound:
        (inner,) = node.options
        assert isinstance(inner, InnerQuery)  # noqa: S101  (as it was found)
        asked = bind(node.value, scope)
        content, found = self._content(inner.query)
        dtype = compared_as(asked, found)
        mine, theirs = f"{_ASKED} {number}", f"{_VALUE} {number}"
        rows = extended(self.rows, (as_type(asked, dtype).alias(mine),))
        own = [as_type(found, dtype).alias(theirs), nw.col(PLACE)]
        held = forever(Project(content, tuple(own), keep=False))
        equal, every, unknown_values = (f"@{what} {number}" for what in ("equal", "every", "unknown"))
        aggregates = named_aggregates({equal: count(theirs), every: count(), unknown_values: count(theirs)})
        looked = (Looked(aggregates[0], ((mine, theirs),)), Looked(aggregates[1]), Looked(aggregates[2]))
        self.rows = Lookup(held, rows, looked)
        among, size, known = (nw.col(name).fill_null(0) for name in (equal, every, unknown_values))
        is_unknown = nw.col(mine).is_null() | (known < size)
        holds = nw.when((among > 0) & ~nw.col(mine).is_null()).then(nw.lit(True))
        nothing = nw.lit(None, nw.Boolean())
        made = holds.otherwise(nw.when((size > 0) & is_unknown).then(nothing).otherwise(nw.lit(False)))
        return Bound(~made if node.negated else made, t.BOOLEAN)

    def _content(self, query: CycleQuery) -> tuple[Node, Bound]:
        """The rows of a query over a table as they are read, and what computes its only column."""
        select, source = query.select, query.select.source
        if not is_plain(query):
            raise unsupported(
                query,
                "query over several tables, with groups or sets, beside 'or'",
                "Join the conditions of the partition by 'and', or select a column of one table.",
            )
        assert isinstance(source, JoinedTables) and isinstance(source.first, PlainTable)  # noqa: S101, PT018  (it is plain)
        table = source.first
        if table.name not in self._known:
            raise unknown(table, f"There is no table {table.name!r}.", table.name, self._known, self._known, "Tables")
        if len(select.items) != 1 or select.items[0].expression is None:
            raise unsupported(query, "query behind 'in' with several columns", "Select one column.")
        known = self._known[table.name]
        scope = TableScope([BoundTable(table.alias, known.schema, "")], nw.col(CLOCK).dt.timestamp("ms"))
        rows: Node = known.read
        if select.where is not None:
            rows = Filter(rows, truth(bind(select.where, scope), "'where'"))
        return rows, bind(select.items[0].expression, scope)


def is_plain(query: CycleQuery) -> bool:
    """Whether a query gives values of the rows of one table, each by itself."""
    select, source = query.select, query.select.source
    if not isinstance(source, JoinedTables) or source.joins or not isinstance(source.first, PlainTable):
        return False
    if query.further or query.limit is not None or select.group_by or select.having is not None:
        return False
    asked = [item.expression for item in select.items if item.expression is not None]
    if any(aggregate_calls(each) for each in asked):
        return False
    within = [] if select.where is None else walked(select.where)
    return not any(isinstance(each, InnerQuery | QueryHasRows) for each in within)


def _inclusions(node: Syntax) -> Iterator[Inclusion]:
    """The conditions of an expression that a value is among those of a query."""
    if isinstance(node, Inclusion) and len(node.options) == 1 and isinstance(node.options[0], InnerQuery):
        yield node
        return
    for field in fields(node):
        value = getattr(node, field.name)
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Syntax):
                yield from _inclusions(each)
