"""Which slices of time a stream is cut into, and whether it is cut at all.

Slices are chosen from the times at which events start and end, so that about as many fall in each; an end that is open
is none. That is done in the query itself, by a sample that is the same whenever and wherever it is drawn: of each bin
of hashes the time whose hash is least. A time far off weighs no more than others, nor does one that many events share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce, singledispatch

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.core.time import MAX_TIME
from gpu_ops.engines.spark.checks import our_errors
from gpu_ops.engines.spark.type_codecs import carrier
from gpu_ops.engines.spark.types import column
from gpu_ops.errors import PlanError
from gpu_ops.plan.data_windows import DataWindow
from gpu_ops.plan.expressions import column_names
from gpu_ops.plan.fills import Fill
from gpu_ops.plan.joins import AsOf, Binary, Join
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.windows import WindowAggregate

_SLICES = "spark.gpu_ops.slices"
_STATISTICS = "spark.gpu_ops.statistics"
_PER_TASK, _MOST = 4, 1024
"""How many slices there are for each task of a shuffle, and at most: each event is compared with all of them."""
_HOT = 4
"""A key is hot if it has this many times a task's share of the events."""

_BINS = 4096
"""Times that are sampled, at most, to choose slices."""
BEFORE, AFTER = -(1 << 62), 1 << 62
"""Before and after all times, and all numbers of windows."""


# Whether, and into how many


@singledispatch
def uncut(node: Node) -> str | None:
    """Why a node is not cut in time; None where it can be.

    Examples:
        >>> import narwhals as nw
        >>> import pyarrow as pa
        >>> from gpu_ops.plan.nodes import Feed
        >>> side = Feed(pa.schema([("v", pa.int64()), ("tags", pa.list_(pa.string()))]), (), None)
        >>> uncut(Join(side, side, (), "anti", nw.col("v") > nw.col("v_right")))
        >>> uncut(Join(side, side, (), "anti", nw.col("tags").list.len() > nw.col("v_right")))
        "the condition reads 'tags', and by list<item: string> no event is told from others"
    """
    del node
    return "windows and joins are cut in time, and no others"


@uncut.register
def _(node: DataWindow) -> str | None:
    return node.halo if isinstance(node.halo, str) else None


@uncut.register
def _(node: Binary) -> str | None:
    del node
    return None


@uncut.register
def _(node: Fill) -> str | None:
    del node
    return "what stands in a window without events, the results before it say; there are not many"


@uncut.register
def _(node: WindowAggregate) -> str | None:
    grid = node.window.grid
    if asks_for_bounds(node) and (grid is None or grid.membership == "start"):
        return "an aggregate asks where its window begins and ends, and a slice does not know"
    below = node.input
    while len(below.inputs) == 1 and not below.gathers:
        (below,) = below.inputs
    # A data window alone hands rows on to the windows of their group in the same task.
    if isinstance(below, DataWindow) and (below.key or below.group) == node.group and uncut(below) is not None:
        return "the data window below it is not cut, and does this in the same task"
    return None


@uncut.register
def _(node: Join) -> str | None:
    kept = node.alone[0] or node.how == "semi", node.alone[1]
    for name in [] if node.condition is None else column_names(node.condition, node.paired.names):
        field = node.paired.field(name)
        listed = any(pa.types.is_list(each) for each in carrier(field.type).types)
        if listed and kept[name in node.renamed.values()]:
            return f"the condition reads {name!r}, and by {field.type} no event is told from others"
    return None


def asks_for_bounds(node: WindowAggregate) -> bool:
    """Whether an aggregate asks where its window begins and ends."""
    return any(each.options.get("bounds") for each in node.aggregates)


@dataclass(frozen=True)
class Wish:
    """What a session says of cutting.

    Attributes:
        count: Into how many slices at most; 1 for none.
        keyed: Whether windows and joins with a key are cut too.
        looks: Whether a job may look at the keys first.
        tasks: How many tasks a shuffle has.
    """

    count: int
    keyed: bool
    looks: bool
    tasks: int


