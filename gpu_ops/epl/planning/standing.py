"""Plans of statements that differ in the constants of their filters: one for all, with the constants beside.

Constants are parameters in the tree. A literal is one where it is a side of a comparison, a bound of a range or a
member of a list, in a filter of the from clause: all that is computed is computed of the event alone, once for all
statements, so that what fails is what fails for a statement by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import TICK
from gpu_ops.epl import queries as q
from gpu_ops.epl.inlining import rebuilt
from gpu_ops.epl.patterns import EventFilter
from gpu_ops.epl.planning.list_functions import is_list_method
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.planned import Ledger, PlannedStatement, known_type
from gpu_ops.epl.planning.scopes import EventScope, WindowedStream
from gpu_ops.epl.planning.statements import planned
from gpu_ops.epl.statements import Statement
from gpu_ops.plan.data_windows import DataWindow, FirstSpan
from gpu_ops.plan.deliveries import Deliveries
from gpu_ops.plan.expressions import copied
from gpu_ops.plan.nodes import Feed, Filter, Node, Project
from gpu_ops.plan.standing import HOLDS, PASSES, Equal, InRange, StandingFilter, constant_name, value_name
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, as_type
from gpu_ops.texts.binding.conditions import compared_as, joined_by
from gpu_ops.texts.binding.expressions import bind, bind_condition
from gpu_ops.texts.placed_error import failure_at

_COMPARED = frozenset({"=", "!=", "<", "<=", ">", ">="})
_KINDS = frozenset({"int", "long", "float", "double", "string"})
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MOST_KEYS = 64
"""How many keys a statement may ask for in the index; lists that make more are asked of pairs."""


@dataclass(frozen=True)
class PlannedGroup:
    """One plan for statements that differ in constants.

    Attributes:
        plan: What each computes of the rows that its filter takes.
        asked: Whose rows these are.
        picked: The properties that are its columns, if it computes nothing; else None.
    """

    plan: PlannedStatement
    asked: StandingFilter
    picked: tuple[str, ...] | None = None


# Literals as parameters


def opened(statement: Statement) -> tuple[Statement, list[tuple[e.Constant, int]]]:
    """A statement whose constants are parameters where they may be, and these constants, each with its sign.

    The parameters are called `0`, `1` and so on; the statement has no name.

    Examples:
        >>> from gpu_ops.epl import parse
        >>> (statement,) = parse("@name('a') select * from Tick(symbol = 'x', price * 2 > -5)")
        >>> template, constants = opened(statement)
        >>> str(template)
        'select * from Tick(symbol=?:_0:string,price*2>?:_1:int)'
        >>> [(constant.value, sign) for constant, sign in constants]
        [('x', 1), (5, -1)]
    """
    found: list[tuple[e.Constant, int]] = []
    query = statement.body
    rest = tuple(each for each in statement.annotations if each.name.lower() != "name")
    if not isinstance(query, q.Query) or not isinstance(query.stream.source, EventFilter):
        return replace(statement, annotations=rest), found
    source = query.stream.source
    opening = _Opening(found)
    stream = replace(query.stream, source=replace(source, filters=tuple(map(opening.condition, source.filters))))
    return replace(statement, body=replace(query, stream=stream), annotations=rest), found


class _Opening:
    """Constants become parameters in conditions."""

    def __init__(self, found: list[tuple[e.Constant, int]]) -> None:
        self._found = found

    def condition(self, node: e.Expression) -> e.Expression:
        match node:
            case e.Logical(operands=operands):
                return replace(node, operands=tuple(map(self.condition, operands)))
            case e.Prefixed("not", operand):
                return replace(node, operand=self.condition(operand))
            case e.Operation(operator, left, right) if operator in _COMPARED and not _has_constant_sides(left, right):
                return replace(node, left=self._side(left), right=self._side(right))
            case e.Between(low=low, high=high) | e.RangeInclusion(low=low, high=high):
                return replace(node, low=self._side(low), high=self._side(high))
            case e.Inclusion(options=options) if all(_literal(each) is not None for each in options):
                return replace(node, options=tuple(map(self._side, options)))
        return node

    def _side(self, node: e.Expression) -> e.Expression:
        literal = _literal(node)
        if literal is None:
            return node
        self._found.append(literal)
        return e.Parameter(f"_{len(self._found) - 1}", literal[0].type, place=node.place)


def _has_constant_sides(*sides: e.Expression) -> bool:
    return all(_literal(each) is not None for each in sides)


def _literal(node: e.Syntax) -> tuple[e.Constant, int] | None:
    """(a constant, its sign) that can be a parameter; None for other nodes."""
    match node:
        case e.Constant(type=kind) if kind in _KINDS:
            return node, 1
        case e.Prefixed("-", e.Constant(type=kind) as inner) if kind in _KINDS - {"string"}:
            return inner, -1
    return None


def closed(template: Statement, values: Sequence[Any]) -> Statement:
    """The statement of a template with some constants."""
    known = {parameter.name: value for parameter, value in zip(parameters(template), values, strict=True)}

    def change(node: Any) -> Any:
        if not isinstance(node, e.Parameter):
            return None
        value = known[node.name]
        kind: Any = node.type if value is not None else "null"
        return e.Constant(value, kind, place=node.place)

    return rebuilt(template, change)


def parameters(template: e.Syntax) -> list[e.Parameter]:
    """The parameters of a template, in the order of its text."""
    return [part for part in parts(template) if isinstance(part, e.Parameter)]


def named_parameters(statement: Statement) -> list[e.Parameter]:
    """The parameters that a text has by itself.

    Raises:
        PlacedError: One has no name, or stands where no constant of a filter stands.
    """
    given, allowed = parameters(statement), set[int]()
    query = statement.body
    if isinstance(query, q.Query) and isinstance(query.stream.source, EventFilter):
        for each in query.stream.source.filters:
            allowed |= {id(part) for part in _sides(each)}
    for each in given:
        if not each.name:
            raise failure_at(each, "The parameter has no name.", "Write: ?:name, or ?:name:type.")
        if id(each) not in allowed:
            raise failure_at(
                each,
                "A parameter is a side of a comparison, a bound or in a list, in a filter of the from clause.",
                "Compute constants in the frame.",
            )
    return given


def _sides(node: e.Expression) -> Iterator[e.Syntax]:
    """What may be a constant in a condition."""
    match node:
        case e.Logical(operands=operands):
            for each in operands:
                yield from _sides(each)
        case e.Prefixed("not", operand):
            yield from _sides(operand)
        case e.Operation(operator, left, right) if operator in _COMPARED:
            yield from (left, right)
        case e.Between(low=low, high=high) | e.RangeInclusion(low=low, high=high):
            yield from (low, high)
        case e.Inclusion(options=options):
            yield from options


def numbered(statement: Statement, kinds: Sequence[str]) -> Statement:
    """A statement whose parameters are called as those of `opened`, each of some type."""
    names = {
        id(each): (f"_{at}", kind) for at, (each, kind) in enumerate(zip(parameters(statement), kinds, strict=True))
    }

    def change(node: Any) -> Any:
        return e.Parameter(*names[id(node)], place=node.place) if isinstance(node, e.Parameter) else None

    return rebuilt(statement, change)


def kind_of(dtype: pa.DataType) -> str | None:
    """Esper's type for constants of an Arrow type; None if there is none."""
    if pa.types.is_integer(dtype):
        return "long" if dtype in {pa.int64(), pa.uint32(), pa.uint64()} else "int"
    if pa.types.is_floating(dtype):
        return "double" if dtype == pa.float64() else "float"
    return "string" if pa.types.is_string(dtype) or pa.types.is_large_string(dtype) else None


