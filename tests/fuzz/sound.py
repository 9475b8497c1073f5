"""What is damaged: sound files of every kind, made by code, the same each time."""

from __future__ import annotations

import base64
import datetime
import gzip
import io
import random
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

import gpu_ops as g
from tests.support.branches import EDGES, ONE, TWO, edges, times
from tests.support.squares import Squares
from tests.support.ticks import at_us, us

TIME = pa.timestamp("us", "UTC")
ROWS = 24


def _table(values: Any, kind: pa.DataType | None = None, rows: int = ROWS) -> pa.Table:
    """Events with a key, a number, and values of a type, some of them null."""
    some = [values[at % len(values)] for at in range(rows)]
    return pa.table(
        {
            "start": pa.array([at * 3 for at in range(rows)], TIME),
            "end": pa.array([at * 3 + 1 + at % 7 for at in range(rows)], TIME),
            "k": [None if at % 11 == 7 else "abc"[at % 3] for at in range(rows)],
            "n": pa.array([at % 5 - 1 for at in range(rows)], pa.int64()),
            "v": some if isinstance(some, pa.Array) else pa.array(some, kind),
        }
    )


def _dictionary(index: pa.DataType, values: pa.Array) -> pa.Array:
    """A column of a dictionary, one value of which is null."""
    indices = pa.array([None if at == 5 else at % len(values) for at in range(ROWS)], index)
    return pa.DictionaryArray.from_arrays(indices, values)


def _with(column: pa.Array) -> pa.Table:
    table = _table([0], pa.int64())
    return table.set_column(4, "v", column)


def _struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


_LONG = "a text that is longer than a view holds by itself"
_DAY = datetime.date(2001, 2, 3)

TABLES: dict[str, pa.Table] = {
    "int64": _table([1, None, -(1 << 63), (1 << 63) - 1], pa.int64()),
    "uint8": _table([0, 255, None], pa.uint8()),
    "float64": _table([0.0, float("nan"), float("-inf"), None, 1e300], pa.float64()),
    "float16": _table([0.5, None], pa.float16()),
    "bool": _table([True, None, False], pa.bool_()),
    "decimal": _table([Decimal("1.25"), None, Decimal("-99999999.99")], pa.decimal128(10, 2)),
    "date": _table([_DAY, None], pa.date32()),
    "nanoseconds": _table([0, 1, None], pa.timestamp("ns", "Europe/Vienna")),
    "duration": _table([0, -5, None], pa.duration("us")),
    "time of day": _table([0, 86_399_999_999, None], pa.time64("us")),
    "text": _table(["", "ä", None, _LONG], pa.string()),
    "large text": _table(["", "ä", None, _LONG], pa.large_string()),
    "bytes": _table([b"", b"\xff", None], pa.binary()),
    "short bytes": _table([b"abcd", None], pa.binary(4)),
    "views": _table(["", "ä", None, _LONG], pa.string_view()),
    "views of bytes": _table([b"", None, _LONG.encode()], pa.binary_view()),
    "lists": _table([[1, None], [], None, [2, 3, 4]], pa.list_(pa.int64())),
    "large lists": _table([["x"], [], None, ["y", _LONG]], pa.large_list(pa.string())),
    "short lists": _table([[1, 2], None], pa.list_(pa.int32(), 2)),
    "lists of structs": _table([[{"a": 1, "b": "x"}], None, []], pa.list_(_struct(a=pa.int8(), b=pa.string()))),
    "structs": _table(
        [{"a": 1, "b": [1.5]}, None, {"a": None, "b": None}], _struct(a=pa.int64(), b=pa.list_(pa.float64()))
    ),
    "maps": _table([[("x", 1)], None, [("y", None), ("z", 2)]], pa.map_(pa.string(), pa.int32())),
    "dictionary": _with(_dictionary(pa.int8(), pa.array(["x", "y", _LONG]))),
    "dictionary of numbers": _with(_dictionary(pa.int32(), pa.array([1.5, 2.5]))),
    "lists of a dictionary": _with(
        pa.ListArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), _dictionary(pa.int16(), pa.array(["x", "y"])))
    ),
    "lists of nulls": _table([[None], [], None, [None, None]], pa.list_(pa.null())),
    "maps of lists of nulls": _table(
        [[("x", [None])], None, [("y", []), ("z", None)]], pa.map_(pa.string(), pa.list_(pa.null()))
    ),
    "nulls": _table([None], pa.null()),
    "int8": _table([-128, 127, None], pa.int8()),
    "uint64": _table([0, (1 << 64) - 1, None], pa.uint64()),
    "float32": _table([0.5, None, float("nan")], pa.float32()),
    "large decimal": _table([Decimal("1.25"), None, Decimal("-" + "9" * 34 + ".99")], pa.decimal128(38, 2)),
    "date with a time": _table([0, 86_400_000, None], pa.date64()),
    "seconds of a day": _table([0, 86_399, None], pa.time32("s")),
    "local seconds": _table([0, -1, None], pa.timestamp("s")),
    "long durations": _table([0, 1 << 40, None], pa.duration("ns")),
    "large bytes": _table([b"", b"\xff" * 40, None], pa.large_binary()),
    "lists of lists": _table([[[1], None, []], None, [[2, None]]], pa.list_(pa.list_(pa.int16()))),
    "lists of views": _table([[_LONG, "x", None], None, []], pa.list_(pa.string_view())),
    "short lists of structs": _table([[{"a": 1}, {"a": None}], None], pa.list_(_struct(a=pa.int32()), 2)),
    "maps of maps": _table([[("x", [("y", 1)])], None, []], pa.map_(pa.string(), pa.map_(pa.string(), pa.int8()))),
    "structs of structs": _table([{"a": {"b": "x"}}, {"a": None}, None], _struct(a=_struct(b=pa.large_string()))),
    "dictionary of texts, large": _with(_dictionary(pa.uint16(), pa.array(["x", _LONG], pa.large_string()))),
    "dictionary of dates": _with(_dictionary(pa.int64(), pa.array([_DAY, None], pa.date32()))),
    "names of their own": _with(pa.array([{"a\tb": at, "": None} for at in range(ROWS)])),
    "no row": _table([1], pa.int64(), 0),
}  # fmt: skip
"""Tables with ``start``, ``end``, ``k``, ``n`` and ``v``, by what ``v`` is."""

