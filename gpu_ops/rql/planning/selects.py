"""Queries over what partitions and tables hold in each cycle: joins, conditions, groups, sets and order.

A row of a partition is a point at each cycle in which it is shown; the rows of one cycle stand at one place. So the
nodes that match and group events in time match and group rows in cycles.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.cycles import DEAD, NEW, STATUS
from gpu_ops.core.turns import NEW as NEW_ROW
from gpu_ops.core.turns import ORDER, ROW
from gpu_ops.plan import aggregates as g
from gpu_ops.plan.aggregate_kinds import Aggregate
from gpu_ops.plan.cycles import AtCycles, became
from gpu_ops.plan.joins import Join, Union, distinct
from gpu_ops.plan.nodes import Filter, KeyBy, Node, Project, extended, selected
from gpu_ops.plan.per_delivery import PerDelivery, RowKey
from gpu_ops.plan.windows import Snapshot, WindowAggregate, named_aggregates
from gpu_ops.rql import queries as q
from gpu_ops.rql.planning.conditions import (
    InnerCondition,
    aggregate_calls,
    conjuncts,
    equal_pairs,
    inner_condition,
    kept_sides,
    shown_expressions,
    status_of,
    walked,
)
from gpu_ops.rql.planning.scopes import (
    ALL,
    SHOWN,
    BoundTable,
    ColumnScope,
    TableScope,
)
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, as_type
from gpu_ops.texts.binding.conditions import truth
from gpu_ops.texts.binding.expressions import bind
from gpu_ops.texts.binding.scope import unknown
from gpu_ops.texts.expressions import (
    Expression,
    FunctionCall,
    Logical,
    Member,
    Name,
    Syntax,
    Wildcard,
)
from gpu_ops.texts.placed_error import failure_at

_SIDES = ("@first", "@second")

_COMPARED: Mapping[str, Callable[[nw.Expr, nw.Expr], nw.Expr]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class CycleRows:
    """What a query reads, in cycles.

    Attributes:
        partitions: The rows of each partition, by its place in the text: what they are in it from cycle to cycle.
        schemas: The columns of each.
        tables: The rows of tables, which stay.
        table_schemas: The columns of each.
        alerts: The events of alerts: points at cycles, by the place of the alert.
        beats: The cycles, a point or more for each.
        clock: What computes `current_timestamp` of a row in a cycle; None where nothing does.
    """

    partitions: Mapping[Any, Node]
    schemas: Mapping[Any, pa.Schema]
    tables: Mapping[str, Node]
    table_schemas: Mapping[str, pa.Schema]
    alerts: Mapping[Any, Node]
    beats: Node
    clock: nw.Expr | None


@dataclass(frozen=True)
class Answered:
    """What a query gives: points at cycles, with columns `@column 0` and so on.

    Attributes:
        node: The points.
        names: What the columns are called: nothing for an expression without a name.
        schema: Their types, by the names that they have in the plan.
        texts: How each column is written.
    """

    node: Node
    names: tuple[str, ...]
    texts: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        """The plan's columns."""
        return [_column(at) for at in range(len(self.names))]

    def types(self) -> list[pa.DataType]:
        """The types of the columns."""
        return [self.node.schema.field(name).type for name in self.columns]


@dataclass(frozen=True)
class _Joined:
    """Tables that are joined so far."""

    node: Node
    tables: tuple[BoundTable, ...]


