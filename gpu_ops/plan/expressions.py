"""Analysis of Narwhals expressions: the columns they read, whether they act on each row alone, the types they give.

Narwhals has no public way to walk an expression; this module and `terms` read its inner nodes (``Expr._nodes``).
`pyproject.toml` bounds the version for that reason, and ``tests/plan/test_expressions.py`` fails when they change.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import narwhals as nw
import polars as pl
import pyarrow as pa
from narwhals.exceptions import ColumnNotFoundError

from gpu_ops.core import marks
from gpu_ops.core.once import once_for_each_object
from gpu_ops.core.polars_frames import plain_type, to_frame
from gpu_ops.core.time import LIFETIME, TIME_TYPE
from gpu_ops.core.turns import GROUPING, INSTANCE, ORDER, ROW
from gpu_ops.errors import ColumnError, PlanError, unknown_column
from gpu_ops.plan.expression_types import type_of
from gpu_ops.plan.forms import once_for_each_form, own_name, remade
from gpu_ops.plan.integers import NAMES, Guard, by_type
from gpu_ops.plan.terms import Rule, Term, as_it_is, terms

Expression = nw.Expr | str


def as_expression(value: object, *, where: str) -> nw.Expr:
    """An expression from an expression or a column's name.

    Raises:
        PlanError: It is neither.
    """
    if isinstance(value, nw.Expr):
        return value
    if isinstance(value, str):
        return nw.col(value)
    if isinstance(value, bool):
        raise PlanError(
            f"{where} was given {value}, not an expression.",
            remedy='Python makes a truth value of "and", "or", "not", "in" and 1 < x < 3: write & | ~ with each side '
            'in parentheses, g.col("v").is_in([1, 2]), g.col("v").is_between(1, 3). A constant: '
            f"g.lit({value}).",
        )
    remedy = 'Write for instance g.col("price") * 2.'
    if isinstance(value, int | float):
        remedy = f"A constant is g.lit({value!r})."
    elif isinstance(value, list | tuple):
        remedy = f'Give them one by one, as .{where}(g.col("v") > 1, g.col("v") < 3) or .{where}(*listed).'
    raise PlanError(f"{where} takes expressions and column names, not {type(value).__name__}.", remedy=remedy)


def _walk(expression: nw.Expr) -> Iterator[Any]:
    for node in expression._nodes:  # noqa: SLF001  (see the module's docstring)
        yield node
        for child in node.exprs:
            if isinstance(child, nw.Expr):
                yield from _walk(child)


def written(expression: nw.Expr) -> tuple[tuple[Any, ...], ...]:
    """An expression as it was written: for each function its name, what it takes, and what else is said of it."""
    return tuple(
        (node.kind.name, node.name, node.str_as_lit, node.allow_multi_output, tuple(node.exprs), node.kwargs)
        for node in expression._nodes  # noqa: SLF001
    )


def names_read(expression: nw.Expr) -> list[str]:
    """The names of all columns that an expression reads by name, each once, known or not."""
    made: dict[str, None] = {}
    for node in _walk(expression):
        named = node.kwargs["names"] if node.kind.name == "COL" else ()
        made |= dict.fromkeys([*named, *(child for child in node.exprs if isinstance(child, str))])
    return [*made]


def column_names(expression: nw.Expr, known: Sequence[str]) -> list[str]:
    """The known columns that an expression reads; all of them if it selects columns by a rule."""
    names = _named(expression)
    return list(known) if names is None else [name for name in known if name in names]


@once_for_each_object
def _named(expression: nw.Expr) -> frozenset[str] | None:
    """The columns that an expression names; None if it selects columns by a rule."""
    names: set[str] = set()
    for node in _walk(expression):
        kind = node.kind.name
        if kind == "COL":
            names.update(node.kwargs["names"])
        elif kind in {"NTH", "EXCLUDE", "ALL", "SELECTOR"}:
            return None
        names.update(child for child in node.exprs if isinstance(child, str))
    return frozenset(names)


def columns_named(expression: nw.Expr) -> list[str]:
    """The columns that an expression names, whether they are known or not.

    Examples:
        >>> columns_named(nw.col("b") + nw.col("a"))
        ['a', 'b']
    """
    return sorted({str(each) for node in _walk(expression) if node.kind.name == "COL" for each in node.kwargs["names"]})


def function_names(expression: nw.Expr) -> set[str]:
    """Narwhals' names of the functions and operators in an expression."""
    return {str(node.name) for node in _walk(expression)}


