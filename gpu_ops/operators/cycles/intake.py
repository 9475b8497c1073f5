"""Arrivals come into cycles, and cycles get their times and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.cycles import CYCLE_NUMBER, INSTANT, MS, Schedule
from gpu_ops.core.state_tables import StateTable, Tables, counter
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.core.turns import CLOCK
from gpu_ops.devices import Device
from gpu_ops.errors import TimeError
from gpu_ops.operators.events import Events, TimeOrder, extent_in
from gpu_ops.operators.ledger.clocks import Clocks
from gpu_ops.operators.ledger.waiting import OnTicks, WaitingPoints
from gpu_ops.operators.operator import BatchInput, Stateless, StepInput
from gpu_ops.operators.state.fields import NUMBERED_TIME
from gpu_ops.plan.cycles import BEAT, Beats, FixedBeats, Intake, NumberedCycles


def placed(clocks: Any, schedule: Schedule, order: TimeOrder, device: Device) -> Any:
    """int64: the places of the first cycles that can run at some times, in ticks.

    Args:
        clocks: The times.
        schedule: When the query may run.
        order: What is known of the times.
        device: Where they are.

    Raises:
        TimeError: One is too far from where places begin.
    """
    times = schedule.runs(clocks // MS)
    least, most = extent_in(times, order, device) if len(times) else (schedule.since,) * 2
    if least - schedule.since < MIN_TIME // INSTANT or most - schedule.since >= MAX_TIME // INSTANT - 1:
        raise TimeError(
            "Cycles run from thirty years before start= until 120 years behind it.",
            remedy="Give a start near the first event.",
        )
    return schedule.places(times)


class IntakeOperator(OnTicks, nodes=(Intake,)):
    """Each arrival by itself; the clock is as far as the oldest CTI.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: Intake

    def __init__(self, node: Intake, device: Device) -> None:
        super().__init__(node, device)
        self._clocks = Clocks(device) if node.ticks else None

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The arrivals at the places of their cycles."""
        rows, (first, *others) = given[0], ctis
        passed = min(ctis)
        if self._clocks is not None:
            self._clocks.take(given[1].events)
            cti = min(first, *others)
            passed = cti if cti == MAX_TIME else self._clocks.before(cti)
            self._clocks.forget(cti)
        else:
            passed = min(others)
        return StepInput([self._taken(each) for each in rows.events if len(each)]), self._place(passed)

    def _taken(self, events: Events) -> Events:
        # The clock never goes back from turn to turn.
        clocks = self._device.columns.values(events.frame, CLOCK)[0]
        places = placed(clocks, self._node.schedule, events.order, self._device)
        return Events(places, TICK, events.frame, order=events.order)

    def _place(self, clock: int) -> int:
        if clock in {MAX_TIME, MIN_TIME}:
            return clock
        schedule = self._node.schedule
        time = int(schedule.runs(np.array([clock // MS]))[0]) - schedule.since
        return min(max(time * INSTANT, MIN_TIME), MAX_TIME)

    @property
    def parts(self) -> list[Any]:
        """What it keeps."""
        return [] if self._clocks is None else [self._clocks]


class NumberedCyclesOperator(OnTicks, nodes=(NumberedCycles,)):
    """One search of the cycles for each row.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: NumberedCycles

    def __init__(self, node: NumberedCycles, device: Device) -> None:
        super().__init__(node, device)
        self._waiting = WaitingPoints("waiting", node.rows.schema, device)
        self._beats = WaitingPoints("beats", pa.schema([(BEAT, pa.int8())]), device)
        self._count = 0

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The rows before the older CTI."""
        cti, schedule = min(ctis), self._node.schedule
        beats = self._beats.due(cti, given[1].events)
        rows = self._waiting.before(cti, given[0].events)
        made = self._numbered(rows, [each.start for each in beats]) if beats else []
        passed = cti if cti in {MAX_TIME, MIN_TIME} else max(MIN_TIME, schedule.clocks(cti) * MS)
        return StepInput(made), passed

    def _numbered(self, rows: Events | None, beats: Sequence[Any]) -> list[Events]:
        """Rows with their times and numbers; and the cycles are counted.

        Args:
            rows: The rows.
            beats: The places of cycles.
        """
        node, device = self._node, self._device
        if rows is None:
            self._count += device.kernels.ranks_among(beats[0][:0], beats)[1]
            return []
        if node.until is not None:
            rows = rows.where(node.schedule.clocks(rows.start) <= node.until, device)
        if not rows.ascend(device):
            rows = rows.take(np.argsort(rows.start, kind="stable"), device)
        before = self._count
        number, count = device.kernels.ranks_among(rows.start, beats)
        self._count += count
        if before:
            number += before
        own = device.columns.build({CYCLE_NUMBER: (number, None, pa.int64())})
        times, frame = node.schedule.times(rows.start), device.columns.beside(own, rows.frame)
        return [Events(times, TICK, frame, order=TimeOrder.ASCENDS)]

    @property
    def parts(self) -> list[Any]:
        """What it keeps."""
        return [self._waiting, self._beats]

    def tables(self) -> dict[str, pa.Table]:
        """What waits, and how many cycles have run."""
        return super().tables() | {"cycles": pa.table({"count": pa.array([self._count])})}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from super().declared(tables)
        yield StateTable("cycles", {"count": counter(MAX_TIME)}, rows=1, required=True)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        super().restore(tables)
        self._count = tables["cycles"]["count"][0].as_py()


class BeatsOperator(Stateless, nodes=(Beats,)):
    """The places of all points: nothing is read of their rows.

    Args:
        node: The node.
        device: Where arrays live.
    """

    def __init__(self, node: Beats, device: Device) -> None:
        super().__init__(node, device)
        self._zeros = device.columns.array(np.zeros(0, np.int8))

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """Piece by piece, one input after the other."""
        for pieces in whole.inputs:
            yield from map(self._beats, pieces)

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The cycles of the points that came."""
        return StepInput([self._beats(each) for fed in given for each in fed.events if len(each)]), min(ctis)

    def _beats(self, points: Events) -> Events:
        columns = self._device.columns
        if len(self._zeros) < len(points):
            self._zeros = columns.array(np.zeros(2 * len(points), np.int8))
        return points.points(columns.build({BEAT: (self._zeros[: len(points)], None, pa.int8())}))


