"""Sub-queries as lookups: what their windows hold when each row of the query around asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.core.turns import DUE, PLACE
from gpu_ops.epl import queries as q
from gpu_ops.epl.column_names import column_names
from gpu_ops.epl.patterns import EventFilter
from gpu_ops.epl.planning.aggregate_columns import AggregateColumns
from gpu_ops.epl.planning.aggregates import PlannedAggregates
from gpu_ops.epl.planning.chosen_events import placed
from gpu_ops.epl.planning.known_contexts import ContextNames
from gpu_ops.epl.planning.known_windows import KnownWindow
from gpu_ops.epl.planning.levels import levels_of
from gpu_ops.epl.planning.list_functions import PlannedMethod, is_list_method, planned_list_method
from gpu_ops.epl.planning.list_methods import PlannedPick, is_pick, planned_pick
from gpu_ops.epl.planning.looking_back import GROUPWIN, LookingBack, looks_into_window, looks_to_arrivals
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.windows import windowed
from gpu_ops.plan import aggregates as g
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.data_windows import DataWindow, FirstSpan
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.expressions import column_names as columns_of
from gpu_ops.plan.joins import On
from gpu_ops.plan.lookups import Looked, Lookup, PairGroups, PairLookup
from gpu_ops.plan.nodes import Filter, Node, Project, extended
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding import conditions
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, as_type
from gpu_ops.texts.binding.expressions import bind, bind_condition
from gpu_ops.texts.binding.scope import BindingScope, BoundStream, StreamScope, is_aggregate, unknown
from gpu_ops.texts.placed_error import failure_at, unsupported


class Streams(Protocol):
    """What the streams of sub-queries are planned over."""

    @property
    def types(self) -> Mapping[str, pa.Schema]:
        """The properties of each type of event."""

    @property
    def arrivals(self) -> Mapping[str, Node]:
        """The leaf of each type's arrivals."""

    @property
    def windows(self) -> Mapping[str, KnownWindow]:
        """The named windows."""

    @property
    def ticks(self) -> Node:
        """The leaf of ticks."""

    @property
    def clock(self) -> int:
        """What the clock shows, in ticks."""


@dataclass
class Subqueries:
    """The sub-queries of a statement.

    Attributes:
        streams: What their streams are planned over.
        context: The context of the statement.
        reads: The types of events that they read.
        has_clock: Whether the clock drives one of their windows.
        count: How many there are.
        picks: How many methods of lists are asked beside them.
    """

    streams: Streams
    context: ContextNames
    reads: list[str] = field(default_factory=list)
    has_clock: bool = False
    count: int = 0
    picks: int = 0

    def asked(self, *, before: bool = False, lists_alone: bool = False) -> Asked:
        """Those of some clauses.

        Args:
            before: Whether they hold what they did before the row came, as in a stream's filter.
            lists_alone: Whether the clauses may ask methods of lists, and no sub-queries.
        """
        return Asked(self, before, lists_alone)

    def number(self) -> int:
        """The next number, which names columns."""
        self.count += 1
        return self.count

    def numbered(self) -> int:
        """The next number of a method of a list."""
        self.picks += 1
        return self.picks