class SelectPlanner:
    """Plans queries over what is there in cycles.

    Args:
        rows: What they read.
    """

    def __init__(self, rows: CycleRows) -> None:
        self._rows = rows
        self._tables = 0

    # Queries

    def query(self, query: q.CycleQuery, *, ordered: bool = False) -> Answered:
        """What a query gives.

        Args:
            query: The query.
            ordered: Whether the order of the rows of a cycle counts: then a column `@order` has it.
        """
        keys = query.order_by if (ordered or query.limit is not None) else ()
        if query.further:
            made = self._selected(query.select, ())
            for each in query.further:
                made = self._united(made, each, self._selected(each.select, ()))
            nodes = [_order_column(made, key) for key in keys]
            return self._arranged(made, keys, nodes, query, ordered=ordered)
        made = self._selected(query.select, keys)
        return self._arranged(made, keys, [f"@key {at}" for at in range(len(keys))], query, ordered=ordered)

    def _arranged(
        self, made: Answered, keys: Sequence[q.OrderKey], columns: Sequence[str], query: q.CycleQuery, *, ordered: bool
    ) -> Answered:
        """The rows of each cycle in order, and some of them."""
        if not keys and query.limit is None:
            return replace(made, node=selected(made.node, made.columns))
        nulls, sorting = [], []
        for at, (key, column) in enumerate(zip(keys, columns, strict=True)):
            null = f"@null {at}"
            nulls.append(nw.col(column).is_null().alias(null))
            first = key.nulls_first if key.nulls_first is not None else not key.descending
            sorting += [RowKey(null, descending=first), RowKey(column, key.descending)]
        if query.limit is not None:
            # Which of equal rows stay is the same whatever came in one batch: those that are the least in all columns.
            sorting += [
                RowKey(name) for name in made.columns if not pa.types.is_nested(made.node.schema.field(name).type)
            ]
        own = [nw.lit(NEW_ROW, nw.Int8()).alias(ROW), nw.lit(0, nw.Int64()).alias(ORDER)]
        node = extended(made.node, (*nulls, *own))
        node = PerDelivery(node, tuple(sorting), limit=query.limit, offset=query.offset)
        return replace(made, node=selected(node, [*made.columns, *([ORDER] if ordered else [])]))

    def _united(self, first: Answered, further: q.FurtherSelect, second: Answered) -> Answered:
        """Two selects as one, with the columns' names of the first."""
        if len(first.names) != len(second.names):
            raise failure_at(
                further,
                f"The selects have {len(first.names)} and {len(second.names)} columns.",
                "Select as many in each.",
            )
        sides = [[], []]  # type: ignore[var-annotated]
        for at, (one, other) in enumerate(zip(first.types(), second.types(), strict=True)):
            dtype = t.common_type([one, other])
            if dtype is None:
                kinds = f"{t.type_name(one)} and {t.type_name(other)}"
                raise failure_at(further, f"Column {at + 1} is {kinds}: that is no type.", "Select others.")
            dtype = t.INT if dtype == t.NULL else dtype
            for side, own in zip(sides, (one, other), strict=True):
                side.append(as_type(Bound(nw.col(_column(at)), own), dtype).alias(_column(at)))
        nodes = [Project(each.node, tuple(side), keep=False) for each, side in zip((first, second), sides, strict=True)]
        if further.word == "union" and further.keeps_equal:
            return replace(first, node=Union(tuple(nodes)))
        parts = [
            extended(node, (nw.lit(at == 0).alias(_SIDES[0]), nw.lit(at == 1).alias(_SIDES[1])))
            for at, node in enumerate(nodes)
        ]
        counts = {side: g.count(where=nw.col(side)) for side in _SIDES}
        keyed = KeyBy(Union(tuple(parts)), tuple(first.columns))
        groups: Node = KeyBy(WindowAggregate(keyed, Snapshot(), named_aggregates(counts)), ())
        one, other = (nw.col(side) > 0 for side in _SIDES)
        if further.word != "union":
            groups = Filter(groups, one & other if further.word == "intersect" else one & ~other)
        return replace(first, node=selected(groups, first.columns))

    # Selects

    def _selected(self, select: q.OneSelect, keys: Sequence[q.OrderKey], outer: TableScope | None = None) -> Answered:
        joined = self._source(select, outer)
        scope = self._scope(joined, outer)
        items = list(self._items(select, joined.tables))
        aliases = {Name(item.alias): item.expression for item in items if item.alias}
        sorting = [_by_alias(key.expression, aliases, scope) for key in keys]
        shown = [*(item.expression for item in items if item.expression), *sorting]
        having = [] if select.having is None else [select.having]
        calls = list(dict.fromkeys(call for each in (*shown, *having) for call in aggregate_calls(each)))
        node: Node = joined.node
        if calls or select.group_by or select.having is not None:
            node, scope = self._grouped(node, scope, select, calls)
            for each in having:
                node = Filter(node, truth(bind(each, scope), "'having'"))
        columns = [bind(item.expression, scope) for item in items if item.expression is not None]
        made = [_valued(bound).alias(_column(at)) for at, bound in enumerate(columns)]
        made += [_valued(bind(each, scope)).alias(f"@key {at}") for at, each in enumerate(sorting)]
        node = Project(node, tuple(made), keep=False)
        if select.distinct:
            names = [_column(at) for at in range(len(columns))]
            placed = [bound.text for bound in columns]
            for each in sorting:
                if str(each) not in placed:
                    raise failure_at(each, "Distinct rows are ordered by columns that they show.", "Select it too.")
            node = KeyBy(distinct(node, tuple(names)), ())
            again = [nw.col(_column(placed.index(str(each)))).alias(f"@key {at}") for at, each in enumerate(sorting)]
            node = extended(node, again)
        names_of = tuple(_name(item) for item in items)
        return Answered(node, names_of, tuple(str(item.expression) for item in items))

    def _scope(self, joined: _Joined, outer: TableScope | None = None) -> TableScope:
        return TableScope(joined.tables, self._rows.clock, outer)

    def _items(self, select: q.OneSelect, tables: Sequence[BoundTable]) -> Iterator[q.ShownItem]:
        for item in select.items:
            if item.expression is not None:
                yield item
                continue
            known = [table.alias for table in tables]
            if item.of and item.of not in known:
                raise unknown(item, f"There is no table {item.of!r} here.", item.of, known, known, "There are")
            for table in tables:
                if not item.of or table.alias == item.of:
                    for name in table.schema.names:
                        of = Name(table.alias, place=item.place)
                        yield q.ShownItem(Member(of, name, place=item.place), place=item.place)

    def _grouped(
        self, node: Node, scope: TableScope, select: q.OneSelect, calls: Sequence[FunctionCall]
    ) -> tuple[Node, ColumnScope]:
        """The groups of each cycle; without keys all rows are one, which is there even if there are none."""
        there = "@there"
        columns: list[nw.Expr] = [nw.lit(value=True).alias(there)]
        computed: dict[Expression, tuple[str, pa.DataType]] = {}
        for at, key in enumerate(select.group_by):
            bound = bind(key, scope)
            columns.append(_valued(bound).alias(f"@group {at}"))
            computed[key] = f"@group {at}", bound.type
            if isinstance(key, Member) and _is_unique(key.name, scope):
                computed[Name(key.name)] = f"@group {at}", bound.type
            if isinstance(key, Name):
                computed |= {Member(Name(each.alias), key.name): (f"@group {at}", bound.type) for each in scope.tables}
        aggregates: dict[str, Aggregate] = {}
        for at, call in enumerate(calls):
            name = f"@aggregate {at}"
            aggregate, column, dtype = _aggregate(call, scope, there, f"@of {at}")
            columns += column
            aggregates[name] = aggregate
            computed[call] = name, dtype
        rows: Node = Project(node, tuple(columns), keep=False)
        keys = tuple(f"@group {at}" for at in range(len(select.group_by)))
        if not keys:
            nothing = [nw.lit(value=False).alias(there)]
            nothing += [
                nw.lit(None, t.narwhals_type(each.type)).alias(each.name) for each in rows.schema if each.name != there
            ]
            rows = Union((rows, Project(self._rows.beats, tuple(nothing), keep=False)))
        if not aggregates:
            aggregates["@aggregate"] = g.count()
        made = WindowAggregate(KeyBy(rows, keys), Snapshot(), named_aggregates(aggregates))
        problem = "is neither a column that it is grouped by nor an aggregate"
        return KeyBy(made, ()) if keys else made, ColumnScope(computed, scope, problem)

    # Sources

    def _source(self, select: q.OneSelect, outer: TableScope | None, *, within: bool = False) -> _Joined:
        """What is selected from, with the conditions of the where clause.

        Args:
            select: The select.
            outer: The scope of the query around.
            within: Whether it only says which rows of another query have partners.
        """
        conditions = list(conjuncts(select.where))
        if isinstance(select.source, q.AlertSource):
            events = self._rows.alerts[select.source.place]
            table = BoundTable("", events.schema, self._fresh())
            node = _prefixed(events, table)
            return self._restricted(_Joined(node, (table,)), conditions, outer)
        source = select.source
        self._check_aliases(source)
        kept = kept_sides(source)
        statuses: dict[str, frozenset[int]] = {}
        rest: list[Expression] = []
        for each in conditions:
            shown = status_of(each)
            if shown is None or shown[0] not in kept:
                rest.append(each)
            else:
                statuses[shown[0]] = statuses.get(shown[0], ALL) & shown[1]
                self._scope_check(source, each, shown[0])
        read = {
            node.alias
            for each in (*rest, *shown_expressions(select))
            for node in walked(each)
            if isinstance(node, q.RowStatus)
        }
        # Rows that stay meet others in their cycles; where they meet none, they are in each cycle by themselves, and so
        # are those that are kept for what they do not meet or for how often they meet it.
        alone = all(isinstance(each, q.PlainTable) for each in source.tables)
        shows_lone = {"left", "right", "full"} if isinstance(source.first, q.PlainTable) else {"right", "full"}
        asks = any(inner_condition(each) for each in rest)
        in_cycles = (alone and (asks or not within)) or any(join.kind in shows_lone for join in source.joins)
        joined = self._table(source.first, source, statuses, read, in_cycles=in_cycles)
        for join in source.joins:
            other = self._table(join.table, source, statuses, read, in_cycles=in_cycles)
            joined, rest = self._join(joined, join, other, rest, outer)
        return self._restricted(joined, rest, outer)

    def _restricted(self, joined: _Joined, conditions: Sequence[Expression], outer: TableScope | None) -> _Joined:
        """Rows for which conditions hold; a condition about another query is a join that keeps those with partners."""
        node, scope = joined.node, self._scope(joined, outer)
        for each in conditions:
            inner = inner_condition(each)
            if inner is None:
                node = Filter(node, truth(bind(each, scope), "'where'"))
            else:
                node = self.beside(node, joined.tables, inner)
        return _Joined(node, joined.tables)

    def _scope_check(self, source: q.JoinedTables, condition: Expression, alias: str) -> None:
        table = next((each for each in source.tables if each.alias == alias), None)
        if isinstance(table, q.PlainTable | q.QueryTable):
            raise failure_at(condition, f"{alias!r} is no partition: its rows have no status.")

    def _check_aliases(self, source: q.JoinedTables) -> None:
        seen: set[str] = set()
        for each in source.tables:
            if each.alias and each.alias in seen:
                raise failure_at(
                    each, f"Two tables are called {each.alias!r}.", "Name one of them otherwise: as another"
                )
            if isinstance(each, q.SelfTable) and each.of not in seen:
                raise failure_at(
                    each,
                    f"{each.of!r} is no partition before this.",
                    "Write self# and the name of a partition of the same from clause.",
                )
            seen.add(each.alias)

    def _fresh(self) -> str:
        self._tables += 1
        return f"{self._tables}."

    def _table(
        self,
        table: q.SourceTable,
        source: q.JoinedTables,
        statuses: Mapping[str, frozenset[int]],
        read: set[str],
        *,
        in_cycles: bool,
    ) -> _Joined:
        prefix = self._fresh()
        match table:
            case q.PlainTable():
                known = self._rows.tables
                if table.name not in known:
                    raise unknown(table, f"There is no table {table.name!r}.", table.name, known, known, "Tables")
                bound = BoundTable(table.alias, self._rows.table_schemas[table.name], prefix)
                rows = known[table.name]
                rows = AtCycles(rows, self._rows.beats) if in_cycles else rows
                return _Joined(_prefixed(rows, bound), (bound,))
            case q.QueryTable():
                made = self.query(table.query)
                names = _unique_names(made, table)
                schema = pa.schema(list(zip(names, made.types(), strict=True)))
                bound = BoundTable(table.alias, schema, prefix)
                columns = [nw.col(own).alias(bound.column(name)) for own, name in zip(made.columns, names, strict=True)]
                return _Joined(Project(made.node, tuple(columns), keep=False), (bound,))
        of = table
        while isinstance(of, q.SelfTable):
            of = next(each for each in source.tables if each.alias == of.of)  # type: ignore[assignment]
        if not isinstance(of, q.StreamTable):
            raise failure_at(table, f"{of.alias!r} is no partition.", "Only a partition is there once more by self#.")
        shown = statuses.get(table.alias, ALL)
        bound = BoundTable(table.alias, self._rows.schemas[of.place], prefix, True, table.alias in read)
        return _Joined(self._stated(self._rows.partitions[of.place], bound, shown), (bound,))

    def _stated(self, rows: Node, table: BoundTable, shown: frozenset[int]) -> Node:
        """The rows of a partition in the cycles in which a query sees them, with their status if it reads it."""
        names = {NEW: "new", DEAD: "dead"}
        if len(shown) == 1 and (status := next(iter(shown))) in names:
            own = [nw.lit(status, nw.Int8()).alias(table.column(STATUS))] if table.stated else []
            return _prefixed(became(rows, names[status]), table, own)
        if shown == SHOWN["not dead"] and not table.stated:
            return _prefixed(AtCycles(rows, self._rows.beats), table)
        content: Node = AtCycles(rows, self._rows.beats, stated=True)
        if shown != ALL:
            content = Filter(content, nw.col(STATUS).is_in(sorted(shown)))
        own = [nw.col(STATUS).alias(table.column(STATUS))] if table.stated else []
        return _prefixed(content, table, own)

    def _join(
        self, left: _Joined, join: q.JoinedTable, right: _Joined, rest: list[Expression], outer: TableScope | None
    ) -> tuple[_Joined, list[Expression]]:
        """Two tables as one, and the conditions of the where clause that this does not answer."""
        tables = (*left.tables, *right.tables)
        given = rest if join.kind == "cross" else list(conjuncts(join.on))
        pairs, others = equal_pairs(given, left.tables, right.tables)
        keys = [(mine, f"{other} key") for mine, other in pairs]
        keyed = extended(
            right.node, (nw.col(other).alias(key) for (_, other), (_, key) in zip(pairs, keys, strict=True))
        )
        condition = None
        if join.kind != "cross" and others:
            scope = TableScope(tables, self._rows.clock, outer)
            made = [truth(bind(each, scope), "'on'") for each in others]
            condition = made[0] if len(made) == 1 else nw.all_horizontal(*made, ignore_nulls=False)
        how: Any = "inner" if join.kind == "cross" else join.kind
        node = Join(left.node, keyed, tuple(keys), how, condition)
        return _Joined(node, tables), others if join.kind == "cross" else rest

    def beside(self, node: Node, tables: Sequence[BoundTable], asked_for: InnerCondition) -> Node:
        """Rows for which a query has rows, or has a value; or those for which it has none."""
        inner, value, negated = asked_for.query, asked_for.value, asked_for.negated
        outer = TableScope(tables, self._rows.clock)
        select = inner.select
        simple = not (inner.further or inner.limit is not None or select.group_by or select.having is not None)
        simple = simple and not any(
            aggregate_calls(item.expression) for item in select.items if item.expression is not None
        )
        if not simple or isinstance(select.source, q.AlertSource):
            made = self.query(inner)
            column = nw.col(made.columns[0]).alias("@inner")
            other: Node = Project(made.node, (column,), keep=False)
            bound = Bound(nw.col("@inner"), made.types()[0])
            pairs: list[tuple[str, str]] = []
            conditions: list[nw.Expr] = []
            count = len(made.names)
        else:
            own, correlated = self._split(select, outer)
            joined = self._source(replace(select, where=own), None, within=True)
            other, scope = joined.node, self._scope(joined, outer)
            pairs, plain = equal_pairs(correlated, tables, joined.tables)
            conditions = [truth(bind(each, scope), "'where'") for each in plain]
            items = list(self._items(select, joined.tables))
            count = len(items)
            assert items[0].expression is not None  # noqa: S101  (wildcards are written out)
            bound = bind(items[0].expression, scope)
        if value is not None:
            if count != 1:
                raise failure_at(inner, f"A query behind 'in' selects one column, not {count}.")
            asked = bind(value, outer)
            dtype = t.common_type([asked.type, bound.type])
            if dtype is None:
                raise failure_at(
                    inner, f"{asked.typed}, and the query selects values of type {t.type_name(bound.type)}."
                )
            holds = _COMPARED[asked_for.operator](as_type(asked, dtype), as_type(bound, dtype))
            # What compares with null is unknown: it is not among the values, and not outside of them.
            conditions.append(holds | asked.value.is_null() | bound.value.is_null() if negated else holds)
        keyed = extended(other, (nw.col(theirs).alias(f"{theirs} key") for _, theirs in pairs))
        on = tuple((mine, f"{theirs} key") for mine, theirs in pairs)
        condition = reduce(lambda one, more: one & more, conditions) if conditions else None
        return Join(node, keyed, on, "anti" if negated else "semi", condition)

    def _split(self, select: q.OneSelect, outer: TableScope) -> tuple[Expression | None, list[Expression]]:
        """The conditions of a query within another one: about its own rows alone, and about both."""
        own: list[Expression] = []
        correlated: list[Expression] = []
        assert isinstance(select.source, q.JoinedTables)  # noqa: S101  (alerts are not simple)
        aliases = {each.alias for each in select.source.tables}
        schemas = {each.alias: self._schema(each, select.source) for each in select.source.tables}
        for each in conjuncts(select.where):
            names = [node for node in walked(each) if isinstance(node, Name | Member | q.RowStatus)]
            foreign = False
            for node in names:
                if isinstance(node, q.RowStatus):
                    foreign = foreign or node.alias not in aliases
                elif isinstance(node, Member) and isinstance(node.of, Name):
                    foreign = foreign or node.of.name not in aliases
                elif isinstance(node, Name) and outer.holds(node):
                    inside = any(node.name in schema.names for schema in schemas.values())
                    qualifies = any(isinstance(more, Member) and more.of is node for more in names)
                    foreign = foreign or not (inside or qualifies)
            (correlated if foreign else own).append(each)
        where = None if not own else own[0] if len(own) == 1 else Logical("and", tuple(own))
        return where, correlated

    def _schema(self, table: q.SourceTable, source: q.JoinedTables) -> pa.Schema:
        match table:
            case q.StreamTable():
                return self._rows.schemas[table.place]
            case q.PlainTable():
                return self._rows.table_schemas.get(table.name, pa.schema([]))
            case q.SelfTable():
                of = next((each for each in source.tables if each.alias == table.of), None)
                return pa.schema([]) if of is None or of is table else self._schema(of, source)
        return pa.schema([])


