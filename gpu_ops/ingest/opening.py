"""Opening a user's data as a source: the roles of its columns, and the checks before any row is read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pyarrow as pa

from gpu_ops.core import types
from gpu_ops.core.arrow_buffers import in_one
from gpu_ops.core.arrow_types import fields_of
from gpu_ops.core.bounds import Bounds
from gpu_ops.core.time import LIFETIME
from gpu_ops.errors import ColumnError, PlanError, SourceError, TimeError, unknown_column
from gpu_ops.ingest.csv_options import CsvOptions
from gpu_ops.ingest.files import FileFormat
from gpu_ops.ingest.kinds import kind_columns
from gpu_ops.ingest.raw import open_raw, refuse_duplicates
from gpu_ops.ingest.raw_source import PIECE_ROWS, RawSource
from gpu_ops.ingest.rules import (
    NO_ZONE,
    Ambiguous,
    Nonexistent,
    NullEnd,
    OnInvalid,
    Round,
    Shape,
    Unit,
    check_choice,
)
from gpu_ops.ingest.sources import EventSource
from gpu_ops.ingest.times import TimeColumn, TimePolicy, refuse_idle_unit
from gpu_ops.ingest.validate import row_text
from gpu_ops.ingest.zones import Zone

_DIVERTED = ("rule", "row")
"""The columns that are added to rows kept aside."""

_POLICIES = {"null_end": NullEnd, "on_invalid": OnInvalid, "ambiguous": Ambiguous, "nonexistent": Nonexistent}
_OPTIONAL = {"unit": Unit, "round": Round, "format": FileFormat, "shape": Shape}
"""The words of each option."""


def open_source(
    source: Any,
    *,
    start: str,
    end: str | None = None,
    unit: Unit | None = None,
    zone: str | None = None,
    round: Round | None = None,  # noqa: A002  (the word that users look for)
    null_end: NullEnd = "raise",
    on_invalid: OnInvalid = "raise",
    ambiguous: Ambiguous = "raise",
    nonexistent: Nonexistent = "raise",
    format: FileFormat | None = None,  # noqa: A002
    csv: CsvOptions | None = None,
    kind: str | None = None,
    shape: Shape | None = None,
    edge: str | None = None,
    trust: bool = False,
    max_bytes: int | None = None,
) -> EventSource:
    """Open a user's data as events. Only its schema is read (of a CSV file, the first block).

    Times may be timestamps of any unit and zone; local timestamps (with ``zone``); dates, which mean their midnight in
    ``zone``, else in UTC; integers (with ``unit``); and, in CSV files, text: ISO 8601 with or without a zone. The two
    columns may differ in type. A frame of nothing but its time columns keeps them as its payload; there, ``start``
    and ``end`` are called ``start_time`` and ``end_time``.

    Args:
        source: A pyarrow Table, RecordBatch, RecordBatchReader or Dataset; a pandas, Polars, DuckDB or cuDF frame;
            anything with ``__arrow_c_stream__`` (which is read once); or the path of a Parquet, Arrow IPC or CSV file,
            of a folder, or a glob. In pandas, a named index is a column, and NaN is null.
        start: The column with each event's start.
        end: The column with each event's end, exclusive; without it events are points. An end of
            9999-12-31T23:59:59.999999Z is open.
        unit: The unit of integer times, counted since 1970-01-01T00:00Z: "s", "ms", "us" or "ns".
        zone: The time zone of local times and of dates; results carry it unless the start's type has one.
        round: How times finer than 1 µs are rounded: "floor", "ceil" or "half_even". Without it they are refused.
        null_end: "open" lets a null end mean that the event never ends.
        on_invalid: How to treat a row that breaks a rule: "raise" names it, "drop" leaves it out and counts it,
            "divert" also keeps it for `EventSource.rejected`.
        ambiguous: Which instant a local time means that a clock change made occur twice: "earliest" or "latest".
        nonexistent: What a local time becomes that a clock change skipped: the first instant after the gap
            ("shift_forward") or the last tick before it ("shift_backward").
        format: The format of files whose names do not tell it: "parquet", "arrow" or "csv".
        csv: How CSV files are written.
        kind: The column that says whether a row is an event ("insert") or a CTI ("cti").
        shape: "edge" where rows are start edges and end edges.
        edge: The column that says which of them a row is ("start", "end"), or that it is a whole event ("interval").
        trust: Whether what files, readers and datasets hold is taken as it is, as in `gpu_ops.events`.
        max_bytes: How many bytes a file may unpack to, as there.

    Raises:
        SourceError: The source cannot be read, or holds a type that cannot be carried.
        ColumnError: A column is unknown, twice there, or called ``start`` or ``end`` without being the lifetime.
        TimeError: A time column's type needs a zone or a unit, or is no time.
        PlanError: A policy that does not exist.

    Examples:
        >>> bids = pa.table({"at": pa.array([1], pa.timestamp("ms")), "price": [3]})
        >>> open_source(bids, start="at", zone="Europe/Vienna").zone
        'Europe/Vienna'
    """
    check_options(
        start,
        end,
        null_end=null_end,
        on_invalid=on_invalid,
        ambiguous=ambiguous,
        nonexistent=nonexistent,
        unit=unit,
        round=round,
        format=format,
        shape=shape,
    )
    kinds = kind_columns(kind, shape, edge, end)
    policy = TimePolicy(unit, None if zone is None else Zone(zone), round, ambiguous, nonexistent)
    times = [start] if end is None else [start, end]
    raw = open_raw(source, times, format, csv, Bounds(trust, max_bytes))
    sides = time_columns(raw.schema, times, policy, text=raw.text_times)
    for name in kinds.names:
        if name not in raw.schema.names:
            raise unknown_column(name, raw.schema.names, what="source")
    kinds.check(raw.schema)
    opened = EventSource(
        raw, sides[0], sides[1] if len(sides) > 1 else None, sides[0].zone or zone or "UTC", null_end, on_invalid, kinds
    )
    refuse_kept_names(opened.schema.names, _DIVERTED if on_invalid == "divert" else ())
    _check_payload(opened.schema)
    if raw.text_times and zone is None:
        _check_text_zones(raw, sides)
    return opened


def check_options(start: str, end: str | None, **options: str | None) -> None:
    """Refuse options that no source takes.

    Raises:
        PlanError: A policy that does not exist; or one column is the start and the end.
    """
    for name, value in options.items():
        if name in _POLICIES or value is not None:
            check_choice(name, value, _POLICIES.get(name) or _OPTIONAL[name])
    if start == end:
        raise PlanError(
            "The start and the end are one column, and a lifetime is never empty.", remedy="Leave out end= for points."
        )


def time_columns(schema: pa.Schema, names: list[str], policy: TimePolicy, *, text: bool) -> list[TimeColumn]:
    """The start's column and, if it is named, the end's.

    Args:
        schema: All columns of the source.
        names: The columns of times.
        policy: How they are read.
        text: Whether times may be text.

    Raises:
        ColumnError: A column is unknown or twice there.
        TimeError: A column's type needs a zone or a unit, or is no time.
    """
    refuse_duplicates(schema.names)
    for name in names:
        if name not in schema.names:
            raise unknown_column(name, schema.names, what="source")
    columns = [
        TimeColumn(name, schema.field(name).type, side, policy, text)
        for name, side in zip(names, LIFETIME, strict=False)
    ]
    refuse_idle_unit(columns, policy.unit)
    return columns


def refuse_kept_names(names: Iterable[str], diverted: Collection[str]) -> None:
    """Refuse payload columns whose names are kept for others.

    Args:
        names: The columns.
        diverted: The columns that rows get which are kept aside; none where no rows are.

    Raises:
        ColumnError: A name is kept.
    """
    for name in names:
        if name in LIFETIME:
            raise ColumnError(
                "The name is kept for the lifetime, which this column is not.",
                column=name,
                remedy=f"Rename it in the source, or say {name}={name!r} if it is.",
            )
        if name in diverted:
            raise ColumnError(
                "Rows that are kept aside get a column of this name.", column=name, remedy="Rename it in the source."
            )


def _check_payload(schema: pa.Schema) -> None:
    for column in schema:
        refusal = types.refusal(column)
        if refusal is not None:
            raise SourceError(refusal, column=column.name)
        if any("\0" in name for name in _names(column)):
            raise ColumnError(
                "The name of a field in this column holds a U+0000, where others believe that it ends.",
                column=column.name,
                remedy="Rename it in the source.",
            )


def _names(field: pa.Field) -> Iterator[str]:
    yield field.name
    for each in fields_of(field.type):
        yield from _names(each)


def _check_text_zones(raw: RawSource, sides: list[TimeColumn]) -> None:
    """Refuse local times without a zone before all of a CSV file is read, by its first rows."""
    names = [side.name for side in sides if pa.types.is_string(side.kind) and side.policy.unit is None]
    if not names:
        return
    pieces = raw.read(names, PIECE_ROWS)
    first = next(pieces, None)
    if first is None:
        return
    for side in sides:
        if side.name not in names:
            continue
        written = side.read(in_one(first.table[side.name]))
        if NO_ZONE in written.faults:
            row = int(written.faults[NO_ZONE].argmax())
            raise TimeError(
                f"The {side.side} is a local time without a zone.",
                column=side.name,
                row=row,
                values=row_text(first.table.select([side.name]), row),
                remedy="Pass zone= to interpret naive timestamps, such as zone='UTC'.",
            )
