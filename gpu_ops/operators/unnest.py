"""Unnest: lists of structs become rows; an element of a list; repeat: an event becomes several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.devices import Device
from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import BatchInput, EachPiece
from gpu_ops.operators.sizes import expanded
from gpu_ops.plan.unnest import ElementOf, Repeat, Unnest


class Several(EachPiece, family=True):
    """Several events for each event. A batch leaves out columns that nobody reads; a step gives all."""

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """Piece by piece, with the wanted columns."""
        for events in whole.inputs[0]:
            made, names = self.each(events), whole.wanted
            yield Events(made.start, made.end, self._device.columns.select(made.frame, names)) if names else made


class Repeated(Several, nodes=(Repeat,)):
    """Each event, repeated by the number in a column."""

    def each(self, events: Events) -> Events:
        """The events that each event becomes."""
        columns = self._device.columns
        times, valid = columns.values(events.frame, self._node.column)
        # An unsigned number past int64 wraps; that many events would not fit into memory anyway.
        counts = np.where(times > 0, times, 0).astype(np.int64)
        counts = counts if valid is None else np.where(valid, counts, 0)
        source, _ = expanded(counts, self._device, what="repeat", remedy="Repeat fewer times, or filter first.")
        frame = columns.take(columns.select(events.frame, self._node.schema.names), source)
        return events.repeated(source, frame, self._device)


class Unnested(Several, nodes=(Unnest,)):
    """An event for each struct of each event's list; none for an empty one."""

    def each(self, events: Events) -> Events:
        """The events that each event becomes."""
        node, columns = self._node, self._device.columns
        lists, counts = _lists(events, node.input.schema.field(node.column), self._device)
        source = columns.array(np.repeat(np.arange(len(counts)), counts))
        rows = lists.flatten()
        frame = columns.from_arrow(pa.Table.from_arrays(rows.flatten(), schema=node.rows))
        kept = [name for name in node.input.schema.names if name != node.column]
        if kept:
            frame = columns.beside(columns.take(columns.select(events.frame, kept), source), frame)
        return events.repeated(source, frame, self._device)


class Elements(EachPiece, nodes=(ElementOf,)):
    """Each event with an element of its list."""

    def each(self, events: Events) -> Events:
        """The same events with one more column."""
        node, columns = self._node, self._device.columns
        lists, counts = _lists(events, node.input.schema.field(node.column), self._device)
        values, valid = columns.values(events.frame, node.place)
        places = columns.host(values)
        there = (places >= 0) & (places < counts)
        if valid is not None:
            there &= columns.host(valid)
        at = np.cumsum(counts) - counts + np.where(there, places, 0)
        found = lists.flatten().take(pa.array(at, mask=~there))
        one = columns.from_arrow(pa.table({node.name: found}))
        return Events(events.start, events.end, columns.beside(events.frame, one))


def _lists(events: Events, field: pa.Field, device: Device) -> tuple[pa.Array, Any]:
    """(the lists of a column, how long each is)."""
    columns = device.columns
    table = columns.to_arrow(columns.select(events.frame, [field.name]), pa.schema([field]))
    lists = table.column(0).combine_chunks()
    return lists, pc.list_value_length(lists).fill_null(0).cast(pa.int64()).to_numpy()
