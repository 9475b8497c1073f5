"""Tables: `create table`, `into table`, and what expressions read of a table (`T.total`, `T[key].total`, `T`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from gpu_ops.core.time import TICK, TIME_TYPE
from gpu_ops.core.turns import CLOCK, PLACE
from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.epl.column_names import column_names
from gpu_ops.epl.inlining import rebuilt
from gpu_ops.epl.patterns import EventFilter
from gpu_ops.epl.planning.aggregates import PlannedAggregates
from gpu_ops.epl.planning.changes import change_of
from gpu_ops.epl.planning.chosen_events import BY_VALUE
from gpu_ops.epl.planning.known_windows import ID, SILENT, KnownWindow, PlannedChange, WindowLimits
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.planned import Ledger, PlannedStatement, known_type
from gpu_ops.epl.planning.scopes import EventScope
from gpu_ops.plan.nodes import Feed
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.scope import BoundStream, unknown
from gpu_ops.texts.placed_error import failure_at, unsupported

_EVENTS = frozenset({"window", "sorted", "first", "last", "maxby", "minby", "firstever", "lastever"})
"""The aggregates whose values are events."""


def table_schema(create: s.CreateTable, ledger: Ledger) -> pa.Schema:
    """The columns of a table: values, and those of aggregates.

    Raises:
        PlacedError: A type is unknown.
    """
    fields = []
    for at, each in enumerate(create.columns):
        if any(each.name == other.name for other in create.columns[:at]):
            raise failure_at(each, f"Two columns are called {each.name!r}.", "Rename one of them.")
        dtype = _aggregate(each, each.type, ledger) if isinstance(each.type, e.FunctionCall) else _plain(each.type)
        fields.append(pa.field(each.name, dtype))
    return pa.schema(fields)


def _plain(node: e.TypeName) -> pa.DataType:
    dtype = t.type_of(str(node))
    if dtype is None or dtype == t.NULL:
        raise unsupported(node, f"columns of type {node} in tables", "Write int, double or string, for instance.")
    return dtype


def _aggregate(column: s.ColumnDefinition, call: e.FunctionCall, ledger: Ledger) -> pa.DataType:
    """The type of an aggregate's column."""
    name = call.name.lower()
    values = [value for each in column.annotations if each.name.lower() == "type" for _, value in each.settings]
    said = [str(value.value if isinstance(value, e.Constant) else value) for value in values]
    if name.startswith("countminsketch"):
        raise unsupported(call, "sketches of frequencies (countMinSketch)")
    if name in _EVENTS:
        if not said:
            raise failure_at(column, f"{column.name} keeps events, and does not say of which type.", "Write @type(T).")
        schema = known_type(EventFilter(said[-1], place=column.place), ledger)
        one = pa.struct(list(schema))
        return pa.list_(one) if name in {"window", "sorted"} else one
    value = "value"
    some = [each for each in call.arguments if not isinstance(each, e.Wildcard)]
    dtype = _plain(e.TypeName(str(some[0]), place=call.place)) if some else t.INT
    if name == "avg" and pa.types.is_decimal(dtype):
        raise unsupported(call, "averages of big numbers in tables")
    stream = BoundStream("", "table", pa.schema([(value, dtype)]))
    arguments = tuple(
        e.Name(value, place=call.place) if each is some[0] else each for each in call.arguments[:1] if some
    )
    asked = replace(call, arguments=arguments or (e.Wildcard(place=call.place),))
    return PlannedAggregates(EventScope([stream])).aggregate(asked).type


