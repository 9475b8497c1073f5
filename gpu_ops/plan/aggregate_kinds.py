"""Kinds of aggregates, which plans, engines and Spark's workers read; and aggregates of a kind.

A kind is data: functions of types and of arrays, and a way of being incremental. `gpu_ops.operators` declares the kinds
of this package, because their functions work on arrays. This module defines the parts of a declaration and registers
all kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import narwhals as nw
import pyarrow as pa

from gpu_ops.core import marks
from gpu_ops.core.types import storage
from gpu_ops.errors import ColumnError, PlanError, shown
from gpu_ops.plan.combinations import Combinable
from gpu_ops.plan.expression_text import line_text, text_of
from gpu_ops.plan.expressions import bare_column, check_boolean, fields_read, output_schema

Kept = Literal["sums", "values", "extreme", "order", "events"]
"""What a running window keeps for an aggregate: counts and sums; these and the distinct values; the events that can
still be the extreme; the values in order; or all events."""


class Incremental(ABC):
    """How a running window updates an aggregate."""

    made_of: str = "more"

    @abstractmethod
    def keeps(self, aggregate: Aggregate, schema: pa.Schema) -> Kept:
        """What the window keeps for it.

        Args:
            aggregate: The aggregate.
            schema: The types of the columns that it reads.
        """


@dataclass(frozen=True)
class Sums(Incremental):
    """Results are computed from counts and exact sums: values that enter are added, values that leave subtracted.

    Attributes:
        distinct: Whether that holds for distinct values too; otherwise a running window keeps the events for these.
        made_of: Whether results need only the block's counts, or also its sums of integers (`Block.integer_sums`), with
            their bounds for a mean; a dense table can provide these at once.
    """

    distinct: bool = False
    made_of: Literal["counts", "sums", "bounded sums", "more"] = "more"

    def keeps(self, aggregate: Aggregate, schema: pa.Schema) -> Kept:
        if not aggregate.distinct:
            return "sums"
        return "values" if self.distinct else "events"


@dataclass(frozen=True)
class Extreme(Incremental):
    """The result is the value of the event with the greatest or least order code: candidates for it are kept.

    Attributes:
        least: Whether the least code is chosen.
        of: The aggregate whose extreme chooses the event; None if the aggregate's own column does.
        form: The form in which that column is loaded; by default the form that gives its order.
    """

    least: bool = False
    of: Callable[[Aggregate, pa.Schema], Aggregate] | None = None
    form: str | None = None

    def keeps(self, aggregate: Aggregate, schema: pa.Schema) -> Kept:
        return "events" if aggregate.distinct else "extreme"


@dataclass(frozen=True)
class SortedValues(Incremental):
    """Results are computed from values by rank: numbers are kept in order; for other types the events are kept."""

    def keeps(self, aggregate: Aggregate, schema: pa.Schema) -> Kept:
        plain = not aggregate.distinct and order_form(storage(aggregate.types(schema)[0])) == "numbers"
        return "order" if plain else "events"


@dataclass(frozen=True)
class AllEvents(Incremental):
    """Results are computed from all events of a window, which are kept."""

    def keeps(self, aggregate: Aggregate, schema: pa.Schema) -> Kept:
        return "events"


class FirstBy(NamedTuple):
    """The first events of a window in the order of a column.

    Attributes:
        column: The column.
        descending: Whether its greatest value is the first.
        most: How many events.
    """

    column: str
    descending: bool
    most: int


@dataclass(frozen=True)
class FirstEvents(AllEvents):
    """The same where the first events in an order are all that counts: those behind them are kept, and not read.

    Attributes:
        of: The first events that an aggregate needs, nulls among them; None where it needs all.
    """

    of: Callable[[Aggregate], FirstBy | None]


@dataclass(frozen=True, eq=False, kw_only=True)
class AggregateKind:
    """A kind of aggregate. Constructing one registers it; a missing part is an error at once.

    Attributes:
        name: Its name in plans, errors and the state of running queries: a Python name that no other kind has.
        types: From an aggregate and the Arrow types of its inputs to the type of its result. It raises a `ColumnError`
            for types that it does not take.
        columns: From an aggregate over plain columns and their schema to the columns that it reads, each with the form
            in which it is loaded: ``numbers`` or ``words`` (of decimals), ``ranks`` (order codes), ``valid`` (which
            values are not null), ``codes`` (equal for equal values), ``rows`` (unchanged), ``bits`` (of floats).
        result: From a block (events with their ranges of slots) and an aggregate to the results of the block's slots:
            (array, which are valid or None for all, Arrow type), or a frame of one column of the aggregate's name.
            Write it for arrays of any device: with NumPy's functions and the device's kernels.
        incremental: How a running window updates it. There is no default.

    Raises:
        PlanError: A part is missing or has the wrong type, or the name is taken.
    """

    name: str
    types: Callable[[Aggregate, tuple[pa.DataType, ...]], pa.DataType]
    columns: Callable[[Aggregate, pa.Schema], Sequence[tuple[str, str]]]
    result: Callable[[Any, Aggregate], Any]
    incremental: Incremental

    def __new__(cls, **parts: Any) -> AggregateKind:  # noqa: PYI034  (mypy takes the dataclass's own signature)
        name = parts.get("name")
        if not isinstance(name, str) or not name.isidentifier():
            raise PlanError(f"A kind of aggregate has the name {shown(name)}.", remedy='Give it a name: name="spread".')
        for part in fields(cls):
            if part.name not in parts:
                raise PlanError(
                    f"The kind of aggregate {name} lacks {part.name}=, {_MEANING[part.name]}.",
                    remedy="Say it where the kind is declared (docs/extending.md).",
                )
            given = parts[part.name]
            if part.name == "incremental":
                if not isinstance(given, Incremental):
                    raise PlanError(
                        f"incremental= of the kind of aggregate {name} is {shown(given)}.",
                        remedy="It is Sums(), Extreme(), SortedValues() or AllEvents() of gpu_ops.extend.",
                    )
            elif part.name != "name" and not callable(given):
                raise PlanError(
                    f"{part.name}= of the kind of aggregate {name} is {shown(given)}.", remedy="It is a function."
                )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        # A notebook cell that runs again, and a worker that unpickles a plan, declare the same kind again.
        before, now = (_origin(each) for each in (KINDS.get(self.name, self), self))
        if self.name in _OF_PACKAGE or (before != now and now[0] != "__main__"):
            raise PlanError(
                f"There is a kind of aggregate {self.name} already: its results are those of {'.'.join(before)}.",
                remedy="Give yours another name.",
            )
        KINDS[self.name] = self

    def __repr__(self) -> str:
        return f"AggregateKind({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        # Every process has the kinds of this package; a kind of the user's is pickled with the plan, as functions are.
        if self.name in _OF_PACKAGE:
            return kind_named, (self.name,)
        return partial(AggregateKind, **{each.name: getattr(self, each.name) for each in fields(self)}), ()


_MEANING = {
    "types": "the type of its result",
    "columns": "the columns that it reads",
    "result": "how it is computed",
    "incremental": "how a running window brings it up to date",
}

KINDS: dict[str, AggregateKind] = {}
"""All declared kinds, by name."""

_OF_PACKAGE: set[str] = set()


def all_of_package_declared() -> None:
    """Reserve the names of the kinds declared so far: kinds declared later are the user's."""
    _OF_PACKAGE.update(KINDS)


