"""Sub-queries: a window of their own, whose content is asked by each row of the query around."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_ops.epl import queries as q
from gpu_ops.texts import expressions as e
from tests.support.epl_interpreter.aggregates import Aggregation, aggregate_calls, is_aggregate, keys_of
from tests.support.epl_interpreter.streams import Stream
from tests.support.epl_interpreter.values import Events, Scope, Surroundings, evaluate, holds


class Subquery:
    """One sub-query of a statement, which is what its expressions know as their statement."""

    def __init__(self, query: q.Query, stream: Stream, around: Surroundings) -> None:
        if query.joins or query.output or query.order_by or query.limit or query.distinct or query.insert:
            raise NotImplementedError("clause of a sub-query")
        self._query, self.stream, self._around = query, stream, around
        self._aggregates = aggregate_calls(tuple(item.expression for item in query.items), query.having)
        if not stream.has_window and not self._aggregates:
            raise NotImplementedError("sub-query without a window")

    # What its expressions know

    @property
    def now(self) -> int:
        return self._around.now

    @property
    def variables(self) -> Mapping[str, Any]:
        return self._around.variables

    @property
    def declarations(self) -> Mapping[str, e.Expression | e.LambdaFunction]:
        return self._around.declarations

    def special(self, call: e.FunctionCall, scope: Scope) -> tuple[Any] | None:
        if is_aggregate(call):
            raise NotImplementedError(f"aggregate {call.name} here")
        return self.stream.special(call, scope, 0)

    def rows_of(self, query: q.Query, scope: Scope) -> list[Any]:
        return self._around.rows_of(query, scope)

    # What it gives

    def rows(self, outer: Scope) -> list[Any]:
        """Its rows, for a row of the query around."""
        query = self._query
        scopes = [self._scope((event,), outer) for event in self.stream.kept()]
        scopes = [scope for scope in scopes if holds(query.where, scope)]
        if not self._aggregates and not query.group_by:
            return [self._shown(scope) for scope in scopes if holds(query.having, scope)]
        aggregation = Aggregation(self._aggregates, [query.group_by], lambda events, **_: self._scope(events, outer))
        groups: dict[tuple[Any, ...], Events] = {} if query.group_by else {(): (None,)}
        for scope in scopes:
            aggregation.enter(scope.events)
            groups[keys_of(query.group_by, scope)] = scope.events
        rows = []
        for key, events in groups.items():
            plain = self._scope(events, outer)
            known = {call: aggregation.value(call, key, plain) for call in self._aggregates}
            scope = Scope(plain.sources, events, self, fixed=known, outer=outer)
            if holds(query.having, scope):
                rows.append(self._shown(scope))
        return rows

    def _scope(self, events: Events, outer: Scope) -> Scope:
        return Scope((self.stream.source,), events, self, outer=outer)

    def _shown(self, scope: Scope) -> Any:
        items = self._query.items
        values = [evaluate(item.expression, scope) for item in items]
        if len(items) == 1:
            return values[0]
        return {item.alias or str(item.expression): value for item, value in zip(items, values, strict=True)}