def known_table(create: s.CreateTable, schema: pa.Schema) -> KnownWindow:
    """A table, as a named window whose rows stay until an event takes them out."""
    own = [pa.field(CLOCK, TIME_TYPE), pa.field(PLACE, pa.int64())]
    arrivals = Feed(pa.schema([*schema, pa.field(ID, pa.int64()), *own]), (), TICK)
    content = Feed(pa.schema([*schema, *own, pa.field(SILENT, pa.bool_())]), (), None)
    keys = tuple(each.name for each in create.columns if each.primary_key)
    for each in create.columns:
        if each.primary_key and (
            isinstance(each.type, e.FunctionCall) or pa.types.is_nested(schema.field(each.name).type)
        ):
            raise failure_at(each, "A primary key is a plain column.", "Leave the words out.")
    made = frozenset(each.name for each in create.columns if isinstance(each.type, e.FunctionCall))
    return KnownWindow(
        create.name,
        schema,
        arrivals,
        None,
        None,
        content,
        None,
        alone=True,
        anchored=False,
        keys=keys,
        aggregates=made,
        is_table=True,
        limits=WindowLimits(),
        declared={each.name: each.type for each in create.columns if isinstance(each.type, e.FunctionCall)},
    )


def into_table(query: q.Query, windows: Mapping[str, KnownWindow]) -> tuple[q.Query, KnownWindow]:
    """(a query whose rows are those of a table, the table): the keys of groups are columns too.

    Raises:
        PlacedError: There is no such table, or it has no such columns.
    """
    table = windows.get(query.into_table)
    if table is None or not table.is_table:
        known = [name for name, each in windows.items() if each.is_table]
        raise unknown(query, f"There is no table {query.into_table!r}.", query.into_table, known, known, "Known")
    names = column_names(query.items)
    for item, name in zip(query.items, names, strict=True):
        if name is None or name not in table.schema.names:
            known = list(table.schema.names)
            raise unknown(item, f"The table {table.name!r} has no column {name or '*'!r}.", name or "", known, known)
    if len(query.group_by) != len(table.keys):
        said = f"{table.name!r} has {len(table.keys)} keys, and the query groups by {len(query.group_by)}."
        raise failure_at(query, said, "Group by as many, in their order.")
    for each in (query.output, query.insert, query.limit):
        if each is not None:
            raise unsupported(each, "outputs, inserts and limits beside into table")
    items = [
        _as_declared(each, table.declared.get(name or ""))
        for each, name in zip(query.items, names, strict=True)
        if name not in table.keys
    ]
    for name, key in zip(table.keys, query.group_by, strict=True):
        if not isinstance(key, e.Expression):
            raise unsupported(key, "rollups into tables")
        items.append(q.SelectItem(key, name, place=key.place))
    return replace(query, items=tuple(items), into_table="", selector="istream"), table


def _as_declared(item: q.SelectItem, declared: e.FunctionCall | None) -> q.SelectItem:
    """An item that keeps whole events, `sorted(*)` or `maxby()`, with what the table's column says of their order."""
    call = item.expression
    if declared is None or not isinstance(call, e.FunctionCall) or call.name.lower() != declared.name.lower():
        return item
    given = [each for each in call.arguments if not isinstance(each, e.NamedArgument)]
    if call.name.lower() not in BY_VALUE or not all(isinstance(each, e.Wildcard) for each in given):
        return item
    options = [each for each in call.arguments if isinstance(each, e.NamedArgument)]
    return replace(item, expression=replace(call, arguments=(*given, *declared.arguments, *options)))


