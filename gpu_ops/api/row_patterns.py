"""Row patterns by verbs: rows with conditions, put together by operators, and the values of the rows of a match."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.arguments import flag, whole, word
from gpu_ops.core.own_errors import of_methods, own_errors
from gpu_ops.core.time import Duration, positive_ticks
from gpu_ops.core.turns import CLOCK, PLACE, SINCE, UNTIL
from gpu_ops.errors import ColumnError, PlanError, shown, unknown_column
from gpu_ops.plan.aggregates import Aggregate, count
from gpu_ops.plan.aggregates import sum as sum_of
from gpu_ops.plan.clock_windows import ClockSpan
from gpu_ops.plan.expressions import Expression, as_expression, columns_named, names_read
from gpu_ops.plan.nodes import Node, Project, extended
from gpu_ops.plan.questions import aggregated_rows
from gpu_ops.plan.row_conditions import RowConditions
from gpu_ops.plan.row_matches import ChosenRow, OverRows, Register, RowMatches, VariableRule
from gpu_ops.plan.row_patterns import (
    EitherRows,
    OneRow,
    OrderedRows,
    PermutedRows,
    RepeatedRows,
    RowPattern,
    Skip,
    variables_of,
)

_NAME = re.compile(r"[^\W\d]\w*")
_REGISTER = "register."
_SPECIAL = re.compile(
    r"(?:(?P<function>sum|count)\()?(?P<of>[^\W\d]\w*)(?:\[(?P<index>\d+)\])?(?:\.(?P<column>.+?))?(?(function)\))",
    re.DOTALL,
)
"""What the values of a pattern's rows are called as columns."""

_MOST = (1 << 63) - 1


@of_methods
@dataclass(frozen=True, eq=False)
class RowTerm:
    """A pattern of rows: one behind the other by ``+``, one of two by ``|``, and again by `repeat`.

    Attributes:
        pattern: The pattern.
        rows: The rows that stand in it, by their names.
    """

    pattern: RowPattern = field(repr=False)
    rows: Mapping[str, PatternRow] = field(repr=False, default_factory=dict)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.pattern}>"

    def __add__(self, other: RowTerm) -> RowTerm:
        return _together(OrderedRows, self, other)

    def __or__(self, other: RowTerm) -> RowTerm:
        return _together(EitherRows, self, other)

    def repeat(self, at_least: int = 1, at_most: int | None = None, *, greedy: bool = True) -> RowTerm:
        """The same again: so many times, and with as many rows as possible, or with as few.

        Args:
            at_least: How often at least.
            at_most: How often at most; None for any number of times.
            greedy: Whether a match with more rows here is the better one.

        Raises:
            PlanError: The numbers make no sense.

        Examples:
            >>> import gpu_ops as g
            >>> g.row("low") + g.row("high").repeat()
            <RowTerm low high+>
        """
        low = whole(at_least, name="at_least", least=0)
        high = None if at_most is None else whole(at_most, name="at_most")
        return RowTerm(RepeatedRows(self.pattern, low, high, flag(greedy, name="greedy")), self.rows)

    def optional(self, *, greedy: bool = True) -> RowTerm:
        """The same once, or not at all."""
        return self.repeat(0, 1, greedy=greedy)

    def agg(self, aggregate: Aggregate) -> RowAggregate:
        """Any aggregate over all of its rows, as a measure: ``low.agg(g.mean("price"))``, ``(low + high).agg(…)``.

        Rows that other parts of the pattern have under the same names belong to them.
        """
        return RowAggregate(variables_of(self.pattern), aggregate)


