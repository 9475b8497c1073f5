"""The match_recognize clause: a row pattern over the rows of a stream, and its measures as the stream that is left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import TIME_TYPE
from gpu_ops.core.turns import CLOCK, PLACE
from gpu_ops.epl import patterns as p
from gpu_ops.epl import queries as q
from gpu_ops.epl.column_names import column_name
from gpu_ops.epl.inlining import rebuilt
from gpu_ops.epl.planning.aggregates import PlannedAggregates
from gpu_ops.epl.planning.arguments import clock_span
from gpu_ops.epl.planning.events import event_of
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.scopes import WindowedStream
from gpu_ops.epl.planning.windows import StreamWindows
from gpu_ops.errors import PlanError
from gpu_ops.plan import row_patterns as r
from gpu_ops.plan.nodes import Node, Project
from gpu_ops.plan.row_conditions import RowConditions
from gpu_ops.plan.row_matches import ChosenRow, NoteKind, OverRows, RowMatches, VariableRule
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, constant_bound
from gpu_ops.texts.binding.expressions import bind, bind_condition, constant
from gpu_ops.texts.binding.scope import BoundStream, StreamScope
from gpu_ops.texts.placed_error import failure_at, unsupported

_EVENT = "@event"


@dataclass(frozen=True)
class Recognized:
    """The matches of a clause.

    Attributes:
        stream: Its measures, as the properties of a stream.
        rows: The matches, as arrivals of it.
        content: The matches in the rows that are in the window, where content is asked for; None without a window.
    """

    stream: WindowedStream
    rows: Node
    content: Node | None


def recognized(
    clause: q.MatchRecognize,
    stream: WindowedStream,
    windows: StreamWindows,
    ticks: Node,
    within: tuple[str, ...] = (),
    *,
    asks: bool,
) -> Recognized:
    """The matches of a match_recognize clause.

    Args:
        clause: The clause.
        stream: The stream whose rows it matches.
        windows: The windows of that stream; without any, its arrivals.
        ticks: The ticks.
        within: Columns that partition rows besides, which the matches have too.
        asks: Whether content may be asked for.

    Raises:
        PlacedError: A name is unknown, types do not fit, or gpu_ops does not have what it asks for.
    """
    made = _BoundClause(clause, stream, within)
    rows = made.matches(windows.memberships, ticks, windowed=stream.windowed, content=False)
    shown = WindowedStream(stream.alias, stream.type_name, made.shown)
    content = None
    if asks and stream.windowed:
        content = made.matches(windows.content, ticks, windowed=True, content=True)
    return Recognized(shown, rows, content)


def _pattern(node: p.RowPattern) -> r.RowPattern:
    """A pattern as one of a plan."""
    match node:
        case p.RowVariable(name):
            return r.OneRow(name)
        case p.RowSequence(items):
            return r.OrderedRows(tuple(map(_pattern, items)))
        case p.RowChoice(options):
            return r.EitherRows(tuple(map(_pattern, options)))
        case p.RowPermutation(items):
            return r.PermutedRows(tuple(map(_pattern, items)))
        case p.RowRepeat(item, low, high, greedy):
            try:
                return r.RepeatedRows(_pattern(item), low, high, greedy)
            except PlanError as error:
                raise failure_at(node, str(error)) from None


class _BoundClause:
    """A clause that is bound: what it reads of rows, and what it makes of them."""

    def __init__(self, clause: q.MatchRecognize, stream: WindowedStream, within: tuple[str, ...]) -> None:
        self._clause, self.stream, self._within = clause, stream, within
        self.pattern = _pattern(clause.pattern)
        try:
            _ = r.RowMachine.of(self.pattern)
        except PlanError as error:
            raise failure_at(clause.pattern, str(error)) from None
        self.names = r.variables_of(self.pattern)
        self.several = r.several_of(self.pattern)
        self.below = RowConditions(pa.schema([*stream.schema, (CLOCK, TIME_TYPE), (PLACE, pa.int64())]))
        self._partition = (*within, *(self._key(node) for node in clause.partition_by))
        defined = self._defined()
        self._rules = [_DefineScope.of(self, name, defined.get(name)) for name in self.names]
        self._measures = _MeasureScope(self)
        self._columns = [self._measure(item) for item in clause.measures]
        self.shown = pa.schema([pa.field(name, bound.type) for name, bound in self._columns])

    def _key(self, node: e.Expression) -> str:
        bound = bind(node, StreamScope([self.stream]))
        if pa.types.is_nested(bound.type):
            raise unsupported(node, "partitions by arrays or records")
        return self.below.key(bound.value)

    def _defined(self) -> dict[str, q.Definition]:
        made: dict[str, q.Definition] = {}
        for each in self._clause.definitions:
            if each.name not in self.names:
                raise failure_at(
                    each, f"The pattern has no variable {each.name!r}.", f"It has: {', '.join(self.names)}."
                )
            if each.name in made:
                raise failure_at(each, f"{each.name!r} is defined twice.", "Join the conditions by 'and'.")
            made[each.name] = each
        return made

    def _measure(self, item: q.SelectItem) -> tuple[str, Bound]:
        name = item.alias or column_name(item.expression)
        return name, self._measures.bind(item.expression)

    def matches(self, rows: Node, ticks: Node, *, windowed: bool, content: bool) -> Node:
        """The matches in some rows, as rows with the measures."""
        clause, measures = self._clause, self._measures
        aggregated = tuple(measures.aggregated)
        rows = self.below.over(rows, self._partition)
        made = RowMatches(
            rows,
            ticks,
            self.pattern,
            tuple(self._rules),
            self._partition,
            tuple(measures.chosen.values()),
            aggregated,
            clause.skip,
            clause.all_matches,
            None if clause.interval is None else clock_span(clause.interval),
            clause.or_terminated,
            windowed=windowed,
            content=content,
            carries=self._within,
        )
        shown = [bound.value.alias(name) for name, bound in self._columns]
        others = (nw.col(name) for name in (*self._within, CLOCK, PLACE))
        return Project(made, (*shown, *others), keep=False)


# Conditions


@dataclass
class _DefineScope(StreamScope):
    """What names stand for in the condition of a variable: the row that comes, and rows of variables before it.

    Attributes:
        clause: The clause.
        name: The variable.
    """

    clause: _BoundClause
    name: str

    def __post_init__(self) -> None:
        stream = self.clause.stream
        super().__init__([replace(stream, alias=self.name)])

    @staticmethod
    def of(clause: _BoundClause, name: str, definition: q.Definition | None) -> VariableRule:
        """The condition of a variable; one that is not defined holds for every row."""
        if definition is None:
            return VariableRule()
        rule = _DefineScope(clause, name)
        bound = bind_condition(definition.condition, rule, "'define'")
        try:
            return clause.below.rule(bound.value)
        except PlanError as error:
            raise failure_at(definition.condition, str(error)) from None

    def special(self, node: e.Expression) -> Bound | None:
        """Values of earlier rows."""
        if isinstance(node, e.FunctionCall) and node.of is None:
            name = node.name.lower()
            if name == "prev":
                return self._previous(node)
            if name == "typeof" and len(node.arguments) == 1 and self._variable(node.arguments[0]) == self.name:
                return constant_bound(e.Constant(self.clause.stream.type_name, "string"))
        if isinstance(node, e.Member):
            found = _row_of(node.of)
            if found is not None and found[0] in self.clause.names:
                return self._field(node, *found)
        if isinstance(node, e.FunctionCall) and node.of is not None and self._variable(node.of) is not None:
            return self._method(node, str(self._variable(node.of)))
        found = _row_of(node)
        if self._variable(node) is not None or (found is not None and found[0] in self.clause.names):
            raise failure_at(node, f"{node} is a row, not a value.", f"Write {node}. and a property.")
        return None

    def property(self, node: e.Name | e.Member) -> Bound | None:
        """A property of the row that comes, or of the last row of another variable."""
        variable = self._variable(node.of) if isinstance(node, e.Member) else None
        if isinstance(node, e.Member) and variable not in {None, self.name}:
            return self._field(node, str(variable), "last", 0)
        return super().property(node)

    def aggregate(self, call: e.FunctionCall) -> Bound:
        """`first`, `last`, `sum`, `avg` and `count` of earlier rows of a variable."""
        name = call.name.lower()
        given = call.arguments[0] if call.arguments else None
        if name in {"first", "last"} and len(call.arguments) == 1 and isinstance(given, e.Member):
            variable = self._variable(given.of)
            if variable is not None:
                return self._field(given, variable, "last" if name == "last" else "nth", 0)
        if name in {"sum", "count", "avg"} and len(call.arguments) == 1 and isinstance(given, e.Expression):
            variables = {
                part.name for part in parts(given) if isinstance(part, e.Name) and part.name in self.clause.names
            }
            if len(variables) == 1 and not call.quantity:
                (variable,) = variables
                stream = replace(self.clause.stream, alias=variable)
                return self._total(call, name, variable, bind(given, StreamScope([stream])))
        raise unsupported(
            call,
            f"{call.name} in 'define' like this",
            "Write sum, avg, count, first or last of one variable's property.",
        )

    def _total(self, node: e.Expression, name: str, variable: str, bound: Bound) -> Bound:
        """A sum over rows of a variable, their number, or their mean."""
        if name == "count":
            return Bound(self.clause.below.number(variable), t.LONG)
        if not (t.is_integer(bound.type) or t.is_float(bound.type)):
            raise failure_at(node, f"{name} needs numbers, and {bound.typed}.")
        dtype = t.DOUBLE if t.is_float(bound.type) else t.LONG
        made = self.clause.below.total(variable, bound.value, dtype)
        if name == "sum":
            return Bound(made, dtype)
        number = self.clause.below.total(variable, (~bound.value.is_null()).cast(nw.Int64), t.LONG)
        return Bound(made.cast(nw.Float64) / number.cast(nw.Float64), t.DOUBLE)

    def _method(self, call: e.FunctionCall, variable: str) -> Bound:
        name = call.name.lower()
        body = _body(call)
        if name in {"size", "countof"} and not call.arguments:
            return Bound(self.clause.below.number(variable), t.LONG)
        if name in {"sumof", "average"} and body is not None:
            bound = bind(body[1], StreamScope([replace(self.clause.stream, alias=body[0])]))
            return self._total(call, "sum" if name == "sumof" else "avg", variable, bound)
        raise unsupported(call, f"method {call.name!r} of rows in 'define'", "It has sumOf, average and size.")

    def _field(self, node: e.Member, variable: str, kind: NoteKind, index: int) -> Bound:
        """A property of an earlier row."""
        made = StreamScope([replace(self.clause.stream, alias=variable)]).property(
            e.Member(e.Name(variable, place=node.place), node.name, node.dynamic, place=node.place)
        )
        if made is None or made.type == t.NULL:
            return constant_bound(e.Constant(None, "null"))
        if pa.types.is_nested(made.type):
            raise unsupported(node, "conditions on arrays or records of earlier rows")
        return Bound(self.clause.below.noted(variable, kind, node.name, made.type, index), made.type)

    def _previous(self, call: e.FunctionCall) -> Bound:
        back: Any = 1
        shown = call.arguments
        if len(shown) == 2:
            first, second = shown
            swapped = isinstance(second, e.Constant) and not isinstance(first, e.Constant)
            index, shown = (second, (first,)) if swapped else (first, (second,))
            back = constant(index)
        if len(shown) != 1 or isinstance(back, bool) or not isinstance(back, int) or back < 0:
            raise failure_at(call, "prev takes an expression, and how many rows before.", "Write: prev(A.price, 1).")
        used = {part.name for part in parts(shown) if isinstance(part, e.Name)} & {*self.clause.names} - {self.name}
        if used:
            raise failure_at(
                call, f"prev is of the row that comes, which is {self.name!r}.", f"Write {self.name}.price."
            )
        bound = bind(shown[0], StreamScope(self.streams))
        return Bound(self.clause.below.previous(bound.value, bound.type, back), bound.type)

    def _variable(self, node: e.Syntax) -> str | None:
        return node.name if isinstance(node, e.Name) and node.name in self.clause.names else None


def _row_of(node: e.Syntax) -> tuple[str, NoteKind, int] | None:
    """The variable, and which of its rows a node is: `A[1]`, `A.firstOf()`, `A.lastOf()`; None for other nodes."""
    if isinstance(node, e.Element) and isinstance(node.of, e.Name) and len(node.indexes) == 1:
        index = constant(node.indexes[0])
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            raise failure_at(node, "Rows of a variable are numbered from 0 on.", f"Write {node.of}[0].")
        return node.of.name, "nth", index
    if isinstance(node, e.FunctionCall) and isinstance(node.of, e.Name) and not node.arguments:
        name = node.name.lower()
        if name in {"firstof", "lastof"}:
            return node.of.name, "nth" if name == "firstof" else "last", 0
    return None


def _body(call: e.FunctionCall) -> tuple[str, e.Expression] | None:
    """The parameter and the body of a method's function."""
    (given,) = call.arguments if len(call.arguments) == 1 else (None,)
    if isinstance(given, e.LambdaFunction) and len(given.parameters) == 1:
        return given.parameters[0], given.body
    return None


