"""Which slices of time a stream is cut into, and whether it is cut at all.

Seams are times at which events start or end, such that each slice has about as many of these times; open ends do not
count. The query itself samples them, and the sample is the same whenever and wherever it is drawn: of each bin of
hashes, the time with the least hash. A far-off time weighs no more than others, nor does one that many events share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce, singledispatch

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.core.time import MAX_TIME
from gpu_ops.engines.spark.checks import our_errors
from gpu_ops.engines.spark.session import has_plugin
from gpu_ops.engines.spark.stages import gathering_below
from gpu_ops.engines.spark.type_codecs import codec
from gpu_ops.engines.spark.types import all_known, column
from gpu_ops.errors import PlanError
from gpu_ops.plan.data_windows import DataWindow
from gpu_ops.plan.expressions import column_names
from gpu_ops.plan.fills import Fill
from gpu_ops.plan.joins import AsOf, Binary, Join
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.windows import WindowAggregate

_SLICES = "spark.gpu_ops.slices"
_STATISTICS = "spark.gpu_ops.statistics"
_PER_TASK, _MOST = 4, 16384
"""How many slices there are for each task of a shuffle, and at most."""
_MOST_COMPARED = 1024
"""How many there are at most where they are not searched, and each event is compared with all."""
_HOT = 4
"""A key is hot if it has this many times a task's share of the events."""

