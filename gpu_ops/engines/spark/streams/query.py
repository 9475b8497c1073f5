"""Starting and ending a live query on Spark, and what its driver does for each epoch."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from gpu_ops.checkpoints.manifests import TakenError
from gpu_ops.core.arguments import path_like, whole
from gpu_ops.devices import check_name
from gpu_ops.engines.live.checkpoints import made_by
from gpu_ops.engines.live.fingerprints import IfFunctionsChanged, check_functions, functions_held
from gpu_ops.engines.live.restoring import check_plan
from gpu_ops.engines.live.running_query import RunningQuery
from gpu_ops.engines.local.engine import output_schema
from gpu_ops.engines.spark.checks import our_errors
from gpu_ops.engines.spark.sending import Sent, check_workers
from gpu_ops.engines.spark.store_reading import LIMIT, stores_read
from gpu_ops.engines.spark.streams.inputs import advanced
from gpu_ops.engines.spark.streams.log import (
    Begun,
    EpochLog,
    EpochManifest,
    InputProgress,
    NamedFile,
    QueryRecord,
)
from gpu_ops.engines.spark.streams.past import kept_epoch
from gpu_ops.engines.spark.streams.sink_files import Published
from gpu_ops.engines.spark.streams.sinks import Sink, local_path, sink
from gpu_ops.engines.spark.streams.stream_plan import StreamPlan, hosts_of
from gpu_ops.engines.spark.streams.task import BACK, EpochTask, run_epoch
from gpu_ops.engines.spark.types import spark_schema
from gpu_ops.errors import PlanError, SourceError, shown
from gpu_ops.ingest.counts import Counts
from gpu_ops.microbatches.folders import open_folder
from gpu_ops.microbatches.identity import new_name
from gpu_ops.plan.nodes import Node
from gpu_ops.topics.topic import Topic

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


_LOG = logging.getLogger("gpu_ops")

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
BY_FILE_SYSTEM = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Which of Spark's classes writes its part of a checkpoint: a setting, and its value while a query of ours starts."""

_POLL, _LOOKS = 0.01, 1_000
"""Seconds between two looks whether a query has opened its sources, and after how many it is not waited for."""


