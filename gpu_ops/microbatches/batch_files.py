"""One file of a store: an Arrow IPC file with its batches in the schema's metadata and a checksum in its name."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from types import NoneType
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core import arrow_files
from gpu_ops.core.bounds import TRUSTLESS, Bounds, naming, unreadable
from gpu_ops.core.soundness import UnsoundError
from gpu_ops.core.time import LIFETIME, TIME_TYPE
from gpu_ops.errors import SourceError
from gpu_ops.microbatches.files import ROW_GROUP_ROWS
from gpu_ops.microbatches.folders import Folder, reading, temporary, writing
from gpu_ops.microbatches.names import Sealed

Compression = Literal["zstd", "lz4"]

METADATA = b"gpu_ops.store"
"""The key of the schema's metadata that describes the file's batches."""

Part = tuple[int, int | None]
"""A batch of a file: its number of rows, and the CTI after it."""


@dataclass(frozen=True)
class Staged:
    """A complete file on disk, under a temporary name that readers ignore.

    Attributes:
        name: The temporary name.
        rows: The number of events.
        start: The earliest start in ticks; None without events.
        end: The latest end in ticks; None without events.
        size: The number of bytes.
        crc: The CRC-32 of the bytes.
        expired: Whether it replaces batches whose events were removed.
    """

    name: str
    rows: int
    start: int | None
    end: int | None
    size: int
    crc: int
    expired: bool = False

    def sealed(self, first: int, last: int, commit: int, cti: int | None) -> Sealed:
        """The file under its final name, with these batches of the store."""
        return Sealed(first, last, commit, self.rows, self.start, self.end, cti, self.size, self.crc, self.expired)


@dataclass(frozen=True)
class Loaded:
    """The content of a file.

    Attributes:
        table: The events.
        parts: Its batches, in order; None if they have expired.
        lost: If they have expired, the last batch that may have held events; later ones held only a CTI.
    """

    table: pa.Table
    parts: tuple[Part, ...] | None
    lost: int | None = None


class _Counting:
    """A file that counts the written bytes and their CRC-32."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.size = 0
        self.crc = 0
        self.closed = False

    def write(self, data: Any) -> int:
        with memoryview(data) as view:
            self.crc = zlib.crc32(view, self.crc)
            self.size += view.nbytes
            self._file.write(view)
            return view.nbytes

    def flush(self) -> None:
        self._file.flush()

    def tell(self) -> int:
        return self.size


def store_schema(payload: Iterable[pa.Field]) -> pa.Schema:
    """A store's columns: the lifetime in UTC, and nullable payload columns."""
    return pa.schema(
        [*(pa.field(name, TIME_TYPE) for name in LIFETIME), *(pa.field(each.name, each.type) for each in payload)]
    )


def stage(
    folder: Folder,
    table: pa.Table,
    *,
    parts: Sequence[Part] | None,
    compression: Compression,
    within: str = "",
    lost: int | None = None,
) -> Staged:
    """Write a table to a file with a temporary name.

    Args:
        folder: The store's folder.
        table: Events in the store's columns.
        parts: The table's batches; None if they have expired.
        compression: How buffers are compressed.
        within: A subfolder.
        lost: The last of the expired batches that may have held events.

    Raises:
        SourceError: The file system refuses, or a column cannot be written.
    """
    rows = table.num_rows
    start = pc.min(table["start"]).cast(pa.int64()).as_py() if rows else None
    end = pc.max(table["end"]).cast(pa.int64()).as_py() if rows else None
    said = {"version": 1, "rows": rows, "start": start, "end": end, "batches": parts}
    if lost is not None:
        said["lost"] = lost
    whole = one_dictionary(table).replace_schema_metadata({METADATA: json.dumps(said).encode()})
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=table.nbytes >= arrow_files.MUCH)
    name = f"{within}/{temporary()}" if within else temporary()
    try:
        with writing(folder), folder.create(name) as file:
            counting = _Counting(file)
            with pa.ipc.new_file(counting, whole.schema, options=options) as writer:
                writer.write_table(whole, ROW_GROUP_ROWS)
    except BaseException:
        with writing(folder):
            folder.remove([name])
        raise
    return Staged(name, rows, start, end, counting.size, counting.crc, parts is None)


def one_dictionary(table: pa.Table) -> pa.Table:
    """The table with one dictionary for each dictionary column, since an Arrow IPC file holds only one.

    Raises:
        SourceError: The index type is too small for all values.
    """
    try:
        return table.unify_dictionaries().combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(
            f"The dictionaries of a column cannot be made one: {error}", remedy="Cast it to its values first."
        ) from error


