"""What the clock shows at places, as far as anybody may ask yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_tables import StateTable
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.core.turns import CLOCK
from gpu_ops.devices import Device
from gpu_ops.operators.events import Events, TimeOrder
from gpu_ops.operators.state.fields import NUMBERED_TIME


class Clocks:
    """The moves of the clock: the last one before a CTI, and those behind it.

    Args:
        device: Where arrays live.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        none = device.columns.array(np.zeros(0, np.int64))
        self._place, self._clock = none, none
        # The last move before them: its place, and what the clock shows behind it.
        self._last = device.columns.array(np.array([MIN_TIME])), device.columns.array(np.array([MIN_TIME]))

    def __len__(self) -> int:
        """How many moves wait for a CTI."""
        return len(self._place)

    def take(self, ticks: Sequence[Events]) -> None:
        """Take ticks in; asks for content show the clock as it is."""
        some = [each for each in ticks if len(each)]
        if not some:
            return
        parts = [(each.start, self._device.columns.values(each.frame, CLOCK)[0]) for each in some]
        parts = [(self._place, self._clock), *parts] if len(self._place) else parts
        place, clock = parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True))
        known = len(parts) == 1 and some[0].order is TimeOrder.ASCENDS
        if not known and not self._device.kernels.ascends(place):
            order = np.argsort(place, kind="stable")
            place, clock = (self._device.kernels.take(each, order) for each in (place, clock))
        self._place, self._clock = place, clock

    def at(self, places: Any) -> Any:
        """int64: what the clock shows at some places, which ascend."""
        return self._device.kernels.clocks_at(places, self._place, self._clock, self._last[1])

    def before(self, cti: int) -> int:
        """What it shows behind the last move before a CTI."""
        upto = self._upto(cti)
        return int(self._clock[upto - 1] if upto else self._last[1][0])

    def forget(self, cti: int) -> None:
        """Nobody asks for places before a CTI any more."""
        upto = self._upto(cti)
        if upto:
            self._last = self._place[upto - 1 : upto], self._clock[upto - 1 : upto]
            self._place, self._clock = self._place[upto:], self._clock[upto:]

    def _upto(self, cti: int) -> int:
        """How many moves are before a CTI."""
        return len(self._place) if cti == MAX_TIME else int(np.searchsorted(self._place, cti))

    def tables(self) -> dict[str, pa.Table]:
        """The moves."""
        host, both = self._device.columns.host, (self._place, self._clock)
        place, clock = (np.concatenate([host(last), host(each)]) for last, each in zip(self._last, both, strict=True))
        return {"clocks": pa.table({"place": pa.array(place), "clock": pa.array(clock)})}

    def declared(self) -> Iterator[StateTable]:
        """The declaration of that table."""
        place = replace(NUMBERED_TIME, ascends=True)
        yield StateTable("clocks", {"place": place, "clock": NUMBERED_TIME}, required=True)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """What `tables` gave."""
        if not len(tables["clocks"]):
            return
        place, clock = (
            self._device.columns.array(np.array(tables["clocks"][name].to_numpy())) for name in ("place", "clock")
        )
        self._last, self._place, self._clock = (place[:1], clock[:1]), place[1:], clock[1:]
