"""A text as one node: its statements run as those of a runtime that is told all arrivals (`EmbeddedStatements`).

Named windows, tables and variables are changed from event to event, by several statements. So their statements are no
plan over streams: they are stepped side by side (`gpu_ops.epl.service`), with the arrivals of each step.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import to_arrow
from gpu_ops.core.bounds import TRUSTLESS
from gpu_ops.core.state_tables import Field, StateTable, Tables
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.core.turns import ASK, CLOCK, TURN
from gpu_ops.devices import Device
from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.epl.checkpoints import read_runtime, write_runtime
from gpu_ops.epl.deployments import Deployments
from gpu_ops.epl.order import SomeTurns
from gpu_ops.epl.running import DeliveredRows, RunningStatement
from gpu_ops.epl.service import Service, Turns
from gpu_ops.operators.events import Events
from gpu_ops.operators.ledger.waiting import OnTicks, WaitingPoints
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.row_order import stable_order
from gpu_ops.plan.embedded_statements import EmbeddedStatements
from gpu_ops.texts.feeding import PlacedRows, TickRows

_MILLISECOND = 1000
_RUNTIME = "runtime"


def needs_runtime(statements: Sequence[s.Statement]) -> bool:
    """Whether some statements change what others read: named windows, tables, or variables."""
    for each in statements:
        body = each.body
        if isinstance(body, s.CreateWindow | s.CreateTable | s.OnSet):
            return True
        if isinstance(body, s.CreateVariable) and each.context:
            return True
        if isinstance(body, q.Query) and body.output is not None:
            rate = body.output.rate
            if isinstance(rate, q.OutputWhen) and rate.assignments:
                return True
    return False


def deployed(node: EmbeddedStatements, device: str) -> tuple[Deployments, tuple[RunningStatement, ...]]:
    """(the statements as they run, those that are no part of others)."""
    deployments = _empty(node, device)
    for name, schema in node.types.items():
        deployments.add_type(name, schema)
    return deployments, deployments.deploy(node.text, node.since, lambda statement: None)


def _empty(node: EmbeddedStatements, device: str) -> Deployments:
    return Deployments(irstream=node.irstream, device=device, errors=[])


class EmbeddedStatementsOperator(OnTicks, nodes=(EmbeddedStatements,)):
    """A runtime, which is told what comes in each step.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: EmbeddedStatements

    def __init__(self, node: EmbeddedStatements, device: Device) -> None:
        super().__init__(node, device)
        self._waiting = [WaitingPoints(f"waiting {at}", each.schema, device) for at, each in enumerate(node.inputs)]
        self._done, self._clock = 0, node.since
        self._deployments, made = deployed(node, device.name)
        self._last = made[-1].name
        for context in self._deployments.contexts.values():
            context.begin()
        for each in self._deployments.alone.values():
            each.begun = True
        self._service = Service(self._deployments, Turns(), node.since // _MILLISECOND)

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """What the last statement delivers in the turns before the oldest CTI."""
        cti = min(ctis)
        rows = [some.before(cti, each.events) for some, each in zip(self._waiting, given, strict=True)]
        *arrivals, ticks = (None if each is None else self._placed(each) for each in rows)
        until = cti
        if cti == MAX_TIME:
            places = [int(each[0][-1]) for each in (*arrivals, ticks) if each is not None]
            until = (max(places, default=-1) // TURN + 1) * TURN
        if until <= self._done:
            return StepInput(), cti
        arrived = {
            name: PlacedRows(each[0], each[1].select(self._node.types[name].names), _clocks(each[1]))
            for name, each in zip(self._node.called, arrivals, strict=True)
            if each is not None
        }
        moves, before = None, self._clock
        if ticks is not None:
            places, table = ticks
            made = places, _clocks(table), table[ASK].to_numpy(zero_copy_only=False)
            moves, self._clock = TickRows(lambda: made), int(made[1][-1])
        turns = SomeTurns(arrived, moves, before // _MILLISECOND, self._done, until)
        self._done = until
        parts, failures = self._service.taken(turns)
        if failures and failures[0].failed is not None:
            raise failures[0].failed
        last = self._deployments[self._last]
        mine = [each for each in parts if isinstance(each, DeliveredRows) and each.statement is last]
        shows = [each for each in last.plan.shows if each is not None]
        return StepInput([self._events(*each.rows(shows)) for each in mine]), cti

    def _placed(self, events: Events) -> tuple[Any, pa.Table]:
        """(int64 places, the columns), in order of place."""
        device = self._device
        if not device.kernels.ascends(events.start):
            events = events.take(stable_order([events.start], events.start, device), device)
        names = list(events.frame.columns)
        schemas = [each.schema for each in self._node.inputs]
        schema = next(each for each in schemas if {*each.names} == {*names})
        places = np.asarray(device.columns.host(events.start), np.int64)
        return places, device.columns.to_arrow(events.frame, pa.schema([schema.field(name) for name in names]))

    def _events(self, rows: pa.Table, kinds: Any, places: Any) -> Events:
        """Delivered rows as points."""
        columns = self._device.columns
        order = np.arange(len(places), dtype=np.int64)
        arrays = [*rows.columns, to_arrow(kinds.astype(np.int8), pa.int8()), to_arrow(order, pa.int64())]
        return Events(
            columns.array(places), TICK, columns.from_arrow(pa.Table.from_arrays(arrays, schema=self._node.schema))
        )

    # The state

    @property
    def parts(self) -> list[Any]:
        """The arrivals and the ticks that wait."""
        return self._waiting

    @property
    def alive(self) -> int:
        """How many rows it keeps."""
        nodes = [node for each in self._deployments.alone.values() for node in each.nodes]
        windows = list(self._deployments.windows.values())
        nodes += [node for each in windows for node in each.nodes]
        kept = sum(len(each.content()) for each in windows)
        return self.waiting + kept + sum(node.own.alive for node in nodes if node.own is not None)

    def tables(self) -> dict[str, pa.Table]:
        """What waits, and a checkpoint of the runtime."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / _RUNTIME
            turns = Turns(self._done // TURN)
            own = Service(self._deployments, turns, self._clock // _MILLISECOND)
            write_runtime(path, self._deployments, turns, [own], None)
            written = path.read_bytes()
        state = {"runtime": [written], "clock": [self._clock], "done": [self._done]}
        return super().tables() | {_RUNTIME: pa.table(state, _STATE)}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from super().declared(tables)
        time = Field(pa.int64(), least=MIN_TIME, most=MAX_TIME)
        columns = {"runtime": Field(pa.large_binary()), "clock": time, "done": replace(time, least=0)}
        yield StateTable(_RUNTIME, columns, 1, required=True)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        super().restore(tables)
        if _RUNTIME not in tables:
            return
        state = tables[_RUNTIME]
        deployments = _empty(self._node, self._device.name)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / _RUNTIME
            path.write_bytes(state["runtime"][0].as_py())
            read_runtime(path, TRUSTLESS, deployments)
        self._clock, self._done = state["clock"][0].as_py(), state["done"][0].as_py()
        self._deployments = deployments
        self._service = Service(deployments, Turns(), self._clock // _MILLISECOND)


_STATE = pa.schema([("runtime", pa.large_binary()), ("clock", pa.int64()), ("done", pa.int64())])


def _clocks(table: pa.Table) -> Any:
    """int64: what the clock shows at each row, in ticks."""
    return np.asarray(table[CLOCK].cast(pa.int64()).to_numpy(), np.int64)