def read_schema(folder: Folder, name: str) -> pa.Schema:
    """The columns of a staged file."""
    with reading(folder, name):
        content = folder.read(name)
    with naming(folder.address(name)):
        return arrow_files.read_schema(pa.BufferReader(content)).remove_metadata()


def load(folder: Folder, file: Sealed, columns: Sequence[str] | None = None, bounds: Bounds = TRUSTLESS) -> Loaded:
    """Read a file, after its size and checksum were verified.

    Args:
        folder: The store's folder.
        file: The file.
        columns: The wanted columns; all by default.
        bounds: How far the store is trusted: a CRC guards against disks, not against intent.

    Raises:
        FileNotFoundError: There is no such file.
        DamageError: The file is truncated or changed, or its content is not valid.
        SourceError: The file system refuses, or the file is larger than the bounds allow.
    """
    address = folder.address(file.name)
    meter = bounds.meter(address, file.size)
    with reading(folder, file.name):
        content = folder.read(file.name, min(file.size, meter.piece))
    meter.check(content.size)
    if content.size > file.size:
        raise damaged(folder, file, f"it has more than {file.size:,} bytes")
    if content.size != file.size:
        raise damaged(folder, file, f"it has {content.size:,} bytes of {file.size:,}")
    if zlib.crc32(content) != file.crc:
        raise damaged(folder, file, f"the CRC-32 of its bytes is not {file.crc:08x}")
    try:
        table = arrow_files.read_table(content, columns, address, bounds)
        _check_lifetimes(table.schema, columns)
        said = json.loads((table.schema.metadata or {})[METADATA])
        facts = (said["rows"], said["start"], said["end"])
        parts = None if said["batches"] is None else _parts(said["batches"])
        lost = int(said.get("lost", file.last)) if parts is None else None
    except UnsoundError as error:
        raise damaged(folder, file, f"its column {error.column!r} is not sound ({error.__cause__})") from error
    except SourceError:
        raise
    except MemoryError as error:
        raise unreadable(address, error) from error
    except Exception as error:  # whatever Arrow, JSON and Python raise about bytes that are in memory
        raise damaged(folder, file, f"it is not what a store writes ({error})") from error
    if (*facts, parts is None) != (file.rows, file.start, file.end, file.expired) or table.num_rows != file.rows:
        raise damaged(folder, file, "its name and its schema's metadata differ")
    if parts is not None and (len(parts), sum(rows for rows, _ in parts)) != (file.last - file.first + 1, file.rows):
        raise damaged(folder, file, "its metadata tells of other batches than its name")
    return Loaded(table.replace_schema_metadata(None), parts, lost)


def _check_lifetimes(schema: pa.Schema, columns: Sequence[str] | None) -> None:
    if any(schema.field(name).type != TIME_TYPE for name in LIFETIME if columns is None or name in columns):
        raise ValueError("its events have no lifetimes")


def _parts(said: Any) -> tuple[Part, ...]:
    """The batches listed in a file's metadata."""
    parts = tuple((rows, cti) for rows, cti in said)
    if any(type(rows) is not int or rows < 0 or type(cti) not in (int, NoneType) for rows, cti in parts):
        raise ValueError("its batches are no numbers")
    return parts


class DamageError(SourceError):
    """A file of a store is damaged."""


def damaged(folder: Folder, file: Sealed, why: str) -> DamageError:
    """The error for a damaged file."""
    batches = f"batch {file.first}" if file.first == file.last else f"batches {file.first} to {file.last}"
    return DamageError(
        f"{folder.address(file.name)} is damaged: {why}.",
        remedy=f"Put it back from a copy, or give up {batches}: .writer() has discard({file.first}).",
    )


def split(loaded: Loaded, file: Sealed) -> list[tuple[int, pa.Table, int | None]]:
    """A file's batches: each with its sequence number, its events and the CTI after it.

    Expired batches count as one batch without events, under the last of their numbers.
    """
    if loaded.parts is None:
        return [(file.last, loaded.table, file.cti)]
    bounds = [0, *accumulate(rows for rows, _ in loaded.parts)]
    pieces = [loaded.table.slice(begin, stop - begin) for begin, stop in pairwise(bounds)]
    # A single batch has its CTI in the name: a file that was staged before its CTI was known has it only there.
    ctis = [file.cti] if len(loaded.parts) == 1 else [cti for _, cti in loaded.parts]
    return list(zip(range(file.first, file.last + 1), pieces, ctis, strict=True))
