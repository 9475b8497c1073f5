"""From what the grammar found to the syntax tree: a method for each rule, or for the name behind its arrow.

Each takes its place and what its symbols gave: a node, a text for a token, or what a helping rule here returns.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple

from gpu_ops.epl import patterns as p
from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.epl.lexer import UNITS
from gpu_ops.texts import expressions as e
from gpu_ops.texts.building import ExpressionBuilder
from gpu_ops.texts.building import every as _all
from gpu_ops.texts.building import node as _node
from gpu_ops.texts.building import of_kind as _of
from gpu_ops.texts.building import one_word as _word
from gpu_ops.texts.building import only as _only
from gpu_ops.texts.building import operator_of as _operator
from gpu_ops.texts.building import text_of as _text
from gpu_ops.texts.expressions import Expression, TextPlace
from gpu_ops.texts.placed_error import PlacedError, failure_at

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


class _Option(NamedTuple):
    """What stands behind a stream: `retain-` and what, or `unidirectional`."""

    retain: Any


def _is_and(node: e.Expression) -> bool:
    return isinstance(node, e.Logical) and node.operator == "and"


class Builder(ExpressionBuilder):
    """Builds nodes; it has no state."""

    # Statements

    def start(self, place: TextPlace, *statements: s.Statement) -> tuple[s.Statement, ...]:
        return statements

    def statement(self, place: TextPlace, *values: Any) -> s.Statement:
        *before, context, body = values
        if isinstance(body, q.Query) and body.deleting:
            raise failure_at(body, "'delete' can stand behind 'select' in an on-clause alone.")
        annotations, declared = _of(before, p.Annotation), _of(before, s.ExpressionDeclaration)
        return s.Statement(body, annotations, declared, context, place=place)

    in_context = into_table = staticmethod(_text)
    selector = rate = staticmethod(_word)

    annotation = _node(p.Annotation, rest=1)

    def named_setting(self, place: TextPlace, name: str, _sign: str, value: Any) -> tuple[str, Any]:
        return name, value

    def setting(self, place: TextPlace, value: Any) -> tuple[str, Any]:
        return "value", value

    def setting_name(self, place: TextPlace, name: str) -> Expression:
        first, *more = name.split(".")
        value: Expression = e.Name(first, place=place)
        for part in more:
            value = e.Member(value, part, place=place)
        return value

    setting_list = _node(p.AnnotationList, rest=0)

    def negative_number(self, place: TextPlace, _sign: str, number: str) -> Expression:
        return e.Prefixed("-", self.number(place, number), place=place)

    declaration = _node(s.ExpressionDeclaration)
    alias_declaration = _node(s.ExpressionDeclaration, alias=True)

    # Queries

    def head(self, place: TextPlace, *values: Any) -> tuple[Any, ...]:
        return values

    def insert(self, place: TextPlace, *values: Any) -> q.InsertInto | None:
        if not values:
            return None
        selector, target, columns = values
        return q.InsertInto(target, selector, columns, place=place)

    names = partition = order = staticmethod(_all)

    def no_clause(self, place: TextPlace) -> None:
        return None

    def item(self, place: TextPlace, *values: Any) -> q.SelectItem:
        expression, *annotations, alias = values
        expression = e.Wildcard(place=place) if isinstance(expression, str) else expression
        return q.SelectItem(expression, alias, tuple(annotations), place=place)

    alias = staticmethod(_text)

    def one_stream(self, place: TextPlace, stream: q.StreamTerm) -> tuple[q.StreamTerm, tuple[q.JoinTerm, ...]]:
        return stream, ()

    def comma_join(self, place: TextPlace, first: q.StreamTerm, *more: q.StreamTerm) -> tuple[Any, ...]:
        return first, tuple(q.JoinTerm("cross", stream, place=stream.place) for stream in more)

    def keyword_join(self, place: TextPlace, first: q.StreamTerm, *joins: q.JoinTerm) -> tuple[Any, ...]:
        return first, joins

    inner_join = _node(partial(q.JoinTerm, "inner"))

    def join(self, place: TextPlace, side: Any, stream: q.StreamTerm, on: Expression | None) -> q.JoinTerm:
        return q.JoinTerm(side.lower(), stream, on, place=place)

    on = where = having = escape = otherwise = staticmethod(_only)

    def stream(self, place: TextPlace, source: Any, *values: Any) -> q.StreamTerm:
        (alias,) = _of(values, str)
        options = _of(values, _Option)
        retain: Any = next((option.retain for option in options if option.retain), "")
        unidirectional = any(not option.retain for option in options)
        return q.StreamTerm(source, _of(values, q.View), alias, unidirectional, retain, place=place)

    def stream_option(self, place: TextPlace, *retain: str) -> _Option:
        return _Option(retain[0].lower().removeprefix("retain-") if retain else "")

    events = _node(p.EventFilter)
    filters = staticmethod(_all)

    def pattern_source(self, place: TextPlace, *values: Any) -> q.PatternSource:
        *annotations, pattern = values
        return q.PatternSource(pattern, tuple(annotations), place=place)

    def view(self, place: TextPlace, *values: Any) -> q.View:
        *names, arguments = (value for value in values if value != ".")
        return q.View(names[-1], arguments, names[0] if len(names) == 2 else "", place=place)

    def view_arguments(self, place: TextPlace, *arguments: Any) -> tuple[Any, ...]:
        if not arguments:
            return ()
        ((quantity, given),) = arguments
        if quantity:
            raise PlacedError(
                place.start, place.end, f"{quantity!r} can stand before the arguments of a function alone."
            )
        return given  # type: ignore[no-any-return]

    def dotted(self, place: TextPlace, *names: str) -> str:
        return ".".join(names)

    groups = staticmethod(_all)

    rollup = _node(partial(q.GroupingSets, "rollup"), rest=0)
    cube = _node(partial(q.GroupingSets, "cube"), rest=0)
    grouping_sets = _node(partial(q.GroupingSets, "grouping sets"), rest=0)
    several = _node(q.GroupingKeys, rest=0)

    def sorted(self, place: TextPlace, expression: Expression, direction: str = "asc") -> e.SortKey:
        return e.SortKey(expression, direction.lower() == "desc", place=place)

    def ordered(self, place: TextPlace, expression: Expression, direction: str) -> Expression | e.SortKey:
        """Ascending is what an argument means by itself."""
        return e.SortKey(expression, True, place=place) if direction.lower() == "desc" else expression

    limit = _node(q.Limit)

    def limit_reversed(self, place: TextPlace, offset: Expression, rows: Expression) -> q.Limit:
        return q.Limit(rows, offset, place=place)

    def delivery(self, place: TextPlace, *values: Any) -> tuple[e.FunctionCall, ...]:
        pairs = zip(values[::2], values[1::2], strict=True)
        return tuple(e.FunctionCall(name, arguments, place=place) for name, arguments in pairs)

    def query(self, place: TextPlace, head: tuple[Any, ...], sources: Any, *clauses: Any) -> q.Query:
        into_table, insert, deleting, selector, distinct, *items = head
        recognize, where, group_by, having, output, order_by, limit, delivery = clauses
        stream, joins = sources
        said: dict[str, Any] = {"recognize": recognize, "where": where, "group_by": group_by, "having": having}
        said |= {"output": output, "order_by": order_by, "limit": limit, "delivery": delivery}
        said |= {"insert": insert, "into_table": into_table, "deleting": deleting, "distinct": distinct}
        return q.Query(tuple(items), stream, joins, selector, **said, place=place)

    # Output rates

    def output(self, place: TextPlace, after: Any, selection: Any, rate: Any, terminated: Any) -> q.Output:
        if isinstance(rate, q.OutputTerminated):
            rate, terminated = None, rate
        if after is None and rate is None and terminated is None:
            problem = "An output clause says when: 'every', 'at', 'when' or 'after'."
            raise PlacedError(place.start, place.end, problem)
        return q.Output(selection, after, rate, terminated, place=place)

    after = rate_terms = staticmethod(_only)
    when = _node(q.OutputWhen)

    def terminated(self, place: TextPlace, *values: Any) -> q.OutputTerminated:
        *condition, then = values
        return q.OutputTerminated(condition[0] if condition else None, then, place=place)

    def and_terminated(self, place: TextPlace, _word: str, *values: Any) -> q.OutputTerminated:
        return self.terminated(place, *values)

    def assignment(self, place: TextPlace, target: Expression, *value: Any) -> q.Assignment:
        if not value and not isinstance(target, e.FunctionCall):
            raise PlacedError(place.end, place.end, "An assignment has a value.", "Write: set name = value.")
        return q.Assignment(target, value[1] if value else None, place=place)

    assignments = then = staticmethod(_all)

    events_count = _node(q.EventCount)

    def crontab(self, place: TextPlace, arguments: tuple[str, tuple[Any, ...]]) -> q.Crontab:
        return q.Crontab(self.view_arguments(place, arguments), place=place)

    # match_recognize

    def recognize(self, place: TextPlace, *values: Any) -> q.MatchRecognize:
        partition, measures, all_matches, skip, pattern, interval, definitions = values
        period, or_terminated = (None, False) if interval is None else interval
        how = {"partition_by": partition, "all_matches": all_matches, "skip": skip}
        return q.MatchRecognize(
            measures, pattern, definitions, **how, interval=period, or_terminated=or_terminated, place=place
        )

    measures = define = interval = staticmethod(_all)

    measure = _node(q.SelectItem)

    def skip(self, place: TextPlace, *given: str) -> str:
        return given[0] if given else "past last row"

    def skip_to_next(self, place: TextPlace) -> str:
        return "to next row"

    def skip_to_current(self, place: TextPlace) -> str:
        return "to current row"

    def skip_past(self, place: TextPlace) -> str:
        return "past last row"

    definition = _node(q.Definition)

    def row_either(self, place: TextPlace, left: Any, sign: str, right: Any) -> p.RowChoice:
        if sign != "|":
            raise PlacedError(place.start, place.end, f"Between rows stands '|', not {sign!r}.")
        parts = (each.options if isinstance(each, p.RowChoice) else (each,) for each in (left, right))
        return p.RowChoice(tuple(chain(*parts)), place=place)

    def row_then(self, place: TextPlace, left: Any, right: Any) -> p.RowSequence:
        parts = (each.items if isinstance(each, p.RowSequence) else (each,) for each in (left, right))
        return p.RowSequence(tuple(chain(*parts)), place=place)

    def row_repeated(self, place: TextPlace, item: Any, times: tuple[int, int | None, bool]) -> p.RowRepeat:
        return p.RowRepeat(item, *times, place=place)

    def repeats(self, place: TextPlace, sign: str, *more: str) -> tuple[int, int | None, bool]:
        if sign != "{":
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
            return low, high, not more
        before, comma, behind = "".join(more[:-1]).partition(",")
        fewest = self.count(place, before or "0")
        most = self.count(place, behind) if behind else None if comma else fewest
        return fewest, most, True

    def count(self, place: TextPlace, text: str) -> int:
        if not text.isdigit():
            raise PlacedError(place.start, place.end, f"{text} is not a whole number.")
        return int(text)

    row_variable = _node(p.RowVariable)
    row_group = staticmethod(_only)

    row_permute = _node(p.RowPermutation, rest=0)

    # Patterns

    def followed(self, place: TextPlace, *given: Any) -> tuple[Expression | None]:
        return (given[0] if given else None,)

    def followed_by(self, place: TextPlace, left: Any, limit: tuple[Any], right: Any) -> p.PatternFollowedBy:
        patterns, limits = (left.patterns, left.limits) if isinstance(left, p.PatternFollowedBy) else ((left,), ())
        return p.PatternFollowedBy((*patterns, right), (*limits, *limit), place=place)

    def pattern_either(self, place: TextPlace, left: Any, right: Any) -> p.PatternLogical:
        return self._joined("or", place, left, right)

    def pattern_both(self, place: TextPlace, left: Any, right: Any) -> p.PatternLogical:
        return self._joined("and", place, left, right)

    def _joined(self, word: Literal["and", "or"], place: TextPlace, *patterns: Any) -> p.PatternLogical:
        flat: list[p.PatternTerm] = []
        for each in patterns:
            same = isinstance(each, p.PatternLogical) and each.operator == word
            flat.extend(each.patterns if same else (each,))
        return p.PatternLogical(word, tuple(flat), place=place)

    until = _node(p.PatternUntil)

    def repeated(self, place: TextPlace, bounds: tuple[Any, Any], pattern: Any, until: Any = None) -> p.PatternUntil:
        return p.PatternUntil(pattern, until, *bounds, place=place)

    def bounds(self, place: TextPlace, count: Expression) -> tuple[Any, Any]:
        return count, count

    def open_bounds(self, place: TextPlace, low: Any, high: Any) -> tuple[Any, Any]:
        if low is None and high is None:
            raise PlacedError(place.start, place.end, "A repetition has a bound: [2], [2:], [:5] or [2:5].")
        return low, high

    low = high = staticmethod(_only)

    every = _node(p.PatternEvery)

    def every_distinct(self, place: TextPlace, keys: Any, pattern: Any) -> p.PatternEvery:
        return p.PatternEvery(pattern, self.view_arguments(place, keys), place=place)

    never = _node(p.PatternNot, skip=1)
    guard = _node(p.PatternGuard)
    while_guard = _node(p.PatternWhile)

    def untagged(self, place: TextPlace, events: Any, *annotations: Any) -> p.PatternEvents:
        return p.PatternEvents(events, "", annotations, place=place)

    def tagged(self, place: TextPlace, tag: str, _sign: str, events: Any, *annotations: Any) -> p.PatternEvents:
        return p.PatternEvents(events, tag, annotations, place=place)

    observer = _node(p.PatternObserver)

    # Triggers

    trigger = _node(s.Trigger)
    on_query = _node(s.OnQuery)

    def on_split(self, place: TextPlace, trigger: Any, *branches: Any) -> s.OnSplit:
        which = branches[-1].lower() if isinstance(branches[-1], str) else "first"
        return s.OnSplit(trigger, _of(branches, s.SplitBranch), which == "all", place=place)

    def split(self, place: TextPlace, head: tuple[Any, ...], where: Any) -> s.SplitBranch:
        into_table, insert, deleting, selector, distinct, *items = head
        if insert is None or into_table or deleting or selector or distinct:
            raise PlacedError(place.start, place.end, "A query has a from clause.", "Write: select ... from ...")
        return s.SplitBranch(insert, tuple(items), where, place=place)

    on_delete = _node(s.OnDelete)
    on_update = _node(s.OnUpdate)
    on_set = _node(s.OnSet)
    on_merge = _node(s.OnMerge, rest=4)

    def branch(self, place: TextPlace, matched: bool, condition: Any, *actions: Any) -> s.MergeBranch:  # noqa: FBT001
        return s.MergeBranch(matched, actions, condition, place=place)

    def insert_branch(self, place: TextPlace, action: Any) -> s.MergeBranch:
        return s.MergeBranch(None, (action,), place=place)

    def matched(self, place: TextPlace, *no: str) -> bool:
        return not no

    and_condition = staticmethod(_only)

    merge_update = _node(s.MergeUpdate)
    merge_delete = _node(s.MergeDelete)

    def merge_insert(self, place: TextPlace, target: str, columns: Any, *values: Any) -> s.MergeInsert:
        *items, where = values
        return s.MergeInsert(tuple(items), target, columns, where, place=place)

    into = staticmethod(_text)

    update = _node(s.UpdateStream, skip=1)

    # What is made

    def create_schema(self, place: TextPlace, kind: str, name: str, content: Any, *options: Any) -> s.CreateSchema:
        columns, types = (tuple(content), ()) if isinstance(content, list) else (None, content)
        return s.CreateSchema(name, columns, types, kind, options, place=place)

    def create_schema_like(self, place: TextPlace, kind: str, name: str, *options: Any) -> s.CreateSchema:
        return s.CreateSchema(name, (), (), kind, options, place=place)

    kind = staticmethod(_text)
    schema_types = staticmethod(_all)

    def columns(self, place: TextPlace, *columns: Any) -> list[Any]:
        return list(columns)

    column = _node(s.ColumnDefinition, rest=3)
    type = _node(e.TypeName, rest=1)
    dimension = staticmethod(_text)

    def schema_option(self, place: TextPlace, word: str, *names: str) -> tuple[str, tuple[str, ...]]:
        return word.lower(), names

    def create_window(self, place: TextPlace, name: str, *values: Any) -> s.CreateWindow:
        *before, content = values
        retain: Any = next((each.lower().removeprefix("retain-") for each in before if isinstance(each, str)), "")
        views = _of(before, q.View)
        if isinstance(content, list):
            return s.CreateWindow(name, views, columns=tuple(content), retain=retain, place=place)
        items, type_name = content
        return s.CreateWindow(name, views, type_name, items, retain=retain, place=place)

    def window_type(self, place: TextPlace, name: str) -> tuple[Any, str]:
        return (), name

    def window_select(self, place: TextPlace, *values: Any) -> tuple[Any, str]:
        return values[:-1], values[-1]

    def create_table(self, place: TextPlace, name: str, columns: Any) -> s.CreateTable:
        return s.CreateTable(name, tuple(columns), place=place)

    def create_variable(self, place: TextPlace, constant: Any, kind: Any, name: str, *value: Any) -> s.CreateVariable:
        return s.CreateVariable(name, kind, value[1] if value else None, constant, place=place)

    def create_index(self, place: TextPlace, unique: Any, name: str, target: str, *columns: Any) -> s.CreateIndex:
        return s.CreateIndex(name, target, columns, unique, place=place)

    def indexed(self, place: TextPlace, name: str, kind: str = "") -> tuple[str, str]:
        return name, kind

    create_expression = _node(s.CreateExpression)

    # Contexts

    create_context = _node(s.CreateContext)

    def keyed(self, place: TextPlace, *values: Any) -> s.KeyedContext:
        *keys, initiated, terminated = values
        return s.KeyedContext(tuple(keys), initiated, terminated, place=place)

    def key(self, place: TextPlace, *values: Any) -> s.ContextKey:
        *keys, events, alias = values
        # Keys are joined by a comma or by `and`; a condition by itself is none.
        joined = [part for key in keys for part in (key.operands if _is_and(key) else (key,))]
        return s.ContextKey(tuple(joined), events, alias, place=place)

    initiated = ended = staticmethod(_only)

    def hashed(self, place: TextPlace, *values: Any) -> s.HashContext:
        *hashes, granularity, preallocate = values
        return s.HashContext(tuple(hashes), self.count(place, granularity), preallocate, place=place)

    hash = _node(s.ContextHash)

    def category(self, place: TextPlace, *values: Any) -> s.CategoryContext:
        *labels, events = values
        return s.CategoryContext(tuple(labels), events, place=place)

    label = _node(s.ContextCategory)
    during = _node(s.StartEndContext)

    def during_now(self, place: TextPlace, now: Any, end: Any = None) -> s.StartEndContext:
        self._is_now(now)
        return s.StartEndContext(None, end, place=place)

    def overlapping(self, place: TextPlace, distinct: Any, now: Any, start: Any, end: Any) -> s.OverlappingContext:
        return s.OverlappingContext(start, end, distinct, now is not None and self._is_now(now), place=place)

    def overlapping_now(self, place: TextPlace, distinct: Any, now: Any, end: Any) -> s.OverlappingContext:
        return s.OverlappingContext(None, end, distinct, self._is_now(now), place=place)

    def _is_now(self, annotation: p.Annotation) -> bool:
        if annotation.name.lower() != "now":
            raise failure_at(annotation, f"No context starts with @{annotation.name}.", "Write @now, or an event type.")
        return True

    distinct_by = staticmethod(_all)
    now = staticmethod(_only)

    def nested(self, place: TextPlace, *values: Any) -> s.NestedContext:
        return s.NestedContext(tuple(value for value in values if value != ","), place=place)

    inner_context = staticmethod(_only)
    inner_name_context = staticmethod(_all)

    when_event = _node(s.ContextCondition)

    def when_pattern(self, place: TextPlace, source: Any, *values: Any) -> s.ContextCondition:
        *annotations, alias = values
        return s.ContextCondition(source, alias, tuple(annotations), place=place)

    when_crontab = when_after = staticmethod(_only)

    # Expressions

    def quantified(self, place: TextPlace, value: Expression, operator: str, word: str, values: Any) -> Expression:
        quantity: Any = "all" if word.lower() == "all" else "any"
        return e.Quantified(_operator(operator), quantity, value, values, place=place)

    def alike(self, place: TextPlace, value: Any, no: Any, word: Any, pattern: Any, escape: Any) -> Expression:
        return e.TextMatch(word.lower(), value, pattern, escape, no, place=place)

    def between(self, place: TextPlace, value: Any, no: Any, low: Any, high: Any) -> Expression:
        return e.Between(value, low, high, no, place=place)

    def ranged(self, place: TextPlace, value: Any, no: Any, low: Any, high: Any, closed: Any) -> Expression:
        return e.RangeInclusion(value, low, high, True, closed, no, place=place)

    def ranged_open(self, place: TextPlace, value: Any, no: Any, low: Any, high: Any, closed: Any) -> Expression:
        return e.RangeInclusion(value, low, high, False, closed, no, place=place)

    closed, opened = ExpressionBuilder.yes, ExpressionBuilder.no

    def query_values(self, place: TextPlace, query: Any) -> tuple[Expression, ...]:
        return (q.Subquery(query, place=place),)

    def method(self, place: TextPlace, of: Expression, name: str, arguments: Any) -> Expression:
        quantity, given = arguments
        return e.FunctionCall(name, given, of, quantity, place=place)

    def members(self, place: TextPlace, of: Expression, _star: str) -> Expression:
        return e.Wildcard(of, place=place)

    element = _node(e.Element, rest=1)

    def dynamic(self, place: TextPlace, of: Expression) -> Expression:
        match of:
            case e.Name():
                return e.Name(of.name, True, place=place)
            case e.Member():
                return e.Member(of.of, of.name, True, place=place)
            case e.Element():
                return e.Element(of.of, of.indexes, True, place=place)
            case e.FunctionCall():
                return e.FunctionCall(of.name, of.arguments, of.of, of.quantity, True, place=place)
        raise failure_at(of, "A question mark stands behind a property alone, which need not be there.")

    def call(self, place: TextPlace, name: str, arguments: Any) -> e.FunctionCall:
        quantity, given = arguments
        return e.FunctionCall(name, given, None, quantity, place=place)

    def string(self, place: TextPlace, text: str) -> e.Constant:
        def meant(escape: re.Match[str]) -> str:
            code = escape[1]
            return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)

        try:
            # Two escapes may be the halves of one character, as in Java.
            value = _ESCAPE.sub(meant, text[1:-1]).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise PlacedError(place.start, place.end, "The string holds half of a character.") from None
        return e.Constant(value, "string", place=place)

    def constant(self, place: TextPlace, text: str) -> e.Constant:
        if text.lower() == "null":
            return e.Constant(None, "null", place=place)
        return e.Constant(text.lower() == "true", "boolean", place=place)

    def parameter(self, place: TextPlace, text: str) -> e.Parameter:
        _, name, kind = [*text.split(":"), "", ""][:3]
        return e.Parameter(name, kind, place=place)

    subquery = _node(q.Subquery)
    exists = _node(q.Exists)
    array = _node(e.ArrayOf, rest=0)
    record = _node(e.Record, rest=0)
    new = _node(e.Record, rest=0, new=True)

    def pair(self, place: TextPlace, name: str, value: Expression) -> tuple[str, Expression]:
        return name, value

    def field(self, place: TextPlace, name: str, *value: Any) -> tuple[str, Expression | None]:
        return name, value[1] if value else None

    cast = _node(e.Cast, rest=2)

    def cast_option(self, place: TextPlace, name: str, value: Expression) -> e.NamedArgument:
        return e.NamedArgument(name, (value,), place=place)

    # Arguments

    def arguments(self, place: TextPlace, *values: Any) -> tuple[str, tuple[Any, ...]]:
        return (values[0], values[1:]) if values else ("", ())

    def quantity_distinct(self, place: TextPlace) -> str:
        return "distinct"

    def quantity_all(self, place: TextPlace) -> str:
        return "all"

    def quantity_none(self, place: TextPlace) -> str:
        return ""

    def last_of(self, place: TextPlace, value: Expression, word: Any) -> e.CronLast:
        return e.CronLast(value, word.lower(), place=place)

    star = _node(e.Wildcard, skip=1)

    def every_nth(self, place: TextPlace, _star: str, sign: str, step: Expression) -> e.CronStep:
        if sign != "/":
            raise PlacedError(
                place.start, place.end, f"Behind '*' stands '/', not {sign!r}.", "Write */5 for every fifth."
            )
        return e.CronStep(step, place=place)

    def cron_range(self, place: TextPlace, low: str, high: str) -> e.CronRange:
        return e.CronRange(self.number(place, low), self.number(place, high), place=place)

    cron_list = _node(e.CronList, rest=0)

    def option(self, place: TextPlace, name: str, value: Any) -> e.NamedArgument:
        values = value.keys if isinstance(value, q.GroupingKeys) else (value,)
        return e.NamedArgument(name, values, place=place)

    def lambda_function(self, place: TextPlace, *values: Any) -> e.LambdaFunction:
        *names, body = (value for value in values if value != "(")
        return e.LambdaFunction(tuple(names), body, place=place)

    def period(self, place: TextPlace, *values: Any) -> e.Period:
        pairs = zip(values[::2], values[1::2], strict=True)
        return e.Period(tuple((amount, UNITS[unit.lower()]) for amount, unit in pairs), place=place)
