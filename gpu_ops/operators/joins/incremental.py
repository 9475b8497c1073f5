"""Two streams in a running query: events wait until the older CTI has passed their starts, and meet in order of time.

So a step sees all events of both streams that start before a time, in whatever order they came in. An event is kept
until that time reaches its end: from then on no new event can meet it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.sorted_runs import Run
from gpu_ops.core.state_tables import Field, StateTable, Tables, counter
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.events import Events, concat, present
from gpu_ops.operators.joins import joins
from gpu_ops.operators.joins.coverage import Matches, covered_until, covers_of, uncovered
from gpu_ops.operators.joins.joins import OverlapPairs
from gpu_ops.operators.operator import BatchInput, Stateless, StepInput
from gpu_ops.operators.row_order import run_ends, run_starts
from gpu_ops.operators.state.changing_runs import ChangingRuns, change, now
from gpu_ops.operators.state.fields import AFTER, NUMBERED_TIME, TIME, clock, row_columns
from gpu_ops.operators.state.incremental import IncrementalOperator
from gpu_ops.operators.state.least import Least
from gpu_ops.operators.state.row_runs import Key, RowRuns, ordered
from gpu_ops.operators.state.rows import AxisRows
from gpu_ops.plan.joins import Binary, ClipBy, Join, Numbered
from gpu_ops.plan.nodes import Node

NULLS = 2
"""Null keys have numbers of their own, 0 on the left and 1 on the right, which the other side does not have."""

_SIDES = ("left", "right")


CURSOR = ("cursor", "numbers")
"""The column of times up to which the pieces of an event without a partner have been given."""


class IncrementalBinary(IncrementalOperator, family=True):
    """The base of nodes with two inputs: numbers of keys, and events that wait for a CTI past their start.

    Args:
        node: The node.
        device: Where arrays live.
        kept: The events that may still be met, by their sides.
    """

    _node: Binary
    _group_table, _key_prefix, own_numbers = "keys", "", NULLS

    def __init__(self, node: Binary, device: Device, kept: dict[str, RowRuns]) -> None:
        self._waiting = RowRuns(("low",), device), RowRuns(("low",), device)
        runs = {f"waiting {side}": runs for side, runs in zip(_SIDES, self._waiting, strict=True)} | kept
        super().__init__(node, tuple(name for name, _ in node.on), node.left.schema, device, runs)
        self._keys = pa.schema([key.with_nullable(True) for key in self._keys])
        self._kept = kept

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """The results of all events of both sides, in order of key and start."""
        left, right = (concat(pieces, self._device) for pieces in whole.inputs)
        return self._batch(left, right, gathered=whole.gathered)

    def _moved(self, events: Sequence[Events | None], given: Sequence[StepInput], cti: int) -> tuple[StepInput, int]:
        before = cti if cti == MAX_TIME else cti - 1
        due = []
        for at, each in enumerate(events):
            fresh = [] if each is None or not len(each) else [self._rows(at, each)]
            due.append(self._by_group(at, self._waiting[at].through(fresh, before)))
        results = list(self._meet(due[0], due[1], cti))
        self._done = max(self._done, cti)
        self._forget()
        return StepInput(results), self._output_cti(cti)

    @abstractmethod
    def _batch(self, left: Events | None, right: Events | None, *, gathered: bool) -> Iterator[Events]:
        """The results of all events at once."""

    @abstractmethod
    def _meet(self, left: AxisRows, right: AxisRows, cti: int) -> Iterator[Events]:
        """The results of a step in which some events begin; both sides are in order of group and start."""

    def _output_cti(self, cti: int) -> int:
        return cti

    def _rows(self, at: int, events: Events) -> AxisRows:
        names = [each[at] for each in self._node.on]
        keys = joins.right_keys(self._node.on, events.frame, self._device) if at and names else events.frame
        codes = self._groups.codes(keys) + np.int32(NULLS)
        known = joins.known_keys(names, events.frame, self._device)
        if known is not None:
            codes = np.where(known, codes, np.int32(at)).astype(np.int32)
        return AxisRows(codes, events.start, events.ends, {}, events.frame)

    def _frame(self, name: str) -> pa.Schema:
        return self._node.inputs["right" in name].schema

    def _by_group(self, at: int, rows: AxisRows | None) -> AxisRows:
        if rows is not None:
            return ordered(rows, "low", self._device)
        none = joins.nothing(self._node.inputs[at].schema, self._device)
        return AxisRows(none.start.astype(np.int32), none.start, none.start, {}, none.frame)

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        if not tables:
            return
        yield clock()
        done = int(tables["clock"]["done"][0].as_py())
        yield from self._groups_declared({})
        groups = self._group_count(tables) + NULLS
        end = replace(TIME, above="low")
        begin = replace(TIME, least=done)
        for at, (name, part) in enumerate(zip(_SIDES, self._node.inputs, strict=True)):
            yield StateTable(f"waiting {name}", _rows_declared(at, begin, end, groups, part.schema))
        begun = replace(TIME, most=done)
        for name in self._kept:
            at = _SIDES.index(name)
            yield StateTable(name, _rows_declared(at, begun, end, groups, self._frame(name)) | self._kept_besides(at))

    def _kept_besides(self, at: int) -> dict[str, Field]:
        """The columns of a side's kept rows beside those of all rows; most nodes have none."""
        del at
        return {}


