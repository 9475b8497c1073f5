"""Aggregates by the user's own functions; `gpu_ops.operators.aggregates.user_functions` calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.arguments import flag
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.plan.aggregates import Aggregate, aggregate
from gpu_ops.plan.expressions import Expression, bare_column
from gpu_ops.plan.ordered_aggregates import END, START, listed


def incremental(
    *,
    zero: Any,
    add: Callable[..., Any],
    remove: Callable[..., Any],
    result: Callable[[Any], Any],
    returns: pa.DataType,
    of: Expression | Sequence[Expression] = (),
    where: Expression | None = None,
) -> Aggregate:
    """An aggregate of your own from four functions, called as events enter and leave (Trill's user aggregates).

    The state is ``zero`` whenever a window is empty. Events are added in order of their start, then of their values; at
    each time, events that leave are removed before events that enter are added. A state that depends on events that
    have left, as a sum of floats does, may depend on how a running query is fed: keep the state exact.

    Args:
        zero: A function without arguments that returns the first state; or that state, if nothing changes it in place.
        add: From the state and an event's values to the next state.
        remove: The inverse of ``add``.
        result: From the state to the result.
        returns: The result's Arrow type.
        of: Columns' names or expressions: the arguments of ``add`` and ``remove`` after the state; null is None.
        where: Only events for which this condition holds; if there is none, the result is null.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> tasks = pa.table({"a": [0, 2], "b": [5, 9], "cores": [3, 4]})
        >>> odd = g.incremental(
        ...     zero=0, add=lambda s, v: s ^ v, remove=lambda s, v: s ^ v, result=int, returns=pa.int64(), of="cores"
        ... )
        >>> g.events(tasks, start="a", end="b", unit="s").snapshot().agg(x=odd).collect()["x"].to_pylist()
        [3, 7, 4]
    """
    functions = {"add": add, "remove": remove, "result": result}
    for name, function in functions.items():
        _check_function("incremental", name, function)
    _check_type("incremental", returns)
    columns = listed(of, "incremental(…, of=…)")
    options = {"zero": zero, **functions, "returns": returns, "columns": _names(columns)}
    return _over_rows("incremental", (*columns, START), options, where)


def window_function(
    function: Callable[..., Any],
    *,
    returns: pa.DataType,
    of: Expression | Sequence[Expression],
    time_sensitive: bool = False,
    clip: bool = False,
    where: Expression | None = None,
) -> Aggregate:
    """An aggregate of your own from a function of the window's events as an Arrow table (StreamInsight: a UDA).

    Rows are in order of their start, then of their values. The function is called once for each stretch of time in
    which the window holds the same events, and must return the same result for the same table.

    Args:
        function: From a table with the columns of ``of`` to the result, a Python value; None is null.
        returns: The result's Arrow type.
        of: Columns' names or expressions. An expression's column has its output name (``.alias``).
        time_sensitive: Whether the table also has the columns ``start`` and ``end``, and the function is called with
            ``(table, start, end)``, where start and end are the window's bounds as datetimes in UTC. It is then called
            for each window.
        clip: Whether these columns are clipped to the window.
        where: Only events for which this condition holds; if there is none, the result is null.

    Raises:
        FunctionError: (when data is read) The function failed; it names the window.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa, pyarrow.compute as pc
        >>> bids = pa.table({"at": pa.array([0, 1, 2], pa.timestamp("s", "UTC")), "price": [9, 1, 4]})
        >>> spread = g.window_function(
        ...     lambda t: max(t["price"].to_pylist()) - min(t["price"].to_pylist()), returns=pa.int64(), of="price"
        ... )
        >>> g.events(bids, start="at").tumbling("1min").agg(spread=spread).collect()["spread"].to_pylist()
        [8]
    """
    _check_type("window_function", returns)
    columns = listed(of, "window_function(…, of=…)")
    options = _table_options("window_function", function, returns, _names(columns), time_sensitive, clip)
    return _over_rows("window_function", (*columns, START, END), options, where)


def table_function(
    function: Callable[..., Any], schema: pa.Schema, names: Sequence[str], *, time_sensitive: bool, clip: bool
) -> Aggregate:
    """The rows that a function makes of each window, as a list of structs: `Windowed.apply` uses it."""
    options = _table_options("apply", function, schema, tuple(names), time_sensitive, clip)
    return _over_rows("table_function", (*map(nw.col, names), START, END), options)


def _table_options(verb: str, function: object, returns: object, columns: object, bounds: bool, clip: bool) -> Any:  # noqa: FBT001  (as the user gave them)
    """The options of a function of the window's events as a table."""
    _check_function(verb, "function", function)
    bounds, clip = flag(bounds, name="time_sensitive"), flag(clip, name="clip")
    return {"function": function, "returns": returns, "columns": columns, "bounds": bounds, "clip": clip}


def _over_rows(
    kind: str, read: tuple[nw.Expr, ...], options: dict[str, Any], where: Expression | None = None
) -> Aggregate:
    return replace(aggregate(kind, where=where, options=options), others=read)


def _names(columns: Sequence[nw.Expr]) -> tuple[str, ...]:
    names = tuple(_output_name(each, at) for at, each in enumerate(columns))
    twice = [name for at, name in enumerate(names) if name in names[:at]]
    if twice:
        raise ColumnError("The function would see two columns of one name.", column=twice[0], remedy="Use .alias(…).")
    return names


def _output_name(expression: nw.Expr, at: int) -> str:
    name = bare_column(expression)
    if name is not None:
        return name
    last = expression._nodes[-1]  # noqa: SLF001
    return str(last.kwargs["name"]).removeprefix("__") if last.name == "alias" else f"column_{at}"


def _check_function(verb: str, name: str, function: object) -> None:
    if not callable(function):
        raise PlanError(f"{verb}({name}=…) takes a function, not {type(function).__name__}.", remedy="Hand in a def.")


def _check_type(verb: str, returns: object) -> None:
    if not isinstance(returns, pa.DataType):
        raise PlanError(
            f"{verb}(returns=…) takes an Arrow type, not {type(returns).__name__}.", remedy="Write pa.float64()."
        )