def kind_named(name: str) -> AggregateKind:
    """The kind of a name.

    Raises:
        PlanError: There is none.
    """
    if name not in KINDS:
        raise PlanError(f"There is no kind of aggregate {name}.", remedy="Import the module that declares it first.")
    return KINDS[name]


def _origin(kind: AggregateKind) -> tuple[str, str]:
    """The module and name of its result function, which are the same in every process."""
    return str(getattr(kind.result, "__module__", "")), str(getattr(kind.result, "__qualname__", ""))


@dataclass(frozen=True, eq=False)
class Aggregate(Combinable):
    """One aggregate over the events of a window. Aggregates add, subtract, multiply and divide, also with numbers.

    Attributes:
        kind: Its kind.
        expression: The aggregated expression; None counts rows.
        filter: Only events for which this holds count; it never removes a window.
        degrees: Delta degrees of freedom: 1 for a sample, 0 for a population.
        name: The result's column.
        others: Other inputs: a weight, an order, the value that chooses the event.
        options: Other parameters: which quantile, how many.
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
        read = [line_text(each) for each in (self.expression, *self.others) if each is not None]
        read += self.said
        where = "" if self.filter is None else f" where {line_text(self.filter)}"
        return f"{self.name}={self.kind}({'distinct ' * self.distinct}{', '.join(read)}){where}"

    @property
    def said(self) -> list[str]:
        """Its options as texts."""
        return [f"{name}={_shown(value)}" for name, value in self.options.items()]

    def keeps(self, schema: pa.Schema) -> Kept:
        """What a running window keeps for it."""
        return self.kind.incremental.keeps(self, schema)

    @property
    def inputs(self) -> tuple[nw.Expr, ...]:
        """All inputs, without the filter."""
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
        """The result's column with the marks of its inputs; with all marks of a column whose type it keeps."""
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
                column=None if self.expression is None else text_of(self.expression),
                remedy="Take its fields or its text first: only what can be a key can be told apart.",
            )
        return pa.field(self.name, self.kind.types(self, types))


