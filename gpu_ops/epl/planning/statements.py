"""Queries in EPL as plans: from the streams of a from clause to the rows of each delivery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.core.turns import EMPTY, GROUPING, HELD, INSTANCE, MARK, NEW, OLD, ORDER, PLACE, ROW, of_stream
from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.epl.column_names import column_names
from gpu_ops.epl.patterns import EventFilter
from gpu_ops.epl.planning.aggregate_columns import AggregateColumns
from gpu_ops.epl.planning.aggregates import PlannedAggregates
from gpu_ops.epl.planning.changes import planned_change
from gpu_ops.epl.planning.derived import DerivedView, is_derived
from gpu_ops.epl.planning.events import event_of, stream_meant
from gpu_ops.epl.planning.instances import InstancePlan, context_of
from gpu_ops.epl.planning.joins import JoinedStream, conjuncts, join_of, joined_columns, with_bounds_as_said, without
from gpu_ops.epl.planning.known_contexts import ContextNames, reads_context, with_context_properties
from gpu_ops.epl.planning.known_windows import NAMED, SILENT, KnownWindow, over_named
from gpu_ops.epl.planning.levels import levels_of
from gpu_ops.epl.planning.list_functions import is_list_method
from gpu_ops.epl.planning.looking_back import LookingBack, looks_into_window
from gpu_ops.epl.planning.looking_in_joins import LookingInJoin
from gpu_ops.epl.planning.mentions import aggregate_calls, local_keys, may_drain, properties_of
from gpu_ops.epl.planning.outer_joins import drifting
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.patterns import PatternPlanner
from gpu_ops.epl.planning.planned import Ledger, PlannedStatement, known_type
from gpu_ops.epl.planning.rates import PlannedOutput, output_rate, posts_empty
from gpu_ops.epl.planning.refusals import (
    refuse_aggregates,
    refuse_looking,
    refuse_outputs,
    refuse_subqueries,
    refuse_windows,
)
from gpu_ops.epl.planning.row_patterns import recognized
from gpu_ops.epl.planning.scopes import CountScope, DeliveredScope, EventScope, WindowedStream
from gpu_ops.epl.planning.settings_at_outputs import beside_counts, set_at_outputs, with_assignments
from gpu_ops.epl.planning.subqueries import Asked, Subqueries, asks
from gpu_ops.epl.planning.tables import into_table, with_into, with_tables
from gpu_ops.epl.planning.triggers import planned_setting, planned_variable
from gpu_ops.epl.planning.updates import planned_update
from gpu_ops.epl.planning.variables import VariableColumns, VariableNames, reads
from gpu_ops.epl.planning.windows import StreamWindows, windowed
from gpu_ops.epl.statements import Statement
from gpu_ops.plan.data_windows import DataWindow, FirstSpan, Last
from gpu_ops.plan.deliveries import REMEMBERED, Delivered, Deliveries
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.joins import Union, cast_to
from gpu_ops.plan.lean import lean
from gpu_ops.plan.lookups import Looked, Lookup
from gpu_ops.plan.nodes import Filter, Node, Project, extended, selected
from gpu_ops.plan.per_delivery import PerDelivery, RowKey
from gpu_ops.plan.rates import AtTimes, EveryPeriod, EveryRows, Kind, OutputRate
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.expressions import bind, bind_condition, constant
from gpu_ops.texts.binding.scope import StreamScope, is_aggregate
from gpu_ops.texts.placed_error import failure_at, unsupported

_WHAT: dict[type, str] = {
    s.OnQuery: "triggers (on … select)",
    s.OnDelete: "triggers (on … delete)",
    s.OnUpdate: "triggers (on … update)",
    s.OnMerge: "triggers (on … merge)",
    s.OnSet: "triggers (on … set)",
    s.CreateWindow: "named windows",
    s.CreateTable: "tables",
    s.CreateIndex: "indexes",
    s.CreateContext: "contexts",
    s.CreateVariable: "variables",
    s.CreateExpression: "declared expressions",
}
"""What statements are called that are no queries."""

_MOST_ROWS = (1 << 31) - 1
_OF_NO_EVENT = {"all", "first", "snapshot"}
"""Selections of outputs in which rows of a rollup are of no event that its aggregates of other groups could be of."""

_MOST_LEVELS = 16
_FILTER = "Filter the stream by it, once, as each event comes: from A(v > (select …))#time(10 sec)."
_PASSES = "@passes"
_PASSED = "@passed"


def planned(statement: Statement, ledger: Ledger) -> PlannedStatement:
    """The plan of a query.

    Raises:
        PlacedError: A name is unknown, types do not fit, or gpu_ops does not have what it asks for.
    """
    names = VariableNames(ledger.variables, ledger.types)
    query, table, reads_tables = _over_kept(statement, ledger)
    if isinstance(query, s.OnDelete | s.OnUpdate | s.OnMerge) and query.target in ledger.windows:
        return planned_change(statement, query, ledger, ledger.windows[query.target], context_of(statement, ledger))
    if isinstance(query, s.OnSet):
        plan = planned_setting(query, ledger, names, context_of(statement, ledger))
        return _in_its_context(statement, plan, names, ledger)
    if isinstance(query, s.UpdateStream):
        return planned_update(statement, query, ledger, names)
    if isinstance(query, s.CreateVariable) and (context := context_of(statement, ledger)) is not None:
        return planned_variable(query, ledger, context)
    if not isinstance(query, q.Query):
        raise unsupported(statement, _WHAT[type(query)])
    if query.delivery:
        raise unsupported(query, "'for' clauses")
    if query.recognize is not None and query.joins:
        raise unsupported(query.recognize, "match_recognize over joins", "Insert the join's rows into a stream first.")
    for each in statement.annotations if query.recognize is not None else ():
        if "iterate_only" in str(each.value).lower():
            raise unsupported(each, "match_recognize that is iterated alone (iterate_only)", "Leave the hint out.")
    context = context_of(statement, ledger)
    names.among(query)
    query = with_context_properties(names.query(with_assignments(query, names)))
    variables = VariableColumns(ledger.variables, names.found.changing)
    around = ContextNames(context, query)
    plan = _QueryPlanner(statement, query, ledger, variables, around).plan()
    plan = _of_kept(plan, statement, ledger, reads_tables=reads_tables)
    plan = plan if table is None else with_into(plan, query, table)
    if context is not None:
        plan = replace(plan, context=context, reads=tuple(dict.fromkeys((*plan.reads, *context.reads))))
    plan = replace(plan, variables=names.found, history=variables.history, before=variables.before, own=variables.own)
    return _in_its_context(statement, plan, names, ledger)


def _in_its_context(
    statement: Statement, plan: PlannedStatement, names: VariableNames, ledger: Ledger
) -> PlannedStatement:
    """A plan whose variables of contexts are those of its own."""
    if plan.own:
        # It is told at once what is set there: it keeps the values.
        plan = replace(plan, variables=replace(plan.variables, waking=plan.variables.waking | {*plan.own}))
    used = [*names.found.changing, *(() if plan.setting is None else plan.setting.names)]
    for name in used:
        context = ledger.variables[name].context
        if context and context != statement.context:
            raise failure_at(
                statement, f"{name!r} is a variable of the context {context!r}.", f"Write: context {context} …."
            )
    return plan


def _over_kept(statement: Statement, ledger: Ledger) -> tuple[s.Body, KnownWindow | None, bool]:
    """(the body with what it reads of named windows and tables, the table of its rows, whether it reads tables)."""
    if isinstance(statement.body, s.OnQuery):
        asked = statement.body.query.stream.source
        if getattr(asked, "type_name", "") not in ledger.windows:
            raise failure_at(
                asked, f"{asked} is no named window and no table.", "Create one: create window W#keepall …."
            )
    table: KnownWindow | None = None
    body = body_of(statement.body)
    if isinstance(body, q.Query) and body.into_table:
        if statement.context:
            raise unsupported(statement, "tables within contexts")
        body, table = into_table(body, ledger.windows)
    read = with_tables(body, ledger.windows, ledger.types)
    return over_named(read, ledger.windows), table, read is not body


def _of_kept(plan: PlannedStatement, statement: Statement, ledger: Ledger, *, reads_tables: bool) -> PlannedStatement:
    """A plan with what it makes, and when it asks."""
    body = statement.body
    plan = replace(plan, asked=reads_tables or isinstance(body, s.OnQuery))
    if isinstance(body, s.CreateWindow | s.CreateTable):
        shows = plan.shows if isinstance(body, s.CreateWindow) else (None, None)
        plan = replace(plan, creates=body.name, notes=ledger.windows[body.name].notes, shows=shows)
    return plan


def body_of(body: s.Body) -> s.Body:
    """What a statement says, as a query if it is one: what a trigger asks is a join in which it alone is new."""
    if isinstance(body, s.CreateWindow | s.CreateTable):
        source = EventFilter(body.name, place=body.place)
        every = q.SelectItem(e.Wildcard(place=body.place), place=body.place)
        return q.Query((every,), q.StreamTerm(source, place=body.place), selector="irstream", place=body.place)
    if not isinstance(body, s.OnQuery):
        return body
    query, trigger = body.query, body.trigger
    event = q.StreamTerm(trigger.source, (), trigger.alias, unidirectional=True, place=trigger.place)
    if asks_of_all(query):
        # There is a row though none is found: of nothing, a count of zero.
        further = q.JoinTerm("left", query.stream, query.where, place=query.stream.place)
        return replace(query, stream=event, joins=(further,), where=None)
    further = q.JoinTerm("cross", query.stream, place=query.stream.place)
    return replace(query, stream=event, joins=(further, *query.joins))


def asks_of_all(query: q.Query) -> bool:
    """Whether a query of a trigger selects aggregates of all rows that it finds, and nothing else."""
    shown = [item.expression for item in query.items]

    def into(node: object) -> bool:
        return not (isinstance(node, q.Query) or (isinstance(node, e.FunctionCall) and is_aggregate(node)))

    others = [each for each in parts((shown, query.having), into) if isinstance(each, e.Name | e.Wildcard)]
    plain = not query.group_by and not query.joins and not others and not asks(query.where) and not query.distinct
    return plain and all(any(True for _ in aggregate_calls([each])) for each in shown)


class _QueryPlanner:
    """The plan of one query, clause by clause."""

    def __init__(
        self, statement: Statement, query: q.Query, ledger: Ledger, variables: VariableColumns, context: ContextNames
    ) -> None:
        # The rest of the query is about a stream without windows: that of the measures.
        self._recognizes, self._content = (query if query.recognize is not None else None), list[Node]()
        query = query if query.recognize is None else replace(query, stream=replace(query.stream, views=()))
        self._query, self._ledger, self._variables, self._context = query, ledger, variables, context
        self._statement = statement
        self._instances = InstancePlan(context, ledger, query)
        self._held: list[e.Expression] = []
        self._sorted_later = [HELD, OLD]
        self._shows_none = False
        self._words: dict[str, str] = {}
        self._reads: list[str] = []
        self._in_join: LookingInJoin | None = None
        self._rate: OutputRate | None = None
        self._subqueries = Subqueries(ledger, context)
        self._keeps_last = any(each.name.lower() == "iterableunbound" for each in statement.annotations)
        self._selector = query.selector or ("irstream" if ledger.irstream else "istream")

    def plan(self) -> PlannedStatement:
        """The whole plan."""
        if not self._query.joins and self._query.stream.views and is_derived(self._query.stream.views[-1]):
            return self._of_statistics()
        return self._of_events()

    def _of_statistics(self) -> PlannedStatement:
        """The plan over a view that derives statistics: its rows are delivered as they replace each other."""
        query = self._query
        *views, view = query.stream.views
        term = replace(query.stream, views=tuple(views))
        stream, arrivals = self._source(term)
        derived = DerivedView(view, EventScope([stream]), views)
        windows = self._kept(term, stream, arrivals) if derived.has_windows else self._forever(arrivals)
        streams = [WindowedStream(**vars(derived.stream), windowed=True)]
        events = EventScope(streams)
        aggregates, asked = PlannedAggregates(events), self._subqueries.asked()
        scope = DeliveredScope(events, aggregates, {}, asked)
        items, order = self._items(scope, streams), self._order(scope, "un-aggregated", events)
        conditions = [
            bind_condition(each, scope, where).value
            for each, where in ((query.where, "'where'"), (query.having, "'having'"))
            if each is not None
        ]
        output = self._output()
        for what, there in (
            ("groups or aggregates", query.group_by or aggregates.made),
            ("sub-queries", asked),
            ("conditions beside an output rate", output is not None and conditions),
            ("FORCE_UPDATE", windows.posts is not None),
            ("contexts", self._context.context is not None),
        ):
            if there:
                raise unsupported(view, f"{what} over the view {view.name}")
        snapshot = output is not None and output.selection == "snapshot" and output.rate.every is not None
        limited = output is not None and not snapshot
        node = derived.rows(
            Deliveries(
                extended(windows.memberships, [v.alias(name) for name, v in derived.aggregates.columns.items()]),
                self._ledger.ticks,
                "group",
                (derived.keys,),
                tuple(derived.aggregates.made),
                old=self._gives_old(limited=limited),
                content=self._ledger.asks,
                marks=limited,
                snapshot=output.rate if snapshot and output is not None else None,
            )
        )
        having = None if not conditions else nw.all_horizontal(*conditions, ignore_nulls=False)
        node = self._had(node, output if limited else None, having, "un-aggregated", self._shown_kinds)
        return self._shown(node, items, order, streams, replace(windows, order=()))

    @property
    def _shown_kinds(self) -> tuple[int, ...]:
        """Which kinds of rows a listener gets."""
        return {"istream": (NEW,), "rstream": (OLD,), "irstream": (NEW, OLD)}[self._selector]

    def _gives_old(self, *, limited: bool) -> bool:
        """Whether old rows are read: a rate counts them."""
        insert = self._query.insert
        return limited or self._selector != "istream" or (insert is not None and insert.selector != "")

    def _output_of(self, kind: Kind) -> tuple[PlannedOutput | None, tuple[int, ...]]:
        """When there is output, and which kinds of rows it has."""
        output, shows = self._output(), self._shown_kinds
        if output is None or output.selection != "snapshot" or kind != "row for all" or NEW not in shows:
            return output, shows
        if not any(term.unidirectional for term in self._query.streams):
            return output, shows
        # No rows are there at an output: its row is the one that the last event of the stream made.
        return replace(output, selection="last"), (NEW,)

    def _of_events(self) -> PlannedStatement:  # noqa: PLR0915  (a clause after the other)
        """The plan over events and groups of them."""
        query = self._query
        streams, windows = self._windows()
        windowed = any(stream.windowed for stream in streams)
        looking = (
            None
            if query.joins
            else LookingBack(windows, query.stream.views, StreamScope(streams), within=self._context.key)
        )
        listed = self._subqueries.asked(lists_alone=True)
        events = EventScope(streams, looking, listed, self._in_join, self._variables, self._context)
        condition = without(query.where, self._held)
        condition = with_bounds_as_said(condition) if query.joins and condition is not None else condition
        where = None if condition is None or _waits(condition) else bind_condition(condition, events).value
        other = windows.in_other_order and not query.joins
        joined = bool(query.joins)
        aggregates = PlannedAggregates(events, within=self._context.key, joined=joined, in_other_order=other)
        aggregates.found = self._found()
        aggregates.drifts = drifting(query, events)
        levels, keys = self._groups(aggregates, events)
        asked = self._subqueries.asked()
        scope = DeliveredScope(events, aggregates, keys, asked, levels)
        kind = self._kind(keys, levels, events)
        if kind == "row per group":
            is_last = not (windowed or query.joins or query.output or self._gives_old(limited=False))
            scope.of_groups = "last" if is_last else "refused"
        output, shows = self._output_of(kind)
        having = None if query.having is None else bind_condition(query.having, scope, "'having'").value
        self._look_later(looking, output, kind, windows)
        items = self._items(scope, streams)
        if condition is not None and _waits(condition) and (windowed or query.joins):
            having = self._where_as_asked(condition, scope, kind, having)
        order = self._order(scope, kind, events)
        by_group = kind in {"row for all", "row per group"}
        if by_group:
            aggregates.counted()
        self._words = aggregates.written
        momentary = any(term.unidirectional for term in query.streams)
        read = [value.alias(name) for name, value in aggregates.columns.items()]
        passes = None
        if where is not None and looking is not None and looking.has_previous:
            # Rows that do not pass are in the window too, where others see them.
            read.append(where.fill_null(False).alias(_PASSED))
            passes, where = _PASSED, None
        names = list(dict.fromkeys(key for level in levels for key in level))
        if len(levels) > 1:
            names.append(GROUPING)
        made = self._own_keys(aggregates, levels, by_group=by_group)
        snapshot = output is not None and output.selection == "snapshot" and output.rate.every is not None
        touched = kind == "row per group" and self._outputs_touched(output, aggregates, windows, asked)
        limited = output is not None and not snapshot and not touched
        self._sorted_later += [NEW] * snapshot  # the rows of a snapshot are the window's content
        self._refuse(aggregates, windows, by_group=by_group)
        if asked:
            has_clock, gives_old = self._subqueries.has_clock, self._selector != "istream"
            refuse_subqueries(query, windows, kind, has_clock=has_clock, gives_old=gives_old, limited=limited)
        is_kept = windowed or by_group
        self._shows_none = snapshot and not is_kept and self._holds_nothing()
        is_iterable = self._ledger.asks and is_kept and not momentary
        rows = listed.over(windows.memberships if looking is None else looking.rows(windows.memberships))
        rows = _where(rows, where, str(condition))
        rows = Project(rows, tuple(read), keep=True, said=aggregates.words) if read else rows
        gives_new, gives_content, ticks = self._instances.delivers(kind, content=is_iterable, is_kept=is_kept)
        waiting = None
        if windows.in_batches and looking is not None:
            waiting = extended(_where(listed.over(looking.waiting(windows.content)), where), read)
        delivered = Deliveries(
            rows,
            ticks,
            "group" if by_group else "row",
            tuple(levels) if by_group else ((),),
            made,
            new=gives_new,
            old=gives_new and self._gives_old(limited=limited or self._instances.every > 0),
            content=gives_content,
            marks=limited,
            snapshot=output.rate if (snapshot or touched) and output is not None else None,
            touched=touched,
            passes=passes,
            posts=windows.posts,
            waiting=waiting if gives_content else None,
            momentary=momentary,
        )
        node: Node = delivered
        for matches in self._content if not by_group else ():
            some = extended(_where(listed.over(matches), where), read)
            content = replace(delivered, rows=some, new=False, old=False, content=True, marks=False, snapshot=None)
            node = Union((node, Filter(content, nw.col(ROW) == HELD)))
        if self._keeps_last and not (windowed or by_group or momentary) and looking is not None and self._ledger.asks:
            node = Union((node, self._last_event(delivered, looking, listed, where, read)))
        values = tuple(each.aggregate.name for each in made)
        if by_all := (kind == "aggregated and grouped" and output is not None and output.selection == "all"):
            for name in values:
                if pa.types.is_nested(delivered.schema.field(name).type):
                    raise unsupported(query.group_by[0], "output all with arrays")
        for rate in aggregates.rates:
            points = extended(_where(listed.over(self._arrived), where), read)
            node = rate.over(node, points, self._ledger.ticks, levels[0])
        node = aggregates.nested.over(node, _where(rows, None if passes is None else nw.col(passes)), levels)
        node = self._instances.of_rows(node, rows, made, kind, is_iterable=is_iterable)
        node = self._looked(node, looking, by_group=by_group)
        later = limited and self._is_asked_later(asked, looking)
        node = self._with_variables(node if later else asked.over(node), windowed=windowed, limited=limited)
        by = tuple(names) if kind in {"row per group", "aggregated and grouped"} else ()
        if isinstance(self._statement.body, s.CreateWindow):
            node = Filter(node, (nw.col(ROW) != OLD) | ~nw.col(SILENT))
        node = self._left_in_order(node, windows) if limited or self._instances.holds else node
        node = self._had(node, output if limited else None, having, kind, shows, by, values if by_all else ())
        node = self._at_output(node, asked, looking) if later else node
        node = self._instances.ended(node, kind, by, self._shown_kinds)
        return self._shown(node, items, order, streams, windows)

    def _looked(self, node: Node, looking: LookingBack | None, *, by_group: bool) -> Node:
        """Deliveries with what `prev` sees in the windows of a join, or as far back as rows say themselves."""
        if looking is not None and looking.has_prior and by_group:
            raise unsupported(
                self._query, "prior, and prev of batches, beside the keys of groups", "Select another property too."
            )
        if looking is not None and looking.elements and by_group:
            raise unsupported(self._query, "index of prev that is no constant beside groups")
        if self._in_join is None:
            return node if looking is None or looking.later is not None else looking.with_elements(node)
        if self._in_join.previous and (by_group or self._query.output is not None):
            (call, *_) = self._in_join.previous
            raise unsupported(call, "prev of joins beside aggregates alone or outputs")
        return self._in_join.over(node)

    def _last_event(
        self,
        delivered: Deliveries,
        looking: LookingBack,
        listed: Asked,
        where: nw.Expr | None,
        read: Sequence[nw.Expr],
    ) -> Node:
        """The content of a statement without a window that is iterable: its last event, of each instance."""
        if self._query.where is not None and where is None:
            raise unsupported(self._query, "sub-queries of the last event (IterableUnbound)")
        if any(each.life not in {"alive", "ever"} for each in delivered.aggregates):
            raise unsupported(self._query, "aggregates of rows that left of the last event (IterableUnbound)")
        rows = listed.over(looking.rows(DataWindow(self._arrived, Last(1), self._context.key, (PLACE,))))
        rows = extended(_where(rows, where), read)
        content: Node = replace(
            delivered, rows=rows, aggregates=(), new=False, old=False, content=True, marks=False, snapshot=None
        )
        content = Filter(content, nw.col(ROW) == HELD)
        if not delivered.aggregates:
            return content
        looked = (Looked(each.aggregate, tuple((key, key) for key in each.keys or ())) for each in delivered.aggregates)
        found = Lookup(delivered.rows, content, tuple(looked))
        schema = delivered.schema
        return cast_to(found, schema, {name: name for name in schema.names}, ())

    def _is_asked_later(self, asked: Asked, looking: LookingBack | None) -> bool:
        """Whether rows ask as they are output; methods of lists alone they ask as they come, for conditions."""
        later = bool(asked) or (looking is not None and looking.later is not None and looking.has_previous)
        if later and self._query.having is not None and any(map(is_list_method, parts(self._query.having))):
            what = "methods of lists in 'having' beside what rows look up as they are output"
            raise unsupported(self._query.having, what)
        return later

    def _with_variables(self, node: Node, *, windowed: bool, limited: bool) -> Node:
        """Deliveries with the variables that they read, and with their changes if the rate reads them."""
        query = self._query
        if reads((query.items, query.having, query.order_by)) or (windowed and reads(query.where)):
            node = self._variables.beside(node)
        return self._variables.marked(node) if limited and reads(query.output) else node

    def _had(
        self,
        node: Node,
        output: PlannedOutput | None,
        having: nw.Expr | None,
        kind: Kind,
        shows: tuple[int, ...],
        by: tuple[str, ...] = (),
        values: tuple[str, ...] = (),
    ) -> Node:
        """The rows that pass `having`, as a rate outputs them."""
        if output is None:
            said = {**self._words, "=": str(self._query.having or self._query.where)}
            return node if having is None else Filter(node, nw.col(ROW).is_in([MARK, EMPTY]) | having, said)
        had = _is_row() if having is None else having
        said = {**self._words, f"={_PASSES}": str(self._query.having or self._query.where)}
        node = Project(node, (had.fill_null(False).alias(_PASSES),), keep=True, said=said)
        selection = output.selection
        waits = bool(self._query.order_by) and (selection, kind) != ("last", "un-aggregated")
        judged, ticks, rate = having is not None, self._ledger.ticks, output.rate
        node = OutputRate(node, ticks, rate, selection, kind, by, values, shows, _PASSES, waits, judged)  # type: ignore[arg-type]
        self._rate = node
        return node if having is None else Filter(node, (nw.col(ROW) != HELD) | nw.col(_PASSES))

    def _look_later(
        self, looking: LookingBack | None, output: PlannedOutput | None, kind: Kind, windows: StreamWindows
    ) -> None:
        """Have rows see the window as they are output, where Esper makes rows that wait for an output there.

        Aggregates whose last rows are output, or all of them, it makes as they come, unless they have an order.
        """
        if looking is None or output is None or output.rate.every is None or output.selection in {"first", "snapshot"}:
            return
        ordered = not output.selection or bool(self._query.order_by)
        if kind == "un-aggregated" or (ordered and kind not in {"row for all", "row per group"}):
            looking.later = AggregateColumns(looking.events, named="later ")
            refuse_looking(self._query, windows)

    def _at_output(self, node: Node, asked: Asked, looking: LookingBack | None) -> Node:
        """Rows as they are output, with what sub-queries and windows hold then."""
        node = asked.over(node)
        if looking is None or looking.later is None:
            return node
        return looking.with_elements(looking.looked_up(node))

    def _left_in_order(self, node: Node, windows: StreamWindows) -> Node:
        """Deliveries whose old rows stand as they left: which is the last of them is known before a rate takes one."""
        keys, order = self._in_window(node, windows, [OLD])
        if not keys or self._query.joins or self._query.order_by:
            return node
        self._sorted_later = [HELD]
        return selected(PerDelivery(extended(node, keys), tuple(order)), node.schema.names)

    def _holds_nothing(self) -> bool:
        """Whether a query without a window has no content, of which a snapshot could be."""
        if self._keeps_last and self._query.output is not None:
            raise unsupported(
                self._query.output, "snapshots of events without a window beside @IterableUnbound", "Say: #lastevent."
            )
        return not self._query.joins

    def _in_window(
        self, node: Node, windows: StreamWindows, kinds: Sequence[int]
    ) -> tuple[list[nw.Expr], list[RowKey]]:
        """Columns by which a window keeps rows, of rows of some kinds, and the order by them."""
        columns, keys = [], []
        for at, (name, down) in enumerate(windows.order):
            if name in node.schema.names:
                value = nw.col(name) if self._query.joins else nw.when(nw.col(ROW).is_in(kinds)).then(nw.col(name))
                columns.append(value.alias(f"@place {at}"))
                keys.append(RowKey(f"@place {at}", down))
        return columns, keys

    def _outputs_touched(
        self, output: PlannedOutput | None, aggregates: PlannedAggregates, windows: StreamWindows, asked: Asked
    ) -> bool:
        """Whether an output of groups is their values then: a row for each that was touched since the last one."""
        if output is None or output.selection != "last" or self._query.having is not None:
            return False
        if self._selector != "istream" and (
            asked or any(getattr(each, "name", "") == "current_timestamp" for each in parts(self._query))
        ):
            return False  # an old row says when it was one
        is_plain = not windows.in_batches and windows.posts is None
        is_plain &= not any(term.unidirectional for term in self._query.streams)
        lives = {each.life for each in aggregates.made}
        return is_plain and lives <= {"alive"} and isinstance(output.rate.every, EveryRows | EveryPeriod | AtTimes)

    # The streams

    def _windows(self) -> tuple[list[WindowedStream], StreamWindows]:
        query = self._query
        for term in query.streams:
            if term.retain and len(term.views) < 2:
                raise failure_at(term, f"retain-{term.retain} is of several windows.", "Leave it out.")
        if self._recognizes is not None:
            return self._matched(self._recognizes)
        if not query.joins:
            if query.stream.unidirectional:
                raise failure_at(query.stream, "Only a stream of a join can be unidirectional.", "Leave the word out.")
            stream, node = self._source(query.stream)
            self._arrived = node
            return [stream], self._kept(query.stream, stream, node)
        made: list[JoinedStream] = []
        aliases, batches = set[str](), set[int]()
        for term in query.streams:
            if term.alias and term.alias in aliases:
                raise failure_at(term, f"Two streams are called {term.alias!r}.", "Give this one another name.")
            aliases.add(term.alias)
        sources = [self._source(term) for term in query.streams]
        looking = LookingInJoin(query, [stream for stream, _ in sources])
        self._instances.refuse_in_join(looking)
        for number, (term, (stream, node)) in enumerate(zip(query.streams, sources, strict=True)):
            if not term.unidirectional and not term.views:
                raise unsupported(term, "streams of joins without a window", "Write one: #keepall, for instance.")
            windows = StreamWindows(node, node) if term.unidirectional else self._kept(term, stream, node)
            batches |= {number} if windows.in_batches else set()
            rows, looked = looking.rows(number, term, windows)
            made.append(JoinedStream(term, joined_columns(query, stream, number), rows, looked))
        self._in_join = looking
        node, self._held = join_of(query, made, (*self._context.key, *self._context.early))
        # The rows of a batch come one after the other, each with its matches.
        numbers = sorted(range(len(made)), key=lambda number: number not in batches)
        order = tuple((of_stream(PLACE, number), False) for number in numbers)
        return [each.stream for each in made], StreamWindows(node, node, order=order)  # type: ignore[misc]

    def _matched(self, query: q.Query) -> tuple[list[WindowedStream], StreamWindows]:
        """The measures of a row pattern, as a stream without a window."""
        assert query.recognize is not None  # noqa: S101  (the caller saw to it)
        if query.stream.views and self._context.context is not None:
            raise unsupported(query.recognize, "match_recognize over a window in a context")
        stream, node = self._source(query.stream)
        windows = self._kept(query.stream, stream, node) if query.stream.views else StreamWindows(node, node)
        keys, asks = self._context.key, self._ledger.asks
        found = recognized(query.recognize, stream, windows, self._ledger.ticks, keys, asks=asks)
        self._arrived = found.rows
        self._content += [] if found.content is None else [found.content]
        return [found.stream], self._forever(found.rows)

    def _source(self, term: q.StreamTerm) -> tuple[WindowedStream, Node]:
        """A stream of the from clause, and its arrivals."""
        source, ledger = term.source, self._ledger
        if not isinstance(source, EventFilter):
            planner = PatternPlanner(ledger, self._subqueries, self._variables, self._context)
            pattern, matches = planner.plan(source, flat=not self._query.joins)
            self._reads += planner.reads
            tags = [tag for tag in pattern.tags if tag.name in matches.schema.names]
            flat = {name: name for tag in tags for name, _ in pattern.columns_of(tag)}
            events = pa.schema([matches.schema.field(tag.name) for tag in tags])
            return WindowedStream(term.alias, "pattern", events, flat, windowed=bool(term.views)), matches
        schema = known_type(source, ledger)
        self._reads.append(source.type_name)
        named = bool(term.views) and term.views[0].name == NAMED
        node = ledger.arrivals[source.type_name]
        if named:
            node = self._of_window(term, ledger.windows[source.type_name])
        stream = WindowedStream(term.alias, source.type_name, schema, windowed=bool(term.views))
        filters = [part for each in source.filters for part in (conjuncts(each) if self._context.key else [each])]
        pairs = [(each, self._context.pair(each, StreamScope([stream]))) for each in filters]
        equal = tuple(dict.fromkeys(pair for _, pair in pairs if pair is not None))
        for each, pair in pairs:
            if pair is None and not (reads_context(each) or asks(each) or self._variables.in_instances(each)):
                node = self._filtered(node, each, stream, "the filter")
        for mine, _ in equal:
            node = Filter(node, ~nw.col(mine).is_null())
        if not named:
            node = self._context.within(node, source.type_name, equal)
        for each, pair in pairs:
            if pair is None and (reads_context(each) or asks(each) or self._variables.in_instances(each)):
                node = self._filtered(node, each, stream, "the filter")
        return stream, node

    def _of_window(self, term: q.StreamTerm, window: KnownWindow) -> Node:
        """The rows of a named window, which know their instances if it is in a context."""
        window.check_context(term, self._statement.context)
        if self._context.context is not None and not window.context:
            raise unsupported(term, "named windows of no context within contexts", "Create it in the context.")
        if reads_context(getattr(term.source, "filters", ())):
            raise unsupported(term, "properties of a context in filters of its named windows")
        node: Node = window.rows_for(asked=isinstance(self._statement.body, s.OnQuery))
        if self._context.early and self._query.joins:
            if term is self._query.stream:
                what = "properties of a context in joins of its named windows"
                raise unsupported(term, what, "Name another stream first.")
            context = self._context.context
            assert context is not None  # noqa: S101  (it has properties)
            types = {name: t.narwhals_type(context.node.schema.field(name).type) for name in self._context.early}
            node = extended(node, [nw.lit(None).cast(dtype).alias(name) for name, dtype in types.items()])
        return node

    def _kept(self, term: q.StreamTerm, stream: WindowedStream, node: Node) -> StreamWindows:
        """The windows of a stream; without any its rows are there for ever."""
        if term.views and term.views[0].name == NAMED and isinstance(term.source, EventFilter):
            return self._ledger.windows[term.source.type_name].windows_of(node)
        if term.views:
            events, ledger = EventScope([stream], context=self._context), self._ledger
            within = self._context.key
            views, retain = term.views, term.retain
            made = windowed(node, ledger.ticks, views, retain, events, deployed=ledger.clock, within=within)
            return self._instances.in_time(made, views)
        if self._query.where is not None and _waits(self._query.where) and not self._query.joins:
            node = self._filtered(node, self._query.where, stream, "'where'")
        return self._forever(node)

    def _forever(self, node: Node) -> StreamWindows:
        """Arrivals that never leave."""
        every = DataWindow(node, FirstSpan(MAX_TIME - MIN_TIME + TICK, MIN_TIME))
        return StreamWindows(every, every)

    def _filtered(self, node: Node, condition: e.Expression, stream: WindowedStream, where: str) -> Node:
        """The arrivals for which a condition holds; sub-queries of a filter have not seen them yet."""
        asked = self._subqueries.asked(before=where == "the filter")
        scope = EventScope([stream], asked=asked, variables=self._variables, context=self._context)
        value = bind_condition(condition, scope, where).value
        rows = self._variables.beside(node, before=where == "the filter") if reads(condition) else node
        return selected(Filter(asked.over(rows), value, {"=": str(condition)}), node.schema.names)

    def _where_as_asked(
        self, condition: e.Expression, scope: DeliveredScope, kind: Kind, having: nw.Expr | None
    ) -> nw.Expr:
        """A condition that asks sub-queries again as a row leaves: it is one on what is delivered."""
        if kind != "un-aggregated":
            raise unsupported(condition, "sub-queries and prev in 'where' of aggregates over a window", _FILTER)
        if self._query.output is not None and any(looks_into_window(part) for part in parts(condition)):
            raise unsupported(condition, "prev in 'where' beside an output clause")
        where = bind_condition(condition, scope).value
        return where if having is None else where & having

    # Groups and kinds

    def _found(self) -> nw.Expr | None:
        """That a trigger has found a row, where it asks for aggregates of all of them."""
        is_of_all = isinstance(self._statement.body, s.OnQuery) and asks_of_all(self._statement.body.query)
        return ~nw.col(of_stream(PLACE, 1)).is_null() if is_of_all else None

    def _groups(
        self, aggregates: PlannedAggregates, events: StreamScope
    ) -> tuple[list[tuple[str, ...]], dict[e.Expression, Bound]]:
        """(the columns of each level, keys as columns)."""
        if not self._query.group_by:
            return [self._context.key], {}
        keys: dict[e.Expression, Bound] = {}
        levels = []
        for level in levels_of(self._query.group_by):
            columns = []
            for key in level:
                if key not in keys:
                    bound = bind(key, events)
                    keys[key] = Bound(nw.col(aggregates.column(bound, "key")), bound.type)
                columns.append(str(bare_column(keys[key].value)))
            levels.append((*self._context.key, *columns))
        if len(levels) > _MOST_LEVELS:
            raise unsupported(self._query.group_by[0], f"more than {_MOST_LEVELS} levels of groups")
        return levels, keys

    def _own_keys(
        self, aggregates: PlannedAggregates, levels: Sequence[tuple[str, ...]], *, by_group: bool
    ) -> tuple[Delivered, ...]:
        made = tuple(map(self._as_remembered, aggregates.made))
        if by_group:
            return made
        return tuple(replace(each, keys=levels[0] if each.keys is None else each.keys) for each in made)

    def _as_remembered(self, each: Delivered) -> Delivered:
        """An aggregate over what its groups remember, if they may be forgotten."""
        query = self._query
        if each.life == "delivered" and self._context.context is not None:
            raise unsupported(query, "such aggregates over outer joins within contexts")
        if each.life not in REMEMBERED or not any(term.views for term in query.streams):
            return each
        keys: Sequence[object] = query.group_by if each.keys is None else (None,)
        if not keys or any(term.unidirectional for term in query.streams) or not may_drain(query, keys):
            return each
        if self._context.context is not None:
            raise unsupported(query, "aggregates of all that ever came or left, of groups in windows within contexts")
        if query.output is not None and query.output.selection in {"last", "all"}:
            # A group that was emptied forgets at the next row of any group, which is no change of it.
            what = f"output {query.output.selection} of aggregates of all that ever came or left, of groups in windows"
            raise unsupported(query, what)
        return replace(each, life=REMEMBERED[each.life])

    def _refuse(self, aggregates: PlannedAggregates, windows: StreamWindows, *, by_group: bool) -> None:
        """Refuse what would be answered differently from Esper."""
        refuse_windows(self._query, windows)
        refuse_aggregates(self._query, aggregates, gives_old=self._gives_old(limited=False), by_group=by_group)
        refuse_outputs(self._query, aggregates)

    def _kind(self, keys: Mapping[e.Expression, Bound], levels: Sequence[tuple[str, ...]], events: StreamScope) -> Kind:
        query = self._query
        shown = [item.expression for item in query.items if not isinstance(item.expression, e.Wildcard)]
        has_wildcard = len(shown) < len(query.items)
        in_select, in_having = list(aggregate_calls(shown)), list(aggregate_calls([query.having]))
        in_order = list(aggregate_calls([key.expression for key in query.order_by]))
        limits = "" if query.output is None else query.output.selection
        if not query.group_by and not in_select and not in_having:
            return "un-aggregated"
        if not shown and not in_having and limits not in {"last", "first"}:
            return "un-aggregated"
        own = {part for node in (*shown, query.having) for part in properties_of(node, events)}
        local = all(
            local_keys(call) is None or set(local_keys(call) or ()) <= set(keys)
            for call in (*in_select, *in_having, *in_order)
        )
        if not query.group_by:
            return "row per event" if own or has_wildcard or not local else "row for all"
        grouped = {part for key in keys for part in properties_of(key, events)}
        in_sort = {part for key in query.order_by for part in properties_of(self._meant(key).expression, events)}
        if not has_wildcard and own <= grouped and in_sort <= own and local:
            asked = [local_keys(call) for call in (*in_select, *in_having, *in_order)]
            selection = None if query.output is None else query.output.selection
            if len(levels) > 1 and any(asked) and selection in _OF_NO_EVENT:
                raise unsupported(query.group_by[0], f"output {selection} of rollups beside aggregates of other groups")
            if selection == "all" and any(each is not None and set(each) != set(keys) for each in asked):
                # A group without a row since the last output would have what they were at its last row.
                raise unsupported(query.group_by[0], "output all of groups beside aggregates of other groups")
            return "row per group"
        if len(levels) > 1:
            raise unsupported(query.group_by[0], "rollups of queries with other properties than their keys")
        return "aggregated and grouped"

    # Columns

    def _items(self, scope: DeliveredScope, streams: Sequence[WindowedStream]) -> list[tuple[str, Bound]]:
        made: list[tuple[str, Bound]] = []
        for item, name in zip(self._query.items, column_names(self._query.items), strict=True):
            node = item.expression
            if name is None and isinstance(node, e.Wildcard) and node.of is None and len(streams) > 1:
                if not all(len(each.schema) for each in streams):
                    raise unsupported(node, "events without properties as columns", "Name what you select.")
                made += [(each.alias or f"stream_{at}", event_of(each)) for at, each in enumerate(streams)]
            elif name is None:
                stream = stream_meant(node, StreamScope(streams))
                if stream is None:
                    raise failure_at(node, f"{node} is no stream.", "Write an alias, a dot and *.")
                made += [(each, stream.bound(each)) for each in stream.schema.names]
            else:
                whole = stream_meant(node, StreamScope(streams))
                made.append((name, bind(node, scope) if whole is None else event_of(whole)))
        # A column is there once; what is said by itself comes before what a wildcard gives.
        return list(dict(made).items())

    def _meant(self, key: e.SortKey) -> e.SortKey:
        """A sort key that is the name of a column is what the column is."""
        named = {item.alias: item.expression for item in self._query.items if item.alias}
        if isinstance(key.expression, e.Name) and key.expression.name in named:
            return replace(key, expression=named[key.expression.name])
        return key

    def _order(self, scope: DeliveredScope, kind: Kind, events: StreamScope) -> list[tuple[e.SortKey, Bound]]:
        keys = [self._meant(key) for key in self._query.order_by]
        # A row for all has no properties: by these it has no order.
        if kind == "row for all":
            keys = [key for key in keys if not any(True for _ in properties_of(key.expression, events))]
        return [(key, bind(key.expression, scope)) for key in keys]

    def _output(self) -> PlannedOutput | None:
        if self._query.output is None or self._context.context is not None:
            return None
        return output_rate(self._query.output, since=self._ledger.clock, conditions=self._fires)

    def _fires(self, condition: e.Expression) -> nw.Expr:
        return bind_condition(condition, CountScope(self._variables), "'output when'").value

    def _shown(
        self,
        node: Node,
        items: Sequence[tuple[str, Bound]],
        order: Sequence[tuple[e.SortKey, Bound]],
        streams: Sequence[WindowedStream],
        windows: StreamWindows,
    ) -> PlannedStatement:
        query = self._query
        columns = [bound.value.alias(f"@column {at}") for at, (_, bound) in enumerate(items)]
        sort = [bound.value.alias(f"@sort {at}") for at, (_, bound) in enumerate(order)]
        windows = replace(windows, order=()) if order else windows
        in_window, by_window = self._in_window(node, windows, self._sorted_later)
        around = [nw.col(name) for name in self._context.key]
        said = {f"=@column {at}": bound.text or name for at, (name, bound) in enumerate(items)}
        said |= {f"=@sort {at}": str(key.expression) for at, (key, _) in enumerate(order)} | self._words
        shows = (*columns, *sort, *in_window, *around, nw.col(ROW), nw.col(ORDER))
        node = Project(node, shows, keep=False, said=said)
        keys = [RowKey(f"@sort {at}", key.descending) for at, (key, _) in enumerate(order)]
        if self._context.key and (keys or query.distinct or query.limit is not None):
            keys = [RowKey(INSTANCE), *keys]
        keys += by_window
        for key, bound in order:
            if pa.types.is_nested(bound.type):
                raise unsupported(key, "order by arrays or records")
        limit, offset = (0, 0) if self._shows_none else self._limit()
        if query.limit is not None and (offset or limit == 0) and query.output and query.output.selection == "first":
            # Esper leaves rows out first, and goes on looking for a first delivery until one has rows.
            raise unsupported(query.limit, "offsets beside output first", "Leave the offset out.")
        if keys or query.distinct or limit is not None or offset:
            names = None
            if query.distinct:
                names = (*self._context.key, *(f"@column {at}" for at in range(len(columns))))
            empties = posts_empty(query.output)
            node = PerDelivery(node, tuple(keys), names, limit, offset, self._context.key, leaves_empty=empties)
        schema = node.schema
        shown = pa.schema([schema.field(f"@column {at}").with_name(name) for at, (name, _) in enumerate(items)])
        into = None if query.insert is None else self._ledger.windows.get(query.insert.target)
        if into is not None:
            into.check_context(query, self._statement.context)
        kept = [INSTANCE] if into is not None and into.context else []
        node = selected(node, [*(f"@column {at}" for at in range(len(columns))), *kept, ROW, ORDER])
        kinds = {"istream": (NEW, None), "rstream": (OLD, None), "irstream": (NEW, OLD)}[self._selector]
        reads = tuple(dict.fromkeys((*self._reads, *self._subqueries.reads)))
        inserts: tuple[int, ...] = ()
        if query.insert is not None:
            inserts = {"": (NEW,), "istream": (NEW,), "rstream": (OLD,), "irstream": (NEW, OLD)}[query.insert.selector]
        listens = sum(isinstance(term.source, EventFilter) for term in query.streams) + self._subqueries.count
        setting = set_at_outputs(query, self._ledger, self._context)
        if setting is not None:
            assert self._rate is not None  # noqa: S101  (it has a condition of output)
            node = beside_counts(node, self._rate, setting)
        condition = parts(getattr(getattr(query.output, "rate", None), "condition", None))
        filtering = frozenset(part.name for part in condition if isinstance(part, e.Variable))
        return PlannedStatement(
            lean(node), shown, reads, kinds, inserts, streams=listens, setting=setting, filtering=filtering
        )

    def _limit(self) -> tuple[int | None, int]:
        limit = self._query.limit
        if limit is None:
            return None, 0
        rows, offset = (0 if each is None else self._whole(each) for each in (limit.rows, limit.offset))
        return (None if rows < 0 or rows >= _MOST_ROWS else rows), max(offset, 0)

    def _whole(self, node: e.Expression) -> int:
        value = constant(node)
        if isinstance(value, bool) or not isinstance(value, int):
            raise failure_at(node, f"A limit is a whole number, not {node}.")
        return value


def _waits(condition: e.Expression) -> bool:
    """Whether a condition holds for a row or not as things stand by then."""
    return asks(condition) or reads(condition) or any(looks_into_window(part) for part in parts(condition))


def _where(node: Node, condition: nw.Expr | None, text: str = "") -> Node:
    return node if condition is None else Filter(node, condition, {"=": text} if text else {})


def _is_row() -> nw.Expr:
    return ~nw.col(ROW).is_in([MARK, EMPTY])
