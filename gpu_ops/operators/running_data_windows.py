"""Data windows step by step: a row waits until the CTI is past its start, and is kept until its leave is known.

A batch is one step whose CTI is infinity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.buffers import integers, to_arrow
from gpu_ops.devices import Device
from gpu_ops.operators import together, window_conditions  # noqa: F401  (their kinds)
from gpu_ops.operators.aggregates import Column
from gpu_ops.operators.alive import Alive as Kept
from gpu_ops.operators.alive import Least
from gpu_ops.operators.data_windows import OUT, UNKNOWN, Held, Stay, each_row, hashes, ranks_of, row_order, stays
from gpu_ops.operators.events import Events
from gpu_ops.operators.running_blocks import grown
from gpu_ops.operators.state import GroupNumbers, Rows, Runs, concat_rows, rows_from_arrow, rows_table, shown_time
from gpu_ops.plan.data_windows import (
    STATUS,
    Alive,
    Best,
    DataWindow,
    First,
    FirstSpan,
    Kind,
    Last,
    LastStarts,
    Sample,
    Session,
    TimeBatches,
)
from gpu_ops.plan.together import Ends, Together
from gpu_ops.time import MAX_TIME, MIN_TIME, TICK

_NUMBER, _ENTER, _FLOOR, _CAP, _HASH, _MEMO = (
    ("row", name) for name in ("number", "enter", "floor", "cap", "hash", "memo")
)

_ALWAYS = MIN_TIME - 1
"""Before all ends: rows are kept until they are taken out."""

_MANY, _FEW = 8, 1024
"""With more groups than so many a row, and more than so few at all, a step makes no table of all groups."""


@dataclass
class _Groups:
    """What is known of each group.

    Attributes:
        seen: int64: how many rows, or distinct starts, it has had.
        first: int64: its first start; `UNKNOWN` before.
        due: int64: when something happens even if no row comes; `UNKNOWN` if nothing does.
        closed: int64: when its last batch was complete; `UNKNOWN` if none was. Of windows together, when their timer is
            due; of sessions, its last start.
    """

    seen: Any
    first: Any
    due: Any
    closed: Any

    def grow(self, groups: int) -> None:
        """Make room for groups that are new."""
        known = len(self.seen)
        if known < groups:
            self.seen = grown(self.seen, groups)
            self.first, self.due, self.closed = (grown(each, groups) for each in (self.first, self.due, self.closed))
            self.first[known:], self.due[known:], self.closed[known:] = UNKNOWN, UNKNOWN, UNKNOWN


class RunningDataWindow:
    """The steps of one data window.

    Args:
        node: The node.
        device: Where arrays live.
    """

    def __init__(self, node: DataWindow, device: Device) -> None:
        self._node, self._device = node, device
        self._numbers = GroupNumbers(node.group, node.input.schema, device)
        self._waiting, self._kept = Runs("low", device), Kept("low", device)
        self._floors = Least()
        self._groups = self._no_groups(0)
        self._opens = False
        self._opened: list[Events] = []
        self._closed: list[Events] = []

    def open_if_possible(self) -> None:
        """Give events as soon as they enter, and again when they leave: what takes them counts them at once."""
        self._opens = self._node.output == "alive" and not self._goes_back

    def edges(self) -> tuple[list[Events], list[Events]]:
        """(opened, closed): what entered in the last step and will leave later, and what left that had been opened."""
        opened, closed = self._opened, self._closed
        self._opened, self._closed = [], []
        return opened, closed

    def _no_groups(self, count: int) -> _Groups:
        none = self._device.columns.array(np.zeros(count, np.int64))
        return _Groups(none, *(np.full_like(none, UNKNOWN) for _ in range(3)))

    def step(self, events: Events | None, cti: int) -> tuple[list[Events], int]:
        """Take events in, and give what a CTI makes final, and the CTI after them."""
        if cti == MAX_TIME and not self._numbers.seen:
            # All there is in one step, and nothing before it: a batch needs no numbers that last.
            if events is None or not len(events):
                return [], cti
            codes, count, _ = self._device.columns.key_codes(events.frame, self._node.group)
            due = Rows(codes, events.start, events.ends, {}, events.frame)
            return self._rows_due(due, self._present(codes, count), self._no_groups(count), cti), cti
        fresh = self._due(events, cti)
        self._groups.grow(len(self._numbers))
        touched = self._touched(fresh, cti)
        given = self._rows_due(fresh, touched, self._groups, cti) if len(touched) else []
        self._forget()
        return given, self._promise(cti)

    def _due(self, events: Events | None, cti: int) -> Rows | None:
        """The rows whose turn it is: at the CTI itself more may come."""
        before = cti if cti == MAX_TIME else cti - 1
        due = self._waiting.due(before)
        if events is not None and len(events):
            keep, codes = self._device.kernels.keep, self._numbers.codes(events.frame)
            rows = Rows(codes, events.start, events.ends, {}, events.frame)
            now = rows.low <= before
            if bool(now.all()):
                due.append(rows)
            else:
                self._waiting.add(rows.take(keep(~now), self._device))
                due.append(rows.take(keep(now), self._device))
        due = [rows for rows in due if len(rows)]
        return concat_rows(due, self._device) if due else None

    def _present(self, codes: Any, count: int) -> Any:
        """int64 groups that have rows, ascending."""
        if count > _MANY * len(codes) + _FEW:
            return np.unique(codes).astype(np.int64)
        found = self._device.columns.array(np.zeros(count, np.bool_))
        found[codes] = True
        return self._device.kernels.keep(found)

    def _touched(self, fresh: Rows | None, cti: int) -> Any:
        """int64 groups in which something happens, ascending."""
        count = len(self._numbers)
        # At the end of time it is settled what becomes of all rows.
        due = self._kept_groups() if cti == MAX_TIME else self._device.kernels.keep(self._groups.due[:count] <= cti)
        if self._node.output == "each" and self._node.within:
            # What is in of a group is in windows of several values.
            due = self._kept_groups()
        if fresh is None:
            return due
        present = self._present(fresh.code, count)
        return np.union1d(present, due) if len(due) else present

    def _kept_groups(self) -> Any:
        kept = self._kept.rows(_ALWAYS)
        if kept is None:
            return self._device.columns.array(np.zeros(0, np.int64))
        return np.unique(kept.code).astype(np.int64)

    def _rows_due(self, fresh: Rows | None, touched: Any, groups: _Groups, cti: int) -> list[Events]:
        """What becomes of rows of some groups, now that these have come."""
        device = self._device
        pieces = [self._taken(touched)]
        before = groups.seen[touched]
        if fresh is not None:
            pieces.append(self._numbered(fresh, touched, groups))
        rows = concat_rows([each for each in pieces if each is not None], device)
        codes = _places(touched, rows.code)
        if pieces[0] is not None:
            order = device.kernels.group_order(codes, len(touched), _column(rows, _NUMBER))
            rows, codes = rows.take(order, device), device.kernels.take(codes, order)
        held = self._held(rows, codes, touched, groups, before, cti)
        groups.due[touched] = UNKNOWN
        stay = stays(self._node.window, held, device)
        return self._settled(rows, codes, stay, groups, touched, cti)

    def _taken(self, touched: Any) -> Rows | None:
        """The rows that are kept of some groups; they are kept no longer."""
        kernels, found = self._device.kernels, []
        for run in self._kept.runs:
            low, high = (np.searchsorted(run.rows.code, touched, side=side) for side in ("left", "right"))
            source, offset = kernels.expand(high - low)
            at = low[source] + offset
            if run.gone is not None:
                at = at[~run.gone[at]]
            if len(at):
                if run.gone is None:
                    run.gone = np.zeros_like(run.rows.code, dtype=np.bool_)
                run.gone[at] = True
                run.lost += len(at)
                found.append(run.rows.take(at, self._device))
        if not found:
            return None
        rows = concat_rows(found, self._device)
        floor = _column(rows, _FLOOR)
        self._floors.remove(self._device.columns.host(floor[floor != UNKNOWN]))
        return rows

    def _keep(self, rows: Rows) -> None:
        self._kept.add(rows, _ALWAYS)
        floor = _column(rows, _FLOOR)
        self._floors.add(self._device.columns.host(floor[floor != UNKNOWN]))

    def _numbered(self, rows: Rows, touched: Any, groups: _Groups) -> Rows:
        """New rows in the order of their coming, with the numbers that they have in their groups."""
        node, device = self._node, self._device
        take = device.kernels.take
        codes = _places(touched, rows.code)
        order = row_order(
            codes, rows.low, rows.high, rows.frame, node.input.schema, node.order, device, ties=node.counts_rows
        )
        rows, codes = rows.take(order, device), take(codes, order)
        index = np.arange(len(rows), like=rows.low)
        first = np.concatenate([np.ones_like(codes[:1], dtype=np.bool_), codes[1:] != codes[:-1]])
        starts = first
        if isinstance(node.window, LastStarts | Sample):
            starts = first | np.concatenate([first[:1], rows.low[1:] != rows.low[:-1]])
        begins = device.kernels.keep(first)
        place = np.cumsum(starts) - 1 if isinstance(node.window, LastStarts) else index
        here = rows.code[begins].astype(np.int64)
        base = np.zeros_like(touched)
        base[codes[begins]] = place[begins] - groups.seen[here]
        number = place - base[codes]
        ends = np.concatenate([begins[1:], np.full_like(begins[:1], len(rows))])
        groups.seen[here] = number[ends - 1] + 1
        groups.first[here] = np.minimum(groups.first[here], rows.low[begins])
        unknown = Column((np.full_like(rows.low, UNKNOWN),), None)
        columns = {_NUMBER: Column((number.astype(np.int64),), None), _ENTER: unknown, _FLOOR: unknown}
        if isinstance(node.window, Session):
            columns[_CAP] = unknown
        if isinstance(node.window, Together):
            columns[_MEMO] = Column((np.zeros_like(rows.low),), None)
        if isinstance(node.window, Sample):
            tied = device.kernels.keep(starts)
            among = index - tied[np.searchsorted(tied, index, side="right") - 1]
            columns[_HASH] = Column((hashes(node.window.seed, rows.low, among),), None)
        return replace(rows, columns=columns)

    def _held(self, rows: Rows, codes: Any, touched: Any, groups: _Groups, before: Any, cti: int) -> Held:
        node, device = self._node, self._device
        window = node.window
        bounds = np.searchsorted(codes, np.arange(len(touched) + 1, like=rows.low)).astype(np.int64)
        first = (groups.closed if isinstance(window, Session) else groups.first)[touched]
        cap = _column(rows, _CAP)[bounds[:-1]] if isinstance(window, Session) else groups.closed[touched]
        rank, ranked = None, None
        unique = rows.low[:0]
        if isinstance(window, Best):
            rank, ranked = ranks_of(rows.frame, window.by, node.input.schema.field(window.by).type, device)
            rank = rank if window.highest else ~rank
            if window.unique:
                unique, _, _ = device.columns.key_codes(rows.frame, tuple(dict.fromkeys((*node.group, *window.unique))))
        elif isinstance(window, Sample):
            rank = ~_column(rows, _HASH)
        return Held(
            codes,
            bounds,
            rows.low,
            rows.high,
            _column(rows, _NUMBER),
            first,
            cap,
            rank,
            ranked,
            unique,
            cti,
            _column(rows, _ENTER),
            before,
            rows.frame,
            node.input.schema,
            _column(rows, _MEMO) if isinstance(window, Together) else None,
        )

    def _settled(self, rows: Rows, codes: Any, stay: Stay, groups: _Groups, touched: Any, cti: int) -> list[Events]:
        """What is final of some rows is given, and what may still change is kept."""
        before = _column(rows, _ENTER)
        enter, leave = np.where(before == UNKNOWN, stay.enter, before), stay.leave
        if cti == MAX_TIME:
            enter, leave = np.where(enter == UNKNOWN, OUT, enter), np.where(leave == UNKNOWN, MAX_TIME, leave)
        stay = replace(stay, enter=enter, leave=leave)
        if stay.due is not None:
            groups.due[touched] = stay.due
        if stay.closed is not None:
            groups.closed[touched] = stay.closed
        if self._node.output == "each":
            return self._each(rows, codes, stay, groups, touched, cti)
        if cti != MAX_TIME:
            holds = self._node.output == "alive" and not self._opens
            holds = holds or (self._goes_back and self._node.output != "remove")
            self._keep_open(rows, stay, (enter != OUT) & (leave == UNKNOWN), enter, enter if holds else None)
        return self._given(rows, stay, before == UNKNOWN)

    @property
    def _goes_back(self) -> bool:
        """Whether who comes later may enter before: into a session that is open, where it began."""
        return isinstance(self._node.window, Session) and not self._node.window.running

    def _keep_open(self, rows: Rows, stay: Stay, which: Any, enter: Any, floor: Any | None) -> None:
        columns = rows.columns | {_ENTER: Column((enter,), None)}
        columns[_FLOOR] = Column((np.full_like(enter, UNKNOWN) if floor is None else floor,), None)
        if stay.cap is not None:
            columns[_CAP] = Column((stay.cap,), None)
        if stay.memo is not None:
            columns[_MEMO] = Column((stay.memo,), None)
        self._keep(replace(rows, columns=columns).take(self._device.kernels.keep(which), self._device))

    def _given(self, rows: Rows, stay: Stay, is_new: Any) -> list[Events]:
        device, keep = self._device, self._device.kernels.keep
        output, enter, leave = self._node.output, stay.enter, stay.leave
        inside = (enter != OUT) & (enter != UNKNOWN)
        if output == "prior":
            return self._beside_prior(rows, keep(is_new))
        if output == "alive":
            known = inside & (leave != UNKNOWN) & (leave > enter)
            if self._opens:
                for which, end, into in (
                    (inside & is_new & (leave == UNKNOWN), None, self._opened),
                    (known & ~is_new & (leave < MAX_TIME), leave, self._closed),
                ):
                    at = keep(which)
                    if len(at):
                        frame = device.columns.take(rows.frame, at)
                        into.append(Events(enter[at], TICK if end is None else end[at], frame))
                known = known & is_new
            at = keep(known)
            whole = len(at) == len(enter)
            pieces = [(at, enter, leave, "") if whole else (at, enter[at], leave[at], "")]
        else:
            pieces = []
            if output != "remove":
                at = keep(inside & is_new)
                pieces.append((at, enter[at], TICK, "new"))
            if output != "insert":
                at = keep(inside & (leave < MAX_TIME))
                pieces.append((at, leave[at], TICK, "dead"))
        return [
            Events(start, end, self._shown(self._taken_of(rows.frame, at, len(rows)), status, len(at)))
            for at, start, end, status in pieces
            if len(at)
        ]

    def _taken_of(self, frame: Any, at: Any, rows: int) -> Any:
        return frame if len(at) == rows else self._device.columns.take(frame, at)

    def _each(self, rows: Rows, codes: Any, stay: Stay, groups: _Groups, touched: Any, cti: int) -> list[Events]:
        """Rows whose enter is final, with what is in then; kept is what may be in for others."""
        node, device = self._node, self._device
        before = _column(rows, _ENTER)
        inside = (stay.enter != OUT) & (stay.enter != UNKNOWN)
        final = inside & (before == UNKNOWN)
        if isinstance(node.window, TimeBatches):
            final = final & (stay.enter <= cti)
        elif self._goes_back:
            final = final & (stay.leave != UNKNOWN)
        told = final | (before != UNKNOWN)
        if cti != MAX_TIME:
            which = (stay.enter != OUT) & ((stay.leave > cti) | ~told)
            floor = np.where(inside & ~told, stay.enter, UNKNOWN)
            self._keep_open(rows, stay, which, np.where(told, stay.enter, UNKNOWN), floor)
            self._wake(codes, np.where(which, np.where(told, stay.leave, stay.enter), UNKNOWN), groups, touched)
        if not bool(final.any()):
            return []
        known = replace(stay, entered=np.where(before == UNKNOWN, stay.entered, -1))
        at = device.kernels.keep(final)
        values = each_row(node, rows.frame, rows.low, rows.high, known, at, device)
        return [Events(stay.enter[at], TICK, device.columns.beside(device.columns.take(rows.frame, at), values))]

    def _wake(self, codes: Any, times: Any, groups: _Groups, touched: Any) -> None:
        """Look at groups again at the least of some times of their rows, if that is known."""
        order = self._device.kernels.group_order(codes, len(touched), times)
        codes = codes[order]
        first = self._device.kernels.keep(
            np.concatenate([np.ones_like(codes[:1], dtype=np.bool_), codes[1:] != codes[:-1]])
        )
        here = touched[codes[first]]
        groups.due[here] = np.minimum(groups.due[here], times[order][first])

    def _beside_prior(self, rows: Rows, at: Any) -> list[Events]:
        """Rows that have come, as they are, beside those so many places before them."""
        if not len(at):
            return []
        columns, window = self._device.columns, self._node.window
        assert isinstance(window, Last)  # noqa: S101  (the last n rows are those that are kept)
        frame = columns.take(rows.frame, at)
        there = _column(rows, _NUMBER)[at] >= window.count
        valid = None if bool(there.all()) else there
        for name, column in self._node.prior:
            values = columns.take(columns.select(rows.frame, [column]), np.where(there, at - window.count, 0))
            frame = columns.beside(frame, columns.rename(columns.null_where(values, valid), column, name))
        return [Events(rows.low[at], rows.high[at], frame)]

    def _shown(self, frame: Any, status: str, count: int) -> Any:
        if self._node.output != "changes":
            return frame
        columns = self._device.columns
        one = columns.from_arrow(pa.table({STATUS: pa.array([status], pa.string())}))
        return columns.beside(frame, columns.take(one, columns.array(np.zeros(count, np.int64))))

    def _promise(self, cti: int) -> int:
        return cti if cti == MAX_TIME else self._floors.least(cti)

    # The state, to be looked at and kept

    @property
    def alive(self) -> int:
        """How many rows it keeps."""
        return len(self._waiting) + len(self._kept)

    def tables(self) -> dict[str, pa.Table]:
        """The state: groups, rows that wait for their turn, and rows whose leave is not known yet."""
        if not self._numbers.seen:
            return {}
        device, schema, count = self._device, self._node.input.schema, len(self._numbers)
        self._groups.grow(count)
        made: dict[str, Any] = {
            name: to_arrow(device.columns.host(each[:count]).copy(), pa.int64())
            for name, each in vars(self._groups).items()
        }
        if self._numbers.keys is not None:
            keys = pa.schema([schema.field(name) for name in self._node.group])
            table = device.columns.to_arrow(self._numbers.keys, keys)
            made |= {f"key/{name}": table[name] for name in table.column_names}
        tables = {"groups": pa.table(made)}
        if len(self._waiting):
            tables["waiting"] = rows_table(self._waiting, schema, device, shown_time)
        kept = self._kept.rows(_ALWAYS)
        if kept is not None:
            tables["kept"] = kept.to_arrow(schema, device, shown_time)
        return tables

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        if not tables:
            return
        array, groups = self._device.columns.array, tables["groups"].combine_chunks()
        keys = {name: groups[f"key/{name}"] for name in self._node.group}
        self._numbers.restore(self._device.columns.from_arrow(pa.table(keys)) if keys else None)
        self._groups = _Groups(*(array(integers(groups[name].combine_chunks()).copy()) for name in vars(self._groups)))
        if "waiting" in tables:
            self._waiting.add(rows_from_arrow(tables["waiting"], self._device))
        if "kept" in tables:
            self._keep(rows_from_arrow(tables["kept"], self._device))

    def _forget(self) -> None:
        """Forget groups of which no row is left, once they are most, where what has been plays no part."""
        window = self._node.window
        aside = _plays_no_part(window)
        if isinstance(window, Together):
            aside = all(isinstance(part.window, _FROM_ROWS) or _plays_no_part(part.window) for part in window.parts)
        if not aside or not self._numbers.crowded:
            return
        host = self._device.columns.host
        used = np.zeros(len(self._numbers), np.bool_)
        kept = self._kept.rows(_ALWAYS)
        for run in (*self._waiting.runs(), *([] if kept is None else [kept])):
            used[host(run.code)] = True
        numbers = self._numbers.forget(used)
        if numbers is None:
            return
        left = self._device.columns.array(np.flatnonzero(used))
        self._groups = _Groups(*(each[left] for each in vars(self._groups).values()))
        self._waiting.renumber(numbers)
        self._kept.renumber(numbers, _ALWAYS)


_FROM_ROWS = Last | First | Best | Ends
"""Windows that, taken together with others, know nothing but the rows that they hold."""


def _plays_no_part(window: Kind | Ends) -> bool:
    """Whether nothing that a window does depends on rows that are gone."""
    return (
        isinstance(window, Alive)
        or (isinstance(window, Session) and window.grid_cap is None)
        or (isinstance(window, TimeBatches) and window.align is not None)
        or (isinstance(window, FirstSpan) and window.since is not None)
    )


def _column(rows: Rows, name: tuple[str, str]) -> Any:
    return rows.columns[name].arrays[0]


def _places(touched: Any, codes: Any) -> Any:
    """int32 places of groups among those that are touched, ascending; each is one of them."""
    if len(touched) and int(touched[-1]) == len(touched) - 1:
        return codes.astype(np.int32, copy=False)
    return np.searchsorted(touched, codes).astype(np.int32)
