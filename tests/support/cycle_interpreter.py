"""StreamCruncher by brute force: a chain of partitions, cycle by cycle and row by row, over Python lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]

FUNCTIONS: Mapping[str, Callable[[Sequence[Any]], Any]] = {"sum": sum, "min": min, "max": max}


@dataclass(frozen=True)
class Part:
    """A partition.

    Attributes:
        kind: "last", "latest", "span", "highest" or "lowest".
        size: How many rows a window holds; None for any number.
        span: How many milliseconds a row stays.
        stamp: The column of rows' own times; None for when they came.
        column: Of which the highest or lowest are kept.
        update: The columns of an update group.
        by: The columns that it is by.
        functions: Its aggregates by their names, each a function and a column; "count" has none, and "known" counts the
            values that are not null.
        entrance: Those for which rows that leave still count.
        differences: Those of which differences are issued.
        pinned: Whether empty windows stay.
        takes: What rows of the partition before must have become.
        above: A column, and what its value must be above to come in; null is not.
        waiting: How many rows may wait for a full window.
    """

    kind: str
    size: int | None = None
    span: int = 0
    stamp: str | None = None
    column: str = "v"
    update: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    functions: tuple[tuple[str, str, str], ...] = ()
    entrance: frozenset[str] = frozenset()
    differences: frozenset[str] = frozenset()
    pinned: bool = False
    takes: str = "new"
    above: tuple[str, int] | None = None
    waiting: int | None = None


@dataclass
class Window:
    """The window of a key."""

    part: Part
    number: int
    rows: list[Row] = field(default_factory=list)
    waits: list[Row] = field(default_factory=list)
    came: list[Row] = field(default_factory=list)
    issued: Row | None = None
    values: dict[str, Any] = field(default_factory=dict)

    def due(self, row: Row) -> int:
        """When a row's time is up."""
        return int((row["@came"] if self.part.stamp is None else row[self.part.stamp]) + self.part.span)

    def run(self, now: int, arrived: Sequence[Row]) -> tuple[list[Row], list[Row]]:
        """A cycle: what is removed, and what is added."""
        part, size, buffered = self.part, self.part.size, len(self.waits)
        before, self.waits = list(self.rows), [*self.waits, *arrived]
        added: list[Row] = []
        if part.kind == "last":
            assert size is not None
            room = size - len(self.rows) or 1
            if part.waiting is not None and len(self.rows) + buffered - part.waiting - size > 1:
                room = min(size, buffered - part.waiting)
                self.waits = self.waits[max(0, buffered - part.waiting - size) :]
            added, self.waits = self.waits[:room], self.waits[room:]
            self.rows = [*self.rows, *added][-size:]
        elif part.kind == "latest":
            added, self.waits = self.waits[:size], self.waits[size:]
            self.rows = added
        elif part.kind == "span":
            self.rows = [row for row in self.rows if self.due(row) > now]
            count = len(self.waits) if size is None else size
            added, self.waits = self.waits[:count], self.waits[count:]
            old = sorted(self.rows, key=self.due)
            excess = 0 if size is None else max(0, len(old) + len(added) - size)
            self.rows = [*old[excess:], *added]
        else:
            good, self.waits = [row for row in self.waits if row[part.column] is not None], []
            groups = [[row[name] for name in part.update] for row in good]
            if part.update:
                self.rows = [row for row in self.rows if [row[name] for name in part.update] not in groups]
            self.rows += good
            sign = 1 if part.kind == "highest" else -1
            while len(self.rows) > (size or 0):
                values = [sign * row[part.column] for row in self.rows]
                del self.rows[values.index(min(values))]
            added = [row for row in good if any(row is other for other in self.rows)]
        return [row for row in before if not any(row is other for other in self.rows)], added

    def evaluated(self) -> dict[str, Any]:
        """The aggregates."""
        found: dict[str, Any] = {}
        for name, function, column in self.part.functions:
            rows = self.came if name in self.part.entrance else self.rows
            if function == "count":
                found[name] = len(rows)
            else:
                values = [row[column] for row in rows if row[column] is not None]
                found[name] = len(values) if function == "known" else FUNCTIONS[function](values) if values else None
        return found


