"""From a plan to a Spark DataFrame: which Spark operation each node becomes, and what `explain` says of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import narwhals as nw
import polars as pl
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (its usual name)
from pyspark.sql import types as spark_types

from gpu_ops.engines.spark import lifetimes
from gpu_ops.engines.spark.carriers import (
    carried_fields,
    carried_schema,
    carrier,
    lowered_columns,
    passage,
    raised_columns,
)
from gpu_ops.engines.spark.checks import checked, error_text, shown
from gpu_ops.engines.spark.fragments import Fragment, fragment, over_feed
from gpu_ops.engines.spark.session import check_names
from gpu_ops.engines.spark.types import column, spark_type, to_ticks, to_timestamp
from gpu_ops.engines.spark.worker import work
from gpu_ops.errors import PlanError
from gpu_ops.plan.expressions import LIFETIME, bare_column, column_names, function_names
from gpu_ops.plan.lifetimes import AlterLifetime, Chop, Lifetime, Stitch
from gpu_ops.plan.nodes import Filter, KeyBy, Node, Project, SparkSource, Unary
from gpu_ops.plan.windows import WindowAggregate
from gpu_ops.time import TICK, TIME_TYPE

_GPU = "planned for the GPU"
_EXPRESSIONS = "planned for the GPU where the RAPIDS plugin has a rule for every function in it"
_FLOOR = "Spark's floor is a LONG, 0 for NaN"
_DIVIDED = "Spark's quotient goes through DOUBLE, which does not hold every LONG, and is 0 for NaN"
_REST = "Spark's remainder by 0 is an error"
_OTHERWISE = {
    "floor": _FLOOR,
    "ceil": _FLOOR.replace("floor", "ceil"),
    "round": "Spark rounds halves away from zero",
    "__floordiv__": _DIVIDED,
    "__rfloordiv__": _DIVIDED,
    "__mod__": _REST,
    "__rmod__": _REST,
}
"""What Narwhals would let Spark compute with another result than the local engine's (seen with Narwhals 2.29)."""

_NEW = {"start": "__gpu_ops_start", "end": "__gpu_ops_end", "duration": "__gpu_ops_duration"}
_ONE = pa.schema([("one", pa.bool_())])
"""What workers get of events of which nothing but the lifetime is asked."""


