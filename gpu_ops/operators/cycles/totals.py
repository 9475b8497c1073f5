"""Counts and sums of windows become rows that are issued where values change: one walk over what comes and leaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import room
from gpu_ops.core.cycles import WINDOW
from gpu_ops.core.sorted_runs import Run
from gpu_ops.core.state_tables import MANY, Field, RowRule, StateTable, Tables
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TIME_TYPE
from gpu_ops.core.turns import CLOCK, PLACE
from gpu_ops.devices import Device
from gpu_ops.devices.cpu import issued as m
from gpu_ops.errors import SumOverflowError
from gpu_ops.operators.cycles.moves import CycleMoves
from gpu_ops.operators.events import Events, TimeOrder, concat
from gpu_ops.operators.operator import BatchInput, Operator, StepInput
from gpu_ops.operators.state.fields import NUMBERED_TIME, nullable_columns, row_columns
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows, GroupInterner, rows_from_arrow
from gpu_ops.plan.cycles import IssuedTotals

_KEY_NUMBERS = {"held": m.HELD, "window": m.WINDOW, "issued": m.ISSUED}
_TOTAL_NUMBERS = {"high": m.HIGH, "low": m.LOW, "known": m.KNOWN, "shown": m.SHOWN, "null": m.IS_NULL}


@dataclass(frozen=True)
class _Lines:
    """Rows that are issued, as the walk writes them.

    Attributes:
        since: int64 place from which each is valid.
        until: int64 place up to which; nothing if nobody asks for it.
        key: int64 number of its key.
        of: int64 number of its window; nothing if nobody asks for it.
        values: int64: a line for each total; of doubles their bits.
        nulls: bools: which of these are null; None if none is.
    """

    since: Any
    until: Any
    key: Any
    of: Any
    values: Any
    nulls: Any

    @staticmethod
    def room(size: int, totals: int, *, ended: bool, placed: bool, nullable: bool) -> _Lines:
        """Room for some rows."""
        since, until, key = (room(each, np.int64) for each in (size, size if ended else 0, size))
        values = room(totals * size, np.int64).reshape(totals, size)
        nulls = np.zeros((totals, size if nullable else 0), np.bool_)
        return _Lines(since, until, key, room(size if placed else 0, np.int64), values, nulls)

    def take(self, some: Any) -> _Lines:
        """Some of them: a stretch, or those for which a mask holds."""
        of, until = (each[some] if len(each) else each for each in (self.of, self.until))
        nulls = None if self.nulls is None else self.nulls[:, some]
        return _Lines(self.since[some], until, self.key[some], of, self.values[:, some], nulls)


class _LeavingRuns(RowRuns):
    """Rows in order of their ends: those of large runs come in this order anyway, and are not moved again."""

    _most = 1 << 16

    def _tidied(self) -> list[Run[AxisRows]]:
        """The runs without empty ones: what is left of a large one would be merged with the next one."""
        return [run for run in self.runs if run.left]


class IssuedTotalsOperator(Operator, nodes=(IssuedTotals,)):
    """The windows of keys, and what was issued of them. The walk runs on the host, whatever the device.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: IssuedTotals

    def __init__(self, node: IssuedTotals, device: Device) -> None:
        super().__init__(node, device)
        schema = node.rows.schema
        self._keys = GroupInterner(node.by, schema, device)
        self._key_schema = pa.schema([schema.field(name) for name in node.by])
        self._columns = list(dict.fromkeys(each.column for each in node.totals if each.column is not None))
        # How many rows are in a window, and how many have come into it, is known of each.
        rows = [at for at, each in enumerate(node.totals) if each.counts and each.column is None]
        self._held = np.array([at for at in rows if not node.totals[at].entrance], np.int64)
        self._ever = np.array([at for at in rows if node.totals[at].entrance], np.int64)
        others = [at for at in range(len(node.totals)) if at not in rows]
        self._totals = np.array([self._fields(at) for at in others], np.int64).reshape(-1, m.FIELDS)
        self._adding = np.arange(len(others))
        self._taking = np.array([at for at, each in enumerate(others) if not node.totals[each].entrance], np.int64)
        self._places = [self._state_of(at, others) for at in range(len(node.totals))]
        self._width = m.KEY_COLUMNS + len(others) * m.TOTAL_COLUMNS
        self._state = np.zeros((0, self._width), np.int64)
        self._numbers = np.zeros(m.NUMBERS, np.int64)
        self._kept = _LeavingRuns(("high",), device)
        self._opens, self._ends = False, True

    def _fields(self, line: int) -> list[int]:
        total = self._node.totals[line]
        return [int(total.counts), self._columns.index(total.column or ""), int(total.double), line]

    def _state_of(self, line: int, others: Sequence[int]) -> dict[str, int]:
        """The columns of the state by the names of what is kept of a total; what it does not have is 0."""
        if line not in others:
            entrance = self._node.totals[line].entrance
            return {"known": m.EVER, "shown": m.SHOWN_EVER} if entrance else {"known": m.HELD, "shown": m.SHOWN_HELD}
        begin = m.KEY_COLUMNS + others.index(line) * m.TOTAL_COLUMNS
        return {name: begin + at for name, at in _TOTAL_NUMBERS.items()}

    gives_open = True

    def open(self) -> None:
        """Emit rows as soon as they are issued, and again when they are superseded."""
        self._opens = True

    def without_ends(self) -> None:
        """Emit rows as soon as they are issued, and nothing else."""
        self._ends = False

    def with_open(self) -> Operator | None:
        """Itself: it takes each row's start and end as they come."""
        return self

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step to the end of time."""
        given, _ = self._stepped(StepInput(list(whole.inputs[0])), MAX_TIME, whole.wanted)
        yield from given.events

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The rows that were issued and superseded before the CTI.

        Raises:
            SumOverflowError: A sum does not fit int64.
        """
        return self._stepped(given[0], ctis[0], self._node.schema.names)

    def _stepped(self, fed: StepInput, cti: int, wanted: Sequence[str]) -> tuple[StepInput, int]:
        comes, goes = self._moves(fed, cti)
        made = self._walked(comes, goes, cti, wanted) if len(comes) or len(goes) else StepInput()
        if cti == MAX_TIME:
            rest = self._rest(wanted)
            made = StepInput([*made.events, *([rest] if rest is not None else [])], made.opened, made.closed)
            self._state = np.zeros((0, self._width), np.int64)
            self._kept.replace([])
            return made, cti
        self._forget()
        issued = self._state[self._shown, m.ISSUED]
        return made, cti if self._opens or not len(issued) else min(cti, int(issued.min()))

    @property
    def _shown(self) -> Any:
        """int64: the keys with a window that has a row."""
        return np.flatnonzero((self._state[:, m.WINDOW] >= 0) & (self._state[:, m.ISSUED] != m.UNKNOWN))

    # The walk

    def _moves(self, fed: StepInput, cti: int) -> tuple[CycleMoves, CycleMoves]:
        """The rows that come, and those that leave before the CTI; others with known ends are kept until they do."""
        came = self._read(concat([each for each in (*fed.events, *fed.opened) if len(each)], self._device))
        closed = self._read(concat([each for each in fed.closed if len(each)], self._device))
        whole = came.cut(0, sum(map(len, fed.events)))
        leaves = [CycleMoves.of(each, self._columns, self._device) for each in self._kept.due(cti - 1)]
        if cti == MAX_TIME:
            rest = [CycleMoves.of(each, self._columns, self._device) for each in self._kept.pieces()]
            return came, CycleMoves.joined([*leaves, *rest, whole, closed])
        goes = whole.ends < cti
        if not goes.all():
            self._kept.add(whole.take(np.flatnonzero(~goes)).kept(self._columns, self._device))
            whole = whole.take(np.flatnonzero(goes))
        return came, CycleMoves.joined([*leaves, whole, closed])

    def _walked(self, comes: CycleMoves, goes: CycleMoves, cti: int, wanted: Sequence[str]) -> StepInput:
        """What comes and leaves in a step, as rows that are issued, and rows that end."""
        node = self._node
        self._make_room()
        totals, size = len(node.totals), len(comes) + len(goes) + 1
        lines = _Lines.room(size, totals, ended=self._ends, placed=PLACE in wanted, nullable=len(self._totals) > 0)
        known = int((self._state[:, m.ISSUED] != m.UNKNOWN).sum())
        ended = np.empty((m.VALUES + 2 * totals, min(known, size) + 1), np.int64)
        double = np.zeros(1)
        self._state[:, m.OPEN] = -1
        self._numbers[[m.MADE, m.ENDED, m.NULLS]] = 0
        why = m.issue(
            cti, int(node.pinned), comes.starts, comes.codes, comes.arriving, comes.windows, comes.values, comes.valid,
            goes.ends, goes.codes, goes.leaving, goes.values, goes.valid, self._held, self._ever, self._totals,
            self._adding, self._taking, self._state, np.empty(len(self._state), np.int64), lines.since, lines.until,
            lines.key, lines.of, lines.values, lines.nulls, ended, double, double.view(np.int64), self._numbers,
        )  # fmt: skip
        if why != m.DONE:
            raise SumOverflowError(
                "The sum does not fit int64.",
                column=node.totals[why].name,
                remedy="Sum a wider type, for instance a decimal or a float: g.sum(g.col(…).cast(g.Float64)).",
            )
        lines = lines if self._numbers[m.NULLS] else replace(lines, nulls=None)
        made = lines.take(slice(0, int(self._numbers[m.MADE])))
        if not self._ends:
            rows = self._rows(made, wanted, TimeOrder.ASCENDS)
            return StepInput([], [rows.points(rows.frame)] if len(rows) else [])
        ended = ended[:, : self._numbers[m.ENDED]]
        since, until, key, of = ended[: m.VALUES]
        over = _Lines(since, until, key, of, ended[m.VALUES : -totals], ended[-totals:] != 0)
        if cti == MAX_TIME and not self._opens:
            # Nothing supersedes those that are left any more.
            left = self._shown[self._state[self._shown, m.OPEN] >= 0]
            made.until[self._state[left, m.OPEN]] = MAX_TIME
            self._state[left, m.ISSUED] = m.UNKNOWN
        closed = [self._rows(over, wanted)] if len(over.since) else []
        stays = made.until == m.UNKNOWN
        if not stays.any():
            return self._given(self._rows(made, wanted, TimeOrder.ASCENDS), None, closed)
        gone, left = (self._rows(made.take(some), wanted, TimeOrder.ASCENDS) for some in (~stays, stays))
        return self._given(gone, left, closed)

    def _given(self, gone: Events, stays: Events | None, closed: list[Events]) -> StepInput:
        """Rows whose ends are known, rows that are issued, and rows of earlier steps that end."""
        known = [gone] if len(gone) else []
        if not self._opens:
            return StepInput([*closed, *known])
        return StepInput(known, [] if stays is None else [stays.points(stays.frame)], closed)

    def _read(self, rows: Events | None) -> CycleMoves:
        """Some rows, as the walk takes them."""
        node, columns, host = self._node, self._device.columns, self._device.columns.host
        if rows is None:
            return CycleMoves.none(len(self._columns))
        lines, valids = list[Any](), list[Any]()
        for name in self._columns:
            valid = columns.validity(rows.frame, name)
            valids.append(valid if valid is None else columns.host(valid))
            summed = any(each.column == name and not each.counts for each in node.totals)
            values = host(columns.values(rows.frame, name)[0]) if summed else np.zeros(len(rows), np.int64)
            lines.append(values.astype(np.int64, copy=False))
        windows = host(columns.values(rows.frame, WINDOW)[0]) if node.numbered else np.zeros(0, np.int64)
        number = host(columns.values(rows.frame, PLACE)[0])
        codes = host(self._keys.codes(rows.frame))
        values = lines[0].reshape(1, -1) if len(lines) == 1 else np.array(lines, np.int64).reshape(-1, len(rows))
        if all(each is None for each in valids):
            there = np.zeros((len(lines), 0), np.bool_)
        else:
            there = np.stack([np.ones(len(rows), np.bool_) if each is None else each for each in valids])
        return CycleMoves(host(rows.start), host(rows.ends), codes, number, windows, values, there)

    # What goes out

    def _rest(self, wanted: Sequence[str]) -> Events | None:
        """The rows that nothing supersedes any more, if they are not given yet."""
        shown = self._shown
        if self._opens or not len(shown):
            return None
        state = self._state[shown]
        values = np.stack([state[:, each["shown"]] for each in self._places])
        nulls = np.stack([state[:, each["null"]] != 0 if "null" in each else shown < 0 for each in self._places])
        ends = np.full(len(shown), MAX_TIME)
        return self._rows(_Lines(state[:, m.ISSUED], ends, shown, state[:, m.WINDOW], values, nulls), wanted)

    def _rows(self, made: _Lines, wanted: Sequence[str], order: TimeOrder = TimeOrder.UNKNOWN) -> Events:
        """The events of some lines."""
        node, columns = self._node, self._device.columns
        own = {}
        for at, each in enumerate(node.totals):
            values = np.ascontiguousarray(made.values[at])
            valid = None if made.nulls is None else columns.array(~made.nulls[at])
            own[each.name] = columns.array(values.view(np.float64) if each.double else values), valid, each.type
        if CLOCK in wanted:
            own[CLOCK] = columns.array(node.schedule.times(made.since)), None, TIME_TYPE
        if PLACE in wanted:
            own[PLACE] = columns.array(np.ascontiguousarray(made.of)), None, pa.int64()
        frame = columns.build(own)
        keys = self._keys.keys_of(columns.array(np.ascontiguousarray(made.key))) if node.by else None
        frame = frame if keys is None else columns.beside(keys, frame)
        since, until = (columns.array(np.ascontiguousarray(each)) for each in (made.since, made.until))
        return Events(since, until, frame, order=order)

    # State

    def _make_room(self) -> None:
        count, before = len(self._keys), len(self._state)
        if before < count:
            made = np.zeros((max(count, 2 * before), self._width), np.int64)
            made[:before] = self._state
            made[before:, m.WINDOW], made[before:, m.SEEN], made[before:, m.ISSUED] = -1, m.NEVER, m.UNKNOWN
            self._state = made

    def _forget(self) -> None:
        """Forget keys without a window, if most are."""
        count = len(self._keys)
        self._make_room()
        used = self._state[:count, m.WINDOW] >= 0
        numbers = self._keys.forget(used) if self._keys.crowded else None
        if numbers is not None:
            self._kept.renumber(numbers)
            left, self._state = self._state[:count][used], np.zeros((0, self._width), np.int64)
            self._make_room()
            self._state[: len(left)] = left

    @property
    def alive(self) -> int:
        """How many windows it knows, and rows whose ends are known."""
        return int((self._state[:, m.WINDOW] >= 0).sum()) + len(self._kept)

    waiting = 0

    def tables(self) -> dict[str, pa.Table]:
        """The keys, with the totals of their windows and what was issued."""
        count, columns = len(self._keys), self._device.columns
        self._make_room()
        own = {name: self._state[:count, at] for name, at in _KEY_NUMBERS.items()}
        none = np.zeros(count, np.int64)
        for each, places in enumerate(self._places):
            kept = {name: self._state[:count, places[name]] if name in places else none for name in _TOTAL_NUMBERS}
            own |= {f"{name} {each}": values for name, values in kept.items()}
        made = {"windows": pa.table({name: pa.array(np.ascontiguousarray(each)) for name, each in own.items()})}
        made["number"] = pa.table({"next": pa.array([int(self._numbers[m.WINDOWS])])})
        if self._node.by and self._keys.keys is not None:
            made["keys"] = columns.to_arrow(self._keys.keys, self._key_schema)
        rows = self._kept.rows()
        if rows is not None:
            made["inside"] = rows.to_arrow(self._node.rows.schema, self._device, pa.array)
        return made

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield StateTable("keys", nullable_columns(self._key_schema, ""), unique=self._node.by)
        keys = (tables["keys"].num_rows if "keys" in tables else 0) if self._node.by else 1
        place = Field(pa.int64(), least=MIN_TIME, most=MAX_TIME, besides=(m.UNKNOWN,))
        count, limb = Field(pa.int64(), least=0, most=MANY), Field(pa.int64(), least=-MANY, most=MANY)
        columns = {"held": count, "window": Field(pa.int64(), least=-1, most=MANY), "issued": place}
        for each in range(len(self._node.totals)):
            columns |= {f"high {each}": limb, f"low {each}": limb, f"known {each}": count}
            columns |= {f"shown {each}": Field(pa.int64()), f"null {each}": Field(pa.int64(), least=0, most=1)}
        issued = RowRule(
            "issued",
            "is not the place of a window's row",
            lambda table: np.equal(table["window"].to_numpy() < 0, table["issued"].to_numpy() == m.UNKNOWN),
        )
        yield StateTable("windows", columns, rows=keys, required=True, rules=(issued,))
        yield StateTable("number", {"next": count}, rows=1, required=True)
        kept = CycleMoves.none(len(self._columns)).kept(self._columns, self._device)
        later = replace(NUMBERED_TIME, above="low")
        yield StateTable("inside", row_columns(NUMBERED_TIME, later, keys, columns=kept.columns))

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        if "keys" in tables:
            self._keys.restore(self._device.columns.from_arrow(tables["keys"]))
        self._make_room()
        windows = tables["windows"]
        count = windows.num_rows
        for name, at in _KEY_NUMBERS.items():
            self._state[:count, at] = windows[name].to_numpy()
        for each, places in enumerate(self._places):
            for name, at in places.items():
                self._state[:count, at] = windows[f"{name} {each}"].to_numpy()
        self._numbers[m.WINDOWS] = tables["number"]["next"][0].as_py()
        if "inside" in tables:
            self._kept.put_back(rows_from_arrow(tables["inside"], self._device))