def _rows_declared(at: int, low: Field, high: Field, groups: int, frame: pa.Schema) -> dict[str, Field]:
    columns = row_columns(low, high, groups, frame=frame)
    return columns | {"group": replace(columns["group"], besides=(at,), least=NULLS)}


class IncrementalJoin(IncrementalBinary, nodes=(Join,)):
    """The steps of a join, but for a semi join: that one is several nodes.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: Join

    def __init__(self, node: Join, device: Device) -> None:
        kept: dict[str, RowRuns] = {}
        for side, alone in zip(_SIDES, node.alone, strict=True):
            key: Key = ("group", "high")
            kept[side] = ChangingRuns(key, (CURSOR,), device) if alone else RowRuns(key, device)
        super().__init__(node, device, kept)
        self._sides = self._kept["left"], self._kept["right"]
        self._bare = replace(node, condition=None)
        self._oldest = Least(device.columns.host), Least(device.columns.host)

    @classmethod
    def stepped(cls, node: Join) -> Node:
        """A semi join as equal nodes.

        A batch computes it like an anti join, from the covers of each left event. Step by step, a covered piece would
        have to be kept until it is complete; stitched pairs are final as soon as time has passed their end.
        """
        return node.as_inner() if node.how == "semi" else node

    def _batch(self, left: Events | None, right: Events | None, *, gathered: bool) -> Iterator[Events]:
        return joins.join(self._node, left, right, self._device, gathered=gathered)

    def _meet(self, left: AxisRows, right: AxisRows, cti: int) -> Iterator[Events]:
        node, device = self._node, self._device
        # A side has several parts: the new events, and each run of kept events.
        lefts, rights = (
            [new, *(run.rows for run in side.runs)] for new, side in zip((left, right), self._sides, strict=True)
        )
        matches: tuple[list[Matches], list[Matches]] = ([[] for _ in lefts], [[] for _ in rights])
        for one, other, found in self._meetings(left, right):
            for match in joins.matched(node, lefts[one], rights[other], found, device):
                if node.pairs:
                    yield joins.pair_events(node, lefts[one], rights[other], match, device)
                if node.alone[0]:
                    matches[0][one].append((match.rows, match.start, match.end))
                if node.alone[1]:
                    matches[1][other].append((match.others, match.start, match.end))
        for at, fresh in enumerate((left, right)):
            lasting = device.kernels.keep(fresh.high > cti)
            if not node.alone[at]:
                self._sides[at].end(cti)
                self._sides[at].add(fresh.take(lasting, device))
                continue
            for (run, ended), met in zip(self._sides[at].ended(cti), matches[at][1:], strict=True):
                yield from self._alone(at, run, ended, met, cti)
            yield from self._fresh_alone(at, fresh, matches[at][0], lasting, cti)

    def _meetings(self, left: AxisRows, right: AxisRows) -> Iterator[tuple[int, int, OverlapPairs]]:
        """(part of left, part of right, pairs): new events with new ones, and with live ones."""
        device = self._device
        for found in joins.meetings(self._bare, left, right, device):
            yield 0, 0, found
        for number, run in enumerate(self._sides[1].runs, start=1):
            for found in self._met(left, run):
                yield 0, number, found
        for number, run in enumerate(self._sides[0].runs, start=1):
            for found in self._met(right, run):
                yield number, 0, found.swapped()

    def _met(self, fresh: AxisRows, run: Run[AxisRows]) -> Iterator[OverlapPairs]:
        """New events with those of a run that have not ended when they start."""
        kernels, rows = self._device.kernels, run.rows
        if not len(fresh) or not len(rows):
            return
        first = kernels.search_pairs(rows.code, rows.high, fresh.code, fresh.low)
        last = kernels.search_pairs(rows.code, rows.high, fresh.code, np.full_like(fresh.low, AFTER))
        for found in joins.pairs(first, last, fresh.high, rows, self._device):
            yield replace(found, start=kernels.take(fresh.low, found.rows))

    def _alone(self, at: int, run: Run[AxisRows], ended: Any, matches: Matches, cti: int) -> Iterator[Events]:
        """The final pieces without a partner of a run's events; their cursors move on."""
        device, take = self._device, self._device.kernels.take
        met = [rows for rows, _, _ in matches]
        if not len(ended) and not met:
            return
        concerned = present(np.concatenate([ended, *met]), len(run.rows), device)
        cursor, end = take(now(run, CURSOR), concerned), take(run.rows.high, concerned)
        numbered = [(np.searchsorted(concerned, rows), start, over) for rows, start, over in matches]
        final, moved = self._pieces(cursor, end, numbered, cti)
        self._oldest[at].remove(cursor[cursor < end])
        self._oldest[at].add(moved[(moved < end) & (end > cti)])
        lasting = device.kernels.keep((moved != cursor) & (end > cti))
        change(run, take(concerned, lasting), {CURSOR: take(moved, lasting)})
        rows, start, over = final
        if len(rows):
            frame = device.columns.take(run.rows.frame, take(concerned, rows))
            yield Events(start, over, self._given(at, frame))

    def _fresh_alone(self, at: int, fresh: AxisRows, matches: Matches, lasting: Any, cti: int) -> Iterator[Events]:
        """The final pieces without a partner of new events; events that have not ended are kept."""
        device, take = self._device, self._device.kernels.take
        final, moved = self._pieces(fresh.low, fresh.high, matches, cti)
        kept = replace(fresh, columns={CURSOR: Column((moved,), None)}).take(lasting, device)
        self._oldest[at].add(take(moved, lasting)[take(moved, lasting) < kept.high])
        self._sides[at].add(kept)
        rows, start, over = final
        if len(rows):
            yield Events(start, over, self._given(at, device.columns.take(fresh.frame, rows)))

    def _pieces(self, cursor: Any, end: Any, matches: Matches, cti: int) -> tuple[tuple[Any, Any, Any], Any]:
        """((row, start, end) of the pieces that are final, cursors after them)."""
        device = self._device
        covers = covers_of(matches, device)
        numbers = device.columns.array(np.arange(len(end), dtype=np.int32))
        pieces = uncovered(numbers, cursor, end, covers, device, closed=end <= cti)
        return pieces, covered_until(numbers, cursor, end, covers, device)

    def _given(self, at: int, frame: Any) -> Any:
        if self._node.how == "anti":
            return frame
        return joins.beside_nulls(self._node, at, frame, self._no_partners[1 - at], self._device)

    @cached_property
    def _no_partners(self) -> list[Any]:
        """Of each side a frame without rows."""
        return [joins.nothing(each.schema, self._device).frame for each in self._node.inputs]

    def _output_cti(self, cti: int) -> int:
        return min(oldest.least(cti) for oldest in self._oldest)

    def _kept_besides(self, at: int) -> dict[str, Field]:
        name, form = CURSOR
        return {f"{name}.{form}.0": replace(NUMBERED_TIME, from_="low")} if self._node.alone[at] else {}

    def _again(self, name: str, rows: AxisRows) -> None:
        if name in _SIDES and self._node.alone[at := _SIDES.index(name)]:
            cursors = rows.columns[CURSOR].arrays[0]
            self._oldest[at].add(cursors[cursors < rows.high])


