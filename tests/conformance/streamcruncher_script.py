"""A script of StreamCruncher's vectors: when events come, and in which cycle a query takes them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tests.conformance.unsupported import UnsupportedError

Cycle = tuple[int, int]
"""The clock in milliseconds, and how many cycles ran at that instant before."""

_ENOUGH = 1 - 1e-9


@dataclass(frozen=True)
class Arrival:
    """An event that is sent.

    Attributes:
        number: Its number in the script.
        stream: Where it is sent.
        at: When, in milliseconds.
        event: Its properties; those that are not said are null.
    """

    number: int
    stream: str
    at: int
    event: Mapping[str, Any]


class Cycles:
    """All cycles of a query, in their order."""

    def __init__(self, cycles: Iterable[Cycle]) -> None:
        self.all = sorted(set(cycles))
        self.number = {cycle: number for number, cycle in enumerate(self.all)}

    def first(self, cycle: Cycle) -> int | None:
        """The number of the first one from this on; None if there is none."""
        number = bisect_left(self.all, cycle)
        return number if number < len(self.all) else None


class Script:
    """What happens, and the schedule of the query.

    Attributes:
        line: The vector.
        arrivals: The events of all streams, as they come.
    """

    def __init__(self, line: Mapping[str, Any]) -> None:
        self.line = line
        config = line.get("config") or {}
        unknown = set(config) - {"allowed_pending", "weights", "schedule", "cache_refresh_ms"}
        unknown |= {step["op"] for step in line["script"] if "op" in step} - {"pause", "resume", "table_insert"}
        if unknown:
            raise UnsupportedError(f"RQL: no setting or operation {min(unknown)!r}")
        self.pending: Mapping[str, int] = config.get("allowed_pending") or {}
        self._weights: Mapping[str, float] = config.get("weights") or {}
        schedule = config.get("schedule") or {}
        self._interval: int = schedule.get("interval_ms", 0) if schedule.get("policy") == "FIXED" else 0
        self._pauses = _pauses(line["script"])
        self.arrivals = [
            Arrival(number, step["send"], step["at_ms"], {name: step["event"].get(name) for name in fields})
            for number, step in enumerate(line["script"])
            if "send" in step
            for fields in [line["schema"][step["send"]]]
        ]

    @property
    def is_fixed(self) -> bool:
        """Whether cycles run at fixed times and at no other."""
        return self._interval > 0

    def runs(self, time: int) -> int:
        """When the first cycle can run that something at a time asks for."""
        for start, end in self._pauses:
            if start <= time < end:
                time = end
        return -(-time // self._interval) * self._interval if self._interval else time

    def follows(self, cycle: Cycle) -> Cycle:
        """The cycle that runs because one has left something."""
        return (self.runs(cycle[0] + 1), 0) if self._interval else (cycle[0], cycle[1] + 1)

    def taken(self, accepted: Iterable[Arrival], asked: Iterable[Cycle]) -> dict[int, Cycle]:
        """In which cycle each event is taken: when enough have come, or when a cycle runs anyway."""
        anyway = {time for time, _ in asked}
        waiting: dict[int, list[Arrival]] = {time: [] for time in anyway}
        for arrival in accepted:
            waiting.setdefault(self.runs(arrival.at), []).append(arrival)
        found: dict[int, Cycle] = {}
        unread: list[Arrival] = []
        for time, arrived in sorted(waiting.items()):
            unread += arrived
            weight = sum(self._weights.get(each.stream, 1.0) for each in unread)
            if time in anyway or weight >= _ENOUGH or self._interval:
                found |= {each.number: (time, 0) for each in unread}
                unread = []
        return found

    def all_cycles(self, asked: Iterable[Cycle]) -> Cycles:
        """The cycles that run where these are asked for."""
        cycles = set(asked)
        if self._interval and cycles:
            last = max(max(cycles)[0], self.line.get("horizon_ms") or 0)
            cycles |= {(time, 0) for time in range(self._interval, last + 1, self._interval)}
        return Cycles(cycles)

    def table(self, name: str) -> list[tuple[int, Sequence[Any]]]:
        """The rows of a table, and when each is put there."""
        first = self.line["tables"][name]
        rows = [(-1, row) for row in first["rows"]]
        for step in self.line["script"]:
            if step.get("op") == "table_insert" and step.get("table") == name:
                given = next((step[name] for name in ("rows", "row", "values") if name in step), None)
                if given is None:
                    raise UnsupportedError("RQL: no such insertion into a table")
                many = isinstance(given, list) and bool(given) and isinstance(given[0], list | dict)
                rows += [
                    (step["at_ms"], [row[column] for column in first["columns"]] if isinstance(row, dict) else row)
                    for row in (given if many else [given])
                ]
        return rows


def _pauses(script: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    found = [(step["op"], step["at_ms"]) for step in script if step.get("op") in {"pause", "resume"}]
    times = [next(group)[1] for _, group in groupby(found, key=lambda each: each[0])]
    return list(zip(times[::2], [*times[1::2], 1 << 60], strict=False))
