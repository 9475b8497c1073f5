"""From a plan to a Spark DataFrame: which Spark operation each node becomes, and what `explain` says of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce, singledispatchmethod
from typing import Any

import narwhals as nw
import polars as pl
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (its usual name)
from pyspark.sql import types as spark_types

from gpu_ops.core.time import LIFETIME, TICK
from gpu_ops.engines.spark import lifetimes
from gpu_ops.engines.spark.broadcasts import Small, beside_all, run_beside_all, small_side
from gpu_ops.engines.spark.bucketed import bucketed, choose, supported, unplanned
from gpu_ops.engines.spark.checks import checked, error_text, first_line, fitting, shown
from gpu_ops.engines.spark.data_windows import aggregated_alone, cut_aggregates
from gpu_ops.engines.spark.expressions import computed_otherwise, spelled
from gpu_ops.engines.spark.hot_keys import Hot, cut_hot, cuts_hot, hot_ways, look, whole_ways, width_of
from gpu_ops.engines.spark.pushing import filters_reach
from gpu_ops.engines.spark.sending import Sent, check_workers
from gpu_ops.engines.spark.session import check_names, has_plugin, task_memory, worker_memory
from gpu_ops.engines.spark.sides import FragmentInput, packed, shared_slots, united
from gpu_ops.engines.spark.slice_policy import (
    SliceSettings,
    cut_because,
    cut_ways,
    shown_besides,
    slice_settings,
    uncut,
)
from gpu_ops.engines.spark.sliced_joins import cut_match
from gpu_ops.engines.spark.slicing import Cut
from gpu_ops.engines.spark.spills import Spills
from gpu_ops.engines.spark.stages import (
    ONE,
    Fragment,
    fragment,
    needed,
    over_feed,
    read_columns,
    ways,
)
from gpu_ops.engines.spark.turns import TurnFragment, turn_rows
from gpu_ops.engines.spark.type_codecs import (
    codec,
    decoded_columns,
    encoded_columns,
    encoded_names,
    passage,
    passes_unchanged,
)
from gpu_ops.engines.spark.types import (
    UNUNITED,
    all_known,
    column,
    filled,
    held,
    spark_schema,
    spark_type,
    to_ticks,
    to_timestamp,
)
from gpu_ops.engines.spark.windows import cut_window
from gpu_ops.engines.spark.worker import Batches, Task, run_task
from gpu_ops.errors import PlanError
from gpu_ops.plan.data_windows import DataWindow
from gpu_ops.plan.expressions import column_names, guards
from gpu_ops.plan.joins import Binary, Join, Union
from gpu_ops.plan.ledger import AtClock
from gpu_ops.plan.lifetimes import AlterLifetime, Change, Chop, Lifetime
from gpu_ops.plan.nodes import Expressions, Filter, KeyBy, Node, SparkSource, Unary
from gpu_ops.plan.unnest import Repeat, Unnest
from gpu_ops.plan.windows import WindowAggregate

_GPU = "planned for the GPU"
_EXPRESSIONS = "planned for the GPU where the RAPIDS plugin has a rule for every function in it"
_NEW = {"start": "__gpu_ops_start", "end": "__gpu_ops_end", "duration": "__gpu_ops_duration"}


def _unchanged(frame: DataFrame, _: Node) -> DataFrame:
    return frame


_OPERATIONS: dict[type[Node], tuple[str, Callable[[DataFrame, Any], DataFrame]]] = {
    KeyBy: ("Spark: names the key, moves nothing", _unchanged),
    DataWindow: ("Spark: nothing, events are in for as long as they live", _unchanged),
    Chop: (f"Spark: explode(sequence(…)) over the grid, one row for each piece; {_GPU}", lifetimes.chop),
    Unnest: ("Spark: explode(…), one row for each struct", lifetimes.unnest),
    Repeat: (f"Spark: explode(sequence(…)), one row for each time; {_GPU}", lifetimes.repeat),
}
"""Nodes that are one operation on the DataFrame of their input: what `explain` says of it, and the operation."""


class Compiler:
    """Builds the DataFrame of a plan, and notes for each node how that is done. Nothing runs.

    Attributes:
        plan: The plan.
        device: What workers compute on.
        notes: For each node how Spark runs it, and why not on the GPU, or not cut in time.
        shuffles: How many times events move between tasks.
        spills: Where tasks report what they sort in files.
        alone: The nodes whose events all go through one task.
        kernels: The joins that workers do, of which both sides are shuffled.
    """

    def __init__(self, plan: Node, device: str, first: Mapping[SparkSource, DataFrame] | None = None) -> None:
        """A plan's compiler; nothing is compiled yet.

        Args:
            plan: As the attribute.
            device: As the attribute.
            first: The sources all rows of which are validated before any is read, and their events; None for those from
                which filters reach files then.
        """
        self.plan = plan
        self.device = device
        self._read = read_columns(plan)
        self._frames: dict[Node, DataFrame] = {}
        session: SparkSession = plan.all(SparkSource)[0].frame.sparkSession
        self._settings = slice_settings(session)
        self._reasons: dict[Node, str | None] = {}
        self._smalls: dict[Node, Small | None] = {}
        self._hots: dict[Node, Hot | None] = {}
        self.notes: dict[Node, list[str]] = {}
        self.shuffles = 0
        self.spills = Spills.of(session.sparkContext)
        self.alone: list[Node] = []
        self.kernels: list[Join] = []
        self._first = self._validated_first() if first is None else first

    def frame(self, node: Node) -> DataFrame:
        """The node's events: ``start`` and ``end`` (TIMESTAMP), then its payload in the plan's types.

        Payload that nothing in the plan reads may be null.

        Raises:
            PlanError: Spark cannot run it.
        """
        if node not in self._frames:
            made = self._made(node)
            check_names(made, node.schema.names)
            self._frames[node] = made
        return self._frames[node]

    def keyed_fragments(self) -> Iterator[tuple[Node, Fragment]]:
        """The fragments of one input whose events go to tasks by a key, whole, each with its last node."""
        waiting: list[Node] = [self.plan]
        seen: set[Node] = {*self.plan.all(AtClock)}
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            if not node.gathers or node.strategy == "sql":
                waiting.extend(node.inputs)
                continue
            part = fragment(node, self._apart)
            waiting.extend(part.inputs)
            if part.partition and len(part.nodes[0].inputs) == 1 and not self._apart(node):
                yield node, part

    def needed(self, part: Fragment) -> list[tuple[pa.Schema, set[str]]]:
        """As `gpu_ops.engines.spark.stages.needed`."""
        return needed(part, self._read)

    def answer(self, node: Node) -> pa.Schema:
        """The part of a node's payload that something reads."""
        return _of(node, self._read[node])

    def take(self, node: Node, done: DataFrame, *lines: str) -> None:
        """Take a node's events from a pass that it shares with other answers, instead of computing them.

        Args:
            node: The node; it is not compiled yet.
            done: Its events, with the encoded columns of `answer`.
            lines: What `explain` says of it.
        """
        answer = self.answer(node)
        self._frames[node] = _decoded(done, answer, node)
        self._note(node, *lines, *self._passage([answer]))
        self.shuffles += 1

    def passed(self, rows: DataFrame, run: Callable[..., Batches], back: pa.Schema) -> DataFrame:
        """Rows through the workers, and what comes back.

        Args:
            rows: What goes to them.
            run: What they do with the batches of a task: as `run_task` without its first argument.
            back: The columns that come back.
        """
        check_workers(rows.sparkSession.sparkContext)
        sent = partial(run, self.device, memory=worker_memory(rows.sparkSession), spilled=self.spills.add)
        return rows.mapInArrow(Sent(sent), spark_schema(back))

    @singledispatchmethod
    def _made(self, node: Node) -> DataFrame:
        if node.gathers:
            return self._gathered(node)
        kind = next((each for each in type(node).__mro__ if each in _OPERATIONS), None)
        if kind is None:
            raise PlanError(f"Spark does not run {type(node).__name__}.", remedy="Collect it on its own engine.")
        note, operation = _OPERATIONS[kind]
        self._note(node, note)
        (below,) = node.inputs
        return operation(self.frame(below), node)

    @_made.register
    def _(self, node: Lifetime) -> DataFrame:
        return self._changed(node.change, node)

    @singledispatchmethod
    def _changed(self, change: Change, node: Lifetime) -> DataFrame:
        self._note(node, f"Spark: arithmetic on LONG microseconds; {_GPU}")
        return lifetimes.change(self.frame(node.input), change)

    def _note(self, node: Node, *lines: str) -> None:
        self.notes[node] = list(lines)

    # What Spark does itself

    @_made.register
    def _source(self, node: SparkSource) -> DataFrame:
        times = [field for field in node.schema if pa.types.is_timestamp(field.type)]
        outside = [f"{field.name} ({field.type})" for field in times if field.type.tz is None]
        gpu = f"the RAPIDS plugin reads no TIMESTAMP_NTZ: {', '.join(outside)}" if outside else _GPU
        frame: DataFrame = self._first.get(node, node.frame)
        validated = "every row is validated before any filter"
        if node in self._first:
            validated = "all rows are validated first, by a read of their times alone, and filters reach the files"
        elif node.drops:
            validated = "rows without a valid lifetime are left out, before or after filters"
        self._note(node, f"Spark: {validated}; {gpu}")
        if not node.points:
            return frame
        end = to_timestamp(to_ticks(F.col("start")) + lifetimes.span(TICK))
        return frame.select("start", end.alias("end"), *(column(name) for name in node.schema.names))

    def _validated_first(self) -> dict[SparkSource, DataFrame]:
        """The sources that are validated before a row is read, as filters reach their files then; and their events."""
        filters = [each for each in self.plan.all(Filter) if all(below.stateless for below in each.walk())]
        asked = {source: None for each in filters for source in each.all(SparkSource)}
        made = {each: each.validated_first() for each in asked if each.validated_first is not None}
        able: dict[SparkSource, DataFrame] = {source: frame for source, frame in made.items() if frame is not None}
        found: dict[SparkSource, DataFrame] = {}
        for each in reversed(filters):
            frames = {source: able[source] for source in each.all(SparkSource) if source in able}
            if frames.keys() - found.keys():
                trial = Compiler(each, self.device, frames)
                found |= frames if filters_reach(trial.frame(each), trial.frame(each.input)) else {}
        return found

    @_made.register
    def _expressions(self, node: Expressions) -> DataFrame:
        frame = self.frame(node.input)
        expressions = [each for each, _ in node.computed]
        picked = None if node.beside else node.copies

        def native() -> DataFrame:
            if picked is not None:
                return frame.select("start", "end", *(column(old).alias(new) for new, old in picked.items()))
            lazy: Any = nw.from_native(self._fitting(frame, node, expressions, node.names))
            made: DataFrame = node.evaluated(
                lazy, [spelled(each, node.input.schema) for each in expressions]
            ).to_native()
            if node.schema is node.input.schema:
                return made
            return made.select("start", "end", *_declared(made, node.schema))

        computed = expressions if picked is None else []
        return self._native_or_python(node, computed, native, f"Spark: {type(node).__name__}")

    def _fitting(
        self, frame: DataFrame, node: Unary, expressions: Sequence[nw.Expr], said: Mapping[str, str] | None = None
    ) -> DataFrame:
        """The events of a frame, checked: the whole numbers that expressions compute fit their types."""
        return fitting(frame, guards(expressions, node.input.schema, expressions, said).values())

    @_changed.register
    def _(self, change: AlterLifetime, node: Lifetime) -> DataFrame:
        frame = self.frame(node.input)
        given = {"start": change.start, "end": change.end, "duration": change.duration}
        asked = {name: expression for name, expression in given.items() if expression is not None}
        constant = _constant_ticks(asked.get("duration"), node.input.schema)
        if constant is not None:
            del asked["duration"]

        def native() -> DataFrame:
            named = [expression.alias(_NEW[name]) for name, expression in asked.items()]
            lazy: Any = nw.from_native(self._fitting(frame, node, list(asked.values())))
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
                end = start + codec(pa.duration("us")).encode(F.col(_NEW["duration"]))[0]
            else:
                end = to_ticks(F.col(_NEW["end"] if "end" in asked else "end"))
            changed = lifetimes.Changed(start, end, lives=lifetimes.lives(), verb="alter_lifetime")
            return lifetimes.moved(made, changed).drop(*_NEW.values())

        return self._native_or_python(node, list(asked.values()), native, "Spark: Project and Filter")

    def _native_or_python(
        self, node: Unary, expressions: Sequence[nw.Expr], native: Callable[[], DataFrame], note: str
    ) -> DataFrame:
        """Expressions in Spark's SQL, as Narwhals writes them; else by the local engine in Python workers."""
        reason = computed_otherwise(expressions, node.input.schema)
        if not reason:
            try:
                made = native()
            except Exception as error:  # noqa: BLE001  (Polars can compute what the plan took, whatever stops Narwhals or Spark)
                reason = first_line(error)
            else:
                self._note(node, f"{note}; {_EXPRESSIONS}")
                return made
        self._note(
            node,
            "Spark: mapInArrow with the local engine, without a shuffle",
            f"not as an expression of Spark: {reason}",
            *self._passage([node.input.schema, node.schema]),
        )
        schema = node.input.schema
        task = Task(over_feed(node.input, (node,)), (schema,), node.schema)
        return self._through(_encoded([FragmentInput(node.input, self.frame(node.input), schema)], task), task, node)

    @_made.register
    def _union(self, node: Union) -> DataFrame:
        read = [node.schema.field(name) for name in self._read[node]]
        refused = {each.name: kind for each in read if (kind := held(each.type, UNUNITED)) is not None}
        # The plugin refuses intervals in a union too, so they pass through it as integers.
        lasting = [each for each in read if pa.types.is_duration(each.type)]
        ways = [f"through the union: {'; '.join(passage(each) or '' for each in lasting)}"] if lasting else []
        codecs = {each.name: codec(each.type) for each in lasting}
        away = [
            f"column {name!r}: {kind} is no type that the RAPIDS plugin takes in a union"
            for name, kind in refused.items()
            if name not in codecs
        ]
        self._note(node, "Spark: union, without a shuffle", *ways, *_away(away))

        def encoded(name: str) -> Column:
            return codecs[name].encode(column(name))[0].alias(name) if name in codecs else column(name)

        def decoded(name: str) -> Column:
            if name not in codecs:
                return column(name)
            # Made nondeterministic, so that the optimizer does not move it below the union.
            return codecs[name].decode([F.when(F.spark_partition_id() >= 0, column(name))]).alias(name)

        parts = [self.frame(part).select("start", "end", *map(encoded, node.schema.names)) for part in node.parts]
        return reduce(DataFrame.union, parts).select("start", "end", *map(decoded, node.schema.names))

    # What Python workers do

    @_made.register
    def _joined(self, node: Join) -> DataFrame:
        """Two inputs matched by workers, or by a join of Spark's."""
        strategy, why = self._strategy(node)
        if strategy == "sql":
            frames = self.frame(node.left), self.frame(node.right)
            try:
                made = bucketed(node, *frames)
            except Exception as error:
                # Narwhals may be unable to write the condition in Spark's SQL.
                why = first_line(error)
                if node.strategy == "sql":
                    raise _not_by_sql(why) from error
            else:
                self.shuffles += 1
                planned = unplanned(node, self._read[node])
                self._note(
                    node,
                    f"Spark: strategy sql, {why}: a join on keys and buckets of time among Spark's own",
                    _GPU if planned is None else f"not wholly planned for the GPU: {planned}",
                )
                return made
        made = self._gathered(node)
        if self._small(node) is None:
            self.kernels.append(node)
        self.notes[node].insert(0, f"strategy kernel, {why}")
        return made

    def _strategy(self, node: Join) -> tuple[str, str]:
        """How a join is done, and why."""
        if node.strategy == "kernel":
            return "kernel", "as asked"
        if node.strategy == "sql":
            reason = supported(node)
            if reason is not None:
                raise _not_by_sql(reason)
            return "sql", "as asked"
        return choose(node, plugin=has_plugin(self.frame(node.left).sparkSession), read=self._read[node])

    @_made.register
    def _delivered(self, node: AtClock) -> DataFrame:
        """What happens on turns, in the task of each key."""
        part = TurnFragment.of(node)
        lines = part.ways(self._settings)  # a plan that needs one order of all events is refused here
        numbers = part.leaves[0].numbers
        payloads = tuple(_of(numbers.streams[int(each.gives or 0)], self._read[each]) for each in part.streams)
        answer = _of(node, self._read[node])
        rows, slots = turn_rows(part, [self.frame(each) for each in numbers.streams], payloads, self._settings)
        self.shuffles += 1 + (any(part.keys) or part.spans != frozenset())
        self._note(node, *lines, *self._passage([*payloads, answer]))
        for each in part.nodes[:-1]:
            self._note(each, "Spark: in the same mapInArrow as the node above, without another shuffle")
        for each in (*part.leaves, numbers):
            self._note(each, "Spark: window functions within slices of time number the events and moves of the clock")
        return self._through(rows, part.task(payloads, answer, slots), node)

    def _gathered(self, node: Node) -> DataFrame:
        part = fragment(node, self._apart)
        small = self._small(part.nodes[0]) if part.nodes == (node,) and len(part.inputs) > 1 else None
        if small is not None:
            return self._beside_all(node, part, small)
        reason = self._cut_because(node)
        if reason is not None:
            return self._cut(node, part, reason)
        hot = self._looked(node)
        if hot is not None and hot.share is not None:
            return self._cut_hot(node, part, hot)
        inputs = self._inputs(part)
        task = self._task(node, part, inputs)
        spread = len(node.inputs) > 1 and any(part.keeps)
        looked = next((found for each in (node, *part.nodes) if (found := self._hots.get(each)) is not None), None)
        whole = _whole(part, self._settings) if looked is None else whole_ways(looked)
        self._note(node, *ways(part, spread=spread), *whole, *self._passage([*task.payloads, task.answer]))
        below = list(node.inputs)
        while below:
            each = below.pop()
            if each not in self.notes:  # else the nodes below it have theirs too
                self._note(each, "Spark: in the same mapInArrow as the node above, without another shuffle")
                below.extend(each.inputs)
        first = None if looked is None else looked.first
        rows = self._partitioned(_encoded(inputs, task), part, task, spread=spread, first=first)
        return self._through(rows, task, node, 1 if looked is None else looked.threads)

    def _apart(self, node: Node) -> bool:
        """Whether a node shares no mapInArrow with what is above it."""
        alone = not node.together and self._small(node) is not None
        return node.strategy == "sql" or alone or self._cut_because(node) is not None or self._hot(node)

    def _hot(self, node: Node) -> bool:
        """Whether a node's hot keys are cut in time."""
        found = self._looked(node)
        return found is not None and found.share is not None

    def _looked(self, node: Node) -> Hot | None:
        """What a look at a node's keys found; None where the session asks for none, or they could not be cut."""
        if node not in self._hots:
            asked = self._settings.hot and all(node.matched) and bool(node.matched) and cuts_hot(node)
            if isinstance(node, Join):
                asked = asked and self._strategy(node)[0] == "kernel" and self._small(node) is None
            self._hots[node] = self._look(node) if asked else None
        return self._hots[node]

    def _look(self, node: Node) -> Hot:
        frames = [self.frame(each) for each in node.inputs]
        needs = node.needs(self._read[node])
        widths = [width_of(_of(each, names)) for each, names in zip(node.inputs, needs, strict=True)]
        sides = list(zip(frames, node.matched, strict=True))
        return look(sides, widths, self._settings.tasks, task_memory(frames[0].sparkSession))

    def _small(self, node: Node) -> Small | None:
        """The side of a node with two inputs that is broadcast; None if neither is."""
        if node not in self._smalls:
            found = None
            if isinstance(node, Binary):
                given = zip(node.inputs, node.needs(self._read[node]), strict=True)
                sides = [FragmentInput(each, self.frame(each), _of(each, names)) for each, names in given]
                found = small_side(node.in_parts, sides)
            self._smalls[node] = found
        return self._smalls[node]

    def _beside_all(self, node: Node, part: Fragment, small: Small) -> DataFrame:
        """A join of which one side is broadcast."""
        inputs = self._inputs(part)
        task = self._task(node, part, inputs)
        assert task.slots is not None  # noqa: S101  (there are two sides)
        self._note(node, *small.ways, *self._passage([*task.payloads, task.answer]))
        rows = beside_all(inputs, task.ends, task.slots, small.at)
        return self._back(self.passed(rows, partial(run_beside_all, task), task.back), task, node)

    def _task(self, node: Node, part: Fragment, inputs: Sequence[FragmentInput]) -> Task:
        """What workers do with the events of a fragment's inputs."""
        schemas = tuple(each.schema for each in inputs)
        plan = part.plan(schemas[0] if part.nodes[0].handed == "needed alone" else None)
        slots = shared_slots(schemas, part.partitions) if len(inputs) > 1 else None
        answer = _of(node, self._read[node])
        return Task(plan, schemas, answer, slots, named=answer == node.schema and passes_unchanged(answer))

    def _cut_because(self, node: Node) -> str | None:
        """Why a node is cut in time; None where it is not."""
        if node not in self._reasons:
            self._reasons[node] = cut_because(node, self._settings, lambda: [self.frame(each) for each in node.inputs])
        return self._reasons[node]

    def _cut(self, node: Node, part: Fragment, reason: str) -> DataFrame:
        """A window or a join, slice by slice of time."""
        first, answer = part.nodes[0], _of(node, self._read[node])
        passed: list[pa.Schema] = []
        run = partial(self._run_cut, passed)
        below = self._below_aggregates(first)
        inputs = self._inputs(part if below is None else below)
        if below is not None:
            done = run(cut_aggregates(first, below.nodes[0], inputs[0], answer, self._settings.count))
            same = "Spark: in the same mapInArrow as the node above, without another shuffle"
            self._note(below.nodes[0], same, *shown_besides(below.nodes[0]))
        elif len(inputs) > 1:
            done = cut_match(first, inputs[0], inputs[1], answer, self._settings.count, run)
        else:
            done = run(cut_window(first, inputs[0], answer, self._settings.count))
        self._note(node, *cut_ways(node, reason, self._settings.count, part.partition), *self._passage(passed))
        return _decoded(done, answer, node)

    def _below_aggregates(self, first: Node) -> Fragment | None:
        """The data window below aggregates, if one pass over slices of time does for both."""
        if not isinstance(first, WindowAggregate):
            return None
        below = aggregated_alone(first)
        return None if below is None or self._cut_because(below) is None else fragment(below, self._apart)

    def _cut_hot(self, node: Node, part: Fragment, hot: Hot) -> DataFrame:
        """A window or a join, of which the hot keys are cut in time."""
        answer = _of(node, self._read[node])
        passed: list[pa.Schema] = []
        done = self._run_cut(passed, cut_hot(part.nodes[0], self._inputs(part), answer, hot))
        self._note(node, *hot_ways(part.partition, hot), *self._passage(passed))
        return _decoded(done, answer, node)

    def _run_cut(self, passed: list[pa.Schema], cut: Cut) -> DataFrame:
        """A cut through the workers, and its results; the payloads that pass are added to a list."""
        self.shuffles += 1
        passed.extend([*cut.task.payloads, cut.task.answer])
        gathered = cut.rows.repartition(*cut.partition).select(*cut.task.takes)
        return cut.finished(self._passed(gathered, cut.task))

    def _inputs(self, part: Fragment) -> list[FragmentInput]:
        """The inputs of a fragment, without the events that give nothing and the columns that are not needed."""
        inputs = []
        asked = zip(part.inputs, needed(part, self._read), part.partitions, part.keeps, strict=True)
        for node, (schema, counted), keys, keeps in asked:
            frame = self.frame(node)
            if not keeps:
                frame = frame.where(all_known(keys))
            if schema is ONE:
                frame = frame.select("start", "end", F.lit(True).alias("one"))
            elif counted:
                marks = {name: F.when(column(name).isNotNull(), F.lit(True)) for name in counted}
                frame = frame.select("start", "end", *filled(schema, marks, schema.names))
            inputs.append(FragmentInput(node, frame, schema))
        return inputs

    def _partitioned(
        self, rows: DataFrame, part: Fragment, task: Task, *, spread: bool, first: int | None = None
    ) -> DataFrame:
        """Rows partitioned so that all that may meet are in one task of Spark: by key, or all in one without a key."""
        self.shuffles += 1
        if not part.partition:
            self.alone.append(part.nodes[0])
            return rows.repartition(1)
        names = encoded_names(task.payloads[0], part.partition)
        keys = [column(name if task.slots is None else task.slots.places[0][name]) for name in names]
        if spread:
            # An event without a key meets no other, so any task will do.
            keys.append(F.when(reduce(Column.__or__, (key.isNull() for key in keys)), column("start")))
        return rows.repartition(*keys, *([] if first is None else [F.lit(first)]))

    def _through(self, rows: DataFrame, task: Task, node: Node, threads: int = 1) -> DataFrame:
        """Rows through the workers, of so many threads a task, and the node's events from what comes back."""
        return self._back(self._passed(rows, task, threads), task, node)

    def _back(self, done: DataFrame, task: Task, node: Node) -> DataFrame:
        """The node's events from what comes back of them."""
        return done if task.named else _decoded(done, task.answer, node)

    def _passed(self, rows: DataFrame, task: Task, threads: int = 1) -> DataFrame:
        return self.passed(rows, partial(run_task, task, threads=threads), task.back)

    def _passage(self, schemas: Iterable[pa.Schema]) -> list[str]:
        """How columns that are encoded pass through Python, and why the plugin does not plan some of them."""
        fields = [field for schema in schemas for field in schema]
        ways = dict.fromkeys(way for field in fields if (way := passage(field)) is not None)
        refusals = {field.name: codec(field.type).refusal for field in fields}
        found = sorted(f"column {name!r}: {reason}" for name, reason in refusals.items() if reason is not None)
        passing = [f"through Python: {'; '.join(ways)}"] if ways else []
        return [*passing, *_away(found)]