class FixedBeatsOperator(OnTicks, nodes=(FixedBeats,)):
    """All fixed times between the last cycle that was given and the last one that is known.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: FixedBeats

    def __init__(self, node: FixedBeats, device: Device) -> None:
        super().__init__(node, device)
        self._waiting = WaitingPoints("waiting", node.schema, device)
        self._next, self._last = MAX_TIME, MIN_TIME

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The cycles of which it is known that they run."""
        (cti,), schedule, device = ctis, self._node.schedule, self._device
        beats = self._waiting.before(cti, given[0].events)
        if beats is not None:
            first, last = device.kernels.extent(beats.start)
            self._next, self._last = min(self._next, first), max(self._last, last)
        last = self._last
        if self._node.until is not None:
            until = int(schedule.places(self._node.until // schedule.every * schedule.every))
            last = min(max(last, until), cti - 1)
        if self._next == MAX_TIME or last < self._next:
            return StepInput(), cti if cti == MAX_TIME else min(cti, self._next)
        distance = schedule.every * INSTANT
        place = np.arange(self._next, last + 1, distance)
        self._next = self._next + len(place) * distance
        columns = device.columns
        frame = columns.build({BEAT: (columns.array(np.zeros(len(place), np.int8)), None, pa.int8())})
        passed = cti if cti == MAX_TIME else min(cti, self._next)
        return StepInput([Events(columns.array(place), TICK, frame, order=TimeOrder.ASCENDS)]), passed

    @property
    def parts(self) -> list[Any]:
        """What it keeps."""
        return [self._waiting]

    def tables(self) -> dict[str, pa.Table]:
        """What waits, and the next cycle."""
        own = pa.table({"next": pa.array([self._next]), "last": pa.array([self._last])})
        return super().tables() | {"fixed": own}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from super().declared(tables)
        yield StateTable("fixed", {"next": NUMBERED_TIME, "last": NUMBERED_TIME}, rows=1, required=True)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        super().restore(tables)
        self._next, self._last = (tables["fixed"][name][0].as_py() for name in ("next", "last"))
