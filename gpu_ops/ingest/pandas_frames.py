"""pandas frames as Arrow tables and back: the dtype of a result's column follows from the query alone."""

from __future__ import annotations

import importlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core import marks

_IS = pa.types


def field_of(field: pa.Field, dtype: Any) -> pa.Field:
    """The Arrow field of a pandas column, marked so that its result gets the same dtype.

    Args:
        field: As pyarrow sees the column.
        dtype: As pandas does.
    """
    pd: Any = importlib.import_module("pandas")
    if isinstance(dtype, pd.CategoricalDtype):
        categories = pa.array(dtype.categories, from_pandas=True)
        return marks.marked(field, categories=categories)
    if isinstance(dtype, pd.ArrowDtype):
        return marks.marked(field, family="arrow")
    if isinstance(dtype, pd.StringDtype):
        return marks.marked(field, family="nullable") if dtype.na_value is pd.NA else field
    if dtype.kind in "iubf" and isinstance(dtype, pd.api.extensions.ExtensionDtype):
        return marks.marked(field, family="nullable")
    # NumPy's integers and booleans have no null, and floats have NaN for it.
    return field.with_nullable(False) if dtype.kind in "iub" else field


def to_pandas(table: pa.Table) -> Any:
    """A table as a pandas frame.

    An integer or boolean column has a NumPy dtype if the plan allows no nulls, else a nullable dtype of pandas. A float
    has a NumPy dtype, with NaN for null. A column marked with a family has a dtype of that family.
    """
    pd: Any = importlib.import_module("pandas")
    columns = {
        field.name: _series(pd, field, column) for field, column in zip(table.schema, table.columns, strict=True)
    }
    return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows), columns=table.column_names)


def _series(pd: Any, field: pa.Field, column: pa.ChunkedArray) -> Any:
    family = marks.family_of(field)
    if family == "arrow":
        return column.to_pandas(types_mapper=pd.ArrowDtype)
    if _IS.is_dictionary(field.type):
        return _decoded(pd, field, pc.dictionary_decode(column))
    if _IS.is_integer(field.type) or _IS.is_boolean(field.type):
        plain = not field.nullable and not column.null_count and family is None
        return column.to_pandas(types_mapper=None if plain else _nullable(pd).get)
    return column.to_pandas(types_mapper=_nullable(pd).get if family == "nullable" else None)


def _decoded(pd: Any, field: pa.Field, values: pa.ChunkedArray) -> Any:
    """The values as categories if the plan knows all categories; else as plain values."""
    categories = marks.categories_of(field)
    if categories is None:
        return _series(pd, field.with_type(values.type), values)
    codes = pc.index_in(values, value_set=categories.cast(values.type), skip_nulls=True)
    kind = pd.CategoricalDtype(categories.to_pandas().array)
    return pd.Categorical.from_codes(codes.fill_null(-1).to_numpy(), dtype=kind)


def _nullable(pd: Any) -> dict[pa.DataType, Any]:
    text = pd.StringDtype(na_value=pd.NA)
    return {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.uint8(): pd.UInt8Dtype(),
        pa.uint16(): pd.UInt16Dtype(),
        pa.uint32(): pd.UInt32Dtype(),
        pa.uint64(): pd.UInt64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
        pa.float32(): pd.Float32Dtype(),
        pa.float64(): pd.Float64Dtype(),
        pa.string(): text,
        pa.large_string(): text,
    }