# Plans


def planned_group(template: Statement, ledger: Ledger) -> PlannedGroup | None:
    """One plan for all statements of a template; None where each needs its own.

    It is for queries whose plan takes each event by itself, and delivers it at once.

    Raises:
        PlacedError: As `gpu_ops.epl.planning.statements.planned`; or a parameter stands where none can.
    """
    query = template.body
    if not isinstance(query, q.Query) or not _is_plain(template, query, ledger):
        return None
    source = query.stream.source
    assert isinstance(source, EventFilter)  # noqa: S101  (it is plain)
    schema = known_type(source, ledger)
    arrivals = ledger.arrivals[source.type_name]
    if not isinstance(arrivals, Feed):
        return None
    rest = replace(query, stream=replace(query.stream, source=replace(source, filters=())))
    plan = planned(replace(template, body=rest), ledger)
    if not all(map(_is_of_single_events, plan.node.walk())):
        return None
    stream = WindowedStream(query.stream.alias, source.type_name, schema)
    asked = _FilterTerms(stream, arrivals, parameters(template)).asked(source.filters)
    return PlannedGroup(plan, asked, _picked(plan, schema.names))


def planned_sieve(stream: q.StreamTerm, ledger: Ledger) -> StandingFilter | None:
    """What the filter of a stream asks, whose constants are parameters; None if it asks for more than the event.

    Raises:
        PlacedError: As `gpu_ops.epl.planning.statements.planned`.
    """
    source, within = stream.source, list(parts(stream.source))
    names = {part.name for part in within if isinstance(part, e.Name)}
    if not isinstance(source, EventFilter) or any(
        isinstance(part, q.Query | e.Variable) or is_list_method(part) for part in within
    ):
        return None
    schema, arrivals = known_type(source, ledger), ledger.arrivals[source.type_name]
    if names & set(ledger.variables) or not isinstance(arrivals, Feed):
        return None
    known = WindowedStream(stream.alias, source.type_name, schema)
    asked = _FilterTerms(known, arrivals, parameters(stream)).asked(source.filters)
    read = set() if asked.values is None else {*asked.values.needs(tuple(asked.values.schema.names))[0]}
    return asked if read <= {*schema.names} else None  # another service may have another clock


