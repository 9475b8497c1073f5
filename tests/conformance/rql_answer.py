"""StreamCruncher's queries over partitions and tables: joins, conditions and groups on the axis of cycles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any

import narwhals as nw
import pyarrow as pa

import gpu_ops as g
from gpu_ops import Stream
from tests.conformance.rql_structure import Inner, Select, Sorted, Status, Table, conjuncts, inner_selects
from tests.conformance.rql_tree import Call, Expression, Name, Operation, Star, parts
from tests.conformance.rql_values import condition, value
from tests.conformance.streamcruncher_script import Cycles
from tests.conformance.streamcruncher_windows import Ask
from tests.conformance.unsupported import UnsupportedError, aggregate
from tests.support.ticks import instants

CLOCK = "current_timestamp"
ALERT = "$alert"
"""The name of what an alert gives, among what is selected from."""

_FUNCTIONS: Mapping[str, Callable[..., nw.Expr]] = {
    "abs": lambda given: given.abs(),
    "coalesce": g.coalesce,
    "lower": lambda given: given.str.to_lowercase(),
    "upper": lambda given: given.str.to_uppercase(),
}
"""Functions of a row's values."""

_KINDS = {pa.int64(): "whole", pa.float64(): "real", pa.string(): "text", pa.bool_(): "truth"}


def tables_of(select: Select) -> Iterator[Table]:
    """All partitions and tables that a query selects from, or those within it."""
    tables = select.tables if select.alert is None else select.alert.tables
    yield from (table for table in tables if table.select is None)
    selected = [table.select for table in tables if table.select is not None]
    for inner in (*selected, *inner_selects(select.where), *(other for _, other in select.others)):
        yield from tables_of(inner)


def stated(stream: Stream, alias: str) -> Stream:
    """A partition's rows by the alias, each in a cycle with its state: new, old, and for one more cycle dead."""
    named = stream.select(**{f"{alias}.{name}": g.col(name) for name in stream.schema.names if name[0] != "$"})
    later = named.alter_lifetime(start=g.col("start") + g.lit(1).cast(g.Duration("us")))
    states = {"new": named.to_point(), "old": later, "dead": named.point_at_end()}
    new, *others = (each.with_columns(**{status_of(alias): g.lit(state)}) for state, each in states.items())
    return new.union(*others)


def clock(cycles: Cycles, name: str = CLOCK) -> Stream:
    """What the clock says in each cycle, in milliseconds."""
    times = [time for time, _ in cycles.all]
    table = {"start": instants(range(len(times))), name: pa.array(times, pa.int64())}
    return g.events(pa.table(table), start="start", name=name)


def status_of(alias: str) -> str:
    """The column with the state of an alias' rows."""
    return f"{alias}.$row_status"


class Scope:
    """What all expressions know."""

    def __init__(self, stream: Stream) -> None:
        self._schema = stream.schema

    def resolved(self, name: str) -> str:
        """A column's name with its alias."""
        found: list[str] = [each for each in self._schema.names if each == name or each.endswith(f".{name}")]
        if not found:
            raise UnsupportedError(f"RQL: no column {name!r}")
        return found[0]

    def column(self, name: str) -> tuple[nw.Expr, str]:
        """A column by its own name, or by its alias as well."""
        found = self.resolved(name)
        return g.col(found), _KINDS.get(self._schema.field(found).type, "real")

    def status(self, status: Status) -> nw.Expr:
        """The state is a column beside the others."""
        name = status_of(status.alias)
        if name not in self._schema.names:
            raise UnsupportedError(f"RQL: no $row_status of {status.alias!r}")
        return g.col(name) != "dead" if status.state == "not dead" else g.col(name) == status.state

    def inner(self, _inner: Inner) -> nw.Expr:
        """Conditions of a query are joins, where all have to hold."""
        raise UnsupportedError("RQL: no queries within or")

    def call(self, call: Call) -> tuple[nw.Expr, str]:
        """Functions of values."""
        if call.name not in _FUNCTIONS:
            raise UnsupportedError(f"RQL: no function {call.name}")
        given = [value(each, self) for each in call.arguments]
        return _FUNCTIONS[call.name](*(each for each, _ in given)), given[0][1]


