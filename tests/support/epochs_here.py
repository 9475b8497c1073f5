"""Live queries on Spark whose tasks run in this process: no job runs and no worker starts, and all else is as it is.

What stands for Spark takes some pieces of the input for each epoch, and keeps its log as Spark does: an epoch's offsets
before it runs, a commit after it. It begins again with the epoch that has offsets and no commit.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

import gpu_ops as g
from gpu_ops.core.arrow_buffers import to_arrow
from gpu_ops.core.time import TIME_TYPE
from gpu_ops.engines.spark.streams import query, task
from gpu_ops.engines.spark.type_codecs import encoded_schema
from tests.support.epochs import SECOND, Epoch


def drive(stream: g.Stream, pieces: Sequence[Epoch], *, at_once: int = 1, **where: Any) -> None:
    """Run a query over pieces of its input, from where its checkpoint is on, until there are no more."""
    epochs = opened(stream, **where)
    offsets, commits = (epochs.log.spark / name for name in ("offsets", "commits"))
    for each in (offsets, commits):
        each.mkdir(parents=True, exist_ok=True)
    with here():
        while True:
            epoch = max((int(each.name) for each in offsets.iterdir()), default=-1)
            if epoch < 0 or (commits / str(epoch)).exists():
                begin = _until(offsets, epoch)
                if begin == len(pieces):
                    return
                epoch += 1
                (offsets / str(epoch)).write_text(f"{begin} {min(begin + at_once, len(pieces))}")
            begin = _until(offsets, epoch - 1)
            rows: Any = [row for piece in pieces[begin : _until(offsets, epoch)] for row in piece]
            epochs(rows, epoch)
            (commits / str(epoch)).touch()


def finish(stream: g.Stream, **where: Any) -> None:
    """`Stream.end_on_spark`."""
    with here():
        stream.end_on_spark(**where)


def opened(
    stream: g.Stream, *, into: Any, checkpoint: Path, partitions: int | None = None, **more: Any
) -> query.StreamDriver:
    """The driver of a query."""
    settings = {"device": "cpu", "late_into": None, "keep": 2, "if_functions_changed": "raise"} | more
    return query.open_epochs(stream._node, into=into, checkpoint=checkpoint, partitions=partitions, **settings)


def _until(offsets: Path, epoch: int) -> int:
    return int((offsets / str(epoch)).read_text().split()[1]) if epoch >= 0 else 0


@contextmanager
def here() -> Iterator[None]:
    """Run tasks here: rows go to shards by ``item``, and a partition hosts the shards of some numbers."""

    def rows_back(self: query.StreamDriver, frame: Any, of: task.EpochTask) -> list[dict[str, Any]]:
        given: Epoch = frame if isinstance(frame, list) else []
        cti = of.ctis[0]
        times = [row[0] * SECOND for row in given]
        moves = np.unique(np.array([each for each in times if cti is None or each >= cti], np.int64))
        of = replace(of, moves=(moves,) * len(of.clocks))
        each = [_ran(of, number, self.partitions, self.record.shards, given) for number in range(self.partitions)]
        return [row for rows in each for row in rows]

    with mock.patch.object(query.StreamDriver, "_rows_back", rows_back):
        yield


def _ran(of: task.EpochTask, partition: int, partitions: int, shards: int, given: Epoch) -> list[dict[str, Any]]:
    hosted = range(partition, shards, partitions)
    batches = [_batch(of, number, shards, given) for number in hosted]
    if of.marked:
        batches = [_marked(rows, shard) for rows, shard in zip(batches, hosted, strict=True)]
    reports = task.stepped(of, partition, batches, "cpu")
    return [{"shard": shard, "report": json.dumps(report)} for shard, report in reports.items()]


def _marked(rows: pa.RecordBatch, shard: int) -> pa.RecordBatch:
    """The rows of a shard, and one of no input."""
    nothing = pa.RecordBatch.from_arrays([pa.nulls(1, each.type) for each in rows.schema], schema=rows.schema)
    both = pa.concat_batches([rows, nothing])
    return both.append_column(task.SHARD, pa.array([shard] * both.num_rows, pa.int32()))


def _batch(of: task.EpochTask, shard: int, shards: int, given: Epoch) -> pa.RecordBatch:
    own = [row for row in given if zlib.crc32(row[2].encode()) % shards == shard]
    starts, ends, items, prices = (list(each) for each in zip(*own, strict=True)) if own else ([], [], [], [])
    times = [
        to_arrow(pa.array([at * SECOND for at in each], pa.int64()).to_numpy(), TIME_TYPE) for each in (starts, ends)
    ]
    payload = pa.schema(list(of.columns[0])[2:])
    names = ["start", "end", *(of.slots.places[0][name] for name in encoded_schema(payload).names)]
    arrays = [*times, pa.array(items, pa.string()), pa.array(prices, pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, names=names)
