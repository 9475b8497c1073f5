"""The instances of a context, step by step: which starts make one, and where each ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_tables import Field, StateTable, Tables, counter
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, TIME_TYPE
from gpu_ops.core.turns import CLOCK, ENDED, INSTANCE, STEP
from gpu_ops.devices import Device
from gpu_ops.operators.checked import holds
from gpu_ops.operators.contexts.alive import AliveInstances
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.joins import joins
from gpu_ops.operators.ledger.waiting import OnTicks, WaitingPoints
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.row_order import run_starts
from gpu_ops.operators.row_windows.clock_kinds import after
from gpu_ops.operators.row_windows.ticks import TickQueue, Ticks
from gpu_ops.operators.state.fields import NUMBERED_TIME
from gpu_ops.plan.clock_windows import ClockSpan
from gpu_ops.plan.contexts import AtOnce, Instances, Timing, condition_columns
from gpu_ops.plan.crontab_times import CrontabTimes
from gpu_ops.plan.window_kinds import UNKNOWN

_PAIRS = 1 << 20
_NONE = -1


@dataclass(frozen=True)
class _Some:
    """Instances, or what may be some.

    Attributes:
        place: int64 places at which they start, ascending where they are new.
        due: int64 times at which the clock ends them; `UNKNOWN` if it does not.
        frame: Their columns, as the node's schema has them.
    """

    place: Any
    due: Any
    frame: Any

    def __len__(self) -> int:
        return len(self.place)


@dataclass(frozen=True)
class _Ended:
    """Where instances end in a step: int64 places, `UNKNOWN` where they do not; and by which row of the ends, or -1."""

    place: Any
    by: Any


@dataclass(frozen=True)
class _Stops:
    """What may end instances in a step: points in order, moves of the clock, and instances around them that end."""

    points: Events | None
    moves: Ticks
    outer: tuple[Any, Any] | None


class InstancesOperator(OnTicks, nodes=(Instances,)):
    """Where instances start and end. All starts of a step are looked at together.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: Instances

    def __init__(self, node: Instances, device: Device) -> None:
        super().__init__(node, device)
        self._ticks = TickQueue(device)
        sides = zip(node.sides[1:], node.inputs[1:], strict=True)
        self._waiting = {side: WaitingPoints(f"waiting {side}", each.schema, device) for side, each in sides}
        self._kept = pa.schema([each for each in node.schema if each.name != ENDED])
        self._alive = AliveInstances(self._kept, device)
        self._next, self._begun, self._due, self._clock = 0, False, UNKNOWN, MIN_TIME

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """Where instances start and end before the CTI."""
        cti, device = min(ctis), self._device
        moves = self._ticks.through(concat(given[0].events, device), cti)
        found = {
            side: waits.before(cti, fed.events)
            for (side, waits), fed in zip(self._waiting.items(), given[1:], strict=True)
        }
        begins = None
        if not self._begun and len(moves):
            self._begun, begins = True, (int(moves.place[0]), int(moves.clock[0]))
        outer = found.get("outer")
        stops = _Stops(self._in_order(found.get("ends")), moves, self._outer_ends(outer))
        made: list[Events] = []
        if self._node.begins is not None and self._node.keys is not None:
            self._by_clock(stops, begins, made)
        else:
            self._by_starts(self._candidates(self._in_order(found.get("starts")), outer, begins, moves), stops, made)
        self._alive.forget()
        self._clock = self._clock if moves.last is None else moves.last
        return StepInput([each for each in made if len(each)]), cti

    def _in_order(self, points: Events | None) -> Events | None:
        if points is None or self._device.kernels.ascends(points.start):
            return points
        return points.take(np.argsort(points.start, kind="stable"), self._device)

    def _outer_ends(self, outer: Events | None) -> tuple[Any, Any] | None:
        """(int64 numbers, ascending, int64 places) of the instances around that end in the step."""
        if outer is None:
            return None
        columns, kernels = self._device.columns, self._device.kernels
        gone = kernels.keep(columns.values(outer.frame, ENDED)[0] != 0)
        ids = kernels.take(columns.values(outer.frame, self._node.outer_number)[0], gone)
        order = np.argsort(ids, kind="stable")
        return kernels.take(ids, order), kernels.take(kernels.take(outer.start, gone), order)

    # What may start one

    def _candidates(
        self, starts: Events | None, outer: Events | None, begins: tuple[int, int] | None, moves: Ticks
    ) -> _Some | None:
        node, device = self._node, self._device
        columns, kernels = device.columns, device.kernels
        parts: list[_Some] = []
        if node.now or node.preset:
            parts += self._at_once(outer, begins, moves)
        if node.begins is not None:
            index = self._ticks_that_start(moves, begins)
            if len(index):
                at = columns.array(index)
                parts.append(self._made(kernels.take(moves.place, at), kernels.take(moves.clock, at), None))
        if starts is not None and len(starts):
            clock = columns.values(starts.frame, CLOCK)[0]
            # The moment behind an event comes before the next event.
            place = starts.start if node.inclusive else starts.start + STEP // 2
            parts.append(self._made(place, clock, starts.frame))
        if len(parts) <= 1:
            return parts[0] if parts else None
        place, due = (np.concatenate([getattr(each, name) for each in parts]) for name in ("place", "due"))
        order, frame = np.argsort(place, kind="stable"), columns.concat([each.frame for each in parts])
        return _Some(kernels.take(place, order), kernels.take(due, order), columns.take(frame, order))

    def _at_once(self, outer: Events | None, begins: tuple[int, int] | None, moves: Ticks) -> list[_Some]:
        """Those that start where the context begins, or where instances around them do."""
        node, columns, kernels = self._node, self._device.columns, self._device.kernels
        frame = None
        if node.outer is not None:
            if outer is None:
                return []
            at = kernels.keep(columns.values(outer.frame, ENDED)[0] == 0)
            source, place = at, kernels.take(outer.start, at)
            clock = kernels.take(columns.values(outer.frame, node.outer_since)[0], at)
            frame = columns.take(outer.frame, source)
        elif begins is None:
            return []
        else:
            place, clock = (columns.array(np.array([each])) for each in begins)
        if not node.preset:
            return [self._made(place, clock, frame)]
        count = np.full_like(place, node.preset)
        source, offset = kernels.expand(count)
        place, clock = kernels.take(place, source), kernels.take(clock, source)
        numbers = columns.build({node.number: (offset.astype(np.int32), None, pa.int32())})
        if frame is not None:
            frame = columns.take(columns.select(frame, [n for n in frame.columns if n != node.number]), source)
            numbers = columns.beside(frame, numbers)
        return [self._made(place, clock, numbers)]

    def _made(self, place: Any, clock: Any, frame: Any | None) -> _Some:
        """Candidates with all columns."""
        node, columns = self._node, self._device.columns
        lasts = node.lasts
        due = np.full_like(place, UNKNOWN) if lasts is None else self._after(lasts, clock)
        known = due <= MAX_TIME
        own = columns.build(
            {
                INSTANCE: (np.zeros_like(place), None, pa.int64()),
                node.since: (clock, None, TIME_TYPE),
                node.until: (np.where(known, due, 0), known, TIME_TYPE),
            }
        )
        parts, names = [own], {INSTANCE, node.since, node.until}
        given = [] if frame is None else [name for name in frame.columns if name in node.started.names]
        if given:
            parts.append(columns.select(frame, given))
        rest = [each for each in self._kept if each.name not in {*names, *given}]
        if rest:
            parts.append(columns.nulls(columns.from_arrow(empty_table(pa.schema(rest))), len(place)))
        whole = columns.beside(*parts) if len(parts) > 1 else own
        return _Some(place, np.where(known, due, UNKNOWN), columns.select(whole, self._kept.names))

    def _after(self, timing: ClockSpan | CrontabTimes, clock: Any) -> Any:
        """int64: when a span or a crontab that begins at some times is due."""
        if isinstance(timing, ClockSpan):
            return after(timing, clock, self._device)
        columns = self._device.columns
        times, source = np.unique(columns.host(clock), return_inverse=True)
        due = np.array([timing.next_after(int(each)) for each in times.tolist()], np.int64)
        return columns.array(due[source])

    # Which of them do, and where these end

    def _by_starts(self, some: _Some | None, stops: _Stops, made: list[Events]) -> None:
        """Instances that start at points."""
        node, kernels, columns = self._node, self._device.kernels, self._device.columns
        alive = self._alive
        before = _Some(alive.begin, self._dues(alive.frame), alive.frame)
        ended = self._ends_of(before, stops)
        if some is not None and len(some):
            ends = self._ends_of(some, stops)
            if node.keys is not None:
                at = self._one_at_a_time(some, ends, before, ended)
                some = _Some(kernels.take(some.place, at), kernels.take(some.due, at), columns.take(some.frame, at))
                ends = _Ended(kernels.take(ends.place, at), kernels.take(ends.by, at))
            self._add(some, made)
            ended = _Ended(np.concatenate([ended.place, ends.place]), np.concatenate([ended.by, ends.by]))
        self._finish(ended, stops, made)

    def _dues(self, frame: Any) -> Any:
        due, valid = self._device.columns.values(frame, self._node.until)
        return due if valid is None else np.where(valid, due, UNKNOWN)

    def _add(self, some: _Some, made: list[Events]) -> None:
        """Instances start."""
        columns, count = self._device.columns, len(some)
        if not count:
            return
        ids = np.arange(self._next, self._next + count, like=some.place).astype(np.int64, copy=False)
        self._next += count
        rest = columns.select(some.frame, [name for name in self._kept.names if name != INSTANCE])
        frame = columns.beside(columns.build({INSTANCE: (ids, None, pa.int64())}), rest)
        self._alive.add(ids, some.place, frame)
        made.append(self._points(some.place, frame, ended=False))

    def _finish(self, ended: _Ended, stops: _Stops, made: list[Events]) -> None:
        """Instances end."""
        columns, kernels, node = self._device.columns, self._device.kernels, self._node
        at = kernels.keep(ended.place < UNKNOWN)
        if not len(at):
            return
        place, by = kernels.take(ended.place, at), kernels.take(ended.by, at)
        frame = columns.take(self._alive.frame, at)
        if node.shows and stops.points is not None:
            shown = columns.select(stops.points.frame, list(node.shows))
            shown = columns.null_where(columns.take(shown, np.maximum(by, 0)), by >= 0)
            rest = columns.select(frame, [name for name in self._kept.names if name not in node.shows])
            frame = columns.select(columns.beside(rest, shown), self._kept.names)
        self._alive.finish(at, place, frame)
        order = np.argsort(place, kind="stable")
        made.append(self._points(kernels.take(place, order), columns.take(frame, order), ended=True))

    def _points(self, place: Any, frame: Any, *, ended: bool) -> Events:
        columns = self._device.columns
        said = columns.build({ENDED: (np.full_like(place, ended, dtype=np.bool_), None, pa.bool_())})
        return Events(place, TICK, columns.select(columns.beside(frame, said), self._node.schema.names))

    def _one_at_a_time(self, some: _Some, ends: _Ended, before: _Some, ended: _Ended) -> Any:
        """int64 indices of the candidates that start: of each key the first one behind the end of the one before."""
        device = self._device
        kernels, columns, keys = device.kernels, device.columns, list(self._node.keys or ())
        count = len(some)
        codes, groups = np.zeros_like(np.concatenate([some.place, before.place]), dtype=np.int32), 1
        if keys:
            both = columns.concat([columns.select(each.frame, keys) for each in (some, before)])
            codes, groups, _ = columns.key_codes(both, keys)
        order = kernels.group_order(codes[:count], groups, some.place)
        code, place, end = (kernels.take(each, order) for each in (codes[:count], some.place, ends.place))
        floor = np.full_like(some.place, MIN_TIME - 1, shape=(groups,))
        floor[codes[count:]] = ended.place
        first = kernels.keep(run_starts(code))
        mine = kernels.take(code, first)
        roots = kernels.search_pairs(code, place, mine, kernels.take(floor, mine))
        good = (roots < count) & (kernels.take(code, np.minimum(roots, count - 1)) == mine)
        roots = kernels.take(roots, kernels.keep(good))
        following = kernels.search_pairs(code, place, code, end)
        same = (following < count) & (kernels.take(code, np.minimum(following, count - 1)) == code)
        reached = kernels.reached(np.where(same, following, count), roots)
        return np.sort(kernels.take(order, kernels.keep(reached)))

    def _ends_of(self, some: _Some, stops: _Stops) -> _Ended:
        """Where instances end in a step, if they do."""
        place, by, take = np.full_like(some.place, UNKNOWN), np.full_like(some.place, _NONE), self._device.kernels.take
        if not len(some):
            return _Ended(place, by)
        if stops.points is not None:
            by = self._met(some, stops.points)
            place = np.where(by >= 0, take(stops.points.start, np.maximum(by, 0)), UNKNOWN)
        ended = place
        if len(stops.moves):
            place = np.minimum(place, stops.moves.places_at(stops.moves.first_at(some.due)))
        if stops.outer is not None and len(stops.outer[0]):
            ids, (numbers, places) = self._device.columns.values(some.frame, self._node.outer_number)[0], stops.outer
            at = np.minimum(np.searchsorted(numbers, ids), len(numbers) - 1)
            place = np.minimum(place, np.where(take(numbers, at) == ids, take(places, at), UNKNOWN))
        return _Ended(place, np.where(ended == place, by, _NONE))

    def _met(self, some: _Some, points: Events) -> Any:
        """int64: the first point behind the start of each instance that ends it, -1 for none."""
        device = self._device
        kernels = device.kernels
        codes, others = self._matched(some, points)
        order = kernels.group_order(others, int(max(codes.max(), others.max())) + 1, points.start)
        code, place = kernels.take(others, order), kernels.take(points.start, order)
        first = kernels.search_pairs(code, place, codes, some.place)
        if self._node.condition is None:
            at = np.minimum(first, len(code) - 1)
            there = (first < len(code)) & (kernels.take(code, at) == codes)
            return np.where(there, kernels.take(order, at), _NONE)
        last = np.searchsorted(code, codes, side="right")
        return self._held(some, points, order, first, np.maximum(last, first))

    def _matched(self, some: _Some, points: Events) -> tuple[Any, Any]:
        """int32 keys of instances and of ends: equal where the keys are."""
        node, columns = self._node, self._device.columns
        count = len(some)
        if not node.keyed and not node.on:
            zeros = (np.zeros_like(each, dtype=np.int32) for each in (some.place, points.start))
            return next(zeros), next(zeros)
        pairs = (*((name, name) for name in node.keyed), *node.on)
        names = [mine for mine, _ in pairs]
        mine = columns.select(some.frame, names)
        theirs = joins.right_keys(pairs, points.frame, self._device)
        codes, groups, _ = columns.key_codes(columns.concat([mine, theirs]), names)
        made = [codes[:count], codes[count:]]
        for at, frame in enumerate((some.frame, points.frame)):
            known = joins.known_keys([each[at] for each in node.on], frame, self._device)
            if known is not None:
                made[at] = np.where(known, made[at], np.int32(groups + at)).astype(np.int32)
        return made[0], made[1]

    def _held(self, some: _Some, points: Events, order: Any, first: Any, last: Any) -> Any:
        """The first of some points that meets the condition: the points are ranges of an order."""
        device, node = self._device, self._node
        kernels, columns = device.kernels, device.columns
        assert node.condition is not None  # noqa: S101  (asked by who calls it)
        mine, theirs = condition_columns(node)
        found = np.full_like(some.place, _NONE)
        many = last - first
        upto, begin, count = columns.host(np.cumsum(many)), 0, len(some)
        while begin < count:
            passed = int(upto[begin - 1]) if begin else 0
            end = max(int(np.searchsorted(upto, passed + _PAIRS, side="right")), begin + 1)
            source, offset = kernels.expand(many[begin:end])
            source = source + begin
            other = kernels.take(order, kernels.take(first, source) + offset)
            parts = [columns.take(columns.select(some.frame, list(mine)), source)] if mine else []
            parts += [columns.take(columns.select(points.frame, list(theirs)), other)] if theirs else []
            if len(source):
                frame = columns.beside(*parts) if len(parts) > 1 else parts[0]
                met = Events(kernels.take(points.start, other), TICK, frame)
                held = kernels.keep(holds(node.condition, {}, met, device))
                source, other = kernels.take(source, held), kernels.take(other, held)
                if len(source):
                    firsts = kernels.keep(run_starts(source))
                    found[kernels.take(source, firsts)] = kernels.take(other, firsts)
            begin = end
        return found

    # What the clock starts

    def _ticks_that_start(self, moves: Ticks, begins: tuple[int, int] | None) -> Any:
        """Host int64 indices of the ticks at which the clock starts an instance, whatever others are there."""
        host = self._device.columns.host
        clocks, timing = host(moves.clock), self._node.begins
        assert timing is not None  # noqa: S101  (asked by who calls it)
        found, low = list[int](), 0
        if begins is not None:
            self._due = begins[1] if isinstance(timing, AtOnce) else _next(timing, begins[1])
        while self._due < UNKNOWN:
            at = low + int(np.searchsorted(clocks[low:], self._due))
            if at >= len(clocks):
                break
            found.append(at)
            self._due, low = _next(timing, int(clocks[at])), at + 1
        return np.array(found, np.int64)

    def _by_clock(self, stops: _Stops, begins: tuple[int, int] | None, made: list[Events]) -> None:
        """Instances of which one is there at a time: each starts some time after the one before has ended."""
        node, columns, host, moves = self._node, self._device.columns, self._device.columns.host, stops.moves
        timing = node.begins
        assert timing is not None  # noqa: S101  (asked by who calls it)
        places, clocks = host(moves.place), host(moves.clock)
        low = 0
        if begins is not None:
            self._due = self._first_due(timing, begins[1])
        while True:
            if len(self._alive) and int(self._alive.end[-1]) == UNKNOWN:
                alive, last = self._alive, slice(len(self._alive) - 1, None)
                number = columns.array(np.arange(len(alive) - 1, len(alive)))
                frame = columns.take(alive.frame, number)
                one = _Some(alive.begin[last], self._dues(frame), frame)
                ended = self._ends_of(one, stops)
                if int(ended.place[0]) == UNKNOWN:
                    return
                none = np.full_like(alive.begin[:-1], UNKNOWN)
                whole = _Ended(np.concatenate([none, ended.place]), np.concatenate([none * 0 - 1, ended.by]))
                self._finish(whole, stops, made)
                # The next start is told by the clock where this one ended.
                end = int(ended.place[0])
                low = int(np.searchsorted(places, end, side="right"))
                clock = int(clocks[low - 1]) if low else self._clock
                self._due = _next(timing, clock)
                continue
            at = low + int(np.searchsorted(clocks[low:], self._due))
            if self._due >= UNKNOWN or at >= len(clocks):
                return
            index = columns.array(np.array([at]))
            take = self._device.kernels.take
            self._add(self._made(take(moves.place, index), take(moves.clock, index), None), made)

    def _first_due(self, timing: Timing, clock: int) -> int:
        """When the first one starts: at once, if a crontab says that it would end before it starts."""
        lasts = self._node.lasts
        if isinstance(timing, AtOnce):
            return clock
        due = _next(timing, clock)
        inside = isinstance(timing, CrontabTimes) and isinstance(lasts, CrontabTimes) and lasts.next_after(clock) < due
        return clock if inside else due

    # The state

    @property
    def parts(self) -> list[Any]:
        """What it keeps."""
        return [self._ticks, *self._waiting.values(), self._alive]

    @property
    def in_runs(self) -> Sequence[Any]:
        """The instances."""
        return [self._alive]

    @property
    def instances(self) -> int:
        """How many instances are there."""
        return len(self._alive)

    @property
    def ends_by_events(self) -> bool:
        """Whether events may end them."""
        return self._node.ends_at is not None

    @property
    def waiting(self) -> int:
        """How many points wait for a CTI."""
        return sum(map(len, self.parts[:-1]))

    @property
    def alive(self) -> int:
        """How many points and instances it keeps."""
        return self.waiting + len(self._alive)

    def tables(self) -> dict[str, pa.Table]:
        """What waits, the instances, and what is known of the next one."""
        own = {"next": self._next, "begun": int(self._begun), "due": self._due, "clock": self._clock}
        known = pa.table({name: pa.array([each], pa.int64()) for name, each in own.items()})
        return super().tables() | {"known": known}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from super().declared(tables)
        due = Field(pa.int64(), least=MIN_TIME, most=UNKNOWN)
        columns = {"next": counter(), "begun": counter(1), "due": due, "clock": NUMBERED_TIME}
        yield StateTable("known", columns, 1, required=True)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        if not tables:
            return
        super().restore(tables)
        known = {name: tables["known"][name][0].as_py() for name in ("next", "begun", "due", "clock")}
        self._next, self._due, self._clock = known["next"], known["due"], known["clock"]
        self._begun = bool(known["begun"])


def _next(timing: Timing, clock: int) -> int:
    """When the clock starts the next instance, behind a time."""
    if isinstance(timing, AtOnce):
        return clock
    if isinstance(timing, CrontabTimes):
        due = timing.next_after(clock)
    else:
        due = int(timing.after(np.array([clock], np.int64))[0])
    return UNKNOWN if due >= MAX_TIME else due
