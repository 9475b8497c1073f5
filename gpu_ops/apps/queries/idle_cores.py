"""How many cores of each executor were idle, whenever it changed."""

from __future__ import annotations

from typing import Any

import gpu_ops as g


def query(cores: Any) -> g.Stream:
    """One event for each stretch of time between changes, from when an executor came until it went.

    An executor adds its cores for as long as it is there, and a task takes away those that it runs on, so that the sum
    over what is alive is what is idle. It can fall below nothing for some milliseconds, because Spark launches the next
    task on a core before it notes that the one before has ended; then nothing is idle. Idle core seconds are the sum of
    ``idle`` times the length over the rows.

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
