"""What events do to a named window: `on … delete`, `on … update` and `on … merge` as one kind of change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import TICK, TIME_TYPE
from gpu_ops.core.turns import CLOCK, INSTANCE, NEW, OLD, ORDER, PLACE, ROW
from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.epl.column_names import column_names
from gpu_ops.epl.patterns import EventFilter
from gpu_ops.epl.planning.asked_of_events import AskedOfEvents
from gpu_ops.epl.planning.events import stream_meant
from gpu_ops.epl.planning.joins import conjuncts
from gpu_ops.epl.planning.known_contexts import ContextNames, KnownContext, with_context_properties
from gpu_ops.epl.planning.known_windows import EVENT, KEPT, Action, ChangeBranch, KnownWindow, PlannedChange
from gpu_ops.epl.planning.patterns import PatternPlanner
from gpu_ops.epl.planning.planned import Ledger, PlannedStatement, known_type
from gpu_ops.epl.planning.scopes import EventScope
from gpu_ops.epl.planning.subqueries import Subqueries
from gpu_ops.epl.planning.variables import VariableColumns, VariableNames
from gpu_ops.errors import PlanError
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.nodes import Feed, Filter, Node, Project, extended, selected
from gpu_ops.plan.row_changes import pair_programs
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, as_type
from gpu_ops.texts.binding.expressions import bind, bind_condition
from gpu_ops.texts.binding.scope import BoundStream, StreamScope, unknown
from gpu_ops.texts.placed_error import failure_at, unsupported

_WHOLE = "@whole"

Changing: TypeAlias = s.OnDelete | s.OnUpdate | s.OnMerge
"""The statements that change a named window."""


def planned_change(
    statement: s.Statement, on: Changing, ledger: Ledger, window: KnownWindow, context: KnownContext | None
) -> PlannedStatement:
    """The plan of a statement that changes a named window: the events that trigger it, and what they do.

    Raises:
        PlacedError: As `gpu_ops.epl.planning.statements.planned`.
    """
    window.check_context(on, statement.context)
    if context is not None and not window.context:
        raise unsupported(statement, "changes within contexts of named windows outside", "Create it in the context.")
    on = with_context_properties(on)
    around = ContextNames(context, on)
    trigger, source, reads = on.trigger, on.trigger.source, list[str]()
    if isinstance(source, EventFilter):
        schema = known_type(source, ledger)
        if source.type_name == on.target:
            raise unsupported(source, "events of a named window that change it")
        other = ledger.windows.get(source.type_name)
        if other is not None and (other.context or other.is_table):
            raise unsupported(source, "events of tables, and of named windows within contexts, that change one")
        rows: Node = ledger.arrivals[source.type_name]
        stream = BoundStream(trigger.alias, source.type_name, schema)
        rows = around.within(rows, source.type_name)
        for each in source.filters:
            condition = bind_condition(each, EventScope([stream], context=around), "the filter").value
            rows = selected(Filter(rows, condition), rows.schema.names)
        reads.append(source.type_name)
    else:
        variables = VariableColumns(ledger.variables, VariableNames(ledger.variables, ledger.types).found.changing)
        planner = PatternPlanner(ledger, Subqueries(ledger, around), variables, around)
        _, rows = planner.plan(source)
        reads += planner.reads
        hidden = {CLOCK, PLACE, *around.key, *around.columns}
        schema = pa.schema([each for each in rows.schema if each.name not in hidden])
        stream = BoundStream(trigger.alias, "pattern", schema)
    schema = pa.schema([*schema, *(pa.field(name, pa.int64()) for name in around.key)])
    stream = replace(stream, schema=schema)
    asks = AskedOfEvents(ledger, stream, around)
    made = change_of(on, stream, window, silent=_is_silent(statement), asks=asks)
    kinds = {action.kind for branch in made.branches for action in branch.actions}
    if window.aggregates and "delete" in kinds:
        # Esper's aggregates begin anew then: here they are those of a query, which goes on.
        raise unsupported(on, "deletes of rows with aggregates")
    rows = selected(asks.over(rows), [*schema.names, *asks.columns, CLOCK])
    node = extended(rows, [nw.lit(NEW, nw.Int8()).alias(ROW), nw.lit(0, nw.Int64()).alias(ORDER)])
    reads += [*asks.reads, *(() if context is None else context.reads)]
    return PlannedStatement(
        node,
        window.columns,
        tuple(dict.fromkeys(reads)),
        (NEW, OLD),
        context=context,
        change=made,
        notes=(made.note,),
    )


def change_of(
    on: Changing,
    event: BoundStream,
    window: KnownWindow,
    *,
    silent: bool = False,
    asks: AskedOfEvents | None = None,
) -> PlannedChange:
    """What an event does to a named window.

    Args:
        on: What the statement says.
        event: The events that trigger it.
        window: The named window.
        silent: Whether its listeners are not told of rows that are taken out.
        asks: The sub-queries; None where there can be none.

    Raises:
        PlacedError: A name is unknown, or a value is of another type.
    """
    return _ChangePlanner(on, event, window, asks).change(silent=silent)


def _is_silent(statement: s.Statement) -> bool:
    return any("silent_delete" in str(each.value).lower() for each in statement.annotations)


@dataclass
class _ChangePlanner:
    """The change of one statement."""

    on: Changing
    event: BoundStream
    window: KnownWindow
    asks: AskedOfEvents | None = None
    columns: dict[str, nw.Expr] = field(default_factory=dict)
    updated: set[str] = field(default_factory=set)
    inserted: list[dict[str, Bound]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.event = replace(self.event, columns={name: EVENT + name for name in self.event.schema.names})
        own = {name: KEPT + name for name in self.window.schema.names}
        self.kept = BoundStream(self.on.alias, self.window.name, self.window.schema, own)
        self.initial = BoundStream("initial", self.window.name, self.window.schema, own)
        self.both = [self.event, self.kept]

    def change(self, *, silent: bool) -> PlannedChange:
        on: list[tuple[str, str]] = [(INSTANCE, INSTANCE)] if self.window.context else []
        rest = [each for each in conjuncts(self.on.where) if not self._is_equal(each, on)]
        passes = None
        if rest:
            scope = self._scope(self.both)
            bound = [bind_condition(each, scope, "'where'").value for each in rest]
            passes = self._column(bound[0] if len(bound) == 1 else nw.all_horizontal(*bound, ignore_nulls=False))
        match self.on:
            case s.OnDelete():
                branches = [ChangeBranch(True, None, (Action("delete", None),))]
            case s.OnUpdate(assignments=assignments):
                branches = [ChangeBranch(True, None, (self._update(assignments, None),))]
            case s.OnMerge(branches=given):
                branches = [self._branch(each) for each in given]
        fields = [pa.field(EVENT + each.name, each.type) for each in self.event.schema]
        fields += [pa.field(KEPT + each.name, each.type) for each in self.window.schema]
        fields += (
            [] if self.asks is None else [pa.field(EVENT + each, made) for each, made in self.asks.columns.items()]
        )
        pairs = Feed(pa.schema([*fields, pa.field(CLOCK, TIME_TYPE), pa.field(PLACE, pa.int64())]), (), TICK)
        columns = [value.alias(name) for name, value in self.columns.items()]
        asked = pairs if self.asks is None else self.asks.of_pairs(pairs)
        computed = Project(asked, tuple(columns), keep=False) if columns else None
        deleted_as = OLD if isinstance(self.on, s.OnMerge) else NEW
        keys = {other: mine for mine, other in on}
        by_key = bool(keys) and len(keys) == len(on) and not self.updated & {*keys}
        for each in self.inserted:
            bare = {name: bare_column(bound.value) for name, bound in each.items()}
            by_key &= all(bare.get(other) == EVENT + mine for other, mine in keys.items())
        expressions = dict(self.columns)
        if on:
            equal = [nw.col(EVENT + mine) == nw.col(KEPT + other) for mine, other in on]
            equal += [] if passes is None else [expressions[passes]]
            expressions[_WHOLE] = equal[0] if len(equal) == 1 else nw.all_horizontal(*equal, ignore_nulls=False)
        programs = None
        why = "" if self.window.limits is not None else f"rows of {self.window.name} leave in another way"
        if asked is not pairs:
            why = why or "it asks sub-queries about rows"
        try:
            programs = (
                None
                if asked is not pairs
                else pair_programs(expressions, pairs.schema, {KEPT + name: name for name in self.window.schema.names})
            )
        except PlanError as error:
            why = error.problem
        return PlannedChange(
            self.window.name,
            tuple(on),
            pairs,
            computed,
            passes,
            tuple(branches),
            silent,
            deleted_as,
            by_key=by_key,
            programs=programs,
            stepped=why,
            whole=_WHOLE if on else passes,
        )

    def _scope(
        self, streams: Sequence[BoundStream], given: dict[str, Bound] | None = None, initial: BoundStream | None = None
    ) -> _ChangeScope:
        return _ChangeScope(streams, given, initial, self.asks)

    def _column(self, value: nw.Expr) -> str:
        name = f"@made {len(self.columns)}"
        self.columns[name] = value
        return name

    def _is_equal(self, node: e.Expression, on: list[tuple[str, str]]) -> bool:
        """Whether a condition says that a property of the event is a column of the window; then it is a key."""
        if not isinstance(node, e.Operation) or node.operator != "=":
            return False
        scope, found = StreamScope(self.both), dict[str, tuple[str, pa.DataType]]()
        for side in (node.left, node.right):
            if isinstance(side, e.Name | e.Member):
                bound = scope.property(side)
                name = None if bound is None else bare_column(bound.value)
                if bound is not None and name is not None:
                    found[name[: len(EVENT)]] = name, bound.type
        if found.keys() != {EVENT, KEPT}:
            return False
        (event, mine), (kept, other) = found[EVENT], found[KEPT]
        if mine != other or not (t.is_integer(mine) or mine == t.TEXT):
            return False
        on.append((event.removeprefix(EVENT), kept.removeprefix(KEPT)))
        return True

    def _branch(self, node: s.MergeBranch) -> ChangeBranch:
        matched = bool(node.matched)
        streams = self.both if matched else [self.event]
        where = None if node.condition is None else self._condition(node.condition, streams)
        actions = tuple(self._action(each, matched=matched, streams=streams) for each in node.actions)
        if sum(action.kind != "insert" for action in actions) > 1:
            raise unsupported(node, "several changes of one row", "Write one update, or one delete.")
        return ChangeBranch(matched, where, actions, node.matched is None)

    def _condition(self, node: e.Expression | None, streams: Sequence[BoundStream]) -> str | None:
        return None if node is None else self._column(bind_condition(node, self._scope(streams), "the condition").value)

    def _action(
        self, node: s.MergeInsert | s.MergeUpdate | s.MergeDelete, *, matched: bool, streams: Sequence[BoundStream]
    ) -> Action:
        where = self._condition(node.where, streams)
        match node:
            case s.MergeInsert():
                return self._insert(node, where, streams)
            case _ if not matched:
                raise failure_at(node, "Where no row matches there is none to change.", "Write: then insert select ….")
            case s.MergeUpdate(assignments=assignments):
                return self._update(assignments, where)
            case s.MergeDelete():
                return Action("delete", where)

    def _update(self, assignments: Sequence[q.Assignment], where: str | None) -> Action:
        """New values of the window's columns; a later assignment sees what an earlier one has set."""
        given: dict[str, Bound] = {}
        for each in assignments:
            name = self._target(each)
            assert each.value is not None  # noqa: S101  (_target saw to it)
            bound = bind(each.value, self._scope(self.both, given, self.initial))
            given[name] = self._fitting(bound, name)
        self.updated |= {*given}
        return Action("update", where, self._values(given, keeps=True))

    def _check_plain(self, node: e.Syntax, name: str) -> None:
        """Refuse that an event sets what a query keeps in the table."""
        if name in self.window.aggregates and self.event.type_name != "event":
            raise failure_at(node, f"{self.window.name}.{name} is an aggregate.", "It is kept by: into table ….")

    def _target(self, node: q.Assignment) -> str:
        target, names = node.target, self.window.schema.names
        if isinstance(target, e.Member) and isinstance(target.of, e.Name) and target.of.name == self.kept.name:
            target = e.Name(target.name, place=target.place)
        if not isinstance(target, e.Name) or node.value is None:
            raise unsupported(node, "assignments but to columns of the window", "Write: set name = value.")
        if target.name not in names:
            raise unknown(target, f"{self.window.name!r} has no column {target.name!r}.", target.name, names, names)
        self._check_plain(node, target.name)
        return target.name

    def _fitting(self, bound: Bound, name: str) -> Bound:
        dtype = self.window.schema.field(name).type
        if t.common_type([dtype, bound.type]) != dtype:
            typed = f"{self.window.name}.{name} is of type {t.type_name(dtype)}, and {bound.typed}."
            raise failure_at(bound, typed, "Cast it.")
        return Bound(as_type(bound, dtype), dtype)

    def _insert(self, node: s.MergeInsert, where: str | None, streams: Sequence[BoundStream]) -> Action:
        if node.target and node.target != self.window.name:
            raise unsupported(node, "merges that insert into another stream")
        scope = self._scope(streams)
        given: dict[str, Bound] = {}
        names = column_names(node.items)
        for item, name in zip(node.items, names, strict=True):
            stream = stream_meant(item.expression, scope)
            if isinstance(item.expression, e.Wildcard) and item.expression.of is None:
                stream = self.event
            if stream is not None and name is None:
                given |= {each: stream.bound(each) for each in stream.schema.names if each != INSTANCE}
            else:
                given[name or str(item.expression)] = bind(item.expression, scope)
        if node.columns:
            if len(node.columns) != len(given):
                said = f"There are {len(node.columns)} names for {len(given)} columns."
                raise failure_at(node, said, "Name each of them.")
            given = dict(zip(node.columns, given.values(), strict=True))
        known = self.window.columns.names
        for name in given:
            if name not in known:
                raise unknown(node, f"{self.window.name!r} has no column {name!r}.", name, known, known)
        made = {name: self._fitting(x, name) for name, x in given.items()}
        if self.window.context:
            made[INSTANCE] = self.event.bound(INSTANCE)
        self.inserted.append(made)
        return Action("insert", where, self._values(made))

    def _values(self, given: dict[str, Bound], *, keeps: bool = False) -> tuple[str, ...]:
        made = []
        for each in self.window.schema:
            if each.name in given:
                value = given[each.name].value
            elif keeps:
                value = nw.col(KEPT + each.name)
            else:
                value = nw.lit(None).cast(t.narwhals_type(each.type))
            made.append(self._column(value))
        return tuple(made)


