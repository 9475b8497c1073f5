"""Spark's event log as tables: tasks, executors, stages, and the cores in use over time.

The log is read in blocks of lines, so memory does not grow with its length. Its times are milliseconds of the driver's
clock.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gpu_ops.apps.spark_log_files import LineBlock, is_compacted, line_blocks, log_files
from gpu_ops.apps.spark_task_events import LATEST, MILLISECOND, TASK_FIELDS, bad_event, parse_task_events
from gpu_ops.core.time import TICK, TIME_TYPE
from gpu_ops.errors import SourceError

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_PREFIX = b'{"Event":"'

TASKS = pa.schema(
    [
        pa.field("application", pa.string()),
        *(
            pa.field(name, TIME_TYPE if name in ("launch", "finish") else dtype)
            for name, _, dtype in TASK_FIELDS
            if name != "reason"
        ),
        pa.field("status", pa.string()),
        pa.field("cpus", pa.int32()),
        pa.field("shuffle_read_bytes", pa.int64()),
    ]
)
"""The columns of a task. ``status`` is success, failed, killed or running; ``cpus`` is the number of its cores. Metrics
are null if the task reported none, for instance because its executor was lost."""

EXECUTORS = pa.schema(
    [
        ("executor", pa.string()),
        ("host", pa.string()),
        ("cores", pa.int32()),
        ("added", TIME_TYPE),
        ("removed", TIME_TYPE),
        ("removed_reason", pa.string()),
    ]
)
"""The columns of an executor; ``removed`` is null if it stayed until the end."""

STAGES = pa.schema(
    [
        ("stage", pa.int32()),
        ("stage_attempt", pa.int32()),
        ("name", pa.string()),
        ("tasks", pa.int32()),
        ("submitted", TIME_TYPE),
        ("completed", TIME_TYPE),
        ("failure", pa.string()),
    ]
)
"""The columns of a stage attempt; ``completed`` is null if it did not end, ``failure`` if it did not fail."""

CORES = pa.schema([("executor", pa.string()), ("start", TIME_TYPE), ("end", TIME_TYPE), ("cores", pa.int32())])
"""The columns of `SparkLog.cores`."""


@dataclass
class LogCounts:
    """Counts from one read of a log.

    Attributes:
        lines: Lines read, of all events.
        finished: Tasks that succeeded, failed or were killed.
        unfinished: Tasks that started, but whose end is not in the log.
        zero_length: Tasks that ended in the millisecond of their launch. They last one tick (1 µs).
        backwards: Tasks that ended before their launch, by the driver's clock. They also last one tick.
        resubmitted: Second ends of tasks whose output was lost with an executor; only the first end counts.
        torn_lines: 1 if the last line is incomplete because Spark died; that line is not read.
    """

    lines: int = 0
    finished: int = 0
    unfinished: int = 0
    zero_length: int = 0
    backwards: int = 0
    resubmitted: int = 0
    torn_lines: int = 0


class SparkLog:
    r"""One Spark application's event log.

    Tasks are read in batches. The other attributes are complete once all batches have been read. Each read starts from
    the beginning.

    Args:
        path: An event log file of any of Spark's forms, a rolling log's folder, or a folder that holds exactly one log.

    Attributes:
        path: The log.
        application: The application's id.
        name: The application's name.
        spark_version: The version that wrote the log.
        ended: Whether the log says that the application ended.
        compacted: Whether Spark has compacted the log, so that tasks of finished jobs are missing.
        last_time: The last time in the log, in ticks. Unfinished tasks ran at least until then.
        counts: The counts of the last read.

    Raises:
        SourceError: There is no such log, or several.

    Examples:
        >>> import pathlib, tempfile
        >>> lines = [
        ...     '{"Event":"SparkListenerLogStart","Spark Version":"4.1.3"}',
        ...     '{"Event":"SparkListenerTaskEnd","Stage ID":0,"Stage Attempt ID":0,"Task End Reason":'
        ...     '{"Reason":"Success"},"Task Info":{"Task ID":7,"Launch Time":1000,"Finish Time":3500,'
        ...     '"Executor ID":"1"}}',
        ... ]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log = pathlib.Path(folder, "app-1")
        ...     _ = log.write_text("\n".join(lines) + "\n")
        ...     SparkLog(log).read().select(["task", "launch", "finish", "status"]).to_pylist()
        [{'task': 7, 'launch': datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=...),
          'finish': datetime.datetime(1970, 1, 1, 0, 0, 3, 500000, tzinfo=...), 'status': 'success'}]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._files = log_files(self.path)
        self.compacted = is_compacted(self._files)
        self._begin()

    def _begin(self) -> None:
        self.application: str | None = None
        self.name: str | None = None
        self.spark_version: str | None = None
        self.ended = False
        self.last_time = 0
        self.counts = LogCounts()
        self._executors: dict[str, dict[str, Any]] = {}
        self._stages: dict[tuple[int, int], dict[str, Any]] = {}
        self._cpus_of_profile: dict[int, int] = {}
        self._cpus_of_stage: dict[tuple[int, int], int] = {}
        self._open_tasks = TASKS.empty_table()
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "SparkListenerLogStart": self._log_start,
            "SparkListenerApplicationStart": self._application_start,
            "SparkListenerApplicationEnd": self._application_end,
            "SparkListenerResourceProfileAdded": self._profile_added,
            "SparkListenerExecutorAdded": self._executor_added,
            "SparkListenerExecutorRemoved": self._executor_removed,
            "SparkListenerStageSubmitted": self._stage,
            "SparkListenerStageCompleted": self._stage,
            "SparkListenerJobEnd": self._job_end,
        }

    def batches(self) -> Iterator[pa.Table]:
        """The tasks, some thousands at a time: finished tasks in the order of their ends, then unfinished ones.

        ``launch`` and ``finish`` are a half-open lifetime. The ``finish`` of an unfinished task is null; `bound` sets
        it to the last time of the log.

        Raises:
            SourceError: A file is not an event log, is damaged, or holds a line that is not a Spark event.
        """
        self._begin()
        for file in self._files:
            for block in line_blocks(file):
                tasks = self._read_block(block)
                if tasks.num_rows:
                    yield tasks
        if self.counts.lines == 0:
            raise SourceError(
                f"{self.path} holds no event.", remedy="Spark writes the log in portions: wait for the first one."
            )
        self.counts.unfinished = self._open_tasks.num_rows
        if self.counts.unfinished:
            yield self._open_tasks

    def read(self) -> pa.Table:
        """All tasks as one table; see `batches`."""
        return pa.concat_tables([TASKS.empty_table(), *self.batches()])

    def bound(self, tasks: pa.Table) -> pa.Table:
        """Tasks with open ends set to the log's last time, or to one tick after the launch if that is later."""
        launch = tasks["launch"].cast(pa.int64())
        last = pc.max_element_wise(pc.add(launch, TICK), self.last_time)
        finish = pc.coalesce(tasks["finish"], last.cast(TIME_TYPE))
        return tasks.set_column(tasks.schema.get_field_index("finish"), TASKS.field("finish"), finish)

    def executors(self) -> pa.Table:
        """The executors read so far, with the columns of `EXECUTORS`."""
        return pa.Table.from_pylist(list(self._executors.values()), EXECUTORS)

    def stages(self) -> pa.Table:
        """The stage attempts read so far, with the columns of `STAGES`."""
        rows = sorted(self._stages.values(), key=lambda stage: (stage["stage"], stage["stage_attempt"]))
        return pa.Table.from_pylist(rows, STAGES)

    def cores(self, tasks: pa.Table) -> pa.Table:
        """Intervals whose ``cores`` add up to the idle cores at any time.

        An executor adds its cores from its start to its removal. A task subtracts the cores that it uses
        (``spark.task.cpus``, or its stage's resource profile), as long as its executor exists. A task does not count if
        its executor's cores are unknown.

        Args:
            tasks: Bounded tasks of this log with at least the columns executor, launch, finish and cpus.

        Returns:
            A table with the columns of `CORES`: the executors' intervals, then the tasks' intervals.
        """
        executors = self.executors()
        added, removed = executors["added"].cast(pa.int64()), executors["removed"].cast(pa.int64())
        removed = pc.max_element_wise(pc.fill_null(removed, self.last_time), pc.add(added, TICK))
        place = pc.index_in(tasks["executor"], value_set=executors["executor"].combine_chunks())
        start = pc.max_element_wise(tasks["launch"].cast(pa.int64()), added.take(place), skip_nulls=False)
        end = pc.min_element_wise(tasks["finish"].cast(pa.int64()), removed.take(place), skip_nulls=False)
        given = [executors["executor"], added.cast(TIME_TYPE), removed.cast(TIME_TYPE), executors["cores"]]
        taken = [tasks["executor"], start.cast(TIME_TYPE), end.cast(TIME_TYPE), pc.negate(tasks["cpus"])]
        return pa.concat_tables(
            [pa.table(given, schema=CORES), pa.table(taken, schema=CORES).filter(pc.less(start, end))]
        )

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Read the log and write its tables as Parquet, with all ends bounded.

        Args:
            folder: The folder for ``tasks.parquet``, ``executors.parquet``, ``stages.parquet`` and ``cores.parquet``;
                it is made if it is missing. ``tasks.parquet`` appears only when it is complete.

        Raises:
            SourceError: As in `batches`.
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        tasks = target / "tasks.parquet"
        unfinished = tasks.with_name(".tasks.parquet.unfinished")
        try:
            with pq.ParquetWriter(unfinished, TASKS) as writer:
                for batch in _larger(self.batches()):
                    # Only the last batch has open ends, and last_time is final by then.
                    writer.write_table(self.bound(batch))
            unfinished.replace(tasks)
        finally:
            unfinished.unlink(missing_ok=True)
        columns = pq.read_table(tasks, columns=["executor", "launch", "finish", "cpus"])
        for name, table in (
            ("executors", self.executors()),
            ("stages", self.stages()),
            ("cores", self.cores(columns)),
        ):
            pq.write_table(table, target / f"{name}.parquet")

    def _read_block(self, block: LineBlock) -> pa.Table:
        starts: list[tuple[int, bytes]] = []
        ends: list[tuple[int, bytes]] = []
        for number, line in enumerate(block.lines, start=block.first):
            event = _event_name(line, whole=block.torn)
            if event is None:
                if block.torn and block.path == self._files[-1] and self.counts.lines:
                    self.counts.torn_lines += 1
                    break
                raise _bad_line(block, number, is_first=self.counts.lines == 0)
            self.counts.lines += 1
            if event == "SparkListenerTaskEnd":
                ends.append((number, line))
            elif event == "SparkListenerTaskStart":
                starts.append((number, line))
            elif event in self._handlers:
                try:
                    self._handlers[event](json.loads(line))
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    raise bad_event(block.path, number, f"{event}: {type(error).__name__} {error}") from error
        started = self._started(parse_task_events(block.path, starts))
        ended = self._ended(parse_task_events(block.path, ends))
        running = pa.concat_tables([self._open_tasks, started])
        self._open_tasks = running.filter(pc.invert(pc.is_in(running["task"], ended["task"].combine_chunks())))
        return ended

    def _started(self, raw: pa.Table) -> pa.Table:
        self._saw(pc.max(raw["launch"]).as_py())
        return self._tasks(raw, pa.nulls(raw.num_rows, pa.int64()), pa.repeat("running", raw.num_rows))

    def _ended(self, raw: pa.Table) -> pa.Table:
        # The task ended before; this event only says that its output was lost and that it will run again.
        again = pc.fill_null(pc.equal(raw["reason"], "Resubmitted"), fill_value=False)
        raw = raw.filter(pc.invert(again))
        launch, finish = raw["launch"], raw["finish"]
        self._saw(pc.max(finish).as_py())
        self.counts.finished += raw.num_rows
        self.counts.resubmitted += len(again) - raw.num_rows
        self.counts.zero_length += pc.sum(pc.equal(finish, launch), min_count=0).as_py()
        self.counts.backwards += pc.sum(pc.less(finish, launch), min_count=0).as_py()
        return self._tasks(raw, pc.max_element_wise(finish, pc.add(launch, TICK)), _status(raw["reason"]))

    def _tasks(self, raw: pa.Table, finish: pa.ChunkedArray, status: pa.ChunkedArray) -> pa.Table:
        attempts = zip(raw["stage"].to_pylist(), raw["stage_attempt"].to_pylist(), strict=True)
        computed = {
            "application": pa.repeat(pa.scalar(self.application, pa.string()), raw.num_rows),
            "launch": raw["launch"].cast(TIME_TYPE),
            "finish": finish.cast(TIME_TYPE),
            "status": status,
            "cpus": pa.array([self._cpus_of_stage.get(attempt, 1) for attempt in attempts], pa.int32()),
            "shuffle_read_bytes": pc.add(raw["shuffle_remote_read_bytes"], raw["shuffle_local_read_bytes"]),
        }
        return pa.table([computed[name] if name in computed else raw[name] for name in TASKS.names], schema=TASKS)

    def _saw(self, ticks: int | None) -> None:
        if ticks is not None:
            self.last_time = max(self.last_time, ticks)

    def _time(self, milliseconds: int | None) -> datetime.datetime | None:
        if milliseconds is None:
            return None
        if not 0 <= milliseconds <= LATEST:
            raise ValueError(f"{milliseconds} ms since 1970 is outside the years 1970 to 9999")
        self._saw(milliseconds * MILLISECOND)
        return _EPOCH + datetime.timedelta(milliseconds=milliseconds)

    def _log_start(self, event: dict[str, Any]) -> None:
        self.spark_version = event["Spark Version"]

    def _application_start(self, event: dict[str, Any]) -> None:
        self.application = event.get("App ID")
        self.name = event["App Name"]
        self._time(event["Timestamp"])

    def _application_end(self, event: dict[str, Any]) -> None:
        self._time(event["Timestamp"])
        self.ended = True

    def _job_end(self, event: dict[str, Any]) -> None:
        self._time(event["Completion Time"])

    def _profile_added(self, event: dict[str, Any]) -> None:
        cpus = event["Task Resource Requests"].get("cpus", {"Amount": 1})
        self._cpus_of_profile[event["Resource Profile Id"]] = int(cpus["Amount"])

    def _executor_added(self, event: dict[str, Any]) -> None:
        self._executors[event["Executor ID"]] = {
            "executor": event["Executor ID"],
            "host": event["Executor Info"]["Host"],
            "cores": event["Executor Info"]["Total Cores"],
            "added": self._time(event["Timestamp"]),
        }

    def _executor_removed(self, event: dict[str, Any]) -> None:
        # A compacted log may hold an executor's removal without its start.
        removed = {"removed": self._time(event["Timestamp"]), "removed_reason": event.get("Removed Reason")}
        self._executors.get(event["Executor ID"], {}).update(removed)

    def _stage(self, event: dict[str, Any]) -> None:
        info = event["Stage Info"]
        attempt = (info["Stage ID"], info["Stage Attempt ID"])
        self._cpus_of_stage[attempt] = self._cpus_of_profile.get(info.get("Resource Profile Id", 0), 1)
        self._stages[attempt] = {
            "stage": attempt[0],
            "stage_attempt": attempt[1],
            "name": info["Stage Name"],
            "tasks": info["Number of Tasks"],
            "submitted": self._time(info.get("Submission Time")),
            "completed": self._time(info.get("Completion Time")),
            "failure": info.get("Failure Reason"),
        }


