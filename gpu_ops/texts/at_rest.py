"""Events at rest that texts are asked of: frames and streams, at the times that say in which order they come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import narwhals as nw
import pyarrow as pa

from gpu_ops.api.events import events
from gpu_ops.api.stream import Stream
from gpu_ops.errors import ColumnError, PlanError, shown
from gpu_ops.plan.nodes import Node, Project


def events_of(name: str, given: Any, order: str | None, time: str | None) -> Node:
    """The events of an input, at the times that say in which order they come."""
    if isinstance(given, Stream):
        return given._node  # noqa: SLF001  (the frame of all verbs)
    column = time or order
    if column is None:
        raise PlanError(
            f"Nothing says in which order the events of {name!r} come.",
            remedy='Name the column that does: order="seq", or time="at".',
        )
    try:
        frame: Any = nw.from_native(given if not isinstance(given, Mapping) else pa.table(dict(given)))
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise PlanError(
            f"The events of {name!r} are {shown(given)}.",
            remedy="Give a frame, a table or a stream: g.events(…) makes one of a file.",
        ) from error
    known = frame.collect_schema()
    for each in (column, order):
        if each is not None and each not in known:
            raise ColumnError(f"{name!r} has no such column.", column=each, remedy=f"It has: {', '.join(known)}.")
    dtype = known[column]
    if not (dtype.is_integer() or isinstance(dtype, nw.Datetime)):
        raise ColumnError(
            f"It says when events of {name!r} come, and is {dtype}.", column=column, remedy="Cast it to whole numbers."
        )
    unit: Literal["us", "ms"] = "us" if time is None else "ms"
    is_number = dtype.is_integer()
    zone = None if is_number or dtype.time_zone is not None else "UTC"

    def timed(by: str, all_columns: Any = frame) -> Node:
        """The events, whose times are in a column."""
        native = all_columns.to_native()
        made = events(native, start=by, unit=unit if is_number else None, zone=zone, name=name)
        return made._node  # noqa: SLF001

    made = timed(column)
    if column in made.schema.names:
        return made
    # The time is a property like others.
    if made.on_spark:
        # Spark's SQL makes no number of a time as Narwhals would write it.
        times = f"{column}, as a time"
        return timed(times, frame.with_columns(nw.col(column).alias(times)))
    back = nw.col("start").dt.timestamp(unit).cast(dtype) if is_number else nw.col("start")
    every = (back.alias(each) if each == column else nw.col(each) for each in known)
    return Project(made, tuple(every), keep=False)