class _ChangeScope(StreamScope):
    """What names stand for where an event is beside a row: what is assigned already stands for the column.

    Args:
        streams: The event, and the row if there is one.
        given: What is assigned.
        initial: The row as it was.
        asks: The sub-queries; None where there can be none.
    """

    def __init__(
        self,
        streams: Sequence[BoundStream],
        given: dict[str, Bound] | None = None,
        initial: BoundStream | None = None,
        asks: AskedOfEvents | None = None,
    ) -> None:
        super().__init__(streams if initial is None else [*streams, initial])
        self._given, self._asks = given or {}, asks

    def special(self, node: e.Expression) -> Bound | None:
        """A column that is assigned, or a sub-query."""
        row = self.streams[1] if len(self.streams) > 1 else None
        found = None if self._asks is None else self._asks.special(node, self, row)
        if found is not None:
            return found
        if isinstance(node, q.Subquery | q.Exists):
            raise unsupported(node, "sub-queries in changes of named windows")
        if isinstance(node, e.Name | e.Member):
            kept = self.streams[1] if len(self.streams) > 1 else None
            is_own = isinstance(node, e.Name) or (isinstance(node.of, e.Name) and kept and node.of.name == kept.name)
            if is_own and node.name in self._given and not self._is_of_event(node):
                return self._given[node.name]
        return None

    def _is_of_event(self, node: e.Name | e.Member) -> bool:
        return isinstance(node, e.Name) and node.name in self.streams[0].schema.names

    def _by_name(self, node: e.Name) -> Bound:
        """A column of the window comes before a property of the event, as in Esper; `initial` is said."""
        kept = self.streams[1] if len(self.streams) > 1 else None
        if kept is not None and node.name in kept.schema.names and node.name not in self.streams[0].schema.names:
            return kept.bound(node.name)
        return StreamScope(self.streams[:2])._by_name(node)  # noqa: SLF001  (the same for two of them)
