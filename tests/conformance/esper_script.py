"""A script of Esper's vectors as events in time: what comes in which step, and when its clock reaches an instant."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa

Moment = tuple[int, ...]
"""A step of the script, -1 for the deployment, and the clock then, in milliseconds. One delivery is made at each.

Where a statement inserts several events at once, a number says which of them it is.
"""


@dataclass(frozen=True)
class Arrival:
    """An event that is sent.

    Attributes:
        row: Its number among the events.
        at: When it comes.
        event: Its properties.
    """

    row: int
    at: Moment
    event: Mapping[str, Any]


@dataclass(frozen=True)
class Tick:
    """A turn of a clock.

    Attributes:
        time: What the clock says from then on.
        at: When it is turned.
        walks: Whether it passes every instant up to there by itself; else it jumps.
        resolution: At which of them it stops; 0 for wherever something is due.
    """

    time: int
    at: Moment
    walks: bool = False
    resolution: int = 0


class Clock:
    """A clock that is turned forward from time to time."""

    def __init__(self, ticks: Sequence[Tick]) -> None:
        self._ticks = list(ticks)
        self._times = list(accumulate((tick.time for tick in ticks), max))

    def reaches(self, time: int) -> Tick | None:
        """The turn at which the clock first says this or later; None for never."""
        at = bisect_left(self._times, time)
        if at == len(self._ticks):
            return None
        tick = self._ticks[at]
        if not tick.walks:
            return tick
        start = self._times[at - 1]
        stop = -(-(time - start) // tick.resolution) * tick.resolution + start if tick.resolution else time
        return Tick(min(stop, tick.time), (tick.at[0], min(stop, tick.time)))


class Script:
    """The steps of a vector.

    Attributes:
        clock: The engine's clock, for as long as a statement is there.
        steps: The clock after each step, from the first deployment on.
        deployed: What it says when the statement is deployed.
    """

    def __init__(self, line: Mapping[str, Any], since: int = -1, until: int | None = None) -> None:
        """The steps after one in which a statement is deployed, up to another in which it is taken away again."""
        self._line, self._since = line, since
        self._until = len(line["script"]) if until is None else until
        ticks: list[Tick] = []
        self.steps = [line["deploy_at_ms"]]
        for number, step in enumerate(line["script"]):
            now = self.steps[-1]
            if "advance_to_ms" in step:
                now = step["advance_to_ms"]
                ticks.append(Tick(now, (number, now)))
            elif "advance_span_to_ms" in step:
                now = step["advance_span_to_ms"]
                ticks.append(Tick(now, (number, now), walks=True, resolution=step.get("resolution_ms", 0)))
            self.steps.append(now)
        self.deployed: int = self.steps[since + 1]
        here = [tick for tick in ticks if since < tick.at[0] <= self._until]
        self.clock = Clock([Tick(self.deployed, (since, self.deployed)), *here])

    def holds(self, step: int) -> bool:
        """Whether the statement is there in a step."""
        return self._since <= step < self._until

    def arrivals(self, event_type: str) -> Iterator[Arrival]:
        """The events of a type; properties that are not said are null."""
        fields: Mapping[str, str] = self._line["schema"].get(event_type, {})
        row = 0
        for number, step in enumerate(self._line["script"]):
            if step.get("send") == event_type and self._since < number <= self._until:
                given = {name: _typed(step["event"].get(name), kind) for name, kind in fields.items()}
                yield Arrival(row, (number, self.steps[number + 1]), given)
                row += 1


def column(values: Sequence[Any]) -> pa.Array:
    """Values as a column of the one type that holds them all; nested ones by a number for each distinct value."""
    present = [each for each in values if each is not None]
    if any(isinstance(each, (list, dict)) for each in present):
        numbers: dict[str, int] = {}
        return pa.array([numbers.setdefault(repr(each), len(numbers)) for each in values], pa.int64())
    kinds = {type(each) for each in present}
    if kinds <= {int, float}:
        return pa.array(values, pa.float64() if float in kinds else pa.int64())
    return pa.array(values, pa.bool_() if kinds == {bool} else pa.string())


def instants(times: Sequence[int | None]) -> pa.Array:
    """Whole numbers as timestamps, a microsecond each."""
    return pa.array(times, pa.timestamp("us", "UTC"))


def _typed(given: Any, kind: Any) -> Any:
    if isinstance(given, dict) and "$num" in given:
        return float(given["$num"].replace("Infinity", "inf"))
    if isinstance(given, int) and not isinstance(given, bool) and kind in {"double", "float"}:
        return float(given)
    return given
