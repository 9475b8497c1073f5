"""Files: Parquet, Arrow IPC and CSV, one or many of one schema, read column by column and piece by piece."""

from __future__ import annotations

import csv
import glob
import io
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from gpu_ops.core.arrow_files import read_batches, read_schema
from gpu_ops.core.bounds import Bounds, Meter, refuse_pipes, unreadable
from gpu_ops.core.parquet_claims import GroupClaim, row_groups
from gpu_ops.core.soundness import legible, sound
from gpu_ops.errors import GpuOpsError, SourceError
from gpu_ops.ingest.csv_options import CsvOptions
from gpu_ops.ingest.raw_source import Piece, RawSource, shown_shape

FileFormat = Literal["parquet", "arrow", "csv"]

SUFFIXES: dict[str, FileFormat] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
    ".csv.gz": "csv",
}

_CSV_BLOCK = 4 << 20
"""Bytes of CSV that are parsed at a time, and from the first of which types are inferred."""

_CSV_HEAD = 1 << 16
"""Bytes in which most lines of names fit."""

_HIDDEN = (".", "_")
_MISFIT = re.compile(
    r"In CSV column #(?P<column>\d+): (?:Row #(?P<row>\d+): )?CSV conversion error to (?P<kind>.*?): (?P<what>.*)",
    re.DOTALL,
)
_RAGGED = re.compile(r"CSV parse error: (?:Row #(?P<row>\d+): )?(?P<what>.*)", re.DOTALL)


@dataclass(frozen=True)
class _File:
    """One file; only its schema was read."""

    path: str
    schema: pa.Schema
    rows: int | None
    tables: Callable[[Sequence[str], int], Iterator[pa.Table]]


def open_files(
    path: str | Path,
    times: Sequence[str],
    format: FileFormat | None,  # noqa: A002
    csv: CsvOptions | None,
    bounds: Bounds,
) -> RawSource:
    """A file, a folder's files or a glob's, in the order of their names.

    Args:
        path: Where; a folder is searched to its bottom, but for names that start with a dot or an underscore.
        times: The columns of times, which are read as text from CSV files.
        format: The format of files whose names do not tell it.
        csv: How CSV files are written.
        bounds: How far they are trusted.

    Raises:
        SourceError: There is no such file, it cannot be read, or not all have one schema; the error names the file.
    """
    paths = _find(str(path) if "://" in str(path) else str(Path(path).expanduser()))
    kinds: list[FileFormat] = [format or _format(each) for each in paths]
    for other, kind in zip(paths, kinds, strict=True):
        if kind != kinds[0]:
            raise SourceError(
                f"{paths[0]} is a {kinds[0]} file and {other} a {kind} file.",
                remedy="Give files of one format: a glob chooses them.",
            )
    opened: list[_File] = []
    options = csv or CsvOptions()
    for each in paths:
        with _named(each):
            refuse_pipes(each)
            if kinds[0] == "parquet":
                opened.append(_open_parquet(each, bounds))
            elif kinds[0] == "arrow":
                opened.append(_open_ipc(each, bounds))
            else:
                opened.append(_open_csv(each, times, options, opened[0].schema if opened else None, bounds))
            bounds.refuse_columns(each, len(opened[-1].schema))
        _check_same_schema(opened[0], opened[-1])

    def read(columns: Sequence[str], rows: int) -> Iterator[Piece]:
        before = 0
        for file in opened:
            row = 0
            with _named(file.path, file.schema.names, before, options):
                for table in file.tables(columns, rows):
                    yield Piece(table, file.path if len(opened) > 1 else None, row)
                    row += table.num_rows
            before += row

    counts = [file.rows for file in opened]
    rows = None if None in counts else sum(count for count in counts if count is not None)
    title = {"parquet": "Parquet", "arrow": "Arrow IPC", "csv": "CSV"}[kinds[0]]
    name = f"{title} {path}" if len(paths) == 1 else f"{title} {path} ({len(paths):,} files)"
    schema = opened[0].schema
    shape = shown_shape(name, rows, len(schema))
    return RawSource(schema, read, "path", shape, rows, text_times=kinds[0] == "csv")


# Which files


def _find(path: str) -> list[str]:
    if "://" in path:
        raise SourceError(
            f"{path} is not on this machine's file system.",
            remedy=f"Open it with pyarrow: pyarrow.dataset.dataset({path!r}).",
        )
    place = Path(path)
    if place.is_dir():
        return _files_in(place)
    if place.exists():
        return [path]
    # Path.glob takes no absolute patterns.
    found = sorted(each for each in glob.glob(path, recursive=True) if Path(each).is_file())  # noqa: PTH207
    if not found:
        what = "No file matches the glob" if glob.has_magic(path) else "There is no file or folder"
        raise SourceError(f"{what} {path}.", remedy=f"Relative paths start in {Path.cwd()}.")
    return found


