"""The kinds of sources: each is opened as a `RawSource`.

Frames of other libraries are recognized by the names of their types, so that no library is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from gpu_ops.core.bounds import Bounds
from gpu_ops.core.soundness import sound
from gpu_ops.errors import ColumnError, PlanError, SourceError, refuse_names
from gpu_ops.ingest.csv_options import CsvOptions
from gpu_ops.ingest.files import FileFormat, open_files
from gpu_ops.ingest.raw_source import Piece, RawSource, shown_shape


@runtime_checkable
class OpensItself(Protocol):
    """A source with bounds of its own: a micro-batch store, or a running query."""

    def as_source(self) -> RawSource:
        """The source in its current state."""


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
        times: The columns of times, which are text in CSV files.
        format: The format of files whose names do not tell it.
        csv: How CSV files are written.
        bounds: How far bytes from outside are trusted.

    Raises:
        PlanError: Bounds are given for a store, which has its own.
        SourceError: The object is no source, or cannot be read.
    """
    if isinstance(source, str | Path):
        return open_files(source, times, format, csv, bounds)
    root, kind = _library(source)
    if kind in {"Series", "Expr", "ChunkedArray", "Array"} or isinstance(source, type):
        raise SourceError(
            f"A {root} {kind if not isinstance(source, type) else source.__name__} is no table: events have times and "
            "a payload, each in a column of its own.",
            remedy='Give a frame: g.events(pa.table({"at": times, "price": prices}), start="at").',
        )
    if root == "narwhals":
        return open_raw(source.to_native(), times, format, csv, bounds)
    if issubclass(type(source), OpensItself):  # its type: a pandas frame has an attribute for each column
        own: OpensItself = source
        itself = own.as_source()
        if bounds != Bounds():
            raise PlanError(
                f"The source is read within bounds of its own ({itself.shape}).",
                remedy="Say trust= and max_bytes= where it is opened: gpu_ops.store(…, trust=…, max_bytes=…).",
            )
        return itself
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
    """Validate the rows of a source that may read files, such as a reader or a dataset."""
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
        ColumnError: Two columns have one name.
    """
    before: set[str] = set()
    for name in names:
        refuse_names([name])
        if name in before:
            raise ColumnError("Two columns have this name.", column=name, remedy="Rename one of them in the source.")
        before.add(name)


def _library(source: Any) -> tuple[str, str]:
    """The library and the class of a frame; a subclass counts as the class that it extends."""
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
    # pyarrow.dataset imports pandas. It is loaded already if the source is a dataset.
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
    # A named index is a column outside of pandas; an index without a name only numbers rows.
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

    # Only object columns need their values to find their types.
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
        # A connection with an open result takes no other query, so close the reader.
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
