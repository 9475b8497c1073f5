"""Streams from lists of events, and their answers as rows that can be compared: bit by bit, and without an order."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

import gpu_ops as g
from tests.support.reference import Event

Row = tuple[Any, ...]


def to_events(table: pa.Table) -> list[Event]:
    """The events of a result, times as microseconds since 1970."""
    assert table.column_names[:2] == ["start", "end"]
    times = [table[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist() for name in ("start", "end")]
    payloads = table.drop_columns(["start", "end"]).to_pylist()
    return [Event(*event) for event in zip(*times, payloads, strict=True)]


def to_table(events: Sequence[Event], payload: pa.Schema | None = None) -> pa.Table:
    """Events as a table whose ``start`` and ``end`` are timestamps in UTC; without a schema Arrow finds the types."""
    if payload is None:
        payload = pa.Table.from_pylist([dict(event.payload) for event in events]).schema
    times = {
        "start": pa.array([event.start for event in events], pa.int64()),
        "end": pa.array([event.end for event in events], pa.int64()),
    }
    columns = {field.name: pa.array([event.payload[field.name] for event in events], field.type) for field in payload}
    return pa.table({name: time.cast(pa.timestamp("us", "UTC")) for name, time in times.items()} | columns)


def stream(events: Sequence[Event], payload: pa.Schema | None = None) -> g.Stream:
    """Events as a stream."""
    return g.events(to_table(events, payload), start="start", end="end")


def _bits(value: Any) -> str:
    """A value as text that differs wherever a bit of it does; so 1 is not 1.0, nor 0.0 -0.0, and NaN is itself."""
    if isinstance(value, float):
        return f"{value!r} {struct.pack('>d', value).hex()}"
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    return repr(value)


def rows(answer: pa.Table | Sequence[Event]) -> list[Row]:
    """The rows of an answer in an order that depends on nothing but the rows: (start, end, name, value, name, …)."""
    events = to_events(answer) if isinstance(answer, pa.Table) else answer
    return sorted(
        (
            event.start,
            event.end,
            *(text for name, value in sorted(event.payload.items()) for text in (name, _bits(value))),
        )
        for event in events
    )


def check(asked: g.Stream, device: str, expected: Sequence[Event]) -> None:
    """The answer of a stream has these rows and no others, bit by bit."""
    assert rows(asked.collect(device=device)) == rows(expected)