def _shown(value: object) -> str:
    """An option as a text; for a function its name, which is the same in every process."""
    if isinstance(value, pa.Schema):
        return f"[{', '.join(f'{field.name}: {field.type}' for field in value)}]"
    return str(getattr(value, "__qualname__", value))


# The forms in which columns are loaded


def number_form(dtype: pa.DataType) -> str:
    """The form for arithmetic on a column.

    Examples:
        >>> number_form(pa.int8()), number_form(pa.decimal128(9, 2))
        ('numbers', 'words')
    """
    return "words" if pa.types.is_decimal(dtype) else order_form(dtype)


def order_form(dtype: pa.DataType) -> str:
    """The form that gives a column's order.

    Examples:
        >>> order_form(pa.int8()), order_form(pa.decimal128(9, 2)), order_form(pa.string())
        ('numbers', 'ranks', 'ranks')
    """
    is_ = pa.types
    fixed = is_.is_integer(dtype) or is_.is_floating(dtype) or is_.is_boolean(dtype) or is_.is_temporal(dtype)
    return "numbers" if fixed else "ranks"


# Types of results


def refused(aggregate: Aggregate, at: int, dtype: pa.DataType, remedy: str) -> ColumnError:
    """The error for an input of a type that an aggregate does not take.

    Args:
        aggregate: The aggregate.
        at: The place of the input.
        dtype: Its type.
        remedy: What to do.
    """
    column = bare_column(aggregate.inputs[at])
    if column is not None and pa.types.is_dictionary(dtype):
        remedy = f'Make numbers of it first: .with_columns({column}=g.col("{column}").cast(g.Float64)).'
    return ColumnError(
        f"{aggregate.kind} does not take {dtype}.", column=column or repr(aggregate.inputs[at]), remedy=remedy
    )


def float_of_numbers(
    aggregate: Aggregate,
    types: tuple[pa.DataType, ...],
    remedy: str = "Cast it to a number first, for instance g.col(…).cast(g.Float64).",
) -> pa.DataType:
    """The result type of aggregates of numbers (integers, decimals, floats) that give float64.

    A dictionary of numbers is refused, since its codes would be taken for numbers.

    Raises:
        ColumnError: An input is no number.
    """
    for at, dtype in enumerate(types):
        if not is_number(dtype):
            raise refused(aggregate, at, dtype, remedy)
    return pa.float64()


def number_held(dtype: pa.DataType) -> pa.DataType:
    """The type that a column is carried as; but a dictionary's codes and an extension's storage are no numbers."""
    return dtype if pa.types.is_dictionary(dtype) or isinstance(dtype, pa.BaseExtensionType) else storage(dtype)


def is_number(dtype: pa.DataType) -> bool:
    """Whether a type is one of integers, decimals or floats."""
    held = number_held(dtype)
    return bool(pa.types.is_integer(held) or pa.types.is_floating(held) or pa.types.is_decimal128(held))


def has_order(dtype: pa.DataType) -> bool:
    """Whether values of a type have an order.

    Examples:
        >>> has_order(pa.list_(pa.int64()))
        False
    """
    held = storage(dtype)
    return not (pa.types.is_nested(held) or pa.types.is_null(held))


def check_order(aggregate: Aggregate, types: Sequence[pa.DataType], first: int = 0) -> None:
    """Refuse inputs without an order, from the place ``first`` on.

    Raises:
        ColumnError: An input has no order.
    """
    for at, dtype in enumerate(types):
        if at >= first and not has_order(dtype):
            raise refused(aggregate, at, dtype, "Take a part of it that has an order.")


def value_type(aggregate: Aggregate, types: tuple[pa.DataType, ...]) -> pa.DataType:
    """The result type of aggregates that give a value of their first input."""
    return storage(types[0].value_type) if pa.types.is_dictionary(types[0]) else types[0]


def ordered_type(aggregate: Aggregate, types: tuple[pa.DataType, ...]) -> pa.DataType:
    """The same, for aggregates whose inputs all need an order.

    Raises:
        ColumnError: One has none.
    """
    check_order(aggregate, types)
    return value_type(aggregate, types)
