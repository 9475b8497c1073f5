"""Stitch: joins events that touch into one."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_ops.devices import Device
from gpu_ops.operators.events import Events
from gpu_ops.operators.row_order import row_order, run_starts
from gpu_ops.plan.lifetimes import Stitch


def stitch(node: Stitch, events: Events, device: Device) -> Events:
    """Events that are equal in the compared columns, joined if one ends at the start of another."""
    columns, take = device.columns, device.kernels.take
    codes, groups, payloads = columns.key_codes(events.frame, node.compared)
    order = device.kernels.group_order(codes, groups, events.start)
    carried = leading(node, codes, events.start, events.ends, events.frame, device)
    codes, start, end = (take(each, order) for each in (codes, events.start, events.ends))
    first, last = device.kernels.stitch_order(codes, start, end)
    # The same form (0.0, not -0.0) for equal payloads, whichever came first.
    frame = columns.take(payloads, take(codes, first).astype(np.int64))
    if carried is not None:
        frame = payload(node, frame, columns.take(carried, take(order, first)), device)
    return Events(take(start, first), take(end, last), frame)


def leading(node: Stitch, codes: Any, start: Any, end: Any, frame: Any, device: Device) -> Any | None:
    """For each event the columns that are not compared, of the first event with its start; None if there are none.

    Args:
        node: The node.
        codes: int32 groups of equal events.
        start: int64 ticks.
        end: int64 ticks.
        frame: The payload.
        device: Where arrays live.
    """
    if not node.carried:
        return None
    columns, take = device.columns, device.kernels.take
    carried = columns.select(frame, node.carried)
    order = row_order(codes, start, end, carried, node.schema, (), device, ties=True)
    if order is None:
        order = np.arange(len(start), like=start)
    fresh = run_starts(take(codes, order), take(start, order))
    lead = np.empty_like(order)
    lead[order] = order[device.kernels.keep(fresh)][np.cumsum(fresh) - 1]
    return columns.take(carried, lead)


def payload(node: Stitch, compared: Any, carried: Any, device: Device) -> Any:
    """The payload of compared columns and carried columns."""
    return device.columns.select(device.columns.beside(compared, carried), node.schema.names)