@dataclass(frozen=True)
class StreamDriver:
    """The driver's part of a live query: what Spark's ``foreachBatch`` calls.

    Attributes:
        plan: What runs.
        log: The checkpoint's log.
        record: Whose it is.
        results: Where results go.
        late: Where late rows go; None if they are not kept.
        keep: How many epochs' states are kept.
        device: As in `Stream.start`.
        partitions: How many partitions there are in this start.
        started: A random name of this start. A worker's memory of an earlier one is no use: a function may be another.
    """

    plan: StreamPlan
    log: EpochLog
    record: QueryRecord
    results: Sink
    late: Sink | None
    keep: int
    device: str
    partitions: int
    started: str = field(default_factory=new_name)

    @cached_property
    def _hosts(self) -> list[int]:
        return [] if self.partitions in (1, self.record.shards) else hosts_of(self.plan.session, self.partitions)

    @property
    def sinks(self) -> list[Sink]:
        """Its sinks."""
        return [self.results, *([] if self.late is None else [self.late])]

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Run an epoch, or publish it again if it is committed."""
        self.take(frame, epoch, self.log.offsets(epoch))

    def take(self, frame: DataFrame, epoch: int, offsets: str | None) -> None:
        """Run an epoch.

        Args:
            frame: Its rows.
            epoch: Its number.
            offsets: What Spark has written down of its inputs; None for the epoch that ends the query.

        Raises:
            SourceError: The log has other inputs for it; or another driver has committed it.
        """
        committed = self.log.committed(epoch)
        if committed is None:
            committed = self._run(frame, self._begun(epoch, offsets))
        elif committed.offsets != offsets:
            raise self._other_inputs(epoch)
        self.publish(committed)
        self._clean(committed)

    def publish(self, manifest: EpochManifest) -> None:
        """Give the sinks a committed epoch."""
        told = Published(manifest.query, manifest.epoch, manifest.results, manifest.cti)
        self.results.publish(told)
        if self.late is not None:
            self.late.publish(replace(told, files=manifest.late))

    def _begun(self, epoch: int, offsets: str | None) -> tuple[Begun, EpochManifest | None]:
        """What an epoch is made of, and the epoch before it."""
        before = self.log.committed(epoch - 1) if epoch else None
        if before is None and epoch:
            raise SourceError(
                f"Spark gives epoch {epoch}, and epoch {epoch - 1} is not committed in {self.log.path}.",
                remedy="Spark's part of the checkpoint is of another query, or older files are gone: put them back.",
            )
        ctis: list[int | None] = [None] * len(self.plan.inputs)
        if before is not None:
            if before.closed:
                raise _closed(self.log)
            told = [(each.cti, each.latest, each.said) for each in before.inputs]
            ctis = advanced(self.plan.inputs, *zip(*told, strict=True))
        begun = Begun(self.record.query, epoch, offsets, ctis)
        there = self.log.begin(begun)
        if there != begun:
            raise _closed(self.log) if there.offsets is None else self._other_inputs(epoch)
        return begun, before

    def _run(self, frame: DataFrame, of: tuple[Begun, EpochManifest | None]) -> EpochManifest:
        begun, before = of
        manifest = self._manifest(begun, self._reports(frame, begun, before))
        try:
            self.log.commit(manifest)
        except TakenError as error:
            raise SourceError(
                f"Another driver has committed epoch {begun.epoch} of {self.log.path}: two run this query.",
                remedy="Let one of them run; this one has stopped, and has changed nothing.",
            ) from error
        return manifest

    def _task(self, begun: Begun, before: EpochManifest | None) -> EpochTask:
        return EpochTask(
            self.plan.plan,
            tuple(each.name for each in self.plan.inputs),
            self.plan.columns,
            self.plan.slots,
            begun.epoch,
            tuple(begun.ctis),
            None if before is None else tuple(before.state),
            str(self.log.state),
            str(self.results.folder),
            None if self.late is None else str(self.late.folder),
            begun.offsets is None,
            self.device,
            self.started,
            self.partitions != self.record.shards,
            tuple(self.plan.clocks),
        )

    def _rows_back(self, frame: DataFrame, task: EpochTask) -> Sequence[Any]:
        """Run the tasks of an epoch in Spark; what they give back."""
        staged = self.plan.partitioned(frame, self.partitions, self.record.shards, self._hosts)
        with our_errors():
            task = replace(task, moves=self.plan.moves(frame, task.ctis))
            return staged.mapInArrow(Sent(partial(run_epoch, task)), spark_schema(BACK)).collect()

    def _reports(self, frame: DataFrame, begun: Begun, before: EpochManifest | None) -> list[Any]:
        rows = self._rows_back(frame, self._task(begun, before))
        rows = sorted(rows, key=lambda row: int(row["shard"]))
        if [row["shard"] for row in rows] != list(range(self.record.shards)):
            raise SourceError(
                f"Spark's tasks ran {len(rows)} shards of the {self.record.shards} in epoch {begun.epoch}.",
                remedy="No rule of the session may change the number of a repartition: take such a rule out.",
            )
        return [json.loads(row["report"]) for row in rows]

    def _manifest(self, begun: Begun, reports: Sequence[Any]) -> EpochManifest:
        def files(name: str) -> list[NamedFile]:
            return [NamedFile(**each[name]) for each in reports if each[name] is not None]

        inputs = []
        for cti, *told in zip(begun.ctis, *(each["inputs"] for each in reports), strict=True):
            latest, said = (_latest(each[fact] for each in told) for fact in ("latest", "said"))
            inputs.append(InputProgress(cti, latest, sum(each["rows"] for each in told), said))
        fates: dict[str, int] = {}
        for report in reports:
            for name, count in report["fates"].items():
                fates[name] = fates.get(name, 0) + count
        faults = Counts()
        for said in (each for report in reports for each in report["faults"]):
            faults.add(Counts.restore(said, None))
        if faults.invalid:
            first = "; ".join(f"{rule} {count}, first {faults.first[rule]}" for rule, count in faults.invalid.items())
            _LOG.warning("Epoch %d: %d messages are dropped (%s)", begun.epoch, faults.rows, first)
        return EpochManifest(
            begun.query,
            begun.epoch,
            begun.offsets,
            inputs,
            [each["state"] for each in reports],
            files("results"),
            files("late"),
            fates,
            dict(faults.invalid),
            min(each["cti"] for each in reports),
            closed=begun.offsets is None,
        )

    def _clean(self, manifest: EpochManifest) -> None:
        """Remove what no kept epoch needs. Files of later epochs stay: somebody may be making them."""
        self.log.clean(self.keep)
        for each in self.sinks:
            each.clean(manifest.epoch)

    def _other_inputs(self, epoch: int) -> SourceError:
        return SourceError(
            f"Epoch {epoch} was begun with other inputs or CTIs than Spark gives it now: {self.log.path} has both.",
            remedy="Spark's part of the checkpoint was removed or replaced: put it back, or start the query afresh "
            "with a new checkpoint and a new sink.",
        )


def open_epochs(
    node: Node,
    device: str,
    into: Any,
    checkpoint: str | Path,
    late_into: Any,
    partitions: int | None,
    keep: int,
    if_functions_changed: IfFunctionsChanged,
    shards: int | None = None,
) -> StreamDriver:
    """A query and its checkpoint, which is new or its own; what is committed and not published is published.

    Raises:
        PlanError: The query does not run in epochs, or an argument makes no sense.
        SourceError: The checkpoint or a sink is that of another query, or the query has changed.
    """
    check_name(device)
    path_like(checkpoint, name="checkpoint")
    log = EpochLog(local_path(checkpoint, "a checkpoint"))
    known = log.record()
    asked = shards if known is None else known.shards
    plan = StreamPlan.of(node, alone=(asked or partitions) == 1)
    check_workers(plan.session.sparkContext)
    running = RunningQuery(plan.plan, "cpu")  # the workers choose their device; this one says what the plan is
    whole(keep, name="keep", least=1)
    log.make()
    sinks = {"results": sink(into, log.path, "results", plan.session)}
    if late_into is not None:
        sinks["late"] = sink(late_into, log.path, "late", plan.session)
        if sinks["late"].place == sinks["results"].place:
            raise PlanError(
                f"Late rows and results would both go into {sinks['late'].place}.",
                remedy="Give late_into= a place of its own.",
            )
    _check_topics(plan, [each for each in (into, late_into) if isinstance(each, Topic)])
    partitions, shards = _cut(plan, partitions, shards, known)
    now = QueryRecord(
        new_name(),
        running.plan_lines(),
        functions_held(plan.plan),
        partitions,
        {name: each.kind for name, each in sinks.items()},
        made_by()["version"],
        made_by()["python"],
        shards,
    )
    record = log.claim(now)
    _check_record(log, record, now, if_functions_changed)
    last = log.last()
    sinks["results"].claim(record.query, output_schema(plan.plan), fresh=last is None)
    if "late" in sinks:
        sinks["late"].claim(record.query, _late_schema(plan, running), fresh=last is None)
    epochs = StreamDriver(plan, log, record, sinks["results"], sinks.get("late"), keep, device, partitions)
    if log.back() is not None:  # a process has ended on the way
        back(epochs)
        last = log.last()
    if last is not None:
        manifest = log.committed(last)
        assert manifest is not None  # noqa: S101  (it is the last one that was found)
        epochs.publish(manifest)
    return epochs


def _check_topics(plan: StreamPlan, written: Sequence[Topic]) -> None:
    """Refuse a topic that is read and written, and two sinks that are one writer."""
    read = [each.source.topic for each in plan.inputs if each.source.topic is not None]
    for each in written:
        if each.name in [topic.name for topic in read if topic.servers == each.servers]:
            raise PlanError(f"The topic {each.name} would be read and written.", remedy="Give another one as into=.")
    if len({each.writer for each in written}) < len(written):
        raise PlanError("Both sinks have one writer=, and would fence each other.", remedy="Leave writer= out of one.")


def _late_schema(plan: StreamPlan, running: RunningQuery) -> pa.Schema:
    own = {each.name for each in plan.inputs}
    schemas = [each.ingress.late_schema for each in running._own if each.name in own]  # noqa: SLF001  (its inputs)
    if any(schema != schemas[0] for schema in schemas):
        raise PlanError(
            "The inputs have different columns, and late rows of all of them would go into one sink.",
            remedy="Divert them in the query: .advance_time(…, late='divert').late() is a stream.",
        )
    return schemas[0]


def _cut(plan: StreamPlan, asked: int | None, shards: int | None, known: QueryRecord | None) -> tuple[int, int]:
    """Into how many partitions events go, and how many shards these have for the query's life."""
    for name, each in (("partitions", asked), ("shards", shards)):
        if each is not None:
            whole(each, name=name, least=1)
            if each > 1 and plan.partitioning.alone is not None:
                raise PlanError(
                    f"{each} {name} are asked for, and the query needs all events in one: {plan.partitioning.alone}.",
                    remedy="Give it a key (.by(…), on=…), "
                    + "leave the column turn out of what is selected, " * plan.partitioning.on_turns
                    + f"or leave {name}= out.",
                )
    if plan.partitioning.alone is not None:
        if asked is None and known is None and plan.partitioning.on_turns:
            raise PlanError(
                f"The query runs in one partition alone: {plan.partitioning.alone}.",
                remedy="Say partitions=1, and one task takes all events. Or let order within a key decide: give "
                "windows, groups and joins a key, and leave the column turn out of what is selected.",
            )
        return 1, 1
    usual = int(str(plan.session.conf.get("spark.sql.shuffle.partitions"))) if known is None else known.partitions
    partitions = asked or min(usual, shards or usual)
    shards = shards or (partitions if known is None else known.shards)
    if partitions > shards:
        raise PlanError(
            f"{partitions} partitions are asked for, and the query's state has {shards} shards: each partition has one "
            "or more.",
            remedy="Ask for fewer. How many shards there are is said once, when a query begins: shards=64.",
        )
    return partitions, shards


