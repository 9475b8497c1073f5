"""The bytes shuffled in each hopping window."""

from __future__ import annotations

from typing import Any

import gpu_ops as g
from gpu_ops.core.time import Duration


def query(tasks: Any, *, size: Duration = "10s", every: Duration = "5s") -> g.Stream:
    """One event for each window in which a task ended.

    Spark reports a task's shuffled bytes when the task ends, so they count at that instant, in each window
    ``[k * every, k * every + size)`` that holds it. Unfinished tasks have reported nothing and do not count.

    Args:
        tasks: ``tasks.parquet`` of an event log.
        size: The length of a window.
        every: The time between the starts of two windows.

    Returns:
        Columns start, end, ended (tasks), read and written (bytes; null if no task of the window reported any).

    Examples:
        >>> import pyarrow as pa
        >>> import datetime
        >>> at = [datetime.datetime(2026, 1, 1, 0, 0, second, tzinfo=datetime.UTC) for second in (0, 7)]
        >>> times = {"launch": at[:1], "finish": at[1:], "status": ["success"]}
        >>> tasks = pa.table({**times, "shuffle_read_bytes": [30], "shuffle_write_bytes": [12]})
        >>> query(tasks).select("read", "written").collect().num_rows
        2
    """
    return (
        g.events(tasks, start="launch", end="finish")
        .filter(g.col("status") != "running")
        .point_at_end()
        .hopping(size=size, every=every)
        .agg(ended=g.count(), read=g.sum("shuffle_read_bytes"), written=g.sum("shuffle_write_bytes"))
    )
