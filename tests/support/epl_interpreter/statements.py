"""A query as a statement: from the events of its streams to what its listeners get."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.epl.column_names import column_name
from gpu_ops.texts import expressions as e
from tests.support.epl_interpreter import output as rates
from tests.support.epl_interpreter.aggregates import Aggregation, Key, aggregate_calls, is_aggregate, local_keys
from tests.support.epl_interpreter.clock import Clock, Slot
from tests.support.epl_interpreter.joins import Join
from tests.support.epl_interpreter.results import (
    AggregatedPerEvent,
    Pair,
    Plain,
    Results,
    Row,
    RowForAll,
    RowPerEvent,
    RowPerGroup,
    Selection,
    levels_of,
)
from tests.support.epl_interpreter.streams import Stream
from tests.support.epl_interpreter.subqueries import Subquery
from tests.support.epl_interpreter.values import (
    Event,
    Events,
    Scope,
    Source,
    compare_keys,
    evaluate,
    holds,
    parts,
    shown,
    span_of,
)
from tests.support.epl_interpreter.windows import Place


class Engine(Protocol):
    """What all statements share."""

    clock: Clock
    types: dict[str, dict[str, str]]
    declarations: dict[str, e.Expression | e.LambdaFunction]

    @property
    def variables(self) -> dict[str, Any]:
        """The values of variables."""

    def insert(self, type_name: str, row: dict[str, Any]) -> None:
        """Make an event of a row, which comes when what happens now is over."""

    def assign(self, assignments: Sequence[q.Assignment], scope: Scope) -> None:
        """Set variables."""


class QueryStatement:
    """A query that runs.

    Attributes:
        name: What it is called.
        pending: What has been made since its listeners were told last.
    """

    def __init__(self, statement: s.Statement, name: str, number: int, engine: Engine) -> None:
        assert isinstance(statement.body, q.Query)
        self.name, self.number, self._engine = name, number, engine
        self._query = query = statement.body
        self._slots = 0
        self.pending: list[tuple[list[Row] | None, list[Row] | None]] = []
        for what, clause in (
            ("match_recognize", query.recognize),
            ("into table", query.into_table),
            ("for clause", query.delivery),
            ("context", statement.context),
            ("select delete", query.deleting),
        ):
            if clause:
                raise NotImplementedError(what)
        self._keeps_last = any(each.name.lower() == "iterableunbound" for each in statement.annotations)
        self.declarations = {**engine.declarations, **{each.name: each.body for each in statement.declarations}}
        self._streams = [
            Stream(term, self._place(term), self._taker(at), keeps_last=self._keeps_last)
            for at, term in enumerate(query.streams)
        ]
        self._sources = tuple(stream.source for stream in self._streams)
        self._aliases = [term.alias for term in query.streams]
        if query.joins and any(not (each.views or each.unidirectional) for each in query.streams):
            raise NotImplementedError("stream of a join without a window")
        self._join = self._made_join() if query.joins else None
        self._subqueries = self._made_subqueries()
        self._order_by = tuple(self._expanded(key) for key in query.order_by)
        self._is_windowed = bool(query.joins) or self._streams[0].has_window
        self._results = self._made_results()
        self._output = self._made_output()
        self.columns = self._column_names()

    # What expressions know

    @property
    def now(self) -> int:
        return self._engine.clock.now

    @property
    def variables(self) -> Mapping[str, Any]:
        return self._engine.variables

    def special(self, call: e.FunctionCall, scope: Scope) -> tuple[Any] | None:
        if is_aggregate(call):
            if not hasattr(self, "_results"):
                raise NotImplementedError(f"aggregate {call.name} here")
            aggregation = self._results.selection.aggregation
            return (aggregation.value(call, scope.group or (), scope, scope.level),)
        if call.name in {"grouping", "grouping_id"} and call.of is None:
            return (self._left_out(call, scope),)
        for at, stream in enumerate(self._streams):
            if len(self._streams) == 1 or self._is_about(call, at):
                return stream.special(call, scope, at)
        return self._streams[0].special(call, scope, 0)

    def rows_of(self, query: q.Query, scope: Scope) -> list[Any]:
        return self._subqueries[query].rows(scope)

    def _is_about(self, call: e.FunctionCall, at: int) -> bool:
        """Whether a call speaks of a stream's events, by what it shows of them."""
        source = self._sources[at]
        named = [each for each in parts(call.arguments) if isinstance(each, e.Name)]
        return any(each.name in source.properties or each.name == source.name for each in named)

    def _left_out(self, call: e.FunctionCall, scope: Scope) -> int:
        """A bit for each key that the row's level of a rollup leaves out."""
        levels = self._results.selection.aggregation.levels
        bits = 0
        for key in call.arguments:
            bits = bits << 1 | (key not in levels[scope.level])
        return bits

    def _scope(self, events: Events, *, is_new: bool = True, group: Key | None = None, level: int = 0) -> Scope:
        events = events or (None,) * len(self._sources)
        fixed = self._rolled_up[level] if group is not None and self._rolled_up else {}
        return Scope(self._sources, events, self, is_new, fixed=fixed, group=group, level=level)

    def _joined(self, events: Events, *, is_new: bool) -> Scope:
        return replace(self._scope(events, is_new=is_new), turns_bounds=False)

    def _padded(self, events: Events) -> Scope:
        return self._scope(events + (None,) * (len(self._sources) - len(events)))

    # How it is made

    def _slot(self) -> Slot:
        self._slots += 1
        return self.number, self._slots

    def _place(self, term: q.StreamTerm) -> Place:
        type_name = getattr(term.source, "type_name", "")
        if type_name and type_name not in self._engine.types:
            raise NotImplementedError(f"type {type_name}")
        properties = self._engine.types.get(type_name, {})
        return Place(Source(term.alias or type_name, type_name, properties), self, self._engine.clock, self._slot)

    def _taker(self, at: int) -> Callable[[list[Event], list[Event]], None]:
        return lambda new, old: self._take(at, new, old)

    def _made_join(self) -> Join:
        inner = tuple(join.on for join in self._query.joins if join.kind == "inner" and join.on is not None)
        outer = any(join.kind in {"left", "right", "full"} for join in self._query.joins)
        required = {at for at, _ in self._properties(inner)} if outer else set()
        return Join(self._query, lambda on, events: holds(on, self._padded(events)), sorted(required))

    def _made_subqueries(self) -> dict[q.Query, Subquery]:
        made = {}
        for part in parts(self._query):
            if isinstance(part, q.Subquery | q.Exists) and part.query not in made:
                stream = Stream(part.query.stream, self._place(part.query.stream), lambda new, old: None)
                made[part.query] = Subquery(part.query, stream, self)
        return made

    def _expanded(self, key: e.SortKey) -> e.SortKey:
        """A sort key that is the name of a column is what the column is."""
        named = {item.alias: item.expression for item in self._query.items if item.alias}
        if isinstance(key.expression, e.Name) and key.expression.name in named:
            return replace(key, expression=named[key.expression.name])
        return key

    def _properties(self, *nodes: Any, of_aggregates: bool = False) -> set[tuple[int, str]]:
        """The properties in expressions, by stream and name, but for those that aggregates and sub-queries speak of."""

        def into(node: Any) -> bool:
            return not isinstance(node, q.Query | e.Member) and (of_aggregates or not is_aggregate(node))

        found = set()
        scope = Scope(self._sources, (None,) * len(self._sources), self)
        for part in parts(nodes, into=into):
            if isinstance(part, e.Member):
                name = part
                while isinstance(name.of, e.Member):
                    name = name.of
                if isinstance(name.of, e.Name) and scope.source_of(name.of.name) is None:
                    at = scope.source_called(name.of.name)
                    if at is not None:
                        found.add((at, name.name))
                        continue
                found |= self._properties(name.of, of_aggregates=of_aggregates)
            elif isinstance(part, e.Name) and (at := scope.source_of(part.name)) is not None:
                found.add((at, part.name))
            elif isinstance(part, e.Name) and (at := scope.source_called(part.name)) is not None:
                found.add((at, "*"))
        return found

    def _made_results(self) -> Results:
        """Which kind of query it is."""
        query = self._query
        self._rolled_up: list[dict[e.Expression, Any]] = []
        selected = tuple(item.expression for item in query.items if not _is_wildcard(item))
        has_wildcard = len(selected) < len(query.items)
        levels = levels_of(query.group_by) if query.group_by else []
        if len(levels) > 1:
            self._rolled_up = [self._nulls(level, levels) for level in levels]
        calls = aggregate_calls(selected, query.having, self._order_by)
        in_select, in_having = aggregate_calls(selected), aggregate_calls(query.having)
        selection = Selection(
            scope=self._scope,
            row=self._row,
            having=query.having,
            sort=self._sorted,
            aggregation=Aggregation(calls, levels, self._scope),
            selects_old=query.selector in {"rstream", "irstream"}
            or (query.insert is not None and query.insert.selector in {"rstream", "irstream"}),
            is_unidirectional=any(stream.unidirectional for stream in query.streams),
            sorted=bool(query.order_by),
            polled=self._polled,
        )
        limits = "" if query.output is None else query.output.selection
        if not query.group_by and not in_select and not in_having:
            return Plain(selection)
        if not selected and not in_having and limits not in {"last", "first"}:
            return Plain(selection)
        keys = tuple(dict.fromkeys(key for level in levels for key in level))
        own = self._properties(selected, query.having)
        local = all(local_keys(call) is None or set(local_keys(call) or ()) <= set(keys) for call in calls)
        if not query.group_by:
            looks_back = any(
                isinstance(part, e.FunctionCall) and part.name.startswith("prev") for part in parts(selected)
            )
            fully = not own and not has_wildcard and local and not looks_back
            return (RowForAll if fully else RowPerEvent)(selection)
        grouped = self._properties(keys, of_aggregates=True)
        in_order = self._properties(self._order_by)
        if not has_wildcard and own <= grouped and in_order <= own and local:
            keeps = limits == "snapshot" or self._keeps_last
            return RowPerGroup(selection, keeps_groups=not self._is_windowed and keeps)
        if len(levels) > 1:
            raise NotImplementedError("rollup of what is not fully aggregated")
        return AggregatedPerEvent(selection)

    def _nulls(self, level: tuple[Any, ...], levels: Sequence[tuple[Any, ...]]) -> dict[e.Expression, Any]:
        """The properties that a level of a rollup leaves out, and the keys themselves."""
        left_out = {key for other in levels for key in other if key not in level}
        named = {part for key in left_out for part in parts(key) if isinstance(part, e.Name | e.Member)}
        return dict.fromkeys(left_out | named)

    def _made_output(self) -> Any:
        query, output, results = self._query, self._query.output, self._results
        setting = rates.Setting(
            clock=self._engine.clock,
            slot=self._slot,
            number=lambda node: evaluate(node, self._scope(())),
            span=lambda node: span_of(node, self._scope(())),
            is_true=lambda node, local: holds(node, replace(self._scope(()), local=local)),
            assign=lambda assignments, local: self._engine.assign(assignments, replace(self._scope(()), local=local)),
        )
        self._setting = setting
        if output is None:
            return rates.Direct(results, self._deliver)
        after = rates.After(output, setting)
        if output.rate is None and output.terminated is None:
            return rates.DirectAfter(results, self._deliver, after)
        is_grouped = bool(query.group_by)
        is_first_of_groups = output.selection == "first" and is_grouped

        def made(end: rates.End) -> rates.Condition:
            return rates.condition(output, end, setting, is_first_of_groups=is_first_of_groups)

        if output.selection == "snapshot":
            return rates.Snapshot(results, self._deliver, after, made, self._content)
        if output.selection == "first" and not is_grouped:
            return rates.First(results, self._deliver, after, made, self._asks_for)
        is_plain = not is_grouped and not results.selection.aggregation.calls
        if output.selection in {"last", "all"} and (not query.order_by or (is_plain and output.selection == "last")):
            return rates.Collected(results, self._deliver, after, made, output.selection)
        return rates.Buffered(results, self._deliver, after, made, output.selection)

    def _polled(self) -> Any:
        assert self._query.output is not None
        rate = self._query.output.rate
        if isinstance(rate, q.EventCount):
            return rates.PolledEvents(self._setting.number(rate.count))
        if isinstance(rate, q.Crontab | q.OutputWhen) or rate is None:
            raise NotImplementedError("output first of groups at such a rate")
        return rates.PolledPeriod(self._engine.clock, self._setting.span(rate))

    def _asks_for(self, pair: Pair) -> bool:
        """Whether there is a row that the statement's selector asks for."""
        new, old = pair
        if self._query.selector == "rstream":
            return old is not None
        return new is not None or (self._query.selector == "irstream" and old is not None)

    def _column_names(self) -> dict[str, str]:
        """The columns of its rows; of those that are properties also their types."""
        columns: dict[str, str] = {}
        for item in self._query.items:
            if not _is_wildcard(item):
                columns[self._name_of(item)] = self._type_of(item.expression)
            elif isinstance(item.expression, e.Wildcard) and item.expression.of is None and self._join is not None:
                columns |= dict.fromkeys(self._stream_names(), "event")
            else:
                at = self._wildcard_source(item)
                columns |= dict(self._sources[at].properties)
        if self._query.insert is not None and self._query.insert.columns:
            columns = dict(zip(self._query.insert.columns, columns.values(), strict=True))
        return columns

    def _name_of(self, item: q.SelectItem) -> str:
        """What a column is called: that of a sub-query as the column of the sub-query, or by its number."""
        if item.alias or not isinstance(item.expression, q.Subquery):
            return item.alias or column_name(item.expression)
        inner = item.expression.query.items
        if len(inner) == 1 and not _is_wildcard(inner[0]):
            return self._name_of(inner[0])
        return f"subselect_{1 + list(self._subqueries).index(item.expression.query)}"

    def _type_of(self, node: Any) -> str:
        scope = self._scope(())
        if isinstance(node, e.Name) and (at := scope.source_of(node.name)) is not None:
            return str(self._sources[at].properties[node.name])
        return ""

    def _stream_names(self) -> list[str]:
        return [alias or f"stream_{at}" for at, alias in enumerate(self._aliases)]

    def _wildcard_source(self, item: q.SelectItem) -> int:
        assert isinstance(item.expression, e.Wildcard)
        if item.expression.of is None:
            return 0
        at = self._scope(()).source_called(str(item.expression.of))
        if at is None:
            raise NotImplementedError(f"wildcard {item.expression}")
        return at

    # What happens

    def matches(self, event: Event) -> list[Stream]:
        """The streams that take an event, those of sub-queries first."""
        streams = [*(each.stream for each in self._subqueries.values()), *self._streams]
        return [stream for stream in streams if stream.takes(event)]

    def arrive(self, streams: Sequence[Stream], event: Event) -> None:
        """An event comes to streams."""
        for stream in streams:
            stream.arrive(event)
        self.settle()

    def settle(self) -> None:
        """All streams have changed: a join makes its rows now."""
        if self._join is not None:
            new, old = self._join.change()
            where = self._query.where
            new = [events for events in new if holds(where, self._joined(events, is_new=True))]
            old = [events for events in old if holds(where, self._joined(events, is_new=False))]
            if new or old:
                self._output.update(new, old)

    def _take(self, at: int, new: list[Event], old: list[Event]) -> None:
        if self._join is not None:
            self._join.take(at, new, old)
            return
        where = self._query.where
        entering: list[Events] = [(event,) for event in new if holds(where, self._scope((event,), is_new=True))]
        leaving: list[Events] = [(event,) for event in old if holds(where, self._scope((event,), is_new=False))]
        if where is None or entering or leaving:
            self._output.update(entering, leaving)

    def terminate(self) -> None:
        """The instance ends that it is a statement of: what is output then is."""
        if self._query.output is not None and self._query.output.terminated is not None:
            self._output.terminate()

    def variables_changed(self, names: Container[str]) -> None:
        """The values of these variables are others now. The condition of an output is told of those that it reads."""
        for stream in (*self._streams, *(each.stream for each in self._subqueries.values())):
            stream.view.variables_changed()
        rate = None if self._query.output is None else self._query.output.rate
        read = parts(rate.condition) if isinstance(rate, q.OutputWhen) else ()
        if any(isinstance(each, e.Name) and each.name in names for each in read):
            self._output.variables_changed()

    def _row(self, scope: Scope) -> Row:
        values: dict[str, Any] = {}
        for item in self._query.items:
            if not _is_wildcard(item):
                values[self._name_of(item)] = evaluate(item.expression, scope)
            elif isinstance(item.expression, e.Wildcard) and item.expression.of is None and self._join is not None:
                values |= dict(zip(self._stream_names(), scope.events, strict=True))
            else:
                event = scope.events[self._wildcard_source(item)]
                properties = self._sources[self._wildcard_source(item)].properties
                values |= dict.fromkeys(properties) if event is None else event.properties
        order = [evaluate(key, scope) for key in self._order_by]
        return Row(values, compare_keys(self._order_by, order))

    def _sorted(self, rows: list[Row]) -> list[Row]:
        if self._order_by:
            rows = sorted(rows, key=lambda row: row.order)
        if self._query.limit is not None:
            count = evaluate(self._query.limit.rows, self._scope(()))
            offset = 0 if self._query.limit.offset is None else evaluate(self._query.limit.offset, self._scope(()))
            rows = rows[offset : None if count is None or count < 0 else offset + count]
        return rows

    def _deliver(self, pair: Pair, *, forced: bool) -> None:
        """Rows go to the stream that they are inserted into, and to listeners."""
        new, old = (_distinct(rows) if rows and self._query.distinct else rows for rows in pair)
        insert = self._query.insert
        if insert is not None:
            routed = [*(new or () if insert.selector != "rstream" else ())]
            routed += old or () if insert.selector in {"rstream", "irstream"} else ()
            for row in routed:
                self._engine.insert(insert.target, dict(zip(self.columns, row.values.values(), strict=True)))
        if self._query.selector == "rstream":
            new, old = old, None
        elif self._query.selector != "irstream":
            old = None
        if new or old or forced:
            self.pending.append((new, old))

    def delivered(self) -> tuple[list[dict[str, Any]] | None, list[dict[str, Any]] | None] | None:
        """What listeners get of all that has been made: one delivery; None where there is nothing."""
        if not self.pending:
            return None
        made, self.pending = self.pending, []
        new = [row for pair in made for row in pair[0] or ()]
        old = [row for pair in made for row in pair[1] or ()]
        return (_shown(new) or None, _shown(old) or None)

    def _content(self) -> list[Events]:
        if self._join is not None:
            return [
                events for events in self._join.content() if holds(self._query.where, self._joined(events, is_new=True))
            ]
        content: list[Events] = [(event,) for event in self._streams[0].content()]
        return [events for events in content if holds(self._query.where, self._scope(events))]

    @property
    def filters(self) -> int:
        """How many streams it listens to."""
        return len(self._streams) + len(self._subqueries)

    @property
    def has_order(self) -> bool:
        """Whether what an iterator gives has an order: what Esper keeps in hash maps has none."""
        return bool(self._order_by) or not any(stream.view.is_hashed for stream in self._streams)

    def rows(self) -> list[dict[str, Any]]:
        """What an iterator gives."""
        rows = self._results.iterate(self._content())
        return _shown(_distinct(rows) if self._query.distinct else rows)


def _is_wildcard(item: q.SelectItem) -> bool:
    return isinstance(item.expression, e.Wildcard) and not item.alias


def _distinct(rows: list[Row]) -> list[Row]:
    found: list[Row] = []
    for row in rows:
        if not any(row.values == other.values for other in found):
            found.append(row)
    return found


def _shown(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [{name: shown(value) for name, value in row.values.items()} for row in rows]
