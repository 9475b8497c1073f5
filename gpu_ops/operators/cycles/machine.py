"""The machine of a partition between its runs: the tables of rows and keys that the kernel walks through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.cycles import Schedule
from gpu_ops.core.state_tables import MANY, Field, RowRule, StateTable
from gpu_ops.core.time import MAX_TIME
from gpu_ops.devices.cpu import cycles as m
from gpu_ops.errors import PlanError

_SMALL = 1 << 12
"""So many rows are kept before anybody looks which of them are needed."""

ROW_NUMBERS = {"state": m.STATE, "key": m.KEY, "enter": m.ENTER, "due": m.OUT, "value": m.VALUE, "group": m.GROUP}
KEY_NUMBERS = {"window": m.WINDOW, "size": m.SIZE, "span": m.SPAN}


@dataclass(frozen=True)
class Coming:
    """New rows, in their order.

    Attributes:
        place: int64 place of each.
        key: int64 key.
        value: int64 stamp or rank; one for all where none is read.
        group: int64 group; one for all without groups.
        size: int64; one where all are equal.
        span: Likewise.
    """

    place: Any
    key: Any
    value: Any
    group: Any
    size: Any
    span: Any


@dataclass
class CycleMachine:
    """The tables of a partition.

    Attributes:
        kind: As in the kernel, like what follows.
        schedule: When the query may run.
        pinned: Whether empty windows stay.
        allowed: How many rows may wait for a full window; -1 for any number.
        grouped: Whether rows update groups.
    """

    kind: int
    schedule: Schedule
    pinned: bool = False
    allowed: int = -1
    grouped: bool = False
    rows: Any = field(default_factory=lambda: np.zeros((0, m.ROW_COLUMNS), np.int64))
    keys: Any = field(default_factory=lambda: np.zeros((0, m.KEY_COLUMNS), np.int64))

    def __post_init__(self) -> None:
        self.queue, self.heap, self.waiting, self.holders = (np.zeros(0, np.int64) for _ in range(4))
        self.numbers = np.zeros(m.NUMBERS, np.int64)
        self.looked_at = _SMALL
        self._pauses = np.array(self.schedule.pauses, np.int64).reshape(-1, 2)

    @property
    def count(self) -> int:
        """How many rows are in the table."""
        return int(self.numbers[m.ROWS])

    @property
    def known(self) -> Any:
        """The rows of the table."""
        return self.rows[: self.count]

    @property
    def has_grown(self) -> bool:
        """Whether it has twice as many rows as were needed when somebody looked last."""
        return self.count > 2 * self.looked_at

    def run(self, coming: Coming, beats: Any, limit: int, keys: int, groups: int) -> tuple[Any, Any]:
        """Run the cycles before a place.

        Args:
            coming: New rows.
            beats: int64 places at which other parts of the query run.
            limit: The place.
            keys: How many keys there are.
            groups: How many groups.

        Returns:
            (int64 numbers of rows that entered, int64[rows, 2]: numbers of those that left, and where).

        Raises:
            PlanError: Too many cycles run at one instant.
        """
        self._make_room(len(coming.place), keys, groups)
        entered, left = np.empty(len(self.rows), np.int64), np.empty((len(self.rows), 2), np.int64)
        self.numbers[[m.ENTERED, m.LEFT]] = 0
        why = m.run_cycles(
            self.kind, limit, int(self.pinned), self.allowed, self.schedule.since, self.schedule.every, self._pauses,
            coming.place, coming.key, coming.value, coming.group, coming.size, coming.span, beats, self.rows, self.keys,
            self.queue, self.heap, np.empty(len(self.keys), np.int64), self.waiting, self.holders, entered, left,
            self.numbers,
        )  # fmt: skip
        if why == m.CROWDED:
            raise PlanError(
                "More than 32,768 cycles run at one instant: so many rows wait for one window.",
                remedy="Make the window larger, or send rows at more than one instant.",
            )
        entered = entered[: self.numbers[m.ENTERED]]
        # A row that better ones of its own cycle pushed out has never entered.
        entered = entered[self.rows[entered, m.ENTER] != m.UNKNOWN]
        return entered, left[: self.numbers[m.LEFT]]

    def _make_room(self, more: int, keys: int, groups: int) -> None:
        rows = self.count + more
        if len(self.rows) < rows:
            size = max(rows, 2 * len(self.rows))
            self.rows, self.queue, self.heap = (_longer(each, size) for each in (self.rows, self.queue, self.heap))
        before = len(self.keys)
        if before < keys:
            self.keys = _longer(self.keys, max(keys, 2 * before))
            fresh = self.keys[before:]
            fresh[:, [m.HEAD, m.TAIL, m.FIRST, m.LAST, m.WINDOW]] = -1
            fresh[:, m.SEEN] = m.NULL
            self.waiting = _longer(self.waiting, len(self.keys))
        if self.grouped and len(self.holders) < groups:
            self.holders = _longer(self.holders, max(groups, 2 * len(self.holders)))

    # What is needed

    @property
    def used(self) -> Any:
        """Which keys have a window."""
        return self.keys[:, m.WINDOW] >= 0

    def kept(self) -> Any:
        """int64 numbers of the rows that are inside, or wait."""
        return np.flatnonzero(self.known[:, m.STATE] != m.GONE)

    def compact(self, kept: Any, keys: Any | None = None, groups: Any | None = None) -> None:
        """Forget all other rows, and number what is left anew.

        Args:
            kept: The rows that stay, ascending.
            keys: int64 new number of each key; None if they stay. Those that go have no window.
            groups: int64 new number of each group, likewise.
        """
        back = np.full(self.count + 1, -1, np.int64)  # the last one is for none
        back[kept] = np.arange(len(kept))
        rows = self.rows[kept]
        for column in (m.NEXT, m.PREVIOUS):
            rows[:, column] = back[rows[:, column]]
        for column in (m.HEAD, m.TAIL, m.FIRST, m.LAST):
            self.keys[:, column] = back[self.keys[:, column]]
        numbers = self.numbers
        queue = back[self.queue[numbers[m.QUEUED] : numbers[m.QUEUE_END]]]
        heap = back[self.heap[: numbers[m.HEAPED]]]
        self._due(rows, queue[queue >= 0], heap[heap >= 0])
        if keys is not None:
            used = np.flatnonzero(self.used[: len(keys)])
            made = self.keys[used]
            self.waiting[: numbers[m.LEFT_OVER]] = keys[self.waiting[: numbers[m.LEFT_OVER]]]
            rows[:, m.KEY] = keys[rows[:, m.KEY]]
            self.keys = np.zeros((0, m.KEY_COLUMNS), np.int64)
            self._make_room(0, len(used), 0)
            self.keys[keys[used]] = made
        if groups is not None:
            used = np.flatnonzero(self.holders[: len(groups)])
            holders = np.zeros(len(used), np.int64)
            holders[groups[used]] = self.holders[used]
            rows[:, m.GROUP] = groups[rows[:, m.GROUP]]
            self.holders = holders
        self.rows, numbers[m.ROWS] = rows, len(rows)
        self.queue, self.heap = (_longer(each, len(rows)) for each in (self.queue, self.heap))
        self.looked_at = max(_SMALL, len(rows))

    def _due(self, rows: Any, queue: Any, heap: Any) -> None:
        """Have another queue and heap; rows that are in order of a value are a heap by it."""
        self.queue, self.heap = queue, heap[np.argsort(rows[heap, m.OUT], kind="stable")]
        self.numbers[[m.QUEUED, m.QUEUE_END, m.HEAPED]] = 0, len(queue), len(heap)

    # State

    def table(self) -> pa.Table:
        """The numbers; the rest is in the rows and the keys, of `ROW_NUMBERS` and `KEY_NUMBERS`."""
        windows, place = int(self.numbers[m.WINDOWS]), int(self.numbers[m.NEXT_PLACE])
        return pa.table({"windows": pa.array([windows]), "next": pa.array([place])})

    def declared(self, keys: int, groups: int) -> Iterator[StateTable]:
        """The declarations of those tables, for some numbers of keys and groups."""
        place = Field(pa.int64(), least=-MAX_TIME, most=MAX_TIME)
        count = Field(pa.int64(), least=0, most=MANY)
        yield StateTable("machine", {"windows": count, "next": place}, rows=1, required=True)
        window = Field(pa.int64(), least=-1, most=MANY)
        size = Field(pa.int64(), least=0, most=1 << 40)
        sized = RowRule(
            "size",
            "is the size of no window",
            lambda table: (table["window"].to_numpy() < 0) | (table["size"].to_numpy() > 0),
        )
        columns = {"window": window, "size": size, "span": size}
        yield StateTable("keys", columns, rows=keys, required=True, rules=(sized,))
        open_place = Field(pa.int64(), least=-MAX_TIME, most=MAX_TIME, besides=(m.UNKNOWN,))
        columns = {
            "state": Field(pa.int64(), least=m.WAITS, most=m.INSIDE),
            "key": Field(pa.int64(), least=0, most=keys - 1),
            "enter": open_place,
            "due": open_place,
            "value": Field(pa.int64()),
            "group": Field(pa.int64(), least=0, most=groups - 1),
        }
        entered = RowRule(
            "enter",
            "is no place of a row that is inside, or of one that waits",
            lambda table: np.equal(table["state"].to_numpy() == m.INSIDE, table["enter"].to_numpy() != m.UNKNOWN),
        )
        leaves = RowRule(
            "due",
            "is not behind the place at which the row came in",
            lambda table: (
                (table["state"].to_numpy() == m.WAITS) | (table["due"].to_numpy() > table["enter"].to_numpy())
            ),
        )
        yield StateTable("inside", columns, required=True, rules=(entered, leaves))

    def restore(self, tables: Mapping[str, pa.Table], groups: int) -> None:
        """The state that `tables` gave."""
        inside, keys = tables["inside"], tables["keys"]
        self._make_room(inside.num_rows, keys.num_rows, groups)
        for name, at in ROW_NUMBERS.items():
            self.rows[: inside.num_rows, at] = inside[name].to_numpy()
        for name, at in KEY_NUMBERS.items():
            self.keys[: keys.num_rows, at] = keys[name].to_numpy()
        numbers = self.numbers
        numbers[m.ROWS] = inside.num_rows
        numbers[m.WINDOWS], numbers[m.NEXT_PLACE] = (tables["machine"][each][0].as_py() for each in ("windows", "next"))
        rows = self.known
        rows[:, m.OF] = self.keys[rows[:, m.KEY], m.WINDOW]
        within = np.flatnonzero(rows[:, m.STATE] == m.INSIDE)
        if self.kind in {m.TIMED_MOST, m.BEST}:
            within = within[np.argsort(rows[within, m.VALUE], kind="stable")]
        self._chain(within, m.HEAD, m.TAIL, m.HELD)
        waits = np.flatnonzero(rows[:, m.STATE] == m.WAITS)
        self._chain(waits, m.FIRST, m.LAST, m.WAITING)
        waiting = np.flatnonzero(self.keys[:, m.WAITING] > 0)
        numbers[m.LEFT_OVER] = len(waiting)
        self.waiting[: len(waiting)] = waiting
        none, due = np.zeros(0, np.int64), np.flatnonzero(rows[:, m.OUT] != m.UNKNOWN)
        if self.kind == m.TUMBLING:
            due = np.flatnonzero(rows[:, m.STATE] == m.INSIDE)
        self._due(rows, due[np.argsort(rows[due, m.OUT], kind="stable")], none)
        self.queue, self.heap = (_longer(each, len(self.rows)) for each in (self.queue, self.heap))
        if self.grouped:
            self.holders[:] = np.bincount(rows[within, m.GROUP], minlength=len(self.holders))[: len(self.holders)]

    def _chain(self, slots: Any, head: int, tail: int, count: int) -> None:
        """Make the lists of all keys from rows in their order."""
        rows, keys = self.rows, self.keys
        slots = slots[np.argsort(rows[slots, m.KEY], kind="stable")]
        of = rows[slots, m.KEY]
        same = of[1:] == of[:-1]
        rows[slots, m.NEXT] = rows[slots, m.PREVIOUS] = -1
        rows[slots[:-1][same], m.NEXT] = slots[1:][same]
        rows[slots[1:][same], m.PREVIOUS] = slots[:-1][same]
        first, last = np.append(True, ~same)[: len(slots)], np.append(~same, True)[: len(slots)]
        keys[of[first], head], keys[of[last], tail] = slots[first], slots[last]
        keys[:, count] = np.bincount(of, minlength=len(keys))


def _longer(table: Any, size: int) -> Any:
    if len(table) >= size:
        return table
    made = np.zeros((size, *table.shape[1:]), np.int64)
    made[: len(table)] = table
    return made
