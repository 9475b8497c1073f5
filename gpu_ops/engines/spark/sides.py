"""Two inputs through one mapInArrow: the events of both as rows of one DataFrame, each marked with its side.

Columns of both sides whose lowered type is the same share a *slot*, so that a row is hardly wider than the wider side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import compute
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.core.arrow_buffers import integers, to_arrow
from gpu_ops.core.time import TIME_TYPE
from gpu_ops.engines.spark.type_codecs import encoded_columns, encoded_fields, encoded_schema
from gpu_ops.engines.spark.types import column, spark_type, to_ticks

MARK = "right"
"""The column that says whether a row is an event of the right side."""

MARKED_END = "end_right"
"""The column that says both when a row ends and its side."""

Places = dict[str, str]
"""For each lowered column of a side the slot that it is in."""


@dataclass(frozen=True)
class Slots:
    """The columns of both sides' rows.

    Attributes:
        schema: The slots.
        places: Where the left side's columns are, and the right one's.
    """

    schema: pa.Schema
    places: tuple[Places, Places]


def shared_slots(payloads: Sequence[pa.Schema], keys: Sequence[tuple[str, ...]]) -> Slots:
    """Slots for the payloads of two sides; keys that are equal where events match share theirs.

    Args:
        payloads: What passes of the left and of the right.
        keys: Their key columns, in the same order and of the same types.

    Examples:
        >>> left = pa.schema([("v", pa.int64()), ("k", pa.string())])
        >>> right = pa.schema([("at", pa.int64()), ("key", pa.string()), ("w", pa.int64())])
        >>> slots = shared_slots([left, right], [("k",), ("key",)])
        >>> slots.schema.names, slots.places[1]
        (['0_k', '1_v', '2_w'], {'1_key': '0_k', '0_at': '1_v', '2_w': '2_w'})
    """
    fields: list[pa.Field] = []
    places: tuple[Places, Places] = ({}, {})

    def add(lowered: pa.Field) -> str:
        fields.append(lowered.with_name(f"{len(fields)}_{re.sub(r'^[0-9]+_', '', lowered.name)}"))
        return str(fields[-1].name)

    carried = [encoded_fields(payload) for payload in payloads]
    for names in zip(*keys, strict=True):
        for pair in zip(*(each[name] for each, name in zip(carried, names, strict=True)), strict=True):
            slot = add(pair[0])
            for place, lowered in zip(places, pair, strict=True):
                place[lowered.name] = slot
    for place, payload in zip(places, payloads, strict=True):
        for lowered in encoded_schema(payload):
            if lowered.name not in place:
                taken = set(place.values())
                free = (field.name for field in fields if field.name not in taken and field.type == lowered.type)
                place[lowered.name] = next(free, None) or add(lowered)
    return Slots(pa.schema(fields), places)


def united(frames: Sequence[DataFrame], payloads: Sequence[pa.Schema], ends: Sequence[bool], slots: Slots) -> DataFrame:
    """The events of both sides in one DataFrame: ``start``, ``end`` unless no side needs it, the mark, the slots.

    Args:
        frames: The events of the left and of the right.
        payloads: What passes of them.
        ends: Whether a side's ends are asked for: not where all its lifetimes last as long.
        slots: Where.
    """
    sides = []
    for at, (frame, payload) in enumerate(zip(frames, payloads, strict=True)):
        names = encoded_schema(payload).names
        lowered = {slots.places[at][name]: part for name, part in zip(names, encoded_columns(payload), strict=True)}
        end = column("end") if ends[at] else F.lit(None).cast("timestamp").alias("end")
        missing = {field.name: F.lit(None).cast(spark_type(field.type)) for field in slots.schema}
        sides.append(
            frame.select(
                column("start"),
                *([end] if any(ends) else []),
                F.lit(at == 1).alias(MARK),
                *(lowered.get(name, nothing).alias(name) for name, nothing in missing.items()),
            )
        )
    return sides[0].union(sides[1])


def packed(rows: DataFrame) -> DataFrame:
    """`united` rows with one column less where they have ends: LONG, twice the end's ticks, and one more on the right.

    Spark passes rows to Python field by field, and each costs it 70 to 100 ns.
    """
    if "end" not in rows.columns:
        return rows
    ticks = F.coalesce(to_ticks(F.col("end")), F.lit(0).cast("long"))
    marked = F.shiftleft(ticks, 1).bitwiseOR(F.col(MARK).cast("long"))
    rest = [column(name) for name in rows.columns if name not in {"start", "end", MARK}]
    return rows.select("start", marked.alias(MARKED_END), *rest)


def _unpacked(batch: pa.RecordBatch) -> pa.RecordBatch:
    ticks = integers(batch.column(MARKED_END))
    arrays = [to_arrow(ticks >> 1, TIME_TYPE), to_arrow((ticks & 1).astype(np.bool_), pa.bool_())]
    rest = [name for name in batch.schema.names if name != MARKED_END]
    return pa.RecordBatch.from_arrays([*arrays, *(batch.column(name) for name in rest)], names=["end", MARK, *rest])


def split(
    batches: Iterable[pa.RecordBatch], payloads: Sequence[pa.Schema], ends: Sequence[bool], slots: Slots
) -> list[list[pa.RecordBatch]]:
    """In the worker: each side's batches, of ``start``, ``end`` where it is asked for, and its lowered columns."""
    sides: list[list[pa.RecordBatch]] = [[], []]
    for passed in batches:
        batch = _unpacked(passed) if MARKED_END in passed.schema.names else passed
        of_right = batch.column(MARK)
        for at, of_side in enumerate((compute.invert(of_right), of_right)):
            names = encoded_schema(payloads[at]).names
            times = ["start", "end"] if ends[at] else ["start"]
            rows = batch.select([*times, *(slots.places[at][name] for name in names)]).filter(of_side)
            if rows.num_rows:
                sides[at].append(rows.rename_columns([*times, *names]))
    return sides