def _check_record(
    log: EpochLog, there: QueryRecord, now: QueryRecord, if_functions_changed: IfFunctionsChanged
) -> None:
    """Refuse the checkpoint of another query, and one that was started otherwise."""
    path = log.path / "query.json"
    check_plan(path, {"plan": there.plan}, now.plan)
    facts = {"functions": there.functions, "version": there.version, "python": there.python}
    check_functions(path, facts, now.functions, if_functions_changed)
    if there.shards != now.shards:
        raise SourceError(
            f"The checkpoint {log.path} has the state of {there.shards} shards, and {now.shards} are asked for.",
            remedy=f"Say shards={there.shards}, or leave it out: states are not cut anew. partitions= may be another.",
        )
    if there.sinks != now.sinks:
        kinds = [", ".join(f"{name}: a {kind}" for name, kind in each.sinks.items()) for each in (there, now)]
        raise SourceError(
            f"The query of the checkpoint {log.path} has other sinks: {kinds[0]}; now {kinds[1]}.",
            remedy="Continue with its sinks, or start the query afresh with a new checkpoint.",
        )


def check_started(trigger: object, name: object) -> None:
    """Refuse what Spark cannot be started with, before anything is written.

    Raises:
        PlanError: The trigger or the name is of another type.
    """
    if trigger is not None and (not isinstance(trigger, Mapping) or not trigger or "continuous" in trigger):
        raise PlanError(
            f"trigger is {shown(trigger)}.",
            remedy='Give Spark\'s own arguments: {"availableNow": True} or {"processingTime": "10 seconds"}.',
        )
    if name is not None and not isinstance(name, str):
        raise PlanError(f"name is {shown(name)}.", remedy='Give a text, for instance name="totals".')


