"""What gpu_ops can be extended by: aggregates (docs/extending.md) and windows (docs/extending_windows.md) of your own.

A kind is declared once, with all of its parts; what is left out is an error where it is declared. It works then like
the kinds of this package: over all windows, in a batch, in a running query however its input is cut, on every device,
and on Spark, whose workers are sent it with the plan.

Examples:
    >>> import gpu_ops as g
    >>> from gpu_ops import extend
    >>> import numpy as np, pyarrow as pa
    >>> def result(block, aggregate):
    ...     values = extend.taken(block, aggregate)
    ...     count = values.count()
    ...     squares = values.total("squares", values.floats(0) ** 2)
    ...     return extend.as_float(np.sqrt(squares / np.maximum(count, 1)), count > 0)
    >>> rms = extend.AggregateKind(
    ...     name="quadratic_mean",
    ...     types=extend.float_of_numbers,
    ...     columns=extend.number_columns,
    ...     result=result,
    ...     incremental=extend.Sums(),
    ... )
    >>> power = pa.table({"at": [0, 1], "amps": [3.0, 4.0]})
    >>> windows = g.events(power, start="at", unit="s").tumbling("1min")
    >>> windows.agg(rms=extend.aggregate(rms, "amps")).collect()["rms"].to_pylist()
    [3.5355339059327378]
"""

from __future__ import annotations

from dataclasses import replace

from gpu_ops.operators.aggregates import exact_sums
from gpu_ops.operators.aggregates.block import Block
from gpu_ops.operators.aggregates.exact_sums import Taken, as_float
from gpu_ops.operators.aggregates.forms import no_columns, number_columns, ordered_columns, valid_columns
from gpu_ops.operators.aggregates.holistic import Ordered
from gpu_ops.operators.aggregates.selection import extreme, extreme_columns
from gpu_ops.plan.aggregate_kinds import (
    AggregateKind,
    AllEvents,
    Extreme,
    Incremental,
    SortedValues,
    Sums,
    float_of_numbers,
    ordered_type,
    refused,
    value_type,
)
from gpu_ops.plan.aggregates import Aggregate, aggregate
from gpu_ops.plan.window_kinds import (
    OUT,
    UNKNOWN,
    DataWindowKind,
    GapHalo,
    GridHalo,
    GridKind,
    LiveHalo,
    Membership,
    NoHalo,
    RememberedTime,
    RowHalo,
    RowNote,
    WindowRows,
)

__all__ = [
    "OUT",
    "UNKNOWN",
    "Aggregate",
    "AggregateKind",
    "AllEvents",
    "Block",
    "DataWindowKind",
    "Extreme",
    "GapHalo",
    "GridHalo",
    "GridKind",
    "Incremental",
    "LiveHalo",
    "Membership",
    "NoHalo",
    "Ordered",
    "RememberedTime",
    "RowHalo",
    "RowNote",
    "SortedValues",
    "Sums",
    "Taken",
    "WindowRows",
    "aggregate",
    "as_float",
    "extreme",
    "extreme_columns",
    "float_of_numbers",
    "no_columns",
    "number_columns",
    "ordered",
    "ordered_columns",
    "ordered_type",
    "refused",
    "taken",
    "valid_columns",
    "value_type",
]


def taken(block: Block, aggregate: Aggregate) -> Taken:
    """The numbers that an aggregate is over, event by event: those events of which all of its inputs are there.

    Counts and totals of them have names, which are the kind's own; aggregates of one kind and the same options share
    them.

    Args:
        block: As the function of a kind's results is handed it.
        aggregate: Likewise; the columns of its kind are `number_columns`.
    """
    return replace(exact_sums.taken(block, aggregate), owner=", ".join((str(aggregate.kind), *aggregate.said)))


def ordered(block: Block, aggregate: Aggregate) -> Ordered:
    """The numbers that an aggregate is over, by their place in order.

    Args:
        block: As the function of a kind's results is handed it.
        aggregate: Likewise; the columns of its kind are `ordered_columns`.
    """
    return Ordered(block, aggregate)
