"""Hot keys alone cut in time, where that pays: a job looks at a sample of keys first, while the plan is made.

A key is *hot* if it has more than twice the events that a core would have if all had as many, or more than a task holds
in memory. If there is none, nothing is cut, and the plan is what it is where nobody asks. If there is one, the query
finds the hot keys in a sample of its own events, and where to cut each. Their events are listed in stretches of time
``[begin, finish)`` between *seams*, each with the stretch as one more column of its key; events of all other keys stay
as they are, with null there. A seam is a time at which an event of that very key starts. So a snapshot begins and ends
there anyway, nothing needs to be told about other stretches, and an event cut at its seams gives what the whole one
gives. Windows of a regular grid are numbers first (`gpu_ops.engines.spark.windows`), and each is in one stretch alone.

The sample is of hashes of key and start: it is the same whenever and wherever it is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce, singledispatch

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.engines.spark.checks import our_errors
from gpu_ops.engines.spark.sides import FragmentInput
from gpu_ops.engines.spark.slice_policy import AFTER, BEFORE, asks_for_bounds
from gpu_ops.engines.spark.slicing import SLICE, Cut, SliceRows, alive, both_sides, pairs_of
from gpu_ops.engines.spark.stages import gathering_below
from gpu_ops.engines.spark.type_codecs import encoded_names, encoded_schema
from gpu_ops.engines.spark.types import all_known, column
from gpu_ops.engines.spark.windows import by_number, numbers_of
from gpu_ops.engines.spark.worker import Task
from gpu_ops.plan.joins import Join
from gpu_ops.plan.nodes import Feed, Node
from gpu_ops.plan.windows import WindowAggregate

_SAMPLED = 64
"""One of so many pairs of a key and a start is in the sample."""
_BINS = 512
"""How many starts of a key are kept at most, of which seams are chosen."""
_STRETCHES = 4
"""How many stretches a hot key has for each core's share of the events that it has: an event is in each in which it
lives, so fewer cost less."""
_MOST = 256
"""Stretches of a key at most."""
_TRIED = 1 << 12
"""So many numbers are tried for one that brings a key to the first task."""
_PAYS = 2
"""How many cores' shares of the events a key may have and stay whole: tasks of other keys keep the other cores busy."""


@singledispatch
def cuts_hot(node: Node) -> bool:
    """Whether hot keys of a node can be cut in time where others stay whole.

    Windows above windows share their task, and so stay whole: to cut them would move all results once more.
    """
    return False


@cuts_hot.register
def _(node: WindowAggregate) -> bool:
    grid = node.window.grid
    whole = asks_for_bounds(node) or gathering_below(node.input)[1].gathers
    return not whole and (grid is None or grid.regular is not None)


@cuts_hot.register
def _(node: Join) -> bool:
    return node.how == "inner"


@dataclass(frozen=True)
class Hot:
    """What a look at the keys of a node's events found.

    Attributes:
        share: The part of all events from which on a key is cut; None where no key has it.
        stretch: The part of all events that a stretch of such a key has.
        said: What was found, in words.
        threads: How many threads a task may have if nothing is cut: more than its own where a key has more than a
            core's share of the events, as other cores are idle before its task ends.
        first: A number that is one more column of the key then, which has the key with most events in the first task:
            Spark begins with that, and the others run beside it. None where it makes no difference.
    """

    share: float | None
    stretch: float
    said: str
    threads: int = 1
    first: int | None = None