def start(epochs: StreamDriver, trigger: Mapping[str, Any] | None, name: str | None) -> StreamingQuery:
    """Start a query in Spark.

    Args:
        epochs: The query.
        trigger: The arguments of Spark's ``DataStreamWriter.trigger``.
        name: Spark's name for it.

    Raises:
        PlanError: Spark has no such trigger.
        SourceError: The query has ended.
    """
    last = epochs.log.last()
    if last is not None and (committed := epochs.log.committed(last)) is not None and committed.closed:
        raise _closed(epochs.log)
    if trigger is not None and ("availableNow" in trigger or "once" in trigger):
        _read_stores_whole(epochs.plan)
    writer = epochs.plan.rows().writeStream.foreachBatch(_called(epochs))
    writer = writer.option("checkpointLocation", f"file:{epochs.log.spark}")
    if trigger is not None:
        try:
            writer = writer.trigger(**trigger)
        except (ValueError, TypeError) as error:
            raise PlanError(f"Spark has no such trigger: {error}.", remedy='Say {"availableNow": True}, …') from error
    if name is not None:
        writer = writer.queryName(name)
    with _few_processes(epochs.plan.session):
        running = writer.start()
        for _ in range(_LOOKS):
            if not running.isActive or not running.status["message"].startswith("Initializing"):
                break
            time.sleep(_POLL)
    return running


