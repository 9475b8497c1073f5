"""Lists and structs as keys: which of them are equal, by the rules of other keys (null, NaN and zero are values)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl


def nested_codes(values: pl.Series) -> tuple[Any, pl.Series]:
    """Numbers of lists or structs.

    Returns:
        (codes, distinct): int32 equal codes for equal values; ``distinct[code]`` is the value. Null is a value, within
        a list or struct too; all NaNs are one; -0.0 is 0.0.

    Examples:
        >>> codes, distinct = nested_codes(pl.Series([[-0.0], None, [0.0], []]))
        >>> codes.tolist(), distinct.to_list()
        ([0, 1, 0, 2], [[0.0], None, []])
    """
    frame = values.alias("value").to_frame()
    plain = _plain(pl.col("value"), values.dtype)
    if plain is not None:
        frame = frame.select(plain.alias("value"))
    groups = frame.with_row_index("at").group_by("value", maintain_order=True).agg("at")
    codes = np.empty(len(values), np.int32)
    if len(values):
        counts = groups["at"].list.len().to_numpy()
        codes[groups["at"].explode().to_numpy()] = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return codes, groups["value"].alias(values.name)


def _plain(value: pl.Expr, dtype: pl.DataType) -> pl.Expr | None:
    """Values with 0.0 for each -0.0 in them; None if they have no floats."""
    if dtype.is_float():
        return pl.when(value == 0).then(pl.lit(0.0, dtype)).otherwise(value)
    if isinstance(dtype, pl.Array):
        within = _plain(pl.element(), _inner(dtype))
        return None if within is None else value.arr.to_list().list.eval(within).list.to_array(dtype.size)
    if isinstance(dtype, pl.List):
        within = _plain(pl.element(), _inner(dtype))
        return None if within is None else value.list.eval(within)
    if isinstance(dtype, pl.Struct):
        fields = {each.name: _plain(value.struct.field(each.name), _kind(each.dtype)) for each in dtype.fields}
        some = [made.alias(name) for name, made in fields.items() if made is not None]
        return pl.when(value.is_not_null()).then(value.struct.with_fields(some)) if some else None
    return None


def _inner(dtype: pl.List | pl.Array) -> pl.DataType:
    return _kind(dtype.inner)


def _kind(dtype: Any) -> pl.DataType:
    """A type as an instance."""
    made: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return made


def hashable(value: Any) -> Any:
    """A list or a struct as Python has it, as what is equal if and only if the keys are.

    Examples:
        >>> hashable([0.0, {"a": float("nan")}]) == hashable([-0.0, {"a": float("nan")}])
        True
    """
    if isinstance(value, dict):
        return tuple(map(hashable, value.values()))
    if isinstance(value, list):
        return tuple(map(hashable, value))
    if isinstance(value, float):
        return _NAN if math.isnan(value) else value + 0.0
    return value


_NAN = "NaN"
"""It stands for all of them: a column of floats has no texts."""
