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
from gpu_ops.operators.events import Events
from gpu_ops.operators.state.fields import NUMBERED_TIME

_FEW = 4
"""So many moves there are for each of few places."""


class Clocks:
    """The moves of the clock: the last one before a CTI, and those behind it.

    Args:
        device: Where arrays live.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        array = device.columns.array
        self._place, self._clock = array(np.array([MIN_TIME])), array(np.array([MIN_TIME]))

    def __len__(self) -> int:
        """How many moves wait for a CTI."""
        return len(self._place) - 1

    def take(self, ticks: Sequence[Events]) -> None:
        """Take ticks in; asks for content show the clock as it is."""
        some = [each for each in ticks if len(each)]
        if not some:
            return
        place = np.concatenate([self._place, *(each.start for each in some)])
        clocks = (self._device.columns.values(each.frame, CLOCK)[0] for each in some)
        clock = np.concatenate([self._clock, *clocks])
        if not self._device.kernels.ascends(place):
            order = np.argsort(place, kind="stable")
            place, clock = (self._device.kernels.take(each, order) for each in (place, clock))
        self._place, self._clock = place, clock

    def at(self, places: Any) -> Any:
        """int64: what the clock shows at some places, which ascend."""
        if _FEW * len(places) < len(self._place):
            # To merge them is dearer.
            moves = np.searchsorted(self._place, places, side="right")
            return self._device.kernels.take(self._clock, moves - 1)
        group = np.zeros_like(places, shape=max(len(self._place), len(places)), dtype=np.int32)
        count = len(self._place)
        moves = self._device.kernels.search_pairs(group[:count], self._place, group[: len(places)], places)
        return self._device.kernels.take(self._clock, moves - 1)

    def before(self, cti: int) -> int:
        """What it shows behind the last move before a CTI."""
        return int(self._clock[int(np.searchsorted(self._place, cti)) - 1])

    def forget(self, cti: int) -> None:
        """Nobody asks for places before a CTI any more."""
        last = len(self._place) - 1 if cti == MAX_TIME else int(np.searchsorted(self._place, cti)) - 1
        self._place, self._clock = self._place[last:], self._clock[last:]

    def tables(self) -> dict[str, pa.Table]:
        """The moves."""
        host = self._device.columns.host
        return {"clocks": pa.table({"place": pa.array(host(self._place)), "clock": pa.array(host(self._clock))})}

    def declared(self) -> Iterator[StateTable]:
        """The declaration of that table."""
        place = replace(NUMBERED_TIME, ascends=True)
        yield StateTable("clocks", {"place": place, "clock": NUMBERED_TIME}, required=True)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """What `tables` gave."""
        if not len(tables["clocks"]):
            return
        made = (self._device.columns.array(np.array(tables["clocks"][name].to_numpy())) for name in ("place", "clock"))
        self._place, self._clock = made