def with_into(plan: PlannedStatement, query: q.Query, table: KnownWindow) -> PlannedStatement:
    """A plan whose rows replace those of a table that have their keys."""
    place = query.place
    source = e.Name("event", place=place)
    pairs = [
        e.Operation(
            "=",
            e.Member(source, key, place=place),
            e.Member(e.Name(table.name, place=place), key, place=place),
            place=place,
        )
        for key in table.keys
    ]
    where = None if not pairs else pairs[0] if len(pairs) == 1 else e.Logical("and", tuple(pairs), place=place)
    set_ = tuple(
        q.Assignment(e.Name(name, place=place), e.Member(source, name, place=place), place=place)
        for name in plan.columns.names
        if name not in table.keys
    )
    items = tuple(q.SelectItem(e.Member(source, name, place=place), name, place=place) for name in plan.columns.names)
    branches = (
        s.MergeBranch(True, (s.MergeUpdate(set_, place=place),), place=place),
        s.MergeBranch(False, (s.MergeInsert(items, place=place),), place=place),
    )
    trigger = s.Trigger(EventFilter("event", place=place), "event", place=place)
    merge = s.OnMerge(trigger, table.name, "", where, branches, place=place)
    change: PlannedChange = change_of(merge, BoundStream("event", "event", plan.columns), table)
    note = f"Into {table.name}: the rows of each key follow each other, those of a batch at once"
    return replace(plan, change=replace(change, into=True), notes=(*plan.notes, note))


def with_tables(node: Any, windows: Mapping[str, KnownWindow], types: Mapping[str, pa.Schema]) -> Any:
    """A part of a statement in which what it reads of tables are sub-queries.

    Raises:
        PlacedError: A key is missing, or a table has no such column.
    """
    tables = {name: each for name, each in windows.items() if each.is_table}
    if not tables:
        return node
    streams = {
        part.source.type_name
        for part in parts(node)
        if isinstance(part, q.StreamTerm) and isinstance(part.source, EventFilter)
    }
    known = {name: each for name, each in tables.items() if name not in streams}

    def change(part: Any) -> Any:
        if isinstance(part, e.Member) and (found := _row_of(part.of, known)) is not None:
            table, keys = found
            if part.name not in table.schema.names:
                names = list(table.schema.names)
                raise unknown(part, f"The table {table.name!r} has no column {part.name!r}.", part.name, names, names)
            return _asked(table, around(keys, table), e.Name(part.name, place=part.place), part)
        found = _row_of(part, known)
        if found is None:
            return None
        return _asked(found[0], around(found[1], found[0]), e.Wildcard(place=part.place), part)

    def around(keys: tuple[e.Expression, ...], table: KnownWindow) -> tuple[e.Expression, ...]:
        """Keys whose properties are those of the query, though the table has columns of these names."""

        def said(part: Any) -> Any:
            if not isinstance(part, e.Name) or part.name not in table.schema.names or not isinstance(node, q.Query):
                return None
            for term in node.streams:
                name = getattr(term.source, "type_name", "")
                if part.name in types.get(name, pa.schema([])).names:
                    return e.Member(e.Name(term.alias or name, place=part.place), part.name, place=part.place)
            return None

        made: tuple[e.Expression, ...] = rebuilt(rebuilt(keys, change), said)
        return made

    return rebuilt(node, change)


def _row_of(node: Any, tables: Mapping[str, KnownWindow]) -> tuple[KnownWindow, tuple[e.Expression, ...]] | None:
    """(the table, the keys) of a row that is meant."""
    keys: tuple[e.Expression, ...] = ()
    if isinstance(node, e.Element):
        node, keys = node.of, node.indexes
    if not isinstance(node, e.Name) or node.name not in tables:
        return None
    table = tables[node.name]
    if len(keys) != len(table.keys):
        raise failure_at(
            node,
            f"The table {table.name!r} has {len(table.keys)} keys, and there are {len(keys)}.",
            "Write: T[key].column.",
        )
    return table, keys


def _asked(table: KnownWindow, keys: tuple[e.Expression, ...], shown: e.Expression, node: e.Expression) -> q.Subquery:
    place = node.place
    equal = tuple(
        e.Operation("=", e.Member(e.Name(table.name, place=place), name, place=place), key, place=place)
        for name, key in zip(table.keys, keys, strict=True)
    )
    where = None if not equal else equal[0] if len(equal) == 1 else e.Logical("and", equal, place=place)
    term = q.StreamTerm(EventFilter(table.name, place=place), place=place)
    return q.Subquery(q.Query((q.SelectItem(shown, place=place),), term, where=where, place=place), place=place)
