"""The binder: from an expression's syntax tree and a scope to a typed expression over the columns of a plan.

What an expression means is Esper's: promotion of numbers as in Java, SQL's null. The bound expressions act on each row
by itself, and null is a value of each type.

Differences: a whole number that does not fit its type is an error, where Java's wraps around. The remainder by zero is
null, where Java fails. NaN equals itself, -0.0 equals 0.0. Texts are ordered by code points, and count them.

A scope binds what depends on more than a row: aggregates, `prev` and `prior`, sub-queries, `istream()`, `grouping`, and
the properties of contexts, variables, tables and declared expressions. Refused by name:

- remainders of floats; division of a BigDecimal, or its arithmetic and comparison with a float; casts of floats to
  text, of text to dates, of conditions to numbers;
- `like`, `regexp`, methods of texts and indexes of arrays with arguments that are no constants; look-around and
  references in regular expressions; `in` of an array for a value that is no constant; `any` and `all` of an array;
- arrays of values that are no constants, records, parameters; methods of arrays with functions (`sumOf(x => ...)`);
- periods of years and months whose number is no constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding import arithmetic, conditions, date_times, functions
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, as_type, constant_bound
from gpu_ops.texts.binding.constants import MONTHS, ConstantScope, TimeSpan, long_of, span
from gpu_ops.texts.binding.scope import BindingScope, is_aggregate, unknown
from gpu_ops.texts.placed_error import PlacedError, failure_at, unsupported

__all__ = ["Bound", "TimeSpan", "bind", "bind_condition", "bind_period", "constant", "period"]


def bind(expression: e.Syntax, scope: BindingScope) -> Bound:
    """What computes an expression.

    Args:
        expression: An expression, or a period, which is a long of milliseconds.
        scope: What its names stand for.

    Raises:
        PlacedError: A name is unknown, types do not fit, or gpu_ops does not have what it asks for.

    Examples:
        >>> import polars as pl
        >>> from gpu_ops.epl import parse
        >>> from gpu_ops.texts.binding.scope import BoundStream, StreamScope
        >>> (statement,) = parse("select amount * 2 from Withdrawal")
        >>> withdrawals = BoundStream("", "Withdrawal", t.event_type({"amount": "int"}))
        >>> bound = bind(statement.body.items[0].expression, StreamScope([withdrawals]))
        >>> bound.type, bound.text
        (DataType(int32), 'amount*2')
        >>> frame = nw.from_native(pl.DataFrame({"amount": [3, None]}, schema={"amount": pl.Int32}))
        >>> frame.select(bound.value)["amount"].to_list()
        [6, None]
    """
    return _Binder(scope).bind(expression)


def bind_condition(expression: e.Expression, scope: BindingScope, where: str = "'where'") -> Bound:
    """What computes a condition: an expression of type boolean.

    Args:
        expression: The condition.
        scope: What its names stand for.
        where: What takes it, for errors.

    Raises:
        PlacedError: As `bind`; or it is of another type.
    """
    bound = bind(expression, scope)
    value = conditions.truth(bound, where)
    return Bound(value, t.BOOLEAN, bound.text, bound.constant)


def constant(expression: e.Syntax) -> Any:
    """The Python value of an expression without names: a number, a text, a bool, None or a list; a period's `TimeSpan`.

    Raises:
        PlacedError: It is no constant.

    Examples:
        >>> from gpu_ops.texts.expressions import Constant, Operation, Prefixed
        >>> constant(Operation("*", Constant(2, "int"), Prefixed("-", Constant(5, "int"))))
        -10
    """
    if isinstance(expression, e.Period):
        return span(expression, constant)
    if isinstance(expression, e.ArrayOf):
        return [constant(each) for each in expression.items]
    bound = bind(expression, ConstantScope())
    if bound.constant is None:
        raise failure_at(expression, f"'{expression}' is no constant.", "Write a number or a text.")
    return bound.constant.value


def period(node: e.Syntax) -> TimeSpan:
    """The span of time that a period says, or a number, which is of seconds.

    Raises:
        PlacedError: It is neither, or no constant.

    Examples:
        >>> from gpu_ops.texts.expressions import Constant, Period
        >>> period(Period(((Constant(1, "int"), "year"), (Constant(1.5, "double"), "second"))))
        TimeSpan(months=12, milliseconds=1500)
        >>> period(Constant(10, "int"))
        TimeSpan(months=0, milliseconds=10000)
    """
    if isinstance(node, e.Period):
        return span(node, constant)
    value = constant(node)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise failure_at(node, f"A span of time is a number of seconds or a period such as 10 sec, not {node}.")
    return span(e.Period(((e.Constant(value, "double"), "second"),)), lambda _: value)


def bind_period(node: e.Syntax, scope: BindingScope) -> Bound:
    """The milliseconds of a period, or of a number of seconds, whose amounts are values of a scope: a long.

    Raises:
        PlacedError: An amount is no number, or that of years or months is no constant.
    """
    parts = node if isinstance(node, e.Period) else None
    if parts is None:
        assert isinstance(node, e.Expression)  # noqa: S101  (nothing else is an amount)
        parts = e.Period(((node, "second"),), place=node.place)
    return long_of(parts, _Binder(scope).bind)


class _Binder:
    """Binds the nodes of an expression, each by what its parts are bound to."""

    def __init__(self, scope: BindingScope) -> None:
        self._scope = scope

    def bind(self, node: e.Syntax) -> Bound:
        if isinstance(node, e.Period):
            return long_of(node, self.bind)
        if not isinstance(node, e.Expression):
            raise failure_at(node, f"'{node}' is no value.", "It is only an argument of certain functions.")
        made = self._scope.special(node)
        return (self._bound(node) if made is None else made).of(node)

    def _all(self, nodes: Sequence[e.Syntax]) -> list[Bound]:
        return [self.bind(node) for node in nodes]

    def _truth(self, node: e.Expression, where: str) -> nw.Expr:
        return conditions.truth(self.bind(node), where)

    def _bound(self, node: e.Expression) -> Bound:  # noqa: C901, PLR0912  (a case for each kind of node)
        match node:
            case e.Constant():
                return constant_bound(arithmetic.whole(node, node))
            case e.Name() | e.Member():
                return self._property(node)
            case e.Element():
                return self._element(node)
            case e.FunctionCall():
                return self._call(node)
            case e.Prefixed("not", operand):
                return conditions.condition(~self._truth(operand, "'not'"))
            case e.Prefixed(operator, operand):
                return arithmetic.signed(operator, self.bind(operand))
            case e.Logical(operator, operands):
                return conditions.joined_by(operator, [self._truth(each, f"'{operator}'") for each in operands])
            case e.Operation("||"):
                return arithmetic.joined(self._all(_parts(node)))
            case e.Operation("&" | "|" | "^", left, right):
                return arithmetic.bits(node, node.operator, self.bind(left), self.bind(right))
            case e.Operation("+" | "-" | "*" | "/" | "%", left, right):
                return arithmetic.calculated(node, node.operator, self.bind(left), self.bind(right))
            case e.Operation(operator, left, right):
                return conditions.compared(operator, self.bind(left), self.bind(right))
            case e.Between(value, low, high, negated):
                return self._ranged((value, low, high), negated=negated)
            case e.RangeInclusion(value, low, high, with_low, with_high, negated):
                bounds = {"with_low": with_low, "with_high": with_high}
                return self._ranged((value, low, high), negated=negated, **bounds)
            case e.Inclusion(value, options, negated):
                inside = conditions.included(self.bind(value), self._options(options))
                return conditions.condition(~inside if negated else inside)
            case e.Quantified(operator, quantity, value, options):
                bound = self.bind(value)
                return conditions.condition(conditions.quantified(operator, quantity, bound, self._options(options)))
            case e.TextMatch(operator, value, pattern, escape, negated):
                escaped = None if escape is None else self.bind(escape)
                found = conditions.matched(operator, self.bind(value), self.bind(pattern), escaped)
                return conditions.condition(~found if negated else found)
            case e.Case():
                return self._case(node)
            case e.Cast(value):
                return functions.cast(node, self.bind(value))
            case e.ArrayOf():
                return self._array(node)
            case e.Record(fields, True):
                return self._record(node, fields)
        raise _misplaced(node, _CONSTRUCTS[type(node).__name__])

    # Names

    def _property(self, node: e.Name | e.Member) -> Bound:
        if isinstance(node, e.Name) and node.name.lower() == "current_timestamp":
            return functions.current_timestamp()
        found = self._scope.property(node)
        if found is not None:
            return found
        if isinstance(node, e.Name):
            raise failure_at(node, f"There is no {node.name!r} here.")
        return self._field(node, self.bind(node.of))

    def _field(self, node: e.Member, of: Bound) -> Bound:
        if of.type == t.NULL:
            return of
        if not pa.types.is_struct(of.type):
            raise failure_at(node, f"{of.typed}, which has no properties.")
        known = {field.name: field.type for field in of.type}
        if node.name in known:
            return Bound(of.value.struct.field(node.name), known[node.name])
        if node.dynamic:
            return Bound(nw.lit(None), t.NULL)
        raise unknown(node, f"{of.said} has no property {node.name!r}.", node.name, known, known)

    def _element(self, node: e.Element) -> Bound:
        of = self.bind(node.of)
        if not pa.types.is_list(of.type):
            raise failure_at(node, f"{of.typed}, which has no elements.")
        if len(node.indexes) > 1:
            raise failure_at(node, f"An element of an array has one index, not {len(node.indexes)}.")
        index = self.bind(node.indexes[0])
        if not t.is_integer(index.type):
            raise failure_at(index, f"The index of an array is a whole number, and {index.typed}.")
        if index.constant is None:
            raise unsupported(index, "index of an array that is no constant")
        at = int(index.constant.value or 0)
        if at < 0:
            raise failure_at(index, "The first element of an array has the index 0.")
        return Bound(functions.element(of.value, at), of.type.value_type)

    # Functions

    def _call(self, node: e.FunctionCall) -> Bound:
        if is_aggregate(node):
            return self._scope.aggregate(node)
        if node.quantity:
            raise failure_at(node, f"{node.quantity!r} can stand in an aggregate alone.")
        if node.of is not None:
            return self._method(node, node.of)
        name = node.name.lower()
        if name == "exists":
            return self._exists(node)
        if name == "instanceof":
            return self._instance(node)
        if name not in functions.FUNCTIONS:
            known = [*functions.FUNCTIONS, "exists", "instanceof", "cast", "sum", "avg", "count"]
            if name in _OF_WINDOWS:
                raise _misplaced(node, f"{name}(…)")
            raise unknown(node, f"gpu_ops knows no function {node.name!r}.", node.name, known, known, "Functions")
        return functions.FUNCTIONS[name](node, self._all(functions.flat_arguments(node)))

    def _method(self, node: e.FunctionCall, of: e.Expression) -> Bound:
        owner = _class(of)
        if owner in functions.CLASSES:
            name = f"{owner}.{node.name}"
            known = [each for each in functions.STATIC if each.startswith(f"{owner}.")]
            if name not in functions.STATIC:
                raise unknown(node, f"gpu_ops knows no function {name!r}.", name, known, known, "Functions")
            return functions.STATIC[name](node, self._all(functions.flat_arguments(node)))
        subject = self.bind(of)
        taken = [each for each in node.arguments if isinstance(each, e.LambdaFunction)]
        if taken:
            raise unsupported(node, f"method {node.name!r} with a function")
        if node.name in {"plus", "minus"} and subject.type == t.LONG and len(node.arguments) == 1:
            (given,) = node.arguments
            if isinstance(given, e.Period) and any(unit in MONTHS for _, unit in given.parts):
                return self._moved(node, subject, given)
        return functions.method(node, subject, self._all(node.arguments))

    def _moved(self, node: e.FunctionCall, of: Bound, by: e.Period) -> Bound:
        """A time moved by a period of years or months, and of more."""
        months = [span(e.Period((each,), place=by.place), constant).months for each in by.parts if each[1] in MONTHS]
        rest = tuple(each for each in by.parts if each[1] not in MONTHS)
        behind = long_of(e.Period(rest, place=by.place), self.bind) if rest else None
        return date_times.moved_by_calendar(node, of, months, behind)

    def _exists(self, node: e.FunctionCall) -> Bound:
        """Whether a property that is asked for by name is there: a column is, whatever its value."""
        (given,) = node.arguments if len(node.arguments) == 1 else (None,)
        if not isinstance(given, e.Name | e.Member):
            raise failure_at(node, "exists(…) takes a property.")
        there = self.bind(given).type != t.NULL
        return constant_bound(e.Constant(there, "boolean"))

    def _instance(self, node: e.FunctionCall) -> Bound:
        if len(node.arguments) < 2:
            raise failure_at(node, "instanceof(…) takes a value and types.")
        given, *types = node.arguments
        value = self.bind(given)
        wanted = []
        for each in types:
            name = str(each).replace("`", "")
            dtype = t.type_of(name)
            if dtype is None:
                raise unsupported(each, f"type {name!r} of instanceof")
            wanted.append(dtype)
        if value.type not in wanted:
            return constant_bound(e.Constant(value=False, type="boolean"))
        return conditions.condition(~value.value.is_null())

    # Conditions and choices

    def _ranged(self, parts: Sequence[e.Expression], *, negated: bool, **bounds: bool) -> Bound:
        value, low, high = self._all(parts)
        inside = conditions.ranged(value, low, high, **bounds)
        return conditions.condition(conditions.outside(value, inside) if negated else inside)

    def _options(self, options: Sequence[e.Expression]) -> list[Bound]:
        flat = [each for option in options for each in (option.items if isinstance(option, e.ArrayOf) else (option,))]
        return self._all(flat)

    def _case(self, node: e.Case) -> Bound:
        values = self._all([then for _, then in node.branches])
        otherwise = None if node.otherwise is None else self.bind(node.otherwise)
        chosen = values if otherwise is None else [*values, otherwise]
        dtype = t.common_type([each.type for each in chosen])
        if dtype is None:
            raise failure_at(node, f"The values of a case are of one type, not {_types(chosen)}.", "Cast them.")
        made = None if otherwise is None else as_type(otherwise, dtype)
        subject = None if node.subject is None else self.bind(node.subject)
        for (when, _), value in reversed([*zip(node.branches, values, strict=True)]):
            holds = self._truth(when, "'when'") if subject is None else conditions.chosen_by(subject, self.bind(when))
            then = nw.when(holds).then(as_type(value, dtype))
            made = then if made is None else then.otherwise(made)
        assert made is not None  # noqa: S101  (a case has a branch)
        return Bound(made, dtype)

    def _record(self, node: e.Record, fields: Sequence[tuple[str, e.Expression | None]]) -> Bound:
        """An event of its own: its properties by their names, where a name alone is that property."""
        made = dict[str, Bound]()
        for name, value in fields:
            if name in made:
                raise failure_at(node, f"Two properties are called {name!r}.", "Rename one of them.")
            made[name] = self.bind(e.Name(name, place=node.place) if value is None else value)
            if made[name].type == t.NULL:
                raise failure_at(node, f"The property {name!r} is null, of no type.", "Cast it: cast(null, int).")
        columns = [as_type(bound, bound.type).alias(name) for name, bound in made.items()]
        return Bound(nw.struct(*columns), pa.struct([(name, bound.type) for name, bound in made.items()]))

    def _array(self, node: e.ArrayOf) -> Bound:
        items = self._all(node.items)
        dtype = t.common_type([each.type for each in items])
        if dtype is None:
            raise failure_at(node, f"The values of an array are of one type, not {_types(items)}.", "Cast them.")
        for each in items:
            if each.constant is None:
                raise unsupported(each, "array of values that are no constants")
        inner = t.INT if dtype == t.NULL else dtype
        values = [each.constant.value for each in items if each.constant is not None]
        made = pa.list_(inner)
        return Bound(nw.lit(values, t.narwhals_type(made)), made)


_OF_WINDOWS = frozenset(["prev", "prior", "prevtail", "prevcount", "prevwindow", "istream", "grouping", "grouping_id"])
_CONSTRUCTS = {
    "Subquery": "a sub-query",
    "Exists": "a sub-query",
    "Parameter": "a parameter",
    "Wildcard": "a wildcard",
    "Record": "a record",
    "Variable": "a variable",
    "ContextProperty": "a property of a context",
}


def _misplaced(node: e.Expression, what: str) -> PlacedError:
    """What only a scope can bind, which did not."""
    said = f"A{what[1:]}" if what.startswith("a ") else what
    return failure_at(node, f"{said} cannot stand here.", construct=what)


def _types(values: Sequence[Bound]) -> str:
    return " and ".join(dict.fromkeys(t.type_name(each.type) for each in values))


def _parts(node: e.Expression) -> list[e.Expression]:
    """The parts of a chain of `||`."""
    if isinstance(node, e.Operation) and node.operator == "||":
        return [*_parts(node.left), *_parts(node.right)]
    return [node]


def _class(of: e.Expression) -> str:
    """The name of a class of Java's, whose package may be said."""
    match of:
        case e.Name(name) | e.Member(e.Member(e.Name("java"), "lang"), name):
            return name
    return ""
