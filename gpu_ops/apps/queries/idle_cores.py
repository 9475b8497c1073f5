"""The idle cores of each executor over time."""

from __future__ import annotations

from typing import Any

import gpu_ops as g


def query(cores: Any) -> g.Stream:
    """One event for each interval between two changes, from an executor's start to its removal.

    An executor adds its cores during its lifetime, and a task subtracts the cores that it uses; the sum is the number
    of idle cores. The sum can be negative for some milliseconds, since Spark launches a task on a core before it logs
    the end of the previous one; ``idle`` is 0 then. To get idle core seconds, add up ``idle`` times the row's length.

    Args:
        cores: ``cores.parquet`` of an event log.

    Returns:
        Columns start, end, executor, idle.

    Examples:
        >>> import pyarrow as pa
        >>> import datetime
        >>> at = [datetime.datetime(2026, 1, 1, 0, 0, second, tzinfo=datetime.UTC) for second in range(4)]
        >>> ends = {"start": [at[0], at[1]], "end": [at[3], at[2]]}
        >>> cores = pa.table({**ends, "executor": ["1", "1"], "cores": [4, -1]})
        >>> query(cores).collect()["idle"].to_pylist()
        [4, 3, 4]
    """
    free = g.events(cores, start="start", end="end").by("executor").snapshot().agg(free=g.sum("cores"))
    return free.select("executor", idle=g.max_horizontal(g.col("free"), g.lit(0)))
