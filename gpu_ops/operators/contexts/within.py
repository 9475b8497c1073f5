"""Rows within instances: events with the instances that are there as they come, and rows while theirs last."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_tables import Field, StateTable, Tables, counter
from gpu_ops.core.time import MAX_TIME, TICK, TIME_TYPE
from gpu_ops.core.turns import ASK, CLOCK, EMPTY, ENDED, HELD, INSTANCE, LEVEL, NEW, ORDER, PLACE, ROW, STEP
from gpu_ops.devices import Device
from gpu_ops.errors import PlanError
from gpu_ops.operators.contexts.alive import AliveInstances
from gpu_ops.operators.deliveries.rows import (
    kinds_of,
    numbered,
    numbers_of,
    of_kind,
    with_kind,
    with_order,
)
from gpu_ops.operators.events import Events
from gpu_ops.operators.joins import joins
from gpu_ops.operators.ledger.clocks import Clocks
from gpu_ops.operators.ledger.waiting import OnTicks, WaitingPoints
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.row_order import in_order, run_starts, stable_order
from gpu_ops.operators.state.row_runs import ordered
from gpu_ops.operators.state.rows import AxisRows
from gpu_ops.plan.contexts import InstanceAsks, InstanceContent, OfInstances, Within
from gpu_ops.plan.window_kinds import UNKNOWN

_NEVER = -1


class WithInstances(OnTicks, family=True):
    """An operator over points and the points of instances: both wait until the other has come to their places.

    Args:
        node: The node.
        device: Where arrays live.
        points: Which of its inputs has the points; the other one has the instances.
        read: The columns of instances that it keeps.
        number: The column with their numbers.

    Attributes:
        side: Which input has the instances.
        number: The column with their numbers.
        ended: How many instances have ended since somebody set it to 0.
    """

    def __init__(self, node: Any, device: Device, points: int, read: Sequence[str], number: str = INSTANCE) -> None:
        super().__init__(node, device)
        self._waiting = [WaitingPoints(f"waiting {at}", each.schema, device) for at, each in enumerate(node.inputs)]
        self._points, self.side = points, 1 - points
        schema = node.inputs[self.side].schema
        kept = pa.schema([schema.field(name) for name in read])
        self._alive = AliveInstances(kept, device, number)
        self.number, self.ended = number, 0

    @property
    def lasting(self) -> Any:
        """int64 numbers of the instances that are there, ascending."""
        return self._alive.ids

    @property
    def alive(self) -> int:
        """How many points and instances it keeps."""
        return self.waiting + len(self._alive)

    @property
    def waiting(self) -> int:
        """How many points wait for a CTI."""
        return sum(map(len, self._waiting))

    @property
    def parts(self) -> list[Any]:
        """What it keeps."""
        return [*self._waiting, self._alive]

    @property
    def in_runs(self) -> Sequence[Any]:
        """The instances."""
        return [self._alive]

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        if tables:
            super().restore(tables)


class OfPoints(WithInstances, family=True):
    """One that makes something of points as soon as the CTI has passed their places."""

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The rows before the CTI."""
        cti = min(ctis)
        found = [waits.before(cti, fed.events) for waits, fed in zip(self._waiting, given, strict=True)]
        self._alive.take(found[self.side])
        made = self._made(found[self._points], found[self.side], cti)
        self.ended += self._alive.forget()
        return StepInput([each for each in made if each is not None and len(each)]), cti

    @abstractmethod
    def _made(self, rows: Events | None, moved: Events | None, cti: int) -> list[Events | None]:
        """What becomes of points."""


