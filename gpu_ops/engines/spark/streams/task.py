"""What a task of an epoch does: the running query of each of its shards takes its rows, and gives results and a state.

A shard is what state is kept by for the query's life: the rows whose keys have one hash, modulo the number of shards. A
partition is a task of an epoch, and hosts one shard or more. So other partitions are another assignment, and no state
is cut anew.
"""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from gpu_ops.checkpoints.cache import Cache
from gpu_ops.checkpoints.manifests import prefix
from gpu_ops.checkpoints.saved_states import SavedState
from gpu_ops.core.arrow_buffers import integers
from gpu_ops.core.bounds import Bounds
from gpu_ops.core.threads import usual_threads
from gpu_ops.core.time import TIME_TYPE, utc
from gpu_ops.engines.live.restored import Start, restored_state
from gpu_ops.engines.live.running_query import RunningQuery
from gpu_ops.engines.live.saving import save_state
from gpu_ops.engines.spark.between_tasks import spare_the_next
from gpu_ops.engines.spark.sending import concise
from gpu_ops.engines.spark.sides import Slots
from gpu_ops.engines.spark.source import CTI, FAULT
from gpu_ops.engines.spark.streams.clocks import Clock, Moves
from gpu_ops.engines.spark.type_codecs import decoded_arrays, encoded_schema
from gpu_ops.engines.spark.worker import executor_folder, worker_device
from gpu_ops.microbatches.files import write
from gpu_ops.microbatches.folders import open_folder
from gpu_ops.plan.nodes import Node

INPUT = "input"
"""The column with the number of a row's input."""

SHARD = "shard"
"""The column with the number of a row's shard. Without it a partition is the shard of the same number."""

BACK = pa.schema([("shard", pa.int32()), ("report", pa.string())])
"""What comes back of a task: a row for each of its shards."""


@dataclass(frozen=True)
class EpochTask:
    """What the tasks of an epoch do.

    Attributes:
        plan: The plan, over local sources.
        names: The names of its inputs.
        columns: For each input the columns of its rows.
        slots: The columns in which rows come.
        epoch: The epoch's number.
        ctis: The CTI of each input; None before there is any.
        before: For each shard its state, as its manifest names it; None before the first epoch.
        state: The folder of states.
        results: The folder for results.
        late: The folder for late rows; None if they are not kept.
        ends: Whether the query ends.
        device: As in `Stream.start`.
        started: The name of the start of the query.
        marked: Whether rows tell their shard.
        clocks: The clocks whose moves its partitions are shown.
        moves: These moves.
    """

    plan: Node
    names: tuple[str, ...]
    columns: tuple[pa.Schema, ...]
    slots: Slots
    epoch: int
    ctis: tuple[int | None, ...]
    before: tuple[Any, ...] | None
    state: str
    results: str
    late: str | None
    ends: bool
    device: str
    started: str
    marked: bool
    clocks: tuple[Clock, ...] = ()
    moves: Moves = ()

    def rows(self, batches: Iterable[pa.RecordBatch]) -> tuple[list[pa.Table], list[int | None], list[Any]]:
        """The rows of each input, its latest CTI among them, and the counts of what was dropped before.

        A row without a start is no event: it is a CTI, has such counts, or is there so that no epoch is empty.
        """
        faults: list[Any] = []
        ctis: list[int | None] = [None] * len(self.columns)
        pieces: list[list[pa.RecordBatch]] = [[] for _ in self.columns]
        for batch in batches:
            starts = batch.column("start")
            there = batch.filter(starts.is_valid()) if starts.null_count else batch
            if starts.null_count and FAULT in batch.schema.names:
                faults += map(json.loads, batch.column(FAULT).drop_null().to_pylist())
            if starts.null_count and CTI in batch.schema.names:
                ctis = [self._later(cti, number, batch) for number, cti in enumerate(ctis)]
            if not there.num_rows:
                continue
            for number, schema in enumerate(self.columns):
                own = there if len(self.columns) == 1 else there.filter(pc.equal(there.column(INPUT), number))
                if own.num_rows:
                    pieces[number].append(self._decoded(own, number, schema))
        made = [pa.Table.from_batches(each, schema) for each, schema in zip(pieces, self.columns, strict=True)]
        return made, ctis, faults

    def _later(self, cti: int | None, number: int, batch: pa.RecordBatch) -> int | None:
        """The latest CTI of an input, after a batch."""
        own = batch if len(self.columns) == 1 else batch.filter(pc.equal(batch.column(INPUT), number))
        found = pc.max(own.column(CTI).cast(TIME_TYPE).cast(pa.int64())).as_py()
        return max((each for each in (cti, found) if each is not None), default=None)

    def _decoded(self, rows: pa.RecordBatch, number: int, schema: pa.Schema) -> pa.RecordBatch:
        times = [name for name in ("start", "end") if name in schema.names]
        payload, places = pa.schema(list(schema)[len(times) :]), self.slots.places[number]
        arrays = [rows.column(name).cast(TIME_TYPE) for name in times]
        encoded = [rows.column(places[name]) for name in encoded_schema(payload).names]
        return pa.RecordBatch.from_arrays([*arrays, *decoded_arrays(payload, encoded)], schema=schema)