@of_methods
@dataclass(frozen=True, eq=False, repr=False)
class PatternRow(RowTerm):
    """A row of a pattern, and in conditions and measures the values of the rows that it stands for: `row` makes it.

    Attributes:
        name: Its name.
        where: The condition that it fulfils; None for every row.
        sets: What it changes registers to, by their names.
    """

    name: str = ""
    where: nw.Expr | None = None
    sets: Mapping[str, nw.Expr] = field(default_factory=dict)

    def __getitem__(self, column: str) -> nw.Expr:
        """A value of the last of its rows."""
        return self.nth(column, -1)

    def nth(self, column: str, n: int) -> nw.Expr:
        """A value of its n-th row, from 0 on; of its last one with -1. Null where a match has no such row."""
        at = whole(n, name="n", least=-1)
        return nw.col(f"{self.name}.{column}" if at < 0 else f"{self.name}[{at}].{column}")

    def sum(self, column: str) -> nw.Expr:
        """The sum of a column over its rows; null where it has none."""
        return nw.col(f"sum({self.name}.{column})")

    def count(self) -> nw.Expr:
        """How many rows it has."""
        return nw.col(f"count({self.name})")


@dataclass(frozen=True)
class RowAggregate:
    """An aggregate over the rows of some variables."""

    rows: tuple[str, ...]
    aggregate: Aggregate


@own_errors
def row(name: str, where: Expression | None = None, *, sets: Mapping[str, Expression] | None = None) -> PatternRow:
    """A row of a pattern, for `ArrivalStream.match` (Esper, SQL: a variable of match_recognize).

    Args:
        name: Its name.
        where: The condition that it fulfils. ``g.col("price")`` is the row itself, ``g.previous("price")`` the row
            before it, ``low["price"]`` the last row that ``low`` stands for by then.
        sets: What it changes registers of the match to, by their names, as ``{"depth": g.register("depth") + 1}``. All
            are computed of what the registers were before.

    Raises:
        PlanError: The name is none, or the condition or a change is no expression.

    Examples:
        >>> import gpu_ops as g
        >>> high = g.row("high")
        >>> falls = g.row("falls", g.col("price") < g.previous("price"))
        >>> high + falls.repeat() + g.row("back", g.col("price") > high["price"])
        <RowTerm high falls+ back>
    """
    if not _NAME.fullmatch(str(name)) or name in {"sum", "count", "previous", "register"}:
        raise PlanError(f"A row of a pattern is called {shown(name)}.", remedy='Give it a name: g.row("low").')
    condition = None if where is None else as_expression(where, where="row")
    changes = {each: as_expression(value, where="sets=") for each, value in (sets or {}).items()}
    made = PatternRow(OneRow(name), {}, name, condition, changes)
    return replace(made, rows={name: made})


@own_errors
def previous(column: str, back: int = 1) -> nw.Expr:
    """In the condition of a pattern's row: a value of the row before it in its partition, or of one further back.

    Examples:
        >>> import gpu_ops as g
        >>> g.row("falls", g.col("price") < g.previous("price"))
        <PatternRow falls>
    """
    return nw.col(f"previous[{whole(back, name='back')}].{column}")


@own_errors
def register(name: str) -> nw.Expr:
    """A number that a match carries from row to row: in conditions and changes what it is before the row that comes.

    `ArrivalStream.match` says what it begins with, rows change it (``sets=``), and measures read what it is in the end
    (Trill: the register of an automaton).

    Examples:
        >>> import gpu_ops as g
        >>> depth = g.register("depth")
        >>> g.row("opens", g.col("kind") == "(", sets={"depth": depth + 1}).repeat() + g.row(
        ...     "closes", (g.col("kind") == ")") & (depth == 1)
        ... )
        <RowTerm opens+ closes>
    """
    if not _NAME.fullmatch(str(name)):
        raise PlanError(f"A register is called {shown(name)}.", remedy='Give it a name: g.register("depth").')
    return nw.col(_REGISTER + name)


@own_errors
def any_order(*terms: RowTerm) -> RowTerm:
    """All of some patterns, one behind the other in any order (Esper: match_recognize_permute).

    Examples:
        >>> import gpu_ops as g
        >>> g.any_order(g.row("a"), g.row("b"))
        <RowTerm permute(a, b)>
    """
    return _together(PermutedRows, *terms)


