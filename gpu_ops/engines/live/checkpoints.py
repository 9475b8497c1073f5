"""Checkpoint files: tables and JSON facts in one zip archive, written atomically."""

from __future__ import annotations

import json
import os
import platform
import secrets
import shutil
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.ipc

from gpu_ops.checkpoints.manifests import check_keep
from gpu_ops.core import arrow_files
from gpu_ops.core.bounds import TRUSTLESS, Bounds, refuse_pipes, unreadable
from gpu_ops.core.state_tables import OLDER
from gpu_ops.core.version import VERSION
from gpu_ops.engines.live.facts import FACTS, HEAD, check_facts
from gpu_ops.errors import GpuOpsError, SourceError
from gpu_ops.microbatches.files import whole_or_nothing

FORMAT = 2
_FORMATS = (1, 2)
"""Format 1 names no stores, no functions and no version."""

_SEAL = "crc32:"
"""The end of an archive, its comment: this, and eight digits of the CRC-32 of all before it. Each part has its own, but
what stands between the parts says twice where they are, and when they were made, and nobody compares that."""

_BLOCK = 1 << 20


def write_checkpoint(
    path: Path, facts: Mapping[str, Any], tables: Mapping[str, pa.Table], *, keep: int | None = None
) -> None:
    """Write facts and tables to a zip archive: ``checkpoint.json``, and an Arrow IPC file for each table.

    Args:
        path: The archive.
        facts: The content of the JSON file.
        tables: The content of the Arrow files.
        keep: How many checkpoints are kept: the new one at the path, the one before it at ``path.1`` and so on. None
            replaces the last one and leaves older ones.

    Raises:
        SourceError: The file system refuses, or the path names no file. Then an older checkpoint there is unchanged.
        PlanError: ``keep`` is less than 1.
    """
    if keep is not None:
        check_keep(keep)
    names = {f"{number:03}.arrow": name for number, name in enumerate(tables)}
    with whole_or_nothing(path, "replace") as target, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for file, table in zip(names, tables.values(), strict=True):
            with archive.open(file, "w", force_zip64=True) as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
        archive.writestr(FACTS, json.dumps({"format": FORMAT, **made_by(), "tables": names, **facts}, indent=1))
        archive.comment = _seal(0)
        archive.close()
        target.flush()
        with Path(target.name).open("rb") as written:
            seal = _seal(_crc(written, target.tell() - len(_seal(0))))
        target.seek(-len(seal), os.SEEK_END)
        target.write(seal)
        if keep is not None:
            _keep_older(path, keep)
    if keep is not None:
        _remove_beyond(path, keep)


def _seal(crc: int) -> bytes:
    return f"{_SEAL}{crc:08x}".encode()


def _crc(file: BinaryIO, size: int) -> int:
    """The CRC-32 of the first bytes of a file."""
    crc, left = 0, size
    file.seek(0)
    while left > 0 and (block := file.read(min(left, _BLOCK))):
        crc, left = zlib.crc32(block, crc), left - len(block)
    return crc


def made_by() -> dict[str, str]:
    """The versions of this package and of Python, whose bytecode changes with its version."""
    return {"version": VERSION, "python": ".".join(platform.python_version_tuple()[:2])}


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _keep_older(path: Path, keep: int) -> None:
    """Give the checkpoint that is about to be replaced a second name, and shift older ones up by one."""
    if keep == 1 or not path.exists():
        return
    newest = _numbered(path, 1)
    if newest.exists() and newest.samefile(path):
        return  # the last write failed after this step
    there = 0
    while there < keep - 1 and _numbered(path, there + 1).exists():
        there += 1
    for number in range(min(there + 1, keep - 1), 1, -1):
        _numbered(path, number - 1).replace(_numbered(path, number))
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        try:
            os.link(path, unfinished, follow_symlinks=False)
        except (OSError, NotImplementedError):  # the file system has no hard links
            shutil.copy(path, unfinished, follow_symlinks=False)
        unfinished.replace(newest)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()


def _remove_beyond(path: Path, keep: int) -> None:
    """Remove numbered checkpoints beyond ``keep``."""
    number = keep
    # A file that is no checkpoint is somebody else's. One that cannot be removed stays until the next time.
    with suppress(OSError):
        while zipfile.is_zipfile(older := _numbered(path, number)):
            older.unlink()
            number += 1


def read_checkpoint(path: Path, bounds: Bounds = TRUSTLESS) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """The facts and tables that `write_checkpoint` wrote.

    Args:
        path: The archive.
        bounds: How far it is trusted.

    Raises:
        SourceError: The file is missing, unreadable, damaged, or no checkpoint.
    """
    try:
        size = refuse_pipes(path).st_size
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            _check(archive, file, path, size, bounds)
            facts = json.loads(archive.read(FACTS))
            check_facts(path, facts, HEAD)
            _check_format(path, facts)
            tables = {
                name: arrow_files.read_table(pa.py_buffer(archive.read(file)), None, f"{path}, {file}", bounds)
                for file, name in facts["tables"].items()
            }
    except GpuOpsError:
        raise
    except FileNotFoundError as error:
        raise SourceError(f"There is no checkpoint {path}.", remedy="Start the query instead.") from error
    except RecursionError as error:
        raise SourceError(f"{path} is no checkpoint: its {FACTS} is nested too deep.", remedy=OLDER) from error
    except Exception as error:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None):
            raise unreadable(str(path), error) from error
        # Any other error of zipfile, JSON or Arrow comes from the content of the file.
        raise SourceError(f"{path} is no checkpoint: {error}.", remedy=OLDER) from error
    return facts, tables


def _check(archive: zipfile.ZipFile, file: BinaryIO, path: Path, size: int, bounds: Bounds) -> None:
    """Refuse a damaged archive, and one whose parts are compressed or overlap: they could unpack to any size."""
    parts = archive.infolist()
    if any(each.compress_type != zipfile.ZIP_STORED for each in parts) or sum(each.file_size for each in parts) > size:
        raise SourceError(f"{path} is no checkpoint: its parts are packed, and a checkpoint's are not.", remedy=OLDER)
    meter = bounds.meter(str(path), size)
    for each in parts:
        meter.take(each.file_size)
    damaged = archive.testzip()
    if damaged is not None:
        raise SourceError(f"The checkpoint {path} is damaged: {damaged}.", remedy=OLDER)
    # Older versions wrote none.
    if archive.comment and archive.comment != _seal(_crc(file, size - len(archive.comment))):
        raise SourceError(f"The checkpoint {path} is damaged between its parts.", remedy=OLDER)


def _check_format(path: Path, facts: Mapping[str, Any]) -> None:
    if facts["format"] not in _FORMATS:
        raise SourceError(
            f"The checkpoint {path} has format {facts['format']}, and this version of gpu_ops reads {FORMAT}.",
            remedy=f"Restore it with the version of gpu_ops that wrote it: {facts.get('version', 'unknown')}.",
        )
