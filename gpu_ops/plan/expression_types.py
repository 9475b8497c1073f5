"""The types that expressions give, function by function.

What Narwhals says of a function holds for all operands of the same types. To ask it for each expression anew costs more
than all else of planning one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import narwhals as nw
import polars as pl

from gpu_ops.plan.forms import once_for_each_form, own_name, remade

_LOOSE = (int, float, type(None))
_WIDTHS = (7, 8, 15, 16, 31, 32, 63, 64)


def type_of(expression: nw.Expr, types: Mapping[str, pl.DataType]) -> pl.DataType | None:
    """The type that a row-wise expression of one column gives; None where it has to be asked as a whole.

    So it is if it fits no types, and where the type of a constant depends on more than the function that takes it, as
    in ``(lit(1) + 1) * col("v")``.

    Args:
        expression: The expression.
        types: The type of each column that it may read.

    Examples:
        >>> type_of((nw.col("v") * 2 + 1) / 3, {"v": pl.Int64()}), type_of(nw.col("v") + "a", {"v": pl.Int64()})
        (Float64, None)
    """
    return settled_type(_part(expression, types, {}))


Part = pl.DataType | nw.Expr | None
"""What is known of a part: its type; a constant like it, whose type may depend on what takes it; or None."""


def settled_type(part: Part) -> pl.DataType | None:
    """The type of a part that nothing else takes."""
    return _asked(part, ()) if isinstance(part, nw.Expr) else part


_Known = dict[tuple[int, ...], tuple[Any, Part]]
"""What is known of the parts of an expression by the addresses of their nodes, which it holds."""


def _part(expression: nw.Expr, types: Mapping[str, pl.DataType], known: _Known) -> Part:
    """Each part is looked at once, however often it stands in the expression."""
    made: Part = None
    nodes = expression._nodes  # noqa: SLF001  (see `gpu_ops.plan.expressions`)
    for at, node in enumerate(nodes):
        key = tuple(map(id, nodes[: at + 1]))
        if key not in known:
            taken = [_operand(each, node) for each in node.exprs]
            given = ([made] if at else []) + [_part(each, types, known) for each in taken]
            known[key] = nodes, part_of(node, given, taken, types)
        made = known[key][1]
        if made is None:
            return None
    return made


def part_of(node: Any, given: Sequence[Part], taken: Sequence[nw.Expr], types: Mapping[str, pl.DataType]) -> Part:
    """What is known of a function of parts.

    Args:
        node: Narwhals' node of the function.
        given: The parts: what stands before the node, if anything does, and those of its operands.
        taken: Its operands.
        types: The type of each column that may be read.
    """
    if node.kind.name == "COL":
        return types.get(node.kwargs["names"][0]) if len(node.kwargs["names"]) == 1 else None
    if node.name == "lit":
        return _constant(node.kwargs["value"], node.kwargs["dtype"])
    if node.name == "alias" or node.name.startswith("name."):
        return given[0]
    # The fields of a record are called as its operands.
    names = map(own_name, taken) if node.name == "struct" else map(str, range(len(given)))
    return _called(node, dict(zip(names, given, strict=True)), chained=len(given) > len(taken))


@lru_cache(maxsize=256)
def narwhals_type(dtype: pl.DataType) -> nw.dtypes.DType:
    """Narwhals' type for one of Polars."""
    return nw.from_native(pl.Series(dtype=dtype), series_only=True).dtype


def _operand(given: Any, node: Any) -> nw.Expr:
    if isinstance(given, nw.Expr):
        return given
    return nw.col(given) if isinstance(given, str) and not node.str_as_lit else nw.lit(given)


def _constant(value: Any, dtype: Any) -> nw.Expr:
    """A constant like another one: functions give the same types of both."""
    alike = dtype is None or isinstance(value, int) or nw.Float64 == dtype
    return nw.lit(_like(value) if alike else value, dtype)


def _has_type(part: pl.DataType | nw.Expr) -> bool:
    """Whether its type depends on nothing else: that of a constant number may depend on what takes it."""
    if not isinstance(part, nw.Expr):
        return True
    said = part._nodes[0].kwargs  # noqa: SLF001
    return said["dtype"] is not None or isinstance(said["value"], bool) or not isinstance(said["value"], _LOOSE)


def _like(value: Any) -> Any:
    """A number that fits the same types as another one, the same for all of these."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if isinstance(value, float):
        return 0.5
    bound = next((1 << width for width in _WIDTHS if -(1 << width) <= value < 1 << width), None)
    if bound is None:
        return value
    return bound - 1 if value >= 0 else -bound


def _called(node: Any, given: dict[str | None, Any], *, chained: bool) -> pl.DataType | None:
    """What a function gives of operands of some types."""
    parts = [*given.values()]
    if None in given or any(each is None for each in parts) or len(parts) < len(node.exprs) + chained:
        return None
    # What is computed of constants alone is one in turn; so may be what chooses one of them, and a field that is one.
    is_constant = all(isinstance(each, nw.Expr) for each in parts)
    has_type = map(_has_type, parts[int(node.name == "when_then") :])
    if is_constant or not (all(has_type) if node.name == "struct" else any(has_type)):
        return None
    first, *others = (
        (each.alias(str(name)) if node.name == "struct" else each) if isinstance(each, nw.Expr) else nw.col(str(name))
        for name, each in given.items()
    )
    # Functions that begin an expression have all operands alike, others stand behind the first.
    nodes = (*first._nodes, remade(node, others)) if chained else (remade(node, [first, *others]),)  # noqa: SLF001
    return _asked(nw.Expr(*nodes), tuple((name, each) for name, each in given.items() if not isinstance(each, nw.Expr)))


@once_for_each_form
def _asked(expression: nw.Expr, types: tuple[tuple[str, pl.DataType], ...]) -> pl.DataType | None:
    frame = nw.from_native(pl.DataFrame(schema=dict(types)))
    try:
        (made,) = frame.select(made=expression).to_native().dtypes
        # Of a number and a text, Polars plans another type than it makes.
        (planned,) = frame.lazy().select(made=expression).to_native().collect_schema().dtypes()
    except (Exception, pl.exceptions.PanicException):  # noqa: BLE001  (whoever asks it as a whole says what is wrong)
        return None
    return made if made == planned else None
