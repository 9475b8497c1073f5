"""Several answers together: what they compute of the same events by the same key shares one pass through the workers.

A pass reads the events once and moves them once. Each task runs the fragments of all answers over its events, one after
the other, and their results come back as rows of one DataFrame, each with the number of its answer. Spark keeps these
rows (in memory, then on its disks) while the answers are written.

A filter or a projection between the events and a fragment does not keep answers apart: the workers do it then. Filters
of all answers do, as each would move fewer events by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.engines.local.in_order import can_run_in_order
from gpu_ops.engines.spark.compiling import Compiler
from gpu_ops.engines.spark.sides import shared_slots
from gpu_ops.engines.spark.stages import ONE, Fragment, over_feed
from gpu_ops.engines.spark.type_codecs import encoded_columns, encoded_names, encoded_schema
from gpu_ops.engines.spark.types import column, filled
from gpu_ops.engines.spark.worker import ANSWER, SharedTask, Task, run_shared
from gpu_ops.plan.nodes import Filter, Node


@dataclass(frozen=True)
class Together:
    """Several answers, compiled.

    Attributes:
        made: Each by its name.
        passes: What comes back from the passes that answers share.
    """

    made: Mapping[str, Compiler]
    passes: Sequence[DataFrame]

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what the answers share while they are written; it is computed with the first of them."""
        for each in self.passes:
            each.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield
        finally:
            for each in self.passes:
                each.unpersist()


def together(plans: Mapping[str, Node], device: str) -> Together:
    """Compile several plans, such that equal parts of them share a pass. Nothing runs.

    Args:
        plans: Plans over Spark sources, by name.
        device: What workers compute on.
    """
    made = {name: Compiler(plan, device) for name, plan in plans.items()}
    passes = [_one_pass(members, device) for members in _shared(made)]
    for compiler in made.values():
        compiler.frame(compiler.plan)
    return Together(made, passes)


@dataclass(frozen=True)
class _SharedFragment:
    """A fragment of an answer, over events that others may read too.

    Attributes:
        name: The answer.
        made: Its compiler.
        node: The last node of the fragment.
        base: The node that makes the events.
        nodes: What workers run over these.
        payload: The columns of ``base`` that they need; those that are only counted are BOOLEAN.
        partition: The columns that decide which task an event goes to.
        alone: Whether the nodes take a payload without other columns.
    """

    name: str
    made: Compiler
    node: Node
    base: Node
    nodes: tuple[Node, ...]
    payload: pa.Schema
    partition: tuple[str, ...]
    alone: bool

    @property
    def filters(self) -> bool:
        """Whether fewer events than those of ``base`` matter."""
        return any(isinstance(each, Filter) for each in self.nodes)


def _shared(made: Mapping[str, Compiler]) -> Iterator[list[_SharedFragment]]:
    """The fragments of several answers that share a pass, pass by pass."""
    found: dict[Any, list[_SharedFragment]] = defaultdict(list)
    for name, compiler in made.items():
        for node, part in compiler.keyed_fragments():
            for each in _descents(name, compiler, node, part):
                found[each.base.identity, frozenset(part.partition)].append(each)
    taken: set[tuple[str, Node]] = set()
    for members in sorted(found.values(), key=lambda some: (-len(some), sum(len(each.nodes) for each in some))):
        free = [each for each in members if (each.name, each.node) not in taken]
        if len({each.name for each in free}) > 1 and not all(each.filters for each in free):
            taken.update((each.name, each.node) for each in free)
            yield free


def _descents(name: str, made: Compiler, node: Node, part: Fragment) -> Iterator[_SharedFragment]:
    """A fragment over its input, and over each node below that, as long as workers can compute what is between."""
    ((payload, _),) = made.needed(part)
    if payload is ONE:
        payload = pa.schema([])
    base, nodes, alone = part.input, part.nodes, part.nodes[0].handed == "needed alone"
    while True:
        names_key = base.unkeyed is not base
        if not names_key and can_run_in_order(over_feed(base, nodes)):
            yield _SharedFragment(name, made, node, base, nodes, payload, part.partition, alone)
        if len(base.inputs) != 1 or base.gathers or not base.stateless or not all(map(base.keeps, part.partition)):
            return
        (below,) = base.inputs
        if not names_key:
            payload, alone = pa.schema([below.schema.field(each) for each in base.needs(payload.names)[0]]), False
        base, nodes = below, (base, *nodes)


def _one_pass(members: Sequence[_SharedFragment], device: str) -> DataFrame:
    """What comes back from one pass for several fragments; each of their compilers takes its own part of it."""
    first = members[0]
    below = Compiler(first.base, device)
    read = {name for each in members for name in each.payload.names}
    known = [field for field in first.base.schema if field.name in read]
    # A column that one answer reads comes whole, though others only count it.
    whole = {field.name for field in known if any(field in each.payload for each in members)}
    payload = pa.schema([field if field.name in whole else pa.field(field.name, pa.bool_()) for field in known])
    tasks = []
    for each in members:
        own = pa.schema([payload.field(name) for name in each.payload.names])
        plan = over_feed(each.base, each.nodes, (own if len(own) else ONE) if each.alone else None)
        tasks.append(Task(plan, (own,), each.made.answer(each.node), among=payload))
    work = SharedTask(tuple(tasks), shared_slots([task.answer for task in tasks], [()] * len(tasks)))
    counted = {name: F.when(column(name).isNotNull(), F.lit(True)) for name in payload.names if name not in whole}
    times = [column(name) for name in ("start", "end")[: 1 + tasks[0].ends[0]]]
    events = below.frame(first.base).select("start", "end", *filled(payload, counted, payload.names))
    keys = first.partition
    moved = events.select(*times, *encoded_columns(payload)).repartition(*map(column, encoded_names(payload, keys)))
    done = first.made.passed(moved, partial(run_shared, work), work.back)
    names = ", ".join(dict.fromkeys(each.name for each in members))
    for at, (each, task) in enumerate(zip(members, tasks, strict=True)):
        places = work.slots.places[at]
        own_columns = (column(places[name]).alias(name) for name in encoded_schema(task.answer).names)
        rows = done.where(F.col(ANSWER) == at).select("start", "end", *own_columns)
        each.made.notes |= {node: lines for node, lines in below.notes.items() if node not in each.made.notes}
        each.made.take(
            each.node,
            rows,
            f"Spark: one repartition by {', '.join(keys)}, then one mapInArrow with the local engine, "
            f"which {names} share; its results are kept until they are written",
        )
    return done
