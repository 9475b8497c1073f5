"""An expression as a tree of typed terms: the function, the operands and the type of each part.

Beside `gpu_ops.plan.expressions` it is the only module that touches Narwhals' inner nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import narwhals as nw
import polars as pl

from gpu_ops.plan.expression_types import Part, narwhals_type, part_of, settled_type
from gpu_ops.plan.forms import own_name, remade

SCALES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_DAY = 86_400 * 10**9


class Range(NamedTuple):
    """The whole numbers from ``low`` to ``high``, inclusive."""

    low: int
    high: int

    def within(self, other: Range) -> bool:
        """Whether another range contains it."""
        return other.low <= self.low and self.high <= other.high

    def clipped(self, other: Range) -> Range:
        """The part of it in another range; the other's nearest number if they are disjoint."""
        return Range(*(min(max(each, other.low), other.high) for each in self))


HIGHEST_EXPONENT = (1 << 31) - 1
INT64 = Range(-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True, eq=False)
class Term:
    """A part of an expression, with the parts that it is computed from.

    Attributes:
        name: Narwhals' name of the function; ``"col"`` and ``"lit"`` for columns and literals.
        value: The expression. A cast or a power gives null where it would fail for a value that does not fit.
        terms: The operands, in the order of the function without ``r``: for ``7 - v`` first 7.
        dtype: The type of the value.
        options: The function's other arguments; a column's ``name``, a literal's ``value``.
    """

    name: str
    value: nw.Expr
    terms: tuple[Term, ...]
    dtype: Any
    options: dict[str, Any]

    @cached_property
    def holds(self) -> Range | None:
        """The range of its type, for whole numbers, times and durations; None for other types."""
        return holds(self.dtype)

    @cached_property
    def scale(self) -> int | None:
        """The nanoseconds of one tick, for times, dates and durations; None for plain numbers."""
        if self.dtype is not None and self.dtype == nw.Date:
            return _DAY
        return SCALES[self.dtype.time_unit] if isinstance(self.dtype, nw.Datetime | nw.Duration) else None

    @cached_property
    def literal(self) -> int | None:
        """Its whole number, if it is a literal."""
        value = self.options.get("value") if self.name == "lit" else None
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def number(self) -> nw.Expr:
        """Its value as a plain number: ticks of times and durations, days of dates."""
        if isinstance(self.dtype, nw.Datetime):
            return self.value.dt.timestamp(self.dtype.time_unit)
        if isinstance(self.dtype, nw.Duration):
            names = {"ns": "total_nanoseconds", "us": "total_microseconds", "ms": "total_milliseconds"}
            made: nw.Expr = getattr(self.value.dt, names[self.dtype.time_unit])()
            return made
        return self.value.cast(nw.Int32) if self.dtype == nw.Date else self.value

    def meaning(self, value: nw.Expr) -> Term:
        """The same term with another expression for its value."""
        return replace(self, value=value)

    def walk(self) -> Iterator[Term]:
        """The term and all terms below it, each once."""
        seen: set[Term] = set()
        waiting = [self]
        while waiting:
            term = waiting.pop()
            if term not in seen:
                seen.add(term)
                yield term
                waiting += reversed(term.terms)


Rule = Callable[[Term], Term]


def holds(dtype: Any) -> Range | None:
    """The range of a type of whole numbers, times or durations; None for other types."""
    if dtype is None:
        return None
    if dtype == nw.Boolean:
        return Range(0, 1)
    if dtype == nw.Date:
        return Range(-(1 << 31), (1 << 31) - 1)
    if isinstance(dtype, nw.Datetime | nw.Duration):
        return INT64
    if not dtype.is_integer():
        return None
    name = str(dtype)
    bits = int(name.lstrip("UInt"))
    return Range(0, (1 << bits) - 1) if name.startswith("U") else Range(-(1 << bits - 1), (1 << bits - 1) - 1)


def is_float(dtype: Any) -> bool:
    """Whether a type is a float."""
    return dtype is not None and bool(dtype.is_float())


def terms(expression: nw.Expr, frame: Any, rule: Rule | None = None) -> dict[str, Term]:
    """The terms of an expression, by the names of its columns.

    Args:
        expression: One that acts on each row by itself.
        frame: A Narwhals frame with the columns that it reads.
        rule: From each part to its replacement; by default, null replaces values for which Polars would fail.

    Examples:
        >>> import polars as pl
        >>> frame = nw.from_native(pl.DataFrame({"v": [1]}))
        >>> (made,) = terms(7 - nw.col("v"), frame).values()
        >>> made.name, [each.name for each in made.terms], str(made.dtype)
        ('__sub__', ['lit', 'col'], 'Int64')
    """
    made = _Terms(frame, rule or _tolerant)
    return {_name(each, frame): made.of(each) for each in _alone(expression, frame)}


def as_it_is(term: Term) -> Term:
    """The rule that changes nothing."""
    return term


def renamed(expression: nw.Expr, names: Mapping[str, str]) -> nw.Expr:
    """The same expression over columns that are called otherwise.

    Args:
        expression: It names its columns one by one.
        names: The new name of each column; columns that are not there keep their names.

    Examples:
        >>> renamed(nw.col("a.v") + nw.col("v"), {"a.v": "w"})
        col(w).__add__(col(v))
    """
    nodes = []
    for node in expression._nodes:  # noqa: SLF001
        kind = type(node)
        if node.kind.name == "COL":
            new = tuple(names.get(each, each) for each in node.kwargs["names"])
            nodes.append(kind(node.kind, node.name, **{**node.kwargs, "names": new}))
        elif node.exprs:
            nodes.append(
                remade(node, [renamed(each, names) if isinstance(each, nw.Expr) else each for each in node.exprs])
            )
        else:
            nodes.append(node)
    return nw.Expr(*nodes)


