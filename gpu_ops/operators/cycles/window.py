"""Partitions in cycles: points become turns of the machine, and what it lets in and expels becomes rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_ops.core.cycles import MS, WINDOW
from gpu_ops.core.numbered_runs import NumberedRuns, PlacedRuns
from gpu_ops.core.sorted_runs import SortedRuns
from gpu_ops.core.splitmix import mixed
from gpu_ops.core.state_parts import Parts, StatePart, in_parts, whole
from gpu_ops.core.state_tables import MANY, Field, StateTable, Tables
from gpu_ops.core.table_runs import TableRuns
from gpu_ops.core.time import MAX_TIME, TICK
from gpu_ops.core.turns import PLACE
from gpu_ops.core.types import storage
from gpu_ops.devices import Device
from gpu_ops.devices.cpu import cycles as m
from gpu_ops.errors import ColumnError
from gpu_ops.operators.cycles.machine import KEY_NUMBERS, ROW_NUMBERS, Coming, CycleMachine
from gpu_ops.operators.events import Events
from gpu_ops.operators.ledger.waiting import OnTicks, WaitingPoints
from gpu_ops.operators.operator import BatchInput, InParts, StepInput
from gpu_ops.operators.row_order import LEAST, distinct, in_order, ranks_of, run_starts
from gpu_ops.operators.state.arrival_numbers import ArrivalNumbers
from gpu_ops.operators.state.fields import nullable_columns
from gpu_ops.operators.state.rows import GroupInterner
from gpu_ops.plan.cycle_picks import BestRows, CyclePick, LastMilliseconds, LastRows, LatestRows, RandomRows, Size
from gpu_ops.plan.cycles import BEAT, CycleWindow

_ONE = np.ones(1, np.int64)
_NONE = np.zeros(1, np.int64)
_KEYS, _GROUPS = "key/", "group/"


class FrameRuns(SortedRuns[Any]):
    """The payloads of rows, in the order of their numbers; rows go where all are numbered anew.

    Args:
        device: Where they live.
    """

    _factor, _least = 4, 1 << 12

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device

    def _merged(self, pieces: Sequence[Any]) -> Any:
        return self._device.columns.concat(pieces)

    def pieces_at(self, numbers: Any) -> Iterator[tuple[Any, Any]]:
        """(which of some ascending numbers, their payloads): a piece for each run that has some.

        Args:
            numbers: Host int64.
        """
        columns, begin = self._device.columns, 0
        for run in self.runs:
            end = begin + len(run.rows)
            low, high = np.searchsorted(numbers, [begin, end])
            if low < high:
                at = numbers[low:high] - begin
                if at[-1] - at[0] == high - low - 1:
                    yield slice(int(low), int(high)), columns.cut(run.rows, int(at[0]), int(at[-1]) + 1)
                else:
                    yield slice(int(low), int(high)), columns.take(run.rows, columns.array(at))
            begin = end


class CycleWindowOperator(InParts, OnTicks, nodes=(CycleWindow,)):
    """The rows of a partition. The machine runs on the host, whatever the device.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: CycleWindow

    def __init__(self, node: CycleWindow, device: Device) -> None:
        super().__init__(node, device)
        pick, schema = node.pick, node.rows.schema
        self._payload = pa.schema([each for each in schema if each.name != WINDOW])
        self._waiting = WaitingPoints("waiting", schema, device)
        self._beats = WaitingPoints("beats", pa.schema([(BEAT, pa.int8())]), device)
        self._keys = GroupInterner(node.by, schema, device)
        update = pick.group if isinstance(pick, BestRows) else ()
        self._group = tuple(dict.fromkeys((*node.by, *update))) if update else ()
        self._groups = GroupInterner(self._group, schema, device)
        allowed = pick.waiting if isinstance(pick, LastRows) and pick.waiting is not None else -1
        self._machine = CycleMachine(_kind_of(pick), node.schedule, node.pinned, allowed, bool(self._group))
        self._frames, self._numbers = FrameRuns(device), ArrivalNumbers()
        self._row_runs = NumberedRuns("number", list(ROW_NUMBERS))
        self._key_runs = PlacedRuns(list(KEY_NUMBERS))
        self._name_runs = {_KEYS: TableRuns(""), _GROUPS: TableRuns("")}
        self._opens = False

    gives_open = True

    def open(self) -> None:
        """Emit rows as soon as they enter, and again when they leave."""
        self._opens = True

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step to the end of time."""
        given, _ = self.step([StepInput(list(each)) for each in whole.inputs], [MAX_TIME] * len(whole.inputs))
        yield from given.events

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The rows that entered and left in the cycles before the CTI.

        Raises:
            ColumnError: A row has no time of its own.
            PlanError: Too many cycles run at one instant.
        """
        cti, host, machine = min(ctis), self._device.columns.host, self._machine
        fresh = self._waiting.before(cti, given[0].events)
        beats = self._beats.before(cti, given[1].events) if len(given) > 1 else None
        at = np.zeros(0, np.int64) if beats is None else host(distinct(beats.start, self._device))
        coming = self._coming(fresh)
        entered, left = machine.run(coming, at, cti, len(self._keys), len(self._groups))
        made = self._made(np.sort(entered), left[np.argsort(left[:, 0], kind="stable")], cti)
        passed = cti if self._opens or cti == MAX_TIME else self._floor(cti)
        if cti == MAX_TIME:
            self._end()
        elif machine.has_grown:
            self._compact()
        return made, passed

    def _end(self) -> None:
        """At the end of time nothing is kept."""
        none = np.zeros(0, np.int64)
        self._machine.compact(none)
        self._numbers.keep(none)
        self._frames.replace([])

    def _floor(self, cti: int) -> int:
        known = self._machine.known
        inside = known[known[:, m.STATE] == m.INSIDE, m.ENTER]
        return min(cti, int(inside.min())) if len(inside) else cti

    # What comes

    def _coming(self, fresh: Events | None) -> Coming:
        if fresh is None:
            none = np.zeros(0, np.int64)
            return Coming(none, none, _NONE, _NONE, _ONE, _ONE)
        device = self._device
        columns, host = device.columns, device.columns.host
        place, number = host(fresh.start), host(columns.values(fresh.frame, PLACE)[0])
        frame = fresh.frame
        if WINDOW in frame.columns:
            frame = columns.select(frame, [name for name in frame.columns if name != WINDOW])
        if not in_order([place, number]):
            order = self._order(place, number)
            place, number = place[order], number[order]
            frame = columns.take(frame, columns.array(order))
        pick, key = self._node.pick, self._codes(self._keys, frame)
        value, group, size, span = _NONE, _NONE, _ONE, _ONE
        match pick:
            case LastMilliseconds():
                value = self._stamps(frame, pick.stamp)
                size = self._sizes(frame, pick.most) if pick.most is not None else _ONE
                span = self._sizes(frame, pick.span)
            case RandomRows():
                size, value = self._sizes(frame, pick.n), _coins(number, pick.seed)
            case LastRows() | LatestRows():
                size = self._sizes(frame, pick.n)
            case BestRows():
                size, value = self._sizes(frame, pick.n), self._ranks(frame, pick)
                group = self._codes(self._groups, frame) if self._group else _NONE
        self._frames.add(frame)
        self._numbers.add(len(place))
        return Coming(place, key, value, group, size, span)

    def _order(self, place: Any, number: Any) -> Any:
        """Host int64 order of rows by place, then by their numbers."""
        columns, kernels = self._device.columns, self._device.kernels
        if not kernels.ascends(columns.array(place)):
            return np.lexsort((number, place))
        # Few rows share a place: each place is a group.
        codes = (np.cumsum(run_starts(place)) - 1).astype(np.int32)
        return columns.host(kernels.group_order(columns.array(codes), int(codes[-1]) + 1, columns.array(number)))

    def _codes(self, interner: GroupInterner, frame: Any) -> Any:
        return self._device.columns.host(interner.codes(frame)).astype(np.int64)

    def _sizes(self, frame: Any, size: Size) -> Any:
        if isinstance(size, int):
            return np.array([size], np.int64)
        values, valid = self._device.columns.values(frame, size)
        found = self._device.columns.host(values).astype(np.int64)
        there = found > 0 if valid is None else self._device.columns.host(valid) & (found > 0)
        if not there.all():
            raise ColumnError(
                "A window holds one row, or one millisecond, at least.",
                column=size,
                row=int(np.argmin(there)),
                remedy="Give a number of 1 or more for each key.",
            )
        return found

    def _stamps(self, frame: Any, name: str) -> Any:
        columns = self._device.columns
        values, valid = columns.values(frame, name)
        found = columns.host(values).astype(np.int64)
        if valid is not None and not bool(valid.all()):
            row = int(np.argmin(columns.host(valid)))
            raise ColumnError("A row has no time of its own.", column=name, row=row, remedy="Filter it out first.")
        return found // MS if pa.types.is_timestamp(storage(self._payload.field(name).type)) else found

    def _ranks(self, frame: Any, pick: BestRows) -> Any:
        """Order codes of new rows; where codes hold among rows of one frame alone, the kept rows get new ones too."""
        columns, dtype = self._device.columns, storage(self._payload.field(pick.column).type)
        if pa.types.is_floating(dtype) or pa.types.is_signed_integer(dtype):
            values, valid = columns.values(frame, pick.column)
            found = columns.host(
                self._device.kernels.order_float(values.astype(np.float64)) if pa.types.is_floating(dtype) else values
            )
            found = np.maximum(found.astype(np.int64), LEAST + 1)
            there = np.ones(len(found), np.bool_) if valid is None else columns.host(valid)
            if pa.types.is_floating(dtype):
                there = there & ~np.isnan(columns.host(values))
            return _turned(found, there, pick)
        one = [pick.column]
        every = columns.concat(
            [*(columns.select(each, one) for each in self._frames.pieces()), columns.select(frame, one)]
        )
        codes, valid = ranks_of(every, pick.column, dtype, self._device)
        there = np.ones(len(codes), np.bool_) if valid is None else columns.host(valid)
        found = _turned(columns.host(codes).astype(np.int64), there, pick)
        count = self._machine.count
        self._machine.known[:, m.VALUE] = found[:count]
        return found[count:]

    # What becomes of it

    def _made(self, entered: Any, left: Any, cti: int) -> StepInput:
        """The rows that entered and left, as events.

        Args:
            entered: Numbers of rows, ascending.
            left: Numbers of rows, ascending, and the places at which they left.
            cti: The CTI.
        """
        rows = self._machine.known
        gone, out = (np.ascontiguousarray(left[:, at]) for at in range(2))
        now = np.zeros(len(rows), np.bool_)
        now[entered] = True
        if not self._opens:
            events = list(self._events(gone, out))
            if cti == MAX_TIME:
                events += self._events(np.flatnonzero(rows[:, m.STATE] == m.INSIDE), MAX_TIME)
            return StepInput(events)
        fresh = now[gone]
        stays = entered[rows[entered, m.STATE] == m.INSIDE]
        return StepInput(
            list(self._events(gone[fresh], out[fresh])),
            list(self._events(stays, TICK)),
            list(self._events(gone[~fresh], out[~fresh])),
        )

    def _events(self, numbers: Any, ends: Any) -> Iterator[Events]:
        columns, rows = self._device.columns, self._machine.known
        for some, frame in self._frames.pieces_at(numbers):
            at = numbers[some]
            end = ends if isinstance(ends, int) else columns.array(ends[some])
            if end == MAX_TIME if isinstance(ends, int) else False:
                end = columns.array(np.full(len(at), MAX_TIME))
            window = columns.build({WINDOW: (columns.array(rows[at, m.OF]), None, pa.int64())})
            yield Events(columns.array(rows[at, m.ENTER]), end, columns.beside(frame, window))

    def _compact(self) -> None:
        """Keep the rows that are needed alone."""
        machine, columns = self._machine, self._device.columns
        kept = machine.kept()
        keys = self._keys.forget(machine.used[: len(self._keys)]) if self._keys.crowded else None
        groups = self._groups.forget(machine.holders[: len(self._groups)] > 0) if self._groups.crowded else None
        if len(kept) < machine.count or keys is not None or groups is not None:
            frames = [frame for _, frame in self._frames.pieces_at(kept)]
            machine.compact(
                kept,
                None if keys is None else columns.host(keys).astype(np.int64),
                None if groups is None else columns.host(groups).astype(np.int64),
            )
            self._numbers.keep(kept)
            if keys is not None:
                self._key_runs.forget()
                self._name_runs[_KEYS].forget()
            if groups is not None:
                self._name_runs[_GROUPS].forget()
            self._frames.replace([])
            for each in frames:
                self._frames.add(each)

    # State

    @property
    def parts(self) -> list[Any]:
        """What waits."""
        return [self._waiting, self._beats]

    @property
    def alive(self) -> int:
        """How many rows it keeps."""
        return self.waiting + self._machine.count

    def tables(self) -> dict[str, pa.Table]:
        """What `state_parts` makes up, without keys that have no rows."""
        self._compact()
        return super().tables()

    def state_parts(self) -> Parts:
        """What waits, the machine, the rows that it needs, and the keys."""
        machine, made = self._machine, dict[str, Sequence[StatePart]](in_parts(OnTicks.tables(self)))
        made |= in_parts({"machine": machine.table().append_column("came", pa.array([self._numbers.came]))})
        kept, numbers = machine.kept(), self._numbers.every
        now = {"number": numbers[kept]} | {name: machine.known[kept, at] for name, at in ROW_NUMBERS.items()}
        made["inside"] = self._row_runs.parts(now, lambda at: self._saved_rows(kept[at], {n: now[n][at] for n in now}))
        made["keys"] = self._key_runs.parts(machine.keys[: len(self._keys), list(KEY_NUMBERS.values())])
        for prefix, interner, key in self._interners:
            if key and interner.keys is not None:
                rows = partial(self._saved_names, interner, pa.schema([self._payload.field(name) for name in key]))
                made[f"{prefix}names"] = self._name_runs[prefix].parts(len(interner), rows)
        return made

    @property
    def _interners(self) -> list[tuple[str, GroupInterner, tuple[str, ...]]]:
        """Of keys and of groups: the prefix of its table, the numbers, and the columns."""
        return [(_KEYS, self._keys, self._node.by), (_GROUPS, self._groups, self._group)]

    def _saved_names(self, interner: GroupInterner, schema: pa.Schema, at: Any) -> pa.Table:
        columns = self._device.columns
        return columns.to_arrow(interner.keys_of(columns.array(at)), schema)

    def _saved_rows(self, at: Any, own: Mapping[str, Any]) -> pa.Table:
        """Some rows with what the machine knows of them."""
        pieces, columns = [frame for _, frame in self._frames.pieces_at(at)], self._device.columns
        if not pieces:
            pieces = [columns.cut(each, 0, 0) for each in self._frames.pieces()[:1]]
        schema = pa.schema([self._payload.field(name) for name in (pieces[0].columns if pieces else ())])
        rows = pa.concat_tables([columns.to_arrow(each, schema) for each in pieces]) if pieces else schema.empty_table()
        payload = {f"row/{each}": rows[each] for each in schema.names}
        return pa.table({**{name: pa.array(each) for name, each in own.items()}, **payload})

    # The keys that rows are of are counted
    entire_tables = ("keys", f"{_KEYS}names", f"{_GROUPS}names")

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from super().declared(tables)
        counts = []
        for prefix, _, key in self._interners:
            name = f"{prefix}names"
            if key:
                schema = pa.schema([self._payload.field(each) for each in key])
                yield StateTable(name, nullable_columns(schema, ""), unique=key)
            counts.append(tables[name].num_rows if name in tables else int(not key))
        keys = tables["keys"].num_rows if "keys" in tables and not self._node.by else counts[0]
        for each in self._machine.declared(keys, counts[1]):
            if each.name == "inside":
                row = nullable_columns(self._payload, "row/")
                names = tables["inside"].column_names if "inside" in tables else []
                there = {name: field for name, field in row.items() if name in names}
                number = Field(pa.int64(), least=0, most=MANY, ascends=True, optional=True)
                yield replace(each, columns={"number": number, **each.columns, **there})
            elif each.name == "machine":
                came = Field(pa.int64(), least=0, most=MANY, optional=True)
                yield replace(each, columns={**each.columns, "came": came})
            else:
                yield each

    def put_back(self, parts: Parts) -> None:
        """The state that `state_parts` gave; rows of older ones have no numbers."""
        tables, columns = whole(parts), self._device.columns
        OnTicks.restore(self, tables)
        for prefix, interner, _ in self._interners:
            if f"{prefix}names" in tables:
                interner.restore(columns.from_arrow(tables[f"{prefix}names"]))
                self._name_runs[prefix].restore(parts[f"{prefix}names"])
        self._machine.restore(tables, len(self._groups))
        inside = tables["inside"]
        names = [name for name in inside.column_names if name.startswith("row/")]
        if inside.num_rows:
            rows = inside.select(names).rename_columns([name.removeprefix("row/") for name in names])
            self._frames.replace([columns.from_arrow(rows)])
        if "number" in inside.column_names and "came" in tables["machine"].column_names:
            came = tables["machine"]["came"][0].as_py()
            self._numbers.restore(inside["number"].to_numpy().astype(np.int64), came)
        else:
            self._numbers.restore(np.arange(len(inside)), None)
        self._row_runs.restore(parts["inside"])
        self._key_runs.restore(parts["keys"], self._machine.keys[: len(tables["keys"]), list(KEY_NUMBERS.values())])


def _kind_of(pick: CyclePick) -> int:
    match pick:
        case LatestRows():
            return m.TUMBLING
        case LastMilliseconds():
            return m.TIMED if pick.most is None else m.TIMED_MOST
        case BestRows():
            return m.BEST
    return m.SLIDING


def _coins(numbers: Any, seed: int) -> npt.NDArray[np.int64]:
    """The values of rows, of which a coin refuses one half: it depends on a row's place among all, and on the seed."""
    at = np.array([seed & ((1 << 64) - 1)], np.uint64)
    tossed = mixed(numbers.astype(np.uint64) ^ mixed(at)[0]) & np.uint64(1)
    return np.where(tossed == 0, 0, LEAST)


def _turned(codes: Any, there: Any, pick: BestRows) -> npt.NDArray[np.int64]:
    """Order codes of which the greatest is the best, and that of rows that never enter the least of all."""
    made: npt.NDArray[np.int64] = np.where(there, codes if pick.highest else np.maximum(~codes, LEAST + 1), LEAST)
    return made
