"""Temporal joins as Spark's own joins, on the key and on buckets of time, all of it planned for the GPU.

Each is one inner join of intervals. The times at which an event has no partner are those at which it meets a *gap*
between the lifetimes of the other side; for the times at which it has one it meets a *cover*, their union. Gaps and
covers are intervals with a key, found by a running maximum of ends. So no event needs a number, which Spark might
compute differently a second time, and no event is put together from pieces.

Intervals meet in buckets, at levels. A bucket of level ``j`` is ``16 ** j`` ticks wide. An interval's own level is the
finest at which it is at most two buckets long, so it touches at most three. Two intervals meet at the coarser of their
levels: each interval is listed at its own level, and at the coarser levels that the other side has, where it touches at
most two buckets. A pair is kept only in the first bucket that both touch. So even a long interval is in few rows.

A level has two slots, since its finer intervals would otherwise meet each other there in vain. In the even slot left
intervals of the level meet right intervals of it and of finer levels. In the odd slot finer left intervals meet right
intervals of the level.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any, Literal

import narwhals as nw
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.engines.spark.checks import fitting
from gpu_ops.engines.spark.expressions import computed_otherwise, spelled
from gpu_ops.engines.spark.types import UNUNITED, all_known, all_of, column, held, plain_type, to_ticks
from gpu_ops.plan.expressions import function_names, guards
from gpu_ops.plan.joins import Join

SideName = Literal["left", "right"]
Strategy = Literal["kernel", "sql"]

_BITS = 4
"""A bucket is 2 ** _BITS times as wide as one of the level below."""
_LEVELS = 15
"""As many levels as hold any lifetime: all of time is five buckets of the last level."""
_SPREAD = 64
"""How many tasks share the events without a key, which meet nothing."""

_UNCARRIED = {"duration", "local time"}
"""What the RAPIDS plugin does not list in buckets; and below, what it does not join on."""
_UNJOINED = {*UNUNITED, "null"}


# Whether, and why


def supported(node: Join) -> str | None:
    """Why a join cannot be made of Spark's own joins with the same answer; None where it can.

    Args:
        node: The join.

    Examples:
        >>> from gpu_ops.plan.nodes import Feed
        >>> side = Feed(pa.schema([("k", pa.int64()), ("v", pa.float64())]), (), None)
        >>> supported(Join(side, side, (("k", "k"),), "full"))
        >>> supported(Join(side, side, (), "inner", nw.col("v").floor() > 1))
        "Spark's floor is a LONG, 0 for NaN"
    """
    if node.condition is None:
        return None
    if node.how != "inner":
        # The matches of an event would have to be found again by its identity. A number may change when Spark computes
        # a partition again, and not every payload can be compared.
        return f"the partners of a condition are those of each event alone, and a {node.how} join asks for its rest"
    return computed_otherwise([node.condition], node.paired) or None


def unplanned(node: Join, read: Collection[str] | None = None) -> str | None:
    """Why the RAPIDS plugin would not plan all of Spark's own join for the GPU; None if it would.

    Args:
        node: The join.
        read: The columns that are read of its answer, if not all: Spark drops the others.

    Examples:
        >>> from gpu_ops.plan.nodes import Feed
        >>> side = Feed(pa.schema([("k", pa.binary()), ("v", pa.int64())]), (), None)
        >>> unplanned(Join(side, side, (("k", "k"),), "inner"))
        "key 'k': the RAPIDS plugin joins on no binary"
        >>> unplanned(Join(side, side, (("v", "v"),), "inner"))
        >>> unplanned(Join(side, side, (("v", "v"),), "left"))
        "column 'k': the RAPIDS plugin takes no binary in a union"
    """
    for name, _ in node.on:
        dtype = plain_type(node.left.schema.field(name).type)
        if pa.types.is_nested(dtype) or held(dtype, _UNJOINED) is not None:
            return f"key {name!r}: the RAPIDS plugin joins on no {dtype}"
    names = node.needs(tuple(node.schema.names if read is None else read))
    sides = [[each.schema.field(name) for name in wanted] for each, wanted in zip(node.inputs, names, strict=True)]
    for field in chain(*sides):
        if held(field.type, _UNCARRIED) is not None:
            return f"column {field.name!r}: the RAPIDS plugin lists no {field.type} in buckets"
    # If the events of a side are kept, the gaps that they meet are united with the other side's events.
    gaps = zip(reversed(sides), node.alone, strict=True) if node.pairs else ()
    for field in chain.from_iterable(fields for fields, kept in gaps if kept):
        if held(field.type, UNUNITED) is not None:
            return f"column {field.name!r}: the RAPIDS plugin takes no {field.type} in a union"
    if node.condition is not None and "__truediv__" in function_names(node.condition):
        return "the RAPIDS plugin has no rule for the division that Narwhals asks Spark for"
    return None


def choose(node: Join, *, plugin: bool, read: Collection[str] | None = None) -> tuple[Strategy, str]:
    """Which strategy a join takes by default, and why.

    On CPUs it is the kernel: one sort and two binary searches an event, while on buckets an event is hashed in two to
    five rows. Two million events a side of ten keys took 11.3 CPU seconds by a kernel and 16.1 on buckets of one width
    that fitted them; 200,000 take 2 to 3 by ours and 7 to 10 on levels of buckets.

    With the RAPIDS plugin it is Spark's own join, if all of it is planned: events stay on the GPU, while for the kernel
    they pass to a Python worker and back, encoded if they have decimals, structs or maps. That is an argument and no
    measurement. If a part of the join would not be planned, it is the kernel again, which asks less of Spark.

    Args:
        node: The join.
        plugin: Whether the RAPIDS plugin is on.
        read: The columns that are read of its answer, if not all.

    Examples:
        >>> from gpu_ops.plan.nodes import Feed
        >>> side = Feed(pa.schema([("k", pa.int64()), ("v", pa.int64())]), (), None)
        >>> choose(Join(side, side, (("k", "k"),), "left"), plugin=True)
        ('sql', 'all of it is planned for the GPU, and no event passes through Python')
        >>> choose(Join(side, side, (("k", "k"),), "left"), plugin=False)
        ('kernel', 'it takes a fraction of the CPU time of a join on buckets')
    """
    reason = supported(node)
    if reason is not None:
        return "kernel", f"not as a join of Spark's: {reason}"
    reason = unplanned(node, read) if plugin else None
    if reason is not None:
        return "kernel", f"a join of Spark's would not be planned for the GPU: {reason}"
    if plugin:
        return "sql", "all of it is planned for the GPU, and no event passes through Python"
    return "kernel", "it takes a fraction of the CPU time of a join on buckets"


# The join


def bucketed(node: Join, left: DataFrame, right: DataFrame, bucket: int | None = None) -> DataFrame:
    """A join by native operations of Spark. Nothing runs.

    Spark may evaluate a condition before it checks whether lifetimes overlap, so on pairs that the local engine never
    sees: a condition that fails on some values may stop the job although these never meet. Each side is computed twice,
    first for its lifetimes alone: if it differs the second time, pairs may be lost.

    Args:
        node: A join that is `supported`.
        left: Its left events: ``start``, ``end`` (TIMESTAMP) and the payload.
        right: Its right events.
        bucket: How wide the narrowest buckets are, in ticks; the nearest power of 16 is taken. By default Spark finds
            it in the query itself, from the median lifetimes of both sides.

    Returns:
        ``start``, ``end`` and the node's columns.
    """
    lefts, rights = listings(node, left, right, bucket)
    nulls = _nulls(node)
    equal = [
        column(mine).eqNullSafe(column(other)) if nulls else column(mine) == column(other)
        for mine, other in zip(_keys(node, "left"), _keys(node, "right"), strict=True)
    ]
    places = [
        column("left_slot") == column("right_slot"),
        column("left_bucket") == column("right_bucket"),
        column("left_bucket") == F.greatest(column("left_first"), column("right_first")),
    ]
    together = [column("left_start") < column("right_end"), column("right_start") < column("left_end")]
    if node.how == "full":
        together.append(~(column("left_gap") & column("right_gap")))
    met = lefts.join(rights, all_of([*equal, *places, *together]), "inner")
    start = F.greatest(column("left_start"), column("right_start")).alias("start")
    end = F.least(column("left_end"), column("right_end")).alias("end")
    made = met.select(start, end, *_payload(node))
    if node.condition is None:
        return made
    lazy: Any = nw.from_native(fitting(made, guards([node.condition], node.paired, [node.condition]).values()))
    held: DataFrame = lazy.filter(spelled(node.condition, node.paired)).to_native()
    return held


def listings(node: Join, left: DataFrame, right: DataFrame, bucket: int | None = None) -> tuple[DataFrame, DataFrame]:
    """The intervals of both sides, with gaps and covers, as a row for each bucket in which they are listed."""
    lefts, rights = _whole(node, "left", left), _whole(node, "right", right)
    keeps = node.alone
    if node.how == "semi":
        meant = lefts, _covers(rights, _keys(node, "right"))
    elif node.how == "anti":
        meant = lefts, _gaps(node, "right", rights, lefts)
    else:
        meant = (
            _beside_gaps(lefts, _gaps(node, "left", lefts, rights), "left") if keeps[1] else lefts,
            _beside_gaps(rights, _gaps(node, "right", rights, lefts), "right") if keeps[0] else rights,
        )
    payloads = meant[0].columns, meant[1].columns
    levelled = _levelled(meant[0], "left"), _levelled(meant[1], "right")
    found = F.broadcast(_statistics(*levelled, bucket))
    return _listed(levelled[0], payloads[0], found, "left"), _listed(levelled[1], payloads[1], found, "right")


def _payload(node: Join) -> list[Column]:
    """The columns of the answer, of pairs."""
    keys = dict(zip(_keys(node, "left"), _keys(node, "right"), strict=True))
    made = []
    for at, field in enumerate(node.left.schema):
        mine = column(f"left_{at}")
        if node.alone[1] and f"left_{at}" in keys:
            # The right event's own key: it may be another zero or NaN than the left one that equals it.
            mine = F.when(column("left_gap"), column(keys[f"left_{at}"])).otherwise(mine)
        made.append(mine.alias(field.name))
    if node.pairs:
        places = {name: at for at, name in enumerate(node.right.schema.names)}
        made += [column(f"right_{places[name]}").alias(new) for name, new in node.renamed.items()]
    return made


# What meets


def _keys(node: Join, side: SideName) -> list[str]:
    """The columns of a side that are equal where its events meet those of the other side."""
    at = ("left", "right").index(side)
    names = node.inputs[at].schema.names
    keys = [f"{side}_{names.index(pair[at])}" for pair in node.on]
    return [*keys, f"{side}_lone"] if _nulls(node) else keys


def _nulls(node: Join) -> bool:
    """Whether events without a key are kept."""
    return any(
        kept and side.schema.field(pair[at]).nullable
        for at, (side, kept) in enumerate(zip(node.inputs, node.alone, strict=True))
        for pair in node.on
    )


def _whole(node: Join, side: SideName, frame: DataFrame) -> DataFrame:
    """The events of a side that can be in the answer, under names that the other side does not have."""
    at = ("left", "right").index(side)
    schema, nulls = node.inputs[at].schema, _nulls(node)
    payload = [column(name).alias(f"{side}_{number}") for number, name in enumerate(schema.names)]
    columns = [column("start").alias(f"{side}_start"), column("end").alias(f"{side}_end"), *payload]
    known, lone = all_known(pair[at] for pair in node.on), F.lit(0).cast("long")
    if nulls and node.alone[at]:
        # Events without a key meet only the gap around them. They get several keys, so that no task gets all of them.
        number = F.pmod(F.xxhash64(column("start"), column("end")), F.lit(_SPREAD).cast("long"))
        lone = F.when(known, lone).otherwise(number + 1 if side == "left" else -1 - number)
    elif node.on:
        frame = frame.where(known)
    return frame.select(*columns, *([lone.alias(f"{side}_lone")] if nulls else []))


def _gaps(node: Join, side: SideName, events: DataFrame, others: DataFrame) -> DataFrame:
    """For each key of the other side the times at which no event of this side is alive, as long as that has events."""
    other: SideName = "right" if side == "left" else "left"
    keys, theirs = _keys(node, side), _keys(node, other)
    start, end = f"{side}_start", f"{side}_end"
    asked = others.groupBy(*theirs).agg(F.min(f"{other}_start").alias("first"), F.max(f"{other}_end").alias("last"))
    # An event that is never alive stands before all events of the other side, and one after them.
    named = (column(their).alias(mine) for mine, their in zip(keys, theirs, strict=True))
    bounds = asked.select(*named, F.explode(F.array("first", "last")).alias(start))
    alive = events.where(column(f"{side}_lone") == 0) if _nulls(node) else events
    names = [*map(column, keys), column(start)]
    both = alive.select(*names, column(end)).union(bounds.select(*names, column(start).alias(end)))
    before = both.withColumn("before", _until(keys, start, end)).where(column(start) > column("before"))
    return before.select(*map(column, keys), column("before").alias(start), column(start).alias(end))


def _covers(events: DataFrame, keys: Sequence[str]) -> DataFrame:
    """For each key the times at which any right event is alive: intervals that do not touch."""
    start, end = "right_start", "right_end"
    by_key = Window.partitionBy(*keys)
    names = [*map(column, keys), column(start)]
    known = events.select(*names, _until(keys, start, end).alias("before"), F.max(end).over(by_key).alias("last"))
    first = known.where(column("before").isNull() | (column(start) > column("before")))
    # An interval ends at the last end before the next one starts.
    until = F.coalesce(F.lead("before").over(by_key.orderBy(start)), column("last"))
    return first.select(*names, until.alias(end))


def _until(keys: Sequence[str], start: str, end: str) -> Column:
    """The last end of the events before this one; null for the first."""
    earlier = Window.partitionBy(*keys).orderBy(start).rowsBetween(Window.unboundedPreceding, -1)
    return F.max(end).over(earlier)


def _beside_gaps(events: DataFrame, gaps: DataFrame, side: SideName) -> DataFrame:
    """Events and gaps, with a mark. Gaps have the key and nulls."""
    mark = f"{side}_gap"
    marked = gaps.withColumn(mark, F.lit(True))
    return events.withColumn(mark, F.lit(False)).unionByName(marked, allowMissingColumns=True)


# Levels and buckets


def _ticks(side: SideName) -> tuple[Column, Column]:
    return to_ticks(column(f"{side}_start")), to_ticks(column(f"{side}_end"))


def _length(side: SideName) -> Column:
    start, end = _ticks(side)
    return (end - start).alias("length")


_OWN = " + ".join(f"cast(length > {2 << _BITS * level} as int)" for level in range(_LEVELS - 1))
"""The finest level at which ``length`` is at most two buckets; in integers, so that it is always the same."""

_FINEST, _LEFT_LEAST, _LEFT_LEVELS, _RIGHT_LEVELS = (f"facts[{place}]" for place in range(4))
"""The finest level that is distinguished, the left side's finest, and the levels of each side, a bit for each."""


