"""Joins of which one side is broadcast: each task of the other side is given all of it, and those events do not move.

A mapInArrow has one input. So the small side is one value, an array of its rows, from a scalar subquery: Spark computes
it once and sends it along with a stage. The first row of each task carries it; a worker lays it out as rows again.

What is small is known as it is for Spark's own joins: from a hint (`pyspark.sql.functions.broadcast`), or from Spark's
statistics and ``spark.sql.autoBroadcastJoinThreshold``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.engines.local.in_order import Spill
from gpu_ops.engines.spark.pushing import kind
from gpu_ops.engines.spark.sides import FragmentInput, Slots, each_side, packed
from gpu_ops.engines.spark.types import column
from gpu_ops.engines.spark.worker import Batches, Task, run_task
from gpu_ops.plan.nodes import Node, SparkSource

CARRIED = "__gpu_ops_carried"
"""The column that holds the rows of the broadcast side, in the first row of each task."""
_SIDES = ("left", "right")
_BROADCAST = "broadcast"
"""What Spark calls the hint."""
_NUMBER_IN_TASK = (1 << 33) - 1
"""The bits of `pyspark.sql.functions.monotonically_increasing_id` that number the rows of a task."""


@dataclass(frozen=True)
class Small:
    """A side that is broadcast.

    Attributes:
        at: Which side: 0 is the left one.
        why: What it is known from, in words.
    """

    at: int
    why: str

    @property
    def ways(self) -> list[str]:
        """How the join runs, in words."""
        small, large = _SIDES[self.at], _SIDES[1 - self.at]
        stay = f"the events of the {large} side stay in their tasks"
        ran = "one mapInArrow with the local engine, without a shuffle"
        return [f"Spark: the {small} side is broadcast, as {self.why}; {stay}: {ran}"]


def small_side(in_parts: Sequence[bool], sides: Sequence[FragmentInput]) -> Small | None:
    """The side of two that is broadcast; None if neither is. Nothing runs.

    Args:
        in_parts: For each side, whether it may be in parts, each beside all of the other one.
        sides: The left and the right side.
    """
    hints = [_hint(each.node) for each in sides]
    able = [at for at in (0, 1) if in_parts[1 - at] and hints[at] in (None, _BROADCAST)]
    asked = [at for at in able if hints[at] == _BROADCAST]
    conf: Any = sides[0].frame.sparkSession._jsparkSession.sessionState().conf()  # noqa: SLF001
    most = int(conf.autoBroadcastJoinThreshold())
    if len(asked) == 1:
        return Small(asked[0], "its hint says so")
    sizes = {at: _size(sides[at]) for at in asked or able if asked or most >= 0}
    found = min(sizes, key=lambda at: (sizes[at], -at), default=None)  # of two that are as small, the right one
    if found is None or not (asked or sizes[found] <= most):
        return None
    if asked:
        return Small(found, "the hints of both sides say so")
    return Small(found, f"it has {sizes[found]:,} bytes by Spark's statistics (spark.sql.autoBroadcastJoinThreshold)")


def _size(side: FragmentInput) -> float:
    """How many bytes the needed columns of a side have by Spark's statistics."""
    needed = side.frame.select("start", "end", *map(column, side.schema.names))
    try:
        return int(str(needed._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))  # noqa: SLF001
    except (PySparkException, Py4JJavaError):
        return float("inf")  # the answer will fail likewise


def _hint(side: Node) -> str | None:
    """The strategy that a hint asks for in a side's source; not below what has several inputs, as Spark reads hints."""
    while len(side.inputs) == 1:
        (side,) = side.inputs
    if not isinstance(side, SparkSource):
        return None
    plan: Any = side.frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    if "ResolvedHint" not in plan.toString():
        return None
    while kind(plan) != "ResolvedHint":
        if plan.children().size() != 1:
            return None
        plan = plan.children().apply(0)
    strategy = plan.hints().strategy()
    return None if strategy.isEmpty() else str(strategy.get().displayName())


def beside_all(inputs: Sequence[FragmentInput], ends: Sequence[bool], slots: Slots, at: int) -> DataFrame:
    """The rows of one side, as `packed` gives them; the first one of each task carries all rows of the other side.

    Args:
        inputs: The left and the right side.
        ends: As in `gpu_ops.engines.spark.sides.united`.
        slots: The slots of their columns.
        at: Which side is carried.
    """
    sides = [packed(each) for each in each_side(inputs, ends, slots)]
    rows = F.collect_list(F.struct(*map(column, sides[at].columns)))
    first = F.monotonically_increasing_id().bitwiseAND(F.lit(_NUMBER_IN_TASK)) == 0
    return sides[1 - at].withColumn(CARRIED, F.when(first, sides[at].agg(rows.alias(CARRIED)).scalar()))


def run_beside_all(
    task: Task,
    device: str,
    batches: Batches,
    memory: int | None = None,
    spilled: Callable[[Spill], None] | None = None,
) -> Batches:
    """`run_task` over what `beside_all` gave."""
    return run_task(task, device, _laid_out(batches), memory, spilled)


def _laid_out(batches: Batches) -> Batches:
    """The carried rows as batches of their own, before the rows that came beside them."""
    for batch in batches:
        carried = batch.column(CARRIED)
        if carried.null_count < len(carried):
            yield pa.RecordBatch.from_struct_array(carried.flatten())
        yield batch.drop_columns([CARRIED])