def _larger(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of about 100,000 rows, a good size for Parquet's row groups."""
    gathered: list[pa.Table] = []
    for table in tables:
        gathered.append(table)
        if sum(map(len, gathered)) >= 100_000:
            yield pa.concat_tables(gathered)
            gathered = []
    if gathered:
        yield pa.concat_tables(gathered)


def _event_name(line: bytes, *, whole: bool) -> str | None:
    """The event's name, or None if the line is not an event. Spark writes the name first.

    Most events are skipped, so only their name is read, unless ``whole`` asks to parse the line.
    """
    if line.startswith(_PREFIX) and line.endswith(b"}") and not whole:
        return line[len(_PREFIX) : line.find(b'"', len(_PREFIX))].decode(errors="replace")
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    name = event.get("Event") if isinstance(event, dict) else None
    return name if isinstance(name, str) else None


def _status(reason: pa.ChunkedArray) -> pa.ChunkedArray:
    """The status that Spark's UI counts: a task whose commit was denied lost a race, and counts as killed."""
    killed = pc.is_in(reason, value_set=pa.array(["TaskKilled", "TaskCommitDenied"]))
    return pc.if_else(killed, "killed", pc.if_else(pc.equal(reason, "Success"), "success", "failed"))


def _bad_line(block: LineBlock, number: int, *, is_first: bool) -> SourceError:
    if block.torn:
        return SourceError(
            f"{block.path}, line {number} is incomplete, and other lines follow in the next file.",
            remedy="Copy the log again. If the original is incomplete too, remove the line: its event is lost.",
        )
    if is_first:
        return SourceError(
            f"{block.path} is not a Spark event log: line {number} is not a JSON object with an 'Event'.",
            remedy="Give a file that Spark wrote with spark.eventLog.enabled=true.",
        )
    return SourceError(
        f"{block.path}, line {number} is not a JSON object with an 'Event'; only the last line may be incomplete.",
        remedy="Copy the log again, or remove that line.",
    )
