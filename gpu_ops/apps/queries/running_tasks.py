"""The concurrent tasks of each executor and stage over time."""

from __future__ import annotations

from typing import Any

import gpu_ops as g


def query(tasks: Any) -> g.Stream:
    """One event for each interval in which an executor ran the same number of a stage's tasks.

    Args:
        tasks: ``tasks.parquet`` of an event log.

    Returns:
        Columns start, end, executor, stage, running. There is no row while an executor ran no task of a stage.

    Examples:
        >>> import pyarrow as pa
        >>> import datetime
        >>> at = [datetime.datetime(2026, 1, 1, 0, 0, second, tzinfo=datetime.UTC) for second in range(4)]
        >>> tasks = pa.table({"launch": at[:2], "finish": at[2:], "executor": ["1", "1"], "stage": [0, 0]})
        >>> query(tasks).collect()["running"].to_pylist()
        [1, 2, 1]
    """
    return g.events(tasks, start="launch", end="finish").by("executor", "stage").snapshot().agg(running=g.count())
