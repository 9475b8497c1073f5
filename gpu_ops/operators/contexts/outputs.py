"""Rows that are held back until so many have come in their instance, or until it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.core.turns import HELD, INSTANCE, MARK, NEW, OLD, ORDER
from gpu_ops.devices import Device
from gpu_ops.operators.contexts.held import RowsOfInstances
from gpu_ops.operators.contexts.within import OfInstancesOperator
from gpu_ops.operators.deliveries.rows import kinds_of, numbered, numbers_of, with_kind, with_order
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.row_order import run_ends, run_starts, stable_order
from gpu_ops.plan.contexts import EndOutput
from gpu_ops.plan.window_kinds import UNKNOWN


class EndOutputOperator(OfInstancesOperator, nodes=(EndOutput,)):
    """Rows until they are output.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: EndOutput

    def __init__(self, node: EndOutput, device: Device) -> None:
        super().__init__(node, device)
        self._held = RowsOfInstances("held", node.rows.schema, device)
        # The last row of each combination, as it was output: rows that were held before.
        self._shown = RowsOfInstances("shown", node.rows.schema, device)

    def _made(self, rows: Events | None, moved: Events | None, cti: int) -> list[Events | None]:
        kernels, alive, device = self._device.kernels, self._alive, self._device
        made: list[Events | None] = []
        rows = rows if rows is None else self._held.numbered(rows)
        if rows is not None:
            kinds = kinds_of(rows.frame, device)
            content = rows.take(kernels.keep(kinds == HELD), device)
            at, there, _ = self._found(content)
            made.append(self._carried(content, at, there, kernels.keep(there)))
            fresh = rows.take(kernels.keep(kinds <= OLD), device)
            self._held.add(fresh)
            if self._node.every and len(fresh):
                made += self._reached()
        ended = kernels.keep(alive.end < UNKNOWN)
        if not len(ended):
            return made
        gone = self._held.taken(kernels.take(alive.ids, ended))
        known = self._shown.taken(kernels.take(alive.ids, ended))
        gone = gone if known is None else concat([known] if gone is None else [known, gone], device)
        gone = self._with_current(gone, rows)
        if not self._node.at_ends:
            return made
        enough: Any = np.full_like(alive.ids, not self._node.least, dtype=np.bool_)
        if gone is not None:
            at, _, _ = self._found(gone)
            if self._node.least:
                new = kernels.take(at, kernels.keep(kinds_of(gone.frame, device) == NEW))
                enough = np.bincount(new, minlength=len(enough)) >= self._node.least
            some = kernels.keep(kernels.take(enough, at))
            gone, place = gone.take(some, device), kernels.take(alive.end, kernels.take(at, some))
            made.append(self._selected(gone, place) if len(gone) else None)
        return [*made, self._empty_at_ends(enough)]

    def _with_current(self, gone: Events | None, rows: Events | None) -> Events | None:
        """Rows that are output where instances end, and the marks of instances that have none, as rows of each kind."""
        kernels, device = self._device.kernels, self._device
        marks = kernels.keep(kinds_of(rows.frame, device) == MARK) if rows is not None else []
        if rows is None or not len(marks):
            return gone
        current = rows.take(marks, device)
        if gone is not None:
            has = np.bincount(self._found(gone)[0], minlength=len(self._alive.ids)) > 0
            current = current.take(kernels.keep(~kernels.take(has, self._found(current)[0])), device)
        pieces = [
            Events(current.start, current.end, with_kind(current.frame, kind, device)) for kind in self._node.shows
        ]
        return concat([*([] if gone is None else [gone]), *pieces], device)

    def _reached(self) -> list[Events]:
        """The rows that are output as so many have come in their instances, at the places of the last of them.

        Deliveries of an instance follow one another: from each the next output is the first delivery with which there
        are as many more new rows, or as many more old ones.
        """
        device, node, whole = self._device, self._node, self._held.whole()
        if whole is None:
            return []
        kernels, columns = device.kernels, device.columns
        ids, kind = columns.values(whole.frame, INSTANCE)[0], kinds_of(whole.frame, device)
        order = stable_order([ids, whole.start, kind], whole.start, device)
        whole = whole.take(order, device)
        ids, kind = kernels.take(ids, order), kernels.take(kind, order)
        starts = run_starts(ids, whole.start)
        begins, delivery = kernels.keep(starts), np.cumsum(starts) - 1
        count = len(begins)
        last = np.concatenate([begins[1:], np.full_like(begins, len(ids), shape=(1,))]) - 1
        first = run_starts(kernels.take(ids, begins))
        code = (np.cumsum(first) - 1).astype(np.int32)
        roots = kernels.keep(first)
        none = np.zeros_like(roots)
        following, found = np.full_like(begins, count), np.full_like(roots, count)
        for which in (NEW,) if node.inserts else (NEW, OLD):
            mine = kind == which
            total = kernels.take(np.cumsum(mine), last)
            before = kernels.take(np.cumsum(mine) - mine, kernels.take(begins, roots))
            total = total - kernels.take(before, code)
            following = np.minimum(following, self._next(code, total, code, total))
            found = np.minimum(found, self._next(code, total, kernels.take(code, roots), none))
        fires = kernels.keep(kernels.reached(following, kernels.take(found, kernels.keep(found < count))))
        if not len(fires):
            return []
        at = np.minimum(np.searchsorted(fires, delivery), len(fires) - 1)
        by = kernels.take(fires, at)
        out = (by >= delivery) & (kernels.take(code, by) == kernels.take(code, delivery))
        self._held.replace(whole.take(kernels.keep(~out), device))
        if node.every_group:
            first = kernels.take(begins, fires)
            at, of = kernels.take(whole.start, first), kernels.take(self._found(whole)[0], first)
            return [self._of_all(whole, at, of)]
        some = kernels.keep(out)
        place = kernels.take(whole.start, kernels.take(begins, kernels.take(by, some)))
        made = [self._selected(whole.take(some, device), place)]
        if not node.inserts:
            return made
        # Where a condition holds there is a delivery, be it without rows.
        places = np.sort(kernels.take(whole.start, kernels.take(begins, fires)))
        return [*made, self._empty(places[run_starts(places)])]

    def _of_all(self, fresh: Events | None, at: Any, of: Any) -> Events:
        """The last row of each combination that was there by then, at each output.

        Args:
            fresh: The rows that have come since those that are shown.
            at: int64 place of each output.
            of: int64 index of its instance.
        """
        device, node, known = self._device, self._node, self._shown.whole()
        kernels, columns = device.kernels, device.columns
        before = 0 if known is None else len(known)
        rows = concat([each for each in (known, fresh) if each is not None], device)
        assert rows is not None  # noqa: S101  (some have come)
        code = self._found(rows)[0].astype(np.int32)
        new = kernels.keep(kinds_of(rows.frame, device) == NEW)
        rows, code = rows.take(new, device), kernels.take(code, new)
        order = stable_order([of, at], at, device)
        at, of = kernels.take(at, order), kernels.take(of, order).astype(np.int32)
        # A row is the last one of its combination until the next one comes.
        group = columns.key_codes(rows.frame, list(dict.fromkeys((INSTANCE, *node.by))))[0]
        order = stable_order([group, rows.start], rows.start, device)
        starts, groups = kernels.take(rows.start, order), kernels.take(group, order)
        until = np.full_like(starts, MAX_TIME)
        same = groups[1:] == groups[:-1]
        until[:-1] = np.where(same, starts[1:], until[:-1])
        rows, code = rows.take(order, device), kernels.take(code, order)
        low, high, end = (
            kernels.search_pairs(of, at, code, each - 1) for each in (starts, until, np.full_like(starts, MAX_TIME))
        )
        begin = kernels.search_pairs(of, at, code, np.full_like(starts, MIN_TIME))
        last = kernels.take(at, np.maximum(end - 1, 0))
        stays = np.where(end > begin, (starts <= last) & (last < until), order < before)
        self._shown.replace(rows.take(kernels.keep(stays), device))
        source, offset = kernels.expand(high - low)
        return self._selected(rows.take(source, device), kernels.take(at, kernels.take(low, source) + offset))

    def _next(self, code: Any, total: Any, codes: Any, totals: Any) -> Any:
        """int64: the first delivery of each instance with enough more rows than it had; their number for none."""
        kernels, count = self._device.kernels, len(code)
        found = kernels.search_pairs(code, total, codes, totals + (self._node.every - 1))
        same = kernels.take(code, np.minimum(found, count - 1)) == codes
        return np.where((found < count) & same, found, count)

    def _selected(self, rows: Events, place: Any) -> Events:
        """What is output of some rows, at places."""
        device, node = self._device, self._node
        kernels, columns = device.kernels, device.columns
        kind, (at, _, _) = kinds_of(rows.frame, device), self._found(rows)
        number = numbers_of(rows.frame, ORDER, device)
        order = stable_order([place, kind, at, rows.start, number], place, device)
        rows, place = rows.take(order, device), kernels.take(place, order)
        kind, at = kernels.take(kind, order), kernels.take(at, order)
        keep = np.zeros_like(kind, dtype=np.bool_)
        if not node.last:
            keep = ~keep
        else:
            codes = columns.key_codes(rows.frame, list(node.by))[0] if node.by else np.zeros_like(kind)
            by = stable_order([place, at, kind, codes], place, device)
            keys = [kernels.take(each, by) for each in (place, at, kind, codes)]
            first = (kernels.take(kind, by) == OLD) & node.first_old
            keep[by] = np.where(first, run_starts(*keys), run_ends(*keys))
        keep = kernels.keep(keep & np.isin(kind, columns.array(np.array(list(node.shows)))))
        found = self._carried(rows, at, np.ones_like(at, dtype=np.bool_), keep)
        place, kind = kernels.take(place, keep), kernels.take(kind, keep)
        return Events(place, TICK, with_order(found.frame, numbered(place, kind, device=device), device))

    @property
    def parts(self) -> list[Any]:
        """What it keeps."""
        return [*super().parts, self._held, self._shown]

    @property
    def in_runs(self) -> Sequence[Any]:
        """The instances and the rows."""
        return [*super().in_runs, self._held, self._shown]

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        super().restore(tables)
        self._held.count_from(self._shown)

    @property
    def alive(self) -> int:
        """How many rows and instances it keeps."""
        return super().alive + len(self._held) + len(self._shown)
