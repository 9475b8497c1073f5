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

from gpu_ops import marks
from gpu_ops.errors import ColumnError, PlanError
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
from gpu_ops.types import storage

ResultType = Callable[["Aggregate", tuple[pa.DataType, ...]], pa.DataType]

RESULT_TYPES: dict[str, ResultType] = {}
"""For a kind of aggregate the type of its result, from the types of all that goes in; kinds not here know it anyway."""

HOLISTIC: set[str] = set()
"""Kinds of which no bounded part says enough: a running window keeps the order of values, or the events themselves."""

EXTREMES = frozenset({"min", "max", "first", "last", "arg_min", "arg_max"})
"""Kinds of which a running window keeps the events that can still be the one: it has to know when each ends."""


_OF_NUMBERS = {
    *("sum", "mean", "median", "quantile", "mean_absolute_deviation", "standard_deviation", "variance"),
}
"""The kinds that compute with a column's values, and so do not take numbers that say which of some values each is."""


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

    kind: str
    expression: nw.Expr | None = None
    filter: nw.Expr | None = None
    degrees: int = 1
    name: str = ""
    others: tuple[nw.Expr, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    distinct: bool = False

    def __str__(self) -> str:
        read = [repr(each) for each in (self.expression, *self.others) if each is not None]
        read += [f"{name}={_shown(value)}" for name, value in self.options.items()]
        where = "" if self.filter is None else f" where {self.filter!r}"
        return f"{self.name}={self.kind}({'distinct ' * self.distinct}{', '.join(read)}){where}"

    @property
    def holistic(self) -> bool:
        """Whether a running window must keep values, or the events themselves, to compute it."""
        return self.distinct or self.kind in HOLISTIC

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

    def input_type(self, schema: pa.Schema) -> pa.DataType | None:
        """The Arrow type of what goes in, as a device holds it; None when rows are counted."""
        if self.expression is None:
            return None
        return self._type_of(self.expression, schema)

    def _type_of(self, expression: nw.Expr, schema: pa.Schema) -> pa.DataType:
        where = f"{self.kind}(…)"
        alone = [expression.alias("value")]
        return storage(output_schema(schema, alone, where=where, only_columns=True).field(0).type)

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
        dtype = self.input_type(schema)
        name = None if self.expression is None else bare_column(self.expression)
        if self.kind in _OF_NUMBERS and name in schema.names and pa.types.is_dictionary(schema.field(name).type):
            raise ColumnError(
                f"{self.kind} does not take {schema.field(name).type}.",
                column=name,
                remedy=f'Make numbers of it first: .with_columns({name}=g.col("{name}").cast(g.Float64)).',
            )
        if self.distinct and (dtype is None or pa.types.is_nested(dtype)):
            raise ColumnError(
                f"{self.kind} of distinct values does not take {dtype}.",
                column=None if self.expression is None else bare_column(self.expression) or repr(self.expression),
                remedy="Take its fields or its text first: only what can be a key can be told apart.",
            )
        if self.kind in RESULT_TYPES:
            types = tuple(self._type_of(each, schema) for each in self.inputs)
            return pa.field(self.name, self._as_declared(RESULT_TYPES[self.kind](self, types), dtype, schema))
        made = pa.int64() if dtype is None else self._result_type(dtype)
        if self.expression is not None and (self.kind in {"min", "max"} or pa.types.is_duration(made)):
            name = bare_column(self.expression)
            if name in schema.names:
                # A device may hold it as another type (a guid as bytes, seconds as milliseconds).
                declared = schema.field(name).type
                made = made if pa.types.is_dictionary(declared) else declared
        return pa.field(self.name, made)

    def _as_declared(self, made: pa.DataType, dtype: pa.DataType | None, schema: pa.Schema) -> pa.DataType:
        """A type, or a list of it, that a device holds as another type, by the name that its column has."""
        name = None if self.expression is None else bare_column(self.expression)
        declared = made if name is None or name not in schema.names else schema.field(name).type
        if pa.types.is_dictionary(declared):
            return made
        if pa.types.is_list(made):
            return pa.list_(declared) if made.value_type == dtype else made
        return declared if made == dtype else made

    def _result_type(self, dtype: pa.DataType) -> pa.DataType:
        if self.kind == "count":
            return pa.int64()
        if self.kind in {"min", "max"}:
            if not (pa.types.is_nested(dtype) or pa.types.is_null(dtype)):
                return dtype.value_type if pa.types.is_dictionary(dtype) else dtype
        elif self.kind == "sum":
            if pa.types.is_unsigned_integer(dtype):
                return pa.uint64() if dtype == pa.uint64() else pa.int64()
            if pa.types.is_integer(dtype):
                return pa.int64()
            if pa.types.is_decimal128(dtype):
                return pa.decimal128(38, dtype.scale)
            if pa.types.is_floating(dtype):
                return pa.float64()
            if pa.types.is_duration(dtype):
                return dtype
        elif pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal128(dtype):
            return pa.float64()
        raise ColumnError(
            f"{self.kind} does not take {dtype}.",
            column=None if self.expression is None else named_column(self.expression),
            remedy="Cast it to a number first, for instance g.col(…).cast(g.Float64)."
            if self.kind not in {"min", "max"}
            else "Take a part of it that has an order.",
        )


def _shown(value: object) -> str:
    """An option in a line; of a function its name, which is the same in every process."""
    if isinstance(value, pa.Schema):
        return f"[{', '.join(f'{field.name}: {field.type}' for field in value)}]"
    return str(getattr(value, "__qualname__", value))


def named_column(expression: nw.Expr) -> str:
    """A column by its name, for an error; another expression as it is written."""
    return bare_column(expression) or repr(expression)


def _aggregate(
    kind: str, expression: Expression | None, where: Expression | None, degrees: int = 1, *, distinct: bool = False
) -> Aggregate:
    if flag(distinct, name="distinct") and expression is None:
        raise PlanError(
            f"{kind}(distinct=True) needs the values that count once.", remedy='Say which: g.count("v", distinct=True).'
        )
    return Aggregate(
        kind,
        None if expression is None and kind == "count" else as_expression(expression, where=f"{kind}(…)"),
        None if where is None else as_expression(where, where=f"{kind}(…, where=…)"),
        degrees,
        distinct=distinct,
    )


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
    return _aggregate("count", expression, where, distinct=distinct)


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
    return _aggregate("sum", expression, where, distinct=distinct)


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
    return _aggregate("mean", expression, where, distinct=distinct)


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
    return _aggregate("min", expression, where)


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
    return _aggregate("max", expression, where)


Population = Literal["sample", "population"]


def degrees_of(population: Population) -> int:
    """Delta degrees of freedom.

    Raises:
        PlanError: It is neither.
    """
    return 1 if word(population, ["sample", "population"], name="of") == "sample" else 0


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
    return _aggregate("variance", expression, where, degrees_of(of), distinct=distinct)


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
    return _aggregate("standard_deviation", expression, where, degrees_of(of), distinct=distinct)
