"""What a running plan over turns is given: rows at their places, ticks, and the step that takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import to_arrow
from gpu_ops.core.time import TICK, TIME_TYPE
from gpu_ops.core.turns import ASK, CLOCK, PLACE
from gpu_ops.devices import Device
from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.runtime.steps import RunningNode
from gpu_ops.plan.nodes import Feed, Node

TICKS = pa.schema([(CLOCK, TIME_TYPE), (ASK, pa.bool_())])
"""The columns of ticks."""


class LeafRows(Protocol):
    """The rows of a leaf in a step."""

    def given(self, names: Sequence[str], device: Device) -> StepInput:
        """They as what the leaf gives, with some of their columns."""

    def ahead(self, offset: int) -> LeafRows:
        """They as they come while the clock shows some ticks more."""


def _points(places: Any, table: pa.Table, device: Device) -> StepInput:
    return StepInput([Events(device.columns.array(places), TICK, device.columns.from_arrow(table))])


@dataclass(frozen=True)
class PlacedRows:
    """Rows at their places, in order.

    Attributes:
        places: int64 place of each.
        rows: Their columns.
        clocks: int64: what the clock shows as each comes, in ticks of time; None of rows that are no arrivals. It may
            be a function that gives it, called once if somebody reads it.
    """

    places: Any
    rows: pa.Table
    clocks: Any = None

    @cached_property
    def shown_clocks(self) -> Any:
        """What the clock shows as each comes."""
        return self.clocks() if callable(self.clocks) else self.clocks

    def ahead(self, offset: int) -> PlacedRows:
        """They as they come while the clock shows some ticks more."""
        return replace(self, clocks=lambda: self.shown_clocks + offset)

    def between(self, first: int, last: int) -> PlacedRows:
        """Some of them."""
        clocks = None if self.clocks is None else self.shown_clocks[first:last]
        return PlacedRows(self.places[first:last], self.rows.slice(first, last - first), clocks)

    def take(self, at: Any, names: Sequence[str]) -> PlacedRows:
        """Those at some indices, which ascend, with some of their columns."""
        rows = self.rows.select([name for name in names if name in self.rows.column_names])
        clocks = None if self.clocks is None else lambda: self.shown_clocks[at]
        if len(at) == len(self.places):
            return replace(self, rows=rows)
        return PlacedRows(self.places[at], rows.take(pa.array(at)), clocks)

    def given(self, names: Sequence[str], device: Device) -> StepInput:
        """They as points."""
        return _points(self.places, self.table(names), device)

    def table(self, names: Sequence[str]) -> pa.Table:
        """Some of their columns, with those of arrivals."""
        if self.clocks is None or not (CLOCK in names or PLACE in names):
            return self.rows.select(list(names))
        columns = []
        for name in names:
            if self.clocks is not None and name == CLOCK:
                columns.append(to_arrow(np.asarray(self.shown_clocks, np.int64), TIME_TYPE))
            elif self.clocks is not None and name == PLACE:
                columns.append(to_arrow(np.asarray(self.places, np.int64), pa.int64()))
            else:
                columns.append(self.rows[name])
        return pa.Table.from_arrays(columns, names=list(names))


@dataclass(frozen=True)
class TickRows:
    """Ticks.

    Attributes:
        made: Gives (int64 places, int64 clocks in ticks of time, whether each asks for content); it is called once, if
            somebody reads them.
    """

    made: Callable[[], tuple[Any, Any, Any]]

    @cached_property
    def _columns(self) -> tuple[Any, Any, Any]:
        return self.made()

    @property
    def places(self) -> Any:
        """int64 place of each."""
        return self._columns[0]

    @property
    def clocks(self) -> Any:
        """int64: what the clock shows behind each, in ticks of time."""
        return self._columns[1]

    def ahead(self, offset: int) -> TickRows:
        """They of a clock that shows some ticks more."""
        places, clocks, asks = self._columns
        return TickRows(lambda: (places, clocks + offset, asks))

    def given(self, names: Sequence[str], device: Device) -> StepInput:
        """They as points."""
        return _points(self.places, self.table(names), device)

    def table(self, names: Sequence[str]) -> pa.Table:
        """Some columns of the ticks."""
        _, clocks, asks = self._columns
        made = {
            CLOCK: to_arrow(np.asarray(clocks, np.int64), TIME_TYPE),
            ASK: to_arrow(np.asarray(asks, np.bool_), pa.bool_()),
        }
        return pa.Table.from_arrays([made[name] for name in names], names=list(names))

    def between(self, first: int, last: int) -> TickRows:
        """Some of them."""
        some = tuple(each[first:last] for each in self._columns)
        return TickRows(lambda: (some[0], some[1], some[2]))


def leaves_of(plan: Node) -> dict[Node, list[str]]:
    """The leaves of a plan, and which of their columns it reads."""
    wanted: dict[Node, set[str]] = {plan: {*plan.schema.names}}
    nodes = list(plan.walk())
    for node in reversed(nodes):
        # What a node keeps between steps has all columns of its inputs.
        read = node.needs(tuple(wanted[node])) if node.stateless else [each.schema.names for each in node.inputs]
        for below, names in zip(node.inputs, read, strict=True):
            wanted.setdefault(below, set()).update(names)
    leaves = [node for node in nodes if node.comes_in]
    return {node: [name for name in node.schema.names if name in wanted[node]] or [PLACE] for node in leaves}


def stepped_node(
    node: RunningNode,
    device: Device,
    reads: Mapping[Node, Sequence[str]],
    arrived: Mapping[Feed, LeafRows],
    ticks: tuple[Feed, TickRows | None],
    cti: int,
) -> StepInput:
    """What a running plan makes of the events and ticks of some turns.

    Args:
        node: Its last node.
        device: Where it computes.
        reads: Its leaves, and the columns that it reads of each.
        arrived: The rows of leaves.
        ticks: The leaf of ticks, and the ticks.
        cti: The place of the next turn.
    """
    moved, rows = ticks
    leaves: dict[Any, tuple[StepInput, int]] = {}
    placed = dict[Node, LeafRows](arrived.items())
    if rows is not None:
        placed[moved] = rows
    for feed, names in reads.items():
        given = StepInput()
        if feed in placed:
            given = placed[feed].given(names, device)
        leaves[feed, "whole"] = leaves[feed, "open"] = (given, cti)
    results, _ = node.step(leaves)
    node.rest()
    return results
