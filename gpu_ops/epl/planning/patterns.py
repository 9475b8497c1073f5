"""Event patterns of a from clause as plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import narwhals as nw
import pyarrow as pa

from gpu_ops.epl import patterns as p
from gpu_ops.epl import queries as q
from gpu_ops.epl.planning.arguments import MILLISECOND
from gpu_ops.epl.planning.known_contexts import ContextNames, reads_context
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.pattern_instances import STARTED, PatternInstances, StartedPoints
from gpu_ops.epl.planning.planned import Ledger, known_type
from gpu_ops.epl.planning.rates import crontab_times
from gpu_ops.epl.planning.schedules import scheduled_times
from gpu_ops.epl.planning.subqueries import Asked, Subqueries, asks
from gpu_ops.epl.planning.variables import VariableColumns, column_of, reads
from gpu_ops.errors import PlanError
from gpu_ops.plan import patterns as tree
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.pattern_matches import Pattern
from gpu_ops.plan.pattern_streams import PatternColumns, PatternStreams, SetTag
from gpu_ops.plan.row_programs import RowProgram
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.expressions import bind, bind_condition, bind_period, constant, period
from gpu_ops.texts.binding.scope import unknown
from gpu_ops.texts.placed_error import PlacedError, failure_at, unsupported

_CRONTAB_FIELDS: tuple[tree.CrontabField, ...] = ("minutes", "hours", "days", "months", "weekdays", "seconds")
_MOST_LEVEL = 1 << 30


class PatternPlanner:
    """Plans a pattern.

    Args:
        ledger: What it is planned over.
        subqueries: The sub-queries of the statement.
        variables: Its variables.
        context: Its context.
        behind: Points behind each of which the pattern begins, in place of instances.

    Attributes:
        reads: The types of events that it reads.
    """

    def __init__(
        self,
        ledger: Ledger,
        subqueries: Subqueries,
        variables: VariableColumns,
        context: ContextNames,
        behind: StartedPoints | None = None,
    ) -> None:
        self._ledger, self._subqueries, self._variables = ledger, subqueries, variables
        self._streams = PatternStreams()
        self._instances: PatternInstances | StartedPoints | None = PatternInstances.of(context, self._streams)
        if behind is not None:
            self._instances = behind
        self._numbers: dict[str, int] = {}
        self._has_variables: set[int] = set()
        self.reads: list[str] = []

    def plan(
        self, source: q.PatternSource, *, flat: bool = False, first: Sequence[p.EventFilter] = ()
    ) -> tuple[Pattern, Node]:
        """(the pattern, the matches, within instances if there is a context).

        Args:
            source: The pattern.
            flat: Whether events have columns of their properties beside records.
            first: Events that come before the others of one place.

        Raises:
            PlacedError: A name is unknown, types do not fit, or gpu_ops does not have what it asks for.
        """
        flags = {"discardpartialsonmatch": False, "suppressoverlappingmatches": False}
        for each in source.annotations:
            if each.name.lower() not in flags:
                raise unsupported(each, f"@{each.name} of patterns")
            flags[each.name.lower()] = True
        around = self._instances
        for events in first:
            self._stream(events)
        whole = self._part(source.pattern, {} if around is None else around.tags(self._streams))
        discards, suppresses = flags.values()
        unseen: tuple[int, ...] = ()
        if around is not None:
            if discards or suppresses:
                raise unsupported(source.annotations[0], f"@{source.annotations[0].name} of patterns in contexts")
            (whole, unseen), flat = around.each(whole), True
        shape: Literal["", "beside"] = "beside" if flat else ""
        made = self._streams.pattern(
            whole, self._ledger.ticks, discards=discards, suppresses=suppresses, flat=shape, unseen=unseen
        )
        return made, made if around is None else around.matches(made)

    def _part(self, term: p.PatternTerm, tags: dict[str, SetTag]) -> tree.PatternPart:
        """A part; the tags that it sets are added to those that are set."""
        return _PLANNED[type(term)](self, term, tags)

    # Events

    def _stream(self, events: p.EventFilter) -> int:
        """The number of the stream of a type of events."""
        schema, name = known_type(events, self._ledger), events.type_name
        if name in self._ledger.windows and self._ledger.windows[name].context:
            raise unsupported(events, "patterns of events of named windows within contexts")
        if name not in self._numbers:
            arrivals = self._ledger.arrivals[name]
            rows = arrivals if self._instances is None else self._instances.within(arrivals, name)
            self._numbers[name] = self._streams.stream(rows, schema)
            self.reads.append(name)
        return self._numbers[name]

    def _events(self, term: p.PatternEvents, tags: dict[str, SetTag]) -> tree.PatternPart:
        stream = self._stream(term.events)
        if term.tag and term.tag in self._streams.tags and self._streams.tags[term.tag].stream != stream:
            raise failure_at(
                term, f"The tag {term.tag!r} is that of events of another type.", "Give this another name."
            )
        if term.tag and not len(self._streams.properties(stream)):
            raise unsupported(term, "tags of events without properties")
        level = self._level(term.annotations)
        columns = self._streams.columns(stream, tags)
        if term.tag:
            self._streams.tags.setdefault(term.tag, SetTag(stream))
        conditions = [self._filter(each, stream, term, columns) for each in term.events.filters]
        conditions += [] if self._instances is None else self._instances.same(columns)
        holds = None if not conditions else nw.all_horizontal(*conditions, ignore_nulls=False)
        atom: tree.EventAtom = _placed(term, lambda: self._streams.atom(stream, term.tag, holds, columns, level))
        if term.tag:
            tags[term.tag] = SetTag(stream)
        return atom

    def _filter(self, node: e.Expression, stream: int, term: p.PatternEvents, columns: PatternColumns) -> nw.Expr:
        asked = self._subqueries.asked(before=True)
        own = {term.events.type_name, term.tag} - {""}
        scope = PatternScope(columns, own, asked, self._variables, self._instances)
        if asks(node) and any(isinstance(part, e.Name) and part.name in columns.tags for part in parts(node)):
            raise unsupported(node, "sub-queries in patterns about earlier events")
        value = bind_condition(node, scope, "the filter").value
        if asked:
            self._streams.change(stream, asked.over)
            for each in self._streams.node(stream).schema:
                if each.name.startswith("@") and each.name not in columns.slots.schema.names:
                    columns.own(each)
        if reads(node):
            if stream not in self._has_variables:
                self._has_variables.add(stream)
                self._streams.change(stream, lambda rows: self._variables.beside(rows, before=True))
            for part in parts(node):
                if isinstance(part, e.Variable):
                    bound = self._variables.read(part)
                    assert bound is not None  # noqa: S101  (it is a variable)
                    columns.own(pa.field(column_of(part.name), bound.type))
        return value

    def _level(self, annotations: Sequence[p.Annotation]) -> int:
        level = 0
        for each in annotations:
            if each.name.lower() != "consume":
                raise unsupported(each, f"@{each.name} of events in patterns")
            value = 1 if not each.settings else each.value
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < _MOST_LEVEL:
                raise failure_at(each, "@consume takes a whole number from 1 on.", "Write: @consume(2).")
            level = value
        return level

    # What is around events

    def _every(self, term: p.PatternEvery, tags: dict[str, SetTag]) -> tree.PatternPart:
        part = self._part(term.pattern, tags)
        if term.distinct is None:
            return tree.EveryMatch(part)
        *keys, last = term.distinct
        forgets = None
        if isinstance(last, e.Period):
            forgets = _elapsed(last)
        else:
            keys.append(last)
        if not keys:
            raise failure_at(term, "every-distinct takes keys.", "Write: every-distinct(a.account) a=Withdrawal.")
        return tree.DistinctMatches(part, tuple(self._value(each, tags) for each in keys), forgets)

    def _not(self, term: p.PatternNot, tags: dict[str, SetTag]) -> tree.PatternPart:
        return tree.NoMatch(self._part(term.pattern, tags))

    def _followed(self, term: p.PatternFollowedBy, tags: dict[str, SetTag]) -> tree.PatternPart:
        made, limits = [self._part(term.patterns[0], tags)], list[RowProgram | None]()
        for each, limit in zip(term.patterns[1:], term.limits, strict=True):
            limits.append(None if limit is None else self._whole(limit, {}))
            made.append(self._part(each, tags))
        return tree.FollowedBy(tuple(made), tuple(limits))

    def _logical(self, term: p.PatternLogical, tags: dict[str, SetTag]) -> tree.PatternPart:
        if len(term.patterns) > tree.MOST_CHILDREN:
            raise unsupported(term, f"more than {tree.MOST_CHILDREN} patterns joined by '{term.operator}'")
        made = tuple(self._part(each, tags) for each in term.patterns)
        return tree.AllOf(made) if term.operator == "and" else tree.AnyOf(made)

    def _until(self, term: p.PatternUntil, tags: dict[str, SetTag]) -> tree.PatternPart:
        low, high = (None if each is None else self._whole(each, tags) for each in (term.low, term.high))
        if term.until is None and (term.low is None or term.low != term.high):
            raise failure_at(term, "A repeat with a range of times needs an end.", "Write: [2:5] a=A until b=B.")
        before, inside = dict(tags), dict(tags)
        part = self._part(term.pattern, inside)
        set_here = list(tree.tags_below(part))
        for tag in set_here:
            if inside[tag].repeated:
                raise unsupported(term, "repeats of repeats with tags")
        until = None if term.until is None else self._part(term.until, before)
        tags.update(before)
        for tag in set_here:
            tags[tag] = self._streams.tags[tag] = SetTag(inside[tag].stream, repeated=True)
        return tree.RepeatedMatch(part, until, low, high)

    def _guard(self, term: p.PatternGuard, tags: dict[str, SetTag]) -> tree.PatternPart:
        name = f"{term.namespace}:{term.name}"
        count = {"timer:within": 1, "timer:withinmax": 2}.get(name)
        if count is None:
            raise unsupported(term, f"guard {name!r}")
        if len(term.arguments) != count:
            raise failure_at(term, f"{name} takes {count} argument{'s' * (count > 1)}, not {len(term.arguments)}.")
        over = self._span(term.arguments[0], tags)
        most = None if count == 1 else self._whole(term.arguments[1], tags)
        return tree.WithinGuard(self._part(term.pattern, tags), over, most)

    def _while(self, term: p.PatternWhile, tags: dict[str, SetTag]) -> tree.PatternPart:
        part = self._part(term.pattern, tags)
        columns = self._streams.columns(None, tags)
        self._refuse_questions(term.condition)
        value = bind_condition(term.condition, PatternScope(columns, around=self._instances), "'while'").value
        return tree.WhileGuard(part, _placed(term.condition, lambda: self._streams.program(value, columns)))

    def _observer(self, term: p.PatternObserver, tags: dict[str, SetTag]) -> tree.PatternPart:
        name = f"{term.namespace}:{term.name}"
        match name:
            case "timer:interval" if len(term.arguments) == 1:
                return tree.ClockTime(self._span(term.arguments[0], tags))
            case "timer:at":
                return tree.ClockTime(self._times_of_day(term, tags))
            case "timer:schedule":
                return tree.ClockTime(scheduled_times(term))
            case "timer:interval":
                raise failure_at(term, "timer:interval takes a span of time.", "Write: timer:interval(10 sec).")
        raise unsupported(term, f"observer {name!r}")

    # Values

    def _times_of_day(self, term: p.PatternObserver, tags: dict[str, SetTag]) -> tree.Due:
        fields, computed = list(term.arguments), list[tuple[tree.CrontabField, RowProgram]]()
        for at, (name, each) in enumerate(zip(_CRONTAB_FIELDS, term.arguments, strict=False)):
            if isinstance(each, e.Expression) and _names(each, tags):
                computed.append((name, self._whole(each, tags)))
                fields[at] = e.Wildcard(place=each.place)
        times = crontab_times(fields, term)
        if len(term.arguments) < 6:
            times = replace(times, seconds=frozenset({0}))
        return tree.ComputedTimesOfDay(times, tuple(computed)) if computed else tree.TimesOfDay(times)

    def _span(self, node: e.Syntax, tags: Mapping[str, SetTag]) -> tree.ElapsedTime | tree.ComputedSpan:
        if not _names(node, tags) and not _computed(node):
            return _elapsed(node)
        columns = self._streams.columns(None, tags)
        self._refuse_questions(node)
        value = bind_period(node, PatternScope(columns, around=self._instances)).value
        return tree.ComputedSpan(_placed(node, lambda: self._streams.program(value, columns)))

    def _whole(self, node: e.Syntax, tags: Mapping[str, SetTag]) -> RowProgram:
        """A whole number."""
        made = self._value(node, tags)
        if made.kind != "whole":
            raise failure_at(node, f"This is a whole number, not {node}.")
        return made

    def _value(self, node: e.Syntax, tags: Mapping[str, SetTag]) -> RowProgram:
        columns = self._streams.columns(None, tags)
        self._refuse_questions(node)
        value = bind(node, PatternScope(columns, around=self._instances)).value
        made: RowProgram = _placed(node, lambda: self._streams.program(value, columns))
        return made

    def _refuse_questions(self, node: e.Syntax) -> None:
        if isinstance(node, e.Expression) and asks(node):
            raise unsupported(node, "sub-queries in patterns beside filters")


_Planned = Callable[[PatternPlanner, Any, dict[str, SetTag]], tree.PatternPart]
_PLANNED: dict[type[p.PatternTerm], _Planned] = {
    p.PatternEvents: PatternPlanner._events,  # noqa: SLF001  (its own cases)
    p.PatternEvery: PatternPlanner._every,  # noqa: SLF001
    p.PatternNot: PatternPlanner._not,  # noqa: SLF001
    p.PatternFollowedBy: PatternPlanner._followed,  # noqa: SLF001
    p.PatternLogical: PatternPlanner._logical,  # noqa: SLF001
    p.PatternUntil: PatternPlanner._until,  # noqa: SLF001
    p.PatternGuard: PatternPlanner._guard,  # noqa: SLF001
    p.PatternWhile: PatternPlanner._while,  # noqa: SLF001
    p.PatternObserver: PatternPlanner._observer,  # noqa: SLF001
}


class PatternScope:
    """What names stand for in a pattern: properties of the event that comes, and of the tags that are set.

    Args:
        columns: The columns that become of them.
        own: What the event that comes may be called.
        asked: The sub-queries of the filter.
        variables: The variables of the statement.
        around: The instances that the pattern is within.
    """

    def __init__(
        self,
        columns: PatternColumns,
        own: set[str] | None = None,
        asked: Asked | None = None,
        variables: VariableColumns | None = None,
        around: PatternInstances | StartedPoints | None = None,
    ) -> None:
        self._columns, self._own, self._asked, self._variables = columns, own or set(), asked, variables
        self._around = around

    def special(self, node: e.Expression) -> Bound | None:
        """A property of the context, a variable, a sub-query, or a property of an element of a repeated tag."""
        if self._around is not None and isinstance(node, e.ContextProperty):
            return self._around.property(node, self._columns)
        variable = None if self._variables is None else self._variables.read(node)
        if variable is not None:
            return variable
        if isinstance(node, e.Member) and isinstance(node.of, e.Element) and isinstance(node.of.of, e.Name):
            tag = self._columns.tags.get(node.of.of.name)
            if tag is not None and tag.repeated:
                return self._element(node, node.of, node.of.of.name)
        return None if self._asked is None else self._asked.special(node, self)

    def _element(self, node: e.Member, element: e.Element, tag: str) -> Bound:
        index = constant(element.indexes[0]) if len(element.indexes) == 1 else None
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            raise unsupported(element, "index of a tag that is no constant from 0 on")
        return self._of_tag(node, tag, index)

    def _of_tag(self, node: e.Member, tag: str, element: int | None = None) -> Bound:
        schema = self._columns.streams.properties(self._columns.tags[tag].stream)
        if node.name not in schema.names:
            if node.dynamic:
                return Bound(nw.lit(None), t.NULL)
            raise unknown(
                node, f"The tag {tag!r} has no property {node.name!r}.", node.name, schema.names, schema.names
            )
        return Bound(nw.col(self._columns.of_tag(tag, node.name, element)), schema.field(node.name).type, node.name)

    def property(self, node: e.Name | e.Member) -> Bound | None:
        """A property of the event that comes, of a tag, or of what started an instance."""
        schema = self._schema()
        started = None if self._around is None else self._around.of_start(node, self._columns)
        if started is not None:
            return started
        if isinstance(node, e.Name):
            return self._by_name(node, schema)
        if not isinstance(node.of, e.Name):
            return None
        of = node.of.name
        if of in schema.names:
            return None
        tag = self._columns.tags.get(of)
        if tag is not None:
            if tag.repeated:
                raise failure_at(node, f"{of!r} is a list of events.", f"Write {of}[0].{node.name} for the first one.")
            return self._of_tag(node, of)
        if of in self._own:
            return self._by_name(e.Name(node.name, node.dynamic, place=node.place), schema)
        return None

    def _schema(self) -> pa.Schema:
        current = self._columns.current
        return pa.schema([]) if current is None else self._columns.streams.properties(current)

    def _by_name(self, node: e.Name, schema: pa.Schema) -> Bound:
        if node.name in schema.names:
            return Bound(nw.col(node.name), schema.field(node.name).type, node.name)
        if node.dynamic:
            return Bound(nw.lit(None), t.NULL)
        tags = {tag: each for tag, each in self._columns.tags.items() if tag != STARTED}
        found = [
            tag
            for tag, each in tags.items()
            if not each.repeated and node.name in self._columns.streams.properties(each.stream).names
        ]
        if len(found) == 1:
            return self._of_tag(e.Member(e.Name(found[0]), node.name, place=node.place), found[0])
        if found:
            first, second = (f"{tag}.{node.name}" for tag in found[:2])
            raise failure_at(node, f"{node.name!r} is a property of several tags.", f"Write {first} or {second}.")
        if node.name in tags:
            raise failure_at(node, f"{node.name!r} is an event, not a value.", f"Write {node.name}. and a property.")
        known = [*schema.names, *tags]
        raise unknown(
            node, f"There is no property and no tag {node.name!r} here.", node.name, known, known, "There are"
        )

    def aggregate(self, call: e.FunctionCall) -> Bound:
        """There is none."""
        raise failure_at(call, f"{call.name}(…) is an aggregate, and there are none in a pattern.")


def _names(node: e.Syntax, tags: Mapping[str, SetTag]) -> bool:
    """Whether an argument reads an event."""
    return reads_context(node) or (bool(tags) and any(isinstance(part, e.Name) for part in parts(node)))


def _computed(node: e.Syntax) -> bool:
    """Whether an argument reads anything at all."""
    return any(isinstance(part, e.Name) for part in parts(node))


def _elapsed(node: e.Syntax) -> tree.ElapsedTime:
    months, milliseconds = period(node)
    if months < 0 or milliseconds < 0:
        raise failure_at(node, f"A span of time is not {node}.", "Give one that goes forward.")
    return tree.ElapsedTime(months, milliseconds * MILLISECOND)


def _placed(node: e.Syntax, make: Callable[[], Any]) -> Any:
    """What a function makes; where the plan refuses it, the error is placed."""
    try:
        return make()
    except PlacedError:
        raise
    except PlanError as error:
        raise unsupported(node, "conditions over several events that combine them so", str(error)) from error