class Answer:
    """The query over partitions and tables that are streams on the axis of cycles.

    Attributes:
        names: What its columns are called.
    """

    def __init__(self, select: Select, streams: Mapping[str, Stream], cycles: Cycles) -> None:
        self._select = select
        self._streams = streams
        self._cycles = cycles
        stream = streams[ALERT] if select.alert else self._joined(select)
        uses = [each for expression in _expressions(select) for each in parts(expression)]
        if Name(CLOCK) in uses:
            stream = stream.join(clock(cycles))
        for each in conjuncts(select.where):
            stream = self._where(stream, each)
        self._stream = stream
        self._items = tuple(item for given in select.items for item in self._expanded(given))
        self.names = [name for _, name in self._items]

    def _joined(self, select: Select) -> Stream:
        first, *others = select.tables
        stream = self._table(first)
        for table in others:
            other = self._table(table)
            if table.on is None:
                stream = stream.join(other)
            else:
                both = Scope(stream.to_point().join(other.to_point()))
                stream = stream.join(other, how=table.how, condition=condition(table.on, both))  # type: ignore[arg-type]
        return stream

    def _table(self, table: Table) -> Stream:
        if table.select is None:
            return self._streams[table.alias]
        if table.select.order or table.select.limit is not None:
            raise UnsupportedError("RQL: no order or limit in a query that is selected from")
        answer = Answer(table.select, self._streams, self._cycles)
        columns = {f"{table.alias}.{name}": g.col(f"item {at}") for at, name in enumerate(answer.names)}
        return answer.shown(()).select(**columns)

    def _where(self, stream: Stream, expression: Expression) -> Stream:
        """Another query is a join that keeps rows with partners, or those without."""
        match expression:
            case Inner():
                return self._beside(stream, expression, "semi")
            case Operation("not", (Inner() as inner,)):
                return self._beside(stream, inner, "anti")
        return stream.filter(condition(expression, Scope(stream)))

    def _beside(self, stream: Stream, inner: Inner, how: Any) -> Stream:
        select = inner.select
        if select.groups or select.limit is not None or select.others or not select.tables:
            raise UnsupportedError("RQL: no groups, limits or sets in a query's conditions")
        plain = [each for each in conjuncts(select.where) if not inner_selects(each)]
        other = self._joined(select)
        for each in conjuncts(select.where):
            if each not in plain:
                other = self._where(other, each)
        scope = _InnerScope(stream.to_point().join(other.to_point()), other)
        held = [condition(each, scope) for each in plain]
        if inner.value is not None:
            (item, _), *more = select.items
            if more:
                raise UnsupportedError("RQL: a query in a condition selects one column")
            held.append(value(inner.value, Scope(stream))[0] == value(item, Scope(other))[0])
        return stream.join(other, how=how, condition=reduce(and_, held) if held else None)

    def _expanded(self, item: tuple[Expression, str]) -> Iterator[tuple[Expression, str]]:
        expression, _ = item
        everything = isinstance(expression, Star)
        if not everything and not (isinstance(expression, Name) and expression.name.endswith(".*")):
            yield item
            return
        for column in self._stream.schema.names:
            alias, _, own = column.rpartition(".")
            if not own.startswith("$") and (everything or f"{alias}.*" == expression.name):  # type: ignore[union-attr]
                yield Name(column), own

    def shown(self, order: Sequence[Expression]) -> Stream:
        """The rows in each cycle, as columns "item 0", "item 1" and so on, and "order 0" to sort them by."""
        select = self._select
        stream, scope = self._grouped(order)
        if select.having is not None:
            stream = stream.filter(condition(select.having, scope))
        columns = {f"item {at}": value(item, scope)[0] for at, (item, _) in enumerate(self._items)}
        columns |= {f"order {at}": value(each, scope)[0] for at, each in enumerate(order)}
        stream = stream.select(**columns)
        if select.distinct:
            stream = stream.distinct()
        for word, other in select.others:
            stream = _SETS[word](stream, Answer(other, self._streams, self._cycles).shown(()))
        return stream

    def rows(self, ask: Ask) -> list[list[list[Any]]]:
        """The rows of each cycle."""
        select = self._select
        if select.others:
            places = [self.names.index(each.by.expression.name) for each in select.order]  # type: ignore[union-attr]
            stream, keys = self.shown(()), [f"item {place}" for place in places]
        else:
            aliases = {name: expression for expression, name in self._items if name}
            stream = self.shown([_aliased(each.by.expression, aliases) for each in select.order])
            keys = [f"order {at}" for at in range(len(select.order))]
        answer = ask(stream)
        times = [answer[side].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist() for side in ("start", "end")]
        found: list[list[dict[str, Any]]] = [[] for _ in self._cycles.all]
        for start, end, row in zip(*times, answer.to_pylist(), strict=True):
            for number in range(start, min(end, len(found))):
                found[number].append(row)
        for rows in found:
            for key, by in reversed(list(zip(keys, select.order, strict=True))):
                rows.sort(key=_place(key, by), reverse=by.by.descending)
        last = None if select.limit is None else select.offset + select.limit
        items = [f"item {at}" for at in range(len(self._items))]
        return [[[row[item] for item in items] for row in rows[select.offset : last]] for rows in found]

    def _grouped(self, order: Sequence[Expression]) -> tuple[Stream, Scope]:
        """Where the query aggregates, its groups in each cycle."""
        select = self._select
        having = [] if select.having is None else [select.having]
        shown = [*(item for item, _ in self._items), *order, *having]
        uses = (each for one in shown for each in parts(one) if isinstance(each, Call))
        calls = list(dict.fromkeys(each for each in uses if each.name not in _FUNCTIONS))
        if not select.groups and not calls:
            return self._stream, Scope(self._stream)
        scope = Scope(self._stream)
        columns = {f"group {at}": value(key, scope)[0] for at, key in enumerate(select.groups)}
        keys, aggregates = list(columns), {}
        for at, call in enumerate(calls):
            if not call.arguments or isinstance(call.arguments[0], Star):
                aggregates[f"call {at}"] = g.count(where=g.col("$there"))
            else:
                columns[f"call {at}"] = value(call.arguments[0], scope)[0]
                options = {"distinct": True} if call.distinct else {}
                aggregates[f"call {at}"] = aggregate(call.name, f"call {at}", **options)
        stream = self._stream.select(**columns, **{"$there": g.lit(value=True)})
        if not keys:
            stream = stream.union(self._nothing(stream.schema))
        groups = stream.by(*keys).snapshot().agg(**aggregates)
        return groups, _GroupScope(groups, select.groups, calls)

    def _nothing(self, schema: pa.Schema) -> Stream:
        """A row without values in each cycle: all rows are a group even if there are none."""
        size = len(self._cycles.all)
        columns = {field.name: pa.nulls(size, field.type) for field in schema}
        columns["$there"] = pa.array([False] * size)
        return g.events(pa.table({"start": instants(range(size)), **columns}), start="start", name="nothing")


