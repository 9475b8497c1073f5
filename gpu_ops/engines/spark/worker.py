"""How a Python worker of Spark runs a fragment of a plan: Arrow batches in, Arrow batches out."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from gpu_ops.core.threads import cores, usual_threads
from gpu_ops.core.time import LIFETIME, TIME_TYPE
from gpu_ops.devices import choose
from gpu_ops.engines.local.in_order import SortedFiles, Spill, can_run_in_order, in_order
from gpu_ops.engines.spark.between_tasks import spare_the_next
from gpu_ops.engines.spark.sending import concise
from gpu_ops.engines.spark.session import USUAL_MEMORY
from gpu_ops.engines.spark.sides import MARK, Slots, split
from gpu_ops.engines.spark.type_codecs import decoded_arrays, encoded_arrays, encoded_names, encoded_schema
from gpu_ops.plan.nodes import Feed, Node

_LOG = logging.getLogger("gpu_ops")

BATCH_ROWS = 1 << 18
"""Rows of a batch that goes back to Spark, which copies each batch as a whole."""

Batches = Iterable[pa.RecordBatch]


def worker_device(asked: str) -> str:
    """The device of a worker.

    ``"auto"`` takes a GPU only if the RAPIDS plugin has given the worker a share of one, which the environment says
    (``spark.rapids.sql.python.gpu.enabled``). Workers that took any GPU they find would compete for its memory.
    """
    if asked != "auto":
        return asked
    return "auto" if os.environ.get("RAPIDS_PYTHON_ENABLED", "").lower() == "true" else "cpu"


@dataclass(frozen=True)
class Task:
    """What workers do with the events of a task.

    Attributes:
        plan: A plan whose leaves are each a `Feed`.
        payloads: For each feed the part of its payload that comes.
        answer: The payload that goes back.
        slots: The slots of the columns of two sides; None if there is one.
        named: Whether the answer comes back under its own names, since all its columns pass unchanged.
        among: The payload that comes, if it has columns of other tasks too.
    """

    plan: Node
    payloads: tuple[pa.Schema, ...]
    answer: pa.Schema
    slots: Slots | None = None
    named: bool = False
    among: pa.Schema | None = None

    @property
    def back(self) -> pa.Schema:
        """The columns that come back."""
        payload = encoded_schema(self.answer)
        if self.named:
            payload = pa.schema([each.with_name(name) for each, name in zip(payload, self.answer.names, strict=True)])
        return pa.schema([("start", TIME_TYPE), ("end", TIME_TYPE), *payload])

    @property
    def takes(self) -> list[str]:
        """The columns that come, but for the ends of two sides: `packed` puts these and the mark together."""
        times = ["start", "end"] if any(self.ends) else ["start"]
        if self.slots is None:
            return [*times, *encoded_schema(self.payloads[0]).names]
        return [*times, MARK, *self.slots.schema.names]

    @property
    def ends(self) -> list[bool]:
        """For each feed whether ends come. They do not if all its lifetimes last equally long."""
        return [feed.length is None for feed in self.plan.all(Feed)]

    @property
    def runs_in_order(self) -> bool:
        """Whether it may run over events in order of their starts, so that only those alive are in memory."""
        return can_run_in_order(self.plan) and not all(node.stateless for node in self.plan.walk())

    def handed(self, batches: Batches) -> dict[Feed, Iterator[pa.RecordBatch]]:
        """For each feed its events, decoded from the batches that come."""
        sides = [batches] if self.slots is None else split(batches, self.payloads, self.ends, self.slots)
        found = zip(self.plan.all(Feed), self.payloads, self.ends, sides, strict=True)
        return {
            feed: _restored(payload, encoded_names(self.among or payload, payload.names), ends, side)
            for feed, payload, ends, side in found
        }


ANSWER = "answer"
"""The column that says of which task a row is, where several give rows."""


@dataclass(frozen=True)
class SharedTask:
    """What workers do with the events of a task for several answers.

    Attributes:
        tasks: The work for each answer.
        slots: The slots of the columns of all answers.
    """

    tasks: tuple[Task, ...]
    slots: Slots

    @property
    def back(self) -> pa.Schema:
        """The columns that come back."""
        times = [(name, TIME_TYPE) for name in LIFETIME]
        return pa.schema([*times, (ANSWER, pa.int32()), *self.slots.schema])

    def rows(self, at: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Results of a task as rows that come back."""
        answer, rows = self.tasks[at].answer, batch.num_rows
        slots = (self.slots.places[at][name] for name in encoded_schema(answer).names)
        given = dict(zip(slots, encoded_arrays(answer, batch.columns[2:]), strict=True))
        given[ANSWER] = pa.repeat(pa.scalar(at, pa.int32()), rows)
        payload = [given[each.name] if each.name in given else pa.nulls(rows, each.type) for each in [*self.back][2:]]
        return pa.RecordBatch.from_arrays([*batch.columns[:2], *payload], schema=self.back)


def run_task(
    task: Task,
    device: str,
    batches: Batches,
    memory: int | None = None,
    spilled: Callable[[Spill], None] | None = None,
    *,
    threads: int = 1,
) -> Batches:
    """Run a plan over the encoded events of a task.

    Args:
        task: The work.
        device: As in `Stream.collect`.
        batches: ``start``, ``end`` if it is needed, and the encoded payload; or that of both sides in slots.
        memory: How many bytes of them are held in memory. More are sorted in files, and run in order of time.
        spilled: Called with what was sorted in files, which the worker's log says too.
        threads: How many threads work at a time, if the task has fewer cores and nobody says otherwise.

    Yields:
        ``start``, ``end`` and the answer's encoded payload.
    """
    for _, result in run_tasks((task,), device, batches, memory, spilled, threads=threads):
        yield _flattened(task.answer, task.back, result)


