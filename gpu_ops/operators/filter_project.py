"""Filter and projection: Narwhals over the device's frame."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.operators.checked import checked, extents
from gpu_ops.operators.events import Events
from gpu_ops.plan.integers import Known, Ranges
from gpu_ops.plan.nodes import Expressions
from gpu_ops.plan.terms import Range


def wanted_below(nodes: Sequence[Expressions], wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that a chain needs of its input to give the wanted ones."""
    for node in reversed(nodes):
        (wanted,) = node.needs(wanted)
    return wanted


def run(nodes: Sequence[Expressions], events: Events, device: Device) -> Events:
    """The events after a chain of filters and projections, evaluated as one.

    Raises:
        IntegerOverflowError: A whole number of an expression does not fit its type.
    """
    if len(nodes) == 1 and nodes[0].picked is not None:
        return Events(events.start, events.end, device.columns.select(events.frame, nodes[0].picked))
    return _evaluated(*_ready(nodes, events, device), device)


def answer(nodes: Sequence[Expressions], events: Events, schema: pa.Schema, device: Device) -> pa.Table:
    """What a chain of filters and projections gives, as a table of ``start``, ``end`` and the payload."""
    events, steps = _ready(nodes, events, device)
    table: pa.Table = device.columns.answer(events.start, events.end, events.frame, steps, schema)
    return table


def _evaluated(events: Events, steps: Sequence[Any], device: Device) -> Events:
    return Events(*device.columns.evaluate(events.start, events.end, events.frame, steps))


def _ready(nodes: Sequence[Expressions], events: Events, device: Device) -> tuple[Events, list[Any]]:
    """Events and the steps that are still to be evaluated over them.

    The chain is evaluated so far, and no further, where ranges do not tell that all numbers fit behind it: of the rows
    that are left there each is looked at.
    """
    steps: list[Any] = []
    known = extents(events, device)
    for node in nodes:
        expressions: Sequence[nw.Expr] = node.exact
        if node.guards:
            if steps and any(each.may_not_fit(known) for each in node.guards.values()):
                events, steps = _evaluated(events, steps, device), []
                known = extents(events, device)
            expressions = checked(node.guards, expressions, events, device, known)
        steps.append(partial(node.evaluated, expressions=expressions))
        if node.values:
            known = _behind(node, known)
    return events, steps


def _behind(node: Expressions, before: Known) -> Known:
    """The ranges of columns behind a projection, by those before it."""
    ranges = Ranges(before)

    def known(name: str) -> Range | None:
        value = node.values.get(name)
        return before(name) if value is None else ranges.of(value)

    return known
