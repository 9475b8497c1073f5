"""DeclaredExpression expressions: their bodies stand for their calls before anything is bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from gpu_ops.epl.column_names import column_name
from gpu_ops.epl.queries import SelectItem, Subquery
from gpu_ops.epl.statements import ExpressionDeclaration, Statement
from gpu_ops.texts import expressions as e
from gpu_ops.texts.placed_error import failure_at

_DEEPEST, _MOST = 100, 10_000

Change = Callable[[Any], Any]
T = TypeVar("T")


def rebuilt(node: T, change: Change) -> T:
    """A tree in which some nodes stand for others: the same object where nothing is changed.

    Args:
        node: A node, or a tuple of nodes.
        change: Gives another node for one, or None: then its parts are looked at.
    """
    if isinstance(node, tuple):
        parts = [rebuilt(each, change) for each in node]
        same = all(new is old for new, old in zip(parts, node, strict=True))
        return node if same else tuple(parts)  # type: ignore[return-value]
    if not isinstance(node, e.Syntax):
        return node
    other = change(node)
    if other is not None:
        return other  # type: ignore[no-any-return]
    found = {each.name: getattr(node, each.name) for each in fields(node) if each.name != "place"}
    changed = {name: new for name, old in found.items() if (new := rebuilt(old, change)) is not old}
    if not changed:
        return node
    if isinstance(node, SelectItem) and not node.alias and not isinstance(node.expression, Subquery):
        changed["alias"] = column_name(node.expression)  # a column is called as it is written
    return replace(node, **changed)  # type: ignore[type-var]


@dataclass(frozen=True)
class DeclaredExpression:
    """An expression that is declared.

    Attributes:
        declaration: What it says.
        text: The text that it stands in: errors in it are shown there, or else where it is called.
    """

    declaration: ExpressionDeclaration
    text: str


def inlined(statement: Statement, created: Mapping[str, DeclaredExpression], text: str) -> Statement:
    """A statement whose declared expressions are written out.

    Args:
        statement: The statement, with declarations of its own.
        created: The expressions that all statements know, by their names.
        text: The text that the statement stands in.

    Raises:
        PlacedError: One is called with too few values or too many, or calls itself.

    Examples:
        >>> from gpu_ops.epl import parse
        >>> text = "expression twice {x => x*2} select twice(amount) from Withdrawal"
        >>> str(inlined(parse(text)[0], {}, text).body)
        'select amount*2 as `twice(amount)` from Withdrawal'
    """
    known = dict(created)
    own: set[str] = set()
    for each in statement.declarations:
        if each.name in own:
            raise failure_at(each, f"There is an expression {each.name!r} already.", "Give this one another name.")
        own.add(each.name)
        known[each.name] = DeclaredExpression(each, text)
    if not known:
        return statement
    body = rebuilt(statement.body, _WrittenOut(known, text).change)
    return replace(statement, body=body, declarations=())


class _WrittenOut:
    """The calls of declared expressions in a statement.

    Args:
        known: The expressions.
        text: The text of the statement.
    """

    def __init__(self, known: Mapping[str, DeclaredExpression], text: str) -> None:
        self._known, self._text = known, text
        self._open: list[str] = []
        self._made = 0

    def change(self, node: Any) -> Any:
        """The body of an expression for its call; None for any other node."""
        if isinstance(node, e.FunctionCall) and node.of is None and node.name in self._known:
            found = self._known[node.name]
            if not found.declaration.alias:
                given = tuple(rebuilt(each, self.change) for each in node.arguments)
                return self._body(node, found, given)
        if isinstance(node, e.Name) and node.name in self._known:
            found = self._known[node.name]
            if found.declaration.alias or not isinstance(found.declaration.body, e.LambdaFunction):
                return self._body(node, found, ())
        return None

    def _body(self, call: e.FunctionCall | e.Name, found: DeclaredExpression, given: Sequence[Any]) -> Any:
        name, body = found.declaration.name, found.declaration.body
        if name in self._open:
            raise failure_at(call, f"The expression {name!r} calls itself.", "Write it without.")
        takes, inner = ((), body) if isinstance(body, e.Expression) else (body.parameters, body.body)
        if len(given) != len(takes):
            many = "no value" if not takes else f"{len(takes)} value{'s' * (len(takes) > 1)}"
            there = "is 1" if len(given) == 1 else f"are {len(given)}"
            raise failure_at(call, f"{name} takes {many}, and there {there}.")
        for each in given:
            if not isinstance(each, e.Expression):
                raise failure_at(call, f"'{each}' is no value.", f"{name} takes values and streams.")
        if found.text != self._text:
            inner = _placed(inner, call.place)
        self._open.append(name)
        # Values first: names in the bodies of other expressions are none of these parameters.
        made = rebuilt(_with_values(inner, dict(zip(takes, given, strict=True))), self.change)
        self._open.pop()
        self._made += _size(made, call)
        if self._made > _MOST:
            raise failure_at(call, f"The statement has more than {_MOST:,} parts with {name!r} written out.")
        return made


def _with_values(node: T, values: Mapping[str, Any]) -> T:
    """An expression with values for its parameters; a stream `*` is the only one, and its properties are names."""

    def change(part: Any) -> Any:
        if isinstance(part, e.Member) and isinstance(part.of, e.Name):
            value = values.get(part.of.name)
            if isinstance(value, e.Wildcard) and value.of is None:
                return e.Name(part.name, part.dynamic, place=part.place)
        if isinstance(part, e.Name):
            return values.get(part.name)
        if isinstance(part, e.LambdaFunction) and set(part.parameters) & set(values):
            rest = {name: value for name, value in values.items() if name not in part.parameters}
            return replace(part, body=_with_values(part.body, rest))
        return None

    return rebuilt(node, change) if values else node


def _placed(node: Any, place: e.TextPlace) -> Any:
    """A tree of another text, as if it stood at a place in this one."""
    if isinstance(node, tuple):
        return tuple(_placed(each, place) for each in node)
    if not isinstance(node, e.Syntax):
        return node
    parts = {each.name: _placed(getattr(node, each.name), place) for each in fields(node) if each.name != "place"}
    return replace(node, place=place, **parts)


def _size(node: Any, call: e.Expression) -> int:
    """How many parts a tree has."""
    waiting, count = [(node, 0)], 0
    while waiting:
        part, depth = waiting.pop()
        if isinstance(part, tuple):
            waiting.extend((each, depth) for each in part)
        elif isinstance(part, e.Syntax):
            if depth > _DEEPEST:
                raise failure_at(call, f"The expression is nested deeper than {_DEEPEST} times.")
            count += 1
            waiting.extend((getattr(part, each.name), depth + 1) for each in fields(part) if each.name != "place")
    return count
