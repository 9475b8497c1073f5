"""Rows of named windows: those that are there, what changed in a step, and which of them events find."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.time import TICK
from gpu_ops.core.turns import PLACE
from gpu_ops.devices import Device
from gpu_ops.epl.planning.known_windows import SILENT
from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import StepInput

ENTER, LEAVE = "@enter", "@leave"
BY, OUT_BY = "@by", "@out by"
"""Where a row enters and leaves, and the number of the statement that brings it in and takes it out; 0 for none."""

MOMENT = 2
"""How far behind the event that changes rows they change: that is between it and the next place of an event."""

_PAIRS = 1 << 21
"""How many pairs of an event and a row are looked at together."""


@dataclass(frozen=True)
class WindowMoves:
    """The rows that enter a named window in a step, and those that leave it, as the statements over it read them.

    Attributes:
        entered: Rows that came in, and stay.
        left: Rows that came in earlier, and left.
        passed: Rows that came in and left.
    """

    entered: pa.Table
    left: pa.Table
    passed: pa.Table

    def __len__(self) -> int:
        return len(self.entered) + len(self.left) + len(self.passed)

    def ahead(self, offset: int) -> WindowMoves:
        """They as they come while the clock shows some ticks more."""
        del offset
        return self

    def seen_by(self, number: int) -> WindowMoves:
        """They for a statement that an event triggers: what those before it do at its event has been done."""

        def moved(table: pa.Table, where: str, by: str) -> pa.Table:
            if where not in table.column_names or not len(table):
                return table
            places, owner = table[where].to_numpy(), table[by].to_numpy()
            places = np.where((owner > 0) & (owner < number), places - MOMENT, places)
            return table.set_column(table.column_names.index(where), where, pa.array(places))

        return WindowMoves(
            *(moved(moved(each, ENTER, BY), LEAVE, OUT_BY) for each in (self.entered, self.left, self.passed))
        )

    def given(self, names: Sequence[str], device: Device) -> StepInput:
        """They as the input of a leaf."""

        def events(table: pa.Table, *, stays: bool = False) -> list[Events]:
            if not len(table):
                return []
            enter = device.columns.array(table[ENTER].to_numpy())
            if stays:
                return [Events(enter, TICK, device.columns.from_arrow(table.select(list(names))))]
            leave = device.columns.array(np.maximum(table[LEAVE].to_numpy(), table[ENTER].to_numpy() + TICK))
            return [Events(enter, leave, device.columns.from_arrow(table.select(list(names))))]

        return StepInput(events(self.passed), events(self.entered, stays=True), events(self.left))


class KeptRows:
    """Rows that are there, and those that have gone in this step."""

    def __init__(self, schema: pa.Schema) -> None:
        fields = [*schema, pa.field(ENTER, pa.int64()), pa.field(BY, pa.int64())]
        self.schema = pa.schema(fields)
        self.table, self._gone = self.schema.empty_table(), list[pa.Table]()

    @property
    def ids(self) -> Any:
        """int64 number of each row."""
        return self.table[PLACE].to_numpy()

    def add(self, rows: pa.Table, places: Any, by: int = 0) -> None:
        """Have rows, which have the columns of the window, `PLACE` and `CLOCK`."""
        if not len(rows):
            return
        own = {SILENT: pa.array(np.zeros(len(rows), np.bool_)), ENTER: pa.array(places, pa.int64())}
        own[BY] = pa.array(np.full(len(rows), by))
        columns = [own[each.name] if each.name in own else rows[each.name] for each in self.schema]
        made = pa.table(columns, self.schema)
        self.table = pa.concat_tables([self.table, made]) if len(self.table) else made

    def remove(self, mask: Any, places: Any, by: Any = 0, silent: Any = False) -> None:  # noqa: FBT002
        """Have some rows gone.

        Args:
            mask: Which.
            places: Where each of them leaves.
            by: The number of the statement that takes each out.
            silent: Whether the window's own listeners are not told.
        """
        if not mask.any():
            return
        gone = self.table.filter(pa.array(mask))
        count = len(gone)
        if np.any(silent):
            at = gone.column_names.index(SILENT)
            gone = gone.set_column(at, SILENT, pa.array(np.broadcast_to(np.asarray(silent), count).copy()))
        places, by = (np.broadcast_to(np.asarray(each, np.int64), count).copy() for each in (places, by))
        self._gone.append(gone.append_column(LEAVE, pa.array(places)).append_column(OUT_BY, pa.array(by)))
        self.table = self.table.filter(pa.array(~mask)).combine_chunks()

    def follow(
        self,
        rows: pa.Table,
        places: Any,
        by: Any,
        gone: Any,
        ends: Any,
        out_by: Any,
        silent: Any = False,  # noqa: FBT002
    ) -> None:
        """Have rows of which some have gone again.

        Args:
            rows: The rows, as `add` takes them.
            places: Where each enters.
            by: The number of the statement that brings each in.
            gone: Which of them have gone.
            ends: Where each of these leaves.
            out_by: The number of the statement that takes each of these out.
            silent: Whether the window's own listeners are not told of that.
        """
        before, self.table = self.table, self.schema.empty_table()
        self.add(rows, places)
        if len(rows):
            self.table = self.table.set_column(self.table.column_names.index(BY), BY, pa.array(by, pa.int64()))
        self.remove(gone, ends[gone], out_by[gone], silent[gone] if np.any(silent) else False)
        self.table = pa.concat_tables([before, self.table]).combine_chunks()

    def put_in_order(self) -> None:
        """Have the rows in the order in which they came, however many turns were taken at once."""
        enter, ids = self.table[ENTER].to_numpy(), self.ids
        later = (enter[1:] > enter[:-1]) | ((enter[1:] == enter[:-1]) & (ids[1:] > ids[:-1]))
        if not later.all():
            self.table = self.table.take(pa.array(np.lexsort((ids, enter))))

    def taken(self, mask: Any, places: Any, by: Any, silent: Any) -> None:
        """Have some rows gone, of those that are there and of those that went behind: they go where it is said."""
        gone = self.gone
        here, there = mask[: len(self.table)], mask[len(self.table) :]
        count = len(self.table)
        self._gone = [gone.filter(pa.array(~there))]
        again = gone.filter(pa.array(there))
        self.remove(here, places[:count][here], by[:count][here], silent[:count][here])
        if len(again):
            own = (places[count:][there], by[count:][there], silent[count:][there])
            for name, values in zip((LEAVE, OUT_BY, SILENT), own, strict=True):
                again = again.set_column(again.column_names.index(name), name, pa.array(values))
            self._gone.append(again)

    @property
    def gone(self) -> pa.Table:
        """The rows that have gone in this step."""
        own = [pa.field(LEAVE, pa.int64()), pa.field(OUT_BY, pa.int64())]
        return pa.concat_tables([pa.schema([*self.schema, *own]).empty_table(), *self._gone])

    def moves(self, done: int) -> WindowMoves:
        """What has changed since a place; it is forgotten."""
        gone = self.gone
        self._gone = []
        fresh, was = self.table[ENTER].to_numpy() >= done, gone[ENTER].to_numpy() >= done
        return WindowMoves(self.table.filter(pa.array(fresh)), gone.filter(pa.array(~was)), gone.filter(pa.array(was)))

    def whole(self) -> WindowMoves:
        """All rows, as if they came now: for a statement that begins."""
        none = self.gone.slice(0, 0)
        return WindowMoves(self.table, none, none)


def matching(
    events: pa.Table, rows: pa.Table, on: Sequence[tuple[str, str]], *, nulls: bool = False
) -> Iterator[tuple[Any, Any]]:
    """Pairs (numbers of events, numbers of rows) whose keys are equal, in parts; all pairs where there are no keys.

    Args:
        events: The events.
        rows: The rows.
        on: Pairs (column of the events, column of the rows).
        nulls: Whether null equals null.
    """
    if not len(events) or not len(rows):
        return
    if not on:
        each = max(_PAIRS // len(rows), 1)
        for low in range(0, len(events), each):
            some = np.arange(low, min(low + each, len(events)))
            yield np.repeat(some, len(rows)), np.tile(np.arange(len(rows)), len(some))
        return
    some = np.flatnonzero(holding(rows[on[0][1]], [events[on[0][0]]]))
    rows = rows.select([*dict.fromkeys(name for _, name in on)]).take(pa.array(some))
    columns = [pa.chunked_array([*events[a].chunks, *rows[b].chunks], rows[b].type) for a, b in on]
    mine = key_codes(columns, len(events) + len(rows)) if nulls else _codes(columns)
    keys, own = mine[: len(events)], mine[len(events) :]
    order = np.argsort(own, kind="stable")
    low, high = (np.searchsorted(own[order], keys, side=side) for side in ("left", "right"))
    count = np.where(keys >= 0, high - low, 0)
    ends = np.cumsum(count)
    begin = 0
    while begin < len(events):
        until = max(int(np.searchsorted(ends, (ends[begin - 1] if begin else 0) + _PAIRS, side="right")), begin + 1)
        times = count[begin:until]
        at = np.repeat(np.arange(begin, until), times)
        within = np.arange(len(at)) - np.repeat(np.cumsum(times) - times, times)
        yield at, some[order[low[at] + within]]
        begin = until


def holding(column: pa.ChunkedArray, asked: Sequence[pa.ChunkedArray]) -> Any:
    """bool: which values of a column are among others of its type, null among them where it is one."""
    some = pa.chunked_array([chunk for each in asked for chunk in each.chunks], column.type)
    return pc.is_in(column, some.combine_chunks()).to_numpy()


def key_codes(columns: Sequence[pa.ChunkedArray], count: int) -> Any:
    """int64: the same for equal keys, of which null is one; without columns there is one key."""
    made = np.zeros(count, np.int64)
    for each in columns:
        coded = each.combine_chunks().dictionary_encode(null_encoding="encode")
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        _, made = np.unique(made * (len(coded.dictionary) + 1) + codes, return_inverse=True)
    return made


def _codes(columns: Sequence[pa.ChunkedArray]) -> Any:
    """int64: the same for equal keys, -1 where one is null."""
    known = np.ones(len(columns[0]), np.bool_)
    for each in columns:
        known &= ~each.is_null().to_numpy()
    return np.where(known, key_codes(columns, len(known)), -1)