class WithinOperator(OfPoints, nodes=(Within,)):
    """Each event with the instances that it is within.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: Within

    def __init__(self, node: Within, device: Device) -> None:
        super().__init__(node, device, 0, [name for name in node.read if name != ENDED], node.number)
        # The last level of a turn that had rows, and how many it had: a step may end within it.
        self._level, self._count = _NEVER, 0

    def _made(self, rows: Events | None, moved: Events | None, cti: int) -> list[Events | None]:
        if rows is None or not len(self._alive):
            return []
        device, alive, node = self._device, self._alive, self._node
        columns, kernels = device.columns, device.kernels
        event, instance = self._met(rows)
        if not len(event):
            return []
        place = kernels.take(rows.start, event)
        if not in_order([place, instance]):
            order = stable_order([place, instance], place, device)
            event, instance, place = (kernels.take(each, order) for each in (event, instance, place))
        names = [name for name in rows.frame.columns if name != PLACE]
        own = {PLACE: (self._placed(place), None, pa.int64())}
        own[node.number] = (kernels.take(alive.ids, instance), None, pa.int64())
        parts = [columns.take(columns.select(rows.frame, names), event)] if names else []
        parts.append(columns.build(own))
        carried = [name for name in node.carries if name in alive.frame.columns]
        if carried:
            parts.append(columns.take(columns.select(alive.frame, carried), instance))
        wanted = [name for name in node.schema.names if name in {*names, *own, *carried}]
        return [Events(place, TICK, columns.select(columns.beside(*parts), wanted))]

    def _met(self, rows: Events) -> tuple[Any, Any]:
        """(int64 event, int64 instance) of each pair of an event and an instance that it is within."""
        device, alive, kernels, columns = self._device, self._alive, self._device.kernels, self._device.columns
        codes, others, groups = self._codes(rows)
        if kernels.ascends(rows.start) and kernels.ascends(alive.begin):
            before = kernels.touched_rows(others, np.arange(len(alive), like=alive.begin), groups)[3]
            ended = kernels.take(alive.end, np.maximum(before, 0))
            if not bool(((before >= 0) & (ended > alive.begin)).any()):
                # Of each key one at a time: an event is within the last one that has started, or within none.
                last = kernels.last_by_place(codes, rows.start, others, alive.begin, groups)
                there = (last >= 0) & (kernels.take(alive.end, np.maximum(last, 0)) > rows.start)
                event = kernels.keep(there)
                return event, kernels.take(last, event)
        at = np.arange(len(rows), like=rows.start)
        left = AxisRows(codes, rows.start, rows.start + TICK, {}, columns.build({PLACE: (at, None, pa.int64())}))
        number = np.arange(len(alive), like=alive.ids)
        right = AxisRows(others, alive.begin, alive.end, {}, columns.build({PLACE: (number, None, pa.int64())}))
        left, right = (ordered(each, "low", device) for each in (left, right))
        pairs = list(joins.overlaps(left, right, device))
        if not pairs:
            return at[:0], at[:0]
        event = kernels.take(_numbers(left, device), np.concatenate([each.rows for each in pairs]))
        instance = kernels.take(_numbers(right, device), np.concatenate([each.others for each in pairs]))
        return event, instance

    def _codes(self, rows: Events) -> tuple[Any, Any, int]:
        """(int32 key of each event, of each instance, how many keys there are)."""
        columns, on = self._device.columns, self._node.on
        if not on:
            mine, others = (np.zeros_like(each, dtype=np.int32) for each in (rows.start, self._alive.ids))
            return mine, others, 1
        names = [mine for mine, _ in on]
        theirs = joins.right_keys(on, self._alive.frame, self._device)
        codes, groups, _ = columns.key_codes(columns.concat([columns.select(rows.frame, names), theirs]), names)
        return codes[: len(rows)], codes[len(rows) :], groups

    def _placed(self, place: Any) -> Any:
        """int64 number of each row: in its level of its turn, in order.

        Raises:
            PlanError: There are too many in one turn.
        """
        level = place // LEVEL
        count = numbered(level, device=self._device)
        same = level == self._level
        count = np.where(same, count + self._count, count)
        if int(count.max()) * STEP >= LEVEL:
            raise PlanError(
                f"In one turn more than {LEVEL // STEP:,} pairs of an event and an instance come.",
                remedy="Let fewer instances be there at a time.",
            )
        self._level, self._count = int(level[-1]), int(count[-1]) + 1
        made: Any = level * LEVEL + count * STEP
        return made

    def tables(self) -> dict[str, pa.Table]:
        """The points that wait, the instances, and the last number."""
        last = {"level": pa.array([self._level], pa.int64()), "count": pa.array([self._count], pa.int64())}
        return super().tables() | {"numbered": pa.table(last)}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from super().declared(tables)
        columns = {"level": Field(pa.int64(), least=_NEVER, most=MAX_TIME), "count": counter(LEVEL)}
        yield StateTable("numbered", columns, 1, required=True)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        super().restore(tables)
        if tables:
            self._level, self._count = (tables["numbered"][name][0].as_py() for name in ("level", "count"))


def _numbers(rows: AxisRows, device: Device) -> Any:
    return device.columns.values(rows.frame, PLACE)[0]


class OfInstancesOperator(OfPoints, nodes=(OfInstances,)):
    """Rows whose instances last, with their columns.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: OfInstances

    def __init__(self, node: OfInstances, device: Device) -> None:
        super().__init__(node, device, 0, [INSTANCE, *(name for name in node.carries if name != INSTANCE)])

    def _made(self, rows: Events | None, moved: Events | None, cti: int) -> list[Events | None]:
        ended = self._empty_at_ends() if self._node.ending else None
        if rows is None:
            return [ended]
        at, there, whole = self._found(rows)
        alive, take = self._alive, self._device.kernels.take
        if len(alive):
            end = take(alive.end, at)
            with_end = self._node.ending or self._node.in_time
            lasts = (rows.start <= end) if with_end else (rows.start < end)
            there = there & lasts & (rows.start >= take(alive.begin, at))
        return [self._carried(rows, at, there, self._device.kernels.keep(there | whole)), ended]

    def _found(self, rows: Events) -> tuple[Any, Any, Any]:
        """(int64 index of each row's instance, whether it is there, whether the row is said of all instances)."""
        ids, valid = self._device.columns.values(rows.frame, INSTANCE)
        at, there = self._alive.found(ids)
        return (at, there, there & False) if valid is None else (at, there & valid, ~valid)

    def _carried(self, rows: Events, at: Any, there: Any, keep: Any) -> Events:
        """Some rows with the columns of their instances."""
        columns, take, alive = self._device.columns, self._device.kernels.take, self._alive
        frame, start = columns.take(rows.frame, keep), take(rows.start, keep)
        carried = [name for name in self._node.carries if name in alive.frame.columns]
        parts = [columns.select(frame, [name for name in frame.columns if name not in carried])]
        if carried:
            known, some = take(there, keep), columns.select(alive.frame, carried)
            if len(alive):
                taken = columns.take(some, np.where(known, take(at, keep), 0))
                parts.append(taken if bool(known.all()) else columns.null_where(taken, known))
            else:
                parts.append(columns.nulls(some, len(keep)))
        whole = columns.beside(*parts) if len(parts) > 1 else parts[0]
        names = [name for name in self._node.schema.names if name in whole.columns]
        return Events(start, TICK, columns.select(whole, names))

    def _empty_at_ends(self, some: Any | None = None) -> Events | None:
        """Deliveries without rows where instances end: something is delivered there whatever is left of it.

        Args:
            some: Of which instances that is so; None for all.
        """
        is_over = self._alive.end < UNKNOWN
        ended = self._device.kernels.keep(is_over if some is None else is_over & some)
        if not len(ended):
            return None
        place = np.sort(self._device.kernels.take(self._alive.end, ended))
        return self._empty(place[run_starts(place)])

    def _empty(self, place: Any) -> Events:
        """Deliveries without rows."""
        columns, schema = self._device.columns, self._node.schema
        rest = [each for each in schema if each.name not in {ROW, ORDER}]
        own = columns.build({ORDER: (np.zeros_like(place), None, pa.int64())})
        none = columns.nulls(columns.from_arrow(empty_table(pa.schema(rest))), len(place))
        whole = columns.beside(none, own, of_kind(EMPTY, len(place), self._device))
        return Events(place, TICK, columns.select(whole, schema.names))