@dataclass
class Asked:
    """The sub-queries of clauses that are about the same rows.

    Attributes:
        all: The sub-queries of the statement.
        before: As in `Lookup`.
        lists_alone: As in `Subqueries.asked`.
    """

    all: Subqueries
    before: bool
    lists_alone: bool = False
    _lookups: list[_LookedUp | PlannedPick | PlannedMethod] = field(default_factory=list)
    _known: dict[e.Expression, Bound] = field(default_factory=dict)

    def special(self, node: e.Expression, scope: BindingScope) -> Bound | None:
        """What a node with a sub-query means; None for any other.

        Args:
            node: The node.
            scope: What names stand for around it.

        Raises:
            PlacedError: The sub-query cannot be planned.
        """
        if is_pick(node) or is_list_method(node):
            return self._picked(node, scope)
        if self.lists_alone:
            return None
        match node:
            case q.Subquery(query) | q.Exists(query):
                options = query
            case e.Inclusion(_, options=(q.Subquery(query),)) | e.Quantified(_, options=(q.Subquery(query),)):
                options = query
            case _:
                return None
        if node not in self._known:
            planner = _SubqueryPlanner(options, scope, self.all)
            self._known[node] = planner.bound(node)
            self._lookups += planner.lookups()
        return self._known[node]

    def _picked(self, node: e.Expression, scope: BindingScope) -> Bound | None:
        """What a method finds in a list that an aggregate or a sub-query makes."""
        if node not in self._known:
            assert isinstance(node, e.FunctionCall)  # noqa: S101  (it is a method)
            name = f"@picked {self.all.numbered()}"
            found = planned_pick(node, scope, self.all.streams.windows, name) if is_pick(node) else None
            if found is None:
                method = planned_list_method(node, scope, name) if is_list_method(node) else None
                if method is None:
                    return None
                found = None, method.made
                self._lookups.append(method)
            pick, self._known[node] = found
            self._lookups += [] if pick is None else [pick]
        return self._known[node]

    def __bool__(self) -> bool:
        return any(isinstance(each, _LookedUp) for each in self._lookups)

    def over(self, rows: Node) -> Node:
        """The rows, with the columns that the clauses read.

        Raises:
            PlacedError: A sub-query reads a property that the rows do not have.
        """
        for each in self._lookups:
            if isinstance(each, PlannedPick | PlannedMethod):
                rows = each.over(rows)
                continue
            known = set(rows.schema.names)
            for value, place in each.outer.values():
                # Other columns than those of the rows are properties that groups do not have.
                if set(columns_of(value, [*known, *each.strange])) - known:
                    raise unsupported(place, "sub-queries that read properties beside the keys of groups")
            rows = extended(rows, [value.alias(name) for name, (value, _) in each.outer.items()])
            rows = each.made(rows, before=self.before)
        return rows


_Pairs: TypeAlias = tuple[On, nw.Expr | None, tuple[nw.Expr, ...], PairGroups | None]


@dataclass(frozen=True)
class _LookedUp:
    """A lookup without the rows that ask.

    Attributes:
        held: The rows that are held.
        looked: The aggregates.
        outer: What it reads of the rows that ask, by the names of columns, with where that stands in the text.
        strange: The names of properties around it.
        pairs: The keys, the condition, the columns and the groups of pairs, if it has to make them.
    """

    held: Node
    looked: tuple[Looked, ...]
    outer: Mapping[str, tuple[nw.Expr, e.Expression]]
    strange: tuple[str, ...]
    pairs: _Pairs | None

    def made(self, rows: Node, *, before: bool) -> Node:
        if not self.looked:
            return rows
        if self.pairs is None:
            return Lookup(self.held, rows, self.looked, before)
        return PairLookup(self.held, rows, self.looked, before, *self.pairs)


class _PlainScope(StreamScope):
    """What names stand for in the filter of a sub-query's stream, and in its windows."""

    def __init__(self, streams: Sequence[BoundStream], context: ContextNames) -> None:
        super().__init__(streams)
        self._context = context

    def special(self, node: e.Expression) -> Bound | None:
        """A property of the context."""
        return self._context.special(node)


