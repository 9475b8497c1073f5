"""Questions about events in time, on Arrow data, on CPU, GPU and Spark, with the same answer everywhere.

Examples:
    >>> import gpu_ops as g
    >>> import pyarrow as pa
    >>> rides = pa.table({"pickup": [0, 60], "dropoff": [120, 90], "zone": ["A", "B"]})
    >>> g.events(rides, start="pickup", end="dropoff", unit="s").snapshot().agg(n=g.count()).collect()["n"].to_pylist()
    [1, 2, 1]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

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

from gpu_ops.api.alerts import AlertPattern, alert, present
from gpu_ops.api.arrivals import ArrivalStream, arrivals
from gpu_ops.api.contexts import ArrivalContext
from gpu_ops.api.cycle_tables import CycleTables, cycle_tables
from gpu_ops.api.cycles import CyclePartition, CyclePartitions, CycleStream, cycles
from gpu_ops.api.deliveries import ArrivalWindow, DeliveredStream
from gpu_ops.api.events import events, restore
from gpu_ops.api.patterns import PatternStep, after, every, none, one, pattern
from gpu_ops.api.row_patterns import PatternRow, RowTerm, any_order, previous, register, row
from gpu_ops.api.stream import DataWindowed, Stream, Windowed
from gpu_ops.core.other_names import refuse
from gpu_ops.core.threads import set_threads
from gpu_ops.core.version import VERSION
from gpu_ops.errors import (
    ColumnError,
    DefectError,
    DeviceError,
    FunctionError,
    GpuOpsError,
    IntegerOverflowError,
    NotCollectedError,
    OutOfMemoryError,
    PlanError,
    QueryFailedError,
    SourceError,
    SumOverflowError,
    TextError,
    TimeError,
    UnknownNameError,
    WaitingError,
    WorkerError,
)
from gpu_ops.microbatches.epochs import Epochs, epochs
from gpu_ops.microbatches.reports import StoredBatch
from gpu_ops.microbatches.stores import Store, store
from gpu_ops.operators.aggregates import kinds as _aggregate_kinds  # noqa: F401  (the kinds declare themselves)
from gpu_ops.plan.aggregates import Aggregate, count, max, mean, min, standard_deviation, sum, variance  # noqa: A004
from gpu_ops.plan.choices import all, any, arg_max, arg_min, first, last  # noqa: A004
from gpu_ops.plan.lasting import integral, time_weighted_mean
from gpu_ops.plan.moments import (
    correlation,
    covariance,
    geometric_mean,
    harmonic_mean,
    intercept,
    kurtosis,
    product,
    skewness,
    slope,
    weighted_mean,
)
from gpu_ops.plan.ordered_aggregates import (
    bottom,
    collect_list,
    collect_set,
    count_distinct,
    mean_absolute_deviation,
    median,
    mode,
    nth,
    quantile,
    rate,
    top,
)
from gpu_ops.plan.own_functions import incremental, window_function
from gpu_ops.plan.window_conditions import WindowExpressions
from gpu_ops.topics.topic import Topic, kafka

__version__ = VERSION

window = WindowExpressions()
"""What a condition on a window can speak of."""

__all__ = [
    "Aggregate",
    "AlertPattern",
    "ArrivalContext",
    "ArrivalStream",
    "ArrivalWindow",
    "Boolean",
    "ColumnError",
    "CyclePartition",
    "CyclePartitions",
    "CycleStream",
    "CycleTables",
    "DataWindowed",
    "Date",
    "Datetime",
    "Decimal",
    "DefectError",
    "DeliveredStream",
    "DeviceError",
    "Duration",
    "Epochs",
    "Float32",
    "Float64",
    "FunctionError",
    "GpuOpsError",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "IntegerOverflowError",
    "NotCollectedError",
    "OutOfMemoryError",
    "PatternRow",
    "PatternStep",
    "PlanError",
    "QueryFailedError",
    "RowTerm",
    "SourceError",
    "Store",
    "StoredBatch",
    "Stream",
    "String",
    "SumOverflowError",
    "TextError",
    "TimeError",
    "Topic",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "UnknownNameError",
    "WaitingError",
    "Windowed",
    "WorkerError",
    "after",
    "alert",
    "all",
    "all_horizontal",
    "any",
    "any_horizontal",
    "any_order",
    "arg_max",
    "arg_min",
    "arrivals",
    "bottom",
    "coalesce",
    "col",
    "collect_list",
    "collect_set",
    "concat_str",
    "correlation",
    "count",
    "count_distinct",
    "covariance",
    "cycle_tables",
    "cycles",
    "epochs",
    "events",
    "every",
    "first",
    "geometric_mean",
    "harmonic_mean",
    "incremental",
    "integral",
    "intercept",
    "kafka",
    "kurtosis",
    "last",
    "lit",
    "max",
    "max_horizontal",
    "mean",
    "mean_absolute_deviation",
    "median",
    "min",
    "min_horizontal",
    "mode",
    "none",
    "nth",
    "one",
    "pattern",
    "present",
    "previous",
    "product",
    "quantile",
    "rate",
    "register",
    "restore",
    "row",
    "set_threads",
    "skewness",
    "slope",
    "standard_deviation",
    "store",
    "sum",
    "sum_horizontal",
    "time_weighted_mean",
    "top",
    "variance",
    "weighted_mean",
    "when",
    "window",
    "window_function",
]


def __dir__() -> list[str]:
    return [*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"]


if not TYPE_CHECKING:  # a checker would take every name for known

    def __getattr__(name: str) -> NoReturn:
        refuse(name, "module", of=__name__, known=__all__)