class Stage:
    """A partition: a window for each key."""

    def __init__(self, part: Part) -> None:
        self.part, self.windows, self.made = part, dict[Any, Window](), 0

    def run(self, now: int, arrived: Sequence[Row]) -> dict[str, list[Row]]:
        """What a cycle makes "dead" and "new"."""
        part, above = self.part, self.part.above
        if above is not None:
            arrived = [row for row in arrived if row[above[0]] is not None and row[above[0]] > above[1]]
        came: dict[Any, list[Row]] = {}
        for row in arrived:
            key = tuple(row[name] for name in part.by)
            if key not in self.windows:
                self.windows[key] = Window(part, self.made)
                self.made += 1
            came.setdefault(key, []).append(row)
        found: dict[str, list[Row]] = {"dead": [], "new": []}
        for key, window in list(self.windows.items()):
            removed, added = window.run(now, came.get(key, []))
            if part.functions:
                removed, added = self._issued(now, key, window, removed, added)
            found["dead"] += removed
            found["new"] += added
            if not window.rows and not window.waits and not part.pinned:
                del self.windows[key]
        return {status: sorted(rows, key=lambda row: row["@place"]) for status, rows in found.items()}

    def _issued(
        self, now: int, key: tuple[Any, ...], window: Window, removed: list[Row], added: list[Row]
    ) -> tuple[list[Row], list[Row]]:
        """The same for the rows of aggregates: one is issued where a value has changed."""
        if not removed and not added:
            return [], []
        window.came += added
        before, made = window.issued, None
        if window.rows or self.part.pinned:
            found = window.evaluated()
            shown = {
                name: (value or 0) - (window.values.get(name) or 0) if name in self.part.differences else value
                for name, value in found.items()
            }
            window.values = found
            if before is not None and all(shown[name] is not None and shown[name] == before[name] for name in shown):
                return [], []
            made = {**dict(zip(self.part.by, key, strict=True)), **shown, "@came": now, "@place": window.number}
        window.issued = made
        return [row for row in [before] if row], [row for row in [made] if row]

    def ends(self) -> list[int]:
        """When the time of rows is up."""
        if self.part.kind != "span":
            return []
        return [window.due(row) for window in self.windows.values() for row in window.rows]

    def is_done(self, now: int) -> bool:
        """Whether nothing waits for a cycle, or came too late."""
        waits = any(window.waits for window in self.windows.values())
        return not waits and all(end > now for end in self.ends())


