"""Results as Parquet or Arrow IPC files, written batch by batch, and visible only when complete."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from gpu_ops.core.arrow_types import fields_of
from gpu_ops.errors import PlanError, SourceError
from gpu_ops.ingest.rules import check_choice

IfExists = Literal["raise", "replace"]

ROW_GROUP_ROWS = 1 << 20
"""Rows per row group (Parquet) or record batch (Arrow IPC), unless told otherwise."""

_PARQUET = ".parquet"
_IPC = (".arrow", ".feather", ".ipc")


@dataclass(frozen=True)
class WriteReport:
    """A report on a written file.

    Attributes:
        path: The file; for a result on Spark the folder, as a URL unless it is on this machine.
        rows: The number of rows.
        row_groups: The number of row groups or record batches.
        size: The number of bytes.
        spilled: The bytes of events that Spark tasks sorted in files because they did not fit in memory.
    """

    path: Path | str
    rows: int
    row_groups: int
    size: int
    spilled: int = 0


def write(
    batches: Iterable[pa.RecordBatch | pa.Table],
    schema: pa.Schema,
    path: str | Path,
    *,
    row_group_rows: int = ROW_GROUP_ROWS,
    if_exists: IfExists = "raise",
) -> WriteReport:
    """Write batches to a file as they come. The file gets its name when it is complete and on disk.

    Args:
        batches: Record batches or tables of the schema.
        schema: The file's columns.
        path: Where to; ``.parquet``, or ``.arrow``, ``.feather`` or ``.ipc`` for Arrow IPC.
        row_group_rows: Rows per row group or record batch.
        if_exists: Whether an existing file is replaced or an error.

    Raises:
        SourceError: The ending is unknown, the folder is missing, the file exists, or the format does not hold a type.
        PlanError: A row group without rows, or a policy that does not exist.

    Examples:
        >>> import tempfile
        >>> table = pa.table({"n": [1, 2, 3]})
        >>> report = write([table], table.schema, Path(tempfile.mkdtemp()) / "n.parquet", row_group_rows=2)
        >>> report.rows, report.row_groups
        (3, 2)
    """
    target = Path(path)
    check_writing(if_exists, row_group_rows)
    if target.suffix.lower() not in (_PARQUET, *_IPC):
        raise SourceError(
            f"The ending of {target} names no format.",
            remedy=f"End it in {_PARQUET}, {', '.join(_IPC[:-1])} or {_IPC[-1]}.",
        )
    if not target.parent.is_dir():
        raise SourceError(f"There is no folder {target.parent}.", remedy="Make it first.")
    _refuse_existing(target, if_exists)
    rows = groups = 0
    with whole_or_nothing(target, if_exists) as unfinished:
        pieces = regrouped(batches, schema, row_group_rows)
        parquet = target.suffix.lower() == _PARQUET
        if not parquet and any(map(_holds_dictionary, schema.types)):
            pieces = _with_one_dictionary(pieces, schema, target)
        with _writer(unfinished, schema, parquet=parquet) as writer:
            for piece in pieces:
                writer.write_table(piece, piece.num_rows)
                rows += piece.num_rows
                groups += 1
        size = unfinished.tell()
    return WriteReport(target, rows, groups, size)


def check_writing(if_exists: str, row_group_rows: int) -> None:
    """Refuse invalid arguments of a write, on any engine."""
    if row_group_rows < 1:
        raise PlanError("A row group holds at least one row.", remedy="Give row_group_rows=1 or more.")
    check_choice("if_exists", if_exists, IfExists)


def _refuse_existing(target: Path, if_exists: IfExists) -> None:
    if target.is_dir():
        raise SourceError(f"{target} is a folder.", remedy="Give the path of a file.")
    if if_exists == "raise" and target.exists():
        raise SourceError(f"{target} exists.", remedy='Say if_exists="replace", or give another path.')


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")


@contextmanager
def whole_or_nothing(target: Path, if_exists: IfExists) -> Iterator[Any]:
    """A file that gets its name when it is complete and on disk. An error before that removes it.

    It takes over the mode of a file that it replaces. A link is replaced itself: its target stays as it is, so that
    nobody can have other files overwritten by putting a link there.
    """
    if not target.name:
        raise SourceError(f'The path "{target}" names a folder, and no file.', remedy="Add the file's name.")
    temporary = _beside(target)
    try:
        with temporary.open("xb") as unfinished:
            keep_mode(temporary, target)  # before there is anything in it to be read
            yield unfinished
            unfinished.flush()
            os.fsync(unfinished.fileno())
        _refuse_existing(target, if_exists)
        temporary.replace(target)
        sync_folder(target.parent)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(
            f"{target} cannot hold a column: {error}", remedy="Cast it, or write the other of Parquet and Arrow IPC."
        ) from error
    except OSError as error:
        raise SourceError(
            f"{target} cannot be written: {error}", remedy="See that there is room and permission."
        ) from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def keep_mode(made: Path, target: Path) -> None:
    """Give a new file the mode of the file that it is about to replace.

    The mode of a link's target only removes rights.

    Raises:
        OSError: The file system refuses.
    """
    try:
        known = target.stat()
    except OSError:  # there is none, or the link leads nowhere
        return
    before = stat.S_IMODE(made.stat().st_mode)
    mode = stat.S_IMODE(known.st_mode) & 0o777
    mode = before & mode if target.is_symlink() else mode
    if mode != before:
        made.chmod(mode)


_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
"""The errors of file systems that cannot sync folders."""


def sync_folder(folder: Path) -> None:
    """Make renames durable, by syncing their folder.

    Raises:
        OSError: Syncing failed. A file system that cannot sync folders raises nothing.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, and sync each new name.

    Raises:
        OSError: The file system refuses.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def _writer(unfinished: Any, schema: pa.Schema, *, parquet: bool) -> Any:
    return pq.ParquetWriter(unfinished, schema, compression="zstd") if parquet else pa.ipc.new_file(unfinished, schema)


