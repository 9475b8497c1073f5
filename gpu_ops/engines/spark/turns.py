"""Plans on turns, on Spark: events get their places once, then tasks compute the deliveries of their keys.

What a task cannot see is when the clock moved before the events of other tasks. A row that comes shows what the clock
was at its place, which is all that most plans ask. Windows of time ask for the first move past a time: such *ticks* go
to the tasks beside their events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyarrow import compute
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.core.arrow_buffers import integers, to_arrow
from gpu_ops.core.time import TICK, TIME_TYPE, format_span
from gpu_ops.core.turns import ASK, CLOCK, PLACE
from gpu_ops.engines.spark.numbering import STREAM, NumberedEvents, numbered, order_columns
from gpu_ops.engines.spark.sides import Slots, shared_slots
from gpu_ops.engines.spark.slice_policy import SliceSettings
from gpu_ops.engines.spark.type_codecs import decoded_arrays, encoded_columns, encoded_names, encoded_schema
from gpu_ops.engines.spark.types import column, filled, to_timestamp
from gpu_ops.engines.spark.worker import Batches, Task
from gpu_ops.plan.contexts import Instances, check_unnumbered
from gpu_ops.plan.ledger import TICKS, AtClock, EventLedger
from gpu_ops.plan.nodes import Feed, Node
from gpu_ops.plan.splits import Split

_TIME, _BUCKET = "clock", "bucket"
_PER_TASK = 4
"""How many buckets of keys there are for each task of a shuffle, where tasks need ticks."""


@dataclass(frozen=True)
class TurnTask(Task):
    """What workers do with events at places.

    Attributes:
        events: For each payload its leaf of the plan, and the number of its stream.
        ticks: The leaf of ticks.
        given: Whether all ticks that are needed come as rows; else a row shows what the clock is at its place.
    """

    events: tuple[tuple[Feed, int], ...] = ()
    ticks: Feed | None = None
    given: bool = False

    def handed(self, batches: Batches) -> dict[Feed, Iterator[pa.RecordBatch]]:
        """For each leaf its rows."""
        found = [*batches]
        assert self.slots is not None  # noqa: S101  (the rows of all streams are in slots)
        fed = {
            feed: _events(found, number, payload, encoded, self.slots)
            for (feed, number), payload, encoded in zip(self.events, self.payloads, self.slots.places, strict=True)
        }
        return fed if self.ticks is None else fed | {self.ticks: iter(self._ticks(found))}

    def _ticks(self, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        rows = batches
        if self.given:
            rows = [each.filter(compute.is_null(each.column(STREAM))) for each in batches]
        some = [each for each in rows if each.num_rows]
        if not some:
            return []
        place, clock = (np.concatenate([integers(each.column(name)) for each in some]) for name in ("start", _TIME))
        order = np.argsort(place, kind="stable")
        place, clock = place[order], clock[order]
        moves = np.concatenate([[True], clock[1:] != clock[:-1]])
        arrays = [to_arrow(each[moves], TIME_TYPE) for each in (place, clock)]
        asks = pa.array(np.zeros(len(arrays[0]), np.bool_))
        return [pa.RecordBatch.from_arrays([*arrays, asks], names=["start", CLOCK, ASK])]


def _events(
    batches: Sequence[pa.RecordBatch], number: int, payload: pa.Schema, places: Mapping[str, str], slots: Slots
) -> Iterator[pa.RecordBatch]:
    """The arrivals of a stream."""
    schema = pa.schema([("start", TIME_TYPE), *payload, (CLOCK, TIME_TYPE), (PLACE, pa.int64())])
    for batch in batches:
        rows = batch.filter(compute.equal(batch.column(STREAM), number))
        if rows.num_rows:
            start = rows.column("start").cast(TIME_TYPE)
            columns = decoded_arrays(payload, [rows.column(places[each]) for each in encoded_schema(payload).names])
            own = [rows.column(_TIME).cast(TIME_TYPE), to_arrow(integers(start), pa.int64())]
            yield pa.RecordBatch.from_arrays([start, *columns, *own], schema=schema)


@dataclass(frozen=True)
class TurnFragment:
    """The part of a plan between its streams and what happens with its deliveries.

    Attributes:
        last: The node at which deliveries become events.
        nodes: Its nodes, inputs first, but for what is below its ledger.
    """

    last: AtClock
    nodes: tuple[Node, ...]

    @classmethod
    def of(cls, last: AtClock) -> TurnFragment:
        """The fragment that ends in a node."""
        found: dict[Node, None] = {}
        waiting: list[Node] = [last]
        while waiting:
            each = waiting.pop()
            if each not in found:
                found[each] = None
                waiting += [] if isinstance(each, EventLedger) else each.inputs
        return cls(last, tuple(each for each in last.walk() if each in found))

    @cached_property
    def leaves(self) -> tuple[EventLedger, ...]:
        """Where its events come in, and its ticks."""
        return tuple(each for each in self.nodes if isinstance(each, EventLedger))

    @cached_property
    def streams(self) -> tuple[EventLedger, ...]:
        """Where its events come in."""
        return tuple(each for each in self.leaves if each.gives is not None)

    @cached_property
    def split(self) -> Split:
        """How its events may be split among tasks.

        Raises:
            PlanError: They cannot.
        """
        known: dict[Node, Split] = {}
        if self.last.all(Instances):
            check_unnumbered(self.last)
        for each in self.nodes:
            known[each] = each.split([known[below] for below in each.inputs if below in known])
        return known[self.last]

    @cached_property
    def spans(self) -> frozenset[int] | None:
        """The moves of the clock that tasks must see, as in `Split`; all where it hardly moves."""
        spans = self.split.spans
        return spans if self.leaves[0].numbers.moves or not spans else None

    @cached_property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """For each of `streams` the columns by which its events go to tasks; none if any task will do."""
        keys = [dict(each) for each in sorted(map(sorted, self.split.keys or ()))]
        return tuple(tuple(key[int(each.gives or 0)] for key in keys) for each in self.streams)

    def task(self, payloads: tuple[pa.Schema, ...], answer: pa.Schema, slots: Slots) -> TurnTask:
        """What workers do."""
        feeds: dict[Node, Feed] = {
            each: Feed(TICKS if each.gives is None else each.schema, (), TICK) for each in self.leaves
        }
        made: dict[Node, Node] = {**feeds}
        for each in self.nodes:
            if each not in made:
                made[each] = each.over(*(made[below] for below in each.inputs))
        return TurnTask(
            made[self.last],
            payloads,
            answer,
            slots,
            events=tuple((feeds[each], int(each.gives or 0)) for each in self.streams),
            ticks=next((feeds[each] for each in self.leaves if each.gives is None), None),
            given=self.spans is None,
        )

    def ways(self, settings: SliceSettings) -> list[str]:
        """How it is computed, in words."""
        names = [", ".join(dict.fromkeys(each)) for each in zip(*self.keys, strict=True)]
        by = f"one repartition by {'; '.join(names)}" if names else "any task will do, as no row needs another"
        lines = [f"Spark: events at places, {by}, then one mapInArrow with the local engine"]
        spans = self.spans
        if spans is None:
            lines.append(
                f"ticks: every move of the clock goes to each of {_buckets(settings)} buckets of keys, since any may "
                "be one that a window waits for"
            )
        elif spans:
            listed = ", ".join(map(format_span, sorted(spans)))
            lines.append(f"ticks: for each event the first move of the clock {listed} after it, by a pass over time")
        return lines


def _buckets(settings: SliceSettings) -> int:
    return _PER_TASK * settings.tasks


def turn_rows(
    part: TurnFragment, frames: Sequence[DataFrame], payloads: Sequence[pa.Schema], settings: SliceSettings
) -> tuple[DataFrame, Slots]:
    """The rows that go to the workers of a fragment, partitioned, and the slots of their payload.

    Args:
        part: The fragment.
        frames: The events of all streams of its ledger.
        payloads: For each of its `streams` the columns that workers need.
        settings: What the session says of slices.
    """
    ledger = part.leaves[0].numbers
    slots = shared_slots(payloads, part.keys)
    needed = {int(each.gives or 0): at for at, each in enumerate(part.streams)}
    listed = []
    for number, frame in enumerate(frames):
        events, when = order_columns(ledger, number, frame)
        payload = {}
        if number in needed:
            schema, places = payloads[needed[number]], slots.places[needed[number]]
            names = [places[name] for name in encoded_schema(schema).names]
            payload = dict(zip(names, encoded_columns(schema), strict=True))
        listed.append(events.select(*when, *filled(slots.schema, payload)))
    known = numbered(ledger, listed, settings.count)
    events = known.rows if len(needed) == len(frames) else known.rows.where(F.col(STREAM).isin(*needed))
    rows = events.select(
        to_timestamp(F.col("place")).alias("start"),
        to_timestamp(known.clock).alias(_TIME),
        STREAM,
        *(column(name) for name in slots.schema.names),
    )
    keys = _key_slots(part, payloads, slots)
    if part.spans != frozenset():
        rows = _beside_ticks(part, known, events, keys, slots, _buckets(settings))
    elif keys:
        rows = rows.repartition(*keys)
    return rows, slots


def _key_slots(part: TurnFragment, payloads: Sequence[pa.Schema], slots: Slots) -> list[Column]:
    return [column(slots.places[0][name]) for name in encoded_names(payloads[0], part.keys[0])]


def _beside_ticks(
    part: TurnFragment, known: NumberedEvents, events: DataFrame, keys: Sequence[Column], slots: Slots, count: int
) -> DataFrame:
    """Events beside the ticks that their task needs: both go to the task of a bucket of keys."""
    bucket = F.pmod(F.hash(*(keys or [F.col("place")])), F.lit(count)).alias(_BUCKET)
    told = events.select("place", known.clock.alias("time"), STREAM, *map(column, slots.schema.names), bucket)
    spans = part.spans
    if spans is None:
        ticks = known.ticks.select("*", F.explode(F.sequence(F.lit(0), F.lit(count - 1))).alias(_BUCKET))
    else:
        ticks = known.first_ticks(events.withColumn(_BUCKET, bucket), spans, [_BUCKET])
    nobody = [F.lit(None).cast("int").alias(STREAM), *filled(slots.schema, {})]
    both = told.union(ticks.select("place", "time", *nobody, _BUCKET)).repartition(_BUCKET)
    times = [to_timestamp(F.col(name)).alias(new) for name, new in (("place", "start"), ("time", _TIME))]
    return both.select(*times, STREAM, *map(column, slots.schema.names))