def _column(number: int) -> str:
    return f"@column {number}"


def _valued(bound: Bound) -> nw.Expr:
    """A value for a column; null is of a type there."""
    return nw.lit(None, nw.Int32()) if bound.type == t.NULL else bound.value


def _prefixed(node: Node, table: BoundTable, own: Sequence[nw.Expr] = ()) -> Node:
    """A table's rows with the plan's names of its columns."""
    return Project(node, (*(nw.col(name).alias(table.column(name)) for name in table.schema.names), *own), keep=False)


def _name(item: q.ShownItem) -> str:
    if item.alias:
        return item.alias
    match item.expression:
        case Name(name) | Member(_, name):
            return name
    return ""


def names_shown(made: Answered) -> list[str]:
    """What the columns of an answer are called: those of one name by their texts, those of none too."""
    plain = [name or text for name, text in zip(made.names, made.texts, strict=True)]
    found = [text if plain.count(name) > 1 else name for name, text in zip(plain, made.texts, strict=True)]
    return [
        name if found.index(name) == at else f"{name} {found[: at + 1].count(name)}" for at, name in enumerate(found)
    ]


def _unique_names(made: Answered, node: Syntax) -> list[str]:
    names = list(made.names)
    for name in names:
        if not name or names.count(name) > 1:
            what = f"Two columns of the query are called {name!r}." if name else "A column of the query has no name."
            raise failure_at(node, what, "Name each: select … as name.")
    return names


