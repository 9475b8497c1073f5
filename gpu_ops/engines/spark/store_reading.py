"""How Spark reads a micro-batch store: what there is now, or as a stream, in which batches of the store are offsets.

Spark pickles readers for the workers, so they hold options and no store.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TIME_TYPE, instant
from gpu_ops.engines.spark.between_tasks import spare_the_next
from gpu_ops.engines.spark.types import plain_type
from gpu_ops.errors import PlanError, SourceError
from gpu_ops.microbatches.names import Range, Sealed, within
from gpu_ops.microbatches.stores import Store, store
from gpu_ops.microbatches.writer import MERGED_ROWS

NAME = "gpu_ops"
"""What the format is called."""

LIMIT = "maxBatchesPerTrigger"
"""The option that says how many batches an epoch has at most."""

_BATCH_ROWS = 1 << 16
"""How many rows go to Spark at a time."""


def opened(options: Mapping[str, str]) -> Store:
    """The store that options name; all that Spark asks of a source begins with it."""
    spare_the_next(NAME)
    if not options.get("path"):
        raise PlanError("A store has a path.", remedy=f'Say spark.read.format("{NAME}").load(path).')
    return store(options["path"], compression=options.get("compression", "zstd"))  # type: ignore[arg-type]


def everywhere(options: Mapping[str, str]) -> dict[str, str]:
    """Options for workers, with the driver's local path made absolute: workers run in folders of their own."""
    path, given = opened(options).path, options["path"]
    local = "://" not in given or given.startswith("file://")
    return {**options, "path": str(Path(path).absolute())} if local else dict(options)


@dataclass
class BatchRange(InputPartition):
    """A partition: the batches after one, up to another.

    Attributes:
        since: The former.
        until: The latter.
        gone: Of a stream, the batches that had expired before its query began; others must be there.
    """

    since: int
    until: int
    gone: Sequence[Range] = ()


def _ranges(files: Iterable[Sealed]) -> list[BatchRange]:
    """The batches of files; small neighbours are one range."""
    found: list[BatchRange] = []
    rows = 0
    for file in files:
        if found and found[-1].until == file.first - 1 and rows + file.rows <= MERGED_ROWS:
            found[-1].until = file.last
            rows += file.rows
        else:
            found.append(BatchRange(file.first - 1, file.last))
            rows = file.rows
    return found


