"""Checkpoints: tables and a few facts in one file, written whole or not at all."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from gpu_ops.errors import SourceError
from gpu_ops.store.files import whole_or_nothing

_FACTS = "checkpoint.json"
_FORMAT = 1


def write_checkpoint(path: Path, facts: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
    """Write facts and tables to a zip archive: ``checkpoint.json``, and an Arrow IPC file for each table."""
    names = {f"{number:03}.arrow": name for number, name in enumerate(tables)}
    with whole_or_nothing(path, "replace") as target, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for file, table in zip(names, tables.values(), strict=True):
            with archive.open(file, "w", force_zip64=True) as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
        archive.writestr(_FACTS, json.dumps({"format": _FORMAT, "tables": names, **facts}, indent=1))


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """What `write_checkpoint` wrote.

    Raises:
        SourceError: There is no such file, or it is no checkpoint, or a part of it is damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
            if damaged is not None:
                raise SourceError(f"The checkpoint {path} is damaged: {damaged}.", remedy="Restore an older one.")
            facts = json.loads(archive.read(_FACTS))
            if facts["format"] != _FORMAT:
                raise SourceError(
                    f"The checkpoint {path} has format {facts['format']}, and this version reads {_FORMAT}.",
                    remedy="Restore it with the version of gpu_ops that wrote it.",
                )
            tables = {
                name: pa.ipc.open_file(io.BytesIO(archive.read(file))).read_all()
                for file, name in facts["tables"].items()
            }
    except FileNotFoundError as error:
        raise SourceError(f"There is no checkpoint {path}.", remedy="Start the query instead.") from error
    except (zipfile.BadZipFile, KeyError, ValueError, pa.ArrowInvalid) as error:
        raise SourceError(f"{path} is no checkpoint: {error}.", remedy="Restore another one.") from error
    return facts, tables
