"""The expressions of the recorded vectors are bound against their events, or refused by the name of what they ask for.

The statements are those over the vectors' own events; expressions about other things are of those who plan them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

from gpu_ops.core.turns import CLOCK
from gpu_ops.epl import parse
from gpu_ops.epl import patterns as p
from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.epl.column_names import column_names
from gpu_ops.plan.expressions import output_schema
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.expressions import bind, bind_condition, period
from gpu_ops.texts.binding.scope import BoundStream, StreamScope
from gpu_ops.texts.binding.types import event_type
from gpu_ops.texts.placed_error import PlacedError, unsupported
from tests.conformance.vectors import read


class AnyAggregates(StreamScope):
    """Aggregates are numbers, or events where they are of all properties. What a vector makes itself is refused."""

    def __init__(
        self, streams: list[BoundStream], made: Mapping[str, str], tags: Mapping[str, pa.DataType] | None = None
    ) -> None:
        super().__init__(streams)
        self._made = made
        self._tags = tags or {}
        self.aggregates = [pa.field(name, dtype) for name, dtype in self._tags.items()]

    def special(self, node: e.Expression) -> Bound | None:
        name = node.name if isinstance(node, e.Name | e.FunctionCall) else ""
        if name in self._made:
            raise unsupported(node, self._made[name])
        return Bound(nw.col(name), self._tags[name]) if name in self._tags else None

    def aggregate(self, call: e.FunctionCall) -> Bound:
        of_all = call.arguments[:1] == (e.Wildcard(),) and not call.name.startswith("count")
        events = of_all or call.name.startswith(("maxby", "minby"))
        for each in call.arguments:
            inner = each.expression if isinstance(each, e.SortKey) else each
            for part in inner.values if isinstance(inner, e.NamedArgument) else (inner,):
                stream = isinstance(part, e.Name) and part.name in [stream.name for stream in self.streams]
                if isinstance(part, e.Expression) and not (stream or isinstance(part, e.Wildcard | e.Record)):
                    bind(part, self)
        dtype = pa.struct(self.streams[0].schema if self.streams else []) if events else pa.float64()
        self.aggregates.append(pa.field(str(call), dtype))
        return Bound(nw.col(str(call)), dtype)


def _made(statements: list[s.Statement]) -> dict[str, str]:
    """What a vector's other statements make, by its name."""
    found = {"context": "property of a context", "size": "property of a derived view"}
    for statement in statements:
        body = statement.body
        if isinstance(body, s.CreateTable | s.CreateVariable):
            found[body.name] = "table" if isinstance(body, s.CreateTable) else "variable"
        if isinstance(body, s.CreateExpression):
            found[body.declaration.name] = "declared expression"
        found |= {each.name: "declared expression" for each in statement.declarations}
    return found


def _verdicts(line: Mapping[str, Any]) -> Iterator[str]:
    texts = [line["epl"], *(step["deploy"] for step in line["script"] if "deploy" in step)]
    statements = [statement for text in texts for statement in parse(text)]
    made = _made(statements)
    events = {name: event_type(fields) for name, fields in line["schema"].items()}
    for statement in statements:
        query = statement.body
        if not isinstance(query, q.Query):
            continue
        streams = [
            _stream(at, each.alias, each.source.type_name, events[each.source.type_name])
            for at, each in enumerate(query.streams)
            if isinstance(each.source, p.EventFilter) and each.source.type_name in events
        ]
        if len(streams) < len(query.streams):
            yield "a statement over other streams"
            continue
        for stream, term in zip(streams, query.streams, strict=True):
            assert isinstance(term.source, p.EventFilter)
            for condition in term.source.filters:
                yield _verdict(condition, AnyAggregates([stream], made), condition=True)
        scope = AnyAggregates(streams, made)
        column_names(query.items)
        for item in query.items:
            if not isinstance(item.expression, e.Wildcard):
                yield _verdict(item.expression, scope)
        for key in query.group_by:
            if isinstance(key, e.Expression):
                yield _verdict(key, scope)
        for order in query.order_by:
            if query.recognize is None and str(order.expression) not in [item.alias for item in query.items]:
                yield _verdict(order.expression, scope)
        for clause in (query.where, query.having, *(join.on for join in query.joins)):
            if clause is not None:
                yield _verdict(clause, scope, condition=True)


def _pattern_verdicts(line: Mapping[str, Any]) -> Iterator[str]:
    """Of statements over one pattern, whose events are structs, or arrays of them where they may come several times."""
    statements = [*parse(line["epl"])]
    made = _made(statements)
    events = {name: event_type(fields) for name, fields in line["schema"].items()}
    for statement in statements:
        query = statement.body
        if not isinstance(query, q.Query) or query.joins or not isinstance(query.stream.source, q.PatternSource):
            continue
        atoms = [*_atoms(query.stream.source.pattern)]
        if any(atom.events.type_name not in events for atom, _ in atoms):
            yield "a pattern of other streams"
            continue
        tags = _tags(atoms, events)
        for atom, repeat in atoms:
            own = _stream(0, atom.tag, atom.events.type_name, events[atom.events.type_name])
            others = {tag: dtype for tag, dtype in _tags(atoms, events, repeat).items() if tag != atom.tag}
            for condition in atom.events.filters:
                yield _verdict(condition, AnyAggregates([own], made, others), condition=True)
        for item in query.items:
            if not isinstance(item.expression, e.Wildcard):
                yield _verdict(item.expression, AnyAggregates([], made, tags))
        for clause in (query.where, query.having):
            if clause is not None:
                yield _verdict(clause, AnyAggregates([], made, tags), condition=True)