def _plain(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """A table in Spark's types."""
    columns = pa.schema([pa.field(each.name, plain_type(each.type)) for each in table.schema])
    yield from table.cast(columns).to_batches(_BATCH_ROWS)


# What there is now


@dataclass
class StoreReader(DataSourceReader):
    """Reads a store's files; small neighbours are one partition.

    Attributes:
        options: The data source's.
        columns: The columns' names.
        start: Events that end at or before this tick are left out.
        end: Events that start at or after this tick are left out.
        low: Files whose latest end is at or before this tick are not read.
        high: Files whose earliest start is at or after this tick are not read.
    """

    options: dict[str, str]
    columns: tuple[str, ...]
    start: int | None
    end: int | None
    low: int = MIN_TIME
    high: int = MAX_TIME

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802  (Spark's name)
        """Take bounds of times from a query's filters, and let Spark filter each row all the same."""
        for each in filters:
            low, high = _bounds(each)
            self.low, self.high = max(self.low, low), min(self.high, high)
        yield from filters

    def partitions(self) -> list[InputPartition]:
        """The files that may hold an event of the query."""
        files = opened(self.options).log().files
        wanted = (each for each in files if each.overlaps(self.low, self.high) and each.overlaps(self.start, self.end))
        return list(_ranges(wanted))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """A partition's events; Spark passes None if there is no partition."""
        if not isinstance(partition, BatchRange):
            return
        since, until = partition.since, partition.until
        tables = opened(self.options).tables(self.columns, since=since, until=until, start=self.start, end=self.end)
        for table in tables:
            yield from _plain(table)


def _bounds(asked: Filter) -> tuple[int, int]:
    """The ``low`` and ``high`` of a filter. An event ends at least one tick after it starts."""
    attribute, value = getattr(asked, "attribute", None), getattr(asked, "value", None)
    if attribute not in {("start",), ("end",)} or not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return MIN_TIME, MAX_TIME
    at, of_end = instant(value), attribute == ("end",)
    from_it, up_to_it = at - of_end, at + (not of_end)
    low = {GreaterThan: at, GreaterThanOrEqual: from_it, EqualTo: from_it}
    high = {LessThan: at, LessThanOrEqual: up_to_it, EqualTo: up_to_it}
    return low.get(type(asked), MIN_TIME), high.get(type(asked), MAX_TIME)


# As a stream


@dataclass
class StoreStreamReader(DataSourceStreamReader):
    """Reads the batches of a store as they come.

    An offset is the number of a batch (``batch``), the store's identity (``store``), and which batches had expired when
    the query began (``gone``), as far as they are not behind the offset before it: no others may be missing.

    Attributes:
        options: The data source's.
        columns: The columns' names.
        kind: The column that says which rows are CTIs; None if they are left out.
        since: The batch after which the stream begins.
        most: How many batches an epoch has at most.
    """

    options: dict[str, str]
    columns: tuple[str, ...]
    kind: str | None = None
    since: int = 0
    most: int | None = None

    def __post_init__(self) -> None:
        self._first: dict[str, Any] | None = None
        self._reached: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Where a query begins. A query that goes on is told by `partitions` where it is."""
        if self._first is None:
            target = opened(self.options)
            self._first = _offset(target.identity, self.since, _after(self.since, target.log().gone))
        return self._first

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """The last batch, or the last one of an epoch.

        Raises:
            SourceError: It is another store than before, or it has lost batches.
        """
        before = self._reached or self.initialOffset()
        target = opened(self.options)
        there = _checked(target, before)
        until = target.sequence if self.most is None else min(target.sequence, before["batch"] + self.most)
        return before if until <= before["batch"] else _offset(there, until, _after(before["batch"], before["gone"]))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The files of an epoch; of files that were merged, its own batches.

        Spark calls it once when a query goes on, with an empty range, so that the reader knows where it is.
        """
        self._reached = end
        target = opened(self.options)
        _checked(target, end)
        since, until = start["batch"], end["batch"]
        if since == until:
            return []
        gone = _after(since, end["gone"])
        files = (each for each in target.log().files if each.last > since and each.first <= until)
        return [BatchRange(max(each.since, since), min(each.until, until), gone) for each in _ranges(files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a partition; with `kind` one more row, its last CTI.

        Raises:
            SourceError: Batches have expired that the query has not read.
        """
        assert isinstance(partition, BatchRange)  # noqa: S101  (one of `partitions`)
        target, reached, cti = opened(self.options), partition.since, None
        names = [name for name in self.columns if name != self.kind]
        for batch in target.batches(reached, partition.until):
            lost = batch.lost or 0
            if lost > reached and not within(reached + 1, lost, partition.gone):
                raise SourceError(
                    f"Batches of {target.path} after number {reached} have expired, and the query has not read them.",
                    remedy="Start the query afresh from what is left, with a new checkpoint and sink; and keep batches "
                    "for longer.",
                )
            reached, cti = batch.sequence, cti if batch.cti is None else batch.cti
            yield from self._marked(batch.events.select(names), "insert")
        if cti is not None and self.kind is not None:
            others = {name: pa.nulls(1, target.schema.field(name).type) for name in names}
            yield from self._marked(pa.table(others | {"start": pa.array([cti], TIME_TYPE)}), "cti")

    def _marked(self, rows: pa.Table, kind: str) -> Iterator[pa.RecordBatch]:
        """Rows in Spark's types and order of columns, with their kind."""
        if self.kind is not None:
            rows = rows.append_column(self.kind, pa.array([kind] * rows.num_rows, pa.string())).select(self.columns)
        yield from _plain(rows)


def stores_read(stream: DataFrame) -> list[bool]:
    """For each store that a streaming DataFrame reads whether an epoch has a limit."""
    plan: Any = stream._jdf.queryExecution().analyzed()  # noqa: SLF001
    leaves = plan.collectLeaves()
    found = (leaves.apply(at) for at in range(leaves.size()))
    sources = (each for each in found if each.getClass().getSimpleName() == "StreamingRelationV2")
    return [each.extraOptions().containsKey(LIMIT) for each in sources if each.sourceName() == NAME]


def _offset(store: str | None, batch: int, gone: Iterable[Range]) -> dict[str, Any]:
    return {"store": store, "batch": batch, "gone": [list(each) for each in gone]}


def _after(batch: int, ranges: Iterable[Range]) -> list[Range]:
    """The ranges with batches after one."""
    return [(first, last) for first, last in ranges if last > batch]


def _checked(target: Store, known: Mapping[str, Any]) -> str | None:
    """The identity of a store that is the one that an offset is of.

    Raises:
        SourceError: It is another one, or it ends before the offset.
    """
    there, last = target.identity, target.sequence
    if known["store"] is not None and there != known["store"]:
        raise SourceError(
            f"{target.path} was made anew: it is another store than the one that the query has read.",
            remedy="Give that store or a copy of its folder; or start the query afresh with a new checkpoint and sink.",
        )
    if last < known["batch"]:
        raise SourceError(
            f"{target.path} ends with batch {last}, and the query has read batch {known['batch']} of it.",
            remedy="It has lost files: put it back, or start the query afresh with a new checkpoint and sink.",
        )
    return there
