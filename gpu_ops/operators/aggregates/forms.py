"""Columns of events in the forms that aggregates take: numbers, words of decimals, order codes, and others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.errors import PlanError, shown
from gpu_ops.operators.row_order import run_starts
from gpu_ops.plan.aggregate_kinds import number_form, order_form
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.expressions import bare_column


@dataclass(frozen=True)
class Column:
    """A column of events, as the arrays that kernels take.

    Attributes:
        arrays: One array of numbers; two for decimals (low and high word).
        valid: Which values are not null; None for all.
        distinct: For order codes, the frame that they point into.
    """

    arrays: tuple[Any, ...]
    valid: Any | None
    distinct: Any | None = None

    def parts(self) -> list[Any]:
        """All its arrays."""
        return [*self.arrays, *([] if self.valid is None else [self.valid])]

    def with_parts(self, parts: Sequence[Any]) -> Column:
        """The same column with its arrays in another order of events, or cut."""
        valid = None if self.valid is None else parts[-1]
        return Column(tuple(parts[: len(self.arrays)]), valid, self.distinct)


PartName = tuple[str, str | None, str | None]
"""The name of a part: its kind, its column, the column of the condition under which events take part."""

Columns = dict[tuple[str, str], Column]
"""Columns by name and form, one of `FORMS`."""


def changed(columns: Columns, change: Callable[[Any], Any]) -> Columns:
    """Columns with each of their arrays taken at some events, or cut."""
    return {
        name: Column(
            tuple(map(change, column.arrays)), None if column.valid is None else change(column.valid), column.distinct
        )
        for name, column in columns.items()
    }


GREATEST = "greatest"
"""The form of a choice, an extreme of codes of several columns: the column's name encodes which columns, and how."""


def column_name(expression: Any) -> str:
    """The name of the plain column that an aggregate is over."""
    name = bare_column(expression)
    if name is None:
        raise TypeError("aggregates are computed over plain columns; the plan lowers them first")
    return name


def input_names(aggregate: Aggregate) -> tuple[str, ...]:
    """The names of the columns that an aggregate is over."""
    return tuple(column_name(each) for each in aggregate.inputs)


def no_columns(aggregate: Aggregate, schema: pa.Schema) -> list[tuple[str, str]]:
    """The columns of an aggregate that only counts rows: none."""
    return []


def valid_columns(aggregate: Aggregate, schema: pa.Schema) -> list[tuple[str, str]]:
    """The inputs, of which only nulls matter."""
    return [(name, "valid") for name in input_names(aggregate)]


def number_columns(aggregate: Aggregate, schema: pa.Schema) -> list[tuple[str, str]]:
    """The inputs, to be computed with."""
    return [(name, number_form(schema.field(name).type)) for name in input_names(aggregate)]


def ordered_columns(aggregate: Aggregate, schema: pa.Schema) -> list[tuple[str, str]]:
    """The inputs, to be put in order."""
    return [(name, order_form(schema.field(name).type)) for name in input_names(aggregate)]


def nearest_floats(arrays: Sequence[Any], dtype: pa.DataType, device: Device) -> Any:
    """Numbers as the nearest float64; decimals come in two words each."""
    if not pa.types.is_decimal(dtype):
        return arrays[0].astype(np.float64, copy=False)
    kernels, (low, high) = device.kernels, arrays
    return kernels.mean_limbs(list(kernels.exact_limbs_decimal(low, high)), np.ones_like(low), 32, 0, dtype.scale)


def load_columns(aggregates: Sequence[Aggregate], schema: pa.Schema, frame: Any, device: Device) -> Columns:
    """The columns that some aggregates need, each once."""
    columns: Columns = {}
    for aggregate in aggregates:
        asked = list(aggregate.kind.columns(aggregate, schema))
        if aggregate.distinct:
            asked.append((column_name(aggregate.expression), "codes"))
        if aggregate.filter is not None:
            asked.append((column_name(aggregate.filter), "numbers"))
        for name, form in asked:
            if form not in FORMS:
                raise PlanError(
                    f"The kind of aggregate {aggregate.kind} reads {name} in the form {shown(form)}.",
                    remedy=f"It is one of {', '.join(FORMS)}.",
                )
            if (name, form) not in columns:
                columns[name, form] = FORMS[form](frame, name, device)
    return columns


def condition_holds(columns: Columns, name: str) -> Any:
    """bool: where the condition in a column holds; not where it is null."""
    condition = columns[name, "numbers"]
    holds = condition.arrays[0] != 0
    return holds if condition.valid is None else holds & condition.valid


def order_codes(values: Any, device: Device) -> Any:
    """int64 numbers in the order of some numbers."""
    if values.dtype.kind == "f":
        return device.kernels.order_float(values.astype(np.float64, copy=False))
    if values.dtype == np.uint64:
        return (values ^ np.uint64(1 << 63)).view(np.int64)
    return values.astype(np.int64, copy=False)


# Choices: codes of several columns at once


@dataclass(frozen=True)
class Key:
    """A column by which events are chosen.

    Attributes:
        column: Its name.
        form: "numbers" or "ranks".
        sign: 1 where the code ascends with the column, -1 where it descends.
        needed: Whether an event with a null here takes no part; else null is less than all values.
    """

    column: str
    form: str
    sign: int
    needed: bool