def wish(session: SparkSession) -> Wish:
    """What a session says: ``spark.gpu_ops.slices`` and ``spark.gpu_ops.statistics``.

    Raises:
        PlanError: It is no number of slices.
    """
    said = str(session.conf.get(_SLICES, "auto"))
    tasks = int(str(session.conf.get("spark.sql.shuffle.partitions")))
    looks = str(session.conf.get(_STATISTICS, "false")).lower() == "true"
    if said == "auto":
        return Wish(min(_PER_TASK * tasks, _MOST), keyed=False, looks=looks, tasks=tasks)
    if not said.isdecimal() or not 1 <= int(said) <= _MOST:
        raise PlanError(
            f"{_SLICES} is {said!r}.", remedy=f'It is "auto", or a number of slices: 1 for none, at most {_MOST}.'
        )
    return Wish(int(said), keyed=int(said) > 1, looks=False, tasks=tasks)


def cut_because(node: Node, wished: Wish, frames: Callable[[], Sequence[DataFrame]]) -> str | None:
    """Why a node is cut in time; None where it is not.

    Args:
        node: A node.
        wished: What the session says.
        frames: The node's inputs, should a job have to look at them.
    """
    if wished.count == 1 or uncut(node) is not None:
        return None
    keys = [each for each in node.matched if each]
    if not keys:
        return "there is no key"
    if wished.keyed:
        return f"{_SLICES} says so"
    if not wished.looks:
        return None
    seen = (_few_or_hot(frame, names, wished.tasks) for frame, names in zip(frames(), keys, strict=True))
    return next((found for found in seen if found is not None), None)


def _few_or_hot(frame: DataFrame, keys: Sequence[str], tasks: int) -> str | None:
    """What keeps the keys of events from sharing the work among tasks, as a job finds; None if nothing does."""
    known = reduce(Column.__and__, (column(name).isNotNull() for name in keys))
    counted = frame.where(known).groupBy(*map(column, keys)).agg(F.count(F.lit(1)).alias("events"))
    with our_errors():
        found = counted.agg(F.count("events"), F.max("events"), F.sum("events")).collect()[0]
    number, most, events = (int(each or 0) for each in found)
    if number < tasks:
        return f"there are {number} keys for {tasks} tasks"
    if most * tasks > _HOT * events:
        return f"one of {number} keys has {100 * most // events} % of the events"
    return None


def cut_ways(node: Node, reason: str, count: int, keys: Sequence[str]) -> list[str]:
    """How a node is cut in time, in words.

    Args:
        node: The node.
        reason: Why it is.
        count: Into how many slices at most.
        keys: What decides beside the slice which task an event goes to.
    """
    by = ", ".join(("slice", *keys))
    passes = f"events in at most {count} slices, repartition by {by}, then mapInArrow with the local engine"
    lines = [f"Spark: cut in time, as {reason}: {passes}"]
    return [*lines, *_shown_besides(node)]


@singledispatch
def _shown_besides(node: Node) -> list[str]:
    """What slices are shown besides their own events, in words."""
    del node
    return []


@_shown_besides.register
def _(node: DataWindow) -> list[str]:
    return [str(node.halo)]


@_shown_besides.register
def _(node: AsOf) -> list[str]:
    del node
    return ["the last right event before each slice: from one more such pass, of right events alone"]


@_shown_besides.register
def _(node: Join) -> list[str]:
    if node.condition is None or node.how == "inner":
        return []
    return ["pieces of events: one more repartition, by event, and mapInArrow, which joins those that touch"]


# Which slices there are


def slices_of(sides: Sequence[DataFrame], count: int) -> DataFrame:
    """Slices, up to a given number, as rows ``begin``, ``finish`` (LONG), which cover all of time.

    Args:
        sides: Events with ``low`` and ``high`` (LONG).
        count: How many.
    """
    times = reduce(DataFrame.union, (each.select(F.explode(F.array("low", "high")).alias("time")) for each in sides))
    # The hash of one LONG is another one for each, so there is one least.
    number = F.xxhash64("time")
    bins = times.where(F.col("time") < MAX_TIME).groupBy(F.pmod(number, F.lit(_BINS)).alias("bin"))
    drawn = bins.agg(F.min_by("time", number).alias("time"))
    every = F.greatest(F.lit(1), F.ceil(F.size("times") / F.lit(count)).cast("int"))
    seams = drawn.agg(F.sort_array(F.collect_list("time")).alias("times")).select(
        F.filter("times", lambda _, at: (at > 0) & (at % every == 0)).alias("seams")
    )
    before, after = (F.array(F.lit(time).cast("long")) for time in (BEFORE, AFTER))
    ends = seams.select(F.concat(before, "seams").alias("begin"), F.concat("seams", after).alias("finish"))
    found = ends.select(F.explode(F.arrays_zip("begin", "finish")).alias("slice"))
    return found.select("slice.begin", "slice.finish")
