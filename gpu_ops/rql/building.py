"""From what the grammar found to the syntax tree: a method for each rule, or for the name behind its arrow."""

from __future__ import annotations

from functools import partial
from typing import Any

from gpu_ops.rql import queries as q
from gpu_ops.rql.lexer import UNITS
from gpu_ops.texts import expressions as e
from gpu_ops.texts.building import ExpressionBuilder, every, node, of_kind, only, text_of
from gpu_ops.texts.expressions import Expression, TextPlace
from gpu_ops.texts.placed_error import PlacedError, failure_at


class QueryBuilder(ExpressionBuilder):
    """Builds nodes; it has no state."""

    start = quantity = staticmethod(only)
    where = having = escape = otherwise = offset = staticmethod(only)
    groups = order = by = chain = staticmethod(every)
    alias = named = staticmethod(text_of)

    def no_clause(self, place: TextPlace) -> None:
        return None

    def query(self, place: TextPlace, select: q.OneSelect, *values: Any) -> q.CycleQuery:
        *further, order, limit = values
        first = select.first
        if first is not None and (further or limit is not None):
            raise failure_at(
                select,
                "'first' stands in a query of one select, and without 'limit'.",
                f"Write at its end: limit {first}",
            )
        rows, skipped = (first, 0) if limit is None else limit
        return q.CycleQuery(select, tuple(further), order, rows, skipped, place=place)

    def further(self, place: TextPlace, word: str, keeps_equal: Any, select: q.OneSelect) -> q.FurtherSelect:
        said: Any = {"except": "minus"}.get(word.lower(), word.lower())
        if keeps_equal and said != "union":
            raise PlacedError(place.start, place.end, f"'all' stands behind 'union' alone, not behind {word!r}.")
        if select.first is not None:
            raise failure_at(select, "'first' cannot stand in a further select.", "Write limit at the query's end.")
        return q.FurtherSelect(said, keeps_equal, select, place=place)

    def select(self, place: TextPlace, first: Any, distinct: Any, *values: Any) -> q.OneSelect:
        *items, source, where, groups, having = values
        return q.OneSelect(tuple(items), source, first, distinct, where, groups, having, place=place)

    def first(self, place: TextPlace, *number: str) -> int | None:
        return _count(place, number[0], "first") if number else None

    def item(self, place: TextPlace, expression: Any, alias: str) -> q.ShownItem:
        if isinstance(expression, str):
            if alias:
                raise PlacedError(place.start, place.end, "'*' has no name: it is several columns.", "Name columns.")
            return q.ShownItem(None, place=place)
        return q.ShownItem(expression, alias, place=place)

    def all_of(self, place: TextPlace, of: str, _star: str) -> q.ShownItem:
        return q.ShownItem(None, "", of, place=place)

    def limit(self, place: TextPlace, *values: Any) -> tuple[int, int] | None:
        if not values:
            return None
        rows, offset = values
        return _count(place, rows, "limit", 0), 0 if offset is None else _count(place, offset, "offset", 0)

    def key(self, place: TextPlace, expression: Expression, *values: Any) -> q.OrderKey:
        *direction, nulls = values
        return q.OrderKey(expression, bool(direction) and direction[0].lower() == "desc", nulls, place=place)

    # What is selected from

    def tables(self, place: TextPlace, first: Any, *joins: Any) -> q.JoinedTables:
        return q.JoinedTables(first, joins, place=place)

    comma_join = node(partial(q.JoinedTable, "cross"))
    inner_join = node(partial(q.JoinedTable, "inner"))

    def outer_join(self, place: TextPlace, side: Any, table: Any, on: Expression) -> q.JoinedTable:
        return q.JoinedTable(side.lower(), table, on, place=place)

    stream_table = node(q.StreamTable)
    self_table = node(q.SelfTable)
    query_table = node(q.QueryTable)

    def plain_table(self, place: TextPlace, name: str, alias: str) -> q.PlainTable:
        return q.PlainTable(name, alias or name, place=place)

    # Partitions

    def part(self, place: TextPlace, *values: Any) -> q.StagePartition:
        by, stored, provider, (pinned, *aggregates), where = values
        if provider:
            fields = (stored.kind, stored.count, stored.span, stored.using, stored.update, provider)
            stored = q.Stored(*fields, place=stored.place)
        return q.StagePartition(by, stored, tuple(aggregates), pinned, where, place=place)

    def last(self, place: TextPlace, number: str) -> q.Stored:
        return q.Stored("last", _count(place, number, "last"), place=place)

    def span(self, place: TextPlace, number: str, unit: str, most: Any) -> q.Stored:
        word = unit.lower()
        length = _count(place, number, "last") * UNITS.get(word, UNITS.get(f"{word}s", 1))
        return q.Stored("span", most, length, place=place)

    def latest(self, place: TextPlace, number: str) -> q.Stored:
        return q.Stored("latest", _count(place, number, "latest"), place=place)

    def random(self, place: TextPlace, number: str) -> q.Stored:
        return q.Stored("random", _count(place, number, "random"), place=place)

    def best(self, place: TextPlace, which: Any, number: str, using: str, update: Any) -> q.Stored:
        word = which.lower()
        return q.Stored(word, _count(place, number, word), 0, using, update, place=place)

    def most(self, place: TextPlace, *number: str) -> int | None:
        return _count(place, number[0], "max") if number else None

    def update(self, place: TextPlace, *values: str) -> tuple[str, ...]:
        return values[1:]

    def provider(self, place: TextPlace, *name: str) -> str:
        return _unquoted(name[0]) if name else ""

    def aggregates(self, place: TextPlace, *values: Any) -> tuple[Any, ...]:
        return values or (False,)

    def diff(self, place: TextPlace, *values: str) -> tuple[bool, str]:
        return bool(values), _unquoted(values[1]) if len(values) > 1 else ""

    def aggregate(self, place: TextPlace, function: str, column: str, *values: Any) -> q.StoredAggregate:
        (diff, baseline), entrance, alias = values
        return q.StoredAggregate(function.lower(), column, alias, diff, baseline, entrance, place=place)

    def custom(self, place: TextPlace, name: str, *values: Any) -> q.StoredAggregate:
        *arguments, entrance, alias = values
        given = tuple(arguments)
        return q.StoredAggregate(name, "", alias, False, "", entrance, True, given, place=place)

    # Alerts

    def alert(self, place: TextPlace, *values: Any) -> q.AlertSource:
        columns, streams = of_kind(values, q.ProjectedColumn), of_kind(values, q.CorrelatedStream)
        return q.AlertSource(columns, streams, of_kind(values, q.PresentPattern), place=place)

    projected = node(q.ProjectedColumn)

    def correlated(self, place: TextPlace, stream: str, chain: Any, alias: str, column: str) -> q.CorrelatedStream:
        return q.CorrelatedStream(q.StreamTable(stream, chain, alias, place=place), column, place=place)

    present = node(q.PresentPattern, rest=0)

    def wanted(self, place: TextPlace, *values: str) -> q.PresentTerm:
        return q.PresentTerm(values[-1], len(values) == 1, place=place)

    # Expressions

    def null_test(self, place: TextPlace, value: Expression, no: Any) -> Expression:
        nothing = e.Constant(None, "null", place=place)
        return e.Operation("is not" if no else "is", value, nothing, place=place)

    def alike(self, place: TextPlace, value: Any, no: Any, pattern: Any, escape: Any) -> Expression:
        mark = None if escape is None else self.string(place, escape)
        return e.TextMatch("like", value, pattern, mark, no, place=place)

    def between(self, place: TextPlace, value: Any, no: Any, low: Any, high: Any) -> Expression:
        """As SQL has it: the first bound is the lesser one, and what is compared with null is unknown."""
        bounds = e.Operation(">=", value, low, place=place), e.Operation("<=", value, high, place=place)
        inside = e.logical("and", bounds, place)
        return e.Prefixed("not", inside, place=place) if no else inside

    def query_values(self, place: TextPlace, query: Any) -> tuple[Expression, ...]:
        return (q.InnerQuery(query, place=place),)

    exists = node(q.QueryHasRows)
    scalar = node(q.InnerQuery)

    def row_status(self, place: TextPlace, *values: Any) -> Expression:
        alias = values[0] if len(values) == 3 else ""
        return q.RowStatus(alias, values[-1], place=place)

    def status_new(self, place: TextPlace) -> str:
        return "new"

    def status_dead(self, place: TextPlace) -> str:
        return "dead"

    def status_not_dead(self, place: TextPlace, _no: str) -> str:
        return "not dead"

    def qualified(self, place: TextPlace, of: str, name: str) -> e.Member:
        return e.Member(e.Name(of, place=place), name, place=place)

    def call(self, place: TextPlace, name: str, arguments: Any) -> e.FunctionCall:
        distinct, *given = arguments or (False,)
        return e.FunctionCall(name, tuple(given), None, "distinct" if distinct else "", place=place)

    def arguments(self, place: TextPlace, *values: Any) -> tuple[Any, ...]:
        if values and isinstance(values[0], str):
            return False, e.Wildcard(place=place)
        return values

    def binary(self, place: TextPlace, left: Expression, operator: str, right: Expression) -> Expression:
        return e.Operation({"<>": "!=", "^=": "!="}.get(operator, operator), left, right, place=place)

    def string(self, place: TextPlace, text: str) -> e.Constant:
        return e.Constant(_unquoted(text), "string", place=place)

    def constant(self, place: TextPlace, text: str) -> e.Constant:
        return e.Constant(text.lower() == "true", "boolean", place=place)

    def null(self, place: TextPlace) -> e.Constant:
        return e.Constant(None, "null", place=place)

    def case_of(self, place: TextPlace, subject: Expression, *values: Any) -> Expression:
        """As SQL has it: the subject is compared with each value, and null equals nothing."""
        *branches, otherwise = values
        made = ((e.Operation("=", subject, value, place=value.place), then) for value, then in branches)
        return e.Case(None, tuple(made), otherwise, place=place)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _count(place: TextPlace, text: str, word: str, least: int = 1) -> int:
    """A number of rows or of units of time."""
    if not text.isdigit() or not least <= int(text) < 1 << 53:
        said = "a whole number" if least == 0 else "a whole number from 1 on"
        raise PlacedError(place.start, place.end, f"Behind {word!r} stands {said}, not {text}.")
    return int(text)