def run(
    parts: Sequence[Part], events: Sequence[tuple[int, Row]], every: int = 0, weight: float = 1.0
) -> Iterator[tuple[int, dict[str, list[Row]]]]:
    """The clock of each cycle and its rows by their status: "new", "old", "dead".

    Args:
        parts: The partitions.
        events: When each comes, and its columns, in their order.
        every: The distance of fixed times; 0 for a query that runs when it has to.
        weight: What an event weighs.
    """
    stages, shown = [Stage(part) for part in parts], list[Row]()
    above = parts[0].above
    coming = [
        (at, {**row, "@came": at, "@place": place})
        for place, (at, row) in enumerate(events)
        if above is None or (row[above[0]] is not None and row[above[0]] > above[1])
    ]

    def runs(time: int) -> int:
        return -(-time // every) * every if every else time

    times = {runs(at) for at, _ in coming}
    due: set[int] = set()
    while times | due:
        now = min(times | due)
        times.discard(now)
        if now not in due and not every and weight * sum(at <= now for at, _ in coming) < 1 - 1e-9:
            continue
        while True:
            arrived = [row for at, row in coming if at <= now]
            coming = [(at, row) for at, row in coming if at > now]
            found = stages[0].run(now, arrived)
            for stage in stages[1:]:
                found = stage.run(now, found[stage.part.takes])
            old = [row for row in shown if not any(row is other for other in found["dead"])]
            yield now, {**found, "old": old}
            shown = [*old, *found["new"]]
            if all(stage.is_done(now) for stage in stages):
                break
            if every:
                times.add(runs(now + 1))
                break
        # Rows that were pushed out ask for nothing any more.
        due = {runs(end) for stage in stages for end in stage.ends() if end > now}
        if every and times | due:
            times.add(now + every)


def together(
    chains: Mapping[str, Sequence[Part]], events: Sequence[tuple[int, str, Row]]
) -> Iterator[tuple[int, dict[str, dict[str, list[Row]]]]]:
    """The clock of each cycle of a query over several chains, and the rows of each by their status.

    Args:
        chains: The partitions by their names.
        events: When each comes, the partition that it comes to, and its columns.
    """
    stages = {name: [Stage(part) for part in parts] for name, parts in chains.items()}
    every = [stage for some in stages.values() for stage in some]
    coming = [(at, name, {**row, "@came": at, "@place": place}) for place, (at, name, row) in enumerate(events)]
    times, due = {at for at, _, _ in coming}, set[int]()
    shown: dict[str, list[Row]] = {name: [] for name in chains}
    while times | due:
        now = min(times | due)
        times.discard(now)
        while True:
            made = {}
            for name, some in stages.items():
                found = some[0].run(now, [row for at, of, row in coming if at <= now and of == name])
                for stage in some[1:]:
                    found = stage.run(now, found[stage.part.takes])
                old = [row for row in shown[name] if not any(row is other for other in found["dead"])]
                made[name] = {**found, "old": old}
                shown[name] = [*old, *found["new"]]
            coming = [each for each in coming if each[0] > now]
            yield now, made
            if all(stage.is_done(now) for stage in every):
                break
        due = {end for stage in every for end in stage.ends() if end > now}


def alerts(
    chains: Mapping[str, Sequence[Part]],
    events: Sequence[tuple[int, str, Row]],
    on: str,
    patterns: Sequence[Mapping[str, bool]],
) -> Iterator[tuple[int, int, dict[str, Row]]]:
    """(clock, number of the cycle, the rows by their partitions) of each time that a pattern fires.

    Args:
        chains: The partitions by their names.
        events: When each comes, the partition that it comes to, and its columns.
        on: The column whose values are compared.
        patterns: Which partitions have a row, and which have none.
    """
    there: dict[Any, dict[str, Row]] = {}
    states: dict[tuple[int, Any], str] = {}
    for number, (now, changes) in enumerate(together(chains, events)):
        moved = [row[on] for found in changes.values() for word in ("new", "dead") for row in found[word]]
        for value in {*moved} - {None}:
            here = there.setdefault(value, {})
            removed = {name for name in here if any(row[on] == value for row in changes[name]["dead"])}
            added = {name: row for name, found in changes.items() for row in found["new"] if row[on] == value}
            left = {name: row for name, row in here.items() if name not in removed}
            there[value] = {**left, **added}
            for at, pattern in enumerate(patterns):
                wanted = {name for name, is_there in pattern.items() if is_there}
                state = states.get((at, value), "waits")
                if state == "armed" and removed & wanted:
                    yield now, number, {name: here[name] for name in wanted}
                    state = "done"
                if not {*left} & {*pattern}:
                    state = "waits"
                whole = {*there[value]} & {*pattern} == wanted
                if state == "armed" and not whole:
                    state = "done"
                elif state == "waits" and {*added} & {*pattern} and whole:
                    state = "armed"
                    if wanted == {*pattern}:
                        yield now, number, {name: there[value][name] for name in wanted}
                        state = "done"
                states[at, value] = state
