"""What an output rate outputs, one turn and one row after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpu_ops.core.turns import CLOCK, DUE, EMPTY, ENTERED, HELD, LEFT, MARK, NEW, OLD, ORDER, ROW
from gpu_ops.plan.rates import AtTimes, EveryPeriod, EveryRows, OutputRate
from tests.support.firing_reference import Firing, later

Row = dict[str, Any]


class Output:
    """An output rate as it runs.

    Args:
        node: What it is.
        condition: As in `Firing`.
    """

    def __init__(self, node: OutputRate, condition: Callable[..., bool] | None = None) -> None:
        self.node = node
        self.first = node.selection == "first" and node.rate.every is not None
        self.firing = Firing(node.rate, self.first, condition)
        self.out = list[Row]()
        self.rows = list[Row]()
        self.current: Row | None = None
        self.groups = dict[Any, Row]()  # in the order in which they changed last
        self.shown = dict[Any, Any]()
        self.had = False

    def run(self, deliveries: Sequence[Row], ticks: Sequence[Row]) -> list[Row]:
        """All output, in order of place, kind and number."""
        for place in sorted({row["place"] for row in (*deliveries, *ticks)}):
            here = [row for row in deliveries if row["place"] == place]
            self.out += [row for row in here if row[ROW] == HELD]
            clock = next((row[CLOCK] for row in ticks if row["place"] == place), None)
            due = None if clock is None else self.firing.tick(clock)
            dues = [row[DUE] for row in here if row.get(DUE) is not None]
            late = due is not None and bool(dues) and min(dues) > due
            if late:
                self.fire(place)
            self.deliver(place, here)
            if due is not None and not late:
                self.fire(place)
        return sorted(self.out, key=lambda row: (row["place"], row[ROW], row[ORDER]))

    def passes(self, row: Row) -> bool:
        """Whether `having` holds."""
        return self.node.passes is None or bool(row[self.node.passes])

    def key(self, row: Row) -> Any:
        """The group of a row."""
        return tuple(row[name] for name in self.node.group)

    def post(self, place: int, kind: int, rows: Sequence[Row]) -> None:
        """Output of some rows of the insert or the remove stream."""
        if kind in self.node.shows:
            self.out += [{**row, "place": place, ROW: kind, ORDER: at} for at, row in enumerate(rows)]

    def deliver(self, place: int, here: Sequence[Row]) -> None:
        """The rows and the mark of a delivery."""
        rows = [row for kind in (NEW, OLD) for row in sorted(here, key=lambda row: row[ORDER]) if row[ROW] == kind]
        shown = [row for row in rows if self.passes(row) and row[ROW] in self.node.shows]
        marks = [(row[ENTERED], row[LEFT]) for row in here if row[ROW] == MARK]
        if self.node.rate.every is None:
            entered = sum(row[ROW] == NEW and self.passes(row) for row in rows)
            if (entered and self.firing.passes(entered)) or self.firing.after_holds:
                self.at_once(place, shown)
            return
        (entered, left) = marks[0] if marks else (0, 0)
        counts = entered + left > 0
        after = self.firing.after_holds if not counts else self.firing.passes(entered)
        if self.first:
            if not after:
                return
            if self.node.group:
                self.of_groups(place, rows)
            elif shown and not self.had:
                self.had = True
                self.at_once(place, shown)
        elif after or self.node.kind != "un-aggregated" or (self.node.selection and not self.node.waits):
            self.rows += rows
        if counts and after and self.firing.deliver(entered, left, shown=bool(shown)):
            self.fire(place)

    def at_once(self, place: int, rows: Sequence[Row]) -> None:
        """Rows are shown at their own place."""
        for kind in (NEW, OLD):
            self.post(place, kind, [row for row in rows if row[ROW] == kind])

    def of_groups(self, place: int, rows: Sequence[Row]) -> None:
        """The first rows of each group."""
        per_group = self.node.kind == "row per group"
        new = [row for row in rows if self.passes(row) and (row[ROW] == NEW or not per_group) and self.is_free(row)]
        if not per_group:  # of those of a group the last one
            new = in_order(new, last(new, self.key))
        self.post(place, NEW, new)
        if per_group:
            keys = {self.key(row) for row in new}
            old = [row for row in rows if row[ROW] == OLD and self.passes(row) and self.key(row) in keys]
            old = new if self.node.judged else old
            self.post(place, OLD, old)

    def is_free(self, row: Row) -> bool:
        """Whether an interval of a row's group begins with it."""
        key, every, clock = self.key(row), self.node.rate.every, self.firing.clock
        if isinstance(every, EveryRows):
            units = [(1, 0)] if row[ROW] == NEW else [(0, 1)]
            if self.node.kind == "row per group" and row[ENTERED] is not None:
                units = [(1, 0)] * row[ENTERED] + [(0, 1)] * row[LEFT]
            is_free = False
            for entered, left in units:
                before = self.shown.get(key)
                now = None if before is None else (before[0] + entered, before[1] + left)
                fires = now is None or max(now) >= every.rows
                self.shown[key] = (0, 0) if fires else now
                is_free = is_free or fires
            return is_free
        if key in self.shown and clock < self.shown[key]:
            return False
        if isinstance(every, EveryPeriod):
            self.shown[key] = later(every.period, clock)
        else:
            assert isinstance(every, AtTimes)
            self.shown[key] = every.crontab.next_after(clock)
        return True

    def fire(self, place: int) -> None:
        """The rate fires."""
        self.had = False
        if self.first:
            return
        before = len(self.out)
        new, old = self.selected()
        self.post(place, NEW, [row for row in new if self.passes(row)])
        self.post(place, OLD, [row for row in old if self.passes(row)])
        if len(self.out) == before and not isinstance(self.node.rate.every, EveryRows):
            self.out.append({"place": place, ROW: EMPTY, ORDER: 0})
        self.rows = []

    def selected(self) -> tuple[list[Row], list[Row]]:
        """New and old rows; those that do not pass may be among them."""
        node = self.node
        new, old = ([row for row in self.rows if row[ROW] == kind] for kind in (NEW, OLD))
        passing_new, passing_old = ([row for row in rows if self.passes(row)] for rows in (new, old))
        if node.kind == "row for all":
            self.current = new[-1] if new else self.current
            current = [] if self.current is None else [self.current]
            if node.selection == "last":
                return current, passing_old[:1] or current
            if node.selection == "all":
                return passing_new or current, passing_old or current
            return (new, old) if new else (current, old + current)
        if node.selection == "last":
            if node.kind == "row per group":
                return in_order(self.rows, last(new, self.key)), in_order(self.rows, first(old, self.key))
            return in_order(self.rows, last(passing_new, self.key)), in_order(self.rows, last(passing_old, self.key))
        if node.selection == "all" and node.kind == "row per group":
            changed = in_order(self.rows, last(new, self.key))
            quiet = [row for key, row in self.groups.items() if key not in map(self.key, changed)]
            self.groups = {self.key(row): row for row in quiet + changed}
            return quiet + changed, quiet + in_order(self.rows, first(passing_old, self.key))
        if node.selection == "all" and node.kind == "aggregated and grouped":
            made = list[Row]()
            changed_keys, left = set(), set()
            for row in self.rows:
                face = row if row[ROW] == NEW else self.groups.get(self.key(row))
                if face is None:
                    continue
                kept = {name: row[name] for name in (*node.values, *([node.passes] if node.passes else []))}
                shown = {**face, **kept}
                if row[ROW] == NEW or not node.waits:
                    # Of what leaves at once, each group has one row.
                    at = row["place"], self.key(row)
                    if row[ROW] == NEW or at not in left:
                        made.append(shown)
                    if row[ROW] == OLD:
                        left.add(at)
                    changed_keys.add(self.key(row))
                self.groups.pop(self.key(row), None)
                self.groups[self.key(row)] = shown
            made += [row for key, row in self.groups.items() if key not in changed_keys]
            return made, old
        return new, old


def last(rows: Sequence[Row], key: Callable[[Row], Any]) -> list[Row]:
    """The last row of each key."""
    return list({key(row): row for row in rows}.values())


def first(rows: Sequence[Row], key: Callable[[Row], Any]) -> list[Row]:
    """The first row of each key."""
    return list({key(row): row for row in reversed(rows)}.values())


def in_order(rows: Sequence[Row], some: Sequence[Row]) -> list[Row]:
    """Some of the rows, as they stand."""
    return [row for row in rows if any(row is each for each in some)]
