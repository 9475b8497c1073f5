"""Plans over streams on turns, stepped by hand: which rows come where, cut anywhere, and gone on from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_tables import check
from gpu_ops.core.time import MAX_TIME, TICK
from gpu_ops.core.turns import ENTERED, LEFT, ORDER, ROW
from gpu_ops.devices import Device, choose
from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.runtime.steps import RunningNode, View, running
from gpu_ops.plan.nodes import Feed, Node

Row = dict[str, Any]

DELIVERED = pa.schema([(ROW, pa.int8()), (ORDER, pa.int64()), (ENTERED, pa.int64()), (LEFT, pa.int64())])
"""The columns of deliveries that have no payload."""


def feed(schema: pa.Schema) -> Feed:
    """A leaf of points."""
    return Feed(schema, (), TICK)


def delivered(
    node: Node, rows: Mapping[Feed, Sequence[Row]], cuts: Sequence[int] = (), device: str = "cpu"
) -> list[Row]:
    """What a node gives, in order of place, kind and number; each row has its place as `place`.

    Args:
        node: The node.
        rows: The rows of its leaves, each with its `place`, in order of it.
        cuts: The CTIs of its steps, ascending; after each one the query goes on from its checkpoint.
        device: Where it runs.
    """
    where = choose(device)
    plan, made, promised, low = running(node, where), list[Row](), -(1 << 62), -(1 << 62)
    for cti in (*cuts, MAX_TIME):
        leaves: dict[tuple[Node, View], tuple[StepInput, int]] = {}
        for leaf, whole in rows.items():
            here = [row for row in whole if low <= row["place"] < cti]
            leaves[leaf, "whole"] = (StepInput([events(leaf, here, where)] if here else []), cti)
        given, passed = plan.step(leaves)
        assert passed == cti
        new = [row for piece in given.events for row in told(piece, node.schema, where)]
        assert all(promised <= row["place"] < cti for row in new)
        made += new
        promised = low = cti
        plan = again(plan, node, where)
    return sorted(made, key=lambda row: (row["place"], row[ROW], row[ORDER]))


def again(plan: RunningNode, node: Node, device: Device) -> RunningNode:
    """The same plan from its state."""
    fresh = running(node, device)
    for before, after in zip(plan.walk(), fresh.walk(), strict=True):
        if before.own is not None and after.own is not None:
            tables = before.own.tables()
            check("The state", tables, after.own.declared)
            after.own.restore(tables)
            assert after.own.alive == before.own.alive
    return fresh


def told(made: Events, schema: pa.Schema, device: Device) -> list[Row]:
    """Events as rows."""
    table = device.columns.to_arrow(made.frame, schema)
    starts, ends = device.columns.host(made.start), device.columns.host(made.ends)
    assert (ends == starts + TICK).all()
    return [{"place": int(place), **row} for place, row in zip(starts, table.to_pylist(), strict=True)]


def events(leaf: Feed, rows: Sequence[Row], device: Device) -> Events:
    """Rows as events of a leaf."""
    start = device.columns.array(np.array([row["place"] for row in rows], np.int64))
    columns = {field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in leaf.schema}
    return Events(start, TICK, device.columns.from_arrow(pa.table(columns)))