@dataclass(frozen=True)
class Choice:
    """Which event is chosen; the value is the last of the keys."""

    keys: tuple[Key, ...]

    @property
    def name(self) -> str:
        """The name of the column of its codes, which encodes the whole choice."""
        return json.dumps([[key.column, key.form, key.sign, key.needed] for key in self.keys])

    @staticmethod
    def of(name: str) -> Choice:
        """The choice of that name."""
        return Choice(tuple(Key(*each) for each in json.loads(name)))

    @property
    def columns(self) -> list[str]:
        """The columns that it reads, each once."""
        return list(dict.fromkeys(key.column for key in self.keys))


def ranked_by(column: str, form: str) -> list[str]:
    """The columns of a frame by which a column's values are ranked."""
    return Choice.of(column).columns if form == GREATEST else [column]


def choice_codes(frame: Any, name: str, device: Device) -> Column:
    """Order codes of rows for a choice: ascending from the worst to the best, equal for rows of the same keys.

    Its ``distinct`` has the value that goes with each code, in a column of the choice's name.
    """
    columns = device.columns
    together: Any = None
    valid: Any = None
    bound = 1
    for key in Choice.of(name).keys:
        values = None
        if key.form == "ranks":
            codes, there, values = columns.ranks(frame, key.column)
        else:
            numbers, there = columns.values(frame, key.column)
            codes = order_codes(numbers, device)
        if key.needed and there is not None:
            valid = there if valid is None else valid & there
        digits, count = _digits(codes, _MOST // bound, device)
        if there is not None and not key.needed:
            digits, count = np.where(there, digits + 1, 0), count + 1
        digits = digits if key.sign > 0 else count - 1 - digits
        if together is not None and bound * count >= _MOST:
            together, _ = _ranked(together, device)
            bound = len(together)
        together = digits if together is None else together * count + digits
        bound *= count
    if valid is not None:
        # Events that take no part have a code of their own, so that every other code has a value.
        together = np.where(valid, together + 1, 0)
    together, example = _ranked(together, device)
    # The last key is the value.
    source = key.column
    if values is None:
        numbers, _ = columns.values(frame, source)
        values = columns.take(columns.select(frame, [source]), example)
        if numbers.dtype.kind == "f":
            # One zero and one NaN stand for all.
            made = device.kernels.unorder_float(device.kernels.take(codes, example))
            values = columns.build({source: (made, None, pa.from_numpy_dtype(numbers.dtype))})
    elif columns.rows(values):
        values = columns.take(values, device.kernels.take(codes, example))
    else:
        values = columns.nulls(values, len(example))
    return Column((together,), valid, columns.rename(values, source, name))


_MOST = 1 << 62
"""A bound of the codes of several columns together."""


def _digits(codes: Any, most: int, device: Device) -> tuple[Any, int]:
    """(int64 numbers from 0 on in the order of some codes, a bound of them): no sort if the bound can be ``most``."""
    if not len(codes):
        return codes, 1
    least, greatest = device.kernels.extent(codes)
    if greatest - least + 2 < most:
        return codes - least, int(greatest - least) + 1
    ranks, example = _ranked(codes, device)
    return ranks, len(example)


def _ranked(codes: Any, device: Device) -> tuple[Any, Any]:
    """(int64 dense ranks of some codes, the first row of each rank)."""
    if not len(codes):
        return codes, codes
    kernels = device.kernels
    order = kernels.group_order(np.zeros_like(codes, dtype=np.int32), 1, codes)
    starts = run_starts(kernels.take(codes, order))
    ranks = np.empty_like(order)
    ranks[order] = np.cumsum(starts) - 1
    return ranks, kernels.take(order, kernels.keep(starts))


# Forms


def _numbers(frame: Any, name: str, device: Device) -> Column:
    values, valid = device.columns.values(frame, name)
    return Column((values,), valid)


def _words(frame: Any, name: str, device: Device) -> Column:
    low, high, valid = device.columns.words(frame, name)
    return Column((low, high), valid)


def _ranks(frame: Any, name: str, device: Device) -> Column:
    codes, valid, distinct = device.columns.ranks(frame, name)
    return Column((codes,), valid, distinct)


def _valid(frame: Any, name: str, device: Device) -> Column:
    return Column((), device.columns.validity(frame, name))


def _codes(frame: Any, name: str, device: Device) -> Column:
    codes, _, _ = device.columns.key_codes(frame, [name])
    return Column((codes.astype(np.int64, copy=False),), device.columns.validity(frame, name))


def _rows(frame: Any, name: str, device: Device) -> Column:
    rows = device.columns.array(np.arange(device.columns.rows(frame)))
    return Column((rows,), device.columns.validity(frame, name), device.columns.select(frame, [name]))


def _bits(frame: Any, name: str, device: Device) -> Column:
    numbers, valid = device.columns.values(frame, name)
    return Column((numbers.view(np.dtype(f"i{numbers.dtype.itemsize}")),), valid)


FORMS: dict[str, Callable[[Any, str, Device], Column]] = {
    "numbers": _numbers,
    "words": _words,
    "ranks": _ranks,
    "valid": _valid,
    "codes": _codes,
    "rows": _rows,
    "bits": _bits,
    GREATEST: choice_codes,
}
"""The function that makes each form of a frame's column: numbers; decimals in two words; order codes; validity without
values; numbers that are equal for equal values; row numbers of the frame ``distinct``, which has the unchanged values;
the bits of floats as integers; the codes of a choice."""