def _picked(plan: PlannedStatement, properties: Sequence[str]) -> tuple[str, ...] | None:
    """The properties that are the columns of a plan; None if it does more than to pick them."""
    node, names = plan.node, [f"@column {at}" for at in range(len(plan.columns))]
    while isinstance(node, Project) and not node.keep:
        copies: dict[str, str] = {}
        for each in node.expressions:
            copies |= copied([each], node.input.schema.names) or {}
        if not copies.keys() >= {*names}:
            return None
        node, names = node.input, [copies[name] for name in names]
    return tuple(names) if isinstance(node, Feed) and {*names} <= {*properties} else None


def _is_plain(template: Statement, query: q.Query, ledger: Ledger) -> bool:
    """Whether a query may be one of single events, by its clauses."""
    stream = query.stream
    others: list[Any] = [query.joins, query.insert, query.recognize, query.into_table, query.delivery, query.deleting]
    others += [query.group_by, query.having, query.output, query.order_by, query.limit, query.distinct]
    others += [stream.views, stream.unidirectional, stream.retain]
    others += [template.context, template.annotations, template.declarations]
    if any(others) or query.selector == "rstream":
        return False
    within = list(parts(query))[1:]
    names = {part.name for part in within if isinstance(part, e.Name)}
    is_alone = not any(isinstance(part, q.Query) or is_list_method(part) for part in within) and not names & set(
        ledger.variables
    )
    return is_alone and isinstance(stream.source, EventFilter)


def _is_of_single_events(node: Node) -> bool:
    """Whether a node of a plan handles each event by itself, and at once."""
    match node:
        case Feed() | Filter() | Project():
            return True
        case DataWindow(window=FirstSpan()):
            return True
        case Deliveries(per="row", aggregates=(), new=True, content=False, marks=False, snapshot=None):
            return not (node.touched or node.momentary) and node.passes is None and node.posts is None
    return False


class _StandingScope(EventScope):
    """Conditions over pairs of an event and a statement: what is said of the event alone is a column.

    Args:
        stream: The events.
        terms: Has the columns.
    """

    def __init__(self, stream: WindowedStream, terms: _FilterTerms) -> None:
        super().__init__([stream])
        self._terms = terms

    def special(self, node: e.Expression) -> Bound | None:
        """A constant, or what is computed of an event."""
        if isinstance(node, e.Parameter):
            return self._terms.constant(node)
        if isinstance(node, e.Constant) or _asks(node):
            return None
        bound = bind(node, self._terms.events)
        return replace(bound, value=nw.col(self._terms.value(bound, bound.type)), constant=None)


