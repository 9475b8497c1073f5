"""Aggregates of partitions become rows that are issued where values change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.cycles import WINDOW
from gpu_ops.core.state_tables import MANY, Field, StateTable, Tables
from gpu_ops.core.time import MAX_TIME, TICK, TIME_TYPE
from gpu_ops.core.turns import CLOCK, PLACE
from gpu_ops.core.types import storage
from gpu_ops.devices import Device
from gpu_ops.operators.events import Events
from gpu_ops.operators.ledger.waiting import OnTicks, WaitingPoints
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.state.fields import NUMBERED_TIME, nullable_columns
from gpu_ops.plan.cycles import HELD, Issued

_BEFORE = "before/"
"""Of a column whose differences are issued the value itself."""


@dataclass(frozen=True)
class _Evaluated:
    """Values of windows, by place; in front the last rows of some of them that an earlier step had.

    Attributes:
        window: Host int64 number of each row's window.
        place: Host int64 place; of rows of an earlier step that at which their values were issued.
        known: Which rows are of an earlier step.
        held: How many rows the window has.
        frame: Keys and values; and beside them the values of which others are the differences.
    """

    window: Any
    place: Any
    known: Any
    held: Any
    frame: Any

    def take(self, at: Any, device: Device) -> _Evaluated:
        """Some of them."""
        if len(at) == len(self.window) and bool((at == np.arange(len(at))).all()):
            return self
        frame = device.columns.take(self.frame, device.columns.array(at))
        return _Evaluated(self.window[at], self.place[at], self.known[at], self.held[at], frame)


class IssuedOperator(OnTicks, nodes=(Issued,)):
    """All windows of a step at once: each row is compared with the one before it.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: Issued

    def __init__(self, node: Issued, device: Device) -> None:
        super().__init__(node, device)
        schema = node.rows.schema
        self._waiting = WaitingPoints("waiting", schema, device)
        self._payload = pa.schema([schema.field(name) for name in (*node.by, *node.values)])
        self._befores = pa.schema([schema.field(name).with_name(_BEFORE + name) for name, _ in node.differences])
        self._last: _Evaluated | None = None
        self._opens = False

    gives_open = True

    def open(self) -> None:
        """Emit rows as soon as they are issued, and again when they are superseded."""
        self._opens = True

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The rows that were issued and superseded before the CTI."""
        (cti,), device = ctis, self._device
        fresh = self._waiting.before(cti, given[0].events)
        made = StepInput()
        if fresh is not None:
            made = self._compared(self._evaluated(fresh))
        last = self._last
        if cti == MAX_TIME and last is not None and not self._opens:
            # Nothing supersedes them any more.
            end = np.full_like(last.place, MAX_TIME)
            made = StepInput([*made.events, self._rows(last, device.columns.array(end))])
        if cti == MAX_TIME:
            self._last = None
        floor = None if self._opens or last is None or not len(last.place) else int(last.place.min())
        return made, cti if floor is None or cti == MAX_TIME else min(cti, floor)

    def _evaluated(self, fresh: Events) -> _Evaluated:
        """The rows of the step behind the last ones of their windows."""
        device, columns, last = self._device, self._device.columns, self._last
        host, names = columns.host, self._payload.names
        if not device.kernels.ascends(fresh.start):
            fresh = fresh.take(np.argsort(fresh.start, kind="stable"), device)
        window = host(columns.values(fresh.frame, WINDOW)[0])
        held, valid = columns.values(fresh.frame, HELD)
        held = host(held) if valid is None else np.where(host(valid), host(held), 0)
        place, frame = host(fresh.start), columns.select(fresh.frame, names)
        for name in self._befores.names:
            own = columns.rename(columns.select(fresh.frame, [name[len(_BEFORE) :]]), name[len(_BEFORE) :], name)
            frame = columns.beside(frame, own)
        known = np.zeros(len(window), np.bool_)
        if last is not None:
            # Only windows that are concerned are looked at.
            concerned = np.isin(last.window, window)
            self._last = last.take(np.flatnonzero(~concerned), device) if not concerned.all() else None
            mine = last if concerned.all() else last.take(np.flatnonzero(concerned), device)
            if len(mine.window):
                window, place = np.concatenate([mine.window, window]), np.concatenate([mine.place, place])
                held, known = np.concatenate([mine.held, held]), np.concatenate([mine.known, known])
                frame = columns.concat([mine.frame, frame])
        return _Evaluated(window, place, known, held, frame)

    def _compared(self, rows: _Evaluated) -> StepInput:
        """The rows that are issued, and where rows are superseded."""
        device, codes = self._device, _numbered(rows.window)
        before = self._before(codes)
        frame = self._differing(rows.frame, before, rows.known)
        changed = before < 0
        for name in self._node.values:
            changed = changed | self._differs(frame, name, before)
        there = (rows.held > 0) | self._node.pinned
        rows = replace(rows, frame=frame)
        # Rows stay until the next one of their window is issued, or the window is dropped.
        moves = np.flatnonzero((changed & ~rows.known) | rows.known | ~there)
        earlier = self._before(codes[moves])
        ends = np.full(len(moves), MAX_TIME)
        ends[earlier[earlier >= 0]] = rows.place[moves[earlier >= 0]]
        self._remember(rows, before, there, codes, moves)
        shown = np.flatnonzero(there[moves])
        shown, out = moves[shown], ends[shown]
        over, known, array = out != MAX_TIME, rows.known[shown], device.columns.array

        def some(which: Any, until: Any) -> list[Events]:
            return [self._rows(rows.take(shown[which], device), until)] if which.any() else []

        if not self._opens:
            return StepInput(some(over, array(out[over])))
        begins = ~known
        return StepInput(
            some(over & begins, array(out[over & begins])),
            some(~over & begins, TICK),
            some(over & known, array(out[over & known])),
        )

    def _before(self, codes: Any) -> Any:
        """Host int64 row of the same window before each; -1 for none."""
        device = self._device
        if not len(codes):
            return codes.astype(np.int64)
        array, count = device.columns.array, int(codes.max()) + 1
        found = device.kernels.touched_rows(array(codes), array(np.arange(len(codes))), count)
        return device.columns.host(found[3])

    def _remember(self, rows: _Evaluated, before: Any, there: Any, codes: Any, moves: Any) -> None:
        """Keep the last row of each window, with the place at which its values were issued."""
        device = self._device
        final = there.copy()
        final[before[before >= 0]] = False
        at = np.flatnonzero(final)
        issued = np.zeros(int(codes.max()) + 1, np.int64)
        issued[codes[moves]] = rows.place[moves]  # of several the last one
        kept = rows.take(at, device)
        kept = replace(kept, place=issued[codes[at]], known=np.ones(len(at), np.bool_))
        if self._last is None:
            self._last = kept
        elif len(at):
            last = self._last
            self._last = _Evaluated(
                np.concatenate([last.window, kept.window]),
                np.concatenate([last.place, kept.place]),
                np.concatenate([last.known, kept.known]),
                np.concatenate([last.held, kept.held]),
                device.columns.concat([last.frame, kept.frame]),
            )

    def _differing(self, frame: Any, earlier: Any, known: Any) -> Any:
        """The frame with the differences of values from those before, for which null is 0."""
        columns = self._device.columns
        for name, baseline in self._node.differences:
            values, valid = columns.values(frame, _BEFORE + name)
            now = columns.host(values) if valid is None else np.where(columns.host(valid), columns.host(values), 0)
            before = np.where(earlier < 0, np.zeros_like(now), now[earlier])
            if baseline is not None:
                before = np.full_like(now, baseline)
            issued, there = columns.values(frame, name)
            kept = columns.host(issued) if there is None else np.where(columns.host(there), columns.host(issued), 0)
            made = np.where(known, kept, now - before)
            others = columns.select(frame, [each for each in frame.columns if each != name])
            own = columns.build({name: (columns.array(made), None, self._payload.field(name).type)})
            frame = columns.beside(others, own)
        return frame

    def _differs(self, frame: Any, name: str, before: Any) -> Any:
        """Which rows have another value than the row before of their window; null is another one each time."""
        columns, dtype = self._device.columns, storage(self._payload.field(name).type)
        if pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_temporal(dtype):
            values, valid = columns.values(frame, name)
        else:
            values, _, _ = columns.key_codes(frame, [name])
            valid = columns.validity(frame, name)
        values = columns.host(values)
        differs = values != values[before]
        if valid is not None:
            null = ~columns.host(valid)
            differs = differs | null | null[before]
        return differs

    def _rows(self, rows: _Evaluated, ends: Any) -> Events:
        columns = self._device.columns
        clock = columns.array(self._node.schedule.times(rows.place))
        own = columns.build({CLOCK: (clock, None, TIME_TYPE), PLACE: (columns.array(rows.window), None, pa.int64())})
        frame = columns.select(rows.frame, self._payload.names)
        return Events(columns.array(rows.place), ends, columns.beside(frame, own))

    # State

    @property
    def parts(self) -> list[Any]:
        """What waits."""
        return [self._waiting]

    @property
    def alive(self) -> int:
        """How many rows it keeps."""
        return self.waiting + (0 if self._last is None else len(self._last.window))

    def tables(self) -> dict[str, pa.Table]:
        """What waits, and the last values of each window."""
        made, last = super().tables(), self._last
        if last is not None:
            rows = self._device.columns.to_arrow(last.frame, pa.schema([*self._payload, *self._befores]))
            own = {"window": pa.array(last.window), "issued": pa.array(last.place), "held": pa.array(last.held)}
            made["last"] = pa.table({**own, **{f"row/{name}": rows[name] for name in rows.column_names}})
        return made

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from super().declared(tables)
        count = Field(pa.int64(), least=0, most=MANY)
        rows = nullable_columns(pa.schema([*self._payload, *self._befores]), "row/")
        yield StateTable("last", {"window": count, "issued": NUMBERED_TIME, "held": count, **rows}, unique=("window",))

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        super().restore(tables)
        if "last" not in tables:
            return
        table = tables["last"]
        names = [name for name in table.column_names if name.startswith("row/")]
        rows = table.select(names).rename_columns([name.removeprefix("row/") for name in names])
        window, place, held = (table[name].to_numpy().copy() for name in ("window", "issued", "held"))
        known = np.ones(len(window), np.bool_)
        self._last = _Evaluated(window, place, known, held, self._device.columns.from_arrow(rows))


def _numbered(windows: Any) -> Any:
    """int32 numbers of windows: small ones for few windows."""
    least = int(windows.min())
    if int(windows.max()) - least < 4 * len(windows) + 1024:
        return (windows - least).astype(np.int32)
    return np.unique(windows, return_inverse=True)[1].astype(np.int32)
