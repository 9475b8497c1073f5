"""What data can come from: each kind of source as a schema and a way to read some of its columns, piece by piece.

Frames of other libraries are known by the names of their types: none of these libraries is imported to look.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from gpu_ops.core.bounds import Bounds
from gpu_ops.core.soundness import sound
from gpu_ops.errors import ColumnError, PlanError, SourceError, refuse_names
from gpu_ops.ingest.csv_options import CsvOptions
from gpu_ops.ingest.files import FileFormat, open_files

PIECE_ROWS = 1 << 20
"""Rows that a source which is not in memory gives at a time, unless it is told."""


class Piece(NamedTuple):
    """Some rows, and where they are if the source is several files."""

    table: pa.Table
    file: str | None = None
    file_row: int = 0


@dataclass(frozen=True)
class RawSource:
    """A source, opened: only its schema was read.

    Attributes:
        schema: All columns.
        read: The rows of the named columns, in pieces of about the given number of rows.
        origin: The kind of frame that came in.
        shape: What it is, in a few words.
        rows: How many there are, where that is known.
        replayable: Whether it can be read twice.
        text_times: Whether times may be text.
        outside: Whether its rows are still to be validated.
    """

    schema: pa.Schema
    read: Callable[[Sequence[str], int], Iterator[Piece]]
    origin: str
    shape: str
    rows: int | None = None
    replayable: bool = True
    text_times: bool = False
    outside: bool = False


@runtime_checkable
class Bounded(Protocol):
    """What reads itself and holds to bounds of its own, as a micro-batch store does."""

    def as_source(self) -> RawSource:
        """What it is now, opened."""


def open_raw(
    source: Any,
    times: Sequence[str],
    format: FileFormat | None,  # noqa: A002
    csv: CsvOptions | None,
    bounds: Bounds,
) -> RawSource:
    """Any source as a `RawSource`.

    Args:
        source: A frame, a reader or a path.
        times: The columns that hold times, which CSV files may hold as text.
        format: What files are, where their names do not say.
        csv: How CSV files are written.
        bounds: How far bytes from outside are trusted.

    Raises:
        PlanError: Bounds are given for a store, which has its own.
        SourceError: It is no source, or cannot be read.
    """
    if isinstance(source, str | Path):
        files = open_files(source, times, format, csv, bounds)
        return RawSource(
            files.schema,
            lambda columns, rows: (Piece(*piece) for piece in files.read(columns, rows)),
            "path",
            files.shape,
            files.rows,
            text_times=files.text_times,
        )
    root, kind = _library(source)
    if kind in {"Series", "Expr", "ChunkedArray", "Array"} or isinstance(source, type):
        raise SourceError(
            f"A {root} {kind if not isinstance(source, type) else source.__name__} is no table: events have times and "
            "a payload, each in a column of its own.",
            remedy='Give a frame: g.events(pa.table({"at": times, "price": prices}), start="at").',
        )
    if root == "narwhals":
        return open_raw(source.to_native(), times, format, csv, bounds)
    if issubclass(type(source), Bounded):  # its type: a pandas frame has an attribute for each column
        if bounds != Bounds():
            raise PlanError(
                "A store is opened with bounds of its own.",
                remedy="Say gpu_ops.store(…, trust=…, max_bytes=…) instead.",
            )
        own: Bounded = source
        return own.as_source()
    if root in _LIBRARIES and (root, kind) != ("pyarrow", "RecordBatchReader"):
        opened = _LIBRARIES[root](source)
        if opened is not None:
            return _bounded(opened, bounds)
    if hasattr(source, "__arrow_c_stream__"):
        return _bounded(_reader(pa.RecordBatchReader.from_stream(source), f"{root} {kind}"), bounds)
    raise SourceError(
        f"A {type(source).__module__}.{type(source).__name__} is no source of events.",
        remedy="Give a pyarrow, pandas, Polars, DuckDB or cuDF frame, a reader, or a path.",
    )


def _bounded(opened: RawSource, bounds: Bounds) -> RawSource:
    """A source whose rows are validated if they may be read from a file, as those of readers and datasets may."""
    if bounds.trust or not opened.outside:
        return opened
    meter = bounds.meter(opened.shape, 0)

    def read(columns: Sequence[str], rows: int) -> Iterator[Piece]:
        for piece in opened.read(columns, rows):
            yield piece._replace(table=sound(piece.table, meter))

    return replace(opened, read=read)


def refuse_duplicates(names: Sequence[str]) -> None:
    """Refuse two columns of one name.

    Raises:
        ColumnError: There are.
    """
    before: set[str] = set()
    for name in names:
        refuse_names([name])
        if name in before:
            raise ColumnError("Two columns have this name.", column=name, remedy="Rename one of them in the source.")
        before.add(name)


def _library(source: Any) -> tuple[str, str]:
    """The library that a frame is of, and its kind there: subclasses elsewhere count as what they extend."""
    for base in type(source).__mro__:
        root = base.__module__.partition(".")[0]
        if root in _LIBRARIES or root == "narwhals":
            return root, base.__name__
    return type(source).__module__, type(source).__name__


def _table(table: pa.Table, origin: str = "pyarrow", kind: str = "Table") -> RawSource:
    return RawSource(
        table.schema,
        lambda columns, _: iter([Piece(table.select(columns))]),
        origin,
        shown_shape(f"{origin} {kind}", table.num_rows, table.num_columns),
        table.num_rows,
    )


def shown_shape(kind: str, rows: int | None, columns: int) -> str:
    """What a source is, with how many rows and columns."""
    return f"{kind}, {'' if rows is None else f'{rows:,} rows x '}{columns} columns"


def _reader(reader: pa.RecordBatchReader, kind: str) -> RawSource:
    readers = [reader]

    def read(columns: Sequence[str], _: int) -> Iterator[Piece]:
        if not readers:
            raise SourceError(
                "A reader can be read once, and this one has been.",
                remedy="Make a new stream from a new reader, or read it into a table first: reader.read_all().",
            )
        with readers.pop() as batches:
            for batch in batches:
                yield Piece(pa.Table.from_batches([batch]).select(columns))

    shape = shown_shape(kind, None, len(reader.schema))
    return RawSource(reader.schema, read, "reader", shape, replayable=False, outside=True)


def _open_pyarrow(source: Any) -> RawSource | None:
    if isinstance(source, pa.Table):
        return _table(source)
    if isinstance(source, pa.RecordBatch):
        return _table(pa.Table.from_batches([source]), kind="RecordBatch")
    # The module of datasets imports pandas: whoever made one has it already.
    datasets = sys.modules.get("pyarrow.dataset")
    if datasets is None or not isinstance(source, datasets.Dataset):
        return None

    def read(columns: Sequence[str], rows: int) -> Iterator[Piece]:
        for batch in source.to_batches(columns=list(columns), batch_size=rows):
            yield Piece(pa.Table.from_batches([batch]))

    shape = shown_shape("pyarrow Dataset", None, len(source.schema))
    return RawSource(source.schema, read, "pyarrow", shape, outside=True)


def _open_pandas(source: Any) -> RawSource | None:
    if not hasattr(source, "columns"):
        return None
    names = [str(name) for name in source.index.names if name is not None]
    # A named index is a column to everyone but pandas; one without a name is only how rows are numbered.
    frame = source.reset_index(names) if names else source
    for name in frame.columns:
        if not isinstance(name, str):
            raise ColumnError(
                f"The name of a column is {name!r}, which is no text.",
                remedy="Rename it: frame.columns = frame.columns.map(str).",
            )
    refuse_duplicates(list(frame.columns))
    sparse = [name for name in frame.columns if type(frame[name].dtype).__name__ == "SparseDtype"]
    if sparse:
        # Arrow has no sparse columns.
        frame = frame.astype({name: frame[name].dtype.subtype for name in sparse})
    from gpu_ops.ingest.pandas_frames import field_of

    def convert(part: Any) -> pa.Table:
        try:
            table = pa.Table.from_pandas(part, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            raise SourceError(
                f"pandas columns of mixed or unknown types have no Arrow type: {'; '.join(map(str, error.args))}.",
                remedy="Give the column one type: frame.astype({'name': 'string'}).",
            ) from error
        return table.replace_schema_metadata(None)

    # What an object column holds is known only from its values; the other columns need none of theirs.
    objects = [name for name in frame.columns if frame[name].dtype == object]
    known = convert(frame.drop(columns=objects).iloc[:0]).schema
    found = convert(frame[objects]).schema
    schema = pa.schema(
        [
            found.field(name) if name in objects else field_of(known.field(name), frame[name].dtype)
            for name in frame.columns
        ]
    )
    return RawSource(
        schema,
        lambda columns, _: iter([Piece(convert(frame[list(columns)]).cast(pa.schema(map(schema.field, columns))))]),
        "pandas",
        shown_shape("pandas DataFrame", len(frame), len(schema)),
        len(frame),
    )


def _polars_schema(frame: Any) -> pa.Schema:
    try:
        return pa.table(frame).schema
    except pa.ArrowInvalid as error:
        for name, kind in frame.schema.items():
            try:
                pa.table(frame.select(name))
            except pa.ArrowInvalid:
                raise SourceError(
                    f"Arrow has no type for Polars' {kind}.",
                    column=name,
                    remedy="Cast it first: to Decimal(38, 0), an Int64, a Float64 or a String.",
                ) from error
        raise


def _open_polars(source: Any) -> RawSource | None:
    polars: Any = sys.modules["polars"]
    if not isinstance(source, polars.DataFrame | polars.LazyFrame):
        return None
    try:
        known = source.collect_schema()
    except polars.exceptions.PolarsError as error:
        raise SourceError(f"Polars cannot plan the LazyFrame: {error}.", remedy="Mend its query.") from error
    for name, dtype in known.items():
        if dtype == polars.Object:
            raise SourceError(
                "Polars gives away no Python objects: outside of its frame they are addresses of memory.",
                column=name,
                remedy="Give the column a type, or drop it.",
            )
    if isinstance(source, polars.DataFrame):
        return RawSource(
            _polars_schema(source.head(0)),
            lambda columns, _: iter([Piece(pa.table(source.select(columns)))]),
            "polars",
            shown_shape("Polars DataFrame", source.height, source.width),
            source.height,
        )
    schema = _polars_schema(polars.DataFrame(schema=known))

    def read(columns: Sequence[str], rows: int) -> Iterator[Piece]:
        for frame in source.select(columns).collect_batches(chunk_size=rows, maintain_order=True):
            yield Piece(pa.table(frame))

    return RawSource(schema, read, "polars", shown_shape("Polars LazyFrame", None, len(schema)))


def _open_duckdb(source: Any) -> RawSource | None:
    if not hasattr(source, "to_arrow_table"):
        return None
    duckdb: Any = sys.modules["duckdb"]
    schema = source.limit(0).to_arrow_table().schema

    def read(columns: Sequence[str], rows: int) -> Iterator[Piece]:
        wanted = source.select(*map(duckdb.ColumnExpression, columns))
        try:
            reader = wanted.to_arrow_reader(rows)
        except duckdb.Error as error:
            raise SourceError(
                f"DuckDB does not run the relation: {error}.",
                remedy="One connection runs one query at a time: give each stream a cursor of its own.",
            ) from error
        # Closing it matters: a connection with an open result takes no other query.
        with reader:
            for batch in reader:
                yield Piece(pa.Table.from_batches([batch]))

    return RawSource(schema, read, "duckdb", shown_shape("DuckDB relation", None, len(schema)))


def _open_cudf(source: Any) -> RawSource | None:
    if not hasattr(source, "to_arrow") or not hasattr(source, "columns"):
        return None
    return RawSource(
        source.head(0).to_arrow(preserve_index=False).schema,
        lambda columns, _: iter([Piece(source[list(columns)].to_arrow(preserve_index=False))]),
        "cudf",
        shown_shape("cuDF DataFrame", len(source), len(source.columns)),
        len(source),
    )


_LIBRARIES: dict[str, Callable[[Any], RawSource | None]] = {
    "cudf": _open_cudf,
    "duckdb": _open_duckdb,
    "_duckdb": _open_duckdb,
    "pandas": _open_pandas,
    "polars": _open_polars,
    "pyarrow": _open_pyarrow,
}