def _together(kind: Any, *terms: RowTerm) -> RowTerm:
    rows: dict[str, PatternRow] = {}
    parts: list[RowPattern] = []
    for each in terms:
        if not isinstance(each, RowTerm):
            raise PlanError(f"A row pattern has no part {shown(each)}.", remedy='Make it of rows: g.row("low").')
        for name, made in each.rows.items():
            known = rows.setdefault(name, made)
            if known.where is not made.where or known.sets is not made.sets:
                raise PlanError(f"Two rows of the pattern are called {name!r}.", remedy="Give one another name.")
        # Parts that are written one behind the other are one part.
        parts += (
            each.pattern.items if kind is OrderedRows and isinstance(each.pattern, OrderedRows) else (each.pattern,)
        )
    return RowTerm(kind(tuple(parts)), rows)


def matches(
    rows: Node,
    ticks: Node,
    partition: tuple[str, ...],
    term: RowTerm,
    measures: Mapping[str, Expression | RowAggregate],
    *,
    skip: Skip,
    every: bool,
    interval: Duration | None,
    or_terminated: bool,
    registers: Mapping[str, float],
    windowed: bool,
    most: int,
) -> Node:
    """The matches of a pattern, as arrivals with the columns of partitions and the measures.

    Raises:
        ColumnError: A column is unknown, or a measure has the name of a partition's column.
        PlanError: A condition is none, a measure is of no row of the pattern, or an option makes no sense.
    """
    if not isinstance(term, RowTerm):
        raise PlanError(f"match takes a pattern, not {shown(term)}.", remedy='Make one: g.row("a") + g.row("b").')
    pattern, names = term.pattern, variables_of(term.pattern)
    below = RowConditions(rows.schema)
    carried = tuple(_register(name, begins) for name, begins in registers.items())
    known = {each.name: below.register(at, each) for at, each in enumerate(carried)}
    rules = tuple(_rule(term.rows[name], below, names, carried) for name in names)
    if not measures:
        raise PlanError("match has no measures.", remedy='Say what is told of a match: {"low": low["price"]}.')
    chosen: dict[str, ChosenRow] = {}
    over: dict[str, OverRows] = {}
    shown_columns: list[nw.Expr] = []
    below_rows = below.over(rows, partition)
    for name, given in measures.items():
        if name in partition or name.startswith("@"):
            raise ColumnError("A measure has a name of its own.", column=name, remedy="Give it another name.")
        if isinstance(given, RowAggregate):
            for each in given.rows:
                _known_row(each, names)
            made, _, parts = aggregated_rows(below_rows, {name: given.aggregate})
            if made is not below_rows or len(parts) != 1:
                raise PlanError(f"{name} is an aggregate of computed values.", remedy="Compute them as a column first.")
            aggregate = replace(parts[0].aggregate, name=f"@{name}")
            over[aggregate.name] = OverRows(aggregate, given.rows)
            value = nw.col(aggregate.name)
            shown_columns.append((value.fill_null(0) if str(aggregate.kind) == "count" else value).alias(name))
            continue
        value = as_expression(given, where="match")
        for read in names_read(value):
            if read.startswith(_REGISTER) and read not in known:
                raise unknown_column(read, [*known], what="match's registers=")
            if read not in known and not _is_text(read, value, names):
                _measure(read, rows.schema, names, chosen, over)
        shown_columns.append(value.alias(name))
    word(skip, get_args(Skip), name="skip")
    found = RowMatches(
        below_rows,
        ticks,
        pattern,
        rules,
        partition,
        (*chosen.values(), ChosenRow(SINCE, CLOCK, "", 0), ChosenRow(UNTIL, CLOCK, "", -1)),
        tuple(over.values()),
        skip,
        flag(every, name="every"),
        None if interval is None else ClockSpan(ticks=positive_ticks(interval, name="interval")),
        flag(or_terminated, name="or_terminated"),
        whole(most, name="most"),
        windowed,
        carries=partition,
        registers=carried,
    )
    counted = extended(found, [nw.col(read).fill_null(0) for read in over if read.startswith("count(")])
    keys, own = (map(nw.col, names) for names in (partition, (CLOCK, PLACE, SINCE, UNTIL)))
    return Project(counted, (*keys, *shown_columns, *own), keep=False)