def look(sides: Sequence[tuple[DataFrame, Sequence[str]]], widths: Sequence[int], tasks: int, memory: int) -> Hot:
    """Whether it pays to cut a key in time: a job counts the events of each key in a sample.

    Args:
        sides: For each input its events, with ``start``, and the columns of its key.
        widths: For each input how many bytes an event has, about.
        tasks: How many tasks a shuffle has.
        memory: How many bytes of events a task holds in memory.
    """
    session = sides[0][0].sparkSession
    cores = min(tasks, session.sparkContext.defaultParallelism)
    names = [f"key_{at}" for at in range(len(sides[0][1]))]
    samples = []
    for (frame, keys), width in zip(sides, widths, strict=True):
        by = [column(name) for name in keys]
        named = [each.alias(name) for each, name in zip(by, names, strict=True)]
        drawn = frame.where(F.pmod(F.xxhash64(*by, "start"), F.lit(_SAMPLED)) == 0)
        samples.append(drawn.select(*named, F.lit(width).cast("long").alias("bytes")))
    counted = (
        reduce(DataFrame.union, samples)
        .groupBy(*names)
        .agg(F.count("bytes").alias("events"), F.sum("bytes").alias("bytes"))
    )
    # Null is never hot: in a join it meets nothing.
    those = F.when(all_known(names), F.col("events"))
    asked = F.max(those), F.max_by(F.hash(*names), those), F.sum("events"), F.sum("bytes")
    with our_errors():
        found, hashed, events, size = counted.agg(*asked).collect()[0]
    if not found:
        return Hot(None, 1.0, f"a sample of one in {_SAMPLED} starts has no key")
    part, size = found / events, size * _SAMPLED
    share = min(_PAYS / cores, memory / size)
    most_said = f"the key with most has {part:.0%} of some {events * _SAMPLED:,} events, {_bytes(part * size)}"
    said = f"{most_said}; a task holds {_bytes(memory)}, and {_PAYS} of {cores} cores' shares are {_PAYS / cores:.0%}"
    stretch = min(1 / (cores * _STRETCHES), memory / (2 * size))
    if part > share:
        return Hot(share, stretch, said)
    if part * cores <= 1:
        return Hot(None, stretch, said)
    return Hot(None, stretch, said, _cores_of_an_executor(session, cores), first_of(hashed, tasks))