class Compiler:
    """Builds the DataFrame of a plan, and notes for each node how that is done. Nothing runs.

    Attributes:
        notes: For each node what becomes of it, and why it does not go where one may have wanted it.
        shuffles: How many times events move between tasks.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._frames: dict[Node, DataFrame] = {}
        self.notes: dict[Node, list[str]] = {}
        self.shuffles = 0

    def frame(self, node: Node) -> DataFrame:
        """The node's events: ``start`` and ``end`` (TIMESTAMP), then its payload in the plan's types.

        Raises:
            PlanError: Spark cannot run it.
        """
        if node not in self._frames:
            made = self._made(node)
            check_names(made, node.schema.names)
            self._frames[node] = made
        return self._frames[node]

    def _made(self, node: Node) -> DataFrame:
        if isinstance(node, SparkSource):
            return self._source(node)
        if isinstance(node, KeyBy):
            self._note(node, "Spark: names the key, moves nothing")
            return self.frame(node.input)
        if isinstance(node, Filter | Project):
            return self._expressions(node)
        if isinstance(node, Lifetime):
            if isinstance(node.change, AlterLifetime):
                return self._altered(node, node.change)
            self._note(node, f"Spark: arithmetic on LONG microseconds; {_GPU}")
            return lifetimes.change(self.frame(node.input), node.change)
        if isinstance(node, Chop):
            self._note(node, f"Spark: explode(sequence(…)) over the grid, one row for each piece; {_GPU}")
            return lifetimes.chop(self.frame(node.input), node)
        if isinstance(node, WindowAggregate | Stitch):
            return self._gathered(node)
        raise PlanError(f"Spark does not run {type(node).__name__}.", remedy="Collect it on its own engine.")

    def _note(self, node: Node, *lines: str) -> None:
        self.notes[node] = list(lines)

    # What Spark does itself

    def _source(self, node: SparkSource) -> DataFrame:
        outside = [f"{field.name} ({field.type})" for field in node.schema if _no_zone(field.type)]
        gpu = f"the RAPIDS plugin reads no TIMESTAMP_NTZ: {', '.join(outside)}" if outside else _GPU
        self._note(node, f"Spark: every row is validated before any filter; {gpu}")
        frame: DataFrame = node.frame
        if not node.points:
            return frame
        end = to_timestamp(to_ticks(F.col("start")) + lifetimes.span(TICK))
        return frame.select("start", end.alias("end"), *(column(name) for name in node.schema.names))

    def _expressions(self, node: Filter | Project) -> DataFrame:
        frame = self.frame(node.input)

        def native() -> DataFrame:
            lazy: Any = nw.from_native(frame)
            if isinstance(node, Filter):
                made: DataFrame = lazy.filter(node.condition).to_native()
                return made
            if node.keep:
                made = lazy.with_columns(*node.expressions).to_native()
            else:
                made = lazy.select(nw.col("start"), nw.col("end"), *node.expressions).to_native()
            return made.select("start", "end", *_declared(made, node.schema))

        if isinstance(node, Filter):
            return self._native_or_python(node, [node.condition], native, "Spark: Filter")
        return self._native_or_python(node, node.expressions, native, "Spark: Project")

    def _altered(self, node: Lifetime, change: AlterLifetime) -> DataFrame:
        frame = self.frame(node.input)
        given = {"start": change.start, "end": change.end, "duration": change.duration}
        asked = {name: expression for name, expression in given.items() if expression is not None}
        constant = _constant_ticks(asked.get("duration"), node.input.schema)
        if constant is not None:
            del asked["duration"]

        def native() -> DataFrame:
            named = [expression.alias(_NEW[name]) for name, expression in asked.items()]
            lazy: Any = nw.from_native(frame)
            made: DataFrame = lazy.with_columns(*named).to_native()
            for name in asked:
                wanted = spark_types.DayTimeIntervalType() if name == "duration" else spark_types.TimestampType()
                made = made.withColumn(_NEW[name], F.col(_NEW[name]).cast(wanted))
            for name in asked:
                made = checked(made, F.col(_NEW[name]).isNotNull(), _null_message(name))
            start = to_ticks(F.col(_NEW["start"] if "start" in asked else "start"))
            if constant is not None:
                end = start + lifetimes.span(constant)
            elif "duration" in asked:
                end = start + carrier(pa.duration("us")).lower(F.col(_NEW["duration"]))[0]
            else:
                end = to_ticks(F.col(_NEW["end"] if "end" in asked else "end"))
            changed = lifetimes.Changed(start, end, lives=lifetimes.lives(), verb="alter_lifetime")
            return lifetimes.moved(made, changed).drop(*_NEW.values())

        return self._native_or_python(node, list(asked.values()), native, "Spark: Project and Filter")

    def _native_or_python(
        self, node: Unary, expressions: Sequence[nw.Expr], native: Callable[[], DataFrame], note: str
    ) -> DataFrame:
        """What Narwhals makes of expressions in Spark's SQL; else the local engine in Python workers, row by row."""
        found = {_OTHERWISE[name] for each in expressions for name in function_names(each) if name in _OTHERWISE}
        reason = "; ".join(sorted(found))
        if not found:
            try:
                made = native()
            except Exception as error:  # noqa: BLE001  (the plan took it: what stops Narwhals or Spark here, Polars can do)
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            else:
                self._note(node, f"{note}; {_EXPRESSIONS}")
                return made
        self._note(
            node,
            "Spark: mapInArrow with the local engine, without a shuffle",
            f"not as an expression of Spark: {reason}",
            *self._passage(node.input.schema, node.schema),
        )
        frame, schema = self.frame(node.input), node.input.schema
        return self._in_python(frame, over_feed(node.input, (node,)), node, schema, None)

    # What Python workers do

    def _gathered(self, node: WindowAggregate | Stitch) -> DataFrame:
        part = fragment(node)
        frame = self.frame(part.input)
        schema, replaced = _needed(part)
        if replaced:
            frame = frame.select(
                "start", "end", *(replaced.get(name, column(name)).alias(name) for name in schema.names)
            )
        self.shuffles += 1
        if part.partition:
            where = f"one repartition by {', '.join(part.partition)}, then one mapInArrow with the local engine"
        else:
            where = "one task, as there is no key: repartition(1), then one mapInArrow with the local engine"
        self._note(node, f"Spark: {where}", *self._passage(schema, node.schema))
        for each in node.input.walk():
            if each not in self.notes:
                self._note(each, "Spark: in the same mapInArrow as the node above, without another shuffle")
        return self._in_python(frame, part.plan(schema), node, schema, part.partition)

    def _in_python(
        self, frame: DataFrame, plan: Node, node: Node, schema: pa.Schema, partition: tuple[str, ...] | None
    ) -> DataFrame:
        """A frame's events through workers.

        Args:
            frame: The events.
            plan: What workers run, over a feed of ``schema``.
            node: The node whose events come out.
            schema: The payload that goes in.
            partition: By which columns events are brought together first; None for not at all.
        """
        feed = next(iter(plan.walk()))
        times = [column("start")] if feed.duration is not None else [column("start"), column("end")]
        lowered = frame.select(*times, *lowered_columns(schema))
        if partition:
            carried = carried_fields(schema)
            lowered = lowered.repartition(*(column(field.name) for name in partition for field in carried[name]))
        elif partition is not None:
            lowered = lowered.repartition(1)
        fields = [("start", TIME_TYPE), ("end", TIME_TYPE), *((f.name, f.type) for f in carried_schema(node.schema))]
        passed = spark_types.StructType([spark_types.StructField(name, spark_type(dtype)) for name, dtype in fields])
        done = lowered.mapInArrow(work(plan, self._device), passed)
        return done.select("start", "end", *raised_columns(node.schema))

    def _passage(self, before: pa.Schema, after: pa.Schema) -> list[str]:
        """How columns pass through Python that do not as they are, and why the plugin would leave the GPU for some."""
        fields = [*before, *after]
        ways = dict.fromkeys(way for field in fields if (way := passage(field)) is not None)
        refusals = {field.name: carrier(field.type).refusal for field in fields}
        found = sorted(f"column {name!r}: {reason}" for name, reason in refusals.items() if reason is not None)
        passing = [f"through Python: {'; '.join(ways)}"] if ways else []
        return passing + ([f"not wholly planned for the GPU: {each}" for each in found] or [_GPU])