def run_shared(
    shared: SharedTask,
    device: str,
    batches: Batches,
    memory: int | None = None,
    spilled: Callable[[Spill], None] | None = None,
) -> Batches:
    """`run_task` for several answers; their results come back one answer after the other."""
    for at, result in run_tasks(shared.tasks, device, batches, memory, spilled):
        yield shared.rows(at, result)


def run_tasks(
    tasks: Sequence[Task],
    device: str,
    batches: Batches,
    memory: int | None = None,
    spilled: Callable[[Spill], None] | None = None,
    *,
    threads: int = 1,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Run plans over the same encoded events, one after the other.

    Args:
        tasks: The work. If they are several, each may run in order of time.
        device: As in `run_task`.
        batches: As in `run_task`; each task takes its own columns of them.
        memory: As in `run_task`.
        spilled: As in `run_task`.
        threads: As in `run_task`.

    Yields:
        The number of a task, and some of its results.
    """
    context = TaskContext.get()
    if context is not None:
        # The cores of this task, as the other ones run other tasks; or all that there are, if it is told more.
        usual_threads(max(context.cpus(), min(threads, cores())))
    from gpu_ops.engines.local import engine as local  # noqa: F401  (and all that it needs)

    choose(worker_device(device))  # which loads its kernels
    spare_the_next(worker_device(device))
    budget = memory or worker_memory()

    def tell(spill: Spill) -> None:
        _say(spill, budget)
        if spilled is not None:
            spilled(spill)

    with concise(), ExitStack() as stack:
        found: Iterable[Any] = batches
        if all(task.runs_in_order for task in tasks):
            found = stack.enter_context(in_order(batches, budget, tell, scratch_folder()))
        for at, task in enumerate(tasks):
            if isinstance(found, list) and task is tasks[-1]:
                found = _drained(found)
            for result in (_by_time if isinstance(found, SortedFiles) else _at_once)(task, device, found):
                for first in range(0, result.num_rows, BATCH_ROWS):
                    yield at, result.slice(first, BATCH_ROWS)


def _drained(held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches that nobody else reads: the list lets go of each as it is taken."""
    held.reverse()
    while held:
        yield held.pop()


def _say(spill: Spill, budget: int) -> None:
    """A line in the worker's log, which Spark keeps as the executor's stderr."""
    context = TaskContext.get()
    which = "A task" if context is None else f"Task {context.partitionId()} of stage {context.stageId()}"
    _LOG.warning(
        "%s sorted %s bytes of events in %s files (%s of them were merged first), as it holds %s in memory: "
        "spark.gpu_ops.worker.memory says how many.",
        which,
        *(f"{number:,}" for number in (spill.size, spill.files, spill.merged, budget)),
    )


def _at_once(task: Task, device: str, batches: Batches) -> Iterator[pa.RecordBatch]:
    """All of a task's events in one step."""
    from gpu_ops.engines.local import engine as local

    return local.run_fragment(task.plan, task.handed(batches), worker_device(device), task.answer.names)


def _by_time(task: Task, device: str, pieces: Iterable[tuple[pa.Table, int]]) -> Iterator[pa.RecordBatch]:
    """A task's events in order of time: only those that are alive are in memory."""
    from gpu_ops.engines.local import engine as local

    handed = ((task.handed(table.combine_chunks().to_batches()), cti) for table, cti in pieces)
    return local.run_fragment_in_order(task.plan, handed, worker_device(device), task.answer.names)


def worker_memory() -> int:
    """How many bytes of events a task holds in memory by default.

    An eighth of what Spark allows each worker (``spark.executor.pyspark.memory``), since sorting them and running a
    plan over them need several times as much; else 512 MiB.
    """
    allowed = int(os.environ.get("PYSPARK_EXECUTOR_MEMORY_MB", "-1"))
    return (allowed << 20) // 8 if allowed > 0 else USUAL_MEMORY


def scratch_folder() -> str | None:
    """The folder in which a task sorts in files: the executor's own.

    Spark removes it with the executor, even if a worker was killed, as Spark kills those of tasks that it gives up.
    """
    folders = _local_folders()
    return folders[os.getpid() % len(folders)] if folders else None


def executor_folder() -> str | None:
    """The folder that all workers of an executor share; None outside of one. Spark removes it with the executor."""
    return next(iter(_local_folders()), None)


def _local_folders() -> list[str]:
    return [each for each in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if Path(each).is_dir()]


def _restored(
    payload: pa.Schema,
    names: Sequence[str],
    ends: bool,  # noqa: FBT001
    batches: Batches,
) -> Iterator[pa.RecordBatch]:
    times = ["start", "end"] if ends else ["start"]
    schema = pa.schema([*((name, TIME_TYPE) for name in times), *payload])
    for batch in batches:
        arrays = [batch.column(name).cast(TIME_TYPE) for name in times]
        columns = decoded_arrays(payload, [batch.column(name) for name in names])
        yield pa.RecordBatch.from_arrays([*arrays, *columns], schema=schema)


def _flattened(answer: pa.Schema, back: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    payload = encoded_arrays(answer, batch.columns[2:])
    return pa.RecordBatch.from_arrays([*batch.columns[:2], *payload], schema=back)
