"""Questions about events in time, on Arrow data, on CPU, GPU and Spark, with the same answer everywhere.

Examples:
    >>> import gpu_ops as g
    >>> import pyarrow as pa
    >>> rides = pa.table({"pickup": [0, 60], "dropoff": [120, 90], "zone": ["A", "B"]})
    >>> g.events(rides, start="pickup", end="dropoff", unit="s").snapshot().agg(n=g.count()).collect()["n"].to_pylist()
    [1, 2, 1]
"""

from __future__ import annotations

from narwhals import (
    Boolean,
    Date,
    Datetime,
    Decimal,
    Duration,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    all_horizontal,
    any_horizontal,
    coalesce,
    col,
    concat_str,
    lit,
    max_horizontal,
    min_horizontal,
    sum_horizontal,
    when,
)

from gpu_ops.errors import (
    ColumnError,
    DeviceError,
    GpuOpsError,
    PlanError,
    SourceError,
    SumOverflowError,
    TimeError,
)
from gpu_ops.plan.aggregates import Aggregate, count, max, mean, min, standard_deviation, sum, variance  # noqa: A004
from gpu_ops.store.stores import Store, StoredBatch, store
from gpu_ops.stream import Stream, Windowed, events, restore

__version__ = "0.1.0"

__all__ = [
    "Aggregate",
    "Boolean",
    "ColumnError",
    "Date",
    "Datetime",
    "Decimal",
    "DeviceError",
    "Duration",
    "Float32",
    "Float64",
    "GpuOpsError",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "PlanError",
    "SourceError",
    "Store",
    "StoredBatch",
    "Stream",
    "String",
    "SumOverflowError",
    "TimeError",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "Windowed",
    "all_horizontal",
    "any_horizontal",
    "coalesce",
    "col",
    "concat_str",
    "count",
    "events",
    "lit",
    "max",
    "max_horizontal",
    "mean",
    "min",
    "min_horizontal",
    "restore",
    "standard_deviation",
    "store",
    "sum",
    "sum_horizontal",
    "variance",
    "when",
]
