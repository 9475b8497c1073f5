"""What Esper has a word for and is made of aggregates: its derived-value views, and rates by stamps.

A view of statistics is one row of aggregates over the window before it, for each group if there are several windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from tests.conformance.epl import Call, Expression, Item, Literal, Name, Operation, Star, Statement, View
from tests.conformance.unsupported import UnsupportedError


def as_aggregates(statement: Statement) -> Statement:
    """The same statement with plain aggregates in their place.

    Raises:
        UnsupportedError: It groups or aggregates a derived view's columns.
    """
    statement = _rewritten(statement, _rate)
    if not statement.views or statement.views[-1].name not in _COLUMNS:
        return statement
    *windows, view = statement.views
    if statement.levels is not None:
        raise UnsupportedError(f"EPL: no groups of #{view.name}")
    keys = next((window.arguments for window in windows if window.name == "groupwin"), None)
    columns = _columns(view) | {key.name: key for key in keys or () if isinstance(key, Name)}

    def column(part: Any) -> Any:
        if not isinstance(part, Name):
            return None
        if part.name not in columns:
            raise UnsupportedError(f"EPL: no column {part.name!r} of #{view.name}")
        return columns[part.name]

    def replaced(part: Any) -> Any:
        return _rewritten(part, column)

    items: list[Item] = []
    for item in statement.items:
        if isinstance(item.expression, Star):
            items += [Item(expression, name) for name, expression in columns.items()]
        else:
            items.append(Item(replaced(item.expression), item.name))
    conditions = [replaced(each) for each in (statement.where, statement.having) if each is not None]
    having = Operation("and", tuple(conditions)) if len(conditions) == 2 else next(iter(conditions), None)
    return replace(
        statement,
        items=tuple(items),
        views=tuple(windows),
        where=None,
        levels=None if keys is None else (keys,),
        having=having,
        order=tuple(replaced(key) for key in statement.order),
    )


def _rewritten(part: Any, rewrite: Callable[[Any], Any]) -> Any:
    """The same, with other expressions for those that ``rewrite`` gives one for."""
    made = rewrite(part)
    if made is not None:
        return made
    if isinstance(part, tuple):
        return tuple(_rewritten(inner, rewrite) for inner in part)
    if is_dataclass(part) and not isinstance(part, type):
        return type(part)(**{field.name: _rewritten(getattr(part, field.name), rewrite) for field in fields(part)})
    return part


def _rate(part: Any) -> Expression | None:
    """Of rate(stamp, quantity): what is in the window, by the time from the last event that left to the newest."""
    match part:
        case Call("rate", (Name() as stamp, *quantity), options, of=None):
            amount = Call("sum", (quantity[0],), options) if quantity else Call("count", (Star(),), options)
            span = Operation("-", (Call("lastever", (stamp,), options), Call("lastleft", (stamp,), options)))
            return Operation("/", (Operation("*", (amount, Literal(1000))), span))
    return None


def _columns(view: View) -> dict[str, Expression]:
    made = _COLUMNS[view.name]
    inputs = made["inputs"]
    if len(view.arguments) < inputs:
        raise UnsupportedError(f"EPL: no such parameter of #{view.name}")
    columns = dict(made["columns"](*view.arguments[:inputs]))
    for more in view.arguments[inputs:]:
        if not isinstance(more, Name):
            raise UnsupportedError(f"EPL: no such parameter of #{view.name}")
        columns[more.name] = Call("lastever", (more,))
    return columns


def _or(empty: float, name: str, *inputs: Expression) -> Expression:
    """An aggregate that says so where there is nothing."""
    return Call("coalesce", (Call(name, inputs), Literal(empty)))


def _double(expression: Expression) -> Expression:
    return Operation("*", (expression, Literal(1.0)))


def _uni(given: Expression) -> Mapping[str, Expression]:
    value = _double(given)
    return {
        "datapoints": Call("count", (given,)),
        "total": _or(0.0, "sum", value),
        "stddev": _or(math.nan, "stddev", value),
        "stddevpa": _or(math.nan, "stddevpa", value),
        "variance": _or(math.nan, "variance", value),
        "average": _or(math.nan, "avg", value),
    }


def _linest(first: Expression, second: Expression) -> Mapping[str, Expression]:
    x, y = _double(first), _double(second)
    counts = {name: Call("count", (first,)) for name in ("dataPoints", "n")}
    moments = {
        "Average": "avg",
        "StandardDeviationPop": "stddevpa",
        "StandardDeviationSample": "stddev",
        "Variance": "variance",
    }
    return {
        "slope": _or(math.nan, "slope", y, x),
        "YIntercept": _or(math.nan, "intercept", y, x),
        **{
            f"{side}{name}": _or(math.nan, call, v)
            for side, v in (("X", x), ("Y", y))
            for name, call in moments.items()
        },
        **{f"{side}Sum": _or(0.0, "sum", v) for side, v in (("X", x), ("Y", y))},
        **counts,
        "sumX": _or(0.0, "sum", x),
        "sumXSq": _or(0.0, "sum", Operation("*", (x, x))),
        "sumXY": _or(0.0, "sum", Operation("*", (x, y))),
        "sumY": _or(0.0, "sum", y),
        "sumYSq": _or(0.0, "sum", Operation("*", (y, y))),
    }


_COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "size": {"inputs": 0, "columns": lambda: {"size": Call("count", (Star(),))}},
    "uni": {"inputs": 1, "columns": _uni},
    "correl": {
        "inputs": 2,
        "columns": lambda x, y: {"correlation": _or(math.nan, "correlation", _double(x), _double(y))},
    },
    "linest": {"inputs": 2, "columns": _linest},
    "weighted_avg": {
        "inputs": 2,
        "columns": lambda x, weight: {"average": _or(math.nan, "weighted_avg", _double(x), _double(weight))},
    },
}
"""What each view's columns are; more parameters of a view are columns of the last event."""
