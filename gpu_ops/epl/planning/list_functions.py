"""Esper's enumeration methods: `window(*).where(v => v.price > 10)`, and what else asks something of a list's elements.

As Esper documents them: a list that is null gives null; nulls are left out of sums, averages and extremes, and make no
condition true; of several elements that are alike the first one is meant. A sub-query that finds no row is a list
without elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import TICK
from gpu_ops.epl import queries as q
from gpu_ops.epl.planning.parts import parts
from gpu_ops.plan.expressions import columns_named
from gpu_ops.plan.list_methods import ELEMENT, INDEX, SIZE, VALUE, ListMethod
from gpu_ops.plan.nodes import Feed, Node, Project, extended
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, as_type
from gpu_ops.texts.binding.expressions import bind, bind_condition
from gpu_ops.texts.binding.scope import BindingScope, is_aggregate, unknown
from gpu_ops.texts.placed_error import failure_at, unsupported

_CONDITIONS = frozenset({"allof", "anyof", "countof", "firstof", "lastof", "takewhile", "takewhilelast", "where"})
"""Methods whose function is a condition."""

_KEYS = frozenset({"distinctof", "leastfrequent", "max", "min", "mostfrequent", "orderby", "orderbydesc"})
"""Methods that ask by what a function gives, or without one by the elements."""

_NUMBERS = frozenset({"average", "sumof"})
_NEED = frozenset({"allof", "anyof", "maxby", "minby", "selectfrom", "takewhile", "takewhilelast", "where"})
"""Methods that are none without a function."""

_COUNTS = frozenset({"take", "takelast"})
_BESIDE = frozenset({"except", "intersect", "sequenceequal", "union"})
_PLAIN = frozenset({"arrayof", "reverse"})
_REFUSED = frozenset({"aggregate", "groupby", "tomap"})
_OF_SUBQUERIES = frozenset({"countof", "firstof", "lastof"})
"""Methods that lists have without a function by themselves (`functions`, `list_methods`), and sub-queries not."""

_METHODS = (_CONDITIONS | _KEYS | _NUMBERS | _NEED | _COUNTS | _BESIDE | _PLAIN | _REFUSED) - _OF_SUBQUERIES


NAMES = (
    "allOf", "anyOf", "arrayOf", "average", "countOf", "distinctOf", "firstOf", "lastOf", "leastFrequent", "max",
    "maxBy", "min", "minBy", "mostFrequent", "orderBy", "orderByDesc", "selectFrom", "sumOf", "takeWhile",
    "takeWhileLast", "where",
)  # fmt: skip
"""The methods that take a function, as Esper spells them."""


@dataclass(frozen=True)
class PlannedMethod:
    """A method without the rows that it is of.

    Attributes:
        lists: The lists.
        argument: A number of elements, or other lists; None for neither.
        value: What the function gives for each element; None without one.
        element: The type of elements.
        made: The column.
        method: Which.
        name: The name of the column.
        absent: As in `ListMethod`.
    """

    lists: nw.Expr
    argument: nw.Expr | None
    value: nw.Expr | None
    element: pa.DataType
    made: Bound
    method: str
    name: str
    absent: bool

    def over(self, rows: Node) -> Node:
        """The rows with one more column."""
        given = [] if self.argument is None else [self.argument]
        names = [f"{self.name} {at}" for at in range(len(given) + 1)]
        rows = extended(rows, [value.alias(name) for value, name in zip([self.lists, *given], names, strict=True)])
        elements = None
        if self.value is not None:
            own = pa.schema([(ELEMENT, self.element), (INDEX, pa.int32()), (SIZE, pa.int32())])
            read = {*columns_named(self.value)} - {*own.names}
            fields = [*own, *(field for field in rows.schema if field.name in read)]
            elements = Project(Feed(pa.schema(fields), (), TICK), (self.value.alias(VALUE),), keep=False)
        argument = names[1] if given else ""
        return ListMethod(rows, names[0], self.method, elements, argument, self.made.type, self.name, self.absent)


def is_list_method(node: e.Expression) -> bool:
    """Whether a node may be such a method."""
    if not isinstance(node, e.FunctionCall) or node.of is None:
        return False
    method = node.name.lower()
    takes = any(isinstance(each, e.LambdaFunction) for each in node.arguments)
    if method in _COUNTS | _BESIDE:
        return len(node.arguments) == 1
    plain = method in _METHODS or (method in _OF_SUBQUERIES and isinstance(node.of, q.Subquery))
    return takes or (plain and not node.arguments)


def planned_list_method(call: e.FunctionCall, scope: BindingScope, name: str) -> PlannedMethod | None:
    """A method of a list; None for one of something else.

    Args:
        call: The method.
        scope: What names stand for around it.
        name: The name of the column that it makes.

    Raises:
        PlacedError: An argument is missing, or of another type.
    """
    assert call.of is not None  # noqa: S101  (it is a method)
    of = _listed(call.of)
    lists = bind(of, scope)
    if not pa.types.is_list(lists.type):
        return None
    method, element = call.name.lower(), lists.type.value_type
    if method in _REFUSED:
        raise unsupported(call, f"method {call.name!r} of lists", "Group, or aggregate, in the statement itself.")
    if method not in _METHODS | _OF_SUBQUERIES:
        raise unknown(call, f"Lists have no method {call.name!r} with a function.", call.name, NAMES, NAMES, "Methods")
    given, argument = call.arguments[0] if call.arguments else None, None
    if len(call.arguments) > 1:
        raise failure_at(call, f"{call.name}(…) takes one argument, and there are {len(call.arguments)}.")
    value, of_values = None, element
    if isinstance(given, e.LambdaFunction):
        if method in _COUNTS | _BESIDE | (_PLAIN - {"arrayof"}):
            raise failure_at(given, f"{call.name}(…) takes no function.")
        value, of_values = _valued(given, method, scope, element)
    elif method in _COUNTS | _BESIDE:
        argument = _argument(call, method, scope, lists)
    elif given is not None or method in _NEED:
        raise failure_at(call, f"{call.name}(…) takes a function.", f"Write: {call.name}(v => …).")
    _check(call, method, of_values if method not in _BESIDE else element)
    dtype = _type_of(method, lists.type, of_values)
    made = Bound(nw.col(name), dtype)
    return PlannedMethod(lists.value, argument, value, element, made, method, name, absent=of is not call.of)


def _listed(of: e.Expression) -> e.Expression:
    """What has the list: of a sub-query that gives rows, all of these."""
    if not isinstance(of, q.Subquery) or of.query.group_by or len(of.query.items) != 1:
        return of
    (item,) = of.query.items
    within = parts(item.expression, lambda part: not isinstance(part, q.Query))
    if any(isinstance(part, e.FunctionCall) and is_aggregate(part) for part in within):
        return of
    every = e.FunctionCall("window", (item.expression,), place=item.expression.place)
    return replace(of, query=replace(of.query, items=(replace(item, expression=every, alias=""),)))


class _ElementScope:
    """What names stand for in a function of elements: its parameters, and behind them what is around the list."""

    def __init__(self, around: BindingScope, given: Mapping[str, Bound]) -> None:
        self._around, self._given = around, given

    def special(self, node: e.Expression) -> Bound | None:
        """A parameter, or what has a meaning of its own around the list."""
        if isinstance(node, e.Name) and node.name in self._given:
            return self._given[node.name]
        if not self._mentions(node):
            return self._around.special(node)
        if isinstance(node, q.Subquery | q.Exists):
            raise unsupported(node, "sub-queries about an element of a list")
        if is_list_method(node):
            raise unsupported(node, "methods of lists about an element of another list")
        return None

    def property(self, node: e.Name | e.Member) -> Bound | None:
        """A property around the list; a parameter's is a field of its value."""
        return None if self._mentions(node) else self._around.property(node)

    def aggregate(self, call: e.FunctionCall) -> Bound:
        """An aggregate around the list."""
        if self._mentions(call):
            raise failure_at(call, f"{call.name}(…) is an aggregate of rows, not of an element.")
        return self._around.aggregate(call)

    def _mentions(self, node: e.Syntax) -> bool:
        return any(isinstance(part, e.Name) and part.name in self._given for part in parts(node))