class IncrementalClip(IncrementalBinary, nodes=(ClipBy,)):
    """The steps of `ClipBy`: left events wait for their end or for a right start, whichever comes first.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: ClipBy

    def __init__(self, node: ClipBy, device: Device) -> None:
        self._lefts = RowRuns(("group", "low"), device)
        super().__init__(node, device, {"left": self._lefts})
        self._oldest = Least(device.columns.host)
        self._cut = device.columns.array(np.zeros(0, np.int64))

    def _batch(self, left: Events | None, right: Events | None, *, gathered: bool) -> Iterator[Events]:
        clipped = joins.clip_by(self._node, left, right, self._device)
        return iter([] if clipped is None else [clipped])

    def _rows(self, at: int, events: Events) -> AxisRows:
        rows = super()._rows(at, events)
        # Only the starts of right events matter.
        return rows if at == 0 else replace(rows, high=rows.low + 1)

    def _meet(self, left: AxisRows, right: AxisRows, cti: int) -> Iterator[Events]:
        device, kernels = self._device, self._device.kernels
        more = len(self._groups) + NULLS - len(self._cut)
        if more > 0:
            self._cut = np.concatenate(
                [self._cut, np.full_like(self._cut, MIN_TIME, shape=(more + len(self._cut) // 2,))]
            )
        first = kernels.keep(run_starts(right.code))
        groups = kernels.take(right.code, first)
        starts = kernels.take(right.low, first)
        for run, ended in self._lefts.ended(cti):
            yield from self._out(run, ended, groups, starts)
        ends = joins.clipped_ends(left, right, device)
        final = (ends < left.high) | (ends <= cti)
        done = kernels.keep(final)
        if len(done):
            frame = device.columns.take(left.frame, done)
            yield Events(kernels.take(left.low, done), kernels.take(ends, done), frame)
        kept = left.take(kernels.keep(~final), device)
        self._oldest.add(kept.low)
        self._lefts.add(kept)
        if len(groups):
            self._cut[groups] = kernels.take(right.low, kernels.keep(run_ends(right.code)))

    def _out(self, run: Run[AxisRows], ended: Any, groups: Any, starts: Any) -> Iterator[Events]:
        """The events of a run that end in this step, by themselves or by a right start."""
        kernels, rows = self._device.kernels, run.rows
        first = kernels.search_pairs(rows.code, rows.low, groups, self._cut[groups] - 1)
        last = kernels.search_pairs(rows.code, rows.low, groups, np.full_like(starts, AFTER))
        source, offset = kernels.expand(last - first)
        clipped = kernels.take(first, source) + offset
        until = np.minimum(kernels.take(rows.high, clipped), kernels.take(starts, source))
        if run.gone is not None:
            # Rows that ended in an earlier step have been given; rows that end in this one have not.
            fresh = kernels.keep(~kernels.take(run.gone, clipped))
            clipped, until = kernels.take(clipped, fresh), kernels.take(until, fresh)
        run.left += len(ended)  # `drop` counts them, too
        self._lefts.drop(run, clipped)
        alone = kernels.take(ended, kernels.keep(~kernels.take(run.gone, ended)))
        self._lefts.drop(run, alone)
        at = np.concatenate([clipped, alone])
        if len(at):
            self._oldest.remove(kernels.take(rows.low, at))
            end = np.concatenate([until, kernels.take(rows.high, alone)])
            yield Events(kernels.take(rows.low, at), end, self._device.columns.take(rows.frame, at))

    def _output_cti(self, cti: int) -> int:
        return self._oldest.least(cti)

    def _again(self, name: str, rows: AxisRows) -> None:
        if name == "left":
            self._oldest.add(rows.low)

    def _renumber(self, numbers: Any, left: Any) -> None:
        self._cut = self._device.kernels.take(self._cut, left)


class NumberRows(Stateless, nodes=(Numbered,)):
    """A number for each event, in the order in which they come."""

    def __init__(self, node: Numbered, device: Device) -> None:
        super().__init__(node, device)
        self._next = 0

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """Piece by piece."""
        return map(self._numbered, whole.inputs[0])

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """Each event with the next number; the CTI as it is."""
        return StepInput(list(map(self._numbered, given[0].events))), ctis[0]

    def _numbered(self, events: Events) -> Events:
        columns, first = self._device.columns, self._next
        self._next += len(events)
        numbers = columns.build({self._node.name: (columns.array(np.arange(first, self._next)), None, pa.int64())})
        return Events(events.start, events.end, columns.beside(events.frame, numbers))

    def tables(self) -> dict[str, pa.Table]:
        """The next number."""
        return {"next": pa.table({"number": pa.array([self._next], pa.int64())})}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The table that `tables` gives."""
        yield StateTable("next", {"number": counter()}, rows=1, required=True)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Go on with the number that `tables` gave."""
        self._next = tables["next"]["number"][0].as_py()