Repeat = p.PatternUntil | None


def _tags(
    atoms: list[tuple[p.PatternEvents, Repeat]], events: Mapping[str, pa.Schema], within: Repeat = None
) -> dict[str, pa.DataType]:
    """The events of a pattern, as a part of a repetition sees them: arrays if they are of another one."""
    found = {}
    for atom, repeat in atoms:
        dtype = pa.struct(events[atom.events.type_name])
        found[atom.tag] = dtype if repeat is None or repeat is within else pa.list_(dtype)
    return {tag: dtype for tag, dtype in found.items() if tag}


def _atoms(pattern: p.PatternTerm, repeat: Repeat = None) -> Iterator[tuple[p.PatternEvents, Repeat]]:
    match pattern:
        case p.PatternEvents():
            yield pattern, repeat
        case p.PatternUntil(inner, until):
            yield from _atoms(inner, pattern)
            if until is not None:
                yield from _atoms(until, repeat)
        case p.PatternLogical(_, parts) | p.PatternFollowedBy(parts, _):
            for part in parts:
                yield from _atoms(part, repeat)
        case p.PatternGuard(inner) | p.PatternWhile(inner) | p.PatternEvery(inner) | p.PatternNot(inner):
            yield from _atoms(inner, repeat)


def _stream(at: int, alias: str, type_name: str, schema: pa.Schema) -> BoundStream:
    return BoundStream(alias, type_name, schema, {name: f"{at}.{name}" for name in schema.names})


def _verdict(node: e.Expression, scope: AnyAggregates, *, condition: bool = False) -> str:
    try:
        bound = (bind_condition if condition else bind)(node, scope)
    except PlacedError as error:
        return error.construct or f"{node}: {error.problem}"
    fields = [pa.field(CLOCK, pa.timestamp("us", "UTC")), *scope.aggregates]
    fields += [field.with_name(stream.columns[field.name]) for stream in scope.streams for field in stream.schema]
    schema = pa.schema({field.name: field.type for field in fields}.items())
    made = output_schema(schema, [bound.value.alias("x")], where="select", only_columns=True)
    return "bound" if made.field("x").type == bound.type else f"{node}: {made.field('x').type}, not {bound.type}"


@pytest.fixture(scope="module")
def lines(conformance: Path) -> list[Mapping[str, Any]]:
    return [vector.line for vector in read(conformance / "esper.jsonl.gz")]


@pytest.mark.slow
def test_each_expression_is_bound_or_refused_by_name(lines: list[Mapping[str, Any]]) -> None:
    assert Counter(verdict for line in lines for verdict in _verdicts(line)) == {
        "bound": 1116,
        "a statement over other streams": 155,
        "property of a context": 59,
        "a sub-query": 48,
        "prior(…)": 36,
        "prev(…)": 27,
        "prevtail(…)": 26,
        "table": 24,
        "prevcount(…)": 11,
        "prevwindow(…)": 11,
        "declared expression": 6,
        "grouping(…)": 3,
        "istream(…)": 3,
        "property of a derived view": 2,
        "grouping_id(…)": 1,
        "variable": 1,
    }


def test_each_expression_of_a_pattern_is_bound_or_refused_by_name(lines: list[Mapping[str, Any]]) -> None:
    assert Counter(verdict for line in lines for verdict in _pattern_verdicts(line)) == {
        "bound": 117,
        "a sub-query": 2,
        "a pattern of other streams": 1,
        "property of a context": 1,
    }


def test_columns_without_a_name_are_called_as_in_the_vectors(lines: list[Mapping[str, Any]]) -> None:
    checked = 0
    for line in lines:
        for statement in parse(line["epl"]):
            query = statement.body
            if not isinstance(query, q.Query) or not statement.name or (query.insert and query.insert.columns):
                continue
            names = column_names(query.items)
            shown = {
                key
                for entry in line["expected"]
                if entry.get("statement") == statement.name
                for rows in ("new", "old", "iterator")
                for row in entry.get(rows) or ()
                for key in row
            }
            if shown and None not in names:
                assert shown <= set(names), (statement.name, line["epl"], names)
                checked += 1
    assert checked == 429


def test_every_span_of_time_is_one(lines: list[Mapping[str, Any]]) -> None:
    spans = Counter(
        each
        for line in lines
        for statement in parse(line["epl"])
        if isinstance(statement.body, q.Query)
        for stream in statement.body.streams
        for view in stream.views
        for each in view.arguments
        if isinstance(each, e.Period) and all(isinstance(amount, e.Constant) for amount, _ in each.parts)
    )
    assert sum(spans.values()) == 151
    assert all(period(each) > (0, 0) for each in spans)
