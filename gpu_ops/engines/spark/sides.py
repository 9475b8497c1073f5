"""Two inputs through one mapInArrow: the events of both are rows of one DataFrame, each marked with its side.

Encoded columns of the two sides share a *slot* if they have the same type, so that a row is hardly wider than the
wider side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyarrow import compute
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.core.arrow_buffers import integers, to_arrow
from gpu_ops.core.time import TIME_TYPE
from gpu_ops.engines.spark.type_codecs import encoded_columns, encoded_names, encoded_schema
from gpu_ops.engines.spark.types import column, filled, to_ticks
from gpu_ops.plan.nodes import Node

MARK = "right"
"""The column that says whether a row is an event of the right side."""

MARKED_END = "end_right"
"""The column that holds both a row's end and its side."""

Places = dict[str, str]
"""For each encoded column of a side its slot."""


def low_and_high() -> list[Column]:
    """The columns ``low`` and ``high`` (LONG) of events: when they start and end, in ticks."""
    return [to_ticks(F.col(name)).alias(of) for name, of in (("start", "low"), ("end", "high"))]


@dataclass(frozen=True)
class FragmentInput:
    """What Spark computes before a fragment: its one input, or one side of two.

    Attributes:
        node: Its node.
        frame: Its events.
        schema: The part of their payload that workers need.
    """

    node: Node
    frame: DataFrame
    schema: pa.Schema

    @property
    def ticks(self) -> DataFrame:
        """Its lifetimes as ``low`` and ``high`` (LONG), and its encoded payload."""
        return self.frame.select(*low_and_high(), *encoded_columns(self.schema))

    def only(self, names: Sequence[str]) -> FragmentInput:
        """The same events with some of the columns."""
        return replace(self, schema=pa.schema([self.schema.field(name) for name in names]))


@dataclass(frozen=True)
class Slots:
    """The columns of all sides' rows.

    Attributes:
        schema: The slots.
        places: For each side the slots of its columns.
    """

    schema: pa.Schema
    places: tuple[Places, ...]


def shared_slots(payloads: Sequence[pa.Schema], keys: Sequence[tuple[str, ...]]) -> Slots:
    """Slots for the payloads of several sides; keys that are equal where events match share theirs.

    Args:
        payloads: The payload of each side.
        keys: Their key columns, in the same order and of the same types; none for a side that has no key.

    Examples:
        >>> left = pa.schema([("v", pa.int64()), ("k", pa.string())])
        >>> right = pa.schema([("at", pa.int64()), ("key", pa.string()), ("w", pa.int64())])
        >>> slots = shared_slots([left, right], [("k",), ("key",)])
        >>> slots.schema.names, slots.places[1]
        (['0_k', '1_v', '2_w'], {'1_key': '0_k', '0_at': '1_v', '2_w': '2_w'})
    """
    fields: list[pa.Field] = []
    places: tuple[Places, ...] = tuple({} for _ in payloads)

    def add(encoded: pa.Field) -> str:
        fields.append(encoded.with_name(f"{len(fields)}_{re.sub(r'^[0-9]+_', '', encoded.name)}"))
        return str(fields[-1].name)

    columns = [encoded_schema(payload) for payload in payloads]
    keyed = [at for at, names in enumerate(keys) if names]
    for names in zip(*(encoded_names(payloads[at], keys[at]) for at in keyed), strict=True):
        slot = add(columns[keyed[0]].field(names[0]))
        for at, name in zip(keyed, names, strict=True):
            places[at][name] = slot
    for place, fields_of_side in zip(places, columns, strict=True):
        for encoded in fields_of_side:
            if encoded.name not in place:
                taken = set(place.values())
                free = (field.name for field in fields if field.name not in taken and field.type == encoded.type)
                place[encoded.name] = next(free, None) or add(encoded)
    return Slots(pa.schema(fields), places)


def united(
    inputs: Sequence[FragmentInput], ends: Sequence[bool], slots: Slots, also: Sequence[Column] = ()
) -> DataFrame:
    """The events of both sides in one DataFrame: ``start``, ``end`` unless no side needs it, the mark, the slots.

    Args:
        inputs: The left and the right side.
        ends: Whether a side's ends are needed: not where all its lifetimes last as long.
        slots: The slots of their columns.
        also: More columns, made from those of each side.
    """
    left, right = each_side(inputs, ends, slots, also)
    return left.union(right)


def each_side(
    inputs: Sequence[FragmentInput], ends: Sequence[bool], slots: Slots, also: Sequence[Column] = ()
) -> list[DataFrame]:
    """The events of each side with the columns that `united` gives. The arguments are its own."""
    sides = []
    for at, side in enumerate(inputs):
        names = [slots.places[at][name] for name in encoded_schema(side.schema).names]
        payload = dict(zip(names, encoded_columns(side.schema), strict=True))
        end = column("end") if ends[at] else F.lit(None).cast("timestamp").alias("end")
        times = [column("start"), *([end] if any(ends) else [])]
        sides.append(side.frame.select(*times, F.lit(at == 1).alias(MARK), *filled(slots.schema, payload), *also))
    return sides


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
    """In the worker: each side's batches, of ``start``, ``end`` where it is needed, and its encoded columns."""
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
