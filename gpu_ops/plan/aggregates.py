"""Aggregates as declarations: what goes in, what comes out, and of which parts it is made.

A part is a range aggregate that a device computes for all windows at once: a count, an exact sum, an extreme.
Aggregates that need the same part share it. How the parts become the result is in ``operators/aggregates.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import narwhals as nw
import pyarrow as pa

from gpu_ops.core import marks
from gpu_ops.core.types import storage
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.plan.aggregate_kinds import AggregateKind, Kept, kind_named
from gpu_ops.plan.arguments import flag, word
from gpu_ops.plan.combinations import Combinable
from gpu_ops.plan.expressions import (
    Expression,
    as_expression,
    bare_column,
    check_boolean,
    fields_read,
    output_schema,
)


@dataclass(frozen=True, eq=False)
class Aggregate(Combinable):
    """One aggregate over the events of a window. Aggregates add, subtract, multiply and divide, also with numbers.

    Attributes:
        kind: Which.
        expression: What is aggregated; None counts rows.
        filter: Only events for which this holds take part; it never removes a window.
        degrees: Delta degrees of freedom: 1 for a sample, 0 for a population.
        name: The result's column.
        others: What else goes in: a weight, what decides which event is meant, an order.
        options: What else is said of it: which quantile, how many.
        distinct: Whether equal values count once.
    """

    kind: AggregateKind
    expression: nw.Expr | None = None
    filter: nw.Expr | None = None
    degrees: int = 1
    name: str = ""
    others: tuple[nw.Expr, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    distinct: bool = False

    def __str__(self) -> str:
        read = [repr(each) for each in (self.expression, *self.others) if each is not None]
        read += self.said
        where = "" if self.filter is None else f" where {self.filter!r}"
        return f"{self.name}={self.kind}({'distinct ' * self.distinct}{', '.join(read)}){where}"

    @property
    def said(self) -> list[str]:
        """What else is said of it, option by option."""
        return [f"{name}={_shown(value)}" for name, value in self.options.items()]

    def keeps(self, schema: pa.Schema) -> Kept:
        """What a running window keeps to bring it up to date."""
        return self.kind.incremental.keeps(self, schema)

    @property
    def inputs(self) -> tuple[nw.Expr, ...]:
        """All expressions that go in, without the filter."""
        return tuple(each for each in (self.expression, *self.others) if each is not None)

    @property
    def reads(self) -> tuple[nw.Expr, ...]:
        """All expressions that it reads."""
        return self.inputs if self.filter is None else (*self.inputs, self.filter)

    def over(self, column: Callable[[nw.Expr], str]) -> Aggregate:
        """The same aggregate over plain columns, which ``column`` names for each expression."""

        def plain(expression: nw.Expr | None) -> nw.Expr | None:
            return None if expression is None else nw.col(column(expression))

        others = tuple(nw.col(column(each)) for each in self.others)
        return replace(self, expression=plain(self.expression), others=others, filter=plain(self.filter))

    def types(self, schema: pa.Schema) -> tuple[pa.DataType, ...]:
        """The Arrow types of its inputs: as declared where they are columns, else as they are computed."""
        return tuple(self._type_of(each, schema) for each in self.inputs)

    def _type_of(self, expression: nw.Expr, schema: pa.Schema) -> pa.DataType:
        alone = [expression.alias("value")]
        made = output_schema(schema, alone, where=f"{self.kind}(…)", only_columns=True).field(0).type
        name = bare_column(expression)
        return schema.field(name).type if name in schema.names else storage(made)

    def field(self, schema: pa.Schema) -> pa.Field:
        """The result's column.

        Raises:
            ColumnError: The aggregate does not take this type.
        """
        if self.filter is not None:
            check_boolean(schema, self.filter, where=f"{self.kind}(…, where=…)")
        return self._marked(self._field(schema), schema)

    def _marked(self, made: pa.Field, schema: pa.Schema) -> pa.Field:
        """The result's column with the marks of what it is made from: those of the very column whose type it has."""
        name = None if self.expression is None else bare_column(self.expression)
        declared = schema.field(name) if name in schema.names else None
        if declared is not None and declared.type == made.type:
            return made.with_metadata(declared.metadata)
        return marks.computed(made, (field for each in self.inputs for field in fields_read(each, schema)))

    def _field(self, schema: pa.Schema) -> pa.Field:
        types = self.types(schema)
        if self.distinct and (not types or pa.types.is_nested(storage(types[0]))):
            raise ColumnError(
                f"{self.kind} of distinct values does not take {types[0] if types else None}.",
                column=None if self.expression is None else bare_column(self.expression) or repr(self.expression),
                remedy="Take its fields or its text first: only what can be a key can be told apart.",
            )
        return pa.field(self.name, self.kind.types(self, types))