def _holds_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return _holds_dictionary(kind.storage_type)
    return any(_holds_dictionary(field.type) for field in fields_of(kind))


def _with_one_dictionary(pieces: Iterator[pa.Table], schema: pa.Schema, target: Path) -> Iterator[pa.Table]:
    """The same tables, with one dictionary for each column.

    An Arrow IPC file holds one dictionary, before its first row. (It may grow by deltas, which Polars does not read.)
    So the tables wait in a stream on disk, where dictionaries may change, until all dictionaries are known.
    """
    waiting = _beside(target)
    known = pa.Table.from_batches([], schema)
    try:
        with waiting.open("xb") as file, pa.ipc.new_stream(file, schema) as stream:
            for piece in pieces:
                stream.write_table(piece)
                known = _unified(known, piece).slice(0, 0)
        with pa.memory_map(str(waiting)) as mapped, pa.ipc.open_stream(mapped) as batches:
            for batch in batches:
                unified = _unified(known, pa.Table.from_batches([batch])).to_batches()
                yield pa.Table.from_batches([each for each in unified if each.num_rows], schema)
    finally:
        with suppress(FileNotFoundError):
            waiting.unlink()


def _unified(known: pa.Table, piece: pa.Table) -> pa.Table:
    return pa.concat_tables([known, piece]).unify_dictionaries()


def regrouped(batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, size: int) -> Iterator[pa.Table]:
    """The same rows in tables of `size` rows; the last table has the rest."""
    waiting: list[pa.Table] = []
    rows = 0
    for batch in batches:
        table = (pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch).cast(schema)
        while rows + table.num_rows >= size:
            yield pa.concat_tables([*waiting, table.slice(0, size - rows)]).combine_chunks()
            table = table.slice(size - rows)
            waiting, rows = [], 0
        if table.num_rows:
            waiting.append(table)
            rows += table.num_rows
    if rows:
        yield pa.concat_tables(waiting).combine_chunks()
