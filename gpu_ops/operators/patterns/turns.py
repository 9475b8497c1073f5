"""The turns of a step of a pattern: ticks and the events of its streams, by their places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_ops.devices.cpu.pattern_chains import merged_turns


@dataclass(frozen=True)
class PatternTurns:
    """Ticks and events, as `merged_turns` takes them: on the host.

    Attributes:
        ticks: The places of ticks.
        places: Those of the events of all streams.
        begins: Where those of each stream begin.
        bases: How many rows of each stream were there before.
        clocks: What the clock shows before the turns, and at each tick.
    """

    ticks: Any
    places: Any
    begins: Any
    bases: Any
    clocks: Any

    @classmethod
    def of(cls, ticks: Any, clocks: Any, places: Sequence[Any], counts: Sequence[int]) -> PatternTurns:
        """The turns of a step.

        Args:
            ticks: The places of ticks.
            clocks: As above.
            places: For each stream the places of its events.
            counts: How many rows of each there were before.
        """
        begins = np.cumsum([0, *map(len, places)]).astype(np.int64)
        some = [each for each in places if len(each)]
        flat = some[0] if len(some) == 1 else np.concatenate([np.zeros(0, np.int64), *some])
        return cls(ticks, np.ascontiguousarray(flat), begins, np.array(counts, np.int64), clocks)

    def __len__(self) -> int:
        return len(self.ticks) + len(self.places)

    def merged(self) -> Any:
        """All of them in their order, as `merged_turns` says."""
        return merged_turns(self.ticks, self.places, self.begins, self.bases)

    def places_of(self, turns: Any) -> Any:
        """int64: the places of some of these turns."""
        stream, row = turns[:, 0], turns[:, 1]
        every = np.concatenate([self.places, self.ticks])
        begins = np.append(self.begins[:-1] - self.bases, self.begins[-1])
        return every[begins[stream] + row]