def first_of(hashed: int, tasks: int) -> int:
    """A number that brings a key to the first of the tasks of a shuffle, or near it, as one more column of the key.

    Spark's partition of a row is the remainder of a hash of its key (Murmur3, 32 bits), into which each column is
    mixed behind those before it.

    Args:
        hashed: The hash of the key, as `pyspark.sql.functions.hash` gives it.
        tasks: How many tasks there are.
    """
    numbers = np.arange(_TRIED, dtype=np.uint32)
    mixed = _rolled(numbers * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    made = _rolled(mixed ^ np.uint32(hashed & 0xFFFFFFFF), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    made ^= np.uint32(4)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        made = (made ^ (made >> np.uint32(shift))) * np.uint32(factor)
    return int((made.view(np.int32) % tasks).argmin())


def _rolled(bits: npt.NDArray[np.uint32], by: int) -> npt.NDArray[np.uint32]:
    return (bits << np.uint32(by)) | (bits >> np.uint32(32 - by))


def _cores_of_an_executor(session: SparkSession, all_of_them: int) -> int:
    """How many cores an executor has; those of all executors where nobody says it, of which a worker uses its own."""
    return int(session.sparkContext.getConf().get("spark.executor.cores") or all_of_them)


def _bytes(size: float) -> str:
    return f"{size / (1 << 20):,.1f} MiB"


def width_of(payload: pa.Schema) -> int:
    """How many bytes an event has, about: its times, and each column as Spark estimates it."""
    return 16 + sum(_width(field.type) for field in encoded_schema(payload))


def _width(dtype: pa.DataType) -> int:
    try:
        return max(int(dtype.bit_width) // 8, 1)
    except ValueError:  # texts and lists have no fixed width
        return 20


def cut_hot(first: Node, inputs: Sequence[FragmentInput], answer: pa.Schema, hot: Hot) -> Cut:
    """One pass of a node for which `cuts_hot` holds: its hot keys cut in time, all others whole.

    Args:
        first: The node, over plain columns.
        inputs: Its events.
        answer: The wanted columns of its results.
        hot: What the look at its keys has found.
    """
    if isinstance(first, Join):
        both = both_sides(first, inputs[0], inputs[1], answer)
        return pairs_of(both, in_stretches(both.rows, both.keys, hot))
    assert isinstance(first, WindowAggregate)  # noqa: S101  (as `cuts_hot` says)
    (given,) = inputs
    keys = encoded_names(given.schema, first.group)
    grid = first.window.grid
    if grid is not None and grid.regular is not None:
        shown = in_stretches(numbers_of(grid, grid.regular, given), keys, hot)
        return by_number(first, grid.regular, given, answer, shown)
    listing = SliceRows(given.schema, ())
    shown = in_stretches(given.ticks, keys, hot)
    rows = listing.rows(shown, F.greatest("low", "begin"), F.least("high", "finish"), {})
    feed = Feed(listing.schema, (SLICE, *first.group), None)
    task = Task(replace(first, input=feed), (listing.schema,), answer)
    return Cut(rows, task, listing.partition(first.group))


def in_stretches(events: DataFrame, keys: Sequence[str], hot: Hot) -> DataFrame:
    """Events of hot keys beside each stretch in which they live, by ``begin`` and ``finish``; others once, with nulls.

    Args:
        events: Their ``low`` and ``high`` (LONG), their keys, and more.
        keys: The columns of the keys; an event whose key is null is never listed twice.
        hot: What the look at the keys has found.
    """
    named = {name: f"__gpu_ops_hot_{at}" for at, name in enumerate(keys)}
    stretches = _stretches(events, keys, hot).withColumnsRenamed(named)
    same = reduce(Column.__and__, (column(name) == column(own) for name, own in named.items()))
    return events.join(F.broadcast(stretches), same & alive(), "left").drop(*named.values())


def _stretches(events: DataFrame, keys: Sequence[str], hot: Hot) -> DataFrame:
    """The stretches of hot keys: the columns of the keys, ``begin`` and ``finish``."""
    by = [column(name) for name in keys]
    number = F.xxhash64(*by, "low")
    sample = events.where(F.pmod(number, F.lit(_SAMPLED)) == 0)
    binned = sample.groupBy(*by, F.pmod(F.shiftright(number, 8), F.lit(_BINS)).alias("bin"))
    starts = binned.agg(F.count(F.lit(1)).alias("events"), F.min_by("low", number).alias("low"))
    sums = F.sum("events").alias("events"), F.sort_array(F.collect_list("low")).alias("starts")
    known = starts.groupBy(*by).agg(*sums)
    # The sample's own number of events: by the same shuffle, as it reads the same columns of it.
    sampled = starts.agg(F.sum(F.when(F.col("low").isNotNull(), F.col("events")))).scalar()
    part = F.col("events") / F.greatest(sampled, F.lit(1))
    number = F.least(F.ceil(part / F.lit(hot.stretch)), F.lit(_MOST), F.size("starts")).cast("int")
    counted = known.where(part > F.lit(hot.share)).withColumn("number", number).where("number > 1")
    every = F.transform(
        F.sequence(F.lit(1), F.col("number") - 1),
        lambda at: F.element_at("starts", (at * F.size("starts") / F.col("number")).cast("int") + 1),
    )
    seams = F.array_distinct(every)
    before, after = (F.array(F.lit(time).cast("long")) for time in (BEFORE, AFTER))
    ends = F.arrays_zip(F.concat(before, seams).alias("begin"), F.concat(seams, after).alias("finish"))
    return counted.select(*by, F.explode(ends).alias("stretch")).select(*by, "stretch.begin", "stretch.finish")


def hot_ways(keys: Sequence[str], hot: Hot) -> list[str]:
    """How a node whose hot keys are cut runs, in words."""
    moved = f"repartition by stretch, {', '.join(keys)}, then mapInArrow with the local engine"
    return [
        f"Spark: hot keys are cut in time, as spark.gpu_ops.slices says so: {hot.said}",
        f"their stretches are found in a sample of one in {_SAMPLED} starts; {moved}",
    ]


def whole_ways(hot: Hot) -> list[str]:
    """Why hot keys of a node are not cut, although the session asks for it, in words."""
    shared = f"; the first task has that key, and a task has {hot.threads} threads, as other cores are idle in the end"
    return [f"no key is cut in time, as that would not pay: {hot.said}{shared if hot.threads > 1 else ''}"]
