"""Task events as a table: pyarrow parses the lines of task starts and ends into one column for each field.

The fields are those of Spark's ``JsonProtocol.scala``, which agree in Spark 3.5 and 4.x for all columns read here. This
module parses single events and does not combine them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from gpu_ops.core.time import MAX_TIME
from gpu_ops.errors import SourceError

MILLISECOND = 1_000
"""The log's unit of time, in ticks."""

LATEST = MAX_TIME // MILLISECOND
"""The last millisecond of the year 9999."""

_METRICS = "Task Metrics"
_SHUFFLE_READ = (_METRICS, "Shuffle Read Metrics")
_SHUFFLE_WRITE = (_METRICS, "Shuffle Write Metrics")

# Column, its place in SparkListenerTaskStart and SparkListenerTaskEnd, type. The unit ends the name.
TASK_FIELDS: tuple[tuple[str, tuple[str, ...], pa.DataType], ...] = (
    ("stage", ("Stage ID",), pa.int32()),
    ("stage_attempt", ("Stage Attempt ID",), pa.int32()),
    ("task", ("Task Info", "Task ID"), pa.int64()),
    ("index", ("Task Info", "Index"), pa.int32()),
    ("attempt", ("Task Info", "Attempt"), pa.int32()),
    ("executor", ("Task Info", "Executor ID"), pa.string()),
    ("host", ("Task Info", "Host"), pa.string()),
    ("launch", ("Task Info", "Launch Time"), pa.int64()),
    ("finish", ("Task Info", "Finish Time"), pa.int64()),
    ("reason", ("Task End Reason", "Reason"), pa.string()),
    ("speculative", ("Task Info", "Speculative"), pa.bool_()),
    ("locality", ("Task Info", "Locality"), pa.string()),
    ("run_time_ms", (_METRICS, "Executor Run Time"), pa.int64()),
    ("cpu_time_ns", (_METRICS, "Executor CPU Time"), pa.int64()),
    ("gc_time_ms", (_METRICS, "JVM GC Time"), pa.int64()),
    ("deserialize_time_ms", (_METRICS, "Executor Deserialize Time"), pa.int64()),
    ("result_serialization_time_ms", (_METRICS, "Result Serialization Time"), pa.int64()),
    ("result_bytes", (_METRICS, "Result Size"), pa.int64()),
    ("peak_memory_bytes", (_METRICS, "Peak Execution Memory"), pa.int64()),
    ("memory_spilled_bytes", (_METRICS, "Memory Bytes Spilled"), pa.int64()),
    ("disk_spilled_bytes", (_METRICS, "Disk Bytes Spilled"), pa.int64()),
    ("shuffle_remote_read_bytes", (*_SHUFFLE_READ, "Remote Bytes Read"), pa.int64()),
    ("shuffle_local_read_bytes", (*_SHUFFLE_READ, "Local Bytes Read"), pa.int64()),
    ("shuffle_read_records", (*_SHUFFLE_READ, "Total Records Read"), pa.int64()),
    ("shuffle_fetch_wait_ms", (*_SHUFFLE_READ, "Fetch Wait Time"), pa.int64()),
    ("shuffle_write_bytes", (*_SHUFFLE_WRITE, "Shuffle Bytes Written"), pa.int64()),
    ("shuffle_write_records", (*_SHUFFLE_WRITE, "Shuffle Records Written"), pa.int64()),
    ("shuffle_write_time_ns", (*_SHUFFLE_WRITE, "Shuffle Write Time"), pa.int64()),
    ("input_bytes", (_METRICS, "Input Metrics", "Bytes Read"), pa.int64()),
    ("input_records", (_METRICS, "Input Metrics", "Records Read"), pa.int64()),
    ("output_bytes", (_METRICS, "Output Metrics", "Bytes Written"), pa.int64()),
    ("output_records", (_METRICS, "Output Metrics", "Records Written"), pa.int64()),
)
_REQUIRED = ("stage", "stage_attempt", "task", "executor", "launch", "finish")


def parse_task_events(path: Path, numbered: Sequence[tuple[int, bytes]]) -> pa.Table:
    """A table with a column for each of `TASK_FIELDS` and a row for each line; ``launch`` and ``finish`` in ticks.

    Args:
        path: The file, for errors.
        numbered: Lines with their numbers in the file.

    Raises:
        SourceError: A line is not a task event, lacks a required field, or has a time outside the years 1970 to 9999.
    """
    if not numbered:
        return _TABLE.empty_table()
    try:
        raw = _parse_lines([line for _, line in numbered])
    except (pa.ArrowException, KeyError) as error:
        # Arrow's error names neither the file nor, for a wrong type, the line.
        for number, line in numbered:
            try:
                _parse_lines([line])
            except (pa.ArrowException, KeyError) as reason:
                raise bad_event(path, number, str(reason)) from error
        raise
    for name, where, _ in TASK_FIELDS:
        if name in _REQUIRED and raw[name].null_count:
            row = pc.index(raw[name].is_null(), value=True).as_py()
            raise bad_event(path, numbered[row][0], f"it has no {' / '.join(where)!r}")
    for name in ("launch", "finish"):
        outside = pc.or_(pc.less(raw[name], 0), pc.greater(raw[name], LATEST))
        row = pc.index(outside, value=True).as_py()
        if row >= 0:
            raise bad_event(
                path, numbered[row][0], f"{name} {raw[name][row]} ms since 1970 is outside the years 1970 to 9999"
            )
        raw = raw.set_column(_TABLE.get_field_index(name), _TABLE.field(name), pc.multiply(raw[name], MILLISECOND))
    return raw


def _parse_lines(lines: Sequence[bytes]) -> pa.Table:
    longest = max(map(len, lines))
    parsed = pyarrow.json.read_json(
        pa.BufferReader(b"\n".join(lines)),
        read_options=pyarrow.json.ReadOptions(block_size=max(longest + 1, 1 << 20)),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=_NESTED, unexpected_field_behavior="ignore"),
    )
    columns = []
    for _, (outer, *inner), _ in TASK_FIELDS:
        column = parsed[outer]
        columns.append(pc.struct_field(column, inner) if inner else column)
    return pa.table(columns, schema=_TABLE)


def _nested(fields: Iterable[tuple[tuple[str, ...], pa.DataType]]) -> list[pa.Field]:
    """Nested structs from the paths of their fields."""
    inner: dict[str, list[tuple[tuple[str, ...], pa.DataType]]] = {}
    for (name, *rest), dtype in fields:
        inner.setdefault(name, []).append((tuple(rest), dtype))
    return [
        pa.field(name, below[0][1] if below[0][0] == () else pa.struct(_nested(below))) for name, below in inner.items()
    ]


_TABLE = pa.schema([(name, dtype) for name, _, dtype in TASK_FIELDS])
_NESTED = pa.schema(_nested((where, dtype) for _, where, dtype in TASK_FIELDS))


def bad_event(path: Path, number: int, why: str) -> SourceError:
    """The error for a line of JSON that is not the event that it names."""
    return SourceError(
        f"{path}, line {number} is not an event as Spark 3.5 and 4 write it: {why}.",
        remedy="Copy the log again, or remove that line.",
    )