def _files_in(folder: Path) -> list[str]:
    found: list[str] = []
    for place, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
        for name in folders:
            if "=" in name:
                raise SourceError(
                    f"{Path(place, name)} is a partition: its name holds a column.",
                    remedy=f"Open it with pyarrow: pyarrow.dataset.dataset({str(folder)!r}, partitioning='hive').",
                )
        found += [str(Path(place, name)) for name in names if not name.startswith(_HIDDEN)]
    if not found:
        raise SourceError(
            f"The folder {folder} holds no file.", remedy="Give a folder of Parquet, Arrow IPC or CSV files."
        )
    return sorted(found)


def _refuse(error: OSError) -> None:
    """Refuse a folder that cannot be listed: its files would be left out silently."""
    raise unreadable(str(error.filename), error) from error


def _format(path: str) -> FileFormat:
    name = Path(path).name.lower()
    for suffix, kind in SUFFIXES.items():
        if name.endswith(suffix):
            return kind
    raise SourceError(
        f"The name of {path} does not tell its format.",
        remedy=f"Names end in {', '.join(SUFFIXES)}; or pass format='parquet', 'arrow' or 'csv'.",
    )


def _check_same_schema(first: _File, other: _File) -> None:
    wanted, found = (dict(zip(file.schema.names, file.schema.types, strict=True)) for file in (first, other))
    if wanted == found and len(first.schema) == len(other.schema):
        return
    for name in [*wanted, *found]:
        if wanted.get(name) != found.get(name):
            kinds = [f"{of[name]}" if name in of else "missing" for of in (wanted, found)]
            raise SourceError(
                f"{other.path} has another schema than {first.path}: {kinds[1]} instead of {kinds[0]}.",
                column=name,
                remedy="Give files of one schema, or make streams of each of them.",
            )
    raise SourceError(
        f"{other.path} has another schema than {first.path}: a column occurs twice.", remedy="Rename one."
    )


# How each format is read


def _open_parquet(path: str, bounds: Bounds) -> _File:
    def file(**options: Any) -> pq.ParquetFile:
        # Spark's INT96 times are whole microseconds, and their nanoseconds would overflow after the year 2262.
        return pq.ParquetFile(path, coerce_int96_timestamp_unit="us", **options)

    with file() as opened:
        schema, rows = legible(opened.schema_arrow).remove_metadata(), opened.metadata.num_rows

    def tables(columns: Sequence[str], rows: int) -> Iterator[pa.Table]:
        kinds = pa.schema([schema.field(name) for name in columns])
        with pa.OSFile(path) as source, file() as reading:
            meter = bounds.meter(path, source.size())
            wanted = _leaves(reading.metadata, columns)
            pieces = _read_row_groups(file, reading, row_groups(source, reading.metadata, wanted, rows, meter), columns)
            for piece in _together(pieces, rows, meter.piece):
                meter.take(piece.nbytes)
                checked = piece if bounds.trust else sound(piece, meter)
                made = checked.select(columns)
                # Texts were read as dictionaries, to count them before they are decoded.
                yield made if made.schema.types == kinds.types else made.cast(kinds)

    return _File(path, schema, rows, tables)


def _leaves(footer: pq.FileMetaData, columns: Sequence[str]) -> list[int]:
    """The numbers of the leaves of some columns."""
    paths = [footer.schema.column(number).path for number in range(footer.num_columns)]
    # A leaf's path has the names of all that it is in, and names may have dots.
    return [number for number, path in enumerate(paths) if any(f"{path}.".startswith(f"{name}.") for name in columns)]


