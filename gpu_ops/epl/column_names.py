"""What the columns of a select clause are called."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpu_ops.epl.queries import SelectItem, Subquery
from gpu_ops.texts.expressions import Syntax, Wildcard
from gpu_ops.texts.placed_error import failure_at

_TICKS = re.compile(r"'(?:[^'\\]|\\.)*'|`", re.DOTALL)


def column_name(node: Syntax) -> str:
    """What Esper calls the column of an expression that has no name: its text, without spaces.

    Examples:
        >>> from gpu_ops.epl import parse
        >>> (statement,) = parse("select window(price), sum( price ) * 2, s.`order` from T as s")
        >>> [column_name(item.expression) for item in statement.body.items]
        ['window(price)', 'sum(price)*2', 's.order']
    """
    return _TICKS.sub(lambda found: "" if found[0] == "`" else found[0], str(node))


def column_names(items: Sequence[SelectItem]) -> list[str | None]:
    """The names of the columns of a select clause; None for a wildcard, whose columns are those of its streams.

    Raises:
        PlacedError: Two columns have one name.

    Examples:
        >>> from gpu_ops.epl import parse
        >>> (statement,) = parse("select account, sum(amount) as total, count(*), * from Withdrawal")
        >>> column_names(statement.body.items)
        ['account', 'total', 'count(*)', None]
    """
    names: list[str | None] = []
    queries = 0
    for item in items:
        queries += isinstance(item.expression, Subquery)
        name = item.alias or _name(item.expression, queries)
        if name is not None and name in names:
            raise failure_at(item, f"Two columns are called {name!r}.", "Name one of them: ... as another")
        names.append(name)
    return names


def _name(node: Syntax, number: int) -> str | None:
    """A sub-query's column is called as its own is, or by the number of the sub-query."""
    if isinstance(node, Wildcard):
        return None
    if not isinstance(node, Subquery):
        return column_name(node)
    (first, *more) = node.query.items
    own = None if more else first.alias or _name(first.expression, number)
    return own or f"subselect_{number}"