def _no_zone(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(dtype) and dtype.tz is None)


def _declared(frame: DataFrame, schema: pa.Schema) -> list[Column]:
    """The payload's columns in the types that the plan declares."""
    columns = []
    for field in schema:
        wanted, value = spark_type(field.type), column(field.name)
        same = frame.schema[field.name].dataType.simpleString() == wanted.simpleString()
        columns.append(value if same else value.cast(wanted).alias(field.name))
    return columns


def _constant_ticks(expression: nw.Expr | None, schema: pa.Schema) -> int | None:
    """The ticks of a duration that reads no column; None for any other."""
    if expression is None or column_names(expression, [*LIFETIME, *schema.names]):
        return None
    row: Any = nw.from_native(pl.DataFrame({"row": [0]}))
    value = row.select(expression.cast(nw.Duration("us"))).to_native().to_series().to_physical()[0]
    return None if value is None else int(value)


def _null_message(name: str) -> Column:
    return error_text(
        "TimeError",
        f"alter_lifetime gives a null {name}.",
        name,
        F.concat(shown("start", F.col("start")), F.lit(", "), shown("end", F.col("end"))),
        "Fill it or filter such events out first.",
    )


def _needed(part: Fragment) -> tuple[pa.Schema, dict[str, Column]]:
    """The payload that workers need, and how columns come into it that are not simply taken.

    Of a column that is only counted, it matters where it is null and nothing else.
    """
    schema, first = part.input.schema, part.nodes[0]
    if not isinstance(first, WindowAggregate):
        return schema, {}
    names: set[str] = set(first.group)
    counted: set[str] = set()
    for aggregate in first.aggregates:
        for expression in (aggregate.expression, aggregate.filter):
            name = None if expression is None else bare_column(expression)
            if name is not None:
                only = aggregate.kind == "count" and expression is aggregate.expression
                (counted if only else names).add(name)
    counted -= names
    if not names | counted:
        return _ONE, {"one": F.lit(True)}
    fields = [
        pa.field(field.name, pa.bool_()) if field.name in counted else field
        for field in schema
        if field.name in names | counted
    ]
    return pa.schema(fields), {name: F.when(column(name).isNotNull(), F.lit(True)) for name in counted}