def _shown(value: object) -> str:
    """An option in a line; of a function its name, which is the same in every process."""
    if isinstance(value, pa.Schema):
        return f"[{', '.join(f'{field.name}: {field.type}' for field in value)}]"
    return str(getattr(value, "__qualname__", value))


def aggregate(
    kind: AggregateKind | str,
    *given: Expression,
    where: Expression | None = None,
    of: Population = "sample",
    distinct: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Aggregate:
    """An aggregate of a kind, of what the user handed in: what the verbs of all kinds are made of.

    Args:
        kind: Which; one of this package by its name.
        given: Columns' names or expressions: what is aggregated, and what else goes in. Nothing for what counts rows.
        where: Only events for which this condition holds take part.
        of: What the values are of: a sample (1 degree of freedom less), or the whole population.
        distinct: Whether equal values count once.
        options: What else is said of it, for the functions of its kind.

    Raises:
        PlanError: It is no kind of aggregate; or an argument is no column, no expression, or no condition.
    """
    kind = kind_named(kind) if isinstance(kind, str) else kind
    if not isinstance(kind, AggregateKind):
        raise PlanError(
            f"aggregate takes a kind of aggregate, not {type(kind).__name__}.",
            remedy="Declare one: gpu_ops.extend.AggregateKind(…) (docs/extending.md).",
        )
    inputs = [as_expression(each, where=f"{kind}(…)") for each in given]
    if flag(distinct, name="distinct") and not inputs:
        raise PlanError(
            f"{kind}(distinct=True) needs the values that count once.",
            remedy=f'Say which: g.{kind}("v", distinct=True).',
        )
    return Aggregate(
        kind,
        inputs[0] if inputs else None,
        None if where is None else as_expression(where, where=f"{kind}(…, where=…)"),
        degrees_of(of),
        others=tuple(inputs[1:]),
        options=options or {},
        distinct=distinct,
    )


Population = Literal["sample", "population"]


def degrees_of(population: Population) -> int:
    """Delta degrees of freedom.

    Raises:
        PlanError: It is neither.
    """
    return 1 if word(population, ["sample", "population"], name="of") == "sample" else 0


def count(
    expression: Expression | None = None, *, where: Expression | None = None, distinct: bool = False
) -> Aggregate:
    """How many events; with an expression, how many of them where it is not null.

    Args:
        expression: A column's name or an expression of any type, or nothing to count rows.
        where: Count only events for which this condition holds. A window without any gives 0, not "no row".
        distinct: Whether equal values count once; NaN equals NaN, and -0.0 equals 0.0.

    Returns:
        An aggregate of type int64 for ``.agg``.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> visits = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "page": ["a", None]})
        >>> windows = g.events(visits, start="at").tumbling("1min")
        >>> windows.agg(n=g.count(), named=g.count("page")).select("n", "named").collect().to_pylist()[0]["named"]
        1
    """
    return aggregate("count", *([] if expression is None else [expression]), where=where, distinct=distinct)


def sum(  # noqa: A001  (the field's word)
    expression: Expression, *, where: Expression | None = None, distinct: bool = False
) -> Aggregate:
    """The exact sum, nulls skipped; null where no value is.

    Integers give int64 (uint64 for uint64) and decimals ``decimal128(38, scale)``: a sum that does not fit is an error.
    Floats give float64, correctly rounded from the exact sum: no order of addition and no value that has passed
    through the window leaves a trace. NaN and infinities act as in IEEE 754 while their event is in the window.

    Args:
        expression: A column's name or an expression: integer, decimal, float or duration.
        where: Only events for which this condition holds.
        distinct: Whether equal values count once; NaN equals NaN, and -0.0 equals 0.0.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "price": [0.1, 1e300]})
        >>> g.events(bids, start="at").tumbling("1min").agg(total=g.sum("price")).collect()["total"].to_pylist()
        [1e+300]
    """
    return aggregate("sum", expression, where=where, distinct=distinct)


def mean(expression: Expression, *, where: Expression | None = None, distinct: bool = False) -> Aggregate:
    """The mean as float64: the exact sum over the count, rounded once (half to even). Null where no value is.

    That holds of integers and decimals too: nothing is rounded before the end, and no sum is too large. NaN and
    infinities act as in `sum`.

    Args:
        expression: A column's name or an expression: integer, decimal or float.
        where: Only events for which this condition holds.
        distinct: Whether equal values count once; NaN equals NaN, and -0.0 equals 0.0.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "price": [1, 2]})
        >>> g.events(bids, start="at").tumbling("1min").agg(m=g.mean("price")).collect()["m"].to_pylist()
        [1.5]
    """
    return aggregate("mean", expression, where=where, distinct=distinct)


def min(expression: Expression, *, where: Expression | None = None) -> Aggregate:  # noqa: A001
    """The least value, of any ordered type; null where no value is. NaN sorts greatest; -0.0 is 0.0.

    Args:
        expression: A column's name or an expression.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "who": ["eve", "bob"]})
        >>> g.events(bids, start="at").tumbling("1min").agg(first=g.min("who")).collect()["first"].to_pylist()
        ['bob']
    """
    return aggregate("min", expression, where=where)


def max(expression: Expression, *, where: Expression | None = None) -> Aggregate:  # noqa: A001
    """The greatest value, of any ordered type; null where no value is. NaN sorts greatest; -0.0 is 0.0.

    Args:
        expression: A column's name or an expression.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "price": [3, 2]})
        >>> g.events(bids, start="at").tumbling("1min").agg(best=g.max("price")).collect()["best"].to_pylist()
        [3]
    """
    return aggregate("max", expression, where=where)


def variance(
    expression: Expression, *, of: Population = "sample", where: Expression | None = None, distinct: bool = False
) -> Aggregate:
    """The variance as float64; null where no value is, and for a sample of one.

    It is computed in integers from the exact sums of the values and of their squares and rounded at the end, so the
    bits agree everywhere and nothing cancels.

    Args:
        expression: A column's name or an expression: integer, decimal or float.
        of: ``"sample"`` divides by n - 1, ``"population"`` by n.
        where: Only events for which this condition holds.
        distinct: Whether equal values count once; NaN equals NaN, and -0.0 equals 0.0.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "price": [1, 3]})
        >>> g.events(bids, start="at").tumbling("1min").agg(v=g.variance("price")).collect()["v"].to_pylist()
        [2.0]
    """
    return aggregate("variance", expression, where=where, of=of, distinct=distinct)


def standard_deviation(
    expression: Expression, *, of: Population = "sample", where: Expression | None = None, distinct: bool = False
) -> Aggregate:
    """The square root of `variance`, with the same rules.

    Args:
        expression: A column's name or an expression: integer, decimal or float.
        of: ``"sample"`` or ``"population"``.
        where: Only events for which this condition holds.
        distinct: Whether equal values count once; NaN equals NaN, and -0.0 equals 0.0.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "price": [1, 3]})
        >>> windows = g.events(bids, start="at").tumbling("1min")
        >>> windows.agg(d=g.standard_deviation("price", of="population")).collect()["d"].to_pylist()
        [1.0]
    """
    return aggregate("standard_deviation", expression, where=where, of=of, distinct=distinct)