def run_epoch(task: EpochTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Step the running query of each shard of a partition over the rows of an epoch.

    Files that it writes have a name of this attempt: Spark may run a task twice, at once or one after the other.

    Args:
        task: What to do.
        batches: The partition's rows.

    Yields:
        A row for each shard: its number, and a report as JSON: the names of the files, and what the rows were.
    """
    context = TaskContext.get()
    assert context is not None  # noqa: S101  (it runs in a task)
    usual_threads(context.cpus())
    device = worker_device(task.device)
    spare_the_next(device)
    partition = context.partitionId()
    with concise():
        reports = stepped(task, partition, batches, device)
    said = {"shard": list(reports), "report": [json.dumps(each) for each in reports.values()]}
    yield pa.RecordBatch.from_pydict(said, schema=BACK)


def stepped(
    task: EpochTask, partition: int, batches: Iterable[pa.RecordBatch], device: str
) -> dict[int, dict[str, Any]]:
    """The reports of the shards of a partition.

    Args:
        task: What to do.
        partition: The partition.
        batches: Its rows.
        device: Where its queries run.
    """
    before = _KEPT.pop((task.state, partition), {})  # a step that fails leaves nothing of it
    kept, reports = {}, {}
    for shard, own in _by_shard(batches) if task.marked else [(partition, batches)]:
        reports[shard], kept[shard] = _stepped(task, shard, own, device, before.pop(shard, None))
    _KEPT[task.state, partition] = kept
    while len(_KEPT) > _MOST_KEPT:
        _KEPT.popitem(last=False)
    return reports


def _by_shard(batches: Iterable[pa.RecordBatch]) -> Iterable[tuple[int, Iterable[pa.RecordBatch]]]:
    """The rows of each shard of a partition: of each there is a row, be it of no input."""
    shards: dict[int, list[pa.RecordBatch]] = {}
    for batch in batches:
        rows = batch.take(pc.sort_indices(batch.column(SHARD)))
        numbers, begins = np.unique(integers(rows.column(SHARD)), return_index=True)
        for number, begin, end in zip(numbers.tolist(), begins, [*begins[1:], rows.num_rows], strict=True):
            shards.setdefault(number, []).append(rows.slice(begin, end - begin))
    return shards.items()


def _stepped(
    task: EpochTask, shard: int, batches: Iterable[pa.RecordBatch], device: str, kept: _Kept | None
) -> tuple[dict[str, Any], _Kept]:
    rows, said, faults = task.rows(batches)
    query, saved = _restored(task, shard, device, kept)
    late_before = query.fates
    clocks = zip(task.clocks, task.moves, strict=True)
    shown = [(clock.name, clock.cti(task.ctis), clock.rows(moves)) for clock, moves in clocks]
    for name, cti, table in (*zip(task.names, task.ctis, rows, strict=True), *shown):
        if cti is not None:
            query.advance(utc(cti), input=name)
        if table.num_rows:
            query.push(table, input=name)
    if task.ends:
        query.close()
    attempt = f"{shard:05d}-{secrets.token_hex(8)}"
    written = f"{task.epoch:012d}-{attempt}"
    results, late = query.results(), query.late()
    report = {
        "inputs": [
            {"rows": table.num_rows, "latest": _latest(table), "said": cti}
            for table, cti in zip(rows, said, strict=True)
        ],
        "fates": {name: count - late_before.get(name, 0) for name, count in query.fates.items()},
        "faults": faults,
        "results": _written(results, Path(task.results), written),
        "late": None if task.late is None else _written(late, Path(task.late), written),
        "cti": query.cti,
    }
    saved = save_state(query, open_folder(task.state, None), prefix(task.epoch + 1, f"{attempt}-"), saved)
    report |= {"state": {"attempt": attempt, "saved": saved.to_json()}}
    return report, _Kept(f"{task.started} {attempt}", query, saved)


@dataclass(frozen=True)
class _Kept:
    """A running query as an attempt has left it.

    Attributes:
        attempt: The start of the query, and the attempt.
        query: The query.
        saved: Its state, as it was saved.
    """

    attempt: str
    query: RunningQuery
    saved: SavedState


_KEPT: OrderedDict[tuple[str, int], dict[int, _Kept]] = OrderedDict()
"""The last queries of this worker, by their folders and partitions: of each shard there. One whose attempt was not
committed is no use."""

_MOST_KEPT = 4


def _restored(task: EpochTask, shard: int, device: str, kept: _Kept | None) -> tuple[RunningQuery, SavedState | None]:
    """A shard's running query as the last committed epoch left it, and what is saved of it."""
    if task.before is None:
        return RunningQuery(task.plan, device), None
    before = task.before[shard]
    if kept is not None and kept.attempt == f"{task.started} {before['attempt']}":
        return kept.query, kept.saved
    saved = SavedState.from_json(f"The state of shard {shard}", before["saved"])
    # Only tasks write there: damage is looked for, and what is sound is not doubted. The driver has compared functions.
    start = Start(task.plan, device, if_functions_changed="accept")
    folder, trusted = open_folder(task.state, None), Bounds(trust=True)
    return restored_state(task.state, folder, saved, start, trusted, _cache()), saved


def _cache() -> Cache | None:
    """Copies of states on the executor's own disk, for all its workers; None outside of an executor."""
    folder = executor_folder()
    return None if folder is None else Cache(Path(folder, "gpu_ops-states"))


def _latest(table: pa.Table) -> int | None:
    return int(integers(table["start"].combine_chunks()).max()) if table.num_rows else None


def _written(table: pa.Table | None, folder: Path, attempt: str) -> dict[str, Any] | None:
    """A file of rows; none if there are none."""
    if table is None or not table.num_rows:
        return None
    name = f"{attempt}.parquet"
    made = write([table], table.schema, folder / name)
    return {"name": name, "size": made.size, "rows": made.rows}
