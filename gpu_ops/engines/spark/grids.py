"""Slices of time whose seams lie where windows of a grid or of the calendar begin.

A table of the zone says when windows of the calendar begin, and Spark has none: a worker looks up each seam.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from gpu_ops.engines.spark.sending import Sent
from gpu_ops.engines.spark.slice_policy import AFTER, AMONG, BEFORE
from gpu_ops.operators.windows import calendars
from gpu_ops.plan.window_kinds import GridKind


def at_begins(slices: DataFrame, window: GridKind) -> DataFrame:
    """Slices with each seam moved to where the next window begins, as rows ``begin``, ``finish`` and ``reach``.

    Args:
        slices: Rows ``begin`` and ``finish``.
        window: The windows.

    Returns:
        As `seams_at_begins` does.
    """
    among = f", {AMONG} INT" if AMONG in slices.columns else ""
    return slices.mapInArrow(Sent(partial(_each_at_begins, window)), f"begin LONG, finish LONG, reach LONG{among}")


def _each_at_begins(window: GridKind, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield seams_at_begins(window, batch)


def seams_at_begins(window: GridKind, slices: pa.RecordBatch) -> pa.RecordBatch:
    """Slices that each begin with a window, and when the last window that begins in them ends: ``reach``.

    Args:
        window: The windows.
        slices: ``begin`` and ``finish``, in ticks, and what else stays as it is.

    Examples:
        >>> from gpu_ops.plan.window_kinds import Hopping
        >>> slices = pa.RecordBatch.from_pydict({"begin": [BEFORE, 3, 4, 13], "finish": [3, 4, 13, AFTER]})
        >>> seams_at_begins(Hopping(15, 10, align=0), slices).to_pydict()["finish"][:-1]
        [10, 20]
    """
    rows, kept = [], []
    for at, (begin, finish) in enumerate(zip(*(slices[name].to_pylist() for name in ("begin", "finish")), strict=True)):
        first, _ = (begin, begin) if begin == BEFORE else _next_begin(window, begin)
        last, reach = (finish, finish) if finish == AFTER else _next_begin(window, finish)
        if first < last:
            rows.append((first, last, reach))
            kept.append(at)
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    others = slices.drop_columns(["begin", "finish"])
    names = ["begin", "finish", "reach", *others.schema.names]
    there = others.take(pa.array(kept, pa.int64())).columns if others.num_columns else []
    return pa.RecordBatch.from_arrays([*(pa.array(each, pa.int64()) for each in columns), *there], names)


def _next_begin(window: GridKind, time: int) -> tuple[int, int]:
    """When the first window begins at a time or after it, and when the one before it ends."""
    first, begins, _ = calendars.table(window, time, time)
    number = first + int(np.searchsorted(begins, time))
    return calendars.begin_of(window, number), int(window.finishes(np.array([number - 1]))[0])