def _levelled(events: DataFrame, side: SideName) -> DataFrame:
    """The intervals of a side with their own ``level``: before facts are joined to them, when the plan is yet small."""
    return events.select("*", _length(side), F.expr(_OWN).alias("level"))


def _statistics(lefts: DataFrame, rights: DataFrame, bucket: int | None) -> DataFrame:
    """One row with one column, ``facts``, which decides where intervals, with their levels, are listed.

    Levels below that of the other side's shortest interval are not distinguished, since nothing meets there. Levels
    below the median of both sides would gain little: at least half of the intervals of each are then so long that they
    meet a good part of what shares their bucket.

    With several columns Spark would prune others on each side, and not see that both sides read the same.
    """
    sides: tuple[tuple[SideName, DataFrame], ...] = (("left", lefts), ("right", rights))
    rows = [
        frame.agg(
            F.min("level").alias(f"{side}_least"),
            F.expr("percentile(level, 0.5)").cast("int").alias(f"{side}_middle"),
            F.expr("bit_or(shiftleft(1, level))").alias(f"{side}_levels"),
        )
        for side, frame in sides
    ]
    finest = "greatest(left_least, right_least, least(left_middle, right_middle))"
    if bucket is not None:
        finest = str(min(_LEVELS - 1, round((max(bucket, 1).bit_length() - 1) / _BITS)))
    facts = F.expr(f"array({finest}, left_least, left_levels, right_levels)")
    return rows[0].crossJoin(F.broadcast(rows[1])).select(facts.alias("facts"))


