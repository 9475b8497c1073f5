"""Several data windows as one: a row that one window drops may be dropped from the others, so rows go one by one.

The state of a window's machine follows from the rows that it holds, and from two bits for each row that say how it is
held. So a step of a running query makes its machines anew from the kept rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np

from gpu_ops.core.time import MAX_TIME, TICK, format_time
from gpu_ops.devices import Device
from gpu_ops.errors import TimeError
from gpu_ops.operators.events import check_times
from gpu_ops.operators.row_windows.clock_kinds import after, clock_of, stamps_of
from gpu_ops.operators.row_windows.data_windows import (
    assigns,
    batch_ends,
    best_ranks,
    inside_span,
    sorted_places,
)
from gpu_ops.operators.row_windows.group_machines import MACHINES, Machine, RowColumns, Rows
from gpu_ops.plan.clock_windows import Accumulated, ClockBatches, ClockLengthBatches, FirstClock, StampSpan
from gpu_ops.plan.data_windows import Best, FirstSpan, Sorted, TimeBatches, TimeLengthBatches
from gpu_ops.plan.window_kinds import OUT, UNKNOWN, Membership, WindowRows
from gpu_ops.plan.window_sets import BITS, SetPart, UntilTime, WindowSet


@assigns(WindowSet)
def together(window: WindowSet, held: WindowRows, device: Device) -> Membership:
    """When each row is in all of several windows, or in any."""
    columns = [_columns(part, held, device) for part in window.parts]
    host = device.columns.host
    start, bounds = host(held.start).tolist(), host(held.bounds).tolist()
    number, before = host(held.number).tolist(), host(held.before).tolist()
    memo = host(held.memo).tolist()
    found = _EntersAndLeaves(host(held.enter).tolist(), shows_refused=window.refused == "shown")
    clock = None if held.ticks is None else _HostTicks(host(held.ticks.place).tolist(), host(held.ticks.clock).tolist())
    due: list[int] = []
    timers: list[int] = []
    timer = host(held.noted).tolist()
    for code, (first, last) in enumerate(pairwise(bounds)):
        machines = [
            MACHINES[type(part.window)](part.window, each) for part, each in zip(window.parts, columns, strict=True)
        ]
        group = (_All if window.rule == "all" else _Any)(machines, found)
        for machine in machines:
            if machine.keeps_timer:
                machine.timer = timer[code]
        fresh = first
        while fresh < last and number[fresh] < before[code]:
            for at, machine in enumerate(machines):
                how = memo[fresh] >> BITS * at & 3
                if how:
                    machine.restore(fresh, how)
            fresh += 1
        if clock is None:
            for row in range(fresh, last):
                group.wait(start[row])
                group.arrive(row, start[row])
            group.wait(held.cti)
        else:
            turns = replace(clock)
            for row in range(fresh, last):
                group.wait_for_ticks(turns, start[row])
                group.arrive(row, start[row])
            group.wait_for_ticks(turns, UNKNOWN)
        # While no row is held, a timer changes nothing before the next row, unless it posts.
        waits = any(found.leave[row] == UNKNOWN and found.enter[row] != OUT for row in range(first, last))
        posts = any(machine.posts for machine in machines)
        due.append(group.due() if waits or posts else UNKNOWN)
        if held.cti == MAX_TIME:
            continue
        timers += [machine.timer for machine in machines if machine.keeps_timer]
        for row in range(first, last):
            memo[row] = sum(machine.how(row) << BITS * at for at, machine in enumerate(machines))

    def array(values: list[int]) -> Any:
        return device.columns.array(np.array(values, np.int64))

    enter, leave, entered, left = (array(each) for each in (found.enter, found.leave, found.entered, found.left))
    made = Membership(
        enter, leave, entered, left, due=array(due), noted=array(timers) if timers else None, memo=array(memo)
    )
    if clock is not None:
        made.fell, made.came = array(found.fell), array(found.came)
        made.posts = array(sorted(found.posts)), array([found.posts[at] for at in sorted(found.posts)])
    return made


@dataclass
class _HostTicks:
    """The ticks of a step, and how many of them a group has passed."""

    places: list[int]
    clocks: list[int]
    passed: int = 0

    def next_due(self, due: int, place: int) -> int | None:
        """The first tick before a place that is at or past a time, which is passed with all before it."""
        at = bisect_left(self.clocks, due, self.passed)
        if at == len(self.clocks) or self.places[at] >= place:
            return None
        self.passed = at + 1
        return at


# The columns that machines read


def _columns(part: SetPart, held: WindowRows, device: Device) -> RowColumns:
    read = _READ.get(type(part.window))
    made = {} if read is None else read(part.window, held, device)
    if part.within:
        made["within"] = device.columns.key_codes(held.frame, part.within)[0]
    return RowColumns(
        **{name: None if each is None else device.columns.host(each).tolist() for name, each in made.items()}
    )


def _of_span(window: FirstSpan, held: WindowRows, device: Device) -> dict[str, Any]:
    return {"taken": inside_span(window, held)}


def _of_time_batches(window: TimeBatches, held: WindowRows, device: Device) -> dict[str, Any]:
    return {"time": batch_ends(window, held, device)}


def _of_timer(window: TimeLengthBatches, held: WindowRows, device: Device) -> dict[str, Any]:
    check_times(held.start + window.span, window.span, device, verb="time_length_batches")
    return {"time": held.start + window.span}


def _of_ends(window: UntilTime, held: WindowRows, device: Device) -> dict[str, Any]:
    if held.ticks is not None:
        due, valid = device.columns.values(held.frame, cast("str", window.column))
        due = due if valid is None else np.where(valid, due, UNKNOWN)
        return {"time": due, "taken": due > clock_of(held, device)}
    ends = _ends(window, held, device)
    return {"time": ends, "taken": ends > held.start}


def _of_best(window: Best, held: WindowRows, device: Device) -> dict[str, Any]:
    rank, ranked = best_ranks(window, held, device)
    unique = device.columns.key_codes(held.frame, window.unique)[0] if window.unique else None
    return {"rank": rank, "taken": ranked, "unique": unique}


def _of_sorted(window: Sorted, held: WindowRows, device: Device) -> dict[str, Any]:
    unique = device.columns.key_codes(held.frame, window.unique)[0] if window.unique else None
    return {"rank": ~sorted_places(window, held, device), "unique": unique}


def _of_clock(
    window: Accumulated | ClockBatches | ClockLengthBatches | FirstClock, held: WindowRows, device: Device
) -> dict[str, Any]:
    clock = clock_of(held, device)
    return {"clock": clock, "time": after(window.span, clock, device)}


def _of_stamps(window: StampSpan, held: WindowRows, device: Device) -> dict[str, Any]:
    stamps = stamps_of(window.stamp, held.frame, device)
    return {"clock": stamps, "time": after(window.span, stamps, device)}


_READ: dict[type, Callable[[Any, WindowRows, Device], dict[str, Any]]] = {
    FirstSpan: _of_span,
    TimeBatches: _of_time_batches,
    TimeLengthBatches: _of_timer,
    UntilTime: _of_ends,
    Best: _of_best,
    Sorted: _of_sorted,
    Accumulated: _of_clock,
    ClockBatches: _of_clock,
    ClockLengthBatches: _of_clock,
    FirstClock: _of_clock,
    StampSpan: _of_stamps,
}


def _ends(window: UntilTime, held: WindowRows, device: Device) -> Any:
    if window.span is not None:
        check_times(held.start, window.span, device, verb="last_span")
        return held.start + window.span
    ends, valid = device.columns.values(held.frame, cast("str", window.column))
    if valid is not None:
        at = int((~valid).argmax())
        raise TimeError(
            "until gives a null end.",
            row=at,
            values=f"start={format_time(int(held.start[at]))}",
            remedy="Fill it or filter such events out first.",
        )
    check_times(held.start, ends, device, verb="until")
    return ends


# The enters and leaves of rows


class _EntersAndLeaves:
    """When each row enters and leaves, and with which row; -1 if time makes it enter or leave.

    With a clock ``came`` and ``fell`` have the times at which enters and leaves fell due, ``falls`` the one that is
    being done, and ``posts`` when those of the ticks at which a window posts did.
    """

    def __init__(self, enter: list[int], *, shows_refused: bool) -> None:
        rows = len(enter)
        self._shows_refused = shows_refused
        self.enter, self.leave = enter, [UNKNOWN] * rows
        self.entered, self.left = [-1] * rows, [-1] * rows
        self.came, self.fell = [UNKNOWN] * rows, [UNKNOWN] * rows
        self.falls = UNKNOWN
        self.posts: dict[int, int] = {}

    def comes(self, row: int, time: int, by: int) -> None:
        """A row enters, unless it has been in before."""
        if self.enter[row] == UNKNOWN:
            self.enter[row], self.entered[row], self.came[row] = time, by, self.falls

    def passes(self, row: int, time: int) -> None:
        """A row is refused as it comes: it is in for a tick, if that is shown."""
        if self._shows_refused:
            self.enter[row], self.leave[row] = time, time + TICK
            self.entered[row] = self.left[row] = row

    def goes(self, row: int, time: int, by: int) -> None:
        """A row leaves; if it has not been in before, it never enters, and the leave tells since when it is out."""
        if self.enter[row] == UNKNOWN:
            self.enter[row], self.leave[row] = OUT, time
        elif self.enter[row] != OUT and self.leave[row] == UNKNOWN:
            self.leave[row], self.left[row], self.fell[row] = time, by, self.falls


class _GroupWindows(ABC):
    """The windows of a group."""

    def __init__(self, machines: list[Machine], found: _EntersAndLeaves) -> None:
        self._machines, self._found = machines, found
        self._timed = [machine for machine in machines if machine.timed]

    def due(self) -> int:
        """When time alone changes one of the windows."""
        return min((machine.due() for machine in self._timed), default=UNKNOWN)

    def wait(self, until: int) -> None:
        """Time passes, to some time and including it."""
        while self._timed and (time := self.due()) <= until:
            self.pass_time(time)

    def wait_for_ticks(self, ticks: _HostTicks, place: int) -> None:
        """The clock moves, at all ticks before a place."""
        while self._timed and (at := ticks.next_due(self.due(), place)) is not None:
            clock, found = ticks.clocks[at], self._found
            # Each is done once, in the order in which they fell due; what is due by then as well waits for a tick.
            fallen = sorted((machine.due(), number) for number, machine in enumerate(self._timed))
            for due, number in fallen:
                if due > clock:
                    break
                found.falls = due
                if self._timed[number].posts:
                    found.posts[at] = min(due, found.posts.get(at, due))
                self.pass_tick(self._timed[number], clock, ticks.places[at])
            found.falls = UNKNOWN

    @abstractmethod
    def pass_tick(self, machine: Machine, clock: int, place: int) -> None:
        """Let a tick change one of the windows, which is due."""

    @abstractmethod
    def pass_time(self, time: int) -> None:
        """Let the time pass at which time alone changes a window."""

    @abstractmethod
    def arrive(self, row: int, time: int) -> None:
        """A row arrives."""


class _All(_GroupWindows):
    """The rows that are in all windows."""

    def __init__(self, machines: list[Machine], found: _EntersAndLeaves) -> None:
        super().__init__(machines, found)
        self._batch = next((machine for machine in machines if machine.in_batches), None)
        self._plain = [machine for machine in machines if not machine.in_batches]

    def arrive(self, row: int, time: int) -> None:
        gone = [each for machine in self._plain for each in machine.arrive(row)[1]]
        if row in gone:
            if self._batch is None and not any(
                machine.keeps_first and machine.how(row) == 0 for machine in self._plain
            ):
                self._found.passes(row, time)
            self._drop(gone, time, row)
            return
        self._drop(gone, time, row)
        if self._batch is None:
            self._found.comes(row, time, row)
        else:
            self._complete(*self._batch.arrive(row), time, row)

    def pass_time(self, time: int) -> None:
        self._drop([each for machine in self._plain for each in machine.wait(time)[1]], time, -1)
        if self._batch is not None:
            self._complete(*self._batch.wait(time), time, -1)

    def pass_tick(self, machine: Machine, clock: int, place: int) -> None:
        come, gone = machine.wait(clock)
        if machine is self._batch:
            self._complete(come, gone, place, -1)
        else:
            self._drop(gone, place, -1)

    def _drop(self, gone: Rows, time: int, by: int) -> None:
        for row in gone:
            for machine in self._machines:
                machine.forget(row)
            self._found.goes(row, time, by)

    def _complete(self, batch: Rows, out: Rows, time: int, by: int) -> None:
        for row in out:
            self._found.goes(row, time, by)
        for row in batch:
            self._found.comes(row, time, by)
            for machine in self._plain:
                machine.forget(row)


class _Any(_GroupWindows):
    """The rows that are in any window."""

    def arrive(self, row: int, time: int) -> None:
        moves = [machine.arrive(row) for machine in self._machines]
        refused = [row in gone for _, gone in moves]
        if all(refused) and not all(machine.keeps_first for machine in self._machines):
            self._found.passes(row, time)
        self._move(moves, time, row)

    def pass_time(self, time: int) -> None:
        self._move([machine.wait(time) for machine in self._machines], time, -1)

    def pass_tick(self, machine: Machine, clock: int, place: int) -> None:
        self._move([machine.wait(clock)], place, -1)

    def _move(self, moves: list[tuple[Rows, Rows]], time: int, by: int) -> None:
        for come, _ in moves:
            for row in come:
                self._found.comes(row, time, by)
        for _, gone in moves:
            for row in gone:
                if not any(machine.how(row) for machine in self._machines):
                    self._found.goes(row, time, by)