def _register(name: str, begins: float) -> Register:
    register(name)
    if isinstance(begins, bool) or not isinstance(begins, int | float):
        raise PlanError(
            f"The register {name!r} begins with {shown(begins)}, and it is a number.",
            remedy="Begin with 0, or with 0.0 for floats. Texts of the rows are a measure: (a + b).agg(…).",
        )
    return Register(_REGISTER + name, whole(begins, name=name, least=-_MOST) if isinstance(begins, int) else begins)


def _rule(
    made: PatternRow, below: RowConditions, names: tuple[str, ...], registers: tuple[Register, ...]
) -> VariableRule:
    """The condition of a row, and what it changes."""
    numbers = {each.name: at for at, each in enumerate(registers)}
    for name in made.sets:
        if _REGISTER + name not in numbers:
            raise PlanError(
                f"The row {made.name!r} sets {name!r}, which is no register.",
                remedy=f"Say what it begins with: match(…, registers={{{name!r}: 0}}).",
            )
    for value in (made.where, *made.sets.values()):
        if value is not None:
            _note(value, below, names, {*numbers})
    rule = VariableRule() if made.where is None else below.rule(made.where)
    sets = {numbers[_REGISTER + name]: value for name, value in made.sets.items()}
    return replace(rule, sets=tuple((at, below.change(value, registers[at])) for at, value in sets.items()))


def _note(value: nw.Expr, below: RowConditions, names: tuple[str, ...], registers: set[str]) -> None:
    """Note what an expression reads of other rows of the match."""
    schema = below.schema
    for read in names_read(value):
        if read in schema.names or read in registers or _is_text(read, value, names):
            continue
        if read.startswith(_REGISTER):
            raise unknown_column(read, sorted(registers), what="match's registers=")
        parts = _SPECIAL.fullmatch(read)
        if parts is None:
            raise unknown_column(read, schema.names)
        function, of, index, column = (parts[each] for each in ("function", "of", "index", "column"))
        if function == "count" and of in names:
            below.number(of, read)
            continue
        if column is None or (of != "previous" and of not in names):
            raise unknown_column(read, schema.names)
        if column not in schema.names:
            raise unknown_column(column, schema.names)
        dtype = schema.field(column).type
        if of == "previous":
            below.previous(nw.col(column), dtype, int(index), read)
        elif function == "sum":
            below.total(of, nw.col(column), pa.float64() if pa.types.is_floating(dtype) else pa.int64(), read)
        else:
            below.noted(of, "last" if index is None else "nth", column, dtype, int(index or 0), read)


def _is_text(read: str, value: nw.Expr, names: tuple[str, ...]) -> bool:
    """Whether what could be a name is a text: as in ``g.col("kind") == "A"``."""
    parts = _SPECIAL.fullmatch(read)
    special = parts is not None and parts["column"] is not None and parts["of"] in {"previous", *names}
    return read not in columns_named(value) and not special


def _known_row(name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        raise PlanError(f"The pattern has no row {name!r}.", remedy=f"It has: {', '.join(names)}.")


def _measure(
    read: str, schema: pa.Schema, names: tuple[str, ...], chosen: dict[str, ChosenRow], over: dict[str, OverRows]
) -> None:
    """What a measure reads of the rows of a match."""
    found = _SPECIAL.fullmatch(read)
    if not found or (found["column"] is None) != (found["function"] == "count"):
        raise PlanError(
            f"A measure reads {read!r}, which is no value of a row of the pattern.",
            remedy=f'Write {names[0]}["{schema.names[0]}"], for instance.',
        )
    function, of, index, column = (found[each] for each in ("function", "of", "index", "column"))
    _known_row(of, names)
    if function == "count":
        over[read] = OverRows(replace(count(), name=read), (of,))
        return
    if column not in schema.names:
        raise unknown_column(column, schema.names)
    if function == "sum":
        over[read] = OverRows(replace(sum_of(column), name=read), (of,))
    else:
        chosen[read] = ChosenRow(read, column, of, -1 if index is None else int(index))