# Measures

_METHODS = {"sumof": "sum", "average": "avg", "min": "min", "max": "max"}


class _MeasureScope:
    """What names stand for in measures: rows of a match, by their variables."""

    def __init__(self, clause: _BoundClause) -> None:
        self._clause = clause
        self.chosen: dict[tuple[str, str, int], ChosenRow] = {}
        self._planned = {name: self._aggregates(name) for name in clause.names}

    def _aggregates(self, variable: str) -> PlannedAggregates:
        stream = replace(self._clause.stream, alias=variable)
        return PlannedAggregates(StreamScope([stream]), named=f"{variable} ")

    def bind(self, node: e.Expression) -> Bound:
        """A measure over the columns of matches."""
        bound = bind(node, self)
        if bound.type == t.NULL:
            raise failure_at(node, f"{node} is always null.", "Cast it to a type.")
        return bound

    @property
    def aggregated(self) -> list[OverRows]:
        """The aggregates that were asked for; what they read is computed below."""
        made = []
        for variable, planned in self._planned.items():
            self._clause.below.behind.update(planned.columns)
            made += [OverRows(each.aggregate, (variable,)) for each in planned.made]
        return made

    def _stream(self, variable: str) -> BoundStream:
        return replace(self._clause.stream, alias=variable)

    def _choose(self, variable: str, column: str, dtype: pa.DataType, index: int) -> Bound:
        key = variable, column, index
        if key not in self.chosen:
            self.chosen[key] = ChosenRow(f"@chosen {len(self.chosen)}", column, variable, index)
        return Bound(nw.col(self.chosen[key].name), dtype)

    def special(self, node: e.Expression) -> Bound | None:
        """Rows, their values, and methods of them."""
        if isinstance(node, e.Member) and (found := _row_of(node.of)) is not None and found[0] in self._clause.names:
            return self._value(node, *found)
        found = _row_of(node)
        if found is not None and found[0] in self._clause.names:
            return self._event(found[0], found[2] if found[1] == "nth" else -1)
        if isinstance(node, e.Name) and node.name in self._clause.names:
            if node.name not in self._clause.several:
                return self._event(node.name, -1)
            planned = self._planned[node.name]
            call = e.FunctionCall("window", (e.Wildcard(),), place=node.place)
            return planned.aggregate(call)
        if isinstance(node, e.FunctionCall) and isinstance(node.of, e.Name) and node.of.name in self._clause.names:
            return self._method(node, node.of.name)
        return None

    def _value(self, node: e.Member, variable: str, kind: NoteKind, index: int) -> Bound:
        made = StreamScope([self._stream(variable)]).property(
            e.Member(e.Name(variable, place=node.place), node.name, node.dynamic, place=node.place)
        )
        if made is None or made.type == t.NULL:
            return constant_bound(e.Constant(None, "null"))
        return self._choose(variable, node.name, made.type, index if kind == "nth" else -1)

    def _event(self, variable: str, index: int) -> Bound:
        made = event_of(self._stream(variable))
        self._clause.below.behind[_EVENT] = made.value
        return self._choose(variable, _EVENT, made.type, index)

    def property(self, node: e.Name | e.Member) -> Bound | None:
        """A property of a variable's last row."""
        if isinstance(node, e.Member):
            if not isinstance(node.of, e.Name) or node.of.name not in self._clause.names:
                return None
            return self._value(node, node.of.name, "last", 0)
        names = self._clause.names
        raise failure_at(
            node, f"{node.name!r} is no variable of the pattern.", f"Write {names[0]}.{node.name}, for instance."
        )

    def aggregate(self, call: e.FunctionCall) -> Bound:
        """An aggregate over the rows of one variable."""
        variables = dict.fromkeys(
            part.name for part in parts(call.arguments) if isinstance(part, e.Name) and part.name in self._clause.names
        )
        if len(variables) != 1:
            raise failure_at(
                call, f"{call.name} is over the rows of one variable, and these are {len(variables)}.",
                f"Write: {call.name}({self._clause.names[0]}.price).",
            )  # fmt: skip
        (variable,) = variables
        planned, name = self._planned[variable], call.name.lower()
        if name in {"first", "last"} and len(call.arguments) == 1:
            bound = bind(call.arguments[0], planned.events)
            return self._choose(variable, planned.column(bound), bound.type, 0 if name == "first" else -1)
        bound = planned.aggregate(call)
        for each in planned.made:
            if each.life != "alive" or each.keys is not None:
                raise unsupported(call, f"{call} in measures")
        return bound

    def _method(self, call: e.FunctionCall, variable: str) -> Bound:
        name, body, planned = call.name.lower(), _body(call), self._planned[variable]
        if name in {"size", "countof"} and not call.arguments:
            return planned.aggregate(e.FunctionCall("count", (e.Wildcard(),), place=call.place))
        if body is None:
            raise unsupported(
                call, f"method {call.name!r} of rows in measures", "It has sumOf, countOf, average and more."
            )
        function = _with_name(body[1], body[0], variable)
        if name in _METHODS:
            return planned.aggregate(e.FunctionCall(_METHODS[name], (function,), place=call.place))
        if name in {"countof", "anyof", "allof"}:
            held: e.Expression = e.Prefixed("not", function, place=call.place) if name == "allof" else function
            given = (e.Wildcard(), e.NamedArgument("filter", (held,), place=call.place))
            made = planned.aggregate(e.FunctionCall("count", given, place=call.place))
            if name == "countof":
                return made
            return Bound(made.value == 0 if name == "allof" else made.value > 0, t.BOOLEAN)
        raise unsupported(call, f"method {call.name!r} of rows in measures")


def _with_name(node: Any, before: str, after: str) -> Any:
    """A function's body with the variable for its parameter."""

    def change(part: Any) -> Any:
        return replace(part, name=after) if isinstance(part, e.Name) and part.name == before else None

    return rebuilt(node, change)