class InstanceContentOperator(OfInstancesOperator, nodes=(InstanceContent,)):
    """The content of instances where they end.

    Args:
        node: The node.
        device: Where arrays live.
    """

    def _made(self, rows: Events | None, moved: Events | None, cti: int) -> list[Events | None]:
        alive, kernels, device = self._alive, self._device.kernels, self._device
        ended = kernels.keep(alive.end < UNKNOWN)
        places = np.sort(kernels.take(alive.end, ended))
        made: list[Events | None] = [self._empty_at_ends()]
        if rows is not None and len(alive):
            at, there, _ = self._found(rows)
            end, begin = (kernels.take(each, at) for each in (alive.end, alive.begin))
            kinds = kinds_of(rows.frame, device)
            inside = np.minimum(np.searchsorted(places, rows.start), max(len(places) - 1, 0))
            at_end = kernels.take(places, inside) == rows.start if len(places) else there & False
            held = there & (kinds == HELD) & (rows.start >= begin)
            new = kernels.keep(held & at_end & (rows.start == end))
            if len(new):
                found = self._carried(rows, at, there, new)
                ids = kernels.take(at, new)
                order = stable_order([found.start, ids, numbers_of(found.frame, ORDER, device)], found.start, device)
                found = found.take(order, device)
                number = numbered(found.start, device=device)
                frame = with_order(with_kind(found.frame, NEW, device), number, device)
                made.append(Events(found.start, TICK, frame))
            keep = kernels.keep(held & ~at_end & (rows.start < end))
            made.append(self._carried(rows, at, there, keep))
        return made


