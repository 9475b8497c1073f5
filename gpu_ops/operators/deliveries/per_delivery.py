"""The rows of each delivery in order, without equal ones, and only some of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.time import TICK
from gpu_ops.core.turns import EMPTY, HELD, ORDER
from gpu_ops.operators.deliveries.rows import kinds_of, numbered, numbers_of, of_kind, with_kind, with_order
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.operator import BatchInput, Stateless, StepInput
from gpu_ops.operators.row_order import in_order, order_in_places, ranks_of, run_starts, stable_order, sums_by
from gpu_ops.plan.per_delivery import PerDelivery


class PerDeliveryOperator(Stateless, nodes=(PerDelivery,)):
    """One sort of all rows of a step: a delivery is never cut over two steps."""

    _node: PerDelivery

    def needs(self, wanted: tuple[str, ...]) -> Sequence[tuple[str, ...]]:
        """The columns that it compares beside the wanted ones."""
        return self._node.needs(wanted)

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """All deliveries at once."""
        yield from self._arranged(concat(whole.inputs[0], self._device))

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The deliveries of the step; the CTI does not change."""
        return StepInput(self._arranged(concat(given[0].events, self._device))), ctis[0]

    def _arranged(self, events: Events | None) -> list[Events]:
        if events is None or not len(events):
            return []
        kernels = self._device.kernels
        kinds = kinds_of(events.frame, self._device)
        is_row = kinds <= HELD
        if bool(is_row.all()):
            return [each for each in [self._rows(events, kinds)] if len(each)]
        others = events.take(kernels.keep(~is_row), self._device)
        rows = kernels.keep(is_row)
        made = self._rows(events.take(rows, self._device), kernels.take(kinds, rows)) if len(rows) else None
        return [each for each in (made, others) if each is not None and len(each)]

    def _rows(self, events: Events, kinds: Any) -> Events:
        """The rows of deliveries, arranged."""
        kernels, node = self._device.kernels, self._node
        one_kind = bool((kinds == kinds[0]).all())
        keys = [] if one_kind else [kinds]
        for key in node.keys:
            valid = self._device.columns.validity(events.frame, key.column)
            if valid is not None and not bool(valid.any()):
                continue  # as those of new rows of a window that has an order
            ranks, _ = ranks_of(events.frame, key.column, node.schema.field(key.column).type, self._device)
            keys.append(~ranks if key.descending else ranks)
        keys.append(numbers_of(events.frame, ORDER, self._device))
        plain = node.distinct is None and node.limit is None and not node.offset
        is_in_order = in_order([events.start, *keys])
        if is_in_order and plain:
            number = numbered(events.start, *([] if one_kind else [kinds]), device=self._device)
            return Events(events.start, TICK, with_order(events.frame, number, self._device))
        order = (
            np.arange(len(events), like=events.start)
            if is_in_order
            else order_in_places(events.start, keys, self._device)
        )
        place, kind = kernels.take(events.start, order), kernels.take(kinds, order)
        empty = None
        if node.limit is not None or node.offset:
            upto = len(order) if node.limit is None else node.offset + node.limit
            number = numbered(place, kind, *self._within(events.frame, order), device=self._device)
            is_left = (number >= node.offset) & (number < upto)
            empty = self._emptied(events, order, place, is_left, kind) if node.leaves_empty else None
            some = kernels.keep(is_left)
            order, place, kind = (kernels.take(each, some) for each in (order, place, kind))
        if node.distinct is not None and len(order):
            some = kernels.keep(self._is_first(events.frame, order, place, kind))
            order, place, kind = (kernels.take(each, some) for each in (order, place, kind))
        number = numbered(place, kind, device=self._device)
        made = Events(place, TICK, self._taken(events.frame, order, number, kind))
        return made if empty is None else concat([made, empty], self._device) or made

    def _emptied(self, events: Events, order: Any, place: Any, is_left: Any, kind: Any) -> Events | None:
        """An empty delivery for each of which no row is left.

        Args:
            events: The rows.
            order: Their order.
            place: The place of each in that order.
            is_left: Which of these are left.
            kind: The kind of each; rows of the content are no delivery.
        """
        kernels = self._device.kernels
        some = kernels.keep(kind != HELD)
        order, place, is_left = (kernels.take(each, some) for each in (order, place, is_left))
        if not len(some):
            return None
        parts = [place, *self._within(events.frame, order)]
        if len(parts) > 1:  # rows of one instance do not lie together where there are new and old ones
            by = stable_order(parts, place, self._device)
            order, is_left, *parts = (kernels.take(each, by) for each in (order, is_left, *parts))
        begins = run_starts(*parts)
        left = sums_by(np.cumsum(begins) - 1, is_left.astype(np.int64), int(begins.sum()), self._device)
        rows = kernels.take(kernels.keep(begins), kernels.keep(left == 0))
        if not len(rows):
            return None
        order = kernels.take(order, rows)
        frame = with_kind(self._device.columns.take(events.frame, order), EMPTY, self._device)
        return Events(kernels.take(parts[0], rows), TICK, with_order(frame, np.zeros_like(order), self._device))

    def _within(self, frame: Any, order: Any) -> list[Any]:
        """For each of the ordered rows a number for that of which there is a limit; nothing if deliveries have it."""
        if not self._node.within:
            return []
        codes, _, _ = self._device.columns.key_codes(frame, self._node.within)
        return [self._device.kernels.take(codes, order)]

    def _taken(self, frame: Any, order: Any, number: Any, kind: Any) -> Any:
        """Some rows of a frame, with other numbers; a word that is the same for all is not taken row by row."""
        columns, names = self._device.columns, self._node.schema.names
        made = [columns.build({ORDER: (number, None, pa.int64())})]
        if len(kind) and bool((kind == kind[0]).all()):
            made.append(of_kind(int(kind[0]), len(kind), self._device))
        rest = [name for name in names if all(name not in each.columns for each in made)]
        made += [columns.take(columns.select(frame, rest), order)] if rest else []
        return columns.select(columns.beside(*made), names)

    def _is_first(self, frame: Any, order: Any, place: Any, kind: Any) -> Any:
        """bool: which of the ordered rows are the first of their delivery with their values."""
        kernels = self._device.kernels
        codes, count, _ = self._device.columns.key_codes(frame, self._node.distinct or ())
        codes = kernels.take(codes, order)
        delivery = np.cumsum(run_starts(place, kind))
        by_value = kernels.group_order(codes, count, delivery)
        is_first = np.zeros_like(codes, dtype=np.bool_)
        is_first[by_value] = run_starts(kernels.take(codes, by_value), kernels.take(delivery, by_value))
        return is_first