_EACH = range(ROWS)

ODD: dict[str, pa.Table] = {
    name: _with(column)
    for name, column in {
        "lists as views": pa.array([[at, None] for at in _EACH], pa.list_view(pa.int64())),
        "large lists as views": pa.array([["x"] * (at % 3) for at in _EACH], pa.large_list_view(pa.string())),
        "runs": pa.RunEndEncodedArray.from_arrays([3, 10, ROWS], pa.array(["x", None, "y"])),
        "runs of numbers": pa.RunEndEncodedArray.from_arrays(pa.array([1, ROWS], pa.int16()), [1, 2]),
        "union": pa.UnionArray.from_sparse(pa.array([at % 2 for at in _EACH], pa.int8()), [pa.array(_EACH)] * 2),
        "dense union": pa.UnionArray.from_dense(
            pa.array([0] * ROWS, pa.int8()), pa.array(_EACH, pa.int32()), [pa.array(_EACH)]
        ),
        "uuid": pa.array([bytes([at]) * 16 for at in _EACH], pa.uuid()),
        "opaque": pa.opaque(pa.string(), "kind", "vendor").wrap_array(pa.array(["x"] * ROWS)),
        "json": pa.json_(pa.string()).wrap_array(pa.array(["{}"] * ROWS)),
        "tensor": pa.FixedShapeTensorArray.from_storage(
            pa.fixed_shape_tensor(pa.int8(), [2]), pa.array([[1, 2]] * ROWS, pa.list_(pa.int8(), 2))
        ),
        "decimal of 256 bits": pa.array([Decimal(at) for at in _EACH], pa.decimal256(60, 3)),
        "decimal of 32 bits": pa.array([Decimal(at) for at in _EACH], pa.decimal32(5, 1)),
        "interval": pa.array([pa.MonthDayNano([at, 1, 2]) for at in _EACH], pa.month_day_nano_interval()),
        "empty structs": pa.array([{}] * ROWS, pa.struct([])),
        "dictionary of lists": pa.DictionaryArray.from_arrays(
            pa.array([at % 2 for at in _EACH], pa.int8()), pa.array([[1], [2]])
        ),
    }.items()
}  # fmt: skip
"""Likewise those that are refused, or carried on some ways only: where they are sound, too."""

CTIS = pa.table(
    {
        "kind": [["insert", "insert", "cti"][at % 3] for at in range(ROWS)],
        "at": pa.array([at * 5 for at in range(ROWS)], TIME),
        "k": ["abc"[at % 3] for at in range(ROWS)],
        "v": pa.array(range(ROWS), pa.int64()),
    }
)
"""Events and CTIs."""

EDGED = edges(random.Random(7), ROWS)
"""Start edges and end edges."""

