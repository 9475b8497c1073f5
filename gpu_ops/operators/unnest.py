"""Unnest: lists of structs as rows; and events that are there several times."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.devices import Device
from gpu_ops.operators.events import Events
from gpu_ops.operators.sizes import expanded
from gpu_ops.plan.unnest import Repeat, Unnest


@singledispatch
def several(node: Any, events: Events, device: Device) -> Events:
    """Several events of each."""
    raise TypeError(f"no rule for {node}")


@several.register
def repeat(node: Repeat, events: Events, device: Device) -> Events:
    """Each event as many times as a column says."""
    columns, take = device.columns, device.kernels.take
    times, valid = columns.values(events.frame, node.column)
    # An unsigned number past int64 would wrap: no one has so many events.
    counts = np.where(times > 0, times, 0).astype(np.int64)
    counts = counts if valid is None else np.where(valid, counts, 0)
    source, _ = expanded(counts, device, what="repeat", remedy="Repeat fewer times, or filter first.")
    end = events.end if isinstance(events.end, int) else take(events.end, source)
    frame = columns.take(columns.select(events.frame, node.schema.names), source)
    return Events(take(events.start, source), end, frame)


@several.register
def unnest(node: Unnest, events: Events, device: Device) -> Events:
    """An event for each struct of each event's list; none for an empty one."""
    columns, take = device.columns, device.kernels.take
    held = columns.to_arrow(columns.select(events.frame, [node.column]), _alone(node))
    lists = held.column(0).combine_chunks()
    counts = pc.list_value_length(lists).fill_null(0).cast(pa.int64()).to_numpy()
    source: Any = columns.array(np.repeat(np.arange(len(counts)), counts))
    rows = lists.flatten()
    frame = columns.from_arrow(pa.Table.from_arrays(rows.flatten(), schema=node.rows))
    kept = [name for name in node.input.schema.names if name != node.column]
    if kept:
        frame = columns.beside(columns.take(columns.select(events.frame, kept), source), frame)
    end = events.end if isinstance(events.end, int) else take(events.end, source)
    return Events(take(events.start, source), end, frame)


def _alone(node: Unnest) -> pa.Schema:
    return pa.schema([node.input.schema.field(node.column)])