def bare_column(expression: nw.Expr) -> str | None:
    """The column's name, if the expression is a single column; else None."""
    nodes = expression._nodes  # noqa: SLF001
    if len(nodes) == 1 and nodes[0].kind.name == "COL" and len(nodes[0].kwargs["names"]) == 1:
        return str(nodes[0].kwargs["names"][0])
    return None


def _copies(expression: nw.Expr, known: Collection[str]) -> dict[str, str]:
    """The known columns that an expression hands on unchanged: from their new names to their old ones."""
    first, *rest = expression._nodes  # noqa: SLF001
    if first.kind.name != "COL" or any(node.name != "alias" for node in rest):
        return {}
    names = [str(name) for name in first.kwargs["names"] if name in known]
    return {str(rest[-1].kwargs["name"]) if rest else name: name for name in names}


def _untouched(frame: Any, schema: pa.Schema, expressions: Sequence[nw.Expr], *, where: str) -> dict[str, str]:
    """The columns that no expression writes. An expression that writes the lifetime is an error."""
    written = {name for expression in expressions for name in frame.select(expression).columns}
    if written & set(LIFETIME):
        raise ColumnError(
            f"{where} cannot change the lifetime.",
            column=min(written & set(LIFETIME)),
            remedy="Use .alter_lifetime(…), .shift(…) or .extend(…).",
        )
    return {name: name for name in schema.names if name not in written}


def check_row_wise(expression: nw.Expr, *, where: str) -> None:
    """Refuse an expression whose value for a row depends on other rows: its result would depend on cuts and order.

    Raises:
        PlanError: It aggregates, shifts, ranks, filters, or holds a Series.
    """
    for node in _walk(expression):
        if not node.kind.is_elementwise or node.kind.name == "SERIES":
            raise PlanError(
                f"{where}: {node.name!r} looks at other rows than its own, so the answer would depend on the order "
                "and the cut of the input.",
                remedy="Aggregate with a window (.snapshot(), .hopping(…), .sliding(…)) and .agg(…) instead.",
            )


_WHOLE_DIVISIONS = {"__floordiv__", "__mod__"}
_DIVISIONS = {"__truediv__", *_WHOLE_DIVISIONS}


def exact_divisions(expressions: Sequence[nw.Expr], schema: pa.Schema) -> tuple[nw.Expr, ...]:
    """The same expressions with each constant divisor replaced by a column.

    Polars multiplies by the reciprocal of what it holds once for all rows, if there is more than one: 5 / 3 is then one
    bit off, and 0.6 // 0.2 is 3. By a column that holds the number in each row, every quotient is IEEE 754's, as
    elsewhere. Whole numbers over a whole literal are exact, and stay as they are. So a number that reads no column, as
    `coalesce(3, 1)`, is a column where it divides, and where it is selected, as a later expression may divide by it. So
    is what chooses one, as `case when v > 0 then 3 end`.

    Args:
        expressions: Row-wise expressions.
        schema: The payload that they read, beside ``start`` and ``end``.

    Examples:
        >>> import polars as pl
        >>> rows = pl.DataFrame({"v": [5, 6], "start": [0, 0]}).cast({"start": pl.Datetime("us", "UTC")})
        >>> (exact,) = exact_divisions([nw.col("v") / 3], pa.schema([("v", pa.int64())]))
        >>> nw.from_native(rows).select(exact)["v"].to_list() == [5 / 3, 6 / 3]
        True
    """
    return tuple(_exact_form(expression, schema) for expression in expressions)


@once_for_each_form
def _exact_form(expression: nw.Expr, schema: pa.Schema) -> nw.Expr:
    return _exact(rewritten(expression, schema, whole_form), schema)


