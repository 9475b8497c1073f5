"""The shapes of an answer, after StreamInsight: intervals, points, and edges."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.time import MAX_TIME, TICK
from gpu_ops.errors import ColumnError, PlanError, TimeError, is_one_of, shown
from gpu_ops.ingest.rows import keep_rows, take_rows

Shape = Literal["interval", "point", "edge", "coalesced"]
SHAPES: tuple[Shape, ...] = ("interval", "point", "edge", "coalesced")
EDGE = "edge"


def shape_schema(schema: pa.Schema, shape: Shape) -> pa.Schema:
    """The columns of an answer in a shape.

    Raises:
        PlanError: There is no such shape.
        ColumnError: The answer has a column ``edge`` already.
    """
    if not is_one_of(shape, SHAPES):
        raise PlanError(f"There is no shape {shown(shape)}.", remedy=f"It is one of {', '.join(SHAPES)}.")
    if shape == "interval":
        return schema
    if shape == "point":
        return pa.schema([field for field in schema if field.name != "end"])
    if EDGE in schema.names:
        raise ColumnError("The answer gets a column of this name.", column=EDGE, remedy="Select it under another name.")
    return pa.schema([pa.field(EDGE, pa.string(), nullable=False), *schema])


def in_shape(table: pa.Table, shape: Shape) -> pa.Table:
    """Intervals in another shape.

    Args:
        table: ``start``, ``end`` and a payload.
        shape: ``"point"`` leaves ``end`` out, which is a tick after the start; ``"edge"`` gives a start edge for each
            event, and an end edge, with the original start and the end, for each that ends; ``"coalesced"`` joins the
            two to one row where both are there. The column ``edge`` says what a row is: ``"start"``, ``"end"``, or
            ``"interval"``; the ``end`` of a start edge is null.

    Raises:
        TimeError: An event is not a point event.

    Examples:
        >>> ticks = pa.array([0, 5], pa.int64()).cast(pa.timestamp("us", "UTC"))
        >>> table = pa.table({"start": ticks.slice(0, 1), "end": ticks.slice(1, 1), "v": [7]})
        >>> in_shape(table, "edge").select(["edge", "v"]).to_pylist()
        [{'edge': 'start', 'v': 7}, {'edge': 'end', 'v': 7}]
    """
    schema = shape_schema(table.schema, shape)
    if shape == "interval":
        return table
    start, end = (table[name].cast(pa.int64()) for name in ("start", "end"))
    if shape == "point":
        longer = pc.not_equal(pc.subtract(end, start), TICK)
        if pc.any(longer).as_py():
            row = pc.index(longer, True).as_py()
            raise TimeError(
                "Not a point event: its lifetime is longer than one tick.",
                row=row,
                values=f"start={table['start'][row]}, end={table['end'][row]}",
                remedy="Make it one: .to_point() or .point_at_end(), or windows with output='point'.",
            )
        return table.drop_columns(["end"])
    ends = pc.less(end, MAX_TIME)
    unknown = pa.nulls(table.num_rows, table.schema.field("end").type)
    if shape == "coalesced":
        made = table.set_column(1, "end", pc.if_else(ends, table["end"], unknown))
        return made.add_column(0, EDGE, pc.if_else(ends, "interval", "start")).cast(schema)
    starts = table.set_column(1, "end", unknown).add_column(0, EDGE, pa.repeat("start", table.num_rows))
    over = keep_rows(table, ends)
    over = over.add_column(0, EDGE, pa.repeat("end", over.num_rows))
    both = pa.concat_tables([starts.cast(schema), over.cast(schema)])
    at = pc.if_else(pc.equal(both[EDGE], "end"), both["end"], both["start"])
    # Edges in the order of their times; where they are equal, ends before starts.
    order = pc.sort_indices(pa.table({"at": at, "edge": both[EDGE]}), [("at", "ascending"), ("edge", "ascending")])
    return take_rows(both, order)