SOURCES: dict[str, tuple[pa.Table, dict[str, Any]]] = {
    **{name: (table, {"start": "start", "end": "end"}) for name, table in TABLES.items()},
    "CTIs": (CTIS, {"start": "at", "kind": "kind"}),
    "edges": (EDGED, {"start": "at", "end": "until", "unit": "us", "shape": "edge", "edge": "edge"}),
}
"""Tables, and how `gpu_ops.events` is told what they are."""

MORE = SOURCES | {name: (table, {"start": "start", "end": "end"}) for name, table in ODD.items()}
"""The same with those that may be refused."""

IN_TEXT = ["int64", "uint8", "float64", "bool", "date", "text", "no row", "edges"]
"""Those that CSV can hold."""


def arrow(table: pa.Table, *, stream: bool, compression: str | None, rows: int = 10) -> bytes:
    """An Arrow file or stream of several batches, the second of which is empty."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, unify_dictionaries=True)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, table.schema, options=options) as writer:
        # Of several pieces with dictionaries of their own, a file would hold no more than the first.
        for number, batch in enumerate(table.combine_chunks().to_batches(rows)):
            writer.write_batch(batch)
            if not number:
                writer.write_batch(batch.slice(0, 0))
    return bytes(sink.getvalue())


def parquet(table: pa.Table, chance: random.Random) -> bytes:
    """A Parquet file, written one way or another; or one whose Arrow schema is that of another table."""
    options: dict[str, Any] = {
        "compression": chance.choice(["none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
        **_encoded(table.schema, chance),
        "data_page_size": chance.choice([16, 1 << 20]),
        "write_page_index": chance.random() < 0.3,
        "write_page_checksum": chance.random() < 0.3,
        "row_group_size": chance.choice([7, 100]),
        "data_page_version": chance.choice(["1.0", "2.0"]),
        "write_statistics": chance.random() < 0.7,
    }
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


_ENCODINGS: tuple[tuple[Callable[[pa.DataType], bool], tuple[str, ...]], ...] = (
    (pa.types.is_int64, ("PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT")),
    (pa.types.is_timestamp, ("PLAIN", "DELTA_BINARY_PACKED")),
    (pa.types.is_float64, ("PLAIN", "BYTE_STREAM_SPLIT")),
    (pa.types.is_boolean, ("PLAIN", "RLE")),
    (pa.types.is_string, ("PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY")),
    (pa.types.is_binary, ("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY")),
)


def _encoded(schema: pa.Schema, chance: random.Random) -> dict[str, Any]:
    """With dictionaries, or each column that has several encodings by one of them."""
    if chance.random() < 0.5:
        return {"use_dictionary": True}
    encodings = {
        field.name: chance.choice(names) for field in schema for holds, names in _ENCODINGS if holds(field.type)
    }
    return {"use_dictionary": False, "column_encoding": encodings or None}


def parquet_of_another_schema(table: pa.Table, other: pa.Schema) -> bytes:
    """A Parquet file that says of itself that it was made from another table's columns."""
    said = base64.b64encode(other.serialize().to_pybytes())
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({b"ARROW:schema": said}), sink, store_schema=False)
    return bytes(sink.getvalue())


def csv(table: pa.Table) -> bytes:
    """The table as text."""
    sink = pa.BufferOutputStream()
    pacsv.write_csv(table, sink)
    return bytes(sink.getvalue())


def gzipped(data: bytes) -> bytes:
    """The same bytes each time, without the time of day."""
    return gzip.compress(data, mtime=0)


# Stores


@cache
def store_files(name: str) -> dict[str, bytes]:
    """The files of a store of a table's events: batches of a few rows, an empty one, one that is merged, CTIs."""
    table = TABLES[name]
    with tempfile.TemporaryDirectory() as folder, the_same_names():
        path = Path(folder, "store")
        store = g.store(path, compression="lz4" if len(name) % 2 else "zstd")
        with store.writer() as writer:
            for first in range(0, max(ROWS, 1), 8):
                writer.append(table.slice(first, 8), cti=at_us(first * 3))
            writer.append(table.slice(0, 0))
            if len(name) % 3 == 0:
                writer.compact(16)
            writer.advance(at_us(ROWS * 3))
        return {each.name: each.read_bytes() for each in sorted(path.iterdir())}


# Checkpoints

Plan = tuple[Callable[[], g.Stream], tuple[str, ...]]
"""A query that runs, and the names of its inputs."""


def _events(name: str = "events") -> g.Stream:
    return g.events(EDGES.empty_table(), start="at", end="until", unit="us", shape="edge", edge="edge", name=name)