def _order_column(made: Answered, key: q.OrderKey) -> str:
    """The column by which selects together are ordered."""
    if isinstance(key.expression, Name) and made.names.count(key.expression.name) == 1:
        return _column(made.names.index(key.expression.name))
    raise failure_at(
        key,
        "Selects together are ordered by columns of the first one.",
        f"Those are {', '.join(filter(None, made.names))}.",
    )


def _by_alias(key: Expression, aliases: Mapping[Name, Expression | None], scope: TableScope) -> Expression:
    """What a query is ordered by: a column of the answer by its name, before one of the tables."""
    found = aliases.get(key) if isinstance(key, Name) else None
    return key if found is None else found


def _is_unique(name: str, scope: TableScope) -> bool:
    return sum(name in each.schema.names for each in scope.tables) == 1


def _aggregate(
    call: FunctionCall, scope: TableScope, there: str, column: str
) -> tuple[Aggregate, list[nw.Expr], pa.DataType]:
    """An aggregate of a query's groups, the column that it is of, and its type."""
    name, distinct_values = call.name.lower(), bool(call.quantity)
    if name == "count" and (not call.arguments or isinstance(call.arguments[0], Wildcard)):
        return g.count(where=nw.col(there)), [], t.LONG
    if len(call.arguments) != 1 or not isinstance(call.arguments[0], Expression):
        raise failure_at(call, f"{call.name}(…) takes one value, not {len(call.arguments)}.")
    bound = bind(call.arguments[0], scope)
    numeric: Literal["sum", "avg"] | None = "sum" if name == "sum" else "avg" if name == "avg" else None
    if numeric and not t.is_numeric(bound.type):
        raise failure_at(call, f"{call.name}(…) takes numbers, and {bound.typed}.")
    value = bound.value.cast(nw.Int64()) if name == "sum" and t.is_integer(bound.type) else _valued(bound)
    of = nw.col(column)
    made = {
        "count": lambda: g.count(of, distinct=distinct_values),
        "sum": lambda: g.sum(of, distinct=distinct_values),
        "avg": lambda: g.mean(of, distinct=distinct_values),
        "min": lambda: g.min(of),
        "max": lambda: g.max(of),
    }[name]()
    dtype = {"count": t.LONG, "avg": t.DOUBLE}.get(name, bound.type)
    if name == "sum":
        dtype = t.LONG if t.is_integer(bound.type) else t.DOUBLE
    return made, [value.alias(column)], dtype
