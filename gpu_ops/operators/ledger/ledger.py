"""Events become arrivals on turns, and the moves of the clock ticks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_tables import OLDER, Field, StateTable, Tables, counter
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, TIME_TYPE, format_time
from gpu_ops.core.turns import ASK, CLOCK, PLACE, TURN
from gpu_ops.devices import Device
from gpu_ops.errors import ColumnError, SourceError, TimeError
from gpu_ops.operators.events import Events, TimeOrder
from gpu_ops.operators.ledger.waiting import WaitingPoints
from gpu_ops.operators.operator import BatchInput, Operator, StepInput
from gpu_ops.operators.row_order import in_order, stable_order, strictly_ascend
from gpu_ops.plan.ledger import EventLedger, TurnNumbers

_LAST = (1 << 63) - 1
"""A clock that no event moves."""


class _InOneStep(Operator, family=True):
    """An operator that takes a batch as one step to the end of time."""

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step to the end of time."""
        given, _ = self.step([StepInput(list(each)) for each in whole.inputs], [MAX_TIME] * len(whole.inputs))
        yield from given.events


class TurnNumbersOperator(_InOneStep, nodes=(TurnNumbers,)):
    """One merge of the events before the oldest CTI; then each turn has its number.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: TurnNumbers

    def __init__(self, node: TurnNumbers, device: Device) -> None:
        super().__init__(node, device)
        self._turn, self._clock = 0, node.since
        self._waiting = [
            WaitingPoints(f"waiting {at}", pa.schema([each.schema.field(name) for name in node.kept(at)]), device)
            for at, each in enumerate(node.streams)
        ]

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The turns of the events before the oldest CTI.

        Raises:
            TimeError: An event starts before the clock.
            ColumnError: An event has no place in the order, or two have the same one.
        """
        cti, node, begun = min(ctis), self._node, self._turn
        parts = [
            waits.before(cti, _with_columns(fed.events, node.kept(at), self._device))
            for at, (waits, fed) in enumerate(zip(self._waiting, given, strict=True))
        ]
        array = self._device.columns.array
        ticks = [] if begun else [self._tick(self._clock)]
        made = self._numbered(parts, ticks)
        if cti == MAX_TIME and node.until is not None and node.until > self._clock:
            ticks.append(self._tick(node.until))
        passed = cti if cti == MAX_TIME else self._turn * TURN
        if self._turn == begun:
            return StepInput(), passed
        none = array(np.zeros(0, np.int64))
        moves, shown = ticks[0] if ticks else (none, none)
        if len(ticks) > 1:
            moves, shown = map(np.concatenate, zip(*ticks, strict=True))
        made += [(none, none)] * (len(parts) - len(made))
        return StepInput([self._points(*each) for each in (*made, (moves, shown))]), passed

    def _tick(self, clock: int) -> tuple[Any, Any]:
        """A turn that moves the clock: its place, and what it shows then."""
        array = self._device.columns.array
        made = array(np.array([self._turn * TURN])), array(np.array([clock]))
        self._turn, self._clock = self._turn + 1, clock
        return made

    def _points(self, places: Any, clocks: Any) -> Events:
        frame = self._device.columns.build({CLOCK: (clocks, None, TIME_TYPE)})
        return Events(places, TICK, frame, order=TimeOrder.ASCENDS)

    def _numbered(self, parts: Sequence[Events | None], ticks: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """For each stream the places of its events, of the next turns, and what the clock shows; it adds ticks.

        Args:
            parts: The events of each stream.
            ticks: Places and clocks of ticks, to which some are added.
        """
        node, columns = self._node, self._device.columns
        runs = [None if each is None else self._run(at, each) for at, each in enumerate(parts)]
        some = [each[:2] for each in runs if each is not None]
        if not some:
            return []
        first = min(int(starts[0]) for starts, _ in some)
        if node.moves and first < self._clock:
            raise TimeError(
                f"An event comes before the clock starts, which is at {format_time(node.since)}.",
                values=f"start={format_time(first)}",
                remedy="Start the clock earlier: start=….",
            )
        ends = np.cumsum([0, *(0 if each is None else len(each[0]) for each in runs)])
        if len(some) == 1 and node.moves and all(each is None or each[2] for each in runs):
            places, clocks = self._apart(some[0][0], ticks, is_late=first > self._clock)
            return [(places[low:high], clocks[low:high]) for low, high in pairwise(ends)]
        starts, keys = (each[0] if len(each) == 1 else np.concatenate(each) for each in zip(*some, strict=True))
        clock = self._clock if node.moves else _LAST
        places, clocks, moves, shown = self._device.kernels.numbered_turns(
            starts, keys, columns.array(ends), clock, self._turn
        )
        clocks = clocks if node.moves else np.full_like(clocks, self._clock)
        self._turn += len(places) + len(moves)
        if len(moves):
            ticks.append((moves, shown))
            self._clock = int(shown[-1])
        return [(places[low:high], clocks[low:high]) for low, high in pairwise(ends)]

    def _apart(self, starts: Any, ticks: list[tuple[Any, Any]], *, is_late: bool) -> tuple[Any, Any]:
        """Places and clocks of events of one stream of which no two come together: two turns for each of them.

        Args:
            starts: When they come.
            ticks: As in `_numbered`.
            is_late: Whether the first of them moves the clock.
        """
        first, count = self._turn + is_late, len(starts)
        places = np.arange(first * TURN, (first + 2 * count) * TURN, 2 * TURN, like=starts)
        moved = slice(None) if is_late else slice(1, None)
        if count - (not is_late):
            ticks.append((places[moved] - TURN, starts[moved]))
        self._turn, self._clock = first + 2 * count - 1, int(starts[-1])
        return places, starts

    def _run(self, at: int, events: Events) -> tuple[Any, Any, bool]:
        """(the starts of the events of a stream in order, their keys, whether no two start together)."""
        keys = self._keys(at, events)
        if strictly_ascend(events.start):
            return keys[0], keys[-1], True
        if not in_order(keys):
            order = stable_order(keys, events.start, self._device)
            keys = [self._device.kernels.take(each, order) for each in keys]
        tied = keys[0][1:] == keys[0][:-1]
        if len(keys) > 1:
            tied = tied & (keys[1][1:] == keys[1][:-1])
        if bool(tied.any()) and self._node.shown and at == len(self._node.streams) - 1:
            first = np.concatenate([tied[:1] & False, tied])
            kept = self._device.kernels.keep(~first)
            keys = [self._device.kernels.take(each, kept) for each in keys]
        elif bool(tied.any()):
            self._refuse_tie(at, int(keys[0][self._device.kernels.keep(tied)[:1]][0]))
        return keys[0], keys[-1], False

    def _keys(self, at: int, events: Events) -> list[Any]:
        """What orders the events of a stream."""
        name = self._node.order
        if name is None:
            return [events.start]
        values, valid = self._device.columns.values(events.frame, name)
        if valid is not None and not bool(valid.all()):
            row = self._device.kernels.keep(~valid)[:1]
            raise ColumnError(
                f"An event of {self._node.called[at]} has no place in the order.",
                column=name,
                values=f"start={format_time(int(events.start[row][0]))}",
                remedy="Give each a number.",
            )
        return [events.start, values.astype(np.int64, copy=False)]

    def _refuse_tie(self, at: int, start: int) -> NoReturn:
        """Refuse events of one stream that nothing orders."""
        name, order = self._node.called[at], self._node.order
        if order is None and self._node.moves:
            raise ColumnError(
                f"Two events of {name} come at {format_time(start)}, and nothing says which is first.",
                remedy='Name a column that does: order="seq".',
            )
        raise ColumnError(f"Two events of {name} have one number.", column=order, remedy="Number them anew.")

    # The state

    @property
    def alive(self) -> int:
        """How many events wait."""
        return self.waiting

    @property
    def waiting(self) -> int:
        """How many events wait for a CTI."""
        return sum(map(len, self._waiting))

    def tables(self) -> dict[str, pa.Table]:
        """The events that wait, the number of the next turn, and the clock."""
        made = {"ledger": pa.table({"turn": pa.array([self._turn]), "clock": pa.array([self._clock], pa.int64())})}
        for each in self._waiting:
            made |= each.tables()
        return made

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        time = Field(pa.int64(), least=MIN_TIME, most=MAX_TIME)
        yield StateTable("ledger", {"turn": counter(MAX_TIME // TURN), "clock": time}, rows=1, required=True)
        for each in self._waiting:
            yield from each.declared()

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        self._turn, self._clock = (tables["ledger"][name][0].as_py() for name in ("turn", "clock"))
        for each in self._waiting:
            each.restore(tables)


class LedgerOperator(_InOneStep, nodes=(EventLedger,)):
    """The events of a stream beside the numbers of their turns; or the ticks.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: EventLedger

    def __init__(self, node: EventLedger, device: Device) -> None:
        super().__init__(node, device)
        self._waiting = None
        if node.events is not None:
            self._names = node.needs(node.events.schema.names)[1]
            schema = pa.schema([node.events.schema.field(name) for name in self._names])
            self._waiting = WaitingPoints("waiting", schema, device)

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The events that have a number by now, in their order; or the ticks."""
        numbered, columns = given[0].events, self._device.columns
        if self._waiting is None:
            ticks = [each for each in numbered[-1:] if len(each)]
            return StepInput([Events(each.start, TICK, self._asking(each)) for each in ticks]), ctis[0]
        fresh = _with_columns(given[1].events, self._names, self._device)
        if not numbered or not len(mine := numbered[int(self._node.gives or 0)]):
            for each in fresh:
                self._waiting.hold(each)
            return StepInput(), ctis[0]
        events = self._first(len(mine), fresh)
        own = columns.build({PLACE: (mine.start, None, pa.int64())})
        return StepInput([mine.points(columns.beside(events.frame, mine.frame, own))]), ctis[0]

    def _asking(self, ticks: Events) -> Any:
        columns = self._device.columns
        asks = np.zeros_like(ticks.start, dtype=np.bool_)
        return columns.beside(ticks.frame, columns.build({ASK: (asks, None, pa.bool_())}))

    def _first(self, count: int, fresh: Sequence[Events]) -> Events:
        """The first events of the stream that wait; the others wait on."""
        assert self._waiting is not None  # noqa: S101  (it gives events)
        columns, name = self._device.columns, self._node.numbers.order
        events = self._waiting.before(MAX_TIME, fresh)
        if events is None or len(events) < count:
            raise SourceError("Events that were numbered before are missing in the checkpoint.", remedy=OLDER)
        keys = [events.start]
        if name is not None:
            keys.append(columns.values(events.frame, name)[0].astype(np.int64, copy=False))
        if not (events.ascend(self._device) if name is None else in_order(keys)):
            events = events.take(stable_order(keys, events.start, self._device), self._device)
        if len(events) == count:
            return events
        self._waiting.hold(self._some(events, count, len(events)))
        return self._some(events, 0, count)

    def _some(self, events: Events, low: int, high: int) -> Events:
        """A stretch of events in order."""
        frame = self._device.columns.cut(events.frame, low, high)
        return Events(events.start[low:high], TICK, frame, order=TimeOrder.ASCENDS)

    # The state

    @property
    def alive(self) -> int:
        """How many events wait."""
        return self.waiting

    @property
    def waiting(self) -> int:
        """How many events wait for a number."""
        return 0 if self._waiting is None else len(self._waiting)

    def tables(self) -> dict[str, pa.Table]:
        """The events that wait."""
        return {} if self._waiting is None else self._waiting.tables()

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The table that `tables` gives."""
        del tables
        if self._waiting is not None:
            yield from self._waiting.declared()

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        if self._waiting is not None:
            self._waiting.restore(tables)


def _with_columns(pieces: Sequence[Events], names: Sequence[str], device: Device) -> list[Events]:
    """Pieces as points, with these columns alone, as far as they have them."""
    columns = device.columns
    return [
        each.points(columns.select(each.frame, [name for name in names if name in each.frame.columns]))
        for each in pieces
        if len(each)
    ]
