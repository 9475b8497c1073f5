"""What the columns of a select clause are called."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpu_ops.epl.expressions import Syntax, Wildcard
from gpu_ops.epl.placed_error import failure_at
from gpu_ops.epl.queries import SelectItem

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
    for item in items:
        wildcard = isinstance(item.expression, Wildcard)
        name = item.alias or (None if wildcard else column_name(item.expression))
        if name is not None and name in names:
            raise failure_at(item, f"Two columns are called {name!r}.", "Name one of them: ... as another")
        names.append(name)
    return names
