"""When an output rate fires: by a count of rows, on a grid of times, at a crontab's times, or by a condition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_ops.core.state_tables import Field, StateTable, Tables, counter
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.devices import Device
from gpu_ops.operators.checked import holds
from gpu_ops.operators.events import Events
from gpu_ops.plan.rates import COUNTS, LAST_OUTPUT, AtTimes, EveryPeriod, EveryRows, Rate, When

Ints = npt.NDArray[np.int64]

NEVER = 1 << 62
"""A place or a time that has not come yet."""

_FEW = 64
"""How many deliveries a condition is first evaluated for; twice as many each time that it holds for none."""


MANY = 64
"""An output each time that so many rows have come looks at the rows at which it fires alone."""


@dataclass(frozen=True)
class TurnMarks:
    """Deliveries, one for each place, in order of place.

    Attributes:
        place: int64.
        entered: int64: how many rows entered.
        left: int64: how many left.
        shown: bool: which deliveries have a row to show; None where that makes no difference.
        values: A frame with more columns that conditions read, a row for each delivery; None without.
        changed: bool: which are no deliveries, but changes of what the condition reads; None where there are none.
    """

    place: Any
    entered: Any
    left: Any
    shown: Any = None
    values: Any = None
    changed: Any = None


@dataclass(frozen=True)
class Firings:
    """When a rate fired, in order of place.

    Attributes:
        place: int64 places: of the delivery that fired it, whose rows are part of the output, or of a tick.
        due: int64: the clock at which a tick's firing fell due; `NEVER` where a delivery fired. Of the deliveries at a
            tick's place those that fell due later are not part of the output.
        counted: Where a condition held, with what it had counted by then: on the host, by the names `COUNTS` and
            `LAST_OUTPUT`, beside ``"place"``.
    """

    place: Any
    due: Any
    counted: Mapping[str, Ints] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.place)


@dataclass
class _FiringState:
    """What is remembered from one step to the next.

    Attributes:
        clock: The clock of the last tick.
        begins: The place from which deliveries count; `NEVER` while the rate's `after` does not hold.
        gathered: How many rows have entered before.
        due: The next time on the grid or of the crontab; `NEVER` before the first delivery.
        entered: How many rows have entered since the last firing.
        left: How many have left.
        entered_total: How many rows have entered since `begins`.
        left_total: How many have left.
        fired: The clock at the last firing.
        waits: Whether the next delivery with a row to show begins an interval (`output first`).
        turned: The clock at which a change made the condition hold, which the next tick outputs; `NEVER` if none did.
    """

    clock: int
    begins: int
    fired: int
    gathered: int = 0
    due: int = NEVER
    entered: int = 0
    left: int = 0
    entered_total: int = 0
    left_total: int = 0
    waits: int = 1
    turned: int = NEVER


_TABLE = "firing"

_TIME = Field(pa.int64(), least=MIN_TIME, most=MAX_TIME)

_COLUMNS = {
    "clock": _TIME,
    "begins": Field(pa.int64(), least=MIN_TIME, most=MAX_TIME, besides=(NEVER,)),
    "fired": _TIME,
    "gathered": counter(),
    "due": Field(pa.int64(), least=MIN_TIME, most=NEVER),
    "entered": counter(),
    "left": counter(),
    "entered_total": counter(),
    "left_total": counter(),
    "waits": counter(1),
    "turned": Field(pa.int64(), least=MIN_TIME, most=NEVER),
}


class FiringTimes:
    """Where an output rate fires, step by step. Its work is on the host: it reads a few numbers of each delivery.

    A count of rows and a condition fire where a delivery makes them hold. A grid of times and a crontab fire at the
    first tick at or after the time that is due: once, however far the clock jumps; the next time is then the first one
    behind the clock. They begin with the first delivery, be it one that a window posts without rows; else one for which
    nothing entered or left counts as none, and so does one before the rate's `after` holds.

    Args:
        rate: When there is output.
        device: Where the arrays that it gets and gives live.
        first: Whether it is for `output first`: an interval begins with a delivery that has a row to show, and until
            then deliveries do not count.
    """

    def __init__(self, rate: Rate, device: Device, *, first: bool = False) -> None:
        self._rate, self._device, self._first = rate, device, first
        never = rate.after_rows is not None or rate.after is not None
        self._state = _FiringState(rate.since, NEVER if never else MIN_TIME, rate.since)
        self._seen = False
        self._counts: list[tuple[int, ...]] = []
        past = None if rate.after is None else rate.after.after(np.array([rate.since]))
        self._opens = None if past is None else int(past[0])

    @property
    def begins(self) -> int:
        """The place from which deliveries count, `NEVER` if it is not known yet: the rate's `after` does not hold."""
        return self._state.begins

    @property
    def reads_marks(self) -> bool:
        """Whether it reads deliveries still: a grid and a crontab begin with the first one, and read no other."""
        state = self._state
        by_clock = isinstance(self._rate.every, EveryPeriod | AtTimes)
        return not by_clock or self._first or NEVER in {state.due, state.begins}

    @property
    def _begins_empty(self) -> bool:
        """Whether it begins with a delivery for which nothing entered or left."""
        return isinstance(self._rate.every, EveryPeriod | AtTimes) and not self._first

    @property
    def clock(self) -> int:
        """The clock of the last tick."""
        return self._state.clock

    def clocks(self, places: Any, ticks: tuple[Any, Any]) -> Any:
        """int64: the clock at some places of the next step.

        Args:
            places: int64 places, ascending.
            ticks: The ticks of that step, as in `step`.
        """
        at, clock = ticks
        before = np.full_like(clock, self._state.clock, shape=(1,))
        passed = stretches(places, at, "left", self._device)
        return self._device.kernels.take(np.concatenate([before, clock]), passed)

    def step(self, marks: TurnMarks, ticks: tuple[Any, Any]) -> Firings:
        """Where it fires in a step.

        Args:
            marks: The deliveries of the step.
            ticks: (int64 places, int64 clocks behind them) of the step's ticks that move the clock, in order of place.
        """
        host = self._device.columns.host
        reads_clocks = len(marks.place) and (self._opens is not None or not isinstance(self._rate.every, EveryRows))
        clocks = host(self.clocks(marks.place, ticks)) if reads_clocks else np.broadcast_to(0, len(marks.place))
        at, clock = (host(each) for each in ticks)
        self._seen = self._seen or bool(len(at) or len(marks.place))
        marks, clocks = self._counted(marks, clocks)
        firing, due = self._fired(marks, clocks, at, clock)
        if len(clock):
            self._state.clock = int(clock[-1])
        array = self._device.columns.array
        counted = np.array(self._counts, np.int64).reshape(-1, 2 + len(COUNTS)).T
        self._counts = []
        return Firings(array(firing), array(due), dict(zip(("place", *COUNTS, LAST_OUTPUT), counted, strict=True)))

    @property
    def counts_rows(self) -> bool:
        """Whether `of_rows` says where it fires: by a count of many rows, and of nothing else."""
        every = self._rate.every
        return isinstance(every, EveryRows) and every.rows >= MANY and not self._first and self.begins == MIN_TIME

    def of_rows(self, come: Any, go: Any, ticks: tuple[Any, Any]) -> Firings:
        """`step`, from the places at which rows enter and leave: deliveries in between are not looked at.

        Args:
            come: int64 places, ascending.
            go: Likewise.
            ticks: As in `step`.
        """
        assert isinstance(self._rate.every, EveryRows)  # noqa: S101  (`counts_rows`)
        state, edges = self._state, [self._device.columns.host(each) for each in (come, go)]
        self._seen = self._seen or bool(len(ticks[0]) or len(come) or len(go))
        begins, since, found = [0, 0], [state.entered, state.left], list[int]()
        while True:
            full = (begin + self._rate.every.rows - known - 1 for begin, known in zip(begins, since, strict=True))
            places = [int(each[at]) for each, at in zip(edges, full, strict=True) if at < len(each)]
            if not places:
                break
            found.append(min(places))
            begins, since = [int(np.searchsorted(each, found[-1], side="right")) for each in edges], [0, 0]
        rest = [len(each) - begin for each, begin in zip(edges, begins, strict=True)]
        state.entered, state.left = (one + more for one, more in zip(since, rest, strict=True))
        state.entered_total, state.left_total = state.entered_total + len(come), state.left_total + len(go)
        state.waits = int(not any(rest)) if found or state.waits else 0
        if len(ticks[1]):
            state.clock = int(ticks[1][-1])
        array = self._device.columns.array
        return Firings(array(np.array(found, np.int64)), array(np.full(len(found), NEVER)))

    def _counted(self, marks: TurnMarks, clocks: Ints) -> tuple[TurnMarks, Ints]:
        """The deliveries that count, on the host, and the clock at each."""
        host, state = self._device.columns.host, self._state
        place, entered, left = (host(each) for each in (marks.place, marks.entered, marks.left))
        if state.begins == MIN_TIME and marks.changed is None and bool(((entered | left) > 0).all()):
            shown = None if marks.shown is None else host(marks.shown)
            return TurnMarks(place, entered, left, shown, marks.values), clocks
        counts = (entered > 0) | (left > 0)
        begins = counts | self._begins_empty
        if state.begins == NEVER:
            rows = -1 if self._rate.after_rows is None else self._rate.after_rows
            enough = np.cumsum(entered) + state.gathered > rows
            late = np.ones_like(enough) if self._opens is None else clocks >= self._opens
            begun = np.flatnonzero(counts & enough & late)
            state.gathered += int(entered.sum())
            state.begins = int(place[begun[0]]) if len(begun) else NEVER
        changed = None if marks.changed is None else host(marks.changed)
        counts = begins & (place >= state.begins)
        if changed is not None:
            counts |= changed
        shown = None if marks.shown is None else host(marks.shown)
        if counts.all():
            return TurnMarks(place, entered, left, shown, marks.values, changed), clocks
        shown = None if shown is None else shown[counts]
        values = marks.values
        if values is not None:
            values = self._device.columns.take(values, self._device.columns.array(np.flatnonzero(counts)))
        if changed is not None:
            changed = changed[counts]
        return TurnMarks(place[counts], entered[counts], left[counts], shown, values, changed), clocks[counts]

    def _fired(self, marks: TurnMarks, clocks: Ints, at: Ints, clock: Ints) -> tuple[Ints, Ints]:
        """(places, the times at which they fell due)."""
        every = self._rate.every
        if isinstance(every, EveryRows | When):
            if isinstance(every, When):
                return self._by_condition(marks, clocks, every, (at, clock))
            found = self._by_count(marks, every.rows)
            return marks.place[found], np.full(len(found), NEVER)
        if every is None:
            return marks.place[:0], marks.place[:0]
        if self._state.due == NEVER:
            begun = np.arange(len(clocks)) if not self._first or marks.shown is None else np.flatnonzero(marks.shown)
            if not len(begun):
                return at[:0], at[:0]
            self._state.due = self._next(int(clocks[begun[0]]))
        found, due = self._on_grid(clock) if self._fixed else self._at_times(clock)
        return at[found], due

    # By the clock

    @property
    def _fixed(self) -> int:
        """The ticks between two times of the grid, 0 if they differ."""
        every = self._rate.every
        return every.period.ticks if isinstance(every, EveryPeriod) and not every.period.months else 0

    def _next(self, clock: int) -> int:
        """The next time behind a clock."""
        every, due = self._rate.every, self._state.due
        if isinstance(every, AtTimes):
            return every.crontab.next_after(clock)
        assert isinstance(every, EveryPeriod)  # noqa: S101  (held by _fired)
        # A period is counted from the time before, and a month may be shorter than the first one was.
        due = clock if due == NEVER else due
        while due <= clock:
            due = int(every.period.after(np.array([due]))[0])
        return due

    def _on_grid(self, clock: Ints) -> tuple[Ints, Ints]:
        state, size = self._state, self._fixed
        base = state.due - size
        if len(clock) and (int(clock[-1]) - base) // size < len(clock):
            points = np.arange(state.due, int(clock[-1]) + 1, size)
            found = np.searchsorted(clock, points).astype(np.int64, copy=False)
            begins = np.flatnonzero(np.diff(found, prepend=-1))
            state.due += len(points) * size
            return found[begins], points[begins]
        passed = np.maximum((clock - base) // size, 0)
        before = np.concatenate([np.zeros(1, np.int64), passed])
        found = np.flatnonzero(before[1:] > before[:-1])
        state.due = base + (int(before[-1]) + 1) * size
        return found, base + (before[found] + 1) * size

    def _at_times(self, clock: Ints) -> tuple[Ints, Ints]:
        state = self._state
        found, due = list[int](), list[int]()
        while (tick := int(np.searchsorted(clock, state.due))) < len(clock):
            found.append(tick)
            due.append(state.due)
            state.due = self._next(int(clock[tick]))
        return np.array(found, np.int64), np.array(due, np.int64)

    # By deliveries

    def _by_count(self, marks: TurnMarks, rows: int) -> Ints:
        """The deliveries that fire by a count: each is known from the one at which its interval begins."""
        state, size = self._state, len(marks.place)
        entered, left = _sums(marks.entered), _sums(marks.left)
        begins, after = self._begins(marks), _counted_from(entered, left, rows)
        found, begin = list[int](), 0
        if self._first and state.waits:
            begin = begins[0]
            at = after(begin)
        else:
            at = int(np.searchsorted(entered[1:], rows - state.entered))
            at = min(at, int(np.searchsorted(left[1:], rows - state.left)))
        while at < size:
            found.append(at)
            begin = begins[at + 1]
            at = after(begin)
        last = begin if found or (self._first and state.waits) else 0
        self._remember(entered, left, last, carried=not found)
        state.waits = int(begin == size) if found or state.waits else 0
        return np.array(found, np.int64)

    def _by_condition(self, marks: TurnMarks, clocks: Ints, when: When, ticks: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
        """(places, the times at which they fell due): behind a delivery, or at the next tick behind a change.

        The condition is evaluated for twice as many deliveries each time, until it holds for one.
        """
        state, size, (at, clock) = self._state, len(marks.place), ticks
        entered, left = _sums(marks.entered), _sums(marks.left)
        begins = self._begins(marks)
        totals = state.entered_total, state.left_total
        places, due = list[int](), list[int]()
        low = begin = begins[0] if self._first and state.waits else 0
        count, tick = _FEW, 0
        while True:
            turns = state.turned != NEVER and tick < len(at)
            last = int(np.searchsorted(marks.place, at[tick])) if turns else size
            if low >= last:
                if not turns:
                    break
                places.append(int(at[tick]))
                due.append(state.turned)
                state.fired, state.turned = int(clock[tick]), NEVER
                begin, count = low, _FEW
                continue
            high = min(low + count, last)
            carried = (state.entered, state.left) if not places else (0, 0)
            numbers = (
                entered[low + 1 : high + 1] - entered[begin] + carried[0],
                left[low + 1 : high + 1] - left[begin] + carried[1],
                entered[low + 1 : high + 1] + totals[0],
                left[low + 1 : high + 1] + totals[1],
            )
            here = np.flatnonzero(self._holds(when, marks, low, high, numbers))
            if not len(here):
                low, count = high, 2 * count
                continue
            found = low + int(here[0])
            counted = (int(marks.place[found]), *(int(each[here[0]]) for each in numbers), state.fired // 1000)
            if marks.changed is None or not marks.changed[found] or state.turned == NEVER:
                self._counts.append(counted)
            if marks.changed is not None and marks.changed[found]:
                if state.turned == NEVER:
                    state.turned, tick = int(clocks[found]), int(np.searchsorted(at, marks.place[found]))
                low = found + 1
                continue
            places.append(int(marks.place[found]))
            due.append(NEVER)
            state.fired = int(clocks[found])
            low = begin = begins[found + 1]
            count = _FEW
        waited = self._first and state.waits
        self._remember(entered, left, begin if places or waited else 0, carried=not places)
        state.waits = int(begin == size) if places or state.waits else 0
        return np.array(places, np.int64), np.array(due, np.int64)

    def _begins(self, marks: TurnMarks) -> Sequence[int]:
        """For each delivery, and behind them, the one at which an interval that may begin there begins."""
        size = len(marks.place)
        if not self._first or marks.shown is None:
            return range(size + 1)
        shown = np.append(np.flatnonzero(marks.shown), size)
        begins: list[int] = shown[np.searchsorted(shown, np.arange(size + 1))].tolist()
        return begins

    def _remember(self, entered: Ints, left: Ints, begin: int, *, carried: bool) -> None:
        """Count the rows since an interval began; ``carried`` if it began in an earlier step, or has not begun."""
        state = self._state
        state.entered = int(entered[-1] - entered[begin]) + state.entered * carried
        state.left = int(left[-1] - left[begin]) + state.left * carried
        state.entered_total += int(entered[-1])
        state.left_total += int(left[-1])

    def _holds(self, when: When, marks: TurnMarks, low: int, high: int, numbers: tuple[Ints, ...]) -> Any:
        """bool, on the host: behind which of some deliveries a condition holds."""
        columns = self._device.columns
        values = dict(zip(COUNTS, numbers, strict=True))
        values[LAST_OUTPUT] = np.full(high - low, self._state.fired // 1000)
        frame = columns.build({name: (columns.array(each), None, pa.int64()) for name, each in values.items()})
        if marks.values is not None:
            frame = columns.beside(frame, columns.cut(marks.values, low, high))
        place = columns.array(marks.place[low:high])
        return columns.host(holds(when.condition, {}, Events(place, TICK, frame), self._device))

    # State

    def tables(self) -> dict[str, pa.Table]:
        """The state, one row; no table before the first step with a delivery or a tick."""
        if not self._seen:
            return {}
        return {_TABLE: pa.table({name: pa.array([getattr(self._state, name)], pa.int64()) for name in _COLUMNS})}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The declaration of the table that `tables` gives."""
        if _TABLE in tables:
            yield StateTable(_TABLE, _COLUMNS, rows=1)

    def restore(self, tables: Tables) -> None:
        """Restore the state that `tables` gave."""
        if _TABLE in tables:
            self._seen = True
            self._state = _FiringState(**{name: int(tables[_TABLE][name][0].as_py()) for name in _COLUMNS})


def stretches(places: Any, cuts: Any, side: Literal["left", "right"], device: Device) -> Any:
    """int64: how many of some cuts are before each of some places; at it too, with ``"left"``.

    Args:
        places: int64, ascending; they are not searched for, as there may be many.
        cuts: int64, ascending.
        side: On which side of equal places a cut is.
        device: Where they are.
    """
    ends = np.full_like(cuts, len(places), shape=(1,))
    bounds = np.concatenate([np.zeros_like(ends), np.searchsorted(places, cuts, side=side), ends])
    return device.kernels.group_codes(bounds).astype(np.int64)


def _counted_from(entered: Ints, left: Ints, rows: int) -> Callable[[int], int]:
    """What tells the delivery at which an interval from some delivery on has counted its rows."""
    size = len(entered) - 1
    if int(entered[-1] + left[-1]) < rows * (size // _FEW):

        def one(begin: int) -> int:
            by_entered = int(np.searchsorted(entered[1:], entered[begin] + rows))
            return min(by_entered, int(np.searchsorted(left[1:], left[begin] + rows)))

        return one
    # Intervals are short, so there are many.
    by_entered = np.searchsorted(entered[1:], entered + rows)
    every: list[int] = np.minimum(by_entered, np.searchsorted(left[1:], left + rows)).tolist()
    return every.__getitem__


def _sums(values: Ints) -> Ints:
    """0, and the running sum of some values behind each."""
    if len(values) and (least := int(values.min())) == values.max():
        return np.arange(len(values) + 1, dtype=np.int64) * least  # as where each row is a turn of its own
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, dtype=np.int64, out=sums[1:])
    return sums