def _name(expression: nw.Expr, frame: Any) -> str:
    """The name of an expression's column."""
    known = own_name(expression)
    return str(frame.select(expression).columns[0]) if known is None else known


def unnamed(expression: nw.Expr) -> nw.Expr:
    """An expression without its last alias."""
    *before, last = expression._nodes  # noqa: SLF001
    return nw.Expr(*before) if last.name == "alias" and before else expression


def _alone(expression: nw.Expr, frame: Any) -> list[nw.Expr]:
    """An expression of several columns as an expression for each."""
    first, *rest = expression._nodes  # noqa: SLF001  (see the module's docstring)
    if first.kind.name == "COL" and len(first.kwargs["names"]) == 1:
        return [expression]
    if first.kind.name in {"COL", "NTH", "EXCLUDE", "ALL", "SELECTOR"}:
        names = frame.select(nw.Expr(first)).columns
        if len(names) > 1 or first.kind.name != "COL":
            return [nw.Expr(*nw.col(name)._nodes, *rest) for name in names]  # noqa: SLF001
    if first.name == "when_then":
        condition, value, *otherwise = first.exprs
        values = _alone(value, frame) if isinstance(value, nw.Expr) else [value]
        if len(values) > 1:
            return [nw.Expr(remade(first, [condition, each, *otherwise]), *rest) for each in values]
    return [expression]


_REVERSED = {"__rsub__", "__rfloordiv__", "__rmod__", "__rpow__", "__rtruediv__", "__radd__", "__rmul__"}


class _Terms:
    """Makes terms: each part of an expression once, however often it stands there.

    `min(min(a, b), c)` of several values has parts that stand in it two and three times; parts of parts stand there
    nine times, and so on.
    """

    def __init__(self, frame: Any, rule: Rule) -> None:
        self._frame, self._rule = frame, rule
        self._types: dict[str, pl.DataType] = dict(frame.to_native().schema)
        self._made: dict[tuple[int, ...], tuple[Any, Term, Part]] = {}

    def of(self, expression: nw.Expr) -> Term:
        return self._of(expression)[0]

    def _of(self, expression: nw.Expr) -> tuple[Term, Part]:
        """A term, and what is known of its type."""
        nodes = expression._nodes  # noqa: SLF001
        made: tuple[Term, Part] | None = None
        for at, node in enumerate(nodes):
            key = tuple(map(id, nodes[: at + 1]))
            if key not in self._made:
                self._made[key] = nodes, *self._step(made, node)  # while the nodes are held, no address is reused
            made = self._made[key][1:]
        assert made is not None  # noqa: S101  (an expression has a node)
        return made

    def _step(self, before: tuple[Term, Part] | None, node: Any) -> tuple[Term, Part]:
        taken = [each for given in node.exprs for each in _operands(given, node, self._frame)]
        below, operands = [] if before is None else [before], [*map(self._of, taken)]
        step = remade(node, [each.value for each, _ in operands]) if operands else node
        value = nw.Expr(step) if before is None else nw.Expr(*before[0].value._nodes, step)  # noqa: SLF001
        options = dict(node.kwargs)
        if node.kind.name == "COL":
            (options["name"],) = node.kwargs["names"]
        part = part_of(node, [each for _, each in (*below, *operands)], taken, self._types)
        name = node.name
        if name in _REVERSED:
            name, below, operands = f"__{name[3:]}", operands, below
        given = tuple(each for each, _ in (*below, *operands))
        return self._rule(Term(name, value, given, self._type(node, part, value), options)), part

    def _type(self, node: Any, part: Part, value: nw.Expr) -> Any:
        if node.name == "lit" and node.kwargs["dtype"] is None and type(node.kwargs["value"]) is int:
            return nw.Int64()
        known = settled_type(part)
        return self._frame.select(__value=value).schema["__value"] if known is None else narwhals_type(known)


def _operands(given: Any, node: Any, frame: Any) -> list[nw.Expr]:
    if isinstance(given, nw.Expr):
        return _alone(given, frame)
    return [nw.col(given) if isinstance(given, str) and not node.str_as_lit else nw.lit(given)]


def _tolerant(term: Term) -> Term:
    """A term that gives null where Polars would fail; `gpu_ops.plan.integers` finds those rows."""
    own = term.holds
    if term.name == "cast" and own is not None and term.dtype != nw.Boolean:
        (given,) = term.terms
        test = None
        if is_float(given.dtype):
            test = truncates(given.value, own)
        elif given.holds is not None and given.scale is not None and term.scale is not None:
            factor = max(given.scale // term.scale, 1)
            test = given.number.is_between(-(-own.low // factor), own.high // factor)
        elif given.holds is not None and not given.holds.within(own):
            fits = own.clipped(given.holds)
            test = given.number.is_between(fits.low, fits.high)
        if test is not None:
            value = nw.when(test).then(given.value).cast(term.options["dtype"])
            return term.meaning(value)
    if term.name == "__pow__" and own is not None:
        base, exponent = term.terms
        if exponent.holds is not None:
            taken = nw.when(exponent.value.is_between(0, HIGHEST_EXPONENT)).then(exponent.value)
            return term.meaning(base.value**taken)
    return term


def truncates(value: nw.Expr, own: Range) -> nw.Expr:
    """Whether a float without its fraction is in a range; NaN is not."""
    # A float holds no number just below -(2**63).
    low, closed = (own.low, "left") if own.low < -(1 << 53) else (own.low - 1, "none")
    return value.is_between(float(low), float(own.high + 1), closed=closed)  # type: ignore[arg-type]