_BINS = 4096
"""How many times are sampled; more where there are more slices than half of them."""
_SEARCHED = 128
"""With more slices than so many, an event is compared with stretches of neighbours first, then with those of one."""
AMONG = "among"
"""The column that says in which stretch of neighbours a slice is, where they are searched."""
BEFORE, AFTER = -(1 << 62), 1 << 62
"""Before and after all times, and before and after all numbers of windows."""


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
        "the condition reads 'tags', and events cannot be told apart by list<item: string>"
    """
    return "only windows and joins are cut in time"


@uncut.register
def _(node: DataWindow) -> str | None:
    return node.halo if isinstance(node.halo, str) else None


@uncut.register
def _(node: Binary) -> str | None:
    return None


@uncut.register
def _(node: AsOf) -> str | None:
    return None if node.direction == "backward" else "an as-of join that looks forward is not cut in time"


@uncut.register
def _(node: Fill) -> str | None:
    return "the values of windows without events come from results before them, which are few"


@uncut.register
def _(node: WindowAggregate) -> str | None:
    grid = node.window.grid
    if asks_for_bounds(node) and (grid is None or grid.membership == "start"):
        return "an aggregate asks where its window begins and ends, and a slice does not know"
    _, below = gathering_below(node.input)
    # A data window alone hands rows on to the windows of their group in the same task.
    if isinstance(below, DataWindow) and (below.key or below.group) == node.group and uncut(below) is not None:
        return "the data window below it is not cut, and does this in the same task"
    return None


@uncut.register
def _(node: Join) -> str | None:
    kept = node.alone[0] or node.how == "semi", node.alone[1]
    for name in [] if node.condition is None else column_names(node.condition, node.paired.names):
        field = node.paired.field(name)
        listed = any(pa.types.is_list(each) for each in codec(field.type).types)
        if listed and kept[name in node.renamed.values()]:
            return f"the condition reads {name!r}, and events cannot be told apart by {field.type}"
    return None


def asks_for_bounds(node: WindowAggregate) -> bool:
    """Whether an aggregate asks where its window begins and ends."""
    return any(each.options.get("bounds") for each in node.aggregates)


@dataclass(frozen=True)
class SliceSettings:
    """How a session wants windows and joins cut.

    Attributes:
        count: Into how many slices at most; 1 if not at all.
        keyed: Whether windows and joins with a key are cut too.
        looks: Whether a job may look at the keys first.
        tasks: How many tasks a shuffle has.
        hot: Whether of windows and joins with a key those keys are cut that are hot.
    """

    count: int
    keyed: bool
    looks: bool
    tasks: int
    hot: bool = False


def slice_settings(session: SparkSession) -> SliceSettings:
    """What a session says: ``spark.gpu_ops.slices`` and ``spark.gpu_ops.statistics``.

    Raises:
        PlanError: The setting is no number of slices.
    """
    said = str(session.conf.get(_SLICES, "auto"))
    most = _MOST if _searches(session) else _MOST_COMPARED
    tasks = int(str(session.conf.get("spark.sql.shuffle.partitions")))
    looks = str(session.conf.get(_STATISTICS, "false")).lower() == "true"
    if said in ("auto", "hot"):
        hot = said == "hot"
        return SliceSettings(min(_PER_TASK * tasks, most), keyed=False, looks=looks and not hot, tasks=tasks, hot=hot)
    if not said.isdecimal() or not 1 <= int(said) <= most:
        raise PlanError(
            f"{_SLICES} is {said!r}.", remedy=f'Say "auto", "hot", or a number of slices: 1 for none, at most {most}.'
        )
    return SliceSettings(int(said), keyed=int(said) > 1, looks=False, tasks=tasks)


def _searches(session: SparkSession) -> bool:
    """Whether many slices are searched: the RAPIDS planner fails at a broadcast by keys that is used twice."""
    return not has_plugin(session)


def cut_because(node: Node, settings: SliceSettings, frames: Callable[[], Sequence[DataFrame]]) -> str | None:
    """Why a node is cut in time; None where it is not.

    Args:
        node: A node.
        settings: What the session says.
        frames: The node's inputs, should a job have to look at them.
    """
    if settings.count == 1 or uncut(node) is not None:
        return None
    keys = [each for each in node.matched if each]
    if not keys:
        return "there is no key"
    if settings.keyed:
        return f"{_SLICES} says so"
    if not settings.looks:
        return None
    seen = (_few_or_hot(frame, names, settings.tasks) for frame, names in zip(frames(), keys, strict=True))
    return next((found for found in seen if found is not None), None)


def _few_or_hot(frame: DataFrame, keys: Sequence[str], tasks: int) -> str | None:
    """Why the keys of events would not share the work among tasks, as a job finds; None if they would."""
    counted = frame.where(all_known(keys)).groupBy(*map(column, keys)).agg(F.count(F.lit(1)).alias("events"))
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
    return [*lines, *shown_besides(node)]


@singledispatch
def shown_besides(node: Node) -> list[str]:
    """What slices are shown besides their own events, in words.

    Args:
        node: A node that is cut in time.
    """
    return []


@shown_besides.register
def _(node: DataWindow) -> list[str]:
    return [str(node.halo)]


@shown_besides.register
def _(node: AsOf) -> list[str]:
    return ["the last right event before each slice: from one more such pass, of right events alone"]


@shown_besides.register
def _(node: Join) -> list[str]:
    if node.condition is None or node.how == "inner":
        return []
    return ["pieces of events: one more repartition, by event, and mapInArrow, which joins those that touch"]


# Which slices there are


def slices_of(sides: Sequence[DataFrame], count: int, times_of: Sequence[Column | str] = ("low", "high")) -> DataFrame:
    """Slices that cover all of time, as rows ``begin``, ``finish`` (LONG), and `AMONG` if they are many.

    Args:
        sides: Events.
        count: How many at most.
        times_of: The times of an event that may be seams (LONG).
    """
    seam = F.explode(F.array(*times_of))
    times = reduce(DataFrame.union, (each.select(seam.alias("time")) for each in sides))
    # Each LONG has another hash, so one hash is the least.
    number = F.xxhash64("time")
    bins = times.where(F.col("time") < MAX_TIME).groupBy(F.pmod(number, F.lit(max(_BINS, 2 * count))).alias("bin"))
    drawn = in_one_task(bins.agg(F.min_by("time", number).alias("time")))
    every = F.greatest(F.lit(1), F.ceil(F.size("times") / F.lit(count)).cast("int"))
    seams = F.filter("times", lambda _, at: (at > 0) & (at % every == 0))
    before, after = (F.array(F.lit(time).cast("long")) for time in (BEFORE, AFTER))
    ends = F.arrays_zip(F.concat(before, seams).alias("begin"), F.concat(seams, after).alias("finish"))
    listed = drawn.agg(F.sort_array(F.collect_list("time")).alias("times"))
    if count <= _SEARCHED or not _searches(sides[0].sparkSession):
        return listed.select(F.explode(ends).alias("slice")).select("slice.begin", "slice.finish")
    each = listed.select(F.posexplode(ends).alias("at", "slice"))
    stretch = F.floor(F.col("at") / math.isqrt(count)).cast("int").alias(AMONG)
    return each.select("slice.begin", "slice.finish", stretch)


def in_one_task(few: DataFrame, keys: Sequence[str] = ()) -> DataFrame:
    """Rows in one task if there is no key: what follows needs all of them, and they are few, so nothing is shuffled."""
    return few if keys else few.coalesce(1)