class _PairScope(StreamScope):
    """What names stand for in a sub-query: its own properties, and behind them those around it.

    Args:
        inner: Its stream.
        around: What names stand for around it.
        prior: What `prior` is of its rows.
        seen: Gives what `prev` and its kin see in its window, as columns of the rows that ask; None of other nodes.
    """

    def __init__(
        self,
        inner: BoundStream,
        around: BindingScope,
        prior: Mapping[e.Expression, Bound],
        seen: Callable[[e.Expression], Bound | None],
    ) -> None:
        super().__init__([inner])
        self._inner, self.around, self._prior, self._seen = inner, around, prior, seen
        self.reads: set[str] = set()

    def special(self, node: e.Expression) -> Bound | None:
        """What is special around it; there are no sub-queries of sub-queries."""
        if isinstance(node, q.Subquery | q.Exists):
            raise unsupported(node, "sub-queries of sub-queries")
        if isinstance(node, e.FunctionCall) and is_aggregate(node):
            return None
        if node in self._prior:
            self.reads.add("inner")
            return self._prior[node]
        seen = self._seen(node)
        if seen is not None:
            self.reads.add("outer")
            return seen
        if isinstance(node, e.Name) and not self.is_inner(node):
            found = self.around.special(node)
            if found is not None:
                self.reads.add("outer")
            return found
        return None

    def is_inner(self, node: e.Name | e.Member) -> bool:
        """Whether it is a property of the sub-query's own stream."""
        if isinstance(node, e.Name):
            return node.name in self._inner.schema.names
        return isinstance(node.of, e.Name) and node.of.name == self._inner.name

    def property(self, node: e.Name | e.Member) -> Bound | None:
        """A property of its own, or one around it."""
        if self.is_inner(node):
            self.reads.add("inner")
            return super().property(node)
        if isinstance(node, e.Member) and isinstance(node.of, e.Name) and self.is_inner(node.of):
            return None
        found = self.around.property(node)
        if found is not None:
            self.reads.add("outer")
        return found

    def aggregate(self, call: e.FunctionCall) -> Bound:
        """There is none."""
        raise failure_at(call, f"{call.name}(…) is an aggregate, and there are none here: this is about single events.")


class _FoldedScope:
    """What names stand for in the select clause of a sub-query with aggregates."""

    def __init__(self, pairs: _PairScope, folds: PlannedAggregates) -> None:
        self._pairs, self._folds = pairs, folds

    def special(self, node: e.Expression) -> Bound | None:
        """What is special around it."""
        return self._pairs.special(node)

    def property(self, node: e.Name | e.Member) -> Bound | None:
        """The last event's property, or one around it."""
        if self._pairs.is_inner(node):
            return self._folds.aggregate(e.FunctionCall("last", (node,), place=node.place))
        return self._pairs.property(node)

    def aggregate(self, call: e.FunctionCall) -> Bound:
        """An aggregate."""
        return self._folds.aggregate(call)


class _GroupScope(_FoldedScope):
    """What names stand for in the clauses of a sub-query about its groups: their keys, and aggregates."""

    def __init__(self, pairs: _PairScope, folds: PlannedAggregates, keys: Mapping[e.Expression, Bound]) -> None:
        super().__init__(pairs, folds)
        self._keys = keys

    def special(self, node: e.Expression) -> Bound | None:
        """A key, or what is special around it."""
        return self._keys.get(node) or super().special(node)

    def property(self, node: e.Name | e.Member) -> Bound | None:
        """A key, or a property around it."""
        if not self._pairs.is_inner(node):
            return self._pairs.property(node)
        mine = self._pairs.property(node)
        for key, bound in self._keys.items():
            made = self._pairs.property(key) if isinstance(key, e.Name | e.Member) else None
            if made is not None and mine is not None and bare_column(made.value) == bare_column(mine.value):
                return bound
        hint = "Group by it, or aggregate it: last(…)."
        raise failure_at(node, f"{node} is no key of the groups of the sub-query.", hint)


