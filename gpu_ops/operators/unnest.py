"""Unnest: lists of structs become rows; repeat: an event becomes several."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import BatchInput, EachPiece
from gpu_ops.operators.sizes import expanded
from gpu_ops.plan.unnest import Repeat, Unnest


class Several(EachPiece, family=True):
    """Several events of each. A batch leaves out the columns that are not asked for; what keeps events has them all."""

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """Piece by piece, with the wanted columns."""
        for events in whole.inputs[0]:
            made, names = self.each(events), whole.wanted
            yield Events(made.start, made.end, self._device.columns.select(made.frame, names)) if names else made


class Repeated(Several, nodes=(Repeat,)):
    """Each event as many times as a column says."""

    def each(self, events: Events) -> Events:
        """All of each event's."""
        columns, take = self._device.columns, self._device.kernels.take
        times, valid = columns.values(events.frame, self._node.column)
        # An unsigned number past int64 would wrap: nobody has as many events.
        counts = np.where(times > 0, times, 0).astype(np.int64)
        counts = counts if valid is None else np.where(valid, counts, 0)
        source, _ = expanded(counts, self._device, what="repeat", remedy="Repeat fewer times, or filter first.")
        end = events.end if isinstance(events.end, int) else take(events.end, source)
        frame = columns.take(columns.select(events.frame, self._node.schema.names), source)
        return Events(take(events.start, source), end, frame)


class Unnested(Several, nodes=(Unnest,)):
    """An event for each struct of each event's list; none for an empty one."""

    def each(self, events: Events) -> Events:
        """All of each event's."""
        node, columns, take = self._node, self._device.columns, self._device.kernels.take
        alone = pa.schema([node.input.schema.field(node.column)])
        lists = columns.to_arrow(columns.select(events.frame, [node.column]), alone).column(0).combine_chunks()
        counts = pc.list_value_length(lists).fill_null(0).cast(pa.int64()).to_numpy()
        source = columns.array(np.repeat(np.arange(len(counts)), counts))
        rows = lists.flatten()
        frame = columns.from_arrow(pa.Table.from_arrays(rows.flatten(), schema=node.rows))
        kept = [name for name in node.input.schema.names if name != node.column]
        if kept:
            frame = columns.beside(columns.take(columns.select(events.frame, kept), source), frame)
        end = events.end if isinstance(events.end, int) else take(events.end, source)
        return Events(take(events.start, source), end, frame)
