"""StreamCruncher by brute force: a partition, or a pattern of an alert, cycle by cycle, over Python lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Row = Mapping[str, Any]
Values = tuple[Any, ...]

FUNCTIONS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "sum": lambda values: float(sum(values)),
    "avg": lambda values: float(Fraction(sum(values), len(values))),
    "min": min,
    "max": max,
}


@dataclass(frozen=True)
class Kind:
    """A window: its kind, how many rows it holds, how long they stay, and its aggregates."""

    name: str
    size: int | None = None
    span: int | None = None
    update: bool = False
    functions: Sequence[str] = ()
    column: str = "v"
    by_key: bool = False
    pinned: bool = False
    entrance_only: bool = False


@dataclass
class Window:
    """The window of a key."""

    kind: Kind
    rows: list[Row] = field(default_factory=list)
    waiting: list[Row] = field(default_factory=list)
    came: list[Row] = field(default_factory=list)
    issued: Row | None = None

    def run(self, now: int, arrived: Sequence[Row]) -> tuple[list[Row], list[Row]]:
        """A cycle: what is removed, and what is added."""
        before, self.waiting = list(self.rows), [*self.waiting, *arrived]
        added: list[Row] = []
        size = self.kind.size
        match self.kind.name:
            case "sliding":
                assert size
                room = size - len(self.rows) or 1
                added, self.waiting = self.waiting[:room], self.waiting[room:]
                self.rows = [*self.rows, *added][-size:]
            case "tumbling":
                added, self.waiting = self.waiting[:size], self.waiting[size:]
                self.rows = added
            case "time":
                self.rows = [row for row in self.rows if now - row["ts"] < (self.kind.span or 0)]
                added, self.waiting = self.waiting[:size], self.waiting[len(self.waiting) if size is None else size :]
                old = sorted(self.rows, key=lambda row: row["ts"])
                excess = max(0, len(old) + len(added) - size) if size is not None else 0
                self.rows = [*old[excess:], *added]
            case "highest" | "lowest":
                good, self.waiting = [row for row in self.waiting if row[self.kind.column] is not None], []
                if self.kind.update:
                    self.rows = [row for row in self.rows if all(row["g"] != other["g"] for other in good)]
                self.rows += good
                sign = 1 if self.kind.name == "highest" else -1
                while len(self.rows) > (size or 0):
                    self.rows.remove(min(self.rows, key=lambda row: (sign * row[self.kind.column], row["id"])))
                added = [row for row in good if row in self.rows]
        removed = [row for row in before if row not in self.rows]
        return removed, added

    def values(self) -> Values | None:
        """The aggregates; None when the window is to be dropped."""
        if not self.rows and not self.kind.pinned:
            return None
        values = [row["v"] for row in self.rows if row["v"] is not None]
        found = [FUNCTIONS[name](values) if values else None for name in self.kind.functions]
        return (len(self.came if self.kind.entrance_only else self.rows), *found)


class Stage:
    """A partition: a window for each key."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.windows: dict[Any, Window] = {}
        self._issues = 0

    def run(self, now: int, arrived: Sequence[Row]) -> dict[str, list[Row]]:
        """What a cycle makes "dead" and "new"."""
        for row in arrived:
            self.windows.setdefault(row["k"] if self.kind.by_key else None, Window(self.kind))
        found: dict[str, list[Row]] = {"dead": [], "new": []}
        for key, window in list(self.windows.items()):
            removed, added = window.run(now, [row for row in arrived if not self.kind.by_key or row["k"] == key])
            if self.kind.functions:
                removed, added = self._issued(now, key, window, removed, added)
            found["dead"] += removed
            found["new"] += added
            if not window.rows and not window.waiting and not self.kind.pinned:
                del self.windows[key]
        return found

    def _issued(
        self, now: int, key: Any, window: Window, removed: list[Row], added: list[Row]
    ) -> tuple[list[Row], list[Row]]:
        """The same for the rows of aggregates: one is issued when a value changed."""
        if not removed and not added:
            return [], []
        window.came += added
        values, before = window.values(), window.issued
        if values is not None and None not in values and before is not None:
            issued = tuple(before[f"a{at}"] for at in range(len(values)))
            if values == issued:
                return [], []
        window.issued = None
        if values is not None:
            self._issues += 1
            window.issued = {"k": key, "id": self._issues, "ts": now, **{f"a{at}": v for at, v in enumerate(values)}}
        return [row for row in [before] if row], [row for row in [window.issued] if row]

    def ends(self) -> list[int]:
        """When rows expire."""
        if self.kind.span is None:
            return []
        return [row["ts"] + self.kind.span for window in self.windows.values() for row in window.rows]

    def is_done(self, now: int) -> bool:
        """Whether nothing waits for a cycle, or came too late."""
        waits = any(window.waiting for window in self.windows.values())
        return not waits and all(end > now for end in self.ends())


def cycles(
    kinds: Sequence[Kind],
    events: Sequence[tuple[int, Row]],
    state: str = "new",
    passes: Callable[[Row], bool] = lambda _: True,
) -> Iterator[tuple[int, dict[str, list[Row]]]]:
    """The rows of each cycle by their state: "new", "old", "dead". One of these goes on to the next partition.

    A row that was expelled before its time was up makes no cycle run then.
    """
    stages = [Stage(kind) for kind in kinds]
    coming, shown = list(events), list[Row]()
    times = {at for at, _ in events}
    while times:
        now = min(times)
        times = {at for at, _ in events if at > now}
        while True:
            arrived = [row for at, row in coming if at <= now]
            coming = [(at, row) for at, row in coming if at > now]
            found = stages[0].run(now, arrived)
            for stage in stages[1:]:
                found = stage.run(now, [row for row in found[state] if passes(row)])
            old = [row for row in shown if row not in found["dead"]]
            yield now, {**found, "old": old}
            shown = [*old, *found["new"]]
            if all(stage.is_done(now) for stage in stages):
                break
        times |= {end for stage in stages for end in stage.ends() if end > now}


@dataclass(frozen=True)
class Life:
    """A row of a stream, and its cycles."""

    row: int
    stream: str
    value: int
    start: int
    end: int


def fires(pattern: Mapping[str, bool], lives: Sequence[Life]) -> list[tuple[int, dict[str, int]]]:
    """The cycle of each time that a pattern fires, and the rows that it is about."""
    wanted = {name for name, is_there in pattern.items() if is_there}
    found = []
    for value in sorted({life.value for life in lives}):
        own = [life for life in lives if life.value == value and life.stream in pattern]
        there: dict[str, int] = {}
        state = "waits"
        for now in range(max((life.end for life in own), default=0) + 1):
            removed = {life.stream for life in own if life.end == now} & set(there)
            added = {life.stream: life.row for life in own if life.start == now}
            if state == "armed" and removed & wanted:
                found.append((now, {name: there[name] for name in wanted}))
                state = "done"
            there = {name: row for name, row in there.items() if name not in removed}
            if not there:
                state = "waits"
            there |= added
            if state == "armed" and set(there) != wanted:
                state = "done"
            elif state == "waits" and added and set(there) == wanted:
                state = "armed"
                if wanted == set(pattern):
                    found.append((now, dict(there)))
                    state = "done"
    return found
