"""Filter and projection: Narwhals over the device's frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.operators.events import Events
from gpu_ops.plan.expressions import column_names
from gpu_ops.plan.nodes import Filter, Project


def wanted_below(nodes: Sequence[Filter | Project], wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that a chain needs of its input to give the wanted ones."""
    for node in reversed(nodes):
        known = node.input.schema.names
        expressions = (node.condition,) if isinstance(node, Filter) else node.expressions
        read = {name for expression in expressions for name in column_names(expression, known)}
        if isinstance(node, Filter) or node.keep:
            read.update(wanted)
        wanted = tuple(name for name in known if name in read)
    return wanted


def run(nodes: Sequence[Filter | Project], events: Events, device: Device) -> Events:
    """The events after a chain of filters and projections, evaluated as one."""
    if len(nodes) == 1 and isinstance(nodes[0], Project) and nodes[0].picked is not None:
        return Events(events.start, events.end, device.columns.select(events.frame, nodes[0].picked))
    steps = [_step(node) for node in nodes]
    return Events(*device.columns.evaluate(events.start, events.end, events.frame, steps))


def answer(nodes: Sequence[Filter | Project], events: Events, schema: pa.Schema, device: Device) -> pa.Table:
    """What a chain of filters and projections gives, as a table of ``start``, ``end`` and the payload."""
    steps = [_step(node) for node in nodes]
    table: pa.Table = device.columns.answer(events.start, events.end, events.frame, steps, schema)
    return table


def _step(node: Filter | Project) -> Any:
    if isinstance(node, Filter):
        return lambda frame: frame.filter(node.exact)
    if node.keep:
        return lambda frame: frame.with_columns(*node.exact)
    lifetime = (nw.col("start"), nw.col("end"))
    return lambda frame: frame.select(*lifetime, *node.exact)