def _read_row_groups(
    file: Callable[..., pq.ParquetFile], opened: pq.ParquetFile, claims: Iterable[GroupClaim], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    for number, claim in enumerate(claims):
        options: dict[str, Any] = {"batch_size": claim.rows, "row_groups": [number], "columns": list(columns)}
        if claim.coded:
            with file(read_dictionary=claim.coded) as coded:
                yield from coded.iter_batches(**options)
        else:
            yield from opened.iter_batches(**options)


def _together(batches: Iterable[pa.RecordBatch], rows: int, size: int) -> Iterator[pa.Table]:
    """Batches as tables of about this many rows, and of at most this many bytes unless a single batch has more."""
    held: list[pa.RecordBatch] = []
    many = large = 0
    for batch in batches:
        if held and (many >= rows or large + batch.nbytes > size or batch.schema != held[0].schema):
            yield pa.Table.from_batches(held)
            held, many, large = [], 0, 0
        held.append(batch)
        many, large = many + batch.num_rows, large + batch.nbytes
    if held:
        yield pa.Table.from_batches(held)


def _open_ipc(path: str, bounds: Bounds) -> _File:
    with pa.OSFile(path) as source:
        schema = read_schema(source).remove_metadata()

    def tables(columns: Sequence[str], _: int) -> Iterator[pa.Table]:
        with pa.OSFile(path) as reading:
            meter = bounds.meter(path, reading.size())
            for batch in read_batches(reading, schema, columns, meter, bounds):
                yield pa.Table.from_batches([batch]).select(columns)

    return _File(path, schema, None, tables)


def _open_csv(path: str, times: Sequence[str], options: CsvOptions, like: pa.Schema | None, bounds: Bounds) -> _File:
    def reader(types: dict[str, pa.DataType], columns: Sequence[str] | None) -> pacsv.CSVStreamingReader:
        return pacsv.open_csv(
            _unpacked(path, bounds),
            # With several threads, errors do not name the row.
            pacsv.ReadOptions(use_threads=False, block_size=_CSV_BLOCK, column_names=options.names),
            pacsv.ParseOptions(delimiter=options.delimiter, quote_char=options.quote, newlines_in_values=True),
            pacsv.ConvertOptions(
                column_types=types,
                include_columns=columns,
                null_values=list(options.null_values),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    if options.names is None:
        bounds.refuse_columns(path, _count_names(path, options, bounds))
    # An unreadable time is the fault of one row, so times are read as text and parsed later.
    asked = {name: pa.string() for name in times} | dict(options.types)
    # All files have the first file's types; a misfit in a later file shows when it is read.
    known = {} if like is None else dict(zip(like.names, like.types, strict=True))
    with reader(asked | dict.fromkeys(known, pa.string()), None) as opened:
        inferred = opened.schema
    types = {
        # An empty column may hold any type later.
        field.name: known.get(field.name, pa.string() if pa.types.is_null(field.type) else field.type)
        for field in inferred
    }

    def tables(columns: Sequence[str], _: int) -> Iterator[pa.Table]:
        meter = bounds.meter(path, Path(path).stat().st_size)
        with reader(types, list(columns)) as reading:
            for batch in reading:
                meter.take(batch.nbytes)
                yield pa.Table.from_batches([batch])

    return _File(path, pa.schema([field.with_type(types[field.name]) for field in inferred]), None, tables)


def _count_names(path: str, options: CsvOptions, bounds: Bounds) -> int:
    """How many columns the line of names has: pyarrow takes kilobytes for each before it can be asked."""
    head, names = b"", list[str]()
    with _unpacked(path, bounds) as file:
        for size in (_CSV_HEAD, _CSV_BLOCK):
            head += file.read(size - len(head))
            # Names are not looked at: in Latin-1 all bytes are letters.
            text = io.StringIO(head.decode("latin-1"), newline="")
            rows = csv.reader(text, delimiter=options.delimiter, quotechar=options.quote)
            names = next(filter(None, rows), [])
            if text.read(1):
                break
    return len(names)


class _Counted:
    """A file that counts the bytes read, since empty lines give no rows to count."""

    closed = False

    def __init__(self, file: pa.NativeFile, meter: Meter) -> None:
        self._file, self._meter = file, meter

    def read(self, size: int) -> bytes:
        data: bytes = self._file.read(size)
        self._meter.take(len(data))
        return data

    def close(self) -> None:
        self._file.close()
        self.closed = True


def _unpacked(path: str, bounds: Bounds) -> Any:
    """Open a text file; a compressed one is bounded in the bytes that it unpacks to."""
    file = pa.input_stream(path)
    if not isinstance(file, pa.CompressedInputStream):
        return file
    return pa.PythonFile(_Counted(file, bounds.meter(path, Path(path).stat().st_size)), mode="r")


# What goes wrong


@contextmanager
def _named(
    path: str, columns: Sequence[str] = (), before: int = 0, options: CsvOptions | None = None
) -> Iterator[None]:
    """Turn other libraries' errors into errors that name the file."""
    try:
        yield
    except GpuOpsError:
        raise
    except Exception as error:
        raise _explained(error, path, columns, before, options) from error


def _explained(
    error: Exception, path: str, columns: Sequence[str], before: int, options: CsvOptions | None
) -> SourceError:
    text = str(error)
    misfit, ragged = _MISFIT.fullmatch(text), _RAGGED.fullmatch(text)
    found = misfit or ragged
    if found is None:
        return unreadable(path, error)
    # Arrow counts from 1, and the line of names too.
    header = 1 if options is None or options.names is None else 0
    row = int(found["row"]) - 1 - header if found["row"] else None
    where = None if row is None else before + row
    if misfit is None:
        return SourceError(
            f"{path}: {found['what']}", row=where, remedy="Every row needs as many values as there are columns."
        )
    column = next(iter(itertools.islice(columns, int(found["column"]), None)), None)
    return SourceError(
        f"{path}: {found['what']} in a column that is {found['kind']} by its first {_CSV_BLOCK >> 20} MiB.",
        column=column,
        row=where,
        remedy=f"Give its type: csv=CsvOptions(types={{{column!r}: pyarrow.string()}}), or correct the value.",
    )
