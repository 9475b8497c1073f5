"""Contexts that run: their instances, which all statements in a context share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.turns import ENDED, INSTANCE
from gpu_ops.devices import Device
from gpu_ops.epl.planning.known_contexts import KnownContext
from gpu_ops.operators.contexts.instances import InstancesOperator
from gpu_ops.operators.runtime.steps import RunningNode, running
from gpu_ops.plan.nodes import Feed, Node
from gpu_ops.texts.feeding import LeafRows, PlacedRows, TickRows, leaves_of, stepped_node


@dataclass(eq=False)
class RunningContext:
    """A context. It begins with the first statement that is deployed in it, and is over with the last one.

    Attributes:
        known: What statements know of it.
        text: Its text.
        since: What the clock showed when it was created, in ticks.
    """

    known: KnownContext
    text: str
    since: int
    _device: Device
    _running: RunningNode | None = None
    _alive: pa.Table | None = None
    _step: tuple[int, PlacedRows] | None = None
    _reads: dict[Node, list[str]] = field(default_factory=dict)

    @property
    def is_on(self) -> bool:
        """Whether it has begun."""
        return self._running is not None

    @property
    def nodes(self) -> list[RunningNode]:
        """What runs, each node after those that it reads."""
        return [] if self._running is None else self._running.walk()

    @property
    def active_filters(self) -> int:
        """How many filters of its own are active: those that start instances, and one for each that an event may end.

        An inner context has its own in each instance around.
        """
        nodes = [each.own for each in self.nodes]
        found, around = sum(each.active_atoms for each in nodes if each is not None), 1
        instances = [each for each in nodes if isinstance(each, InstancesOperator)]
        for level, own in zip(self.known.levels, instances, strict=True):
            found += level.listens * (around - own.instances if level.one_by_one else around)
            found += own.instances if own.ends_by_events and not level.ends_by_atoms else 0
            around = own.instances
        return found

    def begin(self) -> None:
        """Begin, if it has not."""
        if self._running is None:
            self._running = running(self.known.node, self._device)
            self._reads = leaves_of(self.known.node)
            self._alive = self.known.node.schema.empty_table()

    def end(self) -> None:
        """Be over: the next statement begins it anew."""
        self._running, self._alive, self._step = None, None, None

    def stepped(
        self,
        arrived: Mapping[Feed, LeafRows],
        ticks: tuple[Feed, TickRows | None],
        cti: int,
    ) -> PlacedRows:
        """Where instances start and end in some turns: computed once, whoever asks."""
        assert self._running is not None  # noqa: S101  (a statement in it runs)
        if self._step is None or self._step[0] != cti:
            made = stepped_node(self._running, self._device, self._reads, arrived, ticks, cti)
            columns, schema = self._device.columns, self.known.node.schema
            if not any(map(len, made.events)):
                self._step = cti, PlacedRows(np.zeros(0, np.int64), empty_table(schema))
                return self._step[1]
            places = np.concatenate([np.zeros(0, np.int64), *(columns.host(each.start) for each in made.events)])
            tables = [columns.to_arrow(each.frame, schema) for each in made.events]
            table = pa.concat_tables([empty_table(schema), *tables]).combine_chunks()
            order = np.lexsort((table[INSTANCE].to_numpy(), places))
            self._step = cti, PlacedRows(places[order], table.take(order))
            self._remember(self._step[1].rows)
        return self._step[1]

    def _remember(self, moved: pa.Table) -> None:
        """Which instances are there behind these turns."""
        assert self._alive is not None  # noqa: S101  (it has begun)
        if not len(moved):
            return
        ended = moved[ENDED].combine_chunks()
        whole = pa.concat_tables([self._alive, moved.filter(pc.invert(ended))])
        gone = moved.filter(ended)[INSTANCE].combine_chunks()
        self._alive = whole.filter(pc.invert(pc.is_in(whole[INSTANCE], gone)))

    def alive(self, place: int) -> PlacedRows:
        """The instances that are there, as if they started at a place: for a statement that comes later."""
        assert self._alive is not None  # noqa: S101  (it has begun)
        return PlacedRows(np.full(len(self._alive), place, np.int64), self._alive)

    def table(self) -> pa.Table:
        """The instances that are there."""
        assert self._alive is not None  # noqa: S101  (it has begun)
        return self._alive

    def restored(self, alive: pa.Table) -> None:
        """Have instances that were there."""
        self._alive = alive
