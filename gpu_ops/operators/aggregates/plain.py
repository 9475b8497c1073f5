"""Counts, sums, means and variances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.types import counted
from gpu_ops.errors import SumOverflowError
from gpu_ops.operators.aggregates.block import Block, nan_if_special
from gpu_ops.operators.aggregates.forms import column_name, nearest_floats, number_columns, valid_columns
from gpu_ops.plan.aggregate_kinds import AggregateKind, Sums, float_of_numbers, number_form, number_held
from gpu_ops.plan.aggregates import Aggregate


def _count(block: Block, aggregate: Aggregate) -> tuple[Any, None, pa.DataType]:
    return block.counts(aggregate, None if aggregate.expression is None else "valid"), None, pa.int64()


def _overflow(block: Block, aggregate: Aggregate, bad: Any, dtype: pa.DataType) -> None:
    if bool(bad.any()):
        raise SumOverflowError(
            f"The sum does not fit {dtype}.",
            column=aggregate.name,
            values=block.shown(int(bad.argmax())),
            remedy="Sum a wider type, for instance a decimal or a float: g.sum(g.col(…).cast(g.Float64)).",
        )


def _sum(block: Block, aggregate: Aggregate) -> Any:
    dtype = block.type_of(aggregate)
    kernels = block.device.kernels
    if pa.types.is_decimal(dtype):
        result_type = pa.decimal128(38, dtype.scale)
        low, high, bad = kernels.join_decimal(block.decimal_sums(aggregate), 38)
        _overflow(block, aggregate, bad, result_type)
        valid = block.present(aggregate, "words")
        return block.device.columns.build_decimal(aggregate.name, low, high, valid, result_type)
    valid = block.present(aggregate, "numbers")
    if pa.types.is_floating(dtype):
        return block.float_sum(aggregate), valid, pa.float64()
    sums, most = block.integer_sums(aggregate)
    plain = pa.uint64() if dtype == pa.uint64() else pa.int64()
    result_type = counted(dtype) if pa.types.is_duration(dtype) else plain
    if most < 1 << 63:
        return sums[0], valid, result_type
    join = kernels.join_unsigned if dtype == pa.uint64() else kernels.join_int
    total, bad = join(*sums)
    _overflow(block, aggregate, bad, result_type)
    return total, valid, result_type


def mean(block: Block, aggregate: Aggregate) -> tuple[Any, Any | None, pa.DataType]:
    """The means of the values."""
    form = number_form(block.type_of(aggregate))
    counts, valid = block.counts(aggregate, form), block.present(aggregate, form)
    return block.over(aggregate, counts if valid is None else np.maximum(counts, 1)), valid, pa.float64()


def _variance_and_form(block: Block, aggregate: Aggregate) -> tuple[Any, str]:
    """(variance per slot, form): from exact sums of values and squares."""
    dtype = block.type_of(aggregate)
    kernels = block.device.kernels
    form = number_form(dtype)
    identity, arrays, first, last = block.picked(aggregate, form)
    counts = block.counts(aggregate, form)
    if pa.types.is_integer(dtype):
        whole = arrays[0] if dtype == pa.uint64() else arrays[0].astype(np.int64, copy=False)
        sums = block.integer_sums(aggregate)[0]
        squares = block.sums(("squares", *identity), block.squares_of(whole), first, last)
        return kernels.variance(counts, sums, squares, 32, 0, aggregate.degrees), form
    values = nearest_floats(arrays, dtype, block.device)
    (sums, bits, lowest), special = block.limbs_of(identity, values, first, last)
    finite, _ = block.finite(identity, values, first, last)
    squares = block.sums(("squares", *identity), kernels.square_limbs(finite, bits, lowest), first, last)
    spread = kernels.variance(counts, sums, squares, bits, lowest, aggregate.degrees)
    return nan_if_special(spread, special), form


def _variance(block: Block, aggregate: Aggregate) -> tuple[Any, Any | None, pa.DataType]:
    name = None if aggregate.expression is None else column_name(aggregate.expression)
    identity = ("variance", name, block.which(aggregate), aggregate.degrees)
    spread, form = block.part(identity, lambda: _variance_and_form(block, aggregate))
    enough = block.counts(aggregate, form) > aggregate.degrees
    return spread, None if bool(enough.all()) else enough, pa.float64()


def _standard_deviation(block: Block, aggregate: Aggregate) -> tuple[Any, Any | None, pa.DataType]:
    spread, valid, dtype = _variance(block, aggregate)
    return np.sqrt(spread), valid, dtype


def _sum_type(aggregate: Aggregate, types: tuple[pa.DataType, ...]) -> pa.DataType:
    held = number_held(types[0])
    if pa.types.is_integer(held):
        return pa.uint64() if held == pa.uint64() else pa.int64()
    if pa.types.is_decimal128(held):
        return pa.decimal128(38, held.scale)
    return types[0] if pa.types.is_duration(held) else float_of_numbers(aggregate, types)


AggregateKind(
    name="count",
    types=lambda aggregate, types: pa.int64(),
    columns=valid_columns,
    result=_count,
    incremental=Sums(distinct=True, made_of="counts"),
)
AggregateKind(
    name="sum",
    types=_sum_type,
    columns=number_columns,
    result=_sum,
    incremental=Sums(distinct=True, made_of="sums"),
)
AggregateKind(
    name="mean",
    types=float_of_numbers,
    columns=number_columns,
    result=mean,
    incremental=Sums(distinct=True, made_of="bounded sums"),
)
for _name, _result in {"variance": _variance, "standard_deviation": _standard_deviation}.items():
    AggregateKind(
        name=_name,
        types=float_of_numbers,
        columns=number_columns,
        result=_result,
        incremental=Sums(distinct=True),
    )