class _FilterTerms:
    """The terms of a filter, each as what the index does for it."""

    def __init__(self, stream: WindowedStream, arrivals: Feed, given: Sequence[e.Parameter]) -> None:
        self.events = EventScope([stream])
        self._arrivals, self._pairs = arrivals, _StandingScope(stream, self)
        self._numbers = {each.name: number for number, each in enumerate(given)}
        self._types = [_type_of(each) for each in given]
        self._values: dict[tuple[Any, ...], tuple[str, nw.Expr]] = {}

    def constant(self, node: e.Parameter) -> Bound:
        number = self._numbers[node.name]
        return Bound(nw.col(constant_name(number)), self._types[number], str(node), place=node.place)

    def value(self, bound: Bound, dtype: pa.DataType) -> str:
        """The column of a value of the event, in a type."""
        key = (bound.text, str(dtype))
        if key not in self._values:
            name = value_name(len(self._values))
            self._values[key] = name, as_type(bound, dtype).alias(name)
        return self._values[key][0]

    def asked(self, filters: Sequence[e.Expression]) -> StandingFilter:
        equal: list[Equal] = []
        between: list[InRange] = []
        alike: list[nw.Expr] = []
        rest: list[nw.Expr] = []
        terms = [term for each in filters for term in _conjuncts(each)]
        for term in terms:
            if not _asks(term):
                alike.append(bind_condition(term, self.events, "the filter").value)
                continue
            found = self._indexed(term)
            if isinstance(found, Equal) and len(found.options) * prod(len(each.options) for each in equal) > _MOST_KEYS:
                found = None
            match found:
                case Equal():
                    equal.append(found)
                case InRange():
                    between.append(found)
                case None:
                    rest.append(bind_condition(term, self._pairs, "the filter").value)
        constants = pa.schema([(constant_name(number), dtype) for number, dtype in enumerate(self._types)])
        expressions = [value for _, value in self._values.values()]
        if alike:
            expressions.append(_all(alike).alias(PASSES))
        values = Project(self._arrivals, tuple(expressions), keep=False) if expressions else None
        holds = None
        if rest:
            columns = [*(() if values is None else values.schema), *constants]
            pairs = Feed(pa.schema(columns), (), TICK)
            holds = Project(pairs, (_all(rest).alias(HOLDS),), keep=False)
        return StandingFilter(self._arrivals, values, constants, tuple(equal), tuple(between), holds)

    def _indexed(self, term: e.Expression) -> Equal | InRange | None:
        """What the index finds by itself; None for what is asked of pairs."""
        match term:
            case e.Operation("=", left, e.Parameter() as right) if not _asks(left):
                return self._equal(left, [right])
            case e.Operation("=", e.Parameter() as left, right) if not _asks(right):
                return self._equal(right, [left])
            case e.Inclusion(value, options, False) if not _asks(value) and options:
                given = [each for each in options if isinstance(each, e.Parameter)]
                return self._equal(value, given) if len(given) == len(options) else None
            case e.Operation(operator, left, e.Parameter() as right) if operator in _TURNED and not _asks(left):
                return self._side(operator, left, right)
            case e.Operation(operator, e.Parameter() as left, right) if operator in _TURNED and not _asks(right):
                return self._side(_TURNED[operator], right, left)
            case e.Between(value, e.Parameter() as low, e.Parameter() as high, False) if not _asks(value):
                return self._between(value, (low, high))
            case e.RangeInclusion(value, e.Parameter() as low, e.Parameter() as high, with_low, with_high, False):
                return None if _asks(value) else self._between(value, (low, high), with_low, with_high)
        return None

    def _equal(self, value: e.Expression, given: Sequence[e.Parameter]) -> Equal | None:
        bound, constants = bind(value, self.events), [self.constant(each) for each in given]
        dtype = compared_as(bound, *constants)
        if not (t.is_integer(dtype) or t.is_float(dtype) or dtype == t.TEXT):
            return None
        return Equal(self.value(bound, dtype), dtype, tuple(constant_name(self._numbers[each.name]) for each in given))

    def _side(self, operator: str, value: e.Expression, given: e.Parameter) -> InRange | None:
        bound = bind(value, self.events)
        dtype = compared_as(bound, self.constant(given), ordered=True)
        if not (t.is_integer(dtype) or t.is_float(dtype)):
            return None
        column, constant, closed = self.value(bound, dtype), constant_name(self._numbers[given.name]), "=" in operator
        if operator.startswith(">"):
            return InRange(column, dtype, constant, "", with_low=closed)
        return InRange(column, dtype, "", constant, with_high=closed)

    def _between(
        self,
        value: e.Expression,
        given: tuple[e.Parameter, e.Parameter],
        with_low: bool = True,  # noqa: FBT001, FBT002  (as the node has them)
        with_high: bool = True,  # noqa: FBT001, FBT002
    ) -> InRange | None:
        bound = bind(value, self.events)
        dtype = compared_as(bound, *map(self.constant, given), ordered=True)
        if not (t.is_integer(dtype) or t.is_float(dtype)):
            return None
        low, high = (constant_name(self._numbers[each.name]) for each in given)
        return InRange(self.value(bound, dtype), dtype, low, high, with_low, with_high, either=True)


def _type_of(given: e.Parameter) -> pa.DataType:
    dtype = t.type_of(given.type)
    if dtype is None or given.type not in _KINDS:
        raise failure_at(
            given, f"A parameter is of type {given.type or '?'}.", f"It is one of {', '.join(sorted(_KINDS))}."
        )
    return dtype


def _asks(node: Any) -> bool:
    """Whether a parameter is in an expression."""
    return any(isinstance(part, e.Parameter) for part in parts(node))


def _conjuncts(node: e.Expression) -> list[e.Expression]:
    if isinstance(node, e.Logical) and node.operator == "and":
        return [each for operand in node.operands for each in _conjuncts(operand)]
    return [node]


def _all(conditions: Sequence[nw.Expr]) -> nw.Expr:
    return conditions[0] if len(conditions) == 1 else joined_by("and", conditions).value