def _valued(
    function: e.LambdaFunction, method: str, scope: BindingScope, element: pa.DataType
) -> tuple[nw.Expr, pa.DataType]:
    """(what a function gives for each element, its type)."""
    own = [Bound(nw.col(ELEMENT), element), Bound(nw.col(INDEX), t.INT), Bound(nw.col(SIZE), t.INT)]
    if len(function.parameters) > len(own):
        raise failure_at(function, "A function of elements has three parameters at most: v, its index, the size.")
    around = _ElementScope(scope, dict(zip(function.parameters, own, strict=False)))
    if method in _CONDITIONS:
        return bind_condition(function.body, around, f"'{method}'").value, t.BOOLEAN
    bound = bind(function.body, around)
    return as_type(bound, bound.type), bound.type


def _argument(call: e.FunctionCall, method: str, scope: BindingScope, lists: Bound) -> nw.Expr:
    """The number of elements, or the other list."""
    (given,) = call.arguments
    if not isinstance(given, e.Expression):
        raise failure_at(call, f"{call.name}(…) takes no {given}.")
    bound = bind(_listed(given), scope)
    if method in _COUNTS:
        if not t.is_integer(bound.type):
            raise failure_at(bound, f"{call.name}(…) takes a number of elements, and {bound.typed}.")
        return as_type(bound, t.LONG)
    if not pa.types.is_list(bound.type) or t.common_type([bound.type.value_type, lists.type.value_type]) is None:
        raise failure_at(bound, f"{call.name}(…) takes a list of such elements, and {bound.typed}.")
    return bound.value


def _check(call: e.FunctionCall, method: str, dtype: pa.DataType) -> None:
    """Refuse values that a method cannot compare, or add."""
    compares = method in _KEYS | _BESIDE - {"union"} | {"minby", "maxby"}
    if compares and (pa.types.is_nested(dtype) or t.is_decimal(dtype)):
        raise unsupported(
            call, f"{call.name}(…) by values of type {t.type_name(dtype)}", "Name a property: v => v.price."
        )
    if method in _NUMBERS and not (t.is_integer(dtype) or t.is_float(dtype)):
        raise failure_at(call, f"{call.name}(…) is of numbers, not of values of type {t.type_name(dtype)}.")


def _type_of(method: str, lists: pa.DataType, values: pa.DataType) -> pa.DataType:
    if method in {"allof", "anyof", "sequenceequal"}:
        return t.BOOLEAN
    if method == "countof":
        return t.INT
    if method in _NUMBERS:
        whole = t.LONG if values == t.LONG else t.INT
        return whole if method == "sumof" and t.is_integer(values) else t.DOUBLE
    if method in {"min", "max", "mostfrequent", "leastfrequent"}:
        return values
    if method in {"selectfrom", "arrayof"}:
        return pa.list_(values)
    return lists.value_type if method in {"firstof", "lastof", "minby", "maxby"} else lists