_LEVEL = f"greatest(level, {_FINEST})"
"""The level at which an interval is listed first."""


def _coarser(levels: str) -> str:
    return f"filter(sequence(0, {_LEVELS - 1}), each -> each > {_LEVEL} and shiftright({levels}, each) & 1 = 1)"


_SLOTS: dict[SideName, str] = {
    "left": f"concat(array({_LEVEL} * 2), transform({_coarser(_RIGHT_LEVELS)}, each -> each * 2 + 1))",
    # Left intervals of finer levels, if there are any, are in the odd slot.
    "right": f"concat(array({_LEVEL} * 2), transform({_coarser(_LEFT_LEVELS)}, each -> each * 2),"
    f" filter(array({_LEVEL} * 2 + 1), each -> greatest({_LEFT_LEAST}, {_FINEST}) < {_LEVEL}))",
}
"""The even slot of a level is 2 * level, and the odd slot follows."""


def _listed(levelled: DataFrame, payload: Sequence[str], found: DataFrame, side: SideName) -> DataFrame:
    """A row for each bucket in which an interval is listed, beside the bucket in which it starts."""
    slot = f"{side}_slot"
    slotted = levelled.crossJoin(found).select(*payload, F.explode(F.expr(_SLOTS[side])).alias(slot))
    width = F.shiftright(slot, 1) * _BITS
    start, end = _ticks(side)
    first, last = (F.call_function("shiftright", time, width) for time in (start, end - 1))
    return slotted.select(
        *payload, slot, first.alias(f"{side}_first"), F.explode(F.sequence(first, last)).alias(f"{side}_bucket")
    )
