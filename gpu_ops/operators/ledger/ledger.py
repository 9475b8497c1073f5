"""Events become arrivals on turns, and the moves of the clock ticks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_tables import Field, StateTable, Tables, counter
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, TIME_TYPE, format_time
from gpu_ops.core.turns import ASK, CLOCK, PLACE, TURN
from gpu_ops.devices import Device
from gpu_ops.errors import ColumnError, TimeError
from gpu_ops.operators.events import Events
from gpu_ops.operators.ledger.waiting import WaitingPoints
from gpu_ops.operators.operator import BatchInput, Operator, StepInput
from gpu_ops.operators.row_order import in_order, stable_order
from gpu_ops.plan.ledger import EventLedger

_LAST = (1 << 63) - 1
"""A clock that no event moves."""


class LedgerOperator(Operator, nodes=(EventLedger,)):
    """One sort of the events before the oldest CTI; then each turn has its number.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: EventLedger

    def __init__(self, node: EventLedger, device: Device) -> None:
        super().__init__(node, device)
        self._turn, self._clock = 0, node.since
        schemas = [each.schema for each in node.streams]
        self._names = [node.kept(at, each.names) for at, each in enumerate(schemas)]
        self._waiting = [
            WaitingPoints(f"waiting {at}", pa.schema([each.field(name) for name in self._names[at]]), device)
            for at, each in enumerate(schemas)
        ]

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step to the end of time."""
        given, _ = self.step([StepInput(list(each)) for each in whole.inputs], [MAX_TIME] * len(whole.inputs))
        yield from given.events

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The turns of the events before the oldest CTI.

        Raises:
            TimeError: An event starts before the clock.
            ColumnError: An event has no place in the order, or two have the same one.
        """
        cti = min(ctis)
        parts = [self._before(at, cti, fed.events) for at, fed in enumerate(given)]
        ticks = [] if self._turn else [self._tick(self._clock)]
        arrivals = self._arrived(parts, ticks)
        until = self._node.until
        if cti == MAX_TIME and until is not None and until > self._clock:
            ticks.append(self._tick(until))
        passed = cti if cti == MAX_TIME else self._turn * TURN
        if self._node.gives is None:
            return StepInput([self._ticks(*each) for each in ticks]), passed
        return StepInput([] if arrivals is None else [arrivals]), passed

    def _before(self, at: int, cti: int, events: Sequence[Events]) -> Events | None:
        """The events of a stream that start before the CTI, with the columns that are read."""
        columns, names = self._device.columns, self._names[at]
        some = [
            Events(each.start, TICK, columns.select(each.frame, [name for name in names if name in each.frame.columns]))
            for each in events
            if len(each)
        ]
        return self._waiting[at].before(cti, some)

    def _tick(self, clock: int) -> tuple[Any, Any]:
        """A turn that moves the clock: its place, and what it shows then."""
        array = self._device.columns.array
        made = array(np.array([self._turn * TURN])), array(np.array([clock]))
        self._turn, self._clock = self._turn + 1, clock
        return made

    def _ticks(self, place: Any, clock: Any) -> Events:
        asks = np.zeros_like(place, dtype=np.bool_)
        return Events(
            place, TICK, self._device.columns.build({CLOCK: (clock, None, TIME_TYPE), ASK: (asks, None, pa.bool_())})
        )

    def _arrived(self, parts: Sequence[Events | None], ticks: list[tuple[Any, Any]]) -> Events | None:
        """The arrivals that it gives, of the next turns; the moves of the clock become ticks.

        Args:
            parts: The events of each stream.
            ticks: Places and clocks of ticks, to which some are added.
        """
        node, columns = self._node, self._device.columns
        runs = {at: self._run(at, each) for at, each in enumerate(parts) if each is not None}
        if not runs:
            return None
        first = min(int(events.start[0]) for events, _ in runs.values())
        if node.moves and first < self._clock:
            raise TimeError(
                f"An event comes before the clock starts, which is at {format_time(node.since)}.",
                values=f"start={format_time(first)}",
                remedy="Start the clock earlier: start=….",
            )
        starts = np.concatenate([events.start for events, _ in runs.values()])
        keys = np.concatenate([key for _, key in runs.values()])
        begins = columns.array(np.cumsum([0, *(len(key) for _, key in runs.values())]))
        gives = -1 if node.gives not in runs else list(runs).index(node.gives)
        clock = self._clock if node.moves else _LAST
        turns, clocks, count = self._device.kernels.numbered_turns(starts, keys, begins, gives, clock)
        clocks = clocks if node.moves else np.full_like(clocks, self._clock)
        places = (turns + self._turn) * TURN
        self._turn += count
        if node.moves:
            self._clock = max(self._clock, *(int(events.start[-1]) for events, _ in runs.values()))
        if gives >= 0:
            events, _ = list(runs.values())[gives]
            own = columns.build({CLOCK: (clocks, None, TIME_TYPE), PLACE: (places, None, pa.int64())})
            return Events(places, TICK, columns.beside(events.frame, own))
        if node.gives is None and len(turns):
            ticks.append((places, clocks))
        return None

    def _run(self, at: int, events: Events) -> tuple[Events, Any]:
        """The events of a stream in order, and their keys."""
        keys = [events.start, *([] if self._node.order is None else [self._order_of(at, events)])]
        if not in_order(keys):
            order = stable_order(keys, events.start, self._device)
            events = events.take(order, self._device)
            keys = [self._device.kernels.take(each, order) for each in keys]
        tied = keys[0][1:] == keys[0][:-1]
        if len(keys) > 1:
            tied = tied & (keys[1][1:] == keys[1][:-1])
        if bool(tied.any()):
            self._refuse_tie(at, int(keys[0][self._device.kernels.keep(tied)[:1]][0]))
        return events, keys[-1]

    def _order_of(self, at: int, events: Events) -> Any:
        """int64: where each event of a stream is in the order."""
        values, valid = self._device.columns.values(events.frame, str(self._node.order))
        if valid is not None and not bool(valid.all()):
            row = self._device.kernels.keep(~valid)[:1]
            raise ColumnError(
                f"An event of {self._node.called[at]} has no place in the order.",
                column=self._node.order,
                values=f"start={format_time(int(events.start[row][0]))}",
                remedy="Give each a number.",
            )
        return values.astype(np.int64, copy=False)

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
