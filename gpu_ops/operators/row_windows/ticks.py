"""The ticks of a step: the places at which the clock was moved, and what it showed then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_tables import StateTable
from gpu_ops.core.time import MAX_TIME
from gpu_ops.core.turns import ASK, CLOCK
from gpu_ops.devices import Device
from gpu_ops.operators.events import Events
from gpu_ops.operators.state.fields import NUMBERED_TIME, TIME, row_columns
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows, rows_from_arrow, shown_time
from gpu_ops.plan.window_kinds import UNKNOWN


@dataclass(frozen=True)
class Ticks:
    """The moves of the clock in a step, in order.

    Attributes:
        place: int64 places.
        clock: int64 ticks that the clock shows after each; it never goes back.
        device: Where they are.
    """

    place: Any
    clock: Any
    device: Device

    def __len__(self) -> int:
        return len(self.place)

    @property
    def last(self) -> int | None:
        """What the clock shows at the end; None if it was not moved."""
        return int(self.clock[-1]) if len(self) else None

    def parted(self, place: int) -> tuple[Ticks, Ticks]:
        """Those up to a place, and those behind it."""
        at = int(np.searchsorted(self.place, place, side="right"))
        sides = slice(0, at), slice(at, None)
        before, behind = (Ticks(self.place[side], self.clock[side], self.device) for side in sides)
        return before, behind

    def first_at(self, times: Any) -> Any:
        """int64: for each time the index of the first tick at or past it; how many ticks there are for none."""
        kernels = self.device.kernels
        if not len(self) or len(times) < 2 or not kernels.ascends(times):
            return np.searchsorted(self.clock, times).astype(np.int64, copy=False)
        # Where both ascend, this is a merge.
        group = np.zeros_like(times, shape=(max(len(self), len(times)),), dtype=np.int32)
        return kernels.search_pairs(group[: len(self)], self.clock, group[: len(times)], times - 1)

    def places_at(self, index: Any) -> Any:
        """int64: the places of some ticks; `UNKNOWN` past the last one."""
        return self._or_unknown(self.place, index)

    def clocks_at(self, index: Any) -> Any:
        """int64: what the clock shows at some ticks; `UNKNOWN` past the last one."""
        return self._or_unknown(self.clock, index)

    def _or_unknown(self, values: Any, index: Any) -> Any:
        if not len(self):
            return np.full_like(index, UNKNOWN)
        count = len(self)
        return np.where(index < count, self.device.kernels.take(values, np.minimum(index, count - 1)), UNKNOWN)


class TickQueue:
    """Ticks that wait for a CTI past their places.

    Args:
        device: Where arrays live.
    """

    def __init__(self, device: Device) -> None:
        self._device, self._runs = device, RowRuns(("low",), device)

    def __len__(self) -> int:
        return len(self._runs)

    def through(self, events: Events | None, cti: int) -> Ticks:
        """The ticks before a CTI, of those that waited and of new ones; asks for content move no clock."""
        device = self._device
        fresh = []
        if events is not None and len(events):
            asked, _ = device.columns.values(events.frame, ASK)
            clock, _ = device.columns.values(events.frame, CLOCK)
            place = events.start
            if bool(asked.any()):
                moves = device.kernels.keep(~asked.astype(np.bool_))
                place, clock = device.kernels.take(place, moves), device.kernels.take(clock, moves)
            fresh.append(AxisRows(np.zeros_like(place, dtype=np.int32), place, clock, {}))
        due = self._runs.through([rows for rows in fresh if len(rows)], cti if cti == MAX_TIME else cti - 1)
        if due is None:
            none = device.columns.array(np.zeros(0, np.int64))
            return Ticks(none, none, device)
        if not device.kernels.ascends(due.low):
            due = due.take(np.argsort(due.low, kind="stable"), device)
        return Ticks(due.low, due.high, device)

    def tables(self) -> dict[str, pa.Table]:
        """The ticks that wait, if there are any."""
        rows = self._runs.rows()
        return {} if rows is None else {"ticks": rows.to_arrow(pa.schema([]), self._device, shown_time)}

    def declared(self) -> Iterator[StateTable]:
        """The declaration of that table."""
        yield StateTable("ticks", row_columns(TIME, TIME, 1))

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """What `tables` gave."""
        if "ticks" in tables:
            self._runs.put_back(rows_from_arrow(tables["ticks"], self._device))


class AskQueue:
    """Questions for content that wait for a CTI past their places.

    Args:
        device: Where arrays live.
    """

    def __init__(self, device: Device) -> None:
        self._device, self._places = device, list[int]()

    def __len__(self) -> int:
        return len(self._places)

    def through(self, events: Events | None, cti: int) -> list[int]:
        """The places before a CTI at which content is asked for, by waiting ticks and new ones, in order."""
        if events is not None:
            asks = self._device.columns.values(events.frame, ASK)[0].astype(np.bool_)
            self._places += self._device.columns.host(events.start[asks]).tolist()
        now, self._places = ([each for each in sorted(self._places) if (each < cti) is due] for due in (True, False))
        return now

    def tables(self) -> dict[str, pa.Table]:
        """The places that wait, if there are any."""
        return {"asks": pa.table({"place": pa.array(self._places, pa.int64())})} if self._places else {}

    def declared(self) -> Iterator[StateTable]:
        """The declaration of that table."""
        yield StateTable("asks", {"place": NUMBERED_TIME})

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """What `tables` gave."""
        self._places = tables["asks"]["place"].to_pylist() if "asks" in tables else []