def _away(reasons: Sequence[str]) -> list[str]:
    return [f"not wholly planned for the GPU: {each}" for each in reasons] or [_GPU]


def _encoded(inputs: Sequence[FragmentInput], task: Task) -> DataFrame:
    """The rows that go to the workers."""
    if task.slots is not None:
        return packed(united(inputs, task.ends, task.slots))
    (given,) = inputs
    times = [column("start"), column("end")] if task.ends[0] else [column("start")]
    return given.frame.select(*times, *encoded_columns(given.schema))


def _decoded(done: DataFrame, answer: pa.Schema, node: Node) -> DataFrame:
    """The node's events from what came back of them; columns that nothing reads are null."""
    decoded = dict(zip(answer.names, decoded_columns(answer), strict=True))
    return done.select("start", "end", *filled(node.schema, decoded))


def _of(node: Node, names: Collection[str]) -> pa.Schema:
    """The fields of these columns."""
    return pa.schema([field for field in node.schema if field.name in names])


def _whole(part: Fragment, settings: SliceSettings) -> list[str]:
    """Why a single task is not cut in time."""
    reason = uncut(part.nodes[0])
    if part.partition or (reason is None and settings.count > 1):
        return []
    return [f"not cut in time: {reason or 'spark.gpu_ops.slices is 1'}"]


def _declared(frame: DataFrame, schema: pa.Schema) -> list[Column]:
    """The payload's columns, cast to the types that the plan declares."""
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


def _not_by_sql(reason: str) -> PlanError:
    return PlanError(
        f'strategy="sql" cannot do this join: {reason}.', remedy='Leave strategy= out, or say strategy="kernel".'
    )


def _null_message(name: str) -> Column:
    return error_text(
        "TimeError",
        f"alter_lifetime gives a null {name}.",
        name,
        F.concat(shown("start", F.col("start")), F.lit(", "), shown("end", F.col("end"))),
        "Fill it or filter such events out first.",
    )
