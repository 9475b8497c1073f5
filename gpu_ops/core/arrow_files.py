"""Arrow IPC files and streams from outside, read batch by batch: sizes are looked at before, values after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from gpu_ops.core.arrow_buffers import copied
from gpu_ops.core.arrow_claims import MAGIC, Claims
from gpu_ops.core.bounds import Bounds, Meter
from gpu_ops.core.soundness import legible, sound
from gpu_ops.errors import SourceError

MUCH = 1 << 20
"""Bytes from which on the buffers of a file are packed and unpacked by Arrow's threads: to wake them for less takes
longer, and where all cores are busy a hundred times as long."""


def read_schema(source: pa.NativeFile) -> pa.Schema:
    """The columns of a file or stream, with all metadata.

    Args:
        source: A file or a buffer, open, from its beginning on.

    Raises:
        Exception: What Arrow raises, of any kind (`gpu_ops.core.bounds.naming` makes it ours).
    """
    with _open(source) as reader:
        return legible(reader.schema)


def read_batches(
    source: pa.NativeFile, schema: pa.Schema, columns: Sequence[str], meter: Meter, bounds: Bounds
) -> Iterator[pa.RecordBatch]:
    """The batches of a file or stream: of each the wanted columns, in the order of the file.

    A file is read and not mapped: one that is cut off while it is mapped ends the process.

    Args:
        source: A file or a buffer, open.
        schema: What it was when it was opened; its metadata are not looked at.
        columns: Names of columns.
        meter: What counts the bytes.
        bounds: Whether values are validated.

    Raises:
        SourceError: A batch unpacks to too much, is not sound, or the file is another one than before.
        Exception: What Arrow raises, of any kind (`gpu_ops.core.bounds.naming` makes it ours).
    """
    # Arrow takes none for all.
    wanted = sorted({schema.names.index(name) for name in columns}) or list(range(len(schema)))
    options = pa.ipc.IpcReadOptions(included_fields=wanted, use_threads=source.size() >= MUCH)
    with _open(source, options) as reader:
        fields = pa.schema([schema.field(number) for number in wanted])
        if not reader.schema.remove_metadata().equals(fields.remove_metadata()):
            raise SourceError(
                f"{meter.path} has other columns than when it was opened.", remedy="Make the stream anew from it."
            )
        claims = Claims(source, schema, frozenset(wanted))
        if isinstance(reader, pa.ipc.RecordBatchFileReader):
            batches: Iterator[pa.RecordBatch] = map(reader.get_batch, range(reader.num_record_batches))
            claimed = claims.of_file()
        else:
            batches, claimed = iter(reader), claims.of_stream()
        # A batch is read when its size was found to be fine.
        for claim in claimed:
            meter.take(claim.size)
            batch = next(batches)
            checked = batch if bounds.trust else sound(batch, meter)
            yield _copy(checked) if claim.unasked > claim.size else checked


def read_table(content: pa.Buffer, columns: Sequence[str] | None, path: str, bounds: Bounds) -> pa.Table:
    """All batches of a file that is in memory, as a table of some columns; its metadata stay.

    Args:
        content: The file's bytes.
        columns: Names of columns; all if None.
        path: What errors call it.
        bounds: How far it is trusted.

    Raises:
        SourceError: As `read_batches`.
        Exception: Likewise.

    Examples:
        >>> sink = pa.BufferOutputStream()
        >>> with pa.ipc.new_file(sink, pa.schema([("n", pa.int64())])) as writer:
        ...     writer.write_table(pa.table({"n": [1, 2]}))
        >>> read_table(sink.getvalue(), None, "numbers", Bounds())["n"].to_pylist()
        [1, 2]
    """
    source = pa.BufferReader(content)
    schema = read_schema(source)
    names = schema.names if columns is None else list(columns)
    fields = [schema.field(name) for name in schema.names if name in names]
    batches = read_batches(source, schema, names, bounds.meter(path, content.size), bounds)
    return pa.Table.from_batches(batches, pa.schema(fields, schema.metadata)).select(names)


def _copy(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same values in memory of their own: Arrow's holds the columns that nobody asked for, too."""
    return pa.RecordBatch.from_arrays([copied(column) for column in batch.columns], schema=batch.schema)


def _open(source: pa.NativeFile, options: pa.ipc.IpcReadOptions | None = None) -> Any:
    source.seek(0)
    is_file = source.read(len(MAGIC)) == MAGIC
    source.seek(0)
    return pa.ipc.open_file(source, options=options) if is_file else pa.ipc.open_stream(source, options=options)