_INTERNAL = frozenset({ROW, ORDER, GROUPING, INSTANCE})
"""Constants that nothing divides by."""

_REWRITTEN = {"mean_horizontal", "__floordiv__", "__mod__", "__rfloordiv__", "__rmod__"}


def rewritten(
    expression: nw.Expr,
    schema: pa.Schema,
    rule: Rule,
    functions: Collection[str] = _REWRITTEN,
    *,
    lifetime: bool = True,
) -> nw.Expr:
    """An expression with some parts replaced by a rule.

    Args:
        expression: A row-wise expression.
        schema: The payload that it reads.
        rule: From each part to its replacement.
        functions: The functions that the rule may replace.
        lifetime: Whether it reads ``start`` and ``end`` beside these, as times in UTC.
    """
    if function_names(expression).isdisjoint(functions):
        return expression
    changed = False

    def noticed(term: Term) -> Term:
        nonlocal changed
        made = rule(term)
        changed = changed or made is not term
        return made

    frame = _probe(schema) if lifetime else to_frame(schema.empty_table())
    found = terms(expression, nw.from_native(frame), noticed)
    if not changed or len(found) > 1:
        return expression
    ((name, term),) = found.items()
    return term.value.alias(name)


def whole_form(term: Term) -> Term:
    """A function of whole numbers in a form that gives the same result on every device."""
    whole = all(each.holds is not None and each.scale is None for each in term.terms)
    if term.name == "mean_horizontal" and any(each.holds is not None for each in term.terms):
        # Polars adds up integers, and wraps around.
        return term.meaning(nw.mean_horizontal(*(each.value.cast(nw.Float64) for each in term.terms)))
    if term.name in _WHOLE_DIVISIONS and whole and not term.terms[1].literal:
        one, other = term.terms[0].value, _chosen(term.terms[1]).value
        # Division by zero gives an infinity on some devices, and null on others.
        divisor = other if _chosen(term.terms[1]).literal else nw.when(other != 0).then(other)
        return term.meaning(one // divisor if term.name == "__floordiv__" else one % divisor)
    return term


def _chosen(term: Term) -> Term:
    """What a condition about literals chooses, as `when(7 != 0).then(7)` does; else the term itself."""
    if term.name != "when_then":
        return term
    condition, chosen = term.terms[:2]
    while condition.name == "all_horizontal" and len(condition.terms) == 1:
        (condition,) = condition.terms
    literals = {each.literal for each in condition.terms}
    return chosen if condition.name == "__ne__" and len(literals - {None}) == 2 else term


def _exact(expression: nw.Expr, schema: pa.Schema) -> nw.Expr:
    if _DIVISIONS.isdisjoint(function_names(expression)) and not _may_be_constant(expression):
        return expression
    frame = nw.from_native(_probe(schema))
    wanted: Any = frame.select(expression).schema
    # Division of a decimal is exact, and by a column it has another type. A literal beside a float32 is one too.
    for dtype in (None, nw.Float32()):
        made = _divided_by_columns(expression, frame, dtype)
        if _may_be_constant(expression):
            ((name, own),) = wanted.items()
            if own.is_numeric() and not own.is_decimal() and name not in _INTERNAL:
                made = _in_each_row(made, own).alias(name)
        if made is not expression and frame.select(made).schema == wanted:
            return made
    return expression


def _divided_by_columns(expression: nw.Expr, frame: Any, dtype: Any) -> nw.Expr:
    """An expression whose constant divisors are columns: of their own types, or of a given one."""
    nodes, changed = list[Any](), False
    for node in expression._nodes:  # noqa: SLF001
        operands = tuple(
            _divided_by_columns(each, frame, dtype) if isinstance(each, nw.Expr) else each for each in node.exprs
        )
        if node.name in _DIVISIONS and _may_be_constant(operands[0]) and not _is_whole(node, nodes, operands[0], frame):
            divisor: Any = operands[0]
            number = divisor if isinstance(divisor, nw.Expr) else nw.lit(divisor)
            operands = (_in_each_row(number, dtype or _only_type(frame.select(number))),)
        if any(mine is not before for mine, before in zip(operands, node.exprs, strict=True)):
            node = remade(node, operands)  # noqa: PLW2901
            changed = True
        nodes.append(node)
    return nw.Expr(*nodes) if changed else expression


def _is_whole(node: Any, dividend: Sequence[Any], divisor: object, frame: Any) -> bool:
    """Whether a division of whole numbers by a literal: Polars computes it exactly, and sooner than by a column."""
    if node.name not in _WHOLE_DIVISIONS:
        return False
    if isinstance(divisor, nw.Expr):
        (first, *rest) = divisor._nodes  # noqa: SLF001
        divisor = first.kwargs["value"] if first.name == "lit" and not rest else None
    if not isinstance(divisor, int) or isinstance(divisor, bool) or not divisor:
        return False
    return bool(_only_type(frame.select(nw.Expr(*dividend))).is_integer())


def _only_type(frame: Any) -> Any:
    (dtype,) = frame.schema.values()
    return dtype


def guards(
    expressions: Sequence[nw.Expr],
    schema: pa.Schema,
    exact: Sequence[nw.Expr],
    said: Mapping[str, str] | None = None,
) -> dict[int, Guard]:
    """The guards of expressions in which a whole number may not fit its type, by the places of the expressions.

    Args:
        expressions: Row-wise expressions, as they were written.
        schema: The payload that they read, beside ``start`` and ``end``.
        exact: The same expressions as they are evaluated.
        said: The names that errors show for columns that the user has not named.
    """
    found = {}
    for at, (expression, evaluated) in enumerate(zip(expressions, exact, strict=True)):
        guarded = _guarded(evaluated, schema)
        if guarded is not None:
            found[at] = Guard(expression, schema, guarded, said or {})
    return found


@once_for_each_form
def _guarded(evaluated: nw.Expr, schema: pa.Schema) -> dict[str, Term] | None:
    """The terms of an expression in which a whole number may not fit its type; None of others."""
    if NAMES.isdisjoint(function_names(evaluated)):
        return None
    made = terms(evaluated, nw.from_native(_probe(schema)))
    return made if Guard(evaluated, schema, made).may_not_fit(by_type) else None


def values(expressions: Sequence[nw.Expr], schema: pa.Schema) -> dict[str, Term]:
    """The terms of expressions, by the names of their columns."""
    return {name: term for each in expressions for name, term in _terms_as_they_are(each, schema).items()}


@once_for_each_form
def _terms_as_they_are(expression: nw.Expr, schema: pa.Schema) -> dict[str, Term]:
    return terms(expression, nw.from_native(_probe(schema)), as_it_is)


_READS = frozenset({"COL", "NTH", "EXCLUDE", "ALL", "SELECTOR", "SERIES"})
_CHOOSES = frozenset({"when_then", "coalesce"})


def _is_constant(operand: object) -> bool:
    """Whether a number, or an expression that reads no column."""
    if not isinstance(operand, nw.Expr):
        return isinstance(operand, int | float) and not isinstance(operand, bool)
    return not any(
        node.kind.name in _READS or (not node.str_as_lit and any(isinstance(each, str) for each in node.exprs))
        for node in _walk(operand)
    )


def _may_be_constant(operand: object) -> bool:
    """Whether Polars may hold it once for all rows: so it does where each row happens to choose the same constant."""
    chosen = (node for node in _walk(operand) if node.name in _CHOOSES) if isinstance(operand, nw.Expr) else ()
    return _is_constant(operand) or any(
        _is_constant(each) for node in chosen for each in node.exprs[int(node.name == "when_then") :]
    )


def _in_each_row(number: nw.Expr, dtype: Any) -> nw.Expr:
    """A constant as a column of a type: times 1, which leaves -0.0 as it is."""
    one = nw.col("start").dt.timestamp("us") * 0 + 1
    return number.cast(dtype) * one.cast(dtype)


@lru_cache(maxsize=256)
def _probe(schema: pa.Schema) -> pl.DataFrame:
    """A frame of these columns without rows. Frames never change, so all callers may share one."""
    lifetime = pa.schema([(name, TIME_TYPE) for name in LIFETIME])
    return to_frame(pa.Table.from_batches([], pa.schema([*schema, *lifetime])))


def output_schema(schema: pa.Schema, expressions: Sequence[nw.Expr], *, where: str, only_columns: bool) -> pa.Schema:
    """The payload schema after evaluating expressions on each row.

    Args:
        schema: The payload before.
        expressions: The expressions; they may also read ``start`` and ``end``.
        where: The verb, for errors.
        only_columns: Whether the result has only these columns (select), or the old ones too (with_columns).

    Raises:
        PlanError: A column is unknown, a name is the lifetime's, types do not fit, or it reads other rows.
    """
    copied = _copied(schema, expressions, only_columns=only_columns)
    return _made_schema(schema, tuple(expressions), where, only_columns=only_columns) if copied is None else copied


@once_for_each_form
def _made_schema(schema: pa.Schema, expressions: Sequence[nw.Expr], where: str, *, only_columns: bool) -> pa.Schema:
    """`output_schema` by the types of the expressions' functions, else by evaluating them."""
    for expression in expressions:
        check_row_wise(expression, where=where)
    typed = _typed_schema(schema, expressions, only_columns=only_columns)
    return _evaluated_schema(schema, expressions, where, only_columns=only_columns) if typed is None else typed


def _evaluated_schema(
    schema: pa.Schema, expressions: Sequence[nw.Expr], where: str, *, only_columns: bool
) -> pa.Schema:
    """`output_schema` by evaluating the expressions over no rows."""
    probe = _probe(schema)
    frame = nw.from_native(probe)
    try:
        result = (frame.select if only_columns else frame.with_columns)(*expressions).to_native()
    except ColumnNotFoundError:
        known = [*schema.names, *LIFETIME]
        for expression in expressions:
            for node in _walk(expression):
                for name in node.kwargs.get("names", ()) if node.kind.name == "COL" else ():
                    if name not in known:
                        raise _no_column(name, known, where) from None
        raise
    except Exception as error:
        raise PlanError(f"{where}: the expression does not fit the columns: {error}") from error
    before = {name: dtype for name, dtype in probe.schema.items() if name not in LIFETIME}
    touched = set(result.columns) & set(LIFETIME)
    if only_columns and touched:
        raise ColumnError(
            f"{where} cannot carry the lifetime in the payload under its own name.",
            column=min(touched),
            remedy='The lifetime always goes along; give the copy a name: g.col("start").alias("started").',
        )
    kept: dict[str, str] = {}
    if not only_columns:
        kept = _untouched(frame, schema, expressions, where=where)
        result = result.drop(LIFETIME)
    for expression in expressions:
        kept |= _copies(expression, schema.names)
    read: dict[str, list[pa.Field]] = {}
    if any(map(marks.family_of, schema)):
        read = {
            name: fields_read(expression, schema)
            for expression in expressions
            for name in frame.select(expression).columns
        }
    fields = []
    for name, dtype in result.schema.items():
        if name in kept:
            # Polars does not keep extension types, nor that a column has no nulls.
            fields.append(schema.field(kept[name]).with_name(name))
        elif before.get(name) == dtype:
            fields.append(marks.computed(schema.field(name).with_nullable(True), read.get(name, ())))
        else:
            made = pa.field(name, plain_type(_arrow_type(result[name], where)))
            fields.append(marks.computed(made, read.get(name, ())))
    return pa.schema(fields)


def _typed_schema(schema: pa.Schema, expressions: Sequence[nw.Expr], *, only_columns: bool) -> pa.Schema | None:
    """`output_schema` by the types of the expressions' functions; None where that does not say it."""
    types = _probe(schema).schema
    is_marked = any(map(marks.family_of, schema))
    made: dict[str, pa.Field] = {}
    for expression in expressions:
        copies = _copies(expression, schema.names)
        if copies and len(copies) == len(expression._nodes[0].kwargs["names"]):  # noqa: SLF001
            fields = {name: schema.field(source).with_name(name) for name, source in copies.items()}
        else:
            dtype = type_of(expression, types)
            name = own_name(expression)
            arrow = None if dtype is None else _arrow_of(dtype)
            if name is None or arrow is None:
                return None
            known = types.get(name) == dtype and name not in LIFETIME
            field = schema.field(name).with_nullable(True) if known else pa.field(name, arrow)
            fields = {name: marks.computed(field, fields_read(expression, schema) if is_marked else ())}
        if not fields.keys().isdisjoint({*made, *LIFETIME}):
            return None
        made |= fields
    return pa.schema((made if only_columns else {each.name: each for each in schema} | made).values())


@lru_cache(maxsize=256)
def _arrow_of(dtype: pl.DataType) -> pa.DataType | None:
    """Arrow's type for one of Polars; None if there is none."""
    try:
        return plain_type(pl.Series(dtype=dtype).to_arrow().type)
    except pa.ArrowInvalid:
        return None


def _copied(schema: pa.Schema, expressions: Sequence[nw.Expr], *, only_columns: bool) -> pa.Schema | None:
    """`output_schema` where columns are picked and renamed only; None elsewhere. To evaluate them takes long."""
    copies = copied(expressions, schema.names)
    if not copies:
        return None
    picked = {name: schema.field(source).with_name(name) for name, source in copies.items()}
    return pa.schema((picked if only_columns else {each.name: each for each in schema} | picked).values())


def copied(expressions: Sequence[nw.Expr], known: Collection[str]) -> dict[str, str] | None:
    """The known columns that expressions pick or rename, from new names to old ones; None if they do more."""
    made: dict[str, str] = {}
    for expression in expressions:
        first, *_ = expression._nodes  # noqa: SLF001
        copies = _copies(expression, known)
        if len(copies) != 1 or len(first.kwargs["names"]) != 1 or not copies.keys().isdisjoint({*made, *LIFETIME}):
            return None
        made |= copies
    return made


def _arrow_type(made: pl.Series, where: str) -> pa.DataType:
    try:
        return made.to_arrow().type
    except pa.ArrowInvalid as error:
        raise ColumnError(
            f"{where} makes a column for which Arrow has no type: Polars' {made.dtype}.",
            column=made.name,
            remedy="Cast it to Decimal(38, 0), an Int64, a Float64 or a String.",
        ) from error


def fields_read(expression: nw.Expr, schema: pa.Schema) -> list[pa.Field]:
    """The fields of the columns that an expression reads."""
    return [schema.field(name) for name in column_names(expression, schema.names)]


_WRITTEN = re.compile(r"\s*[\w.]+\s*(?:[<>=!+*/%&|-]+|\b(?:and|or|in|is|between|like)\b).+", re.IGNORECASE)
_COMPARED = re.compile(r"\s*(\w+)\s*([<>]=?|[!=]?=)\s*([\w.+-]+|'[^']*'|\"[^\"]*\")\s*")


def _no_column(name: str, known: Sequence[str], where: str) -> PlanError:
    """The error for an unknown column; for a text that is a formula, it says how to write the formula."""
    if not _WRITTEN.fullmatch(name):
        return unknown_column(name, [each for each in known if not each.startswith("@")])
    compared = _COMPARED.fullmatch(name)
    remedy = 'Write it with columns, as g.col("price") * 2 > 9, and & | ~ between conditions.'
    if compared is not None:
        column, sign, value = compared.groups()
        remedy = f'Write g.col("{column}") {"==" if sign == "=" else sign} {value}.'
    return PlanError(f"{where} takes a text as the name of a column, and there is no column {name!r}.", remedy=remedy)


def check_boolean(schema: pa.Schema, expression: nw.Expr, *, where: str) -> None:
    """Refuse a condition that is not a boolean.

    Raises:
        PlanError: It is not one, or as `output_schema`.
    """
    produced = output_schema(schema, [expression.alias("condition")], where=where, only_columns=True)
    if not pa.types.is_boolean(produced.field(0).type):
        raise PlanError(
            f"{where} takes a condition, but this one is {produced.field(0).type}.",
            remedy='Compare it: g.col("price") > 0.',
        )
