"""Events become arrivals on turns, and the moves of the clock ticks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
from gpu_ops.operators.row_order import in_order, stable_order, tied_rows
from gpu_ops.plan.ledger import EventLedger


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
        if all(each is None for each in parts):
            return None
        kernels, node = self._device.kernels, self._node
        order, start, owner = self._ordered(parts)
        clock, rank = np.full_like(start, self._clock), np.arange(len(start), like=start)
        if node.moves:
            if int(start[0]) < self._clock:
                raise TimeError(
                    f"An event comes before the clock starts, which is at {format_time(node.since)}.",
                    values=f"start={format_time(int(start[0]))}",
                    remedy="Start the clock earlier: start=….",
                )
            moves = start > np.concatenate([clock[:1], start[:-1]])
            rank, clock = rank + np.cumsum(moves), start
            at = kernels.keep(moves)
            if len(at):
                ticks.append(((kernels.take(rank, at) + (self._turn - 1)) * TURN, kernels.take(start, at)))
        place = (rank + self._turn) * TURN
        self._turn, self._clock = self._turn + int(rank[-1]) + 1, int(clock[-1])
        if node.gives is None or parts[node.gives] is None:
            return None
        if owner is not None:
            mine = kernels.keep(owner == node.gives)
            before = sum(len(each) for each in parts[: node.gives] if each is not None)
            order, place, clock = (kernels.take(each, mine) for each in (order, place, clock))
            order = order - before
        return self._placed(parts[node.gives], order, place, clock)

    def _placed(self, events: Any, order: Any | None, place: Any, clock: Any) -> Events:
        """Events as arrivals at some places, in an order; None for theirs."""
        columns = self._device.columns
        own = columns.build({CLOCK: (clock, None, TIME_TYPE), PLACE: (place, None, pa.int64())})
        frame = events.frame if order is None else columns.take(events.frame, order)
        return Events(place, TICK, columns.beside(frame, own))

    def _ordered(self, parts: Sequence[Events | None]) -> tuple[Any | None, Any, Any | None]:
        """(int64 order of all events, or None for theirs; their starts in it; the number of each one's stream).

        Of one stream there are no numbers.
        """
        take = self._device.kernels.take
        some = [(at, each) for at, each in enumerate(parts) if each is not None]
        start = np.concatenate([each.start for _, each in some])
        keys = [start]
        if self._node.order is not None:
            keys.append(np.concatenate([self._order_of(at, each) for at, each in some]))
        owner = None if len(parts) == 1 else np.concatenate([np.full_like(each.start, at) for at, each in some])
        order = None
        if not in_order(keys):
            ascends = self._device.kernels.ascends
            if len(some) > 1 and all(ascends(each.start) for _, each in some):
                order = self._merged([each.start for _, each in some], keys)
            else:
                order = stable_order(keys, start, self._device)
            keys = [take(each, order) for each in keys]
        if owner is not None:
            order = np.arange(len(start), like=start) if order is None else order
            owner = take(owner, order)
        self._refuse_ties(keys, owner)
        return order, keys[0], owner

    def _merged(self, runs: Sequence[Any], keys: Sequence[Any]) -> Any:
        """int64 order of rows by some keys, the first of which ascends in each of some runs of them."""
        kernels = self._device.kernels
        values, order = runs[0], np.arange(len(keys[0]), like=keys[0])[: len(runs[0])]
        for each in runs[1:]:
            merged, values = kernels.merged_order(values, each)
            more = np.arange(len(order), len(order) + len(each), like=order)
            order = kernels.take(np.concatenate([order, more]), merged)
        tied = tied_rows(np.zeros_like(values, dtype=np.int32), values, self._device)
        if tied is not None:
            rows = kernels.take(order, tied)
            order = order.copy()
            order[tied] = rows[stable_order([kernels.take(each, rows) for each in keys], rows, self._device)]
        return order

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

    def _refuse_ties(self, keys: Sequence[Any], owner: Any | None) -> None:
        """Refuse events of one stream that nothing orders."""
        every = keys if owner is None else [*keys, owner]
        tied = every[0][1:] == every[0][:-1]
        for key in every[1:]:
            tied = tied & (key[1:] == key[:-1])
        if not bool(tied.any()):
            return
        row = self._device.kernels.keep(tied)[:1]
        name, order = self._node.called[0 if owner is None else int(owner[row][0])], self._node.order
        if order is None and self._node.moves:
            raise ColumnError(
                f"Two events of {name} come at {format_time(int(keys[0][row][0]))}, and nothing says which is first.",
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