class InstanceAsksOperator(OfPoints, nodes=(InstanceAsks,)):
    """A point for each instance where its content is asked for.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: InstanceAsks

    def __init__(self, node: InstanceAsks, device: Device) -> None:
        super().__init__(node, device, 1, [INSTANCE])
        self._clocks = Clocks(device)

    def _made(self, rows: Events | None, moved: Events | None, cti: int) -> list[Events | None]:
        columns, kernels, alive = self._device.columns, self._device.kernels, self._alive
        self._clocks.take([] if rows is None else [rows])
        made = []
        if self._node.at_asks and rows is not None and len(alive):
            asks = kernels.keep(columns.values(rows.frame, ASK)[0] != 0)
            for place in columns.host(kernels.take(rows.start, asks)).tolist():
                there = kernels.keep((alive.begin <= place) & (alive.end > place))
                made.append(self._asked(kernels.take(alive.ids, there), np.full_like(there, place), HELD))
        if self._node.at_ends and moved is not None:
            ended = kernels.keep(alive.end < cti) if cti < MAX_TIME else kernels.keep(alive.end <= MAX_TIME)
            ids, place = kernels.take(alive.ids, ended), kernels.take(alive.end, ended)
            order = np.argsort(place, kind="stable")
            made.append(self._asked(kernels.take(ids, order), kernels.take(place, order), NEW))
        self._clocks.forget(cti)
        return made

    def _asked(self, ids: Any, place: Any, kind: int) -> Events | None:
        if not len(ids):
            return None
        columns = self._device.columns
        order = numbered(place, device=self._device)
        own = {
            INSTANCE: (ids, None, pa.int64()),
            CLOCK: (self._clocks.at(place), None, TIME_TYPE),
            PLACE: (place, None, pa.int64()),
            ORDER: (order, None, pa.int64()),
        }
        frame = columns.beside(columns.build(own), of_kind(kind, len(ids), self._device))
        return Events(place, TICK, columns.select(frame, self._node.schema.names))

    @property
    def parts(self) -> list[Any]:
        """What it keeps."""
        return [*self._waiting, self._alive, self._clocks]
