"""Products, geometric and harmonic means from sums of logarithms and reciprocals; any and all of booleans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.types import storage
from gpu_ops.operators.aggregates.block import Block
from gpu_ops.operators.aggregates.exact_sums import Result, Taken, as_float, computed_once, taken
from gpu_ops.operators.aggregates.forms import number_columns
from gpu_ops.plan.aggregate_kinds import AggregateKind, Sums, float_of_numbers, number_form, refused
from gpu_ops.plan.aggregates import Aggregate


@computed_once
def _logarithms(some: Taken) -> tuple[list[Any], dict[str, Any]]:
    """(limb sums of the logarithms of magnitudes, counts by kind of value), per slot.

    The kinds are ``zero``, ``infinite``, ``unknown`` (NaN) and ``negative``; the first three have no logarithm.
    """
    values = some.floats(0)
    kinds = {
        "zero": values == 0,
        "infinite": np.isinf(values),
        "unknown": np.isnan(values),
        "negative": values < 0,
    }
    counts = {kind: some.count_if(kind, mask) for kind, mask in kinds.items()}
    plain = ~(kinds["zero"] | kinds["infinite"] | kinds["unknown"])
    magnitude = np.where(plain, np.abs(values), 1.0)
    sums = some.sums("logarithm", lambda: some.block.device.kernels.log_limbs(magnitude))
    return sums, counts


def _magnitude(some: Taken, root: Any) -> tuple[Any, Any, Any]:
    """(a root of the magnitude of the product, where it is unknown, how many values are negative), per slot."""
    sums, counts = _logarithms(some)
    infinite, zero = counts["infinite"] > 0, counts["zero"] > 0
    made = some.block.device.kernels.exp_limbs(sums, root)
    made = np.where(infinite, np.inf, np.where(zero, 0.0, made))
    return made, (counts["unknown"] > 0) | (infinite & zero), counts["negative"]


def _product(block: Block, aggregate: Aggregate) -> Result:
    some = taken(block, aggregate)
    made, unknown, negative = _magnitude(some, np.ones_like(some.count()))
    made = np.where(negative & 1, -made, made) + 0.0
    return as_float(np.where(unknown, np.nan, made), some.count() > 0)


def _geometric_mean(block: Block, aggregate: Aggregate) -> Result:
    some = taken(block, aggregate)
    made, unknown, negative = _magnitude(some, np.maximum(some.count(), 1))
    return as_float(np.where(unknown, np.nan, made), (some.count() > 0) & (negative == 0))


@computed_once
def _count_over_reciprocals(some: Taken) -> tuple[Any, Any]:
    """(per slot, the number of values over the sum of their reciprocals, where it is defined)."""
    values, kernels = some.floats(0), some.block.device.kernels
    with np.errstate(over="ignore"):
        reciprocals = np.where(values == 0, np.inf, 1.0 / np.where(values == 0, 1.0, values))
    kinds = (("nan", np.isnan(reciprocals)), ("up", reciprocals == np.inf), ("down", reciprocals == -np.inf))
    nan, up, down = (some.count_if(f"reciprocal {kind}", mask) for kind, mask in kinds)
    finite = np.where(np.isfinite(reciprocals), reciprocals, 0.0)
    sums, bits, lowest = some.block.limbs(some.name("reciprocal"), finite, some.first, some.last)
    digits = kernels.digits_limbs(sums, bits)
    made = kernels.divide_digits(kernels.digits_int(some.count()), digits, -lowest)
    made = np.where((up > 0) | (down > 0), np.where(down > 0, -0.0, 0.0), made)
    unknown = (nan > 0) | ((up > 0) & (down > 0))
    defined = (kernels.round_digits(digits)[0] != 0) | (up > 0) | (down > 0) | unknown
    return np.where(unknown, np.nan, made), defined


def _harmonic_mean(block: Block, aggregate: Aggregate) -> Result:
    some = taken(block, aggregate)
    made, defined = _count_over_reciprocals(some)
    return as_float(made, defined & (some.count() > 0))


def _total(block: Block, aggregate: Aggregate) -> Result:
    form = number_form(block.type_of(aggregate))
    ones = np.ones_like(block.counts(aggregate, form))
    return block.over(aggregate, ones), block.present(aggregate, form), pa.float64()


# Booleans


def _any(block: Block, aggregate: Aggregate) -> tuple[Any, Any | None, pa.DataType]:
    return block.integer_sums(aggregate)[0][0] > 0, block.present(aggregate, "numbers"), pa.bool_()


def _all(block: Block, aggregate: Aggregate) -> tuple[Any, Any | None, pa.DataType]:
    true = block.integer_sums(aggregate)[0][0]
    return true == block.counts(aggregate, "numbers"), block.present(aggregate, "numbers"), pa.bool_()


def _boolean(aggregate: Aggregate, types: tuple[pa.DataType, ...]) -> pa.DataType:
    if not pa.types.is_boolean(storage(types[0])):
        raise refused(aggregate, 0, types[0], 'Compare it: g.any(g.col("price") > 0).')
    return pa.bool_()


for _types, _results in (
    (float_of_numbers, {"product": _product, "geometric_mean": _geometric_mean, "harmonic_mean": _harmonic_mean}),
    (float_of_numbers, {"total": _total}),
    (_boolean, {"any": _any, "all": _all}),
):
    for _name, _result in _results.items():
        AggregateKind(name=_name, types=_types, columns=number_columns, result=_result, incremental=Sums())
