"""What came out of windows before each row: the last rows are kept, and for rows that are in what they saw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_tables import StateTable, Tables
from gpu_ops.core.time import MAX_TIME
from gpu_ops.core.turns import INSTANCE, PLACE
from gpu_ops.devices import Device
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.operator import BatchInput, Operator, StepInput
from gpu_ops.operators.row_order import in_order, stable_order
from gpu_ops.operators.state.fields import nullable_columns
from gpu_ops.plan.look_back import LookBack


class LookBackOperator(Operator, nodes=(LookBack,)):
    """Gathers from the rows of a step and the last rows before them.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: LookBack

    passes_open = True

    waiting = 0

    def __init__(self, node: LookBack, device: Device) -> None:
        super().__init__(node, device)
        made = node.schema
        read = list(dict.fromkeys(each.column for each in node.earlier))
        self._read = read
        self._kept = list(dict.fromkeys([*read, *node.within]))
        self._recent_schema = pa.schema([made.field(name) for name in self._kept])
        # By its instance it is known when nobody asks for a row any more.
        names = [*(name for name in node.within if name == INSTANCE), *(each.name for each in node.earlier)]
        self._seen_schema = pa.schema([made.field(PLACE), *(made.field(name) for name in names)])
        self._recent = device.columns.from_arrow(empty_table(self._recent_schema))
        self._seen: list[Any] = []
        self._count = 0

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step; nothing is kept."""
        yield from self.step([StepInput(list(whole.inputs[0]))], [MAX_TIME])[0].events

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The rows that enter with what they see, and those that leave with what they saw."""
        (fed,), device = given, self._device
        whole, opened, closed = (concat(each, device) for each in (fed.events, fed.opened, fed.closed))
        left = [] if closed is None or not len(closed) else [self._again(closed)]
        some = [each for each in (whole, opened) if each is not None and len(each)]
        if not some:
            return StepInput((), (), left), ctis[0]
        made = self._looked(some)
        upto = 0 if whole is None else len(whole)
        parts: list[list[Events]] = []
        for each in (whole, opened):
            if each is None or not len(each):
                parts.append([])
                continue
            begin = 0 if each is whole else upto
            beside = device.columns.cut(made, begin, begin + len(each))
            parts.append([replace(each, frame=device.columns.beside(each.frame, beside))])
        for each in parts[1]:
            self._seen.append(device.columns.select(each.frame, self._seen_schema.names))
            self._count += len(each)
        return StepInput(parts[0], parts[1], left), ctis[0]

    def _looked(self, some: Sequence[Events]) -> Any:
        """A frame of the columns of earlier rows, in the order of the given ones."""
        columns, take = self._device.columns, self._device.kernels.take
        names = list(dict.fromkeys((PLACE, *self._node.group, *self._kept)))
        frame = columns.concat([columns.select(each.frame, names) for each in some])
        start = np.concatenate([each.start for each in some])
        known, keys = columns.rows(self._recent), [start, columns.values(frame, PLACE)[0]]
        fresh, own = columns.select(frame, self._kept), None
        if not in_order(keys):
            order = stable_order(keys, start, self._device)
            fresh, own = columns.take(fresh, order), np.empty_like(order)
            own[order] = np.arange(known, known + len(start), like=start)
        recent = columns.concat([self._recent, fresh])
        preceding = self._one_before(recent)
        made = []
        for each in self._node.earlier:
            if each.together:
                at, there = self._batch_mates(frame, start, each.back)
                at = at + known if own is None else take(own, at)
            else:
                at = self._before(preceding, each.back)
                at = at[known:] if own is None else take(at, own)
                there = at >= 0
                at = np.maximum(at, 0)
            one = columns.rename(columns.select(recent, [each.column]), each.column, each.name)
            one = columns.take(one, at)
            made.append(one if bool(there.all()) else columns.null_where(one, there))
        # Those that have fewer rows of their kind behind them than somebody looks back.
        stays, passed = np.full_like(preceding, True, dtype=np.bool_), self._before(preceding, self._node.most)
        stays[passed[passed >= 0]] = False
        self._recent = columns.take(recent, self._device.kernels.keep(stays))
        return made[0] if len(made) == 1 else columns.beside(*made)

    def _one_before(self, recent: Any) -> Any:
        """int64: for each row the one before it of its kind, which is what it is within; -1 for none."""
        columns, within = self._device.columns, list(self._node.within)
        every = columns.array(np.arange(columns.rows(recent)))
        if not within:
            return every - 1
        codes, groups, _ = columns.key_codes(columns.select(recent, within), within)
        return self._device.kernels.touched_rows(codes, every, groups)[3]

    def _before(self, one: Any, back: int) -> Any:
        """int64: for each row the one so many before it of its kind, by leaps over 1, 2, 4 … rows; -1 for none."""

        def leapt(at: Any | None, leaps: Any) -> Any:
            if at is None:
                return leaps
            return np.where(at < 0, at, self._device.kernels.take(leaps, np.maximum(at, 0)))

        at, leaps = None, one
        while back:
            at = leapt(at, leaps) if back & 1 else at
            back >>= 1
            leaps = leapt(leaps, leaps) if back else leaps
        return np.arange(len(one), like=one) if at is None else at

    def _batch_mates(self, frame: Any, start: Any, back: int) -> tuple[Any, Any]:
        """(of each row the index of the one so many before it in its batch, whether there is one)."""
        columns, take = self._device.columns, self._device.kernels.take
        codes = np.zeros_like(start)
        if self._node.group:
            codes = columns.key_codes(columns.select(frame, list(self._node.group)), self._node.group)[0].astype(
                np.int64
            )
        order = stable_order([start, codes, columns.values(frame, PLACE)[0]], start, self._device)
        rank = np.empty_like(order)
        rank[order] = columns.array(np.arange(len(order)))
        at = take(order, np.maximum(rank - back, 0))
        there = (rank >= back) & (take(start, at) == start) & (take(codes, at) == codes)
        return at, there

    def _again(self, closed: Events) -> Events:
        """Rows that leave, with what they saw as they entered."""
        columns, take = self._device.columns, self._device.kernels.take
        seen = self._all_seen()
        places = columns.values(seen, PLACE)[0]
        order = np.argsort(places, kind="stable")
        at = take(order, np.searchsorted(take(places, order), columns.values(closed.frame, PLACE)[0]))
        names = [each.name for each in self._node.earlier]
        beside = columns.take(columns.select(seen, names), at)
        stays = np.full_like(places, True, dtype=np.bool_)
        stays[at] = False
        kept = self._device.kernels.keep(stays)
        self._seen, self._count = [columns.take(seen, kept)], len(kept)
        return replace(closed, frame=columns.beside(closed.frame, beside))

    def _all_seen(self) -> Any:
        columns = self._device.columns
        if not self._seen:
            return columns.from_arrow(empty_table(self._seen_schema))
        return self._seen[0] if len(self._seen) == 1 else columns.concat(self._seen)

    @property
    def alive(self) -> int:
        """How many rows it keeps."""
        return self._count + int(self._device.columns.rows(self._recent))

    def tables(self) -> dict[str, pa.Table]:
        """The last rows, and what the rows that are in saw."""
        columns = self._device.columns
        return {
            "recent": columns.to_arrow(self._recent, self._recent_schema),
            "seen": columns.to_arrow(self._all_seen(), self._seen_schema),
        }

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield StateTable("recent", nullable_columns(self._recent_schema, ""))
        yield StateTable("seen", nullable_columns(self._seen_schema, ""), unique=(PLACE,))

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        if not tables:
            return
        self._recent = self._device.columns.from_arrow(tables["recent"])
        self._seen, self._count = [self._device.columns.from_arrow(tables["seen"])], tables["seen"].num_rows
