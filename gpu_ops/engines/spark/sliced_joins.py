"""Joins over slices of time whose results reach over seams: clipping, as-of joins, and joins with a condition.

The other joins find each result whole in one slice; see `gpu_ops.engines.spark.slicing`. Here:

- Clipping needs the next right start, an as-of join the last one. A left event is in the slice in which it starts,
  beside the right events that start there. For each key a *marker* stands for those of other slices: the first start
  after the slice, or the last right event before it. Of the latter more than its time is needed, and several may start
  then; so workers choose it, by the same rule as anywhere.
- With a condition, the partners of an event are its own, and the event may be in several slices. In each it is cut to
  the slice, and gives the *pieces* with a partner or without that it has there. Pieces of one event that touch are put
  together. Two partners that touch leave no gap between them, so pieces can touch at seams alone.

An event is not numbered to find its pieces again: Spark may compute rows a second time, in another order. An event's
lifetime, its keys and what the condition reads of it decide its pieces. Events that agree in these have the same
pieces. So pieces have these columns alone, equal pieces count once, and in the end each event takes its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce, singledispatch

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.engines.spark.sides import MARK, FragmentInput, low_and_high, shared_slots, united
from gpu_ops.engines.spark.slice_policy import in_one_task, slices_of
from gpu_ops.engines.spark.slicing import (
    Both,
    Cut,
    RunCut,
    beside_nulls,
    both_sides,
    columns_of,
    in_slices,
    one_of,
    pairs,
    unmatched,
    within,
)
from gpu_ops.engines.spark.type_codecs import codec, decoded_columns, encoded_fields, encoded_names, encoded_schema
from gpu_ops.engines.spark.types import all_known, column, filled, spark_type, to_ticks
from gpu_ops.engines.spark.worker import Task
from gpu_ops.plan.expressions import column_names
from gpu_ops.plan.joins import AsOf, Binary, ClipBy, Join, distinct
from gpu_ops.plan.nodes import Feed, Node

_KEY, _SAME, _FROM, _UNTIL = (f"__gpu_ops_{name}" for name in ("key_", "same", "from", "until"))


@singledispatch
def cut_match(
    node: Node, left: FragmentInput, right: FragmentInput, answer: pa.Schema, count: int, run: RunCut
) -> DataFrame:
    """A node with two inputs over slices of time.

    Args:
        node: The node; `gpu_ops.engines.spark.slice_policy.uncut` has nothing against it.
        left: Its left events.
        right: Its right events.
        answer: The wanted columns of its results.
        count: How many slices.
        run: Passes a cut through workers.

    Returns:
        The results, with the encoded columns of the answer.
    """
    raise TypeError(f"no rule for {node}")


@cut_match.register
def _(node: Binary, left: FragmentInput, right: FragmentInput, answer: pa.Schema, count: int, run: RunCut) -> DataFrame:
    starts, _ = low_and_high()
    slices = slices_of([each.frame for each in (left, right)], count, [starts])
    both = both_sides(node, left, right, answer)
    placed = in_slices(both.rows, slices, within()).withColumn(both.number, F.col("begin"))
    markers = _markers(node, both, placed, right.schema, run)
    return run(both.cut(placed.select(*both.task.takes).union(markers)))


@cut_match.register
def _(node: Join, left: FragmentInput, right: FragmentInput, answer: pa.Schema, count: int, run: RunCut) -> DataFrame:
    sides = left, right
    slices = slices_of([each.frame for each in sides], count, low_and_high())
    found = [run(pairs(node, left, right, slices, answer))] if node.pairs else []
    rest = unmatched if node.condition is None else _unmatched_by_condition
    kept = node.alone[0] or node.how == "semi", node.alone[1]
    found += [rest(node, sides, at, slices, answer, run) for at in (0, 1) if kept[at]]
    return reduce(DataFrame.union, found)


@singledispatch
def _markers(node: Binary, both: Both, placed: DataFrame, schema: pa.Schema, run: RunCut) -> DataFrame:
    """For each slice and key with left events, the right rows of other slices that tell what these do not."""
    raise TypeError(f"no rule for {node}")


# Clipping, and as-of joins


@_markers.register
def _(node: ClipBy, both: Both, placed: DataFrame, schema: pa.Schema, run: RunCut) -> DataFrame:
    """For each slice and key with left events, the first right start of all later slices: as a right row."""
    asked = _told(both, placed, F.min, (1, Window.unboundedFollowing))
    return both.listed(asked, F.col("time"), F.col("time"), {MARK: F.lit(True)})


@_markers.register
def _(node: AsOf, both: Both, placed: DataFrame, schema: pa.Schema, run: RunCut) -> DataFrame:
    """For each slice and key with left events, the last right event of all slices before: as a right row.

    An as-of join finds them. Its left events stand for the slices that ask: each is in the slice in which the wanted
    event starts, starts with it, and ends where its own slice begins, which tells who asked.
    """
    asked = _told(both, placed, F.max, (Window.unboundedPreceding, -1))
    there = {MARK: F.lit(False), both.number: F.col("home")}
    asking = both.listed(asked, F.col("time"), F.col("begin"), there)
    given = placed.where(F.col(MARK)).select(*both.task.takes)
    theirs = {other: mine for mine, other in node.on} | node.renamed
    back = pa.schema([node.schema.field(name) for name in theirs.values()])
    mine, other = both.task.plan.inputs
    task = replace(both.task, plan=replace(node, left=mine, right=other, how="inner", tolerance=None), answer=back)
    found = run(replace(both, task=task).cut(asking.union(given)))
    came = {name: [column(part.name) for part in parts] for name, parts in encoded_fields(back).items()}
    for name, _ in node.on:
        # As Spark encodes them, since Spark hashes them: a decimal has several texts, and Python may write another one.
        each = codec(back.field(name).type)
        came[name] = each.encode(each.decode(came[name]))
    carried = encoded_fields(both.task.payloads[1])
    parts = {
        both.slots.places[1][to.name]: part
        for name in schema.names
        for part, to in zip(came[theirs[name]], carried[name], strict=True)
    }
    slots = filled(both.slots.schema, parts | {both.number: to_ticks(F.col("end"))})
    return found.select("start", "end", F.lit(True).alias(MARK), *slots)


def _told(both: Both, placed: DataFrame, best: Callable[[Column], Column], others: tuple[int, int]) -> DataFrame:
    """For each slice and key with left events, the first or last right start in slices before or after it.

    Args:
        both: The two sides.
        placed: Their rows, each with the ``begin`` of the slice in which it starts.
        best: Which start.
        others: In which slices, counted from this one: only those in which the key has events count.

    Returns:
        The keys, ``begin``, ``time`` and the ``home`` of that start: the slice in which it is.
    """
    of_right = F.col(MARK)
    own = placed.groupBy(*both.keys, "begin").agg(
        best(F.when(of_right, F.col("low"))).alias("own"), F.count(F.when(~of_right, F.lit(1))).alias("lefts")
    )
    there = Window.partitionBy(*one_of(both.keys)).orderBy("begin").rowsBetween(*others)
    told = in_one_task(own, both.keys).withColumns(
        {
            "time": best(F.col("own")).over(there),
            "home": best(F.when(F.col("own").isNotNull(), F.col("begin"))).over(there),
        }
    )
    return told.where((F.col("lefts") > 0) & F.col("time").isNotNull())


# Joins with a condition


def _unmatched_by_condition(
    node: Join, sides: tuple[FragmentInput, FragmentInput], at: int, slices: DataFrame, answer: pa.Schema, run: RunCut
) -> DataFrame:
    """As `unmatched`, for a join with a condition."""
    mine, other = _alike(node, sides, at, timed=True), _alike(node, sides, 1 - at, timed=False)
    pieces = run(_pieces(node, mine, other, slices))
    return run(_own_pieces(sides[at], mine, pieces, answer, columns_of(node, at)))


@dataclass(frozen=True)
class _Alike:
    """What decides the pieces of events of one side, and which of them are alike.

    Attributes:
        frame: Their events.
        given: The columns, by the names that the condition has for them, over those of the frame.
        schema: Their types.
        keys: Which of them are keys.
    """

    frame: DataFrame
    given: dict[str, Column]
    schema: pa.Schema
    keys: list[str]

    @property
    def side(self) -> FragmentInput:
        """The events with these columns as their payload."""
        columns = (value.alias(name) for name, value in self.given.items())
        return FragmentInput(Feed(self.schema, (), None), self.frame.select("start", "end", *columns), self.schema)

    @property
    def identity(self) -> pa.Schema:
        """Columns without nulls that are equal where all of these are."""
        parts = [pa.field(f"{_SAME}_{field.name}", field.type) for field in encoded_schema(self.schema)]
        return pa.schema([*parts, pa.field(_SAME, pa.string())])

    def identified(self, values: Iterable[Column]) -> list[Column]:
        """The columns of `identity`: encoded values with nulls filled, and a text that says what was filled."""
        parts_of = zip(values, self.schema, strict=True)
        encoded = [part for value, field in parts_of for part in codec(field.type).encode(value)]
        parts, said = [], []
        for value, field in zip(encoded, encoded_schema(self.schema), strict=True):
            none = _some(field.type)
            parts.append(F.coalesce(value, none).alias(f"{_SAME}_{field.name}"))
            known = F.when(value.isNull(), F.lit("0"))
            if pa.types.is_floating(field.type):
                # The zeros are equal, but a condition may tell them apart by their quotients, as this does.
                negative = (value == 0) & (F.pow(value.cast("double"), F.lit(-1.0)) < 0)
                known = known.when(negative, F.lit("-"))
            said.append(known.otherwise(F.lit("1")))
        return [*parts, F.concat(*said).alias(_SAME)]


def _some(dtype: pa.DataType) -> Column:
    """Any value of the type of an encoded column."""
    if pa.types.is_string(dtype):
        return F.lit("")
    if pa.types.is_date(dtype) or pa.types.is_timestamp(dtype):
        return F.lit("1970-01-01").cast(spark_type(dtype))
    return F.lit(0).cast(spark_type(dtype))


def _alike(node: Join, sides: tuple[FragmentInput, FragmentInput], at: int, *, timed: bool) -> _Alike:
    """The keys of one side and what the condition reads of it; and, if ``timed``, its lifetimes."""
    assert node.condition is not None  # noqa: S101  (looked at by the caller)
    side, before = sides[at], {new: name for name, new in node.renamed.items()}
    names = {f"{_KEY}{pair[0]}": pair[at] for pair in node.on}
    keys = list(names)
    for name in column_names(node.condition, node.paired.names):
        if (name in before) == (at == 1):
            names[name] = before.get(name, name)
    given = {name: column(source) for name, source in names.items()}
    fields = [side.schema.field(source).with_name(name) for name, source in names.items()]
    if timed:
        given |= {_FROM: to_ticks(F.col("start")), _UNTIL: to_ticks(F.col("end"))}
        fields += [pa.field(name, pa.int64()) for name in (_FROM, _UNTIL)]
    return _Alike(side.frame, given, pa.schema(fields), keys)


def _pieces(node: Join, mine: _Alike, other: _Alike, slices: DataFrame) -> Cut:
    """For each slice the pieces of its events, with a partner or without."""
    sides = mine.side, other.side
    on = tuple((name, name) for name in mine.keys)
    how = "semi" if node.how == "semi" else "anti"
    match = Join(sides[0].node, sides[1].node, on, how, node.condition)  # type: ignore[arg-type]
    both = both_sides(match, *sides, mine.schema)
    shown = in_slices(both.rows, slices, (F.col("low") < F.col("finish")) & both.meets_slice)
    end = F.when(all_known(both.keys), F.least("high", "finish")).otherwise(F.col("high"))
    return both.cut(both.listed(shown, F.greatest("low", "begin"), end, {}))


def _own_pieces(
    side: FragmentInput, alike: _Alike, pieces: DataFrame, answer: pa.Schema, columns: dict[str, str]
) -> Cut:
    """The pieces of each event; pieces that touch are one."""
    wanted = {columns[name] for name in answer.names if name in columns}
    back = pa.schema([field for field in side.schema if field.name in wanted])
    identity = alike.identity
    payloads = pa.schema([*back, *identity]), identity
    came = pieces.select("start", "end", *decoded_columns(alike.schema))
    frames = (
        side.frame.select("start", "end", *map(column, back.names), *alike.identified(alike.given.values())),
        came.select("start", "end", *alike.identified(map(column, alike.schema.names))),
    )
    names = tuple(identity.names)
    slots = shared_slots(payloads, [names, names])
    events, found = (Feed(each, (), None) for each in payloads)
    sides = [FragmentInput(node, frame, node.schema) for node, frame in zip((events, found), frames, strict=True)]
    plan = Join(events, distinct(found, names), tuple(zip(names, names, strict=True)), "inner")
    partition = [slots.places[0][name] for name in encoded_names(payloads[0], names)]
    return Cut(
        united(sides, [True, True], slots),
        Task(plan, payloads, back, slots),
        partition,
        lambda done: beside_nulls(done, back, answer, columns),
    )
