"""What a live query on Spark knew after an epoch that is kept: the driver reads it from the checkpoint's files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from gpu_ops.checkpoints.saved_states import SavedState
from gpu_ops.core.arguments import path_like, whole
from gpu_ops.core.arrow_buffers import to_arrow
from gpu_ops.core.bounds import Bounds
from gpu_ops.engines.live.restored import Start, restored_state
from gpu_ops.engines.live.restoring import check_plan
from gpu_ops.engines.live.running_query import RunningQuery
from gpu_ops.engines.spark.streams.log import EpochLog, EpochManifest
from gpu_ops.engines.spark.streams.sinks import local_path
from gpu_ops.engines.spark.streams.stream_plan import StreamPlan
from gpu_ops.errors import SourceError
from gpu_ops.microbatches.folders import open_folder
from gpu_ops.plan.nodes import Node


@dataclass(frozen=True)
class EpochState:
    """What a live query on Spark knew after an epoch; `gpu_ops.Stream.state_on_spark` gives it.

    Attributes:
        epoch: The epoch's number.
        kept: The epochs that are kept, this one among them.
        closed: Whether it ended the query.
        cti: The CTI of the results, in ticks: no result of a later epoch starts before it.
        input_ctis: The CTI of each input in the epoch, in ticks; None before there was any.
        late: How many rows of the epoch were late, by what was done with them.
        alive: How many events the query kept.
        waiting: How many of these waited for a CTI to pass their start.
        tables: Its state as tables, named ``"<number> <node>/<table>"``. They begin with a column ``shard``: numbers of
            groups are those of a shard.
    """

    epoch: int
    kept: tuple[int, ...]
    closed: bool
    cti: int
    input_ctis: Mapping[str, int | None]
    late: Mapping[str, int]
    alive: int
    waiting: int
    tables: Mapping[str, pa.Table]

    def __repr__(self) -> str:
        return f"<EpochState {self.epoch}: {self.alive:,} events alive, {self.waiting:,} of them wait>"


def state_after(node: Node, checkpoint: str | Path, epoch: int | None) -> EpochState:
    """What a query knew after an epoch; the last one without a number.

    Raises:
        PlanError: An argument makes no sense.
        SourceError: The folder is no checkpoint, or that of another query; the epoch is not kept; a file is damaged.
    """
    path_like(checkpoint, name="checkpoint")
    log = EpochLog(local_path(checkpoint, "a checkpoint"))
    record = log.record()
    if record is None:
        raise SourceError(
            f"{log.path} is no checkpoint of a live query on Spark.",
            remedy="Give the checkpoint= of start_on_spark(…).",
        )
    plan = StreamPlan.of(node, alone=record.shards == 1)
    check_plan(log.path / "query.json", {"plan": record.plan}, RunningQuery(plan.plan, "cpu").plan_lines())
    manifest = kept_epoch(log, epoch)
    names = [each.name for each in plan.inputs]
    ctis = {name: each.cti for name, each in zip(names, manifest.inputs, strict=True)}
    alive = waiting = 0
    tables: dict[str, list[pa.Table]] = {}
    for shard, query in enumerate(_queries(log, plan.plan, manifest)):
        status = query.status()
        alive, waiting = alive + status.alive, waiting + status.waiting
        for name, table in query.state().items():
            numbers = to_arrow(np.full(table.num_rows, shard, np.int32), pa.int32())
            tables.setdefault(name, []).append(table.add_column(0, "shard", numbers))
    joined = {name: pa.concat_tables(each, promote_options="default") for name, each in tables.items()}
    return EpochState(
        manifest.epoch,
        tuple(log.kept()),
        manifest.closed,
        manifest.cti,
        ctis,
        dict(manifest.fates),
        alive,
        waiting,
        joined,
    )


def _queries(log: EpochLog, plan: Node, manifest: EpochManifest) -> list[RunningQuery]:
    """The query of each shard."""
    folder, made = open_folder(log.state, None), []
    start = Start(plan, "cpu", if_functions_changed="accept")  # nothing of it runs
    for shard, each in enumerate(manifest.state):
        saved = SavedState.from_json(f"The state of shard {shard}", each["saved"])
        try:
            made.append(restored_state(log.path, folder, saved, start, Bounds()))
        except SourceError:
            kept_epoch(log, manifest.epoch)  # the query runs, and has removed it in the meantime
            raise
    return made


def kept_epoch(log: EpochLog, epoch: int | None) -> EpochManifest:
    """The manifest of an epoch that is kept; of the last one without a number.

    Raises:
        PlanError: It is no number.
        SourceError: It is kept no longer, or was not committed yet.
    """
    if epoch is not None:
        whole(epoch, name="epoch", least=0)
    kept = log.kept()
    if epoch is None and not kept:
        raise SourceError(f"{log.path} has no committed epoch yet.", remedy="Start the query, and ask again.")
    number = kept[-1] if epoch is None else epoch
    if number not in kept:
        there = f"it has {', '.join(map(str, kept))}" if kept else "it has none"
        what = "keeps epoch {} no longer" if kept and number < kept[0] else "has no epoch {}"
        raise SourceError(
            f"{log.path} {what.format(number)}: {there}.",
            remedy="Take one that it has; keep= of start_on_spark(…) says how many it keeps.",
        )
    manifest = log.committed(number)
    if manifest is None:  # it was gone back from in the meantime
        raise SourceError(f"{log.path} has epoch {number} no more.", remedy="The query went back: ask again.")
    return manifest