def _all_but(stream: Stream, other: Stream) -> Stream:
    return stream.distinct().join(other, on=stream.schema.names, how="anti")


def _both(stream: Stream, other: Stream) -> Stream:
    return stream.distinct().join(other, on=stream.schema.names, how="semi")


_SETS: Mapping[str, Callable[[Stream, Stream], Stream]] = {
    "union": lambda stream, other: stream.union(other).distinct(),
    "union all": lambda stream, other: stream.union(other),
    "minus": _all_but,
    "intersect": _both,
}


class _InnerScope(Scope):
    """Rows of a query within a condition, beside those of the one around it."""

    def __init__(self, both: Stream, own: Stream) -> None:
        super().__init__(both)
        self._own = Scope(own)

    def resolved(self, name: str) -> str:
        """Its own columns come first."""
        try:
            return self._own.resolved(name)
        except UnsupportedError:
            return super().resolved(name)


class _GroupScope(Scope):
    """A group of a cycle's rows."""

    def __init__(self, stream: Stream, groups: Sequence[Expression], calls: Sequence[Call]) -> None:
        super().__init__(stream)
        self._groups = list(groups)
        self._calls = list(calls)

    def column(self, name: str) -> tuple[nw.Expr, str]:
        """A column that it is grouped by."""
        for at, key in enumerate(self._groups):
            if isinstance(key, Name) and name in {key.name, key.name.rpartition(".")[2]}:
                return super().column(f"group {at}")
        return super().column(name)

    def call(self, call: Call) -> tuple[nw.Expr, str]:
        """Aggregates of the group."""
        if call.name in _FUNCTIONS:
            return super().call(call)
        return super().column(f"call {self._calls.index(call)}")


def _expressions(select: Select) -> Iterator[Expression]:
    yield from (item for item, _ in select.items)
    yield from conjuncts(select.where)
    yield from (each.by.expression for each in select.order)


def _aliased(expression: Expression, aliases: Mapping[str, Expression]) -> Expression:
    return aliases.get(expression.name, expression) if isinstance(expression, Name) else expression


def _place(column: str, by: Sorted) -> Callable[[dict[str, Any]], tuple[bool, Any]]:
    """Null before or behind all else; the order may be turned around."""
    last = by.nulls_first == by.by.descending

    def place(row: dict[str, Any]) -> tuple[bool, Any]:
        found = row[column]
        return (found is None) == last, 0 if found is None else found

    return place