class _SubqueryPlanner:
    """The plan of one sub-query."""

    def __init__(self, query: q.Query, around: BindingScope, of: Subqueries) -> None:
        self._query, self._of = query, of
        self._name = f"asked {of.number()}"
        for what, there in (
            ("joins", query.joins),
            ("output clauses", query.output),
            ("order by", query.order_by),
            ("limits", query.limit),
            ("distinct rows", query.distinct),
            ("inserts", query.insert),
            ("match_recognize", query.recognize),
        ):
            if there:
                raise unsupported(query, f"{what} of sub-queries")
        shown = [item.expression for item in query.items]
        self._on: list[tuple[str, str]] = []
        self._grouped = bool(query.group_by)
        aggregated = any(_aggregates(each) for each in (*shown, query.having))
        self._folded = aggregated and not self._grouped
        self._prior: dict[e.Expression, Bound] = {}
        self._stream, self._held = self._streamed(aggregated=aggregated)
        self._scope = _PairScope(self._stream, around, self._prior, self._looking_back)
        self._folds = PlannedAggregates(self._scope, named=f"{self._name} ")
        self._outer: dict[str, tuple[nw.Expr, e.Expression]] = {}
        self._strange: set[str] = set()
        self._equal: dict[str, On] = {}
        self._rest: list[nw.Expr] = []
        self._in_pairs = self._grouped
        self._where()
        self._groups = PlannedAggregates(self._scope, named=f"{self._name} of groups ")
        self._keys = self._group_keys()

    # Its rows

    def _streamed(self, *, aggregated: bool) -> tuple[BoundStream, Node]:
        """The stream, and its rows in a window, under names of their own."""
        term, streams = self._query.stream, self._of.streams
        source = term.source
        if not isinstance(source, EventFilter):
            raise unsupported(source, "patterns in sub-queries")
        schema = streams.types.get(source.type_name)
        if schema is None:
            known = list(streams.types)
            raise unknown(
                source, f"There is no type of events {source.type_name!r}.", source.type_name, known, known, "Known"
            )
        plain = _PlainScope([BoundStream(term.alias, source.type_name, schema)], self._of.context)
        self._seen = AggregateColumns(plain, named=f"{self._name} seen ")
        named = streams.windows.get(source.type_name)
        node = streams.arrivals[source.type_name] if named is None else named.content
        key = self._of.context.key
        around = self._of.context.context
        if named is not None:
            named.check_context(term, "" if around is None else around.name)
        if named is None or not named.context:
            node = self._of.context.within(node, source.type_name)
        for each in source.filters:
            node = Filter(node, bind_condition(each, plain, "the filter").value)
        if named is not None:
            self._windows = named.windows_of(node)
            rows = self._windows.memberships
        elif term.views:
            self._windows = windowed(
                node, streams.ticks, term.views, term.retain, plain, deployed=streams.clock, within=key
            )
            rows = self._windows.memberships
            self._of.has_clock = self._of.has_clock or DUE in rows.schema.names
        elif aggregated:
            rows = DataWindow(node, FirstSpan(MAX_TIME - MIN_TIME + TICK, MIN_TIME))
        else:
            raise failure_at(
                term,
                "A sub-query without aggregates needs a window.",
                f"Write: {source.type_name}#keepall, for instance.",
            )
        if source.type_name not in self._of.reads:
            self._of.reads.append(source.type_name)
        columns = {name: f"@{self._name} {name}" for name in schema.names}
        own = [nw.col(name).alias(to) for name, to in columns.items()]
        own += [nw.col(name).alias(f"@{self._name} {name}") for name in key]
        rows, earlier = self._with_prior(rows, plain)
        own += earlier
        self._on += [(name, f"@{self._name} {name}") for name in key]
        held = Project(rows, (*own, nw.col(PLACE)), keep=False)
        return BoundStream(term.alias, source.type_name, schema, columns), held

    def _with_prior(self, rows: Node, events: StreamScope) -> tuple[Node, list[nw.Expr]]:
        """(the rows of its window with what `prior` is of them, the columns of that)."""
        query = self._query
        clauses = (*(item.expression for item in query.items), query.where, query.having, *query.group_by)
        asked = [part for clause in clauses for part in parts(clause) if looks_to_arrivals(part)]
        if not asked:
            return rows, []
        if not query.stream.views:
            raise unsupported(asked[0], "prior in sub-queries without a window of their own")
        looking = LookingBack(self._windows, query.stream.views, events, f"{self._name} ", within=self._of.context.key)
        columns = list[nw.Expr]()
        for node in asked:
            bound = looking.prior(node)
            assert bound is not None  # noqa: S101  (it is a call of prior)
            name = f"@{self._name} prior {len(columns)}"
            columns.append(bound.value.alias(name))
            self._prior[node] = Bound(nw.col(name), bound.type)
        return looking.rows(rows), columns

    def _looking_back(self, node: e.Expression) -> Bound | None:
        """What `prev` and its kin see: it is the same for all rows of the window."""
        if not looks_into_window(node):
            return None
        assert isinstance(node, e.FunctionCall)  # noqa: S101  (it is a call)
        views = self._query.stream.views
        if not views:
            raise failure_at(node, f"{node.name} needs a window, and the sub-query has none.", "Write one: #length(9).")
        if self._windows.in_batches or any(each.name.lower() in GROUPWIN for each in views):
            raise unsupported(node, f"{node.name} of batches and of groupwin in sub-queries")
        looking = LookingBack(self._windows, views, self._seen.events)
        bound = looking.in_window(node, self._seen)
        if looking.elements:
            raise unsupported(node, f"index of {node.name} in sub-queries that is no constant")
        return bound

    def _where(self) -> None:
        """Its conditions: on its own rows alone, as keys where both sides are equal, and the rest."""
        given = [] if self._query.where is None else _conjuncts(self._query.where)
        if self._query.having is not None and not (self._folded or self._grouped):
            given += _conjuncts(self._query.having)
        for each in given:
            if isinstance(each, e.Operation) and each.operator == "=" and self._keyed(each):
                continue
            bound, reads = self._bound(each, condition=True)
            if "outer" not in reads:
                self._held = Filter(self._held, bound.value)
            elif "inner" not in reads:
                always = Bound(nw.col(PLACE) >= MIN_TIME, t.BOOLEAN)
                self._on.append((self._column_around(bound, each), self._column(always)))
            else:
                self._rest.append(bound.value)
                self._in_pairs = True

    def _bound(self, node: e.Expression, *, condition: bool = False) -> tuple[Bound, set[str]]:
        """(what computes it, whose properties it reads)."""
        self._scope.reads = set()
        bound = bind_condition(node, self._scope) if condition else bind(node, self._scope)
        self._note(node)
        return bound, self._scope.reads

    def _keyed(self, node: e.Operation) -> bool:
        """Whether a comparison is one of a property around it with one of its own; then it is a key."""
        sides = [self._bound(each) for each in (node.left, node.right)]
        if sorted(map(sorted, (reads for _, reads in sides))) != [["inner"], ["outer"]]:
            return False
        (inner, outer) = (bound for bound, reads in sorted(sides, key=lambda side: sorted(side[1])))
        dtype = conditions.compared_as(sides[0][0], sides[1][0])
        if dtype == t.NULL:
            return False
        mine = self._column(Bound(as_type(inner, dtype), dtype))
        self._held = Filter(self._held, ~nw.col(mine).is_null())
        self._on.append((self._column_around(Bound(as_type(outer, dtype), dtype), node), mine))
        return True

    def _column(self, bound: Bound) -> str:
        """A column of its own rows."""
        name = f"@{self._name} key {len(self._held.schema.names)}"
        self._held = extended(self._held, [bound.value.alias(name)])
        return name

    def _column_around(self, bound: Bound, node: e.Expression) -> str:
        """A column of the rows that ask."""
        name = f"@{self._name} by {len(self._outer)}"
        self._outer[name] = (bound.value, node)
        return name

    def _group_keys(self) -> dict[e.Expression, Bound]:
        """The keys of its groups, as columns of these."""
        keys: dict[e.Expression, Bound] = {}
        levels = levels_of(self._query.group_by) if self._grouped else [()]
        if len(levels) > 1:
            raise unsupported(self._query.group_by[0], "rollups of sub-queries")
        for key in levels[0]:
            bound, _ = self._bound(key)
            keys[key] = Bound(nw.col(self._groups.column(bound, "key")), bound.type)
        return keys

    # What it gives

    def bound(self, node: e.Expression) -> Bound:
        """What computes the node that it stands in."""
        match node:
            case q.Exists():
                return conditions.condition(self._there())
            case q.Subquery():
                return self._scalar(node)
            case e.Inclusion(value, negated=negated):
                held = self._compared(node, "=", "any", value)
                return conditions.condition(~held if negated else held)
            case e.Quantified(operator, quantity, value):
                return conditions.condition(self._compared(node, operator, quantity, value))
        raise AssertionError(node)

    def _there(self) -> nw.Expr:
        """Whether it has rows."""
        if not self._folded:
            return self._count() > 0
        if self._query.having is None:
            return nw.lit(value=True)
        return self._of_fold(self._query.having, condition=True).value.fill_null(False)

    def _of_fold(self, node: e.Expression, *, condition: bool = False) -> Bound:
        scope = _FoldedScope(self._scope, self._folds)
        self._note(node)
        return bind_condition(node, scope, "'having'") if condition else bind(node, scope)

    def _of_group(self, node: e.Expression, *, condition: bool = False) -> Bound:
        scope = _GroupScope(self._scope, self._groups, self._keys)
        self._note(node)
        return bind_condition(node, scope, "'having'") if condition else bind(node, scope)

    def _note(self, node: e.Expression) -> None:
        self._strange |= {part.name for part in parts(node) if isinstance(part, e.Name | e.Member)}

    def _count(self, condition: nw.Expr | None = None, on: On = ()) -> nw.Expr:
        """How many rows there are, for which a condition holds, and which equal in more columns."""
        made = g.count() if condition is None else g.count(where=nw.col(self._fold(Bound(condition, t.BOOLEAN))))
        return nw.col(self._added(made, on)).fill_null(0)

    def _fold(self, bound: Bound) -> str:
        """The column of what aggregates read."""
        return self._folds.column(bound)

    def _added(self, aggregate: Aggregate, on: On = ()) -> str:
        name = self._folds.add(aggregate, None, "alive")
        self._equal[name] = on
        return name

    def _items(self) -> list[tuple[str, e.Expression]]:
        """Its columns."""
        found: list[tuple[str, e.Expression]] = []
        for item, name in zip(self._query.items, column_names(self._query.items), strict=True):
            if name is None:
                found += [(each, e.Member(e.Name(self._stream.name), each)) for each in self._stream.schema.names]
            else:
                found.append((name, item.expression))
        return found

    def _value(self, node: e.Expression) -> Bound:
        """The value of a row of its own, or of a group."""
        if self._grouped:
            return self._of_group(node)
        bound, reads = self._bound(node)
        if "outer" in reads:
            self._in_pairs = True
        if bound.type == t.NULL:
            return Bound(nw.lit(None, nw.Boolean()), t.BOOLEAN)
        return bound

    def _scalar(self, node: q.Subquery) -> Bound:
        """Its value if it has one row."""
        items = self._items()
        is_struct = len(items) > 1 or isinstance(self._query.items[0].expression, e.Wildcard)
        if self._folded:
            values = [(name, self._of_fold(each)) for name, each in items]
            there = None if self._query.having is None else self._there()
        else:
            values = [(name, self._single(self._value(each))) for name, each in items]
            there = self._count() == 1
        if not is_struct:
            ((_, one),) = values
            return one if there is None else Bound(nw.when(there).then(one.value), one.type)
        made = nw.struct(*(bound.value.alias(name) for name, bound in values))
        dtype = pa.struct([pa.field(name, bound.type) for name, bound in values])
        return Bound(made if there is None else nw.when(there).then(made), dtype)

    def _single(self, bound: Bound) -> Bound:
        column = self._fold(bound)
        # There is one row: any choice gives its value, and arrays and records have no least one.
        one = placed(column, 0) if pa.types.is_nested(bound.type) else g.min(column)
        return Bound(nw.col(self._added(one)), bound.type)

    def _compared(self, node: e.Expression, operator: str, quantity: str, value: e.Expression) -> nw.Expr:
        """Whether a comparison holds for any row, or for all: unknown as in SQL."""
        if len(self._items()) != 1:
            raise failure_at(node, "The sub-query has several columns.", "Select one of them.")
        ((_, shown),) = self._items()
        if operator in {"is", "is not"}:
            raise unsupported(node, f"{operator!r} with {quantity!r} rows of a sub-query")
        asked = bind(value, self._scope.around)
        self._note(value)
        if self._folded:
            one = conditions.compared(operator, asked, self._of_fold(shown)).value
            return one if self._query.having is None else nw.when(self._there()).then(one).otherwise(quantity == "all")
        bound = self._value(shown)
        dtype = conditions.compared_as(asked, bound, ordered=operator not in {"=", "!="})
        by = self._column_around(Bound(as_type(asked, dtype), dtype), value)
        mine = Bound(as_type(bound, dtype), dtype)
        rows, nulls = self._count(), self._count(bound.value.is_null())
        decisive = quantity == "any"
        decided = self._decided(operator, by, mine, rows - nulls, decisive=decisive)
        known = nw.when(nulls > 0).then(conditions.UNKNOWN).otherwise(not decisive)
        known = nw.when(decided.fill_null(False)).then(decisive).otherwise(known)
        known = nw.when(nw.col(by).is_null()).then(conditions.UNKNOWN).otherwise(known)
        return nw.when(rows == 0).then(not decisive).otherwise(known)

    def _decided(self, operator: str, by: str, mine: Bound, known: nw.Expr, *, decisive: bool) -> nw.Expr:
        """Whether the comparison is, for a known value, what decides: true for any, false for all."""
        if operator in {"=", "!="}:
            if self._in_pairs:
                same = conditions.compared("=", Bound(nw.col(by), mine.type), mine).value
                equal = self._count(same.fill_null(False))
            else:
                equal = self._count(on=((by, self._fold(mine)),))
            return equal > 0 if (operator == "=") == decisive else known - equal > 0
        own, nan = mine.value, nw.lit(value=False)
        options = {}
        if t.is_float(mine.type):
            options = {"where": nw.col(self._fold(Bound(~own.is_nan(), t.BOOLEAN)))}
            nan = self._count(own.is_nan()) > 0
        greatest = operator.startswith("<") == decisive
        choose = g.max if greatest else g.min
        best = Bound(nw.col(self._added(choose(self._fold(mine), **options))), mine.type)
        found = conditions.compared(operator, Bound(nw.col(by), mine.type), best).value
        return found if decisive else (~found).fill_null(False) | nan

    # The plan

    def lookups(self) -> Iterator[_LookedUp]:
        """The lookups: first of what `prev` sees, which the other one reads."""
        if self._seen.made:
            held = extended(self._windows.memberships, [v.alias(name) for name, v in self._seen.columns.items()])
            on = tuple((name, name) for name in self._of.context.key)
            yield _LookedUp(held, tuple(Looked(each.aggregate, on) for each in self._seen.made), {}, (), None)
        yield self._lookup()

    def _lookup(self) -> _LookedUp:
        if any(each.keys is not None or each.life != "alive" for each in (*self._folds.made, *self._groups.made)):
            raise unsupported(self._query, "aggregates of sub-queries over other rows than those in the window")
        on, strange = tuple(self._on), tuple(self._strange)
        columns = tuple(value.alias(name) for name, value in self._folds.columns.items())
        if self._in_pairs or any(columns_of(value, strange) for value in columns):
            looked = tuple(Looked(each.aggregate) for each in self._folds.made)
            rest = nw.all_horizontal(*self._rest, ignore_nulls=False) if self._rest else None
            pairs = (on, rest, columns, None) if not self._grouped else (on, rest, *self._pair_groups(columns))
            return _LookedUp(self._held, looked, self._outer, strange, pairs)
        looked = tuple(
            Looked(each.aggregate, (*on, *self._equal.get(each.aggregate.name, ()))) for each in self._folds.made
        )
        return _LookedUp(extended(self._held, columns), looked, self._outer, strange, None)

    def _pair_groups(self, columns: tuple[nw.Expr, ...]) -> tuple[tuple[nw.Expr, ...], PairGroups]:
        """(the columns of pairs that its groups read, its groups with the columns that are looked up)."""
        query, groups = self._query, self._groups
        having = None if query.having is None else self._of_group(query.having, condition=True).value
        groups.counted()
        keys = tuple(str(bare_column(bound.value)) for bound in self._keys.values())
        read = tuple(value.alias(name) for name, value in groups.columns.items())
        return read, PairGroups(keys, tuple(each.aggregate for each in groups.made), having, columns)


def asks(node: e.Expression | None) -> bool:
    """Whether there is a sub-query in an expression."""
    return any(isinstance(part, q.Subquery | q.Exists) for part in parts(node))


def _aggregates(node: e.Expression | None) -> bool:
    """Whether there is an aggregate in it."""
    found = parts(node, lambda part: not isinstance(part, q.Query))
    return any(isinstance(part, e.FunctionCall) and is_aggregate(part) for part in found)


def _conjuncts(node: e.Expression) -> list[e.Expression]:
    if isinstance(node, e.Logical) and node.operator == "and":
        return [part for each in node.operands for part in _conjuncts(each)]
    return [node]