@contextmanager
def _few_processes(session: SparkSession) -> Iterator[None]:
    """Let Spark write its part of a checkpoint by Hadoop's older interface, for a query that starts meanwhile.

    By the newer one each file takes eight processes of `readlink` and two of `chmod` where Hadoop has no native
    library, and an epoch has three files. A session that says how it wants it has it so.
    """
    if session.conf.get(MANAGER, None) is not None:
        yield
        return
    session.conf.set(MANAGER, BY_FILE_SYSTEM)
    try:
        yield
    finally:
        session.conf.unset(MANAGER)


def _read_stores_whole(plan: StreamPlan) -> None:
    """Let a trigger for all that is available go on after an epoch that a kill has left.

    Spark would end after one epoch, since a source in Python cannot say that it takes part in such a trigger.

    Raises:
        PlanError: A store has a limit for each epoch.
    """
    limits = [each for one in plan.inputs for each in stores_read(one.source.frame)]
    if any(limits):
        raise PlanError(
            "The trigger is for all that is available, for which Spark asks a source written in Python once, and "
            f"{LIMIT} lets an epoch have no more batches of the store.",
            remedy='Leave the option out; or say trigger={"processingTime": "1 second"}, and stop the query.',
        )
    if limits:
        plan.session.conf.set("spark.sql.streaming.triggerAvailableNowWrapper.enabled", "true")


def _called(epochs: StreamDriver) -> Callable[[DataFrame, int], None]:
    def run(frame: DataFrame, epoch: int) -> None:
        epochs(frame, epoch)

    return run


def end(epochs: StreamDriver) -> None:
    """End a query: a last epoch without rows, in which the inputs end.

    Raises:
        SourceError: The last epoch that Spark has begun is not committed.
    """
    last = epochs.log.last()
    if last is not None and (committed := epochs.log.committed(last)) is not None and committed.closed:
        return
    epoch = 0 if last is None else last + 1
    if epochs.log.offsets(epoch) is not None:
        raise SourceError(
            f"Epoch {epoch} was begun in {epochs.log.path}, and is not committed: its rows would be lost.",
            remedy="Start the query once more, and end it when it has stopped.",
        )
    epochs.take(epochs.plan.nothing(epochs.plan.session), epoch, None)


def go_back(epochs: StreamDriver, epoch: int) -> None:
    """Undo all epochs after one.

    Raises:
        PlanError: A sink does not give back what it has.
        SourceError: The epoch is not kept, or Spark's part of it is gone; or another process goes back.
    """
    whole(epoch, name="epoch", least=0)
    for each in epochs.sinks:
        if each.lasts is not None:
            raise PlanError(
                f"The query of {epochs.log.path} cannot go back: {each.lasts}.",
                remedy="Results in a folder are taken back. Or start the query afresh, with a new checkpoint and sink.",
            )
    manifest = kept_epoch(epochs.log, epoch)
    if epochs.log.offsets(epoch) != manifest.offsets:
        raise epochs._other_inputs(epoch)  # noqa: SLF001  (of this module)
    epochs.log.go_back(epochs.record.query, epoch)
    back(epochs)


def back(epochs: StreamDriver) -> None:
    """Do what is written down: go back to an epoch. One process does it, and all of it, before an epoch runs again.

    Raises:
        BusyError: Another process is at it.
    """
    held = open_folder(epochs.log.path, None).lock(None)
    try:
        epoch = epochs.log.back()
        if epoch is not None:
            for each in epochs.sinks:
                each.take_back(epoch)
            epochs.log.forget_after(epoch)
    finally:
        held.release()


def _closed(log: EpochLog) -> SourceError:
    return SourceError(
        f"The query of the checkpoint {log.path} has ended, or somebody has begun to end it.",
        remedy="Start another one, with a new checkpoint; .end_on_spark(…) ends this one wholly.",
    )


def _latest(times: Iterable[int | None]) -> int | None:
    return max((each for each in times if each is not None), default=None)