def _one(query: Callable[[g.Stream], g.Stream], **settings: Any) -> Plan:
    def made() -> g.Stream:
        return query(_events().advance_time(**settings) if settings else _events())

    return made, ("events",)


def _short(events: g.Stream) -> g.Stream:
    """The same events, none of which is open: it would have endlessly many windows."""
    return events.clip_duration(us(9))


def _two(query: Callable[[g.Stream, g.Stream], g.Stream]) -> Plan:
    return lambda: query(_events("left"), _events("right")), ("left", "right")


PLANS: dict[str, Plan] = {
    **{name: _one(ONE[name]) for name in ("last", "stitch", "distinct", "snapshot", "median", "sliding")},
    "hopping": _one(lambda s: ONE["hopping"](_short(s))),
    "reordered": _one(ONE["snapshot"], every=2, delay=us(3), reorder=us(4), late="divert"),
    "session": _one(lambda s: s.to_point().by("k").session(us(6)).agg(n=g.count(), best=g.max("v"))),
    "highest": _one(lambda s: s.highest(2, "v").agg(total=g.sum("v"))),
    "days": _one(lambda s: _short(s).by("k").tumbling("1d", zone="Europe/Vienna").agg(n=g.count(), v=g.max("v"))),
    "months": _one(lambda s: _short(s).hopping("1q", "1mo", zone="America/New_York").agg(v=g.median("v"))),
    "squares": _one(lambda s: _short(s).by("k").time_window(Squares(2)).agg(n=g.count(), best=g.max("v"))),
    "kept": _one(lambda s: _short(s).by("k").hopping(us(6), us(3)).agg(each=g.collect_list("v"))),
    "filled": _one(lambda s: _short(s).by("k").tumbling(us(4), align=at_us(0), fill="last").agg(v=g.sum("v"))),
    "filled days": _one(lambda s: _short(s).by("k").tumbling("1d", zone="Europe/Vienna", fill="zero").agg(n=g.count())),
    "chopped": _one(lambda s: _short(s).chop(us(3))),
    "batches": _one(lambda s: s.to_point().by("k").time_batches(us(5)).agg(n=g.count(), v=g.sum("v"))),
    "calendar batches": _one(
        lambda s: s.to_point().time_batches("1d", align=None, zone="Europe/Vienna").agg(n=g.count())
    ),
    "length batches": _one(lambda s: s.to_point().by("k").time_length_batches(us(5), 3, idle="run").agg(n=g.count())),
    "counted": _one(lambda s: s.to_point().count_window(3).agg(v=g.sum("v"))),
    "last span": _one(lambda s: s.to_point().by("k").last_span(us(8)).agg(v=g.max("v"), d=g.count_distinct("v"))),
    "floats": _one(lambda s: s.by("k").snapshot().agg(a=g.mean("v"), b=g.variance("v"), c=g.mode("v"))),
    "ranked": _one(lambda s: s.snapshot().agg(first=g.first("k"), top=g.top("v", 2))),
    "unique": _one(lambda s: s.unique("k").agg(mean=g.mean("v"))),
    **{name: _two(TWO[name]) for name in ("inner", "left", "full", "anti", "clip", "as of", "union")},
}
"""Live queries, of edges."""


def push(live: Any, inputs: tuple[str, ...], first: int, last: int) -> None:
    """Push some of the edges, and say the CTI that those after them allow."""
    cti = min(times(EDGED.slice(last)), default=100)
    for name in inputs:
        live.push(EDGED.slice(first, last - first), input=name)
        live.advance(at_us(cti), input=name)


@cache
def checkpoint_parts(name: str) -> dict[str, bytes]:
    """The members of the checkpoint of a query that has taken in some edges."""
    made, inputs = PLANS[name]
    with tempfile.TemporaryDirectory() as folder, the_same_names():
        path = Path(folder, "query.checkpoint")
        live = made().start(device="cpu")
        push(live, inputs, 0, 12)
        live.checkpoint(path)
        with zipfile.ZipFile(path) as archive:
            return {each: archive.read(each) for each in archive.namelist()}


def zipped(parts: Mapping[str, bytes]) -> bytes:
    """A zip archive of members, with sound CRCs and no time of day."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return sink.getvalue()


def the_same_names() -> Any:
    """Names that are drawn at random elsewhere are counted here, so that a file is the same each time."""
    numbers = count(1)
    return patch("secrets.token_hex", lambda size=16: f"{next(numbers):0{2 * size}x}")
