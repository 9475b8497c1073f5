"""Data windows step by step: a row waits until the CTI is past its start, and is kept until its leave is known.

A batch is one step whose CTI is infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from gpu_ops.core.threads import ordered_map
from gpu_ops.core.time import MAX_TIME, TICK
from gpu_ops.devices import Device
from gpu_ops.errors import PlanError
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.events import FEW, MANY, Events, concat, present, whole_groups
from gpu_ops.operators.operator import BatchInput, StepInput, of_whole_groups
from gpu_ops.operators.row_order import row_order, run_starts
from gpu_ops.operators.row_windows import clock_kinds, conditions, window_sets  # noqa: F401  (their kinds)
from gpu_ops.operators.row_windows.data_windows import each_row
from gpu_ops.operators.row_windows.groups import GroupStates
from gpu_ops.operators.row_windows.slices import Slice, slices
from gpu_ops.operators.row_windows.window_state import ENTER, FLOOR, NUMBER, DataWindowState, floors_of
from gpu_ops.operators.state.rows import AxisRows, concat_rows
from gpu_ops.plan.data_windows import STATUS, DataWindow, Last, Output
from gpu_ops.plan.window_kinds import OUT, UNKNOWN, Assigned, Membership, WindowRows

Assigned.check()

_READ_OTHER_ROWS: frozenset[Output] = frozenset({"each", "prior"})
"""The outputs whose results of a row read rows around it."""


@dataclass(frozen=True)
class Settled:
    """Rows of some groups, and when they are in as far as it is known now.

    Attributes:
        rows: The rows, in the order of their groups and numbers.
        codes: The place of each row's group among these groups.
        membership: When they are in.
        is_new: Which of them have not entered in an earlier step.
        groups: The state of all groups.
        touched: int64 numbers of these groups.
        cti: The step's CTI.
        came: Which of them have come in this step; None unless it gives rows that gather.
    """

    rows: AxisRows
    codes: Any
    membership: Membership
    is_new: Any
    groups: GroupStates
    touched: Any
    cti: int
    came: Any

    @cached_property
    def inside(self) -> Any:
        """Which of them enter at a known time."""
        return (self.membership.enter != OUT) & (self.membership.enter != UNKNOWN)


class IncrementalDataWindow(DataWindowState, nodes=(DataWindow,)):
    """The steps of one data window.

    Args:
        node: The node.
        device: Where arrays live.
    """

    def __init__(self, node: DataWindow, device: Device) -> None:
        super().__init__(node, device)
        # In this case a row is out of the state at its end; otherwise it is kept until it is taken out.
        self._ends = self._each_of is not None and node.window.is_lifetime
        self._opened: list[Events] = []
        self._closed: list[Events] = []
        self._emit = self._EMITTERS[node.output]
        self._gives_whole = node.output in {"alive", "gathering"}

    @property
    def gives_open(self) -> bool:
        """Whether it can emit events before their leaves are known."""
        window = self._node.window
        if self._node.output == "gathering":
            return True
        return self._node.output == "alive" and not window.holds_enters and window.leaves in {"later", "at once"}

    def open(self) -> None:
        """Emit events as soon as they enter, and again when they leave: the next node takes open events."""
        gathers = self._node.output == "gathering"
        self._emit = IncrementalDataWindow._gathering_edges if gathers else IncrementalDataWindow._edges
        self._gives_whole = False

    def needs(self, wanted: tuple[str, ...]) -> Sequence[tuple[str, ...]]:
        """The wanted columns, and the columns that it reads."""
        return [self._node.needed(wanted)]

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """The results of all rows: pieces of bounded size, each with all rows of its groups.

        Nothing is kept, and no row of another step plays a part.
        """
        device, node = self._device, self._node
        # An event of `each` gets aggregates over all windows of its key, so that these stay in one piece.
        together = node.key if node.output == "each" else node.group

        def pieces() -> Iterator[tuple[Events, Any, Any]]:
            for events in of_whole_groups(node.input, together, whole.inputs[0], device):
                codes, count, _ = device.columns.key_codes(events.frame, together)
                yield from whole_groups(events, codes, count, self._schema, device)

        def results(piece: tuple[Events, Any, Any]) -> Sequence[Events]:
            some, *numbered = piece
            code, touched = numbered if together == node.group else self._group_numbers(some.frame)
            made = self._whole(AxisRows(code, some.start, some.end, {}, some.frame), touched)
            if whole.cut:
                return list(made)
            gathered = concat(made, device)
            return [] if gathered is None else [gathered]

        # Pieces that are no larger than a block are computed several at a time, others slice by slice.
        size = device.block_rows
        for is_block, some in groupby(pieces(), lambda piece: size is not None and len(piece[0]) <= 2 * size):
            for made in ordered_map(device.threads if is_block else 1, results, some):
                yield from made

    def _whole(self, rows: AxisRows, touched: Any) -> Iterator[Events]:
        """The results of whole groups. A large group is cut in time, and its results come in several pieces."""
        device = self._device
        some = slices(self._node.halo, rows, device) if len(touched) == 1 else None
        if some is None:
            groups = GroupStates.new(int(touched[-1]) + 1, device)
            yield from self._rows_due(rows.with_ends(), touched, groups, MAX_TIME)
            return
        since = rows.low.min()

        def results(part: Slice) -> list[Events]:
            groups = GroupStates.new(int(touched[-1]) + 1, device)
            groups.seen[touched], groups.first[touched] = part.number, since
            return self._rows_due(part.rows.with_ends(), touched, groups, MAX_TIME, own=(part.begin, part.end))

        for made in ordered_map(device.threads, results, some):
            yield from made

    def _group_numbers(self, frame: Any) -> tuple[Any, Any]:
        """(int32 group of each row, int64 groups)."""
        code, count, _ = self._device.columns.key_codes(frame, self._node.group)
        return code, present(code, count, self._device)

    def _moved(self, events: Sequence[Events | None], given: Sequence[StepInput], cti: int) -> tuple[StepInput, int]:
        fresh = self._due(events[0], cti)
        self._known.grow(len(self._groups))
        self._done, self._opened, self._closed = cti, [], []
        ended = self._ended(cti) if self._ends else None
        touched = self._touched(fresh, ended, cti)
        made = self._rows_due(fresh, touched, self._known, cti, ended) if len(touched) else []
        self._changed(touched)
        self._forget()
        return StepInput(made, self._opened, self._closed), cti if cti == MAX_TIME else self._floors.least(cti)

    def _due(self, events: Events | None, cti: int) -> AxisRows | None:
        """The rows that start before the CTI: more rows may start at the CTI itself."""
        fresh = []
        if events is not None and len(events):
            codes = self._groups.codes(events.frame)
            fresh.append(AxisRows(codes, events.start, events.ends, {}, events.frame))
        return self._waiting.through(fresh, cti if cti == MAX_TIME else cti - 1)

    def _ended(self, cti: int) -> AxisRows | None:
        """The rows that end by the CTI, each once."""
        ended = [run.rows.take(at, self._device) for run, at in self._kept.ended(cti) if len(at)]
        return concat_rows(ended, self._device) if ended else None

    def _touched(self, fresh: AxisRows | None, ended: AxisRows | None, cti: int) -> Any:
        """int64 groups that may change, ascending."""
        count = len(self._groups)
        if self._ends:
            due = self._device.columns.array(np.zeros(0, np.int64))
            due = due if ended is None else present(ended.code, count, self._device)
        elif cti == MAX_TIME:
            # At the end of time all rows are settled.
            due = self._kept_groups()
        else:
            due = self._device.kernels.keep(self._known.due[:count] <= cti)
        if self._node.output == "each" and self._node.within and self._each_of is None:
            # The rows of a group are in several windows.
            due = self._kept_groups()
        if fresh is None:
            return due
        here = present(fresh.code, count, self._device)
        return present(np.concatenate([here, due]), count, self._device) if len(due) else here

    def _kept_groups(self) -> Any:
        kept = self._kept.rows()
        if kept is None:
            return self._device.columns.array(np.zeros(0, np.int64))
        return present(kept.code, len(self._groups), self._device)

    def _rows_due(
        self,
        fresh: AxisRows | None,
        touched: Any,
        groups: GroupStates,
        cti: int,
        ended: AxisRows | None = None,
        own: tuple[int, int] | None = None,
    ) -> list[Events]:
        """The results of some groups after new rows have come; if ``own`` is given, of the new rows between two."""
        before = groups.seen[touched]
        came = None if fresh is None else self._numbered(fresh, touched, groups)
        upto = None if cti == MAX_TIME else self._changes(touched, before, groups, cti)
        doubt = None if upto is None else self._in_doubt(touched, upto, before, groups)
        sure = upto if upto is None or doubt is None else np.where(doubt, 0, upto)
        kept = ended if self._ends else self._taken(touched, sure)
        rest = UNKNOWN if upto is None else np.where(upto > 0, UNKNOWN, groups.due[touched])
        if kept is None and came is None:
            came = self._no_rows()
        if came is None and kept is None:
            return []
        held = self._together(kept, came, touched, groups, before, cti)
        groups.due[touched] = rest
        membership = self._node.window.memberships(held[1], self._device)
        if doubt is not None:
            more = self._taken(touched[doubt & _first_leaves(held[1], membership)], None)
            if more is not None:
                kept = more if kept is None else concat_rows([kept, more], self._device)
                held = self._together(kept, came, touched, groups, before, cti)
                membership = self._node.window.memberships(held[1], self._device)
        gathers = self._node.output == "gathering"
        came_now = held[1].number >= before[held[1].code] if gathers else None
        return self._settled(held[0], held[1].code, membership, groups, touched, cti, own, came_now)

    def _no_rows(self) -> AxisRows | None:
        """What a window is shown of groups that are due and hold no row; None if such groups do not change."""
        return None

    def _together(
        self, kept: AxisRows | None, came: AxisRows | None, touched: Any, groups: GroupStates, before: Any, cti: int
    ) -> tuple[AxisRows, WindowRows]:
        """Kept rows and new ones in the order of their groups and numbers, and the same as a window takes them."""
        device = self._device
        rows = concat_rows([each for each in (kept, came) if each is not None], device)
        codes = _places(touched, rows.code)
        if kept is not None and not device.kernels.is_ordered(codes, _column(rows, NUMBER)):
            order = device.kernels.group_order(codes, len(touched), _column(rows, NUMBER))
            rows, codes = rows.take(order, device), device.kernels.take(codes, order)
        return rows, replace(self._held(rows, codes, touched, groups, before, cti), continues=kept is not None)

    def _in_doubt(self, touched: Any, upto: Any, before: Any, groups: GroupStates) -> Any | None:
        """Which groups' kept rows are read only once their first ones leave; None if they are few, so that all are."""
        if not self._node.window.leaves_together:
            return None
        came = groups.seen[touched] - before
        doubt = (upto > 0) & (came > 0)
        few = MANY * int(came.sum()) + FEW
        return doubt if self._kept.most_of_groups(touched[doubt]) > few else None

    def _changes(self, touched: Any, before: Any, groups: GroupStates, cti: int) -> Any | None:
        """For each of some groups a number: kept rows below it may change. None if all may change."""
        node = self._node
        if node.output == "each" and self._each_of is None:
            return None
        return node.window.changed(before, groups.seen[touched], groups.due[touched], cti)

    def _taken(self, touched: Any, upto: Any | None) -> AxisRows | None:
        """Take out the kept rows of some groups, or those below a number for each group.

        Of a window whose rows leave together, one of each group's first rows is among them in any case.
        """
        # Rows are in the order of their arrival, which is that of their numbers.
        found, below = [], None if upto is None else (NUMBER, upto)
        for run, at in self._kept.of_groups(touched, below, first=self._node.window.leaves_together):
            if len(at):
                self._kept.drop(run, at)
                found.append(run.rows.some(at, self._device))
        if not found:
            return None
        rows = concat_rows(found, self._device)
        self._floors.remove(floors_of(rows, self._device))
        return rows

    def _numbered(self, rows: AxisRows, touched: Any, groups: GroupStates) -> AxisRows:
        """New rows in the order of their arrival, with their numbers in their groups."""
        node, device = self._node, self._device
        codes = _places(touched, rows.code)
        order = row_order(
            codes, rows.low, rows.high, rows.frame, node.input.schema, node.order, device, ties=node.counts_rows
        )
        if order is not None:
            rows, codes = rows.take(order, device), device.kernels.take(codes, order)
        bounds = _bounds(codes, len(touched))
        present = device.kernels.keep(bounds[1:] > bounds[:-1])
        here, begins, ends = touched[present], bounds[present], bounds[present + 1]
        source, number = device.kernels.expand(ends - begins)
        if node.window.counts == "starts":
            place = np.cumsum(run_starts(codes, rows.low))
            number = place - place[begins][source]
        seen = groups.seen[here]
        if bool(seen.any()):
            number = number + seen[source]
        groups.seen[here] = number[ends - 1] + 1
        groups.first[here] = np.minimum(groups.first[here], rows.low[begins])
        unknown = Column((np.full_like(rows.low, UNKNOWN),), None)
        columns = {NUMBER: Column((number,), None), ENTER: unknown, FLOOR: unknown}
        note = node.window.note
        if note is not None:
            columns["row", note.name] = Column((np.full_like(rows.low, note.new),), None)
        return replace(rows, columns=columns)

    def _held(self, rows: AxisRows, codes: Any, touched: Any, groups: GroupStates, before: Any, cti: int) -> WindowRows:
        note = self._node.window.note
        return WindowRows(
            code=codes,
            bounds=_bounds(codes, len(touched)),
            start=rows.low,
            end=rows.high,
            number=_column(rows, NUMBER),
            first=groups.first[touched],
            noted=groups.closed[touched],
            cti=cti,
            enter=_column(rows, ENTER),
            before=before,
            frame=rows.frame,
            schema=self._node.input.schema,
            memo=None if note is None else _column(rows, ("row", note.name)),
            rows=self._node.output == "each",
        )

    def _settled(
        self,
        rows: AxisRows,
        codes: Any,
        membership: Membership,
        groups: GroupStates,
        touched: Any,
        cti: int,
        own: tuple[int, int] | None,
        came: Any,
    ) -> list[Events]:
        """The final results of some rows; rows that may still change are kept."""
        if own is not None and self._node.output not in _READ_OTHER_ROWS:
            low, high = own
            rows, codes = rows.cut(low, high, self._device), codes[low:high]
            came = None if came is None else came[low:high]
            membership = replace(membership, enter=membership.enter[low:high], leave=membership.leave[low:high])
            own = None
        before = _column(rows, ENTER)
        is_new = before == UNKNOWN
        enter = membership.enter if bool(is_new.all()) else np.where(is_new, membership.enter, before)
        # A row that has not left at the end of time never leaves; a row that has not entered never enters.
        leave = membership.leave if cti != MAX_TIME else np.minimum(membership.leave, MAX_TIME)
        if membership.due is not None:
            groups.due[touched] = membership.due
        if membership.noted is not None:
            groups.closed[touched] = membership.noted
        if own is not None:
            index = np.arange(len(rows), like=enter)
            is_new = (index >= own[0]) & (index < own[1])
        found = Settled(rows, codes, replace(membership, enter=enter, leave=leave), is_new, groups, touched, cti, came)
        if cti != MAX_TIME and self._node.output != "each":
            floor = self._floor(found) if self._holds else np.full_like(enter, UNKNOWN)
            self._keep_open(found, (enter != OUT) & (leave == UNKNOWN), enter, floor)
        return self._emit(self, self._given(found))

    def _given(self, found: Settled) -> Settled:
        """The same rows with the columns that the results have besides."""
        return found

    def _floor(self, found: Settled) -> Any:
        """For each kept row the time that no CTI may pass before it is given."""
        enter = found.membership.enter
        if self._node.output == "gathering":
            return np.where(enter == UNKNOWN, found.rows.low, UNKNOWN)
        return enter

    @property
    def _holds(self) -> bool:
        """Whether an enter is given together with its leave, so that no CTI may pass it before."""
        return self._gives_whole or (self._node.window.holds_enters and self._node.output != "remove")

    def _keep_open(self, found: Settled, which: Any, enter: Any, floor: Any) -> None:
        """Keep some rows, with their known enters, and the times that no CTI may pass before they are given."""
        columns = found.rows.columns | {ENTER: Column((enter,), None), FLOOR: Column((floor,), None)}
        if found.membership.memo is not None:
            note = self._node.window.note
            if note is None:
                raise PlanError(
                    f"The window {self._node.window} gives a memo of each row, and declares no note of it.",
                    remedy="Declare a RowNote: without one the next step would not know it.",
                )
            columns["row", note.name] = Column((found.membership.memo,), None)
        count = int(np.count_nonzero(which))
        if not count:
            return
        kept = replace(found.rows, columns=columns)
        if count < len(kept):
            kept = kept.some(self._device.kernels.keep(which), self._device)
        self._kept.add(kept)
        self._again("kept", kept)

    # The results of each output

    def _whole_memberships(self, found: Settled) -> list[Events]:
        """Rows for as long as they are in, once their leaves are known; rows that may still enter leave no earlier."""
        enter, leave = found.membership.enter, found.membership.leave
        return self._part(found.rows, (leave > enter) & (leave != UNKNOWN) & (enter != OUT), enter, leave)

    def _edges(self, found: Settled) -> list[Events]:
        """Rows with known leaves; for other rows an open edge now, and a closing edge when the leave is known."""
        enter, leave, fresh = found.membership.enter, found.membership.leave, found.inside & found.is_new
        self._opened += self._part(found.rows, fresh & (leave == UNKNOWN), enter, TICK)
        # A row that time made enter at the CTI may leave there with a later row; it was opened, too.
        self._closed += self._part(found.rows, found.inside & ~found.is_new & (leave < MAX_TIME), enter, leave)
        return self._part(found.rows, fresh & (leave != UNKNOWN) & (leave > enter), enter, leave)

    def _gathering(self, found: Settled) -> list[Events]:
        """Rows from their own starts until they enter, or until they never will."""
        over, waited = self._gathered(found)
        return self._part(found.rows, waited & (over != UNKNOWN) & (over > found.rows.low), found.rows.low, over)

    def _gathering_edges(self, found: Settled) -> list[Events]:
        """The same as `_gathering`, with open edges as rows come."""
        over, waited = self._gathered(found)
        low = found.rows.low
        self._opened += self._part(found.rows, found.came & (over == UNKNOWN), low, TICK)
        self._closed += self._part(found.rows, waited & ~found.came & (over < MAX_TIME), low, over)
        return self._part(found.rows, found.came & (over != UNKNOWN) & (over > low), low, over)

    def _gathered(self, found: Settled) -> tuple[Any, Any]:
        """(when rows gather no more; which rows gathered before this step, or came in it)."""
        enter, leave = found.membership.enter, found.membership.leave
        over = np.where(enter == OUT, leave, enter)
        if found.cti == MAX_TIME:
            over = np.minimum(over, MAX_TIME)
        return over, _column(found.rows, ENTER) == UNKNOWN

    def _inserts(self, found: Settled) -> list[Events]:
        """A point where a row enters."""
        return self._part(found.rows, found.inside & found.is_new, found.membership.enter, TICK, "new")

    def _removes(self, found: Settled) -> list[Events]:
        """A point where a row leaves."""
        return self._part(
            found.rows, found.inside & (found.membership.leave < MAX_TIME), found.membership.leave, TICK, "dead"
        )

    def _changes_of(self, found: Settled) -> list[Events]:
        """A point where a row enters, and one where it leaves."""
        return self._inserts(found) + self._removes(found)

    def _with_prior(self, found: Settled) -> list[Events]:
        """New rows, beside the rows that came ``count`` places before them."""
        rows, columns, window = found.rows, self._device.columns, self._node.window
        at = self._device.kernels.keep(found.is_new)
        if not len(at):
            return []
        assert isinstance(window, Last)  # noqa: S101  (with_prior makes no other window)
        frame = columns.take(rows.frame, at)
        number = _column(rows, NUMBER)
        there = number[at] >= window.count
        # Rows in between may not be among these rows.
        before = self._device.kernels.search_pairs(found.codes, number, found.codes[at], number[at] - window.count - 1)
        valid = None if bool(there.all()) else there
        for name, column in self._node.prior:
            values = columns.take(columns.select(rows.frame, [column]), np.where(there, before, 0))
            frame = columns.beside(frame, columns.rename(columns.null_where(values, valid), column, name))
        return [Events(rows.low[at], rows.high[at], frame)]

    def _each(self, found: Settled) -> list[Events]:
        """Rows whose enter is final, with aggregates over the rows that are in then; rows are kept for later enters."""
        membership, columns = found.membership, self._device.columns
        # An enter that time alone makes may be known long before.
        final = found.inside & found.is_new & (membership.enter <= found.cti)
        if self._node.window.holds_enters:
            final = final & (membership.leave != UNKNOWN)
        told = final | ~found.is_new
        running = self._each_of if self._groups.seen else None
        if found.cti != MAX_TIME:
            # A row that never leaves is in the running aggregates, and need not be kept.
            still_in = (membership.leave > found.cti) & ((membership.leave != MAX_TIME) | (running is None))
            self._keep_for_others(found, (membership.enter != OUT) & (still_in | ~told), told)
        at = self._device.kernels.keep(final)
        values = None
        if running is not None:
            leaves = told & found.inside & (membership.leave <= min(found.cti, MAX_TIME - 1))
            values = running.values(found.rows, membership, final, leaves)
        elif len(at):
            # Rows of earlier steps are in before any new one.
            new = _column(found.rows, ENTER) == UNKNOWN
            if not bool(new.all()):
                membership = replace(membership, entered=np.where(new, membership.entered, -1))
            # Without further columns in its group, an event's group is its key.
            key = self._node.key
            codes = columns.key_codes(found.rows.frame, key)[0] if self._node.within else found.codes
            values = each_row(self._node, found.rows, codes, membership, at, self._device)
        if not len(at):
            return []
        start, frame = membership.enter, found.rows.frame
        if len(at) < len(start):
            start, frame = self._device.kernels.take(start, at), columns.take(frame, at)
        return [Events(start, TICK, columns.beside(frame, values))]

    def _keep_for_others(self, found: Settled, which: Any, told: Any) -> None:
        """Keep some rows for rows that enter later; their groups are due when one of them enters or leaves."""
        membership = found.membership
        floor = np.where(told | (membership.enter == OUT), UNKNOWN, membership.enter)
        self._keep_open(found, which, np.where(told, membership.enter, UNKNOWN), floor)
        if not self._ends:
            times = np.where(which, np.where(told, membership.leave, membership.enter), UNKNOWN)
            found.groups.wake(found.codes, times, found.touched, self._device)

    _EMITTERS: ClassVar[dict[Output, Callable[[Any, Settled], list[Events]]]] = {
        "alive": _whole_memberships,
        "gathering": _gathering,
        "insert": _inserts,
        "remove": _removes,
        "changes": _changes_of,
        "prior": _with_prior,
        "each": _each,
    }

    def _part(self, rows: AxisRows, which: Any, start: Any, end: Any, status: str = "") -> list[Events]:
        """Some rows with new lifetimes: one piece, or none if it is empty."""
        count = int(np.count_nonzero(which))
        if not count:
            return []
        if not isinstance(end, int):
            rows = replace(rows, high=end)
        rows = replace(rows, low=start, columns={})
        if count < len(rows):
            rows = rows.some(self._device.kernels.keep(which), self._device)
        return [
            Events(rows.low, end if isinstance(end, int) else rows.high, self._with_status(rows.frame, status, count))
        ]

    def _with_status(self, frame: Any, status: str, count: int) -> Any:
        if self._node.output != "changes":
            return frame
        columns = self._device.columns
        one = columns.from_arrow(pa.table({STATUS: pa.array([status], pa.string())}))
        return columns.beside(frame, columns.take(one, columns.array(np.zeros(count, np.int64))))


def _first_leaves(held: WindowRows, membership: Membership) -> Any:
    """bool: of which groups the first row came in an earlier step, and its leave is known."""
    first = np.minimum(held.bounds[:-1], len(held) - 1)
    is_old = (held.bounds[1:] > held.bounds[:-1]) & (held.number[first] < held.before)
    return is_old & (membership.leave[first] != UNKNOWN)


def _column(rows: AxisRows, name: tuple[str, str]) -> Any:
    return rows.columns[name].arrays[0]


def _bounds(codes: Any, groups: int) -> Any:
    """int64: the index of each group's first row among ascending codes, and the end of the last group."""
    return np.searchsorted(codes, np.arange(groups + 1, dtype=codes.dtype, like=codes)).astype(np.int64)


def _places(touched: Any, codes: Any) -> Any:
    """int32 places of groups among the touched groups, which ascend; each group is touched."""
    if len(touched) and int(touched[-1]) == len(touched) - 1:
        return codes.astype(np.int32, copy=False)
    return np.searchsorted(touched, codes).astype(np.int32)
