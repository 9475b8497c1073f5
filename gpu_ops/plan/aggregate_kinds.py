"""What a kind of aggregate is: one declaration, which plans, batches, running windows and Spark's workers read.

A declaration is data: functions of types and of arrays, and a way of being incremental. So the part that works on
arrays is handed in from ``operators/``, where the kinds of this package are declared, each in one place; this room
knows what a declaration must say, and which there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from gpu_ops.core.types import storage
from gpu_ops.errors import ColumnError, PlanError, shown
from gpu_ops.plan.expressions import bare_column

if TYPE_CHECKING:
    from gpu_ops.plan.aggregates import Aggregate

Kept = Literal["sums", "values", "extreme", "order", "events"]
"""What a running window keeps for an aggregate: counts and sums; these and the distinct values that are there; the
events that can still be the one; the values in order; or the events themselves."""


class Incremental(ABC):
    """How a running window brings an aggregate up to date."""

    made_of: str = "more"

    @abstractmethod
    def keeps(self, aggregate: Aggregate, schema: pa.Schema) -> Kept:
        """What it keeps to do so.

        Args:
            aggregate: Which.
            schema: The types of the columns that it reads.
        """


@dataclass(frozen=True)
class Sums(Incremental):
    """Counts and exact sums are all that a result is made of: what enters is added, what leaves is taken off.

    Attributes:
        distinct: Whether that holds of distinct values too; otherwise a running window keeps the events for these.
        made_of: Whether the block's own counts are all that a result is made of, or these and its sums of integers
            (`Block.integer_sums`), of which a mean asks how large they may be: a dense table can have them ready.
    """

    distinct: bool = False
    made_of: Literal["counts", "sums", "bounded sums", "more"] = "more"

    def keeps(self, aggregate: Aggregate, schema: pa.Schema) -> Kept:
        if not aggregate.distinct:
            return "sums"
        return "values" if self.distinct else "events"


@dataclass(frozen=True)
class Extreme(Incremental):
    """One event's value is the result, the greatest or least by order codes: the events that can still be it are kept.

    Attributes:
        least: Whether it is the least.
        of: Of another aggregate that it is the extreme of; None if it is one itself, of its own column.
        form: In which form that column is loaded; left out, in the one that puts it in order.
    """

    least: bool = False
    of: Callable[[Aggregate, pa.Schema], Aggregate] | None = None
    form: str | None = None

    def keeps(self, aggregate: Aggregate, schema: pa.Schema) -> Kept:
        return "events" if aggregate.distinct else "extreme"


@dataclass(frozen=True)
class Order(Incremental):
    """Values by their place in order are all that a result is made of: numbers are kept in order, else the events."""

    def keeps(self, aggregate: Aggregate, schema: pa.Schema) -> Kept:
        plain = not aggregate.distinct and order_form(storage(aggregate.types(schema)[0])) == "numbers"
        return "order" if plain else "events"


@dataclass(frozen=True)
class Events(Incremental):
    """Nothing less than the events of its windows is enough: they are kept, and results are computed from them."""

    def keeps(self, aggregate: Aggregate, schema: pa.Schema) -> Kept:
        return "events"


@dataclass(frozen=True, eq=False, kw_only=True)
class AggregateKind:
    """A kind of aggregate. Making one declares it; what it leaves out is an error there and then.

    Attributes:
        name: Its name, in plans, errors and the state of running queries: a Python name, of one kind alone.
        types: From an aggregate and the Arrow types of its inputs to the type of its result. It raises a `ColumnError`
            for types that it does not take.
        columns: From an aggregate over plain columns and their schema to the columns that it reads, each with the form
            in which it is loaded: ``numbers`` or ``words`` (of decimals), ``ranks`` (order codes), ``valid`` (which
            values are there), ``codes`` (equal for equal values), ``rows`` (as they are), ``bits`` (of floats).
        result: From a block (events with their ranges of slots) and an aggregate to the results of the block's slots:
            (array, which are valid or None for all, Arrow type), or a frame of one column of the aggregate's name.
            Code for arrays of any device: NumPy's functions, and the device's kernels.
        incremental: How a running window brings it up to date. There is no default: what is not said cannot be guessed.

    Raises:
        PlanError: A part is missing or is no such thing, or the name is taken.
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
                        remedy="It is Sums(), Extreme(), Order() or Events().",
                    )
            elif part.name != "name" and not callable(given):
                raise PlanError(
                    f"{part.name}= of the kind of aggregate {name} is {shown(given)}.", remedy="It is a function."
                )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        # A cell of a notebook that runs again, and a plan that a worker opens again, declare the same kind again.
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
        # A kind of this package is there wherever the package is; another goes along with the plan, as functions do.
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
"""All kinds that are declared, by name."""

_OF_PACKAGE: set[str] = set()


def all_of_package_declared() -> None:
    """From now on, who declares a kind is somebody else: the names that are taken stay so."""
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
    """Where the function of its results is from, which a function of the same code has in every process."""
    return str(getattr(kind.result, "__module__", "")), str(getattr(kind.result, "__qualname__", ""))


# In which form columns are taken


def number_form(dtype: pa.DataType) -> str:
    """In which form a column is computed with.

    Examples:
        >>> number_form(pa.int8()), number_form(pa.decimal128(9, 2))
        ('numbers', 'words')
    """
    return "words" if pa.types.is_decimal(dtype) else order_form(dtype)


def order_form(dtype: pa.DataType) -> str:
    """In which form a column is put in order.

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
        aggregate: Which.
        at: Which of its inputs.
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
    """The type of what takes numbers (integers, decimals, floats) and gives float64.

    A column of codes that say which of some numbers each value is (a dictionary) is none: the codes would be taken.

    Raises:
        ColumnError: An input is no number.
    """
    for at, dtype in enumerate(types):
        if not is_number(dtype):
            raise refused(aggregate, at, dtype, remedy)
    return pa.float64()


def is_number(dtype: pa.DataType) -> bool:
    """Whether a type is one of integers, decimals or floats."""
    held = dtype if pa.types.is_dictionary(dtype) else storage(dtype)
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
    """Refuse inputs, from the first that is asked about on, whose values have no order.

    Raises:
        ColumnError: There is one.
    """
    for at, dtype in enumerate(types):
        if at >= first and not has_order(dtype):
            raise refused(aggregate, at, dtype, "Take a part of it that has an order.")


def value_type(aggregate: Aggregate, types: tuple[pa.DataType, ...]) -> pa.DataType:
    """The type of what gives one of the values of its first input."""
    return storage(types[0].value_type) if pa.types.is_dictionary(types[0]) else types[0]


def ordered_type(aggregate: Aggregate, types: tuple[pa.DataType, ...]) -> pa.DataType:
    """Likewise, where all inputs have to have an order.

    Raises:
        ColumnError: One has none.
    """
    check_order(aggregate, types)
    return value_type(aggregate, types)
