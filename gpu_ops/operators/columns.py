"""Columns of events in the forms that aggregates take: numbers, words of decimals, order codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.expressions import bare_column


@dataclass(frozen=True)
class Column:
    """A column of events, as the arrays that kernels take.

    Attributes:
        arrays: One array of numbers; two for decimals (low and high word).
        valid: Which values are there; None for all.
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
"""What a part is: its kind, the column that it is of, the column that says which events take part."""

Columns = dict[tuple[str, str], Column]
"""Columns by name and form: ``numbers``, ``words`` (decimals), ``ranks`` (order codes), ``valid`` (no values), or one
of `LOADERS`."""

FORMS: dict[str, Callable[[pa.DataType], str]] = {}
"""For a kind of aggregate the form in which it takes columns of a type; for kinds not here `column_form` says it."""

LOADS: dict[str, Callable[[Aggregate, pa.Schema], list[tuple[str, str]]]] = {}
"""For a kind of aggregate which columns it takes, in which forms; kinds not here take each in one."""


LOADERS: dict[str, Callable[[Any, str, Device], Column]] = {}
"""For a form that is not here how a frame's column is brought into it."""


def column_name(expression: Any) -> str:
    """The name of the plain column that an aggregate is over."""
    name = bare_column(expression)
    if name is None:
        raise TypeError("aggregates are computed over plain columns; the plan lowers them first")
    return name


def column_form(kind: str, dtype: pa.DataType) -> str:
    """In which form an aggregate of a kind takes a column of a type."""
    if kind in FORMS:
        return FORMS[kind](dtype)
    if kind == "count":
        return "valid"
    if pa.types.is_decimal(dtype):
        return "ranks" if kind in {"min", "max"} else "words"
    fixed = (
        pa.types.is_integer(dtype)
        or pa.types.is_floating(dtype)
        or pa.types.is_boolean(dtype)
        or pa.types.is_temporal(dtype)
    )
    return "numbers" if fixed else "ranks"


def decimal_floats(words: Sequence[Any], places: int, device: Device) -> Any:
    """Decimals, in two words each, as the nearest float64."""
    kernels, (low, high) = device.kernels, words
    return kernels.mean_limbs(list(kernels.exact_limbs_decimal(low, high)), np.ones_like(low), 32, 0, places)


def load_columns(aggregates: Sequence[Aggregate], schema: pa.Schema, frame: Any, device: Device) -> Columns:
    """The columns that some aggregates need, each once."""
    columns: Columns = {}
    for aggregate in aggregates:
        if aggregate.kind in LOADS or aggregate.distinct:
            for name, form in LOADS.get(aggregate.kind, _nothing_more)(aggregate, schema):
                if (name, form) not in columns:
                    columns[name, form] = _load(frame, name, form, device)
            if aggregate.distinct:
                name = column_name(aggregate.expression)
                if (name, "codes") not in columns:
                    columns[name, "codes"] = _load(frame, name, "codes", device)
        if aggregate.filter is not None:
            name = column_name(aggregate.filter)
            if (name, "numbers") not in columns:
                columns[name, "numbers"] = Column(*_single(device.columns.values(frame, name)))
        for expression in () if aggregate.kind in LOADS else (aggregate.expression, *aggregate.others):
            if expression is not None:
                name = column_name(expression)
                form = column_form(aggregate.kind, schema.field(name).type)
                if (name, form) not in columns:
                    columns[name, form] = _load(frame, name, form, device)
    return columns


def _nothing_more(aggregate: Aggregate, schema: pa.Schema) -> list[tuple[str, str]]:
    del aggregate, schema
    return []


def _load(frame: Any, name: str, form: str, device: Device) -> Column:
    if form == "valid":
        return Column((), device.columns.validity(frame, name))
    if form == "numbers":
        return Column(*_single(device.columns.values(frame, name)))
    if form == "words":
        low, high, valid = device.columns.words(frame, name)
        return Column((low, high), valid)
    if form in LOADERS:
        return LOADERS[form](frame, name, device)
    codes, valid, distinct = device.columns.ranks(frame, name)
    return Column((codes,), valid, distinct)


def order_codes(values: Any, device: Device) -> Any:
    """int64 numbers in the order of some numbers."""
    if values.dtype.kind == "f":
        return device.kernels.order_float(values.astype(np.float64, copy=False))
    if values.dtype == np.uint64:
        return (values ^ np.uint64(1 << 63)).view(np.int64)
    return values.astype(np.int64, copy=False)


def _single(pair: tuple[Any, Any | None]) -> tuple[tuple[Any], Any | None]:
    return (pair[0],), pair[1]
